//! One HTTP/2 connection (RFC 9113). Only its oldest stream is read; the others wait.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body_util::Empty;
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http2;
use hyper::http::{Request, Response, response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinHandle;

use super::error::{FetchError, error_chain};

/// The receive window of a stream in bytes: enough for 100 Mbit/s over 0.6 s.
const STREAM_WINDOW_BYTES: u32 = 8 << 20;
/// The most bytes that the waiting streams together may bring, unless only one waits. Their unread bytes use
/// up the connection's window. With more bytes waiting, the stream that is read would stall.
const AHEAD_BYTES: u64 = STREAM_WINDOW_BYTES as u64;
/// The receive window of the connection in bytes: one half for the stream that is read, the other for the
/// waiting streams.
const CONNECTION_WINDOW_BYTES: u32 = 2 * STREAM_WINDOW_BYTES;
/// The largest frame that is accepted, in bytes.
const FRAME_BYTES: u32 = 64 << 10;

/// The future answer to a request.
type PendingResponse = Pin<Box<dyn Future<Output = hyper::Result<Response<Incoming>>> + Send>>;

/// An HTTP/2 connection. Dropping it closes it.
pub(super) struct H2 {
    sender: http2::SendRequest<Empty<Bytes>>,
    driver: JoinHandle<()>,
    /// The answers that have not begun, oldest first.
    pending: VecDeque<PendingResponse>,
    body: Option<Incoming>,
}

impl Drop for H2 {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl H2 {
    /// Starts HTTP/2 over `io`. A stream may have at most `ahead_bytes` in flight or unread.
    pub(super) async fn start<S>(io: S, ahead_bytes: usize) -> Result<Self, FetchError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let window = u32::try_from(ahead_bytes).map_or(STREAM_WINDOW_BYTES, |b| b.min(STREAM_WINDOW_BYTES));
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(window)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_frame_size(FRAME_BYTES)
            .handshake(TokioIo::new(io))
            .await
            .map_err(|e| FetchError::Broken(format!("the connection broke off: {}", error_chain(&e))))?;
        // The requests on the connection report how it ended.
        let driver = tokio::spawn(async move { drop(connection.await) });
        Ok(Self { sender, driver, pending: VecDeque::new(), body: None })
    }

    /// Whether answers of these lengths may wait while another answer is read.
    pub(super) fn has_room(mut waiting_bytes: impl ExactSizeIterator<Item = u64>) -> bool {
        let within = |sum: u64, bytes: u64| {
            Some(sum + bytes.min(STREAM_WINDOW_BYTES.into())).filter(|sum| *sum <= AHEAD_BYTES)
        };
        waiting_bytes.len() <= 1 || waiting_bytes.try_fold(0, within).is_some()
    }

    /// Returns how many requests wait for their answer to begin.
    pub(super) fn unanswered(&self) -> usize {
        self.pending.len()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Opens a stream for a request.
    pub(super) fn send_request(&mut self, request: Request<()>) {
        let answer = self.sender.send_request(request.map(|()| Empty::new()));
        self.pending.push_back(Box::pin(answer));
    }

    /// Resets the oldest stream whose answer has not begun.
    pub(super) fn skip_answer(&mut self) {
        self.pending.pop_front();
    }

    /// Resets the stream that is read, if it has not ended.
    pub(super) fn abandon_body(&mut self) {
        self.body = None;
    }

    /// Polls for the head of the oldest answer.
    pub(super) fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<response::Parts, String>> {
        let Some(oldest) = self.pending.front_mut() else {
            return Poll::Ready(Err("nothing was asked".to_owned()));
        };
        let answer = ready!(oldest.as_mut().poll(cx));
        self.pending.pop_front();
        let (parts, body) = answer.map_err(|e| error_chain(&e))?.into_parts();
        self.body = Some(body);
        Poll::Ready(Ok(parts))
    }

    /// Polls for the next bytes of the body; `None` means that the body has ended.
    pub(super) fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, String>> {
        let Some(body) = &mut self.body else { return Poll::Ready(Ok(None)) };
        loop {
            match ready!(Pin::new(&mut *body).poll_frame(cx)) {
                None => {
                    self.body = None;
                    return Poll::Ready(Ok(None));
                }
                Some(Err(e)) => return Poll::Ready(Err(error_chain(&e))),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) if !bytes.is_empty() => return Poll::Ready(Ok(Some(bytes))),
                    // Trailers are ignored.
                    _ => {}
                },
            }
        }
    }
}
