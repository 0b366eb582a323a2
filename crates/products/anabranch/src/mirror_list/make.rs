//! The settings of a caller who makes a list of mirrors, and the functions that write the list to its place.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anabranch_mirror::metalink::{Mirror, PIECES_MAX, Pieces};
use anabranch_mirror::url::{Url, UrlError};
use anabranch_mmtp::id::{BLOCK_BYTES, LENGTH_MAX};

use super::listed::MirrorList;
use crate::filenames::show;
use crate::hashing::HashJob;
use crate::secret::secret;
use crate::{Control, Error, ErrorKind, Event, Result, Stop};

/// The default length of a piece in bytes. It is larger if the file is so long that there would be too many
/// pieces.
const PIECE_BYTES: u64 = 1 << 20;
/// The largest number of piece hashes that are written: they make a Metalink of 11 MB.
const PIECES_MADE_MAX: u64 = PIECES_MAX as u64 / 2;

/// Makes a list of mirrors; see [`MirrorList::make`].
#[derive(Clone, Debug)]
pub struct MakeMirrorList {
    pub(super) path: PathBuf,
    pub(super) urls: Vec<Url>,
    pub(super) directory: Option<PathBuf>,
    pub(super) piece_bytes: Option<u64>,
    pub(super) overwrite: bool,
    stop: Option<Stop>,
}

/// The list that was made.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MadeMirrorList {
    /// The path of the Metalink.
    pub metalink: PathBuf,
    /// The path of the leaf list. A directory has none, and neither has a file that is too long for one.
    pub leaf_list: Option<PathBuf>,
    /// The content of the Metalink: one file, or all files of a directory.
    pub list: MirrorList,
    /// Whether the list is of a directory.
    pub of_directory: bool,
    /// The length of all its files together, bytes.
    pub bytes: u64,
}

impl MirrorList {
    /// Prepares the list of a file or of a directory; [`MakeMirrorList::run`] makes it.
    #[must_use]
    pub fn make(path: impl Into<PathBuf>) -> MakeMirrorList {
        MakeMirrorList::new(path.into())
    }
}

impl MakeMirrorList {
    pub(super) const fn new(path: PathBuf) -> Self {
        Self { path, urls: Vec::new(), directory: None, piece_bytes: None, overwrite: false, stop: None }
    }

    /// Adds a location of the file or the directory, the best first: a URL of http or https. For a file, a
    /// URL that ends in a slash names the directory that contains it. For a directory, the URL names the
    /// directory itself.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) if it is no such URL, or if it has a user name or a
    /// password, which would be published.
    pub fn url(mut self, url: &str) -> Result<Self> {
        self.urls.push(parse_url(url).map_err(|why| Error::usage(format!("{url}: {why}")))?);
        Ok(self)
    }

    /// Writes into this directory, instead of the one that contains the file or the directory.
    #[must_use]
    pub fn output(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = Some(directory.into());
        self
    }

    /// Describes pieces of this number of bytes, a multiple of 16 KiB. The default is 1 MiB, and more for a
    /// file of more than 128 GiB.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) if it is not a positive multiple, or is longer than any
    /// file.
    pub fn piece_bytes(mut self, bytes: u64) -> Result<Self> {
        self.piece_bytes = Some(check_piece_bytes(bytes).map_err(Error::usage)?);
        Ok(self)
    }

    /// Sets whether to replace the list that an earlier run has written.
    #[must_use]
    pub const fn overwrite(mut self, overwrite: bool) -> Self {
        self.overwrite = overwrite;
        self
    }

    /// Stops hashing when `stop` is used; nothing is written then.
    #[must_use]
    pub fn stopped_by(mut self, stop: &Stop) -> Self {
        self.stop = Some(stop.clone());
        self
    }

    /// Does `work`, which hashes, in a thread, and reports the progress to `listener`.
    pub(super) fn watch<T: Send>(
        &self,
        job: &HashJob,
        listener: &mut dyn FnMut(Event) -> Control,
        work: impl FnOnce() -> T + Send,
    ) -> Result<T> {
        let stop = self.stop.clone().map_or_else(Stop::new, Ok)?;
        let result = job.watch(&stop, &mut |progress| listener(Event::Hashing(progress)), work)?;
        if stop.is_stopped() || job.is_stopped() {
            return Err(Error::interrupted("interrupted while hashing; nothing was written"));
        }
        Ok(result)
    }
}

/// Parses the URL of a mirror that is to be published.
///
/// # Errors
/// Returns what is wrong with the text: it is no URL of http or https, or has a user name or a password.
pub fn parse_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|e| e.to_string())?;
    match url.has_credentials() {
        true => Err("the user name and password in it would be published".into()),
        false => Ok(url),
    }
}

/// Checks that a piece may have this number of bytes, and returns the number.
///
/// # Errors
/// Returns a text that says which numbers are expected.
pub fn check_piece_bytes(bytes: u64) -> Result<u64, String> {
    match bytes {
        0 => Err("expected 16Ki or more".into()),
        n if n % BLOCK_BYTES as u64 != 0 => Err("expected a multiple of 16Ki, such as 256Ki or 1Mi".into()),
        n if n > LENGTH_MAX => Err("longer than any file".into()),
        n => Ok(n),
    }
}

