//! The line that a user takes from the server to the client.

use std::fmt;
use std::str::FromStr;

use data_encoding::BASE64URL_NOPAD;
use ring::digest::{SHA256, digest};

use crate::keys::key_pair::{KEY_BYTES, KeyPair, NoRandomness, PublicKey};

/// The start of the line, before its version.
const PREFIX: &str = "anabranch-pair-";
const VERSION: &str = "1";
const CHECKSUM_BYTES: usize = 4;

/// The keys that a client needs: the server's public key and its own pair.
///
/// Its line is `anabranch-pair-1:` and 91 characters of base64url (RFC 4648 section 5). They encode the
/// server's public key, the seed of the client's private key, and the first 4 bytes of the SHA-256 of both,
/// which detect typing errors. The line is a secret; `Debug` does not show it.
#[derive(Clone)]
pub struct Pairing {
    /// The server's public key.
    pub server: PublicKey,
    /// The client's key pair.
    pub client: KeyPair,
}

/// The reason why a line is no pairing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PairingError {
    /// The text is not a line that pairs.
    #[error("this is no line of `pair`, which starts with anabranch-pair-")]
    Form,
    /// Another version of the program made the line.
    #[error("this line is of version {0}, and this program knows version {VERSION}")]
    Version(String),
    /// Characters of the line are missing or wrong.
    #[error("this line of `pair` is damaged: copy all of it again")]
    Damaged,
}

impl Pairing {
    /// Makes the keys of a new client for this server.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn new(server: PublicKey) -> Result<Self, NoRandomness> {
        Ok(Self { server, client: KeyPair::generate()? })
    }

    /// Returns the line, which is a secret.
    #[must_use]
    pub fn to_line(&self) -> String {
        let keys = [self.server.0, self.client.seed].concat();
        let all = [&keys[..], &checksum(&keys)].concat();
        format!("{PREFIX}{VERSION}:{}", BASE64URL_NOPAD.encode(&all))
    }
}

fn checksum(keys: &[u8]) -> [u8; CHECKSUM_BYTES] {
    *digest(&SHA256, keys).as_ref().first_chunk().expect("32 bytes")
}

impl FromStr for Pairing {
    type Err = PairingError;

    fn from_str(line: &str) -> Result<Self, PairingError> {
        let rest = line.trim().strip_prefix(PREFIX).ok_or(PairingError::Form)?;
        let (version, text) = rest.split_once(':').ok_or(PairingError::Form)?;
        if version != VERSION {
            return match version.len() {
                1..=4 if version.bytes().all(|c| c.is_ascii_digit()) => {
                    Err(PairingError::Version(version.to_owned()))
                }
                _ => Err(PairingError::Form),
            };
        }
        let all = BASE64URL_NOPAD.decode(text.as_bytes()).map_err(|_| PairingError::Damaged)?;
        let (server, rest) = all.split_first_chunk::<KEY_BYTES>().ok_or(PairingError::Damaged)?;
        let (seed, sum) = rest.split_first_chunk::<KEY_BYTES>().ok_or(PairingError::Damaged)?;
        if *sum != checksum(&all[..2 * KEY_BYTES]) {
            return Err(PairingError::Damaged);
        }
        Ok(Self { server: PublicKey(*server), client: KeyPair::from_seed(*seed) })
    }
}

impl fmt::Debug for Pairing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pairing").field("server", &self.server).field("client", &self.client).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_read_and_a_slip_is_found() {
        let pairing = Pairing::new(KeyPair::generate().unwrap().public()).unwrap();
        let line = pairing.to_line();
        assert_eq!(line.len(), 17 + 91);
        let read: Pairing = format!(" {line}\n").parse().unwrap();
        assert_eq!((read.server, read.client.public()), (pairing.server, pairing.client.public()));
        let error = |line: &str| line.parse::<Pairing>().map(|_| ()).unwrap_err();
        for at in 17..line.len() {
            let mut wrong = line.clone().into_bytes();
            wrong[at] = if wrong[at] == b'A' { b'B' } else { b'A' };
            let wrong = String::from_utf8(wrong).unwrap();
            assert_eq!(error(&wrong), PairingError::Damaged, "character {at}");
            assert_eq!(error(&line[..at]), PairingError::Damaged);
        }
        assert_eq!(error(&line.replace("-1:", "-2:")), PairingError::Version("2".into()));
        assert_eq!(error("ssh-ed25519 AAAA"), PairingError::Form);
        assert_eq!(error(""), PairingError::Form);
    }

    #[test]
    fn nothing_secret_is_shown() {
        let pairing = Pairing::new(KeyPair::generate().unwrap().public()).unwrap();
        let shown = format!("{pairing:?}");
        let secret = BASE64URL_NOPAD.encode(&pairing.client.seed);
        let bytes = format!("{:?}", pairing.client.seed);
        assert!(!shown.contains(&secret) && !shown.contains(&bytes), "{shown}");
        assert!(shown.contains(&pairing.server.to_string()));
    }
}
