//! Ranges from HTTP servers, each over the route that the caller chose.
//!
//! A [`Client`] is one thread. A *route* answers its fetches one after the other and keeps one connection to
//! each origin, with HTTP/2 where the server offers it over TLS. Where it is safe, a route sends the next
//! request while the answer before it still flows (pipelining), so that no round trip lies between two
//! answers. The client validates an answer before it hands over a byte of it: an answer that is not exactly
//! what was asked for is a [`FetchError`] and never data.
//!
//! * `route_worker`: one route's fetches, redirects, bodies; `pipeline` sends requests before their turn.
//!   `request`: what is sent. `response_fields`, `redirect`, `validate`, `body_count`: what an answer says,
//!   where it leads, whether it is what was asked for, and whether its body is. `testing`: a scripted server
//!   in the place of connections.
//! * `connect`: name, interface, proxy, TLS. `h1`, `h2`: HTTP over it. `proxy`, `tls`, `tcp`: their parts.
//!   `rcvlowat`: how seldom it is read.
//! * `api`: what a caller says and is told. `settings`, `netrc`: its options, read. `origin`: what is asked
//!   of a URL. `event_queue`: what is handed over. `error`: why a fetch failed.

mod api;
mod body_count;
mod connect;
mod error;
mod event_queue;
mod h1;
mod h2;
mod netrc;
mod origin;
mod proxy;
mod rcvlowat;
mod redirect;
mod request;
mod response_fields;
mod route_worker;
mod settings;
mod tcp;
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod testing;
mod tls;
mod validate;

use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::thread;

use tokio::runtime::Builder;
use tokio::sync::{mpsc, oneshot};

use self::api::FETCHES_MAX;
pub use self::api::{
    Event, FetchId, FetchRequest, Head, METADATA_BYTES, Options, PIPELINE_MAX, RequestKind, RouteId,
    StartError,
};
use self::connect::WindowClamp;
pub use self::error::{CredentialStatus, FetchError};
use self::event_queue::EventQueue;
use self::origin::{Origin, Url};
use self::route_worker::{QueuedFetch, RouteWorker};
use self::settings::Settings;

enum Command {
    Fetch(FetchId, Box<(FetchRequest, Url)>),
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
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (commands, inbox) = mpsc::unbounded_channel();
        let (own, shared) = (Arc::clone(&settings), Arc::clone(&queue));
        let thread = thread::Builder::new()
            .name("http".to_owned())
            .spawn(move || runtime.block_on(run(own, shared, inbox)))?;
        Ok(Self { settings, queue, commands: Some(commands), thread: Some(thread) })
    }

    /// Whether `url` is asked for through a proxy; its server's address then says nothing about the route.
    #[must_use]
    pub fn is_proxied(&self, url: &str) -> bool {
        origin::parse(url).is_ok_and(|url| self.settings.proxies.for_origin(&Origin::of(&url)).is_some())
    }

    /// Asks; the answer comes as events of `id`, which must be new. Too many at once are refused.
    ///
    /// On a busy route the fetch waits for those before it. Its request may still go out at once: if it is
    /// for a range or a document of the origin that is answering, over HTTP/2, or over HTTP/1.1 on a
    /// connection that the server keeps open. If that connection ends before the answer has begun, the
    /// request is sent again, and the caller does not notice.
    pub fn fetch(&self, id: FetchId, request: FetchRequest) {
        let why = match origin::parse(&request.url) {
            Ok(url) if self.queue.begin(id) => {
                return self.command(Command::Fetch(id, Box::new((request, url))));
            }
            Ok(_) => "too many fetches at once".to_owned(),
            Err(why) => why,
        };
        self.queue.refuse(Event::Failed { id, error: FetchError::Refused(why) });
    }

    /// Forgets `id`: no event of it comes any more, not even one that waits. If its body has begun, its
    /// connection is closed. If its request was pipelined over HTTP/1.1, the connection is closed when the
    /// answer's turn comes, unless it is a range of at most 64 KiB, which is read and dropped. Other requests
    /// that were sent on a closed connection are sent again.
    pub fn cancel(&self, id: FetchId) {
        if self.queue.end(id) {
            self.command(Command::Cancel(id));
        }
    }

    /// Limits the receive window of `route` to `bytes` (TCP_WINDOW_CLAMP), on its connection and later ones;
    /// `u64::MAX` lifts the limit. Linux only.
    pub fn window(&self, route: RouteId, bytes: u64) {
        self.command(Command::Window(route, bytes));
    }

    /// Hands all waiting events to `each`, the oldest first, samples last. The client stops reading from
    /// servers while 1 MiB of bodies wait here.
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

/// Parses all that came over one HTTP/1.1 connection (RFC 9112 sections 2 to 6): `pieces` are the results of
/// consecutive reads until the connection ended. Returns status and body of each answer, and whether the last
/// is complete. This entry is for tests and fuzzing of the parser.
#[must_use]
pub fn parse_responses(pieces: &[&[u8]]) -> (Vec<(u16, Vec<u8>)>, bool) {
    h1::parse_responses(pieces)
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
            Command::Fetch(_, fetch) => fetch.0.route,
            Command::Window(route, _) => *route,
            Command::Cancel(id) => {
                running.remove(id);
                continue;
            }
        };
        if routes.len() >= FETCHES_MAX && !routes.contains_key(&route) {
            if let Command::Fetch(id, ..) = command {
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
            Command::Fetch(id, fetch) => {
                let (request, url) = *fetch;
                if running.len() >= 2 * FETCHES_MAX {
                    running.retain(|_, cancel| !cancel.is_closed());
                }
                let (cancel, cancelled) = oneshot::channel();
                running.insert(id, cancel);
                // A route works as long as it has an entry.
                let _ = entry.fetches.send(QueuedFetch { id, request, url, cancelled, sent: None });
            }
            Command::Window(_, bytes) => entry.window.set(bytes),
            Command::Cancel(_) => {}
        }
    }
}
