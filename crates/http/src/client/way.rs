//! One way: answers fetches one after the other, keeps connections between them, follows redirects.
//!
//! The request of the next fetch goes out while the answer before it flows, where that is safe: `ahead`.

mod ahead;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use hyper::http::header::LOCATION;
use hyper::http::response;
use net::Egress;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use self::ahead::Waiting;
use super::answer::{self, Take};
use super::connect::{Connection, Window};
use super::queue::Queue;
use super::request::{Asked, Shape, request};
use super::settings::Settings;
use super::url::{Origin, Url};
use super::{Ask, Event, FetchId, Trouble, WayId, What};

/// Redirects followed for one fetch.
const MAX_REDIRECTS: usize = 10;
/// Connections a way keeps between fetches, each to another origin.
const MAX_IDLE_CONNECTIONS: usize = 4;
/// URLs of which a way remembers where they lead, and origins that it is wary of.
const MAX_REMEMBERED: usize = 1024;
/// A body of no interest is read to its end up to so many bytes, to keep the connection.
const MAX_DRAINED_BYTES: u64 = 64 << 10;
/// How long the end of a body is waited for after its last byte.
const LAST_CHUNK_WAIT: Duration = Duration::from_secs(1);

/// A fetch on its way's list. It is cancelled by dropping the other end of `cancelled`.
pub(super) struct Job {
    pub(super) id: FetchId,
    pub(super) ask: Ask,
    pub(super) cancelled: oneshot::Receiver<()>,
}

/// An answer that is no redirect, with where it came from and what its body comes by.
struct Answer {
    url: Url,
    parts: response::Parts,
    connection: Connection,
}

/// Whether a fetch's request is still to be made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// It is.
    New,
    /// It has been sent: its answer is the next of the connection that was asked ahead.
    Sent,
}

pub(super) struct Way {
    id: WayId,
    settings: Arc<Settings>,
    queue: Arc<Queue>,
    window: Arc<Window>,
    via: Egress,
    idle: Vec<Connection>,
    /// Where redirects of a URL led.
    moved: HashMap<String, Url>,
    /// Where jobs come from, until it ends.
    jobs: Option<mpsc::UnboundedReceiver<Job>>,
    /// Jobs whose turn has not come, oldest first. The requests of the first few may have been sent, all on
    /// one connection: the one that is being read, or else `ahead`.
    waiting: VecDeque<Waiting>,
    /// The connection that has requests of `waiting`, while it is not being read.
    ahead: Option<Connection>,
    /// How often an origin closed a connection on which it had been asked ahead.
    wary: HashMap<Origin, u32>,
    /// After how many answers an origin ended a connection.
    limits: HashMap<Origin, u64>,
}

impl Way {
    pub(super) fn new(
        id: WayId,
        settings: Arc<Settings>,
        queue: Arc<Queue>,
        window: Arc<Window>,
        jobs: mpsc::UnboundedReceiver<Job>,
    ) -> Self {
        Self {
            id,
            settings,
            queue,
            window,
            via: Egress::any(),
            idle: Vec::new(),
            moved: HashMap::new(),
            jobs: Some(jobs),
            waiting: VecDeque::new(),
            ahead: None,
            wary: HashMap::new(),
            limits: HashMap::new(),
        }
    }

    /// Works until no more jobs can come.
    pub(super) async fn work(mut self) {
        while let Some(mut next) = self.next().await {
            if next.is_cancelled() {
                if next.sent.is_some() {
                    self.skip(&next.job.ask).await;
                }
                continue;
            }
            let Waiting { job: Job { id, ask, mut cancelled }, sent } = next;
            let result = tokio::select! {
                biased;
                // Dropping the fetch closes its connection.
                _ = &mut cancelled => continue,
                result = self.fetch(id, &ask, sent) => result,
            };
            self.queue.push(match result {
                Ok(()) => Event::Done { id },
                Err(trouble) => Event::Failed { id, trouble },
            });
        }
    }

    /// One fetch from start to end. `sent`: where its request was sent, if it was.
    async fn fetch(&mut self, id: FetchId, ask: &Ask, sent: Option<Url>) -> Result<(), Trouble> {
        let url = Url::parse(&ask.url).map_err(Trouble::Refused)?;
        let asked = Asked { url: &url, trusted: ask.trusted };
        if ask.via != self.via {
            (self.ahead, self.via) = (None, ask.via.clone());
            self.idle.clear();
        }
        let shape = Shape::of(&ask.what)?;
        if matches!(ask.what, What::Look) {
            return self.look(id, &ask.url, asked).await;
        }
        let mut turn = if sent.is_some() { Turn::Sent } else { Turn::New };
        let known = match sent {
            Some(sent) => Some(sent).filter(|sent| *sent != url),
            None => self.target(ask).cloned(),
        };
        if let Some(known) = known {
            match self.get(id, ask, asked, known.clone(), shape, turn).await {
                // Where it led is not where it leads now: such URLs expire. Nothing was handed over yet.
                Err(
                    Trouble::Gone(_)
                    | Trouble::Forbidden { .. }
                    | Trouble::Refused(_)
                    | Trouble::NotTheFile(_)
                    | Trouble::Unreachable(_)
                    | Trouble::Tls(_),
                ) => {
                    // A fetch before this one may have found out where it leads now.
                    if self.moved.get(&ask.url) == Some(&known) {
                        self.moved.remove(&ask.url);
                    }
                }
                other => return other,
            }
            turn = Turn::New;
        }
        let known = if turn == Turn::New { self.target(ask) } else { None };
        let from = known.unwrap_or(&url).clone();
        self.get(id, ask, asked, from, shape, turn).await
    }

