//! Bytes that wait to be read or to be sent.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

/// Pieces of at least this many bytes are kept without a copy; smaller ones are copied together. A kept piece
/// keeps the buffer into which it was read. So a hostile peer can make its pieces cost at most (bytes of a
/// buffer / this constant) times the bytes of its credit.
pub(super) const SHARED_BYTES_MIN: usize = 8 * 1024;

/// A queue of bytes. It holds no memory while it is empty.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    chunks: VecDeque<Bytes>,
    bytes: usize,
}

impl Chunks {
    pub(super) const fn len(&self) -> usize {
        self.bytes
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Appends a piece.
    pub(super) fn push(&mut self, piece: Bytes) {
        if piece.is_empty() {
            return;
        }
        self.bytes += piece.len();
        if piece.len() >= SHARED_BYTES_MIN {
            self.chunks.push_back(piece);
            return;
        }
        let is_small = self.chunks.back().is_some_and(|last| last.len() < SHARED_BYTES_MIN);
        let last = if is_small { self.chunks.pop_back().unwrap_or_default() } else { Bytes::new() };
        let mut joined = match last.try_into_mut() {
            Ok(last) if last.capacity() - last.len() >= piece.len() => last,
            last => {
                let last = last.map_or_else(|shared| shared, BytesMut::freeze);
                // The room is twice as large as needed, so that each byte of many small pieces is copied only
                // a few times.
                let room = if last.is_empty() { piece.len() } else { 2 * (last.len() + piece.len()) };
                let mut joined = BytesMut::with_capacity(room);
                joined.extend_from_slice(&last);
                joined
            }
        };
        joined.extend_from_slice(&piece);
        self.chunks.push_back(joined.freeze());
    }

    /// Takes at most `at_most` bytes from the front, in one piece, which may be shorter.
    pub(super) fn pop(&mut self, at_most: usize) -> Option<Bytes> {
        let first = self.chunks.front_mut()?;
        let piece = if first.len() <= at_most { std::mem::take(first) } else { first.split_to(at_most) };
        self.bytes -= piece.len();
        if self.bytes == 0 {
            self.chunks = VecDeque::new();
        } else if first.is_empty() {
            self.chunks.pop_front();
        }
        Some(piece)
    }

    /// Drops all bytes.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_in_order_and_small_pieces_are_joined() {
        let (mut chunks, mut expected) = (Chunks::default(), Vec::new());
        for n in 0..40_000_u32 {
            let piece = Bytes::from(n.to_be_bytes().to_vec());
            expected.extend_from_slice(&piece);
            chunks.push(piece);
        }
        let large = Bytes::from(vec![7; SHARED_BYTES_MIN]);
        let address = large.as_ptr();
        expected.extend_from_slice(&large);
        chunks.push(large);
        assert_eq!(chunks.len(), expected.len());
        assert!(chunks.chunks.len() < 2 * expected.len() / SHARED_BYTES_MIN + 2, "{}", chunks.chunks.len());
        assert_eq!(chunks.chunks.back().unwrap().as_ptr(), address, "a large piece is not copied");
        let mut out = Vec::new();
        while let Some(piece) = chunks.pop(1_000) {
            assert!((1..=1_000).contains(&piece.len()));
            out.extend_from_slice(&piece);
        }
        assert_eq!(out, expected);
        assert!(chunks.is_empty() && chunks.chunks.capacity() == 0);
    }

    #[test]
    fn a_small_piece_does_not_keep_its_buffer() {
        let buffer = Bytes::from(vec![1; 65_536]);
        let mut chunks = Chunks::default();
        chunks.push(buffer.slice(..100));
        assert!(buffer.try_into_mut().is_ok(), "nobody else holds it");
        assert_eq!(chunks.pop(usize::MAX).map(|piece| piece.len()), Some(100));
    }
}
