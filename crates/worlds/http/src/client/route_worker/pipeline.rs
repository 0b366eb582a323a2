//! Pipelining: sends the requests of fetches whose turn has not come (RFC 9112 section 9.3.2; further streams
//! in HTTP/2). Without it the link would be idle for a round trip between two answers.
//!
//! Two places record which requests have been sent, and they must agree. The first few fetches of
//! `RouteWorker::waiting` are marked as sent, and the connection counts its unanswered requests. They no
//! longer agree when the connection is gone. Then the marks are cleared and the requests are sent again. All
//! of them are GETs, which may be repeated.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use hyper::http::response;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::queued_fetch::QueuedFetch;
use super::{REMEMBERED_MAX, RequestState, RouteWorker};
use crate::client::api::{Event, FETCHES_MAX, PIPELINE_MAX};
use crate::client::connect::Connection;
use crate::client::error::FetchError;
use crate::client::h2::H2;
use crate::client::origin::Origin;
use crate::client::request::{OriginalUrl, RequestShape, request};

/// After an origin has closed this many connections with requests outstanding, it gets no pipelined request.
const CLOSED_MAX: u32 = 2;
/// After this many answers to pipelined requests, the end of a connection is not blamed on pipelining. nginx
/// closes a connection after 1,000 requests, Apache after 100.
const PROVEN_ANSWERS: u32 = 16;
/// While a connection with a limited window brings no bytes, the kernel is asked this often whether segments
/// arrive behind a lost one. The interval doubles up to [`POLL_MAX`] while none do.
const POLL_MIN: Duration = Duration::from_millis(5);
/// The longest such interval.
const POLL_MAX: Duration = Duration::from_millis(80);

impl RouteWorker {
    /// Waits for the next fetch. Returns `None` if no more can come.
    pub(super) async fn next(&mut self) -> Option<QueuedFetch> {
        if let Some(inbox) = &mut self.inbox {
            while let Ok(fetch) = inbox.try_recv() {
                self.waiting.push_back(fetch);
            }
        }
        if self.waiting.is_empty() {
            let fetch = self.inbox.as_mut()?.recv().await?;
            self.waiting.push_back(fetch);
        }
        // The fetch before may have been cancelled, and its connection closed.
        self.reconcile();
        self.waiting.pop_front()
    }

    /// Returns how many of the waiting fetches are marked as sent.
    fn sent(&self) -> usize {
        self.waiting.partition_point(|waiting| waiting.sent.is_some())
    }

    /// Clears all marks, so that unanswered requests are sent again.
    fn mark_unsent(&mut self) {
        self.pipelined = None;
        self.waiting.iter_mut().for_each(|waiting| waiting.sent = None);
    }

    /// Clears the marks if the connection with the marked requests is gone. Call this only while no
    /// connection is being read.
    pub(super) fn reconcile(&mut self) {
        if self.pipelined.as_ref().map_or(0, Connection::unanswered) != self.sent() {
            self.mark_unsent();
        }
    }

    /// Drops a connection that failed. `ahead` says that it failed to answer a pipelined request.
    pub(super) fn on_lost(&mut self, connection: Connection, ahead: bool) {
        if ahead || (self.pipelined.is_none() && self.sent() > 0) {
            self.penalize(&connection);
        }
        drop(connection);
        self.reconcile();
    }

    /// Records that an origin ended a connection with pipelined requests.
    fn penalize(&mut self, connection: &Connection) {
        if connection.pipelined_answers >= PROVEN_ANSWERS {
            return;
        }
        if self.pipelining_failures.len() >= REMEMBERED_MAX {
            self.pipelining_failures.clear();
        }
        *self.pipelining_failures.entry(connection.origin.clone()).or_default() += 1;
    }

    /// Records that the answer to a pipelined request has begun.
    pub(super) fn on_pipelined_answer(&mut self, connection: &mut Connection) {
        connection.pipelined_answers = connection.pipelined_answers.saturating_add(1);
        if connection.pipelined_answers == PROVEN_ANSWERS {
            self.pipelining_failures.remove(&connection.origin);
        }
    }

