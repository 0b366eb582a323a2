//! Reads a Metalink: feeds the events of quick-xml to a stack of known elements. Elements of other
//! namespaces, which RFC 5854 §6 allows everywhere, are ignored.

use anabranch_mmtp::id::LENGTH_MAX;
use data_encoding::HEXLOWER_PERMISSIVE;
use quick_xml::NsReader;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesRef, BytesStart, Event};
use quick_xml::name::ResolveResult;

use super::{
    DEPTH_MAX, FILES_MAX, File, IGNORED_MAX, METALINK_MAX, MIRRORS_MAX, Metalink, MetalinkError,
    MetalinkErrorKind, Mirror, NAMESPACE_3, NAMESPACE_4, PIECES_MAX, PRIORITY_LAST, Pieces, TEXT_MAX,
    check_pieces, is_reference, is_safe_name,
};
use crate::digests::PieceHashes;
use crate::http_fields::{SIGNATURE, location, priority};
use crate::leaf_list::MEDIA_TYPE;
use crate::url::{Url, UrlError};

/// The most characters of the Metalink's text that an error quotes.
const QUOTED_CHARS: usize = 80;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    Three,
    Four,
}

/// The elements that the reader uses.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Element {
    Metalink,
    /// In version 3, the element that contains all files. In that version `Verification` contains the hashes
    /// of a file, and `Resources` contains its URLs.
    Files,
    File,
    Verification,
    Resources,
    Pieces,
    Size,
    Hash(HashKind),
    /// A hash of this kind, which is not used.
    IgnoredHash(String),
    /// A piece hash with its number, which only version 3 has.
    PieceHash(Option<String>),
    Mirror {
        priority: u32,
        location: Option<String>,
        /// Whether the URL can be that of the file itself, not of a torrent.
        direct: bool,
    },
    Leaves,
    /// An OpenPGP signature of the file.
    Signature,
    Other,
}

/// The kinds of hashes that are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HashKind {
    Sha256,
    Sha384,
    Sha512,
    Blake3,
}

impl HashKind {
    /// Returns the kind by its name in version 4 (IANA's textual names of hash functions) or in version 3.
    fn named(name: &str) -> Option<Self> {
        match name.trim().to_ascii_lowercase().as_str() {
            "sha-256" | "sha256" => Some(Self::Sha256),
            "sha-384" | "sha384" => Some(Self::Sha384),
            "sha-512" | "sha512" => Some(Self::Sha512),
            "blake3" => Some(Self::Blake3),
            _ => None,
        }
    }
}

/// The piece hashes of a file that have been read so far.
struct PartialPieces {
    kind: String,
    bytes: u64,
    /// Each hash with the number of its piece.
    hashes: Vec<(u64, Vec<u8>)>,
}

struct ReaderState {
    version: Version,
    open: Vec<Element>,
    text: String,
    files: Vec<File>,
    file: Option<File>,
    pieces: Option<PartialPieces>,
}

