//! Random bytes of the system: the crate `house` has them.

pub(crate) use anabranch_house::random::random;
