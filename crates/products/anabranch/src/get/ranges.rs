//! Fetches parts of a file without the rest.
//!
//! A transfer of ranges is a transfer that is [read in order](super::Reader) and whose other blocks count as
//! if they had arrived. So it uses all mirrors and paths, and verifies blocks, as every other transfer does.
//! It refuses directories and several files. It cannot check the whole file or its signature.

use std::ops::Range;
#[cfg(feature = "tokio")]
use std::pin::Pin;
#[cfg(feature = "tokio")]
use std::task::{Context, Poll, ready};

use anabranch_mmtp::id::BLOCK_BYTES;

use super::reassembly_buffer::ReadHalf;
use super::transfer::{Events, Transfer};
use crate::{Report, Result};

/// Holds the bytes of ranges of a file: see [`Get::get_ranges`](super::Get::get_ranges).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Ranges {
    /// The bytes of each range, in the order in which the ranges were given. Bytes behind the end of the file
    /// are left out.
    pub bytes: Vec<Vec<u8>>,
    /// The length of the whole file in bytes.
    pub length: u64,
    /// The report of the transfer. [`Report::verified`] is never [`Whole`](crate::Verified::Whole).
    pub report: Report,
}

/// Runs a transfer of ranges on a separate thread: see [`Get::start_ranges`](super::Get::start_ranges). With
/// the feature `tokio` it is a [`Future`]; it needs no particular executor.
#[must_use = "dropping it stops the transfer"]
#[derive(Debug)]
pub struct RangesTransfer {
    ranges: Vec<Range<u64>>,
    bytes: Vec<Vec<u8>>,
    blocks: ReadHalf,
    transfer: Transfer,
}

impl RangesTransfer {
    pub(super) fn new(ranges: Vec<Range<u64>>, blocks: ReadHalf, transfer: Transfer) -> Self {
        Self { bytes: vec![Vec::new(); ranges.len()], ranges, blocks, transfer }
    }

    /// Waits until all bytes have arrived and returns them.
    ///
    /// # Errors
    /// The errors of [`Get::get_range`](super::Get::get_range).
    pub fn wait(mut self) -> Result<Ranges> {
        while let Some((block, bytes)) = self.blocks.next() {
            self.take(block * BLOCK_BYTES as u64, &bytes);
        }
        let report = self.transfer.join()?;
        Ok(self.end(report))
    }

    /// Returns the events of the transfer; see [`Events`].
    #[must_use]
    pub fn events(&self) -> Events {
        self.transfer.events()
    }

    /// Adds the bytes at this offset to each range that contains them. Bytes come in order.
    fn take(&mut self, start: u64, came: &[u8]) {
        let end = start + came.len() as u64;
        for (range, bytes) in self.ranges.iter().zip(&mut self.bytes) {
            let (from, to) = (range.start.max(start), range.end.min(end));
            if from < to {
                bytes.extend_from_slice(&came[(from - start) as usize..(to - start) as usize]);
            }
        }
    }

    /// Returns what has arrived, once the transfer has ended with this report.
    fn end(&mut self, report: Report) -> Ranges {
        for (offset, bytes) in self.blocks.take_pieces() {
            self.take(offset, &bytes);
        }
        let length = self.blocks.length().unwrap_or_default();
        Ranges { bytes: std::mem::take(&mut self.bytes), length, report }
    }
}

#[cfg(feature = "tokio")]
impl Future for RangesTransfer {
    type Output = Result<Ranges>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Ranges>> {
        let this = self.get_mut();
        while let Some((block, bytes)) = ready!(this.blocks.poll_next(context)) {
            this.take(block * BLOCK_BYTES as u64, &bytes);
        }
        let report = ready!(Pin::new(&mut this.transfer).poll(context))?;
        Poll::Ready(Ok(this.end(report)))
    }
}
