//! Sockets, namespaces, netlink and the emulator on this Linux.

mod dscp;
mod emulator;
mod loopback;
mod namespaces;
mod netlink;
