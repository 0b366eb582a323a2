//! Holds the hash that a caller knows of a whole file, given directly or in a list.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use anabranch_mirror::checksum_lines::Ambiguous;
use anabranch_mirror::digests::Digests;

use crate::filenames::show;
use crate::{Error, Result};

/// The largest part of a list of checksums that is read, in bytes; the rest is ignored.
pub(crate) const LIST_MAX: u64 = 16 << 20;

/// A hash that a whole file must have: SHA-256, SHA-384 or SHA-512.
///
/// It is parsed from the usual texts: the bare hexadecimal digits that `sha256sum` and similar programs
/// print, or these digits after their kind, as in `sha256:HEX`, `sha256=HEX` or `sha-256=HEX`.
///
/// ```
/// let text = "sha256:E3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
/// let get = anabranch::Get::new(["http://a.example/f"])?.checksum(text.parse()?);
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checksum(Digests);

impl Checksum {
    /// Makes the checksum from a SHA-256.
    #[must_use]
    pub const fn sha256(digest: [u8; 32]) -> Self {
        Self(Digests::of_sha256(digest))
    }

    /// Makes the checksum from a SHA-384.
    #[must_use]
    pub const fn sha384(digest: [u8; 48]) -> Self {
        Self(Digests { sha256: None, sha384: Some(digest), sha512: None })
    }

    /// Makes the checksum from a SHA-512.
    #[must_use]
    pub const fn sha512(digest: [u8; 64]) -> Self {
        Self(Digests { sha256: None, sha384: None, sha512: Some(digest) })
    }
}

/// Holds the caller's knowledge of the hash of a file.
#[derive(Clone, Debug)]
pub(crate) enum KnownHash {
    Is(Checksum),
    /// The path of a list that has the hash. It is read when it is needed.
    In(PathBuf),
    /// The path of a list that has the hash, and the text of the list.
    Read(PathBuf, Arc<[u8]>),
}

/// Lists the names that a file may have in a list of hashes.
#[derive(Debug, Default)]
pub(crate) struct FileNames {
    /// The names that the user's request gives the file, the likeliest first.
    pub(crate) own: Vec<Vec<u8>>,
    /// The URLs of the file as they are shown, each with its path.
    pub(crate) urls: Vec<(String, Vec<u8>)>,
    /// Names guessed from other URLs.
    pub(crate) guessed: Vec<Vec<u8>>,
}

/// Holds the hashes that a whole file must have, which a list of checksums or the caller gives.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ListedHash {
    pub(crate) digests: Digests,
    /// The file's name in the list, if some of its URLs have that name and others do not.
    pub(crate) name: Option<Vec<u8>>,
}

impl KnownHash {
    /// Returns the known hashes of a file. `names` returns the names that it may have in a list.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) if a list cannot be read, has no hash of the file, or
    /// has contradicting hashes for two of its URLs.
    pub(crate) fn of_file(known: Option<&Self>, names: impl FnOnce() -> FileNames) -> Result<ListedHash> {
        match known {
            None => Ok(ListedHash::default()),
            Some(Self::Is(checksum)) => Ok(ListedHash { digests: checksum.0, name: None }),
            Some(Self::In(list)) => names().listed(list, &read(list)?),
            Some(Self::Read(list, text)) => names().listed(list, text),
        }
    }

    /// Reads the list now, if there is one, because a pipe can be read only once.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) if the list cannot be read.
    pub(crate) fn loaded(self) -> Result<Self> {
        Ok(match self {
            Self::In(list) => {
                let text = read(&list)?;
                Self::Read(list, text.into())
            }
            other => other,
        })
    }
}

/// Reads a list of hashes.
fn read(list: &Path) -> Result<Vec<u8>> {
    let read = || {
        let mut text = Vec::new();
        File::open(list)?.take(LIST_MAX).read_to_end(&mut text)?;
        Ok(text)
    };
    read().map_err(|e: std::io::Error| Error::usage(format!("{}: {e}", show(list))).at(list).because(e))
}

/// Returns the last component of a path.
fn last(path: &[u8]) -> Vec<u8> {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or_default().to_vec()
}

