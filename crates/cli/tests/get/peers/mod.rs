//! The other programs in tests of `get`: web servers, sources that misbehave, a relay that changes packets, a
//! terminal.

pub(crate) mod hostile;
pub(crate) mod nginx;
pub(crate) mod relay;
pub(crate) mod site;
pub(crate) mod terminal;
