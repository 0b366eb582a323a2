//! Disks of one host alone: they are copied to the other host over the network while the guest writes to
//! them, by QEMU's mirror to an NBD server there (docs/interop/nbd.txt, blockdev-mirror).
//!
//! What the source sends goes as its memory does: over Multipath TCP, in TLS with a key of this copy alone.
//! The copy goes on as long as it is there: each block that the guest writes is sent again.

use std::fs::{self, OpenOptions};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anabranch_algo::Span;
use anabranch_net::Clock;
use nix::sys::statvfs::statvfs;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::config::{Config, Format};
use crate::error::{Error, Result};
use crate::key::KEY_ID;
use crate::qmp::{Event, Qmp};
use crate::wire::MoveId;

/// The beginning of the names of our jobs and nodes in a QEMU.
const PREFIX: &str = "anabranch-disk";
/// How long QEMU waits for a lost connection to come back before its copy ends or pauses, s. Some of QEMU's
/// commands wait as long.
const RECONNECT_S: u64 = 10;
/// How long a job may take to end.
const END: Span = Span::from_secs(20);
/// The bytes that are sent again at least when one of them was written. QEMU's own choice, 64 KB, makes
/// sixteen times as much of the writes of a database; less than this costs memory, 8 MB for 1 TB.
const GRAIN: u64 = 16 << 10;
/// The most bytes of a disk.
const BYTES_MAX: u64 = 64 << 40;

/// A disk of a QEMU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Its number among the machine's disks.
    pub n: usize,
    /// Its name in QEMU.
    pub name: String,
    /// Its length.
    pub bytes: u64,
}

/// Where the disks of a machine are copied to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Server {
    /// The address and port of the NBD server.
    pub(crate) at: SocketAddr,
    /// Whether Multipath TCP is used. One path is one TCP connection, which cannot leave it.
    pub(crate) multipath: bool,
    /// Whether a copy whose connection is lost waits until [`resume`]; otherwise it ends.
    pub(crate) waits: bool,
}

impl Server {
    /// Returns it as QEMU's NBD client names it.
    pub(crate) fn address(&self) -> Value {
        let (host, port) = (self.at.ip().to_string(), self.at.port().to_string());
        json!({"type": "inet", "host": host, "port": port, "mptcp": self.multipath})
    }
}

/// How far the copy of a disk is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Copied {
    /// What was sent and has been confirmed, bytes.
    pub(crate) sent: u64,
    /// What is still to be sent, bytes.
    pub(crate) left: u64,
    /// Whether the first copy is complete, and only what the guest writes is sent.
    pub(crate) follows: bool,
}

/// Returns the disks of one host alone.
///
/// # Errors
/// `Failed` if QEMU has no such disk.
pub(crate) fn own(qmp: &mut Qmp, config: &Config) -> Result<Vec<Node>> {
    if config.disks.iter().all(|disk| disk.shared) {
        return Ok(Vec::new());
    }
    let all = qmp.execute("query-block", json!({}))?;
    let all = all.as_array().cloned().unwrap_or_default();
    let mut nodes = Vec::new();
    for (n, disk) in config.disks.iter().enumerate().filter(|(_, disk)| !disk.shared) {
        // Under a copy, a node of ours is at the top; its image is the same.
        let is_it = |device: &&Value| {
            device["inserted"]["image"]["filename"].as_str().map(Path::new) == Some(disk.path.as_path())
        };
        let found = all.iter().find(is_it).map(|device| &device["inserted"]);
        let name = found.and_then(|inserted| inserted["node-name"].as_str());
        let bytes = found.and_then(|inserted| inserted["image"]["virtual-size"].as_u64());
        let (Some(name), Some(bytes)) = (name, bytes) else {
            return Err(Error::Failed(format!("QEMU has no disk {}", disk.path.display())));
        };
        nodes.push(Node { n, name: name.to_owned(), bytes });
    }
    Ok(nodes)
}

/// Begins to copy disks to the NBD server of another host. The key of the copy is in QEMU already.
///
/// # Errors
/// `Refused` with QEMU's words.
pub(crate) fn begin(qmp: &mut Qmp, nodes: &[Node], server: &Server) -> Result {
    for node in nodes {
        let name = format!("{PREFIX}-there{}", node.n);
        let there = json!({
            "driver": "nbd", "node-name": name, "server": server.address(), "export": export_name(node.n),
            "tls-creds": KEY_ID, "reconnect-delay": RECONNECT_S,
        });
        qmp.execute("blockdev-add", there)?;
        let copy = json!({
            "job-id": format!("{PREFIX}{}", node.n), "device": node.name, "target": name, "sync": "full",
            "granularity": GRAIN,
            "on-target-error": if server.waits { "stop" } else { "report" },
        });
        qmp.execute("blockdev-mirror", copy)?;
    }
    Ok(())
}

/// Returns the name of a disk at an NBD server.
pub(crate) fn export_name(n: usize) -> String {
    format!("disk{n}")
}

