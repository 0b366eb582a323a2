//! The data that has arrived: reassembled over all subflows and kept until the program reads it (RFC 8684
//! section 3.3.4).

use std::collections::VecDeque;

use crate::payload::Payload;
use crate::reassembly::Reassembly;

/// The receiving half of a connection. Data sequence numbers are counted from the peer's initial one, so the
/// first byte has number 1.
#[derive(Clone, Debug)]
pub(crate) struct ReceiveQueue {
    order: Reassembly,
    ready: VecDeque<Payload>,
    ready_bytes: u64,
    capacity: u64,
    /// The first number beyond the window that the peer was told.
    edge: u64,
    fin: Option<u64>,
}

impl ReceiveQueue {
    /// Creates an empty queue of `capacity` bytes.
    pub(crate) fn new(capacity: u32) -> Self {
        let (next, capacity) = (1, u64::from(capacity));
        Self {
            order: Reassembly::new(next),
            ready: VecDeque::new(),
            ready_bytes: 0,
            capacity,
            edge: next + capacity,
            fin: None,
        }
    }

    /// Returns the next number that is expected, which is the data acknowledgement.
    pub(crate) const fn next(&self) -> u64 {
        self.order.next()
    }

    /// Takes a piece of data. Bytes beyond the window are dropped.
    pub(crate) fn insert(&mut self, seq: u64, payload: Payload) {
        self.order.insert(seq, payload, self.edge);
        while let Some((_, piece)) = self.order.pop() {
            self.ready_bytes += piece.len() as u64;
            self.ready.push_back(piece);
        }
        self.take_fin();
    }

    /// Records that the peer's data ends before `seq`, the number of its DATA_FIN.
    pub(crate) fn finish_at(&mut self, seq: u64) {
        if seq >= self.next() {
            self.fin.get_or_insert(seq);
        }
        self.take_fin();
    }

    fn take_fin(&mut self) {
        if self.fin == Some(self.next()) {
            self.order.skip_one();
        }
    }

    /// Returns whether all data of the peer has arrived, the DATA_FIN included.
    pub(crate) fn is_finished(&self) -> bool {
        self.fin.is_some_and(|fin| self.next() > fin)
    }

    /// Returns the bytes that can be read.
    pub(crate) const fn readable(&self) -> u64 {
        self.ready_bytes
    }

    /// Moves bytes into `out` and returns their number.
    pub(crate) fn read(&mut self, out: &mut [u8]) -> usize {
        let mut done = 0;
        while let Some(piece) = self.ready.front_mut() {
            let Some(free) = out.get_mut(done..).filter(|free| !free.is_empty()) else { break };
            let part = piece.split_to(free.len());
            free[..part.len()].copy_from_slice(part.as_bytes());
            done += part.len();
            if piece.is_empty() {
                self.ready.pop_front();
            }
        }
        self.ready_bytes -= done as u64;
        done
    }

    /// Returns a view of the next bytes, or `None` if there are none.
    pub(crate) fn read_view(&mut self) -> Option<Payload> {
        let piece = self.ready.pop_front()?;
        self.ready_bytes -= piece.len() as u64;
        Some(piece)
    }

    /// Returns the window to announce, in bytes from [`next`](Self::next) on. Its right edge never moves
    /// back.
    pub(crate) fn window(&mut self) -> u64 {
        let free = self.capacity.saturating_sub(self.ready_bytes);
        self.edge = self.edge.max(self.next() + free);
        self.edge - self.next()
    }

    /// Returns whether the program has read enough since the last announcement (a quarter of the capacity)
    /// that the peer should hear of the larger window (RFC 9293 section 3.8.6.2.2).
    pub(crate) const fn opens(&self) -> bool {
        let free = self.capacity.saturating_sub(self.ready_bytes);
        let told = self.edge.saturating_sub(self.next());
        free >= told + self.capacity / 4
    }
}
