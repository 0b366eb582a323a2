//! Files that a command makes for people to begin with, and that it never overwrites.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
#[cfg(all(unix, feature = "network"))]
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use crate::exit::{Failure, Outcome};
use crate::names::show;

/// Writes a file that is not there yet.
///
/// # Errors
/// 6 if it is, or cannot be written.
pub(crate) fn create(path: &Path, text: &str) -> Outcome {
    let file = OpenOptions::new().write(true).create_new(true).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|e| failed(path, &e))
}

/// The same of a file that nobody else may read.
///
/// # Errors
/// As [`create`].
#[cfg(feature = "network")]
pub(crate) fn create_secret(path: &Path, text: &str) -> Outcome {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    options.mode(0o600);
    let file = options.write(true).create_new(true).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|e| failed(path, &e))
}

/// Why a file was not written.
pub(crate) fn failed(path: &Path, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::AlreadyExists => Failure::target(format!("{} exists already", show(path))).at(path),
        _ => Failure::target(format!("cannot write {}: {error}", show(path))).at(path),
    }
}
