//! Files that only their user may write, and secrets that only their user may read: keys, tokens, lists,
//! journals.
//!
//! A program of root's keeps such files where another user may have been first, and a person may have copied
//! a key with the wrong mode. So no name is believed: what was opened is looked at (fstat(2)). *Others* are
//! all users but its owner, those of its group too.
//!
//! | what | is refused if |
//! | --- | --- |
//! | a directory, [`PrivateDir`] | it is a user's who is neither this one nor root; others can write it |
//! | a file in it | the same holds; it is a symbolic link or no regular file; it is longer than expected |
//! | a [`Secret`](Access::Secret), there or where the user says ([`read_secret`]) | others can read it, too |
//!
//! Root may give a secret to the group of a service, as systemd does with `LoadCredential=`
//! (systemd.exec(5)): its group may read a file that is root's if this user is not root, and a file in
//! `$CREDENTIALS_DIRECTORY`.
//!
//! Files are opened from the directory that was looked at, so a name that leads elsewhere a moment later has
//! no effect. A file is replaced by a new one (`O_EXCL`, `O_NOFOLLOW`), which gets the name when it is on the
//! disk.

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

/// Who may read a file that only its user may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Its user alone.
    Secret,
    /// All users.
    Public,
}

impl Access {
    /// The mode of a new file.
    const fn mode(self) -> u32 {
        match self {
            Self::Secret => 0o600,
            Self::Public => 0o644,
        }
    }

    /// What others must not have of a file.
    const fn denied(self) -> u32 {
        match self {
            Self::Secret => 0o077,
            Self::Public => 0o022,
        }
    }
}

/// Why a file or a directory is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Refusal {
    /// Others can read or write it: its mode, and the command that mends it.
    Mode { path: PathBuf, mode: u32, wanted: u32 },
    /// It belongs to this other user.
    Owner { path: PathBuf, uid: u32 },
    /// It is a symbolic link, or no regular file.
    Kind { path: PathBuf },
    /// It has more bytes than this.
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

/// Refuses what belongs to another user than this one and root, who may change everything.
fn check_owner(file: &File, path: &Path) -> io::Result<()> {
    match file.metadata()?.uid() {
        uid if uid == geteuid().as_raw() || uid == 0 => Ok(()),
        uid => Err(Refusal::Owner { path: path.to_owned(), uid }.into()),
    }
}

/// Refuses what lets others do what is denied; `wanted` is the mode that it should have.
fn check_mode(file: &File, path: &Path, denied: u32, wanted: u32) -> io::Result<()> {
    match file.metadata()?.mode() & 0o777 {
        mode if mode & denied == 0 => Ok(()),
        mode => Err(Refusal::Mode { path: path.to_owned(), mode, wanted }.into()),
    }
}

/// Refuses a file that others can write or, a secret, read: for programs that open it themselves.
///
/// # Errors
/// What fstat(2) says; the message has the mode, and the command that mends it.
pub fn check(file: &File, path: &Path, access: Access) -> io::Result<()> {
    let credentials = env::var_os("CREDENTIALS_DIRECTORY");
    check_beside(file, path, access, credentials.as_deref().map(Path::new))
}

/// The same where systemd's credentials are in this directory.
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

/// Reads a secret of at most so many bytes, wherever the user says that it is: the name may be that of a
/// symbolic link or a pipe. It may be another user's, which only root can read if others cannot.
///
/// # Errors
/// What open(2) and read(2) say; the file is refused, as the table above says.
pub fn read_secret(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    check(&file, path, Access::Secret)?;
    read_all(&file, path, bytes_max)
}

/// Reads a file of at most so many bytes in a directory that passes the table above; `None` if there is no
/// such file.
///
/// # Errors
/// As [`PrivateDir::around`] and [`PrivateDir::read`].
pub fn read(path: &Path, access: Access, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
    let (dir, name) = PrivateDir::around(path)?;
    dir.read(name, access, bytes_max)
}

/// Writes a new file into a directory that passes the table above, whole or not at all.
///
/// # Errors
/// As [`PrivateDir::around`] and [`PrivateDir::create`].
pub fn create(path: &Path, access: Access, bytes: &[u8]) -> io::Result<()> {
    let (dir, name) = PrivateDir::around(path)?;
    dir.create(name, access, bytes)
}

/// A directory that belongs to this user or to root, and that no other user can write.
#[derive(Debug)]
pub struct PrivateDir {
    dir: File,
    path: PathBuf,
}

