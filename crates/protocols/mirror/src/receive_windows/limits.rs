//! When there is a queue, and how long decisions hold.

use anabranch_algo::Span;

/// Segments that a bounded window has at least: LEDBAT keeps two packets (MIN_CWND, RFC 6817 section 2.5).
pub const SEGMENTS_MIN: u64 = 2;
/// The window of a connection that is not bounded any more: TCP's largest (RFC 7323 section 2.3).
pub const WINDOW_LIFTED_BYTES: u64 = 1 << 30;
/// The least delay that counts as a queue; clocks of TCP tick once a millisecond.
pub const QUEUE_MIN: Span = Span::from_millis(2);
/// A queue is this part of the smallest round trip at least: what packets' bursts make is less.
pub const QUEUE_PART: u64 = 16;
/// For so long after it was seen a queue counts as there. The senders' windows are small for some seconds
/// after a loss, and short queues empty then.
pub const QUEUE_KEPT: Span = Span::from_secs(5);
/// All but the leader of a group together get this part of its rate.
pub const FOLLOWERS_PART: u64 = 16;
/// A new leader has so much time, and sixteen round trips, until its rate is held against it.
pub const SETTLE: Span = Span::from_secs(2);
/// A connection of which nothing has come for so long takes part in nothing.
pub const SILENCE: Span = Span::from_secs(1);
/// A bounded connection without a queue of its own for so long, and eight round trips, has its own bottleneck
/// if its leader has a queue.
pub const VANISHED: Span = Span::from_millis(500);
/// The window of a connection on trial, as a part of what its rate brings in the smallest round trip:
/// numerator and denominator. It is what the link loses while a wrong assumption is found out.
pub const TRIAL_PART: (u64, u64) = (7, 8);
/// For so long such a connection is not bounded, at first.
pub const APART: Span = Span::from_secs(30);
/// The time of [`APART`] doubles so many times.
pub(super) const APART_DOUBLINGS: u32 = 6;
/// A window is given anew when it has moved by this part of itself.
pub(super) const STEP: u64 = 4;
