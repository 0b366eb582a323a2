//! Metalinks: files that list mirrors and hashes of other files. This module reads and writes version 4 (RFC
//! 5854), and reads the older version 3 (`.metalink`).
//!
//! `docs/mirror-formats.md` says which parts are used. A Metalink comes from outside. So a [`Metalink`] that
//! was read has only names without `..` that stay below one directory, only `http` and `https` URLs, and
//! exactly as many piece hashes as the size requires. Document types are refused, and with them entities that
//! expand.

mod read;
mod write;

use anabranch_mmtp::ContentId;
use anabranch_mmtp::collection::{PATH_MAX, is_file_name};
use percent_encoding::percent_decode_str;

use crate::digests::{Digests, PieceHashes};
use crate::url::Url;

pub use crate::http_fields::PRIORITY_LAST;

/// The most bytes of a Metalink.
pub const METALINK_MAX: usize = 16 << 20;
/// The most files of a Metalink.
pub const FILES_MAX: usize = 10_000;
/// The most mirrors of a file.
pub const MIRRORS_MAX: usize = 1_000;
/// The most piece hashes of a file.
pub const PIECES_MAX: usize = 1 << 18;
/// The deepest nesting of elements.
pub const DEPTH_MAX: usize = 64;
/// The most bytes of text in an element that is used.
pub const TEXT_MAX: usize = 8 * 1024;
/// The most kinds of ignored hashes that a file remembers.
pub const IGNORED_MAX: usize = 8;

/// The namespace of version 4.
const NAMESPACE_4: &str = "urn:ietf:params:xml:ns:metalink";
/// The namespace of version 3.
const NAMESPACE_3: &str = "http://www.metalinker.org/";

/// The content of a Metalink.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metalink {
    /// The files in the order of the Metalink; at least one if it was read.
    pub files: Vec<File>,
}

impl Metalink {
    /// Resolves relative references of mirrors against `base`, the URL of the Metalink (RFC 3986 §5.2).
    #[must_use]
    pub fn seen_from(mut self, base: &Url) -> Self {
        for file in &mut self.files {
            for (reference, priority) in std::mem::take(&mut file.relative_mirrors) {
                match base.join(&reference) {
                    Ok(url) => file.mirrors.push(Mirror { url, priority, location: None }),
                    Err(_) => file.ignored_mirrors += 1,
                }
            }
            file.mirrors.sort_by_key(|mirror| mirror.priority);
        }
        self
    }

    /// Whether it lists mirrors and all of them are relative references that have not been resolved.
    #[must_use]
    pub fn is_only_relative(&self) -> bool {
        self.files.iter().all(|file| file.mirrors.is_empty())
            && self.files.iter().any(|file| !file.relative_mirrors.is_empty())
    }
}

/// A file that a Metalink describes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct File {
    /// The name: components separated by `/`, which stay below one directory (see [`is_safe_name`]).
    pub name: String,
    /// The length in bytes, at most [`LENGTH_MAX`](anabranch_mmtp::id::LENGTH_MAX).
    pub size: Option<u64>,
    /// The hashes of the whole file.
    pub hashes: Hashes,
    /// The kinds of hashes of the whole file that were ignored because they prove nothing (`sha-1`, `md5`) or
    /// are not known here. In lower case, at most [`IGNORED_MAX`].
    pub ignored_hashes: Vec<String>,
    /// The hashes of the pieces.
    pub pieces: Option<Pieces>,
    /// An OpenPGP signature of the file, armored.
    pub signature: Option<String>,
    /// The kinds of piece hashes that were ignored (`sha-1`), in lower case, at most [`IGNORED_MAX`].
    pub ignored_pieces: Vec<String>,
    /// The mirrors, the best first.
    pub mirrors: Vec<Mirror>,
    /// The mirrors that are relative to the URL of the Metalink, until they are
    /// [resolved](Metalink::seen_from): the reference and the priority.
    pub relative_mirrors: Vec<(String, u32)>,
    /// The number of further mirrors that have no `http` or `https` URL.
    pub ignored_mirrors: u32,
    /// The URL of the leaf list (see [`crate::leaf_list`]), or a reference relative to the URL of the
    /// Metalink.
    pub leaves: Option<String>,
}

