//! The state of a role, for people and for monitors.
//!
//! Whenever it is asked, [`Status`] makes one [`Snapshot`] from the owners of the numbers: connections from
//! the list of flows, links and trunks from `traffic`, totals from the reports. [`local`] serves it over a
//! Unix socket, [`web`] to browsers and to Prometheus. [`control`] takes commands over a socket of its own.

pub mod control;
pub mod local;
mod prometheus;
mod snapshot;
mod token;
pub mod web;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use anabranch_algo::Time;
use anabranch_net::Clock;
use tokio::runtime::Handle;

use crate::control::{Command, ControlError};
use crate::event::{Counters, Door};
use crate::flows::{Flow, Flows};
use crate::links::Usage;
use crate::traffic::{Row, Traffic, TrunkRow};
pub use prometheus::prometheus_text;
pub use snapshot::{
    Client, Connection, ConnectionState, DrainState, Ended, KnownServer, Link, LinkState, Listening, Role,
    ServerLoad, ServerState, SeveralServers, Snapshot, Subflow, Trunk,
};
pub use token::{Token, TokenError};

/// The most connections that a snapshot lists; the others are only counted.
pub const CONNECTIONS_MAX: usize = 500;

/// A link that the user named.
#[derive(Clone, Debug)]
pub(crate) struct NamedLink {
    pub(crate) name: String,
    pub(crate) cost: u32,
    pub(crate) is_backup: bool,
    pub(crate) is_dead: bool,
    /// Whether the interface is down or has no address.
    pub(crate) is_absent: bool,
    /// The bytes that the link has carried, if it has a cap.
    pub(crate) usage: Option<Usage>,
}

/// The parts of a role from which its status is made.
pub(crate) struct Parts {
    pub(crate) role: Role,
    pub(crate) server: Option<String>,
    /// Returns the servers of a client.
    pub(crate) servers: Box<dyn Fn() -> Vec<KnownServer> + Send + Sync>,
    /// Returns the load of a server.
    pub(crate) load: Box<dyn Fn() -> Option<ServerLoad> + Send + Sync>,
    /// Returns the drain of a server.
    pub(crate) drain: Box<dyn Fn() -> Option<DrainState> + Send + Sync>,
    /// Returns what carries a client's trunks, and why, unless it is the kernel's MPTCP.
    pub(crate) transport: Box<dyn Fn() -> Option<String> + Send + Sync>,
    /// Carries out a command.
    pub(crate) control: Box<dyn Fn(Command) -> Result<(), ControlError> + Send + Sync>,
    pub(crate) flows: Flows,
    pub(crate) traffic: Traffic,
    /// Returns the links of a client, in the user's order.
    pub(crate) links: Box<dyn Fn() -> Vec<NamedLink> + Send + Sync>,
    pub(crate) datagram_flows: Box<dyn Fn() -> usize + Send + Sync>,
}

/// Tells the state of a role, from any thread. Clones tell the same.
#[derive(Clone)]
pub struct Status {
    parts: Arc<Parts>,
    counters: Arc<Counters>,
    addresses: Arc<[(Door, SocketAddr)]>,
    clock: Clock,
    runtime: Handle,
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Status").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

impl Status {
    pub(crate) fn new(
        parts: Parts,
        counters: Arc<Counters>,
        addresses: &[(Door, SocketAddr)],
        runtime: Handle,
    ) -> Self {
        Self { parts: Arc::new(parts), counters, addresses: addresses.into(), clock: Clock::start(), runtime }
    }

    pub(crate) const fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Returns which role this is.
    #[must_use]
    pub fn role(&self) -> Role {
        self.parts.role
    }

    /// Carries out a command, and returns the state of the drain after it.
    ///
    /// # Errors
    /// If the role is a client, or if the command makes no sense now.
    pub fn control(&self, command: Command) -> Result<Option<DrainState>, ControlError> {
        (self.parts.control)(command)?;
        Ok((self.parts.drain)())
    }

