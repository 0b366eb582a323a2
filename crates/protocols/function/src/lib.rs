//! Packet functions: a packet comes in, a verdict goes out, the state is one block of integers.
//!
//! **Purpose.** A function (a firewall, a NAT) is written against this crate, without a clock, a socket and a
//! thread. The same code runs in tests, and as a module of WebAssembly in a host, `anabranch-operator`, that
//! starts it in less than a millisecond and moves it to another host by a copy of its state.
//!
//! **Non-goals.** No IPv6 and no link layer: the host resolves addresses. No allocation: what a function can
//! remember has a limit that its type shows.
//!
//! **Map.**
//! * [`abi`]: what host and module agree on.
//! * [`function`]: the contract of a function ([`function::Function`]), and an instance of one, which also
//!   answers pings.
//! * [`export`](mod@export): makes a module of a function ([`export!`]).
//! * [`packet`]: IPv4 packets, read and changed in place, with their checksums.
//! * [`flow`]: the flow of a packet, seen from inside. [`table`]: flows and users in a fixed number of
//!   places.
//! * [`settings`]: reads what a user sets. [`report`]: says what a function has done.
//! * [`firewall`], [`limiter`], [`nat44`]: the functions.
#![no_std]
#![deny(unsafe_code)]

pub mod abi;
#[expect(unsafe_code, reason = "a module hands out places of its memory, and its host is its only caller")]
pub mod export;
pub mod firewall;
pub mod flow;
pub mod function;
pub mod limiter;
pub mod nat44;
pub mod packet;
pub mod report;
pub mod settings;
pub mod table;

#[cfg(test)]
mod test_packets;
