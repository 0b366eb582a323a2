//! Measures a connection's rate, its time to the first byte, and its usual gaps.

use anabranch_algo::{Span, Time};

/// A measurement is folded into the rate when it covers this much time in which bodies arrive.
const MEASURE: Span = Span::from_millis(50);
/// Measurements that are older than this count for less than half.
const MEMORY: Span = Span::from_secs(1);
/// The shortest assumed duration of a body, because clocks are coarse.
const MEASURE_MIN: Span = Span::from_millis(1);
/// The shortest silence after which a connection counts as stalled.
pub const STALL_TIMEOUT_MIN: Span = Span::from_secs(1);
/// The shortest silence before the first byte after which a connection counts as stalled. It is longer
/// because name lookup, TCP and TLS come first.
pub const STALL_TIMEOUT_OPENING: Span = Span::from_secs(3);
/// The longest silence after which a connection counts as stalled, unless its server is known to need longer.
pub const STALL_TIMEOUT_MAX: Span = Span::from_secs(30);
/// A silence of this many times the usual gap counts as a stall.
const GAPS: u64 = 4;

/// The measurements of one connection; see the [module](self).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Throughput {
    /// The rate in bytes per second; `None` before the first measurement.
    rate: Option<u64>,
    bytes: u64,
    span: Span,
    /// When bytes of the current body last arrived.
    last: Option<Time>,
    /// The smoothed time from a request to its head over an established TCP connection. Zero before the first
    /// measurement.
    first_byte: Span,
    /// How long the server took to answer earlier requests of other connections.
    before: Span,
    /// The smoothed time from the end of a body to the head of a prefetched answer; `None` before the first
    /// measurement.
    between: Option<Span>,
    /// The last measurement by itself. While a connection gets faster, `rate` lags behind it.
    latest: u64,
    gap: Span,
}

impl Throughput {
    /// Creates the measurements of a connection to a server that took `delay` to answer earlier requests.
    /// `delay` is the expected time to a head until this connection has measured one.
    pub(super) fn after(delay: Span) -> Self {
        Self { before: delay, ..Self::default() }
    }

    /// Returns the rate in bytes per second while a body arrives, at least 1; `None` before the first
    /// measurement.
    pub(super) const fn rate(&self) -> Option<u64> {
        self.rate
    }

    /// Returns the rate in bytes per second at which the connection may go on: the larger of the smoothed
    /// rate and the last measurement. `None` before the first measurement.
    pub(super) fn pace(&self) -> Option<u64> {
        self.rate.map(|rate| rate.max(self.latest))
    }

    /// Returns the smoothed time from a request to its head; zero before the first measurement.
    pub(super) const fn first_byte(&self) -> Span {
        self.first_byte
    }

    /// Returns the smoothed time from the end of a body to the head of a prefetched answer. Zero before the
    /// first measurement.
    pub(super) fn between(&self) -> Span {
        self.between.unwrap_or(Span::ZERO)
    }

    /// Records that a head arrived, `after` its request. If the TCP connection is new (`cold`), connecting
    /// took about half of that time.
    pub(super) fn begin(&mut self, now: Time, after: Span, cold: bool) {
        self.learn_first_byte(if cold { after.over(2) } else { after });
        self.last = Some(now);
    }

    /// Records that the head of the rest of a range arrived, `after` its request. The silence before the head
    /// counts in the rate.
    pub(super) fn go_on(&mut self, after: Span) {
        self.learn_first_byte(after);
    }

    fn learn_first_byte(&mut self, after: Span) {
        let after = after.max(Span::from_nanos(1));
        self.first_byte = if self.first_byte == Span::ZERO {
            after
        } else {
            self.first_byte - self.first_byte.over(4) + after.over(4)
        };
    }

    /// Records that the head of a prefetched answer arrived. `after` is the time since the end of the answer
    /// before it, if that tells how the server handles early requests. It does not count for `first_byte`,
    /// which is for requests over an idle TCP connection.
    pub(super) fn resume(&mut self, now: Time, after: Option<Span>) {
        if let Some(after) = after {
            self.between = Some(self.between.map_or(after, |mean| mean - mean.over(4) + after.over(4)));
        }
        self.last = Some(now);
    }

