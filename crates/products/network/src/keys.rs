//! The keys of a domain with keyed identifiers: makes those of its services, and finds those of a member.

use anabranch_overlay::domain::Domain;
use anabranch_overlay::member_key::MemberKey;
use anabranch_topology::keyed::{DomainKey, NodeSecret};

use anabranch::network::Place;
use anabranch::secret;
use anabranch::{Error, Result};

/// Makes the key of a new domain's services.
///
/// # Errors
/// [`ErrorKind::System`](anabranch::ErrorKind::System) if the system has no random numbers.
pub fn new_services_key() -> Result<DomainKey> {
    Ok(DomainKey::new(secret()?))
}

/// Returns the key that a service needs at a place, or `None` if the domain has no keys.
///
/// # Errors
/// [`ErrorKind::Usage`](anabranch::ErrorKind::Usage) if the place has no key or one that does not fit.
pub(crate) fn services_key(place: &Place) -> Result<Option<DomainKey>> {
    match (place.domain().is_keyed(), place.key()) {
        (true, Some(MemberKey::Services(key))) => Ok(Some(key.clone())),
        (_, other) => without_key(place, other, "its services"),
    }
}

/// Returns the secret that a forwarder needs at a place, or `None` if the domain has no keys.
///
/// # Errors
/// [`ErrorKind::Usage`](anabranch::ErrorKind::Usage) if the place has no key or one that does not fit.
pub(crate) fn forwarder_secret(place: &Place) -> Result<Option<NodeSecret>> {
    match (place.domain().is_keyed(), place.key()) {
        (true, Some(MemberKey::Forwarder(node, secret))) if *node == place.node() => Ok(Some(secret.clone())),
        (_, other) => without_key(place, other, place.node_name()),
    }
}

/// Returns `None` if the domain needs no key and the place has none, and an error in all other cases.
fn without_key<T>(place: &Place, key: Option<&MemberKey>, whose: &str) -> Result<Option<T>> {
    let Domain { name, .. } = &**place.domain();
    match (place.domain().is_keyed(), key) {
        (false, None) => Ok(None),
        (false, Some(_)) => Err(Error::usage(format!(
            "the domain {name} has open identifiers, for which there are no keys: is the file that of \
             another domain, or does it lack identifiers = \"keyed\"?"
        ))),
        (true, None) => Err(Error::usage(format!(
            "the domain {name} has keyed identifiers: name the file of {whose} with `key` (anabranch net \
             keys makes them)"
        ))),
        (true, Some(MemberKey::Services(_))) => Err(Error::usage(format!(
            "the key is that of the services of {name}, which no forwarder needs: give that of {whose}"
        ))),
        (true, Some(MemberKey::Forwarder(node, _))) => {
            Err(Error::usage(format!("the key is that of {}: give that of {whose}", place.name_of(*node))))
        }
    }
}
