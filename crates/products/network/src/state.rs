//! Keeps the state of a rendezvous in a file, so that a new start loses nothing.
//!
//! The file is a database of redb with four tables: the kind of the file, the nodes and the scopes of the
//! domain at the last start, and the records of [`anabranch_overlay::rendezvous`]. One commit takes the
//! changes of one turn of the loop, and is on the disk (fdatasync) before any answer is sent: a publisher
//! that was told "published" repeats nothing for 20 seconds, and withdraws only once. redb's
//! `Durability::None` is not enough, because a killed process loses what was committed with it.
//!
//! Signatures are not checked again at the start, which would take 50 s for a million publications: this
//! program checked them before it wrote the file. A user who can write the file can also replace the domain's
//! file with its keys, and receivers check each publication, so they accept no wrong bytes. The file also has
//! the nodes and scope keys on which the checks were based: publications of a scope with another key, or of a
//! changed node, are dropped. The file's own check sums are compared at each start, which detects damage.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anabranch_algo::Time;
use anabranch_net::private_file::{self, Access};
use anabranch_overlay::domain::Domain;
use anabranch_overlay::publication::Key;
use anabranch_overlay::publication::{PublicKey, Publication, Rejection, Scope};
use anabranch_overlay::rendezvous::{Change, Record, Rendezvous};
use anabranch_topology::graph::NodeId;
use redb::backends::FileBackend;
use redb::{
    Database, ReadableDatabase as _, ReadableTable as _, TableDefinition, TableError, WriteTransaction,
};
use serde::Serialize;

use anabranch::text::show;
use anabranch::{Error, Result};

/// The kind of the file. All versions have `format`, and the name of the `domain`.
const ABOUT: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("anabranch rendezvous");
/// The name of each node.
const NODES: TableDefinition<'_, u32, &str> = TableDefinition::new("nodes");
/// The key of each scope.
const SCOPES: TableDefinition<'_, &str, &str> = TableDefinition::new("scopes");
/// Each record by its key.
const RECORDS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("records");

/// The version of the tables' content.
const FORMAT: u8 = 1;
/// The bytes of the file that are kept in memory: the pages between its root and its leaves. The system's own
/// cache has the rest.
const CACHE_BYTES: usize = 32 << 20;
/// The most removed records that wait for a change that must be written. They may wait, because the next
/// start would find them just as old.
const FORGOTTEN_MAX: usize = 10_000;

/// The statistics of a rendezvous's state file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct StateStats {
    /// The number of publications that were read at the start and are still valid.
    pub taken_back: u64,
    /// The number of ended or withdrawn publications that are remembered, so that they cannot be replayed.
    pub remembered: u64,
    /// The number of records that were too old at the start.
    pub expired: u64,
    /// The number of records with a scope, key or node that the domain does not have any more.
    pub foreign: u64,
    /// The number of times that the file was written since the start.
    pub commits: u64,
}

impl StateStats {
    /// Describes the start for people.
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

/// The state file; see the [module](self).
pub(super) struct State {
    database: Database,
    path: PathBuf,
    stats: StateStats,
    changes: Vec<Change>,
    /// Whether some changes must be written before any answer is sent.
    owes: bool,
}

impl State {
    /// Opens a file, or makes it, and passes its records to a machine. Also returns a message for people.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](anabranch::ErrorKind::Usage) if the file is no state of this domain,
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
        // A user who can write the file could make the rendezvous forget all names.
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

    /// Adds a change that is to be written.
    pub(super) fn push(&mut self, change: Change) {
        self.owes |= matches!(change, Change::Kept(_)) || self.changes.len() >= FORGOTTEN_MAX;
        self.changes.push(change);
    }

    /// Writes the changes that must be on the disk before an answer is sent.
    ///
    /// # Errors
    /// [`ErrorKind::Target`](anabranch::ErrorKind::Target) if the file cannot be written. Changes that were
    /// not written must not be answered.
    pub(super) fn write(&mut self) -> Result<()> {
        if !self.owes {
            return Ok(());
        }
        self.owes = false;
        self.stats.commits += 1;
        commit(&self.database, &mut self.changes).map_err(|error| failure(&self.path, error))
    }

    /// Returns the statistics.
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

/// Checks that the file is the state of this domain. An empty file becomes that.
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

/// Writes the kind of the file into a new file.
fn found(database: &Database, domain: &Domain) -> Result<(), redb::Error> {
    let write = database.begin_write()?;
    {
        let mut about = write.open_table(ABOUT)?;
        about.insert("format", &[FORMAT][..])?;
        about.insert("domain", domain.name.as_bytes())?;
    }
    Ok(write.commit()?)
}

/// The nodes and scope keys of the domain on which the checks of an earlier run were based.
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
            // A malformed entry is skipped, so that it agrees with no key.
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

    /// Whether a publication that was checked on one basis is also valid on the other.
    fn agrees(&self, other: &Self, publication: &Publication) -> bool {
        let (node, scope) = (publication.node.0, publication.name.scope());
        self.nodes.get(&node) == other.nodes.get(&node) && self.scopes.get(scope) == other.scopes.get(scope)
    }
}

/// Passes all records that are still valid to a machine, and removes the others.
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

/// Makes an error of a failure of the file, with advice.
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
        // The tables exist but have other types.
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
