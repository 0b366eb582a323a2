//! The errors of this crate. Each message says what to do.

use std::io;

/// The reason why the kernel's congestion control could not be set up, looked at or removed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// This build has no eBPF programs.
    #[error(
        "this build has no eBPF programs: install clang, make, libelf's headers and the sources of Rust's \
         library (apt-get install clang make libelf-dev zlib1g-dev pkg-config; rustup component add \
         rust-src), then build with --features kernel"
    )]
    NotBuilt,
    /// The user may not do the named thing.
    #[error("{0}: that needs root, or CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON")]
    Permission(String),
    /// The kernel does not describe its types (BTF).
    #[error(
        "the kernel does not describe its types (no /sys/kernel/btf/vmlinux): it needs \
         CONFIG_DEBUG_INFO_BTF=y"
    )]
    NoBtf,
    /// The kernel has no MPTCP.
    #[error(
        "the kernel has no MPTCP (CONFIG_MPTCP): nothing can be coupled; --tcp loads it all the same, for TCP"
    )]
    NoMptcp,
    /// MPTCP is switched off.
    #[error(
        "MPTCP is switched off here: sysctl net.mptcp.enabled=1, or --tcp to load it all the same, for TCP"
    )]
    MptcpOff,
    /// The kernel cannot take congestion controls as eBPF programs that outlive their loader.
    #[error("the kernel is too old: eBPF congestion control that stays needs Linux 6.4 ({0})")]
    TooOld(String),
    /// Pins that this command makes would not outlive the command.
    #[error(
        "this command has a /sys of its own (`ip netns exec` does that), and what is pinned there ends with \
         it"
    )]
    PrivateSys,
    /// The named controller is loaded, but this process does not see its pins.
    #[error("`{0}` is loaded, but pinned elsewhere: by a container or the host, in another /sys/fs/bpf")]
    PinnedElsewhere(String),
    /// The file of former defaults cannot be used: its path, and the reason.
    #[error(
        "{0}, where the defaults of before are remembered, cannot be used ({1}): repair it, or remove it to \
         have the machine's default instead"
    )]
    State(String, String),
    /// The kernel has a congestion control of this name that is not ours.
    #[error("the kernel has a congestion control `{0}` that is not ours: unload that, or choose another")]
    Taken(String),
    /// The named controller is loaded already.
    #[error("`{0}` is loaded already; see `anabranch kernel status`")]
    Loaded(String),
    /// There is no controller of this name for the kernel.
    #[error("there is no controller `{0}` for the kernel")]
    Unknown(String),
    /// The named controller is not loaded.
    #[error("`{0}` is not loaded; see `anabranch kernel status`")]
    NotLoaded(String),
    /// The kernel refused: the attempt, and the kernel's answer.
    #[error("{0}")]
    Refused(String),
}

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// Makes an error of a system call's `e`; `attempt` says in words what was tried.
pub(crate) fn refused(attempt: &str, e: &io::Error) -> Error {
    match e.kind() {
        io::ErrorKind::PermissionDenied => Error::Permission(attempt.into()),
        _ => Error::Refused(format!("{attempt}: {e}")),
    }
}
