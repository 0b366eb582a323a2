//! Lists what is published in a network, as one of its hosts is told.

use std::collections::BTreeMap;

use anabranch_algo::Span;
use anabranch_overlay::message::Body;
use anabranch_overlay::message::listing::{PageRequest, Position};
use anabranch_overlay::publication::{Key, Publication, Scope};

use super::asker::{AskedService, Asker};
use super::place::Place;
use crate::{Error, Result, Stop};

/// The most pages in a row that tell nothing new, before the rendezvous is no longer believed to come to an
/// end. In a store that is shared with much else, most pages are empty.
const EMPTY_PAGES_MAX: u32 = 1 << 16;

/// The publications of a network.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Listing {
    /// The publications in the order of their names, and of one name by host and port. Their signatures and
    /// leases were checked.
    pub publications: Vec<Publication>,
    /// Whether there are more, which were not asked for.
    pub more: bool,
    /// The number of publications that were told and are left out, because their signature is wrong or their
    /// lease has ended by this host's clock.
    pub unbelieved: u64,
}

/// Asks the rendezvous of a domain, from one of its hosts, what is published: under the names of `scope`, or
/// under all names. Stops after `most` publications; there may then be some more in the listing. Gives up
/// when an answer takes longer than `within`.
///
/// # Errors
/// - [`ErrorKind::Usage`](crate::ErrorKind::Usage) if the node is a forwarder, or if there is no such scope.
/// - [`ErrorKind::Unreachable`](crate::ErrorKind::Unreachable) if the rendezvous does not answer. One that is
///   older than this question does not.
/// - [`ErrorKind::System`](crate::ErrorKind::System) if the rendezvous refuses or its list has no end, or
///   this node cannot listen.
/// - [`ErrorKind::Interrupted`](crate::ErrorKind::Interrupted) if `stop` is used.
pub fn list(place: &Place, scope: Option<&Scope>, most: usize, within: Span, stop: &Stop) -> Result<Listing> {
    let mut asker = Asker::new(place, within, stop)?;
    if let Some(scope) = scope {
        asker.must_have_scope(scope)?;
    }
    let (mut known, mut unbelieved) = (BTreeMap::new(), 0);
    let (mut from, mut empty) = (Position::default(), 0);
    let more = loop {
        asker.extend(within);
        let body = Body::List(PageRequest { scope: scope.cloned(), from });
        let page = match asker.ask(AskedService::Rendezvous, body)? {
            Body::Listed(page) => page,
            other => return Err(AskedService::Rendezvous.not_asked_for(&other)),
        };
        let before = known.len();
        for signed in page.publications {
            let is_asked = scope.is_none_or(|scope| signed.publication.name.scope() == scope);
            if is_asked && asker.member.believes(asker.now(), &signed) {
                known.insert(Key::of(&signed.publication), signed.publication);
            } else {
                unbelieved += 1;
            }
        }
        empty = if known.len() == before { empty + 1 } else { 0 };
        if empty > EMPTY_PAGES_MAX {
            return Err(Error::system("the list of the rendezvous has no end: is it the right one?"));
        }
        match page.next {
            None => break false,
            Some(_) if known.len() >= most => break true,
            Some(next) => from = next,
        }
    };
    Ok(Listing { publications: known.into_values().collect(), more, unbelieved })
}
