//! Connections that peers begin: which ports accept them, and how many may be half open (RFC 4987 section
//! 3.1).

use std::collections::BTreeMap;
use std::net::IpAddr;

use anabranch_algo::Time;
use anabranch_algo::fair_share::{FairShare, Place, Yields, host_of};

/// A port that accepts connections, and those connections whose handshake is not complete.
///
/// The table of half-open connections is bounded, and hosts share it fairly ([`FairShare`]): once it is full,
/// the host with the most half-open connections gives up its oldest one. A flood of SYNs from one host thus
/// displaces its own connections. A flood from many forged addresses displaces the oldest (RFC 4987 section
/// 3.5), while clients get through that complete the handshake before the flood fills the table.
#[derive(Clone, Debug)]
pub(crate) struct Listener<C> {
    share: FairShare<IpAddr>,
    half_open: BTreeMap<Place, C>,
}

impl<C: Copy + PartialEq> Listener<C> {
    /// Creates a port with at most `max` half-open connections.
    pub(crate) fn new(max: usize) -> Self {
        Self { share: FairShare::new(max.max(1) as u64), half_open: BTreeMap::new() }
    }

    /// Returns the number of half-open connections that gave way to newer ones.
    pub(crate) const fn displaced(&self) -> u64 {
        self.share.counters().gave_way
    }

    /// Adds a connection that a SYN from `peer` has begun. Returns the connection that must give way to it,
    /// if the table is full.
    pub(crate) fn begin(&mut self, now: Time, connection: C, peer: IpAddr) -> Option<C> {
        // Half-open connections are never in use, so one of them always gives way.
        let Ok((place, gives_way)) = self.share.ask(now, host_of(peer), Yields::First) else {
            return Some(connection);
        };
        self.half_open.insert(place, connection);
        let displaced = gives_way?;
        self.share.release(displaced);
        self.half_open.remove(&displaced)
    }

    /// Removes a connection whose handshake is complete or which is gone.
    pub(crate) fn end(&mut self, connection: C) {
        let place = self.half_open.iter().find(|(_, other)| **other == connection).map(|(place, _)| *place);
        if let Some(place) = place {
            self.half_open.remove(&place);
            self.share.release(place);
        }
    }
}
