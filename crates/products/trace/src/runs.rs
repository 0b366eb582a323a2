//! Records which numbers of a sequence have been seen, and which subflow sent each first.

use std::collections::BTreeMap;

/// The most runs that are kept. Beyond it the oldest are forgotten, and their numbers count as seen.
const RUNS_MAX: usize = 1 << 16;

/// The history of a piece of a range that [`Runs::insert`] adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// No number of the piece was seen before.
    New,
    /// This subflow sent the piece first.
    Seen(u16),
    /// The piece was seen before, but its first sender is forgotten.
    Forgotten,
}

/// Coalesced runs of numbers, each with its first sender.
#[derive(Clone, Debug, Default)]
pub(crate) struct Runs {
    /// The runs without overlap: from each start to its end and owner.
    runs: BTreeMap<u64, (u64, u16)>,
    /// The run that was extended last. It is not in the map, so that the usual case touches no tree.
    last: Option<(u64, u64, u16)>,
    /// The end of the highest run.
    high: u64,
    /// All runs below this number are forgotten.
    floor: u64,
    /// All numbers below this one, from the first on, are seen.
    front: u64,
    forgotten: u64,
}

impl Runs {
    /// Creates an empty set. Numbers below `floor` do not belong to the sequence.
    pub(crate) fn new(floor: u64) -> Self {
        Self { floor, front: floor, high: floor, ..Self::default() }
    }

    /// Returns the end of the highest run.
    pub(crate) const fn high(&self) -> u64 {
        self.high
    }

    /// Returns the end of the numbers that are seen without a gap from the first on.
    pub(crate) const fn front(&self) -> u64 {
        self.front
    }

    /// Returns how many runs were dropped to bound memory.
    pub(crate) const fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Returns the first `count_max` gaps between runs that are not forgotten.
    pub(crate) fn gaps(&self, count_max: usize) -> Vec<(u64, u64)> {
        let last = self.last.map(|(start, end, _)| (start, end));
        let runs = self.runs.iter().map(|(start, (end, _))| (*start, *end)).chain(last);
        let mut at = self.floor;
        let gaps = runs.filter_map(|(start, end)| {
            let before = at;
            at = at.max(end);
            (start > before).then_some((before, start))
        });
        gaps.take(count_max).collect()
    }

    /// Adds `start..end` by `owner`, and hands each of its pieces to `each` in order.
    pub(crate) fn insert(&mut self, start: u64, end: u64, owner: u16, mut each: impl FnMut(u64, u64, Piece)) {
        if start >= end {
            return;
        }
        if start == self.high {
            self.append(start, end, owner);
            each(start, end, Piece::New);
            return;
        }
        self.settle();
        let mut at = start;
        if at < self.floor {
            let stop = end.min(self.floor);
            each(at, stop, Piece::Forgotten);
            at = stop;
        }
        while at < end {
            let below = self.runs.range(..=at).next_back().map(|(_, run)| *run);
            if let Some((run_end, run_owner)) = below
                && run_end > at
            {
                let stop = run_end.min(end);
                each(at, stop, Piece::Seen(run_owner));
                at = stop;
                continue;
            }
            let next = self.runs.range(at..).next().map_or(u64::MAX, |(start, _)| *start);
            let stop = end.min(next);
            self.runs.insert(at, (stop, owner));
            each(at, stop, Piece::New);
            self.join(at);
            at = stop;
        }
        self.high = self.high.max(end);
        self.advance();
        self.bound();
    }

    /// Adds a range that begins where the highest run ended, which is the usual case.
    fn append(&mut self, start: u64, end: u64, owner: u16) {
        match &mut self.last {
            Some((_, last_end, last_owner)) if *last_end == start && *last_owner == owner => *last_end = end,
            _ => {
                self.settle();
                self.last = Some((start, end, owner));
                self.bound();
            }
        }
        self.high = end;
        if self.front == start {
            self.front = end;
        }
    }

    fn settle(&mut self) {
        if let Some((start, end, owner)) = self.last.take() {
            self.runs.insert(start, (end, owner));
            self.join(start);
        }
    }

    /// Joins the run at `start` with its neighbours of the same owner.
    fn join(&mut self, start: u64) {
        let Some(&(end, owner)) = self.runs.get(&start) else { return };
        let mut start = start;
        let mut end = end;
        if let Some((&left, &(left_end, left_owner))) = self.runs.range(..start).next_back()
            && left_end == start
            && left_owner == owner
        {
            self.runs.remove(&start);
            start = left;
        }
        if let Some(&(right_end, right_owner)) = self.runs.get(&end)
            && right_owner == owner
        {
            self.runs.remove(&end);
            end = right_end;
        }
        self.runs.insert(start, (end, owner));
    }

    /// Moves the front over runs that adjoin it.
    fn advance(&mut self) {
        while let Some((_, &(end, _))) = self.runs.range(..=self.front).next_back() {
            if end <= self.front {
                break;
            }
            self.front = end;
        }
    }

    fn bound(&mut self) {
        while self.runs.len() > RUNS_MAX {
            let Some((_, (end, _))) = self.runs.pop_first() else { return };
            self.floor = self.floor.max(end);
            self.front = self.front.max(self.floor);
            self.forgotten += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(runs: &mut Runs, start: u64, end: u64, owner: u16) -> Vec<(u64, u64, Piece)> {
        let mut pieces = Vec::new();
        runs.insert(start, end, owner, |from, to, piece| pieces.push((from, to, piece)));
        pieces
    }

    #[test]
    fn pieces_are_new_or_have_a_first_sender() {
        let mut runs = Runs::new(0);
        assert_eq!(add(&mut runs, 0, 10, 0), [(0, 10, Piece::New)]);
        assert_eq!(add(&mut runs, 20, 30, 1), [(20, 30, Piece::New)]);
        assert_eq!(runs.gaps(5), [(10, 20)]);
        assert_eq!((runs.front(), runs.high()), (10, 30));
        let pieces =
            [(5, 10, Piece::Seen(0)), (10, 20, Piece::New), (20, 30, Piece::Seen(1)), (30, 35, Piece::New)];
        assert_eq!(add(&mut runs, 5, 35, 2), pieces);
        assert_eq!((runs.front(), runs.high()), (35, 35));
        assert_eq!(add(&mut runs, 35, 40, 2), [(35, 40, Piece::New)]);
        assert_eq!(add(&mut runs, 9, 11, 0), [(9, 10, Piece::Seen(0)), (10, 11, Piece::Seen(2))]);
    }

    #[test]
    fn memory_is_bounded() {
        let mut runs = Runs::new(0);
        for at in 0..2 * RUNS_MAX as u64 {
            runs.insert(at * 10, at * 10 + 5, 0, |_, _, _| {});
        }
        assert!(runs.runs.len() <= RUNS_MAX && runs.forgotten() > 0);
        assert_eq!(add(&mut runs, 0, 5, 1), [(0, 5, Piece::Forgotten)]);
    }
}
