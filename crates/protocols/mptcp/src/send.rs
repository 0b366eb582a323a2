//! The data to be sent: kept until the peer has acknowledged it at data level, and given to subflows as the
//! scheduler decides (RFC 8684 section 3.3).

use std::collections::{BTreeSet, VecDeque};

use anabranch_algo::Time;

use crate::config::SUBFLOWS_MAX;
use crate::overtake::{Lookout, Paces, Underway};
use crate::payload::Payload;

/// Small writes are gathered into pieces of this size, bytes.
const GATHER_BYTES: usize = 16_384;
/// So many pieces from the first unacknowledged one on may be overtaken.
const OVERTAKE_PIECES: usize = 64;

/// Bytes that were given to subflows and are not acknowledged.
#[derive(Clone, Debug)]
struct Flying {
    seq: u64,
    payload: Payload,
    /// The slots of the subflows that carried these bytes, one bit each.
    carried: u64,
    /// The last of these subflows, and when it got the bytes.
    underway: Underway,
    /// The slots of subflows on which the bytes were overdue when another one took them over, one bit each.
    late: u64,
}

impl Flying {
    fn end(&self) -> u64 {
        self.seq + self.payload.len() as u64
    }
}

/// The state of the end of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fin {
    Open,
    /// The program writes no more, but data is still unsent.
    Wanted,
    /// All data is sent; the DATA_FIN has this data sequence number.
    At(u64),
}

/// A subflow that may overtake others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mover<'a> {
    /// Its slot, and the current time.
    pub(crate) underway: Underway,
    pub(crate) paces: &'a Paces,
    pub(crate) is_backup: bool,
}

/// The sending half of a connection. Data sequence numbers are counted from the initial one, so the first
/// byte has number 1.
#[derive(Clone, Debug)]
pub(crate) struct SendQueue {
    unsent: VecDeque<Payload>,
    unsent_bytes: u64,
    /// Written bytes that are not a piece yet.
    gathered: Vec<u8>,
    flying: VecDeque<Flying>,
    /// The numbers of the pieces that must be sent on another subflow, too.
    reinject: BTreeSet<u64>,
    /// The number of the piece that the subflow in each slot got last.
    last_of: [u64; SUBFLOWS_MAX],
    una: u64,
    next: u64,
    window_end: u64,
    capacity: u64,
    reinjections: u64,
    fin: Fin,
}

impl SendQueue {
    /// Creates an empty queue of `capacity` bytes.
    pub(crate) const fn new(capacity: u32) -> Self {
        Self {
            unsent: VecDeque::new(),
            unsent_bytes: 0,
            gathered: Vec::new(),
            flying: VecDeque::new(),
            reinject: BTreeSet::new(),
            last_of: [0; SUBFLOWS_MAX],
            una: 1,
            next: 1,
            window_end: 1,
            capacity: capacity as u64,
            reinjections: 0,
            fin: Fin::Open,
        }
    }

    pub(crate) const fn una(&self) -> u64 {
        self.una
    }
    pub(crate) const fn next(&self) -> u64 {
        self.next
    }
    /// Returns the bytes that were not given to a subflow yet.
    pub(crate) const fn unsent(&self) -> u64 {
        self.unsent_bytes
    }
    /// Returns the bytes that the peer's window has room for.
    pub(crate) const fn window_room(&self) -> u64 {
        self.window_end.saturating_sub(self.next)
    }
    /// Returns how many times data has been reinjected.
    pub(crate) const fn reinjections(&self) -> u64 {
        self.reinjections
    }
    /// Returns whether data that was given to subflows has not been acknowledged.
    pub(crate) fn is_flying(&self) -> bool {
        !self.flying.is_empty()
    }
    /// Returns the bytes that can be written now.
    pub(crate) fn writable(&self) -> u64 {
        match self.fin {
            Fin::Open => self.capacity.saturating_sub(self.unsent_bytes + (self.next - self.una)),
            _ => 0,
        }
    }

