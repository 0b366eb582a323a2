//! Buffers that are read into, used again and again. A new one for every read cost a fifth of the time of a
//! bulk transfer: the allocator gave the pages back to the kernel, which cleared them for the next one.

use std::io;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::io::{AsyncRead, ReadBuf};

/// Bytes of a buffer, so of a read at most.
pub(crate) const BUFFER_BYTES: usize = 64 * 1024;
/// Fewer bytes are copied, and their buffer is free at once: nobody keeps 64 KiB for a small request.
const SHARED_BYTES_MIN: usize = 8 * 1024;
/// Buffers that are kept though nobody uses them.
const FREE_MAX: usize = 64;

/// Those that are free.
static FREE: Mutex<Vec<Box<[u8]>>> = Mutex::new(Vec::new());

/// A buffer, of which the first `len` bytes count. It is free again when it is dropped.
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

/// Reads once: at most `at_most` bytes, and no more than [`BUFFER_BYTES`]; none at the end. While there is
/// nothing to read it holds no buffer.
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
