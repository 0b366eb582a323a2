//! Keeps the caps in the world: reads the interfaces' counters and the date, and keeps the counts in a file
//! that programs share.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anabranch_algo::{Span, Time};
use anabranch_net::Namespace;
use anabranch_net::netlink::Netlink;
use anabranch_net::private_file::{Access, PrivateDir};
use anabranch_net::via::Via;
use nix::fcntl::Flock;
use serde::{Deserialize, Serialize};

use crate::links::caps::{Account, Caps, Change, Counter, Usage};

/// The time between two readings of the counters, and between two writes of changed counts.
const LOOK_EVERY: Span = Span::from_millis(100);
const WRITE_EVERY: Span = Span::from_secs(5);
/// The names of the files in the state directory.
const FILE: &str = "links.json";
const LOCK: &str = "links.lock";
/// The most bytes of the file.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// How often the lock is tried, and the time between two tries. A program holds it while it writes the file.
const LOCK_TRIES: u32 = 100;
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// The reason why caps cannot be kept.
#[derive(Debug, thiserror::Error)]
pub enum CapsError {
    /// There is no directory for the counts.
    #[error("a cap wants a directory to keep its count in: say `state-dir`")]
    NoDirectory,
    /// The link is named by an address, and counters belong to interfaces.
    #[error("`cap` of {0}: name the interface, whose counter says what it has carried")]
    NotAnInterface(String),
    /// The file cannot be read or written, or is malformed.
    #[error("the count of what links carried, {0}: {1}")]
    File(PathBuf, String),
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    links: BTreeMap<String, Account>,
}

/// The caps of links, and the file with their counts. Several programs may have it open.
#[derive(Debug)]
pub struct Book {
    caps: Caps,
    dir: PrivateDir,
    /// Identifies the boot of the host and the network namespace of the counters.
    origin: String,
    looked_at: Option<Time>,
    /// The file's accounts when it was last read or written.
    known: BTreeMap<String, Account>,
    written_at: Time,
    /// Whether the caller has been told that the file cannot be written.
    is_told: bool,
}

impl Book {
    /// Opens the book of these links in the directory `dir` and counts once, so that spent links are known at
    /// once. Returns `None` if no link has a cap.
    ///
    /// # Errors
    /// If there is no directory, if a link with a cap is no interface, or if the file cannot be used.
    pub fn open(links: &[Via], dir: Option<&Path>) -> Result<Option<Self>, CapsError> {
        let mut capped = links.iter().filter(|link| link.cap.is_some()).peekable();
        if capped.peek().is_none() {
            return Ok(None);
        }
        let dir = dir.ok_or(CapsError::NoDirectory)?;
        let is_address = |link: &&Via| {
            link.name.split('%').next().is_some_and(|address| address.parse::<IpAddr>().is_ok())
        };
        if let Some(link) = capped.find(is_address) {
            return Err(CapsError::NotAnInterface(link.name.clone()));
        }
        let path = dir.join(FILE);
        let failed = |e: io::Error| CapsError::File(path.clone(), e.to_string());
        let dir = PrivateDir::make(dir, Access::Secret).map_err(failed)?;
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").map_err(failed)?;
        let namespace = Namespace::current_inode().map_err(failed)?;
        let mut book = Self {
            caps: Caps::new(links, BTreeMap::new()),
            dir,
            origin: format!("{} {namespace}", boot.trim()),
            looked_at: None,
            known: BTreeMap::new(),
            written_at: Time::ZERO,
            is_told: false,
        };
        // A failure to write is better known now than after the first byte.
        book.exchange(Time::ZERO, &mut Vec::new()).map_err(failed)?;
        Ok(Some(book))
    }

    /// Returns the usage of each link with a cap.
    #[must_use]
    pub fn usage(&self) -> Vec<Usage> {
        self.caps.usage()
    }

    /// Counts if it is time, and returns the links that have changed. `notice` is told once if the file
    /// cannot be written.
    pub fn step(&mut self, now: Time, notice: impl FnOnce(String)) -> Vec<Change> {
        if self.looked_at.is_some_and(|at| now.since(at) < LOOK_EVERY) {
            return Vec::new();
        }
        let mut changes = self.look(now);
        if !changes.is_empty() || now.since(self.written_at) >= WRITE_EVERY {
            self.written_at = now;
            changes.extend(self.save(now, notice));
        }
        changes
    }

