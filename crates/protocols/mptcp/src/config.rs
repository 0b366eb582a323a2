//! The settings with which a stack is created.

use anabranch_algo::Span;
use anabranch_algo::control::{ALGORITHMS, Algorithm, SlowStart};

use crate::path_manager::{LocalAddress, PathManager};
use crate::scheduler::SchedulerKind;

/// The most subflows of a connection.
pub const SUBFLOWS_MAX: usize = 8;

/// The reaction when the tail of the data may be lost: nothing has been acknowledged for a probe timeout (RFC
/// 8985 section 7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TailLoss {
    /// Waits for the retransmission timeout.
    Off,
    /// The subflow sends new data, or its last segment again.
    SamePath,
    /// The subflow probes as with `SamePath`, and another subflow carries the last segment, too (Yedugundla,
    /// licentiate thesis, section 4.2). If the segment arrives there and earlier data is still missing, the
    /// other subflow sends that data at once.
    AlternatePath,
    /// As `AlternatePath`. Moreover, a subflow that has room while there is nothing new to send carries the
    /// oldest data again that is on its way elsewhere, if the answer is overdue there or would come sooner
    /// here; a backup only if it is overdue.
    #[default]
    Overtake,
    /// The subflow probes as with `SamePath`, at the time of Linux (`tcp_schedule_loss_probe`): after two
    /// round trips and 200 ms if one segment is in flight, else after two round trips and two ticks of a
    /// clock of 250 Hz.
    Linux,
}

/// A row of [`TAIL_LOSS_POLICIES`].
#[derive(Clone, Copy, Debug)]
pub struct TailLossInfo {
    /// The name: lower case, unique.
    pub name: &'static str,
    /// A short description.
    pub title: &'static str,
    /// The policy that this row describes.
    pub policy: TailLoss,
}

/// All reactions to a tail that may be lost, by name.
pub const TAIL_LOSS_POLICIES: &[TailLossInfo] = &[
    TailLossInfo { name: "off", title: "waits for the retransmission timeout", policy: TailLoss::Off },
    TailLossInfo {
        name: "same-path",
        title: "the silent subflow sends its last segment again",
        policy: TailLoss::SamePath,
    },
    TailLossInfo {
        name: "alternate-path",
        title: "the silent subflow and another one send its last segment again",
        policy: TailLoss::AlternatePath,
    },
    TailLossInfo {
        name: "overtake",
        title: "as alternate-path, and idle subflows carry what is overdue on others or comes sooner on them",
        policy: TailLoss::Overtake,
    },
    TailLossInfo {
        name: "linux",
        title: "as same-path, but a single segment waits 200 ms longer",
        policy: TailLoss::Linux,
    },
];

impl TailLoss {
    /// Returns the policy of this name, or `None` if there is none.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        TAIL_LOSS_POLICIES.iter().find(|row| row.name == name).map(|row| row.policy)
    }
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
    /// The longest delay of an acknowledgement (RFC 9293 section 3.8.6.3).
    pub ack_delay: Span,
    /// How long a closed subflow remembers its addresses: 2 MSL (RFC 9293 section 3.4.2).
    pub time_wait: Span,
    /// The reaction to a tail that may be lost.
    pub tail_loss: TailLoss,
    /// The silence after which an idle subflow is probed, or `None` for no probes (RFC 9293 section 3.8.4).
    pub keepalive: Option<Span>,
    /// A subflow is given up after this many retransmissions without an answer.
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
    /// Whether this end asks for checksums of the data (RFC 8684 section 3.3.1). They are in use if either
    /// end asks.
    pub checksums: bool,
    /// The TCP settings of each subflow.
    pub tcp: TcpConfig,
    /// The algorithm of congestion control of each subflow. Segments are not paced, so do not choose BBR
    /// here, which needs pacing.
    pub congestion_control: Algorithm,
    /// The scheduler, which decides which subflow carries which data.
    pub scheduler: SchedulerKind,
    /// The path manager, which decides which subflows a connection makes.
    pub path_manager: PathManager,
    /// Local addresses for further subflows.
    pub addresses: Vec<LocalAddress>,
    /// How long the first SYN waits for an answer before another goes out from the next local address. The
    /// first SYN that is answered begins the connection. `None` tries only the address that was asked for.
    pub race_after: Option<Span>,
    /// How long after the end of a subflow the client makes it again, if the subflow timed out or was reset.
    /// A client whose only subflow was reset joins at once, and keeps the connection until that has failed:
    /// its address may have changed on the way (NAT). `None` makes again only joins that timed out.
    pub rejoin_after: Option<Span>,
    /// The bytes that a connection keeps for the program to read; also its receive window.
    pub receive_buffer_bytes: u32,
    /// The bytes that a program may write ahead of the data acknowledgement.
    pub send_buffer_bytes: u32,
    /// The most subflows of a connection; at most [`SUBFLOWS_MAX`].
    pub subflows_max: usize,
    /// The most connections of one listener with an unfinished handshake. Hosts share them: a further SYN
    /// drops the oldest connection of the host with the most.
    pub half_open_max: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mptcp: true,
            checksums: false,
            tcp: TcpConfig::default(),
            congestion_control: Algorithm::by_name("cubic-coupled")
                .unwrap_or_else(|| (ALGORITHMS[0].make)(SlowStart::standard())),
            scheduler: SchedulerKind::MinRtt,
            path_manager: PathManager::Fullmesh,
            addresses: Vec::new(),
            race_after: Some(Span::from_millis(250)),
            rejoin_after: None,
            receive_buffer_bytes: 4 << 20,
            send_buffer_bytes: 4 << 20,
            subflows_max: SUBFLOWS_MAX,
            half_open_max: 256,
        }
    }
}
