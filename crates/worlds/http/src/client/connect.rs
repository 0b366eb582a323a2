//! Opens a connection for one route: looks the name up, connects over the route's interface, directly or
//! through a proxy, and encrypts the connection if the URL is `https`.

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream as StdStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use anabranch_algo::TcpSample;
use anabranch_net::{Egress, Resolver};
use bytes::Bytes;
use hyper::http::{HeaderValue, Request, response};
use tokio::io::BufReader;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use super::error::FetchError;
use super::h1::H1;
use super::h2::H2;
use super::origin::Origin;
use super::proxy::{self, Proxy, ProxyKind};
use super::rcvlowat::{self, ReceiveLowWatermark};
use super::settings::Settings;
use super::{tcp, tls};
use crate::happy_eyeballs;

/// The size of the read buffer of an encrypted connection, bytes; rustls alone reads 4 KiB at once.
const TLS_READ_BYTES: usize = 64 << 10;
/// The largest number of addresses of one name that are tried.
const ADDRESSES_MAX: usize = 8;
/// The least time between two samples of a connection's kernel counters while a body flows.
const SAMPLE_EVERY: Duration = Duration::from_millis(10);

/// Holds the limit of a route's receive window, shared by the route's connections and the caller.
#[derive(Debug, Default)]
pub(super) struct WindowClamp {
    /// The limit in bytes; 0 means no limit.
    bytes: AtomicU64,
    /// The socket of the connection in use.
    current: Mutex<Weak<OwnedFd>>,
}

impl WindowClamp {
    /// Limits the window of the connection in use, and of later ones, to `bytes`.
    pub(super) fn set(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        if let Some(fd) = current {
            tcp::set_window_clamp(fd.as_fd(), bytes);
        }
    }

    /// Returns the limit in bytes, or `u64::MAX` if there is none.
    fn bound(&self) -> u64 {
        match self.bytes.load(Ordering::Relaxed) {
            0 => u64::MAX,
            bytes => bytes,
        }
    }

    /// Returns whether a limit is set.
    pub(super) fn is_set(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) > 0
    }

    fn apply(&self, fd: std::os::fd::BorrowedFd<'_>) {
        match self.bytes.load(Ordering::Relaxed) {
            0 => {}
            bytes => tcp::set_window_clamp(fd, bytes),
        }
    }
}

/// Holds a connection in the protocol that it speaks.
enum HttpConnection {
    H1(H1),
    H2(H2),
}

impl HttpConnection {
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, String>> {
        match self {
            Self::H1(http) => http.poll_data(cx),
            Self::H2(http) => http.poll_data(cx),
        }
    }
}

/// Holds an open connection. Answers come in the order of the requests. Dropping the connection closes it at
/// once.
pub(super) struct Connection {
    pub(super) origin: Origin,
    http: HttpConnection,
    /// The number of answers that have begun on this connection.
    pub(super) answers: u64,
    /// The number of answers to pipelined requests among `answers`.
    pub(super) pipelined_answers: u32,
    /// Whether the server has answered on this connection at least once.
    accepts_pipelining: bool,
    /// The socket, for asking the kernel about it.
    fd: Arc<OwnedFd>,
    /// The local address and the peer's address, if the connection was opened without a chosen local address.
    unbound: Option<(IpAddr, IpAddr)>,
    /// The time at which the kernel's counters were last read.
    sampled: Option<Instant>,
    /// The number of segments that had arrived by `sampled`.
    segments: u32,
    /// Whether a request was sent since the kernel was last told that the connection receives in bulk.
    looks_interactive: bool,
    rcvlowat: ReceiveLowWatermark,
    /// The credentials for a proxy that takes requests themselves instead of opening a tunnel. The outer
    /// `None` means that there is no such proxy, the inner one that it needs no credentials.
    pub(super) relay: Option<Option<HeaderValue>>,
}

/// Tells the resolver to distrust the addresses of a name when this guard is dropped. A connection attempt
/// that times out also drops its guard.
struct Doubt<'a> {
    resolver: Option<&'a Resolver>,
    host: &'a str,
}

impl Doubt<'_> {
    /// Drops the guard without effect, because an address has accepted a connection.
    fn clear(mut self) {
        self.resolver = None;
    }
}

impl Drop for Doubt<'_> {
    fn drop(&mut self) {
        if let Some(resolver) = self.resolver {
            resolver.distrust(self.host);
        }
    }
}

