//! Reads and writes files that only their user may write, and secrets that only their user may read: keys,
//! tokens, lists, journals.
//!
//! A program that runs as root may keep such files in a directory that another user filled first, and a
//! person may have copied a key with the wrong mode. So this module trusts no name: it checks the owner and
//! the mode of the file that it opened (fstat(2)). *Others* are all users but the owner of a file, the
//! members of its group included.
//!
//! | item | is refused if |
//! | --- | --- |
//! | a directory, [`PrivateDir`] | its owner is neither this user nor root; others can write it |
//! | a file in it | the conditions of a directory hold; it is a link or no regular file; it is too long |
//! | a [`Secret`](Access::Secret), there or anywhere ([`read_secret`]) | others can read it, too |
//!
//! Root may give a secret to the group of a service, as systemd does with `LoadCredential=`
//! (systemd.exec(5)). So the group may read a secret that root owns if this process does not run as root, and
//! a secret in `$CREDENTIALS_DIRECTORY`.
//!
//! Files are opened relative to the directory that was checked, so it has no effect if the directory's name
//! leads elsewhere a moment later. A file is replaced by a new one (`O_EXCL`, `O_NOFOLLOW`), which gets the
//! name once its bytes are on the disk.

use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::{env, fmt};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, Flock, FlockArg, OFlag, openat, renameat};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, geteuid, linkat, unlinkat};

/// Says which users may read a file that only its owner may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Only the owner may read the file.
    Secret,
    /// All users may read the file.
    Public,
}

impl Access {
    /// Returns the mode of a new file.
    const fn mode(self) -> u32 {
        match self {
            Self::Secret => 0o600,
            Self::Public => 0o644,
        }
    }

    /// Returns the mode bits that a file with this access must not have.
    const fn denied(self) -> u32 {
        match self {
            Self::Secret => 0o077,
            Self::Public => 0o022,
        }
    }
}

/// Says why a file or a directory is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Refusal {
    /// Other users can read or write the file or directory. `wanted` is the mode that the message tells the
    /// user to set.
    Mode { path: PathBuf, mode: u32, wanted: u32 },
    /// The file or directory belongs to the user `uid`, who is neither this user nor root.
    Owner { path: PathBuf, uid: u32 },
    /// The file is a symbolic link, or no regular file.
    Kind { path: PathBuf },
    /// The name is a path, which may lead out of the directory.
    Name { name: PathBuf },
    /// The file has more than `bytes_max` bytes.
    Length { path: PathBuf, bytes_max: u64 },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mode { path, mode, wanted } => {
                let what = if mode & 0o022 == 0 { "read" } else { "write" };
                let path = path.display();
                write!(f, "other users can {what} it (mode {mode:o}): chmod {wanted:o} {path}")
            }
            Self::Owner { path, uid } => write!(
                f,
                "{} belongs to another user ({uid}): run this as that user, or remove it if nothing uses it",
                path.display()
            ),
            Self::Kind { path } => write!(f, "{} is no regular file", path.display()),
            Self::Name { name } => write!(f, "`{}` is no name of a file", name.display()),
            Self::Length { path, bytes_max } => {
                write!(f, "{} is longer than {bytes_max} bytes", path.display())
            }
        }
    }
}

impl std::error::Error for Refusal {}

impl From<Refusal> for io::Error {
    fn from(refusal: Refusal) -> Self {
        Self::other(refusal)
    }
}

/// Refuses a file or directory whose owner is neither this user nor root, who may change everything.
fn check_owner(file: &File, path: &Path) -> io::Result<()> {
    match file.metadata()?.uid() {
        uid if uid == geteuid().as_raw() || uid == 0 => Ok(()),
        uid => Err(Refusal::Owner { path: path.to_owned(), uid }.into()),
    }
}

/// Refuses a file or directory whose mode has a bit of `denied`. The message tells the user to set the mode
/// `wanted`.
fn check_mode(file: &File, path: &Path, denied: u32, wanted: u32) -> io::Result<()> {
    match file.metadata()?.mode() & 0o777 {
        mode if mode & denied == 0 => Ok(()),
        mode => Err(Refusal::Mode { path: path.to_owned(), mode, wanted }.into()),
    }
}

