//! Reno: RFC 5681, uncoupled. All of it is what [`Tcp`](super::Tcp) does for every algorithm; the rule is
//! that each packet that arrives adds 1/w and that a loss leaves half.

use super::{Ack, Change, Group, Member, Rule};
use crate::real::Real;

/// Uncoupled TCP of one subflow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Reno;

impl Rule for Reno {
    #[inline]
    fn change(&mut self, mine: &Member, ack: &Ack, _group: &Group<'_>) -> Change {
        Change::more(Real::from_u64(u64::from(ack.acked)) / mine.cwnd.real())
    }
}
