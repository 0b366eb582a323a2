//! Shares threads and an HTTP runtime among many transfers.
//!
//! ```text
//! Get (of a client) ── start ──▶ queue ──▶ at most N workers, each runs one transfer at a time
//!                                               └─ HTTP of all of them ──▶ one Engine, one thread
//! ```
//!
//! A transfer is a loop that waits for its own sockets, so it needs a thread while it runs. Without a client
//! each started transfer needs two: its own, and one for its HTTP runtime. With a client, 30 transfers of
//! which 8 run at a time need 9 threads. Transfers share nothing else: neither names that were looked up, nor
//! connections, nor windows. Transfers in one process still compete for links as transfers of several
//! processes do.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::num::NonZero;
use std::sync::Arc;
use std::thread;

use anabranch_http::client::Engine;

use crate::monitor::Monitor;
use crate::{Error, Result};

/// The number of transfers of a client that run at a time, unless the caller sets another.
const AT_ONCE: NonZero<usize> = NonZero::new(8).unwrap();

/// Runs many transfers on few threads: see [`Get::client`](crate::Get::client). Clones are one client. The
/// threads end when the last clone and the last request that uses the client are dropped.
///
/// ```no_run
/// let client = anabranch::Client::new()?;
/// let urls = ["https://a.example/1", "https://a.example/2", "https://a.example/3"];
/// let start = |url| anabranch::Get::new([url])?.client(&client).to_directory(".").start();
/// let transfers = urls.into_iter().map(start).collect::<anabranch::Result<Vec<_>>>()?;
/// for transfer in transfers {
///     println!("{}", transfer.wait()?.target);
/// }
/// # Ok::<(), anabranch::Error>(())
/// ```
#[derive(Clone)]
pub struct Client(Arc<Shared>);

struct Shared {
    engine: Engine,
    workers: Arc<Workers>,
}

type Job = Box<dyn FnOnce() + Send>;
type Workers = Monitor<State>;

#[derive(Default)]
struct State {
    /// The largest number of workers.
    at_once: usize,
    workers: usize,
    /// The number of workers that wait for a job.
    idle: usize,
    jobs: VecDeque<Job>,
    /// Whether the client is dropped.
    is_over: bool,
}

impl Client {
    /// Makes a client that runs eight transfers at a time.
    ///
    /// # Errors
    /// [`ErrorKind::System`](crate::ErrorKind::System) if the system has no thread or descriptor left.
    pub fn new() -> Result<Self> {
        Self::at_once(AT_ONCE)
    }

    /// Makes a client that runs at most `transfers` transfers at a time; more transfers wait, in the order in
    /// which they were started. A [`Reader`](crate::Reader) counts until it has been read to its end or is
    /// dropped.
    ///
    /// # Errors
    /// [`ErrorKind::System`](crate::ErrorKind::System) if the system has no thread or descriptor left.
    pub fn at_once(transfers: NonZero<usize>) -> Result<Self> {
        let engine = Engine::start().map_err(|e| Error::system(e.to_string()).because(e))?;
        let workers = Arc::new(Workers::default());
        workers.lock().at_once = transfers.get();
        Ok(Self(Arc::new(Shared { engine, workers })))
    }

    pub(crate) fn engine(&self) -> Engine {
        self.0.engine.clone()
    }

    /// Runs `job` on a worker when its turn comes.
    ///
    /// # Errors
    /// If no worker exists yet and none can be started.
    pub(crate) fn run(&self, job: Job) -> io::Result<()> {
        let workers = &self.0.workers;
        let mut state = workers.lock();
        if state.idle <= state.jobs.len() && state.workers < state.at_once {
            let own = Arc::clone(workers);
            let started = thread::Builder::new().name("transfers".into()).spawn(move || work(&own));
            match started {
                Ok(_) => state.workers += 1,
                Err(error) if state.workers == 0 => return Err(error),
                // The other workers run the job.
                Err(_) => {}
            }
        }
        state.jobs.push_back(job);
        drop(state);
        workers.notify();
        Ok(())
    }
}

/// Runs jobs until the client is dropped.
fn work(workers: &Workers) {
    let mut state = workers.lock();
    loop {
        if let Some(job) = state.jobs.pop_front() {
            drop(state);
            // A transfer that panics is reported by its own handle.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
            state = workers.lock();
        } else if state.is_over {
            return;
        } else {
            state.idle += 1;
            state = workers.wait(state);
            state.idle -= 1;
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.workers.lock().is_over = true;
        self.workers.notify();
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}
