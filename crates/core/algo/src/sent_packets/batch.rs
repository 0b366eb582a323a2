//! A batch: a request and the state of its packets, in few bytes, because there is one for each request under
//! way. In large simulations batches are most of the memory that each packet touches.

use core::fmt;

use crate::Time;

/// The most packets of a batch.
pub const BATCH_PACKETS_MAX: u32 = u64::BITS;

/// A bitmap that holds a bit for each packet of a batch. Where batches are small, small bitmaps will do: a
/// packet alone in its batch takes 16 bytes with `u8`, 32 with `u64`.
pub trait PacketBitmap: Copy + fmt::Debug {
    /// The most packets of a batch.
    const PACKETS: u32;
    /// Returns the bitmap of the lowest bits.
    fn from_bits(bits: u64) -> Self;
    /// Returns the bitmap as the lowest bits.
    fn bits(self) -> u64;
}

impl PacketBitmap for u64 {
    const PACKETS: u32 = BATCH_PACKETS_MAX;
    #[inline]
    fn from_bits(bits: u64) -> Self {
        bits
    }
    #[inline]
    fn bits(self) -> u64 {
        self
    }
}

impl PacketBitmap for u8 {
    const PACKETS: u32 = Self::BITS;
    #[inline]
    fn from_bits(bits: u64) -> Self {
        bits as Self
    }
    #[inline]
    fn bits(self) -> u64 {
        u64::from(self)
    }
}

/// The packets asked for at one time, by one request.
#[derive(Clone, Debug)]
pub(super) struct SentBatch<T, M> {
    pub(super) sent_at: Time,
    /// The lowest 32 bits of the first sequence number: no path has 2³² outstanding packets.
    pub(super) first_seq: u32,
    pub(super) count: u8,
    /// The state of the packets. An outstanding packet is in `kept` only; a lost one in `gone` only; a
    /// delivered one in both; a cancelled one in none.
    pub(super) kept: M,
    pub(super) gone: M,
    pub(super) what: T,
}

/// A packet that has arrived for the first time, and its state before.
pub(super) struct Arrival {
    pub(super) seq: u64,
    pub(super) sent_at: Time,
    pub(super) outstanding: bool,
    pub(super) lost: bool,
}

impl<T, M: PacketBitmap> SentBatch<T, M> {
    /// Returns the first sequence number of the batch, given the sequence number `next` of the next packet.
    #[inline]
    pub(super) const fn first_seq(&self, next: u64) -> u64 {
        next - (next as u32).wrapping_sub(self.first_seq) as u64
    }
    #[inline]
    pub(super) fn outstanding(&self) -> u64 {
        self.kept.bits() & !self.gone.bits()
    }
    #[inline]
    pub(super) fn lost(&self) -> u64 {
        self.gone.bits() & !self.kept.bits()
    }
    #[inline]
    pub(super) fn delivered(&self) -> u64 {
        self.kept.bits() & self.gone.bits()
    }
    /// Records that packet `i` has arrived; `None` if it had arrived before. `next` is as for
    /// [`first_seq`](Self::first_seq).
    #[inline]
    pub(super) fn arrive(&mut self, i: u32, next: u64) -> Option<Arrival> {
        let bit = 1 << i;
        if self.delivered() & bit != 0 {
            return None;
        }
        let (outstanding, lost) = (self.outstanding() & bit != 0, self.lost() & bit != 0);
        (self.kept, self.gone) = (M::from_bits(self.kept.bits() | bit), M::from_bits(self.gone.bits() | bit));
        Some(Arrival { seq: self.first_seq(next) + u64::from(i), sent_at: self.sent_at, outstanding, lost })
    }
    /// Declares outstanding packets lost.
    #[inline]
    pub(super) fn lose(&mut self, bits: u64) {
        (self.kept, self.gone) =
            (M::from_bits(self.kept.bits() & !bits), M::from_bits(self.gone.bits() | bits));
    }
    /// Makes a lost packet outstanding again.
    #[inline]
    pub(super) fn reclaim(&mut self, bit: u64) {
        (self.kept, self.gone) =
            (M::from_bits(self.kept.bits() | bit), M::from_bits(self.gone.bits() & !bit));
    }
    /// Cancels an outstanding packet, which is no longer wanted.
    #[inline]
    pub(super) fn cancel(&mut self, bit: u64) {
        self.kept = M::from_bits(self.kept.bits() & !bit);
    }
}

const _: () = assert!(size_of::<SentBatch<bool, u8>>() == 16);
