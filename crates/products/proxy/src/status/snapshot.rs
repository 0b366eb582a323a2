//! What a role is doing, as plain numbers and texts.

use serde::{Deserialize, Serialize};

use crate::event::{Finished, Protocol, Totals};

/// What a role is doing. Bytes are counted from its start. There are no secrets in it, but it says who goes
/// where.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Which role.
    pub role: Role,
    /// The version of the program.
    pub release: String,
    /// Its process.
    pub pid: u32,
    /// Since it began, seconds.
    pub uptime_s: f64,
    /// The server of a client.
    pub server: Option<String>,
    /// Where it listens.
    pub listening: Vec<Listening>,
    /// What it did in all, in connections that have ended.
    pub totals: Totals,
    /// The links: of a client its interfaces, of a server the addresses that clients come from.
    pub links: Vec<Link>,
    /// The clients that are there, of a server.
    pub clients: Vec<Client>,
    /// The trunks that are there.
    pub trunks: Vec<Trunk>,
    /// Connections of programs that are open.
    pub open_connections: u64,
    /// Of these the [500](super::CONNECTIONS_MAX) that have moved most.
    pub connections: Vec<Connection>,
    /// Programs that send datagrams.
    pub datagram_flows: u64,
    /// The last connections that have ended, the latest first, 50 at most.
    pub finished: Vec<Ended>,
}

/// Which role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Takes programs' connections to a server.
    Client,
    /// Connects to origins.
    Server,
}

impl Role {
    /// Its name: `client`, `server`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }
}

/// An address where it listens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listening {
    /// For whom: `socks`, `http`, `trunks`.
    pub door: String,
    /// The address.
    pub address: String,
}

/// How a link fares. Bytes are those of packets, headers of TCP and below not counted; what was sent again
/// counts again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// The interface; at the server the client's address.
    pub name: String,
    /// Whose, at the server.
    pub client: Option<String>,
    /// Whether it is used.
    pub state: LinkState,
    /// What a byte costs, of `via`.
    pub cost: Option<u32>,
    /// How many bytes it may carry in a period, both directions, of `via`.
    pub cap_bytes: Option<u64>,
    /// What its interface has carried in this period, for whatever program.
    pub cap_used_bytes: Option<u64>,
    /// When the next period begins, seconds since 1970-01-01 UTC.
    pub cap_renews_s: Option<i64>,
    /// Subflows of trunks on it.
    pub subflows: u32,
    /// Bytes a second from here, of late.
    pub sent_rate_bytes: u64,
    /// Bytes a second to here, of late.
    pub received_rate_bytes: u64,
    /// Bytes from here.
    pub sent_bytes: u64,
    /// Bytes to here.
    pub received_bytes: u64,
    /// Part of all links' bytes, both directions; at the server, of those of the same client.
    pub share_percent: f64,
    /// Round-trip time, mean of its subflows.
    pub rtt_us: Option<u64>,
    /// Part of the bytes from here that was lost and sent again in the last ten seconds; if there were none,
    /// what probes lost. What is lost on the way to here only the other end knows.
    pub loss_percent: Option<f64>,
    /// Packets from here that were sent again.
    pub retransmissions: u64,
}

/// Whether a link is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkState {
    /// It is used.
    Up,
    /// It carries data only while no other can.
    Backup,
    /// It does not answer.
    Dead,
    /// There is no such interface, or it is down or has no address.
    Absent,
    /// It has carried what it may in this period.
    Spent,
    /// It could be used, but no trunk has a subflow on it.
    Unused,
}

impl LinkState {
    /// Its name, as in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Backup => "backup",
            Self::Dead => "dead",
            Self::Absent => "absent",
            Self::Spent => "spent",
            Self::Unused => "unused",
        }
    }
}

/// A client, at the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Client {
    /// The name of its key; without keys, its address.
    pub name: String,
    /// Its trunks.
    pub trunks: u32,
    /// Its links.
    pub links: u32,
    /// Its programs' connections that are open.
    pub open_connections: u64,
    /// Bytes a second to it, of late.
    pub sent_rate_bytes: u64,
    /// Bytes a second from it, of late.
    pub received_rate_bytes: u64,
    /// Bytes to it, over all of its links.
    pub sent_bytes: u64,
    /// Bytes from it, over all of its links.
    pub received_bytes: u64,
}

/// A trunk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trunk {
    /// Its other end.
    pub peer: String,
    /// The client's name, at the server.
    pub client: Option<String>,
    /// `MPTCP` or `TCP`.
    pub transport: String,
    /// Since it is there, seconds.
    pub age_s: f64,
    /// Streams that are open.
    pub open_streams: u32,
    /// Round-trip time of its pings.
    pub rtt_us: Option<u64>,
    /// How long something of ours has waited for an answer, seconds.
    pub unanswered_s: f64,
    /// Its subflows.
    pub subflows: Vec<Subflow>,
}

/// A subflow of a trunk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subflow {
    /// The name of its link.
    pub link: String,
    /// Its own end.
    pub local: String,
    /// Its other end.
    pub remote: String,
    /// Smoothed round-trip time.
    pub rtt_us: u64,
    /// Congestion window, packets.
    pub cwnd: u32,
    /// Bytes from here, those sent again among them.
    pub sent_bytes: u64,
    /// Bytes to here.
    pub received_bytes: u64,
    /// Packets that were sent again.
    pub retransmissions: u64,
}

/// A program's connection that is open.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Connection {
    /// A number of its own.
    pub number: u64,
    /// The program; at the server the client's host.
    pub from: String,
    /// At the server the client's name, at the client the user's.
    pub client: Option<String>,
    /// Where to.
    pub destination: String,
    /// The address that was connected to, at the server.
    pub origin: Option<String>,
    /// What it does.
    pub state: ConnectionState,
    /// Since it is there, seconds.
    pub age_s: f64,
    /// Bytes towards the origin.
    pub sent_bytes: u64,
    /// Bytes from the origin.
    pub received_bytes: u64,
}

/// What a connection does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConnectionState {
    /// At the client it waits for a trunk, at the server for the origin.
    Connecting,
    /// Bytes may go both ways.
    Open,
    /// One side has ended.
    HalfClosed,
}

impl ConnectionState {
    /// Its name, as in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Open => "open",
            Self::HalfClosed => "half_closed",
        }
    }
}

/// A program's connection that has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    /// `tcp`, or `udp`: all datagrams of a program.
    pub protocol: String,
    /// The program; at the server the client's host.
    pub from: String,
    /// At the server the client's name, at the client the user's.
    pub client: Option<String>,
    /// Where to.
    pub destination: String,
    /// The address that was connected to, at the server.
    pub origin: Option<String>,
    /// Bytes towards the origin.
    pub sent_bytes: u64,
    /// Bytes from the origin.
    pub received_bytes: u64,
    /// How long it lasted, seconds.
    pub duration_s: f64,
    /// Why it did not end in order.
    pub error: Option<String>,
}

impl From<&Finished> for Ended {
    fn from(finished: &Finished) -> Self {
        let protocol = match finished.protocol {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
        };
        Self {
            protocol: protocol.to_owned(),
            from: finished.from.to_string(),
            client: finished.client.clone(),
            destination: finished.destination.to_string(),
            origin: finished.origin.map(|origin| origin.to_string()),
            sent_bytes: finished.sent_bytes,
            received_bytes: finished.received_bytes,
            duration_s: finished.duration_s,
            error: finished.reason.map(|reason| finished.why.clone().unwrap_or_else(|| reason.to_string())),
        }
    }
}
