//! SHA-2 hashes (FIPS 180-4) that a file must have, or that its pieces must have.
//!
//! SHA-1 and MD5 are left out, because an attacker can make two files with the same hash.

use std::fmt;

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use sha2::{Digest as _, Sha256, Sha384, Sha512};

use crate::checksum_lines::{self, Ambiguous};

/// The number of kinds of hashes in [`Digests`].
pub const DIGEST_KINDS: usize = 3;

/// The known hashes of a whole file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digests {
    /// SHA-256.
    pub sha256: Option<[u8; 32]>,
    /// SHA-384.
    pub sha384: Option<[u8; 48]>,
    /// SHA-512.
    pub sha512: Option<[u8; 64]>,
}

impl Digests {
    /// Creates digests with this SHA-256 hash only.
    #[must_use]
    pub const fn of_sha256(hash: [u8; 32]) -> Self {
        Self { sha256: Some(hash), sha384: None, sha512: None }
    }

    /// Whether no hash is known.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.sha256.is_none() && self.sha384.is_none() && self.sha512.is_none()
    }

    /// Returns each known hash with its kind, as named in Metalinks and in IANA's registry of textual hash
    /// names.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &[u8])> {
        self.kinds().into_iter().filter_map(|(kind, hash)| Some((kind, hash?)))
    }

    /// Returns all kinds, the shortest hash first.
    fn kinds(&self) -> [(&'static str, Option<&[u8]>); DIGEST_KINDS] {
        [("sha-256", bytes(&self.sha256)), ("sha-384", bytes(&self.sha384)), ("sha-512", bytes(&self.sha512))]
    }

    /// Whether both have a hash of the same kind and these hashes differ.
    #[must_use]
    pub fn contradict(&self, other: &Self) -> bool {
        let mut both = self.kinds().into_iter().zip(other.kinds());
        both.any(|((_, one), (_, two))| one.is_some() && two.is_some() && one != two)
    }

    /// Returns these hashes, and from `others` the kinds that are not known here.
    #[must_use]
    pub fn or(self, others: Self) -> Self {
        Self {
            sha256: self.sha256.or(others.sha256),
            sha384: self.sha384.or(others.sha384),
            sha512: self.sha512.or(others.sha512),
        }
    }

    /// Returns one value for each kind, with only the hash of that kind, if it is known.
    #[must_use]
    pub fn each(self) -> [Self; DIGEST_KINDS] {
        let Self { sha256, sha384, sha512 } = self;
        let none = Self::default();
        [Self { sha256, ..none }, Self { sha384, ..none }, Self { sha512, ..none }]
    }

    /// Reads a hash that a person typed: 64, 96 or 128 hexadecimal digits, or these after the kind, as in
    /// `sha256:HEX`, `sha256=HEX` or `sha-256=HEX`. Returns `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let (kind, hex) = match text.split_once([':', '=']) {
            Some((kind, hex)) => (Some(kind.to_ascii_lowercase()), hex),
            None => (None, text),
        };
        let hash = HEXLOWER_PERMISSIVE.decode(hex.as_bytes()).ok()?;
        Self::of_kind(kind.as_deref(), &hash)
    }

    /// Finds the hash of the file `name` in the output of `sha256sum`, `sha384sum` or `sha512sum`, with
    /// `--tag` or without; see [`checksum_lines`].
    ///
    /// # Errors [`Ambiguous`] if several lines may be about the file and their hashes contradict each other.
    pub fn in_list(text: &[u8], name: &[u8]) -> Result<Option<Self>, Ambiguous> {
        /// Compares as equal unless both contradict each other: hashes of different kinds can be of one file.
        struct Found(Digests);
        impl PartialEq for Found {
            fn eq(&self, other: &Self) -> bool {
                !self.0.contradict(&other.0)
            }
        }
        let found = checksum_lines::find(text, name, |tag, hash| {
            let tag = tag.map(|tag| String::from_utf8_lossy(tag).to_ascii_lowercase());
            Self::of_kind(tag.as_deref(), hash).map(Found)
        });
        Ok(found?.map(|Found(digests)| digests))
    }

    /// Creates digests with a hash of this kind. Without a kind, the length of the hash determines it.
    fn of_kind(kind: Option<&str>, hash: &[u8]) -> Option<Self> {
        let none = Self::default();
        match (kind, hash.len()) {
            (None | Some("sha256" | "sha-256" | "sha2-256"), 32) => {
                Some(Self { sha256: hash.try_into().ok(), ..none })
            }
            (None | Some("sha384" | "sha-384" | "sha2-384"), 48) => {
                Some(Self { sha384: hash.try_into().ok(), ..none })
            }
            (None | Some("sha512" | "sha-512" | "sha2-512"), 64) => {
                Some(Self { sha512: hash.try_into().ok(), ..none })
            }
            _ => None,
        }
    }
}

