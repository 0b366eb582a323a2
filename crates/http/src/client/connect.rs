//! A connection for one way: looked up, dialled over its interface, through a proxy or not, encrypted or not.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream as StdStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::http::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use net::Via;
use tokio::io::{AsyncRead, AsyncWrite, BufReader};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use super::proxy::{self, Kind, Proxy};
use super::settings::Settings;
use super::tls;
use super::url::{Origin, literal};
use super::{Sample, Trouble, tcp};

/// The largest piece of a body that is read at once, bytes; it is also the largest head of an answer.
const MAX_PIECE_BYTES: usize = 256 << 10;
/// What is read of an encrypted connection at once, bytes; rustls alone reads 4 KiB.
const TLS_READ_BYTES: usize = 64 << 10;
/// What an HTTP/2 server may send before we have taken it, bytes: 100 Mbit/s for 0.6 s.
const H2_WINDOW_BYTES: u32 = 8 << 20;
/// The largest HTTP/2 frame that is taken, bytes.
const H2_FRAME_BYTES: u32 = 64 << 10;
/// Addresses of one name that are tried.
const MAX_ADDRESSES: usize = 8;
/// How long one address is waited for before the next is tried beside it (RFC 8305 section 5).
const STAGGER: Duration = Duration::from_millis(250);
/// How often the kernel is asked about a connection while a body flows.
const SAMPLE_EVERY: Duration = Duration::from_millis(10);

/// What a way's connections share with whoever sets its window.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// Bytes; 0 is none.
    bytes: AtomicU64,
    /// The connection in use.
    current: Mutex<Weak<OwnedFd>>,
}

impl Window {
    /// Bounds the connection in use and those to come.
    pub(super) fn set(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        if let Some(fd) = current {
            tcp::clamp(fd.as_fd(), bytes);
        }
    }

    fn apply(&self, fd: std::os::fd::BorrowedFd<'_>) {
        match self.bytes.load(Ordering::Relaxed) {
            0 => {}
            bytes => tcp::clamp(fd, bytes),
        }
    }
}

/// The end of a connection at which requests go in.
enum Sender {
    H1(http1::SendRequest<Empty<Bytes>>),
    H2(http2::SendRequest<Empty<Bytes>>),
}

