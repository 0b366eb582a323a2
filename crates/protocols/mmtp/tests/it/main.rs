//! Tests the state machines and the wire format of mmTP from outside.

mod amplification;
mod missing;
mod regressions;
mod transfer;
mod tree;
mod wire;
mod wire_doc;
