//! The live connections of a role: the bytes that each has moved, for the status, and the end of idle ones.
//!
//! The tasks that move bytes only count them, without reading a clock. A sweep checks at least once a second
//! whose counters have not changed.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use anabranch_algo::{Span, Time};
use anabranch_net::Clock;
use anabranch_net::places::host_of;
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::quota::Admitted;
use crate::trunk::Destination;

/// The time-outs of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// The longest time that a program or a client may take to identify itself and send its request.
    pub handshake: Duration,
    /// The time after which a connection without traffic is reset.
    pub idle: Duration,
    /// The time after which a connection without traffic is reset if one side has ended it.
    pub half_closed: Duration,
}

/// Returns the name under which the server counts a connection: the client, or without keys its host, which
/// has all IPv6 addresses of a network of 64 bits.
pub(crate) fn user(client: Option<&str>, from: SocketAddr) -> String {
    client.map_or_else(|| host_of(from.ip()).to_string(), str::to_owned)
}

impl Default for Timeouts {
    /// Returns 30 s, one hour and ten minutes.
    fn default() -> Self {
        let minute = Duration::from_secs(60);
        Self { handshake: minute / 2, idle: minute * 60, half_closed: minute * 10 }
    }
}

/// The longest and shortest time between two sweeps. A quarter of the shorter time-out is exact enough.
const LOOK_MAX: Duration = Duration::from_secs(1);
const LOOK_MIN: Duration = Duration::from_millis(10);

/// The index of the direction from the connection to the stream.
const FROM_TCP: usize = 0;
/// The index of the direction from the stream to the connection.
const TO_TCP: usize = 1;

/// A live connection.
#[derive(Debug)]
pub(crate) struct Flow {
    /// The program's address at the client, the client's address at the server.
    pub(crate) from: SocketAddr,
    /// The client's name at the server, the user's name at the client.
    pub(crate) user: Option<String>,
    pub(crate) destination: Destination,
    /// The origin's address, once it is connected.
    pub(crate) origin: OnceLock<SocketAddr>,
    pub(crate) begun: Time,
    moved: [AtomicU64; 2],
    is_open: AtomicBool,
    is_half_closed: AtomicBool,
    late: Notify,
    admitted: Admitted,
}

impl Flow {
    /// Notes that the connection has a way to the other end: at the client a stream, at the server a
    /// connection to the origin.
    pub(crate) fn open(&self) {
        self.is_open.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    /// Counts bytes that came from the connection. Returns when the rate limit allows the next read.
    pub(crate) async fn count_from_tcp(&self, bytes: usize) {
        self.moved[FROM_TCP].fetch_add(bytes as u64, Ordering::Relaxed);
        self.admitted.rate().pay(FROM_TCP, bytes).await;
    }

    /// Counts bytes that went to the connection. Returns when the rate limit allows the next write.
    pub(crate) async fn count_to_tcp(&self, bytes: usize) {
        self.moved[TO_TCP].fetch_add(bytes as u64, Ordering::Relaxed);
        self.admitted.rate().pay(TO_TCP, bytes).await;
    }

    /// Returns the bytes that have moved from the connection and towards it.
    pub(crate) fn moved(&self) -> [u64; 2] {
        [FROM_TCP, TO_TCP].map(|direction| self.moved[direction].load(Ordering::Relaxed))
    }

    /// Returns the most bytes that should be read from the connection at once.
    pub(crate) fn piece_from_tcp(&self) -> usize {
        self.admitted.rate().piece_bytes(FROM_TCP)
    }

    /// Returns the most bytes that should be written to the connection at once.
    pub(crate) fn piece_to_tcp(&self) -> usize {
        self.admitted.rate().piece_bytes(TO_TCP)
    }

    /// Notes that one direction has ended.
    pub(crate) fn half_close(&self) {
        self.is_half_closed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_half_closed(&self) -> bool {
        self.is_half_closed.load(Ordering::Relaxed)
    }

    /// Waits until the connection has to end early, and returns the reason.
    pub(crate) async fn ends_early(&self) -> Early {
        tokio::select! {
            () = self.late.notified() => Early::Idle,
            () = self.admitted.given_up() => Early::GaveWay,
        }
    }
}

/// The reason why a role ends a connection before its two ends do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Early {
    /// No byte has moved for the idle time.
    Idle,
    /// The connection gives its place to another user.
    GaveWay,
}

#[derive(Debug)]
struct Entry {
    flow: Arc<Flow>,
    /// The counters and the half-closed flag at the last sweep, and the time since which they have not
    /// changed.
    seen: ([u64; 2], bool),
    since: Time,
}

#[derive(Debug)]
struct State {
    timeouts: Timeouts,
    flows: BTreeMap<u64, Entry>,
    next: u64,
}

/// The live connections of a role. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Flows {
    state: Arc<Mutex<State>>,
    clock: Clock,
}

