//! Makes the keyed identifiers of a domain, with the key that its services have.
//!
//! In a domain with keyed identifiers only its services can make one. A host gets the identifiers of its
//! paths from the topology manager. It asks the services with open identifiers, which forwarders take to the
//! services alone. Each identifier belongs to an [epoch](Domain::epoch_at); forwarders accept those of the
//! epochs before and after, too. So receivers that ask for their paths again in time always have valid ones.

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
    /// The most links of a way for which forwarders accept an identifier.
    links_max: usize,
}

impl Sealer {
    /// Creates a sealer with the domain's key.
    #[must_use]
    pub fn new(domain: Arc<Domain>, key: DomainKey) -> Self {
        let links_max = domain.keyed_links_max();
        Self { domain, key, links_max }
    }

    /// Returns the way over these links with identifiers of the present epoch; `None` if the way is too long
    /// for one, or packets would branch.
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

    /// Returns the peer to which the service at node `at` sends an answer. With a `sealer` the way back gets
    /// an identifier of the present epoch; `None` if the way back leads nowhere.
    pub(crate) fn answers(sealer: Option<&Self>, at: NodeId, to: Peer, since_1970: Time) -> Option<Peer> {
        sealer.map_or(Some(to), |sealer| sealer.reply(at, &to, since_1970))
    }

    /// Returns the peer that asked the service at node `at` with an open way back, with a keyed way back.
    fn reply(&self, at: NodeId, to: &Peer, since_1970: Time) -> Option<Peer> {
        let (back, port) = frame::fields(to.way_back.as_ref()?)?;
        let links = self.domain.trace_links(at, &back)?;
        let way_back = Some(frame::header(&self.header(&links, since_1970)?, port));
        Some(Peer { address: to.address, way_back })
    }
}
