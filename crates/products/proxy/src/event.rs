//! The reports of the two roles, and the handle that stops them.

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

/// The most reports that wait for a slow caller; more are dropped and counted.
const WAITING_MAX: usize = 4_096;
/// The most ended connections that are remembered for the status.
const REMEMBERED_MAX: usize = 50;

/// The kind of connections that an address takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// From programs that speak SOCKS or HTTP to a proxy.
    Programs,
    /// From programs that speak SOCKS5.
    Socks,
    /// From programs that speak HTTP to a proxy.
    Http,
    /// From programs whose connections the kernel redirects.
    Transparent,
    /// From clients.
    Trunks,
}

impl Door {
    /// Returns the name of this kind: `programs`, `socks`, `http`, `transparent` or `trunks`.
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

/// The protocol between a program and its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// A TCP connection.
    Tcp,
    /// UDP datagrams, perhaps to several destinations.
    Udp,
}

/// The report of a program's connection that has ended.
#[derive(Clone, Debug)]
pub struct Finished {
    /// The protocol. All datagrams of a program make one report, with the first destination and origin.
    pub protocol: Protocol,
    /// The program's address at the client, the client's address at the server.
    pub from: SocketAddr,
    /// The client's name at the server, the user's name at the client.
    pub client: Option<String>,
    /// The destination that the program asked for.
    pub destination: Destination,
    /// The origin's address. Only the server knows it.
    pub origin: Option<SocketAddr>,
    /// The number of bytes towards the origin.
    pub sent_bytes: u64,
    /// The number of bytes from the origin.
    pub received_bytes: u64,
    /// The duration in seconds.
    pub duration_s: f64,
    /// The reason for the end; `None` after an orderly end.
    pub reason: Option<Reason>,
    /// A description of the reason, if there is more to say than the reason itself.
    pub why: Option<String>,
}

impl Finished {
    /// Begins the report of a connection.
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

    /// Completes the report now. `clock` was started when the connection began.
    pub(crate) fn end(&mut self, clock: Clock, end: Result<(), Ending>) {
        self.duration_s = clock.now().since(Time::ZERO).as_nanos() as f64 / 1e9;
        if let Err(Ending { reason, why }) = end {
            (self.reason, self.why) = (Some(reason), why);
        }
    }
}

/// An event that a user may want to know about.
#[derive(Clone, Debug)]
pub enum Event {
    /// The role takes connections at an address.
    Listening {
        /// The kind of connections.
        door: Door,
        /// The address.
        address: SocketAddr,
    },
    /// A trunk is established.
    TrunkUp {
        /// The address of the other end.
        peer: SocketAddr,
        /// The client's name, at the server.
        client: Option<String>,
        /// The transport as this end sees it.
        transport: Transport,
        /// Which end or path refused several paths, if the trunk has only one.
        note: Option<String>,
    },
    /// A trunk has ended.
    TrunkDown {
        /// The address of the other end, if it was reached.
        peer: Option<SocketAddr>,
        /// The client's name, at the server.
        client: Option<String>,
        /// The reason.
        why: String,
        /// The number of streams that were reset with the trunk.
        lost_streams: u32,
    },
    /// A program's connection has ended.
    Finished(Finished),
    /// Another event, as a sentence.
    Notice(String),
}

/// The sums over the life of a role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// The number of connections that have ended.
    pub connections: u64,
    /// How many of `connections` did not end in order.
    pub failed: u64,
    /// The number of bytes towards origins.
    pub sent_bytes: u64,
    /// The number of bytes from origins.
    pub received_bytes: u64,
    /// The number of reports that were dropped because the caller did not take them in time.
    pub dropped_reports: u64,
    /// The number of unauthenticated connections that the server has refused.
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
    /// The latest ended connections, the oldest first.
    finished: Mutex<VecDeque<Finished>>,
}

impl Counters {
    /// Returns the latest ended connections, the newest first.
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

/// Takes the reports of a role's tasks.
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

    /// Passes on and counts a report. Never waits.
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

    /// Counts a connection that the server has refused.
    pub(crate) fn count_refused(&self) {
        self.counters.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }
}

/// Ends a role from any thread. Clones end the same role.
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
    /// Ends the role.
    pub fn stop(&self) {
        self.stopped.send_replace(true);
    }

    /// Waits until the role is to end.
    pub(crate) async fn stopped(&self) {
        // `wait_for` fails only if the sender is gone, and `self` holds the sender.
        let _ = self.stopped.subscribe().wait_for(|stopped| *stopped).await;
    }
}
