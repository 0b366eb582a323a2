//! Cross traffic: packets at a constant rate, all the time or in bursts.

use crate::{Rng, RouteId};
use anabranch_algo::{Rate, Span, Time};

/// Traffic that takes no notice of congestion and that nobody answers.
#[derive(Clone, Debug, PartialEq)]
pub struct CrossTraffic {
    /// Its route.
    pub route: RouteId,
    /// Its rate while it is on.
    pub rate: Rate,
    /// The size of its packets, bytes.
    pub packet_bytes: u32,
    /// The mean lengths of a burst and of the pause after it, each uniform from 0 to twice that; `None`: on
    /// all the time.
    pub burst: Option<(Span, Span)>,
    /// When it starts.
    pub start: Time,
    /// When it stops; [`Time::NEVER`]: never.
    pub stop: Time,
    /// What its bursts' lengths are drawn from.
    pub rng: Rng,
}

/// Where cross traffic comes from; somebody else keeps its timer, which is due at its start first.
#[derive(Clone, Debug)]
pub struct CrossTrafficSource {
    config: CrossTraffic,
    /// From one packet to the next.
    every: Span,
    /// End of this burst.
    until: Time,
}

impl CrossTrafficSource {
    /// A source of this traffic.
    #[must_use]
    pub fn new(config: CrossTraffic) -> Self {
        let every = config.rate.time_for(u64::from(config.packet_bytes)).max(Span::from_nanos(1));
        let mut source = Self { every, until: Time::NEVER, config };
        if let Some((on, _)) = source.config.burst {
            source.until = source.config.start + source.uniform(on);
        }
        source
    }

    /// Its timer came due at `now`: the route and the size of the packet that leaves, if one does, and when
    /// the timer is due again. None after its end.
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
