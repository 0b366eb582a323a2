//! The node of a domain that this machine is.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use anabranch_algo::Span;
use anabranch_net::Clock;
use anabranch_net::private_file::read_secret;
use anabranch_overlay::client::Member;
use anabranch_overlay::domain::{Domain, PathChoice, Service};
use anabranch_overlay::domain_file;
use anabranch_overlay::frame::{self, Frame, Routed};
use anabranch_overlay::member_key::{KeyError, MemberKey};
use anabranch_overlay::message::Route;
use anabranch_overlay::publication::Scope;
use anabranch_topology::graph::{LinkId, NodeId};

use super::line_sockets::Arrived;
use crate::filenames::show;
use crate::secret::secret;
use crate::{Error, Result};

/// The number of bytes of a domain's file that are read.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// A node of a domain: the one that this machine is.
#[derive(Clone, Debug)]
pub struct Place {
    domain: Arc<Domain>,
    node: NodeId,
    key: Option<MemberKey>,
}

impl Place {
    /// Reads the file of a domain, and finds out which of its nodes this machine is. That is the node named
    /// `node`, or else the one that has a line with an address of this machine.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) if the file cannot be read or makes no sense, or if it
    /// does not tell which node this is.
    pub fn new(file: &Path, node: Option<&str>) -> Result<Self> {
        let shown = show(file);
        let wrong = |why: String| Error::usage(format!("domain {shown}: {why}")).at(file);
        let text = read(file).map_err(|e| wrong(e.to_string()).because(e))?;
        let domain = domain_file::read(&text).map_err(|e| wrong(e.to_string()).because(e))?;
        let node = match node {
            Some(name) => domain.graph.by_name(name).ok_or_else(|| {
                let names: Vec<&str> = domain.graph.nodes().iter().map(|node| &*node.name).take(20).collect();
                wrong(format!("there is no node {name:?}; there are {}", names.join(", ")))
            })?,
            None => here(&domain).map_err(wrong)?,
        };
        Ok(Self { domain: Arc::new(domain), node, key: None })
    }

    /// Adds the key in a file. Forwarders and services of a domain with keyed identifiers need it.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) if the file cannot be read, others can read it, or it
    /// has no key of this domain.
    pub fn with_key(mut self, file: &Path) -> Result<Self> {
        let wrong = |why: String| Error::usage(format!("key {}: {why}", show(file))).at(file);
        let bytes = read_secret(file, FILE_BYTES_MAX).map_err(|e| wrong(e.to_string()).because(e))?;
        let text = String::from_utf8(bytes).map_err(|_| wrong(KeyError::NoKey.to_string()))?;
        self.key = Some(MemberKey::parse(&self.domain, &text).map_err(|e| wrong(e.to_string()).because(e))?);
        Ok(self)
    }

    /// Returns the key, if there is one.
    #[must_use]
    pub const fn key(&self) -> Option<&MemberKey> {
        self.key.as_ref()
    }

    /// Returns the domain.
    #[must_use]
    pub const fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// Returns the node.
    #[must_use]
    pub const fn node(&self) -> NodeId {
        self.node
    }

    /// Returns the name of the node.
    #[must_use]
    pub fn node_name(&self) -> &str {
        self.name_of(self.node)
    }

    /// Returns how paths are chosen for transfers of this class, or for transfers without a class.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) if the domain has no such class.
    pub(crate) fn path_choice(&self, class: Option<&str>) -> Result<PathChoice> {
        self.domain.path_choice(class).map_err(|e| Error::usage(format!("`class`: {e}")).because(e))
    }

    /// Returns the name of a node.
    #[must_use]
    pub fn name_of(&self, node: NodeId) -> &str {
        &self.domain.graph.node(node).name
    }

    /// Returns the addresses of this node, one for each line.
    #[must_use]
    pub fn addresses(&self) -> Vec<IpAddr> {
        let links = self.domain.graph.outgoing(self.node);
        links.iter().map(|link| self.domain.address_here(*link)).collect()
    }

    /// Returns the address to which frames go that leave this node by a link, preceded by this node's own
    /// address on that line. Returns `None` if the link is of another node, or leads to a host.
    #[must_use]
    pub fn hop(&self, link: LinkId) -> Option<(IpAddr, SocketAddr)> {
        let is_own = self.domain.graph.outgoing(self.node).contains(&link);
        self.domain.first_hop(&[link]).filter(|_| is_own)
    }

