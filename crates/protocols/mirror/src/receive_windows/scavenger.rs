//! The window of a connection that yields to all others (`--background`).
//!
//! A receiver has only the window that it advertises, which bounds the sender's. So each connection has
//! LEDBAT++ ([`anabranch_algo::control`]), coupled with those of its group, as rLEDBAT does (RFC 9840). It is
//! fed with what the kernel counts at our end: bytes that arrived are packets acknowledged; packets that
//! arrived out of order tell of a loss.
//!
//! * **One loss is one.** What is lost stops what comes in order until it is filled, and all that comes until
//!   then is disordered: for a round trip or several. So a loss lasts, by bytes, until all that may have been
//!   on its way when it was seen has come (RFC 5681 section 3.2 has the same mark, at the sender).
//! * **What it leaves** is counted from what was on its way, if that was less than the window (RFC 5681
//!   equation 4): what arrived within a round trip lately, and a quarter.
//! * **Behind a hole** packets arrive that cannot be read. A sender that may have a window on its way beyond
//!   the hole would stop there, and send a window in one burst, into queues that lose part of it, once the
//!   hole is filled. So what has arrived behind it (packets less bytes in order) is added to what is
//!   advertised: what is on its way is bounded all the same.
//!
//! A reordered packet counts as a loss, which errs to the modest side; a loss at the very end of a flight,
//! and one of which only the sender knows, go unnoticed.

use anabranch_algo::control::{
    Ack, Algorithm, CongestionCause, CongestionEvent, Control as _, Group, SubflowStats,
};
use anabranch_algo::rtt::RttEstimator;
use anabranch_algo::{Span, TcpSample, Time};

use super::limits::{SEGMENTS_MIN, WINDOW_LIFTED_BYTES};
use super::line::Line;

/// A window is given anew when it has moved by this part of itself.
pub(super) const STEP: u64 = 16;
/// What arrived in a round trip is remembered as the most that did, less this part of it a round trip.
const PEAK_DECAY: u64 = 8;

/// What arrives in a round trip.
#[derive(Clone, Copy, Debug, Default)]
struct Rounds {
    /// The number of this round trip.
    number: u32,
    /// When it began.
    from: Time,
    /// Bytes in it so far.
    bytes: u64,
    /// Bytes of the last whole round trip.
    flight: u64,
    /// The most bytes of a round trip lately, in a round trip as it is now.
    peak: u64,
}

impl Rounds {
    /// Bytes arrived; samples may be further apart than a round trip.
    fn count(&mut self, now: Time, bytes: u64, rtt: &RttEstimator) {
        self.bytes = self.bytes.saturating_add(bytes);
        let (elapsed, srtt) = (now.since(self.from), rtt.srtt());
        if elapsed >= srtt {
            let rate = anabranch_algo::Rate::of(self.bytes, elapsed);
            self.flight = rate.bytes_in(srtt);
            let flight = rate.bytes_in(srtt.max(rtt.latest()));
            self.peak = flight.max(self.peak - self.peak / PEAK_DECAY);
            (self.from, self.bytes) = (now, 0);
            self.number = self.number.wrapping_add(1);
        }
    }

    /// The most bytes of a round trip lately, this one included.
    fn most(&self) -> u64 {
        self.peak.max(self.bytes)
    }
}

/// One connection's part; see the [module](self).
#[derive(Clone, Debug)]
pub(super) struct Scavenger {
    control: Algorithm,
    cwnd: u32,
    received: u64,
    out_of_order: u32,
    segments: u32,
    /// Bytes that did not make a whole packet yet.
    rest: u64,
    rounds: Rounds,
    /// What is lost before so many bytes have come in order belongs to the last loss.
    recover: u64,
    /// By how many bytes what arrived was more than what came in order when there was no hole: rounding, and
    /// what came twice.
    surplus: i64,
    /// Bytes that arrived behind a hole.
    behind_hole: u64,
}

