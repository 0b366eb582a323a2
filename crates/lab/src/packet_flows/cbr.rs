//! Traffic that takes no notice of congestion: constant bit rate, all the time or in bursts.

use algo::{Rate, Span, Time};
use sim::{Rng, RouteId};

use super::{PacketFlows, Segment, SegmentKind, TimerKind};

/// Bursts of random length.
#[derive(Clone, Copy, Debug)]
pub struct Burst {
    /// Mean length of a burst, uniform from 0 to twice this.
    pub on: Span,
    /// Mean pause after it, likewise.
    pub off: Span,
}

/// What such traffic is made of.
#[derive(Clone, Debug)]
pub struct CbrConfig {
    /// Chooses its random stream.
    pub name: String,
    /// Its route.
    pub route: RouteId,
    /// Its rate while it is on.
    pub rate: Rate,
    /// Size of its packets on the wire, bytes.
    pub packet_bytes: u16,
    /// Bursts, if it has any.
    pub burst: Option<Burst>,
    /// When it starts.
    pub start: Time,
    /// When it stops, if it does.
    pub stop: Option<Time>,
}

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
    fn uniform(&mut self, mean: Span) -> Span {
        Span::from_nanos(self.rng.below(mean.as_nanos().saturating_mul(2).saturating_add(1)))
    }
}

impl PacketFlows {
    /// Adds cross traffic.
    pub fn cbr(&mut self, config: &CbrConfig) {
        let mut cbr = Cbr {
            route: config.route,
            bytes: config.packet_bytes,
            every: config.rate.time_for(u64::from(config.packet_bytes)).max(Span::from_nanos(1)),
            burst: config.burst,
            until: Time::NEVER,
            stop: config.stop.unwrap_or(Time::NEVER),
            rng: Rng::stream(self.seed, &config.name),
        };
        if let Some(burst) = cbr.burst {
            cbr.until = config.start + cbr.uniform(burst.on);
        }
        self.timers.push(config.start, TimerKind::Cbr(self.cbrs.len() as u32));
        self.cbrs.push(cbr);
    }

    pub(super) fn burst(&mut self, now: Time, no: u32, send: &mut impl FnMut(RouteId, Segment)) {
        let cbr = &mut self.cbrs[no as usize];
        if now >= cbr.stop {
            return;
        }
        let next = match cbr.burst {
            Some(burst) if now >= cbr.until => {
                let next = now + cbr.uniform(burst.off);
                cbr.until = next + cbr.uniform(burst.on);
                next
            }
            _ => {
                send(cbr.route, Segment::new(0, no, cbr.bytes, SegmentKind::Cross));
                now + cbr.every
            }
        };
        self.timers.push(next.max(now + Span::from_nanos(1)), TimerKind::Cbr(no));
    }
}
