//! Reads a content in order while it arrives.

use std::io::{self, BufRead, Read};
#[cfg(feature = "tokio")]
use std::pin::Pin;
#[cfg(feature = "tokio")]
use std::task::{Context, Poll, ready};

use super::reassembly_buffer::ReadHalf;
use super::transfer::{Events, Transfer};
use crate::{Report, Result};

/// Reads a content in order while it arrives from all servers that have it: see
/// [`Get::read`](super::Get::read).
///
/// The transfer runs on a separate thread and stays at most [`READ_AHEAD_BYTES`](super::READ_AHEAD_BYTES)
/// ahead of the bytes that have been read. Dropping the reader stops the transfer.
///
/// **What is verified.** If the hashes of blocks or pieces are known, every byte is verified before it is
/// handed over. Such hashes come from mmTP sources, a leaf list, or a Metalink's pieces. If only a hash of
/// the whole file is known, bytes are handed over before they can be verified. Without any hash, they cannot
/// be verified at all. In every case, the hashes of the whole that are known are checked at its end.
///
/// **The end.** [`read`](Read::read) returns 0 only when all bytes have arrived and the check of the whole
/// has passed: [`report`](Self::report) then says what was verified. On any failure, this and each further
/// call returns an [`io::Error`] with the [`anabranch::Error`](crate::Error) inside it
/// ([`io::Error::get_ref`]). So use the bytes only after the end has been seen, unless [`Report::verified`]
/// is known to be [`Blocks`](crate::Verified::Blocks).
///
/// With the feature `tokio` it is also tokio's `AsyncRead` and `AsyncBufRead`, with the same rules. It needs
/// no particular executor, and no runtime.
///
/// Nothing is kept in files, so a later transfer cannot resume.
#[must_use = "dropping it stops the transfer"]
#[derive(Debug)]
pub struct Reader {
    blocks: ReadHalf,
    transfer: Transfer,
    /// The block that is being read. `at` is the number of its bytes that have been read.
    block: Vec<u8>,
    at: usize,
    ended: Option<Result<Report>>,
}

impl Reader {
    pub(super) const fn new(blocks: ReadHalf, transfer: Transfer) -> Self {
        Self { blocks, transfer, block: Vec::new(), at: 0, ended: None }
    }

    /// Returns the report of the transfer, once [`read`](Read::read) has returned 0.
    #[must_use]
    pub fn report(&self) -> Option<&Report> {
        self.ended.as_ref()?.as_ref().ok()
    }

    /// Returns the events of the transfer; see [`Events`]. They end with the transfer, which does not end
    /// before all bytes have been read.
    #[must_use]
    pub fn events(&self) -> Events {
        self.transfer.events()
    }

    /// Returns the number of verified bytes that wait to be read, including those behind a missing block.
    #[must_use]
    pub fn buffered_bytes(&self) -> u64 {
        self.blocks.bytes()
    }
}

impl Read for Reader {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let mut there = self.fill_buf()?;
        let read = there.read(to)?;
        self.consume(read);
        Ok(read)
    }
}

impl BufRead for Reader {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.at == self.block.len() && self.ended.is_none() {
            (self.block, self.at) = (Vec::new(), 0);
            match self.blocks.next() {
                Some((_, block)) => self.block = block,
                None => self.ended = Some(self.transfer.join()),
            }
        }
        match &self.ended {
            Some(Err(error)) => Err(io::Error::other(error.clone())),
            _ => Ok(&self.block[self.at..]),
        }
    }

    fn consume(&mut self, bytes: usize) {
        self.at = (self.at + bytes).min(self.block.len());
    }
}

#[cfg(feature = "tokio")]
impl Reader {
    fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        if self.at == self.block.len() && self.ended.is_none() {
            match ready!(self.blocks.poll_next(context)) {
                Some((_, block)) => (self.block, self.at) = (block, 0),
                None => {
                    (self.block, self.at) = (Vec::new(), 0);
                    self.ended = Some(ready!(Pin::new(&mut self.transfer).poll(context)));
                }
            }
        }
        Poll::Ready(match &self.ended {
            Some(Err(error)) => Err(io::Error::other(error.clone())),
            _ => Ok(&self.block[self.at..]),
        })
    }
}

#[cfg(feature = "tokio")]
impl tokio::io::AsyncBufRead for Reader {
    fn poll_fill_buf(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        self.get_mut().poll_fill(context)
    }

    fn consume(self: Pin<&mut Self>, bytes: usize) {
        BufRead::consume(self.get_mut(), bytes);
    }
}

#[cfg(feature = "tokio")]
impl tokio::io::AsyncRead for Reader {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        to: &mut tokio::io::ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let reader = self.get_mut();
        let there = ready!(reader.poll_fill(context))?;
        let bytes = there.len().min(to.remaining());
        to.put_slice(&there[..bytes]);
        BufRead::consume(reader, bytes);
        Poll::Ready(Ok(()))
    }
}
