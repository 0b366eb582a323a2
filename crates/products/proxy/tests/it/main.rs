//! Tests of the proxy's roles and their parts over loopback.

mod bench;

mod datagrams;
mod limits;
mod roles;
mod several;
mod shares;
mod socket;
mod status;
mod tls;
mod trunk_task;
mod wire_doc;
