//! Simulates one fetch from a scripted server. The client's own code reads the answer.

use std::collections::VecDeque;
use std::time::Duration;

use anabranch_algo::Span;
use bytes::{Bytes, BytesMut};
use hyper::http::response;

use super::script::{Reply, Request, Then};
use crate::client::api::{Event, FetchId, FetchRequest, METADATA_BYTES};
use crate::client::body_count::BodyCount;
use crate::client::error::FetchError;
use crate::client::h1::parser::{Parser, Step};
use crate::client::origin::{self, Origin, Url};
use crate::client::redirect::{REDIRECTS_MAX, redirect, too_many_redirects};
use crate::client::request::RequestShape;
use crate::client::route_worker::body::OPENING_WAIT;
use crate::client::route_worker::queued_fetch::DRAINED_BYTES_MAX;
use crate::client::validate::{self, BodyPolicy, Rejection};

/// The most bytes that a server sends at once.
const PIECE_BYTES: usize = 32 << 10;
/// A server with a low rate sends this many pieces per second.
const PIECES_A_SECOND: u64 = 4;

/// How long the client waits.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// The longest wait for a connection.
    pub connect: Span,
    /// The longest wait for an answer, and for each byte of a body.
    pub idle: Span,
}

impl Patience {
    fn idle(&self) -> Duration {
        Duration::from_nanos(self.idle.as_nanos())
    }
}

/// The connection that a route keeps between fetches, if it keeps one.
#[derive(Clone, Debug, Default)]
pub struct Connection {
    open: Option<Origin>,
    /// The answers that have begun on the connection.
    answers: u64,
}

impl Connection {
    /// Whether the route keeps a connection.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.open.is_some()
    }
}

/// The answer to one fetch: its events in order, each with the time since the fetch's turn came.
pub struct Answer {
    id: FetchId,
    /// The time of the latest event.
    at: Span,
    ready: VecDeque<(Span, Event)>,
    body: Option<Body>,
    connection: Connection,
}

/// A body that is being received.
struct Body {
    parser: Parser,
    input: BytesMut,
    sender: Sender,
    reading: Reading,
    idle: Duration,
}

/// How a body is handled.
enum Reading {
    /// The body is handed over and counted.
    Counted(BodyCount),
    /// The first bytes of the body are collected, until this time.
    Opening(BytesMut, Span),
}

/// The sending end of a connection: which bytes a server sends, and when.
struct Sender {
    reply: Reply,
    /// The number of bytes of the body that have been sent.
    sent: usize,
    /// Whether all bytes of the body have been sent.
    is_over: bool,
    /// When the last piece was sent.
    at: Span,
    /// When the request came.
    asked_at: Span,
}

/// The next thing that arrives over a connection.
enum Arrival {
    Bytes(Span, Bytes),
    Closed(Span),
    Nothing,
}

impl Sender {
    fn next(&mut self) -> Arrival {
        let Reply { body, rate, .. } = &self.reply;
        let left = body.len() - self.sent;
        let most = (rate / PIECES_A_SECOND).clamp(1, PIECE_BYTES as u64) as usize;
        let piece = body.slice(self.sent..self.sent + left.min(most));
        let at = match rate {
            &u64::MAX => self.at,
            rate => self.at + Span::from_nanos(piece.len() as u64 * 1_000_000_000 / rate),
        };
        if let Some((after, then)) = self.reply.breaks.filter(|(after, _)| self.asked_at + *after < at) {
            return match then {
                Then::Close => Arrival::Closed(self.at.max(self.asked_at + after)),
                _ => Arrival::Nothing,
            };
        }
        if piece.is_empty() {
            let is_ended = self.reply.is_chunked() && !self.is_over && self.reply.then == Then::Keep;
            self.is_over = true;
            return match self.reply.then {
                Then::Keep if is_ended => Arrival::Bytes(at, Bytes::from_static(b"0\r\n\r\n")),
                Then::Close => Arrival::Closed(at),
                _ => Arrival::Nothing,
            };
        }
        (self.at, self.sent) = (at, self.sent + piece.len());
        if self.reply.repeats && self.sent == self.reply.body.len() {
            self.sent = 0;
        }
        if !self.reply.is_chunked() {
            return Arrival::Bytes(at, piece);
        }
        Arrival::Bytes(at, [format!("{:x}\r\n", piece.len()).as_bytes(), &piece, b"\r\n"].concat().into())
    }
}

impl Answer {
    /// Does one fetch. Calls `server` with each request and the time since the fetch's turn came. A redirect
    /// leads to another request, and so does a kept connection that the server has closed. `sent_ago` says
    /// how long ago the request was sent, behind others on the same connection.
    pub fn new(
        id: FetchId,
        request: &FetchRequest,
        connection: Connection,
        patience: Patience,
        sent_ago: Span,
        server: &mut dyn FnMut(&Request, Span) -> Reply,
    ) -> Self {
        let mut answer = Self { id, at: Span::ZERO, ready: VecDeque::new(), body: None, connection };
        if let Err(error) = answer.begin(request, patience, sent_ago, server) {
            answer.fail(error);
        }
        answer
    }