/// The hashes of a whole file. Kinds that no longer resist attacks are left out; see
/// [`File::ignored_hashes`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hashes {
    /// The SHA-2 hashes: `sha-256`, `sha-384`, `sha-512`.
    pub digests: Digests,
    /// The BLAKE3 hash (`blake3`), which is the root in the content id.
    pub blake3: Option<[u8; 32]>,
}

/// The hash of each piece of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pieces {
    /// The bytes of a piece, at least 1; the last piece may be shorter.
    pub bytes: u64,
    /// The hash of each piece, in order; at most [`PIECES_MAX`].
    pub hashes: PieceHashes,
}

impl Pieces {
    /// Whether a file of `length` bytes has as many pieces as there are hashes.
    #[must_use]
    pub const fn fit(&self, length: u64) -> bool {
        length.div_ceil(self.bytes) == self.hashes.len() as u64
    }
}

/// A mirror of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    /// The URL of the file on the mirror.
    pub url: Url,
    /// The priority: 1 is the best, [`PRIORITY_LAST`] if not stated.
    pub priority: u32,
    /// The country of the mirror, as two lower-case letters.
    pub location: Option<String>,
}

/// Why bytes are not a usable Metalink, and in which line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{kind}", if *line > 0 { format!("line {line}: ") } else { String::new() })]
pub struct MetalinkError {
    /// The line, counted from 1; 0 if the error is about the whole Metalink.
    pub line: u64,
    /// The error.
    pub kind: MetalinkErrorKind,
}