pub(super) fn read(bytes: &[u8]) -> Result<Metalink, MetalinkError> {
    let bad = |line, kind| MetalinkError { line, kind };
    if bytes.len() > METALINK_MAX {
        return Err(bad(0, MetalinkErrorKind::TooLong(bytes.len())));
    }
    let line_at = |at: usize| 1 + bytes.iter().take(at).filter(|b| **b == b'\n').count() as u64;
    let text =
        std::str::from_utf8(bytes).map_err(|e| bad(line_at(e.valid_up_to()), MetalinkErrorKind::Encoding))?;
    // A byte-order mark is skipped; it does not change line numbers.
    let mut reader = NsReader::from_str(text.strip_prefix('\u{feff}').unwrap_or(text));
    reader.config_mut().expand_empty_elements = true;
    let mut state = ReaderState {
        version: Version::Four,
        open: Vec::new(),
        text: String::new(),
        files: Vec::new(),
        file: None,
        pieces: None,
    };
    let mut began = false;
    loop {
        let (namespace, event) = match reader.read_resolved_event() {
            Ok(read) => read,
            Err(e) => {
                let why = quoted(&e.to_string());
                return Err(bad(line_at(reader.error_position() as usize), MetalinkErrorKind::Xml(why)));
            }
        };
        let step = match event {
            Event::Eof => break,
            Event::Start(start) if state.open.is_empty() => {
                let again = std::mem::replace(&mut began, true);
                state.root(&namespace, &start, again)
            }
            Event::Start(start) => {
                let ours = matches!(namespace, ResolveResult::Bound(ns) if ns.0 == state.namespace());
                state.start(&start, ours)
            }
            Event::End(_) => state.end(),
            Event::Text(text) => state.text(&text.xml10_content()),
            Event::CData(text) => state.text(&text.xml10_content()),
            Event::GeneralRef(entity) => {
                resolve(&entity).and_then(|char| state.text(char.encode_utf8(&mut [0; 4])))
            }
            Event::DocType(_) => Err(MetalinkErrorKind::Doctype),
            _ => Ok(()),
        };
        step.map_err(|wrong| bad(line_at(reader.buffer_position() as usize), wrong))?;
    }
    if !state.open.is_empty() {
        return Err(bad(line_at(bytes.len()), MetalinkErrorKind::Xml("it ends within an element".into())));
    }
    if !began {
        return Err(bad(1, MetalinkErrorKind::Xml("it has no element".into())));
    }
    if state.files.is_empty() {
        return Err(bad(0, MetalinkErrorKind::Empty));
    }
    Ok(Metalink { files: state.files })
}

