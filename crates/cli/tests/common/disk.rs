//! File systems with as much room as a test wants.

use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::statvfs::statvfs;
use tempfile::TempDir;

use super::fetch::refused;

/// A file system in memory, at a directory, for this thread and for what it starts from now on. It takes
/// memory for what is written only.
pub(crate) struct Tmpfs(PathBuf);

impl Tmpfs {
    /// Mounts one with a `size` in the words of tmpfs(5); or says in one line why not.
    pub(crate) fn mount(at: &Path, size: &str) -> Option<Self> {
        let new = Self(at.to_owned());
        // A mount namespace of this thread's own: nothing is left behind, whatever happens, and children
        // inherit it.
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

    /// Gives it another size.
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

/// An empty directory with much room, gone when dropped.
pub(crate) struct Roomy {
    // Dropped before the directory that it is mounted on.
    _memory: Option<Tmpfs>,
    dir: TempDir,
}

impl Roomy {
    /// With room for so many bytes: where temporary files or those of the build are, or, where neither place
    /// has as much, in memory, of which a file with holes takes none. Says in one line why not.
    pub(crate) fn new(bytes: u64) -> Option<Self> {
        // Other tests take some of it meanwhile.
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
