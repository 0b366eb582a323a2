//! The parent of the worker: it keeps the socket, and replaces a worker that dies at once.
//!
//! While no worker lives, the kernel queues clients that connect. The worker has the socket as its standard
//! input, as inetd's servers have: so nothing has to be found by a number. It dies with the keeper.
//!
//! The worker's standard output is a pipe to the keeper, which hands on what it says. Its end is also the
//! first sign of the worker's death: the kernel closes it before a thousand sockets, and only then tells
//! the parent. The next worker starts meanwhile.

use std::io::{self, Read as _};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anabranch_algo::{Span, Time};
use anabranch_net::{Clock, end_with_parent};
use socket2::{Domain, Protocol, Socket, Type};

/// The most connections that may wait to be accepted.
const BACKLOG: i32 = 4_096;
/// A worker that lived for less has died early.
const EARLY: Span = Span::from_secs(1);
/// The early deaths in a row that are followed by the next start at once.
const EARLY_MAX: u32 = 5;
/// The pause before a start after more early deaths.
const PAUSE: Duration = Duration::from_secs(1);

/// Listens for clients.
///
/// # Errors
/// If the address cannot be bound; the error names it.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let open = || {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        // Connections of an earlier server then do not block the port.
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        Ok(TcpListener::from(socket))
    };
    open().map_err(|e: io::Error| io::Error::new(e.kind(), format!("listening on {address}: {e}")))
}

/// Returns the socket that a keeper gave this process as its standard input.
///
/// # Errors
/// If standard input is no socket that listens.
pub fn inherited() -> io::Result<TcpListener> {
    let listener = TcpListener::from(io::stdin().as_fd().try_clone_to_owned()?);
    listener.local_addr()?;
    Ok(listener)
}

/// Something that the user of a keeper should know.
#[derive(Debug)]
pub enum Event<'a> {
    /// A worker has written this to its standard output.
    Said(&'a [u8]),
    /// A worker has died, and the next one has begun.
    Died(ExitStatus),
    /// No worker could be started; it is tried again.
    NotStarted(io::Error),
}

/// Keeps a worker alive until it is stopped or dropped.
#[derive(Debug)]
pub struct Keeper {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    socket: TcpListener,
    child: Mutex<Option<Child>>,
    stop: AtomicBool,
    restarts: AtomicU64,
}

impl Shared {
    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Keeper {
    /// Starts a worker by the command that `command` makes of the number of earlier workers, and replaces
    /// it when it dies. `listener` is called on other threads.
    ///
    /// # Errors
    /// If the first worker or the thread cannot be started.
    pub fn start(
        socket: TcpListener,
        command: impl Fn(u64) -> Command + Send + 'static,
        listener: impl Fn(&Event<'_>) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let shared = Shared {
            socket,
            child: Mutex::new(None),
            stop: AtomicBool::new(false),
            restarts: AtomicU64::new(0),
        };
        let shared = Arc::new(shared);
        let kept = Arc::clone(&shared);
        // The kernel ends a worker when the thread that started it ends: so this thread lives as long as
        // the keeper.
        let listener: Arc<dyn Fn(&Event<'_>) + Send + Sync> = Arc::new(listener);
        let keep = move || keep(&kept, &command, &listener);
        let thread = thread::Builder::new().name("keeper".into()).spawn(keep)?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Returns how many workers had to be replaced.
    #[must_use]
    pub fn restarts(&self) -> u64 {
        self.shared.restarts.load(Ordering::Relaxed)
    }

    /// Returns the number of the worker's process, if one lives.
    #[must_use]
    pub fn worker(&self) -> Option<u32> {
        self.shared.child().as_ref().map(Child::id)
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        if let Some(child) = self.shared.child().as_mut() {
            // Nothing is lost: an object that has not arrived is not in the image.
            let _ = child.kill();
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn keep(shared: &Shared, command: &dyn Fn(u64) -> Command, listener: &Arc<dyn Fn(&Event<'_>) + Send + Sync>) {
    let clock = Clock::start();
    let mut early = 0;
    let mut dying = Vec::new();
    while !shared.stop.load(Ordering::SeqCst) {
        let began = clock.now();
        match start(shared, command) {
            Ok(Some(said)) => {
                hear(said, listener);
                dying.extend(bury(shared, listener));
                dying.retain(|thread: &JoinHandle<()>| !thread.is_finished());
                shared.restarts.fetch_add(1, Ordering::Relaxed);
                early = count_early(early, began, clock.now());
            }
            Ok(None) => {}
            Err(error) => {
                early = EARLY_MAX;
                listener(&Event::NotStarted(error));
            }
        }
        if early >= EARLY_MAX {
            pause(shared);
        }
    }
    for thread in dying {
        let _ = thread.join();
    }
}

fn count_early(early: u32, began: Time, now: Time) -> u32 {
    if now.since(began) < EARLY { early + 1 } else { 0 }
}

/// Starts a worker, and returns its standard output; `None` if the keeper is stopped.
fn start(shared: &Shared, command: &dyn Fn(u64) -> Command) -> io::Result<Option<ChildStdout>> {
    let mut command = command(shared.restarts.load(Ordering::Relaxed));
    command.stdin(Stdio::from(OwnedFd::from(shared.socket.try_clone()?))).stdout(Stdio::piped());
    end_with_parent(&mut command);
    let mut child = shared.child();
    // A thread that stops the keeper finds the worker, or its wish is seen here.
    if shared.stop.load(Ordering::SeqCst) {
        return Ok(None);
    }
    let child = child.insert(command.spawn()?);
    Ok(child.stdout.take())
}

/// Hands on what a worker says, until it ends.
fn hear(mut said: ChildStdout, listener: &Arc<dyn Fn(&Event<'_>) + Send + Sync>) {
    let mut bytes = [0; 4_096];
    loop {
        match said.read(&mut bytes) {
            Ok(0) => return,
            Ok(read) => listener(&Event::Said(&bytes[..read])),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

/// Waits for the end of a worker that is dying, on a thread of its own.
fn bury(shared: &Shared, listener: &Arc<dyn Fn(&Event<'_>) + Send + Sync>) -> Option<JoinHandle<()>> {
    let mut child = shared.child().take()?;
    let is_stopped = shared.stop.load(Ordering::SeqCst);
    let listener = Arc::clone(listener);
    let wait = move || {
        // A worker that has only closed its output is of no use either.
        let _ = child.kill();
        if let (Ok(status), false) = (child.wait(), is_stopped) {
            listener(&Event::Died(status));
        }
    };
    thread::Builder::new().name("keeper".into()).spawn(wait).ok()
}

fn pause(shared: &Shared) {
    let step = Duration::from_millis(20);
    let mut left = PAUSE;
    while !left.is_zero() && !shared.stop.load(Ordering::SeqCst) {
        thread::sleep(step);
        left = left.saturating_sub(step);
    }
}
