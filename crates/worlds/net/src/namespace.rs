//! Makes and enters network namespaces that live as long as their descriptor.
//!
//! A [`Namespace`] has no name under `/run/netns` and no process of its own: when its last descriptor is
//! closed, however the process ends, the kernel removes it with everything in it. See network_namespaces(7).

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::panic::resume_unwind;
use std::path::{Component, Path, PathBuf};
use std::thread;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::statfs::{NSFS_MAGIC, fstatfs};

use crate::syscalls;

/// The path of the calling thread's network namespace.
pub const OWN_PATH: &str = "/proc/thread-self/ns/net";

/// Holds a network namespace by a descriptor.
#[derive(Debug)]
pub struct Namespace {
    fd: OwnedFd,
}

/// Returns the error with a description of the attempt, `what`, in front.
fn said(error: impl Into<io::Error>, what: &str) -> io::Error {
    let error = error.into();
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

/// Runs `work` on a thread of its own, so that the calling thread stays in its namespace.
fn in_own_thread<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let worker = thread::Builder::new().name("namespace".into()).spawn_scoped(scope, work)?;
        Ok(worker.join().unwrap_or_else(|panic| resume_unwind(panic)))
    })
}

impl Namespace {
    /// Makes a network namespace without a name. It holds nothing but the loopback device, which is up.
    ///
    /// # Errors
    /// `PermissionDenied` without `CAP_SYS_ADMIN`; another error if no more descriptors can be opened or
    /// `max_net_namespaces` allows no more namespaces.
    pub fn new() -> io::Result<Self> {
        in_own_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET).map_err(|e| match e {
                Errno::EPERM => said(e, "a network namespace needs CAP_SYS_ADMIN (run as root)"),
                e => said(e, "no new network namespace"),
            })?;
            syscalls::set_device("lo", &syscalls::Device::Up)
                .map_err(|e| said(e, "the loopback device stays down"))?;
            Self::current()
        })?
    }

    /// Opens the namespace of the calling thread.
    ///
    /// # Errors
    /// If `/proc` is not mounted or no more descriptors can be opened.
    pub fn current() -> io::Result<Self> {
        Self::open(Path::new(OWN_PATH))
    }

    /// Returns the inode of the calling thread's namespace. No other existing namespace has it, but a later
    /// one may.
    ///
    /// # Errors
    /// If `/proc` is not mounted; the message names the path.
    pub fn current_inode() -> io::Result<u64> {
        let metadata = fs::metadata(OWN_PATH);
        Ok(metadata.map_err(|e| said(e, &format!("network namespace {OWN_PATH}")))?.ino())
    }

    /// Opens the namespace at a path: `/run/netns/NAME`, `/proc/PID/ns/net`, `/proc/PID/fd/N`. Other files
    /// are not opened, so that a FIFO does not block this call and a device is not touched.
    ///
    /// # Errors
    /// If there is no such file, or it may not be opened; `InvalidInput` if it is no namespace; the message
    /// names the path. Only [`enter`](Self::enter) finds out whether it is a network namespace.
    pub fn open(path: &Path) -> io::Result<Self> {
        let failed = |e: io::Error| said(e, &format!("network namespace {}", path.display()));
        // O_PATH gives a descriptor of the path alone (open(2)): the file is examined first, then opened.
        let place = OpenOptions::new().read(true).custom_flags(OFlag::O_PATH.bits()).open(path);
        let place = place.map_err(failed)?;
        if fstatfs(&place).map_err(|e| failed(e.into()))?.filesystem_type() != NSFS_MAGIC {
            return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, "it is no namespace")));
        }
        let file = File::open(format!("/proc/self/fd/{}", place.as_raw_fd())).map_err(failed)?;
        Ok(Self { fd: file.into() })
    }

    /// Runs `work` on a thread that has entered the namespace, and waits for it. Sockets that `work` makes
    /// and processes that it starts belong to the namespace for good. A panic of `work` goes through to the
    /// caller.
    ///
    /// # Errors
    /// If [`enter`](Self::enter) fails, or if no thread can be made.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        in_own_thread(|| self.enter().map(|()| work()))?
    }

    /// Moves the calling thread into the namespace, for good: sockets and processes that it makes from now on
    /// belong there. If it succeeds, it makes one system call and allocates nothing, so that it can be used
    /// between `fork` and `exec`.
    ///
    /// # Errors
    /// `PermissionDenied` without `CAP_SYS_ADMIN`; `InvalidInput` if the descriptor is no network namespace.
    pub fn enter(&self) -> io::Result<()> {
        setns(&self.fd, CloneFlags::CLONE_NEWNET).map_err(io::Error::from)
    }

    /// Writes a setting below `/proc/sys`, such as `net.mptcp.enabled`, for this namespace. As in sysctl(8),
    /// dots separate the parts, or slashes if a part has dots (`net/ipv4/conf/eth0.5/rp_filter`).
    ///
    /// # Errors
    /// If there is no such setting or it refuses the value; the message names both. `InvalidInput` if the key
    /// does not begin with `net`, since no other setting belongs to the namespace.
    pub fn sysctl(&self, key: &str, value: &str) -> io::Result<()> {
        let path = if key.contains('/') { key.to_owned() } else { key.replace('.', "/") };
        let path = Path::new(&path);
        if !path.starts_with("net") || !path.components().all(|part| matches!(part, Component::Normal(_))) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("sysctl {key} is none of a network namespace"),
            ));
        }
        let file = PathBuf::from("/proc/sys").join(path);
        self.run(|| fs::write(file, value))?.map_err(|e| said(e, &format!("sysctl {key}={value}")))
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inode(path: &str) -> u64 {
        fs::metadata(path).unwrap().ino()
    }

    #[test]
    fn work_runs_there_and_the_caller_stays() {
        let here = inode(OWN_PATH);
        let space = match Namespace::new() {
            Ok(space) => space,
            Err(e) => return crate::testing::refused(e),
        };
        let there = space.run(|| inode(OWN_PATH)).unwrap();
        assert_ne!(here, there);
        assert_eq!(here, inode(OWN_PATH));
        assert_eq!(Namespace::current().unwrap().run(|| inode(OWN_PATH)).unwrap(), here);

        let path = format!("/proc/{}/fd/{}", std::process::id(), std::os::fd::AsRawFd::as_raw_fd(&space.fd));
        assert_eq!(Namespace::open(Path::new(&path)).unwrap().run(|| inode(OWN_PATH)).unwrap(), there);
    }

    #[test]
    fn settings_are_its_own() {
        const FILE: &str = "/proc/sys/net/ipv4/ip_default_ttl";
        let space = match Namespace::new() {
            Ok(space) => space,
            Err(e) => return crate::testing::refused(e),
        };
        let before = fs::read_to_string(FILE).unwrap();
        space.sysctl("net.ipv4.ip_default_ttl", "77").unwrap();
        assert_eq!(space.run(|| fs::read_to_string(FILE)).unwrap().unwrap().trim(), "77");
        assert_eq!(fs::read_to_string(FILE).unwrap(), before);

        let error = space.sysctl("net.ipv4.no_such_thing", "1").unwrap_err().to_string();
        assert!(error.contains("net.ipv4.no_such_thing=1"), "{error}");
        for key in ["kernel.hostname", "net/../kernel/hostname", "/net/ipv4/ip_forward", ""] {
            assert_eq!(space.sysctl(key, "x").unwrap_err().kind(), io::ErrorKind::InvalidInput, "{key}");
        }
    }

    #[test]
    fn what_is_no_namespace_is_refused() {
        let error = Namespace::open(Path::new("/run/netns/no such one")).unwrap_err().to_string();
        assert!(error.contains("/run/netns/no such one"), "{error}");
        let error = Namespace::open(Path::new("/proc/self/status")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
        assert!(Namespace::open(Path::new("/proc/self/ns/mnt")).unwrap().run(|| ()).is_err());
    }

    #[test]
    fn a_pipe_in_place_of_a_namespace_keeps_nobody_waiting() {
        let (_reader, writer) = io::pipe().unwrap();
        let fifo = std::env::temp_dir().join(format!("anabranch-namespace-{}", std::process::id()));
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRUSR).unwrap();
        // Opening the FIFO for reading would wait for a writer.
        let opened = Namespace::open(&fifo);
        fs::remove_file(&fifo).unwrap();
        assert_eq!(opened.unwrap_err().kind(), io::ErrorKind::InvalidInput);
        let path = format!("/proc/self/fd/{}", writer.as_raw_fd());
        assert_eq!(Namespace::open(Path::new(&path)).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
