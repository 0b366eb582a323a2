//! A trunk in the world: one task joins a connection (TCP, MPTCP, or TLS over them) and the machine
//! [`Trunk`]. Other tasks have handles of the trunk and of its streams.
//!
//! The machine is behind a mutex that is held for single steps. A stream has no channel and no buffer: a task
//! that waits for it leaves a waker, and reads and writes the machine's own pieces.
//!
//! ```no_run
//! # async fn example(connection: tokio::net::TcpStream) -> Option<()> {
//! use anabranch_proxy::trunk::{Settings, Side};
//!
//! let (trunk, task) = anabranch_proxy::trunk_task::start(connection, Side::Client, Settings::default());
//! tokio::spawn(task);
//! let mut stream = trunk.open("origin.example:80".parse().ok()?, false).ok()?;
//! stream.write_all("GET / HTTP/1.0\r\n\r\n".into()).await.ok()?;
//! stream.finish();
//! while let Some(bytes) = stream.read(64 * 1024).await.ok()? {
//!     println!("{} bytes", bytes.len());
//! }
//! # None
//! # }
//! ```

mod driver;
mod end;
mod memory_share;
mod several;
mod shared;
mod stream;

use std::sync::Arc;
use std::task::Poll;

use anabranch_algo::Span;
use anabranch_net::{Clock, HeldPlace};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;

use crate::pool::Load;
use crate::trunk::{
    Announced, Association, Destination, GoAwayReason, OpenError, Reason, Settings, Side, Transport, Trunk,
};
use driver::Driver;
pub use end::End;
use memory_share::MemoryShare;
pub(crate) use several::Learner;
use shared::Shared;
pub use stream::Stream;

/// A stream that the client has opened.
#[derive(Debug)]
pub struct Accepted {
    /// The stream.
    pub stream: Stream,
    /// The destination.
    pub destination: Destination,
    /// Whether the client waits for [`Stream::confirm`].
    pub wants_reply: bool,
}

/// A handle of a trunk. Clones belong to the same trunk. When the last one is dropped, the trunk ends with
/// its last stream.
#[derive(Clone, Debug)]
pub struct TrunkHandle {
    shared: Arc<Shared>,
    /// Tells the trunk when the last handle is dropped.
    _held: Arc<Held>,
}

#[derive(Debug)]
struct Held {
    shared: Arc<Shared>,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.is_dropped = true;
        state.wake_task_always();
    }
}

/// Starts a trunk on a connection. The future must be spawned. It completes when the trunk and all of its
/// streams have ended.
pub fn start<S>(
    connection: S,
    side: Side,
    settings: Settings,
) -> (TrunkHandle, impl Future<Output = End> + Send + 'static)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    start_in_share(connection, side, settings, None)
}

/// Starts a trunk that [shares](anabranch_algo::fair_share) memory with others: its place has as many units
/// as bytes wait in the trunk. If the place is given up, half of these bytes are freed ([`Trunk::shed`]).
pub(crate) fn start_in_share<S>(
    connection: S,
    side: Side,
    settings: Settings,
    memory: Option<HeldPlace<String>>,
) -> (TrunkHandle, impl Future<Output = End> + Send + 'static)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let clock = Clock::start();
    let shared = Arc::new(Shared::new(Trunk::new(side, settings, clock.now()), clock));
    let held = Arc::new(Held { shared: Arc::clone(&shared) });
    let driver = Driver::new(connection, Arc::clone(&shared), MemoryShare::new(memory));
    (TrunkHandle { shared, _held: held }, driver)
}

impl TrunkHandle {
    /// Opens a stream. Its OPEN leaves with the bytes that are written before this task yields. With
    /// `wants_reply`, [`Stream::connected`] returns when the server has connected.
    ///
    /// # Errors
    /// If the server allows no more streams, if the trunk takes no new ones, or if this is the server; see
    /// [`OpenError`].
    pub fn open(&self, destination: Destination, wants_reply: bool) -> Result<Stream, OpenError> {
        let mut state = self.shared.lock();
        let number = state.trunk.open(destination, wants_reply)?;
        state.wake_task(self.shared.now());
        drop(state);
        Ok(Stream::new(Arc::clone(&self.shared), number))
    }

