//! The directory of a store, and the index of its objects.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use super::key::Key;
use super::object::{Object, ReadError};
use super::opened::Opened;
use crate::eviction::Eviction;

/// The numbers of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreCounters {
    /// The number of objects.
    pub objects: u64,
    /// The bytes of their files.
    pub bytes: u64,
    /// The most bytes that they may have.
    pub capacity_bytes: u64,
    /// The objects that were removed to make room, since the start.
    pub evicted: u64,
    /// The objects and blocks whose bytes were found damaged, since the start.
    pub damaged: u64,
}

/// A store. Clones are one store.
#[derive(Clone, Debug)]
pub struct Store(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    directory: PathBuf,
    capacity_bytes: u64,
    index: Mutex<Eviction<Key>>,
    /// Locked after `index` where both are.
    opened: Mutex<Opened>,
    next_incoming: AtomicU64,
    evicted: AtomicU64,
    damaged: AtomicU64,
    lock: File,
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Closing the file is not enough: a child of this process has it too until its exec(3).
        let _ = self.lock.unlock();
    }
}

impl Store {
    /// Opens a store, which is made if it is not there, and reads which objects it has.
    ///
    /// # Errors
    /// If the directory cannot be used, or another process uses it.
    pub fn open(directory: &Path, capacity_bytes: u64) -> io::Result<Self> {
        let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", directory.display()));
        let make = |path: &Path| DirBuilder::new().recursive(true).mode(0o700).create(path);
        let incoming = directory.join("incoming");
        make(&incoming).and_then(|()| make(&directory.join("objects"))).map_err(named)?;
        let lock = File::create(directory.join("lock")).map_err(named)?;
        lock.try_lock().map_err(|_| {
            let what = format!("{}: another process uses this store", directory.display());
            io::Error::new(io::ErrorKind::ResourceBusy, what)
        })?;
        for entry in fs::read_dir(&incoming).map_err(named)? {
            fs::remove_file(entry?.path()).map_err(named)?;
        }
        let shared = Shared {
            directory: directory.to_owned(),
            capacity_bytes,
            index: Mutex::new(Eviction::new(capacity_bytes)),
            opened: Mutex::default(),
            next_incoming: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
            damaged: AtomicU64::new(0),
            lock,
        };
        let store = Self(Arc::new(shared));
        let mut objects = store.read_objects().map_err(named)?;
        // The oldest is the first to go.
        objects.sort_by_key(|(.., changed)| *changed);
        for (key, bytes, _) in objects {
            store.admit(&mut store.index(), key, bytes);
        }
        Ok(store)
    }

    fn read_objects(&self) -> io::Result<Vec<(Key, u64, SystemTime)>> {
        let mut objects = Vec::new();
        for directory in fs::read_dir(self.0.directory.join("objects"))? {
            for entry in fs::read_dir(directory?.path())? {
                let (entry, metadata) = entry.and_then(|entry| Ok((entry.path(), entry.metadata()?)))?;
                let key = entry.file_name().and_then(|name| Key::of_file(name.to_str()?));
                let own = key.filter(|key| metadata.is_file() && self.path(key) == entry);
                // Files that are none of the store's are left alone.
                objects.extend(
                    own.map(|key| {
                        (key, metadata.len(), metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH))
                    }),
                );
            }
        }
        Ok(objects)
    }

    pub(super) fn path(&self, key: &Key) -> PathBuf {
        let end = &key.as_str()[key.as_str().len() - 2..];
        self.0.directory.join("objects").join(end).join(key.as_str())
    }

    fn index(&self) -> MutexGuard<'_, Eviction<Key>> {
        self.0.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn opened(&self) -> MutexGuard<'_, Opened> {
        self.0.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an object, whose file is in its place, to the index, and removes the files of those that must go
    /// for it. Files come and go under the lock, so that none goes that has just been written anew.
    fn admit(&self, index: &mut Eviction<Key>, key: Key, bytes: u64) {
        for gone in index.insert(key, bytes) {
            self.0.evicted.fetch_add(1, Ordering::Relaxed);
            self.remove_file(&gone);
        }
    }

    /// Returns an object, and counts the request for it. An object whose hashes are damaged, or whose file is
    /// gone, is removed. One that cannot be opened now, for lack of descriptors for example, is kept.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<Arc<Object>> {
        if !self.index().request(key) {
            return None;
        }
        self.peek(key)
    }

    /// Returns an object as [`get`](Self::get) does, but counts no request: who looks only for what is there
    /// keeps nothing in the store.
    #[must_use]
    pub fn peek(&self, key: &Key) -> Option<Arc<Object>> {
        let age = {
            let mut opened = self.opened();
            if let Some(object) = opened.get(key) {
                return Some(object);
            }
            opened.age()
        };
        match Object::open(&self.path(key), key) {
            Ok(object) => Some(self.opened().insert(object, age)),
            Err(ReadError::Damaged(_)) => {
                self.count_damaged();
                self.remove(key);
                None
            }
            Err(ReadError::Io(error)) => {
                if error.kind() == io::ErrorKind::NotFound {
                    self.remove(key);
                }
                None
            }
        }
    }

    /// Removes an object, if it is there.
    pub fn remove(&self, key: &Key) {
        let mut index = self.index();
        index.remove(key);
        self.remove_file(key);
    }

    fn remove_file(&self, key: &Key) {
        let _ = fs::remove_file(self.path(key));
        self.opened().forget(key);
    }

    /// Counts a block that was found damaged.
    pub fn count_damaged(&self) {
        self.0.damaged.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns a new path for an object that arrives.
    pub(super) fn incoming(&self) -> PathBuf {
        let number = self.0.next_incoming.fetch_add(1, Ordering::Relaxed);
        self.0.directory.join("incoming").join(number.to_string())
    }

    /// Gives the file of an object its place. The file has so many `bytes`.
    pub(super) fn publish(&self, incoming: &Path, object: Object, bytes: u64) -> io::Result<Arc<Object>> {
        let key = object.key().clone();
        let path = self.path(&key);
        let Some(directory) = path.parent() else { return Err(io::ErrorKind::InvalidFilename.into()) };
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let mut index = self.index();
        fs::rename(incoming, &path)?;
        let object = self.opened().replace(object);
        self.admit(&mut index, key, bytes);
        drop(index);
        File::open(directory)?.sync_all()?;
        Ok(object)
    }

    /// Returns the numbers of the store.
    #[must_use]
    pub fn counters(&self) -> StoreCounters {
        let index = self.index();
        StoreCounters {
            objects: index.len() as u64,
            bytes: index.bytes(),
            capacity_bytes: self.0.capacity_bytes,
            evicted: self.0.evicted.load(Ordering::Relaxed),
            damaged: self.0.damaged.load(Ordering::Relaxed),
        }
    }
}
