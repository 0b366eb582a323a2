//! Whether pins outlive the process that makes them.
//!
//! Pins are files of the BPF file system at `/sys/fs/bpf`, and last as long as that is mounted somewhere.
//! `ip netns exec` gives its command a mount namespace with a `/sys` of its own (ip-netns(8)): what is
//! mounted and pinned there goes with the command, and the controllers with it.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Where the BPF file system belongs.
pub(super) const BPFFS: &str = "/sys/fs/bpf";
/// Far more ancestors than a process has.
const ANCESTORS_MAX: usize = 1_000;

/// Whether this process's `/sys/fs/bpf` is the machine's (or container's): that of process 1, or, if that may
/// not be looked at, of every ancestor that may.
pub(super) fn are_lasting() -> bool {
    // If it is not there, mounting says so.
    let Ok(here) = device(Path::new(BPFFS)) else { return true };
    match seen_by(1) {
        Ok(first) => first == here,
        Err(_) => ancestors().filter_map(|pid| seen_by(pid).ok()).all(|theirs| theirs == here),
    }
}

/// The file system of this directory.
fn device(dir: &Path) -> io::Result<u64> {
    Ok(fs::metadata(dir)?.dev())
}

/// What is at [`BPFFS`] for another process.
fn seen_by(pid: i32) -> io::Result<u64> {
    device(Path::new(&format!("/proc/{pid}/root{BPFFS}")))
}

/// The parent of this process, its parent, and so on.
fn ancestors() -> impl Iterator<Item = i32> {
    let parent = |pid: &i32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
    };
    let first = nix::unistd::getppid().as_raw();
    std::iter::successors(Some(first), parent).take_while(|pid| *pid > 0).take(ANCESTORS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tests_own_place_lasts() {
        assert!(are_lasting(), "run the tests outside of `ip netns exec`");
        let found: Vec<i32> = ancestors().collect();
        assert_eq!(found[0], nix::unistd::getppid().as_raw());
        assert!(found.len() < ANCESTORS_MAX);
    }
}
