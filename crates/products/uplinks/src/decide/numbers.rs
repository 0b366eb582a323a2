//! Gives out the numbers of endpoints: round and round, so that one is not given again soon.
//!
//! The peer learns over another subflow, perhaps a slow one, that a number is gone (REMOVE_ADDR, RFC 8684
//! section 3.4.2), and closes the subflows that have it then. A new subflow must have another number.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The numbers that are given out, and those that others have.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    last: u8,
    taken: BTreeSet<u8>,
    used: BTreeSet<u8>,
    /// The numbers of endpoints that there were at the beginning, for links that work then.
    adopted: BTreeMap<IpAddr, u8>,
}

impl Numbers {
    /// Notes the numbers of all endpoints that there are. A number of 0 is none.
    pub(super) fn see(&mut self, taken: impl Iterator<Item = u8>) {
        self.taken = taken.collect();
    }

    /// Notes the numbers that are given out now.
    pub(super) fn use_these(&mut self, used: BTreeSet<u8>) {
        self.used = used;
    }

    /// Notes the endpoints that there are at the beginning: a killed daemon may have left them, and then they
    /// go on with their numbers and subflows.
    pub(super) fn adopt(&mut self, endpoints: impl Iterator<Item = (IpAddr, u8)>) {
        self.adopted = endpoints.filter(|(_, id)| *id > 0).collect();
    }

    /// Forgets the endpoints that there were at the beginning.
    pub(super) fn begun(&mut self) {
        self.adopted.clear();
    }

    /// Returns the number of a new endpoint for this address.
    pub(super) fn give(&mut self, ip: IpAddr) -> u8 {
        let old = self.adopted.remove(&ip).filter(|id| self.used.insert(*id));
        old.unwrap_or_else(|| self.next())
    }

    /// Returns the next free number. There are 255, and at most 16 are used: one is free.
    fn next(&mut self) -> u8 {
        for _ in 0..=u8::MAX {
            self.last = self.last.checked_add(1).unwrap_or(1);
            if !self.taken.contains(&self.last) && self.used.insert(self.last) {
                break;
            }
        }
        self.last
    }
}
