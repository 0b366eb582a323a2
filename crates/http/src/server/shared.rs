//! What all connections of a server share, and what is counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts since the start, and the number of open connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests.
    pub requests: u64,
    /// Bytes sent, heads included.
    pub sent_bytes: u64,
    /// Requests refused or answers broken off because bytes could not be read any more.
    pub unavailable: u64,
    /// Connections turned away because there were too many.
    pub turned_away: u64,
    /// Connections open now.
    pub connections: u64,
}

#[derive(Debug, Default)]
pub(super) struct Metrics {
    pub(super) requests: AtomicU64,
    pub(super) sent_bytes: AtomicU64,
    pub(super) unavailable: AtomicU64,
    pub(super) turned_away: AtomicU64,
    pub(super) connections: AtomicU64,
}

impl Metrics {
    pub(super) fn counters(&self) -> Counters {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counters {
            requests: of(&self.requests),
            sent_bytes: of(&self.sent_bytes),
            unavailable: of(&self.unavailable),
            turned_away: of(&self.turned_away),
            connections: of(&self.connections),
        }
    }
}

/// What all connections share.
pub(super) struct Shared<S> {
    pub(super) provider: S,
    pub(super) metrics: Arc<Metrics>,
    /// A body holds it while it waits for what it has reserved. So only one body has a reservation at a time,
    /// and all connections together count as one user of the rate limit.
    pub(super) rate_lock: tokio::sync::Mutex<()>,
}

/// Counts a connection as open until it is dropped.
pub(super) struct ConnectionGuard(pub(super) Arc<Metrics>);

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}
