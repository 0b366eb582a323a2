//! The keys of a domain with [keyed identifiers](crate::seal), and the text of the files that hold them.

use anabranch_topology::graph::NodeId;
use anabranch_topology::keyed::{DomainKey, NodeSecret};
use data_encoding::BASE32_NOPAD;

use crate::domain::Domain;

/// The first word of the services' key, and that of a forwarder's key, as text. The name of the domain
/// follows, for a forwarder that of its node, and the secret in base32.
const SERVICES: &str = "anabranch-services-key";
const FORWARDER: &str = "anabranch-forwarder-key";

/// The key by which a member makes or checks identifiers.
#[derive(Clone, Debug)]
pub enum MemberKey {
    /// The domain's key, which the rendezvous and the topology manager have.
    Services(DomainKey),
    /// A forwarder's own secret, which follows from the domain's key.
    Forwarder(NodeId, NodeSecret),
}

/// Why a text is not the key of a member. No message contains the text itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The text is no such key.
    #[error("it is no key of a domain's services or of a forwarder")]
    NoKey,
    /// The key is of another domain.
    #[error("it is a key of the domain {0:?}")]
    OtherDomain(String),
    /// The domain has no such forwarder.
    #[error("it is of {0:?}, which is no forwarder of the domain")]
    OtherNode(String),
}

impl MemberKey {
    /// Returns the key of a forwarder, which follows from the services' key.
    #[must_use]
    pub fn of_forwarder(services: &DomainKey, node: NodeId) -> Self {
        Self::Forwarder(node, services.node_secret(node))
    }

    /// Returns the key as the text of a file that only the member may read.
    #[must_use]
    pub fn secret_text(&self, domain: &Domain) -> String {
        let name = &domain.name;
        match self {
            Self::Services(key) => format!("{SERVICES} {name} {}\n", BASE32_NOPAD.encode(&key.to_bytes())),
            Self::Forwarder(node, secret) => {
                let (node, secret) =
                    (&domain.graph.node(*node).name, BASE32_NOPAD.encode(&secret.to_bytes()));
                format!("{FORWARDER} {name} {node} {secret}\n")
            }
        }
    }

    /// Reads the text of a key.
    ///
    /// # Errors
    /// If the text is no key of a member of this domain; the error says why.
    pub fn parse(domain: &Domain, text: &str) -> Result<Self, KeyError> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let (of, node, secret) = match words[..] {
            [SERVICES, of, secret] => (of, None, secret),
            [FORWARDER, of, node, secret] => (of, Some(node), secret),
            _ => return Err(KeyError::NoKey),
        };
        let secret = BASE32_NOPAD.decode(secret.to_ascii_uppercase().as_bytes());
        let secret: [u8; 32] = secret.ok().and_then(|it| it.try_into().ok()).ok_or(KeyError::NoKey)?;
        if of != domain.name {
            return Err(KeyError::OtherDomain(of.chars().take(40).collect()));
        }
        let Some(name) = node else { return Ok(Self::Services(DomainKey::new(secret))) };
        match domain.graph.by_name(name).filter(|node| domain.is_forwarder(*node)) {
            Some(node) => Ok(Self::Forwarder(node, NodeSecret::new(secret))),
            None => Err(KeyError::OtherNode(name.chars().take(40).collect())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::tests::{node, square};

    #[test]
    fn keys_are_text() {
        let (domain, services) = (square(), DomainKey::new([7; 32]));
        let text = MemberKey::Services(services.clone()).secret_text(&domain);
        let Ok(MemberKey::Services(read)) = MemberKey::parse(&domain, &text) else { panic!("{text}") };
        assert_eq!(read.to_bytes(), services.to_bytes());
        let r2 = node(&domain, "r2");
        let key = MemberKey::of_forwarder(&services, r2);
        let text = key.secret_text(&domain);
        assert!(text.starts_with("anabranch-forwarder-key square r2 ") && text.ends_with('\n'));
        let Ok(MemberKey::Forwarder(read, secret)) = MemberKey::parse(&domain, &text) else {
            panic!("{text}")
        };
        assert_eq!((read, secret.to_bytes()), (r2, services.node_secret(r2).to_bytes()));
        assert!(secret.to_bytes() != services.node_secret(node(&domain, "r1")).to_bytes());
        assert!(!format!("{key:?}").contains(text.split(' ').next_back().expect("it").trim()));
    }

    #[test]
    fn what_is_no_key() {
        let domain = square();
        let secret = BASE32_NOPAD.encode(&[7; 32]);
        let wrong = |text: &str| MemberKey::parse(&domain, text).expect_err(text);
        let no_key = ["", "x", SERVICES, "anabranch-services-key square", "anabranch-services-key square 77"];
        no_key.iter().for_each(|text| assert_eq!(wrong(text), KeyError::NoKey, "{text}"));
        assert_eq!(wrong(&format!("{SERVICES} square {secret} more")), KeyError::NoKey);
        assert_eq!(wrong(&format!("{SERVICES} other {secret}")), KeyError::OtherDomain("other".into()));
        for node in ["a", "r9"] {
            assert_eq!(
                wrong(&format!("{FORWARDER} square {node} {secret}")),
                KeyError::OtherNode(node.into())
            );
        }
    }
}
