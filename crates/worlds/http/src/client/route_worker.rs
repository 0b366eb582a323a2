//! One route: answers its fetches one after the other, keeps connections between them, and follows redirects.
//!
//! The module `pipeline` sends the request of the next fetch while the answer before it flows, where that is
//! safe.

pub(super) mod body;
mod pipeline;
pub(super) mod queued_fetch;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use anabranch_algo::Time;
use anabranch_net::Egress;
use hyper::http::response;
use tokio::sync::mpsc;
use tokio::time::timeout;

pub(super) use self::queued_fetch::QueuedFetch;
use super::api::{Event, FetchId, FetchRequest, RequestKind, RouteId};
use super::bearer::{TOKEN_ANSWER_BYTES_MAX, TokenSource};
use super::challenge::unspoken_schemes;
use super::connect::{Connection, WindowClamp};
use super::error::FetchError;
use super::event_queue::EventQueue;
use super::origin::{Origin, Url, authority};
use super::redirect::{REDIRECTS_MAX, redirect, too_many_redirects};
use super::request::{OriginalUrl, RequestShape, request};
use super::response_fields::keep;
use super::settings::Settings;
use super::validate::{self, Rejection};

/// The most redirects, and the most origins, that a route remembers.
const REMEMBERED_MAX: usize = 1024;

/// An answer that is no redirect, with its URL and the connection that brings its body.
struct Response {
    url: Url,
    parts: response::Parts,
    connection: Connection,
    /// The last URL of another origin on the way from the URL that was asked for to this answer.
    stranger: Option<Url>,
    /// Whether the server asked for a token on the way, and got one.
    has_token: bool,
    /// The fields of the first origin that the caller wants.
    kept: Vec<(&'static str, String)>,
}

/// Whether a fetch's request has been sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RequestState {
    /// The request has not been sent.
    Unsent,
    /// The request has been sent: its answer is the next one on the pipelined connection.
    Sent,
}

