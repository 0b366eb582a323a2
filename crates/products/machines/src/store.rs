//! What a host knows of machines, in files that only its user can read: one directory for each machine, one
//! record for each move that came in, one file for each host that was paired.

use std::fs::File;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anabranch_house::keys::{Clients, KeyPair, Pairing};
use anabranch_net::private_file::{Access, PrivateDir};
use nix::fcntl::Flock;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::config::{Config, Places, is_name};
use crate::disks::Node;
use crate::error::{Error, Result};
use crate::journal::{Arrival, Departure, Guarded};
use crate::wire::MoveId;

/// The most bytes of a record.
const RECORD_BYTES_MAX: u64 = 1 << 20;
/// The longest path of a Unix socket (unix(7)), less the longest name of ours.
const SOCKET_PATH_MAX: usize = 107 - 8;

/// Whose QEMU runs a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// This program started it.
    Run,
    /// Another program did, and only its QMP socket is known.
    Attached,
    /// It came from another host.
    Arrived,
}

/// A machine that this host knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The name.
    pub name: String,
    /// What it is made of; `None` if only its QMP socket is known.
    pub config: Option<Config>,
    /// Its QMP socket, which a move holds.
    pub qmp: PathBuf,
    /// A second QMP socket, for everybody else.
    pub look: Option<PathBuf>,
    /// Where its heartbeat can be read.
    pub beat: Option<PathBuf>,
    /// The process of its QEMU, if it is known.
    pub pid: Option<i32>,
    /// Who started it.
    pub origin: Origin,
}

/// The record of a move at its source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// The number of the move, which both ends know.
    pub id: MoveId,
    /// The name of the destination.
    pub to: String,
    /// Its addresses, of which some may not be reached later.
    #[serde(default)]
    pub addresses: Vec<IpAddr>,
    /// Who may run the machine.
    pub state: Departure,
}

/// The record of a move at its destination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Incoming {
    /// The number of the move.
    pub id: MoveId,
    /// The client that it came from.
    pub client: String,
    /// The machine.
    pub name: String,
    /// Who may run the machine.
    pub state: Arrival,
    /// The files of disks that came with it, which go if it does not come.
    #[serde(default)]
    pub disks: Vec<PathBuf>,
    /// Set if it is a shadow: the machine comes without its memory, if it comes.
    #[serde(default)]
    pub shadow: Option<Shadow>,
}

/// A machine whose disks are copied here while it runs at another host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shadow {
    /// What it is made of, with the disks of this host.
    pub config: Config,
    /// The port at which the disks come in.
    pub port: u16,
    /// Whether the first copy is complete.
    pub is_whole: bool,
}

/// The record of a protection at its source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Protection {
    /// The number that both ends know.
    pub id: MoveId,
    /// The name of the host of the shadow.
    pub to: String,
    /// The links that are used; none: all that lead there.
    pub via: Vec<String>,
    /// Its addresses, of which some may not be reached later.
    pub addresses: Vec<IpAddr>,
    /// The port of the shadow's storage daemon.
    pub port: u16,
    /// The disks that are copied, as QEMU names them here.
    pub nodes: Vec<Node>,
    /// How far it is.
    pub state: Guarded,
}

/// A host that machines can move to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Its address and port.
    pub address: String,
    /// The line of `pair`, a secret.
    pub line: String,
}

/// The directory of a host's state.
#[derive(Clone, Debug)]
pub struct Store {
    dir: PathBuf,
}

fn to_json(value: &impl Serialize) -> Vec<u8> {
    // Records have no maps whose keys are not text.
    serde_json::to_vec_pretty(value).unwrap_or_default()
}

impl Store {
    /// Opens a directory, which is made if it is missing.
    ///
    /// # Errors
    /// `Failed` if it cannot be made, others can write it, or its path is too long for sockets in it.
    pub fn open(dir: &Path) -> Result<Self> {
        let made = PrivateDir::make(dir, Access::Secret).map_err(|e| Error::of_path(dir, &e))?;
        drop(made);
        let dir = dir.canonicalize().map_err(|e| Error::of_path(dir, &e))?;
        let store = Self { dir };
        for name in ["machines", "arrivals", "hosts", "images"] {
            store.private(name)?;
        }
        Ok(store)
    }

