//! Keeps the state of a domain's rendezvous in a Redis or Valkey server that they share.
//!
//! A thread has the connection. It sends all queries together that have come in the meantime, so that many
//! wait for one round trip. While the server cannot be reached, each query fails at once, no query waits
//! longer than a few seconds, and the thread tries to reconnect.

mod address;
mod connection;
mod failure;
mod store;

use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use anabranch_algo::{Span, Time};
use anabranch_net::{Clock, WakeReceiver, Waker};
use anabranch_overlay::rendezvous::shared::{Query, Told};
use serde::Serialize;

pub use address::{StateAt, StateServer};
use anabranch::{Error, Result};
use failure::Failure;
use store::{LeftAlone, Store};

/// The most queries that are sent together; an answer has up to 256 records.
const BATCH_MAX: usize = 256;
/// The time after which an idle thread asks whether the server is there.
const PING_EVERY: Duration = Duration::from_secs(1);
/// The pause after the server was lost. It doubles each time,
const BACKOFF: Span = Span::from_millis(100);
/// up to this.
const BACKOFF_MAX: Span = Span::from_secs(2);

/// The statistics of a rendezvous that keeps its state in a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SharedStateStats {
    /// Whether the server answers.
    pub answers: bool,
    /// The number of times that the server was lost.
    pub outages: u64,
    /// The number of messages without an answer, because the server did not answer in time.
    pub unanswered: u64,
    /// The number of entries that were rejected, because they are malformed or their signature is not valid.
    pub unbelieved: u64,
    /// The number of publications that were tried again, because another process had changed the entries on
    /// which they depend.
    pub conflicts: u64,
    /// The number of round trips to the server.
    pub round_trips: u64,
}

/// A report of the thread.
enum Report {
    /// Answers, and the number of round trips that they took.
    Told(Vec<(u64, Told)>, u64),
    /// The server is lost, for this reason.
    Lost(String),
    /// The server answers again, after this time.
    Back(Span),
}

/// The connection to the server for the loop of a rendezvous.
pub(super) struct Link {
    queries: Sender<Query>,
    reports: Receiver<Report>,
    wake: WakeReceiver,
    shown: String,
    stats: SharedStateStats,
}

impl Link {
    /// Connects to a server. Also returns a message for people.
    ///
    /// # Errors
    /// [`ErrorKind::Unreachable`](anabranch::ErrorKind::Unreachable) if the server does not answer,
    /// [`ErrorKind::Usage`](anabranch::ErrorKind::Usage) if it cannot be used,
    /// [`ErrorKind::System`](anabranch::ErrorKind::System) if the system has no descriptors or threads left.
    pub(super) fn open(server: &StateServer, domain: &str) -> Result<(Self, String)> {
        let clock = Clock::start();
        let connect = || {
            let mut store = Store::connect(server, domain)?;
            let about = store.describe()?;
            Ok((store, about))
        };
        let (store, about) = connect().map_err(|failure: Failure| failure.error(server))?;
        let wake = WakeReceiver::new()
            .map_err(|e| Error::system(format!("the system has no descriptors left: {e}")).because(e))?;
        let (queries, asked) = channel();
        let (told, reports) = channel();
        let worker = Worker {
            server: server.clone(),
            domain: domain.to_owned(),
            asked,
            told,
            waker: wake.waker(),
            clock,
            lost_at: None,
            backoff: BACKOFF,
            left_alone: LeftAlone::default(),
        };
        // The thread ends by itself when this is dropped; dropping does not wait for an exchange that hangs.
        std::thread::Builder::new()
            .name("state".into())
            .spawn(move || worker.run(store))
            .map_err(|e| Error::system(format!("cannot start a thread: {e}")).because(e))?;
        let stats = SharedStateStats { answers: true, ..SharedStateStats::default() };
        let text = format!("keeps publications in {server}{about}");
        Ok((Self { queries, reports, wake, shown: server.to_string(), stats }, text))
    }

    /// Returns the descriptor that can be read when the server has answered.
    pub(super) fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    pub(super) fn ask(&self, query: Query) {
        // The thread ends only after this is dropped, so sending does not fail.
        let _ = self.queries.send(query);
    }

