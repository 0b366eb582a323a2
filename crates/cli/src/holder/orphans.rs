//! Finds and ends programs on the hosts of a setup that is taken down, even if its holder was killed. A
//! program keeps its host's namespace alive.
//!
//! To find these programs, each host has a label that says which setup it belongs to and which process holds
//! it. The label is in the alias of its loopback device (`ip link show lo`), which lasts as long as the
//! namespace. While the holder runs, the setup is up, even if it is another user's or its socket is in
//! another namespace. Then the programs on its hosts are left alone.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use anabranch_algo::{Span, Time};
use anabranch_kernel::namespaces;
use anabranch_net::netlink::Netlink;
use anabranch_net::{Clock, Namespace, ProcessFd};
use nix::sys::signal::Signal;
use serde::Serialize;

use super::Kind;
use super::plain_name::is_plain;
use crate::names::show;

/// The beginning of the alias. The kind, the name and the holder follow.
const ALIAS: &str = "anabranch ";
/// The time that programs have to end after they are asked to, before they are killed.
const GRACE: Span = Span::from_secs(1);
/// The time after which a program that has not ended counts as impossible to kill, because it waits for a
/// device.
const ENDED_BY: Span = Span::from_secs(5);
/// The largest number of programs that a message names.
const LISTED_MAX: usize = 8;
const LOOK_EVERY: Span = Span::from_millis(20);

/// The index of the loopback device, which is equal in every namespace.
const LOOPBACK: u32 = 1;

/// Names a program that was ended, or is to be ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Program {
    pub(crate) pid: i32,
    /// The name of the program in the kernel, made safe for a terminal.
    pub(crate) name: String,
}

/// Identifies a process, so that no other process with the same number is mistaken for it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct DaemonId {
    pid: i32,
    /// The start time of the process, in ticks since the machine started.
    start: u64,
    /// The inode of the PID namespace in which `pid` is valid.
    pid_namespace: u64,
}

/// Holds the label of a host: the setup that it belongs to, and the holder.
#[derive(Clone, Debug, PartialEq, Eq)]
struct HostLabel {
    kind: Kind,
    name: String,
    daemon: DaemonId,
}

/// Holds a host without a holder. Holding the namespace keeps its inode from being used again.
struct OrphanHost {
    label: HostLabel,
    inode: u64,
    _space: Namespace,
}

/// Reads the state, the parent and the start time of a process: fields 3, 4 and 22 of /proc/PID/stat, see
/// proc_pid_stat(5).
fn stat(pid: &str) -> io::Result<(char, i32, u64)> {
    let text = fs::read(format!("/proc/{pid}/stat"))?;
    let text = String::from_utf8_lossy(&text);
    // The second field is a name in brackets, which may itself contain blanks and brackets.
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_ascii_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    let all = || Some((fields.first()?.chars().next()?, i32::try_from(number(4)?).ok()?, number(22)?));
    all().ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Returns the PID namespace of the numbers that this process sees.
fn pid_namespace() -> Option<u64> {
    let link = fs::read_link("/proc/self/ns/pid").ok()?;
    link.to_str()?.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok()
}

impl DaemonId {
    /// Identifies this process.
    fn own() -> io::Result<Self> {
        let pid_namespace = pid_namespace().ok_or(io::ErrorKind::NotFound)?;
        Ok(Self { pid: std::process::id().cast_signed(), start: stat("self")?.2, pid_namespace })
    }

    /// Returns whether the process has certainly ended. Returns false for a process that cannot be seen from
    /// here.
    fn has_ended(&self) -> bool {
        if pid_namespace() != Some(self.pid_namespace) {
            return false;
        }
        match stat(&self.pid.to_string()) {
            // A zombie has ended; only its parent has not noticed yet.
            Ok((state, _, start)) => start != self.start || matches!(state, 'Z' | 'X'),
            Err(e) => e.kind() == io::ErrorKind::NotFound || e.raw_os_error() == Some(nix::libc::ESRCH),
        }
    }
}

impl HostLabel {
    fn text(&self) -> String {
        let DaemonId { pid, start, pid_namespace } = self.daemon;
        format!("{ALIAS}{} {} {pid} {start} {pid_namespace}", self.kind.command(), self.name)
    }

    /// Parses an alias. Any process in a namespace can write one, so only the exact form is accepted.
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.strip_prefix(ALIAS)?.split(' ');
        let word = words.next()?;
        let kind = Kind::ALL.into_iter().find(|kind| kind.command() == word)?;
        let name = words.next().filter(|name| is_plain(name))?.to_owned();
        let (pid, start) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let daemon = DaemonId { pid, start, pid_namespace: words.next()?.parse().ok()? };
        words.next().is_none().then_some(Self { kind, name, daemon })
    }
}

