//! Changes and restores the congestion control of new sockets in a network namespace:
//! `net.ipv4.tcp_congestion_control`.
//!
//! The former value is kept in `/run/anabranch/congestion.json`, under the namespace's cookie, so that
//! unloading can restore it from any namespace. A process that changes the file locks its directory. A file
//! that cannot be read is an error, and is not overwritten.
//!
//! A namespace whose default is one of our controllers keeps that controller in the kernel, so unloading
//! looks into all namespaces. A new namespace begins with the machine's default, and a program may have
//! chosen our controller in its own namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::panic::resume_unwind;
use std::path::Path;
use std::{fmt, io};

use anabranch_net::netlink::Netlink;
use anabranch_net::private_file::{Access, PrivateDir};
use nix::fcntl::Flock;

use crate::controllers::{CONTROLLERS, Controller};
use crate::error::refused;
use crate::state_dir::{FILE_BYTES_MAX, STATE_DIR};
use crate::{Error, Result, namespaces};

/// The file with the former defaults, in [`STATE_DIR`]. A reboot removes it, as it removes eBPF programs.
const STATE_FILE: &str = "congestion.json";
const SYSCTL: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

/// Returns the default congestion control of the calling thread's network namespace.
///
/// # Errors
/// If /proc cannot be read.
pub fn get() -> io::Result<String> {
    Ok(fs::read_to_string(SYSCTL)?.trim().into())
}

/// Returns the cookie of the calling thread's network namespace, a number that is unique until the next boot.
fn own_cookie() -> Result<u64> {
    let cookie = Netlink::open().and_then(|netlink| netlink.namespace_cookie());
    cookie.map_err(|e| refused("cannot tell the namespace", &e.into()))
}

/// The former defaults, by the namespace's cookie.
type Saved = BTreeMap<u64, String>;

/// The directory of [`STATE_FILE`], with the lock that keeps other processes from changing that file. With
/// `None`, this process may not use the directory, and nothing is remembered.
struct Record(Option<(PrivateDir, Flock<File>)>);

impl Record {
    /// Opens and locks the directory; waits while another process holds the lock.
    fn open(path: &Path) -> Result<Self> {
        let locked = PrivateDir::make(path, Access::Public).and_then(|dir| Ok((dir.lock()?, dir)));
        match locked {
            Ok((lock, dir)) => Ok(Self(Some((dir, lock)))),
            // A process that may not even make the directory has remembered nothing itself, and finds no file
            // either.
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied && !path.join(STATE_FILE).exists() => {
                Ok(Self(None))
            }
            Err(e) => Err(refused(&format!("cannot lock {}", path.display()), &e)),
        }
    }

    /// Reads the former defaults; they are empty if there is no file.
    fn read(&self) -> Result<Saved> {
        let Some((dir, _)) = &self.0 else { return Ok(Saved::new()) };
        let file = dir.path().join(STATE_FILE);
        let wrong = |why: &dyn fmt::Display| Error::State(file.display().to_string(), why.to_string());
        match dir.read(STATE_FILE, Access::Public, FILE_BYTES_MAX).map_err(|e| wrong(&e))? {
            None => Ok(Saved::new()),
            Some(text) => serde_json::from_slice(&text).map_err(|e| wrong(&e)),
        }
    }

    fn write(&self, all: &Saved) -> Result<()> {
        let write = |dir: &PrivateDir| match all.is_empty() {
            true => dir.remove(STATE_FILE),
            false => dir.replace(STATE_FILE, Access::Public, &serde_json::to_vec(all)?),
        };
        match &self.0 {
            Some((dir, _)) => write(dir)
                .map_err(|e| refused(&format!("cannot write {}/{STATE_FILE}", dir.path().display()), &e)),
            None if all.is_empty() => Ok(()),
            None => Err(Error::Permission(format!("cannot write {STATE_FILE}"))),
        }
    }
}

fn write_sysctl(name: &str) -> Result<()> {
    fs::write(SYSCTL, name).map_err(|e| refused(&format!("cannot make `{name}` the default"), &e))
}

/// Makes a controller the default of the calling thread's namespace.
///
/// # Errors
/// If the controller is not loaded, the sysctl cannot be written, or the file of former defaults cannot be
/// used.
pub fn set(controller: &Controller) -> Result<()> {
    if !controller.is_loaded() {
        return Err(Error::NotLoaded(controller.name.into()));
    }
    let record = Record::open(Path::new(STATE_DIR))?;
    let mut all = record.read()?;
    let before = get().map_err(|e| refused("cannot tell the default", &e))?;
    // Compared by the kernel's name, because the kernel's own `reno` is not our controller of that name.
    if !CONTROLLERS.iter().any(|other| other.linux == before && other.is_loaded()) {
        // Saved before the change. If the process is killed in between, `reset` removes the entry.
        all.insert(own_cookie()?, before);
        record.write(&all)?;
    }
    write_sysctl(controller.linux)
}

/// A network namespace whose default was put back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// A phrase for the namespace: `here`, `in namespace lab`, `in the namespace of process 7 (sh)`.
    pub location: String,
    /// The default congestion control that the namespace has now.
    pub default: String,
    /// Whether `default` is known to be the former default. If not, another program chose our controller
    /// here, and `default` is the machine's.
    pub is_known: bool,
}

/// The result of [`reset`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reset {
    /// The namespaces whose default was put back.
    pub restored: Vec<Restored>,
    /// The number of namespaces that were remembered and no longer exist.
    pub gone: usize,
    /// Where restoring failed, in sentences. The former defaults of these namespaces stay in the file.
    pub failed: Vec<String>,
}