    /// Waits for the next stream that the client opens. Returns `None` when the trunk has ended.
    pub async fn accept(&self) -> Option<Accepted> {
        std::future::poll_fn(|cx| {
            let mut state = self.shared.lock();
            if let Some((number, destination, wants_reply)) = state.accepts.pop_front() {
                let stream = Stream::new(Arc::clone(&self.shared), number);
                return Poll::Ready(Some(Accepted { stream, destination, wants_reply }));
            }
            if state.end.is_some() {
                return Poll::Ready(None);
            }
            state.acceptor = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Waits for the other side's HELLO, and returns the transport that it reports.
    ///
    /// # Errors
    /// If the trunk has ended before; the error says how.
    pub async fn hello(&self) -> Result<Transport, End> {
        self.shared.wait(|state| state.trunk.peer_transport()).await
    }

    /// Waits until the trunk has ended.
    pub async fn ended(&self) -> End {
        match self.shared.wait(|_| None::<()>).await {
            Err(end) => end,
            // The condition is never met, so this is not reached.
            Ok(()) => End::Closed,
        }
    }

    /// Requests a leg from the server, and waits for the answer.
    ///
    /// # Errors
    /// If the trunk has ended before; the error says how. A server that knows no legs never answers.
    pub async fn ask_leg(&self, version: u16) -> Result<Association, End> {
        {
            let mut state = self.shared.lock();
            state.leg = None;
            state.trunk.ask_leg(version);
            state.wake_task(self.shared.now());
        }
        self.shared.wait(|state| state.leg).await
    }

    /// Waits until the client requests a leg, and returns the version of the requested format.
    ///
    /// # Errors
    /// If the trunk has ended before; the error says how.
    pub async fn leg_asked(&self) -> Result<u16, End> {
        let version = self.shared.wait(|state| state.leg_asked).await?;
        self.shared.lock().leg_asked = None;
        Ok(version)
    }

    /// Answers the client's request for a leg.
    pub fn answer_leg(&self, association: Association) {
        let mut state = self.shared.lock();
        state.trunk.answer_leg(association);
        state.wake_task(self.shared.now());
    }

    /// Announces the load of this server to the client.
    pub(crate) fn announce(&self, load: Announced) {
        let mut state = self.shared.lock();
        state.trunk.announce(load);
        state.wake_task(self.shared.now());
    }

    /// Names another server to the client.
    pub(crate) fn name_server(&self, server: Destination, is_wanted: bool) {
        let mut state = self.shared.lock();
        state.trunk.name_server(server, is_wanted);
        state.wake_task(self.shared.now());
    }

    /// Measures the round trip now.
    pub(crate) fn measure(&self) {
        let mut state = self.shared.lock();
        state.trunk.measure();
        state.wake_task(self.shared.now());
    }

    /// Returns the shortest round trip of the last minute or two, if any was measured.
    pub(crate) fn shortest_rtt(&self) -> Option<Span> {
        self.shared.lock().trunk.shortest_rtt()
    }

    /// Returns the load that the server announced last.
    pub(crate) fn announced(&self) -> Option<Announced> {
        self.shared.lock().several.load
    }

    /// Returns the servers that were named since the last call, and whether the client is to go there.
    pub(crate) fn take_named(&self) -> Vec<(Destination, bool)> {
        self.shared.lock().several.take_named()
    }

    /// Sets what is woken when the server goes away or names another one.
    pub(crate) fn tell_news(&self, news: Arc<Notify>) {
        let mut state = self.shared.lock();
        let has_news = state.peer_goes.is_some();
        state.several.set_news(news, has_news);
    }

    /// Returns the reason of the other side's GOAWAY.
    pub(crate) fn peer_goes(&self) -> Option<GoAwayReason> {
        self.shared.lock().peer_goes
    }

    /// Returns the number of streams that were reset by the trunk's end, or 0 before it.
    #[must_use]
    pub fn lost_streams(&self) -> u32 {
        self.shared.lock().lost_streams
    }

    /// Tells the other side that this side takes no new streams. The trunk ends with its last one.
    pub fn go_away(&self, reason: GoAwayReason) {
        let mut state = self.shared.lock();
        state.trunk.go_away(reason);
        state.wake_task_always();
    }

    /// Ends the trunk at once and resets its streams.
    pub fn close(&self) {
        let mut state = self.shared.lock();
        state.is_closed = true;
        state.wake_task_always();
    }

    /// Whether bytes of either side wait for the connection.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let now = self.shared.now();
        let state = self.shared.lock();
        state.end.is_none() && state.trunk.is_full(now)
    }

    /// Returns the state that [`pool::choose`](crate::pool::choose) needs.
    #[must_use]
    pub fn load(&self) -> Load {
        let now = self.shared.now();
        let mut state = self.shared.lock();
        let is_there = state.end.is_none() && !state.is_closed;
        let trunk = &mut state.trunk;
        Load {
            takes_streams: is_there && trunk.takes_streams(),
            open_streams: trunk.open_streams(),
            streams_max: trunk.streams_max(),
            moving_streams: trunk.moving_streams(now),
            rtt: trunk.rtt(),
            unanswered: trunk.unanswered(now),
        }
    }
}

/// Converts a reason to an I/O error, for code that copies bytes.
impl From<Reason> for std::io::Error {
    fn from(reason: Reason) -> Self {
        let kind = match reason {
            Reason::Refused => std::io::ErrorKind::ConnectionRefused,
            Reason::NetworkUnreachable => std::io::ErrorKind::NetworkUnreachable,
            Reason::HostUnreachable => std::io::ErrorKind::HostUnreachable,
            Reason::TrunkGone => std::io::ErrorKind::BrokenPipe,
            _ => std::io::ErrorKind::ConnectionReset,
        };
        Self::new(kind, reason.to_string())
    }
}
