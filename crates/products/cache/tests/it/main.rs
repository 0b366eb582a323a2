//! Tests of a cache with servers that misbehave, with real clients, with processes that are killed, and with
//! other caches of a LAN.

mod bed;
mod clients;
mod documents;
mod hub;
mod kills;
mod lfs;
mod neighbours;
mod objects;
mod private;
mod stores;
