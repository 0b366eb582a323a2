//! Ranges from HTTP servers, each over the route it was asked for.
//!
//! A [`Client`] is one thread. A *route* answers its fetches one after the other and keeps its connections:
//! one an origin, HTTP/2 where the server offers it over TLS. The request of the next fetch goes out while
//! the answer before it still flows, where that is safe: then no round trip lies between two. An answer is
//! judged before a byte of it is handed over: what is not exactly what was asked for is a [`FetchError`] and
//! never data.
//!
//! * `route_worker`: one route's fetches, redirects, bodies; in `pipeline` what is asked before its turn.
//!   `request`: what is sent. `validate`: whether an answer is what was asked for.
//! * `connect`: name, interface, proxy, TLS. `h1`, `h2`: HTTP over it. `proxy`, `tls`, `tcp`: their parts.
//!   `rcvlowat`: how seldom it is read.
//! * `settings`, `netrc`, `url`: what the caller said. `event_queue`: what is handed over.

mod connect;
mod error;
mod event_queue;
mod h1;
mod h2;
mod netrc;
mod proxy;
mod rcvlowat;
mod request;
mod route_worker;
mod settings;
mod tcp;
mod tls;
mod url;
mod validate;

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use net::Egress;
use tokio::runtime::Builder;
use tokio::sync::{mpsc, oneshot};

use self::connect::WindowClamp;
pub use self::error::{CredentialStatus, FetchError};
use self::event_queue::EventQueue;
use self::route_worker::{QueuedFetch, RouteWorker};
use self::settings::Settings;
use self::url::Url;

/// Ways that one client has; asks for more are refused.
const MAX_ROUTES: usize = 1024;
/// Names that are looked up at the same time.
const LOOKUP_THREADS: usize = 8;

/// Names one fetch. The caller chooses it and does not use it again.
pub type FetchId = u64;
/// Names a route: a mirror seen from one local address.
pub type RouteId = usize;

/// How requests are made. The default is what a bare `curl URL` does.
#[derive(Clone)]
pub struct Options {
    /// Further header fields, name and value; they replace this client's own `Accept` and `User-Agent`.
    /// `Host`, `Authorization` and `Cookie` go to the origin of a [trusted](FetchRequest::trusted) URL, and
    /// to none that it redirects to.
    pub headers: Vec<(String, String)>,
    /// Name and password for HTTP's Basic scheme (RFC 7617), for the origin of a
    /// [trusted](FetchRequest::trusted) URL. What stands in the URL itself goes before it.
    pub user: Option<(String, String)>,
    /// A `.netrc` to take names and passwords from: those of a machine for that machine, whoever named it,
    /// those of `default` as [`user`](Self::user).
    pub netrc: Option<PathBuf>,
    /// `http://host:port`, `socks5://…` or `socks5h://…`. Empty: none. `None`: what the environment says
    /// (`http_proxy`, `https_proxy`, `all_proxy`). `no_proxy` counts in any case.
    pub proxy: Option<String>,
    /// A PEM file of certificates that are believed besides the system's.
    pub ca_file: Option<PathBuf>,
    /// Believe every certificate.
    pub insecure: bool,
    /// The `User-Agent`.
    pub user_agent: String,
    /// How long connecting may take: name, TCP, proxy and TLS together.
    pub connect_timeout: Duration,
    /// How long nothing may come, neither an answer nor a byte of a body; counted from when it is its turn.
    pub idle_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            headers: Vec::new(),
            user: None,
            netrc: None,
            proxy: None,
            ca_file: None,
            insecure: false,
            user_agent: concat!("anabranch/", env!("CARGO_PKG_VERSION")).to_owned(),
            connect_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(30),
        }
    }
}

/// Why a client cannot start: an option that cannot be followed, or the system. One clause for people.
#[derive(Debug)]
pub struct StartError(String);

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StartError {}

impl From<io::Error> for StartError {
    fn from(e: io::Error) -> Self {
        Self(format!("the HTTP client cannot start: {e}"))
    }
}

/// One fetch.
#[derive(Clone, Debug)]
pub struct FetchRequest {
    /// Whose it is: a route answers its fetches one after the other, in the order in which was asked.
    pub route: RouteId,
    /// The interface and address the route promises.
    pub via: Egress,
    /// An absolute `http` or `https` URL.
    pub url: String,
    /// Whether the user named its origin (RFC 6454): only then are the user's secrets for it, not where
    /// another server or a list named it.
    pub trusted: bool,
    /// What of it.
    pub kind: RequestKind,
}