    /// Where a redirect of what is asked for is known to lead.
    fn target(&self, ask: &Ask) -> Option<&Url> {
        self.moved.get(&ask.url).filter(|_| matches!(ask.what, What::Range { .. }))
    }

    /// A range or a small document.
    async fn get(
        &mut self,
        id: FetchId,
        ask: &Ask,
        asked: Asked<'_>,
        from: Url,
        shape: Shape<'_>,
        mut turn: Turn,
    ) -> Result<(), Trouble> {
        loop {
            let Answer { url, parts, connection } = self.follow(asked, from.clone(), shape, turn).await?;
            let mut what = ask.what.clone();
            if let What::Range { validator, modified, .. } = &mut what {
                if shape.has_validator() {
                    *modified = None;
                }
                if !shape.validates(&url) {
                    *validator = None;
                }
            }
            match answer::judge(&parts, asked.url, &url, &what, false) {
                Ok((mut head, take)) => {
                    (head.nth, head.last) = (connection.answers, connection.is_last());
                    self.remember(&ask.url, asked.url, url);
                    self.queue.push(Event::Head { id, head: Box::new(head) });
                    return self.deliver(id, connection, take).await;
                }
                // Perhaps somebody on the way mixes up answers: alone, it is the answer to this request.
                Err(Trouble::NotTheFile(_))
                    if turn == Turn::Sent && url == from && parts.status.is_success() =>
                {
                    self.lost(connection, true);
                    turn = Turn::New;
                }
                Err(trouble) if parts.status.is_success() => return Err(trouble),
                Err(trouble) => {
                    // It is this fetch that failed and not the connection.
                    self.finish(connection).await;
                    return Err(self.told(trouble, asked, &url));
                }
            }
        }
    }

    /// What the fields say of a file: by HEAD, and where that does not do, by a GET for the first byte.
    async fn look(&mut self, id: FetchId, name: &str, asked: Asked<'_>) -> Result<(), Trouble> {
        let Answer { url, parts, connection } =
            self.follow(asked, asked.url.clone(), Shape::Head, Turn::New).await?;
        let from = match parts.status.as_u16() {
            // A signed URL may be good for GET only, and where it is refused may lead elsewhere by GET.
            403 | 405 | 501 => {
                drop(connection);
                asked.url.clone()
            }
            _ => {
                let judged = answer::judge(&parts, asked.url, &url, &What::Look, false);
                let (head, _) = judged.map_err(|trouble| self.told(trouble, asked, &url))?;
                self.finish(connection).await;
                if head.ranges && head.length.is_some() {
                    self.remember(name, asked.url, url);
                    self.queue.push(Event::Head { id, head: Box::new(head) });
                    return Ok(());
                }
                url
            }
        };
        let shape = Shape::Bytes { first: 0, end: 1, validator: None };
        let Answer { url, parts, connection } = self.follow(asked, from, shape, Turn::New).await?;
        let judged = answer::judge(&parts, asked.url, &url, &What::Look, true);
        let (head, _) = judged.map_err(|trouble| self.told(trouble, asked, &url))?;
        self.finish(connection).await;
        self.remember(name, asked.url, url);
        self.queue.push(Event::Head { id, head: Box::new(head) });
        Ok(())
    }

    /// The same trouble with what is known of who refuses.
    fn told(&self, trouble: Trouble, asked: Asked<'_>, url: &Url) -> Trouble {
        let Trouble::Forbidden { status: status @ (401 | 403), .. } = trouble else { return trouble };
        Trouble::Forbidden {
            status,
            secrets: self.settings.secrets(asked.url, asked.trusted, url),
            at: (asked.url.origin != url.origin).then(|| url.origin.authority()),
        }
    }

    fn remember(&mut self, name: &str, asked: &Url, url: Url) {
        if *asked == url {
            self.moved.remove(name);
            return;
        }
        if self.moved.len() >= MAX_REMEMBERED {
            self.moved.clear();
        }
        self.moved.insert(name.to_owned(), url);
    }

