//! Notices endpoints from which no connection has a subflow, though there are connections: Linux opens a
//! subflow once, when the endpoint is made, and not again when that one is reset or times out.
//!
//! [`Mender`] is told when an endpoint is made, and says when to count subflows and which endpoints to make
//! anew. An endpoint that some connections use is never made anew, because that would close their subflows.
//! A peer that takes no further subflow is asked ever more seldom.

use std::collections::BTreeMap;
use std::net::IpAddr;

use anabranch_algo::{Span, Time};
use anabranch_net::netlink::{TcpSocket, TcpState};

/// The time after which the subflows of a new endpoint are counted first.
const FIRST: Span = Span::from_millis(150);
/// The time between two counts while all is well, or there is no connection.
const WELL: Span = Span::from_secs(5);
/// The longest time between two attempts.
const PAUSE_MAX: Span = Span::from_secs(300);

/// The subflows from an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Connections that have a subflow from it, or open one.
    pub with: usize,
    /// Connections that have none, but one from elsewhere.
    pub without: usize,
}

impl Count {
    /// Counts the connections of this host.
    #[must_use]
    pub fn of(ip: IpAddr, sockets: &[TcpSocket]) -> Self {
        let mut connections: BTreeMap<u32, bool> = BTreeMap::new();
        for socket in sockets {
            let Some(subflow) = socket.subflow else { continue };
            let local = socket.local.ip().to_canonical();
            let is_open = matches!(
                socket.state,
                TcpState::Established | TcpState::SynSent | TcpState::SynReceived | TcpState::CloseWait
            );
            if !is_open || local.is_loopback() || local.is_ipv4() != ip.is_ipv4() {
                continue;
            }
            *connections.entry(subflow.token).or_default() |= local == ip;
        }
        let with = connections.values().filter(|has| **has).count();
        Self { with, without: connections.len() - with }
    }
}

#[derive(Clone, Copy, Debug)]
struct Due {
    at: Time,
    pause: Span,
}

/// Says which endpoints to make anew: see the first lines of the file.
#[derive(Clone, Debug, Default)]
pub struct Mender {
    endpoints: BTreeMap<IpAddr, Due>,
}

impl Mender {
    /// Notes which endpoints there are.
    pub fn see(&mut self, now: Time, endpoints: impl Iterator<Item = IpAddr>) {
        let mut next = BTreeMap::new();
        for ip in endpoints {
            let new = Due { at: now + FIRST, pause: FIRST };
            next.insert(ip, self.endpoints.get(&ip).copied().unwrap_or(new));
        }
        self.endpoints = next;
    }

    /// Returns when to count next.
    #[must_use]
    pub fn deadline(&self) -> Time {
        self.endpoints.values().map(|due| due.at).min().unwrap_or(Time::NEVER)
    }

    /// Takes the counts of the endpoints that are due, and returns those to make anew.
    pub fn check(&mut self, now: Time, count: impl Fn(IpAddr) -> Count) -> Vec<IpAddr> {
        let mut anew = Vec::new();
        for (ip, due) in self.endpoints.iter_mut().filter(|(_, due)| due.at <= now) {
            let Count { with, without } = count(*ip);
            if with > 0 || without == 0 {
                *due = Due { at: now + WELL, pause: FIRST };
                continue;
            }
            anew.push(*ip);
            due.pause = due.pause.times(2).min(PAUSE_MAX);
            due.at = now + due.pause;
        }
        anew
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn what_no_connection_uses_is_made_anew_ever_more_seldom() {
        let ip: IpAddr = [10, 1, 0, 1].into();
        let mut mender = Mender::default();
        mender.see(at(0), [ip].into_iter());
        assert_eq!(mender.deadline(), at(150));
        let lost = |_| Count { with: 0, without: 3 };
        assert!(mender.check(at(100), lost).is_empty());
        let (mut now, mut times) = (Time::ZERO, Vec::new());
        while now < at(3_600_000) {
            now = mender.deadline();
            assert_eq!(mender.check(now, lost), [ip]);
            times.push(now.as_nanos() / 1_000_000);
            mender.see(now, [ip].into_iter());
        }
        assert_eq!(times[..4], [150, 450, 1_050, 2_250]);
        assert!(times.len() < 30, "an hour: {times:?}");
        // A subflow is there again: the next loss is found soon.
        let next = mender.deadline();
        assert!(mender.check(next, |_| Count { with: 1, without: 2 }).is_empty());
        assert_eq!(mender.deadline(), next + WELL);
        assert_eq!(mender.check(next + WELL, lost), [ip]);
        assert_eq!(mender.deadline(), next + WELL + FIRST.times(2));
        mender.see(next, std::iter::empty());
        assert_eq!(mender.deadline(), Time::NEVER);
    }

    #[test]
    fn without_connections_nothing_is_done() {
        let ip: IpAddr = [10, 1, 0, 1].into();
        assert_eq!(Count::of(ip, &[]), Count::default());
        let mut mender = Mender::default();
        mender.see(at(0), [ip].into_iter());
        assert!(mender.check(at(150), |_| Count::default()).is_empty());
    }
}
