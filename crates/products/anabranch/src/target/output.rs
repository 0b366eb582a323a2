//! The output path that a caller chose, and the place that it means.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use anabranch_mmtp::ContentId;

use super::dest_path::{DestPath, Directory, failure};
use crate::filenames;
use crate::{Error, Result};

/// The output path that a caller chose for a content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Output {
    /// The content's own name in the current directory.
    #[default]
    Own,
    /// Exactly this path.
    Path(PathBuf),
    /// The content's own name in this directory.
    Inside(PathBuf),
    /// A path as on a command line. The content goes inside it, under its own name, if the path ends in a
    /// slash, or if the content is a file and the path is a directory. Otherwise this is the path of the
    /// content itself.
    Either(PathBuf),
    /// This name in this directory.
    Called(PathBuf, PathBuf),
}

impl Output {
    /// Whether the path depends on the content's own name.
    pub(crate) fn needs_name(&self, is_directory: bool) -> bool {
        match self {
            Self::Own | Self::Inside(_) => true,
            Self::Path(_) | Self::Called(..) => false,
            Self::Either(path) => ends_in_slash(path) || (!is_directory && path.is_dir()),
        }
    }

    /// Returns the path of a file that the caller calls `name`, in the directory of this output.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) if that is no file name.
    pub(crate) fn called(&self, name: &str) -> Result<Self> {
        let name = filenames::component(name.as_bytes())
            .map_err(|why| Error::usage(format!("the name {name:?} for a file: {why}")))?;
        Ok(Self::Called(self.outer().to_owned(), name.into()))
    }

    /// Returns the path for a file whose source calls it `name`. Without a name, the beginning of the
    /// content's root hash is used.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) if the name is needed and is not a file name.
    pub(crate) fn file_path(&self, name: Option<&[u8]>, id: &ContentId) -> Result<PathBuf> {
        self.path(false, name, id)
    }

    /// Returns the path for a directory whose source calls it `name`. A given path is the directory itself,
    /// whether it exists or not, so that a repeated request resumes the same directory.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) if the name is needed and is not a file name.
    pub(crate) fn directory_path(&self, name: Option<&[u8]>, id: &ContentId) -> Result<PathBuf> {
        self.path(true, name, id)
    }

    /// Returns the place of a file at `path`, which [`file_path`](Self::file_path) has returned. The
    /// directory around it is made if the caller marked it as a directory: by [`Inside`](Self::Inside), or by
    /// a slash at the end of the path.
    ///
    /// # Errors
    /// [`ErrorKind::Target`](crate::ErrorKind::Target) if the directory cannot be made or opened.
    pub(crate) fn place(&self, path: &Path) -> Result<DestPath> {
        self.make_outer()?;
        DestPath::of(path)
    }

    /// Opens or makes the directory at `path`, which [`directory_path`](Self::directory_path) has returned.
    ///
    /// # Errors
    /// [`ErrorKind::Target`](crate::ErrorKind::Target) if the directory cannot be made or opened.
    pub(crate) fn directory(&self, path: &Path) -> Result<Directory> {
        self.make_outer()?;
        Directory::create(path)
    }

    fn make_outer(&self) -> Result<()> {
        let directory = match self {
            Self::Inside(directory) | Self::Called(directory, _) if !directory.as_os_str().is_empty() => {
                Some(directory)
            }
            Self::Either(directory) if ends_in_slash(directory) => Some(directory),
            Self::Own | Self::Path(_) | Self::Inside(_) | Self::Either(_) | Self::Called(..) => None,
        };
        if let Some(directory) = directory {
            std::fs::create_dir_all(directory).map_err(|e| failure("make the directory", directory, e))?;
        }
        Ok(())
    }

    /// Returns the directory in which the file will be created, as far as it can be told before the file's
    /// name is known.
    pub(crate) fn outer(&self) -> &Path {
        match self {
            Self::Own => Path::new(""),
            Self::Inside(path) | Self::Called(path, _) => path,
            Self::Either(path) if self.needs_name(false) => path,
            Self::Path(path) | Self::Either(path) => path.parent().unwrap_or(path),
        }
    }

    fn path(&self, is_directory: bool, name: Option<&[u8]>, id: &ContentId) -> Result<PathBuf> {
        let outer = match self {
            Self::Own => Path::new(""),
            Self::Path(path) => return Ok(path.clone()),
            Self::Called(directory, name) => return Ok(directory.join(name)),
            Self::Either(path) if !self.needs_name(is_directory) => return Ok(path.clone()),
            Self::Inside(path) | Self::Either(path) => path,
        };
        let own = match name {
            Some(name) => filenames::component(name)
                .map_err(|why| Error::usage(format!("{why}: choose one with `to_file`")))?,
            None => {
                let id = id.to_string();
                OsString::from(id.trim_start_matches("b3:").chars().take(16).collect::<String>())
            }
        };
        Ok(outer.join(own))
    }
}

fn ends_in_slash(path: &Path) -> bool {
    path.as_os_str().as_bytes().ends_with(b"/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn destinations() {
        let id = ContentId::of(b"x");
        let dir = tempfile::tempdir().expect("a directory");
        let either = |path: &Path| Output::Either(path.to_owned());
        let to = |output: Output, name: Option<&[u8]>| output.file_path(name, &id);
        assert_eq!(to(Output::Own, Some(b"film")).expect("a name"), Path::new("film"));
        assert_eq!(to(either(dir.path()), Some(b"film")).expect("a name"), dir.path().join("film"));
        assert_eq!(to(either(Path::new("other")), Some(b"..")).expect("a name"), Path::new("other"));
        assert_eq!(to(either(Path::new("none/")), Some(b"f")).expect("a name"), Path::new("none/f"));
        assert_eq!(to(Output::Path(dir.path().into()), Some(b"f")).expect("a name"), dir.path());
        assert_eq!(to(Output::Inside("d".into()), Some(b"f")).expect("a name"), Path::new("d/f"));
        assert_eq!(to(Output::Own, None).expect("a name").as_os_str().len(), 16);
        let new = dir.path().join("new/er/");
        assert!(either(&dir.path().join("none")).place(&dir.path().join("none/f")).is_err(), "no slash");
        assert!(either(&new).place(&new.join("f")).is_ok() && new.is_dir());
        let new = dir.path().join("newer/");
        assert!(either(&new).directory(&new.join("album")).is_ok() && new.join("album").is_dir());
        let to_dir = |output: &Path| either(output).directory_path(Some(b"album"), &id);
        assert_eq!(to_dir(dir.path()).expect("a name"), dir.path());
        assert_eq!(to_dir(Path::new("none/")).expect("a name"), Path::new("none/album"));
        for bad in [&b".."[..], b"../x", b"/etc/passwd", b""] {
            assert_eq!(to(Output::Own, Some(bad)).expect_err("refused").kind(), ErrorKind::Usage);
        }
    }
}
