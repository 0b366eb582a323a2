//! Several connections that may share a bottleneck take together about what one would.
//!
//! A TCP connection has its own window, which its sender moves; what a receiver owns is the window that it
//! advertises, and that bounds the sender's. So each way has a controller of [`algo::control`], coupled
//! with those of its group and fed with what the kernel counts at our end: bytes that arrived are packets
//! acknowledged; packets that arrived out of order tell of a loss, and all within a round trip are one.
//! Its window is what the connection may advertise.
//!
//! **What this can promise.** Where our window is the smaller one, the connections of a group take what the
//! coupled controller would, and back off as it does. **What it cannot.** It only takes away: a sender with
//! a smaller window (its own losses, another algorithm, a limit of the server) is not made faster. What has
//! been advertised is not taken back, so a smaller window holds after a round trip. A reordered packet
//! counts as a loss, which errs to the modest side; a loss at the very end of a flight, and one of which
//! only the sender knows, go unnoticed. Windows below [`SEGMENTS_MIN`] segments are not given, so very many
//! connections over a very thin link still take more than one would. The kernel's own limits (memory,
//! autotuning) may hold a connection below what is given here.

use algo::control::{Ack, Algorithm, Cause, Control as _, Group, Loss, Member};
use algo::rtt::Rtt;
use algo::{Span, Time};

/// Segments a window has at least: with fewer, a lost one is not followed by the three duplicate
/// acknowledgements that make a sender repeat it at once (RFC 5681 section 3.2), and each loss costs a
/// timeout.
pub const SEGMENTS_MIN: u64 = 4;
/// The window before the first loss, at least: what TCP advertises without window scaling.
pub const WINDOW_INITIAL_BYTES: u64 = 64 << 10;
/// The window of a connection that is coupled to nobody: TCP's largest (RFC 7323 section 2.3), no bound.
pub const WINDOW_LIFTED_BYTES: u64 = 1 << 30;
/// A window is given anew when it has moved by this part of itself.
const STEP: u64 = 16;
/// The most round trips in which what is disordered is told to be of one loss.
const RECOVERY_ROUNDS_MAX: u64 = 4;
/// What segments are taken to be between.
const MSS_BYTES: (u32, u32) = (256, 65_535);

/// What the kernel counts on a way's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The latest round-trip time that it knows; zero if none.
    pub rtt: Span,
    /// Bytes of the largest segment it receives.
    pub mss: u32,
    /// Bytes that arrived in order on this connection so far.
    pub received_bytes: u64,
    /// Packets that arrived out of order on this connection so far.
    pub disordered: u32,
}

/// One way's part; see the [module](self).
#[derive(Clone, Debug)]
pub(super) struct Coupling {
    control: Algorithm,
    rtt: Rtt,
    cwnd: u32,
    mss: u32,
    received: u64,
    disordered: u32,
    /// Bytes that did not make a whole packet yet.
    rest: u64,
    round: u32,
    round_from: Time,
    round_bytes: u64,
    /// Bytes of the last whole round trip.
    flight: u64,
    recovery_from: Time,
    recovery_end: Time,
    /// The window that was given last.
    given: Option<u64>,
}

impl Coupling {
    pub(super) fn new(control: Algorithm) -> Self {
        Self {
            cwnd: control.member(Span::ZERO).cwnd.floor().max(1),
            control,
            rtt: Rtt::new(),
            mss: 1_448,
            received: 0,
            disordered: 0,
            rest: 0,
            round: 0,
            round_from: Time::ZERO,
            round_bytes: 0,
            flight: 0,
            recovery_from: Time::ZERO,
            recovery_end: Time::ZERO,
            given: None,
        }
    }

    /// Smoothed round-trip time; zero before the first sample.
    pub(super) const fn srtt(&self) -> Span {
        self.rtt.srtt()
    }
    /// The controller's window in packets.
    pub(super) const fn cwnd(&self) -> u32 {
        self.cwnd
    }
    /// The window that the connection may advertise; none if it was never bounded.
    pub(super) const fn given(&self) -> Option<u64> {
        self.given
    }