impl Flows {
    pub(crate) fn new(timeouts: Timeouts) -> Self {
        let state = State { timeouts, flows: BTreeMap::new(), next: 1 };
        Self { state: Arc::new(Mutex::new(state)), clock: Clock::start() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection to the list.
    pub(crate) fn begin(
        &self,
        from: SocketAddr,
        user: Option<String>,
        destination: Destination,
        admitted: Admitted,
    ) -> Open {
        let begun = self.clock.now();
        let flow = Arc::new(Flow {
            from,
            user,
            destination,
            origin: OnceLock::new(),
            begun,
            moved: Default::default(),
            is_open: AtomicBool::new(false),
            is_half_closed: AtomicBool::new(false),
            late: Notify::new(),
            admitted,
        });
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        let entry = Entry { flow: Arc::clone(&flow), seen: Default::default(), since: begun };
        state.flows.insert(number, entry);
        drop(state);
        Open { flow, number, flows: self.clone() }
    }

    /// Returns the number of connections.
    pub(crate) fn count(&self) -> usize {
        self.lock().flows.len()
    }

    /// Returns the number of connections, the `most` of them with the most bytes, ordered by their numbers,
    /// and the present time.
    pub(crate) fn list(&self, most: usize) -> (usize, Vec<(u64, Arc<Flow>)>, Time) {
        let state = self.lock();
        let mut all: Vec<_> =
            state.flows.iter().map(|(number, entry)| (*number, Arc::clone(&entry.flow))).collect();
        drop(state);
        let count = all.len();
        if count > most {
            all.select_nth_unstable_by_key(most, |(_, flow)| {
                std::cmp::Reverse(flow.moved().iter().sum::<u64>())
            });
            all.truncate(most);
            all.sort_unstable_by_key(|(number, _)| *number);
        }
        (count, all, self.clock.now())
    }

    /// Returns the number of connections of each user, or of each host without names.
    pub(crate) fn by_user(&self) -> BTreeMap<String, u64> {
        let mut all = BTreeMap::new();
        for entry in self.lock().flows.values() {
            *all.entry(user(entry.flow.user.as_deref(), entry.flow.from)).or_default() += 1;
        }
        all
    }

    /// Replaces the time-outs, also for the live connections.
    pub(crate) fn set(&self, timeouts: Timeouts) {
        self.lock().timeouts = timeouts;
    }

    pub(crate) fn timeouts(&self) -> Timeouts {
        self.lock().timeouts
    }

    /// Ends idle connections. Never returns.
    pub(crate) async fn sweep(&self) {
        loop {
            let timeouts = self.timeouts();
            sleep((timeouts.idle.min(timeouts.half_closed) / 4).clamp(LOOK_MIN, LOOK_MAX)).await;
            self.look_for_late();
        }
    }

    fn look_for_late(&self) {
        let now = self.clock.now();
        let mut state = self.lock();
        let span =
            |duration: Duration| Span::from_nanos(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
        let limits = [span(state.timeouts.idle), span(state.timeouts.half_closed)];
        for entry in state.flows.values_mut() {
            let seen = (entry.flow.moved(), entry.flow.is_half_closed());
            if seen != entry.seen {
                (entry.seen, entry.since) = (seen, now);
                entry.flow.admitted.heard();
            } else if now.since(entry.since) >= limits[usize::from(seen.1)] {
                entry.flow.late.notify_one();
            }
        }
    }
}

/// Keeps a connection in the list until this is dropped.
#[derive(Debug)]
pub(crate) struct Open {
    flow: Arc<Flow>,
    number: u64,
    flows: Flows,
}

impl std::ops::Deref for Open {
    type Target = Flow;

    fn deref(&self) -> &Flow {
        &self.flow
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.flows.lock().flows.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_keys_all_addresses_of_an_ipv6_host_are_one_user() {
        let user = |from: &str| user(None, from.parse().unwrap());
        assert_eq!(user("[2001:db8:1:2::7]:99"), user("[2001:db8:1:2:ffff::1]:100"));
        assert_ne!(user("[2001:db8:1:2::7]:99"), user("[2001:db8:1:3::7]:99"));
        assert_eq!(user("[::ffff:192.0.2.7]:99"), "192.0.2.7");
    }
}
