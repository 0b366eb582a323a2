//! Packet buffers, used again and again.

use std::io;
use std::mem;

use anabranch_net::tun::{HEADER_BYTES, PACKET_BYTES_MAX};

/// Room for what most packets are.
pub(super) const SMALL_BYTES: usize = 2_048;
/// Room for any packet.
const LARGE_BYTES: usize = (HEADER_BYTES + PACKET_BYTES_MAX + 1).next_multiple_of(8);
/// How many are kept for later, of each size: 8 MiB and 8 MiB.
const SMALL_KEPT: usize = 4_096;
const LARGE_KEPT: usize = 128;

/// Buffers that are not in use, of both sizes.
#[derive(Debug, Default)]
pub(super) struct BufferPool {
    small: Vec<Box<[u8]>>,
    large: Vec<Box<[u8]>>,
}

impl BufferPool {
    fn small(&mut self) -> Box<[u8]> {
        self.small.pop().unwrap_or_else(|| vec![0; SMALL_BYTES].into_boxed_slice())
    }

    fn large(&mut self) -> Box<[u8]> {
        self.large.pop().unwrap_or_else(|| vec![0; LARGE_BYTES].into_boxed_slice())
    }

    /// A buffer with what `read` puts into one of that size, and how much that is. A little in a large buffer
    /// moves to a small one.
    pub(super) fn fill(
        &mut self,
        large: bool,
        read: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<(Box<[u8]>, usize)> {
        let mut data = if large { self.large() } else { self.small() };
        let len = match read(&mut data) {
            Ok(len) => len,
            Err(e) => {
                self.recycle(data);
                return Err(e);
            }
        };
        if large && len <= SMALL_BYTES {
            let mut small = self.small();
            small[..len].copy_from_slice(&data[..len]);
            self.recycle(mem::replace(&mut data, small));
        }
        Ok((data, len))
    }

    /// Takes back what is not used any more; a filler's nothing is let go.
    pub(super) fn recycle(&mut self, data: Box<[u8]>) {
        match data.len() {
            SMALL_BYTES if self.small.len() < SMALL_KEPT => self.small.push(data),
            LARGE_BYTES if self.large.len() < LARGE_KEPT => self.large.push(data),
            _ => {}
        }
    }
}
