//! Connections and their subflows at one moment, as numbers.

use std::net::SocketAddr;

use serde::Serialize;

/// Connections in one snapshot at most; those that carry least are left out and counted.
pub const CONNECTIONS_MAX: usize = 10_000;

/// What a controller knows of a subflow and the kernel does not tell.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct NmccFactors {
    /// NMCC's m: per packet that arrives the subflow grows by 1/m² of what TCP would (`algo`, `nmcc.rs`).
    pub m: f64,
    /// NMCC's m_t: at a loss it cuts its window by m_t/2, TCP by 1/2 (`algo`, `nmcc_decrease.rs`).
    pub m_t: f64,
}

/// What a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ConnectionKind {
    /// Multipath TCP (RFC 8684).
    Mptcp,
    /// Multipath TCP that goes on as TCP, because the peer or something between knows nothing else.
    Fallback,
    /// TCP.
    Tcp,
}

/// All connections at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Snapshot {
    /// The connections, those that carry most first.
    pub connections: Vec<ConnectionRow>,
    /// Connections that were left out: there are more than [`CONNECTIONS_MAX`].
    pub left_out: usize,
}

/// A connection at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ConnectionRow {
    /// What it is.
    pub kind: ConnectionKind,
    /// Its name in what MPTCP says on this host, in hexadecimal digits; `None` for TCP.
    pub token: Option<String>,
    /// Its own end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// The state of the connection.
    pub state: String,
    /// Bytes that the peer acknowledged since the last snapshot, a second; all subflows together.
    pub sent_rate_bytes: u64,
    /// Bytes received since the last snapshot, a second; all subflows together.
    pub received_rate_bytes: u64,
    /// Bytes that were sent again on another subflow than at first, from the beginning.
    pub reinjected_bytes: u64,
    /// Its subflows, by interface and address.
    pub subflows: Vec<SubflowRow>,
}

/// A subflow at one moment. Of TCP the connection is its only one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SubflowRow {
    /// The number that names the socket.
    pub cookie: u64,
    /// Its own end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// The interface that it is bound to, or else that has its address.
    pub interface: Option<String>,
    /// The state of the TCP connection.
    pub state: String,
    /// Whether it carries data only while no other can.
    pub backup: bool,
    /// The name of its congestion controller.
    pub controller: String,
    /// Congestion window, in packets.
    pub cwnd: u32,
    /// Slow start threshold, in packets; `None` before the first loss.
    pub ssthresh: Option<u32>,
    /// Smoothed round-trip time, in microseconds.
    pub srtt_us: u32,
    /// Its variation, in microseconds.
    pub rttvar_us: u32,
    /// Bytes that the peer acknowledged since the last snapshot, a second.
    pub sent_rate_bytes: u64,
    /// Bytes received since the last snapshot, a second.
    pub received_rate_bytes: u64,
    /// Bytes that the peer acknowledged, from the beginning.
    pub acked_bytes: u64,
    /// Bytes received, from the beginning.
    pub received_bytes: u64,
    /// Packets sent again, from the beginning.
    pub retransmits: u32,
    /// Bytes sent again, from the beginning.
    pub retransmitted_bytes: u64,
    /// What its controller knows.
    #[serde(flatten)]
    pub factors: Option<NmccFactors>,
}
