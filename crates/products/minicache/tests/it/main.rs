//! Tests of a cache over real sockets, with origins that lie, and with processes that are killed.

mod bed;
mod http;
mod kills;
mod peer;