/// An open connection, for one request at a time. Dropping it closes it, whatever is still to come.
pub(super) struct Connection {
    pub(super) origin: Origin,
    sender: Sender,
    driver: JoinHandle<()>,
    /// The socket once more, to ask the kernel about it.
    fd: Arc<OwnedFd>,
    sampled: Option<Instant>,
    /// The proxy that takes the requests themselves and not a tunnel, with its credentials.
    pub(super) relay: Option<Option<(String, String)>>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Connection {
    /// Opens a connection to `origin`. It takes at most the time that the settings give it, all in all.
    pub(super) async fn open(
        settings: &Settings,
        via: &Via,
        origin: &Origin,
        window: &Window,
    ) -> Result<Self, Trouble> {
        let limit = settings.connect_timeout;
        timeout(limit, Self::dial(settings, via, origin, window)).await.unwrap_or_else(|_| {
            let why = format!("no connection to {} within {} s", origin.host_and_port(), limit.as_secs_f32());
            Err(Trouble::Unreachable(why))
        })
    }

    async fn dial(settings: &Settings, via: &Via, origin: &Origin, window: &Window) -> Result<Self, Trouble> {
        let proxy = settings.proxies.for_origin(origin);
        let (host, port) = proxy.map_or((&origin.host, origin.port), |proxy| (&proxy.host, proxy.port));
        let blame = |trouble| match (trouble, proxy) {
            (Trouble::Unreachable(why), Some(proxy)) => {
                Trouble::Unreachable(format!("the proxy {}: {why}", proxy.name()))
            }
            (trouble, _) => trouble,
        };
        let addresses = look_up(host, port, via.address()).await.map_err(blame)?;
        let mut stream = reach(via, addresses, window).await.map_err(blame)?;
        // Small requests must not wait for each other; where it fails they do.
        let _ = stream.set_nodelay(true);
        let fd = stream.as_fd().try_clone_to_owned();
        let fd = Arc::new(fd.map_err(|e| Trouble::Unreachable(format!("no descriptor is left: {e}")))?);
        let mut relay = None;
        if let Some(proxy) = proxy {
            relay = through(&mut stream, proxy, origin, settings, via).await?;
        }
        let (sender, driver) = if origin.secure {
            let name = ServerName::try_from(origin.host.trim_end_matches('.').to_owned())
                .map_err(|_| Trouble::Refused(format!("`{}` is no name TLS can have", origin.host)))?;
            let connector = TlsConnector::from(settings.tls().map_err(Trouble::Tls)?);
            let stream = BufReader::with_capacity(TLS_READ_BYTES, stream);
            let stream = connector.connect(name, stream).await.map_err(|e| tls::trouble(&e))?;
            let h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            start(stream, h2).await?
        } else {
            start(stream, false).await?
        };
        Ok(Self { origin: origin.clone(), sender, driver, fd, sampled: None, relay })
    }

    /// Whether it speaks HTTP/2.
    pub(super) const fn is_h2(&self) -> bool {
        matches!(self.sender, Sender::H2(_))
    }

    /// Whether the server has closed it, as far as is known.
    pub(super) fn is_closed(&self) -> bool {
        match &self.sender {
            Sender::H1(sender) => sender.is_closed(),
            Sender::H2(sender) => sender.is_closed(),
        }
    }

    /// Sends `request` and waits for the head of the answer.
    pub(super) async fn send(
        &mut self,
        request: Request<Empty<Bytes>>,
        window: &Window,
    ) -> hyper::Result<Response<Incoming>> {
        *window.current.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(&self.fd);
        window.apply(self.fd.as_fd());
        match &mut self.sender {
            Sender::H1(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
            Sender::H2(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
        }
    }

    /// To be called after each piece that was read: sets the window again, which the kernel may have lifted,
    /// and tells what the kernel knows of the connection unless it was asked just now.
    pub(super) fn sample(&mut self, window: &Window) -> Option<Sample> {
        window.apply(self.fd.as_fd());
        let now = Instant::now();
        if self.sampled.is_some_and(|last| now.duration_since(last) < SAMPLE_EVERY) {
            return None;
        }
        self.sampled = Some(now);
        tcp::sample(self.fd.as_fd())
    }
}

/// Begins HTTP on `io`.
async fn start<S>(io: S, h2: bool) -> Result<(Sender, JoinHandle<()>), Trouble>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let io = TokioIo::new(io);
    let broken = |e: hyper::Error| Trouble::Broken(format!("the connection broke off: {}", chain(&e)));
    // How a connection ended is told by the request that was on it.
    Ok(if h2 {
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(H2_WINDOW_BYTES)
            .initial_connection_window_size(H2_WINDOW_BYTES)
            .max_frame_size(H2_FRAME_BYTES)
            .handshake(io)
            .await
            .map_err(broken)?;
        let driver = tokio::spawn(async move { drop(connection.await) });
        (Sender::H2(sender), driver)
    } else {
        let (sender, connection) =
            http1::Builder::new().max_buf_size(MAX_PIECE_BYTES).handshake(io).await.map_err(broken)?;
        let driver = tokio::spawn(async move { drop(connection.await) });
        (Sender::H1(sender), driver)
    })
}

/// Goes through `proxy` to `origin`. A proxy that takes the requests themselves is the answer.
async fn through(
    stream: &mut TcpStream,
    proxy: &Proxy,
    origin: &Origin,
    settings: &Settings,
    via: &Via,
) -> Result<Option<Option<(String, String)>>, Trouble> {
    match proxy.kind {
        Kind::Http if !origin.secure => return Ok(Some(proxy.user.clone())),
        Kind::Http => proxy::connect(stream, origin, proxy, &settings.agent).await?,
        Kind::Socks5Names => proxy::socks(stream, origin, None, proxy).await?,
        Kind::Socks5 => {
            let family = stream.peer_addr().ok().map(|peer| peer.ip());
            let all = look_up(&origin.host, origin.port, None).await?;
            let mut same = all.iter().filter(|a| family.is_none_or(|ip| ip.is_ipv4() == a.is_ipv4()));
            let ip = same.next().or(all.first()).map(SocketAddr::ip);
            proxy::socks(stream, origin, ip, proxy).await.map_err(|trouble| match trouble {
                Trouble::Unreachable(why) => Trouble::Unreachable(format!("{why} (via {via})")),
                other => other,
            })?;
        }
    }
    Ok(None)
}

/// The addresses of `host`, of the family of `own`, the families in turn.
async fn look_up(host: &str, port: u16, own: Option<IpAddr>) -> Result<Vec<SocketAddr>, Trouble> {
    let found: Vec<_> = match literal(host) {
        Some(ip) => vec![SocketAddr::new(ip, port)],
        None => tokio::net::lookup_host((host, port))
            .await
            .map_err(|e| Trouble::Unreachable(format!("the name {host} was not found: {e}")))?
            .collect(),
    };
    let fits = |address: &&SocketAddr| own.is_none_or(|own| own.is_ipv4() == address.is_ipv4());
    let fitting: Vec<SocketAddr> = found.iter().filter(fits).copied().collect();
    let Some(first) = fitting.first() else {
        let why = match own {
            Some(own) if !found.is_empty() => {
                format!("{host} has no {} address", if own.is_ipv4() { "IPv4" } else { "IPv6" })
            }
            _ => format!("the name {host} has no address"),
        };
        return Err(Trouble::Unreachable(why));
    };
    let (same, other): (Vec<_>, Vec<_>) = fitting.iter().partition(|a| a.is_ipv4() == first.is_ipv4());
    let longest = same.len().max(other.len());
    let turns = (0..longest).flat_map(|n| [same.get(n), other.get(n)]).flatten();
    Ok(turns.take(MAX_ADDRESSES).copied().collect())
}

/// A socket towards `peer` that keeps the way's promise, and the address to connect it to.
fn socket(via: &Via, peer: SocketAddr, window: &Window) -> io::Result<(TcpSocket, SocketAddr)> {
    let (socket, peer) = via.stream(peer)?;
    window.apply(socket.as_fd());
    Ok((TcpSocket::from_std_stream(StdStream::from(socket)), peer))
}

/// Connects to whichever of `addresses` answers first, each tried a little after the one before it.
async fn reach(via: &Via, addresses: Vec<SocketAddr>, window: &Window) -> Result<TcpStream, Trouble> {
    let mut attempts = JoinSet::new();
    let mut waiting = addresses.into_iter();
    let mut failed: Option<String> = None;
    loop {
        if let Some(peer) = waiting.next() {
            match socket(via, peer, window) {
                Ok((socket, peer)) => {
                    attempts
                        .spawn(async move { socket.connect(peer).await.map_err(|e| format!("{peer}: {e}")) });
                }
                Err(e) => {
                    failed.get_or_insert_with(|| e.to_string());
                    continue;
                }
            }
        } else if attempts.is_empty() {
            return Err(Trouble::Unreachable(failed.unwrap_or_else(|| "it has no address".to_owned())));
        }
        tokio::select! {
            Some(done) = attempts.join_next() => match done {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(why)) => { failed.get_or_insert(why); }
                Err(e) => { failed.get_or_insert_with(|| e.to_string()); }
            },
            () = sleep(STAGGER), if waiting.len() > 0 => {}
        }
    }
}

/// An error with what it came from, in one clause.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let more = inner.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = inner.source();
    }
    text
}
