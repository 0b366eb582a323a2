//! What packet flows send: data, what acknowledges it, and cross traffic.

use std::num::NonZeroU64;

/// A path of a flow, by the order in which it was added.
pub type SubflowId = u32;

/// Size of an acknowledgement on the wire, bytes (Ethernet, IPv4, TCP).
pub const ACK_BYTES: u16 = 66;

/// What a segment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SegmentKind {
    /// Data of a path.
    Data,
    /// That it has arrived.
    Ack,
    /// Traffic that nobody answers.
    Cross,
}

/// A packet of such a flow: two words, because packets are moved all the time, and fields of a few bytes
/// would be stored in pieces and loaded whole before the pieces are there. One is never zero, so that what
/// may be a segment or something else (`simulation::packet`) needs no third.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// Which packet of the path.
    pub(super) id: u64,
    /// From the top: 32 bits of path, 16 of size, 12 of [`BEHIND`](Self::BEHIND), then [`SegmentKind`],
    /// [`MARKED`](Self::MARKED), one.
    rest: NonZeroU64,
}

impl Segment {
    const MARKED: u64 = 1 << 1;
    const KIND_SHIFT: u32 = 2;
    const KIND: u64 = 3 << Self::KIND_SHIFT;
    /// Of an acknowledgement of two packets: by how much the number of the earlier one is less.
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

    /// The path.
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
    /// What acknowledges it, marked if it is.
    #[inline]
    pub(super) fn ack(self) -> Self {
        let rest = self.rest.get() & !(Self::KIND | Self::BYTES);
        let kind = (SegmentKind::Ack as u64) << Self::KIND_SHIFT | u64::from(ACK_BYTES) << Self::BYTES_SHIFT;
        Self { id: self.id, rest: NonZeroU64::MIN | rest | kind }
    }

    /// What acknowledges it together with another one of the path, marked if one of them is; none if their
    /// numbers are too far apart.
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

    /// The number of the other packet that an acknowledgement is for, if it is for two.
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
    /// Only data: an acknowledgement is no ECT (RFC 3168 section 6.1.4), and its mark is that of the data.
    fn is_ect(&self) -> bool {
        self.kind() == SegmentKind::Data
    }
    fn mark(&mut self) {
        if self.is_ect() {
            self.rest |= Self::MARKED;
        }
    }
    /// A path has a flow in each direction.
    fn flow_key(&self) -> u64 {
        self.rest.get() & !(Self::BYTES | Self::MARKED | Self::BEHIND)
    }
    #[inline]
    fn flow(&self) -> Option<u32> {
        (self.kind() == SegmentKind::Data).then_some(self.subflow())
    }
}
