//! Metalink: a file that names mirrors and hashes of other files. Version 4 (RFC 5854) is read and written,
//! the older version 3 (`.metalink`) is read.
//!
//! `docs/mirror-formats.md` says what of it is used. A Metalink comes from outside, so a [`Metalink`] that
//! was read has names without `..` that stay below one directory, only URLs of `http` and `https`, and piece
//! hashes that are as many as the size asks for. Document types are refused, and with them entities that
//! grow.

mod read;
mod write;

use anabranch_mmtp::ContentId;
use anabranch_mmtp::collection::{PATH_MAX, is_file_name};
use percent_encoding::percent_decode_str;

use crate::digests::{Digests, PieceHashes};
use crate::url::Url;

pub use crate::http_fields::PRIORITY_LAST;

/// Bytes of a Metalink.
pub const METALINK_MAX: usize = 16 << 20;
/// Files that a Metalink describes.
pub const FILES_MAX: usize = 10_000;
/// Mirrors of a file.
pub const MIRRORS_MAX: usize = 1_000;
/// Piece hashes of a file.
pub const PIECES_MAX: usize = 1 << 18;
/// Elements within each other; deeper ones are no Metalink.
pub const DEPTH_MAX: usize = 64;
/// Bytes of text in an element that is read.
pub const TEXT_MAX: usize = 8 * 1024;
/// Kinds of hashes that a file remembers having been left out.
pub const IGNORED_MAX: usize = 8;

/// The namespace of version 4.
const NAMESPACE_4: &str = "urn:ietf:params:xml:ns:metalink";
/// The namespace of version 3.
const NAMESPACE_3: &str = "http://www.metalinker.org/";

/// What a Metalink says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metalink {
    /// The files, in its order; at least one if it was read.
    pub files: Vec<File>,
}

impl Metalink {
    /// The same, as it was found at `base`: what is relative leads somewhere (RFC 3986 §5.2).
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

    /// Whether it names places, and all of them are relative to a place that is not known.
    #[must_use]
    pub fn is_only_relative(&self) -> bool {
        self.files.iter().all(|file| file.mirrors.is_empty())
            && self.files.iter().any(|file| !file.relative_mirrors.is_empty())
    }
}

/// A file and where it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct File {
    /// Its name: components separated by `/`, safe below a directory (see [`is_safe_name`]).
    pub name: String,
    /// Its length in bytes, at most [`LENGTH_MAX`](anabranch_mmtp::id::LENGTH_MAX).
    pub size: Option<u64>,
    /// Hashes of all its bytes.
    pub hashes: Hashes,
    /// Kinds of hashes of all its bytes that are there but prove nothing (`sha-1`, `md5`), or that are not
    /// known here, in lower case, at most [`IGNORED_MAX`].
    pub ignored_hashes: Vec<String>,
    /// Hashes of its pieces.
    pub pieces: Option<Pieces>,
    /// An OpenPGP signature of the file, armored.
    pub signature: Option<String>,
    /// Kinds of piece hashes that are there but of no use (`sha-1`), in lower case, at most [`IGNORED_MAX`].
    pub ignored_pieces: Vec<String>,
    /// Where it is, the best first.
    pub mirrors: Vec<Mirror>,
    /// The same of those that are relative to the place of the Metalink, until that
    /// [is known](Metalink::seen_from): the reference, and how good it is.
    pub relative_mirrors: Vec<(String, u32)>,
    /// How many more places it names that are no URL of `http` or `https`.
    pub ignored_mirrors: u32,
    /// Where its leaf list is (see [`crate::leaf_list`]): a reference relative to the place of the Metalink,
    /// or a URL.
    pub leaves: Option<String>,
}

/// Hashes of a whole file. Kinds that do not stand up to attacks any more are left out; see
/// [`File::ignored_hashes`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hashes {
    /// `sha-256`, `sha-384`, `sha-512`.
    pub digests: Digests,
    /// `blake3`: the root of its content id.
    pub blake3: Option<[u8; 32]>,
}

/// A hash of each piece of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pieces {
    /// Bytes of a piece, at least 1; the last piece may be shorter.
    pub bytes: u64,
    /// The hash of each piece, in order; at most [`PIECES_MAX`].
    pub hashes: PieceHashes,
}

impl Pieces {
    /// Whether a file of this length has so many pieces.
    #[must_use]
    pub const fn fit(&self, length: u64) -> bool {
        length.div_ceil(self.bytes) == self.hashes.len() as u64
    }
}

/// A place where a file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    /// Where.
    pub url: Url,
    /// How good it is: 1 is the best, [`PRIORITY_LAST`] if it is not said.
    pub priority: u32,
    /// The country it is in, two lower-case letters.
    pub location: Option<String>,
}

