//! Chooses the server of a new connection if the client has several. It reads no clock, and draws from a
//! seed.
//!
//! **The rule.** Candidates are the servers with a trunk that takes streams and answers; a server that drains
//! is none, and a full one only if all are full. The *latency* of a candidate is the trunk's round trip plus
//! the round trip between that server and the destination, which the server reports; as long as it is
//! unknown, zero is assumed, so a server is tried if it could be better. Candidates whose latency is within a
//! margin of the lowest (a quarter of it, at least 5 ms) are equally *near*. A destination stays with the
//! server that it had as long as that one is near, since many origins tie a session to an address. Else the
//! server is drawn among the near ones, with probabilities in proportion to their free capacity. That draws
//! no herd: clients that see the same old announcement spread as the servers have room.
//!
//! **What a server cannot do.** A server that lies about its load gains connections of clients that are near
//! it, at most [`CAPACITY_RATIO_MAX`] times those of the smallest server. A capacity of 0 is no announcement.

use std::collections::BTreeMap;

use anabranch_algo::split_mix::SplitMix64;
use anabranch_algo::{Span, Time};

use crate::trunk::{Announced, Host};

/// The most destinations whose server is remembered. The one that was longest unused is forgotten first.
pub const HOSTS_MAX: usize = 1_024;
/// The time after which an unused destination is forgotten and a latency is measured again.
pub const REMEMBERED_FOR: Span = Span::from_secs(600);
/// The most times that the capacity of the smallest server counts for another server.
pub const CAPACITY_RATIO_MAX: u64 = 16;
/// The least margin within which latencies count as equal, and its part of the lowest latency.
const MARGIN_MIN: Span = Span::from_millis(5);
const MARGIN_PART: u64 = 4;
/// The round trip of a trunk that was not measured yet.
const RTT_UNKNOWN: Span = Span::from_secs(1);
/// The least weight of a server, as a part of its capacity, so that the choice works if all are full.
const WEIGHT_PART: u64 = 100;

/// The state of a server on which the choice is based.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerView {
    /// The number of the server, which no other one has in the client's life.
    pub id: u64,
    /// Whether a connection can be opened there now: a trunk lives, and the server does not go away.
    pub is_open: bool,
    /// Whether the server seems to be dead.
    pub is_suspect: bool,
    /// The round trip of its trunks, if it was measured.
    pub rtt: Option<Span>,
    /// The load that it announced.
    pub load: Option<Announced>,
}

impl ServerView {
    fn announced(&self) -> Option<Announced> {
        self.load.filter(|load| load.capacity > 0)
    }

    fn is_full(&self) -> bool {
        self.announced().is_some_and(|load| load.open >= load.capacity)
    }
}

/// The memory of one destination.
#[derive(Clone, Debug)]
struct Remembered {
    /// The server of its last connection.
    server: u64,
    used: Time,
    /// The round trips between servers and the destination, and when each was measured.
    distances: BTreeMap<u64, (Span, Time)>,
}

/// Chooses servers, and remembers those of destinations.
#[derive(Clone, Debug)]
pub struct ServerChoice {
    hosts: BTreeMap<Host, Remembered>,
    random: SplitMix64,
}