    /// Returns the next event and its time; `None` after the last.
    pub fn next_event(&mut self) -> Option<(Span, Event)> {
        while self.ready.is_empty() && self.body.is_some() {
            self.read();
        }
        self.ready.pop_front()
    }

    /// Returns the connection that the fetch leaves, once the last event has been taken.
    #[must_use]
    pub fn into_connection(self) -> Connection {
        if self.body.is_some() { Connection::default() } else { self.connection }
    }

    fn begin(
        &mut self,
        request: &FetchRequest,
        patience: Patience,
        mut sent_ago: Span,
        server: &mut dyn FnMut(&Request, Span) -> Reply,
    ) -> Result<(), FetchError> {
        let asked = origin::parse(&request.url).map_err(FetchError::Refused)?;
        let mut shape = RequestShape::of(&request.kind)?;
        let mut url = asked.clone();
        for _ in 0..=REDIRECTS_MAX {
            let (parts, parser, body) = self.exchange(&url, shape, patience, sent_ago, server)?;
            sent_ago = Span::ZERO;
            if let Some(next) = redirect(&url, &parts) {
                self.keep_if_short(&parser);
                url = next?;
                continue;
            }
            return match validate::validate(&parts, &asked, &url, &shape.demands(&request.kind, &url)) {
                Ok((mut head, policy)) => {
                    (head.nth, head.last) = (self.connection.answers, !parser.persists());
                    self.push(Event::Head { id: self.id, head: Box::new(head) });
                    self.deliver(parser, body, policy, patience);
                    Ok(())
                }
                Err(Rejection::UnclearRange(_)) if shape.is_range() => {
                    self.connection = Connection::default();
                    shape = RequestShape::Whole { unless: None };
                    continue;
                }
                Err(Rejection::Failed(error) | Rejection::UnclearRange(error)) => {
                    match parts.status.is_success() {
                        true => self.connection = Connection::default(),
                        false => self.keep_if_short(&parser),
                    }
                    Err(error)
                }
            };
        }
        Err(too_many_redirects(&url))
    }

    /// Sends one request and reads the head of its answer.
    fn exchange(
        &mut self,
        url: &Url,
        shape: RequestShape<'_>,
        patience: Patience,
        sent_ago: Span,
        server: &mut dyn FnMut(&Request, Span) -> Reply,
    ) -> Result<(response::Parts, Parser, Sender), FetchError> {
        let (origin, request) = (Origin::of(url), Request::new(url, shape)?);
        if self.connection.open.as_ref() == Some(&origin) {
            let reply = server(&request, self.at);
            if !matches!(reply.then, Then::HangUp | Then::Refuse) {
                let early = sent_ago.min(reply.delay);
                return self.head(reply, early, &origin, patience);
            }
        }
        let reply = server(&request, self.at);
        self.connection = Connection { open: Some(origin.clone()), answers: 0 };
        // Connecting takes one round trip.
        self.at = self.at + reply.delay;
        match reply.then {
            Then::Refuse => Err(FetchError::Unreachable("Connection refused".to_owned())),
            Then::HangUp => {
                self.at = self.at + reply.delay;
                Err(FetchError::no_head(&origin.host, "the server closed the connection"))
            }
            _ if reply.delay > patience.connect => {
                self.at = patience.connect;
                Err(FetchError::Unreachable("it does not answer".to_owned()))
            }
            _ => self.head(reply, Span::ZERO, &origin, patience),
        }
        .inspect_err(|_| self.connection = Connection::default())
    }

    fn head(
        &mut self,
        reply: Reply,
        early: Span,
        origin: &Origin,
        patience: Patience,
    ) -> Result<(response::Parts, Parser, Sender), FetchError> {
        let asked_at = self.at;
        if reply.then == Then::Mute || reply.delay > patience.idle {
            self.at = self.at + patience.idle;
            self.connection = Connection::default();
            return Err(FetchError::no_answer(patience.idle()));
        }
        self.at = self.at + Span::from_nanos(reply.delay.as_nanos() - early.as_nanos());
        let (mut parser, mut input) = (Parser::default(), BytesMut::from(reply.head().as_bytes()));
        let parts = match parser.head(&mut input) {
            Ok(Some(parts)) => parts,
            Ok(None) => return Err(FetchError::no_head(&origin.host, "the head has no end")),
            Err(why) => return Err(FetchError::no_head(&origin.host, &why)),
        };
        self.connection.answers += 1;
        Ok((parts, parser, Sender { reply, sent: 0, is_over: false, at: self.at, asked_at }))
    }

