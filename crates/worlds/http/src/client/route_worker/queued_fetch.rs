//! A fetch in the queue of its route.

use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use crate::client::api::{FetchId, FetchRequest, METADATA_BYTES, RequestKind};
use crate::client::origin::Url;

/// An unwanted body of at most this many bytes is read to its end, to keep the connection.
pub(in crate::client) const DRAINED_BYTES_MAX: u64 = 64 << 10;

/// A fetch whose turn has not come. Dropping the other end of `cancelled` cancels it.
pub(in crate::client) struct QueuedFetch {
    pub(in crate::client) id: FetchId,
    pub(in crate::client) request: FetchRequest,
    /// The URL of `request`, parsed.
    pub(in crate::client) url: Url,
    pub(in crate::client) cancelled: oneshot::Receiver<()>,
    /// The URL that the request was sent for, if it was sent ahead.
    pub(in crate::client) sent: Option<Url>,
}

impl QueuedFetch {
    /// Whether the fetch has been cancelled.
    pub(super) fn is_cancelled(&mut self) -> bool {
        !matches!(self.cancelled.try_recv(), Err(TryRecvError::Empty))
    }

    /// Returns the most bytes that an accepted answer can have.
    pub(super) const fn bytes_max(&self) -> u64 {
        match self.request.kind {
            RequestKind::Metadata => METADATA_BYTES,
            RequestKind::Range { first, end, .. } => end.saturating_sub(first),
            RequestKind::Document { max } | RequestKind::ChangedDocument { max, .. } => max as u64,
        }
    }

    /// Whether reading the answer to its end costs less than a new connection.
    pub(super) const fn is_short(&self) -> bool {
        let is_document =
            matches!(self.request.kind, RequestKind::Document { .. } | RequestKind::ChangedDocument { .. });
        !is_document && self.bytes_max() <= DRAINED_BYTES_MAX
    }
}
