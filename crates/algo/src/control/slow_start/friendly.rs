//! Friendly slow start of NMCC (Y. Thomas, dissertation, section 4.2.2): in slow start too the subflows of a
//! group together grow as one TCP on the best of their paths. m² is that of [`nmcc`](super::super::nmcc).
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

use super::super::nmcc::friendliness;
use super::super::tcp::{SSTHRESH_MIN, State};
use super::super::{Ack, Cause, Group, INITIAL_WINDOW, Loss, Member, Window};
use crate::real::Real;

/// Friendly slow start of one subflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Friendly {
    /// w_sp and w, both as of the start of the round.
    pub(in super::super) single: Window,
    pub(in super::super) start: Window,
    /// m² as of the last growth in slow start or cut.
    pub(in super::super) m2: Real,
    /// The round, and how many packets in it counted for growth.
    round: u32,
    counted: u32,
}

impl Default for Friendly {
    fn default() -> Self {
        Self::new()
    }
}

impl Friendly {
    /// At the initial window.
    #[must_use]
    pub const fn new() -> Self {
        Self { single: INITIAL_WINDOW, start: INITIAL_WINDOW, m2: Real::ONE, round: 0, counted: 0 }
    }

    /// Where slow start ends, in this subflow's own units.
    fn target(&self, state: &State) -> Window {
        Window::from_real(state.ssthresh.real() / self.m2)
    }

    /// The single TCP is this subflow.
    pub(super) fn follow(&mut self, state: &State) {
        (self.single, self.start, self.counted, self.m2) = (state.cwnd, state.cwnd, 0, Real::ONE);
    }

    /// The world has set the window and ssthresh, both in this subflow's own units. What a single TCP would
    /// have is as unknown as at first.
    pub(super) fn moved(&mut self, state: &mut State) {
        state.ssthresh = Window::from_real(state.ssthresh.real() * self.m2).max(SSTHRESH_MIN);
        (self.single, self.start, self.counted) = (state.cwnd, state.cwnd, 0);
    }

    /// After a step alone.
    pub(super) fn alone(&mut self, state: &State, round: u32) {
        self.follow(state);
        self.round = round;
    }

    /// Ends a round: the single TCP grows by as much of its window as arrived of ours.
    fn end_round(&mut self, state: &State, round: u32) {
        let whole = self.start.floor().max(1);
        let part = Real::from_u64(u64::from(self.counted.min(whole))) / Real::from_u64(u64::from(whole));
        self.single = if state.slow_start {
            self.single.grown(self.single.real() * part).min(state.ssthresh)
        } else {
            self.single.grown(part)
        };
        self.single = self.single.max(state.cwnd);
        (self.start, self.round, self.counted) = (state.cwnd, round, 0);
    }

    /// Packets arrived.
    pub(super) fn arrived(&mut self, state: &mut State, ack: &Ack, grows: bool, alone: bool) {
        if alone {
            // Having lost its siblings is no reason to start slowly up to what was theirs.
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
        if state.slow_start && (state.cwnd >= self.target(state) || self.single >= state.ssthresh) {
            state.slow_start = false;
            self.single = self.single.max(state.ssthresh).min(Window::MAX);
        }
        self.counted = self.counted.saturating_add(ack.acked);
    }

    /// The window grows in slow start, with siblings.
    pub(super) fn grow(&mut self, state: &mut State, mine: &Member, acked: Real, group: &Group<'_>) {
        let target = self.target(state);
        self.m2 = friendliness(mine, group);
        let each = self.single.real() / (self.start.real() * self.m2);
        state.cwnd = state.cwnd.grown(acked * each.min(Real::ONE)).min(target);
    }

    /// A congestion event that leaves `left`, with siblings.
    pub(super) fn cut(
        &mut self,
        state: &mut State,
        mine: &Member,
        loss: &Loss,
        left: Window,
        group: &Group<'_>,
    ) {
        self.m2 = friendliness(mine, group);
        let left = left.min(state.cwnd);
        state.slow_start = loss.cause == Cause::Timeout;
        if !state.slow_start || state.cwnd > Window::packets(1) {
            state.ssthresh = Window::from_real(left.real() * self.m2).max(SSTHRESH_MIN);
        }
        (state.cwnd, self.single) = if state.slow_start {
            (Window::packets(1), Window::packets(1))
        } else {
            (left, self.single.half().max(left))
        };
        (self.start, self.counted) = (state.cwnd, 0);
    }
}