    /// Records that bytes of a body arrived. The silence of a stall does not count as a usual gap.
    pub(super) fn add(&mut self, now: Time, bytes: u64, stalled: bool) {
        let gap = now.since(self.last.unwrap_or(now));
        self.last = Some(now);
        if !stalled {
            self.gap =
                if gap > self.gap { (self.gap + gap).over(2) } else { self.gap - (self.gap - gap).over(16) };
        }
        self.span = self.span + gap;
        self.bytes = self.bytes.saturating_add(bytes);
        if self.span >= MEASURE {
            self.fold();
        }
    }

    /// Records that a body has ended: the time until the next one does not count in the rate.
    pub(super) fn pause(&mut self) {
        self.last = None;
        if self.rate.is_none() && self.bytes > 0 {
            self.span = self.span.max(MEASURE_MIN);
            self.fold();
        }
    }

    fn fold(&mut self) {
        let measured = anabranch_algo::Rate::of(self.bytes, self.span).as_bytes().max(1);
        self.latest = measured;
        self.rate = Some(match self.rate {
            None => measured,
            Some(rate) => {
                // The longer the time that a measurement covers, the more it counts.
                let (new, all) =
                    (u128::from(self.span.as_nanos()), u128::from((self.span + MEMORY).as_nanos()));
                let mixed = (u128::from(measured) * new + u128::from(rate) * (all - new)) / all;
                u64::try_from(mixed).unwrap_or(u64::MAX).max(1)
            }
        });
        (self.bytes, self.span) = (0, Span::ZERO);
    }

    /// Returns how long the connection may be silent, before a head or in a body, until it counts as stalled.
    /// A connection that has to connect first (`cold`) is given more time.
    pub(super) fn stall_timeout(&self, in_body: bool, cold: bool) -> Span {
        let is_first = self.first_byte == Span::ZERO;
        let usual = match in_body {
            true => self.gap,
            false => if is_first { self.before } else { self.first_byte }.max(self.between()),
        };
        let least = if !in_body && (cold || is_first) { STALL_TIMEOUT_OPENING } else { STALL_TIMEOUT_MIN };
        // A server that is known to take longer is given more time.
        let most = STALL_TIMEOUT_MAX.max(if in_body { Span::ZERO } else { usual.times(2) });
        usual.times(GAPS).clamp(least, most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_flowing_bodies() {
        let mut throughput = Throughput::default();
        let mut now = Time::ZERO;
        for _ in 0..40 {
            now += Span::from_millis(500);
            throughput.begin(now, Span::from_millis(500), false);
            for _ in 0..10 {
                now += Span::from_millis(10);
                throughput.add(now, 100_000, false);
            }
            throughput.pause();
        }
        let rate = throughput.rate().expect("measured");
        assert!((9_900_000..=10_100_000).contains(&rate), "{rate}: pauses do not count");
        assert_eq!(throughput.stall_timeout(true, false), STALL_TIMEOUT_MIN);
        assert_eq!(
            throughput.stall_timeout(false, false),
            Span::from_secs(2),
            "four times what it takes to begin"
        );
    }

    #[test]
    fn what_was_asked_ahead_says_how_long_the_link_is_idle() {
        let mut throughput = Throughput::default();
        throughput.begin(Time::ZERO, Span::from_millis(800), true);
        assert_eq!(throughput.first_byte(), Span::from_millis(400), "half of it made the connection");
        throughput.resume(Time::ZERO, None);
        assert_eq!(throughput.between(), Span::ZERO);
        for _ in 0..100 {
            throughput.resume(Time::ZERO, Some(Span::ZERO));
        }
        assert_eq!((throughput.between(), throughput.first_byte()), (Span::ZERO, Span::from_millis(400)));
        assert_eq!(throughput.stall_timeout(false, false), Span::from_millis(1_600));
        for _ in 0..100 {
            throughput.resume(Time::ZERO, Some(Span::from_secs(2)));
        }
        assert!(throughput.between() >= Span::from_millis(1_999), "{:?}", throughput.between());
        assert!(
            throughput.stall_timeout(false, false) >= Span::from_millis(7_999),
            "it is slow to begin after all"
        );
    }

    #[test]
    fn a_body_at_once_has_a_rate() {
        let mut throughput = Throughput::default();
        throughput.begin(Time::ZERO, Span::ZERO, true);
        throughput.add(Time::ZERO, 1 << 20, false);
        throughput.pause();
        assert_eq!(throughput.rate(), Some((1 << 20) * 1_000));
    }
}
