//! Fetches ranges of files from HTTP servers, each over the route that the caller chose.
//!
//! A [`Client`] runs on the thread of an [`Engine`], which it may share. A *route* answers its fetches one
//! after the other and keeps one connection to each origin. It speaks HTTP/2 where the server offers that
//! over TLS. Where it is safe, a route sends the next request while the answer before it still flows
//! (pipelining), so that no round trip lies between two answers. The client validates an answer before it
//! hands over a byte of it. An answer that is not exactly what was asked for becomes a [`FetchError`] and
//! never data.
//!
//! * `engine`: the thread of one or several clients. `api`: the requests, options and events that callers
//!   see. `settings` and `netrc` read the options, `origin` takes URLs apart, `event_queue` hands events to
//!   the caller, `error` says why a fetch failed.
//! * `route_worker`: runs the fetches of one route; its module `pipeline` sends requests before their turn.
//!   `request` builds requests. `response_fields`, `challenge`, `redirect`, `validate` and `body_count` read
//!   an answer, follow it elsewhere, and check its head and its body. `bearer` has the tokens that servers
//!   give to everybody. `testing` stands in for connections with a
//!   scripted server.
//! * `connect`: opens connections: name, interface, proxy and TLS, with the help of `proxy`, `tls` and `tcp`.
//!   `h1` and `h2` speak HTTP over a connection. `rcvlowat` reduces how often a connection is read.

mod api;
mod bearer;
mod body_count;
mod challenge;
mod connect;
mod engine;
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

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use self::api::FETCHES_MAX;
pub use self::api::{
    Caching, Event, FetchId, FetchRequest, Head, METADATA_BYTES, Options, PIPELINE_MAX, RequestKind, RouteId,
};
use self::connect::WindowClamp;
pub use self::engine::Engine;
pub use self::error::{CredentialStatus, FetchError, StartError};
use self::event_queue::EventQueue;
use self::origin::{Origin, Url};
use self::route_worker::{QueuedFetch, RouteWorker};
use self::settings::Settings;

enum Command {
    Fetch(FetchId, Box<(FetchRequest, Url)>),
    Cancel(FetchId),
    Window(RouteId, u64),
}

/// Fetches from HTTP servers on the thread of an [`Engine`]. No method of it waits for the network. Dropping
/// the client closes every connection.
pub struct Client {
    settings: Arc<Settings>,
    queue: Arc<EventQueue>,
    /// The channel to the main task; `None` only while the client is dropped.
    commands: Option<mpsc::UnboundedSender<Command>>,
    /// Disconnects when the main task has ended.
    end: std::sync::mpsc::Receiver<()>,
    /// The engine ends with its last client.
    _engine: Engine,
}

impl Client {
    /// Starts the client, on the engine in `options` or on one of its own.
    ///
    /// # Errors
    /// If a file cannot be read, a header field is invalid or is a field that the client sets itself, or a
    /// proxy is of an unknown kind. Also if the system has no thread or descriptor left.
    pub fn start(mut options: Options) -> Result<Self, StartError> {
        let engine = options.engine.take().map_or_else(Engine::start, Ok)?;
        let settings = Arc::new(Settings::new(options, engine.tls())?);
        let queue = Arc::new(EventQueue::new()?);
        let (commands, inbox) = mpsc::unbounded_channel();
        let (own, shared) = (Arc::clone(&settings), Arc::clone(&queue));
        let (running, end) = std::sync::mpsc::channel();
        engine.spawn(async move {
            run(own, shared, inbox).await;
            drop::<std::sync::mpsc::Sender<()>>(running);
        });
        Ok(Self { settings, queue, commands: Some(commands), end, _engine: engine })
    }

    /// Whether the client uses a proxy for `url`. If so, the address of the URL's server says nothing about
    /// the route.
    #[must_use]
    pub fn is_proxied(&self, url: &str) -> bool {
        origin::parse(url).is_ok_and(|url| self.settings.proxies.for_origin(&Origin::of(&url)).is_some())
    }

    /// Starts a fetch. Its answer comes as events with `id`, which no earlier fetch may have had. If there
    /// are too many fetches, this one fails with [`FetchError::Refused`].
    ///
    /// On a busy route the fetch waits for those before it. Its request may still go out at once, if it goes
    /// to the origin that is answering, over HTTP/2 or over an HTTP/1.1 connection that the server keeps
    /// open. If that connection ends before the answer has begun, the client sends the request again, and the
    /// caller does not notice.
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

    /// Cancels the fetch `id`: no event of it comes any more, not even one that is already queued. If the
    /// fetch's turn has come, its connection is closed. If its request was pipelined over HTTP/1.1, the
    /// connection is closed when the answer's turn comes. Only an answer of at most 64 KiB, other than a
    /// document, is read and dropped instead. Other requests that were sent on a closed connection are sent
    /// again.
    pub fn cancel(&self, id: FetchId) {
        if self.queue.end(id) {
            self.command(Command::Cancel(id));
        }
    }

    /// Limits the receive window of `route` to `bytes` (TCP_WINDOW_CLAMP), on its current connection and on
    /// later ones. `u64::MAX` lifts the limit. This works on Linux only.
    pub fn window(&self, route: RouteId, bytes: u64) {
        self.command(Command::Window(route, bytes));
    }

    /// Passes all queued events to `each`, the oldest first, samples last. The client stops reading from
    /// servers while 1 MiB of bodies are queued.
    pub fn events(&mut self, each: impl FnMut(Event)) {
        self.queue.take().for_each(each);
    }

    /// Returns a descriptor that is readable while [`Client::events`] has events.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.queue.fd()
    }

    fn command(&self, command: Command) {
        if let Some(commands) = &self.commands {
            // Sending fails only if the thread is gone, and then nothing can be done.
            let _ = commands.send(command);
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // The main task ends when its channel is closed, and its routes end with it.
        self.commands = None;
        let _ = self.end.recv();
    }
}

/// Parses all bytes that came over one HTTP/1.1 connection (RFC 9112 sections 2 to 6). `pieces` are the
/// results of consecutive reads until the connection ended. Returns the status and body of each answer, and
/// whether the last answer is complete. This function is for tests and fuzzing of the parser.
#[must_use]
pub fn parse_responses(pieces: &[&[u8]]) -> (Vec<(u16, Vec<u8>)>, bool) {
    h1::parse_responses(pieces)
}

/// A route, as the client's main task sees it.
struct RouteHandle {
    fetches: mpsc::UnboundedSender<QueuedFetch>,
    window: Arc<WindowClamp>,
}

/// The client's main task: it hands each command to its route, and starts a task for a new route.
async fn run(settings: Arc<Settings>, queue: Arc<EventQueue>, mut inbox: mpsc::UnboundedReceiver<Command>) {
    let mut routes: HashMap<RouteId, RouteHandle> = HashMap::new();
    // Dropping the set ends the tasks of the routes and closes their connections.
    let mut tasks = JoinSet::new();
    // Dropping an entry cancels the fetch.
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
            tasks.spawn(RouteWorker::new(route, settings, queue, window_too, inbox).work());
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
                // The route's task runs as long as the route has an entry, so that sending cannot fail.
                let _ = entry.fetches.send(QueuedFetch { id, request, url, cancelled, sent: None });
            }
            Command::Window(_, bytes) => entry.window.set(bytes),
            Command::Cancel(_) => {}
        }
    }
}
