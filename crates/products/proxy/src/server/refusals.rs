//! Connections of nobody who is known, which are refused: the first one is told at once, those that follow it
//! within a second as a number. So who opens thousands of them fills no log.

use std::net::SocketAddr;

use anabranch_algo::{Span, Time};

use crate::event::Event;

/// For so long refusals are counted before they are told.
const TOLD_EVERY: Span = Span::from_secs(1);

/// Refusals that were not told yet.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    told_at: Option<Time>,
    untold: u64,
    last: String,
}

impl Refusals {
    /// A connection of this host is refused; what is to be told of it now.
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

    /// What is to be told of those before, if it is time; asked once a second.
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