    /// Takes as many of the program's bytes as there is room for, and returns their number.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> usize {
        let len = usize::try_from(self.writable()).unwrap_or(usize::MAX).min(bytes.len());
        let bytes = &bytes[..len];
        if self.gathered.len() + len > GATHER_BYTES {
            self.seal();
        }
        if len >= GATHER_BYTES {
            self.unsent.push_back(Payload::copy_of(bytes));
        } else {
            self.gathered.extend_from_slice(bytes);
        }
        self.unsent_bytes += len as u64;
        len
    }

    /// Takes as much of a view as there is room for, without copying it, and returns how many bytes it took.
    pub(crate) fn write_view(&mut self, mut bytes: Payload) -> usize {
        bytes.truncate(usize::try_from(self.writable()).unwrap_or(usize::MAX));
        let len = bytes.len();
        if len > 0 {
            self.seal();
            self.unsent.push_back(bytes);
            self.unsent_bytes += len as u64;
        }
        len
    }

    fn seal(&mut self) {
        if !self.gathered.is_empty() {
            self.unsent.push_back(Payload::from(std::mem::take(&mut self.gathered)));
        }
    }

    /// Records that the program writes no more.
    pub(crate) fn finish(&mut self) {
        if self.fin == Fin::Open {
            self.fin = Fin::Wanted;
        }
    }

    /// Takes at most `max` bytes of new data for a subflow, which gets them now. Returns them with their
    /// number.
    pub(crate) fn take(&mut self, max: u64, underway: Underway) -> Option<(u64, Payload)> {
        let max = usize::try_from(max.min(self.window_room())).unwrap_or(usize::MAX);
        if max == 0 || self.unsent_bytes == 0 {
            return None;
        }
        if self.unsent.front().is_none_or(|front| front.len() < max) {
            self.seal();
        }
        let front = self.unsent.front_mut()?;
        let mut payload = front.split_to(max);
        if front.is_empty() {
            self.unsent.pop_front();
        }
        if payload.len() < max && !self.unsent.is_empty() {
            let mut bytes = payload.as_bytes().to_vec();
            while let Some(front) = self.unsent.front_mut().filter(|_| bytes.len() < max) {
                bytes.extend_from_slice(front.split_to(max - bytes.len()).as_bytes());
                if front.is_empty() {
                    self.unsent.pop_front();
                }
            }
            payload = Payload::from(bytes);
        }
        let (seq, len) = (self.next, payload.len() as u64);
        self.unsent_bytes -= len;
        self.next += len;
        let carried = 1 << underway.slot;
        let underway = self.hand(underway, seq, len);
        self.flying.push_back(Flying { seq, payload: payload.clone(), carried, underway, late: 0 });
        Some((seq, payload))
    }

    /// Notes that a subflow gets `len` bytes from number `seq` on, which follow those that it got last.
    fn hand(&mut self, mut underway: Underway, seq: u64, len: u64) -> Underway {
        let Underway { slot, sent_at, .. } = underway;
        if let Some(last) = self.last_of.get_mut(slot) {
            let before = std::mem::replace(last, seq);
            let at = self.place(before);
            let before = self.flying.get_mut(at).map(|flying| &mut flying.underway);
            if let Some(before) = before.filter(|before| before.slot == slot) {
                before.followed_at = before.followed_at.min(sent_at);
            }
        }
        underway.end += len;
        underway
    }

    fn place(&self, seq: u64) -> usize {
        self.flying.partition_point(|flying| flying.seq < seq)
    }

    /// Returns the slots of the subflows that carried the first piece to be reinjected, or `None` if there is
    /// none.
    pub(crate) fn reinjection(&self) -> Option<u64> {
        let seq = *self.reinject.first()?;
        self.flying.get(self.place(seq)).map(|flying| flying.carried)
    }

    /// Takes at most `max` bytes of the first piece to be reinjected, for a subflow that gets them now.
    pub(crate) fn take_reinjection(&mut self, max: u64, underway: Underway) -> Option<(u64, Payload)> {
        let seq = self.reinject.pop_first()?;
        let rest = self.carry(self.place(seq), max, underway)?;
        self.reinjections += 1;
        self.reinject.extend(rest.1);
        Some(rest.0)
    }

    /// Takes at most `max` of the first bytes that a subflow has not carried, which gets them now.
    pub(crate) fn take_copy(&mut self, max: u64, underway: Underway) -> Option<(u64, Payload)> {
        let at = self.flying.iter().position(|flying| flying.carried & (1 << underway.slot) == 0)?;
        Some(self.carry(at, max, underway)?.0)
    }

    /// Takes at most `max` of the first bytes in which the subflow of `mover` overtakes the one that carries
    /// them.
    pub(crate) fn overtake(&mut self, max: u64, mover: &Mover<'_>) -> Option<(u64, Payload)> {
        let Mover { underway, paces, is_backup } = *mover;
        let pace = paces.get(underway.slot).copied().flatten()?;
        let mut lookout = Lookout::new(underway.sent_at, paces);
        let mut first = self.flying.iter().take(OVERTAKE_PIECES);
        let at = first.position(|flying| {
            lookout.note(flying.late);
            let is_overtaken = lookout.is_overtaken(&flying.underway, &pace, is_backup);
            is_overtaken && flying.carried & (1 << underway.slot) == 0
        })?;
        let flying = self.flying.get_mut(at)?;
        flying.late |= lookout.overdue() & (1 << flying.underway.slot);
        let was_due = self.reinject.remove(&flying.seq);
        let (data, rest) = self.carry(at, max, underway)?;
        // What is due to be reinjected and was not taken stays due.
        self.reinject.extend(rest.filter(|_| was_due));
        Some(data)
    }

    /// Returns when the next of the first pieces is overdue; [`Time::NEVER`] if each is overdue by `now`.
    pub(crate) fn overdue_at(&self, now: Time, paces: &Paces) -> Time {
        let mut lookout = Lookout::new(now, paces);
        let first = self.flying.iter().take(OVERTAKE_PIECES);
        let overdue_at = |flying: &Flying| {
            lookout.note(flying.late);
            lookout.overdue_at(&flying.underway)
        };
        let at = first.filter_map(overdue_at).filter(|at| *at > now);
        at.min().unwrap_or(Time::NEVER)
    }

    /// Records that a subflow carries the first `max` bytes of the entry at index `at` from now on. A longer
    /// entry is cut in two, and the number of its second part is returned with the bytes.
    fn carry(&mut self, at: usize, max: u64, underway: Underway) -> Option<((u64, Payload), Option<u64>)> {
        let slot = underway.slot;
        let (seq, len) = self.flying.get(at).map(|flying| (flying.seq, flying.payload.len() as u64))?;
        let underway = self.hand(underway, seq, len.min(max));
        let flying = self.flying.get_mut(at)?;
        let mut rest = None;
        if flying.payload.len() as u64 > max {
            let front = flying.payload.split_to(max as usize);
            let seq = flying.seq + max;
            let back = Flying { seq, payload: std::mem::replace(&mut flying.payload, front), ..*flying };
            rest = Some(seq);
            (flying.carried, flying.underway) = (flying.carried | 1 << slot, underway);
            let taken = (flying.seq, flying.payload.clone());
            self.flying.insert(at + 1, back);
            return Some((taken, rest));
        }
        (flying.carried, flying.underway) = (flying.carried | 1 << slot, underway);
        Some(((flying.seq, flying.payload.clone()), rest))
    }

    /// Has everything that only the subflow in `slot` has carried sent on another subflow, too.
    pub(crate) fn reinject_from(&mut self, slot: usize) {
        let those = self.flying.iter().filter(|flying| flying.carried == 1 << slot);
        self.reinject.extend(those.map(|flying| flying.seq));
    }

    /// Cancels the reinjection of everything that only the subflow in `slot` has carried, because it arrives
    /// after all.
    pub(crate) fn keep_on(&mut self, slot: usize) {
        let flying = &self.flying;
        self.reinject.retain(|seq| {
            let at = flying.partition_point(|flying| flying.seq < *seq);
            flying.get(at).is_none_or(|flying| flying.carried != 1 << slot)
        });
    }

    /// Has the last piece that only the subflow in `slot` has carried sent on another subflow, too. Returns
    /// its number.
    pub(crate) fn reinject_last(&mut self, slot: usize) -> Option<u64> {
        let last = self.flying.iter().rev().find(|flying| flying.carried == 1 << slot)?;
        self.reinject.insert(last.seq);
        Some(last.seq)
    }

    /// Forgets the subflow in `slot`, which has ended, and reinjects what no other subflow has carried.
    pub(crate) fn forget_subflow(&mut self, slot: usize) {
        for flying in &mut self.flying {
            flying.carried &= !(1 << slot);
            flying.late &= !(1 << slot);
            if flying.carried == 0 {
                self.reinject.insert(flying.seq);
            } else if flying.underway.slot == slot {
                flying.underway.slot = flying.carried.trailing_zeros() as usize;
                // Where it ends among the bytes of that subflow is not known, so it counts as not delivered.
                flying.underway.end = u64::MAX;
            }
        }
    }

    /// Has the first piece that is not acknowledged sent again, on any subflow.
    pub(crate) fn reinject_first(&mut self) {
        if let Some(flying) = self.flying.front_mut() {
            flying.carried = 0;
            self.reinject.insert(flying.seq);
        }
    }

    /// Records that the peer expects number `ack` next. Returns whether this acknowledges new data.
    pub(crate) fn acked(&mut self, ack: u64) -> bool {
        let end = if let Fin::At(fin) = self.fin { fin + 1 } else { self.next };
        if ack <= self.una || ack > end {
            return false;
        }
        self.una = ack;
        while let Some(flying) = self.flying.front_mut() {
            if flying.end() > ack {
                if flying.seq < ack {
                    let was = self.reinject.remove(&flying.seq);
                    flying.payload.skip((ack - flying.seq) as usize);
                    flying.seq = ack;
                    if was {
                        self.reinject.insert(ack);
                    }
                }
                break;
            }
            self.reinject.remove(&flying.seq);
            self.flying.pop_front();
        }
        true
    }

    /// Records that the peer has room up to number `end`. A smaller `end` does not shrink the window.
    pub(crate) fn set_window_end(&mut self, end: u64) {
        self.window_end = self.window_end.max(end);
    }

    /// Returns the number of the DATA_FIN once everything has been given to subflows. Returns `None` before
    /// that, and after the DATA_FIN has been acknowledged.
    pub(crate) fn fin_to_send(&mut self) -> Option<u64> {
        if self.fin == Fin::Wanted && self.unsent_bytes == 0 {
            self.fin = Fin::At(self.next);
        }
        match self.fin {
            Fin::At(fin) if self.una <= fin => Some(fin),
            _ => None,
        }
    }

    /// Returns whether the program writes no more and everything has been given to subflows.
    pub(crate) fn is_all_sent(&self) -> bool {
        self.fin != Fin::Open && self.unsent_bytes == 0
    }

    /// Returns whether the DATA_FIN and everything before it has been acknowledged.
    pub(crate) fn is_finished(&self) -> bool {
        matches!(self.fin, Fin::At(fin) if self.una > fin)
    }
}