    /// Returns the present state. Rates are means over the last second or two.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let Parts { role, server, servers, load, drain, transport, flows, traffic, links, .. } = &*self.parts;
        let (open_connections, listed, now) = flows.list(CONNECTIONS_MAX);
        let trunks = traffic.trunks();
        let links = links_of(traffic.links(), links(), !trunks.is_empty());
        let listening = |(door, address): &(Door, SocketAddr)| Listening {
            door: door.name().to_owned(),
            address: address.to_string(),
        };
        let clients = match role {
            Role::Client => Vec::new(),
            Role::Server => clients(&trunks, &links, &flows.by_user()),
        };
        Snapshot {
            role: *role,
            release: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_s: seconds(self.clock.now(), Time::ZERO),
            several: SeveralServers {
                server: server.clone(),
                servers: servers(),
                load: load(),
                drain: drain(),
            },
            transport: transport(),
            listening: self.addresses.iter().map(listening).collect(),
            totals: self.counters.totals(),
            links,
            clients,
            trunks: trunks.iter().map(trunk).collect(),
            open_connections: open_connections as u64,
            connections: listed.iter().map(|(number, flow)| connection(*number, flow, now, *role)).collect(),
            datagram_flows: (self.parts.datagram_flows)() as u64,
            finished: self.counters.finished().iter().map(Ended::from).collect(),
        }
    }
}

fn seconds(now: Time, then: Time) -> f64 {
    now.since(then).as_nanos() as f64 / 1e9
}

/// Returns the links, the named ones first in their order.
fn links_of(rows: Vec<Row>, named: Vec<NamedLink>, has_trunks: bool) -> Vec<Link> {
    let mut rows = rows;
    let mut links = Vec::new();
    for via in named {
        let place = rows.iter().position(|row| row.key.client.is_none() && row.key.link == via.name);
        let row = place.map(|place| rows.remove(place));
        let is_used = row.as_ref().is_some_and(|row| row.subflows > 0 || row.has_datagrams);
        let state = match () {
            () if via.usage.as_ref().is_some_and(|usage| usage.is_spent) => LinkState::Spent,
            () if via.is_absent => LinkState::Absent,
            () if via.is_dead || row.as_ref().is_some_and(|row| row.is_silent) => LinkState::Dead,
            () if !is_used && has_trunks => LinkState::Unused,
            () if via.is_backup => LinkState::Backup,
            () => LinkState::Up,
        };
        let usage = via.usage.as_ref();
        links.push(Link {
            cost: Some(via.cost),
            cap_bytes: usage.map(|usage| usage.cap.bytes),
            cap_used_bytes: usage.map(|usage| usage.bytes),
            cap_renews_s: usage.map(|usage| usage.period_ends_s),
            ..link(row.as_ref(), &via.name, state)
        });
    }
    for row in rows {
        let state = match (row.subflows, row.is_silent) {
            (0, _) => LinkState::Unused,
            (_, true) => LinkState::Dead,
            (_, false) => LinkState::Up,
        };
        links.push(Link { client: row.key.client.clone(), ..link(Some(&row), &row.key.link, state) });
    }
    let mut sums: BTreeMap<Option<String>, u64> = BTreeMap::new();
    for link in &links {
        *sums.entry(link.client.clone()).or_default() += link.sent_bytes + link.received_bytes;
    }
    for link in &mut links {
        let (own, all) = (link.sent_bytes + link.received_bytes, sums[&link.client]);
        link.share_percent = if all > 0 { 100.0 * own as f64 / all as f64 } else { 0.0 };
    }
    links
}

