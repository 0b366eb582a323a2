//! Watches whether the other side answers, and measures the round-trip time.

use anabranch_algo::rtt::RttEstimator;
use anabranch_algo::{Span, Time};

/// The time without a word after which the other side is pinged, if something was sent.
const PROBE_AFTER: Span = Span::from_millis(500);
/// The time between two measurements of the round trip while data arrives. Windows grow by it.
const SAMPLE_EVERY: Span = Span::from_millis(100);
/// The time whose longest round trip counts for the growth of windows.
const LONGEST_FOR: Span = Span::from_secs(1);

/// Sends pings, one at a time, and takes their answers.
#[derive(Debug)]
pub(super) struct Liveness {
    keepalive: Span,
    dead_after: Span,
    rtt: RttEstimator,
    /// The longest recent round trip, and when it was measured.
    longest: (Span, Time),
    /// The number and time of the ping that has no answer yet.
    ping: Option<(u64, Time)>,
    pings: u64,
    /// Since when something that this end sent has no answer.
    unanswered_since: Option<Time>,
    heard: Time,
    sampled: Time,
    /// Whether data arrived since the last measurement.
    is_busy: bool,
    /// Whether a measurement is wanted now.
    is_wanted: bool,
}

impl Liveness {
    pub(super) fn new(now: Time, keepalive: Span, dead_after: Span) -> Self {
        let rtt = RttEstimator::new();
        let (ping, unanswered_since) = (None, None);
        let longest = (Span::ZERO, now);
        Self {
            keepalive,
            dead_after,
            rtt,
            longest,
            ping,
            pings: 0,
            unanswered_since,
            heard: now,
            sampled: now,
            is_busy: false,
            is_wanted: false,
        }
    }

    /// Returns the smoothed round-trip time, if it has been measured.
    pub(super) fn rtt(&self) -> Option<Span> {
        self.rtt.has_sample().then(|| self.rtt.srtt())
    }

    /// Returns the shortest round trip of the last minute or two, if any was measured.
    pub(super) fn shortest_rtt(&self) -> Option<Span> {
        self.rtt.has_sample().then(|| self.rtt.min())
    }

    /// Wants a measurement now.
    pub(super) const fn measure(&mut self) {
        self.is_wanted = true;
    }

    /// Returns the longest recent round trip. Bytes are delivered in order over all paths, so a window is
    /// limited by the longest path, while most pings take the shortest.
    pub(super) fn longest_rtt(&self) -> Option<Span> {
        self.rtt.has_sample().then_some(self.longest.0)
    }

    /// Returns how long something that this end sent has waited for any answer.
    pub(super) fn unanswered(&self, now: Time) -> Span {
        self.unanswered_since.map_or(Span::ZERO, |since| now.since(since))
    }

    /// Notes that something was sent that gets an answer, or credit in return.
    pub(super) fn note_sent(&mut self, now: Time) {
        self.unanswered_since.get_or_insert(now);
    }

    /// Notes that bytes arrived.
    pub(super) fn note_heard(&mut self, now: Time) {
        self.heard = now;
        // It is unknown what these bytes answer. An unanswered ping keeps the wait open until its own answer.
        self.unanswered_since = self.ping.map(|_| now);
    }

    pub(super) const fn note_data(&mut self) {
        self.is_busy = true;
    }

    pub(super) fn on_pong(&mut self, now: Time, bytes: [u8; 8]) {
        if let Some((number, sent)) = self.ping
            && number.to_be_bytes() == bytes
        {
            let took = now.since(sent);
            self.rtt.sample(now, took);
            // A time that includes an outage is no round trip, so it is limited.
            let took = took.min(LONGEST_FOR);
            if took >= self.longest.0 || now.since(self.longest.1) >= LONGEST_FOR {
                self.longest = (took, now);
            }
            (self.ping, self.unanswered_since, self.sampled, self.is_busy) = (None, None, now, false);
        }
    }

    /// Returns when the next ping is due.
    pub(super) fn ping_at(&self) -> Time {
        if self.ping.is_some() {
            return Time::NEVER;
        }
        if self.is_wanted || !self.rtt.has_sample() {
            return Time::ZERO;
        }
        let probe = self.unanswered_since.map_or(Time::NEVER, |since| since + PROBE_AFTER);
        let sample = if self.is_busy { self.sampled + SAMPLE_EVERY } else { Time::NEVER };
        probe.min(sample).min(self.heard + self.keepalive)
    }

    /// Returns the bytes of the ping to send now, if one is due.
    pub(super) fn ping(&mut self, now: Time) -> Option<[u8; 8]> {
        if now < self.ping_at() {
            return None;
        }
        self.pings += 1;
        self.is_wanted = false;
        self.ping = Some((self.pings, now));
        self.note_sent(now);
        Some(self.pings.to_be_bytes())
    }

    /// Returns when the other side counts as dead.
    pub(super) fn dead_at(&self) -> Time {
        self.unanswered_since.map_or(Time::NEVER, |since| since + self.dead_after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    fn measured() -> Liveness {
        let mut liveness = Liveness::new(at(0), Span::from_secs(25), Span::from_secs(60));
        let first = liveness.ping(at(0)).unwrap();
        assert_eq!(liveness.ping(at(5)), None, "one at a time");
        liveness.note_heard(at(30));
        liveness.on_pong(at(30), first);
        assert_eq!(liveness.rtt(), Some(Span::from_millis(30)));
        liveness
    }

    #[test]
    fn silence_after_something_was_sent_is_asked_about_and_at_last_believed() {
        let mut liveness = measured();
        assert_eq!(liveness.ping_at(), at(25_030));
        assert_eq!(liveness.dead_at(), Time::NEVER);
        liveness.note_sent(at(1_000));
        liveness.note_sent(at(1_400));
        assert_eq!(liveness.ping_at(), at(1_500));
        assert!(liveness.ping(at(1_500)).is_some());
        assert_eq!(liveness.unanswered(at(3_000)), Span::from_secs(2));
        assert_eq!(liveness.dead_at(), at(61_000));
        // Any bytes show that the other side is alive.
        liveness.note_heard(at(40_000));
        assert_eq!(liveness.dead_at(), at(100_000));
    }

    #[test]
    fn the_round_trip_is_measured_while_data_comes_and_a_forged_answer_is_none() {
        let mut liveness = measured();
        liveness.note_data();
        assert_eq!(liveness.ping_at(), at(130));
        let ping = liveness.ping(at(130)).unwrap();
        liveness.on_pong(at(140), *b"whatever");
        assert_eq!(liveness.ping_at(), Time::NEVER);
        liveness.on_pong(at(160), ping);
        assert_eq!(liveness.rtt(), Some(Span::from_millis(30)));
    }

    #[test]
    fn the_longest_round_trip_of_late_counts_for_windows() {
        let mut liveness = measured();
        let mut sample = |sent: u64, took: u64| {
            liveness.note_data();
            let ping = liveness.ping(at(sent)).expect("it is due");
            liveness.note_heard(at(sent + took));
            liveness.on_pong(at(sent + took), ping);
            liveness.longest_rtt().expect("measured").as_millis()
        };
        assert_eq!([sample(200, 90), sample(400, 10), sample(1_200, 20)], [90, 90, 90]);
        assert_eq!(sample(1_400, 20), 20, "that was long ago");
        assert_eq!(sample(2_000, 5_000), 1_000, "an outage");
    }
}