    /// Returns this node's address on the line to a neighbour that forwards.
    #[must_use]
    pub fn address_towards(&self, forwarder: SocketAddr) -> Option<IpAddr> {
        let links = self.domain.graph.outgoing(self.node).iter();
        let mut hops = links.filter_map(|link| self.domain.first_hop(&[*link]));
        hops.find(|(_, there)| *there == forwarder).map(|(from, _)| from)
    }

    /// Returns the frames that have arrived, if their sender is a neighbour that forwards.
    pub fn routed<'a>(&self, arrived: &'a Arrived<'_>) -> impl Iterator<Item = Routed<'a>> + use<'a> {
        let is_known = self.address_towards(arrived.from).is_some();
        let datagrams = arrived.received.datagrams().filter(move |_| is_known);
        datagrams.filter_map(|datagram| match frame::parse(datagram) {
            Ok(Frame::Routed(routed)) => Some(routed),
            _ => None,
        })
    }

    /// Returns the links of a route from this node; `None` if the route does not begin here.
    pub(crate) fn links_of(&self, route: &Route) -> Option<Vec<LinkId>> {
        self.domain.links_at(self.node, &route.places)
    }

    /// Returns the names of the forwarders on a way, for reports: `r1 r2 r5`.
    pub(crate) fn forwarders_on(&self, links: &[LinkId]) -> String {
        let visited = links.iter().map(|link| self.domain.graph.link(*link).to);
        let forwarders = visited.filter(|node| self.domain.is_forwarder(*node));
        forwarders.map(|node| self.name_of(node)).collect::<Vec<_>>().join(" ")
    }

    /// Checks that a service of the domain is on this node. `what` names the service.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) if it is on another node.
    pub fn must_be_at(&self, what: &str, service: Service) -> Result<()> {
        if service.node == self.node {
            return Ok(());
        }
        Err(Error::usage(format!(
            "in the domain {} {what} is on {}, not on {}",
            self.domain.name,
            self.name_of(service.node),
            self.node_name()
        )))
    }

    /// Returns the data that a member's machine needs. Answers to it come to `port`.
    ///
    /// # Errors
    /// [`ErrorKind::System`](crate::ErrorKind::System) if the system has no random numbers.
    pub(crate) fn member(&self, port: u16, clock: Clock) -> Result<Member> {
        Ok(Member {
            domain: Arc::clone(&self.domain),
            node: self.node,
            port,
            secret: secret()?,
            zero_since_1970: since_1970(clock),
        })
    }
}

fn read(file: &Path) -> std::io::Result<String> {
    use std::io::Read as _;
    let mut text = String::new();
    std::fs::File::open(file)?.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    Ok(text)
}

/// Returns the node that has this machine's addresses.
fn here(domain: &Domain) -> Result<NodeId, String> {
    let interfaces =
        anabranch_net::interfaces().map_err(|e| format!("cannot list this machine's addresses: {e}"))?;
    let own: BTreeSet<IpAddr> = interfaces.into_iter().flat_map(|interface| interface.addresses).collect();
    let nodes = domain.nodes_at(&own);
    let names: Vec<&str> = nodes.iter().map(|node| &*domain.graph.node(*node).name).collect();
    match nodes.first() {
        Some(node) if nodes.len() == 1 => Ok(*node),
        Some(_) => Err(format!("this machine has addresses of {}: say which with `node`", names.join(", "))),
        None => Err("this machine has no address of any of its lines: is it up? Or say which node with \
                     `node`"
            .into()),
    }
}

/// Returns a message that says that a domain has no such scope, and which scopes it has.
pub(crate) fn unknown_scope(domain: &Domain, scope: &Scope) -> String {
    let known: Vec<String> = domain.scopes().map(ToString::to_string).collect();
    let known = if known.is_empty() { "none".into() } else { known.join(", ") };
    format!("the domain {} has no scope {scope}; it has: {known}", domain.name)
}

/// Returns the time from the beginning of 1970 to the zero of `clock`.
#[expect(clippy::disallowed_methods, reason = "publications have dates")]
#[must_use]
pub fn since_1970(clock: Clock) -> Span {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let now = Span::from_nanos(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX));
    now - clock.now().since(anabranch_algo::Time::ZERO)
}
