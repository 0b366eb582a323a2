//! What a rendezvous remembers, in a file, so that a new start loses nothing.
//!
//! The file is a database of redb with four tables: what it is, the nodes and the scopes of the domain as
//! they were, and the records of [`anabranch_overlay::rendezvous`]. One commit takes what one turn of the
//! loop has changed, and is on the disk (fdatasync) before anything is answered: a publisher that has heard
//! "published" says nothing for 20 seconds, and a withdrawal is said once. So redb's `Durability::None` is
//! not enough: what is committed with it is lost if the process is killed.
//!
//! Signatures are not checked again at the start, which would take 50 s for a million publications: the file
//! holds what this program has checked. Who can write it can as well replace the domain's file with its keys;
//! and a receiver checks each publication that it is told, so it takes no wrong bytes whatever the file says.
//! What the check rested on is in the file, too: what is of a scope with another key now, or of a node that
//! is another now, is dropped. The file's own check sums are compared at each start, so damage is found then.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anabranch_algo::Time;
use anabranch_net::private_file::{self, Access};
use anabranch_overlay::domain::Domain;
use anabranch_overlay::publication::{PublicKey, Publication, Rejection, Scope};
use anabranch_overlay::rendezvous::{Change, Key, Record, Rendezvous};
use anabranch_topology::graph::NodeId;
use redb::backends::FileBackend;
use redb::{
    Database, ReadableDatabase as _, ReadableTable as _, TableDefinition, TableError, WriteTransaction,
};
use serde::Serialize;

use anabranch::text::show;
use anabranch::{Error, Result};

/// What the file is; of all versions: `format`, and the name of the `domain`.
const ABOUT: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("anabranch rendezvous");
/// The name of each node.
const NODES: TableDefinition<'_, u32, &str> = TableDefinition::new("nodes");
/// The key of each scope.
const SCOPES: TableDefinition<'_, &str, &str> = TableDefinition::new("scopes");
/// Each record by its key.
const RECORDS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("records");

/// The version of what is in these tables.
const FORMAT: u8 = 1;
/// Pages of the file that are kept in memory: those between its root and its leaves. The system's own cache
/// has the rest.
const CACHE_BYTES: usize = 32 << 20;
/// So many things that are forgotten wait for something that must be written. They need not be: after a new
/// start they are as old.
const FORGOTTEN_MAX: usize = 10_000;

/// What a rendezvous has done with its state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct StateStats {
    /// Publications that were taken back at the start.
    pub taken_back: u64,
    /// Publications that had ended, or were withdrawn, and are remembered so that none of them is sent again.
    pub remembered: u64,
    /// What was too old at the start.
    pub expired: u64,
    /// What was of a scope, key or node that the domain has no more.
    pub foreign: u64,
    /// Times that the file was written since.
    pub commits: u64,
}

impl StateStats {
    /// For a person.
    fn text(&self, path: &str) -> String {
        let Self { taken_back, remembered, expired, foreign, .. } = self;
        if self == &Self::default() {
            return format!("keeps publications in {path}, which has none yet");
        }
        let foreign = match foreign {
            0 => String::new(),
            n => format!(", {n} are of scopes or nodes that the domain has changed"),
        };
        format!(
            "took back {taken_back} publications from {path}, and remembers {remembered} that ended; \
             {expired} are too old{foreign}"
        )
    }
}

/// See the [module](self).
pub(super) struct State {
    database: Database,
    path: PathBuf,
    stats: StateStats,
    changes: Vec<Change>,
    /// Whether some of them must be written before anything is answered.
    owes: bool,
}

impl State {
    /// Opens a file, or makes it, and gives a machine what is in it; with what a person should know.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](anabranch::ErrorKind::Usage) if the file is another thing,
    /// [`ErrorKind::Target`](anabranch::ErrorKind::Target) if it cannot be used.
    pub(super) fn open(
        path: &Path,
        domain: &Domain,
        now: Time,
        machine: &mut Rendezvous,
    ) -> Result<(Self, String)> {
        let failed = |error: redb::Error| failure(path, error);
        let mut builder = Database::builder();
        builder.set_cache_size(CACHE_BYTES).set_check_integrity_on_open(true);
        // Who can write it can have all names forgotten.
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
        let file = file.and_then(|file| private_file::check(&file, path, Access::Public).map(|()| file));
        let file = file.map_err(|e| io_failure(path, e))?;
        let file = FileBackend::new(file).map_err(|e| failed(e.into()))?;
        let database = builder.create_with_backend(file).map_err(|e| failed(e.into()))?;
        check_kind(&database, path, domain)?;
        let stats = take_back(&database, domain, now, machine).map_err(failed)?;
        let text = stats.text(&show(path));
        Ok((Self { database, path: path.to_owned(), stats, changes: Vec::new(), owes: false }, text))
    }