/// Writes a label that names this process as the holder into a host.
pub(crate) fn label(host: &Namespace, kind: Kind, name: &str) -> io::Result<()> {
    let label = HostLabel { kind, name: name.into(), daemon: DaemonId::own()? };
    host.run(|| Netlink::open()?.set_alias(LOOPBACK, &label.text()))?.map_err(io::Error::from)
}

/// Returns the kind and the name of the setup on whose host this process runs; `None` outside of all hosts.
pub(super) fn current() -> Option<(Kind, String)> {
    own_label().map(|label| (label.kind, label.name))
}

/// Reads the label of the calling thread's namespace.
fn own_label() -> Option<HostLabel> {
    HostLabel::parse(&Netlink::open().ok()?.link_at(LOOPBACK).ok()?.alias?)
}

/// Finds the hosts that have programs but no holder. `ended` is the number of a holder that is about to end.
fn orphan_hosts(ended: Option<i32>) -> Vec<OrphanHost> {
    let mut hosts = Vec::new();
    let mut seen = BTreeSet::new();
    let processes = namespaces::processes();
    let look = || {
        for (pid, inode) in processes {
            if seen.contains(&inode) {
                continue;
            }
            let space = Namespace::open(Path::new(&format!("/proc/{pid}/ns/net")));
            let Some(space) = space.ok().filter(|space| space.enter().is_ok()) else { continue };
            // The process may have changed its namespace, or its number may belong to another process.
            if Namespace::current_inode().ok() != Some(inode) {
                continue;
            }
            seen.insert(inode);
            if let Some(label) = own_label()
                && (Some(label.daemon.pid) == ended || label.daemon.has_ended())
            {
                hosts.push(OrphanHost { label, inode, _space: space });
            }
        }
    };
    // A separate thread enters one namespace after the other.
    let _ = std::thread::scope(|scope| scope.spawn(look).join());
    hosts
}

/// Returns this process and all its ancestors, which must not be ended from here.
fn ancestors() -> BTreeSet<i32> {
    let mut ancestors = BTreeSet::new();
    let mut pid = std::process::id().cast_signed();
    while pid > 0 && ancestors.insert(pid) {
        pid = stat(&pid.to_string()).map_or(0, |(_, parent, _)| parent);
    }
    ancestors
}

/// Returns the programs on the hosts with these inodes, except for this process and its ancestors.
fn programs(hosts: &BTreeSet<u64>) -> Vec<Program> {
    let ancestors = ancestors();
    let there = namespaces::processes().into_iter();
    let there = there.filter(|(pid, inode)| !ancestors.contains(pid) && hosts.contains(inode));
    let named = there.map(|(pid, _)| {
        let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
        Program { pid, name: show(OsStr::from_bytes(name.trim_ascii_end())) }
    });
    named.collect()
}

/// Returns the setups that are not up any more but have programs on their hosts, with those programs.
pub(super) fn all(kind: Kind) -> BTreeMap<String, Vec<Program>> {
    let mut hosts = orphan_hosts(None);
    hosts.retain(|host| host.label.kind == kind);
    let mut inodes: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
    for OrphanHost { label, inode, .. } in &hosts {
        inodes.entry(label.name.clone()).or_default().insert(*inode);
    }
    let all = inodes.into_iter().map(|(name, hosts)| (name, programs(&hosts)));
    all.filter(|(_, programs)| !programs.is_empty()).collect()
}

/// Sends a signal to a process, if it is on one of these hosts.
fn signal(pid: i32, signal: Signal, hosts: &BTreeSet<u64>) {
    // The descriptor names exactly this process. If it has ended, no other process gets the signal.
    let Ok(process) = ProcessFd::open(pid) else { return };
    if namespaces::of_process(pid).is_some_and(|inode| hosts.contains(&inode)) {
        // The process may have ended by itself.
        let _ = process.signal(signal);
    }
}

