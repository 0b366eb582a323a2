//! Draws the setting of the study (dissertation §4.2.3, Fig. 4.15): clients at the access nodes of a
//! network, servers inside, and the paths between them.
//!
//! Each access node has two clients, over links of 100 Mbit/s; a dual-homed client has a second link of 12
//! Mbit/s to another, random access node. There are 10 to 20 % as many servers as clients, at random nodes;
//! each client uses one of them. Links of the network take 5 ms, access links a random time. Assumptions
//! where the text is silent: a server has no link of its own, a node may have several servers, shares and
//! servers are drawn uniformly, and each access link has a delay of its own.

use anabranch_sim::Rng;
use anabranch_topology::disjoint::{Disjoint, disjoint_paths};
use anabranch_topology::graph::{Builder, Graph, LinkId, NodeId};
use anabranch_topology::groups::Grouping;
use anabranch_topology::paths::{Costs, Path as Links, Router};

use super::network::{Flow, Link, Network, Path, Rule};

const CLIENTS_PER_ACCESS_NODE: usize = 2;
/// Least and greatest number of servers, in percent of the clients.
const SERVERS_PERCENT: (u64, u64) = (10, 20);
/// Propagation delay of a link of the network, nanoseconds.
const CORE_DELAY_NS: u64 = 5_000_000;
/// Shortest delay of an access link, milliseconds.
const ACCESS_DELAY_MIN_MS: f64 = 5.0;
/// Rates of a client's first and second access link, bits a second.
pub const ACCESS_RATES_BITS: [u64; 2] = [100_000_000, 12_000_000];

/// The rule that selects the paths of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Policy {
    /// The k shortest loopless paths by hops (Yen).
    Shortest(usize),
    /// The shortest pair of link-disjoint paths; where there is none, the two shortest paths (Bhandari).
    Disjoint,
    /// One path: the shortest by hops, over either access link. Gains are relative to it.
    Single,
    /// One path: the shortest that ends with the fast access link.
    SingleFast,
}

impl Policy {
    /// Returns the name of the policy.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Shortest(k) => format!("yen-{k}"),
            Self::Disjoint => "bhandari".into(),
            Self::Single => "single".into(),
            Self::SingleFast => "single-fast".into(),
        }
    }
}

/// The parameters of all links of one kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameters {
    /// Rate of the links of the network, bits a second.
    pub core_rate_bits: u64,
    /// Longest delay of an access link, milliseconds. The shortest is 5.
    pub access_delay_max_ms: f64,
    /// Limit of every queue, packets.
    pub queue_packets: u32,
}

/// A client and the server that it uses.
#[derive(Clone, Debug)]
struct Client {
    node: NodeId,
    server: NodeId,
    /// Whether the client uses several paths, in cases where only half of the clients do.
    is_multipath: bool,
}

/// One random draw of clients, servers and delays.
#[derive(Clone, Debug)]
pub struct Draw {
    graph: Graph,
    costs: Costs,
    /// For each access link: its place in the range of delays, 0 to 1, and its rate; `None` for links of the
    /// network.
    access: Vec<Option<(f64, u64)>>,
    clients: Vec<Client>,
}

impl Draw {
    /// Draws number `index` of `seed` in a network with this name, with single- or dual-homed clients. A
    /// network with fewer than two access nodes can have no dual-homed clients, so it has no clients at all.
    ///
    /// # Errors
    /// If the network has no room for the clients.
    pub fn new(
        name: &str,
        network: &Graph,
        is_dual_homed: bool,
        seed: u64,
        index: u64,
    ) -> Result<Self, anabranch_topology::graph::GraphError> {
        let mut rng = Rng::stream(seed, &format!("domain {name} {index}"));
        let mut builder = Builder::new();
        for node in network.nodes() {
            builder.node(&node.name, None)?;
        }
        let mut access = Vec::new();
        for link in network.links() {
            // Make the two links of a line one by one: groups and queues belong to one direction.
            builder.link(link.from, link.to, None, CORE_DELAY_NS)?;
            access.push(None);
        }
        let points = network.access_nodes();
        let mut nodes = Vec::new();
        for (place, first) in points.iter().enumerate().filter(|_| !is_dual_homed || points.len() > 1) {
            for _ in 0..CLIENTS_PER_ACCESS_NODE {
                let node = builder.node(&format!("client {place} {}", nodes.len()), None)?;
                // Make the links one-way, so that no packets pass through a client. Draw all numbers for
                // both kinds, so that a client's first link is equal in both.
                let other = (place + 1 + rng.below(points.len().max(2) as u64 - 1) as usize) % points.len();
                let delays = [rng.unit(), rng.unit()];
                let ends = [*first, points[other]];
                for home in 0..if is_dual_homed { 2 } else { 1 } {
                    builder.link(ends[home], node, None, CORE_DELAY_NS)?;
                    access.push(Some((delays[home], ACCESS_RATES_BITS[home])));
                }
                nodes.push(node);
            }
        }
        let percent = SERVERS_PERCENT.0 + rng.below(SERVERS_PERCENT.1 - SERVERS_PERCENT.0 + 1);
        let servers = (nodes.len() as u64 * percent).div_ceil(100).max(1);
        let servers: Vec<NodeId> =
            (0..servers).map(|_| NodeId(rng.below(network.nodes().len() as u64) as u32)).collect();
        let multipath = chosen(&mut rng, nodes.len(), nodes.len() / 2);
        let client = |(node, is_multipath)| {
            let server = servers[rng.below(servers.len() as u64) as usize];
            Client { node, server, is_multipath }
        };
        let clients = nodes.into_iter().zip(multipath).map(client).collect();
        let graph = builder.build();
        Ok(Self { costs: Costs::hops(&graph), graph, access, clients })
    }

