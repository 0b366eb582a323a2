//! What the subflows of each connection have published for each other, and what NMCC makes of it.

use algo::control::SubflowStats;

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::Result;
use crate::connection_monitor::{ControllerStats, NmccFactors};
use crate::controllers::Controller;

/// Bytes of a subflow's place: `struct anb_slot`.
#[cfg(any(feature = "ebpf", test))]
const SLOT_BYTES: usize = 88;

/// A subflow that has published.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SubflowState {
    /// Its controller.
    pub controller: &'static Controller,
    /// The connection, by a number that no other one has at the time.
    pub connection: u64,
    /// The connection's local token.
    pub token: u32,
    /// The socket's cookie (`SO_COOKIE`); zero before anybody has asked for it.
    pub cookie: u64,
    /// Its group; of those that are each apart, from 2³¹ on.
    pub group: u32,
    /// Its numbers.
    pub member: SubflowStats,
    /// NMCC's m, if it has siblings and a round-trip time.
    pub m: Option<f64>,
    /// NMCC's m_t.
    pub m_t: Option<f64>,
}

/// Every subflow that runs one of our controllers.
///
/// # Errors
/// If the pins may not be opened.
pub fn all() -> Result<Vec<SubflowState>> {
    #[cfg(feature = "ebpf")]
    return map::all();
    #[cfg(not(feature = "ebpf"))]
    Ok(Vec::new())
}

/// The factors of all subflows as of the last snapshot, for
/// [`connection_monitor`](crate::connection_monitor).
#[derive(Debug, Default)]
pub struct BpfControllerStats(Mutex<BTreeMap<u64, NmccFactors>>);

impl ControllerStats for BpfControllerStats {
    fn refresh(&self) {
        let known = |p: SubflowState| Some((p.cookie, NmccFactors { m: p.m?, m_t: p.m_t? }));
        // Not being allowed to look is no reason not to show the rest.
        let all = all().unwrap_or_default().into_iter().filter_map(known).collect();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = all;
    }

    fn factors(&self, cookie: u64) -> Option<NmccFactors> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&cookie).copied()
    }
}

/// A place as the programs have it: whose, group, token, when in ns, and the subflow. None if it is nobody's.
#[cfg(any(feature = "ebpf", test))]
fn parse_slot(bytes: &[u8]) -> Option<(u64, u32, u32, u64, SubflowStats)> {
    use algo::control::Window;
    use algo::{Span, Time};
    let bytes: &[u8; SLOT_BYTES] = bytes.try_into().ok()?;
    let long = |at: usize| u64::from_ne_bytes(std::array::from_fn(|i| bytes[at + i]));
    let word = |at: usize| u32::from_ne_bytes(std::array::from_fn(|i| bytes[at + i]));
    let member = SubflowStats {
        cwnd: Window(long(32)),
        srtt: Span::from_nanos(long(40)),
        slow_start: bytes[48] != 0,
        loss_interval: long(56),
        reduction: Window(long(64)),
        reduced_at: Time::from_nanos(long(72)),
        packets_between_losses: long(80),
    };
    (long(0) != 0 && member.cwnd.0 > 0).then(|| (long(8), word(24), word(28), long(16), member))
}

#[cfg(feature = "ebpf")]
mod map {
    use algo::Time;
    use algo::control::{Group, NmccFactors, SubflowStats};
    use algo::softfloat::Real;
    use libbpf_rs::{MapCore as _, MapFlags};

    use super::{SLOT_BYTES, SubflowState, parse_slot};
    use crate::controllers::{Controller, loaded};
    use crate::{Error, Result};

    fn float(x: Real) -> f64 {
        // Factors are small: 2⁻⁴⁰ is exact enough.
        x.to_fixed(40) as f64 / (1_u64 << 40) as f64
    }

    pub(super) fn all() -> Result<Vec<SubflowState>> {
        let mut published = Vec::new();
        for controller in loaded() {
            let Some(map) = crate::bpf_object::open_pinned(&controller.pin_dir().join("connections"))? else {
                continue;
            };
            for key in map.keys() {
                let wrong = |e: libbpf_rs::Error| Error::Refused(format!("cannot read the connections: {e}"));
                let Some(value) = map.lookup(&key, MapFlags::ANY).map_err(wrong)? else { continue };
                let connection = key.try_into().map_or(0, u64::from_ne_bytes);
                push_subflows(controller, connection, &value, &mut published);
            }
        }
        Ok(published)
    }

    fn push_subflows(
        controller: &'static Controller,
        connection: u64,
        value: &[u8],
        all: &mut Vec<SubflowState>,
    ) {
        let slots: Vec<_> = value.chunks_exact(SLOT_BYTES).filter_map(parse_slot).collect();
        for (cookie, group, token, at, member) in &slots {
            let same = slots.iter().filter(|other| other.1 == *group);
            let members: Vec<SubflowStats> = same.clone().map(|other| other.4).collect();
            let me = same.clone().position(|other| other.4 == *member).unwrap_or(0);
            let group_of = Group { members: &members, me };
            let factors = NmccFactors::of(Time::from_nanos(*at), &group_of).filter(|_| members.len() > 1);
            all.push(SubflowState {
                controller,
                connection,
                token: *token,
                cookie: *cookie,
                group: *group,
                member: *member,
                m: factors.map(|factors| float(factors.m2).sqrt()),
                m_t: factors.map(|factors| float(factors.m_t)),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_as_the_programs_have_it() {
        let mut bytes = [0_u8; SLOT_BYTES];
        assert_eq!(parse_slot(&bytes), None, "nobody's");
        for (at, value) in [(0, 1_u64), (8, 2), (16, 3), (32, 10 << 40), (40, 7), (56, 8), (80, 9)] {
            bytes[at..at + 8].copy_from_slice(&value.to_ne_bytes());
        }
        bytes[24..28].copy_from_slice(&4_u32.to_ne_bytes());
        bytes[28..32].copy_from_slice(&5_u32.to_ne_bytes());
        let (cookie, group, token, at, member) = parse_slot(&bytes).expect("somebody's");
        assert_eq!((cookie, group, token, at), (2, 4, 5, 3));
        assert_eq!(
            (
                member.cwnd.floor(),
                member.srtt.as_nanos(),
                member.loss_interval,
                member.packets_between_losses
            ),
            (10, 7, 8, 9)
        );
        assert_eq!(parse_slot(&bytes[1..]), None);
    }
}
