//! The catalog as a web site, for receivers that speak HTTP.
//!
//! ```text
//! /                      a list of the named paths
//! /FILE  /DIR/PATH       a file
//! /DIR/  /DIR/PATH/      a list of a directory
//! /b3/ROOT[/NAME]        a content by its root, in base32 or hexadecimal; for a directory, its manifest
//! /b3/ROOT/[PATH]        a file or a list of a directory, by the root of its manifest
//! ….meta4  ….b3leaves    for each of these files: its Metalink, and the hashes of its blocks
//! /DIR.meta4             for a directory: a Metalink of all files below it
//! ```
//! A path is looked up in a table of the files that were hashed at the start, never on the disk. If two of
//! the named paths have the same file name, the second is found only by its content.

mod metalink;
mod texts;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::Arc;
use std::time::Duration;

use anabranch_http::server::document::{self, LIST_TYPE, ListingEntry, METALINK_TYPE, UNKNOWN_TYPE};
use anabranch_http::server::path::encode;
use anabranch_http::server::{ContentProvider, PathLookup, Resource, ResourceRequest, Unavailable};
use anabranch_mirror::leaf_list;
use anabranch_mmtp::id::parse_root;
use anabranch_mmtp::uri::host_port;
use anabranch_net::Clock;
use data_encoding::HEXLOWER_PERMISSIVE;

use crate::catalog::{Catalog, CatalogEntry, ReadError};
use crate::filenames::show;
use crate::format::bytes;
use anabranch_algo::RateLimiter;
use texts::{Text, Texts};

/// The largest number of rows on a page of a list; further rows are on the next page.
const ROWS_MAX: usize = 2_000;

/// The suffix of a Metalink's name; `LEAVES_SUFFIX` is that of a leaf list's.
const METALINK_SUFFIX: &[u8] = b".meta4";
const LEAVES_SUFFIX: &[u8] = leaf_list::SUFFIX.as_bytes();
/// The path below which contents are found by their root.
const BY_CONTENT: &[u8] = b"b3/";

/// The catalog, by paths.
pub(crate) struct CatalogSite {
    catalog: Arc<Catalog>,
    limit: Arc<RateLimiter>,
    clock: Clock,
    /// The addresses at which the same content is served by mmTP.
    sockets: Vec<SocketAddr>,
    /// The path of each offer, without a slash in front: unescaped names with slashes between them.
    paths: Vec<Vec<u8>>,
    /// The offers that are files, sorted by their paths.
    files: Vec<usize>,
    /// The directories that were named, by their paths.
    directories: BTreeMap<Vec<u8>, usize>,
    /// The lists and Metalinks that are in memory.
    texts: Texts,
}

/// The resource to which a path leads.
enum Found {
    File(usize),
    Metalink(usize),
    /// The Metalink of all files below the directory with this path.
    MetalinkOfAll(Vec<u8>),
    Leaves(usize),
    /// The list of the directory with this path.
    List(Vec<u8>),
    /// A directory that was requested without the slash that relative links need.
    Slashless,
}

/// The bytes that can be sent.
pub(crate) enum Content {
    File(usize),
    Leaves { offer: usize, head: [u8; leaf_list::HEAD_BYTES] },
    Text(Text),
}

impl CatalogSite {
    pub(crate) fn new(
        catalog: &Arc<Catalog>,
        limit: &Arc<RateLimiter>,
        clock: Clock,
        sockets: Vec<SocketAddr>,
    ) -> Self {
        let (mut taken, mut paths) = (BTreeSet::new(), Vec::new());
        let (mut files, mut directories) = (Vec::new(), BTreeMap::new());
        for group in catalog.offers().chunk_by(|a, b| a.named == b.named) {
            // A directory comes after its files.
            let Some(named) = group.last() else { continue };
            let name = named.path.file_name().unwrap_or_default().as_bytes();
            let place = if !name.is_empty() && taken.insert(name) {
                name.to_vec()
            } else if named.collection {
                [BY_CONTENT, root_text(named).as_bytes()].concat()
            } else {
                [BY_CONTENT, root_text(named).as_bytes(), b"/", name].concat()
            };
            for offer in group {
                let path = join(&place, &offer.relative);
                if offer.collection {
                    directories.insert(path.clone(), paths.len());
                } else {
                    files.push(paths.len());
                }
                paths.push(path);
            }
        }
        files.sort_unstable_by(|a: &usize, b| paths[*a].cmp(&paths[*b]));
        files.dedup_by(|a, b| paths[*a] == paths[*b]);
        let (catalog, limit) = (Arc::clone(catalog), Arc::clone(limit));
        let texts = Texts::default();
        Self { catalog, limit, clock, sockets, paths, files, directories, texts }
    }

