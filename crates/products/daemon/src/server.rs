//! HTTP and WebSocket in front of the methods: who may connect, how much may be sent, and who hears
//! notifications.
//!
//! ```text
//! POST /jsonrpc            a call or a list of calls
//! GET  /jsonrpc?method=…   a call, also as JSONP
//! GET  /jsonrpc, Upgrade   a WebSocket: calls in, answers and notifications out
//! GET  /                   the page of this daemon
//! ```
//!
//! Every method that does anything wants the token, so a page of another site can do nothing, whatever it
//! may send. It may read answers only if `--rpc-allow-origin-all` lets it. A WebSocket hears notifications
//! from its first call with the token on.

mod answer;
mod http;
#[cfg(test)]
mod tests;
mod websocket;

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::sleep;

use crate::rpc::{Reply, Rpc, unwritten};

/// The most connections at a time. Further ones are closed.
const CONNECTIONS_MAX: usize = 256;
/// The most bytes of a request or of a message: aria2's default.
pub const REQUEST_BYTES_MAX: usize = 2 << 20;
/// The most bytes of a request's head.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// How long a connection may wait for a request, or take to send the head of one.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// How late the answer to a wrong token is, so that tokens cannot be tried quickly.
const REFUSAL_DELAY: Duration = Duration::from_millis(500);
/// How long after the answer the daemon ends, if a request asks for that.
const END_DELAY: Duration = Duration::from_millis(100);
/// The pause after accepting has failed, which is usually for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long running answers may take to end when the server is stopped.
const ANSWERS_END: Duration = Duration::from_secs(1);

/// What all connections share.
struct Shared {
    rpc: Rpc,
    /// Whether pages of any site may read answers.
    allows_all_origins: bool,
}

/// A server that answers until it is dropped.
#[derive(Debug)]
pub struct Server {
    addresses: Vec<SocketAddr>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Answers on these addresses, on a thread of its own.
    ///
    /// # Errors
    /// If an address cannot be bound, or the system has no threads left.
    pub fn start(addresses: &[SocketAddr], rpc: Rpc, allows_all_origins: bool) -> io::Result<Self> {
        let bind = |address: &SocketAddr| {
            let named = |e: io::Error| io::Error::new(e.kind(), format!("listening on {address}: {e}"));
            let listener = TcpListener::bind(address).map_err(named)?;
            listener.set_nonblocking(true).map_err(named)?;
            Ok(listener)
        };
        let listeners = addresses.iter().map(bind).collect::<io::Result<Vec<_>>>()?;
        let addresses = listeners.iter().map(TcpListener::local_addr).collect::<io::Result<_>>()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listeners = {
            let _inside = runtime.enter();
            listeners.into_iter().map(tokio::net::TcpListener::from_std).collect::<io::Result<Vec<_>>>()?
        };
        let shared = Arc::new(Shared { rpc, allows_all_origins });
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = thread::Builder::new().name("rpc".into()).spawn(move || {
            let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
            for listener in listeners {
                runtime.spawn(accept(listener, Arc::clone(&shared), Arc::clone(&places)));
            }
            // This returns when the server is stopped. All connections are dropped then.
            let _ = runtime.block_on(stopped);
            runtime.shutdown_timeout(ANSWERS_END);
        })?;
        Ok(Self { addresses, stop: Some(stop), thread: Some(thread) })
    }

    /// Returns the addresses that the server listens on, with the ports that the system chose.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        // A thread that has panicked has said so.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

async fn accept(listener: tokio::net::TcpListener, shared: Arc<Shared>, places: Arc<Semaphore>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
        // This option is only for speed: a head and a short body may be two writes.
        let _ = stream.set_nodelay(true);
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            // A WebSocket goes on after its HTTP has ended, and keeps the place.
            let place = Arc::new(place);
            let service = service_fn(|request| {
                let (shared, place) = (Arc::clone(&shared), Arc::clone(&place));
                async move { Ok::<_, Infallible>(http::answer(shared, request, place).await) }
            });
            let served = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT)
                .max_header_size(HEAD_BYTES_MAX)
                .serve_connection(TokioIo::new(stream), service)
                .with_upgrades();
            // An error is not reported, because the client sees it.
            let _ = served.await;
        });
    }
}

impl Shared {
    /// Answers a text once what it changes is written. A wrong token is answered late.
    async fn answer(&self, text: &[u8]) -> Reply {
        let mut reply = self.rpc.answer(text);
        if let Some(ticket) = reply.ticket
            && let Err(why) = self.rpc.daemon().written(ticket).await
        {
            reply.text = unwritten(&reply.text, &why);
            reply.http_status = 400;
        }
        if reply.is_unauthorized {
            sleep(REFUSAL_DELAY).await;
        }
        if reply.ends {
            let daemon = self.rpc.daemon().clone();
            tokio::spawn(async move {
                sleep(END_DELAY).await;
                daemon.ask_for_end();
            });
        }
        reply
    }
}
