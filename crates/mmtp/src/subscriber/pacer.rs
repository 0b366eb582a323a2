//! Pacing of requests, and so of what sources send: RFC 9002 section 7.7.
//!
//! Past a burst, no more is asked for than twice the window in a round trip. Arrivals make room for requests
//! at the rate of the path, and in slow start at twice that, so a window that is in use is never held up.
//! Held up is what would leave at once: a window opened by losses that are all declared at one time, or in
//! slow start the rest of a round. Then a queue far smaller than a bandwidth-delay product is not flooded
//! before the path is known.
//!
//! No smoother than that: behind a queue that drops what comes when it is full, the flow with the smallest
//! bursts would have less than its share.

use algo::{Span, Time};

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
/// Windows in a round trip.
const GAIN: u64 = 2;

/// The pacer of one path: a token bucket.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pacer {
    /// When all that was asked for would have left at the pacing rate.
    sent_by: Time,
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

    /// When so many packets may be asked for.
    pub(super) fn ready_at(self, packets: u32, rate: PacingRate) -> Time {
        let ahead = rate.burst() - rate.interval().times(u64::from(packets)).min(rate.burst());
        Time::from_nanos(self.sent_by.as_nanos().saturating_sub(ahead.as_nanos()))
    }

    /// So many packets have been asked for.
    pub(super) fn sent(&mut self, now: Time, packets: u32, rate: PacingRate) {
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
            pacer.sent(now, packets, RATE);
            asked += packets;
            now = pacer.ready_at(1, RATE);
        }
        assert!((100..=111).contains(&asked), "{asked}");
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
        pacer.sent(now, 400, rate);
        assert!(pacer.budget(now, rate) >= 400);
    }
}