    /// Returns the URL of an offer on a server at `address`. For a directory, it is the URL of its list.
    pub(crate) fn url(&self, index: usize, address: &str) -> String {
        let slash = if self.offer(index).collection { "/" } else { "" };
        format!("http://{address}/{}{slash}", encoded(&self.paths[index]))
    }

    fn offer(&self, index: usize) -> &CatalogEntry {
        &self.catalog.offers()[index]
    }

    /// Returns the file with this path.
    fn file(&self, path: &[u8]) -> Option<usize> {
        let at = self.files.binary_search_by(|file| self.paths[*file][..].cmp(path)).ok()?;
        Some(self.files[at])
    }

    /// Returns the files below a directory.
    fn below(&self, directory: &[u8]) -> &[usize] {
        if directory.is_empty() {
            return &self.files;
        }
        // All paths with "directory/" in front lie from there on, and before "directory0": 0 is the byte
        // after the slash.
        let bound = |end: u8| {
            let bound = [directory, &[end]].concat();
            self.files.partition_point(|file| self.paths[*file] < bound)
        };
        &self.files[bound(b'/')..bound(b'/' + 1)]
    }

    fn find(&self, path: &[u8], slash: bool) -> Option<Found> {
        // A file of exactly this name takes precedence.
        match self.file(path).filter(|_| !slash) {
            Some(file) => Some(Found::File(file)),
            None => self.find_content(path, slash).or_else(|| self.find_name(path, slash)),
        }
    }

    fn find_name(&self, path: &[u8], slash: bool) -> Option<Found> {
        if path.is_empty() || self.directories.contains_key(path) || !self.below(path).is_empty() {
            return Some(if slash { Found::List(path.to_vec()) } else { Found::Slashless });
        }
        let about = |suffix| path.strip_suffix(suffix).filter(|_| !slash);
        if let Some(path) = about(METALINK_SUFFIX) {
            let of_all = || (!path.is_empty() && !self.below(path).is_empty()).then(|| path.to_vec());
            return self.file(path).map(Found::Metalink).or_else(|| of_all().map(Found::MetalinkOfAll));
        }
        about(LEAVES_SUFFIX).and_then(|path| self.file(path)).map(Found::Leaves)
    }

    fn find_content(&self, path: &[u8], slash: bool) -> Option<Found> {
        let path = path.strip_prefix(BY_CONTENT)?;
        let cut = path.iter().position(|byte| *byte == b'/');
        let (first, rest) = cut.map_or((path, None), |cut| (&path[..cut], Some(&path[cut + 1..])));
        let Some(rest) = rest else {
            let about = |suffix| first.strip_suffix(suffix).and_then(|root| self.with_root(root));
            return match self.with_root(first) {
                Some(index) if !slash => Some(Found::File(index)),
                Some(index) => self.offer(index).collection.then(|| Found::List(self.paths[index].clone())),
                None if slash => None,
                None => match about(METALINK_SUFFIX) {
                    Some(index) if self.offer(index).collection => {
                        Some(Found::MetalinkOfAll(self.paths[index].clone()))
                    }
                    Some(index) => Some(Found::Metalink(index)),
                    None => about(LEAVES_SUFFIX).map(Found::Leaves),
                },
            };
        };
        let index = self.with_root(first)?;
        let offer = self.offer(index);
        if offer.collection {
            let path = join(&self.paths[index], rest);
            let file = self.file(&path).filter(|_| !slash);
            return file.map(Found::File).or_else(|| self.find_name(&path, slash));
        }
        if slash || rest.contains(&b'/') {
            return None;
        }
        // Any name is accepted, so that a program that saves the file can have a good one.
        Some(match rest {
            _ if rest == offer.name => Found::File(index),
            _ if rest.ends_with(METALINK_SUFFIX) => Found::Metalink(index),
            _ if rest.ends_with(LEAVES_SUFFIX) => Found::Leaves(index),
            _ => Found::File(index),
        })
    }

    /// Finds the content with a root that is written in base32 or hexadecimal.
    fn with_root(&self, text: &[u8]) -> Option<usize> {
        let text = std::str::from_utf8(text).ok()?;
        let root = parse_root(&format!("b3:{text}")).ok().or_else(|| hexadecimal(text))?;
        self.catalog.find(&root).map(CatalogEntry::index)
    }

