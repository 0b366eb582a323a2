//! Tags that only the holder of a key can make (after z-Formation: Esteve Rothenberg et al., "Self-routing
//! Denial-of-Service Resistant Capabilities using In-packet Bloom Filters", EC2ND 2009). A tag is a keyed
//! hash of the incoming link, the outgoing link and the table. The key belongs to one node and one epoch. So
//! a FID that was seen is useless on another incoming link or in a later epoch. The OR of two FIDs leads a
//! packet nowhere that one of them alone would not lead it from the same incoming link.
//!
//! The topology manager has the domain's key. A node gets only its own secret, from which its keys of all
//! epochs follow. The paper also binds tags to a flow. Here they are not, so that a forwarder can make all
//! its tags of an epoch beforehand. A packet then costs as much as with fixed tags.

use crate::fid::{Bits, EPOCHS, Egress, Header, Kind, Limits, Refusal, TABLES};
use crate::graph::{Graph, LinkId, NodeId};
use crate::tags::{EncodeError, Encoded, choose, stream, tag};

/// The incoming link of a packet that begins at this node.
const NO_LINK: u32 = u32::MAX;

/// The secret of a domain.
#[derive(Clone)]
pub struct DomainKey([u8; 32]);

/// The secret of a node.
#[derive(Clone)]
pub struct NodeSecret([u8; 32]);

/// The key with which a node makes tags in one epoch.
struct EpochKey([u8; 32]);

impl std::fmt::Debug for DomainKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DomainKey(..)")
    }
}

impl std::fmt::Debug for NodeSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NodeSecret(..)")
    }
}

impl DomainKey {
    /// Creates a key from 32 random bytes.
    #[must_use]
    pub const fn new(secret: [u8; 32]) -> Self {
        Self(secret)
    }

    /// Returns the bytes of the key, for storing it.
    #[must_use]
    pub const fn to_bytes(&self) -> [u8; 32] {
        self.0
    }

    /// Derives the secret of a node.
    #[must_use]
    pub fn node_secret(&self, node: NodeId) -> NodeSecret {
        NodeSecret(keyed(&self.0, b"node secret", node.0))
    }

    /// Makes the FID of a path in one epoch.
    ///
    /// # Errors
    /// If the path is too long for a FID.
    pub fn encode(&self, graph: &Graph, path: &[LinkId], epoch: u32) -> Result<Encoded, EncodeError> {
        let key = |node: NodeId| (node, self.node_secret(node).epoch_key(epoch));
        let keys: Vec<_> = graph.visits(path).into_iter().map(key).collect();
        let selector = (epoch % EPOCHS) as u8 * TABLES as u8;
        choose(graph, path, Limits::filter(Kind::Keyed), selector, |table, ingress, egress| {
            let node = graph.link(egress).from;
            let key = keys.iter().find(|(visited, _)| *visited == node).map(|(_, key)| key);
            key.map_or(Bits::NONE, |key| key.tag(table, ingress, egress))
        })
    }
}

fn keyed(key: &[u8; 32], what: &[u8], number: u32) -> [u8; 32] {
    *blake3::Hasher::new_keyed(key).update(what).update(&number.to_le_bytes()).finalize().as_bytes()
}

impl NodeSecret {
    /// Restores a secret from the bytes of one that was derived from a domain's key.
    #[must_use]
    pub const fn new(secret: [u8; 32]) -> Self {
        Self(secret)
    }

    /// Returns the bytes of the secret, for storing it.
    #[must_use]
    pub const fn to_bytes(&self) -> [u8; 32] {
        self.0
    }

    fn epoch_key(&self, epoch: u32) -> EpochKey {
        EpochKey(keyed(&self.0, b"epoch key", epoch))
    }
}

impl EpochKey {
    /// Returns the tag for packets that come in by `ingress` and go out by `egress`.
    fn tag(&self, table: usize, ingress: Option<LinkId>, egress: LinkId) -> Bits {
        let mut text = [0; 9];
        text[..4].copy_from_slice(&ingress.map_or(NO_LINK, |id| id.0).to_le_bytes());
        text[4..8].copy_from_slice(&egress.0.to_le_bytes());
        text[8] = table as u8;
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(&text);
        tag(stream(&hasher))
    }
}

