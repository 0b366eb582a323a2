//! A domain: the data that every member of a network has, and the conclusions from it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::OnceLock;

use anabranch_algo::{Rate, Span, Time};
use anabranch_topology::disjoint::{Disjoint, disjoint_paths};
use anabranch_topology::fid::Header;
use anabranch_topology::graph::{Builder, Graph, LinkId, NodeId};
use anabranch_topology::groups::Grouping;
use anabranch_topology::paths::{Costs, Path, Router};
use anabranch_topology::plan::Policy;
use anabranch_topology::tags::{EncodeError, Forwarder, Tags};

use crate::publication::{PublicKey, Scope};

pub use crate::class::{Class, ClassId, Classes, PathChoice, UnknownClass};

/// The most paths for one receiver.
pub const PATHS_MAX: usize = 12;

/// The place of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Service {
    /// The host of the service.
    pub node: NodeId,
    /// The UDP port of the service on the host.
    pub port: u16,
}

/// A domain, as [`crate::domain_file::read`] reads it; see the [module](self). All members read the same
/// file, so nodes and links have the same numbers everywhere.
#[derive(Clone, Debug)]
pub struct Domain {
    /// The name of the domain.
    pub name: String,
    /// The nodes and links. Each link has a reverse.
    pub graph: Graph,
    /// The time for which keyed forwarding identifiers of one epoch are made ([`seal`](crate::seal)); `None`
    /// if the identifiers of the domain are open.
    pub epoch: Option<Span>,
    /// The UDP port of all forwarders.
    pub forwarder_port: u16,
    /// The rendezvous, which looks names up.
    pub rendezvous: Service,
    /// The topology manager, which knows the paths.
    pub topology: Service,
    /// The paths that receivers without a class ask for.
    pub paths: PathChoice,
    /// The classes of transfers.
    pub classes: Classes,
    pub(crate) scopes: BTreeMap<Scope, PublicKey>,
    pub(crate) forwarders: BTreeSet<NodeId>,
    /// The address of each link's end where the link begins.
    pub(crate) ends: Vec<IpAddr>,
    /// The rate limit of each line.
    pub(crate) limits: Vec<Option<Rate>>,
    pub(crate) tags: Tags,
    /// The forwarding rule of each node.
    pub(crate) rules: Vec<Forwarder>,
    /// The answer of [`keyed_links_max`](Self::keyed_links_max), once it was asked for.
    pub(crate) keyed_links_max: OnceLock<usize>,
}

/// A way from one node to another, and back over the same lines.
#[derive(Clone, Debug, PartialEq)]
pub struct Way {
    /// The links of the way there.
    pub links: Vec<LinkId>,
    /// The header of packets there.
    pub there: Header,
    /// The header of packets back.
    pub back: Header,
}

/// A way to one of several targets.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedWay {
    /// The position of the target.
    pub target: usize,
    /// The group: ways of the same group share a link, or are joined by ways that do.
    pub group: u32,
    /// The way.
    pub way: Way,
}

impl Domain {
    /// Whether forwarding identifiers are keyed.
    #[must_use]
    pub const fn is_keyed(&self) -> bool {
        self.epoch.is_some()
    }

    /// Returns the epoch of keyed identifiers at a time since 1970; 0 in a domain with open identifiers.
    #[must_use]
    pub fn epoch_at(&self, since_1970: Time) -> u32 {
        let epoch = self.epoch.and_then(|epoch| since_1970.as_nanos().checked_div(epoch.as_nanos()));
        u32::try_from(epoch.unwrap_or(0)).unwrap_or(u32::MAX)
    }

    /// Returns the number of links of the longest way for which a keyed identifier is made. It is twice the
    /// number on the longest of the shortest ways between two hosts, which leaves room for detours. It is at
    /// most the number on a way that visits each forwarder once. The fewer bits an identifier may have, the
    /// harder it is to guess.
    #[must_use]
    pub fn keyed_links_max(&self) -> usize {
        *self.keyed_links_max.get_or_init(|| self.longest_keyed_way())
    }

