//! The daemon: one queue, its journal and its transfers, behind one lock.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use anabranch::{Client, SharedLimit};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use crate::day_limit::{self, DayLimit};
use crate::destination::Base;
use crate::engine::{Engine, Transfer, rate};
use crate::gid::Gid;
use crate::job::{Known, Options, Source};
use crate::journal::{Journal, OpenError, Ticket};
use crate::local_time;
use crate::options::value;
use crate::queue::{Effect, Notice, Outcome, Queue, Run};

/// The name of the queue's file in the directory of the daemon's own files.
const QUEUE_FILE: &str = "queue.redb";
/// The most notifications that a slow listener may be behind.
const NOTICES_MAX: usize = 4_096;
/// How often the time of day is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// What a daemon is started with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where downloads may go.
    pub base: Base,
    /// The directory of the daemon's own files, which must exist.
    pub state: PathBuf,
    /// The links that are used, perhaps with conditions (`wwan0:backup`); all if it is empty.
    pub via: Vec<String>,
    /// The directory for the counts of links with a cap.
    pub counts: Option<PathBuf>,
    /// The limits of all transfers together.
    pub limits: Vec<DayLimit>,
    /// The global options that differ from aria2's defaults.
    pub options: Options,
    /// Whether any certificate is believed.
    pub is_insecure: bool,
}

/// A running daemon. Clones are one daemon.
#[derive(Clone)]
pub struct Daemon(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    /// Signalled when a transfer has ended, or the end of the daemon is wanted.
    news: Condvar,
    journal: Journal,
    engine: Engine,
    limits: Vec<DayLimit>,
    notices: broadcast::Sender<(Notice, Gid)>,
    session: String,
}

/// What the lock guards.
pub struct State {
    /// The jobs.
    pub queue: Queue,
    /// The global options that differ from the defaults.
    pub options: Options,
    /// The transfers that have not ended, with their runs.
    transfers: BTreeMap<Gid, (Run, Arc<Transfer>)>,
    is_ending: bool,
}

impl State {
    /// Returns the transfer of an active job.
    #[must_use]
    pub fn transfer(&self, gid: Gid) -> Option<&Transfer> {
        self.transfers.get(&gid).map(|(_, transfer)| &**transfer)
    }
}

impl Daemon {
    /// Opens the queue and goes on with it.
    ///
    /// # Errors
    /// If the queue's file cannot be used, or the system has no threads left.
    pub fn start(settings: Settings) -> Result<Self, StartError> {
        let Settings { base, state, via, counts, limits, options, is_insecure } = settings;
        let (journal, jobs) = Journal::open(&state.join(QUEUE_FILE))?;
        let client = Client::new().map_err(|e| StartError::System(e.to_string()))?;
        let overall = SharedLimit::new(None);
        let engine = Engine { base, state, via, counts, overall, is_insecure, client };
        let queue = Queue::of(jobs);
        let state = State { queue, options: Options::new(), transfers: BTreeMap::new(), is_ending: false };
        let session = random_hex().map_err(|e| StartError::System(e.to_string()))?;
        let notices = broadcast::Sender::new(NOTICES_MAX);
        let (state, news) = (Mutex::new(state), Condvar::new());
        let new = Self(Arc::new(Inner { state, news, journal, engine, limits, notices, session }));
        new.0.set_limits();
        let watched = Arc::downgrade(&new.0);
        let clock = std::thread::Builder::new().name("limits".into()).spawn(move || watch_clock(&watched));
        clock.map_err(|e| StartError::System(format!("cannot start a thread: {e}")))?;
        new.set_options(options);
        Ok(new)
    }

