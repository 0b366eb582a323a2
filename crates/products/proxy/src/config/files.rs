//! What settings have in files of their own: keys, users.

use std::path::{Path, PathBuf};

use anabranch_net::private_file::{self, Access, PrivateDir};

use crate::config::settings::ConfigError;
use crate::config::value::{Item as _, User};
use crate::keys::KeyPair;

/// The longest file of users or of a pair, bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Reads a file that only its user may read.
///
/// # Errors
/// It cannot be read, others can read it, or it is no text.
pub(super) fn read_secret(path: &Path) -> Result<String, ConfigError> {
    let wrong = |what: String| ConfigError { file: Some(path.to_owned()), ..ConfigError::new(what) };
    let bytes =
        private_file::read_secret(path, FILE_BYTES_MAX).map_err(|e| wrong(format!("cannot be read: {e}")))?;
    String::from_utf8(bytes).map_err(|e| wrong(format!("cannot be read: {e}")))
}

/// Reads a file of users: `NAME:PASSWORD`, one a line; empty lines and those with `#` in front are none.
///
/// # Errors
/// It cannot be read, others can read it, or a line is no user.
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

/// Makes the directory where a role keeps what is secret, if there is none.
///
/// # Errors
/// It cannot be made; it is another user's, or others can write it.
pub fn state_directory(dir: &Path) -> Result<(), ConfigError> {
    let made = PrivateDir::make(dir, Access::Secret).map(drop);
    made.map_err(|e| ConfigError::new(format!("the state directory {}: {e}", dir.display())))
}

/// What a server keeps: its key, which is made if there is none, and where the list of its clients is.
///
/// # Errors
/// The directory cannot be made, or the key cannot be read or made.
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
