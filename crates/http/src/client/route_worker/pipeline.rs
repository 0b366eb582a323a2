//! Asking ahead: the requests of fetches whose turn has not come (pipelining, RFC 9112 section 9.3.2; further
//! streams in HTTP/2). A link that waits for the next request is idle for a round trip, and many small files
//! would be as many round trips.
//!
//! Which requests have been sent is known in two places that must agree: in `RouteWorker::waiting`, whose
//! first few fetches say where theirs went, and in the connection, which has as many answers outstanding.
//! Where they do not agree any more, because the connection is gone, the fetches are as if they had never
//! been sent: all are GETs, which may be asked twice.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use hyper::http::response;
use tokio::sync::mpsc;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::time::timeout;

use super::{
    Connection, FetchRequest, MAX_DRAINED_BYTES, MAX_REMEMBERED, QueuedFetch, RequestState, RouteWorker,
};
use crate::client::event_queue::MAX_FETCHES;
use crate::client::h2::H2;
use crate::client::request::{OriginalUrl, RequestShape, request};
use crate::client::url::Url;
use crate::client::{Event, FetchError, RequestKind};

/// Requests a connection has at most, with the one whose answer is being read.
const PIPELINE_MAX: usize = 64;
/// After so many connections that an origin closed with requests outstanding, it is not asked ahead any more.
const CLOSED_MAX: u32 = 2;
/// Answers to requests sent ahead that show that a connection takes them: when it ends, it is for another
/// reason. nginx closes after 1,000, Apache after 100.
const PROVEN_ANSWERS: u32 = 16;
/// While nothing can be read of a connection whose window is bounded, it is looked so often whether something
/// arrives behind a hole; less often, up to the second number, the longer nothing does.
const POLL_MIN: Duration = Duration::from_millis(5);
const POLL_MAX: Duration = Duration::from_millis(80);

/// A fetch whose turn has not come.
pub(super) struct PendingFetch {
    pub(super) fetch: QueuedFetch,
    /// Where its request was sent, if it was.
    pub(super) sent: Option<Url>,
}

impl PendingFetch {
    const fn new(fetch: QueuedFetch) -> Self {
        Self { fetch, sent: None }
    }

    pub(super) fn is_cancelled(&mut self) -> bool {
        !matches!(self.fetch.cancelled.try_recv(), Err(TryRecvError::Empty))
    }

    /// The most bytes that its answer can have if it is what is asked for.
    const fn most_bytes(&self) -> u64 {
        most_bytes(&self.fetch.request.kind)
    }
}

const fn most_bytes(kind: &RequestKind) -> u64 {
    match kind {
        RequestKind::Metadata => 0,
        RequestKind::Range { first, end, .. } => end.saturating_sub(*first),
        RequestKind::Document { max } => *max as u64,
    }
}

impl RouteWorker {
    /// The fetch whose turn it is, once there is one. `None`: none can come.
    pub(super) async fn next(&mut self) -> Option<PendingFetch> {
        if let Some(inbox) = &mut self.inbox {
            while let Ok(fetch) = inbox.try_recv() {
                self.waiting.push_back(PendingFetch::new(fetch));
            }
        }
        if self.waiting.is_empty() {
            let fetch = self.inbox.as_mut()?.recv().await?;
            self.waiting.push_back(PendingFetch::new(fetch));
        }
        // The fetch before may have been cancelled.
        self.reconcile();
        self.waiting.pop_front()
    }

    /// How many of the waiting have been sent.
    fn sent(&self) -> usize {
        self.waiting.partition_point(|waiting| waiting.sent.is_some())
    }

    /// What was sent and not answered has to be sent again.
    fn mark_unsent(&mut self) {
        self.pipelined = None;
        self.waiting.iter_mut().for_each(|waiting| waiting.sent = None);
    }

