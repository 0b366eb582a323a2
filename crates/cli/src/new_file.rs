//! Creates files that people then edit, and never overwrites one.

#[cfg(any(feature = "lab", feature = "network"))]
use std::fs::OpenOptions;
use std::io;
#[cfg(any(feature = "lab", feature = "network"))]
use std::io::Write as _;
#[cfg(all(unix, feature = "network"))]
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use crate::exit::Failure;
#[cfg(any(feature = "lab", feature = "network"))]
use crate::exit::Outcome;
use crate::names::show;

/// Writes a new file.
///
/// # Errors
/// 6 if the file exists already, or cannot be written.
#[cfg(any(feature = "lab", feature = "network"))]
pub(crate) fn create(path: &Path, text: &str) -> Outcome {
    let file = OpenOptions::new().write(true).create_new(true).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|e| failed(path, &e))
}

/// Writes a new file that no other user may read.
///
/// # Errors
/// The errors of [`create`].
#[cfg(feature = "network")]
pub(crate) fn create_secret(path: &Path, text: &str) -> Outcome {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    options.mode(0o600);
    let file = options.write(true).create_new(true).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|e| failed(path, &e))
}

/// Makes the error for a file that could not be written.
pub(crate) fn failed(path: &Path, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::AlreadyExists => Failure::target(format!("{} exists already", show(path))).at(path),
        _ => Failure::target(format!("cannot write {}: {error}", show(path))).at(path),
    }
}
