//! Tests of a network's roles as programs use them, over loopback.

mod network;