impl Scavenger {
    pub(super) fn new(control: Algorithm) -> Self {
        Self {
            cwnd: control.stats(Span::ZERO).cwnd.floor().max(1),
            control,
            received: 0,
            out_of_order: 0,
            segments: 0,
            rest: 0,
            rounds: Rounds::default(),
            recover: 0,
            surplus: 0,
            behind_hole: 0,
        }
    }

    /// The controller's window in packets.
    pub(super) const fn cwnd(&self) -> u32 {
        self.cwnd
    }

    /// What it publishes for its siblings, with this smoothed round-trip time.
    pub(super) fn member(&self, srtt: Span) -> SubflowStats {
        self.control.stats(srtt)
    }

    /// The window that the connection may advertise, with segments of this length.
    pub(super) fn window_bytes(&self, mss: u64) -> u64 {
        let window = u64::from(self.cwnd) * mss + self.behind_hole;
        window.clamp(SEGMENTS_MIN * mss, WINDOW_LIFTED_BYTES)
    }

    /// Feeds the controller with what came since the last sample; `line` has it already.
    pub(super) fn on_sample(&mut self, now: Time, sample: &TcpSample, line: &Line, group: &Group<'_>) {
        if sample.received_bytes < self.received || sample.out_of_order < self.out_of_order {
            // Another TCP connection: it counts from zero.
            (self.received, self.out_of_order, self.segments) = (0, 0, 0);
            (self.recover, self.surplus, self.behind_hole) = (0, 0, 0);
        }
        let before = std::mem::replace(&mut self.received, sample.received_bytes);
        let seen = std::mem::replace(&mut self.out_of_order, sample.out_of_order);
        let segments = std::mem::replace(&mut self.segments, sample.segments);
        let (rtt, mss) = (line.rtt(), line.mss_bytes());
        if !rtt.has_sample() {
            return;
        }
        let new = self.received.saturating_sub(before);
        self.rest = self.rest.saturating_add(new);
        let acked = u32::try_from(self.rest / mss).unwrap_or(u32::MAX);
        self.rest %= mss;
        let arrived = u64::from(sample.segments.saturating_sub(segments)) * mss;
        self.rounds.count(now, if sample.segments > 0 { arrived } else { new }, rtt);
        let srtt = rtt.srtt();
        let out_of_order = seen < sample.out_of_order;
        // A sample that tells of bytes beyond the mark may tell of disorder before it.
        if out_of_order && before >= self.recover {
            let event = CongestionEvent { now, cause: CongestionCause::Loss, srtt };
            self.on_loss(&event, mss, group);
        }
        self.count_behind_hole(new > 0 && !out_of_order, mss);
        if acked > 0 {
            let ack = Ack {
                now,
                acked,
                round: self.rounds.number,
                srtt,
                rtt: rtt.latest(),
                min_rtt: rtt.min(),
                cwnd_limited: self.is_window_limited(mss),
                recovering: self.received < self.recover,
            };
            self.cwnd = self.control.on_ack(&ack, group).max(1);
        }
    }

    /// Something is lost.
    fn on_loss(&mut self, event: &CongestionEvent, mss: u64, group: &Group<'_>) {
        let peak = self.rounds.most();
        let most = self.window_bytes(mss).min(peak.saturating_mul(2));
        self.recover = self.received + most.max(SEGMENTS_MIN * mss);
        let flight = u32::try_from((peak + peak / 4) / mss).unwrap_or(u32::MAX).max(1);
        if flight < self.cwnd {
            self.control.set_window(flight, Some(flight));
        }
        self.cwnd = self.control.on_congestion(event, group).max(1);
    }

    /// Counts what arrived behind a hole; `smooth` if there is none.
    fn count_behind_hole(&mut self, smooth: bool, mss: u64) {
        let arrived = i64::from(self.segments).saturating_mul(mss as i64);
        let surplus = arrived.saturating_sub_unsigned(self.received);
        if smooth {
            self.surplus = surplus;
        }
        // No more than was on its way, however packets were counted.
        let most = self.recover.saturating_sub(self.received).saturating_mul(2);
        let behind_hole = u64::try_from(surplus.saturating_sub(self.surplus)).unwrap_or(0);
        self.behind_hole = if self.segments == 0 { 0 } else { behind_hole.min(most) };
    }