    /// Returns the URI of an offer for the client that sent `asked`. Its source is at the host that the
    /// client used.
    fn uri(&self, offer: &CatalogEntry, asked: &ResourceRequest<'_>) -> String {
        let local = asked.local.ip();
        let is_same = |socket: &&SocketAddr| {
            let any = socket.ip().is_unspecified() && socket.is_ipv4() == local.is_ipv4();
            any || socket.ip() == local
        };
        // The port is removed. The colons of an IPv6 address are in brackets.
        let host = match asked.host.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) => host,
            _ => asked.host,
        };
        let source = self.sockets.iter().find(is_same).map(|socket| format!("{host}:{}", socket.port()));
        let from: Vec<String> = source.into_iter().filter(|source| host_port(source).is_ok()).collect();
        offer.uri(&from).to_string()
    }

    fn file_resource(&self, index: usize, asked: &ResourceRequest<'_>) -> Resource<Content> {
        let offer = self.offer(index);
        let mut links = Vec::new();
        let path = asked.path.names.join(&b'/');
        // The link is left out if that path leads to a file of that name.
        if let Some(name) = asked.path.names.last()
            && !offer.collection
            && self.file(&[&path, METALINK_SUFFIX].concat()).is_none()
        {
            let to = encode(&[name, METALINK_SUFFIX].concat());
            links.push(described_by(to));
        }
        // RFC 6249 section 3: the same bytes elsewhere.
        links.push(format!("<{}>; rel=\"duplicate\"", self.uri(offer, asked)));
        Resource {
            content: Content::File(index),
            length: offer.id.length,
            etag: Some(format!("\"{}\"", root_text(offer))),
            media_type: if offer.collection { UNKNOWN_TYPE } else { document::media_type(&offer.name) }
                .into(),
            links,
            fields: Vec::new(),
        }
    }

    fn leaves_resource(&self, index: usize) -> Resource<Content> {
        let offer = self.offer(index);
        let head = leaf_list::head(&offer.id);
        Resource {
            content: Content::Leaves { offer: index, head },
            length: (head.len() + self.leaves(index).len()) as u64,
            etag: Some(format!("\"{}{}\"", root_text(offer), leaf_list::SUFFIX)),
            media_type: UNKNOWN_TYPE.into(),
            links: Vec::new(),
            fields: Vec::new(),
        }
    }

    fn leaves(&self, index: usize) -> &[u8] {
        self.catalog.outboard(self.offer(index)).leaves().as_flattened()
    }

    fn list(&self, directory: &[u8], asked: &ResourceRequest<'_>) -> Resource<Content> {
        let from = asked.query.and_then(|query| query.strip_prefix("from=")?.parse().ok()).unwrap_or(0);
        let below = self.below(directory);
        let skipped = if directory.is_empty() { 0 } else { directory.len() + 1 };
        let (mut rows, mut more) = (Vec::new(), None);
        let (mut at, mut count) = (0, 0_usize);
        while let Some(file) = below.get(at) {
            if rows.len() == ROWS_MAX {
                more = Some(format!("?from={count}"));
                break;
            }
            let path = &self.paths[*file][skipped..];
            let name = path.split(|byte| *byte == b'/').next().unwrap_or_default();
            let is_file = name.len() == path.len();
            at = if is_file {
                at + 1
            } else {
                let beyond = [name, &[b'/' + 1]].concat();
                below.partition_point(|file| self.paths[*file][skipped..] < beyond[..])
            };
            count += 1;
            if count > from {
                rows.push(self.row(*file, name, is_file));
            }
        }
        let names = asked.path.names.iter().map(|name| show(OsStr::from_bytes(name)) + "/");
        let title = format!("/{}", names.collect::<String>());
        let up = !asked.path.names.is_empty();
        let metalink = asked.path.names.last().filter(|_| self.has_metalink(directory, asked));
        let metalink = metalink.map(|name| format!("../{}", encode(&[name, METALINK_SUFFIX].concat())));
        let page = document::listing(&title, &rows, up, metalink.as_deref(), more.as_deref());
        let mut page = text_resource(self.texts.make(page), LIST_TYPE);
        page.links.extend(metalink.map(described_by));
        if let Some(index) = self.directories.get(directory) {
            page.links.push(format!("<{}>; rel=\"alternate\"", self.uri(self.offer(*index), asked)));
        }
        page
    }

    fn row(&self, file: usize, name: &[u8], is_file: bool) -> ListingEntry {
        let shown = show(OsStr::from_bytes(name));
        let href = encode(name);
        if !is_file {
            return ListingEntry { href: href + "/", name: shown + "/", size: String::new(), metalink: None };
        }
        let metalink = Some(format!("{href}.meta4"));
        ListingEntry { href, name: shown, size: bytes(self.offer(file).id.length), metalink }
    }
}