    /// Finds the number of links of the longest way for which a keyed identifier is made.
    fn longest_keyed_way(&self) -> usize {
        let most = self.forwarders.len() + 1;
        let mut longest = 0;
        for host in self.graph.node_ids().filter(|node| !self.is_forwarder(*node)) {
            longest = longest.max(self.links_to_farthest_host(host));
            // Longer ways change nothing.
            if 2 * longest >= most {
                break;
            }
        }
        (2 * longest).min(most)
    }

    /// Returns the number of links on the longest of the shortest ways from a host to other hosts.
    fn links_to_farthest_host(&self, host: NodeId) -> usize {
        let mut seen = BTreeSet::from([host]);
        let (mut here, mut links, mut farthest) = (vec![host], 0, 0);
        while !here.is_empty() {
            links += 1;
            let next = here.iter().flat_map(|node| self.graph.outgoing(*node));
            let next: BTreeSet<NodeId> = next.map(|link| self.graph.link(*link).to).collect();
            let new: Vec<NodeId> = next.into_iter().filter(|node| seen.insert(*node)).collect();
            if new.iter().any(|node| !self.is_forwarder(*node)) {
                farthest = links;
            }
            here = new.into_iter().filter(|node| self.is_forwarder(*node)).collect();
        }
        farthest
    }

    /// Whether a node forwards. The others are hosts: nothing passes through them.
    #[must_use]
    pub fn is_forwarder(&self, node: NodeId) -> bool {
        self.forwarders.contains(&node)
    }

    /// Returns all forwarders.
    pub fn forwarders(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.forwarders.iter().copied()
    }

    /// Returns the key of a scope, if the domain has the scope.
    #[must_use]
    pub fn scope_key(&self, scope: &Scope) -> Option<&PublicKey> {
        self.scopes.get(scope)
    }

    /// Returns the scopes of the domain.
    pub fn scopes(&self) -> impl Iterator<Item = &Scope> {
        self.scopes.keys()
    }

    /// Returns the paths that transfers of a class ask for; without a class, the paths of transfers that have
    /// none.
    ///
    /// # Errors
    /// If the domain has no class of this name.
    pub fn path_choice(&self, class: Option<&str>) -> Result<PathChoice, UnknownClass> {
        class.map_or(Ok(self.paths), |name| Ok(self.classes.by_name(&self.name, name)?.paths))
    }

    /// Returns the address that a node has on the line by which `link` leaves it.
    #[must_use]
    pub fn address_here(&self, link: LinkId) -> IpAddr {
        self.ends[link.index()]
    }

    /// Returns the address of the node where a link ends, with the node's port if it is a forwarder.
    #[must_use]
    pub fn address_there(&self, link: LinkId) -> (IpAddr, Option<u16>) {
        let there = self.graph.link(link).to;
        (self.ends[self.reverse(link).index()], self.is_forwarder(there).then_some(self.forwarder_port))
    }

    /// Returns the other direction of a link.
    #[must_use]
    pub fn reverse(&self, link: LinkId) -> LinkId {
        self.graph.link(link).reverse.expect("a domain has lines only")
    }

    /// Returns the rate that the domain may use of a link, if that is limited.
    #[must_use]
    pub fn limit(&self, link: LinkId) -> Option<Rate> {
        self.limits.get(self.line(link) as usize).copied().flatten()
    }

    /// Returns the number of a link's line in the domain's file.
    #[must_use]
    pub fn line(&self, link: LinkId) -> u32 {
        link.0 / 2
    }

    /// Whether a link begins at the node of its line that the file names first.
    #[must_use]
    pub fn is_first_of_line(&self, link: LinkId) -> bool {
        link.0.is_multiple_of(2)
    }

    /// Returns the nodes that have one of these addresses.
    #[must_use]
    pub fn nodes_at(&self, addresses: &BTreeSet<IpAddr>) -> BTreeSet<NodeId> {
        let links = self.graph.link_ids().filter(|link| addresses.contains(&self.address_here(*link)));
        links.map(|link| self.graph.link(link).from).collect()
    }