/// Writes the hashes for people: `SHA-256 HEX`.
impl fmt::Display for Digests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        for (kind, hash) in self.iter() {
            write!(f, "{between}{} {}", kind.to_ascii_uppercase(), HEXLOWER.encode(hash))?;
            between = ", ";
        }
        Ok(())
    }
}

fn bytes<const N: usize>(hash: &Option<[u8; N]>) -> Option<&[u8]> {
    hash.as_ref().map(<[u8; N]>::as_slice)
}

/// Computes the kinds of hashes that some [`Digests`] have.
#[derive(Clone, Debug, Default)]
pub struct Hasher {
    sha256: Option<Sha256>,
    sha384: Option<Sha384>,
    sha512: Option<Sha512>,
}

impl Hasher {
    /// Creates a hasher for the kinds of hashes that `wanted` has.
    #[must_use]
    pub fn of(wanted: &Digests) -> Self {
        Self {
            sha256: wanted.sha256.map(|_| Sha256::new()),
            sha384: wanted.sha384.map(|_| Sha384::new()),
            sha512: wanted.sha512.map(|_| Sha512::new()),
        }
    }

    /// Adds the next bytes of the file.
    pub fn update(&mut self, bytes: &[u8]) {
        if let Some(sha256) = &mut self.sha256 {
            sha256.update(bytes);
        }
        if let Some(sha384) = &mut self.sha384 {
            sha384.update(bytes);
        }
        if let Some(sha512) = &mut self.sha512 {
            sha512.update(bytes);
        }
    }

    /// Returns the hashes of all bytes.
    #[must_use]
    pub fn finish(self) -> Digests {
        Digests {
            sha256: self.sha256.map(|sha256| sha256.finalize().into()),
            sha384: self.sha384.map(|sha384| sha384.finalize().into()),
            sha512: self.sha512.map(|sha512| sha512.finalize().into()),
        }
    }
}

/// The hash of each piece of a file, in order, all of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PieceHashes {
    /// SHA-256.
    Sha256(Vec<[u8; 32]>),
    /// SHA-384.
    Sha384(Vec<[u8; 48]>),
    /// SHA-512.
    Sha512(Vec<[u8; 64]>),
}

impl PieceHashes {
    /// Returns the number of pieces.
    #[must_use]
    pub const fn len(&self) -> usize {
        match self {
            Self::Sha256(all) => all.len(),
            Self::Sha384(all) => all.len(),
            Self::Sha512(all) => all.len(),
        }
    }

