//! Numbers that others must not guess: initial sequence numbers, keys, nonces.

use std::net::{IpAddr, SocketAddr};

use anabranch_algo::Time;
use anabranch_mptcp_wire::Key;
use sha2::{Digest, Sha256};

/// The 32 random bytes from which all secrets of a stack are derived.
pub type Seed = [u8; 32];

/// The secret of a stack, and how many numbers have been drawn from it.
#[derive(Clone, Debug)]
pub(crate) struct Secrets {
    seed: Seed,
    drawn: u64,
}

impl Secrets {
    pub(crate) const fn new(seed: Seed) -> Self {
        Self { seed, drawn: 0 }
    }

    fn hash(&self, purpose: u8, parts: &[&[u8]]) -> u64 {
        let mut hash = Sha256::new().chain_update(self.seed).chain_update([purpose]);
        for part in parts {
            hash.update(part);
        }
        let bytes: [u8; 32] = hash.finalize().into();
        bytes.first_chunk().copied().map_or(0, u64::from_be_bytes)
    }

    /// Returns 64 bits that have not been drawn before.
    pub(crate) fn draw(&mut self) -> u64 {
        self.drawn += 1;
        self.hash(0, &[&self.drawn.to_be_bytes()])
    }

    /// Returns a fresh key.
    pub(crate) fn key(&mut self) -> Key {
        Key(self.draw())
    }

    /// Returns a secret number of one pair of addresses and ports, different for each `purpose`.
    fn of_pair(&self, purpose: u8, local: SocketAddr, remote: SocketAddr) -> u32 {
        let octets = |address: IpAddr| match address {
            IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
            IpAddr::V6(address) => address.octets(),
        };
        let ports = [local.port().to_be_bytes(), remote.port().to_be_bytes()];
        self.hash(purpose, &[&octets(local.ip()), &octets(remote.ip()), &ports[0], &ports[1]]) as u32
    }

    /// Returns an initial sequence number (RFC 6528 section 3): a clock of 4 µs plus a secret of the pair.
    pub(crate) fn initial_seq(&self, now: Time, local: SocketAddr, remote: SocketAddr) -> u32 {
        ((now.as_nanos() / 4_000) as u32).wrapping_add(self.of_pair(1, local, remote))
    }

    /// Returns the value at which a pair's timestamps begin (RFC 7323 section 5.4).
    pub(crate) fn timestamp_offset(&self, local: SocketAddr, remote: SocketAddr) -> u32 {
        self.of_pair(2, local, remote)
    }
}