    /// What it publishes for its siblings; without weight unless it `counts`.
    pub(super) fn member(&self, counts: bool) -> Member {
        self.control.member(if counts { self.rtt.srtt() } else { Span::ZERO })
    }

    /// Takes a sample; first of all what it needs to be a member of its group.
    pub(super) fn measured(&mut self, now: Time, sample: &Sample) {
        if sample.rtt > Span::ZERO {
            self.rtt.sample(now, sample.rtt);
        }
        self.mss = sample.mss.clamp(MSS_BYTES.0, MSS_BYTES.1);
        if sample.received_bytes < self.received || sample.disordered < self.disordered {
            // Another connection: it counts from zero.
            (self.received, self.disordered) = (0, 0);
        }
    }

    /// Feeds the controller with what came since the last sample.
    pub(super) fn feed(&mut self, now: Time, sample: &Sample, group: &Group<'_>) {
        if !self.rtt.has_sample() {
            (self.received, self.disordered) = (sample.received_bytes, sample.disordered);
            return;
        }
        let new = sample.received_bytes.saturating_sub(self.received);
        self.received = sample.received_bytes;
        self.rest = self.rest.saturating_add(new);
        let acked = u32::try_from(self.rest / u64::from(self.mss)).unwrap_or(u32::MAX);
        self.rest %= u64::from(self.mss);
        self.count_round(now, new);
        let srtt = self.rtt.srtt();
        if std::mem::replace(&mut self.disordered, sample.disordered) < sample.disordered {
            if now >= self.recovery_end {
                self.recovery_from = now;
                self.recovery_end = now + srtt + self.rtt.rttvar().max(srtt.over(4));
                let loss = Loss { now, cause: Cause::Loss, srtt };
                self.cwnd = self.control.on_congestion(&loss, group).cwnd.max(1);
            }
            // What follows a hole arrives disordered until it is filled: a round trip, more where many
            // packets were lost.
            let longest = self.recovery_from + srtt.times(RECOVERY_ROUNDS_MAX);
            self.recovery_end = self.recovery_end.max((now + srtt.over(2)).min(longest));
        }
        if acked > 0 {
            let ack = Ack {
                now,
                acked,
                round: self.round,
                srtt,
                rtt: self.rtt.latest(),
                min_rtt: self.rtt.min(),
                limited: self.is_limit(),
                recovering: now < self.recovery_end,
            };
            self.cwnd = self.control.on_ack(&ack, group).cwnd.max(1);
        }
    }

    /// Bytes a round trip; samples may be further apart than that.
    fn count_round(&mut self, now: Time, bytes: u64) {
        self.round_bytes = self.round_bytes.saturating_add(bytes);
        let (elapsed, srtt) = (now.since(self.round_from), self.rtt.srtt());
        if elapsed >= srtt {
            self.flight = algo::Rate::of(self.round_bytes, elapsed).bytes_in(srtt);
            (self.round_from, self.round_bytes) = (now, 0);
            self.round = self.round.wrapping_add(1);
        }
    }

    /// Whether the window is what bounds the sender. What is in flight is that of the last round trip, in
    /// which the window was smaller: by half in slow start.
    fn is_limit(&self) -> bool {
        let window = u64::from(self.cwnd) * u64::from(self.mss);
        let slow_start = self.control.member(Span::ZERO).slow_start;
        self.flight.max(self.round_bytes) >= if slow_start { window / 3 } else { window / 4 * 3 }
    }

