//! What outlives the process: records by kind and name, changed all at once or not at all. Two back ends:
//! memory, which outlives nothing, and a file of redb.

use std::collections::BTreeMap;
use std::path::Path;

use redb::{Database, ReadableDatabase as _, TableDefinition};

use crate::error::{Error, Result};

/// The kinds of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// What an instance is made of, and who may run it.
    Instance = 0,
    /// The state of an instance, as what differs from zeros ([`crate::delta`]).
    State = 1,
    /// A module, by its SHA-256.
    Module = 2,
    /// A move that came in.
    Arrival = 3,
}

/// A change of a record: its new value, or that it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The kind of the record.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// Its value; `None` removes it.
    pub value: Option<Vec<u8>>,
}

impl Change {
    /// Sets a record.
    #[must_use]
    pub fn set(kind: Kind, name: &str, value: Vec<u8>) -> Self {
        Self { kind, name: name.to_owned(), value: Some(value) }
    }

    /// Removes a record.
    #[must_use]
    pub fn remove(kind: Kind, name: &str) -> Self {
        Self { kind, name: name.to_owned(), value: None }
    }
}

/// Where records are kept.
pub trait Records: Send {
    /// Returns a record.
    ///
    /// # Errors
    /// `Failed` if it cannot be read.
    fn get(&self, kind: Kind, name: &str) -> Result<Option<Vec<u8>>>;

    /// Returns the names of all records of a kind, sorted.
    ///
    /// # Errors
    /// `Failed` if they cannot be read.
    fn names(&self, kind: Kind) -> Result<Vec<String>>;

    /// Changes records, all or none. They are kept when this returns.
    ///
    /// # Errors
    /// `Failed` if they cannot be kept: nothing has changed then.
    fn commit(&mut self, changes: &[Change]) -> Result;
}

/// Records in memory.
#[derive(Debug, Default)]
pub struct InMemory(BTreeMap<(Kind, String), Vec<u8>>);

impl Records for InMemory {
    fn get(&self, kind: Kind, name: &str) -> Result<Option<Vec<u8>>> {
        Ok(self.0.get(&(kind, name.to_owned())).cloned())
    }

    fn names(&self, kind: Kind) -> Result<Vec<String>> {
        let from = (kind, String::new());
        let of_kind = self.0.range(from..).take_while(|((known, _), _)| *known == kind);
        Ok(of_kind.map(|((_, name), _)| name.clone()).collect())
    }

    fn commit(&mut self, changes: &[Change]) -> Result {
        for change in changes {
            let key = (change.kind, change.name.clone());
            match &change.value {
                Some(value) => drop(self.0.insert(key, value.clone())),
                None => drop(self.0.remove(&key)),
            }
        }
        Ok(())
    }
}

const TABLE: TableDefinition<'_, (u8, &str), &[u8]> = TableDefinition::new("records");

/// Records in a file.
#[derive(Debug)]
pub struct InFile(Database);

fn failed(error: impl Into<redb::Error>) -> Error {
    Error::Failed(format!("the store: {}", error.into()))
}

impl InFile {
    /// Opens a file, which is made if it is missing.
    ///
    /// # Errors
    /// `Failed` if it cannot be made, is damaged, or another process uses it.
    pub fn open(path: &Path) -> Result<Self> {
        let at = |e: Error| Error::Failed(format!("{}: {e}", path.display()));
        let database = Database::create(path).map_err(|e| at(failed(e)))?;
        let begin = || -> std::result::Result<(), redb::Error> {
            let write = database.begin_write()?;
            drop(write.open_table(TABLE)?);
            Ok(write.commit()?)
        };
        begin().map_err(|e| at(failed(e)))?;
        Ok(Self(database))
    }
}

impl Records for InFile {
    fn get(&self, kind: Kind, name: &str) -> Result<Option<Vec<u8>>> {
        let table = self.0.begin_read().map_err(failed)?.open_table(TABLE).map_err(failed)?;
        let value = table.get((kind as u8, name)).map_err(failed)?;
        Ok(value.map(|value| value.value().to_vec()))
    }

    fn names(&self, kind: Kind) -> Result<Vec<String>> {
        let table = self.0.begin_read().map_err(failed)?.open_table(TABLE).map_err(failed)?;
        let all = table.range((kind as u8, "")..(kind as u8 + 1, "")).map_err(failed)?;
        all.map(|entry| entry.map(|(key, _)| key.value().1.to_owned()).map_err(failed)).collect()
    }

    fn commit(&mut self, changes: &[Change]) -> Result {
        let write = self.0.begin_write().map_err(failed)?;
        {
            let mut table = write.open_table(TABLE).map_err(failed)?;
            for change in changes {
                let key = (change.kind as u8, change.name.as_str());
                match &change.value {
                    Some(value) => drop(table.insert(key, value.as_slice()).map_err(failed)?),
                    None => drop(table.remove(key).map_err(failed)?),
                }
            }
        }
        write.commit().map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_back_ends_keep_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("records.redb");
        let mut all: [Box<dyn Records>; 2] =
            [Box::new(InMemory::default()), Box::new(InFile::open(&path).unwrap())];
        for records in &mut all {
            let set = |kind, name: &str| Change::set(kind, name, name.as_bytes().to_vec());
            records
                .commit(&[set(Kind::Instance, "b"), set(Kind::Instance, "a"), set(Kind::State, "a")])
                .unwrap();
            assert_eq!(records.names(Kind::Instance).unwrap(), ["a", "b"]);
            assert_eq!(records.get(Kind::State, "a").unwrap().as_deref(), Some(&b"a"[..]));
            assert_eq!(records.get(Kind::State, "b").unwrap(), None);
            records
                .commit(&[Change::remove(Kind::Instance, "b"), Change::remove(Kind::Module, "x")])
                .unwrap();
            assert_eq!(records.names(Kind::Instance).unwrap(), ["a"]);
            assert_eq!(records.names(Kind::Arrival).unwrap(), Vec::<String>::new());
        }
        assert!(InFile::open(&path).is_err(), "one process uses a file");
        drop(all);
        assert_eq!(InFile::open(&path).unwrap().names(Kind::Instance).unwrap(), ["a"]);
        std::fs::write(dir.path().join("damaged"), [7; 9_000]).unwrap();
        assert!(InFile::open(&dir.path().join("damaged")).is_err());
    }
}
