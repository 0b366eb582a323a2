//! Errors, each with a remedy.

use std::io;

/// Why the kernel's congestion control could not be set up, looked at or taken away.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// This build has no eBPF programs.
    #[error(
        "this build has no eBPF programs: install clang, make, libelf's headers and the sources of Rust's \
         library (apt-get install clang make libelf-dev zlib1g-dev pkg-config; rustup component add \
         rust-src), then build with --features kernel"
    )]
    NotBuilt,
    /// The user may not do it: what was attempted.
    #[error("{0}: that needs root, or CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON")]
    Permission(String),
    /// The kernel has no description of its types.
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
    /// What is pinned here does not outlive the command.
    #[error(
        "this command has a /sys of its own (`ip netns exec` does that), and what is pinned there ends with \
         it"
    )]
    PrivateSys,
    /// It is loaded, by pins that this process does not see.
    #[error("`{0}` is loaded, but pinned elsewhere: by a container or the host, in another /sys/fs/bpf")]
    PinnedElsewhere(String),
    /// What is remembered of the defaults cannot be used: the file, and why.
    #[error(
        "{0}, where the defaults of before are remembered, cannot be used ({1}): repair it, or remove it to \
         have the machine's default instead"
    )]
    State(String, String),
    /// There is a congestion control of that name which is not ours.
    #[error("the kernel has a congestion control `{0}` that is not ours: unload that, or choose another")]
    Taken(String),
    /// It is loaded already.
    #[error("`{0}` is loaded already; see `anabranch kernel status`")]
    Loaded(String),
    /// There is no controller of that name for the kernel.
    #[error("there is no controller `{0}` for the kernel")]
    Unknown(String),
    /// It is not loaded.
    #[error("`{0}` is not loaded; see `anabranch kernel status`")]
    NotLoaded(String),
    /// The kernel refused: what was attempted, and what it said.
    #[error("{0}")]
    Refused(String),
}

/// What this crate returns.
pub type Result<T> = std::result::Result<T, Error>;

/// The error of a system call, with the attempt in words.
pub(crate) fn refused(attempt: &str, e: &io::Error) -> Error {
    match e.kind() {
        io::ErrorKind::PermissionDenied => Error::Permission(attempt.into()),
        _ => Error::Refused(format!("{attempt}: {e}")),
    }
}
