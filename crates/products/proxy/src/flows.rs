//! The connections of a role while they are there: what each has moved, for whoever looks, and whether it is
//! time to end it.
//!
//! Whoever moves bytes counts them and reads no clock for that. A sweep sees once a second
//! which counters stand still.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use anabranch_algo::{Span, Time};
use anabranch_net::Clock;
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::quota::Admitted;
use crate::trunk::Destination;

/// How long things may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// A program, or a client, may take so long to say who it is and what it wants.
    pub handshake: Duration,
    /// A connection on which nothing moves for so long is reset.
    pub idle: Duration,
    /// The same for one that one side has ended.
    pub half_closed: Duration,
}

/// Returns the user of something at the server: the client, or, without keys, its host.
pub(crate) fn user(client: Option<&str>, from: SocketAddr) -> String {
    client.map_or_else(|| from.ip().to_canonical().to_string(), str::to_owned)
}

impl Default for Timeouts {
    /// 30 s, an hour, ten minutes.
    fn default() -> Self {
        let minute = Duration::from_secs(60);
        Self { handshake: minute / 2, idle: minute * 60, half_closed: minute * 10 }
    }
}

/// Between two looks, at most and at least. A quarter of the shorter limit is exact enough.
const LOOK_MAX: Duration = Duration::from_secs(1);
const LOOK_MIN: Duration = Duration::from_millis(10);

/// From the connection to the stream.
const FROM_TCP: usize = 0;
/// From the stream to the connection.
const TO_TCP: usize = 1;

/// A connection, as others see it.
#[derive(Debug)]
pub(crate) struct Flow {
    /// The program, or the client's host.
    pub(crate) from: SocketAddr,
    /// The client's name, or the user's.
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
    /// It has a way to the other end: at the client a stream, at the server a connection to the origin.
    pub(crate) fn open(&self) {
        self.is_open.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    /// Bytes came from the connection. Returns when the next ones may be read.
    pub(crate) async fn count_from_tcp(&self, bytes: usize) {
        self.moved[FROM_TCP].fetch_add(bytes as u64, Ordering::Relaxed);
        self.admitted.rate().pay(FROM_TCP, bytes).await;
    }

    /// Bytes went to the connection. Returns when the next ones may.
    pub(crate) async fn count_to_tcp(&self, bytes: usize) {
        self.moved[TO_TCP].fetch_add(bytes as u64, Ordering::Relaxed);
        self.admitted.rate().pay(TO_TCP, bytes).await;
    }

    /// Bytes that moved from the connection, and towards it.
    pub(crate) fn moved(&self) -> [u64; 2] {
        [FROM_TCP, TO_TCP].map(|direction| self.moved[direction].load(Ordering::Relaxed))
    }

    /// The most that should be read from the connection at once.
    pub(crate) fn piece_from_tcp(&self) -> usize {
        self.admitted.rate().piece_bytes(FROM_TCP)
    }

    /// The most that should go to the connection at once.
    pub(crate) fn piece_to_tcp(&self) -> usize {
        self.admitted.rate().piece_bytes(TO_TCP)
    }

    /// One direction has ended.
    pub(crate) fn half_close(&self) {
        self.is_half_closed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_half_closed(&self) -> bool {
        self.is_half_closed.load(Ordering::Relaxed)
    }

    /// Returns when it has to end, and why.
    pub(crate) async fn ends_early(&self) -> Early {
        tokio::select! {
            () = self.late.notified() => Early::Idle,
            () = self.admitted.given_up() => Early::GaveWay,
        }
    }
}

/// Why a connection has to end before its ends want that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Early {
    /// Nothing has moved for too long.
    Idle,
    /// Another user gets its place.
    GaveWay,
}

#[derive(Debug)]
struct Entry {
    flow: Arc<Flow>,
    /// What was seen at the last look, and since when it is so.
    seen: ([u64; 2], bool),
    since: Time,
}

#[derive(Debug)]
struct State {
    timeouts: Timeouts,
    flows: BTreeMap<u64, Entry>,
    next: u64,
}

/// All connections. Clones are the same.
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

    /// One begins.
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

    /// How many there are, and those that have moved the most bytes, `most` of them, by their numbers; what
    /// the clock says.
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

    /// How many each user has, or each host where there are no names.
    pub(crate) fn by_user(&self) -> BTreeMap<String, u64> {
        let mut all = BTreeMap::new();
        for entry in self.lock().flows.values() {
            *all.entry(user(entry.flow.user.as_deref(), entry.flow.from)).or_default() += 1;
        }
        all
    }

    /// Others: they hold for the connections that are there too.
    pub(crate) fn set(&self, timeouts: Timeouts) {
        self.lock().timeouts = timeouts;
    }

    pub(crate) fn timeouts(&self) -> Timeouts {
        self.lock().timeouts
    }

    /// Ends those on which nothing moves; never ends itself.
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

/// A connection that is in the list until this is dropped.
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
