//! How long discovery waits for answers. [`Patience`](anabranch_mirror::variants::Patience) has the times of
//! a variant that is fetched, and the schedulers of `mirror` those of one connection.

use anabranch_algo::Span;

/// Once some servers have answered, and nothing has come for so long, missing answers are not waited for.
pub(super) const QUIET: Span = Span::from_secs(3);
/// Where a hash tells what is right, servers that have said nothing at all are waited for at least this long.
pub(super) const MUTE_MIN: Span = Span::from_secs(1);
/// They are waited for this many times as long as the slowest of the others took.
pub(super) const MUTE_ANSWERS: u64 = 4;
/// Where a hash tells what is right, the first bytes of a file are waited for this long after its head.
pub(super) const OPENING_FOR: Span = Span::from_secs(1);
/// A server that has not answered for so long is asked from the next local end, too: a link may lead to
/// others and not to it, and say nothing.
pub(super) const BESIDE_AFTER: Span = Span::from_secs(1);
/// A connection that has broken off within so long is tried once more at once.
pub(super) const SOON: Span = Span::from_secs(5);
/// A document that may lie beside the file is waited for this long; a leaf list that has begun to come may
/// take longer ([`LEAVES_FOR`]).
pub(super) const BESIDE_FOR: Span = Span::from_secs(10);
/// A leaf list has to come at a pace at which all of it takes no longer than this: nothing else is fetched
/// meanwhile.
pub(super) const LEAVES_FOR: Span = Span::from_secs(30);
/// The pace of a leaf list is not judged before this much time has passed since its first bytes arrived.
pub(super) const PACE_FROM: Span = Span::from_secs(3);
