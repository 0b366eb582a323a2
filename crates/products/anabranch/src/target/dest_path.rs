//! Holds the destination of a file: an open directory and a name in it.
//!
//! All operations on a target are relative to the open directory, use one name without slashes and do not
//! follow symbolic links. So a directory that is swapped for a link meanwhile cannot divert a write, and no
//! fetched file can leave the directory it was meant for.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use anabranch_mmtp::collection::COMPONENT_MAX;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag};
use nix::sys::stat::{Mode, SFlag};
use nix::unistd::UnlinkatFlags;

#[cfg(any(test, feature = "soak"))]
use super::room::Room;
use crate::filenames::{self, show};
use crate::monitor::lock;
use crate::{Error, ErrorKind, Result, format};

/// The first characters of the names of parts in a directory that is fetched whole. There `NAME.part` may be
/// the name of another file of the directory; so names that begin with this prefix are reserved for parts,
/// and no file of a directory may have one.
pub const PART_PREFIX: &str = ".anabranch-part.";

/// The greatest number of names that are tried for a file that does not meet its demands.
const ASIDE_MAX: u32 = 99;

/// The length of the suffix that is appended to a name, without the length of the content.
const SUFFIX_BYTES: usize = ".part.journal".len();

/// The flags with which a directory below another one is opened.
const BELOW: OFlag =
    OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

/// Holds an open directory. Files that are fetched into it stay in it.
#[derive(Debug)]
pub(crate) struct Directory {
    fd: OwnedFd,
    path: PathBuf,
    /// The directories that were made here, relative to this one and in the order of their creation. An empty
    /// path stands for this directory itself.
    made: Mutex<Vec<PathBuf>>,
}

