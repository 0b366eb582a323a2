//! Implements the parts that all classic controllers have in common: RFC 5681 sections 3.1 and 3.2, with byte
//! (here: packet) counting after RFC 3465 and the initial window of RFC 6928.
//!
//! * Slow start (w < ssthresh): the [`SlowStart`] decides the growth. The standard one adds 1 packet for each
//!   packet that arrived.
//! * Congestion avoidance: the [`CongestionAvoidance`] decides the change. A subflow alone in its group adds
//!   1/w for each packet that arrived.
//! * Loss or mark (RFC 3168 section 6.1.2: as a loss): ssthresh is the window that the rule leaves, at least
//!   its floor; w = ssthresh. Flight size is taken to be w, as the window only grows when it is the limit.
//! * Timeout: ssthresh as after a loss, w = 1. A second timeout without growth in between leaves ssthresh as
//!   it is (RFC 5681 section 3.1).
//! * Once slow start is over, only a loss or a timeout brings it back: a rule that shrinks the window in
//!   congestion avoidance (OLIA, wVegas) does not fall back into it.
//!
//! The world does the recovery itself: it decides which packets to request again, and when.

use super::state::{SSTHRESH_INITIAL, SSTHRESH_MIN};
use super::{
    Ack, CongestionAvoidance, CongestionEvent, Control, Group, SlowStart, State, SubflowStats, Window,
    WindowDelta,
};
use crate::softfloat::Real;
use crate::{Span, Time};

/// Controls the congestion of one subflow: a [`SlowStart`] and then a [`CongestionAvoidance`] move its
/// window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ClassicCc<A> {
    pub(super) state: State,
    pub(super) slow_start: SlowStart,
    pub(super) avoidance: A,
}

impl<A: CongestionAvoidance> ClassicCc<A> {
    /// Creates a controller in slow start, at the initial window.
    #[must_use]
    pub const fn new(avoidance: A, slow_start: SlowStart) -> Self {
        Self { state: State::INITIAL, slow_start, avoidance }
    }

    /// Returns the current window, ssthresh and phase.
    #[must_use]
    pub const fn state(&self) -> &State {
        &self.state
    }

    /// Takes over the window and ssthresh that the world has set itself, both in packets. A kernel does so
    /// after idle times, after a timeout and when it undoes a reduction. Without `ssthresh` it is arbitrarily
    /// high.
    pub fn set_window(&mut self, cwnd: u32, ssthresh: Option<u32>) {
        self.state.cwnd = Window::packets(cwnd.max(1));
        self.state.ssthresh = ssthresh.map_or(SSTHRESH_INITIAL, Window::packets);
        self.state.slow_start = self.state.cwnd < self.state.ssthresh;
        self.slow_start.set_window(&mut self.state);
    }

    #[inline]
    fn grow(&mut self, ack: &Ack, group: &Group<'_>) {
        let mine = self.stats(ack.srtt);
        if self.state.slow_start {
            match self.avoidance.exit_slow_start(&mine, ack) {
                Some(cwnd) => self.state.exit_slow_start(cwnd),
                None => self.slow_start.grow(&mut self.state, &mine, ack, group),
            }
        } else {
            let delta = if group.is_alone() && !A::APPLIES_ALONE {
                WindowDelta::increase(Real::from_u64(u64::from(ack.acked)) / mine.cwnd.real())
            } else {
                self.avoidance.window_delta(&mine, ack, group)
            };
            self.state.cwnd = self.state.cwnd.adjusted_by(delta);
        }
    }
}

impl<A: CongestionAvoidance> Control for ClassicCc<A> {
    #[inline]
    fn on_ack(&mut self, ack: &Ack, group: &Group<'_>) -> u32 {
        let grows = ack.cwnd_limited && !ack.recovering;
        self.avoidance.on_ack(ack);
        self.slow_start.on_ack(&mut self.state, ack, grows, group.is_alone());
        if grows {
            self.grow(ack, group);
        }
        if group.is_alone() {
            self.slow_start.alone(&self.state, ack.round);
        }
        self.state.cwnd.floor().max(1)
    }

    fn on_congestion(&mut self, event: &CongestionEvent, group: &Group<'_>) -> u32 {
        let mine = self.stats(event.srtt);
        let reduced = self.avoidance.reduced_window(&mine, event, group);
        let (reduced, floor) = match (group.is_alone(), A::APPLIES_ALONE) {
            (true, false) => (mine.cwnd.half(), SSTHRESH_MIN),
            _ => (reduced, A::FLOOR),
        };
        self.slow_start.reduce(&mut self.state, &mine, event, reduced.max(floor), group);
        self.state.cwnd.floor().max(1)
    }

