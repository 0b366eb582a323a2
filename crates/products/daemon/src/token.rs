//! The secret that a request must have.

use std::fmt;
use std::io;
use std::path::Path;

use anabranch_net::private_file::{self, Access};
use data_encoding::HEXLOWER;

/// The number of random bytes of a token that is made here: 128 bits cannot be guessed.
const TOKEN_BYTES: usize = 16;
/// The most bytes of a token's file, which has one line.
const FILE_BYTES_MAX: u64 = 1024;

/// The secret of the RPC: any text without white space.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

/// Hides the secret, which is only in its file.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(hidden)")
    }
}

impl Token {
    /// Takes a text as the secret; `None` if it is empty or has white space.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let is_token = !text.is_empty() && !text.chars().any(char::is_whitespace);
        is_token.then(|| Self(text.to_owned()))
    }

    /// Reads the secret in a file, or makes one and the file if there is none, so that it stays the same
    /// after a restart.
    ///
    /// # Errors
    /// If the file cannot be read or made, if other users can read it, or if it has no secret.
    pub fn load_or_create(path: &Path) -> io::Result<Self> {
        let mut bytes = [0; TOKEN_BYTES];
        #[expect(clippy::disallowed_methods, reason = "a secret must not be predictable")]
        getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        let made = Self(HEXLOWER.encode(&bytes));
        match private_file::create(path, Access::Secret, format!("{}\n", made.0).as_bytes()) {
            Ok(()) => Ok(made),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Self::load(path),
            Err(e) => Err(e),
        }
    }

    fn load(path: &Path) -> io::Result<Self> {
        let read = private_file::read(path, Access::Secret, FILE_BYTES_MAX)?;
        let text = String::from_utf8(read.unwrap_or_default()).unwrap_or_default();
        let wrong = || io::Error::other("it has no token: delete it, and one is made");
        Self::new(text.trim()).ok_or_else(wrong)
    }

    /// Returns the token as text.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether `other` is the token. The time does not depend on where they differ.
    #[must_use]
    pub fn is(&self, other: &str) -> bool {
        let (a, b) = (self.0.as_bytes(), other.as_bytes());
        a.len() == b.len() && a.iter().zip(b).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use super::*;

    #[test]
    fn a_token_is_made_once_for_its_owner() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("token");
        let made = Token::load_or_create(&path).expect("made");
        assert_eq!(fs::metadata(&path).expect("there").mode() & 0o777, 0o600);
        assert_eq!(Token::load_or_create(&path).expect("read"), made);
        assert!(made.is(made.reveal()) && !made.is("") && !made.is(&made.reveal()[1..]));
        assert!(!format!("{made:?}").contains(made.reveal()));
        fs::write(&path, "my secret\n").expect("written");
        assert!(Token::load_or_create(&path).is_err());
        fs::write(&path, "mine\n").expect("written");
        assert!(Token::load_or_create(&path).expect("read").is("mine"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("ours");
        assert!(Token::load_or_create(&path).expect_err("others can read it").to_string().contains("644"));
    }
}