impl Directory {
    /// Opens the directory at `path`, and makes it if only its last component is missing.
    ///
    /// # Errors
    /// If the directory can be neither made nor opened.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        match std::fs::create_dir(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Err(missing(path.parent().unwrap_or(path))),
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(failure("make the directory", path, e)),
            made => {
                let new = Self::open(path)?;
                if made.is_ok() {
                    lock(&new.made).push(PathBuf::new());
                }
                Ok(new)
            }
        }
    }

    /// Removes the directories that were made here and are empty.
    pub(crate) fn remove_empty(&self) {
        for made in lock(&self.made).drain(..).rev() {
            // A directory that is not empty stays, and so does one that cannot be removed.
            let _ = match made.file_name() {
                Some(name) => self.remove_below(made.parent().unwrap_or(Path::new("")), name),
                None => std::fs::remove_dir(&self.path),
            };
        }
    }

    fn remove_below(&self, parent: &Path, name: &OsStr) -> io::Result<()> {
        let mut fd = self.fd.try_clone()?;
        for dir in parent {
            fd = nix::fcntl::openat(&fd, dir, BELOW, Mode::empty())?;
        }
        Ok(nix::unistd::unlinkat(&fd, name, UnlinkatFlags::RemoveDir)?)
    }

    fn open(path: &Path) -> Result<Self> {
        // Symbolic links in the path are the user's own choice.
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let opened = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let fd = nix::fcntl::open(opened, flags, Mode::empty()).map_err(|e| match e {
            Errno::ENOENT => missing(opened),
            e => failure("open the directory", opened, e.into()),
        })?;
        Ok(Self { fd, path: path.to_owned(), made: Mutex::default() })
    }

    /// Checks that the file system of this directory has room for `bytes` more, as far as it reports its
    /// room. The answer holds only for now: other programs may take the room meanwhile. A file system that
    /// compresses may have more room than it reports. A file with holes needs less than its length, but is
    /// refused all the same, because its holes are not known before it has arrived.
    ///
    /// # Errors
    /// [`ErrorKind::Target`](crate::ErrorKind::Target) if there is no room; `what` is the path that needs it.
    pub(crate) fn check_room(&self, what: &Path, bytes: u64) -> Result<()> {
        // A file system that does not report its size (some remote or user-space ones) is assumed to have
        // room.
        let Ok(told) = nix::sys::statvfs::fstatvfs(&self.fd) else { return Ok(()) };
        let free = told.blocks_available().saturating_mul(told.fragment_size());
        if bytes <= free || told.blocks() == 0 {
            return Ok(());
        }
        let (bytes, free) = (format::bytes(bytes), format::bytes(free));
        Err(Error::target(format!(
            "{} needs {bytes} more, and its file system has {free} free: make room, or choose another place \
             with `to_file`",
            show(what)
        ))
        .at(what))
    }

    /// Returns whether the directory is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries().is_ok_and(|mut entries| entries.next().is_none())
    }

    fn entries(&self) -> io::Result<std::fs::ReadDir> {
        let here = self.path.as_os_str().is_empty();
        std::fs::read_dir(if here { Path::new(".") } else { self.path.as_path() })
    }

    /// Returns the path of the directory, for messages.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the place of a file below this directory, and makes the directories on the path. No component
    /// may be a symbolic link: each is opened relative to the one before it.
    ///
    /// # Errors
    /// If a component is no valid file name or begins with [`PART_PREFIX`], or if a directory on the way
    /// cannot be made or is something other than a directory.
    pub(crate) fn place<'a>(&self, components: impl IntoIterator<Item = &'a [u8]>) -> Result<DestPath> {
        let mut names = Vec::new();
        for component in components {
            let name =
                filenames::component(component).map_err(|why| Error::system(format!("refused: {why}")))?;
            if is_reserved(component) {
                return Err(Error::system(format!(
                    "refused: the directory holds {}, a name that is kept for files on their way (the source \
                     serves a directory that has not wholly arrived there)",
                    show(&name)
                )));
            }
            names.push(name);
        }
        let Some(name) = names.pop() else {
            return Err(Error::system("refused: an empty path in the collection"));
        };
        let mut fd = self.fd.try_clone().map_err(|e| failure("open the directory", &self.path, e))?;
        let mut path = self.path.clone();
        for dir in names {
            path.push(&dir);
            match nix::sys::stat::mkdirat(&fd, dir.as_os_str(), Mode::from_bits_truncate(0o777)) {
                Ok(()) => {
                    let made = path.strip_prefix(&self.path).unwrap_or(&path).to_owned();
                    lock(&self.made).push(made);
                }
                Err(Errno::EEXIST) => {}
                Err(e) => return Err(failure("make the directory", &path, e.into())),
            }
            fd = nix::fcntl::openat(&fd, dir.as_os_str(), BELOW, Mode::empty()).map_err(|e| match e {
                Errno::ELOOP | Errno::ENOTDIR => Error::target(format!(
                    "{} is there and is not a directory (symbolic links are not followed): remove it first",
                    show(&path)
                ))
                .at(&path),
                e => failure("open the directory", &path, e.into()),
            })?;
        }
        Ok(DestPath::new(Self { fd, path, made: Mutex::default() }, name, true))
    }
}

/// Returns whether a name is reserved for parts in a directory. Case is ignored, because some file systems do
/// not distinguish `A` from `a`.
pub(crate) fn is_reserved(name: &[u8]) -> bool {
    name.get(..PART_PREFIX.len()).is_some_and(|start| start.eq_ignore_ascii_case(PART_PREFIX.as_bytes()))
}

/// Holds the place of a file: an open directory, and a name in it.
#[derive(Clone, Debug)]
pub(crate) struct DestPath {
    dir: Arc<Directory>,
    name: OsString,
    /// Whether other files of the directory are fetched too.
    among_others: bool,
    /// Whether a file that already has the name never counts as the wanted file.
    anew: bool,
    /// The room that is left, where a full file system is simulated.
    #[cfg(any(test, feature = "soak"))]
    room: Option<Arc<Room>>,
}

impl DestPath {
    fn new(dir: Directory, name: OsString, among_others: bool) -> Self {
        Self {
            dir: Arc::new(dir),
            name,
            among_others,
            anew: false,
            #[cfg(any(test, feature = "soak"))]
            room: None,
        }
    }

