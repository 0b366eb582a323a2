//! What the handshakes in two captures tell before these are read side by side: clocks and places.
//!
//! A SYN took from the client's capture to the server's some time `a`, its answer some time `b` back, both
//! with the clocks' difference in them: it is about (a - b) / 2, wrong by |a + b| / 2 at most. The handshake
//! with the least |a + b| decides. If `a + b` is negative, the SYN passed the server's capture first: its
//! sender is at that one.

use std::collections::HashMap;
use std::io::Read;
use std::net::{IpAddr, SocketAddr};

use crate::capture::{Capture, Frame};
use crate::segment::{Flags, segment};
use crate::subflow::Side;

/// SYNs of the client's capture among which one of the server's is looked for.
const SYNS_MAX: usize = 1 << 14;
/// How wrong the difference is taken to be if no handshake is in both captures, ns.
const ERROR_UNKNOWN_NS: i64 = 100_000_000;

/// The clocks and places of two captures.
#[derive(Debug)]
pub(crate) struct Clocks {
    /// About how much the server's clock is ahead, ns.
    pub(crate) ahead_ns: i64,
    /// How wrong that is at most, ns.
    pub(crate) error_ns: i64,
    /// At which capture hosts are.
    places: HashMap<IpAddr, Side>,
}

impl Default for Clocks {
    fn default() -> Self {
        Self { ahead_ns: 0, error_ns: ERROR_UNKNOWN_NS, places: HashMap::new() }
    }
}

/// A SYN or its answer.
struct Syn {
    key: (SocketAddr, SocketAddr, u32),
    is_answer: bool,
    /// Who opens the flow, to whom, and what the answer acknowledges.
    handshake: (SocketAddr, SocketAddr, u32),
    time_ns: i64,
}

impl Syn {
    fn of(frame: &Frame<'_>) -> Option<Self> {
        let segment = segment(frame).ok().filter(|segment| segment.has(Flags::SYN))?;
        let is_answer = segment.has(Flags::ACK);
        let handshake = if is_answer {
            (segment.to, segment.from, segment.ack)
        } else {
            (segment.from, segment.to, segment.seq.wrapping_add(1))
        };
        let key = (segment.from, segment.to, segment.seq);
        Some(Self { key, is_answer, handshake, time_ns: frame.time_ns as i64 })
    }
}

impl Clocks {
    /// Compares the handshakes of two captures, until `is_stopped`.
    pub(crate) fn compare(
        mut client: Capture<impl Read>,
        mut server: Capture<impl Read>,
        is_stopped: impl Fn() -> bool,
    ) -> Self {
        let mut syns = HashMap::new();
        while let Ok(Some(frame)) = client.next_frame()
            && syns.len() < SYNS_MAX
            && !is_stopped()
        {
            if let Some(syn) = Syn::of(&frame) {
                syns.entry(syn.key).or_insert(syn.time_ns);
            }
        }
        // From the client's capture to the server's: of the SYN, and of its answer.
        let mut handshakes: HashMap<_, [Option<i64>; 2]> = HashMap::new();
        while let Ok(Some(frame)) = server.next_frame()
            && !is_stopped()
        {
            if let Some(syn) = Syn::of(&frame)
                && let Some(at_client) = syns.get(&syn.key)
            {
                let times = handshakes.entry(syn.handshake).or_default();
                times[usize::from(syn.is_answer)].get_or_insert(syn.time_ns.saturating_sub(*at_client));
            }
        }
        let whole = handshakes.iter().filter_map(|(ends, times)| Some((times[0]?, times[1]?, *ends)));
        let mut whole: Vec<_> = whole.collect();
        whole.sort_by_key(|(syn, answer, ends)| (syn.saturating_sub(*answer).unsigned_abs(), *ends));
        let mut clocks = Self::default();
        match whole.first() {
            Some((syn, answer, _)) => {
                clocks.ahead_ns = (syn / 2).saturating_add(answer / 2);
                clocks.error_ns = (syn / 2).saturating_sub(answer / 2).saturating_abs();
            }
            None => clocks.ahead_ns = handshakes.values().flatten().flatten().copied().min().unwrap_or(0),
        }
        for (syn, answer, (opener, answers, _)) in whole {
            if opener.ip() != answers.ip() {
                let place = if syn >= answer { Side::Client } else { Side::Server };
                clocks.places.entry(opener.ip()).or_insert(place);
                clocks.places.entry(answers.ip()).or_insert(place.peer());
            }
        }
        clocks
    }

    /// At which capture the sender of a segment is, if a handshake told it.
    pub(crate) fn place(&self, from: SocketAddr, to: SocketAddr) -> Option<Side> {
        let there = || self.places.get(&to.ip()).map(|place| place.peer());
        self.places.get(&from.ip()).copied().or_else(there).filter(|_| from.ip() != to.ip())
    }
}