    #[inline]
    fn stats(&self, srtt: Span) -> SubflowStats {
        let State { cwnd, slow_start, .. } = self.state;
        let mut member = SubflowStats {
            cwnd,
            srtt,
            slow_start,
            loss_interval: 0,
            phase_at: Time::ZERO,
            packets_between_losses: 0,
            peak: Window::ZERO,
        };
        self.avoidance.publish(&mut member);
        member
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CongestionCause, Reno};
    use super::*;

    const ALONE: Group<'static> = Group { members: &[], me: 0 };

    fn ack(acked: u32) -> Ack {
        Ack {
            now: Time::ZERO,
            acked,
            round: 0,
            srtt: Span::from_millis(50),
            rtt: Span::ZERO,
            min_rtt: Span::ZERO,
            cwnd_limited: true,
            recovering: false,
        }
    }

    fn event(cause: CongestionCause) -> CongestionEvent {
        CongestionEvent { now: Time::ZERO, cause, srtt: Span::from_millis(50) }
    }

    fn fresh() -> ClassicCc<Reno> {
        ClassicCc::new(Reno, SlowStart::Standard)
    }

    #[test]
    fn a_life() {
        let mut reno = fresh();
        for want in [20, 40, 80] {
            let w = reno.state.cwnd.floor();
            assert_eq!(reno.on_ack(&ack(w), &ALONE), want, "slow start doubles");
        }
        assert_eq!(reno.on_congestion(&event(CongestionCause::Loss), &ALONE), 40);
        assert!(!reno.state.slow_start);
        // A window's packets, acknowledged one by one, add a little less than one packet.
        for _ in 0..40 {
            reno.on_ack(&ack(1), &ALONE);
        }
        assert!(reno.state.cwnd > Window(Window::ONE / 100 * 4098) && reno.state.cwnd < Window::packets(41));
        assert_eq!(reno.on_congestion(&event(CongestionCause::EcnCe), &ALONE), 20);
        assert_eq!(reno.on_congestion(&event(CongestionCause::Timeout), &ALONE), 1);
        let ssthresh = reno.state.ssthresh;
        assert_eq!(reno.on_congestion(&event(CongestionCause::Timeout), &ALONE), 1);
        assert_eq!(reno.state.ssthresh, ssthresh, "held by a second timeout");
        for want in [2, 4, 8, 10] {
            let w = reno.state.cwnd.floor();
            assert_eq!(reno.on_ack(&ack(w), &ALONE), want, "slow start ends at ssthresh");
        }
        assert!(!reno.state.slow_start);
    }

    #[test]
    fn grows_only_when_allowed() {
        for (cwnd_limited, recovering) in [(false, false), (true, true), (false, true)] {
            let mut reno = fresh();
            assert_eq!(reno.on_ack(&Ack { cwnd_limited, recovering, ..ack(10) }, &ALONE), 10);
        }
    }

    #[test]
    fn moved_by_the_world() {
        use super::super::FriendlySlowStart;
        for start in [SlowStart::Standard, SlowStart::Friendly(FriendlySlowStart::new())] {
            let mut reno = ClassicCc::new(Reno, start);
            reno.on_congestion(&event(CongestionCause::Loss), &ALONE);
            reno.set_window(1, Some(8));
            for want in [2, 4, 8] {
                let w = reno.state.cwnd.floor();
                assert_eq!(reno.on_ack(&ack(w), &ALONE), want, "slow start up to the world's ssthresh");
            }
            assert!(!reno.state.slow_start);
            reno.set_window(20, Some(8));
            assert!(!reno.state.slow_start && reno.on_ack(&ack(1), &ALONE) == 20);
            reno.set_window(0, None);
            assert_eq!((reno.state.cwnd, reno.state.slow_start), (Window::packets(1), true));
        }
    }

    #[test]
    fn floors_and_ceilings() {
        let mut reno = fresh();
        for _ in 0..9 {
            reno.on_congestion(&event(CongestionCause::Loss), &ALONE);
        }
        assert_eq!(reno.state.cwnd, Window::packets(2));
        reno.on_congestion(&event(CongestionCause::Timeout), &ALONE);
        assert_eq!(reno.on_congestion(&event(CongestionCause::Loss), &ALONE), 1);
        let mut reno = fresh();
        assert_eq!(Window::packets(reno.on_ack(&ack(u32::MAX), &ALONE)), Window::MAX);
    }

    #[test]
    fn the_increment_is_exact_at_any_window() {
        for w in [1, 2, 10, 1_000, 1_000_000] {
            let mut reno = fresh();
            (reno.state.cwnd, reno.state.slow_start) = (Window::packets(w), false);
            reno.on_ack(&ack(1), &ALONE);
            let grown = (reno.state.cwnd.0 - Window::packets(w).0) as f64 / Window::ONE as f64;
            assert!((grown * f64::from(w) - 1.0).abs() < 1e-5, "{w}: {grown}");
        }
    }
}
