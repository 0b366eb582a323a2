//! Runs a scenario in the world `kernel`: through this machine's own TCP and MPTCP.
//!
//! ```text
//!   namespace F.tx                the emulator                    namespace F.rx
//!   MPTCP or TCP socket ── p0 ──▶ links of path 0 ──▶ p0 ── MPTCP or TCP socket
//!   (controller F's)    └─ p1 ──▶ links of path 1 ──▶ p1 ─┘
//! ```
//!
//! Each flow has two hosts, namespaces of their own ([`testbed`]); the simulator's links, in real time, join
//! them. Sockets are opened in them and kept busy (`traffic`). Delivered, dropped and queued bytes are
//! recorded at the times at which the simulator would record them. Measures and conditions are equal in both
//! worlds. Values that the kernel does not show (the groups that a controller believes in, NMCC's m) are
//! missing.
//!
//! **Differences.** Goodput is payload in both worlds: a packet of 1,500 bytes has 1,448 bytes of payload
//! with TCP and 1,428 with MPTCP. Shares count whole packets, as if all were full. ECN is on in the hosts of
//! flows whose data crosses a link that marks, and off elsewhere, where it has no effect. A flow begins when
//! its socket connects: the handshakes are part of its time. The bytes of a path are those that its subflow
//! had acknowledged, in any order. The kernel decides loss detection, timers, pacing and the path of each
//! byte.
//!
//! **Checks.** A run counts only if, beside the scenario's conditions, each path has its subflow in time and
//! each subflow has the requested controller. The emulated links must deliver 99 % of the packets of each
//! path and direction late by at most a tenth of the path's delay ([`LATE_PARTS`]), and must lose no packets
//! that they should carry. The reported lateness is this number: the 99th percentile of the latest path.
//!
//! **Cleaning up.** A run leaves nothing behind, however it ends: only descriptors of this process hold
//! namespaces, devices and sockets, and sockets close without lingering.

#[cfg(target_os = "linux")]
pub mod domain_bed;
#[cfg(target_os = "linux")]
mod flow;
#[cfg(target_os = "linux")]
mod snapshot;
#[cfg(target_os = "linux")]
pub mod testbed;
#[cfg(target_os = "linux")]
mod traffic;

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;

use crate::outcome::Outcome;
use crate::run::flow_instances::flow_instances;
use crate::scenario::{Groups, Scenario, SizeSpec, Steering, Transport};
use crate::task::Task;

/// The 99th percentile of packet lateness may be the path's delay divided by this.
pub const LATE_PARTS: u64 = 10;
/// Most flows of a scenario, with copies: each has a number in its addresses.
pub const FLOWS_MAX: usize = 250;
/// Most paths of a flow: the kernel's MPTCP adds at most eight subflows to the first (`MPTCP_PM_ADDR_MAX`).
pub const PATHS_MAX: usize = 9;
/// Smallest packet, bytes: MPTCP's and TCP's options take up to 40 of its 100 bytes of headers.
pub const PACKET_BYTES_MIN: u64 = 256;
/// Most runs side by side, unless the caller chooses more.
pub const JOBS_MAX: usize = 32;
/// Packets a second that the emulated links of all runs may carry per core without being late.
const PACKETS_PER_CORE: u64 = 20_000;
/// Packets in both directions per packet of data, as a fraction: each acknowledgement covers two packets.
const WITH_ACKS: (u64, u64) = (3, 2);

/// Controllers that every kernel has.
const BUILT_IN: [&str; 2] = ["reno", "cubic"];

/// Returns the kernel's name of an Anabranch controller; `None` if it is not available now.
fn kernel_name(algorithm: &str) -> Option<String> {
    anabranch_kernel::controllers::linux_name(algorithm).ok().flatten()
}

