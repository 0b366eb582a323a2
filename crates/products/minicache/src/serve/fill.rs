//! Peer mode: fetches what the image does not have, by its name, from origins.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::num::NonZero;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anabranch::{Checksum, Client, ErrorKind, Event as GetEvent, Get, Reader, Stop};
use anabranch_cache::digest::{Digest, HashKind};
use anabranch_net::Waker;

use super::count::{Count, Counters};
use super::event::{Event, Listener};
use crate::image::{Described, Image, ImageError, Writer};
use crate::layout::Text;
use crate::name::Name;

/// The most objects that are fetched at once; further ones are refused until one is there.
const FETCHES_MAX: usize = 16;
/// The most connections that wait for one object.
const WAITING_MAX: usize = 4_096;
/// How often a transfer says how long the object is, until it knows.
const PROGRESS_EVERY: Duration = Duration::from_millis(20);
/// How long a transfer waits for any answer.
const TIMEOUT: Duration = Duration::from_secs(20);
/// The bytes that are read at once.
const READ_BYTES: usize = 256 << 10;
/// The type of an object that came without one.
const UNKNOWN_TYPE: &str = "application/octet-stream";

/// Where objects come from: URLs in which `{name}` stands for the name, or to which it is added after a
/// slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origins(Vec<String>);

impl Origins {
    /// Makes origins of URLs; all of them have the same objects. Returns `None` if there are none.
    #[must_use]
    pub fn new(urls: Vec<String>) -> Option<Self> {
        (!urls.is_empty()).then_some(Self(urls))
    }

    /// Checks that objects have URLs at these origins.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] if an origin is no URL.
    pub fn check(&self) -> anabranch::Result<()> {
        Get::new(self.urls(&Name::Root([0; 32]))).map(drop)
    }

    /// Returns the URLs of an object.
    #[must_use]
    pub fn urls(&self, name: &Name) -> Vec<String> {
        let url = |base: &String| match base.contains("{name}") {
            true => base.replace("{name}", &name.to_string()),
            false => format!("{}/{name}", base.trim_end_matches('/')),
        };
        self.0.iter().map(url).collect()
    }
}

/// The reason why an object is not there after all, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FillError {
    /// No origin has it.
    NotFound(String),
    /// The origins fail, or send wrong bytes.
    Origin(String),
    /// There is too much to do.
    Busy(String),
    /// The image has no room, or cannot be written.
    Image(String),
}

impl FillError {
    /// Returns the words.
    #[must_use]
    pub fn why(&self) -> &str {
        let (Self::NotFound(why) | Self::Origin(why) | Self::Busy(why) | Self::Image(why)) = self;
        why
    }

    fn of(error: &anabranch::Error) -> Self {
        match error.kind() {
            ErrorKind::NotFound => Self::NotFound(error.to_string()),
            _ => Self::Origin(error.to_string()),
        }
    }
}

impl From<ImageError> for FillError {
    fn from(error: ImageError) -> Self {
        match error {
            ImageError::Wrong(why) => Self::Origin(why),
            other => Self::Image(format!("the image: {other}")),
        }
    }
}

/// The end of a fetch, for one connection.
pub(super) type Filled = (usize, u64, Result<(), FillError>);

/// Where the thread of a connection finds the ends of fetches.
#[derive(Debug)]
pub(super) struct Mailbox {
    waker: Waker,
    filled: Mutex<Vec<Filled>>,
}

impl Mailbox {
    pub(super) const fn new(waker: Waker) -> Self {
        Self { waker, filled: Mutex::new(Vec::new()) }
    }

    /// Takes what has come.
    pub(super) fn take(&self) -> Vec<Filled> {
        std::mem::take(&mut *lock(&self.filled))
    }

    fn put(&self, filled: Filled) {
        lock(&self.filled).push(filled);
        self.waker.wake();
    }
}

/// A connection that waits: its thread's mailbox, its place there, and a number that no later connection in
/// this place has.
pub(super) struct Waiter {
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) token: usize,
    pub(super) serial: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Fetches objects, each once for all who wait for it.
pub(super) struct Filler {
    origins: Origins,
    image: Arc<Image>,
    counters: Arc<Counters>,
    listener: Listener,
    client: Client,
    stop: Stop,
    waiting: Mutex<BTreeMap<Name, Vec<Waiter>>>,
}

impl Filler {
    pub(super) fn new(
        origins: Origins,
        image: Arc<Image>,
        counters: Arc<Counters>,
        listener: Listener,
    ) -> io::Result<Self> {
        let at_once = NonZero::new(FETCHES_MAX).ok_or(io::ErrorKind::InvalidInput)?;
        let client = Client::at_once(at_once).map_err(io::Error::other)?;
        let stop = Stop::new().map_err(io::Error::other)?;
        origins.check().map_err(io::Error::other)?;
        Ok(Self { origins, image, counters, listener, client, stop, waiting: Mutex::default() })
    }

    pub(super) fn stop(&self) {
        self.stop.stop();
    }