    /// Whether there are no pieces.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the kind of the hashes, as named in Metalinks and in IANA's registry of textual hash names.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Sha256(_) => "sha-256",
            Self::Sha384(_) => "sha-384",
            Self::Sha512(_) => "sha-512",
        }
    }

    /// Returns the hash of the only piece, which is then the hash of the whole file. `None` unless there is
    /// exactly one piece.
    #[must_use]
    pub fn only(&self) -> Option<Digests> {
        let mut own = Digests::default();
        match self {
            Self::Sha256(all) => own.sha256 = only(all),
            Self::Sha384(all) => own.sha384 = only(all),
            Self::Sha512(all) => own.sha512 = only(all),
        }
        (!own.is_empty()).then_some(own)
    }

    /// Returns the hash of each piece.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).filter_map(move |piece| self.get(piece))
    }

    /// Returns the hash of one piece.
    #[must_use]
    pub fn get(&self, piece: usize) -> Option<&[u8]> {
        match self {
            Self::Sha256(all) => all.get(piece).map(<[u8; 32]>::as_slice),
            Self::Sha384(all) => all.get(piece).map(<[u8; 48]>::as_slice),
            Self::Sha512(all) => all.get(piece).map(<[u8; 64]>::as_slice),
        }
    }

    /// Returns a hasher for one piece.
    #[must_use]
    pub fn hasher(&self) -> PieceHasher {
        match self {
            Self::Sha256(_) => PieceHasher::Sha256(Sha256::new()),
            Self::Sha384(_) => PieceHasher::Sha384(Sha384::new()),
            Self::Sha512(_) => PieceHasher::Sha512(Sha512::new()),
        }
    }
}

const fn only<T: Copy>(all: &[T]) -> Option<T> {
    if let [one] = all { Some(*one) } else { None }
}

/// Computes the hash of a piece.
#[derive(Clone, Debug)]
pub enum PieceHasher {
    /// SHA-256.
    Sha256(Sha256),
    /// SHA-384.
    Sha384(Sha384),
    /// SHA-512.
    Sha512(Sha512),
}

