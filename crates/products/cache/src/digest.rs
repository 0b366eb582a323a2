//! Hashes by which content-addressed stores name their objects, and their texts.

use std::fmt;

use data_encoding::HEXLOWER_PERMISSIVE;
use sha2::Digest as _;

/// The alphabet of Nix's base 32, which leaves out `e`, `o`, `t` and `u` (Nix manual, "Store path").
const NIX_BASE32: &[u8; 32] = b"0123456789abcdfghijklmnpqrsvwxyz";
/// The number of characters of a SHA-256 in Nix's base 32.
const NIX_SHA256_CHARS: usize = 52;

/// A hash function whose hashes are names of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashKind {
    /// SHA-256 (FIPS 180-4).
    Sha256,
    /// SHA-512 (FIPS 180-4).
    Sha512,
    /// SHA-512/256 (FIPS 180-4 §5.3.6.2), the default of casync and desync.
    Sha512Of256,
}

/// The hash that the bytes of an object must have.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Digest {
    /// A SHA-256.
    Sha256([u8; 32]),
    /// A SHA-512.
    Sha512([u8; 64]),
    /// A SHA-512/256.
    Sha512Of256([u8; 32]),
}

impl Digest {
    /// Parses hexadecimal digits, in either case. Returns `None` if they are not a hash of this kind.
    #[must_use]
    pub fn from_hex(kind: HashKind, text: &str) -> Option<Self> {
        let bytes = HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok()?;
        Some(match kind {
            HashKind::Sha256 => Self::Sha256(bytes.try_into().ok()?),
            HashKind::Sha512 => Self::Sha512(bytes.try_into().ok()?),
            HashKind::Sha512Of256 => Self::Sha512Of256(bytes.try_into().ok()?),
        })
    }

    /// Parses the name of the function, a colon and hexadecimal digits, as they are displayed. Returns
    /// `None` if the text is something else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, hex) = text.split_once(':')?;
        let kind = match kind {
            "sha256" => HashKind::Sha256,
            "sha512" => HashKind::Sha512,
            "sha512-256" => HashKind::Sha512Of256,
            _ => return None,
        };
        Self::from_hex(kind, hex)
    }

    /// Parses a SHA-256 in Nix's base 32. Returns `None` if the text is none.
    #[must_use]
    pub fn from_nix_base32(text: &str) -> Option<Self> {
        if text.len() != NIX_SHA256_CHARS {
            return None;
        }
        let mut bytes = [0_u8; 32];
        // The last character has the lowest five bits of the first byte.
        for (place, char) in text.bytes().rev().enumerate() {
            let digit = NIX_BASE32.iter().position(|known| *known == char)?;
            let (byte, shift) = (place * 5 / 8, place * 5 % 8);
            let bits = (digit as u16) << shift;
            bytes[byte] |= bits as u8;
            match bytes.get_mut(byte + 1) {
                Some(next) => *next |= (bits >> 8) as u8,
                // 52 characters have four bits more than a SHA-256.
                None if bits >> 8 != 0 => return None,
                None => {}
            }
        }
        Some(Self::Sha256(bytes))
    }

    /// Returns the hash function.
    #[must_use]
    pub const fn kind(&self) -> HashKind {
        match self {
            Self::Sha256(_) => HashKind::Sha256,
            Self::Sha512(_) => HashKind::Sha512,
            Self::Sha512Of256(_) => HashKind::Sha512Of256,
        }
    }

    /// Returns the bytes of the hash.
    #[must_use]
    pub const fn bytes(&self) -> &[u8] {
        match self {
            Self::Sha256(bytes) | Self::Sha512Of256(bytes) => bytes,
            Self::Sha512(bytes) => bytes,
        }
    }
}

/// Writes the name of the function, a colon and hexadecimal digits: `sha256:…`, as OCI's registries do.
impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind() {
            HashKind::Sha256 => "sha256",
            HashKind::Sha512 => "sha512",
            HashKind::Sha512Of256 => "sha512-256",
        };
        write!(f, "{kind}:{}", HEXLOWER_PERMISSIVE.encode(self.bytes()))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Computes the hash of bytes that come in parts.
#[derive(Clone, Debug)]
pub struct Hasher(State);

#[derive(Clone, Debug)]
enum State {
    Sha256(sha2::Sha256),
    Sha512(sha2::Sha512),
    Sha512Of256(sha2::Sha512_256),
}

impl Hasher {
    /// Begins a hash.
    #[must_use]
    pub fn new(kind: HashKind) -> Self {
        Self(match kind {
            HashKind::Sha256 => State::Sha256(sha2::Sha256::new()),
            HashKind::Sha512 => State::Sha512(sha2::Sha512::new()),
            HashKind::Sha512Of256 => State::Sha512Of256(sha2::Sha512_256::new()),
        })
    }

    /// Adds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            State::Sha256(state) => state.update(bytes),
            State::Sha512(state) => state.update(bytes),
            State::Sha512Of256(state) => state.update(bytes),
        }
    }

    /// Returns the hash of all bytes.
    #[must_use]
    pub fn finish(self) -> Digest {
        match self.0 {
            State::Sha256(state) => Digest::Sha256(state.finalize().into()),
            State::Sha512(state) => Digest::Sha512(state.finalize().into()),
            State::Sha512Of256(state) => Digest::Sha512Of256(state.finalize().into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(kind: HashKind, bytes: &[u8]) -> Digest {
        let mut hasher = Hasher::new(kind);
        bytes.chunks(3).for_each(|part| hasher.update(part));
        hasher.finish()
    }

    /// The vectors of FIPS 180-4 for "abc".
    #[test]
    fn hashes_are_those_of_the_standard() {
        for (kind, text) in [
            (HashKind::Sha256, "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
            (
                HashKind::Sha512Of256,
                "sha512-256:53048e2681941ef99b2e29b76b4c7dabe4c2d0c634fc6d46e0e2f13107e7af23",
            ),
        ] {
            let digest = hash(kind, b"abc");
            assert_eq!(digest.to_string(), text);
            assert_eq!(Digest::parse(text), Some(digest));
            assert_eq!(Digest::parse(&text[1..]), None);
            let hex = text.split_once(':').unwrap().1;
            assert_eq!(Digest::from_hex(kind, hex), Some(digest));
            assert_eq!(Digest::from_hex(kind, &hex.to_uppercase()), Some(digest));
            assert_eq!(Digest::from_hex(kind, &hex[2..]), None);
        }
        assert!(hash(HashKind::Sha512, b"abc").to_string().starts_with("sha512:ddaf35a193617aba"));
    }

    /// The Nix manual's own example: `nix hash convert --to nix32` of the SHA-256 of the empty text.
    #[test]
    fn nix_base32_is_read_from_the_end() {
        let empty = hash(HashKind::Sha256, b"");
        let text = "0mdqa9w1p6cmli6976v4wi0sw9r4p5prkj7lzfd1877wk11c9c73";
        assert_eq!(Digest::from_nix_base32(text), Some(empty));
        assert_eq!(Digest::from_nix_base32(&text[1..]), None);
        assert_eq!(Digest::from_nix_base32(&text.replace('0', "e")), None, "no letter of the alphabet");
        assert_eq!(Digest::from_nix_base32(&text.replacen('0', "z", 1)), None, "more than 256 bits");
    }
}
