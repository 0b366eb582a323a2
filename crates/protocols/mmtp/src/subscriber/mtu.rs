//! Finds the largest packet that a path carries: datagram packetization layer path MTU discovery (RFC 8899).
//!
//! Data starts with chunks that fit the smallest IPv6 MTU. As soon as the address is proven, one PROBE is
//! sent for every larger cut that the local interface could receive. The source answers each with a packet of
//! exactly that size. A size whose packet arrives is confirmed; a lost probe says nothing about congestion.
//! Probes are few and small, so all sizes are tried at once instead of one after the other as in RFC 8899
//! §5.3.

use anabranch_algo::{Span, Time};

use crate::id::ChunksPerBlock;
use crate::wire::DATA_HEADER;

/// How often each size is tried (RFC 8899 §5.1.2, MAX_PROBES).
const PROBES_MAX: u8 = 3;
/// After this time, sizes that failed or were withdrawn are tried again (RFC 8899 §5.1.1, PMTU_RAISE_TIMER).
const RAISE_AFTER: Span = Span::from_secs(600);
/// The cuts from fine to coarse, in packets per block. 1,024 B is as long as a packet of hashes, which every
/// path must carry. 1,171 B fits an MTU of 1,280. 1,261 B fits 1,500 even if a tunnel takes 80 bytes of it,
/// and 1,366 B fits 1,500 alone. The others are for jumbo frames and loopback.
const LADDER: [u8; 7] = [16, 14, 13, 12, 4, 2, 1];
/// The index in [`LADDER`] that a path starts at (RFC 8899, BASE_PLPMTU).
const BASE: usize = 1;

/// The search for the packet size on one path.
#[derive(Debug)]
pub(super) struct Mtu {
    at: usize,
    payload_max: usize,
    tries: [u8; LADDER.len()],
    tags: [u64; LADDER.len()],
    next: Time,
}

impl Mtu {
    /// Creates a search that has not begun. The local interface takes UDP payloads of up to `payload_max`
    /// bytes.
    pub(super) fn new(payload_max: usize) -> Self {
        let mut new = Self {
            at: BASE,
            payload_max,
            tries: [0; LADDER.len()],
            tags: [0; LADDER.len()],
            next: Time::NEVER,
        };
        if size(BASE) > payload_max {
            new.at = 0;
        }
        new
    }

    /// Returns the cut whose packets the path is known to carry.
    pub(super) fn cut(&self) -> ChunksPerBlock {
        cut(self.at)
    }

    /// Whether chunks of the cut `other` fit into the path's packets.
    pub(super) fn carries(&self, other: ChunksPerBlock) -> bool {
        other.chunk_bytes() <= self.cut().chunk_bytes()
    }

    /// Allows probes, because the address is proven.
    pub(super) fn begin(&mut self, now: Time) {
        if self.next == Time::NEVER {
            self.next = now;
        }
    }

    /// Returns when to call [`probes`](Self::probes).
    pub(super) fn deadline(&self) -> Time {
        self.next
    }

    /// Returns the probes that are due at `now`, each as UDP payload size and tag.
    pub(super) fn probes(&mut self, now: Time, every: Span, mut tag: impl FnMut() -> u64) -> Vec<(u16, u64)> {
        if now < self.next {
            return Vec::new();
        }
        let mut due = Vec::new();
        for i in self.at + 1..LADDER.len() {
            if self.tries[i] < PROBES_MAX && size(i) <= self.payload_max {
                self.tries[i] += 1;
                self.tags[i] = tag();
                due.push((u16::try_from(size(i)).unwrap_or(u16::MAX), self.tags[i]));
            }
        }
        self.next = if due.is_empty() {
            self.tries = [0; LADDER.len()];
            now + RAISE_AFTER
        } else {
            now + every
        };
        due
    }

    /// Handles a PADDED packet. Returns whether it has raised the packet size.
    pub(super) fn confirm(&mut self, tag: u64, len: usize) -> bool {
        let found = (self.at + 1..LADDER.len()).find(|&i| self.tags[i] == tag && tag != 0 && size(i) == len);
        if let Some(i) = found {
            self.at = i;
        }
        found.is_some()
    }

    /// Reduces the packet size because nothing arrives any more: packets of this size may vanish (RFC 8899
    /// §4.3, black hole). The size returns to the base, or below it if content has never arrived (`fits` is
    /// false). Returns whether the size has shrunk. The search begins anew with the next
    /// [`begin`](Self::begin), because the path may only have been silent.
    pub(super) fn shrink(&mut self, fits: bool) -> bool {
        let to = if self.at > BASE {
            BASE
        } else if fits {
            self.at
        } else {
            0
        };
        let shrunk = to < self.at;
        if shrunk {
            self.at = to;
            self.tags = [0; LADDER.len()];
            self.tries = [0; LADDER.len()];
            self.next = Time::NEVER;
        }
        shrunk
    }
}

fn cut(at: usize) -> ChunksPerBlock {
    ChunksPerBlock::new(LADDER[at]).unwrap_or(ChunksPerBlock::MAX)
}

fn size(at: usize) -> usize {
    DATA_HEADER + cut(at).chunk_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_fit_the_mtus_they_are_for() {
        assert!(size(BASE) <= 1_280 - 48, "IPv6 minimum");
        assert!(size(2) <= 1_500 - 80 - 48, "a tunnel of 80 bytes");
        assert!(size(3) <= 1_500 - 48, "Ethernet, IPv6");
        assert!(size(5) <= 9_000 - 48, "jumbo frames");
    }

    #[test]
    fn climbs_to_what_is_answered_and_no_further() {
        let mut tag = 0;
        let mut mtu = Mtu::new(1_472);
        assert_eq!(mtu.deadline(), Time::NEVER);
        mtu.begin(Time::ZERO);
        let probes = mtu.probes(Time::ZERO, Span::from_millis(10), || {
            tag += 1;
            tag
        });
        assert_eq!(probes, [(1_281, 1), (1_386, 2)], "nothing that the interface cannot take");
        assert!(!mtu.confirm(1, 1_280), "cut short");
        assert!(mtu.confirm(1, 1_281));
        assert_eq!(mtu.cut().get(), 13);
        let again = mtu.probes(Time::from_nanos(10_000_000), Span::from_millis(10), || 9);
        assert_eq!(again, [(1_386, 9)], "the lost one once more");
        assert!(mtu.shrink(true), "a black hole");
        assert_eq!(mtu.cut().get(), 14);
        assert!(!mtu.shrink(true), "the base is known to fit");
        assert!(!mtu.confirm(9, 1_386), "an old answer");
    }

    #[test]
    fn gives_up_after_three_tries() {
        let mut mtu = Mtu::new(1_472);
        mtu.begin(Time::ZERO);
        let mut sent = 0;
        for step in 0..10 {
            let now = Time::from_nanos(step);
            sent += mtu.probes(now, Span::from_nanos(1), || 1).len();
        }
        assert_eq!(sent, 6, "three tries for each of two sizes");
        assert!(mtu.deadline() > Time::from_nanos(1_000_000));
    }
}