    /// Makes a connection wait for an object, which is fetched unless it is already.
    ///
    /// # Errors
    /// If there is too much to do.
    pub(super) fn ask(self: &Arc<Self>, name: Name, waiter: Waiter) -> Result<(), FillError> {
        let mut waiting = lock(&self.waiting);
        if let Some(all) = waiting.get_mut(&name) {
            if all.len() >= WAITING_MAX {
                return Err(FillError::Busy("too many wait for this object: ask again soon".to_owned()));
            }
            all.push(waiter);
            return Ok(());
        }
        if waiting.len() >= FETCHES_MAX {
            let why = format!("{FETCHES_MAX} objects are being fetched: ask again soon");
            return Err(FillError::Busy(why));
        }
        let filler = Arc::clone(self);
        let started = thread::Builder::new().name("fetch".into()).spawn(move || filler.run(&name));
        started.map_err(|e| FillError::Busy(format!("no thread is left: {e}")))?;
        waiting.insert(name, vec![waiter]);
        Ok(())
    }

    /// Fetches an object, and tells all who wait.
    fn run(&self, name: &Name) {
        let fetched = self.fetch(name);
        match &fetched {
            Ok(bytes) => {
                self.counters.count(Count::Fetched);
                self.counters.add(Count::FetchedBytes, *bytes);
            }
            Err(error) => {
                self.counters.count(Count::NotFetched);
                (self.listener)(&Event::NotFetched { name: *name, why: error.why().to_owned() });
            }
        }
        let outcome = fetched.map(drop);
        let waiting = lock(&self.waiting).remove(name);
        for Waiter { mailbox, token, serial } in waiting.into_iter().flatten() {
            mailbox.put((token, serial, outcome.clone()));
        }
    }

    /// Fetches an object from all origins at once; if these together have sent wrong bytes, from one after
    /// the other.
    fn fetch(&self, name: &Name) -> Result<u64, FillError> {
        let urls = self.origins.urls(name);
        let mut fetched = self.fetch_from(&urls, name);
        if urls.len() > 1 && matches!(fetched, Err(FillError::Origin(_))) {
            for url in &urls {
                fetched = fetched.or_else(|_| self.fetch_from(std::slice::from_ref(url), name));
            }
        }
        fetched
    }

    fn fetch_from(&self, urls: &[String], name: &Name) -> Result<u64, FillError> {
        let get = Get::new(urls).map_err(|e| FillError::of(&e))?;
        let get = get.client(&self.client).progress_every(PROGRESS_EVERY).timeout(TIMEOUT);
        let get = match name {
            Name::Digest(Digest::Sha256(hash)) => get.checksum(Checksum::sha256(*hash)),
            Name::Digest(Digest::Sha512(hash)) => get.checksum(Checksum::sha512(*hash)),
            Name::Digest(Digest::Sha512Of256(_)) | Name::Root(_) => get,
        };
        let mut reader = get.read_stopped_by(&self.stop).map_err(|e| FillError::of(&e))?;
        let (events, length) = (reader.events(), Length::default());
        thread::scope(|scope| {
            scope.spawn(|| {
                for event in events {
                    if let GetEvent::Progress(progress) = event {
                        length.set(progress.total_bytes);
                    }
                }
                length.end();
            });
            let copied = self.copy(&mut reader, &length, name);
            // This ends the transfer if it failed here, and with it the events.
            drop(reader);
            copied
        })
    }

    /// Writes an object into the image while it arrives. Its entry is written when all of it is there and
    /// has the name that was asked for.
    fn copy(&self, reader: &mut Reader, length: &Length, name: &Name) -> Result<u64, FillError> {
        let kind = match name {
            Name::Digest(digest) => digest.kind(),
            Name::Root(_) => HashKind::Sha256,
        };
        let mut buffer = vec![0; READ_BYTES];
        let mut read = next(reader, &mut buffer)?;
        let bytes = if read == 0 { 0 } else { length.get()? };
        let mut writer = Writer::begin(&self.image, bytes, kind, true)?;
        while read > 0 {
            writer.write(&buffer[..read])?;
            read = next(reader, &mut buffer)?;
        }
        let media_type = Text::new(UNKNOWN_TYPE).unwrap_or_default();
        writer.finish(Some(name), Described { media_type, label: Text::default() })?;
        Ok(bytes)
    }
}

fn next(reader: &mut Reader, buffer: &mut [u8]) -> Result<usize, FillError> {
    reader.read(buffer).map_err(|error| {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<anabranch::Error>());
        inner.map_or_else(|| FillError::Origin(error.to_string()), FillError::of)
    })
}

/// The length of an object, once a transfer knows it.
#[derive(Debug, Default)]
struct Length {
    /// The length, and whether no further event will tell it.
    known: Mutex<(Option<u64>, bool)>,
    changed: Condvar,
}

impl Length {
    fn set(&self, bytes: Option<u64>) {
        let mut known = lock(&self.known);
        known.0 = known.0.or(bytes);
        self.changed.notify_all();
    }

    fn end(&self) {
        lock(&self.known).1 = true;
        self.changed.notify_all();
    }

    /// Waits until the length is known.
    fn get(&self) -> Result<u64, FillError> {
        let known = lock(&self.known);
        let waited = self.changed.wait_timeout_while(known, TIMEOUT, |known| known.0.is_none() && !known.1);
        let (known, _) = waited.unwrap_or_else(PoisonError::into_inner);
        known.0.ok_or_else(|| FillError::Origin("the origin does not say how long it is".to_owned()))
    }
}
