//! The number of each packet type, flag and kind of range.

pub(super) const REQUEST: u8 = 1;
pub(super) const DATA: u8 = 2;
pub(super) const HASHES: u8 = 3;
pub(super) const META: u8 = 4;
pub(super) const COOKIE: u8 = 5;
pub(super) const REFUSE: u8 = 6;
pub(super) const PROBE: u8 = 7;
pub(super) const PADDED: u8 = 8;

/// REQUEST, flags bit 0: send DATA with ECT(0).
pub(super) const FLAG_ECT: u8 = 1;
/// REQUEST, flags bit 1: no cache on the way is to answer.
pub(super) const FLAG_NO_CACHES: u8 = 2;
/// DATA and HASHES, flags bit 0: a cache answers; the first two bytes of the number say which.
pub(super) const FLAG_CACHED: u8 = 1;

pub(super) const KIND_DATA: u8 = 0;
pub(super) const KIND_META: u8 = 1;
pub(super) const KIND_HASHES: u8 = 2;
