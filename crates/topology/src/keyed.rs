//! Tags that only the holder of a key can make (after z-Formation: Esteve Rothenberg et al., "Self-routing
//! Denial-of-Service Resistant Capabilities using In-packet Bloom Filters", EC2ND 2009). A tag is a keyed
//! hash of the link that the packet came by, the link it goes by, the flow and the table, under a key that
//! each node has for each epoch. So a FID that was seen is of no use on another way in, for another flow or
//! in a later epoch, and two of them OR-ed lead nowhere that one of them did not lead the flow already.
//!
//! The topology manager has the domain's key; a node gets its own keys only.

use crate::fid::{Bits, EPOCHS, Egress, Header, Kind, Limits, Refusal, TABLES};
use crate::graph::{Graph, LinkId, NodeId};
use crate::tags::{EncodeError, Encoded, choose, stream, tag};

/// Stands for "it begins here".
const NO_LINK: u32 = u32::MAX;

/// The secret of a domain.
#[derive(Clone)]
pub struct DomainKey([u8; 32]);

/// What one node can make tags with, in one epoch.
#[derive(Clone)]
pub struct NodeKey {
    epoch: u32,
    key: [u8; 32],
}

impl std::fmt::Debug for DomainKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DomainKey(..)")
    }
}

impl std::fmt::Debug for NodeKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NodeKey(epoch {}, ..)", self.epoch)
    }
}

impl DomainKey {
    /// From 32 random bytes.
    #[must_use]
    pub const fn new(secret: [u8; 32]) -> Self {
        Self(secret)
    }

    /// The key of a node in an epoch.
    #[must_use]
    pub fn node_key(&self, node: NodeId, epoch: u32) -> NodeKey {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(b"node key").update(&node.0.to_le_bytes()).update(&epoch.to_le_bytes());
        NodeKey { epoch, key: *hasher.finalize().as_bytes() }
    }

    /// The FID of a path for one flow in one epoch.
    ///
    /// # Errors
    /// If the path is too long for one.
    pub fn encode(
        &self,
        graph: &Graph,
        path: &[LinkId],
        flow: u64,
        epoch: u32,
    ) -> Result<Encoded, EncodeError> {
        let keys: Vec<_> =
            graph.visits(path).into_iter().map(|node| (node, self.node_key(node, epoch))).collect();
        let selector = (epoch % EPOCHS) as u8 * TABLES as u8;
        choose(graph, path, Limits::filter(Kind::Keyed), selector, |table, ingress, egress| {
            let node = graph.link(egress).from;
            let key = keys.iter().find(|(visited, _)| *visited == node).map(|(_, key)| key);
            key.map_or(Bits::NONE, |key| key.tag(table, ingress, egress, flow))
        })
    }
}

impl NodeKey {
    /// The tag for packets of a flow that come by `ingress` and go by `egress`.
    #[must_use]
    pub fn tag(&self, table: usize, ingress: Option<LinkId>, egress: LinkId, flow: u64) -> Bits {
        let mut text = [0; 17];
        text[..4].copy_from_slice(&ingress.map_or(NO_LINK, |id| id.0).to_le_bytes());
        text[4..8].copy_from_slice(&egress.0.to_le_bytes());
        text[8..16].copy_from_slice(&flow.to_le_bytes());
        text[16] = table as u8;
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(&text);
        tag(stream(&hasher))
    }
}

/// The forwarding rule at one node of a domain with keyed tags. It knows the key of the present epoch and
/// that of the one before, so that packets under way survive the change.
#[derive(Clone, Debug)]
pub struct KeyedForwarder {
    links: Vec<Egress>,
    current: NodeKey,
    previous: Option<NodeKey>,
}

impl KeyedForwarder {
    /// At a node, with its first key.
    #[must_use]
    pub fn new(graph: &Graph, node: NodeId, key: NodeKey) -> Self {
        let egress = |id: &LinkId| Egress { link: *id, reverse: graph.link(*id).reverse };
        Self { links: graph.outgoing(node).iter().map(egress).collect(), current: key, previous: None }
    }

    /// The next epoch's key takes the place of the present one, which counts as the previous one from now on.
    pub fn rotate(&mut self, key: NodeKey) {
        self.previous = Some(std::mem::replace(&mut self.current, key));
    }

    /// As [`Forwarder::forward`](crate::tags::Forwarder::forward), for a packet of a flow.
    ///
    /// # Errors
    /// If it goes nowhere, whatever its links; `out` is empty then.
    pub fn forward(
        &self,
        header: &Header,
        flow: u64,
        ingress: Option<LinkId>,
        out: &mut Vec<LinkId>,
    ) -> Result<Header, Refusal> {
        out.clear();
        let next = Limits::filter(Kind::Keyed).pass(header)?;
        let keys = std::iter::once(&self.current).chain(&self.previous);
        let mut keys = keys.filter(|key| key.epoch % EPOCHS == header.fid.epoch());
        let key = keys.next().ok_or(Refusal::Epoch)?;
        let (bits, table) = (header.fid.bits(), header.fid.table());
        let matching = |egress: &&Egress| {
            !egress.leads_back(ingress) && bits.has(&key.tag(table, ingress, egress.link, flow))
        };
        out.extend(self.links.iter().filter(matching).map(|egress| egress.link));
        Ok(next)
    }
}