    /// Returns the server's answers since the last call, and appends messages for people to `notices`.
    pub(super) fn told(&mut self, notices: &mut Vec<String>) -> Vec<(u64, Told)> {
        self.wake.drain();
        let mut all = Vec::new();
        while let Ok(report) = self.reports.try_recv() {
            match report {
                Report::Told(told, round_trips) => {
                    all.extend(told);
                    self.stats.round_trips += round_trips;
                }
                Report::Lost(why) => {
                    self.stats.answers = false;
                    self.stats.outages += 1;
                    notices.push(format!(
                        "the state {} {why}. Until it is back no publication is taken and nobody who asks is \
                         answered",
                        self.shown
                    ));
                }
                Report::Back(after) => {
                    self.stats.answers = true;
                    let seconds = anabranch::text::seconds(after);
                    notices.push(format!("the state {} is back after {seconds:.1} s", self.shown));
                }
            }
        }
        all
    }

    /// Returns the statistics, without those that the machine counts.
    pub(super) const fn stats(&self) -> &SharedStateStats {
        &self.stats
    }
}

/// The state of the thread.
struct Worker {
    server: StateServer,
    domain: String,
    asked: Receiver<Query>,
    told: Sender<Report>,
    waker: Waker,
    clock: Clock,
    /// Since when the server is lost.
    lost_at: Option<Time>,
    backoff: Span,
    /// The tables that are too long to be read.
    left_alone: LeftAlone,
}

/// The error that the other side of the channels is gone.
struct Gone;

impl Worker {
    fn run(mut self, store: Store) {
        let mut store = Some(store);
        loop {
            let next = match store {
                Some(store) => self.serve(store),
                None => self.reconnect(),
            };
            store = match next {
                Ok(next) => next,
                Err(Gone) => return,
            };
        }
    }

    fn report(&self, report: Report) {
        let _ = self.told.send(report);
        self.waker.wake();
    }

    /// Runs the queries, or asks whether the server is there. Returns `None` if it is lost.
    fn serve(&mut self, mut store: Store) -> std::result::Result<Option<Store>, Gone> {
        let mut batch = match self.asked.recv_timeout(PING_EVERY) {
            Ok(query) => vec![query],
            Err(RecvTimeoutError::Timeout) => Vec::new(),
            Err(RecvTimeoutError::Disconnected) => return Err(Gone),
        };
        if !batch.is_empty() {
            batch.extend(self.asked.try_iter().take(BATCH_MAX - 1));
        }
        let (before, now) = (store.round_trips, self.clock.now());
        let done = if batch.is_empty() {
            store.ping().map(|()| Vec::new())
        } else {
            store.run(&batch, &self.left_alone, now)
        };
        let ids = batch.iter().map(|query| query.id);
        match done {
            Ok(told) => {
                if let Some(lost_at) = self.lost_at.take() {
                    self.report(Report::Back(self.clock.now().since(lost_at)));
                }
                self.backoff = BACKOFF;
                self.report(Report::Told(ids.zip(told).collect(), store.round_trips - before));
                Ok(Some(store))
            }
            Err(failure) => {
                if let Some(key) = failure.too_long {
                    self.left_alone.note(self.clock.now(), key);
                }
                if self.lost_at.is_none() {
                    self.lost_at = Some(self.clock.now());
                    self.report(Report::Lost(failure.text));
                }
                self.report(Report::Told(ids.map(|id| (id, Told::Failed)).collect(), 0));
                Ok(None)
            }
        }
    }

    /// Waits while all queries fail, and tries to reconnect.
    fn reconnect(&mut self) -> std::result::Result<Option<Store>, Gone> {
        let until = self.clock.now() + self.backoff;
        self.backoff = self.backoff.times(2).min(BACKOFF_MAX);
        loop {
            let now = self.clock.now();
            if now >= until {
                return Ok(Store::connect(&self.server, &self.domain).ok());
            }
            match self.asked.recv_timeout(Duration::from_nanos(until.since(now).as_nanos())) {
                Ok(query) => self.report(Report::Told(vec![(query.id, Told::Failed)], 0)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(Gone),
            }
        }
    }
}
