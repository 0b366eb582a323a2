//! Real modules, real devices, real records.

mod agents;
mod modules;
mod moves;
mod storms;
