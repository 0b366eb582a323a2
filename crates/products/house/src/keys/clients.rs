//! The clients that a server knows, in a TOML file.
//!
//! ```toml
//! [[client]]
//! name = "laptop"
//! key = "ed25519:11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use anabranch_net::private_file::{self, Access, PrivateDir};
use serde::Deserialize;
use toml::Spanned;

use crate::keys::key_pair::PublicKey;

/// The most characters of a client's name.
const NAME_MAX: usize = 64;
/// The most bytes of a list, which is enough for some 10,000 clients.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The names and keys of clients. Each name and each key occurs once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clients {
    names: BTreeMap<PublicKey, String>,
}

/// An error in a list of clients.
#[derive(Debug, thiserror::Error)]
pub enum ClientsError {
    /// The list cannot be read or written, or others can write it or its directory.
    #[error("the list of clients {0}: {1}")]
    Io(PathBuf, io::Error),
    /// A line of the list is wrong.
    #[error("the list of clients{}, line {line}: {what}", named(.file.as_deref()))]
    Line {
        /// The list's file, if it has one.
        file: Option<PathBuf>,
        /// The number of the line, counted from 1.
        line: usize,
        /// The description of the error.
        what: String,
    },
    /// A client in the list has the new client's name.
    #[error("there is a client `{0}` already")]
    NameTaken(String),
    /// The client to remove is not in the list. The second field has the names that are.
    #[error("there is no client `{0}`: {known}", known = known(.1))]
    Unknown(String, Vec<String>),
    /// The client to remove is written in a form that this program does not write, so it does not edit it.
    #[error("the list of clients {0} is written in another way than `pair` does: delete `{1}` there by hand")]
    ByHand(PathBuf, String),
    /// The list cannot hold a new client's name or key.
    #[error("{0}")]
    Entry(EntryError),
}

fn known(names: &[String]) -> String {
    if names.is_empty() { "the list is empty".to_owned() } else { format!("there are {}", names.join(", ")) }
}

fn named(file: Option<&Path>) -> String {
    file.map_or_else(String::new, |file| format!(" {}", file.display()))
}

/// An error in a client of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryError {
    /// The name has invalid characters or is too long.
    Name(String),
    /// Two clients have this name.
    NameTaken(String),
    /// The key of the client with this name is invalid.
    NoKey(String),
    /// Two clients have the same key; these are their names.
    KeyTaken(String, String),
}

impl fmt::Display for EntryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => {
                write!(f, "`{name}` is no name of a client: 1 to {NAME_MAX} letters, digits, `.`, `_`, `-`")
            }
            Self::NameTaken(name) => write!(f, "two clients have the name `{name}`"),
            Self::NoKey(name) => write!(f, "the key of `{name}` is no public key"),
            Self::KeyTaken(name, other) => write!(f, "the key of `{name}` is that of `{other}`, too"),
        }
    }
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
    name: Spanned<String>,
    key: Spanned<String>,
}

