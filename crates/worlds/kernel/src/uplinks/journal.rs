//! The journal: what was there before, and what was added to it; one file a network namespace.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anabranch_net::netlink::{Endpoint, EndpointFlags, Limits, MAIN_TABLE, Route, Rule};
use nix::fcntl::Flock;
use serde::{Deserialize, Serialize};

use super::current::CurrentConfig;
use super::error::hint;
use super::{Error, Result};
use crate::state_dir;

/// A journal of another version is refused.
const VERSION: u32 = 1;
/// A journal is a few kilobytes.
const JOURNAL_BYTES_MAX: u64 = 1 << 20;

/// What [`teardown`](super::teardown) goes by.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Journal {
    version: u32,
    /// The namespace's cookie: its inode is in the file's name, but may have been another's.
    namespace: u64,
    /// `net.mptcp.enabled` as it was, if it was changed.
    pub(crate) enabled: Option<String>,
    /// The limits as they were, if they were changed.
    pub(crate) limits: Option<SavedLimits>,
    /// Endpoints of these addresses that were there before, as they were.
    replaced: Vec<SavedEndpoint>,
    /// What was added.
    endpoints: Vec<SavedEndpoint>,
    rules: Vec<SavedRule>,
    routes: Vec<SavedRoute>,
}

/// Limits: subflows, accepted addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedLimits {
    pub(crate) was: (u32, u32),
    /// What was set since, in turn: if it is none of these, somebody else has set it.
    pub(crate) set: Vec<(u32, u32)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SavedEndpoint {
    ip: IpAddr,
    port: u16,
    id: u8,
    device: Option<u32>,
    flags: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SavedRule {
    from: IpAddr,
    table: u32,
    priority: u32,
    suppress_prefix: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SavedRoute {
    dst: IpAddr,
    prefix: u8,
    device: Option<u32>,
    gateway: Option<IpAddr>,
    source: Option<IpAddr>,
    table: u32,
    metric: u32,
    onlink: bool,
}

/// Limits as they are written.
pub(crate) const fn pair(limits: Limits) -> (u32, u32) {
    (limits.subflows, limits.add_addr_accepted)
}

impl From<&Endpoint> for SavedEndpoint {
    fn from(e: &Endpoint) -> Self {
        Self { ip: e.ip, port: e.port, id: e.id, device: e.device, flags: e.flags.0 }
    }
}

impl From<&SavedEndpoint> for Endpoint {
    fn from(e: &SavedEndpoint) -> Self {
        Self { ip: e.ip, port: e.port, id: e.id, device: e.device, flags: EndpointFlags(e.flags) }
    }
}

impl Journal {
    pub(crate) fn is_empty(&self) -> bool {
        let Self { enabled, limits, replaced, endpoints, rules, routes, .. } = self;
        let lists = replaced.is_empty() && endpoints.is_empty() && rules.is_empty() && routes.is_empty();
        enabled.is_none() && limits.is_none() && lists
    }

    pub(crate) fn replaced(&self) -> Vec<Endpoint> {
        self.replaced.iter().map(Endpoint::from).collect()
    }

    pub(crate) fn endpoints(&self) -> Vec<Endpoint> {
        self.endpoints.iter().map(Endpoint::from).collect()
    }

    pub(crate) fn rules(&self) -> Vec<Rule> {
        let rule = |r: &SavedRule| {
            let mut rule = Rule::from_address(r.from, r.table, r.priority);
            rule.suppress_prefix = r.suppress_prefix;
            rule
        };
        self.rules.iter().map(rule).collect()
    }

    pub(crate) fn routes(&self) -> Vec<Route> {
        let route = |r: &SavedRoute| Route {
            device: r.device,
            gateway: r.gateway,
            source: r.source,
            table: r.table,
            metric: r.metric,
            onlink: r.onlink,
            ..Route::to(r.dst, r.prefix)
        };
        self.routes.iter().map(route).collect()
    }

    pub(crate) fn set_replaced(&mut self, endpoints: &[Endpoint]) {
        self.replaced = endpoints.iter().map(SavedEndpoint::from).collect();
    }

    pub(crate) fn set_endpoints(&mut self, endpoints: &[Endpoint]) {
        self.endpoints = endpoints.iter().map(SavedEndpoint::from).collect();
    }

    /// Only rules of the kind that [`Rule::from_address`] makes are kept.
    pub(crate) fn set_rules(&mut self, rules: &[Rule]) {
        let saved = |r: &Rule| {
            let (from, _) = r.from?;
            Some(SavedRule { from, table: r.table, priority: r.priority, suppress_prefix: r.suppress_prefix })
        };
        self.rules = rules.iter().filter_map(saved).collect();
    }

    pub(crate) fn set_routes(&mut self, routes: &[Route]) {
        let saved = |r: &Route| {
            // A journal that could remove a route of the main table would be a danger.
            debug_assert_ne!(r.table, MAIN_TABLE);
            let ((dst, prefix), &Route { device, gateway, source, table, metric, onlink, .. }) = (r.dst, r);
            SavedRoute { dst, prefix, device, gateway, source, table, metric, onlink }
        };
        self.routes = routes.iter().map(saved).collect();
    }
}

/// The journal of one namespace.
#[derive(Clone, Debug)]
pub(crate) struct JournalFile {
    path: PathBuf,
    namespace: u64,
}

impl JournalFile {
    pub(crate) fn of(current: &CurrentConfig, dir: &Path) -> Result<Self> {
        let (inode, namespace) = current.namespace;
        Ok(Self { path: dir.join(format!("uplinks-{inode}.json")), namespace })
    }

    /// The journal; `None` if there is none for this namespace.
    pub(crate) fn read(&self) -> Result<Option<Journal>> {
        let failed =
            |what: &dyn std::fmt::Display| Error::Journal(format!("{}: {what}", self.path.display()));
        let bytes = match fs::metadata(&self.path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(failed(&e)),
            Ok(meta) if meta.len() > JOURNAL_BYTES_MAX => return Err(failed(&"too long for a journal")),
            Ok(_) => fs::read(&self.path).map_err(|e| failed(&e))?,
        };
        let journal: Journal =
            serde_json::from_slice(&bytes).map_err(|e| failed(&format_args!("this is no journal ({e})")))?;
        if journal.version != VERSION {
            return Err(failed(&"written by another version of anabranch"));
        }
        // One of a namespace that is gone, and whose inode is another's now.
        Ok((journal.namespace == self.namespace).then_some(journal))
    }

    /// Writes the journal, and returns when it is on the disk; removes it if it is empty.
    pub(crate) fn write(&self, journal: &Journal) -> Result<()> {
        if journal.is_empty() {
            return self.remove();
        }
        let journal = Journal { version: VERSION, namespace: self.namespace, ..journal.clone() };
        let temporary = self.temporary();
        let write = || {
            let mut file = File::create(&temporary)?;
            serde_json::to_writer_pretty(&mut file, &journal)?;
            file.write_all(b"\n")?;
            file.sync_all()?;
            fs::rename(&temporary, &self.path)
        };
        write().map_err(|e| Error::Journal(format!("cannot write {}: {e}{}", self.path.display(), hint(&e))))
    }

    /// Removes the journal, and one that was begun and not finished.
    pub(crate) fn remove(&self) -> Result<()> {
        for path in [&self.path, &self.temporary()] {
            match fs::remove_file(path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => {
                    return Err(Error::Journal(format!("cannot remove {}: {e}", path.display())));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn temporary(&self) -> PathBuf {
        self.path.with_extension("json.new")
    }
}

/// Keeps everybody else from changing anything until the result is dropped.
pub(crate) fn lock(dir: &Path) -> Result<Flock<File>> {
    state_dir::lock(dir).map_err(|e| Error::Journal(format!("{}: {e}{}", dir.display(), hint(&e))))
}
