//! The secret of the status page. A request needs it to see the role's state.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use anabranch_net::private_file::{self, Access};
use data_encoding::HEXLOWER;
use ring::rand::{SecureRandom as _, SystemRandom};

use crate::constant_time::same;

/// The number of random bytes of a token: 128 bits cannot be guessed.
const TOKEN_BYTES: usize = 16;
/// The most bytes of a token's file, which has one line.
const FILE_BYTES_MAX: u64 = 1024;

/// A random secret, written with hexadecimal digits.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

/// The reason why a token cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read or made, others can read it, or others can write its directory.
    #[error("the token file {0}: {1}")]
    Io(PathBuf, io::Error),
    /// The file does not contain a token.
    #[error("the token file {0} has no token of 32 hexadecimal digits: delete it, and one is made")]
    NoToken(PathBuf),
    /// The system has no random numbers.
    #[error("the system has no random numbers")]
    NoRandomness,
}

/// Hides the secret, which is only in its file and in the printed address.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(hidden)")
    }
}

impl Token {
    /// Makes a new token.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn generate() -> Result<Self, TokenError> {
        let mut bytes = [0; TOKEN_BYTES];
        SystemRandom::new().fill(&mut bytes).map_err(|_| TokenError::NoRandomness)?;
        Ok(Self(HEXLOWER.encode(&bytes)))
    }

    /// Reads the token in a file, or makes one and the file if there is none. So a monitor can use the same
    /// token after a restart.
    ///
    /// # Errors
    /// If the file cannot be read or made, or if it holds no token; see [`TokenError`].
    pub fn load_or_create(path: &Path) -> Result<Self, TokenError> {
        let token = Self::generate()?;
        match private_file::create(path, Access::Secret, format!("{}\n", token.0).as_bytes()) {
            Ok(()) => Ok(token),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Self::load(path),
            Err(e) => Err(TokenError::Io(path.to_owned(), e)),
        }
    }

    fn load(path: &Path) -> Result<Self, TokenError> {
        let read = private_file::read(path, Access::Secret, FILE_BYTES_MAX)
            .map_err(|e| TokenError::Io(path.to_owned(), e))?;
        // A file that was removed a moment ago counts as one without a token.
        let text = String::from_utf8(read.unwrap_or_default()).unwrap_or_default();
        let text = text.trim_end();
        let is_token = HEXLOWER.decode(text.as_bytes()).is_ok_and(|bytes| bytes.len() == TOKEN_BYTES);
        is_token.then(|| Self(text.to_owned())).ok_or_else(|| TokenError::NoToken(path.to_owned()))
    }

    /// Returns the token as text.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether `other` is the token. The time does not depend on where they differ.
    #[must_use]
    pub fn is(&self, other: &str) -> bool {
        same(self.0.as_bytes(), other.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use super::*;

    #[test]
    fn a_token_is_made_once_for_its_owner() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let made = Token::load_or_create(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(Token::load_or_create(&path).unwrap(), made);
        assert!(made.is(made.reveal()) && !made.is("") && !made.is(&made.reveal()[1..]));
        assert!(!made.is(Token::generate().unwrap().reveal()));
        assert!(!format!("{made:?}").contains(made.reveal()));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(Token::load_or_create(&path).unwrap_err().to_string().contains("mode 644"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        for wrong in ["", "\n", "secret", &"g".repeat(32), &"a".repeat(33)] {
            fs::write(&path, wrong).unwrap();
            assert!(matches!(Token::load_or_create(&path), Err(TokenError::NoToken(_))), "{wrong:?}");
        }
        assert!(matches!(Token::load_or_create(&dir.path().join("no/token")), Err(TokenError::Io(..))));
    }
}
