//! Window, ssthresh and phase of one subflow (RFC 5681 section 3.1).

use super::{CongestionCause, INITIAL_WINDOW, Window};
use crate::softfloat::Real;

/// The least ssthresh: two packets, RFC 5681 equation (4).
pub(super) const SSTHRESH_MIN: Window = Window::packets(2);
/// "Arbitrarily high", RFC 5681 section 3.1.
pub(super) const SSTHRESH_INITIAL: Window = Window(u64::MAX);

/// Where a subflow stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct State {
    /// Congestion window: between one packet and [`Window::MAX`].
    pub cwnd: Window,
    /// Where slow start ends.
    pub ssthresh: Window,
    /// Whether it is in slow start.
    pub slow_start: bool,
}

impl State {
    /// At the initial window, in slow start.
    pub(super) const INITIAL: Self =
        Self { cwnd: INITIAL_WINDOW, ssthresh: SSTHRESH_INITIAL, slow_start: true };

    /// Slow start of RFC 5681: up to ssthresh. Growth is weighed by packets, not by acknowledgements, so
    /// batches need no limit L as in RFC 3465 section 2.2: what the window allows is sent as the world likes.
    pub(super) fn grow(&mut self, packets: Real) {
        self.cwnd = self.cwnd.grown(packets).min(self.ssthresh);
        self.slow_start = self.cwnd < self.ssthresh;
    }

    /// A congestion event that leaves `reduced`, RFC 5681 section 3.1.
    pub(super) fn reduce(&mut self, cause: CongestionCause, reduced: Window) {
        let timeout = cause == CongestionCause::Timeout;
        if !timeout || self.cwnd > Window::packets(1) {
            self.ssthresh = reduced;
        }
        // A loss never raises a window of one packet to the least ssthresh.
        self.cwnd = if timeout { Window::packets(1) } else { self.cwnd.min(self.ssthresh) };
        self.slow_start = self.cwnd < self.ssthresh;
    }

    /// Congestion avoidance from here, at `cwnd` or what there is.
    pub(super) fn exit_slow_start(&mut self, cwnd: Window) {
        self.cwnd = cwnd.max(SSTHRESH_MIN).min(self.cwnd);
        (self.ssthresh, self.slow_start) = (self.cwnd, false);
    }
}