fn link(row: Option<&Row>, name: &str, state: LinkState) -> Link {
    let is_quiet = matches!(state, LinkState::Dead | LinkState::Absent | LinkState::Spent);
    Link {
        name: name.to_owned(),
        client: None,
        state,
        cost: None,
        cap_bytes: None,
        cap_used_bytes: None,
        cap_renews_s: None,
        subflows: row.map_or(0, |row| row.subflows),
        sent_rate_bytes: row.map_or(0, |row| row.sent_rate_bytes),
        received_rate_bytes: row.map_or(0, |row| row.received_rate_bytes),
        sent_bytes: row.map_or(0, |row| row.sent_bytes),
        received_bytes: row.map_or(0, |row| row.received_bytes),
        share_percent: 0.0,
        // Measurements from before the link died say nothing about the present.
        rtt_us: row.filter(|_| !is_quiet).and_then(|row| row.rtt_us),
        loss_percent: row.filter(|_| !is_quiet).and_then(|row| row.loss_percent),
        retransmissions: row.map_or(0, |row| row.resent_packets),
    }
}

fn trunk(row: &TrunkRow) -> Trunk {
    let load = row.trunk.load();
    Trunk {
        peer: row.peer.to_string(),
        client: row.client.clone(),
        transport: row.transport.name().to_owned(),
        age_s: row.age_s,
        open_streams: load.open_streams,
        rtt_us: load.rtt.map(|rtt| rtt.as_nanos() / 1_000),
        unanswered_s: load.unanswered.as_nanos() as f64 / 1e9,
        subflows: row
            .subflows
            .iter()
            .map(|(key, subflow)| Subflow {
                link: key.link.clone(),
                local: subflow.local.to_string(),
                remote: subflow.remote.to_string(),
                rtt_us: u64::from(subflow.tcp.rtt_us),
                cwnd: subflow.tcp.cwnd,
                sent_bytes: subflow.tcp.bytes_sent,
                received_bytes: subflow.tcp.bytes_received,
                retransmissions: u64::from(subflow.tcp.total_retrans),
            })
            .collect(),
    }
}

/// Returns the sums of each client.
fn clients(trunks: &[TrunkRow], links: &[Link], connections: &BTreeMap<String, u64>) -> Vec<Client> {
    let mut all: BTreeMap<String, Client> = BTreeMap::new();
    let named = |name: &str| Client {
        name: name.to_owned(),
        trunks: 0,
        links: 0,
        open_connections: connections.get(name).copied().unwrap_or(0),
        sent_rate_bytes: 0,
        received_rate_bytes: 0,
        sent_bytes: 0,
        received_bytes: 0,
    };
    for trunk in trunks {
        let name = trunk.client.clone().unwrap_or_else(|| trunk.peer.ip().to_string());
        all.entry(name.clone()).or_insert_with(|| named(&name)).trunks += 1;
    }
    for link in links {
        let Some(client) = link.client.as_ref().and_then(|name| all.get_mut(name)) else { continue };
        client.links += u32::from(link.subflows > 0);
        client.sent_rate_bytes += link.sent_rate_bytes;
        client.received_rate_bytes += link.received_rate_bytes;
        client.sent_bytes += link.sent_bytes;
        client.received_bytes += link.received_bytes;
    }
    all.into_values().collect()
}

fn connection(number: u64, flow: &Flow, now: Time, role: Role) -> Connection {
    let [from_tcp, to_tcp] = flow.moved();
    let (sent_bytes, received_bytes) = match role {
        Role::Client => (from_tcp, to_tcp),
        Role::Server => (to_tcp, from_tcp),
    };
    Connection {
        number,
        from: flow.from.to_string(),
        client: flow.user.clone(),
        destination: flow.destination.to_string(),
        origin: flow.origin.get().map(ToString::to_string),
        state: match (flow.is_half_closed(), flow.is_open()) {
            (true, _) => ConnectionState::HalfClosed,
            (false, true) => ConnectionState::Open,
            (false, false) => ConnectionState::Connecting,
        },
        age_s: seconds(now, flow.begun),
        sent_bytes,
        received_bytes,
    }
}
