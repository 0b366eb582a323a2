//! Paces requests, and thereby the packets that sources send (RFC 9002 section 7.7).
//!
//! Beyond a burst, a path asks for no more than twice the window in a round trip. Arrivals make room for
//! requests at the rate of the path, and in slow start at twice that, so pacing never delays a window that is
//! in use. It delays requests that would all leave at once. That happens after losses that are declared at
//! the same time have opened the window, and in slow start with the rest of a round. So a queue far smaller
//! than a bandwidth-delay product is not flooded before the path is known.
//!
//! A request is also *held* for a random time, up to a twentieth of the time that a packet of the path takes.
//! Without this, packets could always reach a full queue just before it has room. A flow then loses far more
//! than the others. This is a phase effect (S. Floyd and V. Jacobson, On Traffic Phase Effects in
//! Packet-Switched Gateways, Internetworking: Research and Experience 3, 1992). The remedy is theirs: a
//! random time about as long as the bottleneck takes for a packet.
//!
//! A controller with a pace of its own, as BBR, is obeyed instead: its requests leave at that pace, in bursts
//! of the packets of a millisecond, or of ten packets if that is more.
//!
//! Pacing is no smoother than that. Behind a queue that drops packets when it is full, the flow with the
//! smallest bursts would get less than its share.

use anabranch_algo::{Span, Time};

/// The least burst in packets: the initial window (RFC 9002 section 7.7).
const BURST_MIN: u64 = 10;
/// The time that a burst may take. Linux lets TCP send as much at once (`tcp_tso_autosize`), and timers are
/// not finer.
const BURST_TIME: Span = Span::from_millis(1);
/// The least room in packets that a path waits for before it asks. It is at least what TCP sends at once,
/// whose receivers acknowledge every second packet (RFC 5681 section 4.2). Behind a full queue that drops
/// packets, the flow with the smaller bursts takes more.
const QUANTUM_MIN: u64 = 2;
/// The most room in packets that a path waits for before it asks.
const QUANTUM_MAX: u64 = 48;
/// A request is held for at most one part in this number of the time that a packet of the path takes. Real
/// sockets bring a jitter of their own; `docs/congestion-control.md` has measurements with other parts.
const HOLD_PART: u64 = 20;
/// If the longest hold is shorter than this, requests are not held: machines vary by as much, and timers are
/// not finer.
const HOLD_MIN: Span = Span::from_micros(50);
/// The windows that may be asked for in one round trip.
const GAIN: u64 = 2;

/// The pacer of one path: a token bucket.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pacer {
    /// When the packets asked for so far would have been sent at the pacing rate.
    sent_by: Time,
    /// Since when there has been room for the next request; `None` if there is none.
    room_since: Option<Time>,
    /// How long the next request is held, in units of 2^-32 of [`PacingRate::hold_max`].
    luck: u32,
}

/// The input of pacing: a path's window in packets, its smoothed RTT, which is zero before there is a sample,
/// and the time for a packet that its controller asks for, if it has a pace of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct PacingRate {
    pub(super) cwnd: u32,
    pub(super) srtt: Span,
    pub(super) pace: Option<Span>,
}

impl PacingRate {
    /// Returns how many packets of room make a request worth sending. With less room the path waits, so that
    /// both ends work in batches. A batch leaves the source back to back. So it has at most what the path
    /// brings within [`BURST_TIME`], but [`QUANTUM_MIN`] if the window allows. With an eighth of a window, at
    /// a round trip of 100 ms, mmTP had a fifth of the rate of one TCP beside it.
    pub(super) fn quantum(self) -> u32 {
        let cwnd = u64::from(self.cwnd);
        let burst = match self.pace {
            Some(pace) => BURST_TIME.as_nanos().checked_div(pace.as_nanos()),
            None => (cwnd * BURST_TIME.as_nanos()).checked_div(self.srtt.as_nanos()),
        }
        .unwrap_or(0);
        burst.min(cwnd / 8).clamp(QUANTUM_MIN.min(cwnd / 4).max(1), QUANTUM_MAX) as u32
    }

    /// Returns the time per packet at the pacing rate.
    const fn interval(self) -> Span {
        match self.pace {
            Some(pace) => pace,
            None => Span::from_nanos(self.srtt.as_nanos() / (GAIN * self.cwnd as u64)),
        }
    }

    /// Returns the longest time that a request is held; see the [module](self).
    fn hold_max(self) -> Span {
        let longest = self.srtt.as_nanos().checked_div(u64::from(self.cwnd) * HOLD_PART).unwrap_or(0);
        if longest < HOLD_MIN.as_nanos() { Span::ZERO } else { Span::from_nanos(longest) }
    }

