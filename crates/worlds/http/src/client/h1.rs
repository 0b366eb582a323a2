//! One HTTP/1.1 connection with pipelining (RFC 9112 section 9.3.2): requests do not wait for answers, and
//! answers come in the order of the requests. hyper's client sends only one request at a time.
//!
//! The connection has no task of its own. Polling for a head or for bytes of a body drives it, writes
//! included.
//!
//! * `parser`: turns received bytes into heads and bodies, without a socket.

pub(super) mod parser;

use std::future::Future as _;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use hyper::http::header::HOST;
use hyper::http::{Request, response};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};

pub(super) use self::parser::parse_responses;
use self::parser::{Parser, Step};

/// The most bytes that are read and handed over at once, if nothing limits the rate.
const DATA_BYTES_MAX: usize = 512 << 10;
/// A buffer with less free room than this, in bytes, is replaced before the next read.
const ROOM_BYTES_MIN: usize = 32 << 10;

/// The byte stream under a connection: TCP, or TLS over TCP.
pub(super) trait Io: AsyncRead + AsyncWrite + Send {}

impl<T: AsyncRead + AsyncWrite + Send> Io for T {}

/// An HTTP/1.1 connection. It cannot be used after an error.
pub(super) struct H1 {
    io: Pin<Box<dyn Io>>,
    /// The most bytes that are read and handed over at once.
    data_bytes_max: usize,
    /// Requests that are not written yet.
    out: BytesMut,
    /// Whether all written bytes have been flushed.
    flushed: bool,
    /// Whether writing has failed. The bytes that the server has sent can still be read.
    write_closed: bool,
    /// Bytes that have been received and not yet parsed.
    input: BytesMut,
    /// Whether the server has closed its direction.
    read_closed: bool,
    /// An error that followed bytes in the same read. The next read returns it.
    read_error: Option<io::Error>,
    /// The number of requests whose answer has not begun.
    unanswered: usize,
    parser: Parser,
}

impl H1 {
    /// Speaks HTTP over `io` and reads at most `piece_bytes` at once.
    pub(super) fn new(io: impl Io + 'static, piece_bytes: usize) -> Self {
        Self {
            io: Box::pin(io),
            data_bytes_max: piece_bytes.min(DATA_BYTES_MAX),
            out: BytesMut::new(),
            flushed: true,
            write_closed: false,
            input: BytesMut::new(),
            read_closed: false,
            read_error: None,
            unanswered: 0,
            parser: Parser::default(),
        }
    }

    /// Returns how many requests wait for their answer to begin.
    pub(super) fn unanswered(&self) -> usize {
        self.unanswered
    }

    /// Whether the newest answer leaves the connection open for the next.
    pub(super) const fn persists(&self) -> bool {
        self.parser.persists()
    }

    /// Whether requests may be pipelined, as the newest answer says.
    pub(super) const fn pipelines(&self) -> bool {
        self.parser.pipelines() && !self.read_closed && !self.write_closed
    }

    /// Returns the least number of bytes of the newest answer's body that are still to come.
    pub(super) const fn left_bytes(&self) -> u64 {
        self.parser.left_bytes()
    }

    /// Queues a request behind the others. Polling for a head or a body sends it.
    pub(super) fn send_request(&mut self, request: &Request<()>) {
        self.unanswered += 1;
        let out = &mut self.out;
        out.put_slice(request.method().as_str().as_bytes());
        out.put_slice(format!(" {} HTTP/1.1\r\n", request.uri()).as_bytes());
        // RFC 9110 section 7.2: the host comes first.
        let (host, others): (Vec<_>, Vec<_>) = request.headers().iter().partition(|(name, _)| **name == HOST);
        for (name, value) in host.into_iter().chain(others) {
            out.put_slice(name.as_str().as_bytes());
            out.put_slice(b": ");
            out.put_slice(value.as_bytes());
            out.put_slice(b"\r\n");
        }
        out.put_slice(b"\r\n");
        self.flushed = false;
    }

    /// Whether the connection is known to be unusable. Call this only if no request is unanswered and no body
    /// is open.
    pub(super) fn is_closed(&mut self) -> bool {
        // Bytes that no request asked for would be taken for the next answer.
        if self.read_closed || self.write_closed || !self.persists() || !self.input.is_empty() {
            return true;
        }
        self.poll_fill(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    /// Polls for the head of the oldest answer. The body before it must have ended.
    pub(super) fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<response::Parts, String>> {
        if self.unanswered == 0 {
            return Poll::Ready(Err("nothing was asked".to_owned()));
        }
        self.poll_send(cx);
        loop {
            if let Some(parts) = self.parser.head(&mut self.input)? {
                self.unanswered -= 1;
                return Poll::Ready(Ok(parts));
            }
            if self.read_closed {
                return Poll::Ready(Err("the server closed the connection".to_owned()));
            }
            ready!(self.poll_fill(cx)).map_err(|e| e.to_string())?;
        }
    }

    /// Polls for the next bytes of the body; `None` means that the body has ended.
    pub(super) fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, String>> {
        self.poll_send(cx);
        loop {
            match self.parser.data(&mut self.input)? {
                Step::Data(bytes) => return Poll::Ready(Ok(Some(bytes))),
                Step::End => return Poll::Ready(Ok(None)),
                Step::NeedMore if self.read_closed => self.parser.close()?,
                Step::NeedMore => ready!(self.poll_fill(cx)).map_err(|e| e.to_string())?,
            }
        }
    }

    /// Writes as many bytes as possible. An error is not reported, because the server may have answered
    /// before it closed the connection.
    fn poll_send(&mut self, cx: &mut Context<'_>) {
        while !self.out.is_empty() && !self.write_closed {
            match self.io.as_mut().poll_write(cx, &self.out) {
                Poll::Ready(Ok(written)) if written > 0 => self.out.advance(written),
                Poll::Ready(_) => self.write_closed = true,
                Poll::Pending => return,
            }
        }
        if !self.flushed && !self.write_closed {
            match self.io.as_mut().poll_flush(cx) {
                Poll::Ready(Ok(())) => self.flushed = true,
                Poll::Ready(Err(_)) => self.write_closed = true,
                Poll::Pending => {}
            }
        }
    }

    /// Reads the bytes that have arrived, or the end of the stream.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.input.capacity() - self.input.len() < ROOM_BYTES_MIN {
            // This copies at most an incomplete head: bodies have been split off.
            self.input.reserve(DATA_BYTES_MAX);
        }
        if let Some(read_error) = self.read_error.take() {
            return Poll::Ready(Err(read_error));
        }
        let mut came = false;
        // The buffered bytes are too few for the parser, however many they are: a head may be longer than one
        // piece.
        let full = self.input.capacity().min(self.input.len() + self.data_bytes_max);
        while self.input.len() < full {
            let left = full - self.input.len();
            let mut room = (&mut self.input).limit(left);
            // The future has no state between polls, so that each poll may create a new one.
            match pin!(self.io.read_buf(&mut room)).poll(cx) {
                Poll::Ready(Ok(0)) => {
                    self.read_closed = true;
                    return Poll::Ready(Ok(()));
                }
                Poll::Ready(Ok(_)) => came = true,
                Poll::Pending if came => break,
                Poll::Pending => return Poll::Pending,
                // The bytes before the error count. The kernel reports the error once; after that it reports
                // only the end.
                Poll::Ready(Err(e)) if came => {
                    self.read_error = Some(e);
                    break;
                }
                Poll::Ready(Err(e)) => return Poll::Ready(Err(e)),
            }
        }
        Poll::Ready(Ok(()))
    }
}
