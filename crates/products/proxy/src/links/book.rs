//! Keeps the caps in the world: reads the interfaces' counters and the date, and keeps the counts in a file.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use anabranch_algo::{Span, Time};
use anabranch_net::Namespace;
use anabranch_net::capabilities::{self, CAP_NET_ADMIN};
use anabranch_net::netlink::Netlink;
use anabranch_net::private_file::{Access, PrivateDir};
use nix::fcntl::Flock;
use serde::{Deserialize, Serialize};

use crate::event::{Event, Reports};
use crate::links::caps::{Account, Caps, Change, Counter, Usage};
use anabranch_net::via::Via;

/// The time between two readings of the counters, and between two writes of changed counts.
const LOOK_EVERY: Span = Span::from_millis(100);
const WRITE_EVERY: Span = Span::from_secs(5);
/// The names of the files in the state directory.
const FILE: &str = "proxy-links.toml";
const LOCK: &str = "proxy-links.lock";
/// The most bytes of the file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The reason why caps cannot be kept.
#[derive(Debug, thiserror::Error)]
pub enum CapsError {
    /// There is no directory for the counts.
    #[error("a cap wants a directory to keep its count in: say `state-dir`")]
    NoDirectory,
    /// The privilege to take a link away is missing.
    #[error("a cap is kept by taking the link away, which needs CAP_NET_ADMIN: run as root, or leave it out")]
    NotAllowed,
    /// Another client keeps the caps.
    #[error("another client keeps the caps of links in {0}")]
    InUse(PathBuf),
    /// The file cannot be read or written, or is malformed.
    #[error("the count of what links carried, {0}: {1}")]
    File(PathBuf, String),
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default)]
    link: BTreeMap<String, Account>,
}

/// The caps, and the file with their counts.
#[derive(Debug)]
pub(crate) struct Book {
    caps: Caps,
    dir: PrivateDir,
    /// Identifies the boot of the host and the network namespace of the counters.
    origin: String,
    looked_at: Option<Time>,
    written: BTreeMap<String, Account>,
    written_at: Time,
    /// Whether the notice that the file cannot be written has been given.
    is_told: bool,
    /// The lock on the file. The kernel releases it whenever the process ends.
    _held: Flock<File>,
}

impl Book {
    /// Opens the book of these links and counts once, so that spent links are known at once. Returns `None`
    /// if no link has a cap.
    pub(crate) fn open(links: &[Via], dir: Option<&Path>) -> Result<Option<Self>, CapsError> {
        if links.iter().all(|link| link.cap.is_none()) {
            return Ok(None);
        }
        let dir = dir.ok_or(CapsError::NoDirectory)?;
        if !capabilities::has(&[CAP_NET_ADMIN]) {
            return Err(CapsError::NotAllowed);
        }
        let path = dir.join(FILE);
        let failed = |e: io::Error| CapsError::File(path.clone(), e.to_string());
        let dir = PrivateDir::make(dir, Access::Secret).map_err(failed)?;
        let held = dir.try_lock(LOCK).map_err(failed)?;
        let held = held.ok_or_else(|| CapsError::InUse(dir.path().to_owned()))?;
        let known = read(&dir, &path)?;
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").map_err(failed)?;
        let namespace = Namespace::current_inode().map_err(failed)?;
        let mut book = Self {
            caps: Caps::new(links, known.clone()),
            dir,
            origin: format!("{} {namespace}", boot.trim()),
            looked_at: None,
            written: known,
            written_at: Time::ZERO,
            is_told: false,
            _held: held,
        };
        book.look(Time::ZERO);
        // A failure to write is better known now than after the first byte.
        book.write().map_err(failed)?;
        Ok(Some(book))
    }

    pub(crate) fn usage(&self) -> Vec<Usage> {
        self.caps.usage()
    }

    /// Counts if it is time, and returns the links that have changed.
    pub(crate) fn step(&mut self, now: Time, reports: &Reports) -> Vec<Change> {
        if self.looked_at.is_some_and(|at| now.since(at) < LOOK_EVERY) {
            return Vec::new();
        }
        let changes = self.look(now);
        if !changes.is_empty() || now.since(self.written_at) >= WRITE_EVERY {
            self.written_at = now;
            self.save(reports);
        }
        changes
    }

    /// Writes the counts if they have changed.
    pub(crate) fn save(&mut self, reports: &Reports) {
        let done = self.write();
        if let Err(e) = &done
            && !self.is_told
        {
            reports.put(Event::Notice(format!(
                "{}: {e}: caps are kept, but not beyond this run",
                self.dir.path().join(FILE).display()
            )));
        }
        self.is_told = done.is_err();
    }

    fn look(&mut self, now: Time) -> Vec<Change> {
        self.looked_at = Some(now);
        let interfaces = Netlink::open().and_then(|netlink| netlink.links()).unwrap_or_default();
        let origin = &self.origin;
        self.caps.count(now, unix_s(), |name| {
            let link = interfaces.iter().find(|link| link.name == name)?;
            Some(Counter { bytes: link.rx_bytes + link.tx_bytes, of: format!("{origin} {}", link.index) })
        })
    }

    fn write(&mut self) -> io::Result<()> {
        let accounts = self.caps.accounts();
        if accounts == self.written {
            return Ok(());
        }
        let text = toml::to_string(&Document { link: accounts.clone() }).map_err(io::Error::other)?;
        self.dir.replace(FILE, Access::Secret, text.as_bytes())?;
        self.written = accounts;
        Ok(())
    }
}

fn read(dir: &PrivateDir, path: &Path) -> Result<BTreeMap<String, Account>, CapsError> {
    let wrong = |what: String| CapsError::File(path.to_owned(), what);
    let read = dir.read(FILE, Access::Public, FILE_BYTES_MAX).map_err(|e| wrong(e.to_string()))?;
    let text = String::from_utf8(read.unwrap_or_default()).map_err(|e| wrong(e.to_string()))?;
    let document = toml::from_str::<Document>(&text);
    document.map(|document| document.link).map_err(|e| wrong(e.to_string().trim_end().to_owned()))
}

#[expect(clippy::disallowed_methods, reason = "a cap is for a period of the calendar")]
fn unix_s() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_keeps_a_cap_from_being_kept_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let (free, capped) = (["lo".parse().unwrap()], ["lo:cap=1GB/day".parse().unwrap()]);
        assert!(Book::open(&free, None).unwrap().is_none());
        assert!(matches!(Book::open(&capped, None), Err(CapsError::NoDirectory)));
        if !capabilities::has(&[CAP_NET_ADMIN]) {
            assert!(matches!(Book::open(&capped, Some(dir.path())), Err(CapsError::NotAllowed)));
            return;
        }
        let book = Book::open(&capped, Some(dir.path())).unwrap().unwrap();
        assert!(matches!(Book::open(&capped, Some(dir.path())), Err(CapsError::InUse(_))));
        drop(book);
        let file = dir.path().join(FILE);
        assert!(fs::read_to_string(&file).unwrap().starts_with("[link.lo]\n"));
        for wrong in ["[link.lo]\nbytes = 5\n", "nonsense", "[link.lo]\nperiod-began = 0\nbytes = -1\n"] {
            fs::write(&file, wrong).unwrap();
            let error = Book::open(&capped, Some(dir.path())).unwrap_err();
            assert!(matches!(error, CapsError::File(..)), "{wrong}: {error}");
            assert_eq!(fs::read_to_string(&file).unwrap(), wrong, "it is not written over");
        }
    }
}
