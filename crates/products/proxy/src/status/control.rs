//! Takes commands over a Unix socket: each connection sends one as a line of JSON, and gets one answer.
//!
//! The socket is `proxy-ROLE-PID.control`, beside that of [`local`](crate::status::local). Only its
//! owner can use it.

use std::fs::{self, Permissions};
use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anabranch_net::private_file::{Access, PrivateDir};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixListener;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::control::{Command, ControlError};
use crate::socket::ACCEPT_PAUSE;
use crate::status::{DrainState, Status};

/// The time that a connection has for its command and its answer.
const TIMEOUT: Duration = Duration::from_secs(2);
/// The most bytes of a command, and of an answer.
const BYTES_MAX: u64 = 64 * 1024;
const PREFIX: &str = "proxy-";
const SUFFIX: &str = ".control";

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Drain(Option<DrainState>),
    Error(String),
}

/// A socket that takes commands until this is dropped.
#[derive(Debug)]
pub struct LocalControl {
    path: PathBuf,
    task: JoinHandle<()>,
}

impl Drop for LocalControl {
    fn drop(&mut self) {
        self.task.abort();
        let _ = fs::remove_file(&self.path);
    }
}

/// Takes commands at a socket in a directory, which is made if it does not exist.
///
/// # Errors
/// If the directory cannot be made, if others can write to it, or if bind(2) fails.
pub fn listen(status: &Status, dir: &Path) -> io::Result<LocalControl> {
    PrivateDir::make(dir, Access::Secret)?;
    for (_, path) in sockets(dir) {
        if UnixStream::connect(&path).is_err() {
            // Its process has ended.
            let _ = fs::remove_file(&path);
        }
    }
    let path = dir.join(format!("{PREFIX}{}-{}{SUFFIX}", status.role().name(), std::process::id()));
    let entered = status.runtime().enter();
    let listener = UnixListener::bind(&path)?;
    fs::set_permissions(&path, Permissions::from_mode(0o600))?;
    drop(entered);
    let task = status.runtime().spawn(serve(listener, status.clone()));
    Ok(LocalControl { path, task })
}

/// Serves one connection after the other.
async fn serve(listener: UnixListener, status: Status) {
    loop {
        let Ok((mut stream, _)) = listener.accept().await else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let answering = async {
            let mut text = Vec::new();
            (&mut stream).take(BYTES_MAX).read_to_end(&mut text).await?;
            let answer = match serde_json::from_slice::<Command>(&text) {
                Ok(command) => match status.control(command) {
                    Ok(drain) => Answer::Drain(drain),
                    Err(e) => Answer::Error(e.to_string()),
                },
                Err(e) => Answer::Error(format!("this is no command: {e}")),
            };
            // Serializing an answer cannot fail.
            stream.write_all(&serde_json::to_vec(&answer).unwrap_or_default()).await
        };
        // Who does not speak in time gets no answer.
        let _ = timeout(TIMEOUT, answering).await;
    }
}

/// Returns the processes whose sockets are in a directory, and the sockets, ordered by process.
#[must_use]
pub fn sockets(dir: &Path) -> Vec<(u32, PathBuf)> {
    let process = |path: &Path| {
        let name = path.file_name()?.to_str()?.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
        name.rsplit_once('-')?.1.parse().ok()
    };
    let found = fs::read_dir(dir).into_iter().flatten().filter_map(|entry| {
        let path = entry.ok()?.path();
        Some((process(&path)?, path))
    });
    let mut found: Vec<_> = found.collect();
    found.sort();
    found
}

/// Gives a command to the role behind a socket. Returns the state of its drain.
///
/// # Errors
/// If no role listens there, or if it refuses the command.
pub fn give(path: &Path, command: &Command) -> Result<Option<DrainState>, ControlError> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(TIMEOUT * 2))?;
    stream.write_all(&serde_json::to_vec(command).map_err(io::Error::other)?)?;
    stream.shutdown(Shutdown::Write)?;
    let mut text = Vec::new();
    stream.take(BYTES_MAX).read_to_end(&mut text)?;
    match serde_json::from_slice(&text).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))? {
        Answer::Drain(drain) => Ok(drain),
        Answer::Error(why) => Err(ControlError::Refused(why)),
    }
}
