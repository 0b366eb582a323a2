//! The program's end of a connection.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use anabranch_mptcp::{ConnectionId, SubflowError, SubflowReport};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::shared::{End, Shared};

/// A connection. Dropping it ends both directions: what was written is still delivered if the peer takes it
/// within ten seconds, what comes is discarded.
#[derive(Debug)]
pub struct Connection {
    shared: Arc<Shared>,
    id: ConnectionId,
    peer: SocketAddr,
    is_finished: bool,
}

/// Returns the error of a connection that has ended for this reason.
fn error_of(error: SubflowError) -> io::Error {
    io::Error::new(error.io_kind(), error)
}

impl Connection {
    pub(crate) const fn new(shared: Arc<Shared>, id: ConnectionId, peer: SocketAddr) -> Self {
        Self { shared, id, peer, is_finished: false }
    }

    /// Returns the address to which the first subflow ran.
    #[must_use]
    pub const fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    /// Returns the state of each subflow, with the addresses that its packets have.
    #[must_use]
    pub fn subflows(&self) -> Vec<SubflowReport> {
        self.monitor().subflows()
    }

    /// Returns a handle that reads the state of the subflows and does not keep the connection.
    #[must_use]
    pub fn monitor(&self) -> Monitor {
        Monitor { shared: Arc::clone(&self.shared), id: self.id }
    }

    /// Waits until the handshake is over.
    pub(crate) fn poll_established(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        self.shared.with(|state, _| match state.ends.get_mut(&self.id) {
            Some(End { is_established: true, .. }) => Poll::Ready(Ok(())),
            Some(End { closed: Some(error), .. }) => {
                Poll::Ready(Err(error_of(error.unwrap_or(SubflowError::Refused))))
            }
            Some(end) => {
                end.reader = Some(cx.waker().clone());
                Poll::Pending
            }
            None => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        })
    }
}

/// Reads the state of a connection's subflows.
#[derive(Clone, Debug)]
pub struct Monitor {
    shared: Arc<Shared>,
    id: ConnectionId,
}

impl Monitor {
    /// Returns the state of each subflow, with the addresses that its packets have; none if the connection is
    /// gone.
    #[must_use]
    pub fn subflows(&self) -> Vec<SubflowReport> {
        // Nothing changes, so nothing has to be sent.
        let subflows: Vec<SubflowReport> = self.shared.lock().stack.subflows(self.id).collect();
        let named = |report: SubflowReport| {
            let local = self.shared.wire.address_of(report.local);
            SubflowReport { local, ..report }
        };
        subflows.into_iter().map(named).collect()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        self.shared.with(|state, _| {
            let count = state.stack.read(self.id, buffer.initialize_unfilled());
            buffer.advance(count);
            let Some(end) = state.ends.get_mut(&self.id).filter(|_| count == 0) else {
                return Poll::Ready(Ok(()));
            };
            match end.closed {
                _ if end.is_peer_finished => Poll::Ready(Ok(())),
                Some(None) => Poll::Ready(Ok(())),
                Some(Some(error)) => Poll::Ready(Err(error_of(error))),
                None => {
                    end.reader = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
    }
}

impl AsyncWrite for Connection {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.is_finished {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        self.shared.with(|state, _| {
            let room = usize::try_from(state.writable(self.id)).unwrap_or(usize::MAX).min(bytes.len());
            let Some(end) = state.ends.get_mut(&self.id) else {
                return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
            };
            if let Some(error) = end.closed {
                return Poll::Ready(Err(error.map_or_else(|| io::ErrorKind::BrokenPipe.into(), error_of)));
            }
            if room == 0 {
                state.writers.insert(self.id, cx.waker().clone());
                return Poll::Pending;
            }
            Poll::Ready(Ok(state.stack.write(self.id, &bytes[..room])))
        })
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.is_finished = true;
        self.shared.with(|state, _| state.stack.finish(self.id));
        Poll::Ready(Ok(()))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.shared.with(|state, now| state.linger(now, self.id));
    }
}
