//! The journal of a network namespace: its former configuration, and what was added to it. One file each.

use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anabranch_net::netlink::{Endpoint, EndpointFlags, Limits, MAIN_TABLE, Route, Rule};
use anabranch_net::private_file::{Access, PrivateDir};
use nix::fcntl::Flock;
use serde::{Deserialize, Serialize};

use super::current::CurrentConfig;
use super::error::hint;
use super::{Error, Result};
use crate::state_dir::FILE_BYTES_MAX;

/// The version of the journal's format. A journal of another version is refused.
const VERSION: u32 = 1;

/// The record that [`teardown`](super::teardown) works from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Journal {
    version: u32,
    /// The namespace's cookie. The file's name has the inode, which may have belonged to another namespace.
    namespace: u64,
    /// `net.mptcp.enabled` as it was, if it was changed.
    pub(crate) enabled: Option<String>,
    /// The limits as they were, if they were changed.
    pub(crate) limits: Option<SavedLimits>,
    /// Endpoints that were there before with the same addresses as ours, in their former state.
    replaced: Vec<SavedEndpoint>,
    /// The endpoints that were added or changed.
    endpoints: Vec<SavedEndpoint>,
    rules: Vec<SavedRule>,
    routes: Vec<SavedRoute>,
}

/// The former limits and ours, each as a pair: subflows, accepted addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedLimits {
    pub(crate) was: (u32, u32),
    /// The values that were set since, in order. If the present value is none of them, another program has
    /// set it.
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

/// Converts limits to the form in which the journal keeps them.
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

    /// Records the rules that were added. Drops rules of another kind than [`Rule::from_address`] makes.
    pub(crate) fn set_rules(&mut self, rules: &[Rule]) {
        let saved = |r: &Rule| {
            let (from, _) = r.from?;
            Some(SavedRule { from, table: r.table, priority: r.priority, suppress_prefix: r.suppress_prefix })
        };
        self.rules = rules.iter().filter_map(saved).collect();
    }

    pub(crate) fn set_routes(&mut self, routes: &[Route]) {
        let saved = |r: &Route| {
            // A journal that could remove routes of the main table would be dangerous.
            debug_assert_ne!(r.table, MAIN_TABLE);
            let ((dst, prefix), &Route { device, gateway, source, table, metric, onlink, .. }) = (r.dst, r);
            SavedRoute { dst, prefix, device, gateway, source, table, metric, onlink }
        };
        self.routes = routes.iter().map(saved).collect();
    }
}

/// Returns the endpoint of `endpoints` that has the address and port of `of`.
pub(crate) fn with_ip(endpoints: &[Endpoint], of: &Endpoint) -> Option<Endpoint> {
    endpoints.iter().find(|e| e.ip == of.ip && e.port == of.port).copied()
}

/// Whether the kernel made the endpoint itself.
pub(crate) const fn is_implicit(endpoint: &Endpoint) -> bool {
    endpoint.flags.has(EndpointFlags::IMPLICIT)
}

/// Whether `found` is one of these endpoints that we have made. Backup and fullmesh may have changed since;
/// an endpoint whose id the kernel has chosen has id 0 in the journal. With another id or other flags,
/// another program has made an endpoint for the same address.
pub(crate) fn is_ours(ours: &[Endpoint], found: &Endpoint) -> bool {
    let kind = |e: &Endpoint| e.flags - (EndpointFlags::BACKUP | EndpointFlags::FULLMESH);
    let is_it = |e: &Endpoint| {
        e.ip == found.ip && e.port == found.port && [0, found.id].contains(&e.id) && kind(e) == kind(found)
    };
    ours.iter().any(is_it)
}

/// The journal's file of one namespace.
#[derive(Clone, Debug)]
pub(crate) struct JournalFile {
    dir: PathBuf,
    name: String,
    namespace: u64,
}

impl JournalFile {
    pub(crate) fn of(current: &CurrentConfig, dir: &Path) -> Result<Self> {
        let (inode, namespace) = current.namespace;
        Ok(Self { dir: dir.to_owned(), name: format!("uplinks-{inode}.json"), namespace })
    }

