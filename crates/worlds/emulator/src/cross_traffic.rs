//! Cross traffic: sends fillers at the times that their sources give.

use anabranch_algo::Time;
use anabranch_sim::{CrossTraffic, CrossTrafficSource, EventQueue, RouteId};

use super::IpPacket;

/// All cross traffic of an emulator.
#[derive(Debug, Default)]
pub(super) struct CrossTrafficGenerator {
    sources: Vec<CrossTrafficSource>,
    timers: EventQueue<u32>,
}

impl CrossTrafficGenerator {
    pub(super) fn add(&mut self, config: CrossTraffic) {
        self.timers.push(config.start, self.sources.len() as u32);
        self.sources.push(CrossTrafficSource::new(config));
    }

    /// Returns the time at which a source is due next.
    pub(super) fn next_at(&self) -> Time {
        self.timers.next_at()
    }

    /// Returns the next filler due until `limit`, with its time and its route.
    pub(super) fn send(&mut self, limit: Time) -> Option<(Time, RouteId, IpPacket)> {
        while let Some((now, no)) = self.timers.pop_due(limit) {
            let Some((packet, next_at)) = self.sources[no as usize].timer(now) else { continue };
            self.timers.push(next_at, no);
            if let Some((route, bytes)) = packet {
                return Some((now, route, IpPacket::filler(bytes, None)));
            }
        }
        None
    }
}
