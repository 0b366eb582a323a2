//! Decides which clients may use a server.

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::keys::{Clients, ClientsError, KeyPair};
use crate::policy::Scope;
use crate::tls::{ALPN, ServerTls};

/// The clients that may use a server.
#[derive(Clone, Debug)]
pub enum Admission {
    /// The clients whose keys are in a list.
    Keys {
        /// The server's own key pair.
        pair: KeyPair,
        /// The path of the list of clients ([`Clients`]). The list is read again when it has changed.
        clients: PathBuf,
    },
    /// All clients in these networks, without encryption and keys.
    Networks(Vec<Scope>),
}

/// How a client is admitted.
pub(super) enum Pass {
    Tls(ServerTls),
    Plain,
    None,
}

pub(super) enum Gate {
    Keys { pair: KeyPair, path: PathBuf, known: Mutex<Known> },
    Networks(Vec<Scope>),
}

/// The bytes of the list's file when it was last read, or the error of reading it.
type Seen = Result<Vec<u8>, String>;

/// Identifies a version of the list's file: its inode and its time of change, which no user can set.
type Stamp = Option<(u64, i64, i64)>;

fn stamp(path: &Path) -> Stamp {
    fs::metadata(path).ok().map(|file| (file.ino(), file.ctime(), file.ctime_nsec()))
}

pub(super) struct Known {
    stamp: Stamp,
    seen: Seen,
    clients: Clients,
    tls: ServerTls,
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
        // The stamp is taken first, so that a file that is written in between is read again.
        let stamp = stamp(&path);
        let text = Clients::read(&path)?;
        let clients = Clients::parse_file(&path, &text)?;
        let tls = ServerTls::new(&pair, clients.clone(), ALPN);
        Ok(Self::Keys { pair, path, known: Mutex::new(Known { stamp, seen: Ok(text), clients, tls }) })
    }

    /// Returns how a client at this address is admitted.
    pub(super) fn pass(&self, from: IpAddr) -> Pass {
        match self {
            Self::Keys { known, .. } => Pass::Tls(lock(known).tls.clone()),
            Self::Networks(networks) if networks.iter().any(|net| net.has_host(from.to_canonical())) => {
                Pass::Plain
            }
            Self::Networks(_) => Pass::None,
        }
    }

    /// Whether a client of this name is in the list. Without a list, all clients are believed.
    pub(super) fn knows(&self, client: Option<&str>) -> bool {
        let Self::Keys { known, .. } = self else { return true };
        client.is_some_and(|client| lock(known).clients.iter().any(|(name, _)| name == client))
    }

    /// [Reads](Self::refresh) the list again if the stamp of its file has changed. Anyone may connect, so a
    /// connection must not cost more than that check.
    pub(super) fn refresh_if_changed(&self) -> Result<Vec<String>, ClientsError> {
        match self {
            Self::Keys { path, known, .. } if stamp(path) != lock(known).stamp => self.refresh(),
            _ => Ok(Vec::new()),
        }
    }

    /// Reads the list again. Returns the names of the clients that were removed or have another key now.
    /// After an error, which is returned once, the list before remains in force.
    ///
    /// The content is compared, because a file may have the length and time stamp of the file that it
    /// replaces.
    pub(super) fn refresh(&self) -> Result<Vec<String>, ClientsError> {
        let Self::Keys { pair, path, known } = self else { return Ok(Vec::new()) };
        let stamp = stamp(path);
        let read = Clients::read(path);
        let seen = read.as_ref().map(Vec::clone).map_err(ToString::to_string);
        let mut known = lock(known);
        known.stamp = stamp;
        if seen == known.seen {
            return Ok(Vec::new());
        }
        known.seen = seen;
        let clients = Clients::parse_file(path, &read?)?;
        let gone = known.clients.iter().filter(|(name, key)| clients.name(key) != Some(*name));
        let gone = gone.map(|(name, _)| name.to_owned()).collect();
        known.tls = ServerTls::new(pair, clients.clone(), ALPN);
        known.clients = clients;
        Ok(gone)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::path::Path;
    use std::time::SystemTime;

    use super::*;

    fn gate(list: &Path) -> Gate {
        let pair = KeyPair::generate().unwrap();
        Gate::new(Admission::Keys { pair, clients: list.to_owned() }).unwrap()
    }

    #[test]
    fn a_list_of_the_same_length_and_time_is_another_if_its_text_is() {
        let dir = tempfile::tempdir().unwrap();
        let list = dir.path().join("clients.toml");
        let write = |key: &KeyPair| {
            fs::write(&list, format!("[[client]]\nname = \"bob\"\nkey = \"{}\"\n", key.public())).unwrap();
            File::options().write(true).open(&list).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        };
        write(&KeyPair::generate().unwrap());
        let gate = gate(&list);
        assert_eq!(gate.refresh().unwrap(), [""; 0]);
        write(&KeyPair::generate().unwrap());
        assert_eq!(gate.refresh().unwrap(), ["bob"], "his old key is good for nothing");
        assert!(gate.knows(Some("bob")));
    }

    #[test]
    fn a_client_that_was_paired_just_now_is_known_to_the_next_connection() {
        let dir = tempfile::tempdir().unwrap();
        let list = dir.path().join("clients.toml");
        let gate = gate(&list);
        for name in ["ann", "bob"] {
            Clients::append(&list, name, KeyPair::generate().unwrap().public()).unwrap();
            assert!(!gate.knows(Some(name)));
            assert_eq!(gate.refresh_if_changed().unwrap(), [""; 0]);
            assert!(gate.knows(Some(name)));
        }
        fs::remove_file(&list).unwrap();
        let mut gone = gate.refresh_if_changed().unwrap();
        // The names come in the order of their keys.
        gone.sort();
        assert_eq!(gone, ["ann", "bob"]);
    }

    #[test]
    fn a_wrong_list_is_said_once_and_the_clients_are_those_of_before() {
        let dir = tempfile::tempdir().unwrap();
        let list = dir.path().join("clients.toml");
        Clients::append(&list, "ann", KeyPair::generate().unwrap().public()).unwrap();
        let gate = gate(&list);
        let right = fs::read_to_string(&list).unwrap();
        fs::write(&list, format!("{right}[[client]]\nname = \"ann\"\nkey = \"x\"\n")).unwrap();
        let error = gate.refresh().unwrap_err().to_string();
        assert!(error.contains("clients.toml, line 7: the key of `ann` is no public key"), "{error}");
        assert_eq!(gate.refresh().unwrap(), [""; 0], "it was said");
        assert!(gate.knows(Some("ann")));
        fs::write(&list, "").unwrap();
        assert_eq!(gate.refresh().unwrap(), ["ann"]);
    }
}
