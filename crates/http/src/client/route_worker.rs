//! One route: answers fetches one after the other, keeps connections between them, follows redirects.
//!
//! The request of the next fetch goes out while the answer before it flows, where that is safe: `pipeline`.

mod pipeline;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use hyper::http::header::LOCATION;
use hyper::http::response;
use net::Egress;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use self::pipeline::PendingFetch;
use super::connect::{Connection, WindowClamp};
use super::event_queue::EventQueue;
use super::request::{OriginalUrl, RequestShape, request};
use super::settings::Settings;
use super::url::{Origin, Url};
use super::validate::{self, BodyPolicy};
use super::{Event, FetchError, FetchId, FetchRequest, RequestKind, RouteId};

/// Redirects followed for one fetch.
const MAX_REDIRECTS: usize = 10;
/// Connections a route keeps between fetches, each to another origin.
const MAX_IDLE_CONNECTIONS: usize = 4;
/// URLs of which a route remembers where they lead, and origins that it is wary of.
const MAX_REMEMBERED: usize = 1024;
/// A body of no interest is read to its end up to so many bytes, to keep the connection.
const MAX_DRAINED_BYTES: u64 = 64 << 10;
/// How long the end of a body is waited for after its last byte.
const LAST_CHUNK_WAIT: Duration = Duration::from_secs(1);

/// A fetch on its route's list. It is cancelled by dropping the other end of `cancelled`.
pub(super) struct QueuedFetch {
    pub(super) id: FetchId,
    pub(super) request: FetchRequest,
    pub(super) cancelled: oneshot::Receiver<()>,
}

/// An answer that is no redirect, with where it came from and what its body comes by.
struct Response {
    url: Url,
    parts: response::Parts,
    connection: Connection,
}

/// Whether a fetch's request is still to be made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RequestState {
    /// It is.
    Unsent,
    /// It has been sent: its answer is the next of the connection that was asked ahead.
    Sent,
}

pub(super) struct RouteWorker {
    id: RouteId,
    settings: Arc<Settings>,
    queue: Arc<EventQueue>,
    window: Arc<WindowClamp>,
    via: Egress,
    idle: Vec<Connection>,
    /// Where redirects of a URL led.
    redirects: HashMap<String, Url>,
    /// Where fetches come from, until it ends.
    inbox: Option<mpsc::UnboundedReceiver<QueuedFetch>>,
    /// Fetches whose turn has not come, oldest first. The requests of the first few may have been sent, all
    /// on one connection: the one that is being read, or else `pipelined`.
    waiting: VecDeque<PendingFetch>,
    /// The connection that has requests of `waiting`, while it is not being read.
    pipelined: Option<Connection>,
    /// How often an origin closed a connection on which it had been asked ahead.
    pipelining_failures: HashMap<Origin, u32>,
    /// After how many answers an origin ended a connection.
    keepalive_limits: HashMap<Origin, u64>,
}

impl RouteWorker {
    pub(super) fn new(
        id: RouteId,
        settings: Arc<Settings>,
        queue: Arc<EventQueue>,
        window: Arc<WindowClamp>,
        inbox: mpsc::UnboundedReceiver<QueuedFetch>,
    ) -> Self {
        Self {
            id,
            settings,
            queue,
            window,
            via: Egress::any(),
            idle: Vec::new(),
            redirects: HashMap::new(),
            inbox: Some(inbox),
            waiting: VecDeque::new(),
            pipelined: None,
            pipelining_failures: HashMap::new(),
            keepalive_limits: HashMap::new(),
        }
    }

    /// Works until no more fetches can come.
    pub(super) async fn work(mut self) {
        while let Some(mut next) = self.next().await {
            if next.is_cancelled() {
                if next.sent.is_some() {
                    self.skip_answer(&next.fetch.request).await;
                }
                continue;
            }
            let PendingFetch { fetch: QueuedFetch { id, request, mut cancelled }, sent } = next;
            let result = tokio::select! {
                biased;
                // Dropping the fetch closes its connection.
                _ = &mut cancelled => continue,
                result = self.fetch(id, &request, sent) => result,
            };
            self.queue.push(match result {
                Ok(()) => Event::Done { id },
                Err(error) => Event::Failed { id, error },
            });
        }
    }

