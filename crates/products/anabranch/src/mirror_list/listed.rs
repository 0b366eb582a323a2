//! The content of a Metalink, as it is shown to people and programs.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use anabranch_mirror::metalink::{self, METALINK_MAX, Metalink, PRIORITY_LAST};
use anabranch_mmtp::uri::{URI_MAX, Uri};
use data_encoding::HEXLOWER;
use serde::Serialize;

use crate::filenames::show;
use crate::{Error, ErrorKind, Result};

/// The content of a Metalink.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MirrorList {
    /// The files, in the Metalink's order.
    pub files: Vec<ListedFile>,
}

/// One file of a Metalink; hashes are in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ListedFile {
    /// The file's name; for a file of a directory, it contains `/`.
    pub name: String,
    /// The length in bytes.
    pub size: Option<u64>,
    /// The URI by which a receiver fetches the file, if its BLAKE3 hash and its length are known. It has as
    /// many of the mirrors as a URI can hold.
    pub uri: Option<String>,
    /// The SHA-256 of the whole file.
    pub sha256: Option<String>,
    /// The SHA-384 of the whole file.
    pub sha384: Option<String>,
    /// The SHA-512 of the whole file.
    pub sha512: Option<String>,
    /// The BLAKE3 hash of the whole file.
    pub blake3: Option<String>,
    /// The kinds of hashes of the whole file that prove nothing: `sha-1`, `md5`.
    pub weak_hashes: Vec<String>,
    /// The length of a piece in bytes, if there are usable hashes of pieces.
    pub piece_bytes: Option<u64>,
    /// The kind of the hashes of pieces: `sha-256`, `sha-384`, `sha-512`.
    pub piece_kind: Option<&'static str>,
    /// The number of pieces.
    pub pieces: usize,
    /// The kinds of hashes of pieces that are not used here.
    pub ignored_pieces: Vec<String>,
    /// The location of the leaf list, relative to the Metalink.
    pub leaves: Option<String>,
    /// The locations of the file, the best first.
    pub mirrors: Vec<ListedMirror>,
    /// The number of mirrors with other protocols, which are not used here.
    pub ignored_mirrors: u32,
    /// The number of mirrors that the URI has.
    #[serde(skip)]
    pub uri_mirrors: usize,
}

/// A location of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ListedMirror {
    /// The URL of the file.
    pub url: String,
    /// The priority, 1 for the best; `None` if the Metalink does not say it.
    pub priority: Option<u32>,
    /// The country of the mirror, as ISO 3166 has it.
    pub location: Option<String>,
}

impl MirrorList {
    /// Reads a Metalink of version 4 (RFC 5854) or 3.
    ///
    /// # Errors
    /// - [`ErrorKind::Usage`](crate::ErrorKind::Usage) if there is no usable Metalink at `path`.
    /// - [`ErrorKind::System`](crate::ErrorKind::System) if reading fails on the way.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let name = show(path);
        let file = File::open(path).map_err(|e| ErrorKind::Usage.cannot("read", path, e))?;
        if file.metadata().is_ok_and(|meta| meta.is_dir()) {
            return Err(Error::usage(format!("{name} is a directory")).at(path));
        }
        let unreadable = |e: io::Error| ErrorKind::System.cannot("read", path, e);
        let mut contents = Vec::new();
        file.take(METALINK_MAX as u64 + 1).read_to_end(&mut contents).map_err(unreadable)?;
        if contents.len() > METALINK_MAX {
            return Err(Error::usage(format!(
                "{name} is no Metalink of use: it is longer than the {METALINK_MAX} bytes that are read"
            ))
            .at(path));
        }
        let metalink = Metalink::parse(&contents);
        let metalink = metalink.map_err(|bad| {
            Error::usage(format!("{name} is no Metalink of use: {bad}")).at(path).because(bad)
        })?;
        Ok(Self::of(&metalink))
    }

    pub(super) fn of(metalink: &Metalink) -> Self {
        Self { files: metalink.files.iter().map(ListedFile::of).collect() }
    }
}

impl ListedFile {
    fn of(file: &metalink::File) -> Self {
        let uri = uri(file);
        let hex = |hash: &[u8]| HEXLOWER.encode(hash);
        Self {
            name: file.name.clone(),
            size: file.size,
            uri: uri.as_ref().map(Uri::to_string),
            sha256: file.hashes.digests.sha256.as_ref().map(|hash| hex(hash)),
            sha384: file.hashes.digests.sha384.as_ref().map(|hash| hex(hash)),
            sha512: file.hashes.digests.sha512.as_ref().map(|hash| hex(hash)),
            blake3: file.hashes.blake3.as_ref().map(|hash| hex(hash)),
            weak_hashes: file.ignored_hashes.clone(),
            piece_bytes: file.pieces.as_ref().map(|pieces| pieces.bytes),
            piece_kind: file.pieces.as_ref().map(|pieces| pieces.hashes.kind()),
            pieces: file.pieces.as_ref().map_or(0, |pieces| pieces.hashes.len()),
            ignored_pieces: file.ignored_pieces.clone(),
            leaves: file.leaves.clone(),
            mirrors: file
                .mirrors
                .iter()
                .map(|mirror| ListedMirror {
                    url: mirror.url.to_string(),
                    priority: (mirror.priority < PRIORITY_LAST).then_some(mirror.priority),
                    location: mirror.location.clone(),
                })
                .collect(),
            ignored_mirrors: file.ignored_mirrors,
            uri_mirrors: uri.map_or(0, |uri| uri.mirrors.len()),
        }
    }
}

/// Returns the URI of a file whose content is known, with as many of its mirrors as it can hold.
fn uri(file: &metalink::File) -> Option<Uri> {
    let mut uri = Uri {
        name: Some(file.file_name().as_bytes().to_vec()),
        // URLs with a password are not published.
        mirrors: file
            .mirrors
            .iter()
            .filter(|m| !m.url.has_credentials())
            .map(|m| m.url.to_string())
            .collect(),
        ..Uri::new(file.content()?)
    };
    while uri.to_string().len() > URI_MAX && uri.mirrors.pop().is_some() {}
    Some(uri)
}