pub(super) struct RouteWorker {
    id: RouteId,
    settings: Arc<Settings>,
    queue: Arc<EventQueue>,
    window: Arc<WindowClamp>,
    via: Egress,
    /// The limits allow no body to be read before this time.
    due: Time,
    idle: Vec<Connection>,
    /// For each URL that was redirected, the URL that its redirects led to.
    redirects: HashMap<Url, Url>,
    /// The channel that brings fetches; `None` once it is closed.
    inbox: Option<mpsc::UnboundedReceiver<QueuedFetch>>,
    /// Fetches whose turn has not come, oldest first. The requests of the first few may have been sent, all
    /// on one connection: the one that is being read, or else `pipelined`.
    waiting: VecDeque<QueuedFetch>,
    /// The connection that the requests of fetches in `waiting` were sent on, while it is not being read.
    pipelined: Option<Connection>,
    /// How often each origin closed a connection with pipelined requests.
    pipelining_failures: HashMap<Origin, u32>,
    /// After how many answers each origin ended a connection.
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
            due: Time::ZERO,
            idle: Vec::new(),
            redirects: HashMap::new(),
            inbox: Some(inbox),
            waiting: VecDeque::new(),
            pipelined: None,
            pipelining_failures: HashMap::new(),
            keepalive_limits: HashMap::new(),
        }
    }

    /// Answers fetches until no more can come.
    pub(super) async fn work(mut self) {
        while let Some(mut next) = self.next().await {
            if next.is_cancelled() {
                if next.sent.is_some() {
                    self.skip_answer(&next).await;
                }
                continue;
            }
            let QueuedFetch { id, request, url, mut cancelled, sent } = next;
            let result = tokio::select! {
                biased;
                // Dropping the future of `fetch` closes its connection.
                _ = &mut cancelled => continue,
                result = self.fetch(id, &request, &url, sent) => result,
            };
            self.queue.push(match result {
                Ok(()) => Event::Done { id },
                Err(error) => Event::Failed { id, error },
            });
        }
    }

    /// Does one fetch from start to end. `sent` is the URL that its request was sent for, if it was sent
    /// ahead.
    async fn fetch(
        &mut self,
        id: FetchId,
        request: &FetchRequest,
        url: &Url,
        sent: Option<Url>,
    ) -> Result<(), FetchError> {
        let asked = OriginalUrl { url, trusted: request.trusted };
        if request.via != self.via {
            (self.pipelined, self.via) = (None, request.via.clone());
            self.idle.retain(|connection| connection.leaves_by(&self.via));
        }
        let shape = RequestShape::of(&request.kind)?;
        let mut state = if sent.is_some() { RequestState::Sent } else { RequestState::Unsent };
        let known = match sent {
            Some(sent) => Some(sent).filter(|sent| sent != url),
            None => self.known_redirect(request, url).cloned(),
        };
        if let Some(known) = known {
            match self.get(id, request, asked, known.clone(), shape, state).await {
                // The target of a redirect may have expired. Nothing has been handed over yet, so ask the
                // original URL.
                Err(
                    FetchError::NotFound(_)
                    | FetchError::Forbidden { .. }
                    | FetchError::UnknownScheme { .. }
                    | FetchError::Refused(_)
                    | FetchError::NotTheFile(_)
                    | FetchError::Unreachable(_)
                    | FetchError::Tls(_),
                ) => {
                    // An earlier fetch may have learned the new target already.
                    if self.redirects.get(url) == Some(&known) {
                        self.redirects.remove(url);
                    }
                }
                other => return other,
            }
            state = RequestState::Unsent;
        }
        let known = if state == RequestState::Unsent { self.known_redirect(request, url) } else { None };
        let from = known.unwrap_or(url).clone();
        self.get(id, request, asked, from, shape, state).await
    }

    /// Returns where the redirects of `url` are known to lead. Only a range goes there at once.
    fn known_redirect(&self, request: &FetchRequest, url: &Url) -> Option<&Url> {
        self.redirects.get(url).filter(|_| matches!(request.kind, RequestKind::Range { .. }))
    }

    /// Asks `from` for a range, a small document or the metadata, and hands the answer over.
    async fn get(
        &mut self,
        id: FetchId,
        request: &FetchRequest,
        asked: OriginalUrl<'_>,
        from: Url,
        mut shape: RequestShape<'_>,
        mut state: RequestState,
    ) -> Result<(), FetchError> {
        loop {
            let Response { url, parts, connection, stranger, has_token, kept } =
                self.follow_redirects(asked, from.clone(), shape, state).await?;
            let kind = shape.demands(&request.kind, &url);
            match validate::validate(&parts, asked.url, &url, &kind) {
                Ok((mut head, policy)) => {
                    (head.nth, head.last) = (connection.answers, connection.is_last());
                    head.caching.kept = kept;
                    // Remembering a way that leads back to the first origin would hide that another origin
                    // lies on it.
                    if stranger.is_none() || url.origin() != asked.url.origin() {
                        self.remember(asked.url, url);
                    }
                    self.queue.push(Event::Head { id, head: Box::new(head) });
                    return self.deliver(id, connection, policy).await;
                }
                // A middlebox may mix up pipelined answers, so send the request again, alone.
                Err(
                    Rejection::Failed(FetchError::NotTheFile(_))
                    | Rejection::UnclearRange(FetchError::NotTheFile(_)),
                ) if state == RequestState::Sent && url == from && parts.status.is_success() => {
                    self.on_lost(connection, true);
                    state = RequestState::Unsent;
                }
                Err(Rejection::UnclearRange(_)) if shape.is_range() => {
                    self.on_lost(connection, false);
                    (shape, state) = (RequestShape::Whole { unless: None }, RequestState::Unsent);
                }
                Err(Rejection::Failed(error) | Rejection::UnclearRange(error))
                    if parts.status.is_success() =>
                {
                    return Err(error);
                }
                Err(Rejection::Failed(error) | Rejection::UnclearRange(error)) => {
                    // The fetch failed, not the connection.
                    self.drain(connection).await;
                    let schemes = unspoken_schemes(&parts.headers).filter(|_| !has_token);
                    return Err(self.with_credential_status(error, schemes, asked, stranger.as_ref(), &url));
                }
            }
        }
    }

    /// Adds to a refusal which server refuses and whether it got credentials, or the `schemes` that it
    /// accepts instead.
    fn with_credential_status(
        &self,
        error: FetchError,
        schemes: Option<String>,
        asked: OriginalUrl<'_>,
        stranger: Option<&Url>,
        url: &Url,
    ) -> FetchError {
        let FetchError::Forbidden { status: status @ (401 | 403), .. } = error else { return error };
        let by = asked.by_way_of(stranger);
        let at = (asked.url.origin() != url.origin()).then(|| authority(url).to_owned());
        match schemes.filter(|_| status == 401) {
            Some(schemes) => FetchError::UnknownScheme { schemes, at },
            None => {
                let credentials = self.settings.credentials(by.url, by.trusted, url);
                FetchError::Forbidden { status, credentials, at }
            }
        }
    }

    /// Records that redirects of `asked` lead to `url`, if they do.
    fn remember(&mut self, asked: &Url, url: Url) {
        if *asked == url {
            self.redirects.remove(asked);
            return;
        }
        if self.redirects.len() >= REMEMBERED_MAX {
            self.redirects.clear();
        }
        self.redirects.insert(asked.clone(), url);
    }

    /// Sends a request to `url`, with a token if the server asks for one, and follows its redirects.
    async fn follow_redirects(
        &mut self,
        asked: OriginalUrl<'_>,
        mut url: Url,
        shape: RequestShape<'_>,
        mut state: RequestState,
    ) -> Result<Response, FetchError> {
        let is_elsewhere = |url: &Url| url.origin() != asked.url.origin();
        let mut stranger = is_elsewhere(&url).then(|| url.clone());
        let (mut has_token, mut kept) = (false, Vec::new());
        for _ in 0..=REDIRECTS_MAX {
            let by = asked.by_way_of(stranger.as_ref());
            let (parts, connection) = self.exchange(by, &url, shape, state).await?;
            if stranger.is_none() {
                keep(&mut kept, self.settings.keep_fields, &parts.headers);
            }
            if let Some(source) = self.token_source(by, &url, &parts).filter(|_| !has_token) {
                self.drain(connection).await;
                self.fetch_token(&url, source).await?;
                (has_token, state) = (true, RequestState::Unsent);
                continue;
            }
            let Some(next) = redirect(&url, &parts) else {
                return Ok(Response { url, parts, connection, stranger, has_token, kept });
            };
            self.drain(connection).await;
            let next = next?;
            if is_elsewhere(&next) {
                stranger = Some(next.clone());
            }
            (url, state) = (next, RequestState::Unsent);
        }
        Err(too_many_redirects(&url))
    }

    /// Sends one request and waits for the head of its answer. If the server has closed an idle connection,
    /// opens a new one.
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
            match self.head(&mut connection, RequestState::Sent).await? {
                Ok(parts) => {
                    self.on_pipelined_answer(&mut connection);
                    return Ok((parts, connection));
                }
                Err(_) => self.on_lost(connection, true),
            }
        } else {
            self.reconcile();
        }
        let origin = Origin::of(url);
        let kept = self.idle.iter().position(|connection| connection.origin == origin);
        if let Some(mut connection) = kept.map(|at| self.idle.swap_remove(at))
            && !connection.is_closed()
        {
            connection.send_request(request(&self.settings, asked, url, shape, &connection)?);
            match self.head(&mut connection, RequestState::Unsent).await? {
                Ok(parts) => return Ok((parts, connection)),
                Err(_) => self.on_lost(connection, false),
            }
        }
        let mut connection = Connection::open(&self.settings, &self.via, origin, &self.window).await?;
        connection.send_request(request(&self.settings, asked, url, shape, &connection)?);
        match self.head(&mut connection, RequestState::Unsent).await? {
            Ok(parts) => Ok((parts, connection)),
            Err(e) => Err(FetchError::no_head(&connection.origin.host, &e)),
        }
    }

    /// Returns where to fetch the token that an answer from `url` asks for. Returns `None` if the answer asks
    /// for none, or if the caller has credentials for `url` or for the server of tokens.
    fn token_source(
        &self,
        asked: OriginalUrl<'_>,
        url: &Url,
        parts: &response::Parts,
    ) -> Option<TokenSource> {
        if parts.status != 401 || self.settings.has_authorization(asked.url, asked.trusted, url) {
            return None;
        }
        let source = TokenSource::of(&parts.headers, url)?;
        (!self.settings.has_authorization(&source.url, false, &source.url)).then_some(source)
    }

    /// Fetches a token for `url`, unless another fetch has brought it meanwhile.
    ///
    /// # Errors
    /// If the server of tokens cannot be reached, or gives none.
    async fn fetch_token(&mut self, url: &Url, source: TokenSource) -> Result<(), FetchError> {
        let settings = self.settings.clone();
        let now = settings.clock.now();
        let refused = settings.tokens.get(url, now);
        if settings.tokens.need(url, &source, refused.as_ref(), now) {
            return Ok(());
        }
        // Its server gets none of the caller's secrets.
        let asked = OriginalUrl { url: &source.url, trusted: false };
        let shape = RequestShape::Whole { unless: None };
        let (parts, mut connection) = self.exchange(asked, &source.url, shape, RequestState::Unsent).await?;
        let by = authority(&source.url).to_owned();
        if !parts.status.is_success() {
            self.drain(connection).await;
            let status = parts.status.as_u16();
            return Err(FetchError::Refused(format!("{by} answers {status} instead of a token for it")));
        }
        let answer = token_answer(&mut connection, settings.idle_timeout).await;
        self.drain(connection).await;
        if answer.is_some_and(|answer| settings.tokens.take(source, &answer, now)) {
            return Ok(());
        }
        Err(FetchError::Refused(format!("{by} sends no token for it that can be read")))
    }
}

/// Reads the answer with a token. Returns `None` if it breaks off, takes longer than `wait`, or is too long.
async fn token_answer(connection: &mut Connection, wait: Duration) -> Option<Vec<u8>> {
    let mut answer = Vec::new();
    let read = async {
        while let Some(bytes) = connection.data().await.ok()? {
            if answer.len() + bytes.len() > TOKEN_ANSWER_BYTES_MAX {
                return None;
            }
            answer.extend_from_slice(&bytes);
        }
        Some(())
    };
    timeout(wait, read).await.ok()??;
    Some(answer)
}
