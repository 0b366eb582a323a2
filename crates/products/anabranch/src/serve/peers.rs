//! Counts the addresses from which a source receives packets.

use std::collections::HashMap;
use std::net::IpAddr;

use anabranch_algo::{Span, Time};

/// The number of peers that a socket remembers. If there are more, the reported number is a lower bound.
const PEERS_MAX: usize = 16_384;
/// The time for which a peer counts after its last packet.
const PEER_LIFETIME: Span = Span::from_secs(60);

/// The addresses that sent a packet in the last minute.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    seen: HashMap<IpAddr, Time>,
    pruned: Time,
}

impl Peers {
    pub(crate) fn see(&mut self, now: Time, peer: IpAddr) {
        if self.seen.len() < PEERS_MAX || self.seen.contains_key(&peer) {
            self.seen.insert(peer, now);
        }
    }

    pub(crate) fn count(&mut self, now: Time) -> u64 {
        if now.since(self.pruned) >= Span::from_secs(1) {
            self.pruned = now;
            self.seen.retain(|_, seen| now.since(*seen) < PEER_LIFETIME);
        }
        self.seen.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn peers_are_forgotten_and_bounded() {
        let mut peers = Peers::default();
        let at = |secs| Time::ZERO + Span::from_secs(secs);
        for n in 0..PEERS_MAX as u32 + 10 {
            peers.see(at(1), Ipv4Addr::from_bits(n).into());
        }
        peers.see(at(50), Ipv4Addr::from_bits(3).into());
        assert_eq!(peers.count(at(50)), PEERS_MAX as u64);
        assert_eq!(peers.count(at(62)), 1);
        assert_eq!(peers.count(at(120)), 0);
    }
}
