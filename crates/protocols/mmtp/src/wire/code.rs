//! The numbers of packet types, flags and kinds of ranges.

pub(super) const REQUEST: u8 = 1;
pub(super) const DATA: u8 = 2;
pub(super) const HASHES: u8 = 3;
pub(super) const META: u8 = 4;
pub(super) const COOKIE: u8 = 5;
pub(super) const REFUSE: u8 = 6;
pub(super) const PROBE: u8 = 7;
pub(super) const PADDED: u8 = 8;

/// Flag bit 0 of REQUEST: send DATA with ECT(0).
pub(super) const FLAG_ECT: u8 = 1;
/// Flag bit 1 of REQUEST: caches on the way must not answer.
pub(super) const FLAG_NO_CACHES: u8 = 2;
/// Flag bit 0 of DATA and HASHES: a cache answers. The first two bytes of the number are its node.
pub(super) const FLAG_CACHED: u8 = 1;

pub(super) const KIND_DATA: u8 = 0;
pub(super) const KIND_META: u8 = 1;
pub(super) const KIND_HASHES: u8 = 2;
