//! World `kernel`: a scenario through this machine's own TCP and MPTCP.
//!
//! ```text
//!   namespace F.tx                the emulator                    namespace F.rx
//!   MPTCP or TCP socket ── p0 ──▶ links of path 0 ──▶ p0 ── MPTCP or TCP socket
//!   (controller F's)    └─ p1 ──▶ links of path 1 ──▶ p1 ─┘
//! ```
//!
//! Each flow has two hosts, namespaces of their own ([`testbed`]); the simulator's links, in real time, join
//! them; sockets are opened in them and kept busy (`traffic`), and what is delivered, dropped and queued is
//! noted at the times at which the simulator would. Measures and conditions are the same in both worlds. What
//! this one cannot see (the groups that a controller believes in, NMCC's m) has no value.
//!
//! **What differs.** Goodput is payload in both worlds: of a packet of 1,500 bytes 1,448 are of TCP, 1,428
//! of MPTCP. Shares count whole packets, as if all were full. ECN is on in the hosts of flows whose data
//! crosses a link that marks, and off elsewhere, where it has no effect. A flow begins when its socket
//! connects: the handshakes are part of its time. Bytes of a path are what its subflow had acknowledged, in
//! whatever order they can be read. Loss detection, timers, pacing and the choice of a path for each byte
//! are the kernel's.
//!
//! **A run that cannot be trusted says so.** Beside the scenario's conditions: each path has its subflow in
//! time, each subflow the controller asked for; the emulated links hand 99 % of the packets of each path and
//! direction over within a tenth of the path's delay of their time ([`LATE_PARTS`]), and lose none that they
//! should not. The lateness that is reported is the same number: the 99th percentile of the latest path.
//!
//! **What is left behind.** Nothing, however it ends: namespaces, devices and sockets are held by descriptors
//! of this process alone, and sockets end without lingering.

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
use crate::scenario::{Groups, Scenario, SizeSpec, Transport};
use crate::task::Task;

/// A packet of the 99th percentile may be late by the path's delay over this.
pub const LATE_PARTS: u64 = 10;
/// The most flows of a scenario, copies counted: each has a number in its addresses.
pub const FLOWS_MAX: usize = 250;
/// The most paths of a flow: the kernel's MPTCP adds at most eight subflows to the first
/// (`MPTCP_PM_ADDR_MAX`).
pub const PATHS_MAX: usize = 9;
/// The least packet, bytes: MPTCP's and TCP's options take up to 40 of its 100 bytes of headers.
pub const PACKET_BYTES_MIN: u64 = 256;
/// The most runs side by side unless somebody asks for more.
pub const JOBS_MAX: usize = 32;
/// What the emulated links of all runs may carry on one core, packets a second, so that they are in time.
const PACKETS_PER_CORE: u64 = 20_000;
/// Packets in both directions for each packet of data: there is an acknowledgement for two.
const WITH_ACKS: (u64, u64) = (3, 2);

/// Controllers that are part of every kernel.
const BUILT_IN: [&str; 2] = ["reno", "cubic"];

/// What the kernel calls a controller of this house; none if it cannot be had now.
fn kernel_name(algorithm: &str) -> Option<String> {
    anabranch_kernel::controllers::linux_name(algorithm).ok().flatten()
}

/// Runs `scenario` once, in real time, as it stands: its cases are not looked at. Takes as long as the
/// scenario lasts, and a moment.
///
/// # Errors
/// That it cannot be run here, or that `stop` was set before its end.
pub fn run(scenario: &Scenario, controller: &str, seed: u64, stop: &AtomicBool) -> Result<Outcome, String> {
    supports(scenario)?;
    loaded(scenario, controller)?;
    #[cfg(target_os = "linux")]
    return traffic::run(scenario, controller, seed, stop);
    #[cfg(not(target_os = "linux"))]
    return Err(format!("only Linux has this world (seed {seed}, {stop:?})"));
}

/// Whether this world can run these tasks, here and now: nothing is begun before that is known.
///
/// # Errors
/// What is in the way, and what to do.
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

/// How many of these tasks may run side by side without being late: by what their links can carry.
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

/// Whether this world has what the scenario asks for.
///
/// # Errors
/// What it does not have, and what to write instead.
pub fn supports(scenario: &Scenario) -> Result<(), String> {
    let refuse = |what: String| Err(format!("the world `kernel` {what}"));
    match scenario.packet {
        SizeSpec::Bytes(bytes) if bytes >= PACKET_BYTES_MIN => {}
        _ => return refuse(format!("needs packets of at least {PACKET_BYTES_MIN} B")),
    }
    for (name, flow) in &scenario.flow {
        if flow.transport != Transport::Packet {
            return refuse(format!("has no mmTP and no mirrors: flow.{name}.transport must be `packet`"));
        }
        if flow.arrivals.is_some() {
            return refuse(format!("has one transfer a flow: flow.{name}.arrivals must not be set"));
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

/// Whether the kernel has the controllers of all flows.
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
