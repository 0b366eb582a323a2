//! Other programs that manage paths of MPTCP, which are left in peace.

use std::fs;

/// The programs that are known to set endpoints, as the kernel names their processes, and what to say of
/// each.
const KNOWN: [(&str, &str); 2] = [
    (
        "NetworkManager",
        "NetworkManager runs. It makes endpoints itself where connection.mptcp-flags says so (from 1.40 on); \
         those are left as they are",
    ),
    (
        "mptcpd",
        "mptcpd runs, and may make endpoints itself; those are left as they are. If both shall not add the \
         same addresses, stop one: systemctl disable --now mptcp",
    ),
];

/// Returns a sentence for each such program that runs.
#[must_use]
pub fn running() -> Vec<String> {
    let names = fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| {
        let is_process = entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit);
        fs::read_to_string(entry.path().join("comm")).ok().filter(|_| is_process)
    });
    told(names)
}

fn told(names: impl Iterator<Item = String>) -> Vec<String> {
    let names: Vec<String> = names.map(|name| name.trim_end().to_owned()).collect();
    let runs = |(name, _): &&(&str, &str)| names.iter().any(|of| of == name);
    KNOWN.iter().filter(runs).map(|(_, says)| (*says).to_owned()).collect()
}

/// What is said of a kernel whose paths a program manages.
pub(crate) const USER_MANAGER: &str = "net.mptcp.pm_type is 1: a program (mptcpd, for example) manages the \
    paths of new connections, and the kernel does not use endpoints for them; `sysctl net.mptcp.pm_type=0` \
    changes that";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_is_said_once() {
        let names = ["bash\n", "mptcpd\n", "mptcpd\n", "NetworkManagerX\n"].map(str::to_owned);
        let said = told(names.into_iter());
        assert_eq!(said.len(), 1);
        assert!(said[0].starts_with("mptcpd runs"));
    }
}
