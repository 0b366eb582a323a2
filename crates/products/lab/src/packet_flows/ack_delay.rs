//! Delays a receiver's acknowledgements: until the second packet arrives, or until the first has waited for
//! a given time (RFC 9293 section 3.8.6.3, RFC 5681 section 4.2).
//!
//! A packet that comes out of order is acknowledged at once, and so is every packet in the round trip after
//! it. RFC 5681 requires this while there is a gap, and TCP fills a gap a round trip later. An
//! acknowledgement of two packets is an RTT sample of the earlier one, as with timestamps (RFC 7323 section
//! 4.3).

use anabranch_algo::{Span, Time};

use super::segment::Segment;

/// The acknowledgements of one path's receiver.
#[derive(Clone, Copy, Debug)]
pub(super) struct AckDelay {
    longest: Span,
    /// The packet that waits for its acknowledgement, and the latest time of it.
    waiting: Option<(Segment, Time)>,
    /// Number of the next packet in order.
    next: u64,
    /// Time until which every packet is acknowledged at once.
    prompt_until: Time,
    /// Time of the pending timer; [`Time::NEVER`] if there is none.
    timer: Time,
}

impl AckDelay {
    /// Creates the state for acknowledgements that wait at most for `longest`.
    pub(super) const fn new(longest: Span) -> Self {
        Self { longest, waiting: None, next: 0, prompt_until: Time::ZERO, timer: Time::NEVER }
    }

    /// Handles a packet on a path with this round-trip time; returns the acknowledgements to send now.
    pub(super) fn arrival(&mut self, now: Time, segment: Segment, rtt: Span) -> [Option<Segment>; 2] {
        if segment.id != self.next {
            self.prompt_until = now + rtt;
        }
        self.next = self.next.max(segment.id + 1);
        match self.waiting.take() {
            Some((first, _)) => match segment.ack_with(first) {
                Some(both) => [Some(both), None],
                None => [Some(first.ack()), Some(segment.ack())],
            },
            None if now < self.prompt_until => [Some(segment.ack()), None],
            None => {
                self.waiting = Some((segment, now + self.longest));
                [None, None]
            }
        }
    }

    /// Returns the time at which to call the [timer](Self::timer); `None` if no new call is needed.
    pub(super) fn arm(&mut self) -> Option<Time> {
        let (_, due) = self.waiting.filter(|_| self.timer == Time::NEVER)?;
        self.timer = due;
        Some(due)
    }

    /// Handles the timer; returns the acknowledgement to send now. The caller must then [arm](Self::arm) it
    /// again.
    pub(super) fn timer(&mut self, now: Time) -> Option<Segment> {
        self.timer = Time::NEVER;
        let (first, _) = self.waiting.take_if(|(_, due)| *due <= now)?;
        Some(first.ack())
    }
}

#[cfg(test)]
mod tests {
    use super::super::segment::SegmentKind;
    use super::*;

    const fn ms(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    fn data(id: u64) -> Segment {
        Segment::new(id, 3, 1_500, SegmentKind::Data)
    }

    /// Returns the numbers that each acknowledgement covers: the earlier packet, if any, and the later one.
    fn numbers(acks: impl IntoIterator<Item = Segment>) -> Vec<(Option<u64>, u64)> {
        acks.into_iter().map(|ack| (ack.earlier(), ack.id)).collect()
    }

    #[test]
    fn every_second_packet_or_after_a_while() {
        let mut delay = AckDelay::new(Span::from_millis(40));
        let mut arrival = |at, id| {
            let acks = delay.arrival(ms(at), data(id), Span::from_millis(50));
            (numbers(acks.into_iter().flatten()), delay.arm())
        };
        assert_eq!(arrival(0, 0), (vec![], Some(ms(40))));
        assert_eq!(arrival(1, 1), (vec![(Some(0), 1)], None));
        assert_eq!(arrival(2, 2), (vec![], None), "the timer is under way");
        assert_eq!(delay.timer(ms(40)).map(|ack| ack.id), None, "packet 2 may wait until 42 ms");
        assert_eq!(delay.arm(), Some(ms(42)));
        assert_eq!(numbers(delay.timer(ms(42))), [(None, 2)]);
        assert_eq!((delay.arm(), numbers(delay.timer(ms(50)))), (None, vec![]));
    }

    #[test]
    fn a_gap_is_told_at_once() {
        let mut delay = AckDelay::new(Span::from_millis(40));
        let mut arrival = |at, id| {
            let acks = delay.arrival(ms(at), data(id), Span::from_millis(50));
            numbers(acks.into_iter().flatten())
        };
        assert_eq!(arrival(0, 0), []);
        assert_eq!(arrival(1, 2), [(Some(0), 2)], "packet 1 is missing");
        assert_eq!(arrival(2, 3), [(None, 3)]);
        assert_eq!(arrival(50, 4), [(None, 4)]);
        assert_eq!(arrival(51, 5), [], "a round trip later");
        assert_eq!(arrival(52, 6), [(Some(5), 6)]);
        assert_eq!(arrival(53, 1), [(None, 1)], "an old one");
    }

    #[test]
    fn a_mark_on_either_is_told() {
        use anabranch_sim::Packet as _;
        let mut marked = data(7);
        marked.mark();
        for (first, second) in [(marked, data(8)), (data(6), marked)] {
            let both = second.ack_with(first).expect("near");
            assert!(both.is_marked() && both.kind() == SegmentKind::Ack && both.subflow() == 3);
            assert_eq!(both.earlier(), Some(first.id));
        }
        assert!(data(9).ack_with(data(8)).is_some_and(|both| !both.is_marked()));
        assert!(data(5_000).ack_with(data(1)).is_none(), "too far apart for one");
    }
}
