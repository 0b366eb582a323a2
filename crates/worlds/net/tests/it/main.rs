//! Sockets, namespaces and netlink on this Linux.

mod dscp;
mod loopback;
mod namespaces;
mod netlink;
