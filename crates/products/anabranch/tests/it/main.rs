//! Tests the library as programs use it: by transfers over loopback.

#[path = "../memory_source/mod.rs"]
mod memory_source;

mod client;
mod limits;
mod mirror_list;
mod ranges;
mod reader;
mod serve;
mod surroundings;
mod transfers;