    /// One fetch from start to end. `sent`: where its request was sent, if it was.
    async fn fetch(
        &mut self,
        id: FetchId,
        request: &FetchRequest,
        sent: Option<Url>,
    ) -> Result<(), FetchError> {
        let url = Url::parse(&request.url).map_err(FetchError::Refused)?;
        let asked = OriginalUrl { url: &url, trusted: request.trusted };
        if request.via != self.via {
            (self.pipelined, self.via) = (None, request.via.clone());
            self.idle.clear();
        }
        let shape = RequestShape::of(&request.kind)?;
        if matches!(request.kind, RequestKind::Metadata) {
            return self.metadata(id, &request.url, asked).await;
        }
        let mut state = if sent.is_some() { RequestState::Sent } else { RequestState::Unsent };
        let known = match sent {
            Some(sent) => Some(sent).filter(|sent| *sent != url),
            None => self.known_redirect(request).cloned(),
        };
        if let Some(known) = known {
            match self.get(id, request, asked, known.clone(), shape, state).await {
                // Where it led is not where it leads now: such URLs expire. Nothing was handed over yet.
                Err(
                    FetchError::NotFound(_)
                    | FetchError::Forbidden { .. }
                    | FetchError::Refused(_)
                    | FetchError::NotTheFile(_)
                    | FetchError::Unreachable(_)
                    | FetchError::Tls(_),
                ) => {
                    // A fetch before this one may have found out where it leads now.
                    if self.redirects.get(&request.url) == Some(&known) {
                        self.redirects.remove(&request.url);
                    }
                }
                other => return other,
            }
            state = RequestState::Unsent;
        }
        let known = if state == RequestState::Unsent { self.known_redirect(request) } else { None };
        let from = known.unwrap_or(&url).clone();
        self.get(id, request, asked, from, shape, state).await
    }

    /// Where a redirect of what is asked for is known to lead.
    fn known_redirect(&self, request: &FetchRequest) -> Option<&Url> {
        self.redirects.get(&request.url).filter(|_| matches!(request.kind, RequestKind::Range { .. }))
    }

    /// A range or a small document.
    async fn get(
        &mut self,
        id: FetchId,
        request: &FetchRequest,
        asked: OriginalUrl<'_>,
        from: Url,
        shape: RequestShape<'_>,
        mut state: RequestState,
    ) -> Result<(), FetchError> {
        loop {
            let Response { url, parts, connection } =
                self.follow_redirects(asked, from.clone(), shape, state).await?;
            let mut kind = request.kind.clone();
            if let RequestKind::Range { validator, modified, .. } = &mut kind {
                if shape.has_validator() {
                    *modified = None;
                }
                if !shape.validates(&url) {
                    *validator = None;
                }
            }
            match validate::validate(&parts, asked.url, &url, &kind, false) {
                Ok((mut head, policy)) => {
                    (head.nth, head.last) = (connection.answers, connection.is_last());
                    self.remember(&request.url, asked.url, url);
                    self.queue.push(Event::Head { id, head: Box::new(head) });
                    return self.deliver(id, connection, policy).await;
                }
                // Perhaps a middlebox mixes up answers: alone, it is the answer to this request.
                Err(FetchError::NotTheFile(_))
                    if state == RequestState::Sent && url == from && parts.status.is_success() =>
                {
                    self.on_lost(connection, true);
                    state = RequestState::Unsent;
                }
                Err(error) if parts.status.is_success() => return Err(error),
                Err(error) => {
                    // It is this fetch that failed and not the connection.
                    self.drain(connection).await;
                    return Err(self.with_credential_status(error, asked, &url));
                }
            }
        }
    }

