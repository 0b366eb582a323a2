//! The server: contents of a [`ContentProvider`] for browsers, curl, wget, aria2 and other receivers, over
//! HTTP/1.1.
//!
//! One thread with a runtime of its own. It does what RFC 9110 asks of a server of ranges: preconditions
//! (§13), one range at a time (§14), HEAD, and `Content-Length` on everything that has a length. The provider
//! says what a path means and reads the bytes, from memory or the page cache, in that thread. A body whose
//! bytes cannot be read any more ends short, with its connection: nobody takes that for a whole one.

mod body;
mod counting_stream;
pub mod document;
pub mod path;
mod preconditions;
mod range;
mod respond;

use std::convert::Infallible;
use std::fmt;
use std::future::ready;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::sync::oneshot;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::sleep;

use counting_stream::{CountingStream, Progress};
use path::Path;

/// Connections that are answered at once; those beyond are told to come back (503).
pub const CONNECTIONS_MAX: usize = 256;
/// Connections beyond these that are told so; more are closed without a word.
const TURNED_AWAY_MAX: usize = 64;
/// Bytes of a request's head at most.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Bytes that a connection buffers before it asks a body for more; a read of it comes on top.
const BUFFER_BYTES: usize = 64 << 10;
/// How long a connection may wait for a request, or take to send the head of one.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// The same for one that is to be turned away.
const TURNED_AWAY_TIMEOUT: Duration = Duration::from_secs(5);
/// A connection on which nothing moves for so long, up to twice, is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1_024;
/// Pause after accepting failed: usually for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What is offered. All of it is called on the server's thread, and everybody waits meanwhile.
pub trait ContentProvider: Send + 'static {
    /// What [`find`](Self::find) finds and [`read`](Self::read) reads.
    type Content: 'static;

    /// What a path means.
    fn find(&self, request: &ResourceRequest<'_>) -> PathLookup<Self::Content>;

    /// Whether the content can be read at all, asked before anything is promised.
    ///
    /// # Errors
    /// Why not.
    fn check(&self, content: &Self::Content) -> Result<(), Unavailable>;

    /// Fills `out` with the content's bytes from `offset` on; it has them, by the length that was found.
    ///
    /// # Errors
    /// If the bytes cannot be read, or are not what was found any more.
    fn read(&self, content: &Self::Content, offset: u64, out: &mut [u8]) -> Result<(), Unavailable>;

    /// The most that may be sent at once, in bytes; `None`: as much as the network takes, nothing is
    /// reserved.
    fn burst_bytes(&self) -> Option<usize> {
        None
    }

    /// Reserves `bytes`, and says how long to wait before they are sent.
    fn reserve(&self, bytes: usize) -> Duration {
        let _ = bytes;
        Duration::ZERO
    }
}

/// A request, as far as a provider needs it.
#[derive(Clone, Copy, Debug)]
pub struct ResourceRequest<'a> {
    /// What for.
    pub path: &'a Path,
    /// What stands behind `?`, still encoded.
    pub query: Option<&'a str>,
    /// `HOST` or `HOST:PORT`, as the client calls this server.
    pub host: &'a str,
    /// Where the connection arrived.
    pub local: SocketAddr,
}

/// What a path means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathLookup<C> {
    /// This.
    Found(Resource<C>),
    /// Something else, under this path (encoded, from `/` on).
    Moved(String),
    /// Nothing.
    NotFound,
}

/// One thing to fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource<C> {
    /// How the provider finds its bytes.
    pub content: C,
    /// How many these are.
    pub length: u64,
    /// A strong validator, in its quotes (RFC 9110 §8.8.3).
    pub etag: Option<String>,
    /// Its media type.
    pub media_type: &'static str,
    /// Values of `Link` (RFC 8288).
    pub links: Vec<String>,
}

/// Why bytes cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unavailable {
    /// They have changed or are gone, for good: 410.
    Gone,
    /// Perhaps later: 503.
    Busy,
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gone => "the file is not the one any more that was offered",
            Self::Busy => "the file cannot be read at the moment",
        })
    }
}

impl std::error::Error for Unavailable {}

/// Numbers since the start, and one of now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests.
    pub requests: u64,
    /// Bytes sent, heads included.
    pub sent_bytes: u64,
    /// Requests refused or answers broken off because bytes could not be read any more.
    pub unavailable: u64,
    /// Connections turned away because there were too many.
    pub turned_away: u64,
    /// Connections open now.
    pub connections: u64,
}

#[derive(Debug, Default)]
struct Metrics {
    requests: AtomicU64,
    sent_bytes: AtomicU64,
    unavailable: AtomicU64,
    turned_away: AtomicU64,
    connections: AtomicU64,
}

/// Listening sockets, before anybody is answered: clients that come early wait.
#[derive(Debug)]
pub struct Server {
    listeners: Vec<TcpListener>,
    addresses: Vec<SocketAddr>,
}

