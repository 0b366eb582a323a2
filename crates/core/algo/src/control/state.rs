//! Holds the window, ssthresh and phase of one subflow (RFC 5681 section 3.1).

use super::{CongestionCause, INITIAL_WINDOW, Window};
use crate::softfloat::Real;

/// The smallest ssthresh: two packets, RFC 5681 equation (4).
pub(super) const SSTHRESH_MIN: Window = Window::packets(2);
/// The first ssthresh: "arbitrarily high", RFC 5681 section 3.1.
pub(super) const SSTHRESH_INITIAL: Window = Window(u64::MAX);

/// Holds the window, ssthresh and phase of one subflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct State {
    /// The congestion window, between one packet and [`Window::MAX`].
    pub cwnd: Window,
    /// The window at which slow start ends.
    pub ssthresh: Window,
    /// Whether the subflow is in slow start.
    pub slow_start: bool,
}

impl State {
    /// The first state: slow start, at the initial window.
    pub(super) const INITIAL: Self =
        Self { cwnd: INITIAL_WINDOW, ssthresh: SSTHRESH_INITIAL, slow_start: true };

    /// Grows the window in slow start by `packets`, up to ssthresh (RFC 5681). Packets count here, not
    /// acknowledgements, so batches need no limit L as in RFC 3465 section 2.2: the world decides how it
    /// sends the packets that the window allows.
    pub(super) fn grow(&mut self, packets: Real) {
        self.cwnd = self.cwnd.grown(packets).min(self.ssthresh);
        self.slow_start = self.cwnd < self.ssthresh;
    }

    /// Applies a congestion event whose rule leaves the window `reduced` (RFC 5681 section 3.1).
    pub(super) fn reduce(&mut self, cause: CongestionCause, reduced: Window) {
        let timeout = cause == CongestionCause::Timeout;
        if !timeout || self.cwnd > Window::packets(1) {
            self.ssthresh = reduced;
        }
        // A loss never raises a window of one packet to the least ssthresh.
        self.cwnd = if timeout { Window::packets(1) } else { self.cwnd.min(self.ssthresh) };
        self.slow_start = self.cwnd < self.ssthresh;
    }

    /// Ends slow start at the window `cwnd`, or at the current window if that is smaller.
    pub(super) fn exit_slow_start(&mut self, cwnd: Window) {
        self.cwnd = cwnd.max(SSTHRESH_MIN).min(self.cwnd);
        (self.ssthresh, self.slow_start) = (self.cwnd, false);
    }
}
