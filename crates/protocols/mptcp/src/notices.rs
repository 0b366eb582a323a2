//! Repeats news of addresses and priorities until the peer must have heard them (RFC 8684 sections 3.3.8,
//! 3.4.1 and 3.4.2).
//!
//! ADD_ADDR goes out until it is echoed, at most five times. REMOVE_ADDR and MP_PRIO are never answered, and
//! change nothing when they come twice: each goes out three times.

use anabranch_algo::{Span, Time};

use crate::path::Signal;

/// The most times that an address is announced; any other notice is sent `REPETITIONS` times.
const ANNOUNCEMENTS_MAX: u32 = 5;
const REPETITIONS: u32 = 3;
/// The time between two transmissions of a notice.
const AGAIN_AFTER: Span = Span::from_secs(1);
/// The most notices that are kept; the oldest gives way.
const NOTICES_MAX: usize = 64;

/// An option that is sent several times.
#[derive(Clone, Copy, Debug)]
struct Notice {
    signal: Signal,
    /// The slot of the subflow that must carry the option, or `None` for any subflow.
    slot: Option<usize>,
    due: Time,
    /// How often the option is still to be sent.
    left: u32,
}

/// All notices of a connection that are still repeated.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notices {
    list: Vec<Notice>,
}

impl Notices {
    /// Tells the peer from `now` on. Earlier notices about the same address or subflow are dropped.
    pub(crate) fn add(&mut self, now: Time, signal: Signal, slot: Option<usize>) {
        self.list.retain(|old| !signal.replaces(old.signal) || slot != old.slot);
        if self.list.len() >= NOTICES_MAX {
            self.list.remove(0);
        }
        let left = if matches!(signal, Signal::Announce { .. }) { ANNOUNCEMENTS_MAX } else { REPETITIONS };
        self.list.push(Notice { signal, slot, due: now, left });
    }

    /// Stops announcing the address with this identifier, because the peer has echoed it.
    pub(crate) fn echoed(&mut self, id: u8) {
        self.list.retain(|old| !matches!(old.signal, Signal::Announce { id: of, .. } if of == id));
    }

    /// Drops the notices of a subflow that has ended.
    pub(crate) fn forget_slot(&mut self, slot: usize) {
        self.list.retain(|old| old.slot != Some(slot));
    }

    /// Drops all notices.
    pub(crate) fn clear(&mut self) {
        self.list.clear();
    }

    /// Returns when the next notice is due.
    pub(crate) fn next(&self) -> Time {
        self.list.iter().map(|notice| notice.due).min().unwrap_or(Time::NEVER)
    }

    /// Hands each notice that is due to `send`, which returns whether it could be sent.
    pub(crate) fn take_due(&mut self, now: Time, mut send: impl FnMut(Signal, Option<usize>) -> bool) {
        for notice in self.list.iter_mut().filter(|notice| notice.due <= now) {
            notice.due = now + AGAIN_AFTER;
            notice.left -= u32::from(send(notice.signal, notice.slot));
        }
        self.list.retain(|notice| notice.left > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_answered_is_repeated_for_a_while() {
        let mut notices = Notices::default();
        let announce = Signal::Announce { id: 3, address: "10.0.0.1:80".parse().unwrap() };
        notices.add(Time::ZERO, announce, None);
        notices.add(Time::ZERO, Signal::Prio { backup: true }, Some(1));
        let mut sent = Vec::new();
        for second in 0..9 {
            // Nothing can be sent in the first two seconds.
            notices.take_due(Time::ZERO + Span::from_secs(second), |signal, slot| {
                sent.extend((second > 1).then_some((signal, slot)));
                second > 1
            });
        }
        let count = |wanted| sent.iter().filter(|one| **one == wanted).count();
        assert_eq!((count((announce, None)), count((Signal::Prio { backup: true }, Some(1)))), (5, 3));
        assert_eq!(notices.next(), Time::NEVER);
    }

    #[test]
    fn what_is_over_is_not_repeated() {
        let mut notices = Notices::default();
        let address = "10.0.0.1:80".parse().unwrap();
        for signal in [Signal::Announce { id: 3, address }, Signal::Remove { id: 3 }] {
            notices.add(Time::ZERO, signal, None);
        }
        notices.add(Time::ZERO, Signal::Announce { id: 4, address }, None);
        notices.add(Time::ZERO, Signal::Prio { backup: true }, Some(1));
        notices.add(Time::ZERO, Signal::Prio { backup: false }, Some(1));
        notices.add(Time::ZERO, Signal::Prio { backup: true }, Some(2));
        notices.echoed(4);
        notices.forget_slot(2);
        let mut sent = Vec::new();
        notices.take_due(Time::ZERO, |signal, _| {
            sent.push(signal);
            true
        });
        assert_eq!(sent, [Signal::Remove { id: 3 }, Signal::Prio { backup: false }]);
    }
}
