//! The state of a role as plain numbers and texts.

use serde::{Deserialize, Serialize};

use crate::event::{Finished, Protocol, Totals};

/// The state of a role. Bytes are counted from its start. It contains no secrets, but it shows which host
/// uses which destination.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The role.
    pub role: Role,
    /// The version of the program.
    pub release: String,
    /// The number of its process.
    pub pid: u32,
    /// The time since the role began, in seconds.
    pub uptime_s: f64,
    /// What it has to do with several servers.
    #[serde(flatten)]
    pub several: SeveralServers,
    /// What carries the trunks of a client, and why, unless it is the kernel's MPTCP.
    #[serde(default)]
    pub transport: Option<String>,
    /// The addresses at which the role listens.
    pub listening: Vec<Listening>,
    /// The sums over the connections that have ended.
    pub totals: Totals,
    /// The links: a client's interfaces, or the addresses of a server's clients.
    pub links: Vec<Link>,
    /// The present clients, if the role is a server.
    pub clients: Vec<Client>,
    /// The present trunks.
    pub trunks: Vec<Trunk>,
    /// The number of open connections of programs.
    pub open_connections: u64,
    /// The [500](super::CONNECTIONS_MAX) open connections that have moved the most bytes.
    pub connections: Vec<Connection>,
    /// The number of programs that send datagrams.
    pub datagram_flows: u64,
    /// The last connections that have ended, the latest first, at most 50.
    pub finished: Vec<Ended>,
}

/// What a role has to do with several servers. In JSON these are fields of the snapshot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SeveralServers {
    /// The servers as the settings of a client name them, with commas between them.
    pub server: Option<String>,
    /// The servers of a client.
    #[serde(default)]
    pub servers: Vec<KnownServer>,
    /// The load that a server announces.
    #[serde(default)]
    pub load: Option<ServerLoad>,
    /// The drain of a server, while it goes on and after its end.
    #[serde(default)]
    pub drain: Option<DrainState>,
}

/// A server, as its client sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownServer {
    /// The name and port.
    pub name: String,
    /// The state.
    pub state: ServerState,
    /// The round trip of the trunks to it, in microseconds.
    pub rtt_us: Option<u64>,
    /// The number of open connections that it announced.
    pub open: Option<u32>,
    /// The number of connections that it wants at most, as it announced.
    pub capacity: Option<u32>,
    /// Whether another server has named it.
    pub is_named_by_server: bool,
    /// The reason if it is not up.
    pub why: Option<String>,
}

/// The state of a server, as its client sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerState {
    /// It takes connections.
    Up,
    /// It leaves something unanswered.
    Silent,
    /// It drains: it takes no connections.
    Drains,
    /// There is no trunk to it.
    Down,
}

impl ServerState {
    /// Returns the name of the state, as in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Silent => "silent",
            Self::Drains => "drains",
            Self::Down => "down",
        }
    }
}

/// The load of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerLoad {
    /// The number of open connections of programs.
    pub open: u32,
    /// The number of connections that it wants at most.
    pub capacity: u32,
}

/// A drain of a server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DrainState {
    /// `running`, `paused` or `ended`.
    pub state: String,
    /// The number of clients at its begin and since.
    pub clients: u64,
    /// The number of clients that were told to go.
    pub told: u64,
    /// The number of clients that were not told yet.
    pub waiting: u64,
    /// The number of clients that still have trunks.
    pub present: u64,
    /// The number of their open connections.
    pub open_connections: u64,
    /// The most clients that are told in a second.
    pub rate: f64,
    /// The time until its end, in seconds, if it has one.
    pub left_s: Option<f64>,
    /// The server that clients are told to go to.
    pub to: Option<String>,
}

/// A role of the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The role that takes programs' connections and sends them to a server.
    Client,
    /// The role that connects to origins.
    Server,
}

impl Role {
    /// Returns the name of the role: `client` or `server`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }
}

/// An address at which the role listens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listening {
    /// The kind of connections: `socks`, `http`, `transparent` or `trunks`.
    pub door: String,
    /// The address.
    pub address: String,
}