/// All tags of a node in one epoch. For each incoming link there are the tags of each outgoing link. Packets
/// that begin at the node come first, then those of each line.
#[derive(Clone)]
struct EpochTags {
    epoch: u32,
    tags: Vec<Vec<[Bits; TABLES]>>,
}

impl EpochTags {
    fn new(secret: &NodeSecret, links: &[Egress], epoch: u32) -> Self {
        let key = secret.epoch_key(epoch);
        let ways_in = std::iter::once(None).chain(links.iter().map(|line| Some(line.reverse)));
        let tags = |ingress: Option<Option<LinkId>>| {
            let all = |egress: &Egress| {
                std::array::from_fn(|table| match ingress {
                    // No packet comes in over a link without another direction.
                    Some(None) => Bits::NONE,
                    ingress => key.tag(table, ingress.flatten(), egress.link),
                })
            };
            links.iter().map(all).collect()
        };
        Self { epoch, tags: ways_in.map(tags).collect() }
    }
}

/// The forwarding rule at one node of a domain with keyed tags. It knows the tags of three epochs: the
/// present one, the one before, so that packets in flight survive the change, and the next, for clocks that
/// are ahead.
#[derive(Clone)]
pub struct KeyedForwarder {
    secret: NodeSecret,
    links: Vec<Egress>,
    epochs: [EpochTags; 3],
}

impl std::fmt::Debug for KeyedForwarder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KeyedForwarder(epoch {}, ..)", self.epochs[1].epoch)
    }
}

impl KeyedForwarder {
    /// Creates the forwarder of a node, with the present epoch.
    #[must_use]
    pub fn new(graph: &Graph, node: NodeId, secret: NodeSecret, epoch: u32) -> Self {
        let egress = |id: &LinkId| Egress { link: *id, reverse: graph.link(*id).reverse };
        let links: Vec<Egress> = graph.outgoing(node).iter().map(egress).collect();
        let epochs = around(epoch).map(|epoch| EpochTags::new(&secret, &links, epoch));
        Self { secret, links, epochs }
    }

    /// Sets the present epoch.
    pub fn set_epoch(&mut self, epoch: u32) {
        if self.epochs[1].epoch == epoch {
            return;
        }
        let Self { secret, links, epochs } = self;
        let known = |epoch: u32| epochs.iter().find(|tags| tags.epoch == epoch).cloned();
        *epochs =
            around(epoch).map(|epoch| known(epoch).unwrap_or_else(|| EpochTags::new(secret, links, epoch)));
    }

    /// Forwards a packet as [`Forwarder::forward`](crate::tags::Forwarder::forward) does.
    ///
    /// # Errors
    /// If the packet must be dropped whatever its links; `out` is empty then.
    pub fn forward(
        &self,
        header: &Header,
        ingress: Option<LinkId>,
        out: &mut Vec<LinkId>,
    ) -> Result<Header, Refusal> {
        out.clear();
        let next = Limits::filter(Kind::Keyed).pass(header)?;
        let known = self.epochs.iter().find(|tags| tags.epoch % EPOCHS == header.fid.epoch());
        let known = known.ok_or(Refusal::Epoch)?;
        let way_in = match ingress {
            None => 0,
            Some(_) => {
                1 + self.links.iter().position(|line| line.reverse == ingress).unwrap_or(usize::MAX - 1)
            }
        };
        let (bits, table) = (header.fid.bits(), header.fid.table());
        let matching = |(egress, tags): &(&Egress, &[Bits; TABLES])| {
            !egress.leads_back(ingress) && bits.has(&tags[table])
        };
        let tags = known.tags.get(way_in).map(Vec::as_slice).unwrap_or_default();
        out.extend(self.links.iter().zip(tags).filter(matching).map(|(egress, _)| egress.link));
        Ok(next)
    }
}

/// Returns the epochs whose tags are known in this epoch.
const fn around(epoch: u32) -> [u32; 3] {
    [epoch.wrapping_sub(1), epoch, epoch.wrapping_add(1)]
}
