//! What the daemon tells of itself, over a Unix socket: each connection gets a [`Snapshot`] as JSON and is
//! then closed. Every user may ask.

use std::fs::{self, Permissions};
use std::io::{self, Read as _, Write as _};
use std::net::IpAddr;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anabranch_net::Namespace;
use anabranch_net::netlink::Endpoint;
use serde::{Deserialize, Serialize};

use crate::decide::{Report, State};

/// The longest time that [`ask`] waits.
const ASK_TIMEOUT: Duration = Duration::from_secs(5);
/// The most that ask and are answered in one step; the others wait for the next one.
const ANSWERS_MAX: usize = 8;
/// The most bytes of a snapshot: of a hundred interfaces it has some ten kilobytes.
const SNAPSHOT_BYTES_MAX: u64 = 1 << 20;

/// The state of the daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The release of the daemon.
    pub release: String,
    /// Its process.
    pub pid: u32,
    /// How long it has been running, in seconds.
    pub uptime_s: f64,
    /// The changes that it has made to the kernel's configuration.
    pub changes: u64,
    /// The interfaces, ordered by name.
    pub links: Vec<LinkStatus>,
    /// What the user should know: other programs at work, endpoints that were left as they are.
    pub notes: Vec<String>,
}

/// The state of an interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkStatus {
    /// The interface.
    pub name: String,
    /// What becomes of it.
    pub state: State,
    /// Why.
    pub why: String,
    /// The addresses that it has as an uplink.
    pub addresses: Vec<AddressStatus>,
    /// Its routing table.
    pub table: Option<u32>,
    /// How often it was lost.
    pub losses: u64,
    /// What its radio says.
    pub radio: Option<RadioStatus>,
}

/// An address of an uplink, and its MPTCP endpoint as the kernel has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressStatus {
    /// The address.
    pub ip: IpAddr,
    /// The gateway; `None` if the other end of the link is the way out.
    pub gateway: Option<IpAddr>,
    /// The number of the endpoint; `None` if there is none.
    pub endpoint: Option<u8>,
    /// The flags of the endpoint, as `subflow backup`.
    pub flags: String,
}

/// What a radio says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RadioStatus {
    /// The signal, in dBm.
    pub signal_dbm: Option<i8>,
    /// The bit rate of sent frames, in bits a second.
    pub rate_bits: Option<u64>,
    /// The mean time to deliver a packet of 1,500 bytes, in nanoseconds.
    pub packet_time_ns: Option<u64>,
}

impl LinkStatus {
    pub(crate) fn new(report: Report, table_base: u32, endpoints: &[Endpoint]) -> Self {
        let Report { name, state, why, addresses, table, losses, reading, packet_time_ns } = report;
        let address = |(of, _): &(anabranch_kernel::uplinks::SurveyedAddress, Option<u8>)| {
            let endpoint = endpoints.iter().find(|endpoint| endpoint.ip == of.ip);
            AddressStatus {
                ip: of.ip,
                gateway: of.gateway,
                endpoint: endpoint.map(|endpoint| endpoint.id),
                flags: endpoint.map(|endpoint| endpoint.flags.to_string()).unwrap_or_default(),
            }
        };
        Self {
            addresses: addresses.iter().map(address).collect(),
            table: table.and_then(|n| table_base.checked_add(n as u32)),
            radio: reading.map(|reading| RadioStatus {
                signal_dbm: reading.signal_dbm,
                rate_bits: reading.rate.map(anabranch_algo::Rate::as_bits),
                packet_time_ns,
            }),
            name,
            state,
            why,
            losses,
        }
    }
}

/// Returns the path of the socket of the calling thread's network namespace.
///
/// # Errors
/// If /proc does not tell which namespace this is.
pub fn socket(state_dir: &Path) -> io::Result<PathBuf> {
    Ok(state_dir.join(format!("uplinks-{}.sock", Namespace::current_inode()?)))
}

/// The socket, which is removed when this is dropped. Only one process may serve a path: the daemon holds the
/// session of its namespace.
#[derive(Debug)]
pub(crate) struct Server {
    listener: UnixListener,
    path: PathBuf,
}

impl Server {
    pub(crate) fn listen(path: PathBuf) -> io::Result<Self> {
        // A killed daemon has left it.
        match fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let listener = UnixListener::bind(&path)?;
        listener.set_nonblocking(true)?;
        fs::set_permissions(&path, Permissions::from_mode(0o666))?;
        Ok(Self { listener, path })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Answers those who ask, at most [`ANSWERS_MAX`] of them, with one snapshot. The daemon then does its
    /// other work, so that a user who asks without end does not hold it up. What does not fit the socket's
    /// buffer is not written; the buffer has room for hundreds of interfaces.
    pub(crate) fn answer(&self, snapshot: impl Fn() -> Snapshot) {
        let mut text = None;
        for _ in 0..ANSWERS_MAX {
            let Ok((mut stream, _)) = self.listener.accept() else { return };
            let text = text.get_or_insert_with(|| serde_json::to_vec(&snapshot()).unwrap_or_default());
            let _ = stream.set_nonblocking(true).and_then(|()| stream.write_all(text));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Asks the daemon behind a socket for its state.
///
/// # Errors
/// `NotFound` or `ConnectionRefused` if no daemon runs; `InvalidData` if the answer makes no sense.
pub fn ask(path: &Path) -> io::Result<Snapshot> {
    let stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(ASK_TIMEOUT))?;
    let mut text = Vec::new();
    stream.take(SNAPSHOT_BYTES_MAX).read_to_end(&mut text)?;
    serde_json::from_slice(&text).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_answers_eight_and_the_others_wait() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let server = Server::listen(path.clone()).unwrap();
        let asking: Vec<_> = (0..20).map(|_| UnixStream::connect(&path).unwrap()).collect();
        let snapshot = Snapshot {
            release: "1".into(),
            pid: 1,
            uptime_s: 1.0,
            changes: 0,
            links: Vec::new(),
            notes: Vec::new(),
        };
        let mut answered = Vec::new();
        for _ in 0..4 {
            let asked = std::cell::Cell::new(0);
            server.answer(|| {
                asked.set(asked.get() + 1);
                snapshot.clone()
            });
            let is_answered = |stream: &&UnixStream| {
                stream.set_nonblocking(true).unwrap();
                (&**stream).read(&mut [0; 1000]).is_ok_and(|len| len > 0)
            };
            answered.push((asking.iter().filter(is_answered).count(), asked.get()));
        }
        assert_eq!(answered, [(8, 1), (8, 1), (4, 1), (0, 0)]);
    }
}
