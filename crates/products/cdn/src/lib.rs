//! Says where caches pay: streams of a content delivery network over a graph of autonomous systems, at the
//! level of flows.
//!
//! **Purpose.** Repeats the study of ephemeral caches, which boot when they are first asked for (000 §3.4.1),
//! and answers where the next caches of a network should be.
//!
//! **Non-goals.** No packets, no round-trip times and no congestion control: rates are max-min fair. No
//! clock, no socket, no file: the caller reads files and shows results. Nothing about how a cache stores or
//! verifies.
//!
//! **Map.**
//! * [`as_graph`]: autonomous systems, their roles, and lines with relations. [`links_file`] reads them,
//!   [`generate`] makes some; [`prefixes`] finds the system of an address.
//! * [`routes`]: the shortest valley-free paths.
//! * [`plan`]: all inputs. [`requests`]: what viewers ask for, and when.
//! * [`policy`]: where caches are, and when. [`simulate`]: the streams of one seed under one policy.
//! * [`study`]: all policies and seeds beside the paper's numbers. [`report`]: tables and the page;
//!   [`figure`]: the pictures.
//! * [`place`]: where the next caches should be.
#![forbid(unsafe_code)]

pub mod as_graph;
pub mod figure;
pub mod generate;
pub mod links_file;
pub mod place;
pub mod plan;
mod playback;
pub mod policy;
pub mod prefixes;
pub mod report;
pub mod requests;
pub mod routes;
pub mod simulate;
pub mod study;

pub use playback::Experience;
