//! One subflow: its addresses, its handshake and its end.

use std::net::SocketAddr;

use crate::audit::MappingChecksum;
use crate::half::Half;

/// An end of a connection. The end that opened the first subflow is the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The end that sent the first SYN.
    Client,
    /// The end that answered the first SYN.
    Server,
}

impl Side {
    pub(crate) const BOTH: [Self; 2] = [Self::Client, Self::Server];

    pub(crate) const fn index(self) -> usize {
        self as usize
    }

    pub(crate) const fn peer(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// When the segments of the handshake were seen, ns.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Handshake {
    pub(crate) syn: Option<u64>,
    pub(crate) syn_ack: Option<u64>,
    pub(crate) ack: Option<u64>,
}

impl Handshake {
    /// Returns the times from the SYN to the SYN/ACK and from there to the third segment, ns. They show how
    /// far the tap is from both ends.
    pub(crate) fn halves_ns(&self) -> Option<(u64, u64)> {
        let (syn, syn_ack, ack) = (self.syn?, self.syn_ack?, self.ack?);
        Some((syn_ack.saturating_sub(syn), ack.saturating_sub(syn_ack)))
    }
}

/// The content of the MP_JOINs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Joining {
    /// The nonces of the client and of the server.
    pub(crate) nonces: [Option<u32>; 2],
    /// Whether the HMACs that could be checked are right.
    pub(crate) hmac_is_right: Option<bool>,
}

/// One subflow.
#[derive(Debug)]
pub(crate) struct Subflow {
    /// The addresses of the client and of the server.
    pub(crate) ends: [SocketAddr; 2],
    /// The end that sent the subflow's SYN.
    pub(crate) opener: Side,
    /// The identifiers of both addresses.
    pub(crate) address_ids: [Option<u8>; 2],
    pub(crate) backup: bool,
    pub(crate) handshake: Handshake,
    pub(crate) joining: Joining,
    /// The data of the client and of the server.
    pub(crate) halves: [Half; 2],
    pub(crate) checksums: [MappingChecksum; 2],
    /// The reason in an MP_TCPRST.
    pub(crate) reset_reason: Option<u8>,
    /// The number of the subflow in its connection; 0 is the first.
    pub(crate) number: u16,
    pub(crate) first_ns: u64,
}

impl Subflow {
    pub(crate) fn new(number: u16, ends: [SocketAddr; 2], opener: Side, now: u64) -> Self {
        Self {
            ends,
            opener,
            address_ids: [None; 2],
            backup: false,
            handshake: Handshake::default(),
            joining: Joining::default(),
            halves: Default::default(),
            checksums: Default::default(),
            reset_reason: None,
            number,
            first_ns: now,
        }
    }

    /// Returns whether data can be sent on the subflow: its handshake was seen to end, or began before the
    /// capture.
    pub(crate) fn is_established(&self) -> bool {
        self.handshake.syn.is_none() || self.handshake.ack.is_some()
    }

    /// Returns when the subflow was opened, ns: the time of its SYN, or else of its first segment.
    pub(crate) fn opened_ns(&self) -> u64 {
        self.handshake.syn.unwrap_or(self.first_ns)
    }

    pub(crate) fn is_closed(&self) -> bool {
        let is_reset = self.halves.iter().any(|half| half.times.reset.is_some());
        is_reset || self.halves.iter().all(Half::is_closed)
    }

    pub(crate) fn unique_bytes(&self) -> u64 {
        self.halves.iter().map(|half| half.counts.unique_bytes).sum()
    }

    /// Returns the last time at which both ends had been heard, ns.
    pub(crate) fn alive_ns(&self) -> u64 {
        let heard = |half: &Half| half.times.segment.unwrap_or(self.first_ns);
        self.halves.iter().map(heard).min().unwrap_or(self.first_ns)
    }

    /// Returns the handshake's round-trip time, µs.
    pub(crate) fn handshake_rtt_us(&self) -> Option<u64> {
        self.handshake.halves_ns().map(|(far, near)| (far + near) / 1000)
    }

    /// Returns the direction that `sender` sends.
    pub(crate) fn half(&mut self, sender: Side) -> &mut Half {
        &mut self.halves[sender.index()]
    }
}
