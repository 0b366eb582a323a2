//! What the two roles report, and how they are stopped.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anabranch_algo::Time;
use anabranch_net::Clock;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, watch};

use crate::relay::Ending;
use crate::trunk::{Destination, Reason, Transport};

/// Reports that may wait for a caller that is slow; more are dropped and counted.
const WAITING_MAX: usize = 4_096;
/// Connections that have ended which are remembered for whoever looks.
const REMEMBERED_MAX: usize = 50;

/// For whom an address takes connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// Programs that speak SOCKS or HTTP to a proxy.
    Programs,
    /// Programs that speak SOCKS5.
    Socks,
    /// Programs that speak HTTP to a proxy.
    Http,
    /// Programs whose connections the kernel redirects.
    Transparent,
    /// Clients.
    Trunks,
}

impl Door {
    /// Its name: `programs`, `socks`, `http`, `transparent`, `trunks`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Programs => "programs",
            Self::Socks => "socks",
            Self::Http => "http",
            Self::Transparent => "transparent",
            Self::Trunks => "trunks",
        }
    }
}

/// What a program speaks to its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// A connection.
    Tcp,
    /// Datagrams, maybe to several destinations.
    Udp,
}

/// A program's connection that has ended.
#[derive(Clone, Debug)]
pub struct Finished {
    /// What it was. Of datagrams all of a program are one; destination and origin are the first.
    pub protocol: Protocol,
    /// The program, or the client's host.
    pub from: SocketAddr,
    /// The client's name, at the server.
    pub client: Option<String>,
    /// Where to.
    pub destination: Destination,
    /// The origin's address, at the server.
    pub origin: Option<SocketAddr>,
    /// Bytes towards the origin.
    pub sent_bytes: u64,
    /// Bytes from the origin.
    pub received_bytes: u64,
    /// How long it lasted, in seconds.
    pub duration_s: f64,
    /// Why it ended, if not in order.
    pub reason: Option<Reason>,
    /// The same in words that say more, where there are some.
    pub why: Option<String>,
}

impl Finished {
    /// One that begins.
    pub(crate) fn begin(from: SocketAddr, client: Option<String>, destination: Destination) -> Self {
        let (sent_bytes, received_bytes, duration_s) = (0, 0, 0.0);
        let (origin, reason, why) = (None, None, None);
        let protocol = Protocol::Tcp;
        Self {
            protocol,
            from,
            client,
            destination,
            origin,
            sent_bytes,
            received_bytes,
            duration_s,
            reason,
            why,
        }
    }

    /// It ends now; `clock` was started as it began.
    pub(crate) fn end(&mut self, clock: Clock, end: Result<(), Ending>) {
        self.duration_s = clock.now().since(Time::ZERO).as_nanos() as f64 / 1e9;
        if let Err(Ending { reason, why }) = end {
            (self.reason, self.why) = (Some(reason), why);
        }
    }
}

/// Something that a user may want to know.
#[derive(Clone, Debug)]
pub enum Event {
    /// It takes connections there.
    Listening {
        /// For whom.
        door: Door,
        /// Where.
        address: SocketAddr,
    },
    /// A trunk is there.
    TrunkUp {
        /// The other end.
        peer: SocketAddr,
        /// The client's name, at the server.
        client: Option<String>,
        /// What this end sees of the connection.
        transport: Transport,
        /// Why it has one path only, if that is so: which end or path refused.
        note: Option<String>,
    },
    /// A trunk is gone.
    TrunkDown {
        /// The other end, if it was reached.
        peer: Option<SocketAddr>,
        /// The client's name, at the server.
        client: Option<String>,
        /// Why.
        why: String,
        /// Streams that were reset with it.
        lost_streams: u32,
    },
    /// A connection has ended.
    Finished(Finished),
    /// Something else, in words.
    Notice(String),
}

/// What a role did in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Connections that have ended.
    pub connections: u64,
    /// Of these, those that did not end in order.
    pub failed: u64,
    /// Bytes towards origins.
    pub sent_bytes: u64,
    /// Bytes from origins.
    pub received_bytes: u64,
    /// Reports that were dropped, since nobody took them.
    pub dropped_reports: u64,
    /// Connections of nobody who is known that the server has refused.
    #[serde(default)]
    pub refused: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    connections: AtomicU64,
    failed: AtomicU64,
    sent_bytes: AtomicU64,
    received_bytes: AtomicU64,
    dropped_reports: AtomicU64,
    refused: AtomicU64,
    /// The last of them.
    finished: Mutex<VecDeque<Finished>>,
}

impl Counters {
    /// Connections that have ended, the last one first.
    pub(crate) fn finished(&self) -> Vec<Finished> {
        self.finished.lock().unwrap_or_else(PoisonError::into_inner).iter().rev().cloned().collect()
    }

    fn remember(&self, finished: &Finished) {
        let mut all = self.finished.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= REMEMBERED_MAX {
            all.pop_front();
        }
        all.push_back(finished.clone());
    }

    pub(crate) fn totals(&self) -> Totals {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Totals {
            connections: of(&self.connections),
            failed: of(&self.failed),
            sent_bytes: of(&self.sent_bytes),
            received_bytes: of(&self.received_bytes),
            dropped_reports: of(&self.dropped_reports),
            refused: of(&self.refused),
        }
    }
}

/// Where the tasks of a role leave their reports.
#[derive(Clone, Debug)]
pub(crate) struct Reports {
    sender: mpsc::Sender<Event>,
    counters: Arc<Counters>,
}

impl Reports {
    pub(crate) fn new() -> (Self, mpsc::Receiver<Event>) {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        (Self { sender, counters: Arc::default() }, receiver)
    }

    /// Leaves a report. Never waits.
    pub(crate) fn put(&self, event: Event) {
        let add = |counter: &AtomicU64, n| _ = counter.fetch_add(n, Ordering::Relaxed);
        if let Event::Finished(finished) = &event {
            add(&self.counters.connections, 1);
            add(&self.counters.failed, u64::from(finished.reason.is_some()));
            add(&self.counters.sent_bytes, finished.sent_bytes);
            add(&self.counters.received_bytes, finished.received_bytes);
            self.counters.remember(finished);
        }
        if self.sender.try_send(event).is_err() {
            add(&self.counters.dropped_reports, 1);
        }
    }

    /// The server has refused a connection.
    pub(crate) fn count_refused(&self) {
        self.counters.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }
}

/// Ends a role, from any thread. Clones end the same.
#[derive(Clone, Debug)]
pub struct Stop {
    stopped: Arc<watch::Sender<bool>>,
}

impl Default for Stop {
    fn default() -> Self {
        Self { stopped: Arc::new(watch::Sender::new(false)) }
    }
}

impl Stop {
    /// Ends what runs with it.
    pub fn stop(&self) {
        self.stopped.send_replace(true);
    }

    /// Waits until it is used.
    pub(crate) async fn stopped(&self) {
        // It fails only if the sender is gone, which this holds.
        let _ = self.stopped.subscribe().wait_for(|stopped| *stopped).await;
    }
}
