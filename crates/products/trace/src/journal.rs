//! What happened in a connection besides data, in order.

use std::net::IpAddr;

use serde::Serialize;

use crate::subflow::Side;

/// Events of one connection that are kept; the others are counted.
const EVENTS_MAX: usize = 512;

/// Something that one end of a connection did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Event {
    /// Nanoseconds since the connection began.
    pub at_ns: u64,
    /// The subflow on which it was seen.
    pub subflow: u16,
    /// Who did it.
    pub by: Side,
    /// What it was.
    #[serde(flatten)]
    pub what: What,
}

/// What an end did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum What {
    /// It opened a subflow: the SYN.
    Join {
        /// As a backup.
        backup: bool,
    },
    /// It announced an address.
    AddAddr {
        /// The address's identifier.
        address_id: u8,
        /// The address.
        address: IpAddr,
        /// The port, if one was said.
        port: Option<u16>,
        /// Whether the HMAC is right, where there is one and both keys are known.
        hmac_is_right: Option<bool>,
    },
    /// It has received an announcement.
    AddAddrEcho {
        /// The address's identifier.
        address_id: u8,
    },
    /// It has lost addresses.
    RemoveAddr {
        /// Their identifiers.
        address_ids: Vec<u8>,
    },
    /// It changed whether a subflow is a backup.
    Prio {
        /// What the subflow is now.
        backup: bool,
    },
    /// It found a wrong checksum.
    Fail,
    /// It closed the connection at once.
    FastClose,
    /// It has no more data (DATA_FIN).
    DataFin,
    /// It has no more data on this subflow.
    Fin,
    /// It reset the subflow.
    Reset {
        /// MP_TCPRST's reason, if there was one.
        reason: Option<u8>,
    },
    /// Multipath TCP was given up: plain TCP follows.
    Fallback,
    /// An option can't be read although all of it was captured.
    Malformed,
}

/// The events of a connection.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    pub(crate) events: Vec<Event>,
    pub(crate) left_out: u64,
    data_fin: [bool; 2],
    fast_closed: bool,
}

impl Journal {
    pub(crate) fn add(&mut self, at_ns: u64, subflow: u16, by: Side, what: What) {
        // These are repeated until they are acknowledged; once is enough.
        let known = match what {
            What::DataFin => std::mem::replace(&mut self.data_fin[by.index()], true),
            What::FastClose => std::mem::replace(&mut self.fast_closed, true),
            _ => false,
        };
        if known {
            return;
        }
        let is_repeated = self.events.last().is_some_and(|last| {
            (last.subflow, last.by) == (subflow, by) && last.what == what && !matches!(what, What::Malformed)
        });
        if is_repeated {
            return;
        }
        if self.events.len() == EVENTS_MAX {
            self.left_out += 1;
        } else {
            self.events.push(Event { at_ns, subflow, by, what });
        }
    }

    /// Whether both ends have said that they have no more data, or one has closed at once.
    pub(crate) fn has_ended(&self) -> bool {
        self.fast_closed || self.data_fin == [true; 2]
    }

    pub(crate) const fn is_fast_closed(&self) -> bool {
        self.fast_closed
    }

    pub(crate) const fn has_data_fin(&self, side: Side) -> bool {
        self.data_fin[side as usize]
    }
}