    /// Returns the path of the directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    fn private(&self, name: &str) -> Result<PrivateDir> {
        let path = self.dir.join(name);
        PrivateDir::make(&path, Access::Secret).map_err(|e| Error::of_path(&path, &e))
    }

    fn read<T: DeserializeOwned>(dir: &PrivateDir, name: &str) -> Result<Option<T>> {
        let path = dir.path().join(name);
        let Some(bytes) =
            dir.read(name, Access::Secret, RECORD_BYTES_MAX).map_err(|e| Error::of_path(&path, &e))?
        else {
            return Ok(None);
        };
        let damaged = |e| Error::Failed(format!("{} is damaged: {e}", path.display()));
        serde_json::from_slice(&bytes).map(Some).map_err(damaged)
    }

    fn write(dir: &PrivateDir, name: &str, value: &impl Serialize) -> Result {
        let failed = |e| Error::of_path(&dir.path().join(name), &e);
        dir.replace(name, Access::Secret, &to_json(value)).map_err(failed)?;
        // The new name, too, has to be on the disk before anybody acts on it.
        File::open(dir.path()).and_then(|dir| dir.sync_all()).map_err(failed)
    }

    fn remove(dir: &PrivateDir, name: &str) -> Result {
        dir.remove(name).map_err(|e| Error::of_path(&dir.path().join(name), &e))
    }

    fn names(&self, of: &str, ending: &str) -> Result<Vec<String>> {
        let path = self.dir.join(of);
        let entries = std::fs::read_dir(&path).map_err(|e| Error::of_path(&path, &e))?;
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<String> =
            names.filter_map(|name| Some(name.strip_suffix(ending)?.to_owned())).collect();
        names.retain(|name| is_name(name));
        names.sort();
        Ok(names)
    }

    fn dir_of(&self, machine: &str) -> Result<PrivateDir> {
        if !is_name(machine) {
            return Err(Error::Usage(format!("`{}` is no name of a machine", machine.escape_default())));
        }
        self.private(&format!("machines/{machine}"))
    }

    /// Returns the directory for the files of a machine's QEMU, which is made.
    ///
    /// # Errors
    /// `Failed` if it cannot be made, or if its path is too long for a socket.
    pub fn places(&self, machine: &str) -> Result<Places> {
        let dir = self.dir_of(machine)?.path().to_owned();
        if dir.as_os_str().len() > SOCKET_PATH_MAX {
            let most = SOCKET_PATH_MAX;
            let text = format!(
                "{} is longer than {most} bytes, too long for a socket in it: use a shorter \
                directory for state",
                dir.display()
            );
            return Err(Error::Failed(text));
        }
        Ok(Places { dir })
    }

    /// Returns the names of all machines.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn machines(&self) -> Result<Vec<String>> {
        let names = self.names("machines", "")?;
        let is_one = |name: &String| self.dir.join("machines").join(name).join("machine.json").exists();
        let has_left = |name: &String| self.dir.join("machines").join(name).join("move.json").exists();
        Ok(names.into_iter().filter(|name| is_one(name) || has_left(name)).collect())
    }

    /// Returns a machine.
    ///
    /// # Errors
    /// `NotFound` if there is none of this name.
    pub fn machine(&self, name: &str) -> Result<Machine> {
        self.find(name)?.ok_or_else(|| {
            let known = self.machines().unwrap_or_default();
            let known = if known.is_empty() { "none is known here".to_owned() } else { known.join(", ") };
            Error::NotFound(format!("there is no machine `{}` here: {known}", name.escape_default()))
        })
    }

    /// Returns a machine if there is one of this name.
    ///
    /// # Errors
    /// If its record cannot be read.
    pub fn find(&self, name: &str) -> Result<Option<Machine>> {
        Self::read(&self.dir_of(name)?, "machine.json")
    }

    /// Writes the record of a machine.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn put(&self, machine: &Machine) -> Result {
        Self::write(&self.dir_of(&machine.name)?, "machine.json", machine)
    }

    /// Removes the record of a machine; its console and other files stay until the next of its name.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn forget(&self, name: &str) -> Result {
        Self::remove(&self.dir_of(name)?, "machine.json")
    }

    /// Takes the lock of a machine, which a move, a stop and a recovery hold; `None` if another one does.
    ///
    /// # Errors
    /// If the lock cannot be made.
    pub fn lock(&self, machine: &str) -> Result<Option<Flock<File>>> {
        let dir = self.dir_of(machine)?;
        dir.try_lock("lock").map_err(|e| Error::of_path(dir.path(), &e))
    }

    /// Returns the record of a machine's move, if there is one.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn departure(&self, machine: &str) -> Result<Option<Move>> {
        Self::read(&self.dir_of(machine)?, "move.json")
    }

    /// Writes the record of a machine's move; it is on the disk when this returns.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn set_departure(&self, machine: &str, departure: Option<&Move>) -> Result {
        let dir = self.dir_of(machine)?;
        match departure {
            Some(departure) => Self::write(&dir, "move.json", departure),
            None => Self::remove(&dir, "move.json"),
        }
    }

    /// Returns the record of a machine's protection, if there is one.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn protection(&self, machine: &str) -> Result<Option<Protection>> {
        Self::read(&self.dir_of(machine)?, "protection.json")
    }

    /// Writes the record of a machine's protection; it is on the disk when this returns.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn set_protection(&self, machine: &str, protection: Option<&Protection>) -> Result {
        let dir = self.dir_of(machine)?;
        match protection {
            Some(protection) => Self::write(&dir, "protection.json", protection),
            None => Self::remove(&dir, "protection.json"),
        }
    }

    /// Takes the lock of the program that follows a machine's shadow; `None` if another one does.
    ///
    /// # Errors
    /// If the lock cannot be made.
    pub fn lock_keeper(&self, machine: &str) -> Result<Option<Flock<File>>> {
        let dir = self.dir_of(machine)?;
        dir.try_lock("keeper").map_err(|e| Error::of_path(dir.path(), &e))
    }

    /// Returns the shadow of a machine at this host, the one that has not run if there are several.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn shadow(&self, machine: &str) -> Result<Option<Incoming>> {
        let mut all: Vec<Incoming> = self.arrivals()?.into_iter().flatten().collect();
        all.retain(|arrival| arrival.shadow.is_some() && arrival.name == machine);
        all.sort_by_key(|arrival| arrival.state == Arrival::Running);
        Ok(all.into_iter().next())
    }

    /// Returns the records of all moves that came in, or why one cannot be read.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn arrivals(&self) -> Result<Vec<Result<Incoming>>> {
        let names = self.names("arrivals", ".json")?;
        let ids = names.into_iter().filter_map(|name| MoveId::try_from(name).ok());
        Ok(ids.filter_map(|id| self.arrival(&id).transpose()).collect())
    }

    /// Returns the record of a move that came in.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn arrival(&self, id: &MoveId) -> Result<Option<Incoming>> {
        Self::read(&self.private("arrivals")?, &format!("{id}.json"))
    }

    /// Writes the record of a move that came in; it is on the disk when this returns.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn set_arrival(&self, arrival: &Incoming) -> Result {
        Self::write(&self.private("arrivals")?, &format!("{}.json", arrival.id), arrival)
    }

    /// Removes the record of a move that came in.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn forget_arrival(&self, id: &MoveId) -> Result {
        Self::remove(&self.private("arrivals")?, &format!("{id}.json"))
    }

    /// Returns a host that was paired.
    ///
    /// # Errors
    /// `NotFound` if there is none of this name; `Failed` if its line is damaged.
    pub fn host(&self, name: &str) -> Result<(Host, Pairing)> {
        let unknown = || {
            let known = self.names("hosts", ".json").unwrap_or_default().join(", ");
            let known =
                if known.is_empty() { "none is known".to_owned() } else { format!("there are {known}") };
            Error::NotFound(format!(
                "there is no host `{}`: {known}; `trust` adds one",
                name.escape_default()
            ))
        };
        if !is_name(name) {
            return Err(unknown());
        }
        let host: Host = Self::read(&self.private("hosts")?, &format!("{name}.json"))?.ok_or_else(unknown)?;
        let pairing = host.line.parse().map_err(|e| Error::Failed(format!("the host {name}: {e}")))?;
        Ok((host, pairing))
    }

    /// Writes a host that was paired, in the place of an earlier one of this name.
    ///
    /// # Errors
    /// `Usage` if the name or the line is none.
    pub fn set_host(&self, name: &str, host: &Host) -> Result {
        if !is_name(name) {
            return Err(Error::Usage(format!("`{}` is no name of a host", name.escape_default())));
        }
        host.line.parse::<Pairing>().map_err(|e| Error::Usage(e.to_string()))?;
        Self::write(&self.private("hosts")?, &format!("{name}.json"), host)
    }

    /// Returns the names of all hosts that were paired.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn hosts(&self) -> Result<Vec<String>> {
        self.names("hosts", ".json")
    }

    /// Returns the key pair of this host's agent, which is made if there is none.
    ///
    /// # Errors
    /// If the file cannot be read or made.
    pub fn key(&self) -> Result<KeyPair> {
        let pair = KeyPair::load_or_create(&self.dir.join("agent.key"));
        pair.map(|(pair, _)| pair).map_err(|e| Error::Failed(e.to_string()))
    }

    /// Returns the clients of this host's agent.
    ///
    /// # Errors
    /// If the list cannot be read.
    pub fn clients(&self) -> Result<Clients> {
        Clients::load(&self.clients_file()).map_err(|e| Error::Failed(e.to_string()))
    }

    /// Returns the path of the list of clients.
    #[must_use]
    pub fn clients_file(&self) -> PathBuf {
        self.dir.join("agent-clients.toml")
    }

    /// Returns the path of an image that came from another host, named by its SHA-256.
    #[must_use]
    pub fn image(&self, sha256: &str) -> PathBuf {
        self.dir.join("images").join(sha256)
    }

    /// Takes the lock of this host's agent, of which there is one; `None` if another one runs.
    ///
    /// # Errors
    /// If the lock cannot be made.
    pub fn lock_agent(&self) -> Result<Option<Flock<File>>> {
        let dir = self.private("arrivals")?;
        dir.try_lock("lock").map_err(|e| Error::of_path(dir.path(), &e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_and_names_lead_nowhere_else() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("state")).unwrap();
        assert_eq!(store.machines().unwrap(), Vec::<String>::new());
        let machine = Machine {
            name: "web".into(),
            config: None,
            qmp: "/run/qmp".into(),
            look: None,
            beat: None,
            pid: Some(1),
            origin: Origin::Attached,
        };
        store.put(&machine).unwrap();
        assert_eq!(store.machine("web").unwrap(), machine);
        assert_eq!(store.machines().unwrap(), ["web"]);
        let error = store.machine("wbe").unwrap_err();
        assert_eq!(error, Error::NotFound("there is no machine `wbe` here: web".into()));
        assert!(matches!(store.machine("../web"), Err(Error::Usage(_))));
        assert!(matches!(store.host("../web"), Err(Error::NotFound(_))));

        let departure =
            Move { id: MoveId::new([1; 16]), to: "b".into(), addresses: vec![], state: Departure::Given };
        store.set_departure("web", Some(&departure)).unwrap();
        assert_eq!(store.departure("web").unwrap(), Some(departure));
        store.forget("web").unwrap();
        assert_eq!(store.machines().unwrap(), ["web"], "it has left, which is known");
        store.set_departure("web", None).unwrap();
        assert_eq!(store.machines().unwrap(), Vec::<String>::new());

        let held = store.lock("web").unwrap();
        assert!(held.is_some() && store.lock("web").unwrap().is_none());
    }

    #[test]
    fn a_host_is_known_by_its_line() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("state")).unwrap();
        let line = Pairing::new(store.key().unwrap().public()).unwrap().to_line();
        let host = Host { address: "192.0.2.1:1".into(), line };
        store.set_host("b", &host).unwrap();
        assert_eq!(store.host("b").unwrap().0, host);
        let wrong = Host { line: host.line[1..].into(), ..host };
        assert!(matches!(store.set_host("c", &wrong), Err(Error::Usage(_))));
        let error = store.host("c").unwrap_err().to_string();
        assert!(error.contains("there are b"), "{error}");
    }
}
