//! One connection: requests in, heads and bodies out.

use std::io::{self, ErrorKind, Read as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use anabranch_algo::fair_share::Place;
use anabranch_algo::{Span, Time};
use nix::errno::Errno;
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use nix::libc::{MSG_MORE, MSG_NOSIGNAL};
use nix::sys::sendfile::sendfile64;
use socket2::SockRef;

use super::answer::{Answer, Body, TURN_BYTES, answer, bad, failed};
use super::count::Count;
use super::fill::{FillError, Mailbox, Waiter};
use super::request::{HEAD_BYTES_MAX, Parsed, Request, parse};
use super::site::Site;

/// How long a connection may wait for a request, or take to send the head of one.
const HEAD_TIMEOUT: Span = Span::from_secs(30);
/// How long a client may take nothing of an answer.
const SEND_TIMEOUT: Span = Span::from_secs(60);
/// The bytes that are read at once.
const READ_BYTES: usize = 2 << 10;
/// The bytes that may wait in a socket besides those that are on their way.
const UNSENT_BYTES_MAX: u32 = 256 << 10;
/// The most answers in one turn, for clients that send requests ahead.
const ANSWERS_MAX: usize = 32;
/// The step in which the system is asked to read ahead, in bytes: one request for each step.
const AHEAD_BYTES: u64 = 2 << 20;

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wants {
    /// Bytes of a request.
    Read,
    /// Room in the socket, or its next turn.
    Write,
    /// An object that is being fetched.
    Object,
    /// Nothing: it is to be closed.
    End,
}

/// A connection.
pub(super) struct Connection {
    stream: TcpStream,
    local: SocketAddr,
    pub(super) place: Place,
    /// A number that no other connection of the process has.
    pub(super) serial: u64,
    inbox: Vec<u8>,
    /// A head, or a whole short answer, and how much of it is sent.
    out: Vec<u8>,
    sent: usize,
    body: Option<Box<Body>>,
    /// The request that is being answered, if it waits for an object.
    asked: Option<Box<Request>>,
    /// Whether another request may follow.
    keeps: bool,
    pub(super) wants: Wants,
    /// The time of the last progress.
    heard: Time,
}

/// What a connection needs of its thread.
pub(super) struct Turn<'a> {
    pub(super) site: &'a Arc<Site>,
    pub(super) mailbox: &'a Arc<Mailbox>,
    pub(super) token: usize,
    pub(super) now: Time,
    pub(super) buffer: &'a mut Vec<u8>,
}

