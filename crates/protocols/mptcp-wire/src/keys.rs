//! Keys and the values derived from them (RFC 8684 sections 3.1, 3.2, 3.4.1; RFC 6824 sections 3.1, 3.2).

use core::net::IpAddr;

use sha1::Sha1;
use sha2::{Digest, Sha256};

use crate::hmac::{hmac_sha1, hmac_sha256};

/// A version of Multipath TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// RFC 6824, which hashes with SHA-1.
    V0,
    /// RFC 8684, which hashes with SHA-256.
    V1,
}

/// The key of one end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key(pub u64);

fn concat(first: Key, second: Key) -> [u8; 16] {
    ((u128::from(first.0) << 64) | u128::from(second.0)).to_be_bytes()
}

fn leading<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.first_chunk().copied().unwrap_or([0; N])
}

fn trailing<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.last_chunk().copied().unwrap_or([0; N])
}

impl Key {
    /// Returns the token by which MP_JOIN names the connection of the end that has this key: the first 32
    /// bits of the key's hash.
    #[must_use]
    pub fn token(self, version: Version) -> u32 {
        u32::from_be_bytes(match version {
            Version::V0 => leading(&Sha1::digest(self.0.to_be_bytes())),
            Version::V1 => leading(&Sha256::digest(self.0.to_be_bytes())),
        })
    }

    /// Returns the initial data sequence number of the end that has this key: the last 64 bits of the key's
    /// hash. The first byte of data has the number after it.
    #[must_use]
    pub fn initial_data_seq(self, version: Version) -> u64 {
        u64::from_be_bytes(match version {
            Version::V0 => trailing(&Sha1::digest(self.0.to_be_bytes())),
            Version::V1 => trailing(&Sha256::digest(self.0.to_be_bytes())),
        })
    }

    /// Returns the leftmost 160 bits of the HMAC by which the end with this key proves in MP_JOIN that it
    /// knows both keys. The SYN/ACK carries the first 64 of these bits: see [`join_hmac_short`].
    #[must_use]
    pub fn join_hmac(self, peer: Self, nonce: u32, peer_nonce: u32, version: Version) -> [u8; 20] {
        let (key, nonces) = (concat(self, peer), [nonce.to_be_bytes(), peer_nonce.to_be_bytes()]);
        let parts: [&[u8]; 2] = [&nonces[0], &nonces[1]];
        match version {
            Version::V0 => hmac_sha1(key, &parts),
            Version::V1 => leading(&hmac_sha256(key, &parts)),
        }
    }

    /// Returns the rightmost 64 bits of the HMAC of an ADD_ADDR (version 1) from the end with this key. A
    /// missing port counts as zero.
    #[must_use]
    pub fn add_addr_hmac(self, peer: Self, address_id: u8, address: IpAddr, port: Option<u16>) -> u64 {
        let port = port.unwrap_or(0).to_be_bytes();
        let hmac = |octets: &[u8]| hmac_sha256(concat(self, peer), &[&[address_id], octets, &port]);
        u64::from_be_bytes(trailing(&match address {
            IpAddr::V4(address) => hmac(&address.octets()),
            IpAddr::V6(address) => hmac(&address.octets()),
        }))
    }
}

/// Returns the part of a [`Key::join_hmac`] that the SYN/ACK carries: the leftmost 64 bits.
#[must_use]
pub fn join_hmac_short(hmac: &[u8; 20]) -> u64 {
    u64::from_be_bytes(leading(hmac))
}