    /// Reads the journal; `None` if there is none for this namespace.
    pub(crate) fn read(&self) -> Result<Option<Journal>> {
        let failed = |what: &dyn std::fmt::Display| Error::Journal(format!("{}: {what}", self.shown()));
        let dir = match PrivateDir::open(&self.dir) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(|e| failed(&e))?,
        };
        let read = dir.read(&self.name, Access::Public, FILE_BYTES_MAX).map_err(|e| failed(&e))?;
        let Some(bytes) = read else { return Ok(None) };
        let journal: Journal =
            serde_json::from_slice(&bytes).map_err(|e| failed(&format_args!("this is no journal ({e})")))?;
        if journal.version != VERSION {
            return Err(failed(&"written by another version of anabranch"));
        }
        // With another cookie, the journal is of a namespace that is gone and whose inode was used again.
        Ok((journal.namespace == self.namespace).then_some(journal))
    }

    /// Writes the journal, and returns when it is on the disk; removes the file if the journal is empty.
    pub(crate) fn write(&self, journal: &Journal) -> Result<()> {
        if journal.is_empty() {
            return self.remove();
        }
        let journal = Journal { version: VERSION, namespace: self.namespace, ..journal.clone() };
        let write = || {
            let mut text = serde_json::to_vec_pretty(&journal)?;
            text.push(b'\n');
            PrivateDir::open(&self.dir)?.replace(&self.name, Access::Public, &text)
        };
        write().map_err(|e| Error::Journal(format!("cannot write {}: {e}{}", self.shown(), hint(&e))))
    }

    /// Removes the journal, and a temporary file of an unfinished write.
    pub(crate) fn remove(&self) -> Result<()> {
        let removed = PrivateDir::open(&self.dir).and_then(|dir| dir.remove(&self.name));
        removed.map_err(|e| Error::Journal(format!("cannot remove {}: {e}", self.shown())))
    }

    fn shown(&self) -> String {
        format!("{}/{}", self.dir.display(), self.name)
    }
}

/// Makes the directory, and keeps other processes from changing anything until the result is dropped.
pub(crate) fn lock(dir: &Path) -> Result<Flock<File>> {
    let locked = PrivateDir::make(dir, Access::Public).and_then(|dir| dir.lock());
    locked.map_err(|e| Error::Journal(format!("{}: {e}{}", dir.display(), hint(&e))))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{chown, symlink};

    use super::*;

    fn journal() -> Journal {
        Journal { enabled: Some("0".into()), ..Journal::default() }
    }

    fn refusal<T: std::fmt::Debug>(result: Result<T>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn a_link_in_the_place_of_a_journal_leads_nowhere() {
        let place = tempfile::tempdir().unwrap();
        let (dir, shadow) = (place.path().join("program"), place.path().join("shadow"));
        fs::write(&shadow, "root:x").unwrap();
        drop(lock(&dir).unwrap());
        let file = JournalFile { dir: dir.clone(), name: "uplinks-1.json".into(), namespace: 7 };
        for name in ["uplinks-1.json", "uplinks-1.json.new"] {
            symlink(&shadow, dir.join(name)).unwrap();
        }
        assert!(refusal(file.read()).contains("no regular file"));
        file.write(&journal()).unwrap();
        assert_eq!(file.read().unwrap().map(|read| read.enabled), Some(journal().enabled));
        assert_eq!(fs::read(&shadow).unwrap(), b"root:x", "the link was not followed");
        file.remove().unwrap();
        symlink("/dev/zero", dir.join("uplinks-1.json")).unwrap();
        assert!(refusal(file.read()).contains("no regular file"));
    }

    /// A service that owns the directory could change the journal at any moment.
    #[test]
    fn a_directory_of_another_user_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join("program");
        drop(lock(&dir).unwrap());
        if !nix::unistd::geteuid().is_root() {
            return anabranch_net::testing::skip("giving a directory away needs root");
        }
        chown(&dir, Some(65_534), None).unwrap();
        let file = JournalFile { dir: dir.clone(), name: "uplinks-1.json".into(), namespace: 7 };
        let refused = [
            refusal(lock(&dir)),
            refusal(file.read()),
            refusal(file.write(&journal())),
            refusal(file.remove()),
        ];
        assert!(refused.iter().all(|text| text.contains("belongs to another user (65534)")), "{refused:?}");
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
    }
}
