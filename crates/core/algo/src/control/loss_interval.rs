//! Measures the smoothed number of packets between congestion events, 1/p.
//!
//! An exponential average replaces the weighted average of RFC 5348 section 5.4. As there, the open interval
//! counts once it makes the average longer, so that an improved path shows as improved before its next loss.

/// The exponent of the weight: a new interval weighs 1 in 2^[`SHIFT`].
const SHIFT: u32 = 3;

/// Holds the smoothed number of packets between congestion events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(super) struct LossInterval {
    /// The smoothed interval times 2^[`SHIFT`]; zero before the first event. Saturates at 5 × 10⁸ packets.
    scaled: u32,
    /// The number of packets since the last event.
    open: u32,
}

impl LossInterval {
    /// The state before any event.
    pub(super) const NONE: Self = Self { scaled: 0, open: 0 };

    /// Counts `packets` that arrived.
    pub(super) const fn on_acked(&mut self, packets: u32) {
        self.open = self.open.saturating_add(packets);
    }

    /// Closes the open interval with a congestion event.
    pub(super) const fn on_loss_event(&mut self) {
        let open = if self.open == 0 { 1 } else { self.open };
        self.scaled = if self.scaled == 0 { open.saturating_mul(1 << SHIFT) } else { self.with(open) };
        self.open = 0;
    }

    /// Returns the smoothed number of packets between events, 1/p, at least 1; zero before the first event.
    pub(super) fn packets(self) -> u64 {
        if self.scaled == 0 {
            return 0;
        }
        ((self.scaled.max(self.with(self.open)) >> SHIFT) as u64).max(1)
    }

    /// Returns the scaled average with a new interval of `packets` mixed in.
    const fn with(self, packets: u32) -> u32 {
        (self.scaled - (self.scaled >> SHIFT)).saturating_add(packets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smoothed_and_open() {
        let mut interval = LossInterval::NONE;
        interval.on_acked(1000);
        assert_eq!(interval.packets(), 0, "no event yet");
        interval.on_loss_event();
        interval.on_acked(1000);
        assert_eq!(interval.packets(), 1000);
        interval.on_acked(800);
        assert_eq!(interval.packets(), 1100, "a long open interval counts");
        interval.on_loss_event();
        assert_eq!(interval.packets(), 1100);
        for _ in 0..100 {
            interval.on_loss_event();
        }
        assert_eq!(interval.packets(), 1);
        interval.open = u32::MAX;
        interval.on_acked(1);
        interval.on_loss_event();
        interval.on_loss_event();
        assert!(interval.packets() > 1 << 28);
    }
}
