//! Counts the packets that a flow still has to deliver: numbers only, because packets are interchangeable.
//!
//! A packet that was declared lost returns to the backlog and leaves again, on any path. If the first copy
//! then arrives late, the second copy is spurious: it does not count when it arrives, and is not sent again
//! when it is lost. The backlog does not record which copy belongs to which packet: with several resent
//! packets in flight, a late third copy of one may stand for another. The number of packets that count never
//! exceeds the flow's size.

/// The payload of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PayloadKind {
    /// No missing packet: a probe.
    Nothing,
    /// A packet that leaves for the first time.
    New,
    /// A packet that was declared lost before.
    Resent,
}

/// Counters of packets; see the [module](self).
#[derive(Clone, Copy, Debug)]
pub(super) struct SendBacklog {
    /// Packets never sent yet; [`u64::MAX`] without end.
    unsent: u64,
    /// Packets lost and not sent again yet.
    to_resend: u64,
    /// Packets sent again and in flight.
    resent_in_flight: u64,
    /// Packets among `resent_in_flight` whose first copy has arrived.
    spurious: u64,
    /// Packets still to arrive; [`u64::MAX`] without end.
    undelivered: u64,
}

impl SendBacklog {
    pub(super) fn new(packets: Option<u64>) -> Self {
        let packets = packets.unwrap_or(u64::MAX);
        Self { unsent: packets, to_resend: 0, resent_in_flight: 0, spurious: 0, undelivered: packets }
    }

    /// Returns the number of packets that could leave now.
    pub(super) const fn sendable(&self) -> u64 {
        self.unsent.saturating_add(self.to_resend)
    }

    /// Whether all packets have arrived.
    pub(super) const fn is_done(&self) -> bool {
        self.undelivered == 0
    }

    /// Returns the number of packets still to arrive; [`u64::MAX`] without end.
    pub(super) const fn undelivered(&self) -> u64 {
        self.undelivered
    }

    /// Takes a packet to send: a lost one first.
    pub(super) const fn take(&mut self) -> PayloadKind {
        if self.to_resend > 0 {
            self.to_resend -= 1;
            self.resent_in_flight += 1;
            PayloadKind::Resent
        } else if self.unsent > 0 {
            self.unsent -= (self.unsent != u64::MAX) as u64;
            PayloadKind::New
        } else {
            PayloadKind::Nothing
        }
    }

    /// Records that a packet in flight has arrived; returns whether it counts.
    pub(super) const fn delivered(&mut self, kind: PayloadKind) -> bool {
        let counts = match kind {
            PayloadKind::Nothing => false,
            PayloadKind::New => true,
            PayloadKind::Resent => {
                self.resent_in_flight -= 1;
                let spurious = self.spurious > 0;
                self.spurious -= spurious as u64;
                !spurious
            }
        };
        if counts {
            self.count();
        }
        counts
    }

    /// Records that a packet declared lost has arrived; returns whether it counts.
    pub(super) const fn delivered_late(&mut self, kind: PayloadKind) -> bool {
        if matches!(kind, PayloadKind::Nothing) {
            return false;
        }
        if self.to_resend > 0 {
            self.to_resend -= 1;
        } else if self.resent_in_flight > self.spurious {
            self.spurious += 1;
        } else {
            // The second copy was here first.
            return false;
        }
        self.count();
        true
    }

    /// Records that a packet is declared lost.
    pub(super) const fn lost(&mut self, kind: PayloadKind) {
        match kind {
            PayloadKind::Nothing => {}
            PayloadKind::New => self.to_resend += 1,
            PayloadKind::Resent => {
                self.resent_in_flight -= 1;
                if self.spurious > 0 {
                    self.spurious -= 1;
                } else {
                    self.to_resend += 1;
                }
            }
        }
    }

    const fn count(&mut self) {
        self.undelivered -= (self.undelivered != u64::MAX) as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_late_copy_counts_once() {
        let mut backlog = SendBacklog::new(Some(1));
        assert_eq!(backlog.take(), PayloadKind::New);
        assert_eq!(backlog.take(), PayloadKind::Nothing);
        backlog.lost(PayloadKind::New);
        assert_eq!(backlog.take(), PayloadKind::Resent);
        // The second copy arrives first, then the first.
        let mut other = backlog;
        assert!(other.delivered(PayloadKind::Resent) && other.is_done());
        assert!(!other.delivered_late(PayloadKind::New) && other.is_done());
        // The first copy arrives first, then the second, or never.
        assert!(backlog.delivered_late(PayloadKind::New) && backlog.is_done());
        let mut lost = backlog;
        lost.lost(PayloadKind::Resent);
        assert_eq!(lost.sendable(), 0);
        assert!(!backlog.delivered(PayloadKind::Resent) && backlog.is_done());
    }

    proptest! {
        /// For every fate of the packets, each packet counts exactly once.
        #[test]
        fn all_count_once(
            packets in 0u64..20,
            steps in proptest::collection::vec((0u8..4, any::<u16>()), 0..200),
        ) {
            let mut backlog = SendBacklog::new(Some(packets));
            let (mut flying, mut lost, mut counted) = (Vec::new(), Vec::new(), 0);
            let take = |from: &mut Vec<PayloadKind>, which: u16| {
                (!from.is_empty()).then(|| from.swap_remove(which as usize % from.len()))
            };
            for (what, which) in steps {
                match what {
                    0 if backlog.sendable() > 0 => flying.push(backlog.take()),
                    1 => counted += take(&mut flying, which).map_or(0, |k| u64::from(backlog.delivered(k))),
                    2 => {
                        if let Some(kind) = take(&mut flying, which) {
                            backlog.lost(kind);
                            lost.push(kind);
                        }
                    }
                    _ => {
                        let late = |k| u64::from(backlog.delivered_late(k));
                        counted += take(&mut lost, which).map_or(0, late);
                    }
                }
                prop_assert_eq!(counted + backlog.undelivered(), packets);
                let under_way = flying.iter().filter(|kind| **kind == PayloadKind::New).count() as u64;
                let missing = backlog.sendable() + under_way + backlog.resent_in_flight - backlog.spurious;
                prop_assert_eq!(missing, backlog.undelivered());
            }
            // Then everything arrives.
            while let Some(kind) = flying.pop().or_else(|| (backlog.sendable() > 0).then(|| backlog.take())) {
                counted += u64::from(backlog.delivered(kind));
            }
            prop_assert!(backlog.is_done() && counted == packets);
        }

        #[test]
        fn without_end(late in any::<bool>()) {
            let mut backlog = SendBacklog::new(None);
            prop_assert_eq!(backlog.take(), PayloadKind::New);
            backlog.lost(PayloadKind::New);
            prop_assert_eq!(backlog.take(), PayloadKind::Resent);
            prop_assert_eq!(backlog.delivered_late(PayloadKind::New), true);
            prop_assert_eq!(if late { backlog.delivered(PayloadKind::Resent) } else { false }, false);
            prop_assert!(!backlog.is_done() && backlog.undelivered() == u64::MAX);
        }
    }
}
