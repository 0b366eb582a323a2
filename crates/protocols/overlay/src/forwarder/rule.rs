//! The rule by which a forwarder sends frames on: the tags of the domain's links, open or keyed.

use std::sync::Arc;

use anabranch_algo::Time;
use anabranch_topology::fid::{HOPS_SPARE, Header, Kind};
use anabranch_topology::graph::{LinkId, NodeId};
use anabranch_topology::keyed::{KeyedForwarder, NodeSecret};

use super::counters::DropReason;
use crate::domain::Domain;
use crate::frame::Routed;

/// The forwarding rule of a node; see the [module](self).
#[derive(Debug)]
pub(super) struct Rule {
    domain: Arc<Domain>,
    node: NodeId,
    /// The highest hop limit that a keyed identifier may have.
    keyed_hops_max: u8,
    /// The keyed rule, in a domain with keyed identifiers, once the node's secret is known.
    keyed: Option<KeyedForwarder>,
}

impl Rule {
    pub(super) fn new(domain: &Arc<Domain>, node: NodeId) -> Self {
        let links = if domain.is_keyed() { domain.keyed_links_max() } else { 0 };
        let keyed_hops_max = u8::try_from(links).unwrap_or(u8::MAX).saturating_add(HOPS_SPARE);
        Self { domain: Arc::clone(domain), node, keyed_hops_max, keyed: None }
    }

    pub(super) fn set_secret(&mut self, secret: NodeSecret, since_1970: Time) {
        let epoch = self.domain.epoch_at(since_1970);
        self.keyed = Some(KeyedForwarder::new(&self.domain.graph, self.node, secret, epoch));
    }

    pub(super) fn set_time(&mut self, since_1970: Time) {
        if let Some(keyed) = &mut self.keyed {
            keyed.set_epoch(self.domain.epoch_at(since_1970));
        }
    }

    /// Whether a frame's identifier is of the domain's usual kind, which only frames for a service need not
    /// have.
    pub(super) fn is_usual(&self, header: &Header) -> bool {
        !self.domain.is_keyed() || is_keyed(header)
    }

    /// Puts the links by which a frame that came by `ingress` goes on into `out`. Returns its header there.
    pub(super) fn forward(
        &self,
        routed: &Routed<'_>,
        ingress: LinkId,
        out: &mut Vec<LinkId>,
    ) -> Result<Header, DropReason> {
        let header = &routed.header;
        if !self.is_usual(header) && !self.domain.is_for_service(self.node, ingress, header, routed.port) {
            return Err(DropReason::Unkeyed);
        }
        if is_keyed(header) {
            let comes_from_host = !self.domain.is_forwarder(self.domain.graph.link(ingress).from);
            self.check_keyed(header, comes_from_host)?;
        }
        self.forward_any(header, Some(ingress), out)
    }

    /// Refuses a keyed identifier that allows more hops than any way has, or has more bits than its way
    /// needs: otherwise random identifiers would pass. The bits can be checked where a frame begins, at the
    /// forwarder of its host.
    fn check_keyed(&self, header: &Header, begins: bool) -> Result<(), DropReason> {
        if !is_keyed(header) {
            return Ok(());
        }
        let is_forged = header.hop_limit > self.keyed_hops_max || begins && !header.fits_hop_limit();
        if is_forged { Err(DropReason::Forged) } else { Ok(()) }
    }

    /// Puts the links by which the answer to a request with the header `request` goes on into `out`, as
    /// [`Self::forward`] does. `back` is the header of the way back.
    pub(super) fn forward_back(
        &self,
        request: &Header,
        back: &Header,
        ingress: Option<LinkId>,
        out: &mut Vec<LinkId>,
    ) -> Result<Header, DropReason> {
        // An open way back only shows a service where a request came from; the service's answer has a key.
        if is_keyed(request) != is_keyed(back) {
            return Err(DropReason::WayBack);
        }
        // The answer begins with the way back as it is.
        self.check_keyed(back, true)?;
        self.forward_any(back, ingress, out)
    }

    fn forward_any(
        &self,
        header: &Header,
        ingress: Option<LinkId>,
        out: &mut Vec<LinkId>,
    ) -> Result<Header, DropReason> {
        match &self.keyed {
            Some(keyed) if is_keyed(header) => Ok(keyed.forward(header, ingress, out)?),
            _ => Ok(self.domain.forwarder(self.node).forward(header, ingress, out)?),
        }
    }
}

fn is_keyed(header: &Header) -> bool {
    header.fid.kind() == Kind::Keyed
}
