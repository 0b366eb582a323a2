//! A key pair in a file that only its owner can read: PKCS #8 in PEM (RFC 7468).

use std::io;
use std::path::{Path, PathBuf};

use anabranch_net::private_file::{self, Access};
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;

use crate::keys::key_pair::{KeyPair, NoRandomness};

/// The most bytes of a key file. A key takes a few lines.
const FILE_BYTES_MAX: u64 = 16 * 1024;

/// The reason why a key file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// The file cannot be read or made, others can read it, or others can write its directory.
    #[error("the key file {0}: {1}")]
    Io(PathBuf, io::Error),
    /// The file holds no Ed25519 key.
    #[error("the key file {0} has no Ed25519 key (PKCS #8, PEM)")]
    NoKey(PathBuf),
    /// The system gives no random numbers.
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
}

impl KeyPair {
    /// Reads the key pair in a file, or makes a pair and the file if there is none. Returns whether the pair
    /// was made. An existing file is never written.
    ///
    /// # Errors
    /// If the file cannot be read or made, or if it holds no Ed25519 key; see [`KeyFileError`].
    pub fn load_or_create(path: &Path) -> Result<(Self, bool), KeyFileError> {
        match Self::load(path) {
            Err(KeyFileError::Io(_, e)) if e.kind() == io::ErrorKind::NotFound => {}
            read => return read.map(|pair| (pair, false)),
        }
        let pair = Self::generate()?;
        let key = data_encoding::BASE64.encode(&pair.to_pkcs8());
        let text = format!("-----BEGIN PRIVATE KEY-----\n{key}\n-----END PRIVATE KEY-----\n");
        match private_file::create(path, Access::Secret, text.as_bytes()) {
            // Another process created the file first, so its key counts.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Self::load(path).map(|pair| (pair, false)),
            Err(e) => Err(KeyFileError::Io(path.to_owned(), e)),
            Ok(()) => Ok((pair, true)),
        }
    }

    /// Reads the key pair in a file.
    ///
    /// # Errors
    /// If the file cannot be read or holds no Ed25519 key; see [`KeyFileError`].
    pub fn load(path: &Path) -> Result<Self, KeyFileError> {
        let read = private_file::read(path, Access::Secret, FILE_BYTES_MAX)
            .and_then(|text| text.ok_or(io::ErrorKind::NotFound.into()));
        let text = read.map_err(|e| KeyFileError::Io(path.to_owned(), e))?;
        let der = PrivatePkcs8KeyDer::from_pem_slice(&text).ok();
        let pair = der.and_then(|der| Self::from_pkcs8(der.secret_pkcs8_der()));
        pair.ok_or_else(|| KeyFileError::NoKey(path.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use super::*;

    #[test]
    fn a_key_is_made_once_for_its_owner_and_never_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("server.key");
        let (made, is_new) = KeyPair::load_or_create(&path).unwrap();
        assert!(is_new);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing else is left");
        let (read, is_new) = KeyPair::load_or_create(&path).unwrap();
        assert_eq!((read.public(), is_new), (made.public(), false));

        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let error = KeyPair::load_or_create(&path).unwrap_err().to_string();
        assert!(error.contains("other users can read it (mode 640): chmod 600 "), "{error}");

        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, "no key").unwrap();
        assert!(matches!(KeyPair::load_or_create(&path), Err(KeyFileError::NoKey(_))));
        assert_eq!(fs::read(&path).unwrap(), b"no key", "it is not written");
        let nowhere = dir.path().join("none/server.key");
        assert!(matches!(KeyPair::load_or_create(&nowhere), Err(KeyFileError::Io(..))));
    }
}
