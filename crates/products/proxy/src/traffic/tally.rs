//! Counts the bytes of links from readings of subflows. It reads no clock and no socket.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use anabranch_algo::{Span, Time};
use anabranch_net::netlink::TcpInfo;

/// The shortest time over which rates are averaged.
const RATE_SPAN: Span = Span::from_millis(1_500);
/// The time over which losses are counted.
const LOSS_SPAN: Span = Span::from_secs(10);
/// The time after which a link without a subflow is forgotten, and the number of links above which it is
/// forgotten sooner.
const FORGET_AFTER: Span = Span::from_secs(3_600);
const LINKS_MAX: usize = 1_024;
/// The number of unanswered retransmissions in a row after which a subflow is silent. With Linux's shortest
/// time-out of 200 ms, they take a second and a half.
const SILENT_BACKOFF: u8 = 3;

/// The name of a link.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    /// The name of the client, at the server.
    pub(crate) client: Option<String>,
    /// The interface at the client, the client's address at the server.
    pub(crate) link: String,
}

/// The numbers that a subflow reports. Counts are from its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Reading {
    pub(crate) sent_bytes: u64,
    pub(crate) received_bytes: u64,
    pub(crate) resent_bytes: u64,
    pub(crate) resent_packets: u64,
    pub(crate) rtt_us: Option<u64>,
    /// The part that is lost, from 0 to 1, if the subflow measures it itself.
    pub(crate) loss: Option<f64>,
    /// Whether recently sent packets have no answer.
    pub(crate) is_silent: bool,
}

impl Reading {
    pub(crate) fn of(tcp: &TcpInfo) -> Self {
        Self {
            // An older kernel does not report the bytes that were sent.
            sent_bytes: tcp.bytes_sent.max(tcp.bytes_acked),
            received_bytes: tcp.bytes_received,
            resent_bytes: tcp.bytes_retrans,
            resent_packets: u64::from(tcp.total_retrans),
            rtt_us: (tcp.rtt_us > 0).then(|| u64::from(tcp.rtt_us)),
            loss: None,
            is_silent: tcp.backoff >= SILENT_BACKOFF,
        }
    }
}

/// The present state of a link.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) key: Key,
    /// The number of trunks' subflows.
    pub(crate) subflows: u32,
    /// Whether datagrams may use the link.
    pub(crate) has_datagrams: bool,
    pub(crate) sent_bytes: u64,
    pub(crate) received_bytes: u64,
    pub(crate) resent_packets: u64,
    pub(crate) sent_rate_bytes: u64,
    pub(crate) received_rate_bytes: u64,
    pub(crate) loss_percent: Option<f64>,
    pub(crate) rtt_us: Option<u64>,
    /// Whether all of its subflows are silent.
    pub(crate) is_silent: bool,
}

/// The number that paths of datagrams have in place of a trunk's.
pub(crate) const DATAGRAMS: u64 = 0;

/// Identifies a subflow by the number of its trunk and both addresses.
pub(crate) type Subflow = (u64, SocketAddr, SocketAddr);

#[derive(Debug)]
struct Seen {
    key: Key,
    reading: Reading,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    sent: u64,
    received: u64,
    resent: u64,
}

#[derive(Debug, Default)]
struct Link {
    counts: Counts,
    resent_packets: u64,
    /// Recent counts with their times.
    history: VecDeque<(Time, Counts)>,
    /// Since when the link has no subflow.
    unused_since: Option<Time>,
}

/// The counts of all links.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    subflows: BTreeMap<Subflow, Seen>,
    links: BTreeMap<Key, Link>,
}

