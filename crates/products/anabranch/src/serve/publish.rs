//! Publishes the content of a source in a network.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anabranch_overlay::forwarder::HOST_PORT_MIN;
use anabranch_overlay::publication::Publication;

use crate::catalog::{Catalog, CatalogEntry};
use crate::network::{Name, Place, Publishing, ScopeKey, unknown_scope};
use crate::{Error, Result, Stop};

/// The name under which a content is offered, and the network.
#[derive(Clone, Debug)]
pub(super) struct Publish {
    pub(super) place: Place,
    pub(super) name: Name,
    pub(super) key: Arc<ScopeKey>,
}

impl Publish {
    /// Checks that the name can be published here, and that there is exactly one path.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) if not.
    pub(super) fn check(&self, paths: &[PathBuf]) -> Result<()> {
        let (domain, scope) = (self.place.domain(), self.name.scope());
        if paths.len() != 1 {
            return Err(Error::usage("`publish` names one content: serve one path with it"));
        }
        if domain.is_forwarder(self.place.node()) {
            return Err(Error::usage(format!(
                "`publish`: {} forwards in the domain {}; hosts publish",
                self.place.node_name(),
                domain.name
            )));
        }
        match domain.scope_key(scope) {
            Some(key) if *key == self.key.public() => Ok(()),
            Some(_) => Err(Error::usage(format!("`publish`: the key is not that of the scope {scope}"))),
            None => Err(Error::usage(format!("`publish`: {}", unknown_scope(domain, scope)))),
        }
    }

    /// Publishes the content of the path that was named.
    ///
    /// # Errors
    /// - [`ErrorKind::System`](crate::ErrorKind::System) if the sockets for answers cannot be opened.
    /// - [`ErrorKind::Usage`](crate::ErrorKind::Usage) if no forwarder reaches any of `addresses`, or if the
    ///   port is too low.
    pub(super) fn start(
        self,
        catalog: &Catalog,
        addresses: &[SocketAddr],
        stop: &Stop,
    ) -> Result<Option<Publishing>> {
        let own = self.place.addresses();
        let is_reached = |address: &&SocketAddr| address.ip().is_unspecified() || own.contains(&address.ip());
        let port = addresses.iter().find(is_reached).map(SocketAddr::port).ok_or_else(|| {
            let own: Vec<String> = own.iter().map(ToString::to_string).collect();
            Error::usage(format!(
                "`publish`: nobody reaches this host at an address given by `listen`: its lines have {}",
                own.join(", ")
            ))
        })?;
        if port < HOST_PORT_MIN {
            return Err(Error::usage(format!(
                "`publish`: forwarders send to no port below {HOST_PORT_MIN}, and `listen` says {port}"
            )));
        }
        let is_named = |entry: &&CatalogEntry| entry.relative.is_empty();
        let Some(entry) = catalog.offers().iter().find(is_named) else { return Ok(None) };
        let publication = Publication {
            name: self.name,
            content: entry.id,
            collection: entry.collection,
            node: self.place.node(),
            port,
            version_ms: changed_ms(&entry.path),
            // The registration fills these in.
            issued_ms: 0,
            lease_s: 0,
        };
        Publishing::start(&self.place, self.key, vec![publication], stop).map(Some)
    }
}

/// Returns the time when a file was last modified, in milliseconds since 1970.
fn changed_ms(path: &Path) -> u64 {
    let changed = path.metadata().and_then(|meta| meta.modified()).ok();
    let since = changed.and_then(|changed| changed.duration_since(std::time::UNIX_EPOCH).ok());
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
