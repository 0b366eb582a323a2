//! What a stack is told once.

use anabranch_algo::Span;

use crate::path_manager::{LocalAddress, PathManager};
use crate::scheduler::SchedulerKind;

/// Subflows of a connection at most.
pub const SUBFLOWS_MAX: usize = 8;

/// What is done when the tail of what was sent may be lost: nothing has been acknowledged for a probe timeout
/// (RFC 8985 section 7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TailLoss {
    /// Nothing before the retransmission timeout.
    Off,
    /// The subflow sends new data or its last segment again.
    SamePath,
    /// Besides that, another subflow carries the last segment, too (Yedugundla, licentiate thesis, section
    /// 4.2). If it arrives there and earlier data is still missing, that follows at once.
    #[default]
    AlternatePath,
}

/// Settings of each subflow's TCP.
#[derive(Clone, Copy, Debug)]
pub struct TcpConfig {
    /// Whether ECN is offered and accepted (RFC 3168).
    pub ecn: bool,
    /// Whether timestamps are offered and accepted (RFC 7323).
    pub timestamps: bool,
    /// The largest IP packet, bytes.
    pub mtu_bytes: u16,
    /// How long an acknowledgement may be put off (RFC 9293 section 3.8.6.3).
    pub ack_delay: Span,
    /// How long a closed subflow remembers its addresses: 2 MSL (RFC 9293 section 3.4.2).
    pub time_wait: Span,
    /// What is done for a lost tail.
    pub tail_loss: TailLoss,
    /// After this silence an idle subflow is probed; `None`: never (RFC 9293 section 3.8.4).
    pub keepalive: Option<Span>,
    /// Retransmissions without an answer after which a subflow is given up.
    pub retries_max: u32,
}

impl Default for TcpConfig {
    fn default() -> Self {
        Self {
            ecn: false,
            timestamps: true,
            mtu_bytes: 1500,
            ack_delay: Span::from_millis(40),
            time_wait: Span::from_secs(60),
            tail_loss: TailLoss::default(),
            keepalive: None,
            retries_max: 8,
        }
    }
}

/// Settings of a stack.
#[derive(Clone, Debug)]
pub struct Config {
    /// Whether connections offer and accept Multipath TCP.
    pub mptcp: bool,
    /// Whether data has checksums (RFC 8684 section 3.3.1); they are in use if either end asks for them.
    pub checksums: bool,
    /// Each subflow's TCP.
    pub tcp: TcpConfig,
    /// The algorithm of congestion control: a name of [`anabranch_algo::control::ALGORITHMS`], with or
    /// without a slow start. Segments are not paced, so BBR, which has a pace, is not to be taken here.
    pub congestion_control: &'static str,
    /// Which subflow carries what.
    pub scheduler: SchedulerKind,
    /// Which subflows a connection makes.
    pub path_manager: PathManager,
    /// Local addresses for further subflows.
    pub addresses: Vec<LocalAddress>,
    /// How long the first SYN waits for an answer until another goes out from the next local address; the
    /// first that is answered begins the connection. `None`: only the address that was asked for is tried.
    pub race_after: Option<Span>,
    /// Bytes that a connection keeps for the program to read; also its receive window.
    pub receive_buffer_bytes: u32,
    /// Bytes that a program may write ahead of what has been acknowledged.
    pub send_buffer_bytes: u32,
    /// Subflows of a connection at most; no more than [`SUBFLOWS_MAX`].
    pub subflows_max: usize,
    /// Connections of one listener that have not finished their handshake, at most; the oldest gives way.
    pub half_open_max: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mptcp: true,
            checksums: false,
            tcp: TcpConfig::default(),
            congestion_control: "cubic-coupled",
            scheduler: SchedulerKind::MinRtt,
            path_manager: PathManager::Fullmesh,
            addresses: Vec::new(),
            race_after: Some(Span::from_millis(250)),
            receive_buffer_bytes: 4 << 20,
            send_buffer_bytes: 4 << 20,
            subflows_max: SUBFLOWS_MAX,
            half_open_max: 256,
        }
    }
}
