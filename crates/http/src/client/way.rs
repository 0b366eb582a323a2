//! One way: takes fetches one after the other, keeps connections between them, follows redirects.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::{Body as _, Incoming};
use hyper::http::header::{
    ACCEPT, ACCEPT_ENCODING, HOST, HeaderValue, IF_RANGE, LOCATION, PROXY_AUTHORIZATION, RANGE, USER_AGENT,
};
use hyper::http::{Method, Request, Response, Uri};
use net::Via;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::answer::{self, Take, is_strong};
use super::connect::{Connection, Window, chain};
use super::proxy::basic;
use super::queue::Queue;
use super::settings::Settings;
use super::url::Url;
use super::{Ask, Event, FetchId, Trouble, WayId, What};

/// Redirects followed for one fetch.
const MAX_REDIRECTS: usize = 10;
/// Connections a way keeps between fetches, each to another origin.
const MAX_IDLE_CONNECTIONS: usize = 4;
/// URLs of which a way remembers where they lead.
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

/// What a request asks for.
#[derive(Clone, Copy)]
enum Shape<'a> {
    Head,
    Bytes { first: u64, end: u64, validator: Option<Validator<'a>> },
    Whole,
}

/// A strong `ETag`, and the only URL that it is for.
#[derive(Clone, Copy)]
struct Validator<'a> {
    tag: &'a str,
    seen_at: Option<&'a str>,
}

impl Validator<'_> {
    /// Queries do not count: they carry signatures, which are new each time.
    fn is_for(&self, url: &Url) -> bool {
        let same =
            |seen: &str| Url::parse(seen).is_ok_and(|seen| seen.without_query() == url.without_query());
        self.seen_at.is_none_or(same)
    }
}

/// The URL that a fetch began with.
#[derive(Clone, Copy)]
struct Asked<'a> {
    url: &'a Url,
    /// As in [`Ask`].
    trusted: bool,
}

/// An answer that is no redirect, with where it came from and what it came by.
struct Answer {
    url: Url,
    response: Response<Incoming>,
    connection: Connection,
}

pub(super) struct Way {
    pub(super) id: WayId,
    pub(super) settings: Arc<Settings>,
    pub(super) queue: Arc<Queue>,
    pub(super) window: Arc<Window>,
    via: Via,
    idle: Vec<Connection>,
    /// Where redirects of a URL led.
    moved: HashMap<String, Url>,
}

impl Way {
    pub(super) fn new(id: WayId, settings: Arc<Settings>, queue: Arc<Queue>, window: Arc<Window>) -> Self {
        Self { id, settings, queue, window, via: Via::any(), idle: Vec::new(), moved: HashMap::new() }
    }

    /// Works until no more jobs can come.
    pub(super) async fn work(mut self, mut jobs: mpsc::UnboundedReceiver<Job>) {
        while let Some(Job { id, ask, mut cancelled }) = jobs.recv().await {
            let result = tokio::select! {
                biased;
                // Dropping the fetch closes its connection.
                _ = &mut cancelled => continue,
                result = self.fetch(id, &ask) => result,
            };
            self.queue.push(match result {
                Ok(()) => Event::Done { id },
                Err(trouble) => Event::Failed { id, trouble },
            });
        }
    }

    async fn fetch(&mut self, id: FetchId, ask: &Ask) -> Result<(), Trouble> {
        let url = Url::parse(&ask.url).map_err(Trouble::Refused)?;
        let asked = Asked { url: &url, trusted: ask.trusted };
        if ask.via != self.via {
            self.idle.clear();
            self.via = ask.via.clone();
        }
        let shape = match &ask.what {
            What::Look => return self.look(id, &ask.url, asked).await,
            What::Small { .. } => Shape::Whole,
            What::Range { first, end, length, validator, seen_at } => {
                if first >= end || end > length {
                    let why = format!("bytes {first} to {end} of {length} are no range");
                    return Err(Trouble::Refused(why));
                }
                let tag = validator.as_deref().filter(|tag| is_strong(tag));
                let validator = tag.map(|tag| Validator { tag, seen_at: seen_at.as_deref() });
                Shape::Bytes { first: *first, end: *end, validator }
            }
        };
        if matches!(ask.what, What::Range { .. })
            && let Some(known) = self.moved.get(&ask.url).cloned()
        {
            match self.get(id, ask, asked, known, shape).await {
                // Where it led is not where it leads now: such URLs expire. Nothing was handed over yet.
                Err(
                    Trouble::Gone(_)
                    | Trouble::Forbidden(_)
                    | Trouble::Refused(_)
                    | Trouble::NotTheFile(_)
                    | Trouble::Unreachable(_)
                    | Trouble::Tls(_),
                ) => drop(self.moved.remove(&ask.url)),
                other => return other,
            }
        }
        self.get(id, ask, asked, url.clone(), shape).await
    }