    /// Takes note of a change, to be written.
    pub(super) fn push(&mut self, change: Change) {
        self.owes |= matches!(change, Change::Kept(_)) || self.changes.len() >= FORGOTTEN_MAX;
        self.changes.push(change);
    }

    /// Writes what must be before something is answered.
    ///
    /// # Errors
    /// [`ErrorKind::Target`](anabranch::ErrorKind::Target) if the file takes no more. What was not written
    /// was not answered either.
    pub(super) fn write(&mut self) -> Result<()> {
        if !self.owes {
            return Ok(());
        }
        self.owes = false;
        self.stats.commits += 1;
        commit(&self.database, &mut self.changes).map_err(|error| failure(&self.path, error))
    }

    /// What has been done.
    pub(super) const fn stats(&self) -> &StateStats {
        &self.stats
    }
}

fn commit(database: &Database, changes: &mut Vec<Change>) -> Result<(), redb::Error> {
    let write = database.begin_write()?;
    {
        let mut records = write.open_table(RECORDS)?;
        for change in changes.drain(..) {
            match change {
                Change::Kept(record) => {
                    let key = Key::of(&record.signed.publication).to_bytes();
                    records.insert(&*key, &*record.to_bytes())?;
                }
                Change::Forgotten(key) => drop(records.remove(&*key.to_bytes())?),
            }
        }
    }
    Ok(write.commit()?)
}

/// Whether the file is what this program keeps for this domain; a new one becomes that.
fn check_kind(database: &Database, path: &Path, domain: &Domain) -> Result<()> {
    let failed = |error: redb::Error| failure(path, error);
    let other = || is_none(path);
    let read = database.begin_read().map_err(|e| failed(e.into()))?;
    let about = match read.open_table(ABOUT) {
        Ok(about) => about,
        Err(TableError::TableDoesNotExist(_)) => {
            let mut tables = read.list_tables().map_err(|e| failed(e.into()))?;
            let is_new = tables.next().is_none();
            return if is_new { found(database, domain).map_err(failed) } else { Err(other()) };
        }
        Err(error) => return Err(failed(error.into())),
    };
    let value = |name: &str| -> Result<Vec<u8>> {
        let value = about.get(name).map_err(|e| failed(e.into()))?;
        Ok(value.ok_or_else(other)?.value().to_vec())
    };
    if value("format")? != [FORMAT] {
        return Err(Error::usage(format!(
            "{} was written by a newer anabranch: use that one, or name another file with `state`",
            show(path)
        ))
        .at(path));
    }
    let theirs = value("domain")?;
    if theirs != domain.name.as_bytes() {
        return Err(Error::usage(format!(
            "{} is the state of the domain {}, not of {}: name another file with `state`",
            show(path),
            anabranch::text::printable(&String::from_utf8_lossy(&theirs)),
            domain.name
        ))
        .at(path));
    }
    Ok(())
}

/// Says in a new file what it is.
fn found(database: &Database, domain: &Domain) -> Result<(), redb::Error> {
    let write = database.begin_write()?;
    {
        let mut about = write.open_table(ABOUT)?;
        about.insert("format", &[FORMAT][..])?;
        about.insert("domain", domain.name.as_bytes())?;
    }
    Ok(write.commit()?)
}

/// What the checks of an earlier run rested on: the domain as it was.
struct Basis {
    nodes: BTreeMap<u32, String>,
    scopes: BTreeMap<Scope, PublicKey>,
}

impl Basis {
    fn of(domain: &Domain) -> Self {
        let name = |id: NodeId| (id.0, domain.graph.node(id).name.clone());
        let key = |scope: &Scope| Some((scope.clone(), *domain.scope_key(scope)?));
        Self {
            nodes: domain.graph.node_ids().map(name).collect(),
            scopes: domain.scopes().filter_map(key).collect(),
        }
    }

    fn read(write: &WriteTransaction) -> Result<Self, redb::Error> {
        let (nodes, scopes) = (write.open_table(NODES)?, write.open_table(SCOPES)?);
        let mut basis = Self { nodes: BTreeMap::new(), scopes: BTreeMap::new() };
        for entry in nodes.iter()? {
            let (id, name) = entry?;
            basis.nodes.insert(id.value(), name.value().to_owned());
        }
        for entry in scopes.iter()? {
            let (scope, key) = entry?;
            // What makes no sense is nobody's key.
            if let (Ok(scope), Ok(key)) = (scope.value().parse(), key.value().parse()) {
                basis.scopes.insert(scope, key);
            }
        }
        Ok(basis)
    }