fn jobs(qmp: &mut Qmp) -> Result<Vec<Value>> {
    let mut all = qmp.execute("query-block-jobs", json!({}))?.as_array().cloned().unwrap_or_default();
    all.retain(|job| job["device"].as_str().is_some_and(|id| id.starts_with(PREFIX)));
    Ok(all)
}

/// Returns how far the copy of each of these disks is.
///
/// # Errors
/// `Unreachable` if a copy has ended: the other host was away for too long, for instance.
pub(crate) fn copied(qmp: &mut Qmp, nodes: &[Node]) -> Result<Vec<Copied>> {
    let jobs = jobs(qmp)?;
    if jobs.len() < nodes.len() {
        let why = failure(qmp)?.unwrap_or_else(|| "QEMU does not say why".to_owned());
        return Err(Error::Unreachable(format!("the copy of a disk has ended: {why}")));
    }
    let all = qmp.execute("query-named-block-nodes", json!({"flat": true}))?;
    let number = |of: &Value, key: &str| of[key].as_u64().unwrap_or(0);
    let one = |node: &Node| {
        let id = format!("{PREFIX}{}", node.n);
        let job = jobs.iter().find(|job| job["device"].as_str() == Some(&id));
        let job = job.ok_or_else(|| Error::Failed(format!("the copy of {} is not there", node.name)))?;
        // The job counts what is left when it is about to send more, and not while it waits. QEMU counts what
        // the guest changes at once, in a bitmap without a name.
        let maps = all.as_array().into_iter().flatten().filter(|one| one["node-name"] == node.name.as_str());
        let maps = maps.flat_map(|one| one["dirty-bitmaps"].as_array().into_iter().flatten());
        let changed = maps.filter(|map| map["name"].is_null()).map(|map| number(map, "count")).max();
        let sent = number(job, "offset");
        let left = number(job, "len").saturating_sub(sent).max(changed.unwrap_or(0));
        Ok(Copied { sent, left, follows: job["ready"] == true })
    };
    nodes.iter().map(one).collect()
}

/// Looks for the reason of a copy's end among what QEMU has reported.
fn failure(qmp: &mut Qmp) -> Result<Option<String>> {
    while let Some(event) = qmp.event(anabranch_algo::Time::ZERO)? {
        if let Some(why) = why_ended(&event) {
            return Ok(Some(why));
        }
    }
    Ok(None)
}

fn why_ended(event: &Event) -> Option<String> {
    let is_end = event.name == "BLOCK_JOB_COMPLETED";
    event.data["error"].as_str().filter(|_| is_end).map(str::to_owned)
}

/// Ends the copies when all is there. The guest has to stand still: then both disks are the same.
///
/// # Errors
/// `Unreachable` if something has not arrived.
pub(crate) fn complete(qmp: &mut Qmp, nodes: &[Node], clock: Clock) -> Result {
    copied(qmp, nodes)?;
    for node in nodes {
        // To cancel a copy that follows is to end it when all is there.
        qmp.execute("block-job-cancel", json!({"device": format!("{PREFIX}{}", node.n)}))?;
    }
    let deadline = clock.now() + END;
    let mut left = nodes.len();
    while left > 0 {
        let late = || Error::Unreachable("the end of the disks does not get through".to_owned());
        let event = qmp.event(deadline)?.ok_or_else(late)?;
        if let Some(why) = why_ended(&event) {
            return Err(Error::Unreachable(format!("the copy of a disk has failed: {why}")));
        }
        match event.name.as_str() {
            "BLOCK_JOB_COMPLETED" => left -= 1,
            "BLOCK_JOB_CANCELLED" => {
                return Err(Error::Failed("another program has ended the copy of a disk".to_owned()));
            }
            _ => {}
        }
    }
    // As long as the other end is there: QEMU waits for one that is not before it ends.
    forget_there(qmp);
    Ok(())
}

fn forget_there(qmp: &mut Qmp) {
    for n in 0..crate::config::DEVICES_MAX {
        // Most are not there.
        let _ = qmp.execute("blockdev-del", json!({"node-name": format!("{PREFIX}-there{n}")}));
    }
}

/// Lets copies go on that have paused because their connection was lost.
///
/// # Errors
/// As [`Qmp::execute`].
pub(crate) fn resume(qmp: &mut Qmp) -> Result {
    for job in jobs(qmp)?.iter().filter(|job| job["io-status"] != "ok") {
        // It may go on already.
        let _ = qmp.execute("block-job-resume", json!({"device": job["device"]}));
    }
    Ok(())
}

/// Gives up all copies of a QEMU, wherever they are.
///
/// # Errors
/// `Failed` if a copy does not end.
pub(crate) fn give_up(qmp: &mut Qmp, clock: Clock) -> Result {
    let deadline = clock.now() + END;
    loop {
        let jobs = jobs(qmp)?;
        for job in &jobs {
            // One that ends right now is not there any more.
            let _ = qmp.execute("block-job-cancel", json!({"device": job["device"], "force": true}));
        }
        if jobs.is_empty() {
            break;
        }
        if clock.now() > deadline {
            return Err(Error::Failed("QEMU does not end the copy of a disk".to_owned()));
        }
        thread::sleep(Duration::from_millis(20));
    }
    forget_there(qmp);
    Ok(())
}

