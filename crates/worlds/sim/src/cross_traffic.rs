//! Cross traffic: packets at a constant rate, all the time or in bursts.

use crate::{Rng, RouteId};
use anabranch_algo::{Rate, Span, Time};

/// Describes traffic that does not react to congestion and that gets no replies.
#[derive(Clone, Debug, PartialEq)]
pub struct CrossTraffic {
    /// The route of its packets.
    pub route: RouteId,
    /// The rate during a burst, or always without bursts.
    pub rate: Rate,
    /// The size of each packet in bytes.
    pub packet_bytes: u32,
    /// The mean lengths of a burst and of the pause after it. Lengths are uniform from 0 to twice the mean.
    /// `None` means that packets are sent all the time.
    pub burst: Option<(Span, Span)>,
    /// The time of its start.
    pub start: Time,
    /// The time of its end; [`Time::NEVER`] means that it does not end.
    pub stop: Time,
    /// The random stream for the lengths of bursts and pauses.
    pub rng: Rng,
}

/// Sends cross traffic. The caller keeps its timer, which is first due at [`CrossTraffic::start`].
#[derive(Clone, Debug)]
pub struct CrossTrafficSource {
    config: CrossTraffic,
    /// The time from one packet to the next.
    every: Span,
    /// The end of the present burst.
    until: Time,
}

impl CrossTrafficSource {
    /// Makes a source of this traffic.
    #[must_use]
    pub fn new(config: CrossTraffic) -> Self {
        let every = config.rate.time_for(u64::from(config.packet_bytes)).max(Span::from_nanos(1));
        let mut source = Self { every, until: Time::NEVER, config };
        if let Some((on, _)) = source.config.burst {
            source.until = source.config.start + source.uniform(on);
        }
        source
    }

    /// Handles the timer, due at `now`. Returns the route and the size of the packet to send, if there is
    /// one, and the time when the timer is due again. Returns `None` after the end of the traffic.
    pub fn timer(&mut self, now: Time) -> Option<(Option<(RouteId, u32)>, Time)> {
        if now >= self.config.stop {
            return None;
        }
        let Some((on, off)) = self.config.burst.filter(|_| now >= self.until) else {
            return Some((Some((self.config.route, self.config.packet_bytes)), now + self.every));
        };
        let next = now + self.uniform(off);
        self.until = next + self.uniform(on);
        Some((None, next.max(now + Span::from_nanos(1))))
    }

    fn uniform(&mut self, mean: Span) -> Span {
        Span::from_nanos(self.config.rng.below(mean.as_nanos().saturating_mul(2).saturating_add(1)))
    }
}
