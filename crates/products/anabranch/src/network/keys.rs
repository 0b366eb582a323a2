//! The keys of a domain with keyed identifiers: made, and given to the members that need one.

use anabranch_overlay::domain::Domain;
use anabranch_overlay::member_key::MemberKey;
use anabranch_topology::keyed::{DomainKey, NodeSecret};

use super::place::Place;
use crate::secret::secret;
use crate::{Error, Result};

/// The key of a new domain's services.
///
/// # Errors
/// [`Error::System`] if the system has no random numbers.
pub fn new_services_key() -> Result<DomainKey> {
    Ok(DomainKey::new(secret()?))
}

impl Place {
    /// The key that a service needs here.
    pub(super) fn services_key(&self) -> Result<Option<DomainKey>> {
        match (self.domain().is_keyed(), self.key()) {
            (true, Some(MemberKey::Services(key))) => Ok(Some(key.clone())),
            (_, other) => self.without_key(other, "its services"),
        }
    }

    /// The secret that a forwarder needs here.
    pub(super) fn forwarder_secret(&self) -> Result<Option<NodeSecret>> {
        match (self.domain().is_keyed(), self.key()) {
            (true, Some(MemberKey::Forwarder(node, secret))) if *node == self.node() => {
                Ok(Some(secret.clone()))
            }
            (_, other) => self.without_key(other, self.node_name()),
        }
    }

    fn without_key<T>(&self, key: Option<&MemberKey>, whose: &str) -> Result<Option<T>> {
        let Domain { name, .. } = &**self.domain();
        match (self.domain().is_keyed(), key) {
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
                Err(Error::usage(format!("the key is that of {}: give that of {whose}", self.name_of(*node))))
            }
        }
    }
}