    /// To be called where no connection is being read: what was sent on one that is gone is forgotten.
    pub(super) fn reconcile(&mut self) {
        if self.pipelined.as_ref().map_or(0, Connection::unanswered) != self.sent() {
            self.mark_unsent();
        }
    }

    /// `connection` is of no use any more. `ahead`: the answer that it owes was asked for ahead.
    pub(super) fn on_lost(&mut self, connection: Connection, ahead: bool) {
        if ahead || (self.pipelined.is_none() && self.sent() > 0) {
            self.penalize(&connection);
        }
        drop(connection);
        self.reconcile();
    }

    /// An origin does not go on with a connection on which it was asked ahead.
    fn penalize(&mut self, connection: &Connection) {
        if connection.pipelined_answers >= PROVEN_ANSWERS {
            return;
        }
        if self.pipelining_failures.len() >= MAX_REMEMBERED {
            self.pipelining_failures.clear();
        }
        *self.pipelining_failures.entry(connection.origin.clone()).or_default() += 1;
    }

    /// An answer has begun that was asked for ahead.
    pub(super) fn on_pipelined_answer(&mut self, connection: &mut Connection) {
        connection.pipelined_answers = connection.pipelined_answers.saturating_add(1);
        if connection.pipelined_answers == PROVEN_ANSWERS {
            self.pipelining_failures.remove(&connection.origin);
        }
    }

    /// The head of the next answer, with as long a silence before it as is allowed.
    ///
    /// # Errors
    /// It is silent; inside, one clause: the connection is of no use.
    pub(super) async fn head(
        &mut self,
        connection: &mut Connection,
        shape: RequestShape<'_>,
        state: RequestState,
    ) -> Result<Result<response::Parts, String>, FetchError> {
        let wait = self.settings.idle_timeout;
        connection.make_current(&self.window);
        let head = async {
            loop {
                // What a HEAD says may not do; then the next request is another one of the same fetch.
                if !matches!(shape, RequestShape::Head) {
                    self.pipeline(connection);
                }
                tokio::select! {
                    biased;
                    () = take_fetch(&mut self.inbox, &mut self.waiting), if self.inbox.is_some() => {}
                    head = connection.head() => return head,
                }
            }
        };
        let Ok(head) = timeout(wait, head).await else {
            if state == RequestState::Sent || (self.pipelined.is_none() && self.sent() > 0) {
                self.penalize(connection);
            }
            return Err(FetchError::Broken(format!("no answer for {} s", wait.as_secs_f32())));
        };
        if head.is_ok() {
            self.learn_keepalive_limit(connection);
        }
        if head.is_ok() && connection.is_last() && self.pipelined.is_none() && self.sent() > 0 {
            self.penalize(connection);
        }
        Ok(head)
    }

    /// Notes after how many answers an origin ends connections.
    fn learn_keepalive_limit(&mut self, connection: &Connection) {
        if connection.is_last() {
            if self.keepalive_limits.len() >= MAX_REMEMBERED {
                self.keepalive_limits.clear();
            }
            self.keepalive_limits.insert(connection.origin.clone(), connection.answers);
        } else if self
            .keepalive_limits
            .get(&connection.origin)
            .is_some_and(|limit| *limit < connection.answers)
        {
            self.keepalive_limits.remove(&connection.origin);
        }
    }

    /// The next bytes of the body that `connection` brings.
    pub(super) async fn data(&mut self, connection: &mut Connection) -> Result<Option<Bytes>, String> {
        let mut interval = POLL_MIN;
        loop {
            self.pipeline(connection);
            tokio::select! {
                biased;
                () = take_fetch(&mut self.inbox, &mut self.waiting), if self.inbox.is_some() => {}
                data = connection.data() => return data,
                () = tokio::time::sleep(interval), if self.window.is_set() => {
                    interval = (interval * 2).min(POLL_MAX);
                    if let Some(sample) = connection.sample_if_arrived(&self.window) {
                        self.queue.push(Event::Sample { route: self.id, sample });
                        interval = POLL_MIN;
                    }
                }
            }
        }
    }