/// The state of a link. Bytes are those of packets without the headers of TCP and below; retransmissions
/// count again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// The name of the interface at a client, the client's address at a server.
    pub name: String,
    /// The name of the client, at the server.
    pub client: Option<String>,
    /// The state of the link.
    pub state: LinkState,
    /// The cost of a byte, as given in `via`.
    pub cost: Option<u32>,
    /// The cap in bytes per period, both directions together, as given in `via`.
    pub cap_bytes: Option<u64>,
    /// The bytes that the interface has carried in this period, for all programs.
    pub cap_used_bytes: Option<u64>,
    /// When the next period begins, in seconds since 1970-01-01 UTC.
    pub cap_renews_s: Option<i64>,
    /// The number of trunks' subflows on the link.
    pub subflows: u32,
    /// The bytes per second sent from here recently.
    pub sent_rate_bytes: u64,
    /// The bytes per second received here recently.
    pub received_rate_bytes: u64,
    /// The bytes sent from here.
    pub sent_bytes: u64,
    /// The bytes received here.
    pub received_bytes: u64,
    /// The link's share of the bytes of all links in both directions, in percent; at the server, of the same
    /// client's links.
    pub share_percent: f64,
    /// The mean round-trip time of the link's subflows, in microseconds.
    pub rtt_us: Option<u64>,
    /// The part of the bytes sent from here in the last ten seconds that was lost and sent again, in percent.
    /// If there were none, the part of the probes that was lost. Only the other end knows the losses on the
    /// way here.
    pub loss_percent: Option<f64>,
    /// The number of packets sent from here that were sent again.
    pub retransmissions: u64,
}

/// The state of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkState {
    /// The link is used, or will be when there are trunks.
    Up,
    /// The link carries data only while no other can.
    Backup,
    /// The link does not answer.
    Dead,
    /// The interface does not exist, is down, or has no address.
    Absent,
    /// The link has used up its cap in this period.
    Spent,
    /// The link could be used, but no trunk has a subflow on it.
    Unused,
}

impl LinkState {
    /// Returns the name of the state, as in JSON.
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

/// A client, as the server sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Client {
    /// The name of the client's key, or without keys its address.
    pub name: String,
    /// The number of its trunks.
    pub trunks: u32,
    /// The number of its links.
    pub links: u32,
    /// The number of its programs' open connections.
    pub open_connections: u64,
    /// The bytes per second sent to it recently.
    pub sent_rate_bytes: u64,
    /// The bytes per second received from it recently.
    pub received_rate_bytes: u64,
    /// The bytes sent to it over all of its links.
    pub sent_bytes: u64,
    /// The bytes received from it over all of its links.
    pub received_bytes: u64,
}

/// A trunk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trunk {
    /// The address of the other end.
    pub peer: String,
    /// The client's name, at the server.
    pub client: Option<String>,
    /// The transport, `MPTCP`, `MPTCP over UDP` or `TCP`.
    pub transport: String,
    /// The age of the trunk in seconds.
    pub age_s: f64,
    /// The number of open streams.
    pub open_streams: u32,
    /// The round-trip time of its pings, in microseconds.
    pub rtt_us: Option<u64>,
    /// How long something that this end sent has waited for an answer, in seconds.
    pub unanswered_s: f64,
    /// The subflows of the trunk.
    pub subflows: Vec<Subflow>,
}

/// A subflow of a trunk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subflow {
    /// The name of its link.
    pub link: String,
    /// The address of this end.
    pub local: String,
    /// The address of the other end.
    pub remote: String,
    /// The smoothed round-trip time, in microseconds.
    pub rtt_us: u64,
    /// The congestion window, in packets.
    pub cwnd: u32,
    /// The bytes sent from here, including retransmissions.
    pub sent_bytes: u64,
    /// The bytes received here.
    pub received_bytes: u64,
    /// The number of packets that were sent again.
    pub retransmissions: u64,
}

/// An open connection of a program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Connection {
    /// The number of the connection, unique in its role.
    pub number: u64,
    /// The program's address at the client, the client's address at the server.
    pub from: String,
    /// The client's name at the server, the user's name at the client.
    pub client: Option<String>,
    /// The destination that the program asked for.
    pub destination: String,
    /// The origin's address. Only the server knows it.
    pub origin: Option<String>,
    /// The state of the connection.
    pub state: ConnectionState,
    /// The age of the connection in seconds.
    pub age_s: f64,
    /// The number of bytes towards the origin.
    pub sent_bytes: u64,
    /// The number of bytes from the origin.
    pub received_bytes: u64,
}

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConnectionState {
    /// The connection waits for a trunk at the client, or for the origin at the server.
    Connecting,
    /// Bytes may go both ways.
    Open,
    /// One side has ended.
    HalfClosed,
}

impl ConnectionState {
    /// Returns the name of the state, as in JSON.
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
    /// The protocol: `tcp`, or `udp` for all datagrams of a program.
    pub protocol: String,
    /// The program's address at the client, the client's address at the server.
    pub from: String,
    /// The client's name at the server, the user's name at the client.
    pub client: Option<String>,
    /// The destination that the program asked for.
    pub destination: String,
    /// The origin's address. Only the server knows it.
    pub origin: Option<String>,
    /// The number of bytes towards the origin.
    pub sent_bytes: u64,
    /// The number of bytes from the origin.
    pub received_bytes: u64,
    /// The duration in seconds.
    pub duration_s: f64,
    /// The reason, if the connection did not end in order.
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