    /// Returns this place on a simulated file system with this `room`; `None` means no simulation.
    #[cfg(any(test, feature = "soak"))]
    pub(crate) fn within(self, room: Option<Arc<Room>>) -> Self {
        Self { room, ..self }
    }

    /// Writes all `bytes` at `offset` to a file that was opened here.
    pub(super) fn write_all(&self, file: &File, bytes: &mut [IoSlice<'_>], offset: u64) -> io::Result<()> {
        #[cfg(any(test, feature = "soak"))]
        if let Some(room) = &self.room {
            let all: Vec<u8> = bytes.iter().flat_map(|some| some.iter().copied()).collect();
            return room.write_all(file, &all, offset);
        }
        write_all_vectored(file, bytes, offset)
    }

    /// Returns the place that `path` names. Its directory must exist.
    ///
    /// # Errors
    /// If the directory does not exist, or the path ends in no file name.
    pub(crate) fn of(path: &Path) -> Result<Self> {
        let Some(name) = path.file_name() else {
            return Err(Error::target(format!("{} is not a file name", show(path))).at(path));
        };
        if path.as_os_str().as_bytes().ends_with(b"/") {
            return Err(missing(path));
        }
        let dir = Directory::open(path.parent().unwrap_or(Path::new("")))?;
        Ok(Self::new(dir, name.to_owned(), false))
    }

    /// Returns this place with the setting `anew`. If it is true, an existing file never counts as the wanted
    /// file: it is replaced where that is allowed.
    #[must_use]
    pub(crate) fn anew(self, anew: bool) -> Self {
        Self { anew, ..self }
    }

    /// Returns whether an existing file never counts as the wanted file.
    pub(super) const fn is_anew(&self) -> bool {
        self.anew
    }

    /// Returns the path of the file, for messages.
    #[must_use]
    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path.join(&self.name)
    }

    /// Checks that there is room for `bytes` more of the file: see [`Directory::check_room`].
    ///
    /// # Errors
    /// [`ErrorKind::Target`](crate::ErrorKind::Target) if there is no room.
    pub(super) fn check_room(&self, bytes: u64) -> Result<()> {
        self.dir.check_room(&self.path(), bytes)
    }

    /// Returns the name of the file.
    #[must_use]
    pub(crate) fn name(&self) -> &OsStr {
        &self.name
    }

    /// Returns the names of the part and its journal: the file's name with `.part` and with `.part.journal`.
    /// If these would be too long, the file's name is cut, and a hash of the name replaces the rest.
    ///
    /// In a directory that is fetched whole, the part is named [`PART_PREFIX`] and a hash of the file's name,
    /// and the journal has the suffix `.journal` besides. [`Directory::place`] refuses files with such names,
    /// so these names never collide with another file's.
    ///
    /// With `of_length`, the names contain that length: they are for a part beside another part that stays.
    #[must_use]
    pub(crate) fn part_names(&self, of_length: Option<u64>) -> (OsString, OsString) {
        let length = of_length.map_or_else(String::new, |length| format!(".{length}"));
        if self.among_others {
            let hash = blake3::hash(self.name.as_bytes()).to_hex();
            let part = format!("{PART_PREFIX}{}{length}", &hash.as_str()[..32]);
            let journal = format!("{part}.journal");
            return (part.into(), journal.into());
        }
        let mut part = self.stem(length.len());
        part.push(length);
        part.push(".part");
        let mut journal = part.clone();
        journal.push(".journal");
        (part, journal)
    }

