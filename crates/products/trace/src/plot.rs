//! Marks for a sequence plot: data over time, in bounded memory.
//!
//! A mark is a run of data that one subflow sent as one kind, or the receiver acknowledged, within a slot of
//! time. A direction with too many marks has its slots doubled and joins those that are in one slot then:
//! what is drawn stays true to the width of a slot. Where even one slot has too many subflows and kinds, the
//! last marks are dropped and counted. All directions together have a limit, too.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::subflow::Side;

/// The most marks of one direction.
pub(crate) const MARKS_MAX: usize = 8192;
/// The number of marks for which a direction always has room.
const MARKS_MIN: usize = 32;
/// The most marks of all connections at one time, of 40 bytes each.
const ALL_MARKS_MAX: usize = 1 << 18;
/// The most connections that are plotted at one time.
const PLOTS_MAX: usize = ALL_MARKS_MAX / (2 * MARKS_MIN);
/// The width of slots at first, ns.
const SLOT_NS: u64 = 100_000;
/// The number of last marks among which a mark to be extended is looked for.
const RECENT: usize = 16;

/// What a mark shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Data that no subflow had sent before.
    New,
    /// Data that TCP sent again on the same subflow.
    Retransmitted,
    /// Data that another subflow had sent first.
    Reinjected,
    /// Data that the same subflow had sent first, under other sequence numbers.
    Resent,
    /// Data that the receiver has acknowledged.
    Acknowledged,
    /// Data that was never seen, although later data was.
    Missing,
}

/// A run of data in a plot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The times of the first and the last segment of the run, ns since the connection began.
    pub time_ns: (u64, u64),
    /// The lowest byte and the end of the highest, counted from the first byte of the direction.
    pub bytes: (u64, u64),
    /// The subflow that sent the data; 0 without meaning for acknowledged and missing data.
    pub subflow: u16,
    /// The kind of the data.
    pub kind: Kind,
}

impl Mark {
    /// Makes this mark reach over `other`, too.
    fn extend(&mut self, other: &Self) {
        self.time_ns.1 = self.time_ns.1.max(other.time_ns.1);
        self.bytes = (self.bytes.0.min(other.bytes.0), self.bytes.1.max(other.bytes.1));
    }
}

/// The marks of one direction, in the order of their first segments.
#[derive(Clone, Debug)]
pub struct Plot {
    /// The marks.
    pub marks: Vec<Mark>,
    /// Marks that were dropped, as there were too many subflows and kinds at one time.
    pub dropped: u64,
    slot_ns: u64,
}

impl Default for Plot {
    fn default() -> Self {
        Self { marks: Vec::new(), dropped: 0, slot_ns: SLOT_NS }
    }
}

impl Plot {
    fn add(&mut self, mark: Mark, marks_max: usize) {
        if join(&mut self.marks, mark, self.slot_ns) {
            return;
        }
        self.marks.push(mark);
        if self.marks.len() > marks_max {
            self.shrink(marks_max / 2, marks_max);
        }
    }

    /// Doubles the slots until at most `wanted` marks are left or all are in one slot; drops those beyond
    /// `max`.
    fn shrink(&mut self, wanted: usize, max: usize) {
        self.join_slots();
        while self.marks.len() > wanted && self.slot_ns < 1 << 62 && self.has_slots() {
            self.slot_ns *= 2;
            self.join_slots();
        }
        self.dropped += self.marks.len().saturating_sub(max) as u64;
        self.marks.truncate(max);
    }

    fn has_slots(&self) -> bool {
        self.marks.iter().any(|mark| mark.time_ns.0 >= self.slot_ns)
    }

    /// Leaves one mark for each slot, subflow and kind.
    fn join_slots(&mut self) {
        let mut places = HashMap::<_, usize>::new();
        let mut joined: Vec<Mark> = Vec::with_capacity(self.marks.len());
        for mark in self.marks.drain(..) {
            let place = places.entry((mark.time_ns.0 / self.slot_ns, mark.subflow, mark.kind));
            match place {
                Entry::Occupied(place) => joined[*place.get()].extend(&mark),
                Entry::Vacant(place) => {
                    place.insert(joined.len());
                    joined.push(mark);
                }
            }
        }
        self.marks = joined;
    }

    /// Adds data that was never seen. The mark is drawn at the time at which the data behind it was sent.
    pub(crate) fn missing(&mut self, gap: (u64, u64)) {
        let behind = |mark: &&Mark| mark.kind == Kind::New && mark.bytes.0 >= gap.1;
        if let Some(time_ns) = self.marks.iter().find(behind).map(|mark| mark.time_ns.0) {
            let time_ns = (time_ns, time_ns);
            self.marks.push(Mark { time_ns, bytes: gap, subflow: 0, kind: Kind::Missing });
        }
    }
}

