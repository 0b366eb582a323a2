//! A subflow with what Multipath TCP adds to it: its handshake, its mappings, the options it is to carry.

use std::collections::VecDeque;
use std::net::SocketAddr;

use anabranch_algo::{Span, Time};
use anabranch_mptcp_wire::Key;

use crate::mapping::Mappings;
use crate::subflow::Subflow;

/// Options that wait for an acknowledgement to carry them, at most; further ones are dropped.
const SIGNALS_MAX: usize = 16;

/// An option that goes with an acknowledgement of its own.
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
    /// DATA_FIN with this number.
    DataFin { data_seq: u64 },
}

impl Signal {
    /// Whether an earlier one is of no interest after this one: it tells of the same address or priority.
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

/// Which ends want a subflow to carry data only where no other can.
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

/// How far the handshake of Multipath TCP on a subflow is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handshake {
    /// The first subflow.
    First,
    /// A subflow that this end makes: its SYN has this nonce.
    JoinSent { nonce: u32 },
    /// The SYN/ACK was right; the third segment proves that this end knows the keys, and goes out again until
    /// it has been answered.
    JoinProven { hmac: [u8; 20], due: Time, wait: Span },
    /// A subflow that the peer makes.
    JoinReceived { nonce: u32, peer_nonce: u32 },
    /// Done: the subflow may carry data.
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
    /// Whether its end has been taken note of.
    pub(crate) is_up: bool,
    /// What its reset tells the peer, if it is reset.
    pub(crate) reset: Option<ResetReason>,
}

/// What a reset tells the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResetReason {
    /// MP_TCPRST with this reason.
    Subflow(u8),
    /// MP_FAIL of the mapping with this data sequence number: its checksum is wrong.
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

    /// Has an acknowledgement carry an option.
    pub(crate) fn signal(&mut self, signal: Signal) {
        self.signals.retain(|earlier| !signal.replaces(*earlier));
        if self.signals.len() < SIGNALS_MAX && !self.signals.contains(&signal) {
            self.signals.push_back(signal);
        }
        self.subflow.ack_now();
    }

    /// Whether its handshakes are over, so that its acknowledgements can carry options.
    pub(crate) const fn carries_signals(&self) -> bool {
        matches!(self.handshake, Handshake::First | Handshake::Joined)
            && self.subflow.is_synchronized()
            && !self.subflow.is_time_wait()
    }

    /// Its two ends, this one first.
    pub(crate) const fn ends(&self) -> (SocketAddr, SocketAddr) {
        (self.subflow.local, self.subflow.remote)
    }

    /// Whether it may carry data.
    pub(crate) const fn can_send(&self) -> bool {
        matches!(self.handshake, Handshake::First | Handshake::Joined) && self.subflow.can_send()
    }

    /// Resets it.
    pub(crate) fn abort(&mut self, reason: ResetReason) {
        self.reset = Some(reason);
        self.subflow.abort();
    }
}
