//! Proportional Rate Reduction: how much is sent during fast recovery (RFC 6937, RFC 9937).
//!
//! A loss leaves `ssthresh` of a window. Without this, a sender falls silent until so many packets have left
//! the network, or, if many were lost, sends all that the new window has room for at once. Instead each
//! acknowledgement allows a part of what it says was delivered:
//! * while more than `ssthresh` is in flight, `ssthresh` / `RecoverFS` of it, so that the window is reached
//!   within a round trip, evenly;
//! * below that, as much as was delivered (the conservative bound), and one packet more for an
//!   acknowledgement that shows progress without a further loss (SafeACK: the slow-start bound), up to
//!   `ssthresh`.
//!
//! RFC 9937 section 6, in packets instead of bytes. One thing is ours: where nothing is left in flight when
//! the loss is found, as after the probe of a lost tail, no acknowledgements will come that could allow
//! anything; recovery then begins with the window of a connection that has been idle (RFC 5681 section 4.1).

use crate::control::INITIAL_WINDOW;

/// One fast recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prr {
    /// RecoverFS: packets in flight when recovery began, at least 1.
    flight: u32,
    delivered: u32,
    out: u32,
    /// How many may be sent in any case when recovery begins.
    first: u32,
    /// What may be in flight until the next acknowledgement.
    cwnd: u32,
}

impl Prr {
    /// Recovery begins with so many packets `flight` before the loss was found, of which `in_flight` are left
    /// after it; `ssthresh` is the window to be reached, packets. The packet that was lost first may be sent
    /// again at once.
    #[must_use]
    pub fn new(flight: u32, in_flight: u32, ssthresh: u32) -> Self {
        let first = if in_flight == 0 { ssthresh.min(INITIAL_WINDOW.floor()).max(1) } else { 1 };
        let cwnd = in_flight.saturating_add(first);
        Self { flight: flight.max(1), delivered: 0, out: 0, first, cwnd }
    }

    /// An acknowledgement says that `delivered` packets have arrived, and `in_flight` are left; `is_safe`: it
    /// shows progress and no further loss. `ssthresh` is the window to be reached, packets.
    pub fn acked(&mut self, delivered: u32, in_flight: u32, ssthresh: u32, is_safe: bool) {
        if delivered == 0 {
            return;
        }
        self.delivered = self.delivered.saturating_add(delivered);
        let count = if in_flight > ssthresh {
            let wanted = (u64::from(self.delivered) * u64::from(ssthresh)).div_ceil(u64::from(self.flight));
            u32::try_from(wanted).unwrap_or(u32::MAX).saturating_sub(self.out)
        } else {
            let bound = self.delivered.saturating_sub(self.out).max(delivered);
            let bound = bound.saturating_add(u32::from(is_safe));
            bound.min(ssthresh.saturating_sub(in_flight))
        };
        let count = if self.out == 0 { count.max(self.first) } else { count };
        self.cwnd = in_flight.saturating_add(count);
    }

    /// A packet has been sent.
    pub const fn sent(&mut self) {
        self.out = self.out.saturating_add(1);
    }

    /// Packets that may be sent now, given what is in flight.
    #[must_use]
    pub const fn room(&self, in_flight: u32) -> u32 {
        self.cwnd.saturating_sub(in_flight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// Sends all that is allowed; how much that was.
    fn send(prr: &mut Prr, in_flight: &mut u32) -> u32 {
        let count = prr.room(*in_flight);
        for _ in 0..count {
            prr.sent();
        }
        *in_flight += count;
        count
    }

    /// One packet of a window is lost; each further acknowledgement reports one packet.
    fn recovery(window: u32, lost: u32, ssthresh: u32) -> Vec<u32> {
        // Three arrived behind the first loss before it was found.
        let mut in_flight = window - 3 - lost;
        let mut prr = Prr::new(window, in_flight, ssthresh);
        prr.acked(3, in_flight, ssthresh, false);
        let mut sent = std::vec![send(&mut prr, &mut in_flight)];
        for _ in 0..window - 3 - lost {
            in_flight -= 1;
            prr.acked(1, in_flight, ssthresh, true);
            sent.push(send(&mut prr, &mut in_flight));
        }
        sent
    }

    #[test]
    fn one_loss_halves_the_rate_evenly() {
        // Every other acknowledgement sends a packet, as in the first example of RFC 6937 section 4. When the
        // packets in flight reach ssthresh, one sends none; the last two fill the window.
        assert_eq!(recovery(20, 1, 10), [2, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 0, 1, 1]);
    }

    #[test]
    fn many_losses_cause_no_burst() {
        // The second example: 12 of 20 are lost, so that less than ssthresh is left.
        let sent = recovery(20, 12, 10);
        assert!(sent.iter().all(|count| *count <= 3), "{sent:?}");
        // A window without this would send all at once.
        assert!(sent.iter().skip(1).all(|count| *count <= 2), "{sent:?}");
    }

    #[test]
    fn a_loss_that_a_timer_found_is_repaired_at_once() {
        let mut prr = Prr::new(8, 2, 10);
        assert_eq!(prr.room(2), 1);
        prr.sent();
        assert_eq!(prr.room(3), 0);
        // That one is lost, too.
        assert_eq!(prr.room(2), 1);
        prr.acked(0, 2, 10, false);
        assert_eq!(prr.room(2), 1);
    }

    #[test]
    fn a_tail_that_a_probe_found_lost_is_repaired_at_once() {
        for (ssthresh, first) in [(7, 7), (100, 10), (1, 1)] {
            let mut prr = Prr::new(20, 0, ssthresh);
            prr.acked(1, 0, ssthresh, false);
            assert_eq!(prr.room(0), first);
        }
    }
}
