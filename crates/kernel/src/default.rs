//! The congestion control of new sockets of a network namespace: `net.ipv4.tcp_congestion_control`.
//!
//! What it was before is remembered in `/run/anabranch/congestion.json`, by namespace, so that unloading can
//! put it back.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

use crate::controllers::{CONTROLLERS, Controller, refused};
use crate::{Error, Result};

/// Where it is remembered: gone with the machine's uptime, as are eBPF programs.
const STATE: &str = "/run/anabranch/congestion.json";
const SYSCTL: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

/// The default of the calling thread's namespace.
///
/// # Errors
/// If /proc cannot be read.
pub fn get() -> io::Result<String> {
    Ok(fs::read_to_string(SYSCTL)?.trim().into())
}

/// The namespace of the calling thread, by the inode that its links in /proc show.
fn here() -> Result<String> {
    let link =
        fs::read_link("/proc/thread-self/ns/net").map_err(|e| refused("cannot tell the namespace", &e))?;
    Ok(link.to_string_lossy().into_owned())
}

fn remembered() -> BTreeMap<String, String> {
    let text = fs::read_to_string(STATE).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

fn remember(all: &BTreeMap<String, String>) -> Result<()> {
    let write = || -> io::Result<()> {
        if all.is_empty() {
            return match fs::remove_file(STATE) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
                _ => Ok(()),
            };
        }
        let path = Path::new(STATE);
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir)?;
        }
        let new = path.with_extension("new");
        fs::write(&new, serde_json::to_vec(all)?)?;
        fs::rename(new, path)
    };
    write().map_err(|e| refused(&format!("cannot write {STATE}"), &e))
}

fn put(name: &str) -> Result<()> {
    fs::write(SYSCTL, name).map_err(|e| refused(&format!("cannot make `{name}` the default"), &e))
}

/// Makes a controller the default of the calling thread's namespace.
///
/// # Errors
/// If it is not loaded, or the sysctl cannot be written.
pub fn set(controller: &Controller) -> Result<()> {
    if !controller.is_loaded() {
        return Err(Error::NotLoaded(controller.name.into()));
    }
    let mut all = remembered();
    let before = get().map_err(|e| refused("cannot tell the default", &e))?;
    // By the kernel's name: its own `reno` is not ours of that name.
    if !CONTROLLERS.iter().any(|other| other.linux == before && other.is_loaded()) {
        // First remembered, then changed: killed in between, `reset` puts back what is there.
        all.insert(here()?, before);
        remember(&all)?;
    }
    put(controller.linux)
}

/// Puts back what was the default here before, if it is one of these now.
///
/// # Errors
/// If the sysctl cannot be written.
pub fn reset(controllers: &[&'static Controller]) -> Result<Option<String>> {
    let now = get().map_err(|e| refused("cannot tell the default", &e))?;
    let mut all = remembered();
    let before = all.remove(&here()?);
    if !controllers.iter().any(|controller| controller.linux == now) {
        return Ok(None);
    }
    let before = before.unwrap_or_else(|| "cubic".into());
    // Namespaces may be allowed less than the machine; reno is always there.
    put(&before).or_else(|_| put("reno"))?;
    remember(&all)?;
    Ok(Some(get().map_err(|e| refused("cannot tell the default", &e))?))
}
