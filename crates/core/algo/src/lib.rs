//! Decisions: numbers in, numbers out.
//!
//! **Purpose.** Everything a multipath transport has to decide, written once, with no clock, no socket and no
//! thread, so that the simulator, the wire and (later) the kernel run the same code.
//!
//! **Non-goals.** No protocol, no packet format, no I/O, no floating point. `control/` does not allocate.
//!
//! **Map.**
//! * [`units`]: [`Time`], [`Span`], [`Rate`] – every number with its unit.
//! * [`machine`]: [`Machine`], the contract of every endpoint, link and queue.
//! * [`softfloat`]: [`Real`](softfloat::Real), a 32-bit mantissa with an exponent: formulas in integers.
//! * [`split_mix`]: [`SplitMix64`], pseudorandom numbers from a seed.
//! * [`rate_limit`]: a token bucket that several senders or receivers share.
//! * [`fair_share`]: shares a bounded resource fairly between clients.
//! * [`rtt`]: round-trip time and timeouts (RFC 6298, RFC 8985).
//! * [`prr`]: how much is sent during fast recovery (RFC 9937).
//! * [`control`]: congestion control, with one file for each algorithm; the table [`control::ALGORITHMS`].
//! * [`controller`]: a controller of that table, or one that a program brings.
//! * [`sent_packets`]: the packets asked for on a path: reordering, loss, spurious loss.
//! * [`shared_bottleneck`]: finds paths that share a bottleneck, by their delays and losses (RFC 8382).
//! * [`subflow`]: joins [`rtt`], [`control`] and [`sent_packets`]: rounds, recovery, probes, timeouts.
//! * [`tcp_sample`]: the numbers that a receiver's kernel counts on a TCP connection.
//! * [`wifi`]: which WiFi access points a receiver uses, and how it steers senders between them.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod control;
pub mod controller;
pub mod fair_share;
pub mod machine;
pub mod prr;
pub mod rate_limit;
pub mod rtt;
pub mod sent_packets;
pub mod shared_bottleneck;
pub mod softfloat;
pub mod split_mix;
pub mod subflow;
pub mod tcp_sample;
pub mod units;
pub mod wifi;

pub use machine::{Machine, Output};
pub use rate_limit::{RateLimiter, RateLimits};
pub use split_mix::SplitMix64;
pub use tcp_sample::TcpSample;
pub use units::{Rate, Span, Time};
