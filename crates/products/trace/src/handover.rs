//! Finds which subflow took over from which, when and why.
//!
//! A subflow *leaves* when it is closed, reset or made a backup, when its address is removed, or when it is
//! silent while data is on its way. A leave is a handover if the subflow had carried data shortly before, and
//! another subflow carried data for longer than a margin after it.

use std::collections::VecDeque;

use serde::Serialize;

use crate::half::Half;
use crate::stream::{STALL_NS, Stream};
use crate::subflow::{Side, Subflow};

/// Another subflow must carry data for longer than this after a leave, ns. A shorter time is the end of a
/// connection, whose subflows end one after the other.
pub const MARGIN_NS: u64 = 200_000_000;
/// A subflow that carried no new data for this long before it left was not in use, ns.
const IN_USE_NS: u64 = 2_000_000_000;
/// A stall belongs to a leave if it begins at most this long before it, or `STALL_AFTER_NS` after it, ns.
const STALL_BEFORE_NS: u64 = 500_000_000;
const STALL_AFTER_NS: u64 = 2_000_000_000;
/// After MP_PRIO a subflow may still send queued data for this long, ns.
const PRIO_GRACE_NS: u64 = 1_000_000_000;
/// The time between two looks for silent subflows, ns.
const LOOK_NS: u64 = 50_000_000;
/// The longest silence that is waited for before a subflow has left, even if round trips are long, ns.
const SILENCE_MAX_NS: u64 = 5_000_000_000;
/// The most leaves of a connection that are remembered.
const LEAVES_MAX: usize = 256;
/// New data on one subflow within this time is remembered together, ns.
const SLOT_NS: u64 = 10_000_000;
/// The most such slots of a connection: a silence is noticed later than it begins.
const SLOTS_MAX: usize = 1_024;

/// The reason why a subflow left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Data was on its way and no segment came any more.
    Silence,
    /// The subflow's address was removed.
    RemoveAddr,
    /// The subflow became a backup.
    Prio,
    /// The subflow was closed.
    Fin,
    /// The subflow was reset.
    Reset,
}

/// A handover from one subflow to another.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Handover {
    /// The subflow that left.
    pub from: u16,
    /// The subflow that carried data next.
    pub to: u16,
    /// The reason why the subflow left.
    pub cause: Cause,
    /// When the subflow left, seconds since the connection began. A silent subflow left when it was last
    /// heard.
    pub at_s: f64,
    /// The time from the leave to the first data on another subflow, milliseconds.
    pub first_data_after_ms: f64,
    /// The longest time that the receiver's stream stood still around the leave, milliseconds; 0 below 200.
    pub stood_still_ms: f64,
    /// The bytes of new data on other subflows until this one came back or the connection ended.
    pub bytes_after: u64,
    /// When the subflow carried new data again, seconds since the connection began.
    pub returned_s: Option<f64>,
}

#[derive(Debug)]
struct Leave {
    subflow: u16,
    cause: Cause,
    at_ns: u64,
    /// Whether the subflow had carried new data shortly before, by direction.
    was_used: [bool; 2],
    /// The times of the first and the last new data on other subflows, and the first subflow that carried it.
    taken: Option<(u64, u64, u16)>,
    bytes: u64,
    returned_ns: Option<u64>,
}

/// New data that a subflow carried within [`SLOT_NS`].
#[derive(Clone, Copy, Debug)]
struct Slot {
    at_ns: u64,
    subflow: u16,
    sender: Side,
    bytes: u64,
}

/// The leaves of a connection.
#[derive(Debug, Default)]
pub(crate) struct Handovers {
    leaves: Vec<Leave>,
    /// The latest new data of all subflows, oldest first.
    latest: VecDeque<Slot>,
    next_look_ns: u64,
    /// The number of leaves after which the subflow has not returned.
    open: usize,
}

impl Handovers {
    /// Records that `subflow` leaves at `at_ns`. Only the first cause counts until it returns.
    pub(crate) fn leave(&mut self, subflow: &Subflow, cause: Cause, at_ns: u64) {
        if self.has_left(subflow.number) || self.leaves.len() == LEAVES_MAX {
            return;
        }
        let recent = |half: &Half| {
            let last = half.times.new_data.filter(|_| half.counts.unique_bytes > 0);
            last.is_some_and(|last| at_ns.saturating_sub(last) <= IN_USE_NS)
        };
        let was_used = [recent(&subflow.halves[0]), recent(&subflow.halves[1])];
        let (mut taken, mut bytes) = (None, 0);
        // Others may have gone on since: a silence is noticed late.
        for slot in self.latest.iter().filter(|slot| slot.at_ns > at_ns && was_used[slot.sender.index()]) {
            if slot.subflow != subflow.number && !self.has_left(slot.subflow) {
                let (first, _, to) = taken.unwrap_or((slot.at_ns, 0, slot.subflow));
                taken = Some((first, slot.at_ns, to));
                bytes += slot.bytes;
            }
        }
        let number = subflow.number;
        self.leaves.push(Leave { subflow: number, cause, at_ns, was_used, taken, bytes, returned_ns: None });
        self.open += 1;
    }

    /// Whether a subflow has left and not returned.
    fn has_left(&self, subflow: u16) -> bool {
        self.leaves.iter().any(|leave| leave.subflow == subflow && leave.returned_ns.is_none())
    }

