//! Implements a medium that several links share: one packet at a time, and the next sender is drawn at
//! random.
//!
//! This models the long-run behaviour of 802.11's DCF, not its slots. Every station with a waiting packet
//! contends for each packet, and wins with a probability proportional to its weight. So stations send equal
//! numbers of packets, however long each packet takes, and a slow one slows all others down (Heusse et al.:
//! "Performance anomaly of 802.11b", INFOCOM 2003). A larger weight stands for a smaller contention window. A
//! link whose attempts [fail](crate::radio) contends anew for each, with half the weight each time.

use crate::Rng;
use crate::rng::RngSeed;

/// The number of a medium of a [`Net`](crate::Net), in the order of creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MediumId(pub u32);

/// The most doublings of the contention window: from 16 to 1,024 slots (802.11a).
const DOUBLINGS_MAX: u32 = 6;

/// Implements a shared medium; see the [module](self).
#[derive(Clone, Debug)]
pub(crate) struct Medium {
    rng: Rng,
    /// The link that is sending now.
    holder: Option<u32>,
    /// The links that contend, ascending: each with its weight and the failed attempts of its next packet.
    waiting: Vec<(u32, (u32, u32))>,
}

impl Medium {
    pub(crate) fn new(seed: u64, name: &str) -> Self {
        let rng = RngSeed::new(seed, name).stream("medium");
        Self { rng, holder: None, waiting: Vec::new() }
    }

    /// Records whether link `id` has a packet waiting, and whether it is sending one. `claim` is its weight
    /// and the failed attempts of that packet.
    pub(crate) fn update(&mut self, id: u32, claim: (u32, u32), waits: bool, sends: bool) {
        if self.holder == Some(id) && !sends {
            self.holder = None;
        }
        match (self.waiting.binary_search_by_key(&id, |entry| entry.0), waits) {
            (Err(i), true) => self.waiting.insert(i, (id, claim)),
            (Ok(i), false) => {
                self.waiting.remove(i);
            }
            _ => {}
        }
    }

    /// Chooses the next sender, if no link is sending and one waits. The caller must let that link send at
    /// once.
    pub(crate) fn next_holder(&mut self) -> Option<u32> {
        if self.holder.is_some() || self.waiting.is_empty() {
            return None;
        }
        let all = self.waiting.iter().map(|(_, (weight, _))| u64::from(*weight)).sum();
        let winner = loop {
            if self.waiting.len() == 1 {
                break 0;
            }
            let mut draw = self.rng.below(all);
            let winner = self.waiting.iter().position(|(_, (weight, _))| {
                let wins = draw < u64::from(*weight);
                draw = draw.saturating_sub(u64::from(*weight));
                wins
            });
            // If all weights are 0, the first link wins.
            let winner = winner.unwrap_or(0);
            // Each failed attempt doubles the contention window, and so halves the weight.
            let failed = self.waiting[winner].1.1.min(DOUBLINGS_MAX);
            if failed == 0 || self.rng.below(1 << failed) == 0 {
                break winner;
            }
        };
        self.holder = Some(self.waiting.remove(winner).0);
        self.holder
    }
}
