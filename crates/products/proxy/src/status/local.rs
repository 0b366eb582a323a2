//! Serves snapshots over a Unix socket: each connection gets one as JSON and is then closed.
//!
//! The sockets of all roles of a user are in one directory, as `proxy-ROLE-PID.sock`. Only their owner can
//! use directory and socket.

use std::fs::{self, Permissions};
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anabranch_net::private_file::{Access, PrivateDir};
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixListener;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::socket::ACCEPT_PAUSE;
use crate::status::{Snapshot, Status};

/// The time that a client has to read the answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// The longest time that [`ask`] waits for an answer.
const ASK_TIMEOUT: Duration = Duration::from_secs(5);
/// The most clients that are answered at a time; more wait.
const ANSWERS_MAX: usize = 8;
/// The most bytes of a snapshot. With some 500 bytes for each connection, trunk and link, it has about half a
/// megabyte.
const SNAPSHOT_BYTES_MAX: u64 = 64 << 20;
const PREFIX: &str = "proxy-";
const SUFFIX: &str = ".sock";

/// A socket that serves snapshots until this is dropped.
#[derive(Debug)]
pub struct LocalStatus {
    path: PathBuf,
    task: JoinHandle<()>,
}

impl LocalStatus {
    /// Returns the path of the socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for LocalStatus {
    fn drop(&mut self) {
        self.task.abort();
        let _ = fs::remove_file(&self.path);
    }
}

/// Serves snapshots at a socket in a directory, which is made if it does not exist. Sockets of processes that
/// have ended are removed.
///
/// # Errors
/// If the directory cannot be made, if others can write to it, or if bind(2) fails, for example because the
/// path is too long.
pub fn listen(status: &Status, dir: &Path) -> io::Result<LocalStatus> {
    PrivateDir::make(dir, Access::Secret)?;
    for path in sockets(dir) {
        let is_gone = process(&path).is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists());
        // The process may be in another PID namespace; its socket then answers.
        if is_gone && UnixStream::connect(&path).is_err() {
            let _ = fs::remove_file(&path);
        }
    }
    let name = format!("{PREFIX}{}-{}{SUFFIX}", status.role().name(), std::process::id());
    let path = dir.join(name);
    if UnixStream::connect(&path).is_err() {
        // The socket is left from an earlier process with this number.
        let _ = fs::remove_file(&path);
    }
    let entered = status.runtime.enter();
    let listener = UnixListener::bind(&path)?;
    // Other users may be able to enter the directory.
    fs::set_permissions(&path, Permissions::from_mode(0o600))?;
    drop(entered);
    let task = status.runtime.spawn(answer(listener, status.clone()));
    Ok(LocalStatus { path, task })
}

async fn answer(listener: UnixListener, status: Status) {
    let places = Arc::new(Semaphore::new(ANSWERS_MAX));
    loop {
        // The semaphore is never closed.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let Ok((mut stream, _)) = listener.accept().await else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let status = status.clone();
        tokio::spawn(async move {
            // Serializing a snapshot cannot fail.
            let text = serde_json::to_string(&status.snapshot()).unwrap_or_default();
            // A client that does not read gets no answer.
            let _ = timeout(ANSWER_TIMEOUT, stream.write_all(text.as_bytes())).await;
            drop(place);
        });
    }
}

/// Returns the sockets in a directory, ordered by name.
#[must_use]
pub fn sockets(dir: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| process(path).is_some())
        .collect();
    found.sort();
    found
}

/// Returns the process of a socket, from its name.
fn process(path: &Path) -> Option<u32> {
    let name = path.file_name()?.to_str()?.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
    name.rsplit_once('-')?.1.parse().ok()
}

/// Asks the role behind a socket for its state.
///
/// # Errors
/// If no process listens there any more (`ConnectionRefused`, `NotFound`), if the socket belongs to another
/// user (`PermissionDenied`), or if no snapshot comes (`InvalidData`, `WouldBlock`).
pub fn ask(path: &Path) -> io::Result<Snapshot> {
    let stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(ASK_TIMEOUT))?;
    let mut text = Vec::new();
    stream.take(SNAPSHOT_BYTES_MAX).read_to_end(&mut text)?;
    serde_json::from_slice(&text).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
}
