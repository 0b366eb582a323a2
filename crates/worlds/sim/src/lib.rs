//! World 1: links and networks of links in virtual time.
//!
//! **Purpose.** A deterministic packet-level simulator that runs the same [`anabranch_algo::Machine`]s as the
//! wire. It knows machines and packets, never a protocol. Its links keep their own virtual clock, so that the
//! emulator can drive the very same code by the real one.
//!
//! **Non-goals.** No sockets, no clock, no threads, no protocol, no payload: a packet is an opaque value that
//! is moved, never copied (but for duplication, a fault one asks for). Nothing is random but what a seed
//! decides.
//!
//! **Map.**
//! * [`rng`]: [`Rng`], one named random stream per component.
//! * [`config`]: [`LinkConfig`], everything that can be said about a link, with units; [`LinkChange`], what
//!   can change.
//! * `packet`: [`Packet`], what travels, and what becomes of it.
//! * [`link`]: [`Link`], a machine: queue, serialization, wire, faults. It is a `fifo_link` (what a packet
//!   meets is known when it is offered: one queue, one wake-up) or an `event_link` (everything happens when
//!   its time comes).
//! * `codel`, `targeted_drop`: queue disciplines; [`loss`]: bursts; `scripted_loss`: loss by number;
//!   [`trace`]: links that follow a recording; [`medium`]: links that share the air.
//! * `transmitter`: exact departure times in integers, without drift.
//! * [`histogram`]: [`Histogram`], how times are distributed.
//! * [`stats`]: [`Stats`], what a link saw, so that a scenario can prove that its conditions happened.
//! * [`queue`]: [`EventQueue`], what happens next: by time, then by insertion; `radix_heap`
//!   is its store for what is not near.
//! * [`net`]: [`Net`], a machine: links, routes, one queue of wake-ups.
//! * [`cross_traffic`]: [`CrossTraffic`], packets at a constant rate or in bursts, whatever the queues do.
//!
//! ```
//! use anabranch_algo::{Machine, Output, Rate, Span, Time};
//! use anabranch_sim::{LinkConfig, Net, net};
//!
//! #[derive(Clone)]
//! struct Datagram(u32);
//! impl anabranch_sim::Packet for Datagram {
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
pub mod cross_traffic;
mod event_link;
mod fifo_link;
pub mod histogram;
pub mod link;
pub mod loss;
pub mod medium;
pub mod net;
mod packet;
pub mod queue;
mod radix_heap;
pub mod rng;
mod scripted_loss;
pub mod stats;
mod targeted_drop;
pub mod trace;
mod transmitter;

pub use config::{Discipline, LinkChange, LinkConfig, VictimPolicy};
pub use cross_traffic::{CrossTraffic, CrossTrafficSource};
pub use histogram::Histogram;
pub use link::Link;
pub use loss::GilbertElliott;
pub use medium::MediumId;
pub use net::{Delivery, LinkId, Net, RouteId};
pub use packet::{DropReason, Packet};
pub use queue::EventQueue;
pub use rng::Rng;
pub use stats::{Drops, Stats};
pub use trace::{Trace, TraceError};