impl ServerChoice {
    /// Creates a choice without memories. Clients should have different seeds.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { hosts: BTreeMap::new(), random: SplitMix64(seed) }
    }

    /// Returns the index of the server for a connection to `host`, or `None` if no server takes one.
    pub fn choose(&mut self, now: Time, host: &Host, servers: &[ServerView]) -> Option<usize> {
        let near = self.near(now, host, servers);
        let last = self.hosts.get(host).filter(|known| now.since(known.used) < REMEMBERED_FOR);
        let stays = last.and_then(|known| near.iter().find(|n| servers[**n].id == known.server));
        let chosen = match (stays, &near[..]) {
            (Some(stays), _) => *stays,
            (None, []) => return None,
            (None, [only]) => *only,
            (None, _) => self.draw(&near, servers),
        };
        self.remember(now, host, servers[chosen].id);
        Some(chosen)
    }

    /// Whether the distance between this server and the host should be measured.
    #[must_use]
    pub fn wants_distance(&self, now: Time, host: &Host, server: u64) -> bool {
        self.distance(now, host, server).is_none()
    }

    /// Notes the round trip between a server and a destination.
    pub fn learn(&mut self, now: Time, host: &Host, server: u64, rtt: Span) {
        if let Some(known) = self.hosts.get_mut(host) {
            known.distances.insert(server, (rtt, now));
        }
    }

    /// Forgets a server that the client does not have any more.
    pub fn forget(&mut self, server: u64) {
        for known in self.hosts.values_mut() {
            known.distances.remove(&server);
        }
        self.hosts.retain(|_, known| known.server != server);
    }

    /// Moves the destinations of one server to another one, where they stay if that one is near.
    pub fn move_to(&mut self, from: u64, to: u64) {
        let theirs = self.hosts.values_mut().filter(|known| known.server == from);
        theirs.for_each(|known| known.server = to);
    }

    fn distance(&self, now: Time, host: &Host, server: u64) -> Option<Span> {
        let (rtt, at) = self.hosts.get(host)?.distances.get(&server)?;
        (now.since(*at) < REMEMBERED_FOR).then_some(*rtt)
    }

    /// Returns the indices of the candidates that are equally near.
    fn near(&self, now: Time, host: &Host, servers: &[ServerView]) -> Vec<usize> {
        let open: Vec<usize> = (0..servers.len()).filter(|n| servers[*n].is_open).collect();
        let only = |all: Vec<usize>, is: &dyn Fn(&ServerView) -> bool| {
            let some: Vec<usize> = all.iter().copied().filter(|n| is(&servers[*n])).collect();
            if some.is_empty() { all } else { some }
        };
        let open = only(open, &|server| !server.is_suspect);
        let open = only(open, &|server| !server.is_full());
        let latency = |n: usize| {
            let behind = self.distance(now, host, servers[n].id).unwrap_or(Span::ZERO);
            servers[n].rtt.unwrap_or(RTT_UNKNOWN) + behind
        };
        let Some(lowest) = open.iter().map(|n| latency(*n)).min() else { return Vec::new() };
        let margin = Span::from_nanos(lowest.as_nanos() / MARGIN_PART).max(MARGIN_MIN);
        open.into_iter().filter(|n| latency(*n) <= lowest + margin).collect()
    }

    /// Draws one of these servers.
    fn draw(&mut self, near: &[usize], servers: &[ServerView]) -> usize {
        let smallest = near.iter().filter_map(|n| Some(servers[*n].announced()?.capacity)).min();
        let most = u64::from(smallest.unwrap_or(1)) * CAPACITY_RATIO_MAX;
        let weight = |load: Announced| {
            let (open, capacity) = (u64::from(load.open), u64::from(load.capacity));
            let counts = capacity.min(most);
            let free = u128::from(capacity.saturating_sub(open)) * u128::from(counts) / u128::from(capacity);
            // The product of the free part and `counts` is at most `counts`.
            u64::try_from(free).unwrap_or(counts).max(counts / WEIGHT_PART).max(1)
        };
        let known: Vec<u64> = near.iter().filter_map(|n| servers[*n].announced().map(weight)).collect();
        // A server that announces nothing counts like the mean of the others.
        let mean = known.iter().sum::<u64>().checked_div(known.len() as u64).unwrap_or(1).max(1);
        let weights: Vec<u64> = near.iter().map(|n| servers[*n].announced().map_or(mean, weight)).collect();
        let mut place = self.random.below(weights.iter().sum());
        for (n, weight) in near.iter().zip(weights) {
            match place.checked_sub(weight) {
                Some(rest) => place = rest,
                None => return *n,
            }
        }
        near[0]
    }

    fn remember(&mut self, now: Time, host: &Host, server: u64) {
        if let Some(known) = self.hosts.get_mut(host) {
            (known.server, known.used) = (server, now);
            return;
        }
        if self.hosts.len() >= HOSTS_MAX {
            let oldest = self.hosts.iter().min_by_key(|(_, known)| known.used).map(|(host, _)| host.clone());
            oldest.into_iter().for_each(|host| drop(self.hosts.remove(&host)));
        }
        let distances = BTreeMap::new();
        self.hosts.insert(host.clone(), Remembered { server, used: now, distances });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN: ServerView = ServerView {
        id: 0,
        is_open: true,
        is_suspect: false,
        rtt: Some(Span::from_millis(20)),
        load: Some(Announced { open: 0, capacity: 10_000 }),
    };

    fn host(n: usize) -> Host {
        Host::Name(format!("{n}.example").into())
    }

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    fn three() -> [ServerView; 3] {
        [0, 1, 2].map(|id| ServerView { id, ..OPEN })
    }

    /// Spreads clients over servers that announce their load once a second. Returns how many each has.
    fn spread(capacities: [u32; 3], clients: usize, a_second: usize) -> [u32; 3] {
        let mut servers = three();
        let mut open = [0_u32; 3];
        for n in 0..clients {
            if n % a_second == 0 {
                for (server, (open, capacity)) in servers.iter_mut().zip(open.iter().zip(capacities)) {
                    server.load = Some(Announced { open: *open, capacity });
                }
            }
            // The clients are at different distances, which stay within the margin.
            let mut seen = servers;
            seen.iter_mut().enumerate().for_each(|(k, server)| {
                server.rtt = Some(Span::from_millis(20 + (n as u64 * 7 + k as u64 * 3) % 5));
            });
            let mut choice = ServerChoice::new(n as u64);
            open[choice.choose(at(0), &host(n % 50), &seen).unwrap()] += 1;
        }
        open
    }

    #[test]
    fn ten_thousand_clients_spread_within_ten_percent_of_the_servers_capacities() {
        for (capacities, a_second) in
            [([10_000; 3], 1_000), ([10_000; 3], 10_000), ([5_000, 20_000, 10_000], 500), ([4_000; 3], 2_000)]
        {
            let open = spread(capacities, 10_000, a_second);
            let all: u32 = capacities.iter().sum();
            for (open, capacity) in open.iter().zip(capacities) {
                let share = 10_000.0 * f64::from(capacity) / f64::from(all);
                let off = (f64::from(*open) - share).abs() / share;
                assert!(off < 0.1, "{open} of {share:.0} ({capacities:?}, {a_second} a second)");
            }
        }
    }

    #[test]
    fn a_destination_stays_with_its_server_until_that_one_drains_dies_or_is_full() {
        let mut choice = ServerChoice::new(1);
        let mut servers = three();
        let first = choice.choose(at(0), &host(0), &servers).unwrap();
        for n in 1..100 {
            assert_eq!(choice.choose(at(n), &host(0), &servers), Some(first));
        }
        let changes: [fn(&mut ServerView); 3] = [
            |server| server.is_open = false,
            |server| server.is_suspect = true,
            |server| server.load = Some(Announced { open: 10_000, capacity: 10_000 }),
        ];
        for change in changes {
            let mut choice = choice.clone();
            change(&mut servers[first]);
            let second = choice.choose(at(200), &host(0), &servers).unwrap();
            assert_ne!(second, first);
            servers[first] = ServerView { id: first as u64, ..OPEN };
            assert_eq!(choice.choose(at(300), &host(0), &servers), Some(second), "it does not go back");
        }
        servers.iter_mut().for_each(|server| server.is_suspect = true);
        assert_eq!(choice.choose(at(400), &host(0), &servers), Some(first), "one that is slow is better");
        servers.iter_mut().for_each(|server| server.is_open = false);
        assert_eq!(choice.choose(at(400), &host(0), &servers), None);
    }

    #[test]
    fn the_nearest_to_client_and_destination_together_is_found_with_one_try_each() {
        let ms = Span::from_millis;
        let mut servers = three();
        // The first is nearest to the client, the last to the destination.
        let (near, behind) = ([10, 30, 40], [100, 60, 2]);
        servers.iter_mut().zip(near).for_each(|(server, rtt)| server.rtt = Some(ms(rtt)));
        let mut choice = ServerChoice::new(3);
        let mut taken = Vec::new();
        for n in 0..6 {
            let chosen = choice.choose(at(n * 100), &host(0), &servers).unwrap();
            let wants = choice.wants_distance(at(n * 100), &host(0), chosen as u64);
            assert_eq!(wants, n < 3);
            choice.learn(at(n * 100), &host(0), chosen as u64, ms(behind[chosen]));
            taken.push(chosen);
        }
        assert_eq!(taken, [0, 1, 2, 2, 2, 2]);
        // A far server is never tried: it cannot be better.
        servers[1].rtt = Some(ms(500));
        let mut choice = ServerChoice::new(3);
        for n in 0..6 {
            let chosen = choice.choose(at(n), &host(1), &servers[..2]).unwrap();
            choice.learn(at(n), &host(1), chosen as u64, ms(behind[chosen]));
            assert_eq!(chosen, 0);
        }
    }

    #[test]
    fn nonsense_loads_draw_no_more_than_the_bound_and_never_fail() {
        let lies = [(0, 0), (u32::MAX, 0), (u32::MAX, 1), (0, u32::MAX), (u32::MAX, u32::MAX)];
        for (open, capacity) in lies {
            let mut servers = three();
            servers[1].load = Some(Announced { open, capacity });
            let mut taken = [0; 3];
            for n in 0..3_000 {
                let mut choice = ServerChoice::new(n);
                taken[choice.choose(at(0), &host(0), &servers).unwrap()] += 1;
            }
            assert!(taken[0] > 120 && taken[2] > 120, "{taken:?} at {open} of {capacity}");
        }
    }

    #[test]
    fn the_memory_is_bounded_and_ends() {
        let mut choice = ServerChoice::new(9);
        let servers = three();
        for n in 0..3 * HOSTS_MAX {
            choice.choose(at(n as u64), &host(n), &servers).unwrap();
            choice.learn(at(n as u64), &host(n), 0, Span::from_millis(1));
        }
        assert_eq!(choice.hosts.len(), HOSTS_MAX);
        assert!(!choice.hosts.contains_key(&host(0)));
        choice.forget(0);
        assert!(choice.hosts.values().all(|known| known.server != 0 && known.distances.is_empty()));
        choice.learn(at(0), &host(0), 0, Span::ZERO);
        assert!(choice.hosts.len() <= HOSTS_MAX, "what is not known is not learned");
    }
}
