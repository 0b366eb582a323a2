//! Reno: RFC 5681, uncoupled. All of it is what [`ClassicCc`](super::ClassicCc) does for every algorithm; the
//! rule is that each packet that arrives adds 1/w and that a loss leaves half.

use super::{Ack, CongestionAvoidance, Group, SubflowStats, WindowDelta};
use crate::softfloat::Real;

/// Uncoupled TCP of one subflow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Reno;

impl CongestionAvoidance for Reno {
    #[inline]
    fn window_delta(&mut self, mine: &SubflowStats, ack: &Ack, _group: &Group<'_>) -> WindowDelta {
        WindowDelta::increase(Real::from_u64(u64::from(ack.acked)) / mine.cwnd.real())
    }
}
