//! A TCP stream that counts its bytes, so that the server notices a stalled connection.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::connections::Progress;
use super::shared::Metrics;

/// A TCP stream that counts its bytes.
pub(super) struct CountingStream {
    stream: TcpStream,
    progress: Rc<Progress>,
    metrics: Arc<Metrics>,
}

impl CountingStream {
    pub(super) const fn new(stream: TcpStream, progress: Rc<Progress>, metrics: Arc<Metrics>) -> Self {
        Self { stream, progress, metrics }
    }

    fn step(&self) {
        self.progress.steps.set(self.progress.steps.get().wrapping_add(1));
    }

    fn sent(&self, outcome: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(bytes)) = outcome {
            self.step();
            self.progress.sent_bytes.set(self.progress.sent_bytes.get() + *bytes as u64);
            self.metrics.sent_bytes.fetch_add(*bytes as u64, Ordering::Relaxed);
        }
    }
}

impl AsyncRead for CountingStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if outcome.is_ready() {
            self.step();
        }
        outcome
    }
}

impl AsyncWrite for CountingStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.sent(&outcome);
        outcome
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.sent(&outcome);
        outcome
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