/// Joins `mark` with one of the last marks if it continues that mark. Returns whether it did.
fn join(marks: &mut [Mark], mark: Mark, slot_ns: u64) -> bool {
    let slot = mark.time_ns.0 / slot_ns;
    let same = |old: &&mut Mark| {
        (old.subflow, old.kind) == (mark.subflow, mark.kind) && old.time_ns.0 / slot_ns == slot
    };
    let Some(old) = marks.iter_mut().rev().take(RECENT).find(same) else { return false };
    old.extend(&mark);
    true
}

/// The plots of all connections that have not ended.
#[derive(Debug)]
pub(crate) struct Plots {
    open: HashMap<u64, [Plot; 2]>,
    /// The number of all marks, and the most marks that one direction may have now.
    marks: usize,
    marks_max: usize,
}

impl Default for Plots {
    fn default() -> Self {
        Self { open: HashMap::new(), marks: 0, marks_max: MARKS_MAX }
    }
}

impl Plots {
    pub(crate) fn add(&mut self, connection: u64, marks: impl Iterator<Item = (Side, Mark)>) {
        if self.open.len() >= PLOTS_MAX && !self.open.contains_key(&connection) {
            return;
        }
        let plots = self.open.entry(connection).or_default();
        for (side, mark) in marks {
            let plot = &mut plots[side.index()];
            let before = plot.marks.len();
            plot.add(mark, self.marks_max);
            self.marks = self.marks + plot.marks.len() - before;
        }
        while self.marks > ALL_MARKS_MAX && self.marks_max > MARKS_MIN {
            self.marks_max /= 2;
            let plots = self.open.values_mut().flatten();
            self.marks = plots
                .map(|plot| {
                    plot.shrink(self.marks_max, self.marks_max);
                    plot.marks.len()
                })
                .sum();
        }
    }

    /// Removes and returns the plots of a connection that has ended.
    pub(crate) fn take(&mut self, connection: u64) -> Option<[Plot; 2]> {
        let plots = self.open.remove(&connection)?;
        self.marks -= plots.iter().map(|plot| plot.marks.len()).sum::<usize>();
        if self.marks < ALL_MARKS_MAX / 4 {
            self.marks_max = (2 * self.marks_max).min(MARKS_MAX);
        }
        Some(plots)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(time: u64, start: u64, subflow: u16) -> Mark {
        Mark { time_ns: (time, time), bytes: (start, start + 1000), subflow, kind: Kind::New }
    }

    #[test]
    fn a_plot_is_bounded_and_keeps_its_outline() {
        let mut plots = Plots::default();
        for packet in 0..100_000 {
            let marks = [(Side::Client, mark(packet * 50_000, packet * 1000, (packet % 3) as u16))];
            plots.add(1, marks.into_iter());
            assert!(plots.marks <= MARKS_MAX);
        }
        let [up, down] = plots.take(1).expect("a plot");
        assert!((MARKS_MAX / 4..=MARKS_MAX).contains(&up.marks.len()) && down.marks.is_empty());
        let (first, last) = (up.marks[0], up.marks[up.marks.len() - 1]);
        assert_eq!((first.time_ns.0, first.bytes.0), (0, 0));
        assert!(up.marks.iter().any(|m| m.bytes.1 == 100_000_000) && last.time_ns.1 >= 99_990 * 50_000);
        assert_eq!(plots.marks, 0);
    }

    #[test]
    fn many_subflows_in_turn_are_joined_by_slots() {
        let mut plot = Plot::default();
        for packet in 0..100_000 {
            plot.add(mark(packet * 1000, packet * 1000, (packet % 17) as u16), MARKS_MAX);
            assert!(plot.marks.len() <= MARKS_MAX);
        }
        assert!(plot.marks.len() >= MARKS_MAX / 4 && plot.dropped == 0 && plot.slot_ns < 1_000_000);
    }

    #[test]
    fn more_subflows_than_marks_are_dropped_and_counted() {
        let mut plot = Plot::default();
        for packet in 0..10_000 {
            plot.add(mark(packet * 1000, packet * 1000, (packet % 40) as u16), MARKS_MIN);
            assert!(plot.marks.len() <= MARKS_MIN);
        }
        assert!(plot.dropped > 0 && plot.slot_ns < 1 << 30, "{plot:?}");
    }

    #[test]
    fn all_plots_together_are_bounded() {
        let mut plots = Plots::default();
        for round in 0..100_u64 {
            for connection in 0..PLOTS_MAX as u64 + 50 {
                let marks = [(Side::Server, mark(round << 24, round * 1000, 0))];
                plots.add(connection, marks.into_iter());
            }
            assert!(plots.marks <= ALL_MARKS_MAX + 1, "{}", plots.marks);
        }
        assert_eq!(plots.open.len(), PLOTS_MAX);
        for connection in 0..PLOTS_MAX as u64 {
            plots.take(connection);
        }
        assert_eq!((plots.marks, plots.marks_max), (0, MARKS_MAX));
    }
}