impl PrivateDir {
    /// Opens a directory. The name may be that of a symbolic link, as systemd makes them: what it leads to
    /// counts.
    ///
    /// # Errors
    /// What open(2) says; the directory is refused, as the table above says.
    pub fn open(path: &Path) -> io::Result<Self> {
        // The parent of a name without one.
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let flags = OFlag::O_DIRECTORY | OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        let dir = File::from(openat(AT_FDCWD, path, flags, Mode::empty())?);
        check_owner(&dir, path)?;
        check_mode(&dir, path, Access::Public.denied(), 0o700)?;
        Ok(Self { dir, path: path.to_owned() })
    }

    /// The same of a directory that is made if there is none, with this mode; directories above it are made
    /// as well.
    ///
    /// # Errors
    /// What mkdir(2) says; as [`PrivateDir::open`].
    pub fn make(path: &Path, access: Access) -> io::Result<Self> {
        let mode = access.mode() | (access.mode() & 0o444) >> 2;
        DirBuilder::new().recursive(true).mode(mode).create(path)?;
        Self::open(path)
    }

    /// The directory of a file, and the file's name there.
    ///
    /// # Errors
    /// As [`PrivateDir::open`]; the path does not end in a name.
    pub fn around(file: &Path) -> io::Result<(Self, &OsStr)> {
        let name = file.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        Ok((Self::open(file.parent().unwrap_or(Path::new(".")))?, name))
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits until no other process or thread holds the directory, and holds it until the result is dropped.
    ///
    /// # Errors
    /// What flock(2) says.
    pub fn lock(&self) -> io::Result<Flock<File>> {
        // Locks belong to an open file description, so each has one of its own.
        let flags = OFlag::O_DIRECTORY | OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        let dir = File::from(openat(&self.dir, ".", flags, Mode::empty())?);
        Flock::lock(dir, FlockArg::LockExclusive).map_err(|(_, e)| e.into())
    }

    /// Holds a file that is there for this alone, until the result is dropped. `None`: another process or
    /// thread holds it.
    ///
    /// # Errors
    /// What openat(2) and flock(2) say; the file is refused, as the table above says.
    pub fn try_lock(&self, name: impl AsRef<Path>) -> io::Result<Option<Flock<File>>> {
        let file = self.open_file(name.as_ref(), OFlag::O_RDWR | OFlag::O_CREAT, Access::Public)?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(held) => Ok(Some(held)),
            Err((_, Errno::EWOULDBLOCK)) => Ok(None),
            Err((_, e)) => Err(e.into()),
        }
    }

    /// Reads a file of at most so many bytes; `None` if there is none.
    ///
    /// # Errors
    /// What openat(2) and read(2) say; the file is refused, as the table above says.
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

    /// Writes a file, whole or not at all, and returns when it is on the disk; one of this name that is there
    /// is replaced. Two that replace the same file must hold a lock.
    ///
    /// # Errors
    /// What openat(2), write(2), fsync(2) and renameat(2) say.
    pub fn replace(&self, name: impl AsRef<Path>, access: Access, bytes: &[u8]) -> io::Result<()> {
        let draft = draft(name.as_ref());
        self.write_draft(&draft, access, bytes)?;
        renameat(&self.dir, &*draft, &self.dir, name.as_ref())?;
        Ok(())
    }

    /// Writes a file, whole or not at all, in no other's place.
    ///
    /// # Errors
    /// As [`PrivateDir::replace`]; `AlreadyExists` if there is one of this name.
    pub fn create(&self, name: impl AsRef<Path>, access: Access, bytes: &[u8]) -> io::Result<()> {
        // Two processes may do so at once.
        let (name, mut draft) = (name.as_ref(), draft(name.as_ref()));
        draft.push(format!("-{}", std::process::id()));
        let written = self.write_draft(&draft, access, bytes);
        let linked =
            written.and_then(|()| Ok(linkat(&self.dir, &*draft, &self.dir, name, AtFlags::empty())?));
        let _ = self.unlink(&draft);
        linked
    }

    /// Removes a file, and one that was begun and not finished, if they are there.
    ///
    /// # Errors
    /// What unlinkat(2) says.
    pub fn remove(&self, name: impl AsRef<Path>) -> io::Result<()> {
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
        // A process that was killed while it wrote has left one.
        self.unlink(draft)?;
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mode = Mode::from_bits_truncate(access.mode() as nix::libc::mode_t);
        let mut file = File::from(openat(&self.dir, &**draft, flags, mode)?);
        file.write_all(bytes)?;
        file.sync_all()
    }

    /// Opens a file that may be there, and looks at it.
    fn open_file(&self, name: &Path, flags: OFlag, access: Access) -> io::Result<File> {
        let path = self.path.join(name);
        // A pipe of this name must not stop the program.
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

/// What a file is called until it is whole.
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

    /// A directory in that of the tests' system, and what is removed with it.
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
        // A process was killed here.
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

    /// Only root can give files away.
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