impl ReaderState {
    const fn namespace(&self) -> &'static str {
        match self.version {
            Version::Three => NAMESPACE_3,
            Version::Four => NAMESPACE_4,
        }
    }

    fn root(
        &mut self,
        namespace: &ResolveResult<'_>,
        start: &BytesStart<'_>,
        again: bool,
    ) -> Result<(), MetalinkErrorKind> {
        if again {
            return Err(MetalinkErrorKind::Xml("a second root element".into()));
        }
        let name = start.local_name();
        self.version = match namespace {
            ResolveResult::Bound(ns) if ns.0 == NAMESPACE_4 => Version::Four,
            ResolveResult::Bound(ns) if ns.0 == NAMESPACE_3 => Version::Three,
            _ => return Err(MetalinkErrorKind::Root(quoted(name.as_ref()))),
        };
        if name.as_ref() != "metalink" {
            return Err(MetalinkErrorKind::Root(quoted(name.as_ref())));
        }
        self.open.push(Element::Metalink);
        Ok(())
    }

    fn start(&mut self, start: &BytesStart<'_>, ours: bool) -> Result<(), MetalinkErrorKind> {
        if self.open.len() >= DEPTH_MAX {
            return Err(MetalinkErrorKind::TooMany("elements within each other", DEPTH_MAX));
        }
        let element = if ours { self.element(start)? } else { Element::Other };
        match element {
            Element::Other => {}
            Element::File => self.begin_file(start)?,
            Element::Pieces => self.begin_pieces(start)?,
            _ => self.text.clear(),
        }
        self.open.push(element);
        Ok(())
    }

    /// Returns the kind of an element of the Metalink namespace, which depends on its parent element.
    fn element(&self, start: &BytesStart<'_>) -> Result<Element, MetalinkErrorKind> {
        use Version::{Four, Three};
        let parent = self.open.last().unwrap_or(&Element::Other);
        Ok(match (self.version, parent, start.local_name().as_ref()) {
            (Three, Element::Metalink, "files") => Element::Files,
            (Four, Element::Metalink, "file") | (Three, Element::Files, "file") => Element::File,
            (_, Element::File, "size") => Element::Size,
            (Three, Element::File, "verification") => Element::Verification,
            (Three, Element::File, "resources") => Element::Resources,
            (Four, Element::File, "hash") | (Three, Element::Verification, "hash") => {
                let kind = attribute(start, "type")?.unwrap_or_default();
                HashKind::named(&kind).map_or_else(|| Element::IgnoredHash(kind), Element::Hash)
            }
            (Four, Element::File, "pieces") | (Three, Element::Verification, "pieces") => Element::Pieces,
            (Four, Element::Pieces, "hash") => Element::PieceHash(None),
            (Three, Element::Pieces, "hash") => Element::PieceHash(attribute(start, "piece")?),
            (Four, Element::File, "url") => Element::Mirror {
                priority: attribute(start, "priority")?.map_or(PRIORITY_LAST, |text| priority(&text)),
                location: attribute(start, "location")?.and_then(|text| location(&text)),
                direct: true,
            },
            (Three, Element::Resources, "url") => {
                // In version 3, 100 is the best preference and 1 the last.
                let preference: Option<u32> =
                    attribute(start, "preference")?.and_then(|t| t.trim().parse().ok());
                let kind = attribute(start, "type")?;
                Element::Mirror {
                    priority: preference.filter(|n| *n <= 100).map_or(PRIORITY_LAST, |n| 101 - n),
                    location: attribute(start, "location")?.and_then(|text| location(&text)),
                    direct: kind.is_none_or(|kind| matches!(kind.trim(), "http" | "https")),
                }
            }
            (Four, Element::File, "signature") => match attribute(start, "mediatype")? {
                Some(kind) if kind.trim().eq_ignore_ascii_case(SIGNATURE) => Element::Signature,
                _ => Element::Other,
            },
            (Three, Element::Verification, "signature") => match attribute(start, "type")? {
                Some(kind) if kind.trim() == "pgp" => Element::Signature,
                _ => Element::Other,
            },
            (Four, Element::File, "metaurl") => match attribute(start, "mediatype")? {
                Some(kind) if kind.trim().eq_ignore_ascii_case(MEDIA_TYPE) => Element::Leaves,
                _ => Element::Other,
            },
            _ => Element::Other,
        })
    }

    fn begin_file(&mut self, start: &BytesStart<'_>) -> Result<(), MetalinkErrorKind> {
        if self.files.len() == FILES_MAX {
            return Err(MetalinkErrorKind::TooMany("files", FILES_MAX));
        }
        let name = attribute(start, "name")?.ok_or(MetalinkErrorKind::NoName)?;
        if !is_safe_name(&name) {
            return Err(MetalinkErrorKind::Name(quoted(&name)));
        }
        self.file = Some(File { name, ..File::default() });
        Ok(())
    }

    fn begin_pieces(&mut self, start: &BytesStart<'_>) -> Result<(), MetalinkErrorKind> {
        let kind = attribute(start, "type")?.unwrap_or_default();
        let text = attribute(start, "length")?.unwrap_or_default();
        let bytes = number(&text).filter(|n| (1..=LENGTH_MAX).contains(n));
        let bytes = bytes.ok_or_else(|| MetalinkErrorKind::PieceBytes(quoted(&text)))?;
        self.pieces = Some(PartialPieces { kind, bytes, hashes: Vec::new() });
        Ok(())
    }

    fn text(&mut self, text: &str) -> Result<(), MetalinkErrorKind> {
        let wanted = match self.open.last() {
            Some(
                Element::Size
                | Element::Hash(_)
                | Element::Mirror { .. }
                | Element::Leaves
                | Element::Signature,
            ) => true,
            Some(Element::PieceHash(_)) => self.pieces.as_ref().is_some_and(PartialPieces::is_wanted),
            _ => false,
        };
        if wanted {
            if self.text.len() + text.len() > TEXT_MAX {
                return Err(MetalinkErrorKind::TooMany("bytes of text in an element", TEXT_MAX));
            }
            self.text.push_str(text);
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), MetalinkErrorKind> {
        let Some(element) = self.open.pop() else { return Ok(()) };
        if element == Element::File {
            return self.end_file();
        }
        let Some(file) = &mut self.file else { return Ok(()) };
        let text = self.text.trim_ascii();
        match element {
            Element::Size => {
                let size = number(text).filter(|size| *size <= LENGTH_MAX);
                let size = size.ok_or_else(|| MetalinkErrorKind::Size(quoted(text)))?;
                set(&mut file.size, size, "size")?;
            }
            Element::Hash(HashKind::Sha256) => {
                set(&mut file.hashes.digests.sha256, hash("sha-256", text)?, "sha-256")?;
            }
            Element::Hash(HashKind::Sha384) => {
                set(&mut file.hashes.digests.sha384, hash("sha-384", text)?, "sha-384")?;
            }
            Element::Hash(HashKind::Sha512) => {
                set(&mut file.hashes.digests.sha512, hash("sha-512", text)?, "sha-512")?;
            }
            Element::Hash(HashKind::Blake3) => {
                set(&mut file.hashes.blake3, hash("blake3", text)?, "blake3")?;
            }
            Element::IgnoredHash(kind) => ignore(&mut file.ignored_hashes, &kind),
            Element::PieceHash(piece) => {
                if let Some(pieces) = self.pieces.as_mut().filter(|pieces| pieces.is_wanted()) {
                    pieces.push(piece.as_deref(), text)?;
                }
            }
            Element::Pieces => {
                if let Some(pieces) = self.pieces.take() {
                    pieces.end(file)?;
                }
            }
            Element::Mirror { priority, location, direct } => match Url::parse(text) {
                Ok(url) if direct => {
                    if file.mirrors.len() == MIRRORS_MAX {
                        return Err(MetalinkErrorKind::TooMany("mirrors", MIRRORS_MAX));
                    }
                    file.mirrors.push(Mirror { url, priority, location });
                }
                Err(UrlError::Syntax(_)) if direct && is_relative(text) => {
                    if file.relative_mirrors.len() == MIRRORS_MAX {
                        return Err(MetalinkErrorKind::TooMany("mirrors", MIRRORS_MAX));
                    }
                    file.relative_mirrors.push((text.to_owned(), priority));
                }
                _ => file.ignored_mirrors += 1,
            },
            Element::Leaves => {
                if !is_reference(text) {
                    return Err(MetalinkErrorKind::Leaves(quoted(text)));
                }
                file.leaves.get_or_insert_with(|| text.to_owned());
            }
            Element::Signature => {
                file.signature.get_or_insert_with(|| text.to_owned());
            }
            _ => {}
        }
        Ok(())
    }

    fn end_file(&mut self) -> Result<(), MetalinkErrorKind> {
        let Some(mut file) = self.file.take() else { return Ok(()) };
        check_pieces(&file)?;
        // The sort is stable: mirrors of the same priority keep their order.
        file.mirrors.sort_by_key(|mirror| mirror.priority);
        self.files.push(file);
        Ok(())
    }
}

