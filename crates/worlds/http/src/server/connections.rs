//! The connections of a server, and the choice of the one to close when there are too many.
//!
//! A client that sends its request or takes its answer slowly occupies a connection and does nothing with it.
//! A few hundred such sockets could block a server that turned newcomers away while all connections are
//! taken. Here a newcomer replaces another connection. First in line are connections without an answer under
//! way, before their first request or between two; the one that has been idle longest goes first. Next come
//! connections that take their answer more slowly than [`SLOW_BYTES`] in [`LOOK_EVERY`]. A connection that
//! takes its answer at a fair rate stays. So does one that waits for this side, that is, for a disk or for
//! the rate limit: it never counts as slow.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::Notify;
use tokio::time::sleep;

/// How often the server checks whether a connection makes progress.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// A connection is slow if it takes fewer bytes of an answer than these between two checks: 4 KiB/s.
const SLOW_BYTES: u64 = 20 << 10;
/// A connection is closed after this many checks without any progress: a minute.
const IDLE_LOOKS: u32 = 12;

/// The progress of a connection.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// The number of reads and writes that did something.
    pub(super) steps: Cell<u64>,
    /// The number of bytes written.
    pub(super) sent_bytes: Cell<u64>,
    /// Whether the connection waits for this side: for the rate limit or for a disk.
    pub(super) waits: Cell<bool>,
    /// Whether an answer is under way.
    answers: Cell<bool>,
    /// When the connection was accepted, or when its last answer began or ended. This is a number that grows,
    /// not a time.
    since: Cell<u64>,
    /// Whether the client takes its answer slowly.
    is_slow: Cell<bool>,
    /// Notified when another connection replaces this one.
    evicted: Notify,
}

/// All connections that are being served.
#[derive(Debug, Default)]
pub(super) struct Connections {
    open: RefCell<BTreeMap<u64, Rc<Progress>>>,
    next: Cell<u64>,
}

impl Connections {
    fn next(&self) -> u64 {
        self.next.replace(self.next.get() + 1)
    }

    /// Adds a new connection.
    pub(super) fn add(self: &Rc<Self>) -> Connection {
        let (id, progress) = (self.next(), Rc::new(Progress::default()));
        progress.since.set(id);
        self.open.borrow_mut().insert(id, Rc::clone(&progress));
        Connection { all: Rc::clone(self), id, progress }
    }

    /// Closes an idle or slow connection. Returns `false` if there is none.
    pub(super) fn evict(&self) -> bool {
        let mut open = self.open.borrow_mut();
        let oldest = |is_its: &dyn Fn(&Progress) -> bool| {
            let of_kind = open.iter().filter(|(_, progress)| is_its(progress));
            of_kind.min_by_key(|(_, progress)| progress.since.get()).map(|(id, _)| *id)
        };
        let found = oldest(&|progress| !progress.answers.get());
        let found = found.or_else(|| oldest(&|progress| progress.is_slow.get() && !progress.waits.get()));
        let evicted = found.and_then(|id| open.remove(&id));
        if let Some(progress) = &evicted {
            progress.evicted.notify_one();
        }
        evicted.is_some()
    }
}

/// One connection. It counts as open until it is dropped.
pub(super) struct Connection {
    all: Rc<Connections>,
    id: u64,
    pub(super) progress: Rc<Progress>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.all.open.borrow_mut().remove(&self.id);
    }
}

impl Connection {
    /// Records that an answer begins. Its body is added later.
    pub(super) fn answer(&self) -> Answer<()> {
        self.progress.answers.set(true);
        self.progress.since.set(self.all.next());
        let (all, progress) = (Rc::clone(&self.all), Rc::clone(&self.progress));
        Answer { body: (), under_way: UnderWay { all, progress } }
    }

    /// Waits until the connection must be closed: because it makes no progress for a minute, or because
    /// another one replaces it.
    pub(super) async fn ended(&self) {
        tokio::select! {
            () = self.progress.evicted.notified() => {}
            () = self.progress.stalled() => {}
        }
    }
}

impl Progress {
    /// Waits until there is no progress for [`IDLE_LOOKS`] checks. Meanwhile records whether the connection
    /// is slow.
    async fn stalled(&self) {
        let mut idle_looks = 0;
        while idle_looks < IDLE_LOOKS {
            let (steps, sent, since) = (self.steps.get(), self.sent_bytes.get(), self.since.get());
            sleep(LOOK_EVERY).await;
            let is_same_answer = self.answers.get() && self.since.get() == since;
            let is_ours = self.waits.get();
            self.is_slow.set(is_same_answer && !is_ours && self.sent_bytes.get() - sent < SLOW_BYTES);
            idle_looks = if self.steps.get() == steps && !is_ours { idle_looks + 1 } else { 0 };
        }
    }
}

/// The body of an answer. The answer is under way until this is dropped.
pub(super) struct Answer<B> {
    body: B,
    under_way: UnderWay,
}

impl Answer<()> {
    /// Returns the same answer with `body`.
    pub(super) fn with<B>(self, body: B) -> Answer<B> {
        Answer { body, under_way: self.under_way }
    }
}

/// Marks its connection as having an answer under way, until it is dropped.
struct UnderWay {
    all: Rc<Connections>,
    progress: Rc<Progress>,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.progress.answers.set(false);
        self.progress.is_slow.set(false);
        self.progress.since.set(self.all.next());
    }
}

impl<B: Body + Unpin> Body for Answer<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_evicted(connection: &Connection) -> bool {
        !connection.all.open.borrow().contains_key(&connection.id)
    }

    #[test]
    fn who_is_idle_for_longest_goes_first_and_who_is_served_stays() {
        let all = Rc::new(Connections::default());
        let connections: Vec<Connection> = (0..4).map(|_| all.add()).collect();
        let first = connections[0].answer();
        // The second connection has had its answer and is idle since then.
        drop(connections[1].answer());
        let evicted = |all: &Rc<Connections>| {
            let is_there: Vec<bool> = connections.iter().map(is_evicted).collect();
            all.evict().then(|| connections.iter().zip(is_there).position(|(c, was)| is_evicted(c) && !was))
        };
        assert_eq!([2, 3, 1].map(|_| evicted(&all).flatten()), [Some(2), Some(3), Some(1)]);
        assert_eq!(evicted(&all), None, "the first is being served");
        connections[0].progress.is_slow.set(true);
        connections[0].progress.waits.set(true);
        assert_eq!(evicted(&all), None, "it waits for us");
        connections[0].progress.waits.set(false);
        assert_eq!(evicted(&all).flatten(), Some(0), "it is slow");
        drop(first);
        assert!(!all.evict(), "nobody is left");
    }
}