impl FileNames {
    /// Returns the hash of the file in the list at `path`, whose content is `text`. The list is the output of
    /// `sha256sum`, `sha384sum` or `sha512sum`, with or without `--tag`; other lines are ignored. A hash
    /// without a name counts if no line is about another file. The first of the names that the list has
    /// decides. If the list has several of the URLs, their hashes must agree.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) if the list has no hash for these names, or several.
    fn listed(&self, path: &Path, text: &[u8]) -> Result<ListedHash> {
        let look = |name: &[u8]| {
            Digests::in_list(text, name).map_err(|Ambiguous| {
                Error::usage(format!(
                    "{} has several hashes of files called {}, and nothing tells which is meant: give the \
                     hash itself with `checksum`",
                    show(path),
                    show(String::from_utf8_lossy(&last(name)).as_ref())
                ))
                .at(path)
            })
        };
        for name in &self.own {
            if let Some(digests) = look(name)? {
                return Ok(ListedHash { digests, name: None });
            }
        }
        let mut first: Option<(&str, &[u8], Digests)> = None;
        let mut are_all_there = true;
        for (url, name) in &self.urls {
            match (look(name), first) {
                (Ok(Some(digests)), Some((known, _, its))) if digests.contradict(&its) => {
                    return Err(Error::usage(format!(
                        "{known} and {url} are different files, for {} has another hash of each: `each` \
                         fetches every URL as a file of its own; if they are one, give its hash itself with \
                         `checksum`",
                        show(path)
                    ))
                    .at(path));
                }
                (Ok(Some(digests)), None) => first = Some((url, name, digests)),
                (Ok(Some(_)), Some(_)) => {}
                (Ok(None), _) => are_all_there = false,
                (Err(error), None) => return Err(error),
                (Err(_), Some(_)) => are_all_there = false,
            }
        }
        if let Some((_, name, digests)) = first {
            return Ok(ListedHash { digests, name: (!are_all_there).then(|| last(name)) });
        }
        for name in &self.guessed {
            if let Some(digests) = look(name)? {
                return Ok(ListedHash { digests, name: None });
            }
        }
        let names = self.own.iter().chain(self.urls.iter().map(|(_, name)| name)).chain(&self.guessed);
        let mut names: Vec<String> =
            names.map(|name| String::from_utf8_lossy(&last(name)).into_owned()).collect();
        names.dedup();
        Err(Error::usage(format!(
            "{} has no SHA-256, SHA-384 or SHA-512 of {}: give the hash itself with `checksum`",
            show(path),
            if names.is_empty() {
                "a file whose name is not known".to_owned()
            } else {
                show(names.join(" or "))
            }
        ))
        .at(path))
    }
}

impl FromStr for Checksum {
    type Err = Error;

    /// Parses a checksum.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) if the text is no hash of these kinds.
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
    use crate::ErrorKind;

    /// Returns the hash that the list `text` gives for a file with these URLs.
    fn listed(text: &str, urls: &[&str]) -> Result<ListedHash> {
        let url = |path: &&str| (format!("http://h/{path}"), format!("/{path}").into_bytes());
        let names = FileNames { urls: urls.iter().map(url).collect(), ..FileNames::default() };
        names.listed(Path::new("SHA256SUMS"), text.as_bytes())
    }

    fn two() -> String {
        format!("{}  a.iso\n{} *dir/b.iso\n", "aa".repeat(32), "bb".repeat(32))
    }

    #[test]
    fn the_line_of_the_first_name_that_is_there() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("SHA256SUMS");
        std::fs::write(&path, two()).expect("a file");
        let known = KnownHash::In(path.clone());
        let of = |own: &[&str]| {
            let own = own.iter().map(|name| name.as_bytes().to_vec()).collect();
            KnownHash::of_file(Some(&known), || FileNames { own, ..FileNames::default() })
        };
        let digests = Digests::of_sha256([0xbb; 32]);
        assert_eq!(of(&["none", "b.iso", "a.iso"]), Ok(ListedHash { digests, name: None }));
        let Err(error) = of(&["none", "c"]) else { panic!("neither is there") };
        let (kind, why) = (error.kind(), error.message());
        assert_eq!(kind, ErrorKind::Usage);
        assert!(why.contains("SHA256SUMS has no SHA-256") && why.contains("none or c"), "{why}");
        let missing = KnownHash::In(dir.path().join("no"));
        let Err(error) = KnownHash::of_file(Some(&missing), FileNames::default) else { panic!("no file") };
        let (kind, why) = (error.kind(), error.message());
        assert_eq!(kind, ErrorKind::Usage);
        assert!(why.contains("os error 2"), "{why}");
        assert!(missing.loaded().is_err());
        let read = known.loaded().expect("a list");
        std::fs::remove_file(&path).expect("a file");
        assert!(read.clone().loaded().is_ok() && matches!(read, KnownHash::Read(_, text) if text.len() > 99));
    }

    #[test]
    fn urls_of_which_a_list_has_different_hashes_are_of_different_files() {
        let list = two();
        for urls in [["a.iso", "dir/b.iso"], ["b.iso", "x/a.iso"]] {
            let Err(error) = listed(&list, &urls) else { panic!("{urls:?} are two files") };
            let (kind, why) = (error.kind(), error.message());
            assert_eq!(kind, ErrorKind::Usage);
            assert!(urls.iter().all(|url| why.contains(&format!("http://h/{url}"))), "{why}");
            assert!(why.contains("`each`") && why.contains("SHA256SUMS"), "{why}");
        }
        let digests = Digests::of_sha256([0xaa; 32]);
        let same = Ok(ListedHash { digests, name: None });
        assert_eq!(listed(&list, &["x/a.iso", "y/a.iso"]), same, "mirrors");
        // If mirrors have renamed a file, the list says its name.
        let known = Ok(ListedHash { digests, name: Some(b"a.iso".to_vec()) });
        assert_eq!(listed(&list, &["latest.iso", "x/a.iso"]), known);
        assert_eq!(listed(&"aa".repeat(32), &["latest.iso", "x/a.iso"]), same, "one hash without a name");
    }
}