    /// Returns the pairs of names that a part of the file and its journal may have: the usual pair, and each
    /// pair with a length in its names whose journal exists, together with that length. In a directory that
    /// is fetched whole, returns only the usual pair.
    pub(super) fn all_part_names(&self) -> Vec<(Option<u64>, (OsString, OsString))> {
        let mut all = vec![(None, self.part_names(None))];
        // A directory that is fetched whole may hold very many other files.
        let entries = (!self.among_others).then(|| self.dir.entries().ok()).flatten();
        for entry in entries.into_iter().flatten().flatten() {
            let name = entry.file_name();
            let length = name.as_bytes().strip_suffix(b".part.journal").and_then(|rest| {
                let digits = rest.rsplit(|byte| *byte == b'.').next()?;
                str::from_utf8(digits).ok()?.parse::<u64>().ok()
            });
            let own = length.map(|_| (length, self.part_names(length)));
            all.extend(own.filter(|(_, (_, journal))| *journal == name));
        }
        all
    }

    /// Returns whether other files of the directory are fetched too.
    pub(super) const fn is_among_others(&self) -> bool {
        self.among_others
    }

    /// Returns the name, cut if necessary to leave room for a suffix of `SUFFIX_BYTES` and `more` bytes.
    fn stem(&self, more: usize) -> OsString {
        let suffix_bytes = SUFFIX_BYTES + more;
        if self.name.len() + suffix_bytes <= COMPONENT_MAX {
            return self.name.clone();
        }
        let hash = blake3::hash(self.name.as_bytes()).to_hex();
        let tail = format!("~{}", &hash.as_str()[..16]);
        let mut cut = COMPONENT_MAX - suffix_bytes - tail.len();
        // A name in UTF-8 stays valid UTF-8: some file systems insist on that.
        if let Ok(text) = str::from_utf8(self.name.as_bytes()) {
            while !text.is_char_boundary(cut) {
                cut -= 1;
            }
        }
        let mut bytes = self.name.as_bytes()[..cut].to_vec();
        bytes.extend(tail.bytes());
        OsString::from_vec(bytes)
    }

    /// Returns whether a file or another entry has the file's name.
    ///
    /// # Errors
    /// [`ErrorKind::Target`](crate::ErrorKind::Target) if the directory cannot be read.
    pub(crate) fn is_taken(&self) -> Result<bool> {
        Ok(self.stat(&self.name)?.is_some())
    }

    /// Returns the directory entry `name`; `None` if it does not exist.
    pub(super) fn stat(&self, name: &OsStr) -> Result<Option<Entry>> {
        match nix::sys::stat::fstatat(&self.dir.fd, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(stat) => {
                let kind = SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT;
                let (dir, file, link) = (SFlag::S_IFDIR, SFlag::S_IFREG, SFlag::S_IFLNK);
                Ok(Some(Entry {
                    directory: kind == dir,
                    file: kind == file,
                    link: kind == link,
                    length: u64::try_from(stat.st_size).unwrap_or(0),
                    inode: (stat.st_dev, stat.st_ino),
                }))
            }
            Err(Errno::ENOENT) => Ok(None),
            Err(e) => Err(self.failure("look at", name, e.into())),
        }
    }

    /// Opens `name` in the directory, never through a symbolic link.
    pub(super) fn open(&self, name: &OsStr, flags: OFlag) -> io::Result<File> {
        let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
        let fd = nix::fcntl::openat(&self.dir.fd, name, flags, Mode::from_bits_truncate(0o666))?;
        Ok(File::from(fd))
    }

    pub(super) fn unlink(&self, name: &OsStr) -> io::Result<()> {
        Ok(nix::unistd::unlinkat(&self.dir.fd, name, UnlinkatFlags::NoRemoveDir)?)
    }

    /// Gives the file `from` its final name. Without `replace` this fails if the name is taken, even if
    /// another program takes it at this very moment.
    pub(super) fn rename(&self, from: &OsStr, replace: bool) -> io::Result<()> {
        self.rename_to(from, &self.name, replace)
    }

    /// Renames the file that has the final name to `to`, and replaces any file of that name.
    pub(super) fn rename_from(&self, to: &OsStr) -> io::Result<()> {
        self.rename_to(&self.name, to, true)
    }