impl Connection {
    /// Opens a connection to `origin` within [`Settings::connect_timeout`].
    pub(super) async fn open(
        settings: &Settings,
        via: &Egress,
        origin: Origin,
        window: &WindowClamp,
    ) -> Result<Self, FetchError> {
        let (limit, name) = (settings.connect_timeout, origin.host_and_port());
        timeout(limit, Self::dial(settings, via, origin, window)).await.unwrap_or_else(|_| {
            let why = format!("no connection to {name} within {} s", limit.as_secs_f32());
            Err(FetchError::Unreachable(why))
        })
    }

    async fn dial(
        settings: &Settings,
        via: &Egress,
        origin: Origin,
        window: &WindowClamp,
    ) -> Result<Self, FetchError> {
        let proxy = settings.proxies.for_origin(&origin);
        let proxy = proxy.as_ref();
        let (host, port) = proxy.map_or((&origin.host, origin.port), |proxy| (&proxy.host, proxy.port));
        let blame = |error| match (error, proxy) {
            (FetchError::Unreachable(why), Some(proxy)) => {
                FetchError::Unreachable(format!("the proxy {}: {why}", proxy.name()))
            }
            (error, _) => error,
        };
        let addresses = look_up(settings, host, port, via.address()).await.map_err(blame)?;
        let doubt = Doubt { resolver: Some(&settings.resolver), host };
        let mut stream = connect_any(via, host, addresses, window).await.map_err(blame)?;
        doubt.clear();
        // Small requests must not wait for each other. If the option cannot be set, they only come later.
        let _ = stream.set_nodelay(true);
        let ends = stream.local_addr().ok().zip(stream.peer_addr().ok());
        let unbound = ends
            .filter(|_| *via == Egress::any())
            .map(|(own, peer)| (own.ip().to_canonical(), peer.ip().to_canonical()));
        let fd = stream.as_fd().try_clone_to_owned();
        let fd = Arc::new(fd.map_err(|e| FetchError::Unreachable(format!("no descriptor is left: {e}")))?);
        let limits = settings.limits.of(via);
        let (piece, ahead) = (limits.piece_bytes(), limits.second_bytes());
        let mut relay = None;
        if let Some(proxy) = proxy {
            relay = begin_through_proxy(&mut stream, proxy, &origin, settings, via).await?;
        }
        let http = if origin.secure {
            let name = ServerName::try_from(origin.host.trim_end_matches('.').to_owned())
                .map_err(|_| FetchError::Refused(format!("{:?} is no name TLS can have", origin.host)))?;
            let connector = TlsConnector::from(settings.tls().map_err(FetchError::Tls)?);
            let stream = BufReader::with_capacity(TLS_READ_BYTES, stream);
            let stream = connector.connect(name, stream).await.map_err(|e| tls::handshake_error(&e))?;
            match stream.get_ref().1.alpn_protocol() {
                Some(b"h2") => HttpConnection::H2(H2::start(stream, ahead).await?),
                _ => HttpConnection::H1(H1::new(stream, piece)),
            }
        } else {
            HttpConnection::H1(H1::new(stream, piece))
        };
        Ok(Self {
            origin,
            http,
            answers: 0,
            pipelined_answers: 0,
            accepts_pipelining: false,
            fd,
            unbound,
            sampled: None,
            segments: 0,
            looks_interactive: false,
            rcvlowat: ReceiveLowWatermark::new(),
            relay,
        })
    }

    /// Returns whether packets of this connection leave by `via`, although it was opened without a chosen
    /// local address. Discovery opens such connections.
    pub(super) fn leaves_by(&self, via: &Egress) -> bool {
        self.unbound.is_some_and(|(own, peer)| via.is_kept_by(own, peer))
    }

    /// Returns whether the connection speaks HTTP/2.
    pub(super) const fn is_h2(&self) -> bool {
        matches!(self.http, HttpConnection::H2(_))
    }

    /// Returns whether the server is known to have closed the connection. Call this only if no request is
    /// unanswered.
    pub(super) fn is_closed(&mut self) -> bool {
        match &mut self.http {
            HttpConnection::H1(http) => http.is_closed(),
            HttpConnection::H2(http) => http.is_closed(),
        }
    }

    /// Returns whether the connection stays open after the newest answer.
    pub(super) fn persists(&self) -> bool {
        match &self.http {
            HttpConnection::H1(http) => http.persists(),
            HttpConnection::H2(http) => !http.is_closed(),
        }
    }

    /// Returns whether the newest answer is the connection's last: the server has announced that it closes
    /// the connection, and owes no other answer.
    pub(super) fn is_last(&self) -> bool {
        !self.persists() && (!self.is_h2() || self.unanswered() == 0)
    }

