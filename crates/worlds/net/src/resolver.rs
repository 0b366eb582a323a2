//! Looks up the addresses of names, each name once: [`Resolver`].
//!
//! During a transfer, the addresses that were found stay known. A program that runs for days limits [how long
//! and how many](Resolver::bounded) names are known.
//!
//! The system's resolver cannot be interrupted, so it runs on threads while the callers go on. Clients
//! ([`Resolver::of`]) [share](anabranch_algo::fair_share) the threads and the number of names that are being
//! looked up. Their names are taken in turn, and a thread is left for a client that comes later, since a name
//! whose servers do not answer holds a thread for many seconds. A name that no caller waits for any more
//! leaves the queue.

use std::collections::BTreeMap;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;

use anabranch_algo::fair_share::{FairShare, Place, Turns, Yields};
use anabranch_algo::{Span, Time};

use crate::Clock;

/// The largest number of names that are looked up at once, each by a separate thread.
const THREADS_MAX: u64 = 64;

/// A function that finds the addresses of a name; the ports of its result do not count.
type LookUp = dyn Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// Describes the state of a name.
enum Entry {
    /// The name is being looked up.
    Asked(Asked),
    Known {
        found: Vec<SocketAddr>,
        is_distrusted: bool,
        since: Time,
    },
    Failed {
        kind: io::ErrorKind,
        why: String,
        since: Time,
    },
}

impl Entry {
    /// Returns the time at which the name's look-up ended, if it has ended.
    fn since(&self) -> Option<Time> {
        match self {
            Self::Asked(_) => None,
            Self::Known { since, .. } | Self::Failed { since, .. } => Some(*since),
        }
    }
}

/// Describes a name that is being looked up.
struct Asked {
    /// The tasks to wake when the look-up ends.
    wakers: Vec<Waker>,
    /// The addresses known from an earlier look-up.
    before: Vec<SocketAddr>,
    /// The clients in whose queues the name is; empty once a thread has taken the name.
    queues: Vec<Client>,
    /// The number of callers that wait for the name in [`Resolver::resolve`]. Callers of [`Resolver::poll`]
    /// may come back, so `is_polled` records only that one has called.
    waiting: usize,
    is_polled: bool,
    /// The name's place among the names that may be looked up at once.
    place: Place,
}

/// The client for which a name is looked up.
type Client = Arc<str>;

struct State {
    names: BTreeMap<String, Entry>,
    /// Names that no thread has taken yet.
    queue: Turns<Client, String>,
    /// The places of the names that are being looked up.
    asked: FairShare<Client>,
    threads: FairShare<Client>,
}

impl State {
    fn new(names_max: u64) -> Self {
        let (asked, threads) = (FairShare::new(names_max), FairShare::new(THREADS_MAX));
        Self { names: BTreeMap::new(), queue: Turns::new(usize::MAX), asked, threads }
    }

    /// Takes the next name from the queue, with a place for the thread that looks it up. Returns `None` if no
    /// name waits or no thread may take one now.
    fn next(&mut self, now: Time) -> Option<(String, Place)> {
        let Self { queue, threads, .. } = self;
        let mut place = None;
        let (_, name) = queue.next(|client| {
            place = threads.ask(now, Arc::clone(client), Yields::Never).ok().map(|(place, _)| place);
            place.is_some()
        })?;
        let place = place?;
        // No queue holds the name any more.
        if let Some(Entry::Asked(asked)) = self.names.get_mut(&name) {
            for client in std::mem::take(&mut asked.queues) {
                self.queue.remove(&client, |queued| *queued == name);
            }
        }
        Some((name, place))
    }

    /// Records that one caller no longer waits for `host`. Once no caller needs the name, it leaves the
    /// queue, unless a thread has taken it.
    fn leave(&mut self, host: &str) {
        let Some(Entry::Asked(asked)) = self.names.get_mut(host) else { return };
        asked.waiting = asked.waiting.saturating_sub(1);
        if asked.waiting > 0 || asked.is_polled || asked.queues.is_empty() {
            return;
        }
        let Some(Entry::Asked(asked)) = self.names.remove(host) else { return };
        self.asked.release(asked.place);
        for client in asked.queues {
            self.queue.remove(&client, |queued| queued == host);
        }
        if !asked.before.is_empty() {
            let (found, since) = (asked.before, Time::ZERO);
            self.names.insert(host.to_owned(), Entry::Known { found, is_distrusted: true, since });
        }
    }
}