impl Tally {
    /// Takes a reading of a subflow. The subflow stays with the link on which it was first seen, because an
    /// interface that goes down loses its address.
    pub(crate) fn read(&mut self, subflow: Subflow, key: Key, reading: Reading) {
        let seen = self.subflows.entry(subflow).or_insert_with(|| Seen { key, reading: Reading::default() });
        let before = std::mem::replace(&mut seen.reading, reading);
        let link = self.links.entry(seen.key.clone()).or_default();
        // A subflow that counts less than before is a new one with the same addresses.
        let is_same =
            reading.sent_bytes >= before.sent_bytes && reading.received_bytes >= before.received_bytes;
        let before = if is_same { before } else { Reading::default() };
        link.counts.sent += reading.sent_bytes - before.sent_bytes;
        link.counts.received += reading.received_bytes - before.received_bytes;
        link.counts.resent += reading.resent_bytes.saturating_sub(before.resent_bytes);
        link.resent_packets += reading.resent_packets.saturating_sub(before.resent_packets);
    }

    /// Forgets the subflows of the trunk that do not exist any more.
    pub(crate) fn retain(&mut self, trunk: u64, is_there: impl Fn(&Subflow) -> bool) {
        self.subflows.retain(|subflow, _| subflow.0 != trunk || is_there(subflow));
    }

    /// Ends a round of readings at this time: stores the counts and forgets old links.
    pub(crate) fn step(&mut self, now: Time) {
        for (key, link) in &mut self.links {
            link.history.push_back((now, link.counts));
            while link.history.len() > 2 && now.since(link.history[1].0) >= LOSS_SPAN {
                link.history.pop_front();
            }
            let is_used = self.subflows.values().any(|seen| seen.key == *key);
            link.unused_since = if is_used { None } else { link.unused_since.or(Some(now)) };
        }
        let is_old = |link: &Link| link.unused_since.is_some_and(|since| now.since(since) >= FORGET_AFTER);
        self.links.retain(|_, link| !is_old(link));
        while self.links.len() > LINKS_MAX {
            let unused = self.links.iter().filter_map(|(key, link)| Some((link.unused_since?, key.clone())));
            let Some((_, oldest)) = unused.min() else { break };
            self.links.remove(&oldest);
        }
    }

    /// Returns the links, ordered by name.
    pub(crate) fn rows(&self) -> Vec<Row> {
        self.links.iter().map(|(key, link)| self.row(key, link)).collect()
    }

