//! Implements the friendly slow start of NMCC (Y. Thomas, dissertation, section 4.2.2): in slow start too the
//! subflows of a group together grow as one TCP on the best of their paths. The factor m² is defined in
//! [`nmcc`](super::super::nmcc).
//!
//! * Each packet that arrives: w += w_sp/(w m²), w_sp and w as they were when the round began (4.11). w_sp is
//!   the window that a single TCP on this path would have: each round ×2 or, in congestion avoidance, +1.
//! * It lasts while w < ssthresh/m² with the previous m², ssthresh being that of the single TCP.
//!
//! Where the text is silent or wrong, this is what is done and why:
//!
//! * w_sp grows per round, not per acknowledgement; if only a part of a window arrived, by that part.
//! * Slow start also ends when w_sp reaches ssthresh, and once ended comes back only by a timeout: else
//!   members that leave it would lower m² and send the others, or themselves, on.
//! * In slow start a packet adds at most one (RFC 5681's limit): after m² has fallen, w_sp/(w m²) can be
//!   more.
//! * A loss sets ssthresh = m²·w, single-path units, so that the test above does not divide twice; w_sp
//!   halves. A timeout: w = w_sp = 1. Never w_sp < w.
//! * Alone in its group it is the standard slow start, step by step.

use super::super::friendliness::friendliness;
use super::super::state::{SSTHRESH_MIN, State};
use super::super::{Ack, CongestionCause, CongestionEvent, Group, INITIAL_WINDOW, SubflowStats, Window};
use crate::softfloat::Real;

/// Implements friendly slow start for one subflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct FriendlySlowStart {
    /// The windows w_sp and w, both as of the start of the round.
    pub(in super::super) single_path_cwnd: Window,
    pub(in super::super) round_start_cwnd: Window,
    /// The factor m² as of the last growth in slow start or the last reduction.
    pub(in super::super) m2: Real,
    /// The current round, and the number of packets in it that counted for growth.
    round: u32,
    counted: u32,
}

impl Default for FriendlySlowStart {
    fn default() -> Self {
        Self::new()
    }
}

impl FriendlySlowStart {
    /// Creates a slow start at the initial window.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            single_path_cwnd: INITIAL_WINDOW,
            round_start_cwnd: INITIAL_WINDOW,
            m2: Real::ONE,
            round: 0,
            counted: 0,
        }
    }

    /// Returns the window at which slow start ends, in this subflow's own units.
    fn target(&self, state: &State) -> Window {
        Window::from_real(state.ssthresh.real() / self.m2)
    }

    /// Sets the single TCP equal to this subflow.
    pub(super) fn follow(&mut self, state: &State) {
        (self.single_path_cwnd, self.round_start_cwnd, self.counted, self.m2) =
            (state.cwnd, state.cwnd, 0, Real::ONE);
    }

    /// Notes that the world has set the window and ssthresh, both in this subflow's own units. The window of
    /// the single TCP restarts at the window, as it did at first.
    pub(super) fn set_window(&mut self, state: &mut State) {
        state.ssthresh = Window::from_real(state.ssthresh.real() * self.m2).max(SSTHRESH_MIN);
        (self.single_path_cwnd, self.round_start_cwnd, self.counted) = (state.cwnd, state.cwnd, 0);
    }

    /// Notes the state after a step in which the subflow was alone in its group.
    pub(super) fn alone(&mut self, state: &State, round: u32) {
        self.follow(state);
        self.round = round;
    }

    /// Ends a round: the single TCP grows by the part of its window that corresponds to the part of ours that
    /// arrived.
    fn end_round(&mut self, state: &State, round: u32) {
        let whole = self.round_start_cwnd.floor().max(1);
        let part = Real::from_u64(u64::from(self.counted.min(whole))) / Real::from_u64(u64::from(whole));
        self.single_path_cwnd = if state.slow_start {
            self.single_path_cwnd.grown(self.single_path_cwnd.real() * part).min(state.ssthresh)
        } else {
            self.single_path_cwnd.grown(part)
        };
        self.single_path_cwnd = self.single_path_cwnd.max(state.cwnd);
        (self.round_start_cwnd, self.round, self.counted) = (state.cwnd, round, 0);
    }

    /// Notes packets that arrived; may end slow start.
    pub(super) fn on_ack(&mut self, state: &mut State, ack: &Ack, grows: bool, alone: bool) {
        if alone {
            // A subflow that has lost its siblings should not slowly start towards a window that was theirs.
            if state.slow_start {
                state.slow_start = state.cwnd < state.ssthresh;
            } else {
                state.ssthresh = state.ssthresh.min(state.cwnd);
            }
            return;
        }
        if ack.round != self.round {
            self.end_round(state, ack.round);
        }
        if !grows {
            return;
        }
        if state.slow_start && (state.cwnd >= self.target(state) || self.single_path_cwnd >= state.ssthresh) {
            state.slow_start = false;
            self.single_path_cwnd = self.single_path_cwnd.max(state.ssthresh).min(Window::MAX);
        }
        self.counted = self.counted.saturating_add(ack.acked);
    }

    /// Grows the window in slow start, with siblings.
    pub(super) fn grow(&mut self, state: &mut State, mine: &SubflowStats, acked: Real, group: &Group<'_>) {
        let target = self.target(state);
        self.m2 = friendliness(mine, group);
        let each = self.single_path_cwnd.real() / (self.round_start_cwnd.real() * self.m2);
        state.cwnd = state.cwnd.grown(acked * each.min(Real::ONE)).min(target);
    }

    /// Applies a congestion event whose rule leaves `reduced`, with siblings.
    pub(super) fn reduce(
        &mut self,
        state: &mut State,
        mine: &SubflowStats,
        event: &CongestionEvent,
        reduced: Window,
        group: &Group<'_>,
    ) {
        self.m2 = friendliness(mine, group);
        let reduced = reduced.min(state.cwnd);
        state.slow_start = event.cause == CongestionCause::Timeout;
        if !state.slow_start || state.cwnd > Window::packets(1) {
            state.ssthresh = Window::from_real(reduced.real() * self.m2).max(SSTHRESH_MIN);
        }
        (state.cwnd, self.single_path_cwnd) = if state.slow_start {
            (Window::packets(1), Window::packets(1))
        } else {
            (reduced, self.single_path_cwnd.half().max(reduced))
        };
        (self.round_start_cwnd, self.counted) = (state.cwnd, 0);
    }
}