/// Returns the mirrors in the given order, each once. `locate` returns the URL of the file on a mirror.
pub(super) fn mirrors(urls: &[Url], locate: impl Fn(&Url) -> Result<Url, UrlError>) -> Result<Vec<Mirror>> {
    let mut mirrors: Vec<Mirror> = Vec::new();
    for url in urls {
        let url = locate(url).map_err(|e| Error::usage(format!("{url}: {e}")).at(url).because(e))?;
        if mirrors.iter().all(|mirror| mirror.url != url) {
            mirrors.push(Mirror { url, priority: mirrors.len() as u32 + 1, location: None });
        }
    }
    Ok(mirrors)
}

/// Returns the length of a piece, in bytes, for a file of `length` bytes.
pub(super) fn piece_bytes(asked: Option<u64>, length: u64) -> Result<u64> {
    let fits = |bytes: u64| Pieces::count(length, bytes) <= PIECES_MADE_MAX;
    let mut fitting = PIECE_BYTES;
    while !fits(fitting) {
        fitting *= 2;
    }
    match asked {
        Some(bytes) if !fits(bytes) => Err(Error::usage(format!(
            "`piece_bytes`: {} pieces are too many for a Metalink, try {}Mi",
            Pieces::count(length, bytes),
            fitting >> 20
        ))),
        Some(bytes) => Ok(bytes),
        None => Ok(fitting),
    }
}

/// Writes a file and renames it to `path` only once it is complete.
pub(super) fn write(path: &Path, contents: &[u8], force: bool) -> Result<()> {
    let failed = |e: io::Error| ErrorKind::Target.cannot("write", path, e);
    let unique = u64::from_le_bytes(*secret()?.first_chunk().expect("32 bytes are more than 8"));
    let temporary = path.with_file_name(format!(".anabranch-mirror-list.{unique:016x}"));
    let written = File::create_new(&temporary).and_then(|mut file| {
        file.write_all(contents)?;
        file.sync_all()
    });
    let placed = written.and_then(|()| place(&temporary, path, force));
    if let Err(e) = placed {
        let _ = std::fs::remove_file(&temporary);
        return Err(if e.kind() == io::ErrorKind::AlreadyExists { exists(path) } else { failed(e) });
    }
    Ok(())
}

/// Renames a file. Without `force`, it replaces no other file, not even one that appears at this very moment.
fn place(from: &Path, to: &Path, force: bool) -> io::Result<()> {
    if force {
        return std::fs::rename(from, to);
    }
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        use nix::errno::Errno;
        use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
        match renameat2(AT_FDCWD, from, AT_FDCWD, to, RenameFlags::RENAME_NOREPLACE) {
            // The file system does not know the flag.
            Err(Errno::EINVAL | Errno::ENOSYS) => {}
            other => return Ok(other?),
        }
    }
    std::fs::hard_link(from, to)?;
    std::fs::remove_file(from)
}

pub(super) fn exists(path: &Path) -> Error {
    Error::target(format!("{} exists already: remove it, or let `overwrite` replace it", show(path))).at(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn sizes_of_pieces() {
        assert_eq!(check_piece_bytes(16_384), Ok(16_384));
        for bad in [0, 1_000, 1_000_000, 15 << 10, LENGTH_MAX + (16 << 10)] {
            assert!(check_piece_bytes(bad).is_err(), "{bad}");
        }
        assert_eq!(piece_bytes(None, 0).unwrap(), PIECE_BYTES);
        assert_eq!(piece_bytes(None, PIECES_MADE_MAX << 20).unwrap(), PIECE_BYTES);
        assert_eq!(piece_bytes(None, (PIECES_MADE_MAX << 20) + 1).unwrap(), 2 * PIECE_BYTES);
        assert_eq!(piece_bytes(Some(16_384), 1 << 30).unwrap(), 16_384);
        let failure = piece_bytes(Some(16_384), 1 << 40).unwrap_err();
        assert!((failure.kind() == ErrorKind::Usage && failure.message().contains("try 8Mi")), "{failure}");
        assert!(piece_bytes(None, LENGTH_MAX).is_ok());
    }

    #[test]
    fn a_file_in_the_way_stays() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("x");
        write(&path, b"one", false).expect("it is written");
        let there = write(&path, b"two", false).expect_err("it is there");
        assert!(there.kind() == ErrorKind::Target, "{there}");
        assert_eq!(std::fs::read(&path).expect("a file"), b"one");
        write(&path, b"three", true).expect("it is written");
        assert_eq!(std::fs::read(&path).expect("a file"), b"three");
        assert_eq!(std::fs::read_dir(dir.path()).expect("a directory").count(), 1);
        let nowhere = dir.path().join("none/x");
        let nowhere = write(&nowhere, b"x", true).expect_err("no directory");
        assert!(nowhere.kind() == ErrorKind::Target, "{nowhere}");
    }
}