/// What of a file is fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// Only what its header fields say: HEAD; where that is refused (403, 405, 501) or says too little, a GET
    /// for the first byte. No [`Event::Body`] comes.
    Metadata,
    /// Some of its bytes, and only if the file is `length` bytes long.
    Range {
        /// The first byte.
        first: u64,
        /// One after the last byte.
        end: u64,
        /// Of the whole file, bytes.
        length: u64,
        /// The strong `ETag` it must still have (`If-Range`); a weak one proves nothing and is ignored.
        validator: Option<String>,
        /// The `Last-Modified` it must still have if it has one; not looked at where there is a strong
        /// `validator`.
        modified: Option<String>,
        /// The URL, after redirects, that has `validator`: one server's `ETag` says nothing about another's,
        /// so where the answer comes from elsewhere, the query aside, it is not looked at. `None`: anywhere.
        seen_at: Option<String>,
    },
    /// The whole of a document whose length need not be known.
    Document {
        /// The most bytes it may have.
        max: usize,
    },
}

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// An answer was accepted; comes before its first byte.
    Head {
        /// Which fetch.
        id: FetchId,
        /// What its fields say.
        head: Box<Head>,
    },
    /// The next bytes of a body.
    Body {
        /// Which fetch.
        id: FetchId,
        /// Never empty.
        bytes: Bytes,
    },
    /// All has come: of a range exactly its bytes. The last event of a fetch.
    Done {
        /// Which fetch.
        id: FetchId,
    },
    /// It will not come. The last event of a fetch.
    Failed {
        /// Which fetch.
        id: FetchId,
        /// Why.
        error: FetchError,
    },
    /// What the kernel says of a route's connection while a body flows: each 10 ms at most, the newest only.
    Sample {
        /// Which route.
        route: RouteId,
        /// What it says.
        sample: Sample,
    },
}

impl Event {
    const fn fetch(&self) -> Option<FetchId> {
        match self {
            Self::Head { id, .. } | Self::Body { id, .. } | Self::Done { id } | Self::Failed { id, .. } => {
                Some(*id)
            }
            Self::Sample { .. } => None,
        }
    }

    const fn body_bytes(&self) -> usize {
        if let Self::Body { bytes, .. } = self { bytes.len() } else { 0 }
    }
}

/// What an accepted answer says of the file. Texts are the fields' values as they came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// Where it came from, after redirects; without name and password.
    pub url: String,
    /// The status: 200, 206, or 416 for a file without bytes.
    pub status: u16,
    /// The whole file's length, bytes.
    pub length: Option<u64>,
    /// Whether ranges of it can be had.
    pub ranges: bool,
    /// `ETag`, with its quotes, and `W/` if it is weak.
    pub etag: Option<String>,
    /// `Last-Modified`.
    pub last_modified: Option<String>,
    /// `Content-Type`.
    pub content_type: Option<String>,
    /// `Repr-Digest` (RFC 9530); several are joined by commas.
    pub repr_digest: Option<String>,
    /// The values of `Link` (RFC 8288), one an occurrence of the field.
    pub links: Vec<String>,
    /// The server has no ranges: to a range from 0 it sends the whole file, `length` bytes and not `end`.
    pub whole: bool,
    /// Which answer of its connection it is, from 1; 0 of a look, which may have had several.
    pub nth: u64,
    /// The server ends the connection after it, and has said so: nothing that was asked behind it on that
    /// connection is answered there.
    pub last: bool,
}

/// What the kernel knows of a connection (TCP_INFO, linux/tcp.h); counts are since the connection began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Round trip time: as the receiver of the body sees it, else as the sender of the request.
    pub rtt: Duration,
    /// The size of the segments that arrive, bytes.
    pub mss: u32,
    /// Bytes that arrived in order, with headers, proxies' answers and TLS.
    pub received_bytes: u64,
    /// Segments that arrived out of order: what a receiver sees of losses.
    pub out_of_order: u32,
    /// Segments with data that arrived, in whatever order; 0 where the kernel does not tell.
    pub segments: u32,
}

enum Command {
    Fetch(FetchId, FetchRequest),
    Cancel(FetchId),
    Window(RouteId, u64),
}

