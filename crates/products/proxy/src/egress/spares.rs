//! Spare connections, established before they are needed. A request to a busy origin then costs one round
//! trip to it, not two.
//!
//! [`Demand`] decides which origins get them: an origin that had [`BUSY`] new connections within [`WINDOW`]
//! has [`EACH_MAX`] spare ones. Only connections count that took long enough and whose first bytes can be
//! repeated, and only such connections use a spare one. So no origin that speaks first gets a spare
//! connection, and a spare one that turns out to be closed costs a second attempt, not an error. A spare
//! connection is closed after [`AGE`], which is less than servers wait for a request.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anabranch_algo::{Span, Time};
use anabranch_net::Clock;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// The number of connections within [`WINDOW`] that makes an origin busy.
const BUSY: u32 = 4;
const WINDOW: Span = Span::from_secs(10);
/// The most spare connections to one origin.
const EACH_MAX: usize = 2;
/// The most origins whose demand is remembered.
const ORIGINS_MAX: usize = 1_024;
/// The time after which an unused spare connection is closed.
const AGE: Duration = Duration::from_secs(4);
/// The time to wait for the first answer on a spare connection. After that it counts as alive, because a
/// closed connection shows an error after one round trip.
const ANSWER_WAIT: Duration = Duration::from_secs(1);

/// Counts connections to decide which origins are busy.
#[derive(Debug, Default)]
struct Demand {
    /// For each origin: the start of its window, and its connections in this window and in the one before.
    origins: BTreeMap<SocketAddr, (Time, u32, u32)>,
}

impl Demand {
    /// Counts a connection to `origin`. Returns whether the origin should have spare connections.
    fn note(&mut self, now: Time, origin: SocketAddr) -> bool {
        if self.origins.len() >= ORIGINS_MAX && !self.origins.contains_key(&origin) {
            self.origins.retain(|_, (began, ..)| now.since(*began) < WINDOW);
            if self.origins.len() >= ORIGINS_MAX {
                return false;
            }
        }
        let (began, current, before) = self.origins.entry(origin).or_insert((now, 0, 0));
        let age = now.since(*began);
        if age >= WINDOW {
            *before = if age < WINDOW.times(2) { *current } else { 0 };
            (*began, *current) = (now, 0);
        }
        *current = current.saturating_add(1);
        *current >= BUSY || *before >= BUSY
    }
}

#[derive(Debug, Default)]
struct State {
    demand: Demand,
    /// The waiting connections of each origin, the oldest first, each with a number.
    waiting: BTreeMap<SocketAddr, Vec<(u64, TcpStream)>>,
    /// For each origin, the number of connections that wait or are being opened.
    held: BTreeMap<SocketAddr, usize>,
    held_in_all: usize,
    last: u64,
}

impl State {
    fn let_go(&mut self, origin: SocketAddr) {
        self.held_in_all = self.held_in_all.saturating_sub(1);
        if let Some(held) = self.held.get_mut(&origin) {
            *held = held.saturating_sub(1);
            if *held == 0 {
                self.held.remove(&origin);
            }
        }
    }

    fn remove(&mut self, origin: SocketAddr, which: impl Fn(u64) -> bool) -> Option<TcpStream> {
        let waiting = self.waiting.get_mut(&origin)?;
        let place = waiting.iter().position(|(number, _)| which(*number));
        let found = place.map(|place| waiting.remove(place).1);
        if waiting.is_empty() {
            self.waiting.remove(&origin);
        }
        if found.is_some() {
            self.let_go(origin);
        }
        found
    }
}

/// The spare connections of a server. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Spares {
    state: Arc<Mutex<State>>,
    clock: Clock,
}

impl Default for Spares {
    fn default() -> Self {
        Self { state: Arc::default(), clock: Clock::start() }
    }
}

impl Spares {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a spare connection that is alive, with `first` sent on it, if there is one.
    pub(super) async fn take(&self, origin: SocketAddr, first: &[u8]) -> Option<TcpStream> {
        loop {
            // The oldest connection has the least time left, so it is used first.
            let stream = self.lock().remove(origin, |_| true)?;
            // The connection must be open and silent: an origin that speaks first gets no spare connection.
            let is_silent =
                stream.try_read(&mut [0]).is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock);
            if !is_silent || stream.try_write(first).ok() != Some(first.len()) {
                continue;
            }
            match timeout(ANSWER_WAIT, stream.peek(&mut [0])).await {
                Ok(Ok(0) | Err(_)) => {}
                Ok(Ok(_)) | Err(_) => return Some(stream),
            }
        }
    }

    /// Counts a connection to an origin, and opens a spare one if the origin is busy and has fewer than
    /// [`EACH_MAX`]. All origins together have at most `all_max`.
    pub(super) fn note<C>(&self, origin: SocketAddr, all_max: usize, connect: impl FnOnce() -> C)
    where
        C: Future<Output = std::io::Result<TcpStream>> + Send + 'static,
    {
        {
            let mut state = self.lock();
            if !state.demand.note(self.clock.now(), origin) || state.held_in_all >= all_max {
                return;
            }
            let held = state.held.entry(origin).or_default();
            if *held >= EACH_MAX {
                return;
            }
            *held += 1;
            state.held_in_all += 1;
        }
        let (spares, connecting) = (self.clone(), connect());
        tokio::spawn(async move {
            let Ok(stream) = connecting.await else {
                return spares.lock().let_go(origin);
            };
            let number = {
                let mut state = spares.lock();
                state.last += 1;
                let number = state.last;
                state.waiting.entry(origin).or_default().push((number, stream));
                number
            };
            sleep(AGE).await;
            drop(spares.lock().remove(origin, |of| of == number));
        });
    }

    /// Returns the number of spare connections that wait for this origin.
    #[cfg(test)]
    pub(super) fn waiting(&self, origin: SocketAddr) -> usize {
        self.lock().waiting.get(&origin).map_or(0, Vec::len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_busy_after_some_connections_and_as_long_as_they_come() {
        let mut demand = Demand::default();
        let origin: SocketAddr = "192.0.2.1:443".parse().unwrap();
        let at = |secs| Time::ZERO + Span::from_secs(secs);
        assert_eq!(
            [0, 1, 2, 3, 4].map(|secs| demand.note(at(secs), origin)),
            [false, false, false, true, true]
        );
        assert!(demand.note(at(12), origin), "it was busy in the window before");
        assert!(!demand.note(at(60), origin), "that was long ago");
        // An origin with one connection a minute is never busy.
        assert!((2..20).all(|minute| !demand.note(at(60 * minute), origin)));
    }

    #[test]
    fn no_more_origins_are_remembered_than_the_limit() {
        let mut demand = Demand::default();
        let origin = |n: usize| SocketAddr::from(([10, 0, (n >> 8) as u8, n as u8], 80));
        assert!((0..2 * ORIGINS_MAX).all(|n| !demand.note(Time::ZERO, origin(n))));
        assert_eq!(demand.origins.len(), ORIGINS_MAX);
        demand.note(Time::ZERO + WINDOW, origin(2 * ORIGINS_MAX));
        assert_eq!(demand.origins.len(), 1, "the old ones make room");
    }
}
