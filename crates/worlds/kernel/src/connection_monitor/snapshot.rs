//! The connections and their subflows at one moment, as numbers.

use std::net::SocketAddr;

use serde::Serialize;

/// The most connections in a snapshot. If there are more, those with the lowest rates are left out and
/// counted.
pub const CONNECTIONS_MAX: usize = 10_000;

/// The factors of NMCC for a subflow, which its controller knows and the kernel does not list.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct NmccFactors {
    /// NMCC's m: for each packet that arrives, the window grows by 1/m² of TCP's growth (`algo`, `nmcc.rs`).
    pub m: f64,
    /// NMCC's m_t: a loss cuts the window by m_t/2, where TCP cuts it by 1/2 (`algo`, `nmcc_decrease.rs`).
    pub m_t: f64,
}

/// The protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ConnectionKind {
    /// Multipath TCP (RFC 8684).
    Mptcp,
    /// Multipath TCP that fell back to TCP, because the peer or a device on the way does not support MPTCP.
    Fallback,
    /// Plain TCP.
    Tcp,
}

/// All connections at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Snapshot {
    /// The connections, those with the highest rates first.
    pub connections: Vec<ConnectionRow>,
    /// The number of connections beyond [`CONNECTIONS_MAX`], which were left out.
    pub left_out: usize,
}

/// A connection at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ConnectionRow {
    /// The protocol.
    pub kind: ConnectionKind,
    /// The token by which MPTCP names the connection on this host, in hexadecimal digits; `None` for plain
    /// TCP.
    pub token: Option<String>,
    /// The local address and port.
    pub local: SocketAddr,
    /// The remote address and port.
    pub remote: SocketAddr,
    /// The state of the connection.
    pub state: String,
    /// Bytes per second that the peer acknowledged since the last snapshot, over all subflows.
    pub sent_rate_bytes: u64,
    /// Bytes per second received since the last snapshot, over all subflows.
    pub received_rate_bytes: u64,
    /// Bytes sent again on another subflow than the first time, since the connection began.
    pub reinjected_bytes: u64,
    /// The subflows, sorted by interface and address.
    pub subflows: Vec<SubflowRow>,
}

/// A subflow at one moment. A plain TCP connection has exactly one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SubflowRow {
    /// The kernel's number for the socket (`SO_COOKIE`).
    pub cookie: u64,
    /// The local address and port.
    pub local: SocketAddr,
    /// The remote address and port.
    pub remote: SocketAddr,
    /// The interface that the socket is bound to, or else the one that has its local address.
    pub interface: Option<String>,
    /// The state of the TCP connection.
    pub state: String,
    /// Whether the subflow carries data only while no other can.
    pub backup: bool,
    /// The name of the congestion controller.
    pub controller: String,
    /// The congestion window, in packets.
    pub cwnd: u32,
    /// The slow start threshold, in packets; `None` before the first loss.
    pub ssthresh: Option<u32>,
    /// The smoothed round-trip time, in microseconds.
    pub srtt_us: u32,
    /// The variation of the round-trip time, in microseconds.
    pub rttvar_us: u32,
    /// Bytes per second that the peer acknowledged since the last snapshot.
    pub sent_rate_bytes: u64,
    /// Bytes per second received since the last snapshot.
    pub received_rate_bytes: u64,
    /// Bytes that the peer acknowledged since the connection began.
    pub acked_bytes: u64,
    /// Bytes received since the connection began.
    pub received_bytes: u64,
    /// Packets sent again since the connection began.
    pub retransmits: u32,
    /// Bytes sent again since the connection began.
    pub retransmitted_bytes: u64,
    /// The factors of NMCC, if the subflow's controller is ours and knows them.
    #[serde(flatten)]
    pub factors: Option<NmccFactors>,
}
