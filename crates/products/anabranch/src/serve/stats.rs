//! What a source counts.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use anabranch_algo::{Span, Time};
use anabranch_mmtp::publisher::Counters;
use serde::Serialize;

/// Peers that a socket remembers. With more of them, the number shown is a lower bound.
const PEERS_MAX: usize = 16_384;
/// How long a peer counts after its last packet.
const PEER_LIFETIME: Span = Span::from_secs(60);

/// What a source has done since its start.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Stats {
    /// UDP payload sent, in bytes.
    pub sent_bytes: u64,
    /// UDP packets sent.
    pub sent_packets: u64,
    /// Requests and probes understood.
    pub requests: u64,
    /// Requests without a valid proof of address.
    pub unproven: u64,
    /// Requests for content that is not offered.
    pub unknown: u64,
    /// Requests for chunks that do not exist.
    pub bad: u64,
    /// Packets that no receiver sends.
    pub unexpected: u64,
    /// Packets that are not mmTP, by what is wrong with them.
    pub malformed: BTreeMap<&'static str, u64>,
    /// Requests refused because the file has changed or cannot be read.
    pub changed: u64,
    /// Replies dropped because too many were waiting.
    pub dropped: u64,
    /// Sends that the system refused: too big for the interface, no route.
    pub unsent: u64,
    /// Addresses that sent something in the last minute, not counting HTTP.
    pub peers: u64,
    /// Requests over HTTP.
    pub http_requests: u64,
    /// Bytes sent over HTTP, heads included.
    pub http_bytes: u64,
    /// HTTP connections open now.
    pub http_connections: u64,
    /// HTTP connections turned away because there were too many.
    pub http_turned_away: u64,
    /// Time since the start, in seconds.
    #[serde(skip)]
    pub elapsed_s: f64,
}

impl Stats {
    /// Takes over what the publisher counts itself.
    pub(crate) const fn set(&mut self, counters: &Counters) {
        self.requests = counters.requests;
        self.unproven = counters.unproven;
        self.unknown = counters.unknown;
        self.bad = counters.bad;
        self.unexpected = counters.unexpected;
    }

    /// Takes over what the HTTP server counts.
    pub(crate) const fn set_http(&mut self, counters: &anabranch_http::server::Counters) {
        self.http_requests = counters.requests;
        self.http_bytes = counters.sent_bytes;
        self.http_connections = counters.connections;
        self.http_turned_away = counters.turned_away;
        self.changed = counters.unavailable;
    }

    /// Bytes sent in all, by UDP and over HTTP.
    #[must_use]
    pub const fn all_bytes(&self) -> u64 {
        self.sent_bytes + self.http_bytes
    }

    /// Requests in all, by UDP and over HTTP.
    #[must_use]
    pub const fn all_requests(&self) -> u64 {
        self.requests + self.http_requests
    }

    /// Adds the counts of another socket.
    pub(crate) fn add(&mut self, other: &Self) {
        self.sent_bytes += other.sent_bytes;
        self.sent_packets += other.sent_packets;
        self.requests += other.requests;
        self.unproven += other.unproven;
        self.unknown += other.unknown;
        self.bad += other.bad;
        self.unexpected += other.unexpected;
        self.changed += other.changed;
        self.dropped += other.dropped;
        self.unsent += other.unsent;
        self.peers += other.peers;
        self.http_requests += other.http_requests;
        self.http_bytes += other.http_bytes;
        self.http_connections += other.http_connections;
        self.http_turned_away += other.http_turned_away;
        for (name, count) in &other.malformed {
            *self.malformed.entry(name).or_default() += count;
        }
    }

    /// What went wrong, for people: "unknown content 2, truncated 6"; empty if nothing did.
    #[must_use]
    pub fn problems(&self) -> String {
        let named = [
            ("unknown content", self.unknown),
            ("bad requests", self.bad),
            ("unexpected", self.unexpected),
            ("changed", self.changed),
            ("dropped", self.dropped),
            ("unsent", self.unsent),
            ("turned away", self.http_turned_away),
        ];
        let malformed = self.malformed.iter().map(|(name, count)| (*name, *count));
        let some = named.into_iter().chain(malformed).filter(|(_, count)| *count > 0);
        some.map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
    }
}

/// Addresses that sent something in the last minute.
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

    #[test]
    fn problems_are_named() {
        let mut all = Stats { unknown: 2, requests: 9, ..Stats::default() };
        assert_eq!(Stats::default().problems(), "");
        for _ in 0..2 {
            all.add(&Stats { malformed: [("truncated", 3)].into(), ..Stats::default() });
        }
        assert_eq!(all.problems(), "unknown content 2, truncated 6");
    }
}