/// Whether `text` is a relative reference (RFC 3986 §4.2), and not a URL of another scheme.
fn is_relative(text: &str) -> bool {
    let first = text.split(['/', '?', '#']).next().unwrap_or_default();
    !text.is_empty() && !first.contains(':')
}

impl PartialPieces {
    fn is_wanted(&self) -> bool {
        matches!(HashKind::named(&self.kind), Some(HashKind::Sha256 | HashKind::Sha384 | HashKind::Sha512))
    }

    fn push(&mut self, number_text: Option<&str>, text: &str) -> Result<(), MetalinkErrorKind> {
        if self.hashes.len() == PIECES_MAX {
            return Err(MetalinkErrorKind::TooMany("piece hashes", PIECES_MAX));
        }
        let place = match number_text {
            Some(text) => number(text).ok_or_else(|| MetalinkErrorKind::PieceNumber(quoted(text)))?,
            None => self.hashes.len() as u64,
        };
        let hash = match HashKind::named(&self.kind) {
            Some(HashKind::Sha384) => hash::<48>("sha-384", text)?.to_vec(),
            Some(HashKind::Sha512) => hash::<64>("sha-512", text)?.to_vec(),
            _ => hash::<32>("sha-256", text)?.to_vec(),
        };
        self.hashes.push((place, hash));
        Ok(())
    }

