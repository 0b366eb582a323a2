//! Snapshots over a Unix socket: whoever may open it gets one, as JSON, and the connection ends.
//!
//! The sockets of all roles of a user are in one directory, `proxy-ROLE-PID.sock`. Directory and socket are
//! their owner's alone.

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

/// Who asks has so long to read the answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Whoever asks waits so long.
const ASK_TIMEOUT: Duration = Duration::from_secs(5);
/// Those who are answered at a time; more wait.
const ANSWERS_MAX: usize = 8;
/// The longest snapshot: some 500 bytes for each connection, trunk and link are half a megabyte.
const SNAPSHOT_BYTES_MAX: u64 = 64 << 20;
const PREFIX: &str = "proxy-";
const SUFFIX: &str = ".sock";

/// A socket at which snapshots can be had, until this is dropped.
#[derive(Debug)]
pub struct LocalStatus {
    path: PathBuf,
    task: JoinHandle<()>,
}

impl LocalStatus {
    /// Where it is.
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

/// Hands out snapshots at a socket in a directory, which is made. Sockets of processes that are gone are
/// removed.
///
/// # Errors
/// The directory cannot be made, or others can write it; what bind(2) says: the name may be too long.
pub fn listen(status: &Status, dir: &Path) -> io::Result<LocalStatus> {
    PrivateDir::make(dir, Access::Secret)?;
    for path in sockets(dir) {
        let is_gone = process(&path).is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists());
        // Of another PID namespace: then it answers.
        if is_gone && UnixStream::connect(&path).is_err() {
            let _ = fs::remove_file(&path);
        }
    }
    let name = format!("{PREFIX}{}-{}{SUFFIX}", status.role().name(), std::process::id());
    let path = dir.join(name);
    if UnixStream::connect(&path).is_err() {
        // One of this number, from before.
        let _ = fs::remove_file(&path);
    }
    let entered = status.runtime.enter();
    let listener = UnixListener::bind(&path)?;
    // The directory may be one that others can enter.
    fs::set_permissions(&path, Permissions::from_mode(0o600))?;
    drop(entered);
    let task = status.runtime.spawn(answer(listener, status.clone()));
    Ok(LocalStatus { path, task })
}

async fn answer(listener: UnixListener, status: Status) {
    let places = Arc::new(Semaphore::new(ANSWERS_MAX));
    loop {
        // It is never closed.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let Ok((mut stream, _)) = listener.accept().await else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let status = status.clone();
        tokio::spawn(async move {
            // Nothing in it can fail.
            let text = serde_json::to_string(&status.snapshot()).unwrap_or_default();
            // Who does not read has no answer.
            let _ = timeout(ANSWER_TIMEOUT, stream.write_all(text.as_bytes())).await;
            drop(place);
        });
    }
}

/// The sockets in a directory, in order of their names.
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

/// The process of a socket, by its name.
fn process(path: &Path) -> Option<u32> {
    let name = path.file_name()?.to_str()?.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
    name.rsplit_once('-')?.1.parse().ok()
}

/// What the role behind a socket is doing.
///
/// # Errors
/// Nobody listens there any more (`ConnectionRefused`, `NotFound`), it is somebody else's
/// (`PermissionDenied`), or no snapshot comes (`InvalidData`, `WouldBlock`).
pub fn ask(path: &Path) -> io::Result<Snapshot> {
    let stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(ASK_TIMEOUT))?;
    let mut text = Vec::new();
    stream.take(SNAPSHOT_BYTES_MAX).read_to_end(&mut text)?;
    serde_json::from_slice(&text).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
}
