//! What all controllers have in common: RFC 5681 sections 3.1 and 3.2, with byte (here: packet) counting
//! after RFC 3465 and the initial window of RFC 6928.
//!
//! * Slow start (w < ssthresh): as the [`Start`] has it. The standard: +1 packet for each packet that
//!   arrived.
//! * Congestion avoidance: as the [`Rule`] has it; alone, +1/w for each packet that arrived.
//! * Loss or mark (RFC 3168 section 6.1.2: as a loss): ssthresh = what the rule leaves of w, at least its
//!   floor; w = ssthresh. Flight size is taken to be w, as the window only grows when it is the limit.
//! * Timeout: the same ssthresh, w = 1. A second timeout without growth in between leaves ssthresh alone (RFC
//!   5681 section 3.1).
//! * Slow start, once over, comes back by such an event only: a rule that takes from the window in congestion
//!   avoidance (OLIA, wVegas) does not fall back into it.
//!
//! Recovery itself (what to ask again, when) is the world's.

use super::{Ack, Budget, Cause, Change, Control, Group, INITIAL_WINDOW, Loss, Member, Rule, Start, Window};
use crate::real::Real;
use crate::{Span, Time};

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

    /// A congestion event that leaves `left`, RFC 5681 section 3.1.
    pub(super) fn cut(&mut self, cause: Cause, left: Window) {
        let timeout = cause == Cause::Timeout;
        if !timeout || self.cwnd > Window::packets(1) {
            self.ssthresh = left;
        }
        // A loss never raises a window of one packet to the least ssthresh.
        self.cwnd = if timeout { Window::packets(1) } else { self.cwnd.min(self.ssthresh) };
        self.slow_start = self.cwnd < self.ssthresh;
    }

    /// Congestion avoidance from here, at `cwnd` or what there is.
    pub(super) fn leave_slow_start(&mut self, cwnd: Window) {
        self.cwnd = cwnd.max(SSTHRESH_MIN).min(self.cwnd);
        (self.ssthresh, self.slow_start) = (self.cwnd, false);
    }
}

/// Congestion control of one subflow: a window that is moved by a [`Rule`], after a [`Start`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Tcp<R> {
    pub(super) state: State,
    pub(super) start: Start,
    pub(super) rule: R,
}

impl<R: Rule> Tcp<R> {
    /// At the initial window, in slow start.
    #[must_use]
    pub const fn new(rule: R, start: Start) -> Self {
        Self { state: State::INITIAL, start, rule }
    }

    /// Where it stands.
    #[must_use]
    pub const fn state(&self) -> &State {
        &self.state
    }

    /// The world has set window and ssthresh itself, as a kernel does after idle times, after a timeout and
    /// when it takes a reduction back. `ssthresh` is in packets; none: arbitrarily high.
    pub fn moved(&mut self, cwnd: u32, ssthresh: Option<u32>) {
        self.state.cwnd = Window::packets(cwnd.max(1));
        self.state.ssthresh = ssthresh.map_or(SSTHRESH_INITIAL, Window::packets);
        self.state.slow_start = self.state.cwnd < self.state.ssthresh;
        self.start.moved(&mut self.state);
    }

    #[inline]
    fn grow(&mut self, ack: &Ack, group: &Group<'_>) {
        let mine = self.member(ack.srtt);
        if self.state.slow_start {
            match self.rule.leave(&mine, ack) {
                Some(cwnd) => self.state.leave_slow_start(cwnd),
                None => self.start.grow(&mut self.state, &mine, ack, group),
            }
        } else {
            let change = if group.is_alone() && !R::ALONE {
                Change::more(Real::from_u64(u64::from(ack.acked)) / mine.cwnd.real())
            } else {
                self.rule.change(&mine, ack, group)
            };
            self.state.cwnd = self.state.cwnd.changed(change);
        }
    }
}

impl<R: Rule> Control for Tcp<R> {
    #[inline]
    fn on_ack(&mut self, ack: &Ack, group: &Group<'_>) -> Budget {
        let grows = ack.limited && !ack.recovering;
        self.rule.arrived(ack);
        self.start.arrived(&mut self.state, ack, grows, group.is_alone());
        if grows {
            self.grow(ack, group);
        }
        if group.is_alone() {
            self.start.alone(&self.state, ack.round);
        }
        self.state.cwnd.budget()
    }

