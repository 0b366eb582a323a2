//! Implements CoDel, a queue discipline that watches how long packets wait and drops from the head of the
//! queue.
//!
//! Follows RFC 8289, section 5, step by step. ECN works as in Linux (`sch_codel`): a packet that can carry a
//! mark is marked instead of dropped.

use crate::packet::Packet;
use anabranch_algo::{Span, Time};
use std::collections::VecDeque;

/// Holds the state of CoDel for one queue.
#[derive(Clone, Debug)]
pub(crate) struct Codel {
    target: Span,
    interval: Span,
    ecn: bool,
    /// The size of the largest packet seen. CoDel does not drop while no more bytes than this wait behind the
    /// head.
    largest_bytes: u64,
    /// The time at which waiting times will have been above the target for an interval; `None` while they are
    /// below.
    first_above: Option<Time>,
    dropping: bool,
    drop_next: Time,
    count: u64,
    last_count: u64,
}

/// Holds a packet in a queue.
#[derive(Clone, Debug)]
pub(crate) struct Queued<P> {
    pub(crate) bytes: u32,
    /// The time at which it was queued.
    pub(crate) since: Time,
    pub(crate) packet: P,
}

impl Codel {
    pub(crate) const fn new(target: Span, interval: Span, ecn: bool) -> Self {
        Self {
            target,
            interval,
            ecn,
            largest_bytes: 0,
            first_above: None,
            dropping: false,
            drop_next: Time::ZERO,
            count: 0,
            last_count: 0,
        }
    }

    /// Decides at `now` which packet is sent next, and leaves that packet at the head of `queue`. Hands every
    /// packet that it drops to `drop`. Returns whether it marked the new head.
    pub(crate) fn select_head<P: Packet>(
        &mut self,
        now: Time,
        queue: &mut VecDeque<Queued<P>>,
        queued_bytes: &mut u64,
        mut drop: impl FnMut(P),
    ) -> bool {
        let mut drop_head = |queue: &mut VecDeque<Queued<P>>, queued_bytes: &mut u64| {
            if let Some(Queued { bytes, packet, .. }) = queue.pop_front() {
                *queued_bytes -= u64::from(bytes);
                drop(packet);
            }
        };
        let mut above = self.ok_to_drop(now, queue, *queued_bytes);
        if self.dropping {
            self.dropping = above;
            while self.dropping && now >= self.drop_next {
                self.count += 1;
                if self.mark_head(queue) {
                    self.drop_next = self.control_law(self.drop_next);
                    return true;
                }
                drop_head(queue, queued_bytes);
                above = self.ok_to_drop(now, queue, *queued_bytes);
                self.dropping = above;
                if above {
                    self.drop_next = self.control_law(self.drop_next);
                }
            }
        } else if above {
            let marked = self.mark_head(queue);
            if !marked {
                drop_head(queue, queued_bytes);
                // The answer does not matter here, but the call keeps `first_above` up to date.
                self.ok_to_drop(now, queue, *queued_bytes);
            }
            self.dropping = true;
            // After a recent phase of dropping, dropping goes on nearly as fast as it did then.
            let delta = self.count - self.last_count;
            let recently = now.since(self.drop_next) < self.interval.times(16);
            self.count = if delta > 1 && recently { delta } else { 1 };
            self.drop_next = self.control_law(now);
            self.last_count = self.count;
            return marked;
        }
        false
    }

    /// Returns whether the head may be dropped: `dodequeue` of the RFC.
    fn ok_to_drop<P>(&mut self, now: Time, queue: &VecDeque<Queued<P>>, queued_bytes: u64) -> bool {
        let Some(head) = queue.front() else {
            self.first_above = None;
            return false;
        };
        self.largest_bytes = self.largest_bytes.max(u64::from(head.bytes));
        let rest = queued_bytes - u64::from(head.bytes);
        if now.since(head.since) < self.target || rest <= self.largest_bytes {
            self.first_above = None;
            return false;
        }
        match self.first_above {
            None => {
                self.first_above = Some(now + self.interval);
                false
            }
            Some(at) => now >= at,
        }
    }

    fn mark_head<P: Packet>(&self, queue: &mut VecDeque<Queued<P>>) -> bool {
        let head = queue.front_mut().filter(|head| self.ecn && head.packet.is_ect());
        head.map(|head| head.packet.mark()).is_some()
    }

    /// Returns the time of the drop after a drop at `at`: an interval divided by the root of the number of
    /// drops later.
    fn control_law(&self, at: Time) -> Time {
        at + Span::from_nanos((self.interval.as_nanos() as f64 / (self.count as f64).sqrt()) as u64)
    }
}

#[cfg(test)]
mod tests {
    use crate::Discipline;
    use crate::steady_load::{self, Seen};
    use anabranch_algo::{Span, Time};

    /// Sends a packet each `gap` for `secs` seconds over a link of 1,000 packets/s. Returns the times when
    /// the head was dropped, the times when marked packets arrived, and the largest delay of the last second,
    /// all in ms.
    fn run(ecn: bool, ect: bool, gap: Span, secs: u64) -> (Vec<u64>, Vec<u64>, u64) {
        let codel = Discipline::CoDel { target: Span::from_millis(5), interval: Span::from_millis(100), ecn };
        let (mut dropped, mut marked) = (Vec::new(), Vec::new());
        let ms = |at: Time| at.as_nanos() / 1_000_000;
        let link = steady_load::run(codel, ect, gap, secs, |seen| match seen {
            Seen::Arrived(at, packet) if packet.marked => marked.push(ms(at)),
            Seen::Dropped(at) => dropped.push(ms(at)),
            Seen::Arrived(..) | Seen::Link(..) => {}
        });
        assert_eq!(link.stats().dropped.early, dropped.len() as u64);
        assert_eq!(
            link.stats().marked as usize,
            marked.len() + usize::from(link.stats().marked > marked.len() as u64)
        );
        (dropped, marked, link.queued_bytes() / 1_000)
    }

    #[test]
    fn a_queue_below_the_target_is_left_alone() {
        assert_eq!(run(false, false, Span::from_micros(1_000), 5).0, [0u64; 0]);
    }

    #[test]
    fn the_law_of_the_rfc() {
        // The load is 2 % too high. The delay passes the target at 255 ms, and the first drop is an interval
        // later. The next drops follow after 100 ms over the root of their number.
        let (dropped, marked, queued) = run(false, false, Span::from_micros(980), 8);
        assert!(marked.is_empty());
        assert!((330..380).contains(&dropped[0]), "{dropped:?}");
        for (n, pair) in dropped.windows(2).enumerate().take(6) {
            let expected = 100.0 / (n as f64 + 1.0).sqrt();
            assert!(((pair[1] - pair[0]) as f64 - expected).abs() < 2.5, "{n}: {dropped:?}");
        }
        // CoDel removes the excess of 20 packets/s; without it, 160 packets would wait.
        assert!(queued < 40, "{queued}");
    }

    #[test]
    fn marks_take_the_place_of_drops_where_they_can() {
        let (dropped, ..) = run(true, false, Span::from_micros(980), 3);
        let (none, marked, _) = run(true, true, Span::from_micros(980), 3);
        assert!(none.is_empty() && !dropped.is_empty());
        assert!(marked[0].abs_diff(dropped[0]) <= 2, "{marked:?} {dropped:?}");
        // The sender ignores marks here, so the queue grows and marks follow faster and faster.
        assert!(marked.len() > dropped.len());
    }
}