    /// Returns the forwarding rule of a node.
    #[must_use]
    pub fn forwarder(&self, node: NodeId) -> &Forwarder {
        &self.rules[node.index()]
    }

    /// Returns at most `k` ways from a node to each of the targets, at most [`PATHS_MAX`] in all, with the
    /// groups of those that share links. No way leads through a host, or over links that are not `usable`.
    /// Ways without a common link may have a host's only line in common, because there is no other.
    ///
    /// # Panics
    /// If a node is not of this domain.
    #[must_use]
    pub fn plan(
        &self,
        from: NodeId,
        targets: &[NodeId],
        k: usize,
        policy: Policy,
        usable: impl Fn(LinkId) -> bool,
    ) -> Vec<PlannedWay> {
        let mut found: Vec<(usize, Path)> = Vec::new();
        for (target, node) in targets.iter().enumerate() {
            let copies = if policy == Policy::LinkDisjoint { k } else { 1 };
            let (graph, ids) = self.between(from, *node, copies, &usable);
            let costs = Costs::delay(&graph);
            let paths = match policy {
                Policy::Shortest => Router::new(&graph, costs).shortest(from, *node, k),
                Policy::LinkDisjoint => disjoint_paths(&graph, &costs, from, *node, k, Disjoint::Links),
                Policy::NodeDisjoint => disjoint_paths(&graph, &costs, from, *node, k, Disjoint::Nodes),
            };
            found.extend(paths.into_iter().map(|mut path| {
                path.links.iter_mut().for_each(|link| *link = ids[link.index()]);
                (target, path)
            }));
        }
        // If there are too many, the best ways of each target stay.
        let mut places: Vec<usize> = (0..found.len()).collect();
        let rank =
            |place: usize| found[..place].iter().filter(|(target, _)| *target == found[place].0).count();
        places.sort_by_key(|place| rank(*place));
        places.truncate(PATHS_MAX);
        places.sort_unstable();
        let paths: Vec<&Path> = places.iter().map(|place| &found[*place].1).collect();
        let groups = Grouping::new(self.graph.links().len()).group_ids(&paths);
        let planned = places.iter().zip(groups).filter_map(|(place, group)| {
            let (target, path) = &found[*place];
            let way = self.way(&path.links).ok()?;
            // A way that a forwarder would take for a branch leads nowhere.
            let leads_to = |from, header, to| self.origin(from, header) == Some(to);
            let to = targets[*target];
            (leads_to(from, &way.there, to) && leads_to(to, &way.back, from)).then_some(PlannedWay {
                target: *target,
                group,
                way,
            })
        });
        planned.collect()
    }

    /// Returns the links that a path from one node to another may take, and which links of the domain they
    /// are. The only link of a host is there `copies` times.
    fn between(
        &self,
        from: NodeId,
        to: NodeId,
        copies: usize,
        usable: impl Fn(LinkId) -> bool,
    ) -> (Graph, Vec<LinkId>) {
        let (mut builder, mut ids) = (Builder::new(), Vec::new());
        for node in self.graph.nodes() {
            builder.node(&node.name, None).expect("a node of a graph");
        }
        for id in self.graph.link_ids() {
            let link = self.graph.link(id);
            let passes = |node: NodeId| node == from || node == to || self.is_forwarder(node);
            if !passes(link.from) || !passes(link.to) || !usable(id) {
                continue;
            }
            let is_only = |node: NodeId, links: &[LinkId]| {
                !self.is_forwarder(node) && links.iter().filter(|link| usable(**link)).count() == 1
            };
            let is_only = (link.from == from && is_only(from, self.graph.outgoing(from)))
                || (link.to == to && is_only(to, self.graph.incoming(to)));
            for _ in 0..if is_only { copies } else { 1 } {
                builder.link(link.from, link.to, None, link.delay_ns).expect("a link of a graph");
                ids.push(id);
            }
        }
        (builder.build(), ids)
    }