    /// Returns the number of clients.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Returns whether each client has several paths, in cases where only half of them do.
    #[must_use]
    pub fn multipath_of_half(&self) -> Vec<bool> {
        self.clients.iter().map(|client| client.is_multipath).collect()
    }

    /// Returns the paths of each client from its server.
    #[must_use]
    pub fn paths(&self, policy: Policy) -> Vec<Vec<Links>> {
        let mut router = Router::new(&self.graph, self.costs.clone());
        let mut fast = Router::new(&self.graph, self.only_fast());
        let paths = |client: &Client| {
            let (from, to) = (client.server, client.node);
            match policy {
                Policy::Single => router.shortest(from, to, 1),
                Policy::SingleFast => fast.shortest(from, to, 1),
                Policy::Shortest(k) => router.shortest(from, to, k),
                Policy::Disjoint => {
                    let pair = disjoint_paths(&self.graph, &self.costs, from, to, 2, Disjoint::Links);
                    if pair.len() == 2 { pair } else { router.shortest(from, to, 2) }
                }
            }
        };
        self.clients.iter().map(paths).collect()
    }

    /// Returns costs by which no path ends with a second access link.
    fn only_fast(&self) -> Costs {
        let is_second = |id: LinkId| {
            self.access[id.index()].is_some_and(|(_, rate_bits)| rate_bits == ACCESS_RATES_BITS[1])
        };
        Costs::by(&self.graph, |id, _| if is_second(id) { 1 << 20 } else { 1 })
    }

    /// Returns the group of each path of each client: paths that share a link are in one group, as the
    /// topology manager reports.
    #[must_use]
    pub fn groups(&self, paths: &[Vec<Links>]) -> Vec<Vec<u32>> {
        let mut grouping = Grouping::new(self.graph.links().len());
        paths.iter().map(|paths| grouping.group_ids(paths)).collect()
    }

    /// Returns the network in which every client uses `paths`; if `groups` is `None`, all paths of a client
    /// are in one group.
    #[must_use]
    pub fn network(
        &self,
        parameters: &Parameters,
        rule: Rule,
        paths: &[Vec<Links>],
        groups: Option<&[Vec<u32>]>,
    ) -> Network {
        let flow = |(client, paths): (usize, &Vec<Links>)| {
            let group = |path: usize| groups.map_or(0, |groups| groups[client][path]);
            let path = |(place, links): (usize, &Links)| Path {
                links: links.links.iter().map(|id| id.index()).collect(),
                group: group(place),
            };
            Flow { rule, paths: paths.iter().enumerate().map(path).collect() }
        };
        Network { links: self.links(parameters), flows: paths.iter().enumerate().map(flow).collect() }
    }

    /// Returns the network in which half of the clients use `paths` in one group by `rule`, and the others a
    /// single TCP on their first path.
    #[must_use]
    pub fn half_multipath(&self, parameters: &Parameters, rule: Rule, paths: &[Vec<Links>]) -> Network {
        let mut network = self.network(parameters, rule, paths, None);
        for (flow, client) in network.flows.iter_mut().zip(&self.clients) {
            if !client.is_multipath {
                flow.rule = Rule::Reno;
                flow.paths.truncate(1);
            }
        }
        network
    }

    fn links(&self, parameters: &Parameters) -> Vec<Link> {
        let queue_packets = parameters.queue_packets;
        let span_ms = (parameters.access_delay_max_ms - ACCESS_DELAY_MIN_MS).max(0.0);
        let link = |access: &Option<(f64, u64)>| match access {
            None => Link { rate_bits: parameters.core_rate_bits, delay_ns: CORE_DELAY_NS, queue_packets },
            Some((part, rate_bits)) => {
                let delay_ns = (1e6 * (ACCESS_DELAY_MIN_MS + part * span_ms)) as u64;
                Link { rate_bits: *rate_bits, delay_ns, queue_packets }
            }
        };
        self.access.iter().map(link).collect()
    }
}

/// Draws `count` of `all` at random; returns which ones are chosen.
fn chosen(rng: &mut Rng, all: usize, count: usize) -> Vec<bool> {
    let mut order: Vec<usize> = (0..all).collect();
    let mut chosen = vec![false; all];
    for place in 0..count.min(all) {
        let other = place + rng.below((all - place) as u64) as usize;
        order.swap(place, other);
        chosen[order[place]] = true;
    }
    chosen
}

/// Whether two of the paths share no link.
#[must_use]
pub fn has_disjoint_pair(paths: &[Links]) -> bool {
    let apart = |a: &Links, b: &Links| a.links.iter().all(|link| !b.links.contains(link));
    paths.iter().enumerate().any(|(n, a)| paths[n + 1..].iter().any(|b| apart(a, b)))
}