    fn write(&self, write: &WriteTransaction) -> Result<(), redb::Error> {
        write.delete_table(NODES)?;
        write.delete_table(SCOPES)?;
        let (mut nodes, mut scopes) = (write.open_table(NODES)?, write.open_table(SCOPES)?);
        for (id, name) in &self.nodes {
            nodes.insert(id, &**name)?;
        }
        for (scope, key) in &self.scopes {
            scopes.insert(&*scope.to_string(), &*key.to_string())?;
        }
        Ok(())
    }

    /// Whether what was checked on the one would be on the other.
    fn agrees(&self, other: &Self, publication: &Publication) -> bool {
        let (node, scope) = (publication.node.0, publication.name.scope());
        self.nodes.get(&node) == other.nodes.get(&node) && self.scopes.get(scope) == other.scopes.get(scope)
    }
}

/// Gives a machine all records that are good still, and removes the others.
fn take_back(
    database: &Database,
    domain: &Domain,
    now: Time,
    machine: &mut Rendezvous,
) -> Result<StateStats, redb::Error> {
    let mut stats = StateStats::default();
    let write = database.begin_write()?;
    let (then, basis) = (Basis::read(&write)?, Basis::of(domain));
    write.open_table(RECORDS)?.retain(|_, bytes| {
        let record = match Record::parse(bytes) {
            Ok(record) if then.agrees(&basis, &record.signed.publication) => record,
            _ => {
                stats.foreign += 1;
                return false;
            }
        };
        let is_over = record.is_over(now);
        let kept = machine.restore(now, record);
        match kept {
            Ok(()) if is_over => stats.remembered += 1,
            Ok(()) => stats.taken_back += 1,
            Err(Rejection::Expired) => stats.expired += 1,
            Err(_) => stats.foreign += 1,
        }
        kept.is_ok()
    })?;
    basis.write(&write)?;
    write.commit()?;
    Ok(stats)
}

const IS_NONE: &str = "is no state of a rendezvous: name another file with `state`. If it was cut short when \
                       it was made, remove it";

fn is_none(path: &Path) -> Error {
    Error::usage(format!("{} {IS_NONE}", show(path))).at(path)
}

/// What to do about a failure of the file.
fn failure(path: &Path, error: redb::Error) -> Error {
    use redb::Error as E;
    if let E::Io(error) = error {
        return io_failure(path, error);
    }
    let advice = match &error {
        E::DatabaseAlreadyOpen | E::LockProtocolMismatch => {
            "is in use by another rendezvous: end that one, or name another file with `state`".into()
        }
        E::UpgradeRequired(_) => {
            "was written by another version of anabranch: use that one, or name another file with `state`"
                .into()
        }
        E::Corrupted(what) => damaged(what),
        // The tables are there, but are others.
        E::TableTypeMismatch { .. }
        | E::TableIsMultimap(_)
        | E::TableIsNotMultimap(_)
        | E::TypeDefinitionChanged { .. } => return is_none(path).because(error),
        other => format!("cannot be used: {other}"),
    };
    Error::target(format!("{} {advice}", show(path))).at(path).because(error)
}

fn damaged(how: &str) -> String {
    format!(
        "is damaged ({how}): remove it, or put a copy back. Without it publishers tell everything again \
         within 20 seconds"
    )
}

fn io_failure(path: &Path, error: io::Error) -> Error {
    use io::ErrorKind as Kind;
    let advice = match error.kind() {
        Kind::InvalidData => return is_none(path).because(error),
        Kind::UnexpectedEof => {
            let message = format!("{} {}", show(path), damaged("it was cut short"));
            return Error::target(message).at(path).because(error);
        }
        Kind::StorageFull | Kind::QuotaExceeded => {
            "the disk is full: make room and start again; what was answered is in the file".into()
        }
        Kind::FileTooLarge => "the file system or a resource limit (ulimit -f) forbids a larger file".into(),
        Kind::NotFound => {
            "there is no such directory: make it first, or name another file with `state`".into()
        }
        Kind::IsADirectory => "it is a directory: name a file with `state`".into(),
        Kind::PermissionDenied => "permission denied: name a file that may be written with `state`".into(),
        Kind::ReadOnlyFilesystem => "the file system is read-only: name a file elsewhere with `state`".into(),
        _ => error.to_string(),
    };
    Error::target(format!("cannot use the state {}: {advice}", show(path))).at(path).because(error)
}

#[cfg(test)]
mod tests;