impl Clients {
    /// Parses the text of a list. One error makes the whole list invalid: if two clients had the same name,
    /// the server would not know which of them to admit.
    ///
    /// # Errors
    /// [`ClientsError::Line`], if a line is wrong.
    pub fn parse(text: &str) -> Result<Self, ClientsError> {
        let wrong = |at: usize, what: String| {
            let line =
                text.as_bytes()[..at.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1;
            ClientsError::Line { file: None, line, what }
        };
        let document: Document = toml::from_str(text).map_err(|e| {
            wrong(e.span().map_or(0, |span| span.start), e.message().trim().replace('\n', "; "))
        })?;
        let mut clients = Self::default();
        for Entry { name, key } in document.client {
            let (name_at, key_at) = (name.span().start, key.span().start);
            let name = name.into_inner();
            let Ok(key) = key.get_ref().parse() else {
                return Err(wrong(key_at, EntryError::NoKey(name).to_string()));
            };
            clients.insert(name, key).map_err(|e| {
                let at = if matches!(e, EntryError::KeyTaken(..)) { key_at } else { name_at };
                wrong(at, e.to_string())
            })?;
        }
        Ok(clients)
    }

    /// Reads the list in a file. If there is no file, the list is empty.
    ///
    /// # Errors
    /// If the file cannot be read, if others can write it, or if a line is wrong.
    pub fn load(path: &Path) -> Result<Self, ClientsError> {
        Self::parse_file(path, &Self::read(path)?)
    }

    /// Returns the bytes of the file, or none if there is no file.
    ///
    /// # Errors
    /// If the file cannot be read, or if others can write it.
    pub fn read(path: &Path) -> Result<Vec<u8>, ClientsError> {
        let read = private_file::read(path, Access::Public, FILE_BYTES_MAX)
            .or_else(|e| if e.kind() == io::ErrorKind::NotFound { Ok(None) } else { Err(e) });
        Ok(read.map_err(|e| ClientsError::Io(path.to_owned(), e))?.unwrap_or_default())
    }

    /// Parses the bytes of the file at `path`.
    ///
    /// # Errors
    /// If a line is wrong.
    pub fn parse_file(path: &Path, bytes: &[u8]) -> Result<Self, ClientsError> {
        let no_text = |e| ClientsError::Io(path.to_owned(), io::Error::new(io::ErrorKind::InvalidData, e));
        Self::parse(str::from_utf8(bytes).map_err(no_text)?).map_err(|e| match e {
            ClientsError::Line { line, what, .. } => {
                ClientsError::Line { file: Some(path.to_owned()), line, what }
            }
            other => other,
        })
    }

    /// Appends a client to a file, which is created if it does not exist. The existing text is kept.
    /// Concurrent calls wait for each other, and an invalid list is not changed.
    ///
    /// # Errors
    /// If the file cannot be read or written, if its list is invalid, or if the name or the key is invalid or
    /// in use.
    pub fn append(path: &Path, name: &str, key: PublicKey) -> Result<(), ClientsError> {
        let failed = |e| ClientsError::Io(path.to_owned(), e);
        let (dir, file) = PrivateDir::around(path).map_err(failed)?;
        let _held = dir.lock().map_err(failed)?;
        let mut text = Self::read(path)?;
        Self::parse_file(path, &text)?.insert(name.to_owned(), key).map_err(|e| match e {
            EntryError::NameTaken(name) => ClientsError::NameTaken(name),
            other => ClientsError::Entry(other),
        })?;
        text.extend_from_slice(format!("\n[[client]]\nname = \"{name}\"\nkey = \"{key}\"\n").as_bytes());
        dir.replace(file, Access::Secret, &text).map_err(failed)
    }

    /// Removes a client from a file, under the lock that [`append`](Self::append) takes. The rest of the file
    /// stays as it is, including comments.
    ///
    /// # Errors
    /// See [`ClientsError`].
    pub fn remove(path: &Path, name: &str) -> Result<(), ClientsError> {
        let failed = |e| ClientsError::Io(path.to_owned(), e);
        let (dir, file) = PrivateDir::around(path).map_err(failed)?;
        let _held = dir.lock().map_err(failed)?;
        let bytes = Self::read(path)?;
        let clients = Self::parse_file(path, &bytes)?;
        let mut others = clients.clone();
        others.names.retain(|_, known| known != name);
        if others == clients {
            let mut known: Vec<String> = clients.names.into_values().collect();
            known.sort();
            return Err(ClientsError::Unknown(name.to_owned(), known));
        }
        let by_hand = || ClientsError::ByHand(path.to_owned(), name.to_owned());
        let text = String::from_utf8_lossy(&bytes);
        let rest = without(&text, name).ok_or_else(by_hand)?;
        // The cut text must have been this client, and nothing else.
        if Self::parse(&rest).ok().as_ref() != Some(&others) {
            return Err(by_hand());
        }
        dir.replace(file, Access::Secret, rest.as_bytes()).map_err(failed)
    }

    /// Returns the name of the client with this key.
    #[must_use]
    pub fn name(&self, key: &PublicKey) -> Option<&str> {
        self.names.get(key).map(String::as_str)
    }

    /// Returns names and keys, ordered by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &PublicKey)> {
        self.names.iter().map(|(key, name)| (name.as_str(), key))
    }

    fn insert(&mut self, name: String, key: PublicKey) -> Result<(), EntryError> {
        let is_name = (1..=NAME_MAX).contains(&name.len())
            && name.bytes().all(|c| c.is_ascii_alphanumeric() || b"._-".contains(&c));
        if !is_name {
            return Err(EntryError::Name(name));
        }
        if self.names.values().any(|known| *known == name) {
            return Err(EntryError::NameTaken(name));
        }
        if let Some(other) = self.names.get(&key) {
            return Err(EntryError::KeyTaken(name, other.clone()));
        }
        self.names.insert(key, name);
        Ok(())
    }
}

