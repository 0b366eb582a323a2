//! Raises the limit of this process's file descriptors.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Raises this process's limit of descriptors to the hard limit. A shell gives 1,024, for programs that use
/// select(2), but each connection and each line of a domain takes some.
pub(crate) fn raise_limit() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
    {
        // A lower limit is no error: running out of descriptors is reported when it happens.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}
