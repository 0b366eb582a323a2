//! The library as programs use it: transfers over loopback.

#[path = "../memory_source/mod.rs"]
mod memory_source;

mod limits;
mod mirror_list;
mod reader;
mod serve;
mod surroundings;
mod transfers;
