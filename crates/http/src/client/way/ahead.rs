//! Asking ahead: the requests of fetches whose turn has not come (pipelining, RFC 9112 section 9.3.2; further
//! streams in HTTP/2). A link that waits for the next request is idle for a round trip, and many small files
//! would be as many round trips.
//!
//! Which requests have been sent is known in two places that must agree: in `Way::waiting`, whose first few
//! jobs say where theirs went, and in the connection, which has as many answers outstanding. Where they do
//! not agree any more, because the connection is gone, the jobs are as if they had never been sent: all are
//! GETs, which may be asked twice.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use hyper::http::response;
use tokio::sync::mpsc;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::time::timeout;

use super::{Ask, Connection, Job, MAX_DRAINED_BYTES, MAX_REMEMBERED, Turn, Way};
use crate::client::h2::H2;
use crate::client::queue::MAX_FETCHES;
use crate::client::request::{Asked, Shape, request};
use crate::client::url::Url;
use crate::client::{Event, Trouble, What};

/// Requests a connection has at most, with the one whose answer is being read.
const PIPELINE_MAX: usize = 64;
/// After so many connections that an origin closed with requests outstanding, it is not asked ahead any more.
const CLOSED_MAX: u32 = 2;
/// Answers to requests sent ahead that show that a connection takes them: when it ends, it is for another
/// reason. nginx closes after 1,000, Apache after 100.
const PROVEN_ANSWERS: u32 = 16;
/// While nothing can be read of a connection whose window is bounded, it is looked so often whether something
/// arrives behind a hole; less often, up to the second number, the longer nothing does.
const LOOK_MIN: Duration = Duration::from_millis(5);
const LOOK_MAX: Duration = Duration::from_millis(80);

/// A job whose turn has not come.
pub(super) struct Waiting {
    pub(super) job: Job,
    /// Where its request was sent, if it was.
    pub(super) sent: Option<Url>,
}

impl Waiting {
    const fn new(job: Job) -> Self {
        Self { job, sent: None }
    }

    pub(super) fn is_cancelled(&mut self) -> bool {
        !matches!(self.job.cancelled.try_recv(), Err(TryRecvError::Empty))
    }

    /// The most bytes that its answer can have if it is what is asked for.
    const fn most_bytes(&self) -> u64 {
        most_bytes(&self.job.ask.what)
    }
}

const fn most_bytes(what: &What) -> u64 {
    match what {
        What::Look => 0,
        What::Range { first, end, .. } => end.saturating_sub(*first),
        What::Small { max } => *max as u64,
    }
}

impl Way {
    /// The job whose turn it is, once there is one. `None`: none can come.
    pub(super) async fn next(&mut self) -> Option<Waiting> {
        if let Some(jobs) = &mut self.jobs {
            while let Ok(job) = jobs.try_recv() {
                self.waiting.push_back(Waiting::new(job));
            }
        }
        if self.waiting.is_empty() {
            let job = self.jobs.as_mut()?.recv().await?;
            self.waiting.push_back(Waiting::new(job));
        }
        // The fetch before may have been cancelled.
        self.settle();
        self.waiting.pop_front()
    }

    /// How many of the waiting have been sent.
    fn sent(&self) -> usize {
        self.waiting.partition_point(|waiting| waiting.sent.is_some())
    }

    /// What was sent and not answered has to be sent again.
    fn forget(&mut self) {
        self.ahead = None;
        self.waiting.iter_mut().for_each(|waiting| waiting.sent = None);
    }

    /// To be called where no connection is being read: what was sent on one that is gone is forgotten.
    pub(super) fn settle(&mut self) {
        if self.ahead.as_ref().map_or(0, Connection::unanswered) != self.sent() {
            self.forget();
        }
    }

    /// `connection` is of no use any more. `ahead`: the answer that it owes was asked for ahead.
    pub(super) fn lost(&mut self, connection: Connection, ahead: bool) {
        if ahead || (self.ahead.is_none() && self.sent() > 0) {
            self.beware(&connection);
        }
        drop(connection);
        self.settle();
    }

    /// An origin does not go on with a connection on which it was asked ahead.
    fn beware(&mut self, connection: &Connection) {
        if connection.ahead_answers >= PROVEN_ANSWERS {
            return;
        }
        if self.wary.len() >= MAX_REMEMBERED {
            self.wary.clear();
        }
        *self.wary.entry(connection.origin.clone()).or_default() += 1;
    }

    /// An answer has begun that was asked for ahead.
    pub(super) fn answered_ahead(&mut self, connection: &mut Connection) {
        connection.ahead_answers = connection.ahead_answers.saturating_add(1);
        if connection.ahead_answers == PROVEN_ANSWERS {
            self.wary.remove(&connection.origin);
        }
    }

    /// The head of the next answer, with as long a silence before it as is allowed.
    ///
    /// # Errors
    /// It is silent; inside, one clause: the connection is of no use.
    pub(super) async fn head(
        &mut self,
        connection: &mut Connection,
        shape: Shape<'_>,
        turn: Turn,
    ) -> Result<Result<response::Parts, String>, Trouble> {
        let wait = self.settings.idle_timeout;
        connection.claim(&self.window);
        let head = async {
            loop {
                // What a HEAD says may not do; then the next request is another one of the same fetch.
                if !matches!(shape, Shape::Head) {
                    self.ask_ahead(connection);
                }
                tokio::select! {
                    biased;
                    () = take_job(&mut self.jobs, &mut self.waiting), if self.jobs.is_some() => {}
                    head = connection.head() => return head,
                }
            }
        };
        let Ok(head) = timeout(wait, head).await else {
            if turn == Turn::Sent || (self.ahead.is_none() && self.sent() > 0) {
                self.beware(connection);
            }
            return Err(Trouble::Broken(format!("no answer for {} s", wait.as_secs_f32())));
        };
        if head.is_ok() {
            self.learn(connection);
        }
        if head.is_ok() && connection.is_last() && self.ahead.is_none() && self.sent() > 0 {
            self.beware(connection);
        }
        Ok(head)
    }