/// Refuses a file that others can write, and a secret that others can read. For programs that open the file
/// themselves.
///
/// # Errors
/// If `file` is refused: the message has its mode, and the command that corrects it. If fstat(2) fails.
pub fn check(file: &File, path: &Path, access: Access) -> io::Result<()> {
    let credentials = env::var_os("CREDENTIALS_DIRECTORY");
    check_beside(file, path, access, credentials.as_deref().map(Path::new))
}

/// Checks `file` as [`check`] does. `credentials` is the directory of systemd's credentials, if there is one.
fn check_beside(file: &File, path: &Path, access: Access, credentials: Option<&Path>) -> io::Result<()> {
    let is_credential = || credentials.is_some_and(|dir| path.parent() == Some(dir));
    let is_roots = || !geteuid().is_root() && file.metadata().is_ok_and(|data| data.uid() == 0);
    let is_given = access == Access::Secret && (is_credential() || is_roots());
    check_mode(file, path, access.denied() & !(if is_given { 0o040 } else { 0 }), 0o600)
}

fn read_all(file: &File, path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(Refusal::Length { path: path.to_owned(), bytes_max }.into());
    }
    Ok(bytes)
}

/// Reads a secret of at most `bytes_max` bytes from the path that the user gives, which may be a symbolic
/// link or a pipe. Its owner may be any user: a file of another user that others cannot read is readable for
/// root only.
///
/// # Errors
/// If open(2) or read(2) fails; if the file is longer, or others can read or write it, as the table of the
/// module says.
pub fn read_secret(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    check(&file, path, Access::Secret)?;
    read_all(&file, path, bytes_max)
}

/// Reads a file of at most `bytes_max` bytes from a directory that the table of the module allows. Returns
/// `None` if the directory has no such file.
///
/// # Errors
/// If [`PrivateDir::around`] or [`PrivateDir::read`] fails.
pub fn read(path: &Path, access: Access, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
    let (dir, name) = PrivateDir::around(path)?;
    dir.read(name, access, bytes_max)
}

/// Writes a new file, whole or not at all, into a directory that the table of the module allows.
///
/// # Errors
/// If [`PrivateDir::around`] or [`PrivateDir::create`] fails.
pub fn create(path: &Path, access: Access, bytes: &[u8]) -> io::Result<()> {
    let (dir, name) = PrivateDir::around(path)?;
    dir.create(name, access, bytes)
}

/// Holds a directory that this user or root owns, and that no other user can write. Its functions take names
/// of files in it: a path is refused, as it may lead out of the directory.
#[derive(Debug)]
pub struct PrivateDir {
    dir: File,
    path: PathBuf,
}

impl PrivateDir {
    /// Opens a directory. `path` may be a symbolic link, such as systemd makes: the directory that it leads
    /// to is checked.
    ///
    /// # Errors
    /// If open(2) fails, or the directory is refused as the table of the module says.
    pub fn open(path: &Path) -> io::Result<Self> {
        // A file name without a directory has an empty path as its parent.
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let flags = OFlag::O_DIRECTORY | OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        let dir = File::from(openat(AT_FDCWD, path, flags, Mode::empty())?);
        check_owner(&dir, path)?;
        check_mode(&dir, path, Access::Public.denied(), 0o700)?;
        Ok(Self { dir, path: path.to_owned() })
    }

    /// Opens a directory as [`PrivateDir::open`] does, after making it and the directories above it that are
    /// missing. New directories get mode 0700 for a secret and 0755 for public files.
    ///
    /// # Errors
    /// If mkdir(2) or [`PrivateDir::open`] fails.
    pub fn make(path: &Path, access: Access) -> io::Result<Self> {
        let mode = access.mode() | (access.mode() & 0o444) >> 2;
        DirBuilder::new().recursive(true).mode(mode).create(path)?;
        Self::open(path)
    }

    /// Opens the directory of `file`. Returns it with the file's name in it.
    ///
    /// # Errors
    /// If [`PrivateDir::open`] fails, or if the path does not end in a name.
    pub fn around(file: &Path) -> io::Result<(Self, &OsStr)> {
        let name = file.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        Ok((Self::open(file.parent().unwrap_or(Path::new(".")))?, name))
    }

    /// Returns the path by which the directory was opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits until no other process or thread holds the directory's lock, and holds it until the result is
    /// dropped.
    ///
    /// # Errors
    /// If openat(2) or flock(2) fails.
    pub fn lock(&self) -> io::Result<Flock<File>> {
        // A lock belongs to an open file description, so each call opens one of its own.
        let flags = OFlag::O_DIRECTORY | OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        let dir = File::from(openat(&self.dir, ".", flags, Mode::empty())?);
        Flock::lock(dir, FlockArg::LockExclusive).map_err(|(_, e)| e.into())
    }

