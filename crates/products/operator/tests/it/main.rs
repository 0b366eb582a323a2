//! Real modules, real devices, real records.

mod modules;
mod storms;