    /// Waits for the head of the next answer, at most for the idle timeout.
    ///
    /// # Errors
    /// The outer error says that nothing came in time. The inner error says, in one clause, why the
    /// connection failed.
    pub(super) async fn head(
        &mut self,
        connection: &mut Connection,
        state: RequestState,
    ) -> Result<Result<response::Parts, String>, FetchError> {
        let wait = self.settings.idle_timeout;
        connection.make_current(&self.window);
        let head = async {
            loop {
                self.pipeline(connection);
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
            return Err(FetchError::no_answer(wait));
        };
        if head.is_ok() {
            self.learn_keepalive_limit(connection);
        }
        if head.is_ok() && connection.is_last() && self.pipelined.is_none() && self.sent() > 0 {
            self.penalize(connection);
        }
        Ok(head)
    }

    /// Learns after how many answers an origin ends a connection.
    fn learn_keepalive_limit(&mut self, connection: &Connection) {
        if connection.is_last() {
            if self.keepalive_limits.len() >= REMEMBERED_MAX {
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

    /// Waits for the next bytes of the body on `connection`; `None` means that the body has ended.
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

    /// Sends the requests that come next on `connection`, which is being read, as far as that is safe.
    fn pipeline(&mut self, connection: &mut Connection) {
        // If another connection owes answers, those come next.
        if self.waiting.is_empty() || self.pipelined.is_some() || !connection.may_pipeline() {
            return;
        }
        let mut sent = self.sent();
        // The server would close before it answers more than this; the rest goes over the next connection.
        let limit = self.keepalive_limits.get(&connection.origin).copied().unwrap_or(u64::MAX);
        let takes = limit.saturating_sub(connection.answers);
        while sent + 1 < PIPELINE_MAX
            && (connection.unanswered() as u64) < takes
            && self.pipeline_next(connection, sent)
        {
            sent += 1;
        }
    }

    /// Sends the first request that has not been sent. Returns `false` if there is none, or if it has to
    /// wait.
    fn pipeline_next(&mut self, connection: &mut Connection, sent: usize) -> bool {
        while self.waiting.get_mut(sent).is_some_and(QueuedFetch::is_cancelled) {
            self.waiting.remove(sent);
        }
        let Some(next) = self.waiting.get(sent) else { return false };
        if next.request.via != self.via
            || self.pipelining_failures.get(&connection.origin).is_some_and(|n| *n >= CLOSED_MAX)
        {
            return false;
        }
        let Ok(shape) = RequestShape::of(&next.request.kind) else { return false };
        let url = self.known_redirect(&next.request, &next.url).unwrap_or(&next.url).clone();
        if Origin::of(&url) != connection.origin
            || (connection.is_h2()
                && !H2::has_room(self.waiting.iter().take(sent + 1).map(QueuedFetch::bytes_max)))
        {
            return false;
        }
        let asked = OriginalUrl { url: &next.url, trusted: next.request.trusted };
        let Ok(request) = request(&self.settings, asked, &url, shape, connection) else { return false };
        // A long answer that was cancelled will close the connection, so nothing is sent behind it.
        let is_doomed = |waiting: &mut QueuedFetch| !waiting.is_short() && waiting.is_cancelled();
        if !connection.is_h2() && self.waiting.iter_mut().take(sent).any(is_doomed) {
            return false;
        }
        connection.send_request(request);
        if let Some(next) = self.waiting.get_mut(sent) {
            next.sent = Some(url);
        }
        true
    }

    /// Skips the next answer, because its fetch was cancelled.
    pub(super) async fn skip_answer(&mut self, fetch: &QueuedFetch) {
        let Some(mut connection) = self.pipelined.take() else { return };
        if connection.skip_answer() {
            self.keep(connection);
        } else if fetch.is_short()
            && let Ok(Ok(_)) = timeout(self.settings.idle_timeout, connection.head()).await
        {
            self.drain(connection).await;
        }
        // If the connection was not kept, the requests behind it are sent again.
    }
}

/// Waits for the next fetch and puts it behind those that wait.
async fn take_fetch(
    fetches: &mut Option<mpsc::UnboundedReceiver<QueuedFetch>>,
    waiting: &mut VecDeque<QueuedFetch>,
) {
    let Some(inbox) = fetches else { return };
    match inbox.recv().await {
        Some(fetch) => {
            if waiting.len() >= 2 * FETCHES_MAX {
                // There are more fetches than may run at once, so most have been cancelled.
                waiting.retain_mut(|waiting| waiting.sent.is_some() || !waiting.is_cancelled());
            }
            waiting.push_back(fetch);
        }
        None => *fetches = None,
    }
}
