//! The connections of a server, and the choice of the one to close when there are too many.
//!
//! A client that sends its request or takes its answer slowly occupies a place and does nothing with it. A
//! few hundred such sockets could block a server that turned newcomers away while all places are taken. So
//! the hosts of clients [share](anabranch_algo::fair_share) the places. First in line to be closed are
//! connections without an answer under way, before their first request or between two. Next come connections
//! that take their answer more slowly than [`SLOW_BYTES`] in [`LOOK_EVERY`]. A connection that waits for this
//! side, that is, for a disk or for the rate limit, never counts as slow. A connection that takes its answer
//! at a fair rate stays, unless its host has at least two more places than the host of the newcomer.

use std::cell::Cell;
use std::net::IpAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use anabranch_algo::fair_share::Yields;
use anabranch_net::HeldPlace;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::sleep;

/// How often the server checks whether a connection makes progress.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// A connection is slow if it takes fewer bytes of an answer than these between two checks: 4 KiB/s.
const SLOW_BYTES: u64 = 20 << 10;
/// A connection is closed after this many checks without any progress: a minute.
const IDLE_LOOKS: u32 = 12;

/// The progress of a connection.
#[derive(Debug)]
pub(super) struct Progress {
    place: HeldPlace<IpAddr>,
    /// The number of reads and writes that did something.
    pub(super) steps: Cell<u64>,
    /// The number of bytes written.
    pub(super) sent_bytes: Cell<u64>,
    /// Whether the connection waits for this side: for the rate limit or for a disk.
    waits: Cell<bool>,
    /// Whether an answer is under way.
    answers: Cell<bool>,
    /// How often an answer has begun or ended.
    turns: Cell<u64>,
    /// Whether the client takes its answer slowly.
    is_slow: Cell<bool>,
}

impl Progress {
    /// Records whether the connection waits for this side.
    pub(super) fn set_waits(&self, waits: bool) {
        self.waits.set(waits);
        if self.is_slow.get() {
            self.settle();
        }
    }

    /// Records that an answer begins, or that it has ended.
    fn set_answers(&self, answers: bool) {
        self.answers.set(answers);
        self.turns.set(self.turns.get() + 1);
        self.is_slow.set(false);
        self.place.heard();
        self.settle();
    }

    /// Says how readily the place may be given up now.
    fn settle(&self) {
        self.place.set_yields(match self.answers.get() {
            false => Yields::First,
            true if self.is_slow.get() && !self.waits.get() => Yields::Next,
            true => Yields::IfOverShare,
        });
    }

    /// Waits until there is no progress for [`IDLE_LOOKS`] checks. Meanwhile records whether the connection
    /// is slow.
    async fn stalled(&self) {
        let mut idle_looks = 0;
        while idle_looks < IDLE_LOOKS {
            let (steps, sent, turns) = (self.steps.get(), self.sent_bytes.get(), self.turns.get());
            sleep(LOOK_EVERY).await;
            let is_same_answer = self.answers.get() && self.turns.get() == turns;
            let is_ours = self.waits.get();
            self.is_slow.set(is_same_answer && !is_ours && self.sent_bytes.get() - sent < SLOW_BYTES);
            if self.answers.get() && !self.is_slow.get() {
                self.place.heard();
            }
            self.settle();
            idle_looks = if self.steps.get() == steps && !is_ours { idle_looks + 1 } else { 0 };
        }
    }
}

/// One connection. It has its place until it is dropped.
pub(super) struct Connection {
    pub(super) progress: Rc<Progress>,
}

impl Connection {
    /// A new connection, with the place that it has been granted.
    pub(super) fn new(place: HeldPlace<IpAddr>) -> Self {
        let (steps, sent_bytes, turns) = Default::default();
        let (waits, answers, is_slow) = Default::default();
        Self { progress: Rc::new(Progress { place, steps, sent_bytes, waits, answers, turns, is_slow }) }
    }

    /// Records that an answer begins. Its body is added later.
    pub(super) fn answer(&self) -> Answer<()> {
        self.progress.set_answers(true);
        Answer { body: (), under_way: UnderWay(Rc::clone(&self.progress)) }
    }

    /// Waits until the connection must be closed: because it makes no progress for a minute, or because
    /// another one replaces it.
    pub(super) async fn ended(&self) {
        tokio::select! {
            () = self.progress.place.given_up() => {}
            () = self.progress.stalled() => {}
        }
    }
}

/// The body of an answer. The answer is under way until this is dropped.
pub(super) struct Answer<B> {
    body: B,
    under_way: UnderWay,
}

impl Answer<()> {
    /// The same with a body.
    pub(super) fn with<B>(self, body: B) -> Answer<B> {
        Answer { body, under_way: self.under_way }
    }
}

/// Marks its connection as having an answer under way, until it is dropped.
struct UnderWay(Rc<Progress>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.set_answers(false);
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
    use anabranch_net::Places;

    use super::*;

    /// Connections of the hosts 192.0.2.N.
    fn connect(places: &Places<IpAddr>, host: u8) -> Option<Connection> {
        let place = places.take(IpAddr::from([192, 0, 2, host]), Yields::First);
        place.ok().map(Connection::new)
    }

    fn is_evicted(connection: &Connection) -> bool {
        let cx = Context::from_waker(std::task::Waker::noop());
        connection.progress.place.poll_given_up(&cx).is_ready()
    }

    #[test]
    fn who_is_idle_goes_first_then_who_is_slow_and_who_is_served_stays() {
        let places = Places::new(4);
        let connections: Vec<Connection> = (0..4).map(|_| connect(&places, 1).unwrap()).collect();
        let evicted = || connections.iter().map(is_evicted).collect::<Vec<_>>();
        // The first is served; the second was, and is idle since, for less long than the others.
        let answer = connections[0].answer().with(());
        std::thread::sleep(Duration::from_millis(20));
        drop(connections[1].answer().with(()));
        let mut newcomers: Vec<Connection> = (0..2).map(|_| connect(&places, 1).unwrap()).collect();
        assert_eq!(evicted(), [false, false, true, true]);
        newcomers.push(connect(&places, 1).unwrap());
        assert_eq!(evicted(), [false, true, false, false], "it was told once");
        // Now all are served.
        let answers: Vec<_> = newcomers.iter().map(Connection::answer).collect();
        assert!(connect(&places, 1).is_none(), "who is served keeps its place");
        let progress = &connections[0].progress;
        progress.is_slow.set(true);
        progress.set_waits(true);
        assert!(connect(&places, 1).is_none(), "it waits for the disk, not for its client");
        progress.set_waits(false);
        let newcomer = connect(&places, 1).unwrap();
        assert_eq!(evicted(), [true, false, false, false]);
        drop((answer, answers, newcomer));
    }

    #[test]
    fn one_host_has_all_places_until_another_comes() {
        let places = Places::new(4);
        let connections: Vec<Connection> = (0..4).map(|_| connect(&places, 1).unwrap()).collect();
        let _answers: Vec<_> = connections.iter().map(Connection::answer).collect();
        let another = || {
            let other = connect(&places, 2).unwrap();
            (other.answer(), other)
        };
        let _others = [another(), another()];
        assert_eq!(connections.iter().filter(|connection| is_evicted(connection)).count(), 2);
        assert!(connect(&places, 2).is_none() && connect(&places, 1).is_none(), "both have the same");
        assert!(connect(&places, 3).is_some(), "it has none");
    }
}
