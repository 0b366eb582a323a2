//! Finds out whether pins outlive the process that makes them.
//!
//! Pins are files of the BPF file system at `/sys/fs/bpf`, and last as long as that file system is mounted
//! somewhere. `ip netns exec` gives its command a mount namespace with its own `/sys` (ip-netns(8)).
//! Everything that is mounted and pinned there ends with the command, so the controllers do too.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// The directory where the BPF file system is mounted.
pub(super) const BPFFS: &str = "/sys/fs/bpf";
/// The most ancestors to look at: far more than a process has.
const ANCESTORS_MAX: usize = 1_000;

/// Whether this process's `/sys/fs/bpf` is that of the machine or container: the same as process 1 has. If
/// this process may not look at process 1, the same as all those of its ancestors have that it may look at.
pub(super) fn are_lasting() -> bool {
    // If `/sys/fs/bpf` does not exist, the later attempt to mount it reports that.
    let Ok(here) = device(Path::new(BPFFS)) else { return true };
    match seen_by(1) {
        Ok(first) => first == here,
        Err(_) => ancestors().filter_map(|pid| seen_by(pid).ok()).all(|theirs| theirs == here),
    }
}

/// Returns the device number of the file system that a directory is in.
fn device(dir: &Path) -> io::Result<u64> {
    Ok(fs::metadata(dir)?.dev())
}

/// Returns the device number of the file system that another process has at [`BPFFS`].
fn seen_by(pid: i32) -> io::Result<u64> {
    device(Path::new(&format!("/proc/{pid}/root{BPFFS}")))
}

/// Returns the parent of this process, the parent of that parent, and so on.
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
