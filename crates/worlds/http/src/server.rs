//! Serves the contents of a [`ContentProvider`] over HTTP/1.1 to browsers, curl, wget, aria2 and other
//! clients.
//!
//! One thread with a runtime of its own handles all connections. It does what RFC 9110 asks of a server with
//! ranges: preconditions (§13), one range at a time (§14), HEAD, and `Content-Length` on every content. The
//! provider looks paths up and reads the bytes, on a few other threads. So a slow disk delays only the
//! clients that want its files. If the bytes of a body can no longer be read, its connection is closed early,
//! so that no client takes it for complete. The module `connections` decides which connection has to go when
//! there are too many.

mod body;
mod connections;
mod counting_stream;
pub mod document;
pub mod path;
pub mod preconditions;
mod provider;
pub mod range;
mod respond;
mod shared;

use std::convert::Infallible;
use std::future::ready;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::sync::oneshot;
use tokio::task::{LocalSet, spawn_local, yield_now};
use tokio::time::sleep;

use anabranch_algo::fair_share::Yields;
use anabranch_net::Places;
use anabranch_net::places::host_of;
use connections::Connection;
use counting_stream::CountingStream;
pub use provider::{ContentProvider, PathLookup, Refusal, Resource, ResourceRequest, Unavailable};
pub use shared::Counters;
use shared::{ConnectionGuard, Metrics, Shared};

/// The most connections that are served at the same time. A further one replaces a connection that is idle or
/// slow, or one of a host that has more. If there is no such connection, the new one is answered with 503.
pub const CONNECTIONS_MAX: usize = 256;
/// The most further connections that get the 503. The rest are closed without an answer.
const TURNED_AWAY_MAX: usize = 64;
/// The most bytes of a request's head.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// The bytes of a body that a connection buffers before it reads more. One read comes on top.
const BUFFER_BYTES: usize = 64 << 10;
/// How long a connection may wait for a request, or take to send the head of one.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a connection that is answered with 503 may take in all: to send the head of its request and to
/// read the answer.
const TURNED_AWAY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long running reads may take to end when the server is stopped.
const READS_END: Duration = Duration::from_secs(1);
/// The most connections that may wait to be accepted.
const BACKLOG: i32 = 1_024;
/// The pause after accepting has failed, which is usually for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The listening sockets of a server that has not started. Clients that connect wait until it starts.
#[derive(Debug)]
pub struct Server {
    listeners: Vec<TcpListener>,
    addresses: Vec<SocketAddr>,
}

impl Server {
    /// Listens on all of `addresses`. `[::]` is IPv6 only, so that `0.0.0.0` can be bound too.
    ///
    /// # Errors
    /// If an address cannot be bound (`AddrInUse`, `AddrNotAvailable`, `PermissionDenied`). The error names
    /// the address.
    pub fn bind(addresses: &[SocketAddr]) -> io::Result<Self> {
        let open = |address: &SocketAddr| {
            let socket = Socket::new(Domain::for_address(*address), Type::STREAM, Some(Protocol::TCP))?;
            if address.is_ipv6() {
                socket.set_only_v6(true)?;
            }
            // Connections of an earlier server then do not block the port.
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

    /// Returns the addresses that the server listens on, with the ports that the system chose.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Starts a thread that answers from `provider` until the returned value is stopped or dropped.
    ///
    /// # Errors
    /// If the system has no thread or no descriptors left.
    pub fn start<S: ContentProvider>(self, provider: S) -> io::Result<RunningServer> {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().max_blocking_threads(provider.threads_max()).build()?;
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
                Arc::new(Shared { provider, metrics: counted, rate_lock: tokio::sync::Mutex::new(()) });
            let (tasks, places) = (LocalSet::new(), Places::new(CONNECTIONS_MAX as u64));
            for listener in listeners {
                tasks.spawn_local(accept(listener, Arc::clone(&shared), places.clone()));
            }
            // This returns when the server is stopped. All connections are dropped then.
            let _ = tasks.block_on(&runtime, stopped);
            drop(tasks);
            runtime.shutdown_timeout(READS_END);
        })?;
        Ok(RunningServer { metrics, stop: Some(stop), thread: Some(thread) })
    }
}

/// A running server.
#[derive(Debug)]
pub struct RunningServer {
    metrics: Arc<Metrics>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl RunningServer {
    /// Returns what the server has done so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.metrics.counters()
    }

    /// Closes all connections and waits until the server's thread has ended.
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

async fn accept<S: ContentProvider>(
    listener: tokio::net::TcpListener,
    shared: Arc<Shared<S>>,
    places: Places<IpAddr>,
) {
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let open = shared.metrics.connections.fetch_add(1, Ordering::Relaxed) as usize;
        let guard = ConnectionGuard(Arc::clone(&shared.metrics));
        if let Ok(place) = places.take(host_of(peer.ip()), Yields::First) {
            spawn_local(serve(stream, Arc::clone(&shared), Connection::new(place), guard));
        } else {
            shared.metrics.turned_away.fetch_add(1, Ordering::Relaxed);
            if open < CONNECTIONS_MAX + TURNED_AWAY_MAX {
                spawn_local(turn_away::<S>(stream, guard));
            }
        }
        // Lets a replaced connection end and the new one begin, before the next one is accepted.
        yield_now().await;
    }
}

async fn serve<S: ContentProvider>(
    stream: tokio::net::TcpStream,
    shared: Arc<Shared<S>>,
    connection: Connection,
    guard: ConnectionGuard,
) {
    let Ok(local) = stream.local_addr() else { return };
    // This option is only for speed: a head and a short body may be two writes.
    let _ = stream.set_nodelay(true);
    let progress = &connection.progress;
    let io = TokioIo::new(CountingStream::new(stream, Rc::clone(progress), Arc::clone(&shared.metrics)));
    let service = service_fn(|request| {
        let (shared, connection) = (&shared, &connection);
        async move {
            let answer = connection.answer();
            let response = respond::respond(shared, &connection.progress, local, &request).await;
            Ok::<_, Infallible>(response.map(|body| answer.with(body)))
        }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_header_size(HEAD_BYTES_MAX)
        .max_buf_size(BUFFER_BYTES)
        .serve_connection(io, service);
    tokio::select! {
        // An error is not reported, because the client sees it.
        _ = served => {}
        () = connection.ended() => {}
    }
    drop(guard);
}

/// Answers that there are too many connections.
async fn turn_away<S: ContentProvider>(stream: tokio::net::TcpStream, guard: ConnectionGuard) {
    let service = service_fn(|_| ready(Ok::<_, Infallible>(respond::full::<S>())));
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(TURNED_AWAY_TIMEOUT)
        .max_header_size(HEAD_BYTES_MAX)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    // A client may not keep this connection open by not reading the answer either.
    let _ = tokio::time::timeout(TURNED_AWAY_TIMEOUT, served).await;
    drop(guard);
}
