//! What can be in the way, each with what to do about it.

use std::fmt;
use std::io;

/// Why the kernel's congestion control could not be set up, looked at or taken away.
#[derive(Debug, PartialEq, Eq)]
pub enum Error {
    /// This build has no eBPF programs.
    NotBuilt,
    /// The user may not do it: what was attempted.
    Permission(String),
    /// The kernel has no description of its types.
    NoBtf,
    /// The kernel has no MPTCP.
    NoMptcp,
    /// MPTCP is switched off.
    MptcpOff,
    /// The kernel cannot take congestion controls as eBPF programs that outlive their loader.
    TooOld(String),
    /// There is a congestion control of that name which is not ours.
    Taken(String),
    /// It is loaded already.
    Loaded(String),
    /// There is no controller of that name for the kernel.
    Unknown(String),
    /// It is not loaded.
    NotLoaded(String),
    /// The kernel refused: what was attempted, and what it said.
    Refused(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotBuilt => write!(
                f,
                "this build has no eBPF programs: install clang, make, libelf's headers and the sources of \
                 Rust's library (apt-get install clang make libelf-dev zlib1g-dev pkg-config; rustup \
                 component add rust-src), then build with --features kernel"
            ),
            Self::Permission(attempt) => {
                write!(f, "{attempt}: that needs root, or CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON")
            }
            Self::NoBtf => write!(
                f,
                "the kernel does not describe its types (no /sys/kernel/btf/vmlinux): it needs \
                 CONFIG_DEBUG_INFO_BTF=y"
            ),
            Self::NoMptcp => write!(
                f,
                "the kernel has no MPTCP (CONFIG_MPTCP): nothing can be coupled; --tcp loads it all the \
                 same, for TCP"
            ),
            Self::MptcpOff => write!(
                f,
                "MPTCP is switched off here: sysctl net.mptcp.enabled=1, or --tcp to load it all the \
                 same, for TCP"
            ),
            Self::TooOld(why) => {
                write!(f, "the kernel is too old: eBPF congestion control that stays needs Linux 6.4 ({why})")
            }
            Self::Taken(name) => write!(
                f,
                "the kernel has a congestion control `{name}` that is not ours: unload that, or choose \
                 another"
            ),
            Self::Loaded(name) => write!(f, "`{name}` is loaded already; see `anabranch kernel status`"),
            Self::Unknown(name) => write!(f, "there is no controller `{name}` for the kernel"),
            Self::NotLoaded(name) => write!(f, "`{name}` is not loaded; see `anabranch kernel status`"),
            Self::Refused(what) => write!(f, "{what}"),
        }
    }
}

impl std::error::Error for Error {}

/// What this crate returns.
pub type Result<T> = std::result::Result<T, Error>;

/// What the system says to an attempt.
pub(crate) fn refused(attempt: &str, e: &io::Error) -> Error {
    match e.kind() {
        io::ErrorKind::PermissionDenied => Error::Permission(attempt.into()),
        _ => Error::Refused(format!("{attempt}: {e}")),
    }
}