/// Ends the programs that are left on the hosts of a setup; first asks them to end. `daemon` is the process
/// id of the holder, if it still exists.
///
/// # Errors
/// If a program does not end.
pub(super) fn end(kind: Kind, name: &str, daemon: Option<u32>) -> io::Result<Vec<Program>> {
    let mut held = orphan_hosts(daemon.map(u32::cast_signed));
    held.retain(|host| host.label.kind == kind && host.label.name == name);
    let hosts: BTreeSet<u64> = held.iter().map(|host| host.inode).collect();
    let mut ended: Vec<Program> = Vec::new();
    let clock = Clock::start();
    loop {
        let running = programs(&hosts);
        let since = clock.now().since(Time::ZERO);
        if running.is_empty() {
            return Ok(ended);
        }
        if since > ENDED_BY {
            return Err(io::Error::other(format!("{} still runs", list(&running))));
        }
        for program in running {
            let new = !ended.iter().any(|other| other.pid == program.pid);
            if new || since > GRACE {
                signal(program.pid, if since > GRACE { Signal::SIGKILL } else { Signal::SIGTERM }, &hosts);
            }
            if new {
                ended.push(program);
            }
        }
        clock.sleep_until(clock.now() + LOOK_EVERY);
    }
}

/// Writes programs as `iperf3 (process 7), sleep (process 8)`.
pub(super) fn list(programs: &[Program]) -> String {
    let one = |program: &Program| format!("{} (process {})", program.name, program.pid);
    let mut list = programs.iter().take(LISTED_MAX).map(one).collect::<Vec<_>>().join(", ");
    if programs.len() > LISTED_MAX {
        list += &format!(" and {} more", programs.len() - LISTED_MAX);
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_says_whose_it_is() {
        let space = match Namespace::new() {
            Ok(space) => space,
            Err(e) => return anabranch_net::testing::refused(e),
        };
        assert_eq!(space.run(own_label).expect("entered"), None);
        label(&space, Kind::Net, "fig-4.9").expect("marked");
        let label = space.run(own_label).expect("entered").expect("marked");
        let own = DaemonId::own().expect("this process");
        assert_eq!(label, HostLabel { kind: Kind::Net, name: "fig-4.9".into(), daemon: own.clone() });
        assert_eq!(own.pid, std::process::id().cast_signed());
        assert!(!orphan_hosts(Some(own.pid)).iter().any(|host| host.label == label), "nobody is in it");
    }

    #[test]
    fn a_daemon_has_ended_if_its_number_is_anothers() {
        let own = DaemonId::own().expect("this process");
        assert!(!own.has_ended());
        assert!(DaemonId { start: own.start + 1, ..own.clone() }.has_ended());
        // This is greater than the kernel's PID_MAX_LIMIT.
        assert!(DaemonId { pid: 1 << 30, ..own.clone() }.has_ended());
        assert!(
            !DaemonId { pid_namespace: own.pid_namespace + 1, start: 0, ..own }.has_ended(),
            "it cannot be seen"
        );
    }

    #[test]
    fn only_an_alias_as_it_is_written_here_is_a_mark() {
        let label = HostLabel {
            kind: Kind::Lab,
            name: "a".into(),
            daemon: DaemonId { pid: 7, start: 8, pid_namespace: 9 },
        };
        assert_eq!(label.text(), "anabranch lab a 7 8 9");
        assert_eq!(HostLabel::parse(&label.text()), Some(label));
        for bad in
            ["a", "a 7", "a 7 8", "a 7 8 9 10", "a b 7 8 9", " 7 8 9", "\x1b[2J 7 8 9", "a 7 8 x", "a -8 8"]
        {
            assert_eq!(HostLabel::parse(&format!("{ALIAS}lab {bad}")), None, "{bad}");
        }
        assert_eq!(HostLabel::parse("anabranch bal a 7 8 9"), None);
        assert_eq!(HostLabel::parse("a 7 8 9"), None);
    }

    #[test]
    fn who_started_this_process_is_of_its_family() {
        let ancestors = ancestors();
        assert!(ancestors.contains(&std::process::id().cast_signed()));
        assert!(ancestors.contains(&nix::unistd::getppid().as_raw()));
    }
}
