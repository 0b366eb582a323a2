//! How many descriptors this process may have.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Allows this process as many descriptors as it may allow itself: a shell gives 1,024, for the sake of
/// programs that use select(2), and a connection or a line of a domain takes some.
pub(crate) fn raise_limit() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
    {
        // Less is no error: whoever runs out of them is told.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}