    /// Returns the way over these links, with the headers of packets there and back.
    ///
    /// # Errors
    /// If the links are too many for an identifier.
    pub fn way(&self, links: &[LinkId]) -> Result<Way, EncodeError> {
        let back: Vec<LinkId> = links.iter().rev().map(|link| self.reverse(*link)).collect();
        let header = |links: &[LinkId]| Ok(self.tags.encode(&self.graph, links)?.header(links));
        Ok(Way { there: header(links)?, back: header(&back)?, links: links.to_vec() })
    }

    /// Returns the node that a packet with this header reaches from a node, if it reaches exactly one. A
    /// forwarder lets a request pass only if its way back leads over the line by which it came. So this is
    /// the sender of a request whose way back is `header`.
    #[must_use]
    pub fn origin(&self, at: NodeId, header: &Header) -> Option<NodeId> {
        self.trace(at, header)?.pop()
    }

    /// Returns the nodes that a packet with this header visits from a node on, without that node; `None` if
    /// the packet visits no node, is sent to several at once, or reaches its hop limit.
    #[must_use]
    pub fn trace(&self, at: NodeId, header: &Header) -> Option<Vec<NodeId>> {
        let crossed = self.trace_links(at, header)?;
        Some(crossed.into_iter().map(|link| self.graph.link(link).to).collect())
    }

    /// Returns the links that a packet with this header crosses; `None` as for [`trace`](Self::trace).
    #[must_use]
    pub fn trace_links(&self, at: NodeId, header: &Header) -> Option<Vec<LinkId>> {
        self.trace_from(at, None, header)
    }

    /// Whether a packet with this open header that comes to a node by a link, for a port, is for a service.
    #[must_use]
    pub fn is_for_service(&self, at: NodeId, ingress: LinkId, header: &Header, port: u16) -> bool {
        let crossed = self.trace_from(at, Some(ingress), header);
        let end = crossed.and_then(|links| links.last().map(|link| self.graph.link(*link).to));
        [self.rendezvous, self.topology].iter().any(|it| Some(it.node) == end && it.port == port)
    }

    fn trace_from(
        &self,
        mut at: NodeId,
        mut ingress: Option<LinkId>,
        header: &Header,
    ) -> Option<Vec<LinkId>> {
        let (mut header, mut out) = (*header, Vec::new());
        let mut crossed = Vec::new();
        // The hop limit ends this loop.
        while let Ok(next) = self.forwarder(at).forward(&header, ingress, &mut out) {
            match out[..] {
                [] => return (!crossed.is_empty()).then_some(crossed),
                [link] => (at, ingress, header) = (self.graph.link(link).to, Some(link), next),
                _ => return None,
            }
            crossed.extend(ingress);
            if !self.is_forwarder(at) {
                return Some(crossed);
            }
        }
        None
    }

    /// Returns the position of each link of a path among the links that leave the node where it begins;
    /// `None` if a position does not fit into a byte.
    #[must_use]
    pub fn places_of(&self, links: &[LinkId]) -> Option<Vec<u8>> {
        let place = |link: &LinkId| {
            let others = self.graph.outgoing(self.graph.link(*link).from);
            u8::try_from(others.iter().position(|other| other == link)?).ok()
        };
        links.iter().map(place).collect()
    }

    /// Returns the links at these positions, from a node on; `None` if there is no link at a position.
    #[must_use]
    pub fn links_at(&self, mut from: NodeId, places: &[u8]) -> Option<Vec<LinkId>> {
        let link = |place: &u8| {
            let link = *self.graph.outgoing(from).get(usize::from(*place))?;
            from = self.graph.link(link).to;
            Some(link)
        };
        places.iter().map(link).collect()
    }

