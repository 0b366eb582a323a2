//! Records the events of a connection besides data, in order.

use std::net::IpAddr;

use serde::Serialize;

use crate::subflow::Side;

/// The most events of one connection that are kept; the others are counted.
const EVENTS_MAX: usize = 512;

/// An action of one end of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Event {
    /// The time of the event, nanoseconds since the connection began.
    pub at_ns: u64,
    /// The subflow on which the event was seen.
    pub subflow: u16,
    /// The end that acted.
    pub by: Side,
    /// The kind of the event.
    #[serde(flatten)]
    pub what: What,
}

/// The kind of an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum What {
    /// The end opened a subflow with a SYN.
    Join {
        /// Whether the subflow is a backup.
        backup: bool,
    },
    /// The end announced an address.
    AddAddr {
        /// The address's identifier.
        address_id: u8,
        /// The address.
        address: IpAddr,
        /// The port, if one was announced.
        port: Option<u16>,
        /// Whether the HMAC is right, if there is one and both keys are known.
        hmac_is_right: Option<bool>,
    },
    /// The end confirmed an announcement that it has received.
    AddAddrEcho {
        /// The address's identifier.
        address_id: u8,
    },
    /// The end has lost addresses.
    RemoveAddr {
        /// The identifiers of the addresses.
        address_ids: Vec<u8>,
    },
    /// The end made a subflow a backup, or no backup any more.
    Prio {
        /// Whether the subflow is a backup now.
        backup: bool,
    },
    /// The end found a wrong checksum.
    Fail,
    /// The end closed the connection at once.
    FastClose,
    /// The end has no more data (DATA_FIN).
    DataFin,
    /// The end has no more data on this subflow.
    Fin,
    /// The end reset the subflow.
    Reset {
        /// The reason in an MP_TCPRST, if there was one.
        reason: Option<u8>,
    },
    /// Multipath TCP was given up: plain TCP follows.
    Fallback,
    /// The end sent an option that cannot be read although all of it was captured.
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
        // These options are repeated until they are acknowledged; only the first one is recorded.
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

    /// Returns whether both ends have said that they have no more data, or one has closed at once.
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
