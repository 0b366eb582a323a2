//! Who has which MAC at one side: what ARP (RFC 826) has told, and the frames that wait for an answer. The
//! limits and times are near those of Linux (arp(7)).

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::Ipv4Addr;

use anabranch_algo::{Span, Time};

use crate::frame::{Header, Mac};

/// The most neighbours.
pub const NEIGHBOURS_MAX: usize = 16_384;
/// The most frames that wait for one neighbour.
pub const WAITING_MAX: usize = 256;
/// The most bytes of all frames that wait.
const WAITING_BYTES_MAX: usize = 8 << 20;
/// How old an answer may be before it is asked for again, while it is used.
const FRESH: Span = Span::from_secs(30);
/// How old an answer may be before it is not used.
const USABLE: Span = Span::from_secs(180);
/// The time between two requests to a neighbour that has answered once, and to one that has not.
const AGAIN: Span = Span::from_secs(1);
const SOON: Span = Span::from_millis(200);

#[derive(Debug)]
struct Neighbour {
    /// The MAC, and when it was told.
    told: Option<(Mac, Time)>,
    /// When it was asked for.
    asked: Option<Time>,
    /// Frames that wait, whose receiver is missing.
    waiting: Vec<Vec<u8>>,
}

/// What becomes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fate {
    /// The MAC to which the frame goes now; `None` if the frame waits or is dropped.
    pub to: Option<Mac>,
    /// Whether a request has to be sent.
    pub asks: bool,
    /// Whether it was dropped, as too much waits.
    pub is_dropped: bool,
}

/// The neighbours at one side.
#[derive(Debug, Default)]
pub struct Neighbours {
    known: HashMap<Ipv4Addr, Neighbour>,
    waiting_bytes: usize,
}

impl Neighbours {
    /// Decides about a frame to a neighbour; one that has to wait is copied.
    pub fn send(&mut self, now: Time, to: Ipv4Addr, frame: &[u8]) -> Fate {
        if self.known.len() >= NEIGHBOURS_MAX && !self.known.contains_key(&to) {
            self.forget_old(now);
        }
        let is_full = self.known.len() >= NEIGHBOURS_MAX;
        let neighbour = match self.known.entry(to) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(_) if is_full => return Fate { to: None, asks: false, is_dropped: true },
            Entry::Vacant(place) => place.insert(Neighbour { told: None, asked: None, waiting: Vec::new() }),
        };
        let age = neighbour.told.map(|(_, at)| now.since(at));
        let again = if neighbour.told.is_some() { AGAIN } else { SOON };
        let may_ask = neighbour.asked.is_none_or(|at| now.since(at) >= again);
        let asks = may_ask && age.is_none_or(|age| age >= FRESH);
        if asks {
            neighbour.asked = Some(now);
        }
        if let Some((mac, _)) = neighbour.told.filter(|_| age.is_some_and(|age| age < USABLE)) {
            return Fate { to: Some(mac), asks, is_dropped: false };
        }
        let has_room =
            neighbour.waiting.len() < WAITING_MAX && self.waiting_bytes + frame.len() <= WAITING_BYTES_MAX;
        if has_room {
            neighbour.waiting.push(frame.to_vec());
            self.waiting_bytes += frame.len();
        }
        Fate { to: None, asks, is_dropped: !has_room }
    }

    /// Notes what ARP tells. A neighbour that was not asked for is noted only with `is_wanted`, so that a
    /// host cannot fill the table by itself. Returns the frames that waited, ready to be sent.
    pub fn learn(&mut self, now: Time, from: Ipv4Addr, mac: Mac, is_wanted: bool) -> Vec<Vec<u8>> {
        let has_room = self.known.len() < NEIGHBOURS_MAX;
        let neighbour = match self.known.entry(from) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) if is_wanted && has_room => {
                place.insert(Neighbour { told: None, asked: None, waiting: Vec::new() })
            }
            Entry::Vacant(_) => return Vec::new(),
        };
        neighbour.told = Some((mac, now));
        let mut frames = std::mem::take(&mut neighbour.waiting);
        for frame in &mut frames {
            self.waiting_bytes -= frame.len();
            if let Some(header) = Header::parse(frame) {
                Header { to: mac, ..header }.write(frame);
            }
        }
        frames
    }

    fn forget_old(&mut self, now: Time) {
        let is_old = |at: Option<Time>| at.is_none_or(|at| now.since(at) >= USABLE);
        let bytes = &mut self.waiting_bytes;
        self.known.retain(|_, neighbour| {
            let is_kept = !(is_old(neighbour.told.map(|(_, at)| at)) && is_old(neighbour.asked));
            if !is_kept {
                *bytes -= neighbour.waiting.iter().map(Vec::len).sum::<usize>();
            }
            is_kept
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 9);

    fn at(secs: u64) -> Time {
        Time::from_nanos(secs * 1_000_000_000)
    }

    #[test]
    fn frames_wait_for_the_answer() {
        let mut all = Neighbours::default();
        let first = all.send(at(1), HOST, &[0; 60]);
        assert_eq!(first, Fate { to: None, asks: true, is_dropped: false });
        assert!(!all.send(at(1), HOST, &[1; 60]).asks, "one request is enough");
        let mac = Mac::local([9; 5]);
        let frames = all.learn(at(1), HOST, mac, false);
        assert_eq!(frames.len(), 2);
        assert_eq!(frames[1][..6], mac.0);
        assert_eq!(all.send(at(2), HOST, &[0; 60]), Fate { to: Some(mac), asks: false, is_dropped: false });
        assert_eq!(all.send(at(40), HOST, &[0; 60]), Fate { to: Some(mac), asks: true, is_dropped: false });
        assert_eq!(all.send(at(400), HOST, &[0; 60]).to, None, "the answer is too old");
    }

    #[test]
    fn what_waits_has_a_limit() {
        let mut all = Neighbours::default();
        let dropped = (0..WAITING_MAX + 5).filter(|_| all.send(at(1), HOST, &[0; 60]).is_dropped).count();
        assert_eq!(dropped, 5);
        assert_eq!(all.waiting_bytes, WAITING_MAX * 60);
        assert_eq!(all.learn(at(1), HOST, Mac([2; 6]), false).len(), WAITING_MAX);
        assert_eq!(all.waiting_bytes, 0);
        for n in 0..NEIGHBOURS_MAX as u32 + 10 {
            all.send(at(2), Ipv4Addr::from(n + 1), &[0; 60]);
        }
        assert_eq!(all.known.len(), NEIGHBOURS_MAX);
        assert!(!all.send(at(2_000), Ipv4Addr::from(99_999), &[0; 60]).is_dropped, "old ones are forgotten");
        assert_eq!((all.known.len(), all.waiting_bytes), (1, 60));
        assert!(all.learn(at(1), HOST, Mac([2; 6]), false).is_empty(), "it was not asked for");
    }
}