    /// Notes after how many answers an origin ends connections.
    fn learn(&mut self, connection: &Connection) {
        if connection.is_last() {
            if self.limits.len() >= MAX_REMEMBERED {
                self.limits.clear();
            }
            self.limits.insert(connection.origin.clone(), connection.answers);
        } else if self.limits.get(&connection.origin).is_some_and(|limit| *limit < connection.answers) {
            self.limits.remove(&connection.origin);
        }
    }

    /// The next bytes of the body that `connection` brings.
    pub(super) async fn piece(&mut self, connection: &mut Connection) -> Result<Option<Bytes>, String> {
        let mut look = LOOK_MIN;
        loop {
            self.ask_ahead(connection);
            tokio::select! {
                biased;
                () = take_job(&mut self.jobs, &mut self.waiting), if self.jobs.is_some() => {}
                piece = connection.piece() => return piece,
                () = tokio::time::sleep(look), if self.window.is_set() => {
                    look = (look * 2).min(LOOK_MAX);
                    if let Some(sample) = connection.look(&self.window) {
                        self.queue.push(Event::Sample { way: self.id, sample });
                        look = LOOK_MIN;
                    }
                }
            }
        }
    }

    /// Asks `connection`, which is being read, for what comes next, as far as that is safe.
    fn ask_ahead(&mut self, connection: &mut Connection) {
        // Where another has answers outstanding, those are what comes next.
        if self.waiting.is_empty() || self.ahead.is_some() || !connection.is_steady() {
            return;
        }
        let mut sent = self.sent();
        // What it would not answer is asked on the next one.
        let limit = self.limits.get(&connection.origin).copied().unwrap_or(u64::MAX);
        let takes = limit.saturating_sub(connection.answers);
        while sent + 1 < PIPELINE_MAX
            && (connection.unanswered() as u64) < takes
            && self.ask_next(connection, sent)
        {
            sent += 1;
        }
    }

    /// Sends the first request that has not been sent. `false`: there is none, or it has to wait.
    fn ask_next(&mut self, connection: &mut Connection, sent: usize) -> bool {
        while self.waiting.get_mut(sent).is_some_and(Waiting::is_cancelled) {
            self.waiting.remove(sent);
        }
        let Some(next) = self.waiting.get(sent) else { return false };
        let ask = &next.job.ask;
        if ask.via != self.via || self.wary.get(&connection.origin).is_some_and(|n| *n >= CLOSED_MAX) {
            return false;
        }
        let shape = match Shape::of(&ask.what) {
            Ok(shape) if !matches!(shape, Shape::Head) => shape,
            _ => return false,
        };
        let Ok(asked) = Url::parse(&ask.url) else { return false };
        let url = self.target(ask).unwrap_or(&asked).clone();
        if url.origin != connection.origin
            || (connection.is_h2()
                && !H2::has_room(self.waiting.iter().take(sent + 1).map(Waiting::most_bytes)))
        {
            return false;
        }
        let asked = Asked { url: &asked, trusted: ask.trusted };
        let Ok(request) = request(&self.settings, asked, &url, shape, connection) else { return false };
        // The connection will be closed when it comes to one that is not wanted any more and is long.
        let is_doomed = |waiting: &mut Waiting| !is_short(&waiting.job.ask) && waiting.is_cancelled();
        if !connection.is_h2() && self.waiting.iter_mut().take(sent).any(is_doomed) {
            return false;
        }
        connection.ask(request);
        if let Some(next) = self.waiting.get_mut(sent) {
            next.sent = Some(url);
        }
        true
    }

    /// The answer that comes next is not wanted any more.
    pub(super) async fn skip(&mut self, ask: &Ask) {
        let Some(mut connection) = self.ahead.take() else { return };
        if connection.skip() {
            self.keep(connection);
        } else if is_short(ask)
            && let Ok(Ok(_)) = timeout(self.settings.idle_timeout, connection.head()).await
        {
            self.finish(connection).await;
        }
        // Where it was not kept, those behind it are asked again.
    }
}

/// Puts the next job behind those that wait.
async fn take_job(jobs: &mut Option<mpsc::UnboundedReceiver<Job>>, waiting: &mut VecDeque<Waiting>) {
    let Some(inbox) = jobs else { return };
    match inbox.recv().await {
        Some(job) => {
            if waiting.len() >= 2 * MAX_FETCHES {
                // More than can be under way: most have been cancelled.
                waiting.retain_mut(|waiting| waiting.sent.is_some() || !waiting.is_cancelled());
            }
            waiting.push_back(Waiting::new(job));
        }
        None => *jobs = None,
    }
}

/// Whether what is asked for is sooner read to its end than asked for again.
const fn is_short(ask: &Ask) -> bool {
    matches!(ask.what, What::Range { .. }) && most_bytes(&ask.what) <= MAX_DRAINED_BYTES
}
