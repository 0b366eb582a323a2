//! Tests of a cache with servers that misbehave, with real clients, and with processes that are killed.

mod bed;
mod clients;
mod documents;
mod kills;
mod objects;
mod stores;
