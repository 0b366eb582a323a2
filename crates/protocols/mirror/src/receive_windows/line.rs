//! What is measured of one connection.

use anabranch_algo::rtt::RttEstimator;
use anabranch_algo::{Rate, Span, TcpSample, Time};

use super::limits::{QUEUE_MIN, QUEUE_PART, SEGMENTS_MIN, SILENCE, TRIAL_PART, VANISHED};

/// A rate is measured over so much time at least.
const RATE_SPAN: Span = Span::from_millis(500);
/// What the length of a segment is taken to be between, bytes.
const MSS_BYTES: (u32, u32) = (256, 65_535);
const MSS_BYTES_UNKNOWN: u32 = 1_448;

/// See the [module](self).
#[derive(Clone, Debug)]
pub(super) struct Line {
    rtt: RttEstimator,
    mss: u32,
    /// Bytes that have come in order on this TCP connection, and segments in any order.
    received: u64,
    segments: u32,
    /// When something last came; none before the first.
    heard: Option<Time>,
    /// What has come since the last measurement.
    from: Time,
    bytes: u64,
    /// Bytes a second, smoothed; zero before the first measurement.
    rate: u64,
    /// When there last was a queue.
    queued: Option<Time>,
}

impl Default for Line {
    fn default() -> Self {
        Self {
            rtt: RttEstimator::new(),
            mss: MSS_BYTES_UNKNOWN,
            received: 0,
            segments: 0,
            heard: None,
            from: Time::ZERO,
            bytes: 0,
            rate: 0,
            queued: None,
        }
    }
}

impl Line {
    /// Takes what the kernel has counted.
    pub(super) fn sample(&mut self, now: Time, sample: &TcpSample) {
        self.mss = sample.mss.clamp(MSS_BYTES.0, MSS_BYTES.1);
        if sample.rtt > Span::ZERO {
            self.rtt.sample(now, sample.rtt);
            let least = QUEUE_MIN.max(self.rtt.min().over(QUEUE_PART));
            if sample.rtt >= self.rtt.min() + least {
                self.queued = Some(now);
            }
        }
        let new = self.arrived(sample);
        if !self.flows(now) {
            (self.from, self.bytes) = (now, 0);
        } else {
            self.bytes = self.bytes.saturating_add(new);
        }
        self.heard = Some(now);
        let elapsed = now.since(self.from);
        if elapsed >= RATE_SPAN {
            let measured = Rate::of(self.bytes, elapsed).as_bytes();
            self.rate = if self.rate == 0 { measured } else { self.rate / 2 + measured / 2 };
            (self.from, self.bytes) = (now, 0);
        }
    }

    /// Returns the bytes that have arrived since the sample before. Segments behind a lost one count when
    /// they arrive: in order, a link that was full all the time seems to pause for a round trip.
    fn arrived(&mut self, sample: &TcpSample) -> u64 {
        // Another TCP connection counts from zero.
        if sample.received_bytes < self.received || sample.segments < self.segments {
            (self.received, self.segments) = (0, 0);
        }
        let in_order = sample.received_bytes - self.received;
        let segments = sample.segments - self.segments;
        (self.received, self.segments) = (sample.received_bytes, sample.segments);
        if sample.segments == 0 { in_order } else { u64::from(segments) * self.mss_bytes() }
    }

    pub(super) const fn rtt(&self) -> &RttEstimator {
        &self.rtt
    }

    /// The newest round-trip time; none before the first.
    pub(super) fn latest(&self) -> Option<Span> {
        self.rtt.has_sample().then(|| self.rtt.latest())
    }

    pub(super) fn mss_bytes(&self) -> u64 {
        self.mss.into()
    }

    /// Whether something has come lately.
    pub(super) fn flows(&self, now: Time) -> bool {
        self.heard.is_some_and(|heard| now.since(heard) < SILENCE + self.rtt.srtt())
    }

    /// Bytes a second; before the first measurement what has come until now.
    pub(super) fn rate(&self, now: Time) -> u64 {
        let since = now.since(self.from);
        if self.rate == 0 && since > Span::ZERO { Rate::of(self.bytes, since).as_bytes() } else { self.rate }
    }

    /// Packets that come in a round trip, at least one.
    pub(super) fn packets(&self) -> u32 {
        let bytes = Rate::from_bytes(self.rate).bytes_in(self.rtt.srtt());
        u32::try_from(bytes / self.mss_bytes()).unwrap_or(u32::MAX).max(1)
    }

    /// The window with which the connection cannot keep a queue of its own, in bytes.
    pub(super) fn trial_window(&self, now: Time) -> u64 {
        let bytes = Rate::from_bytes(self.rate(now)).bytes_in(self.rtt.min());
        (bytes / TRIAL_PART.1 * TRIAL_PART.0).max(SEGMENTS_MIN * self.mss_bytes())
    }

    /// The time without a queue after which a bounded connection is taken to have a bottleneck of its own.
    pub(super) fn vanished_span(&self) -> Span {
        VANISHED + self.rtt.srtt().times(8)
    }

    /// The length of a trial: what was advertised before must be used up, and then the queue must stay away.
    pub(super) fn trial_span(&self) -> Span {
        self.vanished_span().times(5).over(2)
    }

    /// Whether there was a queue within the last `span`.
    pub(super) fn has_queue(&self, now: Time, span: Span) -> bool {
        self.queued.is_some_and(|queued| now.since(queued) < span)
    }
}
