//! A publish/subscribe network over UDP, as machines and formats: names, rendezvous, topology manager,
//! forwarders (dissertation, chapters 2 and 4).
//!
//! **Purpose.** Content is published and asked for by name. Paths come from a topology manager, with the
//! groups of those that share a bottleneck; forwarders send packets along them and keep nothing of any flow.
//!
//! **Non-goals.** No clock, no socket, no file. mmTP defines what the packets carry; `topology` computes the
//! paths.
//!
//! **Map.**
//! * [`domain`]: the data that every member of a network has, with the classes of transfers; [`dscp`]: the
//!   marks of their packets; [`domain_file`]: how a domain is written.
//! * [`seal`]: forwarding identifiers that only the services can make, with a [`member_key`].
//! * [`frame`]: the frames that travel between nodes; [`message`]: the messages to services and their
//!   answers.
//! * [`cache`]: packets that a forwarder keeps, and answers from.
//! * [`publication`]: names, keys, and the signed statements of hosts that offer content.
//! * [`forwarder`], [`rendezvous`], [`topology_manager`]: the members that serve the others.
//! * [`client`]: receivers and publishers; [`question`]: a question that a host asks once; [`call`]: a
//!   message that is sent until it is answered.
#![forbid(unsafe_code)]

mod bytes;
pub mod cache;
pub mod call;
mod class;
pub mod client;
pub mod domain;
pub mod domain_file;
pub mod dscp;
pub mod forwarder;
pub mod frame;
pub mod member_key;
pub mod message;
pub mod publication;
pub mod question;
pub mod rendezvous;
pub mod seal;
pub mod topology_manager;