    fn deliver(&mut self, parser: Parser, sender: Sender, policy: BodyPolicy, patience: Patience) {
        let wait = Span::from_nanos(OPENING_WAIT.as_nanos() as u64);
        let reading = match policy {
            BodyPolicy::Exactly(bytes) => Reading::Counted(BodyCount::exactly(bytes)),
            BodyPolicy::AtMost(bytes) => Reading::Counted(BodyCount::at_most(bytes)),
            BodyPolicy::Opening => Reading::Opening(BytesMut::new(), self.at + wait),
            BodyPolicy::Nothing => {
                self.keep_if_short(&parser);
                return self.push(Event::Done { id: self.id });
            }
        };
        self.body = Some(Body { parser, input: BytesMut::new(), sender, reading, idle: patience.idle() });
    }

    /// Reads on, up to the next event.
    fn read(&mut self) {
        let Some(mut body) = self.body.take() else { return };
        while self.ready.is_empty() {
            let is_over = match body.parser.data(&mut body.input) {
                Ok(Step::Data(bytes)) => self.take(&mut body, bytes),
                Ok(Step::End) => self.end(&body, None),
                Ok(Step::NeedMore) => self.receive(&mut body),
                Err(why) => self.end(&body, Some(&why)),
            };
            if is_over {
                return;
            }
        }
        self.body = Some(body);
    }

    /// Handles bytes of the body that have come. Returns whether the fetch is over.
    fn take(&mut self, body: &mut Body, bytes: Bytes) -> bool {
        match &mut body.reading {
            Reading::Counted(count) => match count.take(bytes.len()) {
                Ok(()) => {
                    self.push(Event::Body { id: self.id, bytes });
                    false
                }
                Err(error) => {
                    self.connection = Connection::default();
                    self.fail(error);
                    true
                }
            },
            Reading::Opening(opening, _) => {
                opening.extend_from_slice(&bytes);
                opening.len() >= METADATA_BYTES as usize && self.end(body, None)
            }
        }
    }

    /// Handles the next thing that the connection brings. Returns whether the fetch is over.
    fn receive(&mut self, body: &mut Body) -> bool {
        let arrival = body.sender.next();
        let until = match &body.reading {
            Reading::Counted(count) => {
                self.at + Span::from_nanos(count.patience(body.idle).as_nanos() as u64)
            }
            Reading::Opening(_, until) => *until,
        };
        match arrival {
            Arrival::Bytes(at, bytes) if at <= until => {
                self.at = self.at.max(at);
                body.input.extend_from_slice(&bytes);
                false
            }
            Arrival::Closed(at) if at <= until => {
                self.at = self.at.max(at);
                match body.parser.close() {
                    Ok(()) => false,
                    Err(why) => self.end(body, Some(&why)),
                }
            }
            _ => {
                self.at = until;
                self.connection = Connection::default();
                match &body.reading {
                    Reading::Counted(count) => self.finish(count.fell_silent(body.idle)),
                    Reading::Opening(..) => self.finish(Ok(())),
                }
                true
            }
        }
    }

    /// Ends the fetch, because the body has ended or the connection has failed (`broken`). Returns `true`:
    /// the fetch is over.
    fn end(&mut self, body: &Body, broken: Option<&str>) -> bool {
        match (broken, &body.reading) {
            (None, Reading::Counted(count)) => {
                let result = count.end();
                if result.is_err() || !body.parser.persists() {
                    self.connection = Connection::default();
                }
                self.finish(result);
            }
            (Some(why), Reading::Counted(count)) => {
                self.connection = Connection::default();
                self.finish(count.broke_off(why));
            }
            (None, Reading::Opening(opening, _)) => {
                let most = opening.len().min(METADATA_BYTES as usize);
                let bytes = Bytes::copy_from_slice(&opening[..most]);
                self.push(Event::Opening { id: self.id, bytes });
                match body.sender.reply.is_chunked() && !body.sender.is_over {
                    true => self.connection = Connection::default(),
                    false => self.keep_if_short(&body.parser),
                }
                self.finish(Ok(()));
            }
            (Some(_), Reading::Opening(..)) => {
                self.connection = Connection::default();
                self.finish(Ok(()));
            }
        }
        true
    }

    /// Keeps the connection only if the rest of an unwanted body is short, as the client does.
    fn keep_if_short(&mut self, parser: &Parser) {
        if !parser.persists() || parser.left_bytes() > DRAINED_BYTES_MAX {
            self.connection = Connection::default();
        }
    }

    fn finish(&mut self, result: Result<(), FetchError>) {
        match result {
            Ok(()) => self.push(Event::Done { id: self.id }),
            Err(error) => self.fail(error),
        }
    }

    fn fail(&mut self, error: FetchError) {
        self.push(Event::Failed { id: self.id, error });
    }

    fn push(&mut self, event: Event) {
        self.ready.push_back((self.at, event));
    }
}
