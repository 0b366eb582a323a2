//! The roles of a network as programs use them: over loopback.

mod network;