    /// A range or a small document.
    async fn get(
        &mut self,
        id: FetchId,
        ask: &Ask,
        asked: Asked<'_>,
        from: Url,
        shape: Shape<'_>,
    ) -> Result<(), Trouble> {
        let Answer { url, response, connection } = self.follow(asked, from, shape).await?;
        let (parts, body) = response.into_parts();
        let mut what = ask.what.clone();
        if let (What::Range { validator, .. }, Shape::Bytes { validator: sent, .. }) = (&mut what, shape)
            && !sent.is_some_and(|sent| sent.is_for(&url))
        {
            *validator = None;
        }
        let (head, take) = answer::judge(&parts, asked.url, &url, &what, false)?;
        self.remember(&ask.url, asked.url, url);
        self.queue.push(Event::Head { id, head: Box::new(head) });
        self.deliver(id, connection, body, take).await
    }

    /// What the fields say of a file: by HEAD, and where that does not do, by a GET for the first byte.
    async fn look(&mut self, id: FetchId, name: &str, asked: Asked<'_>) -> Result<(), Trouble> {
        let Answer { url, response, connection } = self.follow(asked, asked.url.clone(), Shape::Head).await?;
        let (parts, body) = response.into_parts();
        let from = match parts.status.as_u16() {
            // A signed URL may be good for GET only, and where it is refused may lead elsewhere by GET.
            403 | 405 | 501 => {
                drop((body, connection));
                asked.url.clone()
            }
            _ => {
                let (head, _) = answer::judge(&parts, asked.url, &url, &What::Look, false)?;
                self.finish(body, connection).await;
                if head.ranges && head.length.is_some() {
                    self.remember(name, asked.url, url);
                    self.queue.push(Event::Head { id, head: Box::new(head) });
                    return Ok(());
                }
                url
            }
        };
        let shape = Shape::Bytes { first: 0, end: 1, validator: None };
        let Answer { url, response, connection } = self.follow(asked, from, shape).await?;
        let (parts, body) = response.into_parts();
        let (head, _) = answer::judge(&parts, asked.url, &url, &What::Look, true)?;
        self.finish(body, connection).await;
        self.remember(name, asked.url, url);
        self.queue.push(Event::Head { id, head: Box::new(head) });
        Ok(())
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
    async fn follow(&mut self, asked: Asked<'_>, mut url: Url, shape: Shape<'_>) -> Result<Answer, Trouble> {
        for _ in 0..=MAX_REDIRECTS {
            let (response, connection) = self.exchange(asked, &url, shape).await?;
            let location = response.headers().get(LOCATION);
            let (301..=303 | 307..=308, Some(location)) = (response.status().as_u16(), location) else {
                return Ok(Answer { url, response, connection });
            };
            let location = String::from_utf8_lossy(location.as_bytes()).into_owned();
            let mut next = url
                .join(&location)
                .map_err(|why| Trouble::Refused(format!("a redirect leads nowhere: {why}")))?;
            // A name and password that a server wrote are no credentials of ours.
            next.user = None;
            if url.origin.secure && !next.origin.secure {
                let why = format!("it redirects from https to {}", next.without_query());
                return Err(Trouble::Refused(why));
            }
            self.finish(response.into_body(), connection).await;
            url = next;
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
    ) -> Result<(Response<Incoming>, Connection), Trouble> {
        let wait = self.settings.idle_timeout;
        let kept = self.idle.iter().position(|connection| connection.origin == url.origin);
        if let Some(mut connection) = kept.map(|at| self.idle.swap_remove(at))
            && !connection.is_closed()
        {
            let request = self.request(asked, url, shape, &connection)?;
            match timeout(wait, connection.send(request, &self.window)).await {
                Ok(Ok(response)) => return Ok((response, connection)),
                Ok(Err(_)) => {}
                Err(_) => return Err(silent(wait)),
            }
        }
        let mut connection = Connection::open(&self.settings, &self.via, &url.origin, &self.window).await?;
        let request = self.request(asked, url, shape, &connection)?;
        match timeout(wait, connection.send(request, &self.window)).await {
            Ok(Ok(response)) => Ok((response, connection)),
            Ok(Err(e)) => Err(Trouble::Broken(format!("no answer from {}: {}", url.origin.host, chain(&e)))),
            Err(_) => Err(silent(wait)),
        }
    }

    fn request(
        &self,
        asked: Asked<'_>,
        url: &Url,
        shape: Shape<'_>,
        connection: &Connection,
    ) -> Result<Request<Empty<Bytes>>, Trouble> {
        let impossible = |e: hyper::http::Error| Trouble::Refused(format!("{}: {e}", url.without_query()));
        let mut headers = self.settings.headers(asked.url, asked.trusted, url);
        let value = |text: &str| HeaderValue::from_str(text).map_err(|e| impossible(e.into()));
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if !headers.contains_key(ACCEPT) {
            headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
        }
        if !headers.contains_key(USER_AGENT) {
            headers.insert(USER_AGENT, value(&self.settings.agent)?);
        }
        if let Shape::Bytes { first, end, validator } = shape {
            headers.insert(RANGE, value(&format!("bytes={first}-{}", end - 1))?);
            if let Some(validator) = validator.filter(|validator| validator.is_for(url)) {
                headers.insert(IF_RANGE, value(validator.tag)?);
            }
        }
        let host = match headers.remove(HOST) {
            Some(host) => host,
            None => value(&url.origin.authority())?,
        };
        let uri = if connection.is_h2() || connection.relay.is_some() {
            let authority = if connection.is_h2() { host.as_bytes() } else { &[] };
            let own = url.origin.authority();
            let authority = if authority.is_empty() { own.as_bytes() } else { authority };
            Uri::builder()
                .scheme(url.origin.scheme())
                .authority(authority)
                .path_and_query(url.target.as_str())
        } else {
            Uri::builder().path_and_query(url.target.as_str())
        };
        let uri = uri.build().map_err(impossible)?;
        if !connection.is_h2() {
            headers.insert(HOST, host);
        }
        if let Some(Some((name, password))) = &connection.relay {
            headers.insert(PROXY_AUTHORIZATION, value(&basic(name, password))?);
        }
        let method = if matches!(shape, Shape::Head) { Method::HEAD } else { Method::GET };
        let mut request =
            Request::builder().method(method).uri(uri).body(Empty::new()).map_err(impossible)?;
        *request.headers_mut() = headers;
        Ok(request)
    }

    /// Hands the body over as it comes, and keeps the connection if the body ends as it should.
    async fn deliver(
        &mut self,
        id: FetchId,
        mut connection: Connection,
        mut body: Incoming,
        take: Take,
    ) -> Result<(), Trouble> {
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
            let frame = match timeout(if complete { LAST_CHUNK_WAIT } else { idle }, body.frame()).await {
                Ok(frame) => frame,
                // All is here; only the connection is of no use.
                Err(_) if complete => return Ok(()),
                Err(_) => {
                    let why = format!("no byte for {} s, after {taken} of {most}", idle.as_secs_f32());
                    return Err(Trouble::Broken(why));
                }
            };
            let data = match frame {
                None => break,
                Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
                Some(Err(_)) if complete => return Ok(()),
                Some(Err(e)) => {
                    let why = format!("it broke off after {taken} of {most} bytes: {}", chain(&e));
                    return Err(Trouble::Broken(why));
                }
            };
            if data.is_empty() {
                continue;
            }
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
    async fn finish(&mut self, mut body: Incoming, connection: Connection) {
        if body.size_hint().lower() > MAX_DRAINED_BYTES {
            return;
        }
        let drain = async {
            let mut read = 0_u64;
            while let Some(frame) = body.frame().await {
                read += frame.ok()?.data_ref().map_or(0, |data| data.len() as u64);
                if read > MAX_DRAINED_BYTES {
                    return None;
                }
            }
            Some(())
        };
        if timeout(LAST_CHUNK_WAIT, drain).await == Ok(Some(())) {
            self.keep(connection);
        }
    }

    fn keep(&mut self, connection: Connection) {
        if connection.is_closed() {
            return;
        }
        self.idle.retain(|other| other.origin != connection.origin && !other.is_closed());
        if self.idle.len() >= MAX_IDLE_CONNECTIONS {
            self.idle.remove(0);
        }
        self.idle.push(connection);
    }
}

fn silent(wait: Duration) -> Trouble {
    Trouble::Broken(format!("no answer for {} s", wait.as_secs_f32()))
}