    /// Whether the window is what bounds the sender. What is in flight is that of the last round trip, in
    /// which the window was smaller: by half in slow start.
    fn is_window_limited(&self, mss: u64) -> bool {
        let window = u64::from(self.cwnd) * mss;
        let is_slow_start = self.control.stats(Span::ZERO).slow_start;
        self.rounds.flight.max(self.rounds.bytes) >= if is_slow_start { window / 3 } else { window / 4 * 3 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Span = Span::from_millis(50);
    const ALONE: Group<'static> = Group { members: &[], me: 0 };

    /// A scavenger in mid-life: a window of so many packets of 1,000 bytes, which arrive each 50 ms.
    struct Steady {
        scavenger: Scavenger,
        line: Line,
        sample: TcpSample,
        now: Time,
    }

    impl Steady {
        fn new(cwnd: u32) -> Self {
            let control = Algorithm::by_name("ledbat-pp").expect("it is there");
            let sample = TcpSample { rtt: RTT, mss: 1_000, ..TcpSample::default() };
            let scavenger = Scavenger::new(control);
            let mut new = Self { scavenger, line: Line::default(), sample, now: Time::ZERO };
            for _ in 0..3 {
                new.comes(50, u64::from(cwnd) * 1_000, cwnd, 0);
            }
            new.scavenger.control.set_window(cwnd, Some(cwnd));
            new.scavenger.cwnd = cwnd;
            new
        }

        /// After so many milliseconds so much has come in order, in so many segments, some out of order.
        fn comes(&mut self, ms: u64, bytes: u64, segments: u32, out_of_order: u32) {
            self.now += Span::from_millis(ms);
            self.sample.received_bytes += bytes;
            self.sample.segments += segments;
            self.sample.out_of_order += out_of_order;
            self.line.sample(self.now, &self.sample);
            self.scavenger.on_sample(self.now, &self.sample, &self.line, &ALONE);
        }
    }

    /// As traced of one lost packet: while the hole is there nothing can be read, and once it is filled the
    /// kernel has counted all that came behind it, more than a round trip later.
    #[test]
    fn a_hole_is_one_loss_at_both_of_its_ends() {
        let mut steady = Steady::new(100);
        for (ms, out_of_order) in [(50, 1), (75, 99), (5, 1)] {
            steady.comes(ms, 50_000, 100, out_of_order);
        }
        let halved = steady.scavenger.cwnd();
        assert!((49..=55).contains(&halved), "{halved}");
        // The next one counts.
        steady.comes(50, 150_000, 150, 0);
        let before = steady.scavenger.cwnd();
        steady.comes(50, 150_000, 150, 1);
        assert!(steady.scavenger.cwnd() < before, "{} of {before}", steady.scavenger.cwnd());
    }

    #[test]
    fn what_arrives_behind_a_hole_is_added_to_the_window() {
        let mut steady = Steady::new(100);
        let mut behind = |bytes: u64, segments: u32, out_of_order: u32| {
            steady.comes(10, bytes, segments, out_of_order);
            steady.scavenger.window_bytes(1_000) - u64::from(steady.scavenger.cwnd()) * 1_000
        };
        assert_eq!(behind(0, 20, 20), 20_000);
        assert_eq!(behind(0, 40, 40), 60_000);
        assert!(behind(0, 4_000_000, 1) <= 400_000, "bounded");
        assert_eq!(behind(4_000_060_000, 1, 0), 0, "it is filled");
    }

    #[test]
    fn a_window_is_cut_from_what_was_on_its_way() {
        let mut steady = Steady::new(100);
        steady.scavenger.control.set_window(1_000, Some(1_000));
        steady.scavenger.cwnd = 1_000;
        steady.comes(10, 0, 0, 1);
        // Half of 100 and a quarter.
        assert!((58..=65).contains(&steady.scavenger.cwnd()), "{}", steady.scavenger.cwnd());
    }
}
