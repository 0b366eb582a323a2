//! The channel that a receiver with one radio listens to, where its APs are on several channels.
//!
//! The receiver visits the channels in turn. The rule of the source (section 2.2.3) is a slot of 100 ms on
//! each, which ends early when no packet has come for 10 ms. Its experiment with many users (section 2.2.3.1)
//! has a parameter α = 2 whose rule is in another document; here it is [`SlotRule::Proportional`]: the slots
//! of a cycle are shared in proportion to the α-th power of the throughput of each channel's last visit. With
//! it the numbers of that experiment come out; with fixed slots they do not.

use alloc::vec::Vec;

use crate::{Rate, Span, Time};

/// The slot of the fixed rule.
pub const SLOT: Span = Span::from_millis(100);
/// The time without packets after which a slot ends early.
pub const IDLE_MAX: Span = Span::from_millis(10);
/// The largest weight before it is raised to a power, which leaves room for a power of 4.
const WEIGHT_MAX: u64 = 1 << 14;
/// The least weight, so that a channel without packets is still visited.
const WEIGHT_MIN: u64 = WEIGHT_MAX / 1_000;

/// How long a visit to a channel lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotRule {
    /// Equally long on each channel.
    Fixed(Span),
    /// In proportion to a power of the throughput of the channel's last visit.
    Proportional {
        /// The length of all slots together.
        cycle: Span,
        /// The least slot.
        least: Span,
        /// The exponent α, at most 4.
        exponent: u32,
    },
}

/// Visits the channels in turn: see the first lines of the file.
#[derive(Clone, Debug)]
pub struct ChannelSlots {
    rule: SlotRule,
    /// The time without packets after which a slot ends early; `None` if it never does.
    idle: Option<Span>,
    /// The throughput of the last visit to each channel; `None` before the first.
    visits: Vec<Option<Rate>>,
    current: usize,
    since: Time,
    end: Time,
    /// The time of the last packet of this visit, or its beginning.
    heard: Time,
    bytes: u64,
}

impl ChannelSlots {
    /// Begins at `now` on channel `first` of `channels` channels (at least one). `idle` is the time without
    /// packets after which a slot ends early, [`IDLE_MAX`] in the source; `None` if none does.
    #[must_use]
    pub fn new(now: Time, channels: usize, first: usize, rule: SlotRule, idle: Option<Span>) -> Self {
        let visits = alloc::vec![None; channels.max(1)];
        let current = first % visits.len();
        let mut slots = Self { rule, idle, visits, current, since: now, end: now, heard: now, bytes: 0 };
        slots.end = now + slots.length();
        slots
    }

    /// Returns the current channel.
    #[must_use]
    pub const fn channel(&self) -> usize {
        self.current
    }

    /// Records `bytes` bytes that arrived on the current channel.
    pub fn arrived(&mut self, now: Time, bytes: u64) {
        self.heard = self.heard.max(now);
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Returns the time at which the slot ends, if no packet comes until then.
    #[must_use]
    pub fn due(&self) -> Time {
        self.idle.map_or(self.end, |idle| self.end.min(self.heard + idle))
    }

    /// Moves to the next channel if the slot is over at `now`; returns that channel. `extra` is added to the
    /// slot that begins, for what the switch itself takes.
    pub fn switch(&mut self, now: Time, extra: Span) -> Option<usize> {
        if now < self.due() {
            return None;
        }
        self.visits[self.current] = Some(Rate::of(self.bytes, now.since(self.since)));
        self.current = (self.current + 1) % self.visits.len();
        (self.since, self.heard, self.bytes) = (now, now, 0);
        self.end = now + self.length() + extra;
        Some(self.current)
    }

    /// Returns the length of the slot of the current channel, without extra time.
    fn length(&self) -> Span {
        match self.rule {
            SlotRule::Fixed(slot) => slot,
            SlotRule::Proportional { cycle, least, exponent } => {
                // A channel that was never visited is taken to be as good as the best.
                let best = self.visits.iter().flatten().map(|rate| rate.as_bytes()).max().unwrap_or(0).max(1);
                let weight = |visit: &Option<Rate>| {
                    let rate = u128::from(visit.map_or(best, Rate::as_bytes));
                    let weight = (rate * u128::from(WEIGHT_MAX) / u128::from(best)) as u64;
                    weight.max(WEIGHT_MIN).pow(exponent.min(4))
                };
                let all: u128 = self.visits.iter().map(|visit| u128::from(weight(visit))).sum();
                let mine = u128::from(weight(&self.visits[self.current]));
                let nanos = u128::from(cycle.as_nanos()) * mine / all;
                Span::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)).max(least)
            }
        }
    }
}