    fn end(mut self, file: &mut File) -> Result<(), MetalinkErrorKind> {
        if !self.is_wanted() {
            ignore(&mut file.ignored_pieces, &self.kind);
            return Ok(());
        }
        self.hashes.sort_by_key(|(number, _)| *number);
        if let Some((_, (number, _))) = (0..).zip(&self.hashes).find(|(n, (number, _))| n != number) {
            return Err(MetalinkErrorKind::PieceNumber(number.to_string()));
        }
        let kind = HashKind::named(&self.kind);
        let hashes = self.hashes.into_iter().map(|(_, hash)| hash);
        let hashes = match kind {
            Some(HashKind::Sha384) => {
                PieceHashes::Sha384(hashes.filter_map(|hash| hash.try_into().ok()).collect())
            }
            Some(HashKind::Sha512) => {
                PieceHashes::Sha512(hashes.filter_map(|hash| hash.try_into().ok()).collect())
            }
            _ => PieceHashes::Sha256(hashes.filter_map(|hash| hash.try_into().ok()).collect()),
        };
        // Of pieces with several lengths or kinds, the first ones count.
        let is_same = |there: &Pieces| there.bytes == self.bytes && there.hashes.kind() == hashes.kind();
        if file.pieces.as_ref().is_none_or(is_same) {
            set(&mut file.pieces, Pieces { bytes: self.bytes, hashes }, "piece hashes")?;
        }
        Ok(())
    }
}

/// Remembers a kind of hash that was ignored.
fn ignore(kinds: &mut Vec<String>, kind: &str) {
    let kind = quoted(&kind.trim().to_ascii_lowercase());
    if kinds.len() < IGNORED_MAX && !kinds.contains(&kind) {
        kinds.push(kind);
    }
}

/// Sets a value that may occur once, or more than once if it is the same.
fn set<T: PartialEq>(place: &mut Option<T>, value: T, what: &'static str) -> Result<(), MetalinkErrorKind> {
    match place {
        Some(there) if *there != value => Err(MetalinkErrorKind::Differ(what)),
        _ => {
            *place = Some(value);
            Ok(())
        }
    }
}

fn hash<const N: usize>(kind: &'static str, text: &str) -> Result<[u8; N], MetalinkErrorKind> {
    let bytes = HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok().and_then(|bytes| bytes.try_into().ok());
    bytes.ok_or_else(|| MetalinkErrorKind::Hash(kind, 2 * N, quoted(text)))
}

fn number(text: &str) -> Option<u64> {
    let text = text.trim_ascii();
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

fn attribute(start: &BytesStart<'_>, name: &str) -> Result<Option<String>, MetalinkErrorKind> {
    let bad = |why: String| MetalinkErrorKind::Xml(quoted(&why));
    let Some(found) = start.try_get_attribute(name).map_err(|e| bad(e.to_string()))? else { return Ok(None) };
    let value = found.normalized_value(quick_xml::XmlVersion::Explicit1_0).map_err(|e| bad(e.to_string()))?;
    Ok(Some(value.into_owned()))
}

/// Returns the character that an XML reference stands for.
fn resolve(entity: &BytesRef<'_>) -> Result<char, MetalinkErrorKind> {
    let unknown = || MetalinkErrorKind::Entity(quoted(entity));
    if entity.is_char_ref() {
        return entity.resolve_char_ref().ok().flatten().ok_or_else(unknown);
    }
    resolve_predefined_entity(entity).and_then(|text| text.chars().next()).ok_or_else(unknown)
}

/// Returns the beginning of the Metalink's text for an error message.
fn quoted(text: &str) -> String {
    match text.char_indices().nth(QUOTED_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
