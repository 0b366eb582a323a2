//! Handover between APs by their beacons, for a receiver that can have only one association.
//!
//! The receiver counts the beacons of each AP over the last two seconds, and moves to another AP when that
//! has brought ten more than the current one (the source, section 2.2.2.4). With a smaller lead it would flip
//! between APs that are equally far.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::{Span, Time};

/// The time for which beacons count.
const WINDOW: Span = Span::from_secs(2);
/// The number of beacons by which another AP must lead the current one (Δ).
pub const LEAD_BEACONS: u32 = 10;
/// The most beacons that are remembered; with more, the oldest goes early. An AP sends about ten a second.
pub const BEACONS_MAX: usize = 4_096;
/// The most APs.
const APS_MAX: usize = 256;

/// Counts beacons and says which AP to use: see the first lines of the file.
#[derive(Clone, Debug, Default)]
pub struct BeaconHandover {
    beacons: VecDeque<(Time, u8)>,
    counts: Vec<u32>,
    current: Option<usize>,
}

impl BeaconHandover {
    /// Creates a handover without a current AP.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the AP to use; `None` before the first beacon.
    #[must_use]
    pub const fn current(&self) -> Option<usize> {
        self.current
    }

    /// Returns the beacons of an AP in the window, as of the last call with a time.
    #[must_use]
    pub fn beacons(&self, ap: usize) -> u32 {
        self.counts.get(ap).copied().unwrap_or(0)
    }

    /// Records a beacon of `ap`. Returns the AP to move to, if that changes. The first AP that is heard
    /// becomes the current one. A beacon of an AP from number 256 on is ignored.
    pub fn beacon(&mut self, now: Time, ap: usize) -> Option<usize> {
        if ap >= APS_MAX {
            return self.expire(now);
        }
        if ap >= self.counts.len() {
            self.counts.resize(ap + 1, 0);
        }
        if self.beacons.len() >= BEACONS_MAX {
            self.forget_oldest();
        }
        self.beacons.push_back((now, ap as u8));
        self.counts[ap] += 1;
        self.expire(now)
    }

    /// Forgets the beacons that are older than `WINDOW` at `now`. Returns the AP to move to, if that
    /// changes.
    pub fn expire(&mut self, now: Time) -> Option<usize> {
        while let Some((at, _)) = self.beacons.front()
            && now.since(*at) > WINDOW
        {
            self.forget_oldest();
        }
        // The AP with most beacons; of several, the one with the lowest number.
        let best = (0..self.counts.len()).rev().max_by_key(|ap| self.counts[*ap])?;
        let moves = match self.current {
            None => self.counts[best] > 0,
            Some(current) => self.counts[best] >= self.beacons(current) + LEAD_BEACONS,
        };
        moves.then(|| {
            self.current = Some(best);
            best
        })
    }

    fn forget_oldest(&mut self) {
        if let Some((_, ap)) = self.beacons.pop_front() {
            self.counts[usize::from(ap)] -= 1;
        }
    }
}
