//! The order of sending: deficit round robin with new streams first, as in FQ-CoDel (RFC 8290 section 4.2),
//! but without CoDel, because streams have credit and nothing is dropped.
//!
//! A stream that begins to send is new, and may send [`NEW_BYTES`] before the old ones. Then it is old, and
//! gets [`OLD_BYTES`] in turn with the others. A new stream without bytes becomes old too, and an old one
//! leaves the list if it has none in its turn. So short exchanges do not wait behind downloads, and no stream
//! stays new by pausing. Unlike in the RFC, an old stream gets a turn after [`NEW_BYTES_IN_A_ROW`].

use std::collections::VecDeque;

/// The bytes that a new stream may send before the old ones.
pub(super) const NEW_BYTES: u32 = 64 * 1024;
/// The bytes of an old stream's turn.
pub(super) const OLD_BYTES: u32 = 16 * 1024;
/// The bytes of new streams after which an old one gets a turn, so that no stream starves.
pub(super) const NEW_BYTES_IN_A_ROW: u32 = 128 * 1024;

/// The turn of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) stream: u32,
    /// The bytes that the stream may send in this turn.
    pub(super) left: u32,
    is_new: bool,
}

/// The streams that have something to send. The caller adds each at most once.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    new: VecDeque<Turn>,
    old: VecDeque<Turn>,
    new_in_a_row: u32,
}

impl Schedule {
    /// Adds a stream that begins to send.
    pub(super) fn add(&mut self, stream: u32) {
        self.new.push_back(Turn { stream, left: NEW_BYTES, is_new: true });
    }

    pub(super) fn len(&self) -> usize {
        self.new.len() + self.old.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes the next stream off the list. [`sent`](Self::sent) or [`ran_out`](Self::ran_out) must follow.
    pub(super) fn next(&mut self) -> Option<Turn> {
        let prefers_old = self.new_in_a_row >= NEW_BYTES_IN_A_ROW && !self.old.is_empty();
        let (first, second) = match prefers_old {
            true => (&mut self.old, &mut self.new),
            false => (&mut self.new, &mut self.old),
        };
        first.pop_front().or_else(|| second.pop_front())
    }

    /// Notes that the stream of `turn` has sent `bytes`. It keeps its turn, or is put behind the others if
    /// the turn is used up.
    pub(super) fn sent(&mut self, mut turn: Turn, bytes: u32) {
        self.new_in_a_row = if turn.is_new { self.new_in_a_row.saturating_add(bytes) } else { 0 };
        turn.left = turn.left.saturating_sub(bytes);
        match (turn.left, turn.is_new) {
            (0, _) => self.put_behind(turn.stream),
            (_, true) => self.new.push_front(turn),
            (_, false) => self.old.push_front(turn),
        }
    }

    /// Notes that the stream of `turn` has nothing to send. Returns whether it is off the list now.
    pub(super) fn ran_out(&mut self, turn: Turn) -> bool {
        if turn.is_new {
            self.put_behind(turn.stream);
        }
        !turn.is_new
    }

    /// Removes streams that no longer exist.
    pub(super) fn retain(&mut self, exists: impl Fn(u32) -> bool) {
        self.new.retain(|turn| exists(turn.stream));
        self.old.retain(|turn| exists(turn.stream));
    }

    fn put_behind(&mut self, stream: u32) {
        self.old.push_back(Turn { stream, left: OLD_BYTES, is_new: false });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends pieces of 16 KiB from streams that never run out. Returns the stream of each piece.
    fn send(schedule: &mut Schedule, pieces: usize) -> Vec<u32> {
        let piece = |_| {
            let turn = schedule.next()?;
            schedule.sent(turn, turn.left.min(16 * 1024));
            Some(turn.stream)
        };
        (0..pieces).map_while(piece).collect()
    }

    #[test]
    fn new_streams_send_first_and_then_share() {
        let mut schedule = Schedule::default();
        schedule.add(1);
        assert_eq!(send(&mut schedule, 6), [1; 6]);
        schedule.add(2);
        schedule.add(3);
        assert_eq!(send(&mut schedule, 8), [2, 2, 2, 2, 3, 3, 3, 3], "in the order in which they came");
        assert_eq!(send(&mut schedule, 6), [1, 2, 3, 1, 2, 3]);
    }

    #[test]
    fn many_new_ones_do_not_starve_an_old_one() {
        let mut schedule = Schedule::default();
        schedule.add(1);
        send(&mut schedule, 5);
        (2..100).for_each(|stream| schedule.add(stream));
        // Each of the new streams sends 16 KiB and has no more.
        let (mut longest, mut waited) = (0, 0);
        while let Some(turn) = schedule.next().filter(|_| !schedule.is_empty()) {
            match turn.stream {
                1 => waited = 0,
                _ if turn.left < NEW_BYTES => {
                    schedule.ran_out(turn);
                    continue;
                }
                _ => waited += 1,
            }
            longest = longest.max(waited);
            schedule.sent(turn, OLD_BYTES);
        }
        assert_eq!(longest, NEW_BYTES_IN_A_ROW / OLD_BYTES);
    }

    #[test]
    fn nobody_stays_new_by_pausing() {
        let mut schedule = Schedule::default();
        schedule.add(1);
        send(&mut schedule, 5);
        schedule.add(2);
        let turn = schedule.next().unwrap();
        schedule.sent(turn, 100);
        let turn = schedule.next().unwrap();
        assert!(!schedule.ran_out(turn), "it is old now, behind the others");
        assert_eq!(send(&mut schedule, 3), [1, 2, 1]);
        let turn = schedule.next().unwrap();
        assert!(turn.stream == 2 && schedule.ran_out(turn));
        assert_eq!(schedule.len(), 1);
    }
}