/// A list without the table of a client. Remarks before the next table belong to that one. `None` if the
/// client has no table of its own.
fn without(text: &str, name: &str) -> Option<String> {
    let document: Document = toml::from_str(text).ok()?;
    let entry = document.client.iter().find(|entry| entry.name.get_ref() == name)?;
    let lines = text.split_inclusive('\n').scan(0, |at, line| {
        let start = *at;
        *at += line.len();
        Some((start, line.trim()))
    });
    let lines: Vec<(usize, &str)> = lines.collect();
    let is_header = |(_, line): &&(usize, &str)| *line == "[[client]]";
    let start = lines.iter().filter(is_header).rfind(|(at, _)| *at <= entry.name.span().start)?.0;
    let next = lines.iter().filter(is_header).find(|(at, _)| *at > start).map_or(text.len(), |(at, _)| *at);
    let mut own = lines.iter().filter(|(at, _)| (start..next).contains(at));
    let last = own.rfind(|(_, line)| !line.is_empty() && !line.starts_with('#'))?.0;
    let end = lines.iter().map(|(at, _)| *at).find(|at| *at > last).unwrap_or(text.len());
    let before =
        text[..start].strip_suffix("\n\n").map_or(&text[..start], |before| &text[..before.len() + 1]);
    Some(format!("{before}{}", &text[end..]))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Barrier;

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
        assert!(refused("laptop", keys[2]).contains("there is a client `laptop` already"));
        assert!(refused("other", keys[0]).contains("that of `laptop`, too"));
        assert!(refused("a\"b", keys[2]).contains("no name"));
        assert!(refused("", keys[2]).contains("no name"));
        assert_eq!(Clients::load(&path).unwrap(), clients);
    }

    #[test]
    fn a_client_is_removed_and_the_rest_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("clients.toml");
        let keys = [(); 3].map(|()| KeyPair::generate().unwrap().public());
        fs::write(&path, "# mine\n").unwrap();
        for (name, key) in ["a", "b", "c"].into_iter().zip(keys) {
            Clients::append(&path, name, key).unwrap();
            if name == "a" {
                let text = fs::read_to_string(&path).unwrap() + "# of b\n";
                fs::write(&path, text).unwrap();
            }
        }
        let all = fs::read_to_string(&path).unwrap();
        Clients::remove(&path, "a").unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("# mine\n# of b\n\n[[client]]\nname = \"b\"\n"), "{text}");
        let clients = Clients::load(&path).unwrap();
        assert_eq!(keys.each_ref().map(|key| clients.name(key)), [None, Some("b"), Some("c")]);
        let error = Clients::remove(&path, "a").unwrap_err().to_string();
        assert_eq!(error, "there is no client `a`: there are b, c");
        Clients::remove(&path, "c").unwrap();
        Clients::remove(&path, "b").unwrap();
        assert!(Clients::remove(&path, "b").unwrap_err().to_string().ends_with("the list is empty"));
        // A name can come back, with another key.
        Clients::append(&path, "a", keys[1]).unwrap();
        assert_eq!(Clients::load(&path).unwrap().name(&keys[1]), Some("a"));
        // What this cannot take apart stays.
        let inline = format!("client = [{{ name = \"a\", key = \"{}\" }}]\n", keys[0]);
        fs::write(&path, &inline).unwrap();
        assert!(Clients::remove(&path, "a").unwrap_err().to_string().contains("delete `a` there by hand"));
        assert_eq!(fs::read_to_string(&path).unwrap(), inline);
        assert!(all.contains("\"a\"") && fs::read_dir(dir.path()).unwrap().count() == 1);
    }

    #[test]
    fn those_who_append_at_once_lose_nothing_and_one_of_them_has_the_name() {
        const AT_ONCE: usize = 8;
        for _ in 0..20 {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("clients.toml");
            let (barrier, path) = (Barrier::new(2 * AT_ONCE), &path);
            let results: Vec<_> = std::thread::scope(|scope| {
                let append = |name: String| {
                    let key = KeyPair::generate().unwrap().public();
                    barrier.wait();
                    Clients::append(path, &name, key)
                };
                let names = (0..AT_ONCE).flat_map(|n| [format!("other-{n}"), "client".to_owned()]);
                let all: Vec<_> = names.map(|name| scope.spawn(move || append(name))).collect();
                all.into_iter().map(|one| one.join().unwrap()).collect()
            });
            let refused = results.iter().filter(|result| matches!(result, Err(ClientsError::NameTaken(_))));
            assert_eq!(refused.count(), AT_ONCE - 1, "{results:?}");
            assert_eq!(Clients::load(path).unwrap().iter().count(), AT_ONCE + 1);
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing else is left");
        }
    }

    #[test]
    fn a_list_that_is_wrong_names_its_line_and_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("clients.toml");
        let [one, two] = [(); 2].map(|()| KeyPair::generate().unwrap().public());
        let entry = |name: &str, key: &str| format!("[[client]]\nname = \"{name}\"\nkey = \"{key}\"\n");
        let (one, other) = (one.to_string(), two.to_string());
        for (second, line, what) in [
            (entry("a", &other), 5, "two clients have the name `a`"),
            (entry("b", &one), 6, "the key of `b` is that of `a`, too"),
            (entry("b", "ed25519:x"), 6, "the key of `b` is no public key"),
            (entry("b c", &other), 5, "`b c` is no name"),
            ("[[client]]\nname = b\n".to_owned(), 5, ""),
        ] {
            let text = entry("a", &one) + &second;
            fs::write(&path, &text).unwrap();
            let said = format!("clients.toml, line {line}: {what}");
            for error in [Clients::load(&path).unwrap_err(), Clients::append(&path, "new", two).unwrap_err()]
            {
                assert!(error.to_string().contains(&said), "{error} is not {said}");
            }
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let error = |text: &str| Clients::parse(text).unwrap_err().to_string();
        assert!(error("[[client]]\nname = \"a\"\n").contains("key"));
        assert!(error("[[client]]\nname = \"a\"\nkey = \"x\"").contains("no public key"));
        assert!(error("[[clients]]\n").contains("line 1"), "{}", error("[[clients]]\n"));
    }
}
