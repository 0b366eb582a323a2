//! Reads into buffers that are reused. Without reuse, allocating a buffer for every read cost a fifth of the
//! time of a bulk transfer: the allocator gave the pages back to the kernel, which cleared them for the next
//! buffer.

use std::io;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::io::{AsyncRead, ReadBuf};

/// The length of a buffer in bytes, and so the most that one read returns.
pub(crate) const BUFFER_BYTES: usize = 64 * 1024;
/// Reads of fewer bytes than this are copied and their buffer is freed at once, so that a small request does
/// not hold 64 KiB.
const SHARED_BYTES_MIN: usize = 8 * 1024;
/// The most free buffers that are kept for later reads.
const FREE_MAX: usize = 64;

/// The free buffers.
static FREE: Mutex<Vec<Box<[u8]>>> = Mutex::new(Vec::new());

/// A buffer whose first `len` bytes are filled. Dropping it puts its memory back into [`FREE`].
struct Buffer {
    bytes: Box<[u8]>,
    len: usize,
}

impl Buffer {
    fn take() -> Self {
        let free = FREE.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Self { bytes: free.unwrap_or_else(|| vec![0; BUFFER_BYTES].into_boxed_slice()), len: 0 }
    }

    fn into_bytes(self) -> Bytes {
        if self.len < SHARED_BYTES_MIN {
            Bytes::copy_from_slice(self.as_ref())
        } else {
            Bytes::from_owner(self)
        }
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < FREE_MAX {
            free.push(std::mem::take(&mut self.bytes));
        }
    }
}

/// Reads once, at most `at_most` bytes and at most [`BUFFER_BYTES`]. Returns no bytes at the end of the
/// stream. While there is nothing to read, this holds no buffer.
pub(crate) fn poll_read(
    connection: Pin<&mut impl AsyncRead>,
    cx: &mut Context<'_>,
    at_most: usize,
) -> Poll<io::Result<Bytes>> {
    let mut buffer = Buffer::take();
    let limit = at_most.min(BUFFER_BYTES);
    let mut read = ReadBuf::new(&mut buffer.bytes[..limit]);
    let done = connection.poll_read(cx, &mut read);
    let len = read.filled().len();
    done.map_ok(|()| {
        buffer.len = len;
        buffer.into_bytes()
    })
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    fn read(mut from: &[u8], at_most: usize) -> Bytes {
        let mut cx = Context::from_waker(Waker::noop());
        match poll_read(Pin::new(&mut from), &mut cx, at_most) {
            Poll::Ready(Ok(bytes)) => bytes,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_read_stays_though_buffers_are_used_again() {
        let content: Vec<u8> = (0..200_000_u32).map(|n| (n % 251) as u8).collect();
        let large = read(&content, usize::MAX);
        assert_eq!(large, content[..BUFFER_BYTES]);
        let other = read(&content[7..], 20_000);
        assert_eq!(other, content[7..20_007]);
        assert_eq!(read(&content, 5), content[..5]);
        assert!(read(&[], 100).is_empty());
        assert_eq!(large, content[..BUFFER_BYTES]);
        drop((large, other));
        assert!(FREE.lock().unwrap().len() <= FREE_MAX);
    }
}
