//! The rules of a rendezvous, as functions of the known records: which publications it accepts, and what it
//! answers. One set of rules serves records in memory and records that several processes share.

use std::collections::BTreeMap;

use anabranch_algo::Time;
use anabranch_mmtp::peer::Peer;
use anabranch_topology::graph::NodeId;

use super::Record;
use crate::domain::Domain;
use crate::frame;
use crate::message::listing::{Page, PageRequest};
use crate::message::{Body, Message, Wanted, refusal};
use crate::publication::{PublicKey, Publication, Rejection, SignedPublication};

/// The most publications from which an answer is chosen.
pub(super) const CANDIDATES_MAX: usize = 1_024;
/// The most publications of an answer: no message has room for more.
pub(super) const ANSWERS_MAX: usize = 8;

/// Counts the messages of a rendezvous.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Publications accepted, including renewals and repetitions.
    pub published: u64,
    /// Publications refused, by reason.
    pub refused: BTreeMap<&'static str, u64>,
    /// Lookups answered. `unknown` counts those of them that found nothing.
    pub lookups: u64,
    /// Lookups that found nothing.
    pub unknown: u64,
    /// Pages of the list of publications that were told.
    pub pages: u64,
    /// Messages dropped: malformed, or not for a rendezvous.
    pub dropped: u64,
}

impl Counters {
    pub(super) const fn new() -> Self {
        Self { published: 0, refused: BTreeMap::new(), lookups: 0, unknown: 0, pages: 0, dropped: 0 }
    }

    /// Counts an accepted publication. Returns the answer.
    pub(super) const fn taken(&mut self, is_outdated: bool) -> Body {
        self.published += 1;
        if is_outdated { Body::Outdated } else { Body::Published }
    }

    /// Counts a refused publication. Returns the answer.
    pub(super) fn refuse(&mut self, why: Rejection) -> Body {
        *self.refused.entry(refusal::name(why)).or_default() += 1;
        Body::Refused { reason: refusal::of(why) }
    }

    /// Counts a lookup that found `known` publications.
    pub(super) fn looked_up(&mut self, known: usize) {
        self.lookups += 1;
        self.unknown += u64::from(known == 0);
    }

    /// Counts a page of the list. Returns the answer.
    pub(super) fn listed(&mut self, page: Page) -> Body {
        self.pages += 1;
        Body::Listed(page)
    }
}

/// Returns the answer to a lookup: of all publications found, the newest contents first, and of one content
/// the host that has published it last.
pub(super) fn best(mut found: Vec<&SignedPublication>) -> Body {
    found.sort_by_key(|signed| {
        let publication = &signed.publication;
        std::cmp::Reverse((publication.version_ms, publication.issued_ms))
    });
    let known = found.len() as u16;
    let publications = found.into_iter().take(ANSWERS_MAX).cloned().collect();
    Body::Match { known, publications }
}

/// The question of a message to a rendezvous.
pub(super) enum Asked {
    Publish(SignedPublication),
    LookUp(Wanted),
    List(PageRequest),
    /// The question is for another service: this is the answer.
    Elsewhere(Body),
}

/// Returns the call and the question of a message; `None` if it gets no answer.
pub(super) fn read(from: &Peer, bytes: &[u8]) -> Option<(u64, Asked)> {
    // A sender that gives no way back cannot be answered.
    from.way_back.as_ref()?;
    let Message { call, body } = Message::parse(bytes).ok()?;
    let asked = match body {
        Body::Publish(signed) => Asked::Publish(signed),
        Body::Lookup(wanted) => Asked::LookUp(wanted),
        Body::List(request) => Asked::List(request),
        Body::Paths(_) | Body::LinkState(_) | Body::Lines { .. } => {
            Asked::Elsewhere(Body::Refused { reason: refusal::NOT_HERE })
        }
        _ => return None,
    };
    Some((call, asked))
}

/// Checks that a publication is of this domain, is valid now, and was sent by the host that it names.
pub(super) fn check(
    domain: &Domain,
    now: Time,
    from: &Peer,
    signed: &SignedPublication,
) -> Result<(), Rejection> {
    let origin = from.way_back.as_ref().and_then(frame::fields);
    let origin = origin.and_then(|(back, _)| domain.origin(domain.rendezvous.node, &back));
    if origin != Some(signed.publication.node) {
        return Err(Rejection::OtherHost);
    }
    signed.check(&domain.name, check_place(domain, &signed.publication)?, now)
}

/// Checks that the domain has the scope and the host of a publication. Returns the key of the scope.
pub(crate) fn check_place<'a>(
    domain: &'a Domain,
    publication: &Publication,
) -> Result<&'a PublicKey, Rejection> {
    let key = domain.scope_key(publication.name.scope()).ok_or(Rejection::UnknownScope)?;
    let NodeId(node) = publication.node;
    let is_node = (node as usize) < domain.graph.nodes().len();
    if is_node && !domain.is_forwarder(publication.node) { Ok(key) } else { Err(Rejection::NoHost) }
}

/// Returns the record to keep of a publication that has been [checked](check). `known` is the present record
/// of its name and host. Returns `None` if the publication is known already, or if it is a withdrawal of
/// nothing.
pub(super) fn judge(
    known: Option<&Record>,
    signed: SignedPublication,
    has_room: impl FnOnce() -> bool,
) -> Result<Option<Record>, Rejection> {
    let withdraws = signed.publication.lease_s == 0;
    let own = signed.publication.ends();
    let guards_until = match known {
        None if !has_room() => return Err(Rejection::Full),
        None if withdraws => return Ok(None),
        None => own,
        Some(known) if known.signed == signed => return Ok(None),
        // If two publications have one moment, the first counts.
        Some(known) if known.signed.publication.issued_ms >= signed.publication.issued_ms => {
            return Err(Rejection::Replayed);
        }
        Some(known) if withdraws => known.guards_until,
        Some(known) => own.max(known.guards_until),
    };
    Ok(Some(Record { signed, guards_until }))
}

/// Whether one of the `others`, which are valid and have the same name, offers a newer content.
pub(super) fn is_outdated<'a>(
    publication: &Publication,
    mut others: impl Iterator<Item = &'a SignedPublication>,
) -> bool {
    others.any(|other| {
        let other = &other.publication;
        other.content != publication.content && other.version_ms > publication.version_ms
    })
}
