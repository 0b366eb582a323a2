//! Finds the network namespaces of this machine, and the processes in each.
//!
//! A namespace lives while a thread is in it, a descriptor of it is open, or it is mounted somewhere (as
//! `ip netns add` does); network_namespaces(7). `/proc` shows all three, to root.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anabranch_net::Namespace;
use anabranch_net::namespace::OWN_PATH;

/// The directories where `ip netns` mounts the namespaces that it names.
const NAMED_DIRS: [&str; 2] = ["/run/netns/", "/var/run/netns/"];
/// The most namespaces that are looked at: far more than a machine has.
const NAMESPACES_MAX: usize = 65_536;

/// A network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceRef {
    /// The inode of the namespace, unique among existing namespaces. It may be used again after the namespace
    /// ends.
    pub inode: u64,
    /// A phrase for the namespace: `here`, `in namespace lab`, or `in the namespace of process 7 (sh)`. Other
    /// programs chose the names in it, so escape it before it goes to a terminal.
    pub location: String,
    path: PathBuf,
}

impl NamespaceRef {
    /// Opens the namespace, so that it stays alive and can be entered.
    ///
    /// # Errors
    /// If it may not be opened, or no longer exists.
    pub fn open(&self) -> io::Result<Namespace> {
        let space = Namespace::open(&self.path).map_err(|e| match e.kind() {
            // The descriptor now belongs to something other than a namespace.
            io::ErrorKind::InvalidInput => io::ErrorKind::NotFound.into(),
            _ => e,
        })?;
        // The process may have ended, and its number may be another process's now.
        let inode = nix::sys::stat::fstat(&space)?.st_ino;
        if inode == self.inode { Ok(space) } else { Err(io::ErrorKind::NotFound.into()) }
    }
}

/// Returns all namespaces that this process may see, the calling thread's first.
#[must_use]
pub fn all() -> Vec<NamespaceRef> {
    let mut found = Vec::new();
    let mut known = BTreeSet::new();
    if let Ok(inode) = Namespace::current_inode() {
        add(&mut found, &mut known, inode, OWN_PATH.into(), || "here".into());
    }
    // Mounted namespaces come first, because they have names; processes have only numbers.
    for (inode, path) in mounted(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default()) {
        let name = named(&path).unwrap_or_else(|| path.to_string_lossy().into_owned());
        add(&mut found, &mut known, inode, path.clone(), || format!("in namespace {name}"));
    }
    for (pid, process) in numeric_entries(Path::new("/proc")) {
        let who = || {
            let name = fs::read(process.join("comm")).unwrap_or_default();
            format!("process {pid} ({})", String::from_utf8_lossy(&name).trim_end())
        };
        for (_, thread) in numeric_entries(&process.join("task")) {
            let path = thread.join("ns/net");
            let Some(inode) = inode(&path) else { continue };
            let location = || format!("in the namespace of {}", who());
            add(&mut found, &mut known, inode, path, location);
        }
        for (_, path) in numeric_entries(&process.join("fd")) {
            let Some(inode) = inode(&path) else { continue };
            add(&mut found, &mut known, inode, path, || format!("in a namespace held by {}", who()));
        }
    }
    found
}

/// Returns the name that `ip netns` gave the calling thread's namespace, if it has one. Other programs chose
/// the name, so escape it before it goes to a terminal.
#[must_use]
pub fn own_name() -> Option<String> {
    let own = Namespace::current_inode().ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let own_paths = mounted(&mounts).into_iter().filter(|(inode, _)| *inode == own);
    own_paths.map(|(_, path)| path).find_map(|path| named(&path))
}

/// Returns the name of the namespace that `ip netns` mounted at `path`; `None` if `path` is elsewhere.
fn named(path: &Path) -> Option<String> {
    let text = path.to_str()?;
    NAMED_DIRS.iter().find_map(|dir| text.strip_prefix(dir)).map(Into::into)
}

/// Adds a namespace, unless `known` has its inode.
fn add(
    found: &mut Vec<NamespaceRef>,
    known: &mut BTreeSet<u64>,
    inode: u64,
    path: PathBuf,
    location: impl Fn() -> String,
) {
    if found.len() < NAMESPACES_MAX && known.insert(inode) {
        found.push(NamespaceRef { inode, location: location(), path });
    }
}

/// Returns the processes that this one may look at, each with the inode of the namespace of its first thread.
/// Other threads may be in another namespace for a moment.
#[must_use]
pub fn processes() -> Vec<(i32, u64)> {
    numeric_entries(Path::new("/proc")).filter_map(|(pid, _)| Some((pid, of_process(pid)?))).collect()
}

/// Returns the inode of the namespace of a process's first thread.
#[must_use]
pub fn of_process(pid: i32) -> Option<u64> {
    let process = PathBuf::from(format!("/proc/{pid}"));
    // If the first thread has ended, another thread is asked.
    let threads =
        || numeric_entries(&process.join("task")).find_map(|(_, thread)| inode(&thread.join("ns/net")));
    inode(&process.join("ns/net")).or_else(threads)
}

/// Returns the entries of a directory whose names are numbers.
fn numeric_entries(dir: &Path) -> impl Iterator<Item = (i32, PathBuf)> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())))
}

/// Returns the inode of the namespace that a link in `/proc` leads to.
#[must_use]
fn inode(path: &Path) -> Option<u64> {
    parse_inode(fs::read_link(path).ok()?.to_str()?)
}

fn parse_inode(text: &str) -> Option<u64> {
    text.strip_prefix("net:[")?.strip_suffix(']')?.parse().ok()
}

/// Returns the inode and the path of each mounted namespace, from the text of /proc/self/mountinfo (proc(5)).
fn mounted(text: &str) -> Vec<(u64, PathBuf)> {
    let one = |line: &str| {
        let mut words = line.split(' ').skip(3);
        let (root, place) = (words.next()?, words.next()?);
        // Spaces are escaped in octal; other escaped characters are unlikely.
        Some((parse_inode(root)?, PathBuf::from(place.replace("\\040", " "))))
    };
    text.lines().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_of_namespaces_are_told_from_others() {
        let text = "25 30 0:23 / /sys rw - sysfs sysfs rw\n\
                    99 25 0:4 net:[4026532281] /run/netns/a\\040b rw shared:1 - nsfs nsfs rw\n\
                    98 25 0:4 mnt:[4026532282] /run/x rw - nsfs nsfs rw\nshort\n";
        assert_eq!(mounted(text), [(4_026_532_281, PathBuf::from("/run/netns/a b"))]);
    }

    #[test]
    fn those_without_a_process_are_found_by_their_descriptor() {
        let own = &all()[0];
        assert_eq!((Some(own.inode), own.location.as_str()), (inode(Path::new(OWN_PATH)), "here"));
        assert!(processes().contains(&(std::process::id().cast_signed(), own.inode)));
        assert!(own.open().is_ok());
        let space = match Namespace::new() {
            Ok(space) => space,
            Err(e) => return anabranch_net::testing::refused(e),
        };
        let there = space.run(|| inode(Path::new(OWN_PATH))).unwrap();
        let found = all().into_iter().find(|one| Some(one.inode) == there).expect("found");
        assert!(!processes().iter().any(|(_, inode)| *inode == found.inode));
        assert!(found.location.starts_with("in a namespace held by process "), "{}", found.location);
        drop(space);
        assert!(found.open().is_err(), "it is gone");
    }
}
