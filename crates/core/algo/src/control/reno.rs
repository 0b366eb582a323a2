//! Implements Reno: RFC 5681, uncoupled. [`ClassicCc`](super::ClassicCc) does nearly all of it for every
//! algorithm; by the rule itself, each packet that arrives adds 1/w and a loss halves the window.

use super::{Ack, CongestionAvoidance, Group, SubflowStats, WindowDelta};
use crate::softfloat::Real;

/// Implements uncoupled TCP for one subflow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Reno;

impl CongestionAvoidance for Reno {
    #[inline]
    fn window_delta(&mut self, mine: &SubflowStats, ack: &Ack, _group: &Group<'_>) -> WindowDelta {
        WindowDelta::increase(Real::from_u64(u64::from(ack.acked)) / mine.cwnd.real())
    }
}