/// Fetches, on a thread of its own; no call waits. Dropping it ends the thread and closes every connection.
pub struct Client {
    settings: Arc<Settings>,
    queue: Arc<EventQueue>,
    /// `None` only while it is dropped.
    commands: Option<mpsc::UnboundedSender<Command>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Client {
    /// Starts the thread.
    ///
    /// # Errors
    /// An option that cannot be followed: an unreadable file, a header field that is none or is the client's
    /// own, a proxy of an unknown kind; or no thread or descriptor can be had.
    pub fn start(options: Options) -> Result<Self, StartError> {
        let settings = Arc::new(Settings::new(options)?);
        let queue = Arc::new(EventQueue::new()?);
        let runtime =
            Builder::new_current_thread().enable_all().max_blocking_threads(LOOKUP_THREADS).build()?;
        let (commands, inbox) = mpsc::unbounded_channel();
        let (own, shared) = (Arc::clone(&settings), Arc::clone(&queue));
        let thread = thread::Builder::new().name("http".to_owned()).spawn(move || {
            runtime.block_on(run(own, shared, inbox));
            // A name that is still being looked up is not waited for.
            runtime.shutdown_background();
        })?;
        Ok(Self { settings, queue, commands: Some(commands), thread: Some(thread) })
    }

    /// Whether `url` is asked for through a proxy; its server's address then says nothing about the route.
    #[must_use]
    pub fn is_proxied(&self, url: &str) -> bool {
        Url::parse(url).is_ok_and(|url| self.settings.proxies.for_origin(&url.origin).is_some())
    }

    /// Asks; the answer comes as events of `id`, which must be new. Too many at once are refused.
    ///
    /// On a route that is busy it means "next": its answer comes after those to what was asked before. Its
    /// request may go out at once, if it is for bytes or a small document of the origin that is answering, by
    /// HTTP/2 or by HTTP/1.1 on a connection that the server keeps; it is sent again, unseen, if that
    /// connection ends before its answer has begun.
    pub fn fetch(&self, id: FetchId, request: FetchRequest) {
        if self.queue.begin(id) {
            self.command(Command::Fetch(id, request));
        } else {
            let error = FetchError::Refused("too many fetches at once".to_owned());
            self.queue.refuse(Event::Failed { id, error });
        }
    }

    /// Forgets `id`: no event of it comes any more, not even one that waits. Its connection is closed if its
    /// body has begun and is not at its end, or when the turn comes to its answer and that was asked for
    /// ahead by HTTP/1.1, unless it is a range of at most 64 KiB; what else was asked for on it is asked for
    /// anew.
    pub fn cancel(&self, id: FetchId) {
        if self.queue.end(id) {
            self.command(Command::Cancel(id));
        }
    }

    /// Bounds what servers may have in flight towards `route` to `bytes` (TCP_WINDOW_CLAMP), on its
    /// connection and those to come; `u64::MAX` ends the bound. Linux only.
    pub fn window(&self, route: RouteId, bytes: u64) {
        self.command(Command::Window(route, bytes));
    }

    /// Gives `each` all that waits, oldest first, samples last. The thread stops reading while 1 MiB of
    /// bodies wait.
    pub fn events(&mut self, each: impl FnMut(Event)) {
        self.queue.take().for_each(each);
    }

    /// Readable when [`Client::events`] has something.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.queue.fd()
    }

    fn command(&self, command: Command) {
        if let Some(commands) = &self.commands {
            // Fails only if the thread is gone, and then nothing can be done.
            let _ = commands.send(command);
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // The thread ends when no command can come.
        self.commands = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Takes apart what came over one HTTP/1.1 connection (RFC 9112 sections 2 to 6), `pieces` being what one
/// read after the other brought until it ended: status and body of each answer, and whether the last is
/// whole. `is_head`: they answer HEAD. The client reads as it comes; this is for tests of how it reads.
#[must_use]
pub fn parse_responses(pieces: &[&[u8]], is_head: bool) -> (Vec<(u16, Vec<u8>)>, bool) {
    h1::parse_responses(pieces, is_head)
}

/// A route, as the thread's main task sees it.
struct RouteHandle {
    fetches: mpsc::UnboundedSender<QueuedFetch>,
    window: Arc<WindowClamp>,
}

/// The thread's main task: hands commands to the routes.
async fn run(settings: Arc<Settings>, queue: Arc<EventQueue>, mut inbox: mpsc::UnboundedReceiver<Command>) {
    let mut routes: HashMap<RouteId, RouteHandle> = HashMap::new();
    // Dropping an entry cancels its fetch.
    let mut running: HashMap<FetchId, oneshot::Sender<()>> = HashMap::new();
    while let Some(command) = inbox.recv().await {
        let route = match &command {
            Command::Fetch(_, request) => request.route,
            Command::Window(route, _) => *route,
            Command::Cancel(id) => {
                running.remove(id);
                continue;
            }
        };
        if routes.len() >= MAX_ROUTES && !routes.contains_key(&route) {
            if let Command::Fetch(id, _) = command {
                let error = FetchError::Refused("too many routes".to_owned());
                queue.push(Event::Failed { id, error });
            }
            continue;
        }
        let entry = routes.entry(route).or_insert_with(|| {
            let (fetches, inbox) = mpsc::unbounded_channel();
            let window = Arc::new(WindowClamp::default());
            let (settings, queue, window_too) =
                (Arc::clone(&settings), Arc::clone(&queue), Arc::clone(&window));
            tokio::spawn(RouteWorker::new(route, settings, queue, window_too, inbox).work());
            RouteHandle { fetches, window }
        });
        match command {
            Command::Fetch(id, request) => {
                if running.len() >= 2 * event_queue::MAX_FETCHES {
                    running.retain(|_, cancel| !cancel.is_closed());
                }
                let (cancel, cancelled) = oneshot::channel();
                running.insert(id, cancel);
                // A route works as long as it has an entry.
                let _ = entry.fetches.send(QueuedFetch { id, request, cancelled });
            }
            Command::Window(_, bytes) => entry.window.set(bytes),
            Command::Cancel(_) => {}
        }
    }
}