impl Server {
    /// Listens on all of `addresses`; `[::]` means IPv6 only, so that it stands beside `0.0.0.0`.
    ///
    /// # Errors
    /// What binding fails with (`AddrInUse`, `AddrNotAvailable`, `PermissionDenied`), with the address.
    pub fn bind(addresses: &[SocketAddr]) -> io::Result<Self> {
        let open = |address: &SocketAddr| {
            let socket = Socket::new(Domain::for_address(*address), Type::STREAM, Some(Protocol::TCP))?;
            if address.is_ipv6() {
                socket.set_only_v6(true)?;
            }
            // Connections of a server that has just ended do not keep its port.
            socket.set_reuse_address(true)?;
            socket.set_nonblocking(true)?;
            socket.bind(&(*address).into())?;
            socket.listen(BACKLOG)?;
            Ok(TcpListener::from(socket))
        };
        let named = |address: &SocketAddr| {
            let told = |e: io::Error| io::Error::new(e.kind(), format!("listening on {address}: {e}"));
            open(address).map_err(told)
        };
        let listeners = addresses.iter().map(named).collect::<io::Result<Vec<_>>>()?;
        let addresses = listeners.iter().map(TcpListener::local_addr).collect::<io::Result<_>>()?;
        Ok(Self { listeners, addresses })
    }

    /// Where it listens, with the ports that it got.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Answers from `provider`, in a thread, until the value returned is stopped or dropped.
    ///
    /// # Errors
    /// If the system has no thread or no descriptors for it.
    pub fn start<S: ContentProvider>(self, provider: S) -> io::Result<RunningServer> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listeners = {
            let _inside = runtime.enter();
            let listeners = self.listeners.into_iter().map(tokio::net::TcpListener::from_std);
            listeners.collect::<io::Result<Vec<_>>>()?
        };
        let metrics = Arc::new(Metrics::default());
        let (stop, stopped) = oneshot::channel::<()>();
        let counted = Arc::clone(&metrics);
        let thread = thread::Builder::new().name("http".into()).spawn(move || {
            let shared =
                Rc::new(Shared { provider, metrics: counted, rate_lock: tokio::sync::Mutex::new(()) });
            let tasks = LocalSet::new();
            for listener in listeners {
                tasks.spawn_local(accept(listener, Rc::clone(&shared)));
            }
            // Returns when it is stopped; what is under way is dropped then, with its connections.
            let _ = tasks.block_on(&runtime, stopped);
        })?;
        Ok(RunningServer { metrics, stop: Some(stop), thread: Some(thread) })
    }
}

/// A server that answers.
#[derive(Debug)]
pub struct RunningServer {
    metrics: Arc<Metrics>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl RunningServer {
    /// What it has done so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counters {
            requests: of(&self.metrics.requests),
            sent_bytes: of(&self.metrics.sent_bytes),
            unavailable: of(&self.metrics.unavailable),
            turned_away: of(&self.metrics.turned_away),
            connections: of(&self.metrics.connections),
        }
    }

    /// Closes all connections and waits for the thread.
    pub fn stop(&mut self) {
        drop(self.stop.take());
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join)
            && !thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// What all connections share.
struct Shared<S> {
    provider: S,
    metrics: Arc<Metrics>,
    /// Whoever holds it has reserved and waits, so that all of HTTP counts as one where others book too;
    /// those who want it come one after the other.
    rate_lock: tokio::sync::Mutex<()>,
}

/// A connection's place among those that are open.
struct ConnectionGuard(Arc<Metrics>);

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn accept<S: ContentProvider>(listener: tokio::net::TcpListener, shared: Rc<Shared<S>>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let open = shared.metrics.connections.fetch_add(1, Ordering::Relaxed) as usize;
        let guard = ConnectionGuard(Arc::clone(&shared.metrics));
        if open >= CONNECTIONS_MAX {
            shared.metrics.turned_away.fetch_add(1, Ordering::Relaxed);
        }
        if open < CONNECTIONS_MAX + TURNED_AWAY_MAX {
            spawn_local(serve(stream, Rc::clone(&shared), guard, open >= CONNECTIONS_MAX));
        }
    }
}

async fn serve<S: ContentProvider>(
    stream: tokio::net::TcpStream,
    shared: Rc<Shared<S>>,
    guard: ConnectionGuard,
    full: bool,
) {
    let Ok(local) = stream.local_addr() else { return };
    // Only for speed: a head and a short body are two writes at times.
    let _ = stream.set_nodelay(true);
    let progress = Rc::new(Progress::default());
    let io = TokioIo::new(CountingStream::new(stream, Rc::clone(&progress), Arc::clone(&shared.metrics)));
    let service = service_fn(|request| {
        let response = match full {
            true => respond::full(),
            false => respond::respond(&shared, &progress, local, &request),
        };
        ready(Ok::<_, Infallible>(response))
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(if full { TURNED_AWAY_TIMEOUT } else { HEAD_TIMEOUT })
        .max_header_size(HEAD_BYTES_MAX)
        .max_buf_size(BUFFER_BYTES)
        .keep_alive(!full)
        .serve_connection(io, service);
    tokio::select! {
        // However it ends, there is nobody to tell: the client sees it.
        _ = connection => {}
        () = stalled(&progress) => {}
    }
    drop(guard);
}

/// Ends when nothing has moved for a time.
async fn stalled(progress: &Progress) {
    loop {
        let before = progress.steps.get();
        sleep(IDLE_TIMEOUT).await;
        // Whoever waits for the rate limit does not wait for the client.
        if progress.steps.get() == before && !progress.reserved.get() {
            return;
        }
    }
}
