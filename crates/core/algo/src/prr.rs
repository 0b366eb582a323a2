//! Implements Proportional Rate Reduction, which decides how much is sent during fast recovery (RFC 6937, RFC
//! 9937).
//!
//! A loss reduces the window to `ssthresh`. Without this machine, a sender either falls silent until enough
//! packets have left the network, or, if many were lost, sends at once all packets that the new window has
//! room for. Instead, each acknowledgement allows a part of the packets that it reports as delivered:
//! * While more than `ssthresh` is in flight, it allows `ssthresh` / `RecoverFS` of them, so that the flight
//!   reaches the new window evenly within a round trip.
//! * Below that, it allows as many as were delivered (the conservative bound). An acknowledgement that shows
//!   progress without a further loss allows one packet more (SafeACK: the slow-start bound), up to
//!   `ssthresh`.
//!
//! The machine follows RFC 9937 section 6, in packets instead of bytes. One rule is ours: where nothing is
//! left in flight when the loss is found, as after the probe of a lost tail, no acknowledgement will come
//! that could allow a packet. Recovery then begins with the window of a connection that has been idle (RFC
//! 5681 section 4.1).

use crate::control::INITIAL_WINDOW;

/// Controls the sending during one fast recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prr {
    /// The number of packets in flight when recovery began, at least 1: RecoverFS.
    flight: u32,
    delivered: u32,
    out: u32,
    /// The number of packets that may be sent in any case when recovery begins.
    first: u32,
    /// The number of packets that may be in flight until the next acknowledgement.
    cwnd: u32,
}

impl Prr {
    /// Begins a recovery. `flight` packets were in flight before the loss was found and `in_flight` after it;
    /// `ssthresh` is the window to be reached; all are in packets. The packet that was lost first may be sent
    /// again at once.
    #[must_use]
    pub fn new(flight: u32, in_flight: u32, ssthresh: u32) -> Self {
        let first = if in_flight == 0 { ssthresh.min(INITIAL_WINDOW.floor()).max(1) } else { 1 };
        let cwnd = in_flight.saturating_add(first);
        Self { flight: flight.max(1), delivered: 0, out: 0, first, cwnd }
    }

    /// Handles an acknowledgement of `delivered` packets that leaves `in_flight` packets. `is_safe` says that
    /// it shows progress and no further loss. `ssthresh` is the window to be reached, in packets.
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

    /// Notes that a packet has been sent.
    pub const fn sent(&mut self) {
        self.out = self.out.saturating_add(1);
    }

    /// Returns the number of packets that may be sent now, with `in_flight` packets in flight.
    #[must_use]
    pub const fn room(&self, in_flight: u32) -> u32 {
        self.cwnd.saturating_sub(in_flight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// Sends all packets that are allowed and returns their number.
    fn send(prr: &mut Prr, in_flight: &mut u32) -> u32 {
        let count = prr.room(*in_flight);
        for _ in 0..count {
            prr.sent();
        }
        *in_flight += count;
        count
    }

    /// Runs a recovery of a window with `lost` lost packets, in which each acknowledgement reports one
    /// packet. Returns the number of packets sent after each acknowledgement.
    fn recovery(window: u32, lost: u32, ssthresh: u32) -> Vec<u32> {
        // Three packets arrived behind the first loss before it was found.
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
        // A window without this machine would send all at once.
        assert!(sent.iter().skip(1).all(|count| *count <= 2), "{sent:?}");
    }

    #[test]
    fn a_loss_that_a_timer_found_is_repaired_at_once() {
        let mut prr = Prr::new(8, 2, 10);
        assert_eq!(prr.room(2), 1);
        prr.sent();
        assert_eq!(prr.room(3), 0);
        // The packet sent again is lost, too.
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
