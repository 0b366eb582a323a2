//! Names to addresses, each name asked for once: [`Resolver`].
//!
//! The system's resolver cannot be interrupted, so it runs on threads; whoever waits goes on meanwhile.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;

/// Names that are looked up at the same time.
const THREADS_MAX: usize = 64;

/// What finds the addresses of a name; ports do not count.
type LookUp = dyn Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// What is known of a name.
enum Entry {
    /// It is being looked up; who is to be woken, and what was known before.
    Asked {
        wakers: Vec<Waker>,
        before: Vec<SocketAddr>,
    },
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

    /// The addresses of `host`, with port 0, once they are known; `cx` is woken then. What was found stays,
    /// also while it is looked up again; what failed, until it is [forgotten](Self::forget_failures).
    pub fn poll(&self, host: &str, cx: &mut Context<'_>) -> Poll<io::Result<Vec<SocketAddr>>> {
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Poll::Ready(Ok(vec![SocketAddr::new(ip, 0)]));
        }
        let mut state = self.state();
        match state.names.get_mut(host) {
            Some(Entry::Asked { before, .. }) if !before.is_empty() => {
                return Poll::Ready(Ok(before.clone()));
            }
            Some(Entry::Asked { wakers, .. }) => {
                if !wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
                    wakers.push(cx.waker().clone());
                }
            }
            Some(Entry::Known { found, .. }) => return Poll::Ready(Ok(found.clone())),
            Some(Entry::Failed(kind, why)) => return Poll::Ready(Err(io::Error::new(*kind, why.clone()))),
            None => {
                if let Err(e) = self.ask(&mut state, host, vec![cx.waker().clone()], Vec::new()) {
                    return Poll::Ready(Err(e));
                }
            }
        }
        Poll::Pending
    }

    /// Puts a name into the queue, with a thread to take it if there is room for one more.
    fn ask(
        &self,
        state: &mut State,
        host: &str,
        wakers: Vec<Waker>,
        before: Vec<SocketAddr>,
    ) -> io::Result<()> {
        if state.threads < THREADS_MAX {
            let this = self.clone();
            match thread::Builder::new().name("resolver".into()).spawn(move || this.work()) {
                Ok(_) => state.threads += 1,
                Err(e) if state.threads == 0 => return Err(e),
                Err(_) => {}
            }
        }
        state.names.insert(host.to_owned(), Entry::Asked { wakers, before });
        state.queue.push_back(host.to_owned());
        Ok(())
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
            // A caller's function that panics must not leave those who wait for it waiting.
            let answer = catch_unwind(AssertUnwindSafe(|| (self.look_up)(&name)))
                .unwrap_or_else(|_| Err(io::Error::other("the look-up panicked")));
            let mut state = self.state();
            let Some(Entry::Asked { wakers, before }) = state.names.remove(&name) else { continue };
            let entry = match answer {
                Ok(found) if !found.is_empty() || before.is_empty() => {
                    Entry::Known { found, is_distrusted: false }
                }
                Err(e) if before.is_empty() => Entry::Failed(e.kind(), e.to_string()),
                Ok(_) | Err(_) => Entry::Known { found: before, is_distrusted: true },
            };
            state.names.insert(name, entry);
            drop(state);
            wakers.into_iter().for_each(Waker::wake);
        }
    }

    /// The addresses of `host`, with port 0. What has failed, or is [distrusted](Self::distrust), is asked
    /// for again; if that fails, what was known before is the answer.
    ///
    /// # Errors
    /// That it cannot be looked up.
    pub async fn resolve(&self, host: &str) -> io::Result<Vec<SocketAddr>> {
        {
            let mut state = self.state();
            match state.names.get(host) {
                Some(Entry::Failed(..)) => drop(state.names.remove(host)),
                Some(Entry::Known { found, is_distrusted: true }) => {
                    let before = found.clone();
                    self.ask(&mut state, host, Vec::new(), before)?;
                }
                _ => {}
            }
        }
        poll_fn(|cx| match self.state().names.get_mut(host) {
            // Not what was known before: the new answer.
            Some(Entry::Asked { wakers, .. }) => {
                wakers.push(cx.waker().clone());
                Poll::Pending
            }
            _ => Poll::Ready(()),
        })
        .await;
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
