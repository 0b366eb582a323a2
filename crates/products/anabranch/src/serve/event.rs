//! What a source offers, and what it tells whoever listens.

use std::net::SocketAddr;
use std::path::PathBuf;

use anabranch_mmtp::ContentId;

use super::stats::Stats;
use crate::HashProgress;

/// What happens while a source starts and serves, in the order in which it happens.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// How far hashing is; every 100 ms while it lasts.
    Hashing(HashProgress),
    /// Something that the person who serves should know: one sentence.
    Notice(String),
    /// One thing on offer. Directories come first, then files.
    Offer(Offer),
    /// The source answers at these addresses.
    Listening {
        /// The UDP sockets, with the ports they got.
        addresses: Vec<SocketAddr>,
        /// The addresses of HTTP, with the ports they got.
        http: Vec<SocketAddr>,
    },
    /// What the source has done so far; every second.
    Stats {
        /// Counters since the start.
        stats: Box<Stats>,
        /// Rate of sending since the last of these events, in bytes a second.
        rate_bytes: u64,
    },
}

/// One thing on offer: a file or a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Offer {
    /// What a receiver fetches it by: its content id, its name, and the addresses of this source.
    pub uri: String,
    /// Its content id.
    pub content: ContentId,
    /// Whether it is a directory; the content is its manifest then.
    pub directory: bool,
    /// Whether it was named itself ([`Serve::path`](crate::Serve::path)), and was not found in a directory.
    pub named: bool,
    /// Where it is on this machine, without symbolic links.
    pub path: PathBuf,
    /// Its URLs: one list for each address that HTTP listens on, with one URL (at most 8) for each address of
    /// this machine by which that one is reached.
    pub http: Vec<Vec<String>>,
    /// The URLs of a directory's Metalink, by which [`Get`](crate::Get) fetches it over HTTP: as in `http`,
    /// but none where there is no Metalink.
    pub metalinks: Vec<Vec<String>>,
}

impl Offer {
    /// Its first URL, if it is served over HTTP.
    #[must_use]
    pub fn url(&self) -> Option<&str> {
        self.http.iter().flatten().next().map(String::as_str)
    }
}
