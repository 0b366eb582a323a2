//! Reads the numbers that the subflows of each connection publish for each other, and NMCC's factors from
//! them.

use anabranch_algo::control::SubflowStats;

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::Result;
#[cfg(any(feature = "ebpf", test))]
use crate::bpf_abi::AnbSlot;
use crate::connection_monitor::{ControllerStats, NmccFactors};
use crate::controllers::Controller;

#[cfg(any(feature = "ebpf", test))]
const SLOT_BYTES: usize = size_of::<AnbSlot>();

/// The numbers that a subflow has published.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PublishedSubflow {
    /// The controller of the subflow.
    pub controller: &'static Controller,
    /// A number of the connection that no other existing connection has.
    pub connection: u64,
    /// The connection's local token.
    pub token: u32,
    /// The socket's cookie (`SO_COOKIE`); zero until a program has asked for it.
    pub cookie: u64,
    /// The number of the group. A subflow that a rule sets apart has a number from 2³¹ on.
    pub group: u32,
    /// The published numbers.
    pub member: SubflowStats,
    /// NMCC's m, if the subflow has siblings and a measured round-trip time.
    pub m: Option<f64>,
    /// NMCC's m_t, under the same conditions as `m`.
    pub m_t: Option<f64>,
}

/// Returns every subflow that runs one of our controllers.
///
/// # Errors
/// If the pins may not be opened.
pub fn all() -> Result<Vec<PublishedSubflow>> {
    #[cfg(feature = "ebpf")]
    return map::all();
    #[cfg(not(feature = "ebpf"))]
    Ok(Vec::new())
}

/// The factors of all subflows as of the last refresh, for [`connection_monitor`](crate::connection_monitor).
#[derive(Debug, Default)]
pub struct BpfControllerStats(Mutex<BTreeMap<u64, NmccFactors>>);

impl ControllerStats for BpfControllerStats {
    fn refresh(&self) {
        let known = |p: PublishedSubflow| Some((p.cookie, NmccFactors { m: p.m?, m_t: p.m_t? }));
        // If this process may not read the maps, the rest of the snapshot is still worth showing.
        let all = all().unwrap_or_default().into_iter().filter_map(known).collect();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = all;
    }

    fn factors(&self, cookie: u64) -> Option<NmccFactors> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&cookie).copied()
    }
}

/// Parses a slot of a connection as the eBPF programs store it; `None` if no subflow owns the slot.
#[cfg(any(feature = "ebpf", test))]
fn parse_slot(bytes: &[u8]) -> Option<AnbSlot> {
    use anabranch_algo::control::Window;
    use anabranch_algo::{Span, Time};
    use std::mem::offset_of;
    let bytes: &[u8; SLOT_BYTES] = bytes.try_into().ok()?;
    let u64_at = |at: usize| u64::from_ne_bytes(std::array::from_fn(|i| bytes[at + i]));
    let u32_at = |at: usize| u32::from_ne_bytes(std::array::from_fn(|i| bytes[at + i]));
    let slot = AnbSlot {
        owner: u64_at(offset_of!(AnbSlot, owner)),
        cookie: u64_at(offset_of!(AnbSlot, cookie)),
        at_ns: u64_at(offset_of!(AnbSlot, at_ns)),
        group: u32_at(offset_of!(AnbSlot, group)),
        token: u32_at(offset_of!(AnbSlot, token)),
        stats: SubflowStats {
            cwnd: Window::from_units(u64_at(offset_of!(AnbSlot, stats.cwnd))),
            srtt: Span::from_nanos(u64_at(offset_of!(AnbSlot, stats.srtt))),
            slow_start: bytes[offset_of!(AnbSlot, stats.slow_start)] != 0,
            loss_interval: u64_at(offset_of!(AnbSlot, stats.loss_interval)),
            phase_at: Time::from_nanos(u64_at(offset_of!(AnbSlot, stats.phase_at))),
            packets_between_losses: u64_at(offset_of!(AnbSlot, stats.packets_between_losses)),
            peak: Window::from_units(u64_at(offset_of!(AnbSlot, stats.peak))),
        },
    };
    (slot.owner != 0 && slot.stats.cwnd > Window::ZERO).then_some(slot)
}

#[cfg(feature = "ebpf")]
mod map {
    use anabranch_algo::control::{Group, NmccFactors, SubflowStats};
    use anabranch_algo::softfloat::Real;
    use libbpf_rs::{MapCore as _, MapFlags};

    use super::{PublishedSubflow, SLOT_BYTES, parse_slot};
    use crate::controllers::{Controller, loaded};
    use crate::{Error, Result};

    fn float(x: Real) -> f64 {
        // Factors are small, so 40 binary places are exact enough.
        x.to_fixed(40) as f64 / (1_u64 << 40) as f64
    }

    pub(super) fn all() -> Result<Vec<PublishedSubflow>> {
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
        all: &mut Vec<PublishedSubflow>,
    ) {
        let slots: Vec<_> = value.chunks_exact(SLOT_BYTES).filter_map(parse_slot).collect();
        for slot in &slots {
            let same = slots.iter().filter(|other| other.group == slot.group);
            let members: Vec<SubflowStats> = same.clone().map(|other| other.stats).collect();
            let me = same.clone().position(|other| other.owner == slot.owner).unwrap_or(0);
            let group_of = Group { members: &members, me };
            let factors = NmccFactors::of(&group_of).filter(|_| members.len() > 1);
            all.push(PublishedSubflow {
                controller,
                connection,
                token: slot.token,
                cookie: slot.cookie,
                group: slot.group,
                member: slot.stats,
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
        assert!(parse_slot(&bytes).is_none(), "nobody's");
        for (at, value) in [(0, 1_u64), (8, 2), (16, 3), (32, 10 << 40), (40, 7), (56, 8), (72, 9)] {
            bytes[at..at + 8].copy_from_slice(&value.to_ne_bytes());
        }
        bytes[24..28].copy_from_slice(&4_u32.to_ne_bytes());
        bytes[28..32].copy_from_slice(&5_u32.to_ne_bytes());
        let slot = parse_slot(&bytes).expect("somebody's");
        assert_eq!((slot.owner, slot.cookie, slot.at_ns, slot.group, slot.token), (1, 2, 3, 4, 5));
        let stats = slot.stats;
        assert_eq!((stats.cwnd.floor(), stats.srtt.as_nanos()), (10, 7));
        assert_eq!((stats.loss_interval, stats.packets_between_losses), (8, 9));
        assert!(parse_slot(&bytes[1..]).is_none());
    }
}
