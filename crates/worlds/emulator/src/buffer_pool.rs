//! A pool of packet buffers, which are used again.

use std::io;
use std::mem;

use anabranch_net::tun::{HEADER_BYTES, PACKET_BYTES_MAX};

/// The size of a small buffer, enough for most packets.
pub(super) const SMALL_BYTES: usize = 2_048;
/// The size of a large buffer, enough for any packet.
const LARGE_BYTES: usize = (HEADER_BYTES + PACKET_BYTES_MAX + 1).next_multiple_of(8);
/// The most unused buffers that are kept, small and large: 8 MiB of each.
const SMALL_KEPT: usize = 4_096;
const LARGE_KEPT: usize = 128;

/// The unused buffers of both sizes.
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

    /// Calls `read` with a buffer. Returns the buffer and the number of bytes that `read` put into it. If a
    /// large buffer holds only a little, its contents move to a small one.
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

    /// Takes back a buffer that is not used any more. Drops other sizes, such as the empty buffer of a
    /// filler.
    pub(super) fn recycle(&mut self, data: Box<[u8]>) {
        match data.len() {
            SMALL_BYTES if self.small.len() < SMALL_KEPT => self.small.push(data),
            LARGE_BYTES if self.large.len() < LARGE_KEPT => self.large.push(data),
            _ => {}
        }
    }
}
