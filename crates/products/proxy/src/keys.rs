//! Keys of clients and servers: the crate `house` has them.

pub use anabranch_house::keys::*;
