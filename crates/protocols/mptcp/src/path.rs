//! A subflow with the state that Multipath TCP adds: its handshake, its mappings and the options that it
//! carries.

use std::collections::VecDeque;
use std::net::SocketAddr;

use anabranch_algo::{Span, Time};
use anabranch_mptcp_wire::Key;

use crate::mapping::Mappings;
use crate::report::SubflowReport;
use crate::subflow::Subflow;

/// The most options that wait for an acknowledgement to carry them; further ones are dropped.
const SIGNALS_MAX: usize = 16;

/// An option that goes out on an acknowledgement of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// ADD_ADDR.
    Announce { id: u8, address: SocketAddr },
    /// The echo of an ADD_ADDR.
    Echo { id: u8, address: SocketAddr, has_port: bool },
    /// REMOVE_ADDR.
    Remove { id: u8 },
    /// MP_PRIO of the subflow that carries it.
    Prio { backup: bool },
    /// DATA_FIN with this data sequence number.
    DataFin { data_seq: u64 },
}

impl Signal {
    /// Returns whether `earlier` is outdated by this signal, because both tell of the same address or
    /// priority.
    pub(crate) const fn replaces(self, earlier: Self) -> bool {
        match (self, earlier) {
            (
                Self::Announce { id, .. } | Self::Remove { id },
                Self::Announce { id: of, .. } | Self::Remove { id: of },
            ) => id == of,
            (Self::Prio { .. }, Self::Prio { .. }) => true,
            _ => false,
        }
    }
}

/// The ends that want a subflow to be a backup, which carries data only where no other subflow can.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Backup {
    pub(crate) own: bool,
    pub(crate) peer: bool,
}

impl Backup {
    pub(crate) const fn is_wanted(self) -> bool {
        self.own || self.peer
    }
}

/// The state of a subflow's Multipath TCP handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handshake {
    /// The connection's first subflow.
    First,
    /// A subflow that this end makes; its SYN has this nonce.
    JoinSent { nonce: u32 },
    /// The SYN/ACK was right. The third segment proves that this end knows the keys, and is repeated until
    /// the peer has answered it.
    JoinProven { hmac: [u8; 20], due: Time, wait: Span },
    /// A subflow that the peer makes.
    JoinReceived { nonce: u32, peer_nonce: u32 },
    /// The handshake is complete: the subflow may carry data.
    Joined,
}

/// A subflow of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    pub(crate) subflow: Subflow,
    pub(crate) handshake: Handshake,
    pub(crate) mappings: Mappings,
    pub(crate) signals: VecDeque<Signal>,
    pub(crate) backup: Backup,
    pub(crate) local_id: u8,
    pub(crate) remote_id: u8,
    /// Whether the subflow has been reported as up, so that its end is reported, too.
    pub(crate) is_up: bool,
    /// The reason that a reset of the subflow tells the peer.
    pub(crate) reset: Option<ResetReason>,
}

/// The reason that a reset tells the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResetReason {
    /// MP_TCPRST with this reason.
    Subflow(u8),
    /// MP_FAIL of the mapping at this data sequence number, whose checksum is wrong.
    Checksum(u64),
    /// MP_FASTCLOSE with the peer's key.
    Connection(Key),
}

impl Path {
    pub(crate) fn new(subflow: Subflow, handshake: Handshake, backup: Backup, ids: (u8, u8)) -> Self {
        Self {
            subflow,
            handshake,
            mappings: Mappings::default(),
            signals: VecDeque::new(),
            backup,
            local_id: ids.0,
            remote_id: ids.1,
            is_up: false,
            reset: None,
        }
    }

    /// Returns the state of the subflow.
    pub(crate) fn report(&self) -> SubflowReport {
        let (sender, (local, remote)) = (self.subflow.sender(), self.ends());
        let totals = sender.totals();
        SubflowReport {
            local,
            remote,
            is_up: self.is_up,
            is_backup: self.backup.is_wanted(),
            cwnd_packets: sender.cwnd(),
            srtt: sender.rtt().srtt(),
            sent_bytes: self.subflow.used_offset().saturating_sub(1),
            received_bytes: self.subflow.received_bytes(),
            resent_packets: totals.resent_packets,
            resent_bytes: totals.resent_bytes,
            timeouts_in_a_row: sender.timeouts(),
            timeouts: totals.timeouts,
            reductions: totals.reductions,
        }
    }

    /// Has an acknowledgement carry an option.
    pub(crate) fn signal(&mut self, signal: Signal) {
        self.signals.retain(|earlier| !signal.replaces(*earlier));
        if self.signals.len() < SIGNALS_MAX && !self.signals.contains(&signal) {
            self.signals.push_back(signal);
        }
        self.subflow.ack_now();
    }

    /// Returns whether the handshakes are complete, so that the subflow's acknowledgements can carry options.
    pub(crate) const fn carries_signals(&self) -> bool {
        matches!(self.handshake, Handshake::First | Handshake::Joined)
            && self.subflow.is_synchronized()
            && !self.subflow.is_time_wait()
    }

    /// Returns the two ends of the subflow, the local one first.
    pub(crate) const fn ends(&self) -> (SocketAddr, SocketAddr) {
        (self.subflow.local, self.subflow.remote)
    }

    /// Returns whether the subflow may carry data.
    pub(crate) const fn can_send(&self) -> bool {
        matches!(self.handshake, Handshake::First | Handshake::Joined) && self.subflow.can_send()
    }

    /// Resets the subflow for this reason.
    pub(crate) fn abort(&mut self, reason: ResetReason) {
        self.reset = Some(reason);
        self.subflow.abort();
    }
}
