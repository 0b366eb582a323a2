//! Who may use a server.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use crate::keys::{Clients, ClientsError, KeyPair};
use crate::policy::Scope;
use crate::tls::ServerTls;

/// Who may use a server.
#[derive(Clone, Debug)]
pub enum Admission {
    /// Clients that have a key.
    Keys {
        /// The server's own.
        pair: KeyPair,
        /// The list of clients ([`Clients`]); it is read again when it has changed.
        clients: PathBuf,
    },
    /// No encryption and no keys: clients in these networks are believed.
    Networks(Vec<Scope>),
}

/// How a client comes in.
pub(super) enum Pass {
    Tls(ServerTls),
    Plain,
    None,
}

pub(super) enum Gate {
    Keys { pair: KeyPair, path: PathBuf, known: Mutex<Known> },
    Networks(Vec<Scope>),
}

/// When a file was written, and its length; `None` if there is none.
type Stamp = Option<(SystemTime, u64)>;

pub(super) struct Known {
    stamp: Stamp,
    clients: Clients,
    tls: ServerTls,
}

fn stamp(path: &Path) -> Stamp {
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

fn lock(known: &Mutex<Known>) -> MutexGuard<'_, Known> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Gate {
    pub(super) fn new(admission: Admission) -> Result<Self, ClientsError> {
        let (pair, path) = match admission {
            Admission::Networks(networks) => return Ok(Self::Networks(networks)),
            Admission::Keys { pair, clients } => (pair, clients),
        };
        // Before the list: what is written in between is read again.
        let stamp = stamp(&path);
        let clients = Clients::load(&path)?;
        let tls = ServerTls::new(&pair, clients.clone());
        Ok(Self::Keys { pair, path, known: Mutex::new(Known { stamp, clients, tls }) })
    }

    /// How somebody at this address comes in.
    pub(super) fn pass(&self, from: IpAddr) -> Pass {
        match self {
            Self::Keys { known, .. } => Pass::Tls(lock(known).tls.clone()),
            Self::Networks(networks) if networks.iter().any(|net| net.has_host(from.to_canonical())) => {
                Pass::Plain
            }
            Self::Networks(_) => Pass::None,
        }
    }

    /// Whether a client of this name is in the list; without one, clients are believed.
    pub(super) fn knows(&self, client: Option<&str>) -> bool {
        let Self::Keys { known, .. } = self else { return true };
        client.is_some_and(|client| lock(known).clients.iter().any(|(name, _)| name == client))
    }

    /// Reads the list again if it has changed. Returns the names of those that are not in it any more, or
    /// have another key there. After an error the list is that of before.
    pub(super) fn refresh(&self) -> Result<Vec<String>, ClientsError> {
        let Self::Keys { pair, path, known } = self else { return Ok(Vec::new()) };
        let stamp = stamp(path);
        let mut known = lock(known);
        if stamp == known.stamp {
            return Ok(Vec::new());
        }
        // An error is said once.
        known.stamp = stamp;
        let clients = Clients::load(path)?;
        let gone = known.clients.iter().filter(|(name, key)| clients.name(key) != Some(*name));
        let gone = gone.map(|(name, _)| name.to_owned()).collect();
        known.tls = ServerTls::new(pair, clients.clone());
        known.clients = clients;
        Ok(gone)
    }
}