    /// Returns whether requests may be pipelined: the server has answered on this connection before, and
    /// keeps it open.
    pub(super) fn may_pipeline(&self) -> bool {
        self.accepts_pipelining
            && match &self.http {
                HttpConnection::H1(http) => http.pipelines(),
                HttpConnection::H2(http) => !http.is_closed(),
            }
    }

    /// Returns the number of requests that wait for their answer to begin.
    pub(super) fn unanswered(&self) -> usize {
        match &self.http {
            HttpConnection::H1(http) => http.unanswered(),
            HttpConnection::H2(http) => http.unanswered(),
        }
    }

    /// Returns the least number of bytes of the current body that are still to come.
    pub(super) const fn left_bytes(&self) -> u64 {
        match &self.http {
            HttpConnection::H1(http) => http.left_bytes(),
            HttpConnection::H2(_) => 0,
        }
    }

    /// Queues a request behind earlier requests. The next call of `head` or `data` sends it.
    pub(super) fn send_request(&mut self, request: Request<()>) {
        self.looks_interactive = true;
        match &mut self.http {
            HttpConnection::H1(http) => http.send_request(&request),
            HttpConnection::H2(http) => http.send_request(request),
        }
    }

    /// Makes this connection the one to which the route's window limit applies.
    pub(super) fn make_current(&self, window: &WindowClamp) {
        *window.current.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(&self.fd);
        window.apply(self.fd.as_fd());
    }

    /// Waits for the head of the oldest answer. Dropping the future loses nothing (cancellation-safe).
    ///
    /// # Errors
    /// If the connection fails; the error is one clause.
    pub(super) async fn head(&mut self) -> Result<response::Parts, String> {
        self.rcvlowat.release(self.fd.as_fd());
        let parts = poll_fn(|cx| match &mut self.http {
            HttpConnection::H1(http) => http.poll_head(cx),
            HttpConnection::H2(http) => http.poll_head(cx),
        });
        let parts = parts.await?;
        self.answers += 1;
        self.accepts_pipelining = true;
        Ok(parts)
    }

    /// Waits for the next bytes of the body; `None` means that the body has ended. Dropping the future loses
    /// nothing (cancellation-safe).
    ///
    /// # Errors
    /// If the connection fails; the error is one clause.
    pub(super) async fn data(&mut self) -> Result<Option<Bytes>, String> {
        if self.rcvlowat.hold(self.fd.as_fd(), self.left_bytes()) {
            if let Ok(data) = timeout(rcvlowat::WAIT, poll_fn(|cx| self.http.poll_data(cx))).await {
                return data;
            }
            self.rcvlowat.give_up(self.fd.as_fd());
        }
        poll_fn(|cx| self.http.poll_data(cx)).await
    }

    /// Drops the rest of the body if that is free, as in HTTP/2. Returns `false` if the caller has to read
    /// the rest.
    pub(super) fn abandon_body(&mut self) -> bool {
        match &mut self.http {
            HttpConnection::H1(_) => false,
            HttpConnection::H2(http) => {
                http.abandon_body();
                true
            }
        }
    }

    /// Drops the oldest answer, which has not begun, if that is free, as in HTTP/2. Returns `false` if the
    /// answer will come all the same.
    pub(super) fn skip_answer(&mut self) -> bool {
        match &mut self.http {
            HttpConnection::H1(_) => false,
            HttpConnection::H2(http) => {
                http.skip_answer();
                true
            }
        }
    }

    /// Sets the window limit again, because the kernel may have lifted it, and returns the kernel's counters
    /// at most every [`SAMPLE_EVERY`]. The caller calls this after each piece of a body.
    pub(super) fn sample(&mut self, window: &WindowClamp) -> Option<TcpSample> {
        window.apply(self.fd.as_fd());
        let now = Instant::now();
        if self.sampled.is_some_and(|last| now.duration_since(last) < SAMPLE_EVERY) {
            return None;
        }
        self.sampled = Some(now);
        if std::mem::take(&mut self.looks_interactive) {
            tcp::receive_in_bulk(self.fd.as_fd());
        }
        let sample = tcp::sample(self.fd.as_fd())?;
        self.segments = sample.segments;
        self.rcvlowat.on_sample(now, sample.received_bytes, window.bound());
        Some(sample)
    }

    /// Returns a sample if segments have arrived although nothing can be read: these segments lie behind a
    /// lost one. Unless the window grows for them, the sender stops until the lost segment is repeated.
    pub(super) fn sample_if_arrived(&mut self, window: &WindowClamp) -> Option<TcpSample> {
        let sample = tcp::sample(self.fd.as_fd()).filter(|sample| sample.segments != self.segments)?;
        window.apply(self.fd.as_fd());
        (self.sampled, self.segments) = (Some(Instant::now()), sample.segments);
        Some(sample)
    }
}

