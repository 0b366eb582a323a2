//! Reports refused connections that were not authenticated. The first is reported at once, later ones within
//! a second only as a number. So a host that opens thousands of connections does not fill the log.

use std::net::SocketAddr;

use anabranch_algo::{Span, Time};

use crate::event::Event;

/// The time for which refusals are counted before their number is reported.
const TOLD_EVERY: Span = Span::from_secs(1);

/// The refusals that were not reported yet.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    told_at: Option<Time>,
    untold: u64,
    last: String,
}

impl Refusals {
    /// Notes the refusal of a connection from this host. Returns the event to report now, if there is one.
    pub(super) fn note(&mut self, now: Time, peer: SocketAddr, why: &str) -> Option<Event> {
        if self.untold == 0 && self.told_at.is_none_or(|at| now.since(at) >= TOLD_EVERY) {
            self.told_at = Some(now);
            let (client, why) = (None, why.to_owned());
            return Some(Event::TrunkDown { peer: Some(peer), client, why, lost_streams: 0 });
        }
        self.untold += 1;
        self.last = format!("{peer}: {why}");
        None
    }

    /// Returns the event with the number of earlier refusals, if it is time. It is called once a second.
    pub(super) fn told(&mut self, now: Time) -> Option<Event> {
        if self.untold == 0 || self.told_at.is_some_and(|at| now.since(at) < TOLD_EVERY) {
            return None;
        }
        self.told_at = Some(now);
        let untold = std::mem::take(&mut self.untold);
        let plural = if untold == 1 { "connection was" } else { "connections were" };
        Some(Event::Notice(format!("{untold} more {plural} refused; the last one, of {}", self.last)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_thousand_refusals_in_a_second_are_two_lines() {
        let (mut refusals, peer) = (Refusals::default(), SocketAddr::from(([192, 0, 2, 1], 40_000)));
        let mut told = Vec::new();
        for n in 0..16_000 {
            let now = Time::from_nanos(n * 125_000);
            told.extend(refusals.note(now, peer, "no key"));
            if n % 4_000 == 0 {
                told.extend(refusals.told(now));
            }
        }
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(matches!(&told[0], Event::TrunkDown { why, .. } if why == "no key"));
        let Event::Notice(text) = &told[1] else { panic!() };
        assert_eq!(text, "8000 more connections were refused; the last one, of 192.0.2.1:40000: no key");
        assert!(refusals.told(Time::from_nanos(1_999_000_000)).is_none());
        assert!(refusals.told(Time::from_nanos(2_000_000_000)).is_some());
    }
}
