//! Lists the names of congestion controllers and slow starts.

use anabranch_algo::control::{ALGORITHMS, SLOW_STARTS};

use crate::Error;

/// Returns the names of the congestion controllers that [`Get::controller`](crate::Get::controller) takes;
/// the first is the default.
pub fn controllers() -> impl Iterator<Item = &'static str> {
    ALGORITHMS.iter().map(|entry| entry.name)
}

/// Returns the names of the slow starts that [`Get::controller`](crate::Get::controller) takes after a
/// controller's name and a plus sign. BBR has its own start and takes none.
pub fn slow_starts() -> impl Iterator<Item = &'static str> {
    SLOW_STARTS.iter().map(|entry| entry.name)
}

pub(super) fn unknown_controller(name: &str) -> Error {
    let all = |names: &mut dyn Iterator<Item = &'static str>| names.collect::<Vec<_>>().join(", ");
    Error::usage(format!(
        "there is no congestion controller {name}: there are {}; with a plus sign and one of {} it has \
         another slow start, but for bbr and bbr-coupled",
        all(&mut controllers()),
        all(&mut slow_starts())
    ))
}