    /// What the fields say of a file: by HEAD, and where that does not do, by a GET for the first byte.
    async fn metadata(&mut self, id: FetchId, name: &str, asked: OriginalUrl<'_>) -> Result<(), FetchError> {
        let Response { url, parts, connection } =
            self.follow_redirects(asked, asked.url.clone(), RequestShape::Head, RequestState::Unsent).await?;
        let from = match parts.status.as_u16() {
            // A signed URL may be good for GET only, and where it is refused may lead elsewhere by GET.
            403 | 405 | 501 => {
                drop(connection);
                asked.url.clone()
            }
            _ => {
                let validated = validate::validate(&parts, asked.url, &url, &RequestKind::Metadata, false);
                let (head, _) = validated.map_err(|error| self.with_credential_status(error, asked, &url))?;
                self.drain(connection).await;
                if head.ranges && head.length.is_some() {
                    self.remember(name, asked.url, url);
                    self.queue.push(Event::Head { id, head: Box::new(head) });
                    return Ok(());
                }
                url
            }
        };
        let shape = RequestShape::Bytes { first: 0, end: 1, validator: None };
        let Response { url, parts, connection } =
            self.follow_redirects(asked, from, shape, RequestState::Unsent).await?;
        let validated = validate::validate(&parts, asked.url, &url, &RequestKind::Metadata, true);
        let (head, _) = validated.map_err(|error| self.with_credential_status(error, asked, &url))?;
        self.drain(connection).await;
        self.remember(name, asked.url, url);
        self.queue.push(Event::Head { id, head: Box::new(head) });
        Ok(())
    }

    /// The same error with what is known of who refuses.
    fn with_credential_status(&self, error: FetchError, asked: OriginalUrl<'_>, url: &Url) -> FetchError {
        let FetchError::Forbidden { status: status @ (401 | 403), .. } = error else { return error };
        FetchError::Forbidden {
            status,
            credentials: self.settings.credentials(asked.url, asked.trusted, url),
            at: (asked.url.origin != url.origin).then(|| url.origin.authority()),
        }
    }

    fn remember(&mut self, name: &str, asked: &Url, url: Url) {
        if *asked == url {
            self.redirects.remove(name);
            return;
        }
        if self.redirects.len() >= MAX_REMEMBERED {
            self.redirects.clear();
        }
        self.redirects.insert(name.to_owned(), url);
    }

    /// Asks at `url` and wherever that leads.
    async fn follow_redirects(
        &mut self,
        asked: OriginalUrl<'_>,
        mut url: Url,
        shape: RequestShape<'_>,
        mut state: RequestState,
    ) -> Result<Response, FetchError> {
        for _ in 0..=MAX_REDIRECTS {
            let (parts, connection) = self.exchange(asked, &url, shape, state).await?;
            let location = parts.headers.get(LOCATION);
            let (301..=303 | 307..=308, Some(location)) = (parts.status.as_u16(), location) else {
                return Ok(Response { url, parts, connection });
            };
            let location = String::from_utf8_lossy(location.as_bytes()).into_owned();
            self.drain(connection).await;
            let mut next = url
                .join(&location)
                .map_err(|why| FetchError::Refused(format!("a redirect leads nowhere: {why}")))?;
            // A name and password that a server wrote are no credentials of ours.
            next.user = None;
            if url.origin.secure && !next.origin.secure {
                let why = format!("it redirects from https to {}", next.without_query());
                return Err(FetchError::Refused(why));
            }
            (url, state) = (next, RequestState::Unsent);
        }
        Err(FetchError::Refused(format!(
            "more than {MAX_REDIRECTS} redirects, the last to {}",
            url.without_query()
        )))
    }

    /// One request and the head of its answer. A connection that was kept may have been closed at the other
    /// end meanwhile: then a new one is tried.
    async fn exchange(
        &mut self,
        asked: OriginalUrl<'_>,
        url: &Url,
        shape: RequestShape<'_>,
        state: RequestState,
    ) -> Result<(response::Parts, Connection), FetchError> {
        if state == RequestState::Sent
            && let Some(mut connection) = self.pipelined.take()
        {
            match self.head(&mut connection, shape, RequestState::Sent).await? {
                Ok(parts) => {
                    self.on_pipelined_answer(&mut connection);
                    return Ok((parts, connection));
                }
                Err(_) => self.on_lost(connection, true),
            }
        } else {
            self.reconcile();
        }
        let kept = self.idle.iter().position(|connection| connection.origin == url.origin);
        if let Some(mut connection) = kept.map(|at| self.idle.swap_remove(at))
            && !connection.is_closed()
        {
            connection.send_request(request(&self.settings, asked, url, shape, &connection)?);
            match self.head(&mut connection, shape, RequestState::Unsent).await? {
                Ok(parts) => return Ok((parts, connection)),
                Err(_) => self.on_lost(connection, false),
            }
        }
        let mut connection = Connection::open(&self.settings, &self.via, &url.origin, &self.window).await?;
        connection.send_request(request(&self.settings, asked, url, shape, &connection)?);
        match self.head(&mut connection, shape, RequestState::Unsent).await? {
            Ok(parts) => Ok((parts, connection)),
            Err(e) => Err(FetchError::Broken(format!("no answer from {}: {e}", url.origin.host))),
        }
    }