    /// Gives the file `from` a name that marks it as unverified, and returns that name: `NAME.unverified` or,
    /// if that is taken and `numbered` is true, `NAME.unverified.2` and so on.
    pub(super) fn rename_aside(&self, from: &OsStr, numbered: bool) -> io::Result<OsString> {
        let mut error = io::ErrorKind::AlreadyExists.into();
        for number in 1..=if numbered { ASIDE_MAX } else { 1 } {
            let name = self.aside_name(number);
            match self.rename_to(from, &name, false) {
                Ok(()) => return Ok(name),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => error = e,
                Err(e) => return Err(e),
            }
        }
        Err(error)
    }

    /// Returns the names that a file may have that does not meet its demands.
    pub(super) fn aside_names(&self) -> impl Iterator<Item = OsString> {
        (1..=ASIDE_MAX).map(|number| self.aside_name(number))
    }

    fn aside_name(&self, number: u32) -> OsString {
        let mut name = self.name.clone();
        name.push(".unverified");
        if number > 1 {
            name.push(format!(".{number}"));
        }
        name
    }

    fn rename_to(&self, from: &OsStr, to: &OsStr, replace: bool) -> io::Result<()> {
        let dir = &self.dir.fd;
        if replace {
            return Ok(nix::fcntl::renameat(dir, from, dir, to)?);
        }
        #[cfg(all(target_os = "linux", target_env = "gnu"))]
        match nix::fcntl::renameat2(dir, from, dir, to, nix::fcntl::RenameFlags::RENAME_NOREPLACE) {
            // The file system does not know the flag.
            Err(Errno::EINVAL | Errno::ENOSYS) => {}
            other => return Ok(other?),
        }
        nix::unistd::linkat(dir, from, dir, to, AtFlags::empty())?;
        Ok(nix::unistd::unlinkat(dir, from, UnlinkatFlags::NoRemoveDir)?)
    }

