//! A medium that its stations share: one packet at a time, and who is next is drawn at random.
//!
//! The long-run behaviour of 802.11's DCF, not its slots: whoever has a packet waiting contends, and wins
//! with a probability in proportion to its weight, a packet at a time. So stations get equal numbers of
//! packets, however long each packet takes: a slow one slows all others down (Heusse et al.: "Performance
//! anomaly of 802.11b", INFOCOM 2003). A weight stands for a smaller contention window.

use crate::Rng;
use crate::rng::RngSeed;

/// A medium of a [`Net`](crate::Net), by the order in which they were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MediumId(pub u32);

/// See the [module](self).
#[derive(Clone, Debug)]
pub(crate) struct Medium {
    rng: Rng,
    /// The link that sends.
    holder: Option<u32>,
    /// The links that contend, ascending, with their weights.
    waiting: Vec<(u32, u32)>,
}

impl Medium {
    pub(crate) fn new(seed: u64, name: &str) -> Self {
        let rng = RngSeed::new(seed, name).stream("medium");
        Self { rng, holder: None, waiting: Vec::new() }
    }

    /// Link `id` of weight `weight` has a packet waiting, or not, and is sending one, or not.
    pub(crate) fn update(&mut self, id: u32, weight: u32, waits: bool, sends: bool) {
        if self.holder == Some(id) && !sends {
            self.holder = None;
        }
        match (self.waiting.binary_search_by_key(&id, |entry| entry.0), waits) {
            (Err(i), true) => self.waiting.insert(i, (id, weight)),
            (Ok(i), false) => {
                self.waiting.remove(i);
            }
            _ => {}
        }
    }

    /// Who sends next, if nobody does and somebody wants to: it is told to at once.
    pub(crate) fn next_holder(&mut self) -> Option<u32> {
        if self.holder.is_some() || self.waiting.is_empty() {
            return None;
        }
        let all = self.waiting.iter().map(|(_, weight)| u64::from(*weight)).sum();
        let mut draw = if self.waiting.len() == 1 { 0 } else { self.rng.below(all) };
        let winner = self.waiting.iter().position(|(_, weight)| {
            let wins = draw < u64::from(*weight);
            draw = draw.saturating_sub(u64::from(*weight));
            wins
        });
        // Where all weights are 0, the first.
        self.holder = Some(self.waiting.remove(winner.unwrap_or(0)).0);
        self.holder
    }
}