/// Finds the addresses of names. Clones share their results: a name is looked up once for all of them. When a
/// resolver is dropped, the threads that still wait for an answer stay behind.
#[derive(Clone)]
pub struct Resolver {
    look_up: Arc<LookUp>,
    state: Arc<Mutex<State>>,
    /// The client for which this clone looks names up.
    client: Client,
    clock: Clock,
    /// The time for which an answer or a failure is believed; `None` means for ever.
    age_max: Option<Span>,
    names_max: usize,
}

impl Default for Resolver {
    fn default() -> Self {
        Self::new(|host| (host, 0).to_socket_addrs().map(Iterator::collect))
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver").finish_non_exhaustive()
    }
}

impl Resolver {
    /// Creates a resolver that calls `look_up` on separate threads. [`Resolver::default`] asks the system.
    pub fn new(look_up: impl Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static) -> Self {
        let state = Arc::new(Mutex::new(State::new(u64::MAX)));
        let (clock, client, names_max) = (Clock::start(), Client::from(""), usize::MAX);
        Self { look_up: Arc::new(look_up), state, client, clock, age_max: None, names_max }
    }

    /// Returns a resolver without results and with limits. It believes an answer or a failure for `age_max`
    /// only, and keeps `names_max` names: when there are more, it forgets the oldest. If too many names are
    /// being looked up, in all or for one [client](Self::of), a request for another name is an error of the
    /// kind `WouldBlock`.
    #[must_use]
    pub fn bounded(self, age_max: Span, names_max: usize) -> Self {
        let names_max = names_max.max(1);
        let state = Arc::new(Mutex::new(State::new(names_max as u64)));
        Self { state, age_max: Some(age_max), names_max, ..self }
    }

    /// Returns a resolver that calls the same function and has no results yet.
    #[must_use]
    pub fn anew(&self) -> Self {
        let state = Arc::new(Mutex::new(State::new(self.names_max as u64)));
        Self { state, ..self.clone() }
    }

