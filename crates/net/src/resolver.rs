//! Names to addresses, each name asked for once: [`Resolver`].
//!
//! The system's resolver cannot be interrupted, so it runs on threads; whoever waits goes on meanwhile.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;

/// Names that are looked up at the same time.
const THREADS_MAX: usize = 64;

/// What finds the addresses of a name; ports do not count.
type LookUp = dyn Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// What is known of a name.
enum Entry {
    /// It is being looked up; who is to be woken.
    Asked(Vec<Waker>),
    Known {
        found: Vec<SocketAddr>,
        is_distrusted: bool,
    },
    Failed(io::ErrorKind, String),
}

#[derive(Default)]
struct State {
    names: BTreeMap<String, Entry>,
    /// Names that no thread has taken yet.
    queue: VecDeque<String>,
    threads: usize,
}

/// The addresses of names. Clones share what they know; a name is looked up once for all of them. Dropping it
/// leaves threads behind that still wait for an answer.
#[derive(Clone)]
pub struct Resolver {
    look_up: Arc<LookUp>,
    state: Arc<Mutex<State>>,
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
    /// One that asks `look_up`, on threads of its own. [`Resolver::default`] asks the system.
    pub fn new(look_up: impl Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static) -> Self {
        Self { look_up: Arc::new(look_up), state: Arc::default() }
    }

    /// One that asks the same, and knows nothing yet.
    #[must_use]
    pub fn anew(&self) -> Self {
        Self { look_up: Arc::clone(&self.look_up), state: Arc::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The addresses of `host`, with port 0, once they are known; `cx` is woken then. What was found, or
    /// failed, stays until it is forgotten.
    pub fn poll(&self, host: &str, cx: &mut Context<'_>) -> Poll<io::Result<Vec<SocketAddr>>> {
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Poll::Ready(Ok(vec![SocketAddr::new(ip, 0)]));
        }
        let mut state = self.state();
        match state.names.get_mut(host) {
            Some(Entry::Asked(wakers)) => {
                if !wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
                    wakers.push(cx.waker().clone());
                }
            }
            Some(Entry::Known { found, .. }) => return Poll::Ready(Ok(found.clone())),
            Some(Entry::Failed(kind, why)) => return Poll::Ready(Err(io::Error::new(*kind, why.clone()))),
            None => {
                if state.threads < THREADS_MAX {
                    let this = self.clone();
                    match thread::Builder::new().name("resolver".into()).spawn(move || this.work()) {
                        Ok(_) => state.threads += 1,
                        Err(e) if state.threads == 0 => return Poll::Ready(Err(e)),
                        Err(_) => {}
                    }
                }
                state.names.insert(host.to_owned(), Entry::Asked(vec![cx.waker().clone()]));
                state.queue.push_back(host.to_owned());
            }
        }
        Poll::Pending
    }

    /// Looks names up until none waits.
    fn work(&self) {
        loop {
            let mut state = self.state();
            let Some(name) = state.queue.pop_front() else {
                state.threads -= 1;
                return;
            };
            drop(state);
            let entry = match (self.look_up)(&name) {
                Ok(found) => Entry::Known { found, is_distrusted: false },
                Err(e) => Entry::Failed(e.kind(), e.to_string()),
            };
            if let Some(Entry::Asked(wakers)) = self.state().names.insert(name, entry) {
                wakers.into_iter().for_each(Waker::wake);
            }
        }
    }

    /// The addresses of `host`, with port 0. What has failed, or is [distrusted](Self::distrust), is asked
    /// for again.
    ///
    /// # Errors
    /// That it cannot be looked up.
    pub async fn resolve(&self, host: &str) -> io::Result<Vec<SocketAddr>> {
        let is_useless =
            |entry: &Entry| matches!(entry, Entry::Failed(..) | Entry::Known { is_distrusted: true, .. });
        self.state().names.retain(|name, entry| name != host || !is_useless(entry));
        poll_fn(|cx| self.poll(host, cx)).await
    }

    /// Lets names that could not be looked up be asked for again.
    pub fn forget_failures(&self) {
        self.state().names.retain(|_, entry| !matches!(entry, Entry::Failed(..)));
    }

    /// None of the addresses of `host` takes a connection: it may have moved.
    pub fn distrust(&self, host: &str) {
        if let Some(Entry::Known { is_distrusted, .. }) = self.state().names.get_mut(host) {
            *is_distrusted = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use super::*;

    /// A waker, and a channel that says when it was woken.
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
    fn more_names_than_threads_wait_their_turn() {
        let resolver = Resolver::new(|_| Ok(Vec::new()));
        let (waker, woken) = waker();
        let mut cx = Context::from_waker(&waker);
        let names: Vec<String> = (0..3 * THREADS_MAX).map(|number| format!("{number}.example")).collect();
        while !names.iter().map(|name| resolver.poll(name, &mut cx)).all(|found| found.is_ready()) {
            woken.recv().expect("an answer");
        }
    }
}