/// Connects to `origin` through `proxy`. Returns `None` once a tunnel is open. An HTTP proxy for an `http`
/// origin takes the requests themselves; then returns the proxy's credentials, if there are any.
async fn begin_through_proxy(
    stream: &mut TcpStream,
    proxy: &Proxy,
    origin: &Origin,
    settings: &Settings,
    via: &Egress,
) -> Result<Option<Option<HeaderValue>>, FetchError> {
    match &proxy.kind {
        ProxyKind::Http(credentials) if !origin.secure => return Ok(Some(credentials.clone())),
        ProxyKind::Http(credentials) => {
            proxy::connect(stream, origin, proxy, credentials.as_ref(), &settings.agent).await?;
        }
        ProxyKind::Socks5Names(user) => proxy::socks5(stream, origin, None, proxy, user.as_ref()).await?,
        ProxyKind::Socks5(user) => {
            let family = stream.peer_addr().ok().map(|peer| peer.ip());
            let all = look_up(settings, &origin.host, origin.port, None).await?;
            let mut same = all.iter().filter(|a| family.is_none_or(|ip| ip.is_ipv4() == a.is_ipv4()));
            let ip = same.next().or(all.first()).map(SocketAddr::ip);
            let begun = proxy::socks5(stream, origin, ip, proxy, user.as_ref()).await;
            begun.map_err(|error| match error {
                FetchError::Unreachable(why) => FetchError::Unreachable(format!("{why} (via {via})")),
                other => other,
            })?;
        }
    }
    Ok(None)
}

/// Looks up the addresses of `host` that are of the same family as `own`, at most [`ADDRESSES_MAX`]. IPv4 and
/// IPv6 addresses alternate.
async fn look_up(
    settings: &Settings,
    host: &str,
    port: u16,
    own: Option<IpAddr>,
) -> Result<Vec<SocketAddr>, FetchError> {
    let found = settings.resolver.resolve(host).await;
    let mut found =
        found.map_err(|e| FetchError::Unreachable(format!("the name {host} was not found: {e}")))?;
    found.iter_mut().for_each(|address| address.set_port(port));
    let fits = |address: &&SocketAddr| own.is_none_or(|own| own.is_ipv4() == address.is_ipv4());
    let fitting: Vec<SocketAddr> = found.iter().filter(fits).copied().collect();
    let Some(first) = fitting.first() else {
        // The next attempt has to look the name up again.
        settings.resolver.distrust(host);
        let why = match own {
            Some(own) if !found.is_empty() => {
                format!("{host} has no {} address", if own.is_ipv4() { "IPv4" } else { "IPv6" })
            }
            _ => format!("the name {host} has no address"),
        };
        return Err(FetchError::Unreachable(why));
    };
    let (same, other): (Vec<_>, Vec<_>) = fitting.iter().partition(|a| a.is_ipv4() == first.is_ipv4());
    let longest = same.len().max(other.len());
    let turns = (0..longest).flat_map(|n| [same.get(n), other.get(n)]).flatten();
    Ok(turns.take(ADDRESSES_MAX).copied().collect())
}

/// Returns a socket bound by `via`, and the address of `peer` that it has to connect to.
fn socket(via: &Egress, peer: SocketAddr, window: &WindowClamp) -> io::Result<(TcpSocket, SocketAddr)> {
    let (socket, peer) = via.tcp_socket(peer)?;
    window.apply(socket.as_fd());
    Ok((TcpSocket::from_std_stream(StdStream::from(socket)), peer))
}

/// Connects to the first of the `addresses` of `host` that accepts; each is tried a little after the one
/// before (RFC 8305).
async fn connect_any(
    via: &Egress,
    host: &str,
    addresses: Vec<SocketAddr>,
    window: &WindowClamp,
) -> Result<TcpStream, FetchError> {
    // The caller that reports the error names the host.
    let is_address = host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    let describe = move |peer: SocketAddr, e: io::Error| match is_address {
        true => e.to_string(),
        false => format!("{peer}: {e}"),
    };
    let mut first: Option<String> = None;
    let attempt = |peer| {
        let socket = socket(via, peer, window).map_err(|e| e.to_string());
        async move {
            let (socket, peer) = socket?;
            socket.connect(peer).await.map_err(|e| describe(peer, e))
        }
    };
    let connected = happy_eyeballs::race(addresses, attempt, |failed| {
        first.get_or_insert_with(|| failed.unwrap_or_else(|e| e.to_string()));
    });
    let connected = connected.await;
    connected.ok_or_else(|| FetchError::Unreachable(first.unwrap_or_else(|| "it has no address".to_owned())))
}
