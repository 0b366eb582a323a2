//! How long discovery waits for answers. [`Patience`](anabranch_mirror::variants::Patience) has the times for
//! a variant that is being fetched, and the schedulers of `mirror` have those for one connection.

use anabranch_algo::Span;

/// Once a mirror has answered and no response data has arrived for this long, missing answers are given up.
pub(super) const QUIET: Span = Span::from_secs(3);
/// If a hash tells which file is right, origins that have not answered at all are waited for at least this
/// long after the last response data.
pub(super) const MUTE_MIN: Span = Span::from_secs(1);
/// Such silent origins are waited for this many times as long as the slowest origin took for its first
/// answer, but no longer than [`QUIET`].
pub(super) const MUTE_ANSWERS: u64 = 4;
/// If a hash tells which file is right, the first bytes of a mirror's file are waited for this long after the
/// head of its response.
pub(super) const OPENING_FOR: Span = Span::from_secs(1);
/// A mirror that has not answered within this time is asked from the next local end too: a link may lead to
/// other servers but silently fail to lead to this one.
pub(super) const BESIDE_AFTER: Span = Span::from_secs(1);
/// If a connection breaks within this time after the request, the request is repeated once at once.
pub(super) const SOON: Span = Span::from_secs(5);
/// A document that may not exist is waited for this long. A leaf list that has begun to arrive may take
/// longer: see [`LEAVES_FOR`].
pub(super) const BESIDE_FOR: Span = Span::from_secs(10);
/// A leaf list must arrive fast enough that the whole list takes at most this long, because nothing else is
/// fetched meanwhile.
pub(super) const LEAVES_FOR: Span = Span::from_secs(30);
/// The pace of a leaf list is not judged before this much time has passed since its first bytes arrived.
pub(super) const PACE_FROM: Span = Span::from_secs(3);