    /// Locks the file `name`, which serves no other purpose and is made if it is missing, until the result is
    /// dropped. Returns `None` if another process or thread holds the lock.
    ///
    /// # Errors
    /// If openat(2) or flock(2) fails, or the file is refused as the table of the module says.
    pub fn try_lock(&self, name: impl AsRef<Path>) -> io::Result<Option<Flock<File>>> {
        let file = self.open_file(name.as_ref(), OFlag::O_RDWR | OFlag::O_CREAT, Access::Public)?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(held) => Ok(Some(held)),
            Err((_, Errno::EWOULDBLOCK)) => Ok(None),
            Err((_, e)) => Err(e.into()),
        }
    }

    /// Reads the file `name` of at most `bytes_max` bytes. Returns `None` if there is no such file.
    ///
    /// # Errors
    /// If openat(2) or read(2) fails, or the file is refused as the table of the module says.
    pub fn read(
        &self,
        name: impl AsRef<Path>,
        access: Access,
        bytes_max: u64,
    ) -> io::Result<Option<Vec<u8>>> {
        match self.open_file(name.as_ref(), OFlag::O_RDONLY, access) {
            Ok(file) => read_all(&file, &self.path.join(name), bytes_max).map(Some),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Writes the file `name`, whole or not at all, and returns when its bytes are on the disk. An earlier
    /// file of this name is replaced. Callers that may replace the same file at once must hold a lock.
    ///
    /// # Errors
    /// If unlinkat(2), openat(2), write(2), fsync(2) or renameat(2) fails.
    pub fn replace(&self, name: impl AsRef<Path>, access: Access, bytes: &[u8]) -> io::Result<()> {
        check_name(name.as_ref())?;
        let draft = draft(name.as_ref());
        self.write_draft(&draft, access, bytes)?;
        renameat(&self.dir, &*draft, &self.dir, name.as_ref())?;
        Ok(())
    }

    /// Writes the file `name`, whole or not at all, if there is no file of this name yet.
    ///
    /// # Errors
    /// If unlinkat(2), openat(2), write(2), fsync(2) or linkat(2) fails: `AlreadyExists` if there is a file
    /// of this name.
    pub fn create(&self, name: impl AsRef<Path>, access: Access, bytes: &[u8]) -> io::Result<()> {
        check_name(name.as_ref())?;
        // Two processes may create the same file at once: the process id keeps their drafts apart.
        let (name, mut draft) = (name.as_ref(), draft(name.as_ref()));
        draft.push(format!("-{}", std::process::id()));
        let written = self.write_draft(&draft, access, bytes);
        let linked =
            written.and_then(|()| Ok(linkat(&self.dir, &*draft, &self.dir, name, AtFlags::empty())?));
        let _ = self.unlink(&draft);
        linked
    }

    /// Removes the file `name` and its unfinished draft, if they exist.
    ///
    /// # Errors
    /// If unlinkat(2) fails.
    pub fn remove(&self, name: impl AsRef<Path>) -> io::Result<()> {
        check_name(name.as_ref())?;
        self.unlink(name.as_ref().as_os_str())?;
        self.unlink(&draft(name.as_ref()))
    }

    fn unlink(&self, name: &OsStr) -> io::Result<()> {
        match unlinkat(&self.dir, name, UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    fn write_draft(&self, draft: &OsString, access: Access, bytes: &[u8]) -> io::Result<()> {
        // A process that was killed while it wrote may have left a draft.
        self.unlink(draft)?;
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mode = Mode::from_bits_truncate(access.mode() as nix::libc::mode_t);
        let mut file = File::from(openat(&self.dir, &**draft, flags, mode)?);
        file.write_all(bytes)?;
        file.sync_all()
    }

    /// Opens the file `name` and refuses it as the table of the module says.
    fn open_file(&self, name: &Path, flags: OFlag, access: Access) -> io::Result<File> {
        check_name(name)?;
        let path = self.path.join(name);
        // A pipe of this name must not block the program.
        let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let file = match openat(&self.dir, name, flags, Mode::S_IRUSR | Mode::S_IWUSR) {
            Ok(file) => File::from(file),
            Err(Errno::ELOOP) => return Err(Refusal::Kind { path }.into()),
            Err(e) => return Err(e.into()),
        };
        if !file.metadata()?.is_file() {
            return Err(Refusal::Kind { path }.into());
        }
        check_owner(&file, &path)?;
        check(&file, &path, access)?;
        Ok(file)
    }
}

/// Refuses a name that leads out of the directory: openat(2) takes paths, `..` and absolute ones too.
fn check_name(name: &Path) -> io::Result<()> {
    match name.file_name().is_some_and(|last| last == name.as_os_str()) {
        true => Ok(()),
        false => Err(Refusal::Name { name: name.to_owned() }.into()),
    }
}

/// Returns the name of a file's draft, which the file has until it is whole.
fn draft(name: &Path) -> OsString {
    let mut draft = name.as_os_str().to_owned();
    draft.push(".new");
    draft
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

    use super::*;

    const MAX: u64 = 100;

    /// Makes a directory for state inside a temporary one, which is removed when the first result is dropped.
    fn place() -> (tempfile::TempDir, PrivateDir) {
        let place = tempfile::tempdir().unwrap();
        let dir = PrivateDir::make(&place.path().join("above/state"), Access::Secret).unwrap();
        (place, dir)
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    fn refusal<T: fmt::Debug>(result: io::Result<T>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn a_file_is_made_once_replaced_whole_and_removed() {
        let (_place, dir) = place();
        let file = dir.path.join("a");
        assert_eq!(mode(&dir.path), 0o700);
        assert_eq!(dir.read("a", Access::Secret, MAX).unwrap(), None);
        dir.create("a", Access::Secret, b"one").unwrap();
        assert_eq!(mode(&file), 0o600);
        let again = dir.create("a", Access::Secret, b"two").unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(dir.read("a", Access::Secret, MAX).unwrap().unwrap(), b"one");
        // A process that was killed while it wrote has left a draft.
        fs::write(dir.path.join("a.new"), "half").unwrap();
        dir.replace("a", Access::Public, b"three").unwrap();
        assert_eq!((mode(&file), fs::read(&file).unwrap()), (0o644, b"three".to_vec()));
        assert_eq!(fs::read_dir(&dir.path).unwrap().count(), 1, "no draft is left");
        fs::write(dir.path.join("a.new"), "half").unwrap();
        dir.remove("a").unwrap();
        dir.remove("a").unwrap();
        assert_eq!(fs::read_dir(&dir.path).unwrap().count(), 0);
        let public = PrivateDir::make(&dir.path.join("public"), Access::Public).unwrap();
        assert_eq!(mode(&public.path), 0o755);
    }

    #[test]
    fn a_name_that_leads_elsewhere_is_neither_read_nor_written() {
        let (place, dir) = place();
        let precious = place.path().join("precious");
        fs::write(&precious, "precious").unwrap();
        set_mode(&precious, 0o600);
        for name in ["a", "a.new", "lock", &format!("c.new-{}", std::process::id())] {
            symlink(&precious, dir.path.join(name)).unwrap();
        }
        symlink(place.path().join("made"), dir.path.join("lock2")).unwrap();
        let error = refusal(dir.read("a", Access::Public, MAX));
        assert!(error.contains("state/a is no regular file"), "{error}");
        assert!(refusal(dir.try_lock("lock")).contains("no regular file"));
        assert!(refusal(dir.try_lock("lock2")).contains("no regular file"));
        assert!(!place.path().join("made").exists(), "no file was made through the link");
        // A link in the place of a file or its draft is replaced.
        dir.replace("a", Access::Public, b"new").unwrap();
        dir.create("c", Access::Public, b"new").unwrap();
        assert_eq!(dir.read("a", Access::Public, MAX).unwrap().unwrap(), b"new");
        assert_eq!(fs::read(&precious).unwrap(), b"precious");

        nix::unistd::mkfifo(&dir.path.join("pipe"), Mode::S_IRUSR).unwrap();
        assert!(refusal(dir.read("pipe", Access::Public, MAX)).contains("no regular file"));
        assert!(refusal(dir.read("a", Access::Public, 2)).contains("longer than 2 bytes"));
        assert!(refusal(read_secret(Path::new("/dev/zero"), MAX)).contains("other users can write it"));
    }

    #[test]
    fn a_path_is_no_name() {
        let (place, dir) = place();
        fs::write(place.path().join("out"), "precious").unwrap();
        let absolute = place.path().join("out");
        for name in ["../../out", "..", ".", "", "a/", "a/b", "/", absolute.to_str().unwrap()] {
            let said = |e: io::Error| assert!(e.to_string().ends_with("is no name of a file"), "{name}: {e}");
            said(dir.read(name, Access::Public, MAX).unwrap_err());
            said(dir.replace(name, Access::Public, b"new").unwrap_err());
            said(dir.create(name, Access::Public, b"new").unwrap_err());
            said(dir.remove(name).unwrap_err());
            said(dir.try_lock(name).unwrap_err());
        }
        assert_eq!(fs::read(&absolute).unwrap(), b"precious");
    }

    #[test]
    fn what_others_can_write_is_refused_with_the_command_that_mends_it() {
        let (_place, dir) = place();
        dir.create("a", Access::Secret, b"one").unwrap();
        let file = dir.path.join("a");
        for (mode, secret, public) in [
            (0o600, None, None),
            (0o400, None, None),
            (0o640, Some("read"), None),
            (0o604, Some("read"), None),
            (0o644, Some("read"), None),
            (0o620, Some("write"), Some("write")),
            (0o666, Some("write"), Some("write")),
        ] {
            set_mode(&file, mode);
            let said =
                |what| format!("other users can {what} it (mode {mode:o}): chmod 600 {}", file.display());
            let read = |access| dir.read("a", access, MAX).err().map(|e| e.to_string());
            assert_eq!(read(Access::Secret), secret.map(said), "{mode:o}");
            assert_eq!(read(Access::Public), public.map(said), "{mode:o}");
            assert_eq!(read_secret(&file, MAX).err().map(|e| e.to_string()), secret.map(said), "{mode:o}");
        }
        for (mode, is_refused) in
            [(0o700, false), (0o755, false), (0o770, true), (0o777, true), (0o1777, true)]
        {
            set_mode(&dir.path, mode);
            let opened = PrivateDir::open(&dir.path).map(drop).map_err(|e| e.to_string());
            let said = format!("(mode {:o}): chmod 700 {}", mode & 0o777, dir.path.display());
            assert_eq!(opened.err().map(|e| e.contains(&said)), is_refused.then_some(true), "{mode:o}");
        }
    }

    #[test]
    fn the_group_may_read_a_credential() {
        let (place, dir) = place();
        dir.create("pair", Access::Secret, b"one").unwrap();
        let (path, beside) = (dir.path.join("pair"), Some(dir.path.as_path()));
        let checked = |mode, credentials| {
            set_mode(&path, mode);
            check_beside(&File::open(&path).unwrap(), &path, Access::Secret, credentials).is_ok()
        };
        assert!(checked(0o440, beside) && !checked(0o440, Some(place.path())) && !checked(0o440, None));
        assert!(!checked(0o460, beside) && !checked(0o444, beside), "others may not");
    }

    /// Only root can give a file to another user.
    #[test]
    fn what_belongs_to_another_user_is_refused() {
        if !geteuid().is_root() {
            return crate::testing::skip("needs root");
        }
        let (_place, dir) = place();
        dir.create("a", Access::Secret, b"one").unwrap();
        chown(dir.path.join("a"), Some(65_534), None).unwrap();
        let error = refusal(dir.read("a", Access::Secret, MAX));
        assert!(error.contains("state/a belongs to another user (65534)"), "{error}");
        assert_eq!(read_secret(&dir.path.join("a"), MAX).unwrap(), b"one", "the user has named it");
        assert!(refusal(dir.try_lock("a")).contains("another user"));
        chown(&dir.path, Some(65_534), None).unwrap();
        let error = refusal(PrivateDir::make(&dir.path, Access::Secret));
        assert!(error.contains("state belongs to another user (65534): run this as that user"), "{error}");
    }

    #[test]
    fn one_holds_a_lock() {
        let (_place, dir) = place();
        let held = dir.try_lock("lock").unwrap().expect("it is free");
        assert!(dir.try_lock("lock").unwrap().is_none());
        drop(held);
        assert!(dir.try_lock("lock").unwrap().is_some());
        let held = dir.lock().unwrap();
        std::thread::scope(|scope| {
            let other = scope.spawn(|| dir.lock().map(drop));
            drop(held);
            other.join().unwrap().unwrap();
        });
    }
}
