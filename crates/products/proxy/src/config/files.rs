//! Settings that have files of their own: keys and users.

use std::path::{Path, PathBuf};

use anabranch_net::private_file::{self, Access, PrivateDir};

use crate::config::settings::ConfigError;
use crate::config::value::{Item as _, User};
use crate::keys::KeyPair;

/// The most bytes of a file of users or of a pairing.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Reads a text file that only its owner may read.
///
/// # Errors
/// If the file cannot be read, if others can read it, or if it is not UTF-8.
pub(super) fn read_secret(path: &Path) -> Result<String, ConfigError> {
    let wrong = |what: String| ConfigError { file: Some(path.to_owned()), ..ConfigError::new(what) };
    let bytes =
        private_file::read_secret(path, FILE_BYTES_MAX).map_err(|e| wrong(format!("cannot be read: {e}")))?;
    String::from_utf8(bytes).map_err(|e| wrong(format!("cannot be read: {e}")))
}

/// Reads a file of users with one `NAME:PASSWORD` per line. Empty lines and lines that begin with `#` are
/// skipped.
///
/// # Errors
/// If the file cannot be read, if others can read it, or if a line is not `NAME:PASSWORD`.
pub fn read_users(path: &Path) -> Result<Vec<User>, ConfigError> {
    let text = read_secret(path)?;
    let mut users = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |what| ConfigError { file: Some(path.to_owned()), ..ConfigError::at(number + 1, what) };
        users.push(User::read_one(line).map_err(wrong)?);
    }
    Ok(users)
}

/// Makes the directory in which a role keeps its secrets, unless it exists.
///
/// # Errors
/// If the directory cannot be made, if it belongs to another user, or if others can write to it.
pub fn state_directory(dir: &Path) -> Result<(), ConfigError> {
    let made = PrivateDir::make(dir, Access::Secret).map(drop);
    made.map_err(|e| ConfigError::new(format!("the state directory {}: {e}", dir.display())))
}

/// Returns the server's key and the path of the list of its clients. Creates the directory and the key if
/// they do not exist.
///
/// # Errors
/// If the directory cannot be made, or the key cannot be read or made.
pub fn state(dir: &Path) -> Result<(KeyPair, PathBuf), ConfigError> {
    state_directory(dir)?;
    let pair = KeyPair::load_or_create(&dir.join("proxy-server.key"));
    let (pair, _) = pair.map_err(|e| ConfigError::new(e.to_string()))?;
    Ok((pair, clients_file(dir)))
}

/// The list of the clients of the server that keeps its state in `dir`.
#[must_use]
pub fn clients_file(dir: &Path) -> PathBuf {
    dir.join("proxy-clients.toml")
}