    /// Shows the state to `look`.
    pub fn look<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.0.lock())
    }

    /// Changes the queue, and does what follows from that. The change is written when [`Daemon::written`]
    /// says so for the returned ticket.
    pub fn change<T>(&self, change: impl FnOnce(&mut Queue) -> T) -> (T, Ticket) {
        let mut state = self.0.lock();
        let result = change(&mut state.queue);
        let ticket = Inner::follow(&self.0, &mut state);
        (result, ticket)
    }

    /// Waits until a change is on the disk.
    ///
    /// # Errors
    /// If it cannot be written now; a sentence.
    pub async fn written(&self, ticket: Ticket) -> Result<(), String> {
        self.0.journal.wait(ticket).await
    }

    /// Sets global options, which have been checked.
    pub fn set_options(&self, options: Options) {
        let mut state = self.0.lock();
        state.options.extend(options);
        let number = |name| value(&state.options, name).and_then(|text| text.parse::<usize>().ok());
        let at_once = number("max-concurrent-downloads").and_then(std::num::NonZero::new);
        let results_max = number("max-download-result");
        if let Some(at_once) = at_once {
            state.queue.set_at_once(at_once);
        }
        if let Some(results_max) = results_max {
            state.queue.set_results_max(results_max);
        }
        Inner::follow(&self.0, &mut state);
        drop(state);
        self.0.set_limits();
    }

    /// Checks what a new job is to fetch.
    ///
    /// # Errors
    /// If it cannot be fetched; a sentence.
    pub fn check(&self, source: &Source) -> Result<(), String> {
        self.0.engine.check(source)
    }

    /// Returns where downloads may go.
    #[must_use]
    pub fn base(&self) -> &Base {
        &self.0.engine.base
    }

    /// Returns the identifier of this run of the daemon.
    #[must_use]
    pub fn session(&self) -> &str {
        &self.0.session
    }

    /// Returns a receiver of the notifications from now on.
    #[must_use]
    pub fn notices(&self) -> Notices {
        Notices(self.0.notices.subscribe())
    }

    /// Asks for the end of the daemon: [`Daemon::wait_for_end`] returns.
    pub fn ask_for_end(&self) {
        self.0.lock().is_ending = true;
        self.0.news.notify_all();
    }

    /// Waits until the end is asked for.
    pub fn wait_for_end(&self) {
        let mut state = self.0.lock();
        while !state.is_ending {
            state = self.0.news.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Stops all transfers and waits until they have kept what has arrived, at most `patience`.
    pub fn end(&self, patience: Duration) {
        let mut state = self.0.lock();
        state.is_ending = true;
        state.queue.end();
        Inner::follow(&self.0, &mut state);
        self.0.news.notify_all();
        let is_busy = |state: &mut State| state.queue.is_busy();
        drop(self.0.news.wait_timeout_while(state, patience, is_busy));
        self.0.journal.flush(patience);
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what the queue wants, and submits what has changed.
    fn follow(this: &Arc<Self>, state: &mut State) -> Ticket {
        loop {
            let effects = state.queue.take_effects();
            if effects.is_empty() {
                break;
            }
            for effect in effects {
                match effect {
                    Effect::Start(gid, run) => Self::start(this, state, gid, run),
                    Effect::Stop(run) => {
                        let of = state.transfers.values().find(|(other, _)| *other == run);
                        of.into_iter().for_each(|(_, transfer)| transfer.stop());
                    }
                    // No listener is no error.
                    Effect::Tell(notice, gid) => drop(this.notices.send((notice, gid))),
                }
            }
        }
        let changed = state.queue.take_changed();
        this.journal.submit(changed.into_iter().map(|gid| (gid, state.queue.job(gid))))
    }

    fn start(this: &Arc<Self>, state: &mut State, gid: Gid, run: Run) {
        let Some(job) = state.queue.job(gid).cloned() else { return };
        let known = job.known.clone();
        let own = Arc::clone(this);
        let ended = move |outcome, known| Self::ended(&own, run, outcome, known);
        match this.engine.start(job, ended) {
            Ok(transfer) => drop(state.transfers.insert(gid, (run, transfer))),
            Err(end) => state.queue.ended(run, Outcome::Failed(end), known),
        }
    }

    fn ended(this: &Arc<Self>, run: Run, outcome: Outcome, known: Known) {
        let mut state = this.lock();
        state.transfers.retain(|_, (of, _)| *of != run);
        state.queue.ended(run, outcome, known);
        Self::follow(this, &mut state);
        this.news.notify_all();
    }

    /// Sets the limit of all transfers together: the smaller one of the requested limit and the daily limit.
    fn set_limits(&self) {
        let asked = rate(value(&self.lock().options, "max-overall-download-limit"));
        let of_day = day_limit::at(&self.limits, local_time::minute_of_day());
        self.engine.overall.set([asked, of_day].into_iter().flatten().min());
    }
}

/// The notifications of a daemon. A listener that is too slow misses some.
#[derive(Debug)]
pub struct Notices(broadcast::Receiver<(Notice, Gid)>);

impl Notices {
    /// Returns the next one, in a task; `None` if the daemon is gone.
    pub async fn recv(&mut self) -> Option<(Notice, Gid)> {
        loop {
            match self.0.recv().await {
                Ok(notice) => return Some(notice),
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    }
}

/// Waits for the next one on a thread; ends when the daemon is gone.
impl Iterator for Notices {
    type Item = (Notice, Gid);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.0.blocking_recv() {
                Ok(notice) => return Some(notice),
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    }
}

/// Sets the limit of the time of day until the daemon ends.
fn watch_clock(daemon: &Weak<Inner>) {
    while let Some(inner) = daemon.upgrade() {
        if inner.limits.iter().all(|limit| !limit.is_of_a_time()) {
            return;
        }
        inner.set_limits();
        let state = inner.lock();
        let is_running = |state: &mut State| !state.is_ending;
        let (state, _) = inner
            .news
            .wait_timeout_while(state, LOOK_EVERY, is_running)
            .unwrap_or_else(PoisonError::into_inner);
        if state.is_ending {
            return;
        }
    }
}

/// Returns 40 random hexadecimal digits.
fn random_hex() -> io::Result<String> {
    let mut bytes = [0; 20];
    #[expect(clippy::disallowed_methods, reason = "aria2 has a random identifier for each run")]
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(data_encoding::HEXLOWER.encode(&bytes))
}

/// Why a daemon cannot start, as a sentence.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The queue cannot be opened.
    #[error(transparent)]
    Queue(#[from] OpenError),
    /// The system has no threads or descriptors left.
    #[error("{0}")]
    System(String),
}