    fn row(&self, key: &Key, link: &Link) -> Row {
        let those = self.subflows.iter().filter(|(_, seen)| seen.key == *key);
        let (numbers, mine): (Vec<u64>, Vec<&Reading>) =
            those.map(|(subflow, seen)| (subflow.0, &seen.reading)).unzip();
        let paths = numbers.iter().filter(|trunk| **trunk == DATAGRAMS).count();
        let rtts: Vec<u64> = mine.iter().filter_map(|reading| reading.rtt_us).collect();
        let mean = |values: &[u64]| values.iter().sum::<u64>().checked_div(values.len() as u64);
        let last = link.history.back().copied();
        let since = |span: Span| {
            let (now, counts) = last?;
            let then = link.history.iter().rev().find(|(at, _)| now.since(*at) >= span);
            let (then, before) = then.or(link.history.front())?;
            Some((now.since(*then).as_nanos() as f64 / 1e9, *before, counts))
                .filter(|(seconds, ..)| *seconds > 0.0)
        };
        let rate = |of: fn(&Counts) -> u64| {
            since(RATE_SPAN)
                .map_or(0, |(seconds, before, now)| ((of(&now) - of(&before)) as f64 / seconds) as u64)
        };
        let sent_of_late =
            since(LOSS_SPAN).map(|(_, before, now)| (now.sent - before.sent, now.resent - before.resent));
        let lost =
            sent_of_late.filter(|(sent, _)| *sent > 0).map(|(sent, resent)| resent as f64 / sent as f64);
        let measured = mine.iter().filter_map(|reading| reading.loss).reduce(f64::max);
        Row {
            key: key.clone(),
            subflows: u32::try_from(mine.len() - paths).unwrap_or(u32::MAX),
            has_datagrams: paths > 0,
            sent_bytes: link.counts.sent,
            received_bytes: link.counts.received,
            resent_packets: link.resent_packets,
            sent_rate_bytes: rate(|counts| counts.sent),
            received_rate_bytes: rate(|counts| counts.received),
            loss_percent: lost.or(measured).map(|part| 100.0 * part.min(1.0)),
            rtt_us: mean(&rtts),
            is_silent: !mine.is_empty() && mine.iter().all(|reading| reading.is_silent),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(link: &str) -> Key {
        Key { client: None, link: link.to_owned() }
    }

    fn subflow(trunk: u64, port: u16) -> Subflow {
        let at = |ip: &str| SocketAddr::new(ip.parse().unwrap(), port);
        (trunk, at("192.0.2.1"), at("192.0.2.2"))
    }

    fn reading(sent_bytes: u64, received_bytes: u64, resent_bytes: u64) -> Reading {
        Reading { sent_bytes, received_bytes, resent_bytes, rtt_us: Some(20_000), ..Reading::default() }
    }

    #[test]
    fn a_link_has_what_all_of_its_subflows_moved_also_those_that_are_gone() {
        let mut tally = Tally::default();
        for second in 0..=10_u64 {
            tally.read(subflow(1, 1), key("a"), reading(second * 1_000, second * 50_000, second * 10));
            tally.read(subflow(2, 1), key("a"), reading(second * 1_000, 0, 0));
            tally.read(subflow(2, 2), key("b"), reading(0, 7, 0));
            tally.step(Time::ZERO + Span::from_secs(second));
        }
        let rows = tally.rows();
        assert_eq!(rows.iter().map(|row| row.key.link.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        let a = &rows[0];
        assert_eq!((a.sent_bytes, a.received_bytes, a.subflows), (20_000, 500_000, 2));
        assert_eq!((a.sent_rate_bytes, a.received_rate_bytes, a.rtt_us), (2_000, 50_000, Some(20_000)));
        assert!((a.loss_percent.unwrap() - 0.5).abs() < 1e-9, "{a:?}");
        assert_eq!((rows[1].received_bytes, rows[1].received_rate_bytes, rows[1].loss_percent), (7, 0, None));

        tally.retain(1, |_| false);
        // A new subflow has the same port and counts from 0.
        tally.read(subflow(2, 1), key("a"), reading(5, 0, 0));
        tally.step(Time::ZERO + Span::from_secs(11));
        let a = &tally.rows()[0];
        assert_eq!((a.sent_bytes, a.received_bytes, a.subflows), (20_005, 500_000, 1));
        tally.retain(2, |_| false);
        tally.step(Time::ZERO + Span::from_secs(12));
        assert_eq!(tally.rows()[0].subflows, 0);
        tally.step(Time::ZERO + Span::from_secs(12 + 3_600));
        assert_eq!(tally.rows(), []);
    }

    #[test]
    fn a_link_is_silent_if_all_of_its_subflows_are_and_there_are_not_more_than_so_many() {
        let mut tally = Tally::default();
        let silent = Reading { is_silent: true, ..reading(1, 1, 0) };
        tally.read(subflow(1, 1), key("a"), silent);
        tally.read(subflow(1, 2), key("a"), reading(1, 1, 0));
        assert!(!tally.rows()[0].is_silent);
        tally.read(subflow(1, 2), key("a"), silent);
        assert!(tally.rows()[0].is_silent);
        for n in 0..2 * LINKS_MAX as u64 {
            tally.read(subflow(9 + n, 1), key(&n.to_string()), reading(1, 1, 0));
            tally.retain(9 + n, |_| false);
        }
        tally.step(Time::ZERO);
        assert_eq!(tally.rows().len(), LINKS_MAX);
        assert!(tally.rows().iter().any(|row| row.key == key("a")), "one that is used stays");
    }
}
