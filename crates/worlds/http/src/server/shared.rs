//! The state that all connections of a server share, and the server's counters.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use tokio::task::JoinHandle;

/// Counters since the server's start, and the number of open connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// The number of requests.
    pub requests: u64,
    /// The bytes sent, heads included.
    pub sent_bytes: u64,
    /// The requests that were refused, and the answers that were broken off, because bytes could not be read
    /// any more.
    pub unavailable: u64,
    /// The connections that were turned away because there were too many.
    pub turned_away: u64,
    /// The number of connections that are open now.
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

/// The state that all connections share.
pub(super) struct Shared<S> {
    pub(super) provider: S,
    pub(super) metrics: Arc<Metrics>,
    /// A body holds this lock from its reservation of the rate limit until the reserved bytes may be sent. So
    /// only one body has a reservation at a time, and all connections together count as one user of the rate
    /// limit.
    pub(super) rate_lock: tokio::sync::Mutex<()>,
}

impl<S: Send + Sync + 'static> Shared<S> {
    /// Calls the provider on a thread that may wait for a disk.
    ///
    /// # Panics
    /// If the call of the provider panics.
    pub(super) fn ask<T: Send + 'static>(
        self: &Arc<Self>,
        ask: impl FnOnce(&S) -> T + Send + 'static,
    ) -> Asked<T> {
        let shared = Arc::clone(self);
        Asked(tokio::task::spawn_blocking(move || ask(&shared.provider)))
    }
}

/// The future result of a call of the provider.
pub(super) struct Asked<T>(JoinHandle<T>);

impl<T> Future for Asked<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let answer = ready!(Pin::new(&mut self.0).poll(cx));
        Poll::Ready(answer.unwrap_or_else(|e| std::panic::resume_unwind(e.into_panic())))
    }
}

/// Counts a connection as open until it is dropped.
pub(super) struct ConnectionGuard(pub(super) Arc<Metrics>);

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}
