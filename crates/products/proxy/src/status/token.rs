//! The secret of the status page: who knows it may look.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use anabranch_net::private_file::{self, Access};
use data_encoding::HEXLOWER;
use ring::rand::{SecureRandom as _, SystemRandom};

use crate::constant_time::same;

/// 128 bits: nobody guesses them.
const TOKEN_BYTES: usize = 16;
/// A file with a token is a line.
const FILE_BYTES_MAX: u64 = 1024;

/// A random secret, written with hexadecimal digits.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

/// What keeps a token from being used.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// Its file cannot be read or made; others can read it, or write its directory.
    #[error("the token file {0}: {1}")]
    Io(PathBuf, io::Error),
    /// It has something else in it.
    #[error("the token file {0} has no token of 32 hexadecimal digits: delete it, and one is made")]
    NoToken(PathBuf),
    /// The system has no random numbers.
    #[error("the system has no random numbers")]
    NoRandomness,
}

/// The secret stays in its file and in the address that is printed.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(hidden)")
    }
}

impl Token {
    /// A new one.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn generate() -> Result<Self, TokenError> {
        let mut bytes = [0; TOKEN_BYTES];
        SystemRandom::new().fill(&mut bytes).map_err(|_| TokenError::NoRandomness)?;
        Ok(Self(HEXLOWER.encode(&bytes)))
    }

    /// Reads the token of a file, or makes one if there is no file: a monitor that was told of it finds the
    /// same after a restart.
    ///
    /// # Errors
    /// See [`TokenError`].
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
        // One that was removed a moment ago has no token either.
        let text = String::from_utf8(read.unwrap_or_default()).unwrap_or_default();
        let text = text.trim_end();
        let is_token = HEXLOWER.decode(text.as_bytes()).is_ok_and(|bytes| bytes.len() == TOKEN_BYTES);
        is_token.then(|| Self(text.to_owned())).ok_or_else(|| TokenError::NoToken(path.to_owned()))
    }

    /// It as text, for whoever is to know it.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether this is it. The time that this takes says nothing of where they differ.
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
