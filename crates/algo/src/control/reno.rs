//! Reno: RFC 5681 sections 3.1 and 3.2, with byte (here: packet) counting after RFC 3465 and the initial
//! window of RFC 6928.
//!
//! * Slow start (w < ssthresh): +1 packet for each packet that arrived, up to ssthresh. Growth is weighed by
//!   packets, not by acknowledgements, so batches need no limit L as in RFC 3465 section 2.2: the requests
//!   that the window allows are sent as the world likes.
//! * Congestion avoidance: +1/w for each packet that arrived.
//! * Loss or mark (RFC 3168 section 6.1.2: as a loss): ssthresh = max(w/2, 2) as equation (4), w = ssthresh.
//!   Flight size is taken to be w, as the window only grows when it is the limit.
//! * Timeout: the same ssthresh, w = 1. A second timeout without growth in between leaves ssthresh alone (RFC
//!   5681 section 3.1).
//!
//! Recovery itself (what to ask again, when) is the world's.

use super::{Ack, Budget, Cause, Control, Group, INITIAL_WINDOW, Loss, Member, Window};
use crate::real::Real;
use crate::{Span, Time};

/// The least ssthresh: two packets, RFC 5681 equation (4).
pub(super) const SSTHRESH_MIN: Window = Window::packets(2);
/// "Arbitrarily high", RFC 5681 section 3.1.
pub(super) const SSTHRESH_INITIAL: Window = Window(u64::MAX);

/// Uncoupled TCP of one subflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Reno {
    pub(super) cwnd: Window,
    pub(super) ssthresh: Window,
}

impl Default for Reno {
    fn default() -> Self {
        Self::new()
    }
}

impl Reno {
    /// At the initial window, in slow start.
    #[must_use]
    pub const fn new() -> Self {
        Self { cwnd: INITIAL_WINDOW, ssthresh: SSTHRESH_INITIAL }
    }

    /// Whether it is in slow start.
    #[must_use]
    pub fn slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }
}

impl Control for Reno {
    fn on_ack(&mut self, ack: &Ack, _group: &Group<'_>) -> Budget {
        if ack.limited && !ack.recovering {
            let acked = Real::from_u64(u64::from(ack.acked));
            self.cwnd = if self.slow_start() {
                self.cwnd.grown(acked).min(self.ssthresh)
            } else {
                self.cwnd.grown(acked / self.cwnd.real())
            };
        }
        self.cwnd.budget()
    }

    fn on_congestion(&mut self, loss: &Loss, _group: &Group<'_>) -> Budget {
        let timeout = loss.cause == Cause::Timeout;
        if !timeout || self.cwnd > Window::packets(1) {
            self.ssthresh = self.cwnd.half().max(SSTHRESH_MIN);
        }
        // A loss never raises a window of one packet to the least ssthresh.
        self.cwnd = if timeout { Window::packets(1) } else { self.cwnd.min(self.ssthresh) };
        self.cwnd.budget()
    }

    fn member(&self, srtt: Span) -> Member {
        Member {
            cwnd: self.cwnd,
            srtt,
            slow_start: self.slow_start(),
            interval: 0,
            cut: Window(0),
            cut_at: Time::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALONE: Group<'static> = Group { members: &[], me: 0 };

    fn ack(acked: u32) -> Ack {
        Ack {
            now: Time::ZERO,
            acked,
            round: 0,
            srtt: Span::from_millis(50),
            limited: true,
            recovering: false,
        }
    }

    fn event(cause: Cause) -> Loss {
        Loss { now: Time::ZERO, cause, srtt: Span::from_millis(50) }
    }

    #[test]
    fn a_life() {
        let mut reno = Reno::new();
        for want in [20, 40, 80] {
            let w = reno.cwnd.floor();
            assert_eq!(reno.on_ack(&ack(w), &ALONE).cwnd, want, "slow start doubles");
        }
        assert_eq!(reno.on_congestion(&event(Cause::Loss), &ALONE).cwnd, 40);
        assert!(!reno.slow_start());
        // One window's packets, each alone, make a little less than one more packet.
        for _ in 0..40 {
            reno.on_ack(&ack(1), &ALONE);
        }
        assert!(reno.cwnd > Window(Window::ONE / 100 * 4098) && reno.cwnd < Window::packets(41));
        assert_eq!(reno.on_congestion(&event(Cause::Mark), &ALONE).cwnd, 20);
        assert_eq!(reno.on_congestion(&event(Cause::Timeout), &ALONE).cwnd, 1);
        let ssthresh = reno.ssthresh;
        assert_eq!(reno.on_congestion(&event(Cause::Timeout), &ALONE).cwnd, 1);
        assert_eq!(reno.ssthresh, ssthresh, "held by a second timeout");
        for want in [2, 4, 8, 10] {
            let w = reno.cwnd.floor();
            assert_eq!(reno.on_ack(&ack(w), &ALONE).cwnd, want, "slow start ends at ssthresh");
        }
        assert!(!reno.slow_start());
    }

    #[test]
    fn grows_only_when_allowed() {
        for (limited, recovering) in [(false, false), (true, true), (false, true)] {
            let mut reno = Reno::new();
            assert_eq!(reno.on_ack(&Ack { limited, recovering, ..ack(10) }, &ALONE).cwnd, 10);
        }
    }

    #[test]
    fn floors_and_ceilings() {
        let mut reno = Reno::new();
        for _ in 0..9 {
            reno.on_congestion(&event(Cause::Loss), &ALONE);
        }
        assert_eq!(reno.cwnd, Window::packets(2));
        reno.on_congestion(&event(Cause::Timeout), &ALONE);
        assert_eq!(reno.on_congestion(&event(Cause::Loss), &ALONE).cwnd, 1);
        let mut reno = Reno::new();
        assert_eq!(Window::packets(reno.on_ack(&ack(u32::MAX), &ALONE).cwnd), Window::MAX);
    }

    #[test]
    fn the_increment_is_exact_at_any_window() {
        for w in [1, 2, 10, 1_000, 1_000_000] {
            let mut reno = Reno { cwnd: Window::packets(w), ssthresh: SSTHRESH_MIN.min(Window::packets(1)) };
            reno.on_ack(&ack(1), &ALONE);
            let grown = (reno.cwnd.0 - Window::packets(w).0) as f64 / Window::ONE as f64;
            assert!((grown * f64::from(w) - 1.0).abs() < 1e-5, "{w}: {grown}");
        }
    }
}
