//! Cross traffic: fillers at a constant rate, all the time or in bursts.

use algo::{Rate, Span, Time};
use sim::{EventQueue, Rng, RouteId};

use super::IpPacket;

/// Traffic that takes no notice of congestion and reaches nobody.
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
    /// When it stops; [`Time::NEVER`]: with the emulator.
    pub stop: Time,
    /// What its bursts' lengths are drawn from.
    pub rng: Rng,
}

#[derive(Debug)]
struct Source {
    config: CrossTraffic,
    every: Span,
    /// End of this burst.
    until: Time,
}

impl Source {
    fn uniform(&mut self, mean: Span) -> Span {
        Span::from_nanos(self.config.rng.below(mean.as_nanos().saturating_mul(2).saturating_add(1)))
    }
}

/// All cross traffic of an emulator.
#[derive(Debug, Default)]
pub(super) struct CrossTrafficGenerator {
    sources: Vec<Source>,
    timers: EventQueue<u32>,
}

impl CrossTrafficGenerator {
    pub(super) fn add(&mut self, config: CrossTraffic) {
        let every = config.rate.time_for(u64::from(config.packet_bytes)).max(Span::from_nanos(1));
        self.timers.push(config.start, self.sources.len() as u32);
        let mut source = Source { every, until: Time::NEVER, config };
        if let Some((on, _)) = source.config.burst {
            source.until = source.config.start + source.uniform(on);
        }
        self.sources.push(source);
    }

    /// When the next thing happens.
    pub(super) fn next_at(&self) -> Time {
        self.timers.next_at()
    }

    /// What is sent next, if that is until `limit`, when and where.
    pub(super) fn send(&mut self, limit: Time) -> Option<(Time, RouteId, IpPacket)> {
        while let Some((now, no)) = self.timers.pop_due(limit) {
            let source = &mut self.sources[no as usize];
            if now >= source.config.stop {
                continue;
            }
            match source.config.burst {
                Some((on, off)) if now >= source.until => {
                    let next_at = now + source.uniform(off);
                    source.until = next_at + source.uniform(on);
                    self.timers.push(next_at.max(now + Span::from_nanos(1)), no);
                }
                _ => {
                    self.timers.push(now + source.every, no);
                    let packet = IpPacket::filler(source.config.packet_bytes, None);
                    return Some((now, source.config.route, packet));
                }
            }
        }
        None
    }
}