    /// Returns a resolver for the names that `client` wants. It shares all results, and takes turns with the
    /// other clients.
    #[must_use]
    pub fn of(&self, client: &str) -> Self {
        Self { client: client.into(), ..self.clone() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether an answer or a failure is too old to be believed.
    fn is_old(&self, entry: &Entry) -> bool {
        let since = entry.since().zip(self.age_max);
        since.is_some_and(|(since, age_max)| self.clock.now().since(since) >= age_max)
    }

    /// Returns the addresses of `host`, with port 0, once they are known; `cx` is woken when they are.
    /// Addresses that were found stay known, also while the name is looked up again. A failure stays known
    /// until [`forget_failures`](Self::forget_failures). Neither is known for longer than the limit of
    /// [`bounded`](Self::bounded).
    pub fn poll(&self, host: &str, cx: &mut Context<'_>) -> Poll<io::Result<Vec<SocketAddr>>> {
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Poll::Ready(Ok(vec![SocketAddr::new(ip, 0)]));
        }
        let mut state = self.state();
        if state.names.get(host).is_some_and(|entry| self.is_old(entry)) {
            state.names.remove(host);
        }
        match state.names.get_mut(host) {
            Some(Entry::Asked(asked)) if !asked.before.is_empty() => {
                return Poll::Ready(Ok(asked.before.clone()));
            }
            Some(Entry::Asked(asked)) => asked.wake(cx.waker()),
            Some(Entry::Known { found, .. }) => return Poll::Ready(Ok(found.clone())),
            Some(Entry::Failed { kind, why, .. }) => {
                return Poll::Ready(Err(io::Error::new(*kind, why.clone())));
            }
            None => match self.ask(&mut state, host, Vec::new()) {
                Ok(asked) => asked.wake(cx.waker()),
                Err(e) => return Poll::Ready(Err(e)),
            },
        }
        if let Some(Entry::Asked(asked)) = state.names.get_mut(host) {
            asked.is_polled = true;
        }
        Poll::Pending
    }

    /// Makes room for one more name: forgets names that are too old, then the oldest.
    fn make_room(&self, state: &mut State) -> io::Result<()> {
        if state.names.len() < self.names_max {
            return Ok(());
        }
        state.names.retain(|_, entry| !self.is_old(entry));
        while state.names.len() >= self.names_max {
            let known = state.names.iter().filter_map(|(name, entry)| Some((entry.since()?, name)));
            let Some(oldest) = known.min().map(|(_, name)| name.clone()) else {
                return Err(io::Error::new(io::ErrorKind::WouldBlock, "too many names are being looked up"));
            };
            state.names.remove(&oldest);
        }
        Ok(())
    }

    /// Puts a name into the queue, and starts a thread for it if one more is allowed.
    fn ask<'a>(
        &self,
        state: &'a mut State,
        host: &str,
        before: Vec<SocketAddr>,
    ) -> io::Result<&'a mut Asked> {
        if !state.names.contains_key(host) {
            self.make_room(state)?;
        }
        let full = || io::Error::new(io::ErrorKind::WouldBlock, "too many names are being looked up");
        let asked = state.asked.ask(self.clock.now(), Arc::clone(&self.client), Yields::Never);
        let (place, _) = asked.map_err(|_| full())?;
        let (wakers, queues) = (Vec::new(), Vec::new());
        let asked = Asked { wakers, before, queues, waiting: 0, is_polled: false, place };
        state.names.insert(host.to_owned(), Entry::Asked(asked));
        self.queue(state, host);
        match state.names.get_mut(host) {
            Some(Entry::Asked(asked)) => Ok(asked),
            Some(Entry::Failed { kind, why, .. }) => Err(io::Error::new(*kind, why.clone())),
            _ => Err(full()),
        }
    }

    /// Puts a name also into the queue of this client, and starts a thread if one more is allowed.
    fn queue(&self, state: &mut State, host: &str) {
        // A client's queue needs no separate limit, because the number of names that are being looked up is
        // limited.
        let _ = state.queue.push(Arc::clone(&self.client), host.to_owned());
        if let Some(Entry::Asked(asked)) = state.names.get_mut(host) {
            asked.queues.push(Arc::clone(&self.client));
        }
        let Some((name, place)) = state.next(self.clock.now()) else { return };
        let (this, first) = (self.clone(), name.clone());
        if let Err(e) = thread::Builder::new().name("resolver".into()).spawn(move || this.work(first, place))
        {
            state.threads.release(place);
            self.answered(state, name, Err(e)).into_iter().for_each(Waker::wake);
        }
    }

    /// Looks up names until no name is left that this thread may take.
    fn work(&self, mut name: String, mut place: Place) {
        loop {
            // Callers that wait for the name must get an answer even if the caller's function panics.
            let answer = catch_unwind(AssertUnwindSafe(|| (self.look_up)(&name)))
                .unwrap_or_else(|_| Err(io::Error::other("the look-up panicked")));
            let mut state = self.state();
            state.threads.release(place);
            let wakers = self.answered(&mut state, name, answer);
            let next = state.next(self.clock.now());
            drop(state);
            wakers.into_iter().for_each(Waker::wake);
            match next {
                Some(next) => (name, place) = next,
                None => return,
            }
        }
    }

    /// Records the result of a look-up. Returns the tasks to wake.
    fn answered(&self, state: &mut State, name: String, answer: io::Result<Vec<SocketAddr>>) -> Vec<Waker> {
        let Some(Entry::Asked(asked)) = state.names.remove(&name) else { return Vec::new() };
        state.asked.release(asked.place);
        let (before, since) = (asked.before, self.clock.now());
        let entry = match answer {
            Ok(found) if !found.is_empty() || before.is_empty() => {
                Entry::Known { found, is_distrusted: false, since }
            }
            Err(e) if before.is_empty() => Entry::Failed { kind: e.kind(), why: e.to_string(), since },
            Ok(_) | Err(_) => Entry::Known { found: before, is_distrusted: true, since },
        };
        state.names.insert(name, entry);
        asked.wakers
    }

    /// Returns the addresses of `host`, with port 0. A name that failed or is [distrusted](Self::distrust) is
    /// looked up again; if that fails, the addresses known before are the answer. A name leaves the queue
    /// when no caller waits for it any more.
    ///
    /// # Errors
    /// If `host` cannot be looked up.
    pub async fn resolve(&self, host: &str) -> io::Result<Vec<SocketAddr>> {
        if let Some(_waits) = self.wait_for(host)? {
            poll_fn(|cx| match self.state().names.get_mut(host) {
                // The caller wants the new answer, not the addresses known before.
                Some(Entry::Asked(asked)) => {
                    asked.wake(cx.waker());
                    Poll::Pending
                }
                _ => Poll::Ready(()),
            })
            .await;
        }
        poll_fn(|cx| self.poll(host, cx)).await
    }

    /// Has `host` looked up if that is necessary, in turn with the names of other clients. Returns `None` if
    /// no look-up is under way or needed.
    fn wait_for<'a>(&'a self, host: &'a str) -> io::Result<Option<Waits<'a>>> {
        if host.parse::<IpAddr>().is_ok() {
            return Ok(None);
        }
        let mut state = self.state();
        let mut before = Vec::new();
        match state.names.get(host) {
            Some(Entry::Known { found, is_distrusted: true, .. }) => before.clone_from(found),
            Some(entry @ Entry::Known { .. }) if !self.is_old(entry) => return Ok(None),
            _ => {}
        }
        if let Some(Entry::Asked(asked)) = state.names.get(host) {
            let is_in_queue = !asked.queues.is_empty();
            if is_in_queue && !asked.queues.contains(&self.client) {
                self.queue(&mut state, host);
            }
        } else {
            self.ask(&mut state, host, before)?;
        }
        if let Some(Entry::Asked(asked)) = state.names.get_mut(host) {
            asked.waiting += 1;
        }
        drop(state);
        Ok(Some(Waits { resolver: self, host }))
    }

    /// Forgets the failures, so that these names may be looked up again.
    pub fn forget_failures(&self) {
        self.state().names.retain(|_, entry| !matches!(entry, Entry::Failed { .. }));
    }

    /// Records that no address of `host` takes a connection, since the host may have moved. The next
    /// [`resolve`](Self::resolve) looks the name up again.
    pub fn distrust(&self, host: &str) {
        if let Some(Entry::Known { is_distrusted, .. }) = self.state().names.get_mut(host) {
            *is_distrusted = true;
        }
    }
}

