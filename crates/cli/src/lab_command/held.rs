//! Keeps a laboratory up: its hosts and links, and its state for reports.

use std::os::fd::{AsFd as _, AsRawFd as _};

use anabranch_emulator::Snapshot;
use anabranch_lab::linux::testbed::{Testbed, violations};
use anabranch_lab::scenario::Scenario;
use serde::{Deserialize, Serialize};

use super::args::Hold;
use crate::exit::Outcome;
use crate::holder::daemon::{self, Held};
use crate::holder::report::{self, Lateness, LinkCounts};
use crate::holder::{self, Kind, orphans};

/// Describes a laboratory and its present state.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct State {
    pub(super) name: String,
    pub(super) title: String,
    /// The number of the process that holds the laboratory.
    pub(super) pid: u32,
    pub(super) up_s: f64,
    pub(super) hosts: Vec<Host>,
    pub(super) links: Vec<Link>,
    #[serde(flatten)]
    pub(super) lateness: Lateness,
    /// The reasons why measurements on the laboratory should not be trusted.
    #[serde(rename = "faults")]
    pub(super) violations: Vec<String>,
}

/// Describes a host.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Host {
    pub(super) name: String,
    /// The descriptor of its namespace in the holder.
    pub(super) fd: i32,
    pub(super) addresses: Vec<String>,
    /// The address of the host at the other end.
    pub(super) peer: String,
    /// The round-trip time of each path without queues, in milliseconds.
    pub(super) rtts_ms: Vec<f64>,
}

/// Describes a link.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Link {
    pub(super) name: String,
    /// The rate as the scenario writes it, if it has one.
    pub(super) rate: Option<String>,
    #[serde(flatten)]
    pub(super) counts: LinkCounts,
}

impl holder::State for State {
    const KIND: Kind = Kind::Lab;

    fn name(&self) -> &str {
        &self.name
    }

    fn pid(&self) -> u32 {
        self.pid
    }

    fn hosts(&self) -> Vec<(&str, i32)> {
        self.hosts.iter().map(|host| (host.name.as_str(), host.fd)).collect()
    }

    fn faults(&self) -> &[String] {
        &self.violations
    }

    /// Writes the report of the laboratory's time.
    fn report(&self) -> String {
        let rows: Vec<report::Row<'_>> =
            self.links.iter().map(|link| (link.name.clone(), link.rate.clone(), &link.counts)).collect();
        format!(
            "{}: {}\nup for {:.0} s, process {}\n\n{}",
            self.name,
            self.title,
            self.up_s,
            self.pid,
            report::links(&rows, &self.lateness, &self.violations)
        )
    }
}

/// Runs as the process that holds a laboratory.
///
/// # Errors
/// 1 if its parent process is gone, or if signals cannot be caught.
pub(super) fn hold(args: &Hold) -> Outcome {
    daemon::run(&args.name, |text| start(text, args))
}

/// Holds a laboratory that is up.
struct HeldLab {
    name: String,
    scenario: Scenario,
    testbed: Testbed,
}

fn start(text: &str, args: &Hold) -> Result<HeldLab, String> {
    let scenario: Scenario = serde_json::from_str(text).map_err(|e| format!("no scenario came: {e}"))?;
    scenario.check().map_err(|e| e.to_string())?;
    let testbed = Testbed::new(&scenario, args.seed).map_err(|e| e.to_string())?;
    for host in testbed.pairs.iter().flat_map(|pair| [&pair.tx, &pair.rx]) {
        orphans::label(host, Kind::Lab, &args.name).map_err(|e| format!("cannot name a host: {e}"))?;
    }
    Ok(HeldLab { name: args.name.clone(), scenario, testbed })
}

impl Held for HeldLab {
    type State = State;

    fn state(&mut self) -> State {
        state(self, &self.testbed.running.snapshot())
    }

    fn order(&mut self, _: &str) -> Result<(), String> {
        Err("a laboratory knows no such request".into())
    }

    fn end(mut self) -> State {
        self.state()
    }
}

fn state(held: &HeldLab, snapshot: &Snapshot) -> State {
    let HeldLab { name, scenario, testbed } = held;
    let mut hosts = Vec::new();
    for pair in &testbed.pairs {
        let rtts_ms: Vec<f64> = pair.rtts.iter().map(|rtt| rtt.as_nanos() as f64 / 1e6).collect();
        let senders: Vec<String> = (0..pair.rtts.len()).map(|p| pair.sender(p).to_string()).collect();
        let receiver = pair.receiver().to_string();
        for (end, space, addresses, peer) in [
            ("tx", &pair.tx, senders.clone(), receiver.clone()),
            ("rx", &pair.rx, vec![receiver], senders[0].clone()),
        ] {
            let (name, fd) = (format!("{}.{end}", pair.name), space.as_fd().as_raw_fd());
            hosts.push(Host { name, fd, addresses, peer, rtts_ms: rtts_ms.clone() });
        }
    }
    let link = |(name, id): (&str, anabranch_sim::LinkId)| Link {
        name: name.into(),
        rate: scenario.link.get(name).and_then(|link| link.rate).map(|rate| rate.to_string()),
        counts: LinkCounts::of(&snapshot.links[id.0 as usize]),
    };
    State {
        name: name.clone(),
        title: scenario.title.clone(),
        pid: std::process::id(),
        up_s: snapshot.at.as_nanos() as f64 / 1e9,
        hosts,
        links: testbed.links().map(link).collect(),
        lateness: Lateness::of(snapshot),
        violations: violations(&testbed.pairs, snapshot).0,
    }
}