    fn on_congestion(&mut self, loss: &Loss, group: &Group<'_>) -> Budget {
        let mine = self.member(loss.srtt);
        let left = self.rule.left(&mine, loss, group);
        let (left, floor) = match (group.is_alone(), R::ALONE) {
            (true, false) => (mine.cwnd.half(), SSTHRESH_MIN),
            _ => (left, R::FLOOR),
        };
        self.start.cut(&mut self.state, &mine, loss, left.max(floor), group);
        self.rule.settled(loss, mine.cwnd.beyond(self.state.cwnd));
        self.state.cwnd.budget()
    }

    #[inline]
    fn member(&self, srtt: Span) -> Member {
        let State { cwnd, slow_start, .. } = self.state;
        let mut member =
            Member { cwnd, srtt, slow_start, interval: 0, cut: Window(0), cut_at: Time::ZERO, clear: 0 };
        self.rule.publish(&mut member);
        member
    }
}

#[cfg(test)]
mod tests {
    use super::super::Reno;
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
            limited: true,
            recovering: false,
        }
    }

    fn event(cause: Cause) -> Loss {
        Loss { now: Time::ZERO, cause, srtt: Span::from_millis(50) }
    }

    fn fresh() -> Tcp<Reno> {
        Tcp::new(Reno, Start::Standard)
    }

    #[test]
    fn a_life() {
        let mut reno = fresh();
        for want in [20, 40, 80] {
            let w = reno.state.cwnd.floor();
            assert_eq!(reno.on_ack(&ack(w), &ALONE).cwnd, want, "slow start doubles");
        }
        assert_eq!(reno.on_congestion(&event(Cause::Loss), &ALONE).cwnd, 40);
        assert!(!reno.state.slow_start);
        // One window's packets, each alone, make a little less than one more packet.
        for _ in 0..40 {
            reno.on_ack(&ack(1), &ALONE);
        }
        assert!(reno.state.cwnd > Window(Window::ONE / 100 * 4098) && reno.state.cwnd < Window::packets(41));
        assert_eq!(reno.on_congestion(&event(Cause::Mark), &ALONE).cwnd, 20);
        assert_eq!(reno.on_congestion(&event(Cause::Timeout), &ALONE).cwnd, 1);
        let ssthresh = reno.state.ssthresh;
        assert_eq!(reno.on_congestion(&event(Cause::Timeout), &ALONE).cwnd, 1);
        assert_eq!(reno.state.ssthresh, ssthresh, "held by a second timeout");
        for want in [2, 4, 8, 10] {
            let w = reno.state.cwnd.floor();
            assert_eq!(reno.on_ack(&ack(w), &ALONE).cwnd, want, "slow start ends at ssthresh");
        }
        assert!(!reno.state.slow_start);
    }

    #[test]
    fn grows_only_when_allowed() {
        for (limited, recovering) in [(false, false), (true, true), (false, true)] {
            let mut reno = fresh();
            assert_eq!(reno.on_ack(&Ack { limited, recovering, ..ack(10) }, &ALONE).cwnd, 10);
        }
    }

    #[test]
    fn moved_by_the_world() {
        use super::super::Friendly;
        for start in [Start::Standard, Start::Friendly(Friendly::new())] {
            let mut reno = Tcp::new(Reno, start);
            reno.on_congestion(&event(Cause::Loss), &ALONE);
            reno.moved(1, Some(8));
            for want in [2, 4, 8] {
                let w = reno.state.cwnd.floor();
                assert_eq!(reno.on_ack(&ack(w), &ALONE).cwnd, want, "slow start up to the world's ssthresh");
            }
            assert!(!reno.state.slow_start);
            reno.moved(20, Some(8));
            assert!(!reno.state.slow_start && reno.on_ack(&ack(1), &ALONE).cwnd == 20);
            reno.moved(0, None);
            assert_eq!((reno.state.cwnd, reno.state.slow_start), (Window::packets(1), true));
        }
    }

    #[test]
    fn floors_and_ceilings() {
        let mut reno = fresh();
        for _ in 0..9 {
            reno.on_congestion(&event(Cause::Loss), &ALONE);
        }
        assert_eq!(reno.state.cwnd, Window::packets(2));
        reno.on_congestion(&event(Cause::Timeout), &ALONE);
        assert_eq!(reno.on_congestion(&event(Cause::Loss), &ALONE).cwnd, 1);
        let mut reno = fresh();
        assert_eq!(Window::packets(reno.on_ack(&ack(u32::MAX), &ALONE).cwnd), Window::MAX);
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