    /// Hands the body over as it comes, and keeps the connection if the body ends as it should.
    async fn deliver(
        &mut self,
        id: FetchId,
        mut connection: Connection,
        policy: BodyPolicy,
    ) -> Result<(), FetchError> {
        let (most, exactly) = match policy {
            BodyPolicy::Exactly(bytes) => (bytes, true),
            BodyPolicy::AtMost(bytes) => (bytes, false),
            BodyPolicy::Nothing => (0, false),
        };
        let idle = self.settings.idle_timeout;
        let mut taken = 0_u64;
        loop {
            let complete = exactly && taken == most;
            if !complete {
                self.queue.room().await;
            }
            let wait = if complete { LAST_CHUNK_WAIT } else { idle };
            let data = match timeout(wait, self.data(&mut connection)).await {
                Ok(Ok(None)) => break,
                Ok(Ok(Some(data))) => data,
                // All is here; only the connection is of no use.
                Ok(Err(_)) | Err(_) if complete => {
                    self.on_lost(connection, false);
                    return Ok(());
                }
                Ok(Err(e)) => {
                    self.on_lost(connection, false);
                    return Err(FetchError::Broken(format!(
                        "it broke off after {taken} of {most} bytes: {e}"
                    )));
                }
                Err(_) => {
                    self.on_lost(connection, false);
                    let why = format!("no byte for {} s, after {taken} of {most}", idle.as_secs_f32());
                    return Err(FetchError::Broken(why));
                }
            };
            taken = taken.saturating_add(data.len() as u64);
            if taken > most {
                return Err(if exactly {
                    FetchError::Broken(format!("more came than the {most} bytes there are"))
                } else {
                    FetchError::Refused(format!("it has more than the {most} bytes that are taken"))
                });
            }
            self.queue.push(Event::Body { id, bytes: data });
            if let Some(sample) = connection.sample(&self.window) {
                self.queue.push(Event::Sample { route: self.id, sample });
            }
        }
        if exactly && taken != most {
            return Err(FetchError::Broken(format!("it ended after {taken} of {most} bytes")));
        }
        self.keep(connection);
        Ok(())
    }

    /// Reads a body of no interest to its end if that is cheap, and keeps the connection if it is.
    async fn drain(&mut self, mut connection: Connection) {
        let drain = async {
            let mut read = 0_u64;
            while !connection.abandon_body() {
                if !connection.persists() || read + connection.left_bytes() > MAX_DRAINED_BYTES {
                    return false;
                }
                match connection.data().await {
                    Ok(Some(data)) => read += data.len() as u64,
                    Ok(None) => break,
                    Err(_) => return false,
                }
            }
            true
        };
        if timeout(LAST_CHUNK_WAIT, drain).await == Ok(true) {
            self.keep(connection);
        }
    }

    fn keep(&mut self, mut connection: Connection) {
        // A server of HTTP/2 that says farewell still answers what it has taken (RFC 9113 section 6.8).
        if connection.unanswered() > 0 && (connection.persists() || connection.is_h2()) {
            self.pipelined = Some(connection);
            return;
        }
        if !connection.persists() {
            return;
        }
        self.idle.retain_mut(|other| other.origin != connection.origin && !other.is_closed());
        if connection.is_closed() {
            return;
        }
        if self.idle.len() >= MAX_IDLE_CONNECTIONS {
            self.idle.remove(0);
        }
        self.idle.push(connection);
    }
}