/// Why bytes are no Metalink of use, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{kind}", if *line > 0 { format!("line {line}: ") } else { String::new() })]
pub struct MetalinkError {
    /// The line, from 1 on; 0 if it is about all of it.
    pub line: u64,
    /// What is wrong.
    pub kind: MetalinkErrorKind,
}

/// What is wrong with a Metalink.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetalinkErrorKind {
    /// It is longer than [`METALINK_MAX`].
    #[error("the Metalink has {0} bytes, expected at most {METALINK_MAX}")]
    TooLong(usize),
    /// It has more of these than the limit.
    #[error("too many {0}, expected at most {1}")]
    TooMany(&'static str, usize),
    /// It is not UTF-8.
    #[error("not UTF-8, expected a Metalink in UTF-8")]
    Encoding,
    /// It is not well-formed: why.
    #[error("not well-formed XML ({0})")]
    Xml(String),
    /// It has a document type.
    #[error("a document type, expected none: a Metalink has no use for it")]
    Doctype,
    /// It has an entity that XML itself does not define.
    #[error("the entity {0:?}, expected one of XML's own: amp, lt, gt, quot, apos")]
    Entity(String),
    /// It is XML of another kind, with this root element.
    #[error("the root element is {0:?}, expected <metalink xmlns=\"{NAMESPACE_4}\"> or that of version 3")]
    Root(String),
    /// It describes no file.
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
    /// A size is no number, or over [`LENGTH_MAX`](anabranch_mmtp::id::LENGTH_MAX).
    #[error("the size {0:?} is not a number from 0 to {max}", max = anabranch_mmtp::id::LENGTH_MAX)]
    Size(String),
    /// A hash of this kind is not that many hexadecimal digits.
    #[error("the hash {2:?} is not {0}, expected {1} hexadecimal digits")]
    Hash(&'static str, usize, String),
    /// A file has two of these, and they differ.
    #[error("a file has two of {0}, and they differ")]
    Differ(&'static str),
    /// The length of pieces is no number from 1 on.
    #[error("the length of pieces {0:?} is not a number from 1 on")]
    PieceBytes(String),
    /// Piece hashes are not numbered from 0 on, each once.
    #[error("the piece number {0:?} is not one, expected 0, 1, 2, … each once")]
    PieceNumber(String),
    /// There are this many piece hashes, where the size asks for so many.
    #[error("{found} piece hashes, expected {expected} for a file of this size")]
    PieceCount {
        /// What there is.
        found: u64,
        /// What there should be.
        expected: u64,
    },
    /// The place of a leaf list has characters that no reference has.
    #[error("the place of the leaf list {0:?} is no reference")]
    Leaves(String),
}

impl Metalink {
    /// Reads a Metalink of version 4 or 3.
    ///
    /// # Errors
    /// Why it is none.
    pub fn parse(bytes: &[u8]) -> Result<Self, MetalinkError> {
        read::read(bytes)
    }

    /// The Metalink of version 4 that says this. What was left out when it was read is not in it.
    ///
    /// # Errors
    /// If it has no files, or one with a name, a size, pieces or a place of its leaf list that could not be
    /// read again.
    pub fn emit(&self) -> Result<String, MetalinkError> {
        write::write(self)
    }
}

impl File {
    /// The content's name, if its BLAKE3 hash and its size are there.
    #[must_use]
    pub fn content(&self) -> Option<ContentId> {
        Some(ContentId { root: self.hashes.blake3?, length: self.size? })
    }

    /// The last component of its name.
    #[must_use]
    pub fn file_name(&self) -> &str {
        self.name.rsplit('/').next().unwrap_or_default()
    }

    /// The name of its leaf list in the directory where the Metalink is, if it is there.
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
    /// How many pieces of `bytes` a file of `size` has.
    #[must_use]
    pub const fn count(size: u64, bytes: u64) -> u64 {
        if bytes == 0 { 0 } else { size.div_ceil(bytes) }
    }
}

/// Whether this may be the name of a file in a Metalink: a relative path whose components are file names,
/// without control characters (RFC 5854 §4.1.2.1).
#[must_use]
pub fn is_safe_name(name: &str) -> bool {
    name.len() <= PATH_MAX
        && name.split('/').all(|component| is_file_name(component.as_bytes()))
        && name.chars().all(is_text)
}

/// Whether the place of a leaf list is one as far as its characters go.
fn is_reference(text: &str) -> bool {
    let good = |c: char| c != ' ' && is_text(c);
    !text.is_empty() && text.len() <= TEXT_MAX && text.chars().all(good)
}

/// Whether a Metalink may have this character in a name: those of XML 1.0 §2.2, less the controls.
#[must_use]
pub fn is_text(char: char) -> bool {
    !char.is_control() && !matches!(char, '\u{fffe}' | '\u{ffff}')
}

/// The number of pieces must be right where the size is known.
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
