//! The hash that a caller knows of a whole file.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anabranch_mirror::checksum_lines::Ambiguous;
use anabranch_mirror::digests::Digests;

use crate::filenames::show;
use crate::{Error, Result};

/// Bytes of a list of checksums that is read.
const LIST_MAX: u64 = 16 << 20;

/// A hash that a whole file must have: SHA-256, SHA-384 or SHA-512.
///
/// It is read from what people have: the bare hexadecimal digits that `sha256sum` and its like print, or
/// these with the kind before them, as in `sha256:HEX`, `sha256=HEX` or `sha-256=HEX`.
///
/// ```
/// let text = "sha256:E3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
/// let get = anabranch::Get::new(["http://a.example/f"])?.checksum(text.parse()?);
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checksum(Digests);

impl Checksum {
    /// This SHA-256.
    #[must_use]
    pub const fn sha256(digest: [u8; 32]) -> Self {
        Self(Digests::of_sha256(digest))
    }

    /// This SHA-384.
    #[must_use]
    pub const fn sha384(digest: [u8; 48]) -> Self {
        Self(Digests { sha256: None, sha384: Some(digest), sha512: None })
    }

    /// This SHA-512.
    #[must_use]
    pub const fn sha512(digest: [u8; 64]) -> Self {
        Self(Digests { sha256: None, sha384: None, sha512: Some(digest) })
    }

    /// That of the first of the file names `names` which the list at `path` has. The list is what
    /// `sha256sum`, `sha384sum` or `sha512sum` print, with `--tag` or without; lines of other kinds are
    /// ignored. A hash without a name counts if no line is about another file.
    ///
    /// # Errors
    /// [`Error::Usage`] if it cannot be read, or has no hash of any of them.
    fn in_list<'a>(path: &Path, names: impl IntoIterator<Item = &'a [u8]>) -> Result<Self> {
        let read = || {
            let mut text = Vec::new();
            File::open(path)?.take(LIST_MAX).read_to_end(&mut text)?;
            Ok(text)
        };
        let text = read().map_err(|e: std::io::Error| Error::usage(format!("{}: {e}", show(path))))?;
        let last = |name: &[u8]| name.rsplit(|byte| *byte == b'/').next().map(<[u8]>::to_vec);
        let called = |name| String::from_utf8_lossy(&last(name).unwrap_or_default()).into_owned();
        let mut tried = Vec::new();
        for name in names {
            match Digests::in_list(&text, name) {
                Ok(Some(digests)) => return Ok(Self(digests)),
                Ok(None) => tried.push(called(name)),
                Err(Ambiguous) => {
                    return Err(Error::usage(format!(
                        "{} has several hashes of files called {}, and nothing tells which is meant: give \
                         the hash itself with `checksum`",
                        show(path),
                        show(called(name))
                    )));
                }
            }
        }
        Err(Error::usage(format!(
            "{} has no SHA-256, SHA-384 or SHA-512 of {}: give the hash itself with `checksum`",
            show(path),
            if tried.is_empty() {
                "a file whose name is not known".to_owned()
            } else {
                show(tried.join(" or "))
            }
        )))
    }
}

/// What a caller says of the hash.
#[derive(Clone, Debug)]
pub(crate) enum KnownHash {
    Is(Checksum),
    /// A list has it.
    In(PathBuf),
}

impl KnownHash {
    /// The hashes that are known. `names`: what the file may be called in a list.
    ///
    /// # Errors
    /// [`Error::Usage`] if a list cannot be read, or does not have it.
    pub(crate) fn digests(known: Option<&Self>, names: impl FnOnce() -> Vec<Vec<u8>>) -> Result<Digests> {
        match known {
            None => Ok(Digests::default()),
            Some(Self::Is(checksum)) => Ok(checksum.0),
            Some(Self::In(list)) => {
                Checksum::in_list(list, names().iter().map(Vec::as_slice)).map(|checksum| checksum.0)
            }
        }
    }
}

impl FromStr for Checksum {
    type Err = Error;

    /// # Errors
    /// [`Error::Usage`] if it is no hash of these kinds.
    fn from_str(text: &str) -> Result<Self> {
        Digests::parse(text).map(Self).ok_or_else(|| {
            Error::usage(format!(
                "{text} is no checksum: expected 64 hexadecimal digits (SHA-256), 96 (SHA-384) or 128 \
                 (SHA-512), or these with the kind before them, as in sha-256=HEX or sha512:HEX"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_the_first_name_that_is_there() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("SHA256SUMS");
        let text = format!("{}  a.iso\n{} *dir/b.iso\n", "aa".repeat(32), "bb".repeat(32));
        std::fs::write(&path, text).expect("a file");
        let of = |names: &[&str]| Checksum::in_list(&path, names.iter().map(|name| name.as_bytes()));
        assert_eq!(of(&["none", "b.iso", "a.iso"]), Ok(Checksum::sha256([0xbb; 32])));
        let Err(Error::Usage(why)) = of(&["none", "c"]) else { panic!("neither is there") };
        assert!(why.contains("SHA256SUMS has no SHA-256") && why.contains("none or c"), "{why}");
        let Err(Error::Usage(why)) = Checksum::in_list(&dir.path().join("no"), []) else { panic!("no file") };
        assert!(why.contains("os error 2"), "{why}");
    }
}
