//! Measures each link from the subflows of all trunks: the bytes that it moved, its round-trip time, and the
//! trunks that have lost it. It reads no clock and no socket.
//!
//! A trunk without a subflow over a working link is *lame* in two cases. The first is that it had such a
//! subflow: a server with too low a limit of subflows does not let it join again. The second is that another
//! trunk uses more links: Linux does not repeat a join that was lost. If all trunks use equally few links,
//! the server allows no more, and a new trunk would not help.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use anabranch_algo::{Span, Time};
use anabranch_net::mptcp_socket::SubflowInfo;
use anabranch_net::netlink::TcpState;

use crate::links::liveness::Sample;

/// The time, plus a few round trips, for which a subflow may be missing: a lost SYN is sent again after a
/// second.
const JOINS_WITHIN: Span = Span::from_millis(1_250);
const JOINS_WITHIN_RTTS: u64 = 4;

#[derive(Debug, Default)]
struct Trunk {
    /// The bytes that each subflow had moved, by the subflow's local address.
    counted: BTreeMap<SocketAddr, u64>,
    /// For each link: whether a subflow uses it, whether one did, and since when one is missing.
    links: Vec<Presence>,
}

impl Trunk {
    fn links_used(&self) -> usize {
        self.links.iter().filter(|link| link.is_there).count()
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Presence {
    is_there: bool,
    was_there: bool,
    missing_since: Option<Time>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Link {
    moved: u64,
    /// The longest smoothed round-trip time among the subflows that last moved bytes. Idle subflows are left
    /// out: the first value of a joined subflow is that of its handshake, with a delayed answer.
    rtt: Span,
}

/// The measurements of links by index and of trunks by number.
#[derive(Debug)]
pub(crate) struct Meter {
    trunks: BTreeMap<u64, Trunk>,
    links: Vec<Link>,
}

impl Meter {
    pub(crate) fn new(links: usize) -> Self {
        Self { trunks: BTreeMap::new(), links: vec![Link::default(); links] }
    }

    /// Takes the present state of each trunk's subflows, and returns a sample of each link. `places` are the
    /// addresses of each link, none if it is down; `is_out` marks links that were taken away. Trunks that are
    /// not in `trunks` are forgotten.
    pub(crate) fn measure(
        &mut self,
        now: Time,
        places: &[Vec<IpAddr>],
        is_out: &[bool],
        trunks: &[(u64, Vec<SubflowInfo>)],
    ) -> Vec<Sample> {
        let up = |addresses: &Vec<IpAddr>| Sample { is_up: !addresses.is_empty(), ..Sample::default() };
        let mut samples: Vec<Sample> = places.iter().map(up).collect();
        let mut moving: Vec<Option<Span>> = vec![None; places.len()];
        self.trunks.retain(|number, _| trunks.iter().any(|(other, _)| other == number));
        for (number, subflows) in trunks {
            let trunk = self.trunks.entry(*number).or_default();
            trunk.counted.retain(|local, _| subflows.iter().any(|subflow| subflow.local == *local));
            let mut is_there = vec![false; places.len()];
            for SubflowInfo { local, tcp, .. } in subflows {
                let Some(n) = places.iter().position(|addresses| addresses.contains(&local.ip())) else {
                    continue;
                };
                // The first subflow of a connection stays in the list when it is closed.
                let is_open = tcp.state == Some(TcpState::Established);
                is_there[n] |= is_open;
                let moved = tcp.bytes_acked + tcp.bytes_received;
                let more = moved.saturating_sub(trunk.counted.insert(*local, moved).unwrap_or(0));
                self.links[n].moved += more;
                if more > 0 {
                    let rtt = Span::from_micros(u64::from(tcp.rtt_us));
                    moving[n] = Some(moving[n].map_or(rtt, |other| other.max(rtt)));
                }
                samples[n].is_waiting |= is_open && tcp.unacked > 0;
            }
            trunk.links.resize(places.len(), Presence::default());
            for (link, is_there) in trunk.links.iter_mut().zip(&is_there) {
                link.is_there = *is_there;
                link.was_there |= *is_there;
            }
        }
        let most = self.trunks.values().map(Trunk::links_used).max().unwrap_or(0);
        for trunk in self.trunks.values_mut() {
            let has_fewer = trunk.links_used() < most;
            for (n, link) in trunk.links.iter_mut().enumerate() {
                let is_due = (link.was_there || has_fewer) && !is_out[n] && samples[n].is_up;
                let is_missing = is_due && !link.is_there;
                link.missing_since = is_missing.then(|| link.missing_since.unwrap_or(now));
            }
        }
        for ((sample, link), rtt) in samples.iter_mut().zip(&mut self.links).zip(moving) {
            link.rtt = rtt.unwrap_or(link.rtt);
            (sample.moved_bytes, sample.rtt) = (link.moved, link.rtt);
        }
        samples
    }

    /// Returns the trunks that use the link with this index.
    pub(crate) fn over(&self, link: usize) -> Vec<u64> {
        let uses = |trunk: &Trunk| trunk.links.get(link).is_some_and(|link| link.is_there);
        self.trunks.iter().filter(|(_, trunk)| uses(trunk)).map(|(number, _)| *number).collect()
    }

    /// Returns the trunks that lack a working link, each with the link.
    pub(crate) fn lame(&self, now: Time) -> Vec<(u64, usize)> {
        let slowest = self.links.iter().map(|link| link.rtt).max().unwrap_or(Span::ZERO);
        let patience = JOINS_WITHIN + slowest.times(JOINS_WITHIN_RTTS);
        let lacks = |trunk: &Trunk| {
            let is_late = |link: &Presence| link.missing_since.is_some_and(|at| now.since(at) > patience);
            trunk.links.iter().position(is_late)
        };
        self.trunks.iter().filter_map(|(number, trunk)| Some((*number, lacks(trunk)?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use anabranch_net::netlink::TcpInfo;

    use super::*;

    const LIVE: [bool; 2] = [false; 2];

    const fn at(millis: u64) -> Time {
        Time::from_nanos(millis * 1_000_000)
    }

    fn places() -> [Vec<IpAddr>; 2] {
        ["10.0.0.1", "10.0.1.1"].map(|ip| vec![ip.parse().unwrap()])
    }

    fn subflow(local: &str, bytes_received: u64, rtt_us: u32) -> SubflowInfo {
        let tcp =
            TcpInfo { state: Some(TcpState::Established), bytes_received, rtt_us, ..TcpInfo::default() };
        SubflowInfo { local: local.parse().unwrap(), remote: "192.0.2.1:80".parse().unwrap(), tcp }
    }

    #[test]
    fn bytes_are_counted_once_and_the_round_trip_is_that_of_what_moves() {
        let mut meter = Meter::new(2);
        let trunks = [
            (1, vec![subflow("10.0.0.1:1", 500, 20_000), subflow("10.0.1.1:2", 0, 208_000)]),
            (2, vec![subflow("10.0.0.1:3", 50, 30_000)]),
        ];
        let samples = meter.measure(at(0), &places(), &LIVE, &trunks);
        assert_eq!((samples[0].moved_bytes, samples[0].rtt), (550, Span::from_millis(30)));
        assert_eq!((samples[1].moved_bytes, samples[1].rtt), (0, Span::ZERO), "it has moved nothing");
        // Trunk 2 is gone, and a new subflow was made.
        let trunks = [(1, vec![subflow("10.0.0.1:1", 600, 25_000), subflow("10.0.1.1:9", 7, 40_000)])];
        let samples = meter.measure(at(100), &places(), &LIVE, &trunks);
        assert_eq!((samples[0].moved_bytes, samples[0].rtt), (650, Span::from_millis(25)));
        assert_eq!((samples[1].moved_bytes, samples[1].rtt), (7, Span::from_millis(40)));
    }

    #[test]
    fn a_trunk_that_does_not_take_a_link_up_again_is_lame() {
        let mut meter = Meter::new(2);
        let first = || subflow("10.0.0.1:1", 0, 20_000);
        let both = (1, vec![first(), subflow("10.0.1.1:2", 0, 20_000)]);
        let one = (2, vec![subflow("10.0.0.1:3", 0, 20_000)]);
        meter.measure(at(0), &places(), &LIVE, &[both, one.clone()]);
        assert_eq!(meter.lame(at(1_250)), []);
        let mut closed = subflow("10.0.1.1:2", 0, 20_000);
        closed.tcp.state = Some(TcpState::Closed);
        let lost = [(1, vec![first(), closed]), one];
        meter.measure(at(100), &places(), &[false, true], &lost);
        meter.measure(at(60_000), &places(), &[false, true], &lost);
        assert_eq!(meter.lame(at(60_000)), [], "the link is dead");
        meter.measure(at(60_100), &places(), &LIVE, &lost);
        meter.measure(at(61_200), &places(), &LIVE, &lost);
        assert_eq!(meter.lame(at(61_300)), [], "a SYN may be lost");
        assert_eq!(meter.lame(at(61_400)), [(1, 1)], "and trunk 2 never had it");
        assert_eq!((meter.over(0), meter.over(1)), (vec![1, 2], vec![]));
        let joined = [(1, vec![first(), subflow("10.0.1.1:7", 0, 20_000)])];
        meter.measure(at(62_300), &places(), &LIVE, &joined);
        assert_eq!(meter.lame(at(70_000)), []);
    }

    #[test]
    fn a_trunk_that_uses_fewer_links_than_another_is_lame() {
        let mut meter = Meter::new(3);
        let places = [&places()[..], &[vec!["10.0.2.1".parse().unwrap()]]].concat();
        let [a, b, c] = ["10.0.0.1:1", "10.0.1.1:2", "10.0.2.1:3"].map(|local| subflow(local, 0, 20_000));
        let none_out = [false; 3];
        // The server allows one more subflow of each trunk, so a new trunk would not have more.
        let trunks = [(1, vec![a, b]), (2, vec![a, c])];
        meter.measure(at(0), &places, &none_out, &trunks);
        meter.measure(at(60_000), &places, &none_out, &trunks);
        assert_eq!(meter.lame(at(60_000)), []);
        // The join of another trunk was lost.
        let trunks = [&trunks[..], &[(3, vec![a])]].concat();
        meter.measure(at(60_100), &places, &none_out, &trunks);
        assert_eq!(meter.lame(at(61_350)), []);
        assert_eq!(meter.lame(at(61_400)), [(3, 1)]);
        meter.measure(at(61_500), &places, &[false, true, true], &trunks);
        assert_eq!(meter.lame(at(70_000)), [], "they are out");
        meter.measure(at(61_600), &places, &none_out, &[(2, vec![b]), (3, vec![b])]);
        assert_eq!(meter.lame(at(90_000)).len(), 2, "both have lost one");
    }
}
