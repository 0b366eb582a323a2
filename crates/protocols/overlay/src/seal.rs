//! Keyed identifiers: what a domain's services make them with.
//!
//! In a domain with keyed identifiers nobody but its services can make one. A host gets those of its paths
//! from the topology manager, and asks the services with open ones, which forwarders take to nobody else.
//! Identifiers are of an [epoch](Domain::epoch_at); forwarders take those of the epochs before and after,
//! too. So receivers that ask for their paths again in time have good ones always.

use std::sync::Arc;

use anabranch_algo::Time;
use anabranch_mmtp::peer::Peer;
use anabranch_topology::fid::Header;
use anabranch_topology::graph::{LinkId, NodeId};
use anabranch_topology::keyed::DomainKey;

use crate::domain::{Domain, Way};
use crate::frame;

/// Makes keyed identifiers of a domain.
#[derive(Clone, Debug)]
pub struct Sealer {
    domain: Arc<Domain>,
    key: DomainKey,
    /// Forwarders take no identifier of a longer way.
    links_max: usize,
}

impl Sealer {
    /// With the domain's key.
    #[must_use]
    pub fn new(domain: Arc<Domain>, key: DomainKey) -> Self {
        let links_max = domain.keyed_links_max();
        Self { domain, key, links_max }
    }

    /// The same way with identifiers of now; `None` if it is too long for one, or packets would branch.
    #[must_use]
    pub fn way(&self, links: &[LinkId], since_1970: Time) -> Option<Way> {
        let back: Vec<LinkId> = links.iter().rev().map(|link| self.domain.reverse(*link)).collect();
        let (there, back) = (self.header(links, since_1970)?, self.header(&back, since_1970)?);
        Some(Way { links: links.to_vec(), there, back })
    }

    fn header(&self, links: &[LinkId], since_1970: Time) -> Option<Header> {
        if links.len() > self.links_max {
            return None;
        }
        let encoded = self.key.encode(&self.domain.graph, links, self.domain.epoch_at(since_1970)).ok()?;
        (encoded.false_positives == 0).then(|| encoded.header(links))
    }

    /// Who asked the service at a node, as an answer is sent: with an identifier of now, where there is a
    /// `sealer`. `None` if that leads nowhere.
    pub(crate) fn answers(sealer: Option<&Self>, at: NodeId, to: Peer, since_1970: Time) -> Option<Peer> {
        sealer.map_or(Some(to), |sealer| sealer.reply(at, &to, since_1970))
    }

    /// Who asked the service at a node with an open way back, as an answer is sent.
    fn reply(&self, at: NodeId, to: &Peer, since_1970: Time) -> Option<Peer> {
        let (back, port) = frame::fields(to.way_back.as_ref()?)?;
        let links = self.domain.trace_links(at, &back)?;
        let way_back = Some(frame::header(&self.header(&links, since_1970)?, port));
        Some(Peer { address: to.address, way_back })
    }
}