impl Asked {
    fn wake(&mut self, waker: &Waker) {
        if !self.wakers.iter().any(|known| known.will_wake(waker)) {
            self.wakers.push(waker.clone());
        }
    }
}

/// Represents a caller that waits for a name, until this value is dropped.
struct Waits<'a> {
    resolver: &'a Resolver,
    host: &'a str,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.resolver.state().leave(self.host);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use super::*;

    /// Makes a waker, and a channel that receives a message when the waker is woken.
    fn waker() -> (Waker, mpsc::Receiver<()>) {
        struct Notify(mpsc::SyncSender<()>);
        impl std::task::Wake for Notify {
            fn wake(self: Arc<Self>) {
                let _ = self.0.try_send(());
            }
        }
        let (sender, woken) = mpsc::sync_channel(100);
        (Waker::from(Arc::new(Notify(sender))), woken)
    }

    #[test]
    fn a_name_is_asked_for_once() {
        static ASKED: AtomicUsize = AtomicUsize::new(0);
        let found = vec![SocketAddr::from(([192, 0, 2, 2], 0))];
        let answer = found.clone();
        let resolver = Resolver::new(move |host| {
            ASKED.fetch_add(1, Ordering::Relaxed);
            if host == "a.example" { Ok(answer.clone()) } else { Err(io::Error::other("no such name")) }
        });
        let (waker, woken) = waker();
        let mut cx = Context::from_waker(&waker);
        let mut wait = |host: &str| loop {
            match resolver.clone().poll(host, &mut cx) {
                Poll::Ready(found) => return found,
                Poll::Pending => woken.recv().expect("an answer"),
            }
        };
        assert_eq!(wait("192.0.2.1").expect("an address"), [SocketAddr::from(([192, 0, 2, 1], 0))]);
        assert_eq!(ASKED.load(Ordering::Relaxed), 0, "an address is no name");
        for _ in 0..2 {
            assert_eq!(wait("a.example").expect("found"), found);
            assert_eq!(wait("b.example").expect_err("not found").to_string(), "no such name");
        }
        assert_eq!(ASKED.load(Ordering::Relaxed), 2);
        resolver.forget_failures();
        assert!(wait("a.example").is_ok() && wait("b.example").is_err());
        assert_eq!(ASKED.load(Ordering::Relaxed), 3, "what was found stays");
        resolver.distrust("a.example");
        assert!(wait("a.example").is_ok());
        assert_eq!(ASKED.load(Ordering::Relaxed), 3, "better than nothing");
        let mut anew = pin!(resolver.resolve("a.example"));
        while anew.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            woken.recv().expect("an answer");
        }
        assert_eq!(ASKED.load(Ordering::Relaxed), 4);
    }

    #[test]
    fn what_was_known_stays_when_it_cannot_be_asked_again_and_a_panic_is_an_error() {
        let known = SocketAddr::from(([192, 0, 2, 2], 0));
        let first = AtomicUsize::new(0);
        let resolver = Resolver::new(move |host| match first.fetch_add(1, Ordering::Relaxed) {
            0 => Ok(vec![known]),
            1 => Err(io::Error::other("no network")),
            _ => panic!("a defect of the caller: {host}"),
        });
        let (waker, woken) = waker();
        let wait = |host: &str| {
            let mut answer = pin!(resolver.resolve(host));
            loop {
                match answer.as_mut().poll(&mut Context::from_waker(&waker)) {
                    Poll::Ready(found) => return found,
                    Poll::Pending => woken.recv().expect("an answer"),
                }
            }
        };
        assert_eq!(wait("a.example").expect("found"), [known]);
        resolver.distrust("a.example");
        assert_eq!(wait("a.example").expect("known before"), [known]);
        assert!(wait("b.example").expect_err("a panic").to_string().contains("panicked"));
    }

    /// Polls until the addresses of `host` are known.
    fn wait(resolver: &Resolver, host: &str) -> io::Result<Vec<SocketAddr>> {
        let (waker, woken) = waker();
        loop {
            match resolver.poll(host, &mut Context::from_waker(&waker)) {
                Poll::Ready(found) => return found,
                Poll::Pending => woken.recv().expect("an answer"),
            }
        }
    }

    #[test]
    fn what_was_found_is_believed_for_its_age_and_no_longer() {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        let resolver = Resolver::new(move |host| {
            let number = counted.fetch_add(1, Ordering::Relaxed);
            match host {
                "a.example" => Ok(vec![SocketAddr::from(([192, 0, 2, number as u8], 0))]),
                _ => Err(io::Error::other("no such name")),
            }
        });
        let age = Span::from_millis(200);
        let resolver = resolver.bounded(age, 100);
        let (first, start) = (wait(&resolver, "a.example").expect("found"), resolver.clock.now());
        assert!(wait(&resolver, "b.example").is_err() && wait(&resolver, "b.example").is_err());
        if wait(&resolver, "a.example").expect("found") != first {
            assert!(resolver.clock.now() >= start + age, "believed for less than its age");
            return;
        }
        resolver.clock.sleep_until(resolver.clock.now() + age);
        assert_eq!(asked.load(Ordering::Relaxed), 2);
        assert_ne!(wait(&resolver, "a.example").expect("found"), first, "it has moved");
        assert!(wait(&resolver, "b.example").is_err());
        assert_eq!(asked.load(Ordering::Relaxed), 4, "failures have an age too");
    }

    #[test]
    fn of_more_names_than_there_is_room_for_the_oldest_goes() {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        let resolver = Resolver::new(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            Ok(Vec::new())
        });
        let resolver = resolver.bounded(Span::from_secs(3_600), 3);
        for number in 0..5 {
            wait(&resolver, &format!("{number}.example")).expect("no address");
        }
        assert_eq!(resolver.state().names.len(), 3);
        for number in 2..5 {
            wait(&resolver, &format!("{number}.example")).expect("no address");
        }
        assert_eq!(asked.load(Ordering::Relaxed), 5, "the youngest are known");

        let (release, held) = mpsc::channel::<()>();
        let held = Mutex::new(held);
        let slow = Resolver::new(move |_| {
            let _ = held.lock().map(|held| held.recv());
            Ok(Vec::new())
        });
        let slow = slow.bounded(Span::from_secs(3_600), 4);
        let (waker, _woken) = waker();
        let mut cx = Context::from_waker(&waker);
        assert!(slow.poll("0.example", &mut cx).is_pending() && slow.poll("1.example", &mut cx).is_pending());
        let Poll::Ready(Err(full)) = slow.poll("2.example", &mut cx) else { panic!("there is no room") };
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        assert!(slow.of("another").poll("2.example", &mut cx).is_pending(), "half of it is for others");
        drop(release);
    }

    #[test]
    fn more_names_than_threads_wait_their_turn() {
        let resolver = Resolver::new(|_| Ok(Vec::new()));
        let (waker, woken) = waker();
        let mut cx = Context::from_waker(&waker);
        let names: Vec<String> =
            (0..3 * THREADS_MAX).map(|number: u64| format!("{number}.example")).collect();
        while !names.iter().map(|name| resolver.poll(name, &mut cx)).all(|found| found.is_ready()) {
            woken.recv().expect("an answer");
        }
    }

    /// Makes a resolver that answers names with the prefix `dead` only when it is told to, and counts these
    /// names.
    fn silent_for_dead_names() -> (Resolver, mpsc::Sender<()>, Arc<AtomicUsize>) {
        let (release, held) = mpsc::channel::<()>();
        let (held, asked) = (Mutex::new(held), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&asked);
        let resolver = Resolver::new(move |host| {
            if host.starts_with("dead") {
                counted.fetch_add(1, Ordering::Relaxed);
                let _ = held.lock().map(|held| held.recv());
                return Err(io::Error::other("no answer"));
            }
            Ok(vec![SocketAddr::from(([192, 0, 2, 1], 0))])
        });
        (resolver.bounded(Span::from_secs(60), 10_000), release, asked)
    }

    #[test]
    fn a_client_whose_names_nobody_answers_delays_no_other() {
        let (resolver, release, asked) = silent_for_dead_names();
        let (waker, woken) = waker();
        let mut cx = Context::from_waker(&waker);
        let (a, b) = (resolver.of("a"), resolver.of("b"));
        let names: Vec<String> = (0..3_000).map(|number| format!("dead{number}.example")).collect();
        let mut dead: Vec<_> = names.iter().map(|name| Box::pin(a.resolve(name))).collect();
        assert!(dead.iter_mut().all(|name| name.as_mut().poll(&mut cx).is_pending()));
        for number in 0..3 {
            // A name that waits already in the queue of the other client is answered, too.
            let name = format!("live{number}.example");
            let mut theirs = Box::pin(a.resolve(&name));
            assert!(theirs.as_mut().poll(&mut cx).is_pending());
            let mut live = pin!(b.resolve(&name));
            let found = loop {
                match live.as_mut().poll(&mut cx) {
                    Poll::Ready(found) => break found,
                    Poll::Pending => {
                        woken.recv_timeout(std::time::Duration::from_secs(20)).expect("an answer");
                    }
                }
            };
            assert_eq!(found.expect("found").len(), 1);
        }
        drop(dead);
        assert!(resolver.state().queue.is_empty(), "nobody waits for them any more");
        drop(release);
        assert!(asked.load(Ordering::Relaxed) <= 32, "half of the threads were for others");
    }
}
