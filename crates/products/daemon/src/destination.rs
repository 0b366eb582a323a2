//! Where a download may go: only below the daemon's directory, unless the user allows any place.

use std::io;
use std::path::{Component, Path, PathBuf};

use crate::job::Options;

/// The directory that downloads may be in.
#[derive(Clone, Debug)]
pub struct Base {
    /// The directory, without symbolic links.
    path: PathBuf,
    /// Whether requests may name any other directory.
    is_any_allowed: bool,
}

/// Where a download goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// The directory.
    pub dir: PathBuf,
    /// The path of the file; `None` if the content has its own name.
    pub file: Option<PathBuf>,
}

impl Base {
    /// Takes the directory that downloads may be in.
    ///
    /// # Errors
    /// If it is no directory that can be opened.
    pub fn new(path: &Path, is_any_allowed: bool) -> io::Result<Self> {
        let path = path.canonicalize()?;
        if !path.is_dir() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(Self { path, is_any_allowed })
    }

    /// Returns the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns where a download with these options goes. Nothing is made yet.
    ///
    /// # Errors
    /// If it may not go there; a sentence.
    pub fn destination(&self, options: &Options) -> Result<Destination, String> {
        let place = self.named(options)?;
        if place.dir != self.path {
            self.check(&place.dir, "dir")?;
        }
        if let Some(file) = &place.file {
            self.check(file, "out")?;
        }
        Ok(place)
    }

    /// Returns where a download with these options goes as far as its options say, without a look at the
    /// disk: for answers about a job whose options were checked.
    ///
    /// # Errors
    /// If an option is no path; a sentence.
    pub fn named(&self, options: &Options) -> Result<Destination, String> {
        let dir = match options.get("dir").filter(|dir| !dir.is_empty()) {
            None => self.path.clone(),
            Some(dir) => self.path.join(plain("dir", Path::new(dir), true)?),
        };
        let file = match options.get("out").filter(|out| !out.is_empty()) {
            None => None,
            Some(out) if out.ends_with('/') => return Err("The option 'out' must be a file name.".into()),
            Some(out) => Some(dir.join(plain("out", Path::new(out), false)?)),
        };
        Ok(Destination { dir, file })
    }

    /// Checks that a path stays below the directory, also after symbolic links.
    fn check(&self, path: &Path, option: &str) -> Result<(), String> {
        if self.is_any_allowed {
            return Ok(());
        }
        let outside = || {
            Err(format!(
                "The option '{option}' leads out of {}, which takes --allow-any-dir.",
                self.path.display()
            ))
        };
        let Ok(below) = path.strip_prefix(&self.path) else { return outside() };
        let is_hidden = |part: Component<'_>| part.as_os_str().as_encoded_bytes().starts_with(b".");
        if below.components().any(is_hidden) {
            return Err(format!(
                "The option '{option}' names a hidden file or directory, which takes --allow-any-dir."
            ));
        }
        let existing = path.ancestors().find_map(|path| path.canonicalize().ok());
        match existing {
            Some(existing) if existing.starts_with(&self.path) => Ok(()),
            _ => outside(),
        }
    }
}

/// Returns a path without `.`, and with no `..`.
fn plain(option: &str, path: &Path, may_be_absolute: bool) -> Result<PathBuf, String> {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(part) => plain.push(part),
            Component::CurDir => {}
            Component::RootDir if may_be_absolute => plain.push("/"),
            Component::ParentDir => return Err(format!("The option '{option}' must not contain '..'.")),
            _ => return Err(format!("The option '{option}' must be relative to 'dir'.")),
        }
    }
    if !may_be_absolute && plain.as_os_str().is_empty() {
        return Err(format!("The option '{option}' must be a file name."));
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn nothing_leaves_the_directory() {
        let outer = tempfile::tempdir().expect("a directory");
        let path = outer.path().join("base");
        fs::create_dir_all(path.join("inside")).expect("made");
        symlink(outer.path(), path.join("link")).expect("made");
        let base = Base::new(&path, false).expect("a directory");
        let path = base.path().to_owned();
        let at = |base: &Base, dir: &str, out: &str| {
            let options = Options::from([("dir".into(), dir.into()), ("out".into(), out.into())]);
            base.destination(&options)
        };
        let inside = |dir: &str| path.join(dir).to_string_lossy().into_owned();
        let going = |dir: &str, file: Option<&str>| {
            Ok(Destination { dir: path.join(dir), file: file.map(|file| path.join(file)) })
        };
        assert_eq!(at(&base, "", ""), going("", None));
        assert_eq!(at(&base, &inside("new/er"), "a.iso"), going("new/er", Some("new/er/a.iso")));
        assert_eq!(at(&base, "./inside", "a/b.iso"), going("inside", Some("inside/a/b.iso")));
        for (dir, out, why) in [
            ("/etc", "", "leads out of"),
            ("..", "", "'..'"),
            (&*inside("link"), "", "leads out of"),
            (&*inside("link/new"), "", "leads out of"),
            (".ssh", "", "hidden"),
            ("", "../x", "'..'"),
            ("", "a/../../x", "'..'"),
            ("", "/etc/passwd", "relative"),
            ("", "link/x", "leads out of"),
            ("", ".bashrc", "hidden"),
            ("", ".", "file name"),
            ("", "a/", "file name"),
        ] {
            let refused = at(&base, dir, out).expect_err(out);
            assert!(refused.contains(why), "{dir} {out}: {refused}");
        }
        let any = Base::new(&path, true).expect("a directory");
        assert_eq!(at(&any, "/etc", "").expect("allowed").dir, Path::new("/etc"));
        assert!(at(&any, "/etc", "../x").is_err() && at(&any, "", "/etc/passwd").is_err());
        assert!(Base::new(&path.join("none"), false).is_err());
    }
}
