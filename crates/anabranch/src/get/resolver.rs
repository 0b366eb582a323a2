//! Names to addresses, each asked for once.
//!
//! The system's resolver cannot be interrupted, so it runs on threads, which are left behind when the caller
//! stops; the loop goes on meanwhile.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use algo::Time;
use net::Waker;

use super::event_loop::{Context, EventLoop, Poll, Stage};
use crate::Result;

/// What is known of a name.
enum Entry {
    Asked,
    Known(Vec<SocketAddr>),
    Failed(io::ErrorKind, String),
}

/// The names that have been asked for. Ports are 0.
pub(super) struct Resolver {
    names: BTreeMap<String, Entry>,
    answers: Receiver<(String, io::Result<Vec<SocketAddr>>)>,
    outbox: Sender<(String, io::Result<Vec<SocketAddr>>)>,
    waker: Waker,
}

impl Resolver {
    /// `waker` is used when an answer has come.
    pub(super) fn new(waker: Waker) -> Self {
        let (outbox, answers) = channel();
        Self { names: BTreeMap::new(), answers, outbox, waker }
    }

    /// See [`World::resolve`](super::world::World::resolve).
    pub(super) fn resolve(&mut self, host: &str) -> Option<io::Result<Vec<SocketAddr>>> {
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Some(Ok(vec![SocketAddr::new(ip, 0)]));
        }
        while let Ok((name, found)) = self.answers.try_recv() {
            self.names
                .insert(name, found.map_or_else(|e| Entry::Failed(e.kind(), e.to_string()), Entry::Known));
        }
        match self.names.get(host) {
            Some(Entry::Asked) => None,
            Some(Entry::Known(found)) => Some(Ok(found.clone())),
            Some(Entry::Failed(kind, why)) => Some(Err(io::Error::new(*kind, why.clone()))),
            None => match self.ask(host) {
                Ok(()) => {
                    self.names.insert(host.to_owned(), Entry::Asked);
                    None
                }
                Err(e) => Some(Err(e)),
            },
        }
    }

    fn ask(&self, host: &str) -> io::Result<()> {
        let (name, outbox, waker) = (host.to_owned(), self.outbox.clone(), self.waker.clone());
        let work = move || {
            let found = (name.as_str(), 0).to_socket_addrs().map(Iterator::collect);
            // Nobody listens any more if the caller has stopped.
            let _ = outbox.send((name, found));
            waker.wake();
        };
        thread::Builder::new().name("resolver".into()).spawn(work).map(drop)
    }

    /// See [`World::forget_failures`](super::world::World::forget_failures).
    pub(super) fn forget_failures(&mut self) {
        self.names.retain(|_, entry| !matches!(entry, Entry::Failed(..)));
    }
}

/// Waits until all of these names have been looked up, or cannot be.
struct Lookup<'a> {
    hosts: &'a [String],
    interrupted: &'static str,
}

impl Stage for Lookup<'_> {
    fn poll(&mut self, cx: &mut Context<'_, '_>) -> Result<Poll> {
        // All of them are asked for at once.
        let missing = self.hosts.iter().filter(|host| cx.world.resolve(host).is_none()).count();
        Ok(if missing == 0 { Poll::Done } else { Poll::Wait(Time::NEVER) })
    }

    fn interrupted(&self) -> &'static str {
        self.interrupted
    }
}

/// Looks names up: what [`World::resolve`](super::world::World::resolve) says of them is final then.
///
/// # Errors
/// [`Error::Interrupted`](crate::Error::Interrupted), with this message, if the caller stops.
pub(super) fn look_up(
    hosts: &[String],
    interrupted: &'static str,
    events: &mut EventLoop<'_, '_>,
) -> Result<()> {
    events.world.forget_failures();
    events.run(&mut Lookup { hosts, interrupted })
}

#[cfg(test)]
mod tests {
    use net::WakeReceiver;

    use super::*;

    #[test]
    fn a_name_is_asked_for_once() {
        let wake = WakeReceiver::new().expect("descriptors");
        let mut resolver = Resolver::new(wake.waker());
        let literal = resolver.resolve("192.0.2.1").expect("at once").expect("an address");
        assert_eq!(literal, [SocketAddr::from(([192, 0, 2, 1], 0))]);
        assert!(resolver.names.is_empty(), "an address is no name");
        resolver.names.insert("a.example".into(), Entry::Asked);
        assert!(resolver.resolve("a.example").is_none(), "under way");
        let found = vec![SocketAddr::from(([192, 0, 2, 2], 0))];
        resolver.outbox.send(("a.example".into(), Ok(found.clone()))).expect("heard");
        let failure = io::Error::other("no such name");
        resolver.outbox.send(("b.example".into(), Err(failure))).expect("heard");
        for _ in 0..2 {
            assert_eq!(resolver.resolve("a.example").expect("known").expect("found"), found);
            let error = resolver.resolve("b.example").expect("known").expect_err("not found");
            assert_eq!(error.to_string(), "no such name");
        }
        resolver.forget_failures();
        assert_eq!(resolver.names.len(), 1, "what was found stays");
    }
}