/// An error in a Metalink.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetalinkErrorKind {
    /// The Metalink is longer than [`METALINK_MAX`].
    #[error("the Metalink has {0} bytes, expected at most {METALINK_MAX}")]
    TooLong(usize),
    /// The Metalink has more of these than the limit.
    #[error("too many {0}, expected at most {1}")]
    TooMany(&'static str, usize),
    /// The Metalink is not UTF-8.
    #[error("not UTF-8, expected a Metalink in UTF-8")]
    Encoding,
    /// The Metalink is not well-formed XML, for this reason.
    #[error("not well-formed XML ({0})")]
    Xml(String),
    /// The Metalink has a document type.
    #[error("a document type, expected none: a Metalink has no use for it")]
    Doctype,
    /// The Metalink has an entity that XML itself does not define.
    #[error("the entity {0:?}, expected one of XML's own: amp, lt, gt, quot, apos")]
    Entity(String),
    /// The XML is not a Metalink; it has this root element.
    #[error("the root element is {0:?}, expected <metalink xmlns=\"{NAMESPACE_4}\"> or that of version 3")]
    Root(String),
    /// The Metalink describes no file.
    #[error("no file in it, expected at least one")]
    Empty,
    /// A file has no name.
    #[error("a file without a name, expected <file name=\"…\">")]
    NoName,
    /// A file has a name that is not safe.
    #[error(
        "the name {0:?} is not safe, expected a relative path without \"..\", \".\", empty components, \
         components over 255 bytes and control characters"
    )]
    Name(String),
    /// A size is not a number, or is over [`LENGTH_MAX`](anabranch_mmtp::id::LENGTH_MAX).
    #[error("the size {0:?} is not a number from 0 to {max}", max = anabranch_mmtp::id::LENGTH_MAX)]
    Size(String),
    /// A hash of this kind does not have this number of hexadecimal digits.
    #[error("the hash {2:?} is not {0}, expected {1} hexadecimal digits")]
    Hash(&'static str, usize, String),
    /// A file has two values of this kind, and they differ.
    #[error("a file has two of {0}, and they differ")]
    Differ(&'static str),
    /// The length of pieces is not a number from 1 to [`LENGTH_MAX`](anabranch_mmtp::id::LENGTH_MAX).
    #[error("the length of pieces {0:?} is not a number from 1 on")]
    PieceBytes(String),
    /// The piece hashes are not numbered from 0 on, each once.
    #[error("the piece number {0:?} is not one, expected 0, 1, 2, … each once")]
    PieceNumber(String),
    /// The number of piece hashes does not match the size of the file.
    #[error("{found} piece hashes, expected {expected} for a file of this size")]
    PieceCount {
        /// The number of piece hashes in the Metalink.
        found: u64,
        /// The number that the size requires.
        expected: u64,
    },
    /// The reference to a leaf list is empty, too long, or has characters that a reference cannot have.
    #[error("the place of the leaf list {0:?} is no reference")]
    Leaves(String),
}

impl Metalink {
    /// Reads a Metalink of version 4 or 3.
    ///
    /// # Errors If `bytes` is not a Metalink that can be used; the error says why, and in which line.
    pub fn parse(bytes: &[u8]) -> Result<Self, MetalinkError> {
        read::read(bytes)
    }

    /// Writes the Metalink as version 4, without the parts that were ignored when it was read.
    ///
    /// # Errors If it has no files or too many, or if a file has a name, a size, mirrors, pieces or a leaf
    /// list reference that could not be read again.
    pub fn emit(&self) -> Result<String, MetalinkError> {
        write::write(self)
    }
}

impl File {
    /// Returns the content id, if the file has a BLAKE3 hash and a size.
    #[must_use]
    pub fn content(&self) -> Option<ContentId> {
        Some(ContentId { root: self.hashes.blake3?, length: self.size? })
    }

    /// Returns the last component of the name.
    #[must_use]
    pub fn file_name(&self) -> &str {
        self.name.rsplit('/').next().unwrap_or_default()
    }

    /// Returns the name of the file's leaf list, if the leaf list is in the directory of the Metalink.
    #[must_use]
    pub fn sibling_leaf_list(&self) -> Option<Vec<u8>> {
        let reference = self.leaves.as_deref()?;
        let reference = reference.strip_prefix("./").unwrap_or(reference);
        if reference.contains([':', '?', '#']) {
            return None;
        }
        Some(percent_decode_str(reference).collect()).filter(|name: &Vec<u8>| is_file_name(name))
    }
}

impl Pieces {
    /// Returns the number of pieces of `bytes` bytes in a file of `size` bytes.
    #[must_use]
    pub const fn count(size: u64, bytes: u64) -> u64 {
        if bytes == 0 { 0 } else { size.div_ceil(bytes) }
    }
}

/// Whether `name` can be the name of a file in a Metalink: a relative path whose components are file names,
/// without control characters (RFC 5854 §4.1.2.1).
#[must_use]
pub fn is_safe_name(name: &str) -> bool {
    name.len() <= PATH_MAX
        && name.split('/').all(|component| is_file_name(component.as_bytes()))
        && name.chars().all(is_text)
}

/// Whether `text` can be the reference to a leaf list. Only its length and its characters are checked.
fn is_reference(text: &str) -> bool {
    let good = |c: char| c != ' ' && is_text(c);
    !text.is_empty() && text.len() <= TEXT_MAX && text.chars().all(good)
}

/// Whether a name in a Metalink may contain this character: one of XML 1.0 §2.2 that is not a control
/// character.
#[must_use]
pub fn is_text(char: char) -> bool {
    !char.is_control() && !matches!(char, '\u{fffe}' | '\u{ffff}')
}

/// Checks that the number of piece hashes is right, if the size is known.
fn check_pieces(file: &File) -> Result<(), MetalinkErrorKind> {
    let Some(pieces) = &file.pieces else { return Ok(()) };
    let found = pieces.hashes.len() as u64;
    match file.size.map(|size| Pieces::count(size, pieces.bytes)) {
        Some(expected) if expected != found => Err(MetalinkErrorKind::PieceCount { found, expected }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
