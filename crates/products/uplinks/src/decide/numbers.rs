//! Gives out the numbers of endpoints. An address gets the same number whenever it comes back.
//!
//! Linux recognises by the number the address from which a connection began, whose number in MPTCP's options
//! is 0 (RFC 8684 section 3.2): with another number, it would not find the subflow that is to be closed when
//! the endpoint is removed. The price: the peer learns over another subflow that a number is gone
//! (REMOVE_ADDR), and if a new subflow with it overtakes that, it is closed. So a link that comes back
//! settles for a moment.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// The most addresses that are remembered; then the one that was used longest ago is forgotten.
const REMEMBERED_MAX: usize = 128;

/// The numbers that are given out, and those that others have.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    /// The number of each address, and when it was given last, by a count.
    known: BTreeMap<IpAddr, (u8, u64)>,
    /// The endpoints that there are.
    taken: BTreeMap<u8, IpAddr>,
    last: u8,
    given: u64,
}

impl Numbers {
    /// Notes all endpoints that there are. Those at the beginning may be left by a killed daemon, and their
    /// addresses get the same numbers.
    pub(super) fn see(&mut self, endpoints: impl Iterator<Item = (IpAddr, u8)>, is_beginning: bool) {
        self.taken = endpoints.map(|(ip, id)| (id, ip)).collect();
        if is_beginning {
            self.known = self.taken.iter().map(|(id, ip)| (*ip, (*id, 0))).collect();
        }
    }

    /// Notes that the address is used, so that it is not forgotten.
    pub(super) fn keep(&mut self, ip: IpAddr) {
        if let Some((_, at)) = self.known.get_mut(&ip) {
            *at = self.given;
        }
    }

    /// Whether no endpoint of another address has the number.
    pub(super) fn is_free(&self, id: u8, ip: IpAddr) -> bool {
        self.taken.get(&id).is_none_or(|of| *of == ip)
    }

    /// Returns the number of the endpoint of this address.
    pub(super) fn give(&mut self, ip: IpAddr) -> u8 {
        self.given += 1;
        let known = self.known.get(&ip).map(|(id, _)| *id).filter(|id| self.is_free(*id, ip));
        let actual = self.taken.iter().find(|(_, of)| **of == ip).map(|(id, _)| *id);
        let id = actual.or(known).unwrap_or_else(|| self.next());
        self.known.insert(ip, (id, self.given));
        if self.known.len() > REMEMBERED_MAX {
            let oldest = self.known.iter().min_by_key(|(_, (_, at))| *at).map(|(ip, _)| *ip);
            oldest.and_then(|ip| self.known.remove(&ip));
        }
        id
    }

    /// Returns a free number. There are 255, and most are free.
    fn next(&mut self) -> u8 {
        let known: BTreeSet<u8> = self.known.values().map(|(id, _)| *id).collect();
        for _ in 0..=u8::MAX {
            self.last = self.last.checked_add(1).unwrap_or(1);
            if !self.taken.contains_key(&self.last) && !known.contains(&self.last) {
                break;
            }
        }
        self.last
    }
}