    /// Syncs the directory, so that its renames and removals survive a power failure.
    pub(super) fn sync(&self) -> io::Result<()> {
        match nix::unistd::fsync(&self.dir.fd) {
            // Some file systems cannot sync a directory and need not.
            Ok(()) | Err(Errno::EINVAL | Errno::ENOTSUP) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// Returns the error for a failed operation on `name` in this directory.
    pub(super) fn failure(&self, doing: &str, name: &OsStr, error: io::Error) -> Error {
        failure(doing, &self.dir.path.join(name), error)
    }
}

fn write_all_vectored(file: &File, mut slices: &mut [IoSlice<'_>], mut offset: u64) -> io::Result<()> {
    while !slices.is_empty() {
        let at = i64::try_from(offset).map_err(|_| io::ErrorKind::FileTooLarge)?;
        match nix::sys::uio::pwritev(file, slices, at) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => {
                IoSlice::advance_slices(&mut slices, n);
                offset += n as u64;
            }
            Err(Errno::EINTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// Holds the kind, length and inode of a directory entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) directory: bool,
    pub(super) file: bool,
    pub(super) link: bool,
    pub(super) length: u64,
    pub(super) inode: (u64, u64),
}

/// Returns the error for a directory that does not exist.
fn missing(path: &Path) -> Error {
    let shown = show(path);
    Error::target(format!("there is no directory {shown}: make it first, or choose another `to_file`"))
        .at(path)
}

/// Returns the error for a failed operation on `path`, with advice on what to do about it.
pub(super) fn failure(doing: &str, path: &Path, error: io::Error) -> Error {
    use io::ErrorKind as Kind;
    let advice = match error.kind() {
        Kind::StorageFull => "the disk is full: make room and run the same `Get` again, what arrived is kept",
        Kind::QuotaExceeded => "your disk quota is used up: make room and run the same `Get` again",
        Kind::FileTooLarge => "the file system or a resource limit (ulimit -f) forbids a file of this size",
        Kind::PermissionDenied => "permission denied: choose a place you may write to with `to_file`",
        Kind::ReadOnlyFilesystem => "the file system is read-only: choose another place with `to_file`",
        Kind::NotFound => "its directory takes no files, or is gone: choose another place with `to_file`",
        Kind::NotADirectory => "a part of the path is not a directory",
        Kind::IsADirectory => "it is a directory",
        Kind::InvalidFilename => {
            "the name is too long for this file system: choose another one with `to_file`"
        }
        _ => return ErrorKind::Target.cannot(doing, path, error),
    };
    Error::target(format!("cannot {doing} {}: {advice}", show(path))).at(path).because(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn part_names(name: &OsStr) -> (OsString, OsString) {
        let dir = tempfile::tempdir().expect("a directory");
        DestPath::of(&dir.path().join(name)).expect("a place").part_names(None)
    }

    #[test]
    fn part_names_fit_and_differ() {
        assert_eq!(part_names("a b".as_ref()), ("a b.part".into(), "a b.part.journal".into()));
        let mut names = Vec::new();
        let umlauts = "ä".repeat(127);
        for name in ["x".repeat(255), "x".repeat(254), umlauts, "x".repeat(243), "x".repeat(242)] {
            let (part, journal) = part_names(name.as_ref());
            assert!(journal.len() <= 255 && part.to_str().is_some(), "{part:?}");
            names.push(part);
            let place = DestPath::of(&std::env::temp_dir().join(name)).expect("a place");
            let (part, journal) = place.part_names(Some(u64::MAX));
            assert!(journal.len() <= 255 && part.to_str().is_some(), "{part:?}");
            assert!(part.as_bytes().ends_with(b".18446744073709551615.part"), "{part:?}");
        }
        assert!(names[4].as_bytes().starts_with(&[b'x'; 242]));
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
        let (part, journal) = part_names(OsStr::from_bytes(&[0xff; 255]));
        assert!(journal.len() == 255 && part.len() == 247);
    }

    #[test]
    fn nothing_leaves_its_directory() {
        let dir = tempfile::tempdir().expect("a directory");
        let outside = tempfile::tempdir().expect("a directory");
        std::os::unix::fs::symlink(outside.path(), dir.path().join("link")).expect("a link");
        std::fs::write(dir.path().join("file"), b"").expect("a file");
        let root = Directory::create(dir.path()).expect("a directory");
        for path in [&["link", "x"][..], &["file", "x"]] {
            let failure = root.place(path.iter().map(|c| c.as_bytes())).expect_err("not a directory");
            assert_eq!(failure.kind(), ErrorKind::Target);
        }
        for path in [&["..", "x"][..], &["a", ".."], &[""], &[], &["a/b"], &["/"]] {
            root.place(path.iter().map(|c| c.as_bytes())).expect_err("no path");
        }
        for path in [&[".anabranch-part.x"][..], &["a", ".Anabranch-PART."], &[".anabranch-part.x", "x"]] {
            let failure = root.place(path.iter().map(|c| c.as_bytes())).expect_err("reserved");
            assert!(failure.to_string().contains("refused"), "{failure}");
        }
        let place = root.place([&b"a"[..], b"b", b"c"]).expect("a place");
        assert_eq!(place.path(), dir.path().join("a/b/c"));
        assert!(dir.path().join("a/b").is_dir());
        assert_eq!(std::fs::read_dir(outside.path()).expect("a directory").count(), 0);
    }

    #[test]
    fn parts_in_a_directory_are_never_its_files() {
        let dir = tempfile::tempdir().expect("a directory");
        let root = Directory::create(dir.path()).expect("a directory");
        let mut names = std::collections::BTreeSet::new();
        let long = "x".repeat(255);
        for name in ["x", "x.part", "x.part.journal", "x.journal", ".anabranch-part", &long] {
            let (part, journal) = root.place([name.as_bytes()]).expect("a place").part_names(None);
            for name in [part, journal] {
                root.place([name.as_bytes()]).expect_err("reserved");
                assert!(names.insert(name));
            }
        }
    }

    #[test]
    fn impossible_places() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("file"), b"").expect("a file");
        for path in ["none/x", "file/x", "..", "none/"] {
            assert_eq!(DestPath::of(&dir.path().join(path)).expect_err(path).kind(), ErrorKind::Target);
        }
    }
}
