//! **Purpose.** Treats networks as graphs: finds paths between nodes, finds paths that share a link, and
//! makes the identifiers by which stateless forwarders send packets along paths.
//!
//! **Non-goals.** No clock, no socket, no file, and no protocol: the messages that carry paths belong to
//! `mmtp`. The crate measures nothing; capacities and delays are given.
//!
//! **Map.**
//! * [`graph`]: nodes and directed links with capacity and delay.
//! * [`paths`]: the k shortest loopless paths (Yen). [`disjoint`]: sets of disjoint paths (Bhandari).
//! * [`groups`]: groups of paths that share a link, and so may share a bottleneck.
//! * [`fid`]: forwarding identifiers and the forwarder's rule. [`tags`]: the tags of links, and the choice of
//!   the table for a path. [`keyed`]: tags from a key that changes.
//! * [`max_min`]: fair shares of the links among many streams.
//! * [`plan`]: paths, groups and identifiers for one request.
//! * [`import`]: reads GML, GraphML and our own text form. [`zoo`]: built-in networks. [`picture`]: draws
//!   SVG.
#![forbid(unsafe_code)]

pub mod disjoint;
pub mod fid;
pub mod graph;
pub mod groups;
pub mod import;
pub mod keyed;
pub mod max_min;
pub mod paths;
pub mod picture;
pub mod plan;
pub mod tags;
pub mod zoo;