    /// Remembers new data for leaves that are noticed later.
    fn remember(&mut self, now: u64, subflow: u16, sender: Side, bytes: u64) {
        let mut latest =
            self.latest.iter_mut().rev().take_while(|slot| now.saturating_sub(slot.at_ns) < SLOT_NS);
        if let Some(slot) = latest.find(|slot| slot.subflow == subflow && slot.sender == sender) {
            slot.bytes += bytes;
            return;
        }
        if self.latest.len() == SLOTS_MAX {
            self.latest.pop_front();
        }
        self.latest.push_back(Slot { at_ns: now, subflow, sender, bytes });
    }

    /// Records that `subflow` carries data that is new to it; both its ends were last heard at `alive_ns`.
    pub(crate) fn data(&mut self, now: u64, (subflow, alive_ns): (u16, u64), sender: Side, bytes: u64) {
        self.remember(now, subflow, sender, bytes);
        if self.open == 0 {
            return;
        }
        let has_left = self.has_left(subflow);
        for leave in self.leaves.iter_mut().filter(|leave| leave.returned_ns.is_none()) {
            if leave.subflow != subflow {
                // Data on another subflow that has left, too, takes nothing over.
                if leave.was_used[sender.index()] && !has_left {
                    let (first, _, to) = leave.taken.unwrap_or((now, now, subflow));
                    leave.taken = Some((first, now, to));
                    leave.bytes += bytes;
                }
                continue;
            }
            // Data that is sent into silence is no return until the other end is heard again.
            let is_back = match leave.cause {
                Cause::Silence => alive_ns > leave.at_ns,
                Cause::Prio => now > leave.at_ns + PRIO_GRACE_NS,
                Cause::RemoveAddr | Cause::Fin | Cause::Reset => false,
            };
            if is_back {
                leave.returned_ns = Some(now);
                self.open -= 1;
            }
        }
    }

    /// Looks for subflows that are silent while data is on its way.
    pub(crate) fn look(&mut self, now: u64, subflows: &[Subflow], streams: &[Stream; 2]) {
        if now < self.next_look_ns || subflows.len() < 2 {
            return;
        }
        self.next_look_ns = now + LOOK_NS;
        for subflow in subflows {
            let alive = subflow.alive_ns();
            let silence = now.saturating_sub(alive);
            if silence < STALL_NS || subflow.halves.iter().any(Half::is_closed) || !subflow.is_established() {
                continue;
            }
            let is_overdue = |side: Side| {
                let half = &subflow.halves[side.index()];
                let rtt_ns = half.round_trips.us.max().max(subflow.handshake_rtt_us().unwrap_or(0)) * 1000;
                let patience = (2 * rtt_ns).clamp(STALL_NS, SILENCE_MAX_NS);
                let was_used = half.counts.unique_bytes > 0
                    && half.times.new_data.is_some_and(|last| alive.saturating_sub(last) <= IN_USE_NS);
                // At the sender's tap, the data that was sent is not acknowledged. At the receiver's tap, the
                // stream waits for missing data, from the time at which the bytes before it had arrived.
                let stream = &streams[side.index()];
                let stands = stream.standing_ns(now);
                let is_of_it = stands <= silence + STALL_BEFORE_NS && silence <= stands + STALL_AFTER_NS;
                let waits = stands >= STALL_NS && is_of_it && stream.has_hole();
                // Data that was sent after a pause has been on its way since then, not since the last answer.
                let unanswered =
                    now.saturating_sub(half.times.waiting.map_or(alive, |since| since.max(alive)));
                let is_lost = half.outstanding_bytes() > 0 && unanswered >= patience;
                was_used && silence >= patience && (is_lost || waits)
            };
            let others = subflows.iter().filter(|other| other.number != subflow.number);
            let is_alone = others.map(Subflow::alive_ns).all(|other| other <= alive);
            if !is_alone && Side::BOTH.into_iter().any(is_overdue) {
                self.leave(subflow, Cause::Silence, alive);
            }
        }
    }

    /// Returns the handovers, with times relative to `start_ns`.
    pub(crate) fn report(&self, start_ns: u64, streams: &[Stream; 2]) -> Vec<Handover> {
        let seconds = |ns: u64| ns.saturating_sub(start_ns) as f64 / 1e9;
        let qualified = self.leaves.iter().filter_map(|leave| {
            let (first, last, to) = leave.taken?;
            let goes_on = leave.cause == Cause::Prio
                && leave.returned_ns.is_some_and(|returned| returned <= leave.at_ns + 2 * PRIO_GRACE_NS);
            if goes_on || last.saturating_sub(leave.at_ns) < MARGIN_NS {
                return None;
            }
            let around = leave.at_ns.saturating_sub(STALL_BEFORE_NS)..leave.at_ns + STALL_AFTER_NS;
            let stalls = streams.iter().zip(leave.was_used).filter(|(_, was_used)| *was_used);
            let stalls = stalls.flat_map(|(stream, _)| &stream.stalls);
            let stood_still_ns = stalls
                .filter(|stall| around.contains(&stall.begin_ns))
                .map(|stall| stall.duration_ns)
                .max()
                .unwrap_or(0);
            Some(Handover {
                from: leave.subflow,
                to,
                cause: leave.cause,
                at_s: seconds(leave.at_ns),
                first_data_after_ms: first.saturating_sub(leave.at_ns) as f64 / 1e6,
                stood_still_ms: stood_still_ns as f64 / 1e6,
                bytes_after: leave.bytes,
                returned_s: leave.returned_ns.map(seconds),
            })
        });
        qualified.collect()
    }
}