    /// Returns the time that a burst takes at the pacing rate.
    fn burst(self) -> Span {
        self.interval().times(BURST_MIN).max(BURST_TIME)
    }
}

impl Pacer {
    /// Returns how many packets may be asked for at `now`.
    pub(super) fn budget(self, now: Time, rate: PacingRate) -> u32 {
        let interval = rate.interval().as_nanos();
        let room = (now + rate.burst()).since(self.sent_by.max(now)).as_nanos();
        room.checked_div(interval).map_or(u32::MAX, |packets| u32::try_from(packets).unwrap_or(u32::MAX))
    }

    /// Records whether there is room for a request at `now`.
    pub(super) fn note_room(&mut self, now: Time, is_there: bool) {
        self.room_since = if is_there { self.room_since.or(Some(now)) } else { None };
    }

    /// Returns until when a request is held although there is room for it.
    pub(super) fn held_until(self, rate: PacingRate) -> Time {
        let held = (u128::from(rate.hold_max().as_nanos()) * u128::from(self.luck)) >> 32;
        self.room_since.map_or(Time::ZERO, |since| since + Span::from_nanos(held as u64))
    }

    /// Returns when `packets` packets may be asked for.
    pub(super) fn ready_at(self, packets: u32, rate: PacingRate) -> Time {
        let ahead = rate.burst() - rate.interval().times(u64::from(packets)).min(rate.burst());
        Time::from_nanos(self.sent_by.as_nanos().saturating_sub(ahead.as_nanos()))
    }

    /// Records that `packets` packets have been asked for. `luck` is a random number for the next request.
    pub(super) fn sent(&mut self, now: Time, packets: u32, rate: PacingRate, luck: u32) {
        (self.room_since, self.luck) = (None, luck);

        self.sent_by = self.sent_by.max(now) + rate.interval().times(u64::from(packets));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: PacingRate = PacingRate { cwnd: 50, srtt: Span::from_millis(100), pace: None };

    #[test]
    fn a_burst_then_twice_the_window_in_a_round_trip() {
        let (mut pacer, mut now, mut asked) = (Pacer::default(), Time::from_nanos(5_000_000_000), 0);
        let end = now + RATE.srtt;
        assert_eq!(pacer.budget(now, RATE), 10);
        while now < end {
            let packets = pacer.budget(now, RATE);
            assert!(packets > 0, "it wakes when there is something to ask for");
            pacer.sent(now, packets, RATE, 0);
            asked += packets;
            now = pacer.ready_at(1, RATE);
        }
        assert!((100..=111).contains(&asked), "{asked}");
    }

    #[test]
    fn what_there_is_room_for_is_held_for_a_random_part_of_a_packets_time() {
        let (mut pacer, now) = (Pacer::default(), Time::from_nanos(5_000_000_000));
        assert_eq!(pacer.held_until(RATE), Time::ZERO, "there is no room");
        for (luck, micros) in [(0, 0), (1 << 31, 50), (u32::MAX, 99)] {
            pacer.sent(now, 1, RATE, luck);
            pacer.note_room(now, true);
            pacer.note_room(now + Span::from_millis(9), true);
            let held = pacer.held_until(RATE).since(now).as_nanos() / 1_000;
            assert_eq!(held, micros, "from when there was room: {luck}");
        }
        let fast = PacingRate { cwnd: 1_000, srtt: Span::from_millis(100), pace: None };
        assert_eq!(pacer.held_until(fast), now, "machines vary by more");
    }

    #[test]
    fn the_pace_of_a_controller_is_obeyed() {
        let rate = PacingRate { pace: Some(Span::from_micros(250)), ..RATE };
        assert_eq!(rate.quantum(), 4, "what leaves in a millisecond");
        let (mut pacer, mut now, mut asked) = (Pacer::default(), Time::from_nanos(5_000_000_000), 0);
        let end = now + Span::from_millis(100);
        while now < end {
            let packets = pacer.budget(now, rate);
            pacer.sent(now, packets, rate, 0);
            asked += packets;
            now = pacer.ready_at(rate.quantum(), rate);
        }
        assert!((400..=414).contains(&asked), "{asked}");
    }

    #[test]
    fn no_round_trip_no_pacing() {
        let unknown = PacingRate { cwnd: 10, srtt: Span::ZERO, pace: None };
        assert_eq!(Pacer::default().budget(Time::ZERO, unknown), u32::MAX);
    }

    #[test]
    fn a_short_round_trip_is_one_burst() {
        let rate = PacingRate { cwnd: 400, srtt: Span::from_micros(300), pace: None };
        let mut pacer = Pacer::default();
        let now = Time::from_nanos(1_000_000_000);
        pacer.sent(now, 400, rate, 0);
        assert!(pacer.budget(now, rate) >= 400);
    }
}
