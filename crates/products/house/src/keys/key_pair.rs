//! Key pairs and public keys.

use std::fmt;
use std::str::FromStr;

use data_encoding::BASE64URL_NOPAD;
use ring::rand::{SecureRandom as _, SystemRandom};
use ring::signature::{Ed25519KeyPair, KeyPair as _};

/// The number of bytes of a public key, and of the seed of a private key.
pub const KEY_BYTES: usize = 32;
/// The text before an encoded public key.
const PREFIX: &str = "ed25519:";
/// The bytes of an Ed25519 key's SubjectPublicKeyInfo before the key itself (RFC 8410 section 4).
const SPKI_HEAD: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
/// The bytes of an Ed25519 key in PKCS #8 before the seed (RFC 8410 section 7).
const PKCS8_HEAD: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

/// A public key. As text it is `ed25519:` and 43 characters of base64url (RFC 4648 section 5).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PublicKey(pub(super) [u8; KEY_BYTES]);

/// The error that a text is no public key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is no public key: {PREFIX} and 43 characters of base64url")]
pub struct PublicKeyError;

impl PublicKey {
    /// Returns the SubjectPublicKeyInfo in DER, which TLS carries (RFC 7250 section 3).
    #[must_use]
    pub fn to_spki(self) -> Vec<u8> {
        [&SPKI_HEAD[..], &self.0].concat()
    }

    /// Reads the key of a SubjectPublicKeyInfo, if it is an Ed25519 key.
    #[must_use]
    pub fn from_spki(spki: &[u8]) -> Option<Self> {
        Some(Self(spki.strip_prefix(&SPKI_HEAD)?.try_into().ok()?))
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", BASE64URL_NOPAD.encode(&self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for PublicKey {
    type Err = PublicKeyError;

    fn from_str(text: &str) -> Result<Self, PublicKeyError> {
        let bytes = text.strip_prefix(PREFIX).and_then(|text| BASE64URL_NOPAD.decode(text.as_bytes()).ok());
        Ok(Self(bytes.and_then(|bytes| bytes.try_into().ok()).ok_or(PublicKeyError)?))
    }
}

/// The error that the system has no random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the system gives no random numbers")]
pub struct NoRandomness;

/// A private key and its public key. `Debug` shows only the public one.
#[derive(Clone)]
pub struct KeyPair {
    pub(super) seed: [u8; KEY_BYTES],
    public: PublicKey,
}

impl KeyPair {
    /// Makes a new pair.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn generate() -> Result<Self, NoRandomness> {
        // The randomness comes from the system, so that the key cannot be guessed.
        let mut seed = [0; KEY_BYTES];
        SystemRandom::new().fill(&mut seed).map_err(|_| NoRandomness)?;
        Ok(Self::from_seed(seed))
    }

    /// Returns the pair of a seed (RFC 8032 section 5.1.5).
    pub(super) fn from_seed(seed: [u8; KEY_BYTES]) -> Self {
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).expect("every 32 bytes are a seed");
        let public = pair.public_key().as_ref().try_into().expect("32 bytes");
        Self { seed, public: PublicKey(public) }
    }

    /// Returns the public key.
    #[must_use]
    pub const fn public(&self) -> PublicKey {
        self.public
    }

    /// Returns the private key in DER (RFC 5958, RFC 8410), which is secret.
    #[must_use]
    pub fn to_pkcs8(&self) -> Vec<u8> {
        [&PKCS8_HEAD[..], &self.seed].concat()
    }

    /// Reads a private key in DER: version 1 as OpenSSL writes it, or version 2 with the public key after the
    /// seed.
    #[must_use]
    pub fn from_pkcs8(der: &[u8]) -> Option<Self> {
        Ed25519KeyPair::from_pkcs8_maybe_unchecked(der).ok()?;
        // The seed follows the algorithm, which is the same in both versions, inside two octet strings.
        let place = der.windows(11).position(|w| *w == PKCS8_HEAD[5..])? + 11;
        Some(Self::from_seed(der.get(place..place + KEY_BYTES)?.try_into().ok()?))
    }
}

impl fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyPair").field("public", &self.public).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_public_key_of_the_standard() {
        // The vector is RFC 8032 section 7.1, test 1.
        let hex = |text: &str| data_encoding::HEXLOWER.decode(text.as_bytes()).unwrap();
        let seed = hex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60");
        let pair = KeyPair::from_seed(seed.try_into().unwrap());
        let public = hex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a");
        assert_eq!(pair.public().0[..], public);
        assert_eq!(PublicKey::from_spki(&pair.public().to_spki()), Some(pair.public()));
        assert_eq!(PublicKey::from_spki(&pair.public().to_spki()[1..]), None);
        let text = pair.public().to_string();
        assert_eq!((text.len(), text.parse()), (51, Ok(pair.public())));
        for text in ["", "ed25519:", &text[1..], &text[..50], "ed25519:!"] {
            assert_eq!(text.parse::<PublicKey>(), Err(PublicKeyError), "{text}");
        }
    }

    #[test]
    fn pkcs8_of_both_versions_is_read_and_nothing_secret_is_shown() {
        let pair = KeyPair::generate().unwrap();
        let der = pair.to_pkcs8();
        assert_eq!(KeyPair::from_pkcs8(&der).unwrap().public(), pair.public());
        let second = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        let public = Ed25519KeyPair::from_pkcs8(second.as_ref()).unwrap();
        let read = KeyPair::from_pkcs8(second.as_ref()).unwrap();
        assert_eq!(read.public().0[..], *public.public_key().as_ref());
        for len in 0..der.len() {
            assert!(KeyPair::from_pkcs8(&der[..len]).is_none());
        }
        let shown = format!("{pair:?}");
        assert_eq!(shown, format!("KeyPair {{ public: {}, .. }}", pair.public()));
    }
}