/// Restores the former default of every network namespace whose default is one of `controllers`. If the
/// former default is not known, sets the machine's default. Forgets namespaces that no longer exist or have
/// another default.
///
/// # Errors
/// If the file of former defaults cannot be read or written. If it cannot be read, nothing has been changed.
pub fn reset(controllers: &[&'static Controller]) -> Result<Reset> {
    let record = Record::open(Path::new(STATE_DIR))?;
    let mut all = record.read()?;
    let mut reset = Reset::default();
    let mut alive = BTreeSet::new();
    let mut unseen = Vec::new();
    let namespaces = namespaces::all();
    let machine_default = machine_default(&all);
    let work = || {
        for namespace in namespaces {
            let entered = if namespace.location == "here" {
                Ok(())
            } else {
                namespace.open().and_then(|namespace| namespace.enter())
            };
            match entered {
                Ok(()) => {}
                // The namespace ended meanwhile.
                Err(e) if matches!(e.kind(), io::ErrorKind::NotFound) => continue,
                Err(e) => {
                    unseen.push(format!("cannot look what is the default {}: {e}", namespace.location));
                    continue;
                }
            }
            match restore(controllers, &mut all, &machine_default, &mut alive) {
                Ok(Some((default, is_known))) => {
                    reset.restored.push(Restored { location: namespace.location, default, is_known });
                }
                Ok(None) => {}
                Err(e) => reset.failed.push(format!("{}: {e}", namespace.location)),
            }
        }
    };
    // A separate thread enters one namespace after the other, so that the calling thread stays where it is.
    std::thread::scope(|scope| scope.spawn(work).join()).unwrap_or_else(|panic| resume_unwind(panic));
    if !nix::unistd::geteuid().is_root() {
        unseen.push("cannot look into the namespaces of other users' processes: that needs root".into());
    }
    // A namespace that was not found is gone, provided that all namespaces could be looked into.
    let nowhere = all.keys().filter(|cookie| !alive.contains(*cookie)).count();
    if nowhere > 0 && !unseen.is_empty() {
        reset.failed.append(&mut unseen);
    } else {
        all.retain(|cookie, _| alive.contains(cookie));
        reset.gone = nowhere;
    }
    record.write(&all)?;
    Ok(reset)
}

/// Puts the default of the calling thread's namespace back if it is one of `controllers`. Returns the new
/// default, and whether it is known to be the former one; `None` if there was nothing to do.
fn restore(
    controllers: &[&'static Controller],
    all: &mut Saved,
    machine_default: &str,
    alive: &mut BTreeSet<u64>,
) -> Result<Option<(String, bool)>> {
    let failed = |e: io::Error| refused("cannot tell the default", &e);
    let (now, here) = (get().map_err(failed)?, own_cookie()?);
    alive.insert(here);
    let known = all.get(&here);
    let ours = |c: &Controller| c.linux == now && (c.pin_dir().exists() || known.is_some());
    if !controllers.iter().any(|c| ours(c)) {
        // Another default has been chosen meanwhile, unless it is one of our other controllers.
        if !CONTROLLERS.iter().any(ours) {
            all.remove(&here);
        }
        return Ok(None);
    }
    let (before, is_known) = (known.map_or(machine_default, String::as_str), known.is_some());
    // A namespace may be allowed fewer controllers than the machine; reno is always allowed.
    write_sysctl(before).or_else(|_| write_sysctl("reno"))?;
    all.remove(&here);
    let default = get().map_err(failed)?;
    Ok(Some((default, is_known)))
}

/// Returns the machine's default without our controllers, which new namespaces would begin with.
fn machine_default(all: &Saved) -> String {
    let first = || {
        let own = own_cookie().ok()?;
        all.get(&own).cloned().or_else(|| {
            let now = get().ok()?;
            (!CONTROLLERS.iter().any(|c| c.linux == now)).then_some(now)
        })
    };
    let namespace = anabranch_net::Namespace::open(Path::new("/proc/1/ns/net")).ok();
    namespace.and_then(|namespace| namespace.run(first).ok().flatten()).unwrap_or_else(|| "cubic".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_an_error_and_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let record = Record::open(dir.path()).unwrap();
        assert_eq!(record.read(), Ok(Saved::new()), "nothing is remembered yet");
        let saved = Saved::from([(7, "reno".into())]);
        record.write(&saved).unwrap();
        assert_eq!(record.read(), Ok(saved));
        for text in ["", "{", "[]", "{\"x\":\"reno\"}"] {
            fs::write(dir.path().join(STATE_FILE), text).unwrap();
            let Err(Error::State(file, _)) = record.read() else { panic!("{text:?} was read") };
            assert!(file.ends_with(STATE_FILE), "{file}");
            assert_eq!(fs::read_to_string(dir.path().join(STATE_FILE)).unwrap(), text);
        }
    }

    #[test]
    fn nobody_forgets_what_another_writes() {
        let dir = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for cookie in 0..8 {
                let dir = dir.path();
                scope.spawn(move || {
                    let record = Record::open(dir).unwrap();
                    let mut all = record.read().unwrap();
                    all.insert(cookie, "reno".into());
                    record.write(&all).unwrap();
                });
            }
        });
        assert_eq!(Record::open(dir.path()).unwrap().read().unwrap().len(), 8);
    }
}
