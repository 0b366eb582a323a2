//! A content read in order while it arrives.

use std::io::{self, BufRead, Read};

use super::reassembly_buffer::ReadHalf;
use super::transfer::{Events, Transfer};
use crate::{Report, Result};

/// A content that is read in order while it comes from all who have it: see [`Get::read`](super::Get::read).
///
/// Its transfer runs on a thread of its own and stays at most
/// [`READ_AHEAD_BYTES`](super::READ_AHEAD_BYTES) ahead of what has been read. Dropping the reader stops it.
///
/// **What is verified.** Where the hashes of blocks or pieces are known (mmTP sources, a leaf list, a
/// Metalink's pieces), every byte is verified before it is handed over. Where only a hash of the whole is
/// known, bytes are handed over before anybody can tell whether they are right; where there is none, nobody
/// can.
/// In every case the whole is checked at its end.
///
/// **The end.** [`read`](Read::read) returns 0 only when all of it has come and that check has passed:
/// [`report`](Self::report) then says what was verified. Anything else is an [`io::Error`] with the
/// [`anabranch::Error`](crate::Error) inside it ([`io::Error::get_ref`]), again at each further call. So act
/// on what was read only after the end has been seen, unless [`Report::verified`] is known to be
/// [`Blocks`](crate::Verified::Blocks).
///
/// Nothing is kept in files, so there is nothing to resume.
#[must_use = "dropping it stops the transfer"]
#[derive(Debug)]
pub struct Reader {
    blocks: ReadHalf,
    transfer: Transfer,
    /// The block that is being read, and how much of it has been.
    block: Vec<u8>,
    at: usize,
    ended: Option<Result<Report>>,
}

impl Reader {
    pub(super) const fn new(blocks: ReadHalf, transfer: Transfer) -> Self {
        Self { blocks, transfer, block: Vec::new(), at: 0, ended: None }
    }

    /// How it ended: `None` until [`read`](Read::read) has returned 0.
    #[must_use]
    pub fn report(&self) -> Option<&Report> {
        self.ended.as_ref()?.as_ref().ok()
    }

    /// What happens in the transfer; see [`Events`]. They end when the transfer has, which is not before all
    /// has been read.
    #[must_use]
    pub fn events(&self) -> Events {
        self.transfer.events()
    }

    /// Verified bytes that wait to be read, those behind a block that is still missing among them.
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
                Some(block) => self.block = block,
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
