//! The protection of packets: ChaCha20-Poly1305 (RFC 8439) with a key for each direction, or none.
//!
//! The keys are derived from the trunk on which the leg was requested, by TLS's exporter (RFC 8446 section
//! 7.5) and HKDF (RFC 5869). The nonce consists of the path's and the packet's number, so it never repeats.
//! The cipher needs no new key for any number of packets that can be sent. The number of attempted forgeries
//! is its limit ([`FORGED_MAX`], RFC 9001 section 6.6).

use std::fmt;

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Prk};

use super::packet::{HEADER_BYTES, TAG_BYTES};
use crate::trunk::Side;

/// The length in bytes of the secret that both ends have.
pub const SECRET_BYTES: usize = 32;
/// The number of forged packets after which a leg ends.
pub(super) const FORGED_MAX: u64 = 1 << 36;

/// The label that separates these keys from others of the same secret.
const LABEL: &[u8] = b"anabranch-proxy leg 1";

/// The protection of packets.
pub struct Protection(Option<Box<Keys>>);

struct Keys {
    send: LessSafeKey,
    receive: LessSafeKey,
}

impl fmt::Debug for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "sealed" } else { "plain" })
    }
}

impl Protection {
    /// Returns no protection, for trusted networks.
    #[must_use]
    pub const fn plain() -> Self {
        Self(None)
    }

    /// Derives the keys for one association and one side from a secret.
    ///
    /// # Panics
    /// Never: HKDF gives a key of this length.
    #[must_use]
    pub fn sealed(secret: &[u8; SECRET_BYTES], association: u32, side: Side) -> Self {
        let prk = Prk::new_less_safe(HKDF_SHA256, secret);
        let association = association.to_be_bytes();
        let key = |direction: u8| {
            let info = [LABEL, &association[..], &[direction][..]];
            let okm = prk.expand(&info, &CHACHA20_POLY1305).expect("a short key");
            LessSafeKey::new(UnboundKey::from(okm))
        };
        let (up, down) = (key(0), key(1));
        let (send, receive) = match side {
            Side::Client => (up, down),
            Side::Server => (down, up),
        };
        Self(Some(Box::new(Keys { send, receive })))
    }

    /// Encrypts the part of the packet after its header. The packet begins at `start` and is the last in
    /// `out`.
    pub(super) fn seal(&self, path: u8, number: u64, out: &mut Vec<u8>, start: usize) {
        let Some(keys) = &self.0 else { return };
        let (header, frames) = out[start..].split_at_mut(HEADER_BYTES);
        let sealed = keys.send.seal_in_place_separate_tag(nonce(path, number), Aad::from(&*header), frames);
        // Sealing fails only for packets of gigabytes.
        if let Ok(tag) = sealed {
            out.extend_from_slice(tag.as_ref());
        }
    }

    /// Decrypts a packet and returns its frames, or `None` if the other end did not encrypt it.
    pub(super) fn open<'a>(&self, path: u8, number: u64, packet: &'a mut [u8]) -> Option<&'a [u8]> {
        let (header, sealed) = packet.split_at_mut_checked(HEADER_BYTES)?;
        match &self.0 {
            None => Some(sealed),
            Some(keys) => {
                let opened =
                    keys.receive.open_in_place(nonce(path, number), Aad::from(&*header), sealed).ok()?;
                Some(opened)
            }
        }
    }

    /// Returns the number of bytes after the frames.
    pub(super) const fn tag_bytes(&self) -> usize {
        if self.0.is_some() { TAG_BYTES } else { 0 }
    }
}

fn nonce(path: u8, number: u64) -> Nonce {
    let mut nonce = [0; 12];
    nonce[0] = path;
    nonce[4..].copy_from_slice(&number.to_be_bytes());
    Nonce::assume_unique_for_key(nonce)
}
