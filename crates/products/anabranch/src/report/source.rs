//! The offers of a source, and its counters.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anabranch_mmtp::ContentId;
use anabranch_mmtp::publisher::Counters;
use serde::Serialize;

/// One content on offer: a file or a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Offer {
    /// The URI by which a receiver fetches it: its content id, its name, and the addresses of this source.
    pub uri: String,
    /// The content id.
    pub content: ContentId,
    /// Whether this is a directory; its content is then the manifest.
    pub directory: bool,
    /// Whether it was named itself ([`Serve::path`](crate::Serve::path)), and not found in a named directory.
    pub named: bool,
    /// The path on this machine, without symbolic links.
    pub path: PathBuf,
    /// The URLs: one list for each address that HTTP listens on, with one URL (at most 8) for each address of
    /// this machine by which that one is reached.
    pub http: Vec<Vec<String>>,
    /// The URLs of a directory's Metalink, by which [`Get`](crate::Get) fetches it over HTTP. They are
    /// grouped as in `http`; the lists are empty if there is no Metalink.
    pub metalinks: Vec<Vec<String>>,
}

impl Offer {
    /// Returns the first URL, if this is served over HTTP.
    #[must_use]
    pub fn url(&self) -> Option<&str> {
        self.http.iter().flatten().next().map(String::as_str)
    }
}

/// The counters of a source since its start.
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
    /// Copies the counters of the publisher.
    pub(crate) const fn set(&mut self, counters: &Counters) {
        self.requests = counters.requests;
        self.unproven = counters.unproven;
        self.unknown = counters.unknown;
        self.bad = counters.bad;
        self.unexpected = counters.unexpected;
    }

    /// Copies the counters of the HTTP server.
    pub(crate) const fn set_http(&mut self, counters: &anabranch_http::server::Counters) {
        self.http_requests = counters.requests;
        self.http_bytes = counters.sent_bytes;
        self.http_connections = counters.connections;
        self.http_turned_away = counters.turned_away;
        self.changed = counters.unavailable;
    }

    /// Returns the bytes sent by UDP and over HTTP together.
    #[must_use]
    pub const fn all_bytes(&self) -> u64 {
        self.sent_bytes + self.http_bytes
    }

    /// Returns the requests by UDP and over HTTP together.
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

    /// Returns a text about everything that went wrong: "unknown content 2, truncated 6"; empty if nothing
    /// did.
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

#[cfg(test)]
mod tests {
    use super::*;

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