    /// The window to give now, if it has moved enough.
    pub(super) fn give(&mut self, alone: bool) -> Option<u64> {
        let window = if alone {
            self.given?;
            WINDOW_LIFTED_BYTES
        } else {
            let virgin = self.recovery_end == Time::ZERO;
            let least = if virgin { WINDOW_INITIAL_BYTES } else { SEGMENTS_MIN * u64::from(self.mss) };
            (u64::from(self.cwnd) * u64::from(self.mss)).clamp(least, WINDOW_LIFTED_BYTES)
        };
        if self.given.is_some_and(|given| given.abs_diff(window) < (given / STEP).max(1)) {
            return None;
        }
        self.given = Some(window);
        Some(window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn coupling() -> Coupling {
        Coupling::new(Algorithm::by_name("nmcc").expect("it is there"))
    }

    /// What `ways` connections of a group get of a link of `link` packets a round trip which lets a window
    /// in flight through, but for one loss when all together send more than it takes.
    fn rounds(ways: usize, link: u64, rounds: u64) -> u64 {
        let mut group: Vec<_> = (0..ways).map(|_| (coupling(), 0_u64, 0_u32)).collect();
        let mut now = Time::ZERO;
        let mut sum = 0;
        for round in 0..rounds {
            now += Span::from_millis(50);
            let total: u64 = group.iter().map(|(way, ..)| u64::from(way.cwnd)).sum();
            let victim = (round as usize) % ways;
            for p in 0..ways {
                let (way, received, disordered) = &mut group[p];
                *received += u64::from(way.cwnd) * 1_448;
                *disordered += u32::from(total > link && (p == victim || ways == 1));
                let sample = Sample {
                    rtt: Span::from_millis(50),
                    mss: 1_448,
                    received_bytes: *received,
                    disordered: *disordered,
                };
                way.measured(now, &sample);
                let members: Vec<_> = group.iter().map(|(way, ..)| way.member(true)).collect();
                group[p].0.feed(now, &sample, &Group { members: &members, me: p });
            }
            if round > rounds / 2 {
                sum += total;
            }
        }
        sum / (rounds / 2)
    }

    #[test]
    fn windows_follow_losses_and_siblings() {
        let (one, three) = (rounds(1, 100, 4_000), rounds(3, 100, 4_000));
        assert!((70..=101).contains(&one), "{one}");
        assert!((60..=105).contains(&three), "three take together about what one does: {three}");
    }

    #[test]
    fn disorder_within_a_round_trip_is_one_loss() {
        let mut way = coupling();
        let mut sample = Sample { rtt: Span::from_millis(50), mss: 1_000, received_bytes: 0, disordered: 0 };
        let mut now = Time::ZERO;
        for _ in 0..5 {
            now += Span::from_millis(50);
            sample.received_bytes += u64::from(way.cwnd()) * 1_000;
            way.measured(now, &sample);
            way.feed(now, &sample, &Group { members: &[], me: 0 });
        }
        let before = way.cwnd();
        assert!(before >= 100, "slow start: {before}");
        for _ in 0..5 {
            now += Span::from_millis(10);
            sample.disordered += 3;
            way.measured(now, &sample);
            way.feed(now, &sample, &Group { members: &[], me: 0 });
        }
        assert!((before / 2 - 1..=before / 2).contains(&way.cwnd()), "halved once: {}", way.cwnd());
    }

    #[test]
    fn windows_are_given_when_they_have_moved() {
        let mut way = coupling();
        assert_eq!(way.give(true), None, "alone, there is nothing to lift");
        assert_eq!(way.give(false), Some(WINDOW_INITIAL_BYTES));
        assert_eq!(way.give(false), None);
        way.cwnd = 50;
        assert_eq!(way.give(false), Some(50 * 1_448));
        way.cwnd = 53;
        assert_eq!(way.give(false), None, "less than a sixteenth");
        (way.cwnd, way.recovery_end) = (1, Time::from_nanos(1));
        assert_eq!(way.give(false), Some(4 * 1_448), "four segments at least");
        assert_eq!(way.give(true), Some(WINDOW_LIFTED_BYTES));
        assert_eq!(way.give(true), None);
    }
}