    /// Counts, and stores what has changed: the last bytes of a program are counted too. `notice` is told
    /// once if the file cannot be written.
    pub fn save(&mut self, now: Time, notice: impl FnOnce(String)) -> Vec<Change> {
        let mut changes = Vec::new();
        let done = self.exchange(now, &mut changes);
        if let Err(e) = &done
            && !self.is_told
        {
            notice(format!(
                "{}: {e}: caps are kept, but not beyond this run",
                self.dir.path().join(FILE).display()
            ));
        }
        self.is_told = done.is_err();
        changes
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

    /// Continues from what other programs have stored, counts, and stores the sum. Adds the links that have
    /// changed to `changes`, also if the sum cannot be stored.
    fn exchange(&mut self, now: Time, changes: &mut Vec<Change>) -> io::Result<()> {
        let _held = self.lock()?;
        let stored = read(&self.dir)?;
        if stored != self.known {
            self.caps.adopt(stored.clone());
        }
        changes.extend(self.look(now));
        let accounts = self.caps.accounts();
        if accounts != stored {
            let text = serde_json::to_vec_pretty(&Document { links: accounts.clone() })?;
            self.dir.replace(FILE, Access::Secret, &text)?;
        }
        self.known = accounts;
        Ok(())
    }

    /// Locks the file against other programs until the result is dropped.
    fn lock(&self) -> io::Result<Flock<File>> {
        for _ in 0..LOCK_TRIES {
            if let Some(held) = self.dir.try_lock(LOCK)? {
                return Ok(held);
            }
            std::thread::sleep(LOCK_PAUSE);
        }
        Err(io::Error::other("another program does not let go of it"))
    }
}

fn read(dir: &PrivateDir) -> io::Result<BTreeMap<String, Account>> {
    let Some(bytes) = dir.read(FILE, Access::Public, FILE_BYTES_MAX)? else { return Ok(BTreeMap::new()) };
    Ok(serde_json::from_slice::<Document>(&bytes)?.links)
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
        let address = ["127.0.0.1:cap=1GB/day".parse().unwrap()];
        assert!(matches!(Book::open(&address, Some(dir.path())), Err(CapsError::NotAnInterface(_))));
        drop(Book::open(&capped, Some(dir.path())).unwrap().unwrap());
        let file = dir.path().join(FILE);
        assert!(fs::read_to_string(&file).unwrap().contains("\"lo day\""));
        for wrong in ["{\"links\": {\"lo\": {\"bytes\": 5}}}", "nonsense", ""] {
            fs::write(&file, wrong).unwrap();
            let error = Book::open(&capped, Some(dir.path())).unwrap_err();
            assert!(matches!(error, CapsError::File(..)), "{wrong}: {error}");
            assert_eq!(fs::read_to_string(&file).unwrap(), wrong, "it is not written over");
        }
    }

    #[test]
    fn programs_that_share_a_directory_share_the_count() {
        let dir = tempfile::tempdir().unwrap();
        let capped = ["lo:cap=1TB/day".parse().unwrap()];
        let open = || Book::open(&capped, Some(dir.path())).unwrap().unwrap();
        let (mut one, mut two) = (open(), open());
        let send = || {
            let to = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            let from = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            for _ in 0..100 {
                from.send_to(&[0; 1_000], to.local_addr().unwrap()).unwrap();
            }
        };
        send();
        one.save(Time::from_nanos(1), |why| panic!("{why}"));
        two.save(Time::from_nanos(2), |why| panic!("{why}"));
        send();
        two.save(Time::from_nanos(3), |why| panic!("{why}"));
        one.save(Time::from_nanos(4), |why| panic!("{why}"));
        let (one, two) = (one.usage()[0].bytes, two.usage()[0].bytes);
        // Both directions of the loopback interface count, and other programs use it too.
        assert!(two >= 400_000 && one >= two, "{one} {two}");
        assert_eq!(open().usage()[0].bytes / 100_000, one / 100_000);
    }
}
