//! Pacing of requests, and so of what sources send: RFC 9002 section 7.7.
//!
//! Past a burst, no more is asked for than twice the window in a round trip. Arrivals make room for requests
//! at the rate of the path, and in slow start at twice that, so a window that is in use is never held up.
//! Held up is what would leave at once: a window opened by losses that are all declared at one time, or in
//! slow start the rest of a round. Then a queue far smaller than a bandwidth-delay product is not flooded
//! before the path is known.
//!
//! A request is also *held* for a random time, up to a twentieth of the time that a packet of the path has.
//! Without, packets come to a full queue always at the same time after it has sent one, and that can be just
//! before it has room: then a flow loses far more than the others. It is a phase effect (S. Floyd and V.
//! Jacobson, On Traffic Phase Effects in Packet-Switched Gateways, Internetworking: Research and Experience
//! 3, 1992), and the remedy is theirs: a random time of the order of what the bottleneck takes for a packet.
//!
//! No smoother than that: behind a queue that drops what comes when it is full, the flow with the smallest
//! bursts would have less than its share.

use anabranch_algo::{Span, Time};

/// The least burst, packets: the initial window (RFC 9002 section 7.7).
const BURST_MIN: u64 = 10;
/// How long a burst may take: what Linux lets TCP send at once (`tcp_tso_autosize`); and timers are not
/// finer.
const BURST_TIME: Span = Span::from_millis(1);
/// Packets that a path waits for room for before it asks for them. At least as many as TCP sends at once,
/// whose receivers acknowledge every second packet (RFC 5681 section 4.2): behind a full queue that drops
/// what comes, the flow with the smaller bursts takes more.
const QUANTUM_MIN: u64 = 2;
/// And at most.
const QUANTUM_MAX: u64 = 48;
/// A request is held for this part of the time that a packet of the path has, at most. Real sockets bring a
/// jitter of their own: `docs/congestion-control.md` has what was measured with other parts.
const HOLD_PART: u64 = 20;
/// But not for less than the machines themselves vary by, and timers are worth.
const HOLD_MIN: Span = Span::from_micros(50);
/// Windows in a round trip.
const GAIN: u64 = 2;

/// The pacer of one path: a token bucket.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pacer {
    /// When all that was asked for would have left at the pacing rate.
    sent_by: Time,
    /// Since when there is room for the next request.
    room_since: Option<Time>,
    /// How long that is held, in parts of 2^32 of [`PacingRate::hold_max`].
    luck: u32,
}

/// What a path is paced by: its window in packets, and its smoothed RTT; zero before there is one.
#[derive(Clone, Copy, Debug)]
pub(super) struct PacingRate {
    pub(super) cwnd: u32,
    pub(super) srtt: Span,
}

impl PacingRate {
    /// How much room makes a request worth sending: with less, the path waits for more, so that both ends
    /// work in batches. A batch leaves the source back to back: it is what the path brings within
    /// [`BURST_TIME`] at most, but [`QUANTUM_MIN`] if the window allows. With an eighth of a window, at a
    /// round trip of 100 ms, mmTP had a fifth of what one TCP had beside it.
    pub(super) fn quantum(self) -> u32 {
        let cwnd = u64::from(self.cwnd);
        let burst = (cwnd * BURST_TIME.as_nanos()).checked_div(self.srtt.as_nanos()).unwrap_or(0);
        burst.min(cwnd / 8).clamp(QUANTUM_MIN.min(cwnd / 4).max(1), QUANTUM_MAX) as u32
    }

    /// The time that a packet has.
    const fn interval(self) -> Span {
        Span::from_nanos(self.srtt.as_nanos() / (GAIN * self.cwnd as u64))
    }

    /// The longest time that a request is held: see the [module](self).
    fn hold_max(self) -> Span {
        let longest = self.srtt.as_nanos().checked_div(u64::from(self.cwnd) * HOLD_PART).unwrap_or(0);
        if longest < HOLD_MIN.as_nanos() { Span::ZERO } else { Span::from_nanos(longest) }
    }

    /// The time that a burst has.
    fn burst(self) -> Span {
        self.interval().times(BURST_MIN).max(BURST_TIME)
    }
}

impl Pacer {
    /// Packets that may be asked for at `now`.
    pub(super) fn budget(self, now: Time, rate: PacingRate) -> u32 {
        let interval = rate.interval().as_nanos();
        let room = (now + rate.burst()).since(self.sent_by.max(now)).as_nanos();
        room.checked_div(interval).map_or(u32::MAX, |packets| u32::try_from(packets).unwrap_or(u32::MAX))
    }

    /// Whether there is room for a request at `now`.
    pub(super) fn note_room(&mut self, now: Time, is_there: bool) {
        self.room_since = if is_there { self.room_since.or(Some(now)) } else { None };
    }

    /// Until when a request that there is room for is held.
    pub(super) fn held_until(self, rate: PacingRate) -> Time {
        let held = (u128::from(rate.hold_max().as_nanos()) * u128::from(self.luck)) >> 32;
        self.room_since.map_or(Time::ZERO, |since| since + Span::from_nanos(held as u64))
    }

    /// When so many packets may be asked for.
    pub(super) fn ready_at(self, packets: u32, rate: PacingRate) -> Time {
        let ahead = rate.burst() - rate.interval().times(u64::from(packets)).min(rate.burst());
        Time::from_nanos(self.sent_by.as_nanos().saturating_sub(ahead.as_nanos()))
    }

    /// So many packets have been asked for. `luck`: a random number, for the next request.
    pub(super) fn sent(&mut self, now: Time, packets: u32, rate: PacingRate, luck: u32) {
        (self.room_since, self.luck) = (None, luck);

        self.sent_by = self.sent_by.max(now) + rate.interval().times(u64::from(packets));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: PacingRate = PacingRate { cwnd: 50, srtt: Span::from_millis(100) };

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
        let fast = PacingRate { cwnd: 1_000, srtt: Span::from_millis(100) };
        assert_eq!(pacer.held_until(fast), now, "machines vary by more");
    }

    #[test]
    fn no_round_trip_no_pacing() {
        let unknown = PacingRate { cwnd: 10, srtt: Span::ZERO };
        assert_eq!(Pacer::default().budget(Time::ZERO, unknown), u32::MAX);
    }

    #[test]
    fn a_short_round_trip_is_one_burst() {
        let rate = PacingRate { cwnd: 400, srtt: Span::from_micros(300) };
        let mut pacer = Pacer::default();
        let now = Time::from_nanos(1_000_000_000);
        pacer.sent(now, 400, rate, 0);
        assert!(pacer.budget(now, rate) >= 400);
    }
}
