//! World 1: links and networks of links in virtual time.
//!
//! **Purpose.** A deterministic packet-level simulator that runs the same [`algo::Machine`]s as the wire. It
//! knows machines and packets, never a protocol. Its links keep their own virtual clock, so that the emulator
//! can drive the very same code by the real one.
//!
//! **Non-goals.** No sockets, no clock, no threads, no protocol, no payload: a packet is an opaque value that
//! is moved, never copied (but for duplication, a fault one asks for). Nothing is random but what a seed
//! decides.
//!
//! **Map.**
//! * [`rng`]: [`Rng`], one named stream of luck per component.
//! * [`config`]: [`LinkConfig`], everything that can be said about a link, with units; [`Command`], what can
//!   change.
//! * [`link`]: [`Link`], a machine: queue, serialization, wire, faults. It is `plain` (what a packet meets is
//!   known when it is offered: one queue, one wake-up) or `full` (everything happens when its time comes).
//! * `codel`, `victims`: queue disciplines; [`loss`]: bursts; `script`: loss by number; [`trace`]: links that
//!   follow a recording; [`medium`]: links that share the air.
//! * `serial`: exact departure times in integers, without drift.
//! * [`stats`]: [`Stats`], what a link saw, so that a scenario can prove that its conditions happened.
//! * [`queue`]: [`EventQueue`], what happens next: by time, then by insertion; `radix` is its store for what
//!   is
//!   not near.
//! * [`net`]: [`Net`], a machine: links, routes, one queue of wake-ups.
//!
//! ```
//! use algo::{Machine, Output, Rate, Span, Time};
//! use sim::{LinkConfig, Net, net};
//!
//! #[derive(Clone)]
//! struct Datagram(u32);
//! impl sim::Packet for Datagram {
//!     fn bytes(&self) -> u32 {
//!         self.0
//!     }
//!     fn mark(&mut self) {}
//! }
//!
//! let mut net = Net::new(1);
//! let access = net.link("access", LinkConfig::new(Rate::from_bits(12_000_000), Span::from_millis(5)));
//! let route = net.route(&[access]);
//! net.handle(Time::ZERO, net::Input::Send { route, packet: Datagram(1_500) });
//! let Output::Wait(due) = net.poll(Time::ZERO) else { panic!("nothing can have arrived yet") };
//! let Output::Send(delivery) = net.poll(due) else { panic!("1 ms of serialization, 5 ms of propagation") };
//! assert_eq!(delivery.at, Time::ZERO + Span::from_millis(6));
//! ```
#![forbid(unsafe_code)]

mod codel;
pub mod config;
mod full;
pub mod link;
pub mod loss;
pub mod medium;
pub mod net;
mod plain;
pub mod queue;
mod radix;
pub mod rng;
mod script;
mod serial;
pub mod stats;
pub mod trace;
mod victims;

pub use config::{Command, Discipline, LinkConfig, Who};
pub use link::{Link, Packet, Why};
pub use loss::GilbertElliott;
pub use medium::MediumId;
pub use net::{Delivery, LinkId, Net, RouteId};
pub use queue::EventQueue;
pub use rng::Rng;
pub use stats::{Drops, Stats};
pub use trace::{Trace, TraceError};