impl ContentProvider for CatalogSite {
    type Content = Content;

    fn find(&self, asked: &ResourceRequest<'_>) -> PathLookup<Content> {
        let path = asked.path.names.join(&b'/');
        match self.find(&path, asked.path.directory) {
            None => PathLookup::NotFound("not offered here".to_owned()),
            Some(Found::Slashless) => PathLookup::Moved(asked.path.encode() + "/"),
            Some(Found::File(index)) => PathLookup::Found(self.file_resource(index, asked)),
            Some(Found::Leaves(index)) => PathLookup::Found(self.leaves_resource(index)),
            Some(Found::Metalink(index)) => self.kept_metalink(asked, || self.metalink(index, asked)),
            Some(Found::MetalinkOfAll(directory)) => {
                self.kept_metalink(asked, || self.metalink_of_all(&directory, asked))
            }
            Some(Found::List(directory)) => PathLookup::Found(self.list(&directory, asked)),
        }
    }

    fn check(&self, content: &Content) -> Result<(), Unavailable> {
        match content {
            Content::File(index) => self.catalog.check(self.offer(*index)).map_err(|e| unavailable(&e)),
            Content::Leaves { .. } => Ok(()),
            Content::Text(text) if text.is_permitted() => Ok(()),
            Content::Text(_) => Err(Unavailable::Busy),
        }
    }

    fn read(&self, content: &Content, offset: u64, out: &mut [u8]) -> Result<(), Unavailable> {
        match content {
            Content::File(index) => {
                let read = self.catalog.read_at(self.offer(*index), offset, out);
                read.map_err(|e| unavailable(&e))
            }
            Content::Text(text) => copy(&[text.bytes()], offset, out),
            Content::Leaves { offer, head } => copy(&[head, self.leaves(*offer)], offset, out),
        }
    }

    fn burst_bytes(&self) -> Option<usize> {
        self.limit.is_set().then(|| self.limit.batch_bytes())
    }

    fn reserve(&self, bytes: usize) -> Duration {
        let now = self.clock.now();
        Duration::from_nanos(self.limit.reserve(now, bytes).since(now).as_nanos())
    }
}

/// Makes a resource of a document that was made for a request.
fn text_resource(text: Text, media_type: &'static str) -> Resource<Content> {
    let length = text.bytes().len() as u64;
    Resource {
        content: Content::Text(text),
        length,
        etag: None,
        media_type: media_type.into(),
        links: Vec::new(),
        fields: Vec::new(),
    }
}

/// Fills `out` with the bytes of the concatenated parts, from `offset` on.
fn copy(parts: &[&[u8]], offset: u64, out: &mut [u8]) -> Result<(), Unavailable> {
    let (mut skip, mut done) = (offset as usize, 0);
    for part in parts {
        let from = &part[skip.min(part.len())..];
        skip = skip.saturating_sub(part.len());
        let len = from.len().min(out.len() - done);
        out[done..done + len].copy_from_slice(&from[..len]);
        done += len;
    }
    if done == out.len() { Ok(()) } else { Err(Unavailable::Gone) }
}

/// Encodes a path for a URL.
fn encoded(path: &[u8]) -> String {
    path.split(|byte| *byte == b'/').map(encode).collect::<Vec<_>>().join("/")
}

fn unavailable(error: &ReadError) -> Unavailable {
    if error.is_final() { Unavailable::Gone } else { Unavailable::Busy }
}

/// Returns the `Link` to the Metalink of the requested resource (RFC 6249 section 4).
fn described_by(to: String) -> String {
    format!("<{to}>; rel=\"describedby\"; type=\"{METALINK_TYPE}\"")
}

/// Returns the 52 characters of base32 that name a content.
fn root_text(offer: &CatalogEntry) -> String {
    offer.id.to_string().trim_start_matches("b3:").to_owned()
}

/// Parses a root that is written as 64 hexadecimal digits.
fn hexadecimal(text: &str) -> Option<[u8; 32]> {
    HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok()?.try_into().ok()
}

fn join(directory: &[u8], path: &[u8]) -> Vec<u8> {
    match path {
        [] => directory.to_vec(),
        _ => [directory, b"/", path].concat(),
    }
}