    /// Asks at `url` and wherever that leads.
    async fn follow(
        &mut self,
        asked: Asked<'_>,
        mut url: Url,
        shape: Shape<'_>,
        mut turn: Turn,
    ) -> Result<Answer, Trouble> {
        for _ in 0..=MAX_REDIRECTS {
            let (parts, connection) = self.exchange(asked, &url, shape, turn).await?;
            let location = parts.headers.get(LOCATION);
            let (301..=303 | 307..=308, Some(location)) = (parts.status.as_u16(), location) else {
                return Ok(Answer { url, parts, connection });
            };
            let location = String::from_utf8_lossy(location.as_bytes()).into_owned();
            self.finish(connection).await;
            let mut next = url
                .join(&location)
                .map_err(|why| Trouble::Refused(format!("a redirect leads nowhere: {why}")))?;
            // A name and password that a server wrote are no credentials of ours.
            next.user = None;
            if url.origin.secure && !next.origin.secure {
                let why = format!("it redirects from https to {}", next.without_query());
                return Err(Trouble::Refused(why));
            }
            (url, turn) = (next, Turn::New);
        }
        Err(Trouble::Refused(format!(
            "more than {MAX_REDIRECTS} redirects, the last to {}",
            url.without_query()
        )))
    }

    /// One request and the head of its answer. A connection that was kept may have been closed at the other
    /// end meanwhile: then a new one is tried.
    async fn exchange(
        &mut self,
        asked: Asked<'_>,
        url: &Url,
        shape: Shape<'_>,
        turn: Turn,
    ) -> Result<(response::Parts, Connection), Trouble> {
        if turn == Turn::Sent
            && let Some(mut connection) = self.ahead.take()
        {
            match self.head(&mut connection, shape, Turn::Sent).await? {
                Ok(parts) => {
                    self.answered_ahead(&mut connection);
                    return Ok((parts, connection));
                }
                Err(_) => self.lost(connection, true),
            }
        } else {
            self.settle();
        }
        let kept = self.idle.iter().position(|connection| connection.origin == url.origin);
        if let Some(mut connection) = kept.map(|at| self.idle.swap_remove(at))
            && !connection.is_closed()
        {
            connection.ask(request(&self.settings, asked, url, shape, &connection)?);
            match self.head(&mut connection, shape, Turn::New).await? {
                Ok(parts) => return Ok((parts, connection)),
                Err(_) => self.lost(connection, false),
            }
        }
        let mut connection = Connection::open(&self.settings, &self.via, &url.origin, &self.window).await?;
        connection.ask(request(&self.settings, asked, url, shape, &connection)?);
        match self.head(&mut connection, shape, Turn::New).await? {
            Ok(parts) => Ok((parts, connection)),
            Err(e) => Err(Trouble::Broken(format!("no answer from {}: {e}", url.origin.host))),
        }
    }

    /// Hands the body over as it comes, and keeps the connection if the body ends as it should.
    async fn deliver(&mut self, id: FetchId, mut connection: Connection, take: Take) -> Result<(), Trouble> {
        let (most, exactly) = match take {
            Take::Exactly(bytes) => (bytes, true),
            Take::AtMost(bytes) => (bytes, false),
            Take::Nothing => (0, false),
        };
        let idle = self.settings.idle_timeout;
        let mut taken = 0_u64;
        loop {
            let complete = exactly && taken == most;
            if !complete {
                self.queue.room().await;
            }
            let wait = if complete { LAST_CHUNK_WAIT } else { idle };
            let data = match timeout(wait, self.piece(&mut connection)).await {
                Ok(Ok(None)) => break,
                Ok(Ok(Some(data))) => data,
                // All is here; only the connection is of no use.
                Ok(Err(_)) | Err(_) if complete => {
                    self.lost(connection, false);
                    return Ok(());
                }
                Ok(Err(e)) => {
                    self.lost(connection, false);
                    return Err(Trouble::Broken(format!("it broke off after {taken} of {most} bytes: {e}")));
                }
                Err(_) => {
                    self.lost(connection, false);
                    let why = format!("no byte for {} s, after {taken} of {most}", idle.as_secs_f32());
                    return Err(Trouble::Broken(why));
                }
            };
            taken = taken.saturating_add(data.len() as u64);
            if taken > most {
                return Err(if exactly {
                    Trouble::Broken(format!("more came than the {most} bytes there are"))
                } else {
                    Trouble::Refused(format!("it has more than the {most} bytes that are taken"))
                });
            }
            self.queue.push(Event::Body { id, bytes: data });
            if let Some(sample) = connection.sample(&self.window) {
                self.queue.push(Event::Sample { way: self.id, sample });
            }
        }
        if exactly && taken != most {
            return Err(Trouble::Broken(format!("it ended after {taken} of {most} bytes")));
        }
        self.keep(connection);
        Ok(())
    }

    /// Reads a body of no interest to its end if that is cheap, and keeps the connection if it is.
    async fn finish(&mut self, mut connection: Connection) {
        let drain = async {
            let mut read = 0_u64;
            while !connection.leave() {
                if !connection.persists() || read + connection.left_bytes() > MAX_DRAINED_BYTES {
                    return false;
                }
                match connection.piece().await {
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
            self.ahead = Some(connection);
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
