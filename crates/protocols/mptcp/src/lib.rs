//! TCP and Multipath TCP (RFC 8684) in user space.
//!
//! **Purpose.** Both ends of a connection over one or more subflows, as a machine: segments and the time go
//! in; segments, events and a deadline come out. In the simulator this is the TCP of experiments; on a TUN
//! device it talks to kernels. Each subflow is a whole TCP of its own (RFC 9293), with the congestion control
//! of [`anabranch_algo`], coupled over the subflows of a connection.
//!
//! **Non-goals.** No socket, no clock, no thread, no routes, no fragments. No version 0 of Multipath TCP, no
//! urgent data, no simultaneous open.
//!
//! **Map.** The README draws how these work together.
//! * [`stack`]: [`Stack`], all connections of a host: the [`Machine`](anabranch_algo::Machine).
//! * `connection`: one connection over its subflows: how it handles segments and decides what to send.
//! * `listener`: half-open connections, bounded.
//! * `handshake_options`: the options that begin connections and subflows.
//! * `path`: a subflow with the state that Multipath TCP adds.
//! * `subflow`: the TCP of one subflow: handshake, receiver, sender.
//! * `mapping`, `receive`, `send`: positions of subflow bytes in the data, received data, data to be sent.
//! * `reassembly`: puts pieces in order, for subflows and for data.
//! * [`scheduler`]: decides which subflow carries which data. [`path_manager`]: decides which subflows are
//!   made.
//! * `report`: the numbers of a subflow, for measurements.
//! * `notices`: repeats addresses and priorities to the peer until it must have heard them.
//! * [`segment`]: a segment as IP packet. [`datagram`]: a segment in a datagram of UDP. [`payload`]: shared
//!   bytes.
//! * `wakes`: deadlines in the order of time. `secrets`: numbers that others must not guess. [`config`]: the
//!   settings with which a stack is created.
#![forbid(unsafe_code)]

pub mod config;
mod connection;
pub mod datagram;
mod handshake_options;
mod listener;
mod mapping;
mod notices;
mod overtake;
mod path;
pub mod path_manager;
pub mod payload;
mod reassembly;
mod receive;
mod report;
pub mod scheduler;
mod secrets;
pub mod segment;
mod send;
pub mod stack;
mod subflow;
mod wakes;

pub use config::{Config, SUBFLOWS_MAX, TAIL_LOSS_POLICIES, TailLoss, TailLossInfo, TcpConfig};
pub use connection::ConnectionEvent;
pub use path_manager::{LocalAddress, PathManager};
pub use payload::Payload;
pub use report::SubflowReport;
pub use scheduler::{SCHEDULERS, SchedulerKind};
pub use secrets::Seed;
pub use segment::{Segment, SegmentError};
pub use stack::{ConnectionId, Input, Stack, StackEvent};
pub use subflow::SubflowError;
