//! Defines the packets of packet flows: data, acknowledgements, and cross traffic.

use std::num::NonZeroU64;

/// A path of a flow, numbered in the order in which it was added.
pub type SubflowId = u32;

/// Size of an acknowledgement on the wire, bytes (Ethernet, IPv4, TCP).
pub const ACK_BYTES: u16 = 66;

/// The kind of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SegmentKind {
    /// Data of a path.
    Data,
    /// An acknowledgement of data.
    Ack,
    /// Cross traffic, which is not acknowledged.
    Cross,
}

/// A packet of a packet flow, in two words: packets are moved all the time, and fields of a few bytes would
/// be stored in pieces and loaded whole before the pieces are there. One word is never zero, so that an enum
/// with a segment and another variant (`simulation::packet`) needs no third word.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// Number of the packet on its path.
    pub(super) id: u64,
    /// Packed fields, from the top: 32 bits of path, 16 of size, 12 of [`BEHIND`](Self::BEHIND), then
    /// [`SegmentKind`], [`MARKED`](Self::MARKED), and a one.
    rest: NonZeroU64,
}

impl Segment {
    const MARKED: u64 = 1 << 1;
    const KIND_SHIFT: u32 = 2;
    const KIND: u64 = 3 << Self::KIND_SHIFT;
    /// Difference of the two packet numbers in an acknowledgement of two packets.
    const BEHIND: u64 = 0xfff << Self::BEHIND_SHIFT;
    const BEHIND_SHIFT: u32 = 4;
    const BYTES_SHIFT: u32 = 16;
    const BYTES: u64 = 0xffff << Self::BYTES_SHIFT;
    const SUBFLOW_SHIFT: u32 = 32;

    #[inline]
    pub(super) fn new(id: u64, sub: SubflowId, bytes: u16, kind: SegmentKind) -> Self {
        let bytes = u64::from(bytes) << Self::BYTES_SHIFT;
        let rest = u64::from(sub) << Self::SUBFLOW_SHIFT | bytes | (kind as u64) << Self::KIND_SHIFT;
        Self { id, rest: NonZeroU64::MIN | rest }
    }

    /// Returns the path.
    #[inline]
    pub(super) const fn subflow(self) -> SubflowId {
        (self.rest.get() >> Self::SUBFLOW_SHIFT) as SubflowId
    }
    #[inline]
    pub(super) const fn kind(self) -> SegmentKind {
        match (self.rest.get() & Self::KIND) >> Self::KIND_SHIFT {
            0 => SegmentKind::Data,
            1 => SegmentKind::Ack,
            _ => SegmentKind::Cross,
        }
    }
    #[inline]
    pub(super) const fn is_marked(self) -> bool {
        self.rest.get() & Self::MARKED != 0
    }
    /// Returns the acknowledgement of this packet, which carries its mark.
    #[inline]
    pub(super) fn ack(self) -> Self {
        let rest = self.rest.get() & !(Self::KIND | Self::BYTES);
        let kind = (SegmentKind::Ack as u64) << Self::KIND_SHIFT | u64::from(ACK_BYTES) << Self::BYTES_SHIFT;
        Self { id: self.id, rest: NonZeroU64::MIN | rest | kind }
    }

    /// Returns one acknowledgement of this packet and another one of the path, marked if one of them is;
    /// `None` if their numbers are too far apart.
    pub(super) fn ack_with(self, other: Self) -> Option<Self> {
        let (first, last) = if self.id < other.id { (self, other) } else { (other, self) };
        let behind = last.id - first.id;
        if !(1..1 << 12).contains(&behind) {
            return None;
        }
        let ack = last.ack();
        let rest = ack.rest | behind << Self::BEHIND_SHIFT | first.rest.get() & Self::MARKED;
        Some(Self { rest, ..ack })
    }

    /// Returns the number of the earlier packet if this acknowledgement covers two.
    #[inline]
    pub(super) const fn earlier(self) -> Option<u64> {
        match (self.rest.get() & Self::BEHIND) >> Self::BEHIND_SHIFT {
            0 => None,
            behind => Some(self.id - behind),
        }
    }
}

impl anabranch_sim::Packet for Segment {
    #[inline]
    fn bytes(&self) -> u32 {
        ((self.rest.get() & Self::BYTES) >> Self::BYTES_SHIFT) as u32
    }
    /// Only data can be marked: acknowledgements are not ECT (RFC 3168 section 6.1.4), and carry the mark of
    /// the data.
    fn is_ect(&self) -> bool {
        self.kind() == SegmentKind::Data
    }
    fn mark(&mut self) {
        if self.is_ect() {
            self.rest |= Self::MARKED;
        }
    }
    /// Returns a key for each path and direction.
    fn flow_key(&self) -> u64 {
        self.rest.get() & !(Self::BYTES | Self::MARKED | Self::BEHIND)
    }
    #[inline]
    fn flow(&self) -> Option<u32> {
        (self.kind() == SegmentKind::Data).then_some(self.subflow())
    }
}
