//! How an image is served.

use std::net::SocketAddr;

use super::fill::Origins;

/// How an image is served.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The number of threads; `None` for one a processor, at most eight.
    pub threads: Option<usize>,
    /// How many workers the keeper has started before this one.
    pub restarts: u64,
    /// Where objects come from that the image does not have: peer mode. `None` is origin mode.
    pub origins: Option<Origins>,
    /// The UDP address on which the objects are offered by mmTP too.
    pub mmtp: Option<SocketAddr>,
}
