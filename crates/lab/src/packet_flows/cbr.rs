//! Traffic that takes no notice of congestion: constant bit rate, all the time or in bursts.

use algo::{Span, Time};
use sim::{Rng, RouteId};

use super::config::{Burst, CbrConfig};

/// One such source of traffic.
pub(super) struct Cbr {
    route: RouteId,
    bytes: u16,
    every: Span,
    burst: Option<Burst>,
    /// End of this burst.
    until: Time,
    stop: Time,
    rng: Rng,
}

impl Cbr {
    pub(super) fn new(config: &CbrConfig, rng: Rng) -> Self {
        let mut cbr = Self {
            route: config.route,
            bytes: config.packet_bytes,
            every: config.rate.time_for(u64::from(config.packet_bytes)).max(Span::from_nanos(1)),
            burst: config.burst,
            until: Time::NEVER,
            stop: config.stop.unwrap_or(Time::NEVER),
            rng,
        };
        if let Some(burst) = cbr.burst {
            cbr.until = config.start + cbr.uniform(burst.on);
        }
        cbr
    }

    /// Its timer came due at `now`: `send` takes a packet of so many bytes, if one leaves. When the next one
    /// is due; never again after its end.
    pub(super) fn timer(&mut self, now: Time, send: impl FnOnce(RouteId, u16)) -> Option<Time> {
        if now >= self.stop {
            return None;
        }
        let next = match self.burst {
            Some(burst) if now >= self.until => {
                let next = now + self.uniform(burst.off);
                self.until = next + self.uniform(burst.on);
                next
            }
            _ => {
                send(self.route, self.bytes);
                now + self.every
            }
        };
        Some(next.max(now + Span::from_nanos(1)))
    }

    fn uniform(&mut self, mean: Span) -> Span {
        Span::from_nanos(self.rng.below(mean.as_nanos().saturating_mul(2).saturating_add(1)))
    }
}
