//! Runs experiments: joins machines by links, runs them, and measures.
//!
//! **Purpose.** One place connects the machines of mmTP over simulated links, so that tests and experiments
//! run identical code. The experiments themselves are here too, each with a proof that its conditions really
//! held.
//!
//! **Non-goals.** This crate contains no protocol and no protocol decision. It has no socket and no clock
//! outside [`linux`]: a caller that wants real time elsewhere passes it.
//!
//! **Map.**
//! * [`content`]: bytes that a seed decides, with their hash tree.
//! * [`sim_source`]: a source, honest or not.
//! * [`packet_flows`]: flows of packets without content, and cross traffic, at full speed.
//! * [`tcp_flows`]: flows of this project's TCP and Multipath TCP, segment by segment.
//! * [`simulation`]: all of these over links in virtual time, with faults and checked invariants.
//! * [`scenario`]: an experiment as a struct, which is also its TOML file.
//! * [`controllers`]: the controllers that a scenario may name, including those of the caller's program.
//! * [`hint`]: suggestions for names that do not exist.
//! * [`named_network`]: networks that are built in or in files.
//! * [`run`]: turns a scenario into a world and an [`outcome`]; [`metric`]: the kinds of measures.
//! * [`linux`]: scenarios through this machine's own TCP and MPTCP, over emulated links, in real time.
//! * [`report`]: rows and runs as a page to look at; [`series`]: lines over time as data.
//! * [`sweep`]: many runs on all cores, and their file of results; [`table`]: runs become rows.
//! * [`soak`]: thousands of random worlds, and the invariants that must hold in all of them.
//! * [`small_objects`]: the number of round trips that a short object takes.
//! * [`latency`]: messages of video, games and web pages over two paths.
//! * [`tail_loss`]: bursts whose end is lost, by the policy of the tail-loss probe.
//! * [`domain`]: many users of one network at once, by a fluid model: the dissertation's domain-scale study.
#![forbid(unsafe_code)]

pub mod content;
pub mod controllers;
mod digest;
pub mod domain;
pub mod hint;
pub mod latency;
pub mod linux;
pub mod metric;
pub mod named_network;
mod observations;
pub mod outcome;
pub mod packet_flows;
mod packet_layout;
pub mod report;
pub mod run;
pub mod scenario;
pub mod series;
pub mod share_curve;
pub mod sim_source;
pub mod simulation;
pub mod small_objects;
pub mod soak;
mod stats;
pub mod sweep;
pub mod table;
pub mod tail_loss;
mod task;
pub mod tcp_flows;
mod world;

pub use content::Content;
pub use controllers::Controllers;
pub use sim_source::Misbehaviour;
pub use simulation::{Fault, PathSpec, Simulation};
pub use world::World;