    /// Asks `connection`, which is being read, for what comes next, as far as that is safe.
    fn pipeline(&mut self, connection: &mut Connection) {
        // Where another has answers outstanding, those are what comes next.
        if self.waiting.is_empty() || self.pipelined.is_some() || !connection.may_pipeline() {
            return;
        }
        let mut sent = self.sent();
        // What it would not answer is asked on the next one.
        let limit = self.keepalive_limits.get(&connection.origin).copied().unwrap_or(u64::MAX);
        let takes = limit.saturating_sub(connection.answers);
        while sent + 1 < PIPELINE_MAX
            && (connection.unanswered() as u64) < takes
            && self.pipeline_next(connection, sent)
        {
            sent += 1;
        }
    }

    /// Sends the first request that has not been sent. `false`: there is none, or it has to wait.
    fn pipeline_next(&mut self, connection: &mut Connection, sent: usize) -> bool {
        while self.waiting.get_mut(sent).is_some_and(PendingFetch::is_cancelled) {
            self.waiting.remove(sent);
        }
        let Some(next) = self.waiting.get(sent) else { return false };
        let wanted = &next.fetch.request;
        if wanted.via != self.via
            || self.pipelining_failures.get(&connection.origin).is_some_and(|n| *n >= CLOSED_MAX)
        {
            return false;
        }
        let shape = match RequestShape::of(&wanted.kind) {
            Ok(shape) if !matches!(shape, RequestShape::Head) => shape,
            _ => return false,
        };
        let Ok(asked) = Url::parse(&wanted.url) else { return false };
        let url = self.known_redirect(wanted).unwrap_or(&asked).clone();
        if url.origin != connection.origin
            || (connection.is_h2()
                && !H2::has_room(self.waiting.iter().take(sent + 1).map(PendingFetch::most_bytes)))
        {
            return false;
        }
        let asked = OriginalUrl { url: &asked, trusted: wanted.trusted };
        let Ok(request) = request(&self.settings, asked, &url, shape, connection) else { return false };
        // The connection will be closed when it comes to one that is not wanted any more and is long.
        let is_doomed =
            |waiting: &mut PendingFetch| !is_short(&waiting.fetch.request) && waiting.is_cancelled();
        if !connection.is_h2() && self.waiting.iter_mut().take(sent).any(is_doomed) {
            return false;
        }
        connection.send_request(request);
        if let Some(next) = self.waiting.get_mut(sent) {
            next.sent = Some(url);
        }
        true
    }

    /// The answer that comes next is not wanted any more.
    pub(super) async fn skip_answer(&mut self, request: &FetchRequest) {
        let Some(mut connection) = self.pipelined.take() else { return };
        if connection.skip_answer() {
            self.keep(connection);
        } else if is_short(request)
            && let Ok(Ok(_)) = timeout(self.settings.idle_timeout, connection.head()).await
        {
            self.drain(connection).await;
        }
        // Where it was not kept, those behind it are asked again.
    }
}

/// Puts the next fetch behind those that wait.
async fn take_fetch(
    fetches: &mut Option<mpsc::UnboundedReceiver<QueuedFetch>>,
    waiting: &mut VecDeque<PendingFetch>,
) {
    let Some(inbox) = fetches else { return };
    match inbox.recv().await {
        Some(fetch) => {
            if waiting.len() >= 2 * MAX_FETCHES {
                // More than can be under way: most have been cancelled.
                waiting.retain_mut(|waiting| waiting.sent.is_some() || !waiting.is_cancelled());
            }
            waiting.push_back(PendingFetch::new(fetch));
        }
        None => *fetches = None,
    }
}

/// Whether what is asked for is sooner read to its end than asked for again.
const fn is_short(request: &FetchRequest) -> bool {
    matches!(request.kind, RequestKind::Range { .. }) && most_bytes(&request.kind) <= MAX_DRAINED_BYTES
}
