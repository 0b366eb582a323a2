//! What a flow still has to deliver: numbers only, for one packet is as good as another.
//!
//! A packet that was declared lost goes back into the stock and leaves again, on any path. If it then arrives
//! late after all, its second copy is for nothing: it is not counted when it arrives, and not sent a third
//! time when it is lost. Which copy belongs to which packet is not kept: with several packets on their second
//! way at once, a late third copy of one may stand for another. More than there was never arrives.

/// What a packet carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    /// Nothing that is missing: a probe.
    Nothing,
    /// Something that leaves for the first time.
    First,
    /// Something that was declared lost before.
    Again,
}

/// Counters of packets; see the [module](self).
#[derive(Clone, Copy, Debug)]
pub(super) struct Stock {
    /// Never sent yet; [`u64::MAX`] without end.
    fresh: u64,
    /// Lost, and not sent again yet.
    back: u64,
    /// Sent again and under way,
    again: u64,
    /// of these, for nothing.
    owed: u64,
    /// Still to arrive; [`u64::MAX`] without end.
    open: u64,
}

impl Stock {
    pub(super) fn new(packets: Option<u64>) -> Self {
        let packets = packets.unwrap_or(u64::MAX);
        Self { fresh: packets, back: 0, again: 0, owed: 0, open: packets }
    }

    /// Packets that could leave now.
    pub(super) const fn left(&self) -> u64 {
        self.fresh.saturating_add(self.back)
    }

    /// Whether all packets have arrived.
    pub(super) const fn is_done(&self) -> bool {
        self.open == 0
    }

    /// Packets still to arrive; [`u64::MAX`] without end.
    pub(super) const fn open(&self) -> u64 {
        self.open
    }

    /// A packet leaves: what was lost first.
    pub(super) const fn take(&mut self) -> Load {
        if self.back > 0 {
            self.back -= 1;
            self.again += 1;
            Load::Again
        } else if self.fresh > 0 {
            self.fresh -= (self.fresh != u64::MAX) as u64;
            Load::First
        } else {
            Load::Nothing
        }
    }

    /// A packet that was under way has arrived; whether it counts.
    pub(super) const fn came(&mut self, load: Load) -> bool {
        let counts = match load {
            Load::Nothing => false,
            Load::First => true,
            Load::Again => {
                self.again -= 1;
                let owed = self.owed > 0;
                self.owed -= owed as u64;
                !owed
            }
        };
        if counts {
            self.count();
        }
        counts
    }

    /// A packet that had been declared lost has arrived; whether it counts.
    pub(super) const fn came_late(&mut self, load: Load) -> bool {
        if matches!(load, Load::Nothing) {
            return false;
        }
        if self.back > 0 {
            self.back -= 1;
        } else if self.again > self.owed {
            self.owed += 1;
        } else {
            // Its second copy was here first.
            return false;
        }
        self.count();
        true
    }

    /// A packet is declared lost.
    pub(super) const fn lost(&mut self, load: Load) {
        match load {
            Load::Nothing => {}
            Load::First => self.back += 1,
            Load::Again => {
                self.again -= 1;
                if self.owed > 0 {
                    self.owed -= 1;
                } else {
                    self.back += 1;
                }
            }
        }
    }

    const fn count(&mut self) {
        self.open -= (self.open != u64::MAX) as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_late_copy_counts_once() {
        let mut stock = Stock::new(Some(1));
        assert_eq!(stock.take(), Load::First);
        assert_eq!(stock.take(), Load::Nothing);
        stock.lost(Load::First);
        assert_eq!(stock.take(), Load::Again);
        // The second copy first, then the first.
        let mut other = stock;
        assert!(other.came(Load::Again) && other.is_done());
        assert!(!other.came_late(Load::First) && other.is_done());
        // The first, then the second, or never.
        assert!(stock.came_late(Load::First) && stock.is_done());
        let mut lost = stock;
        lost.lost(Load::Again);
        assert_eq!(lost.left(), 0);
        assert!(!stock.came(Load::Again) && stock.is_done());
    }

    proptest! {
        /// Whatever happens to packets, as many count as there were, and never more.
        #[test]
        fn all_count_once(
            packets in 0u64..20,
            steps in proptest::collection::vec((0u8..4, any::<u16>()), 0..200),
        ) {
            let mut stock = Stock::new(Some(packets));
            let (mut flying, mut lost, mut counted) = (Vec::new(), Vec::new(), 0);
            let take = |from: &mut Vec<Load>, which: u16| {
                (!from.is_empty()).then(|| from.swap_remove(which as usize % from.len()))
            };
            for (what, which) in steps {
                match what {
                    0 if stock.left() > 0 => flying.push(stock.take()),
                    1 => counted += take(&mut flying, which).map_or(0, |load| u64::from(stock.came(load))),
                    2 => {
                        if let Some(load) = take(&mut flying, which) {
                            stock.lost(load);
                            lost.push(load);
                        }
                    }
                    _ => counted += take(&mut lost, which).map_or(0, |load| u64::from(stock.came_late(load))),
                }
                prop_assert_eq!(counted + stock.open(), packets);
                let under_way = flying.iter().filter(|load| **load == Load::First).count() as u64;
                prop_assert_eq!(stock.left() + under_way + stock.again - stock.owed, stock.open());
            }
            // Then everything arrives.
            while let Some(load) = flying.pop().or_else(|| (stock.left() > 0).then(|| stock.take())) {
                counted += u64::from(stock.came(load));
            }
            prop_assert!(stock.is_done() && counted == packets);
        }

        #[test]
        fn without_end(late in any::<bool>()) {
            let mut stock = Stock::new(None);
            prop_assert_eq!(stock.take(), Load::First);
            stock.lost(Load::First);
            prop_assert_eq!(stock.take(), Load::Again);
            prop_assert_eq!(stock.came_late(Load::First), true);
            prop_assert_eq!(if late { stock.came(Load::Again) } else { false }, false);
            prop_assert!(!stock.is_done() && stock.open() == u64::MAX);
        }
    }
}
