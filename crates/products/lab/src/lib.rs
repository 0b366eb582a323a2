//! Experiments: machines joined by links, run, measured.
//!
//! **Purpose.** One place that connects the machines of mmTP over simulated links, so that tests and
//! experiments run the same thing; and the experiments themselves, each with the proof that its conditions
//! were really there.
//!
//! **Non-goals.** No protocol and no decision of one. No socket and no clock outside [`linux`]: a caller
//! that wants real time elsewhere passes it.
//!
//! **Map.**
//! * [`content`]: bytes that a seed decides, with their hash tree.
//! * [`sim_source`]: a source, honest or not.
//! * [`packet_flows`]: flows of packets without content, and cross traffic, at full speed.
//! * [`simulation`]: all of these over links in virtual time; faults; invariants watched on the way.
//! * [`scenario`]: an experiment as a struct, which is its TOML file too.
//! * [`controllers`]: which controllers a scenario may name, those of the caller's program too.
//! * [`hint`]: which name was probably meant.
//! * [`named_network`]: networks that are built in or in files.
//! * [`run`]: a scenario becomes a world and an [`outcome`]; [`metric`]: what can be measured.
//! * [`linux`]: the same through this machine's own TCP and MPTCP, over emulated links, in real time.
//! * [`report`]: rows and runs as a page to look at; [`series`]: lines over time as data.
//! * [`sweep`]: many runs on all cores, and their file of results; [`table`]: runs become rows.
//! * [`soak`]: random worlds by the thousand, and what must hold in all of them.
//! * [`small_objects`]: how many round trips a short object takes.
//! * [`domain`]: many users of one network at once, by a fluid model: the dissertation's domain-scale study.
#![forbid(unsafe_code)]

pub mod content;
pub mod controllers;
mod digest;
pub mod domain;
pub mod hint;
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
mod task;
mod world;

pub use content::Content;
pub use controllers::Controllers;
pub use sim_source::Misbehaviour;
pub use simulation::{Fault, PathSpec, Simulation};
pub use world::World;