/// Runs `scenario` once, in real time, without its cases. The call takes slightly longer than the scenario's
/// duration.
///
/// # Errors
/// If this machine cannot run it, or `stop` was set before its end.
pub fn run(scenario: &Scenario, controller: &str, seed: u64, stop: &AtomicBool) -> Result<Outcome, String> {
    supports(scenario)?;
    loaded(scenario, controller)?;
    #[cfg(target_os = "linux")]
    return traffic::run(scenario, controller, seed, stop);
    #[cfg(not(target_os = "linux"))]
    return Err(format!("only Linux has this world (seed {seed}, {stop:?})"));
}

/// Checks whether this machine can run all of these tasks now, before any of them begins.
///
/// # Errors
/// If it cannot; the error says why, and what to do.
pub fn ready(tasks: &[Task]) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for task in tasks.iter().filter(|task| seen.insert((task.variant, &task.controller))) {
        supports(&task.scenario)?;
        loaded(&task.scenario, &task.controller)?;
    }
    #[cfg(target_os = "linux")]
    if !tasks.is_empty() {
        testbed::allowed().map_err(|e| format!("the world `kernel` cannot run here: {e}"))?;
    }
    #[cfg(not(target_os = "linux"))]
    if !tasks.is_empty() {
        return Err("only Linux has the world `kernel`".into());
    }
    Ok(())
}

/// Returns how many of these tasks may run side by side without being late, from the load of their links.
#[must_use]
pub fn jobs(tasks: &[Task]) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let most = tasks.iter().map(|task| packets_per_sec(&task.scenario)).max().unwrap_or(0).max(1);
    usize::try_from(cores * PACKETS_PER_CORE / most).unwrap_or(JOBS_MAX).clamp(1, JOBS_MAX)
}

fn packets_per_sec(scenario: &Scenario) -> u64 {
    let SizeSpec::Bytes(packet) = scenario.packet else { return u64::MAX };
    let rates = scenario.link.values().filter_map(|link| link.rate).map(|rate| rate.rate(packet).as_bytes());
    rates.sum::<u64>() / packet * WITH_ACKS.0 / WITH_ACKS.1
}

/// Checks whether the world `kernel` supports everything that the scenario uses.
///
/// # Errors
/// If it does not; the error names the unsupported part, and what to write instead.
pub fn supports(scenario: &Scenario) -> Result<(), String> {
    let refuse = |what: String| Err(format!("the world `kernel` {what}"));
    match scenario.packet {
        SizeSpec::Bytes(bytes) if bytes >= PACKET_BYTES_MIN => {}
        _ => return refuse(format!("needs packets of at least {PACKET_BYTES_MIN} B")),
    }
    for (name, flow) in &scenario.flow {
        if flow.transport != Transport::Packet {
            return refuse(format!(
                "has its own TCP, and no mmTP and no mirrors: flow.{name}.transport must be `packet`"
            ));
        }
        if flow.arrivals.is_some() {
            return refuse(format!("has one transfer a flow: flow.{name}.arrivals must not be set"));
        }
        if flow.steering != Steering::None {
            return refuse(format!("has no WiFi receivers: flow.{name}.steering must be `none`"));
        }
        if flow.groups == Groups::Auto {
            return refuse(format!("does not detect groups: flow.{name}.groups must not be `auto`"));
        }
        if flow.paths.len() > PATHS_MAX {
            return refuse(format!("has at most {PATHS_MAX} paths a flow: flow.{name}.paths has more"));
        }
    }
    let flows: usize = scenario.flow.values().map(|flow| flow.count as usize).sum();
    if flows > FLOWS_MAX {
        return refuse(format!("has at most {FLOWS_MAX} flows, and there are {flows}"));
    }
    Ok(())
}

/// Checks whether the kernel has the controllers of all flows.
fn loaded(scenario: &Scenario, controller: &str) -> Result<(), String> {
    let missing =
        flow_instances(scenario, controller, 1).find(|instance| kernel_name(instance.controller).is_none());
    missing.map_or(Ok(()), |instance| {
        let name = instance.controller;
        if scenario.controllers.known.is_own(name) {
            return Err(format!("the world `kernel` has no controller `{name}`: this program brings it"));
        }
        Err(format!("this kernel has no controller `{name}`: load it first: anabranch kernel load {name}"))
    })
}
