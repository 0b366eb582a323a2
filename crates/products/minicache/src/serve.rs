//! The HTTP server of an image.
//!
//! Each thread has an epoll(7) and the connections that it accepted; all threads listen on one socket. A
//! body is sent by sendfile(2) from the page cache, up to 256 KiB at a turn, after its blocks have been
//! [proven](crate::proof). So a connection costs some hundred bytes, and a thousand of them cost no
//! buffers. That is why this is not `anabranch_http::server`, which has at most 256 connections and copies
//! bodies through buffers of half a MiB each; ranges, preconditions and paths are its own.
//!
//! `request` parses a head, `answer` decides, `connection` moves bytes, `worker` waits, `site` has what all
//! threads share, `status` the numbers, `fill` what a miss does; `mmtp` serves the same by mmTP.

mod answer;
mod connection;
mod count;
mod event;
mod fill;
mod mmtp;
mod request;
mod settings;
mod site;
mod status;
mod worker;

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anabranch::serve::ObjectServer;
use anabranch_net::{WakeReceiver, Waker};

use crate::image::Image;
pub use event::Event;
pub use fill::{FillError, Origins};
pub use settings::Settings;
use site::Site;
use worker::Worker;

/// The most threads that serve.
const THREADS_MAX: usize = 8;
/// How often, and how long, the end of a server waits for its fetches.
const END_POLL: Duration = Duration::from_millis(5);
const END_POLLS_MAX: u32 = 1_000;

/// A running server. It ends when it is dropped.
pub struct Serving {
    address: SocketAddr,
    mmtp: Option<ObjectServer>,
    wakers: Vec<Waker>,
    threads: Vec<JoinHandle<io::Result<()>>>,
    site: Arc<Site>,
}

impl Serving {
    /// Serves an image on a socket that listens. `listener` is called with what the user should know, on
    /// several threads.
    ///
    /// # Errors
    /// If the system has no threads or descriptors left, or an origin is no URL.
    pub fn start(
        image: Image,
        socket: &TcpListener,
        settings: Settings,
        listener: impl Fn(&Event) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?;
        let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let count = settings.threads.unwrap_or(cores).clamp(1, THREADS_MAX);
        let (mmtp, comes_after) = (settings.mmtp, settings.restarts > 0);
        let site = Arc::new(Site::new(image, settings, Arc::new(listener))?);
        let mut serving = Self { address, mmtp: None, wakers: Vec::new(), threads: Vec::new(), site };
        if let Some(address) = mmtp {
            let start = || ObjectServer::start(Arc::clone(&serving.site), address);
            serving.mmtp = Some(match comes_after {
                true => patiently(start, io::Error::kind, io::ErrorKind::AddrInUse)?,
                false => start()?,
            });
        }
        for _ in 0..count {
            let wake = WakeReceiver::new()?;
            serving.wakers.push(wake.waker());
            let worker = Worker::new(Arc::clone(&serving.site), socket.try_clone()?, wake, count)?;
            serving.threads.push(thread::Builder::new().name("http".into()).spawn(move || worker.run())?);
        }
        Ok(serving)
    }

    /// Returns the address that the server listens on.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the UDP address of mmTP, if the objects are offered by it.
    #[must_use]
    pub fn mmtp_address(&self) -> Option<SocketAddr> {
        self.mmtp.as_ref().map(ObjectServer::address)
    }

    /// Returns the image.
    #[must_use]
    pub fn image(&self) -> &Image {
        self.site.image()
    }
}

/// How often, and how long, a worker waits for what the one before it still has.
const PATIENCE_POLL: Duration = Duration::from_millis(2);
const PATIENCE_POLLS_MAX: u32 = 1_000;

/// Tries again as long as an error has the kind `busy`: a worker that is replaced may still be dying.
///
/// # Errors
/// The last error.
pub fn patiently<T, E, K: PartialEq>(
    mut attempt: impl FnMut() -> Result<T, E>,
    kind: impl Fn(&E) -> K,
    busy: K,
) -> Result<T, E> {
    for _ in 0..PATIENCE_POLLS_MAX {
        match attempt() {
            Err(error) if kind(&error) == busy => thread::sleep(PATIENCE_POLL),
            outcome => return outcome,
        }
    }
    attempt()
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.site.stop();
        self.mmtp = None;
        self.wakers.iter().for_each(Waker::wake);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        // The threads of fetches hold the image, which another process could not open meanwhile.
        for _ in 0..END_POLLS_MAX {
            if self.site.is_idle() {
                return;
            }
            thread::sleep(END_POLL);
        }
    }
}

impl fmt::Debug for Serving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Serving").field("address", &self.address).finish_non_exhaustive()
    }
}
