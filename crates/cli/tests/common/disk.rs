//! File systems with a chosen amount of free space.

use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::statvfs::statvfs;
use tempfile::TempDir;

use super::fetch::refused;

/// A file system in memory, mounted at a directory, for this thread and the processes it starts from now on.
/// It takes memory only for bytes that are written.
pub(crate) struct Tmpfs(PathBuf);

impl Tmpfs {
    /// Mounts a file system whose `size` is written as in tmpfs(5). If that is impossible, prints a line that
    /// says why.
    pub(crate) fn mount(at: &Path, size: &str) -> Option<Self> {
        let new = Self(at.to_owned());
        // This thread gets its own mount namespace. So nothing is left behind, whatever happens, and child
        // processes inherit the mount.
        let private = || {
            unshare(CloneFlags::CLONE_NEWNS)?;
            mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)
        };
        match private().and_then(|()| new.set(size, MsFlags::empty())) {
            Ok(()) => Some(new),
            Err(e) => {
                refused(format!("a file system of its own needs root ({e})"));
                None
            }
        }
    }

    /// Changes the size of the file system.
    pub(crate) fn resize(&self, size: &str) {
        self.set(size, MsFlags::MS_REMOUNT).expect("another size");
    }

    fn set(&self, size: &str, flags: MsFlags) -> nix::Result<()> {
        mount(Some("none"), &self.0, Some("tmpfs"), flags, Some(&*format!("size={size}")))
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        // A directory that something is mounted on cannot be removed.
        let _ = umount2(&self.0, MntFlags::MNT_DETACH);
    }
}

/// An empty directory with much free space, removed when dropped.
pub(crate) struct Roomy {
    // Dropped before the directory that it is mounted on.
    _memory: Option<Tmpfs>,
    dir: TempDir,
}

impl Roomy {
    /// Makes a directory with `bytes` of free space: among temporary files, in the build directory, or else
    /// in memory, where the holes of a file take no space. If that is impossible, prints a line that says
    /// why.
    pub(crate) fn new(bytes: u64) -> Option<Self> {
        // Other tests use some of the space meanwhile.
        let wanted = bytes + (1 << 30);
        let has_room = |place: &PathBuf| {
            statvfs(place)
                .is_ok_and(|told| told.blocks_available().saturating_mul(told.fragment_size()) >= wanted)
        };
        let places = [std::env::temp_dir(), env!("CARGO_TARGET_TMPDIR").into()];
        if let Some(place) = places.into_iter().find(has_room) {
            let dir = tempfile::tempdir_in(place).expect("a directory");
            return Some(Self { _memory: None, dir });
        }
        let dir = tempfile::tempdir().expect("a directory");
        let memory = Tmpfs::mount(dir.path(), &wanted.to_string())?;
        Some(Self { _memory: Some(memory), dir })
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }
}
