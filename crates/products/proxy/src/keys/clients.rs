//! The clients that a server knows: a TOML file.
//!
//! ```toml
//! [[client]]
//! name = "laptop"
//! key = "ed25519:11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"
//! ```

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::keys::key_pair::PublicKey;

/// Characters of a client's name.
const NAME_MAX: usize = 64;

/// Names and keys of clients: each of both once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clients {
    names: BTreeMap<PublicKey, String>,
}

/// What is wrong with a list of clients.
#[derive(Debug, thiserror::Error)]
pub enum ClientsError {
    /// It cannot be read or written.
    #[error("the list of clients {0}: {1}")]
    Io(PathBuf, io::Error),
    /// It is no such list; the line and column are in the message.
    #[error("the list of clients: {0}")]
    Form(String),
    /// A name that has other characters, or too many.
    #[error("`{0}` is no name of a client: 1 to {NAME_MAX} letters, digits, `.`, `_`, `-`")]
    Name(String),
    /// A name that two have.
    #[error("two clients have the name `{0}`")]
    NameTaken(String),
    /// A key that is none, or that two have.
    #[error("the key of `{0}` is no public key, or another client's too")]
    Key(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default)]
    client: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    key: String,
}

impl Clients {
    /// Reads the text of a list.
    ///
    /// # Errors
    /// See [`ClientsError`].
    pub fn parse(text: &str) -> Result<Self, ClientsError> {
        let document: Document =
            toml::from_str(text).map_err(|e| ClientsError::Form(e.to_string().trim_end().to_owned()))?;
        let mut clients = Self::default();
        for Entry { name, key } in document.client {
            let key = key.parse().map_err(|_| ClientsError::Key(name.clone()))?;
            clients.insert(name, key)?;
        }
        Ok(clients)
    }

    /// Reads a file. One that is not there has no clients.
    ///
    /// # Errors
    /// See [`ClientsError`].
    pub fn load(path: &Path) -> Result<Self, ClientsError> {
        match fs::read_to_string(path) {
            Ok(text) => Self::parse(&text),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(e) => Err(ClientsError::Io(path.to_owned(), e)),
        }
    }

    /// Appends a client to a file, which is made if it is not there; what is in it stays as it is.
    ///
    /// # Errors
    /// See [`ClientsError`]; the name is taken already.
    pub fn append(path: &Path, name: &str, key: PublicKey) -> Result<(), ClientsError> {
        let mut clients = Self::load(path)?;
        clients.insert(name.to_owned(), key)?;
        let failed = |e| ClientsError::Io(path.to_owned(), e);
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
        let entry = format!("\n[[client]]\nname = \"{name}\"\nkey = \"{key}\"\n");
        // One write, so that two that append at once do not mix their lines.
        file.and_then(|mut file| file.write_all(entry.as_bytes())).map_err(failed)
    }

    /// The name of the client that has this key.
    #[must_use]
    pub fn name(&self, key: &PublicKey) -> Option<&str> {
        self.names.get(key).map(String::as_str)
    }

    /// Names and keys, in the order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &PublicKey)> {
        self.names.iter().map(|(key, name)| (name.as_str(), key))
    }

    fn insert(&mut self, name: String, key: PublicKey) -> Result<(), ClientsError> {
        let is_name = (1..=NAME_MAX).contains(&name.len())
            && name.bytes().all(|c| c.is_ascii_alphanumeric() || b"._-".contains(&c));
        if !is_name {
            return Err(ClientsError::Name(name));
        }
        if self.names.values().any(|known| *known == name) {
            return Err(ClientsError::NameTaken(name));
        }
        if self.names.contains_key(&key) {
            return Err(ClientsError::Key(name));
        }
        self.names.insert(key, name);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::KeyPair;

    #[test]
    fn clients_are_appended_and_found_and_remarks_stay() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("clients.toml");
        assert_eq!(Clients::load(&path).unwrap(), Clients::default());
        let keys = [(); 3].map(|()| KeyPair::generate().unwrap().public());
        fs::write(&path, "# mine").unwrap();
        Clients::append(&path, "laptop", keys[0]).unwrap();
        Clients::append(&path, "van-2.home", keys[1]).unwrap();
        let clients = Clients::load(&path).unwrap();
        assert_eq!(clients.name(&keys[0]), Some("laptop"));
        assert_eq!(clients.name(&keys[1]), Some("van-2.home"));
        assert_eq!(clients.name(&keys[2]), None);
        assert_eq!(clients.iter().count(), 2);
        assert!(fs::read_to_string(&path).unwrap().starts_with("# mine\n"));
        let refused = |name: &str, key| Clients::append(&path, name, key).unwrap_err().to_string();
        assert!(refused("laptop", keys[2]).contains("two clients have the name"));
        assert!(refused("other", keys[0]).contains("another client's"));
        assert!(refused("a\"b", keys[2]).contains("no name"));
        assert!(refused("", keys[2]).contains("no name"));
        assert_eq!(Clients::load(&path).unwrap(), clients);
    }

    #[test]
    fn what_is_wrong_is_said() {
        let error = |text: &str| Clients::parse(text).unwrap_err().to_string();
        assert!(error("[[client]]\nname = \"a\"\n").contains("key"));
        assert!(error("[[client]]\nname = \"a\"\nkey = \"x\"").contains("no public key"));
        assert!(error("[[clients]]\n").contains("line 1"), "{}", error("[[clients]]\n"));
    }
}