impl Connection {
    pub(super) fn new(stream: TcpStream, place: Place, serial: u64, now: Time) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        // A head and a body are sent as one by MSG_MORE.
        stream.set_nodelay(true)?;
        // This bounds the kernel's memory for clients that read slowly; older kernels do without.
        let _ = SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT_BYTES_MAX);
        let local = stream.local_addr()?;
        Ok(Self {
            stream,
            local,
            place,
            serial,
            inbox: Vec::new(),
            out: Vec::new(),
            sent: 0,
            body: None,
            asked: None,
            keeps: true,
            wants: Wants::Read,
            heard: now,
        })
    }

    pub(super) const fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Returns whether the client has been silent for too long.
    pub(super) fn is_late(&self, now: Time) -> bool {
        let limit = match self.wants {
            Wants::Read => HEAD_TIMEOUT,
            Wants::Write => SEND_TIMEOUT,
            Wants::Object | Wants::End => return false,
        };
        now.since(self.heard) > limit
    }

    /// Returns whether an answer is under way.
    pub(super) const fn is_used(&self) -> bool {
        self.body.is_some() || self.asked.is_some()
    }

    /// Moves bytes until the connection has to wait, or its turn is over. Says what it wants then.
    pub(super) fn go(&mut self, turn: &mut Turn<'_>) {
        self.wants = self.advance(turn).unwrap_or(Wants::End);
    }

    /// Continues after the object was fetched, or could not be.
    pub(super) fn fetched(&mut self, turn: &mut Turn<'_>, outcome: Result<(), FillError>) {
        if let Some(request) = self.asked.take() {
            self.answer(turn, request, Some(outcome));
            self.go(turn);
        }
    }

    fn advance(&mut self, turn: &mut Turn<'_>) -> io::Result<Wants> {
        let mut answers = 0;
        loop {
            if self.asked.is_some() {
                return Ok(Wants::Object);
            }
            if self.sent < self.out.len() {
                if !self.send_out(turn.now)? {
                    return Ok(Wants::Write);
                }
                continue;
            }
            if let Some(body) = &self.body
                && body.next < body.end
            {
                // Others have their turn before the next bytes.
                self.send_body(turn)?;
                if self.body.as_ref().is_some_and(|body| body.next < body.end) {
                    return Ok(Wants::Write);
                }
            }
            if self.body.take().is_some() || !self.out.is_empty() {
                self.out = Vec::new();
                self.sent = 0;
                if !self.keeps {
                    return self.linger();
                }
            }
            if answers == ANSWERS_MAX {
                return Ok(Wants::Write);
            }
            match parse(&self.inbox) {
                Parsed::Whole(request, length) => {
                    self.inbox.drain(..length);
                    self.keeps = request.keeps;
                    turn.site.counters.count(Count::Requests);
                    answers += 1;
                    self.answer(turn, request, None);
                }
                Parsed::Bad(status, why) => {
                    self.keeps = false;
                    self.out = bad(status, why);
                }
                Parsed::Partial => {
                    if !self.receive(turn.now)? {
                        return Ok(Wants::Read);
                    }
                }
            }
        }
    }

    /// Ends after the last answer. What the client has sent besides is read, since closing with unread
    /// bytes would make the kernel reset the connection, and the client lose the answer.
    fn linger(&mut self) -> io::Result<Wants> {
        self.stream.shutdown(std::net::Shutdown::Write)?;
        let mut rest = [0; READ_BYTES];
        while matches!(self.stream.read(&mut rest), Ok(1..)) {}
        Ok(Wants::End)
    }

    fn answer(&mut self, turn: &mut Turn<'_>, request: Box<Request>, fetched: Option<Result<(), FillError>>) {
        let answered = match answer(turn.site, &request, self.local, fetched, turn.buffer) {
            Answer::Wait(name) => {
                let mailbox = Arc::clone(turn.mailbox);
                let waiter = Waiter { mailbox, token: turn.token, serial: self.serial };
                let origin_mode = || Err(FillError::NotFound("this image does not have it".to_owned()));
                match turn.site.filler.as_ref().map_or_else(origin_mode, |filler| filler.ask(name, waiter)) {
                    Ok(()) => {
                        self.asked = Some(request);
                        return;
                    }
                    Err(error) => failed(&request, &error),
                }
            }
            answered @ Answer::Send(..) => answered,
        };
        if let Answer::Send(out, body) = answered {
            (self.out, self.sent, self.body) = (out, 0, body);
        }
    }

    /// Reads bytes of requests. Returns whether some came.
    fn receive(&mut self, now: Time) -> io::Result<bool> {
        let mut bytes = [0; READ_BYTES];
        let room = (HEAD_BYTES_MAX - self.inbox.len().min(HEAD_BYTES_MAX)).min(READ_BYTES);
        match self.stream.read(&mut bytes[..room]) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                if self.inbox.is_empty() {
                    // The timeout counts from the first byte of a head.
                    self.heard = now;
                }
                self.inbox.extend_from_slice(&bytes[..read]);
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Sends of the head. Returns whether all of it is sent.
    fn send_out(&mut self, now: Time) -> io::Result<bool> {
        let more = if self.body.is_some() { MSG_MORE } else { 0 };
        let rest = &self.out[self.sent..];
        match SockRef::from(&self.stream).send_with_flags(rest, more | MSG_NOSIGNAL) {
            Ok(sent) => {
                self.heard = now;
                self.sent += sent;
                Ok(self.sent == self.out.len())
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Proves and sends the next bytes of the body, as far as the socket takes them.
    fn send_body(&mut self, turn: &mut Turn<'_>) -> io::Result<()> {
        let Some(body) = &mut self.body else { return Ok(()) };
        let end = body.end.min(body.next + TURN_BYTES);
        turn.site.prove(&body.held, body.next..end, turn.buffer).map_err(io::Error::other)?;
        let file = turn.site.image().disk();
        if body.next.is_multiple_of(AHEAD_BYTES) || body.next / AHEAD_BYTES != end / AHEAD_BYTES {
            let ahead = body.held.proof.place(end);
            // This is only for speed.
            let _ = posix_fadvise(
                file,
                i64::try_from(ahead).unwrap_or(i64::MAX),
                AHEAD_BYTES.min(body.end - end) as i64,
                PosixFadviseAdvice::POSIX_FADV_WILLNEED,
            );
        }
        let mut at = i64::try_from(body.held.proof.place(body.next)).map_err(io::Error::other)?;
        let before = body.next;
        while body.next < end {
            match sendfile64(&self.stream, file, Some(&mut at), (end - body.next) as usize) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(sent) => body.next += sent as u64,
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => break,
                Err(error) => return Err(error.into()),
            }
        }
        let sent = body.next - before;
        if sent > 0 {
            self.heard = turn.now;
            turn.site.counters.add(Count::SentBytes, sent);
            turn.site.image().table().count_bytes(body.held.slot, sent);
        }
        Ok(())
    }
}
