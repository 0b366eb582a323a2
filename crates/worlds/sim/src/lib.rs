//! Simulates links and networks of links in virtual time (world 1).
//!
//! **Purpose.** A deterministic packet-level simulator that runs the same [`anabranch_algo::Machine`]s as
//! real sockets do. It knows machines and packets, but no protocol. Its links keep their own virtual clock,
//! so that the emulator can drive the same code with the real clock.
//!
//! **Non-goals.** No sockets, no clock, no threads, no protocol, no payload. A packet is an opaque value that
//! is moved; it is copied only for the fault of duplication. All randomness follows from a seed.
//!
//! **Map.**
//! * [`rng`]: [`Rng`], one named random stream per component.
//! * [`config`]: [`LinkConfig`], the whole configuration of a link, with units; [`LinkChange`], changes of a
//!   running link.
//! * `packet`: [`Packet`], the trait of packets; how a packet arrives or is dropped.
//! * [`link`]: [`Link`], a machine: queue, serialization, wire, faults. It is either a `fifo_link` or an
//!   `event_link`. In the former, the fate of a packet is known when it is offered (one queue, one wake-up).
//!   In the latter, every step happens when its time comes.
//! * `codel`, `fq_codel`, `pie`, `red`, `targeted_drop`: queue disciplines; `aqm`: one of them;
//!   `fate`: what it decides.
//! * [`loss`]: loss in bursts.
//! * `scripted_loss`: loss of packets by their numbers.
//! * [`trace`]: links that follow a recording.
//! * [`medium`]: links that share a medium, as in Wi-Fi.
//! * `transmitter`: exact departure times in integers, without drift.
//! * [`histogram`]: [`Histogram`], a distribution of times.
//! * [`stats`]: [`Stats`], the counters of a link, so that a scenario can prove that its conditions happened.
//! * [`queue`]: [`EventQueue`], a queue of events by time, then by insertion. `radix_heap` stores the events
//!   that are far ahead.
//! * [`net`]: [`Net`], a machine: links, routes, one queue of wake-ups.
//! * [`cross_traffic`]: [`CrossTraffic`], packets at a constant rate or in bursts that ignore congestion.
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

mod aqm;
mod codel;
pub mod config;
pub mod cross_traffic;
mod event_link;
mod fate;
mod fifo_link;
mod fq_codel;
pub mod histogram;
pub mod link;
pub mod loss;
pub mod medium;
pub mod net;
mod packet;
mod pie;
pub mod queue;
pub mod radio;
mod radix_heap;
mod red;
pub mod rng;
mod scripted_loss;
pub mod stats;
#[cfg(test)]
mod steady_load;
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
pub use radio::{Frame, Receiver, Station};
pub use rng::Rng;
pub use stats::{Drops, Stats};
pub use trace::{Trace, TraceError};