/// Returns a configuration whose disks of one host alone are files in `dir`, and those files. They are not
/// made yet: their names are those of this copy alone, so an older disk is never taken for one of them.
pub(crate) fn place(config: &Config, id: &MoveId, dir: &Path) -> (Config, Vec<PathBuf>) {
    let (mut config, mut paths) = (config.clone(), Vec::new());
    for (n, disk) in config.disks.iter_mut().enumerate().filter(|(_, disk)| !disk.shared) {
        disk.path = dir.join(format!("{}-disk{n}-{id}.raw", config.name));
        disk.format = Format::Raw;
        paths.push(disk.path.clone());
    }
    (config, paths)
}

/// Makes the files of disks that come, which are empty at first.
///
/// # Errors
/// `Refused` if there is too little room, or a length is none; `Failed` if a file cannot be made.
pub(crate) fn make(paths: &[PathBuf], bytes: &[u64]) -> Result {
    let Some(dir) = paths.first().and_then(|path| path.parent()) else { return Ok(()) };
    if bytes.len() != paths.len() || bytes.iter().any(|bytes| *bytes > BYTES_MAX) {
        return Err(Error::Refused("the lengths of the disks make no sense".to_owned()));
    }
    let failed = |e: &std::io::Error| Error::of_path(dir, e);
    let room = statvfs(dir).map_err(|e| failed(&e.into()))?;
    let (free, wanted) = (room.blocks_available() * room.fragment_size(), bytes.iter().sum::<u64>());
    if wanted > free {
        let (free, wanted) = (free >> 20, wanted >> 20);
        return Err(Error::Refused(format!(
            "the destination has {free} MB of room for disks left, and the machine needs {wanted} MB"
        )));
    }
    for (path, bytes) in paths.iter().zip(bytes) {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        file.and_then(|file| file.set_len(*bytes)).map_err(|e| Error::of_path(path, &e))?;
    }
    Ok(())
}

/// Removes the files of disks that did not come.
pub(crate) fn remove(paths: &[PathBuf]) {
    for path in paths {
        let _ = fs::remove_file(path);
    }
}

/// Lets a QEMU, or its storage daemon, take the bytes of these nodes from the other host, and returns the
/// port. The key is there already.
///
/// # Errors
/// `Refused` with QEMU's words.
pub(crate) fn serve(qmp: &mut Qmp, nodes: &[(String, String)], ipv6: bool) -> Result<u16> {
    let host: IpAddr = if ipv6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    let mut attempt = 0;
    let port = loop {
        // QEMU does not say which port it got, so it is told one that was free a moment ago.
        let free = TcpListener::bind((host, 0)).and_then(|listener| listener.local_addr());
        let port = free.map_err(|e| Error::Failed(format!("no port is free: {e}")))?.port();
        let address = json!({"host": host.to_string(), "port": port.to_string(), "mptcp": true});
        let server = json!({"addr": {"type": "inet", "data": address}, "tls-creds": KEY_ID});
        match qmp.execute("nbd-server-start", server) {
            Ok(_) => break port,
            Err(e) if attempt > 3 => return Err(e),
            Err(_) => attempt += 1,
        }
    };
    for (node, name) in nodes {
        let export = json!({
            "type": "nbd", "id": format!("{PREFIX}-{name}"), "node-name": node, "name": name,
            "writable": true,
        });
        qmp.execute("block-export-add", export)?;
    }
    Ok(port)
}

/// Takes nothing more from the other host.
pub(crate) fn stop_serving(qmp: &mut Qmp) {
    // It fails where no disk came.
    let _ = qmp.execute("nbd-server-stop", json!({}));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_that_come_get_names_of_their_own() {
        let text = "name = \"web\"\nmemory_mb = 16\n[[disks]]\npath = \"/srv/a\"\nformat = \"qcow2\"\n\
                    [[disks]]\npath = \"/net/b\"\nshared = true";
        let config = Config::parse(text).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let (placed, paths) = place(&config, &MoveId::new([7; 16]), dir.path());
        assert_eq!((paths.len(), &placed.disks[0].path), (1, &paths[0]));
        assert_eq!(placed.disks[0].format, Format::Raw);
        assert_eq!(placed.disks[1], config.disks[1]);
        make(&paths, &[1 << 20]).unwrap();
        assert_eq!(fs::metadata(&paths[0]).unwrap().len(), 1 << 20);
        assert!(make(&paths, &[1 << 20]).is_err(), "a disk that is there is not written over");
        remove(&paths);
        let error = make(&paths, &[60 << 40]).unwrap_err().to_string();
        assert!(error.contains("MB of room for disks left"), "{error}");
        assert!(make(&paths, &[]).is_err());
        assert!(!paths[0].exists());
    }
}
