//! Checks the privileges of this process (capabilities(7)).

/// The privilege to change interfaces, routes and the kernel's MPTCP endpoints.
pub const CAP_NET_ADMIN: u32 = 12;
/// The privilege to make namespaces, and for many other operations.
pub const CAP_SYS_ADMIN: u32 = 21;

/// Returns whether all of these capabilities are effective in this thread. Returns `false` where the system
/// does not report them.
#[must_use]
pub fn has(all: &[u32]) -> bool {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let held = line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0);
    all.iter().all(|bit| held >> bit & 1 == 1)
}
