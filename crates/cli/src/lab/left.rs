//! Programs that still run on a laboratory's hosts when it is taken down, even if the process that held it
//! was killed: with them their host's namespace lives on.
//!
//! So that they can be found, each host says whose it is: in the alias of its loopback device (`ip link show
//! lo`), which lasts as long as the namespace does.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use ::kernel::namespaces;
use algo::{Span, Time};
use net::netlink::message::{Attributes, Messages, Request, text, u32_at};
use net::{Clock, Namespace};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};
use nix::unistd::{Pid, read, write};
use serde::Serialize;

/// How the alias begins; the name of the laboratory follows.
const ALIAS: &str = "anabranch lab ";
/// How long programs have between being asked to end and being ended.
const GRACE: Span = Span::from_secs(1);
/// What has not ended by then cannot be ended: it waits for a device.
const ENDED_BY: Span = Span::from_secs(5);
/// So many are named in a message.
const LISTED_MAX: usize = 8;
const LOOK_EVERY: Span = Span::from_millis(20);

// linux/rtnetlink.h, linux/if_link.h, linux/netlink.h
const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const IFLA_IFALIAS: u16 = 20;
const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
/// `struct ifinfomsg`, of device 1: in every namespace that is the loopback device.
const LOOPBACK: [u8; 16] = {
    let mut fixed = [0; 16];
    let index = 1_u32.to_ne_bytes();
    let mut at = 0;
    while at < 4 {
        fixed[4 + at] = index[at];
        at += 1;
    }
    fixed
};
/// The longest answer about a device, bytes.
const ANSWER_BYTES_MAX: usize = 32 << 10;

/// A program that was ended, or is to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Program {
    pub(super) pid: i32,
    /// Its name as the kernel has it.
    pub(super) name: String,
}

/// Asks the kernel about the devices of the calling thread's namespace; its first answer.
fn ask(request: Request) -> io::Result<Vec<u8>> {
    let (kind, flags) = (SockType::Raw, SockFlag::SOCK_CLOEXEC);
    let socket: OwnedFd = socket(AddressFamily::Netlink, kind, flags, SockProtocol::NetlinkRoute)?;
    write(&socket, &request.finish(1))?;
    let mut answer = vec![0; ANSWER_BYTES_MAX];
    let length = read(&socket, &mut answer)?;
    answer.truncate(length);
    let first = Messages(&answer).next().ok_or(io::ErrorKind::InvalidData)?;
    match u32_at(first.body, 0).filter(|_| first.kind == NLMSG_ERROR) {
        // A negative number of the system's, or zero.
        Some(errno) if errno != 0 => Err(io::Error::from_raw_os_error(errno.cast_signed().wrapping_neg())),
        _ => Ok(answer),
    }
}

/// Writes whose it is into a host.
pub(super) fn mark(host: &Namespace, lab: &str) -> io::Result<()> {
    let mut request = Request::new(RTM_NEWLINK, NLM_F_REQUEST | NLM_F_ACK, &LOOPBACK);
    request.text(IFLA_IFALIAS, &format!("{ALIAS}{lab}"));
    host.run(|| ask(request))?.map(drop)
}

/// The laboratory that the calling thread's namespace is a host of.
fn whose() -> Option<String> {
    let answer = ask(Request::new(RTM_GETLINK, NLM_F_REQUEST, &LOOPBACK)).ok()?;
    let first = Messages(&answer).next().filter(|message| message.kind == RTM_NEWLINK)?;
    let (_, alias) = Attributes::after(first.body, LOOPBACK.len()).find(|(kind, _)| *kind == IFLA_IFALIAS)?;
    Some(text(alias).strip_prefix(ALIAS)?.to_owned())
}

/// The hosts with a program in them, by laboratory: the numbers of their namespaces.
fn hosts() -> BTreeMap<String, BTreeSet<u64>> {
    let mut hosts: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    let processes = namespaces::processes();
    let look = || {
        for (pid, inode) in processes {
            if !seen.insert(inode) {
                continue;
            }
            let space = Namespace::open(Path::new(&format!("/proc/{pid}/ns/net")));
            if let Some(lab) = space.and_then(|space| space.enter()).ok().and_then(|()| whose()) {
                hosts.entry(lab).or_default().insert(inode);
            }
        }
    };
    // A thread of its own goes from one to the next.
    let _ = std::thread::scope(|scope| scope.spawn(look).join());
    hosts
}

/// The programs on hosts with these numbers, but for this one.
fn programs(hosts: &BTreeSet<u64>) -> Vec<Program> {
    let own = std::process::id().cast_signed();
    let there =
        namespaces::processes().into_iter().filter(|(pid, inode)| *pid != own && hosts.contains(inode));
    let named = there.map(|(pid, _)| {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        Program { pid, name: name.trim_end().into() }
    });
    named.collect()
}

/// The laboratories whose hosts have programs in them, and those.
pub(super) fn all() -> BTreeMap<String, Vec<Program>> {
    let all = hosts().into_iter().map(|(lab, hosts)| (lab, programs(&hosts)));
    all.filter(|(_, programs)| !programs.is_empty()).collect()
}

/// Ends the programs on a laboratory's hosts: asks them first.
///
/// # Errors
/// If one does not end.
pub(super) fn end(lab: &str) -> io::Result<Vec<Program>> {
    let hosts = hosts().remove(lab).unwrap_or_default();
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
                let signal = if since > GRACE { Signal::SIGKILL } else { Signal::SIGTERM };
                // It may have ended by itself.
                let _ = kill(Pid::from_raw(program.pid), signal);
            }
            if new {
                ended.push(program);
            }
        }
        clock.sleep_until(clock.now() + LOOK_EVERY);
    }
}

/// `iperf3 (process 7), sleep (process 8)`
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
            Err(e) => return println!("skipped: {e}"),
        };
        assert_eq!(space.run(whose).expect("entered"), None);
        mark(&space, "fig-4.9").expect("marked");
        assert_eq!(space.run(whose).expect("entered").as_deref(), Some("fig-4.9"));
        assert!(!hosts().contains_key("fig-4.9"), "nobody is in it");
    }
}
