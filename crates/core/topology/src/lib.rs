//! **Purpose.** Networks as graphs: which paths lead from one node to another, which of them share a link,
//! and the identifiers by which stateless forwarders send packets along them.
//!
//! **Non-goals.** No clock, no socket, no file, no protocol: the messages that carry paths are `mmtp`'s.
//! Nothing is measured here: capacities and delays are given.
//!
//! **Map.**
//! * [`graph`]: nodes and directed links with capacity and delay.
//! * [`paths`]: k shortest loopless paths (Yen); [`disjoint`]: sets of disjoint paths (Bhandari).
//! * [`groups`]: which paths share a link, and so may share a bottleneck.
//! * [`fid`]: forwarding identifiers and the forwarder's rule; [`tags`]: the tags of links, and which table
//!   fits a path; [`keyed`]: tags from a key that changes.
//! * [`plan`]: all of that for one request.
//! * [`import`]: GML, GraphML and our own text form; [`zoo`]: networks that are built in; [`picture`]: SVG.
#![forbid(unsafe_code)]

pub mod disjoint;
pub mod fid;
pub mod graph;
pub mod groups;
pub mod import;
pub mod keyed;
pub mod paths;
pub mod picture;
pub mod plan;
pub mod tags;
pub mod zoo;