    /// Returns the host's address on the line of a way, and the address to which it sends packets for that
    /// way.
    #[must_use]
    pub fn first_hop(&self, links: &[LinkId]) -> Option<(IpAddr, SocketAddr)> {
        let first = *links.first()?;
        let (ip, port) = self.address_there(first);
        Some((self.address_here(first), SocketAddr::new(ip, port?)))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Two ways between the hosts a and b, one over r1 and r2, one over r1 and r3; the services are behind
    /// r3.
    pub(crate) const SQUARE: &str = r#"
        name = "square"
        forwarders = ["r1", "r2", "r3"]
        [rendezvous]
        node = "rv"
        [topology]
        node = "tm"
        [scopes]
        films = "GEOCV2BQS65VZKVJEN2YJWPJPQJX4SIEBHFOJN4OOWUZQV6NE7WQ"
        [[line]]
        between = ["a", "r1"]
        delay_ms = 1
        [[line]]
        between = ["r1", "r2"]
        delay_ms = 10
        rate_mbit = 100
        [[line]]
        between = ["r1", "r3"]
        delay_ms = 20
        [[line]]
        between = ["r2", "b"]
        [[line]]
        between = ["r3", "b"]
        [[line]]
        between = ["r3", "rv"]
        [[line]]
        between = ["r3", "tm"]
    "#;

    pub(crate) fn square() -> Domain {
        crate::domain_file::read(SQUARE).expect("a domain")
    }

    pub(crate) fn node(domain: &Domain, name: &str) -> NodeId {
        domain.graph.by_name(name).expect("a node")
    }

    fn names(domain: &Domain, way: &Way) -> String {
        let visits = domain.graph.visits(&way.links);
        visits.iter().map(|node| &*domain.graph.node(*node).name).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn ways_lead_through_forwarders_only() {
        let domain = square();
        let (a, b, tm) = (node(&domain, "a"), node(&domain, "b"), node(&domain, "tm"));
        let found = domain.plan(a, &[b, tm], 3, Policy::Shortest, |_| true);
        let told: Vec<_> =
            found.iter().map(|found| (found.target, found.group, names(&domain, &found.way))).collect();
        assert_eq!(
            told,
            [(0, 0, "a r1 r2 b".into()), (0, 0, "a r1 r3 b".into()), (1, 0, "a r1 r3 tm".into())],
            "not through b"
        );
    }

    #[test]
    fn ways_avoid_what_is_down() {
        let domain = square();
        let (a, b) = (node(&domain, "a"), node(&domain, "b"));
        let all = domain.plan(a, &[b], 1, Policy::Shortest, |_| true);
        let down = all[0].way.links[1];
        let left = domain.plan(a, &[b], 3, Policy::Shortest, |link| link != down);
        assert_eq!(left.iter().map(|found| names(&domain, &found.way)).collect::<Vec<_>>(), ["a r1 r3 b"]);
    }

    #[test]
    fn who_asked_is_where_the_way_back_leads() {
        let domain = square();
        let (a, b) = (node(&domain, "a"), node(&domain, "b"));
        for found in domain.plan(a, &[b], 3, Policy::Shortest, |_| true) {
            assert_eq!(domain.origin(b, &found.way.back), Some(a));
            assert_eq!(domain.origin(a, &found.way.there), Some(b));
            assert_eq!(domain.origin(a, &found.way.back), None, "it begins elsewhere");
            let short = Header { hop_limit: 1, ..found.way.back };
            assert_eq!(domain.origin(b, &short), None, "it ends on the way");
        }
    }

    #[test]
    fn a_way_that_branches_is_nobodys() {
        let domain = square();
        let (a, b, tm) = (node(&domain, "a"), node(&domain, "b"), node(&domain, "tm"));
        let to = |to| domain.plan(b, &[to], 1, Policy::Shortest, |_| true)[0].way.links.clone();
        let mut both = to(tm);
        both.extend(domain.plan(b, &[a], 2, Policy::Shortest, |_| true)[1].way.links.clone());
        both.sort_unstable();
        both.dedup();
        let forged = domain.tags.encode(&domain.graph, &both).expect("it fits").header(&both);
        assert_eq!(domain.origin(b, &forged), None);
    }

    #[test]
    fn twelve_ways_at_most() {
        let domain = square();
        let (a, b) = (node(&domain, "a"), node(&domain, "b"));
        let found = domain.plan(a, &[b; 10], 2, Policy::Shortest, |_| true);
        assert_eq!(found.len(), PATHS_MAX);
        assert!((0..10).all(|target| found.iter().any(|found| found.target == target)), "the best of each");
    }
}
