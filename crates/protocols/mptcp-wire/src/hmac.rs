//! HMAC (RFC 2104) over the two hash functions of Multipath TCP.

use sha1::Sha1;
use sha2::digest::Output;
use sha2::{Digest, Sha256};

/// The block size of both hash functions, bytes.
const BLOCK_BYTES: usize = 64;

/// Returns the HMAC of `parts`, one after the other, with a key of at most 64 bytes.
fn hmac<D: Digest>(key: &[u8], parts: &[&[u8]]) -> Output<D> {
    let (mut inner_pad, mut outer_pad) = ([0x36; BLOCK_BYTES], [0x5c; BLOCK_BYTES]);
    for ((inner, outer), byte) in inner_pad.iter_mut().zip(&mut outer_pad).zip(key) {
        *inner ^= byte;
        *outer ^= byte;
    }
    let mut inner = D::new().chain_update(inner_pad);
    for part in parts {
        inner.update(part);
    }
    D::new().chain_update(outer_pad).chain_update(inner.finalize()).finalize()
}

/// Returns the HMAC-SHA256 of `parts`, one after the other, with a key of 16 bytes.
#[must_use]
pub fn hmac_sha256(key: [u8; 16], parts: &[&[u8]]) -> [u8; 32] {
    hmac::<Sha256>(&key, parts).into()
}

/// Returns the HMAC-SHA1 of `parts`, one after the other, with a key of 16 bytes.
#[must_use]
pub fn hmac_sha1(key: [u8; 16], parts: &[&[u8]]) -> [u8; 20] {
    hmac::<Sha1>(&key, parts).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 4231 section 4.2 and RFC 2202 section 3, test case 2: the key "Jefe".
    #[test]
    fn vectors() {
        let text: [&[u8]; 2] = [b"what do ya want ", b"for nothing?"];
        let sha256 = hmac::<Sha256>(b"Jefe", &text);
        assert_eq!(sha256[..8], [0x5b, 0xdc, 0xc1, 0x46, 0xbf, 0x60, 0x75, 0x4e]);
        let sha1 = hmac::<Sha1>(b"Jefe", &text);
        assert_eq!(sha1[..8], [0xef, 0xfc, 0xdf, 0x6a, 0xe5, 0xeb, 0x2f, 0xa2]);
    }
}