impl PieceHasher {
    /// Adds the next bytes of the piece.
    pub fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(hasher) => hasher.update(bytes),
            Self::Sha384(hasher) => hasher.update(bytes),
            Self::Sha512(hasher) => hasher.update(bytes),
        }
    }

    /// Whether the hash of all bytes is `hash`.
    #[must_use]
    pub fn is(self, hash: &[u8]) -> bool {
        match self {
            Self::Sha256(hasher) => hasher.finalize()[..] == *hash,
            Self::Sha384(hasher) => hasher.finalize()[..] == *hash,
            Self::Sha512(hasher) => hasher.finalize()[..] == *hash,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spellings_that_people_have() {
        let (short, long) = ("Ab".repeat(32), "cD".repeat(64));
        let sha256 = Digests::of_sha256([0xab; 32]);
        let sha384 = Digests { sha384: Some([0xef; 48]), ..Digests::default() };
        let sha512 = Digests { sha512: Some([0xcd; 64]), ..Digests::default() };
        for before in ["", "sha384:", "sha384=", "sha-384=", "SHA-384:"] {
            assert_eq!(Digests::parse(&format!("{before}{}", "eF".repeat(48))), Some(sha384), "{before:?}");
        }
        for before in ["", "sha256:", "sha256=", "sha-256=", "SHA-256:", " "] {
            assert_eq!(Digests::parse(&format!("{before}{short}")), Some(sha256), "{before:?}");
        }
        for before in ["", "sha512:", "sha512=", "sha-512=", "sha-512:"] {
            assert_eq!(Digests::parse(&format!("{before}{long}")), Some(sha512), "{before:?}");
        }
        let wrong_kind = [format!("sha-256={long}"), format!("sha512:{short}"), format!("md5={short}")];
        let shorter = [short[2..].to_owned(), format!("sha256:{}", &short[1..]), String::new()];
        for bad in wrong_kind.iter().chain(&shorter) {
            assert_eq!(Digests::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn lists_of_either_kind() {
        let (a, b, c) = ("ab".repeat(32), "cd".repeat(64), "12".repeat(48));
        let more = format!("{c}  f.tar\nSHA384 (f.zip) = {c}\nSHA512 (f.bad) = {c}\n");
        let f = "ef".repeat(32);
        let list = format!("# of today\n{a} *other.iso\n{f}  f.iso\nSHA512 (f.img) = {b}\n{more}");
        let of = |name: &[u8]| Digests::in_list(list.as_bytes(), name);
        let none = Digests::default();
        assert_eq!(of(b"f.iso"), Ok(Some(Digests::of_sha256([0xef; 32]))));
        assert_eq!(of(b"/pub/f.img"), Ok(Some(Digests { sha512: Some([0xcd; 64]), ..none })));
        let sha384 = Ok(Some(Digests { sha384: Some([0x12; 48]), ..none }));
        assert_eq!((of(b"f.tar"), of(b"f.zip"), of(b"f.bad")), (sha384, sha384, Ok(None)));
        assert_eq!(of(b"none"), Ok(None));
    }

    #[test]
    fn of_several_lines_the_one_with_the_files_directories_counts() {
        let [a, b, c] = ["aa", "bb", "cc"].map(|byte| byte.repeat(32));
        let long = "dd".repeat(64);
        let list = format!("{a}  x/f\n{b}  ./y/f\nSHA256 (z/f) = {c}\nSHA512 (z/f) = {long}\n");
        let of = |list: &str, name: &str| {
            Digests::in_list(list.as_bytes(), name.as_bytes())
                .map(|found| found.and_then(|found| found.sha256))
        };
        assert_eq!(of(&list, "/pub/x/f"), Ok(Some([0xaa; 32])));
        assert_eq!(of(&list, "/pub/y/f"), Ok(Some([0xbb; 32])));
        assert_eq!(of(&list, "/pub/z/f"), Ok(Some([0xcc; 32])), "two kinds of one file");
        assert_eq!(of(&list, "f"), Err(Ambiguous));
        assert_eq!(of(&list, "/pub/w/f"), Err(Ambiguous));
        assert_eq!(of(&format!("{list}{a}  f\n"), "/pub/f"), Ok(Some([0xaa; 32])), "nothing before its name");
        assert_eq!(of(&format!("{a}  x/f\n{a}  y/f\n"), "f"), Ok(Some([0xaa; 32])), "the same");
    }

    #[test]
    fn only_the_same_kinds_contradict_each_other() {
        let one = Digests::of_sha256([1; 32]);
        let two = Digests { sha512: Some([2; 64]), ..one };
        let three = Digests { sha512: Some([3; 64]), ..Digests::default() };
        assert!(!one.contradict(&two) && !one.contradict(&three) && two.contradict(&three));
        let sha384 = |byte| Digests { sha384: Some([byte; 48]), ..one };
        assert!(sha384(1).contradict(&sha384(2)) && !sha384(1).contradict(&two));
        assert_eq!(two.to_string().matches(", SHA-512 0202").count(), 1);
        assert_eq!((one.or(three), two.or(three)), (Digests { sha512: Some([3; 64]), ..one }, two));
        assert_eq!(two.each().map(|kind| kind.iter().count()), [1, 0, 1]);
    }

    #[test]
    fn only_what_is_wanted_is_worked_out() {
        let sha384 = Some(Sha384::digest(b"abc").into());
        let wanted = Digests { sha256: None, sha384, sha512: Some(Sha512::digest(b"abc").into()) };
        let mut hasher = Hasher::of(&wanted);
        hasher.update(b"a");
        hasher.update(b"bc");
        assert_eq!(hasher.finish(), wanted);
        let pieces = PieceHashes::Sha512(vec![Sha512::digest(b"abc").into()]);
        let mut hasher = pieces.hasher();
        hasher.update(b"abc");
        assert!(hasher.is(pieces.get(0).expect("a piece")));
        assert_eq!((pieces.len(), pieces.kind(), pieces.get(1)), (1, "sha-512", None));
        let pieces = PieceHashes::Sha384(vec![Sha384::digest(b"abc").into()]);
        let mut hasher = pieces.hasher();
        hasher.update(b"abc");
        assert!(hasher.is(pieces.get(0).expect("a piece")) && pieces.kind() == "sha-384");
    }
}
