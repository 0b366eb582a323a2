//! Decides what a request is answered with: an object of the store, a fetch that runs, or a new one.

mod documents;
mod small;
mod transfer;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anabranch::{Client, Stop};
use anabranch_http::client::{FetchError, Head, RequestKind};
use anabranch_http::server::ResourceRequest;

use super::event::Event;
use super::flight::{Failure, Flight};
use super::lan::Lan;
use super::status::{self, Count, Counters};
use super::upstream::Upstream;
use crate::config::{Config, Route};
use crate::digest::Digest;
use crate::freshness::{CacheFields, Verdict};
use crate::preset::{Document, Resolution, StorePath, Target, TargetKind, target};
use crate::store::{Key, Object, ReadError, Store};

/// The most fetches of objects at once; further ones are refused until one ends.
const FLIGHTS_MAX: usize = 64;
/// The most objects of which a revalidation is remembered outside of the store.
const REVALIDATED_MAX: usize = 1 << 16;

/// What a request is answered with.
pub(super) struct Answer {
    pub(super) body: Source,
    /// The hash of the bytes, or another text that differs for other bytes; `None` while it is unknown.
    pub(super) tag: Option<String>,
    pub(super) media_type: String,
    /// The header fields of the server, if the bytes may change.
    pub(super) fields: Option<CacheFields>,
    /// The values of `Link` of a document.
    pub(super) links: Vec<String>,
    /// Further header fields that the store's clients need.
    pub(super) further: Vec<(String, String)>,
    /// How the cache came by it (RFC 9211 §2.2), such as `hit`.
    pub(super) how: &'static str,
}

/// Where the bytes of an answer are.
pub(super) enum Source {
    /// In memory.
    Text(Vec<u8>),
    /// In the store. The URLs are those from which a damaged block is fetched anew.
    Object(Arc<Object>, Vec<String>),
    /// On their way.
    Flight(Arc<Flight>),
}

/// The state of a cache.
pub(super) struct Desk {
    config: Config,
    store: Store,
    upstream: Upstream,
    transfers: Client,
    /// Ends all transfers.
    stop: Stop,
    flights: Mutex<BTreeMap<Key, Arc<Flight>>>,
    /// The documents that are being asked for, each with the lock of those who do.
    asking: Mutex<BTreeMap<Key, Arc<Mutex<()>>>>,
    /// The documents that are revalidated while stale ones are used.
    background: Mutex<BTreeSet<Key>>,
    /// The fields of objects that their server has called unchanged since they were stored.
    revalidated: Mutex<BTreeMap<Key, CacheFields>>,
    counters: Arc<Counters>,
    /// The caches of the LAN; `None` if objects are not shared.
    lan: Option<Lan>,
    listener: Box<dyn Fn(&Event) + Send + Sync>,
}

/// Returns the time in seconds since 1970.
pub(super) fn now_s() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "HTTP's dates are those of the wall clock")]
    let now = std::time::SystemTime::now();
    now.duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the fields of an answer that concern caches.
fn fields_of(head: &Head) -> CacheFields {
    let caching = head.caching.clone();
    CacheFields {
        cache_control: caching.cache_control,
        age: caching.age,
        date: caching.date,
        expires: caching.expires,
        vary: caching.vary,
        etag: head.etag.clone(),
        last_modified: head.last_modified.clone(),
        received_s: now_s(),
    }
}

/// Says why none of several servers has answered.
fn failure(errors: &[(String, FetchError)]) -> Failure {
    // What follows a question mark may be a signature, which is a secret of the client that came first.
    let shown = |url: &str| url.split('?').next().unwrap_or_default().to_owned();
    let said: Vec<String> = errors.iter().map(|(url, error)| format!("{}: {error}", shown(url))).collect();
    let said = said.join("; ");
    let is_missing = errors.iter().all(|(_, error)| matches!(error, FetchError::NotFound(_)));
    let is_refused = errors
        .iter()
        .any(|(_, error)| matches!(error, FetchError::Forbidden { .. } | FetchError::UnknownScheme { .. }));
    match (is_missing, is_refused) {
        (true, _) => Failure::NotFound(said),
        (false, true) => Failure::Forbidden(said),
        (false, false) => Failure::Upstream(said),
    }
}

impl Desk {
    pub(super) fn new(
        config: Config,
        store: Store,
        listener: Box<dyn Fn(&Event) + Send + Sync>,
    ) -> Result<Self, String> {
        let upstream = Upstream::start(&config)?;
        let transfers = Client::new().map_err(|e| e.to_string())?;
        let stop = Stop::new().map_err(|e| e.to_string())?;
        let (flights, asking, background, revalidated) = Default::default();
        let counters = Arc::new(Counters::default());
        let share = |config| Lan::start(config, store.clone(), Arc::clone(&counters));
        let lan = config.neighbours.as_ref().map(share).transpose()?;
        Ok(Self {
            config,
            store,
            upstream,
            transfers,
            stop,
            flights,
            asking,
            background,
            revalidated,
            counters,
            lan,
            listener,
        })
    }

    /// Ends all transfers soon.
    pub(super) fn stop(&self) {
        self.stop.stop();
    }

    /// Returns the number of caches of the LAN that are known.
    fn neighbours(&self) -> u64 {
        self.lan.as_ref().map_or(0, Lan::count)
    }

    /// Returns all numbers as JSON.
    pub(super) fn json(&self) -> String {
        status::json(&self.counters, &self.store.counters(), self.neighbours())
    }

    /// Returns all numbers for Prometheus.
    pub(super) fn prometheus(&self) -> String {
        status::prometheus(&self.counters, &self.store.counters(), self.neighbours())
    }

    /// Tells the user that a request for `path` failed.
    pub(super) fn failed(&self, path: &str, failure: &Failure) {
        if !matches!(failure, Failure::NotFound(_)) {
            self.counters.count(Count::Failed);
            (self.listener)(&Event::Failed { path: path.to_owned(), why: failure.why().to_owned() });
        }
    }

    /// Returns what a path stands for; `None` if no route has such a path.
    pub(super) fn target(
        &self,
        names: &[String],
        request: &ResourceRequest<'_>,
    ) -> Option<(&Route, usize, Target)> {
        let (directory, query, accept) = (request.path.directory, request.query, request.accept);
        let (route, below) = self.config.route(names)?;
        let mut target = target(route, &StorePath { names: below, directory, query, accept })?;
        if route.pass_credentials {
            target.credentials = request.authorization.map(str::to_owned);
        }
        Some((route, below.len(), target))
    }

    /// Returns the answer to a request for a target, which has `depth` names below its route.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) fn answer(
        self: &Arc<Self>,
        route: &Route,
        depth: usize,
        target: &Target,
    ) -> Result<Answer, Failure> {
        match target.kind {
            TargetKind::Object(digest) => self.lasting(Key::of_digest(&digest), Some(digest), target),
            TargetKind::Unchanging => self.lasting(Key::of_url(&target.sources[0]), None, target),
            TargetKind::File => self.file(target),
            TargetKind::Document(document) => self.document(route, depth, document, target),
            TargetKind::Resolved { lasts } => self.resolved(route, depth, lasts, target),
        }
    }

    /// Answers with a file of which its server says the hash: asks for that first.
    fn resolved(
        self: &Arc<Self>,
        route: &Route,
        depth: usize,
        lasts: bool,
        target: &Target,
    ) -> Result<Answer, Failure> {
        let document = Document { is_resolution: true, lasts, ..Document::PLAIN };
        let said = self.document(route, depth, document, target)?;
        let resolution: Resolution = serde_json::from_slice(&self.text(said.body)?)
            .map_err(|e| Failure::Store(format!("what the store has of it cannot be read: {e}")))?;
        let digest = resolution.digest();
        let url = || format!("{} {}", resolution.etag.as_deref().unwrap_or_default(), target.sources[0]);
        let key = digest.as_ref().map_or_else(|| Key::of_url(&url()), Key::of_digest);
        let mut answer = match (&digest, &resolution.etag) {
            // Without a tag nothing says whether it is still the same.
            (None, None) => self.file(target)?,
            _ => self.lasting(key, digest, target)?,
        };
        if let Some(etag) = &resolution.etag {
            answer.tag = Some(etag.trim_start_matches("W/").trim_matches('"').to_owned());
        }
        if let Some(media_type) = resolution.media_type {
            answer.media_type = media_type;
        }
        answer.fields = answer.fields.or(said.fields.filter(|_| !lasts));
        answer.further = resolution.fields;
        Ok(answer)
    }

    /// Returns the bytes of a document.
    fn text(&self, body: Source) -> Result<Vec<u8>, Failure> {
        let lost = |e: ReadError| Failure::Store(e.to_string());
        match body {
            Source::Text(text) => Ok(text),
            Source::Object(object, _) => {
                let mut text = vec![0; object.length() as usize];
                self.read_object(&object, &[], 0, &mut text).map(|()| text).map_err(lost)
            }
            Source::Flight(_) => Err(Failure::Busy("it is being fetched: ask again".to_owned())),
        }
    }

    /// Answers with an object that never changes.
    fn lasting(
        self: &Arc<Self>,
        key: Key,
        digest: Option<Digest>,
        target: &Target,
    ) -> Result<Answer, Failure> {
        // What has a hash may be what everybody gets.
        let is_own = target.credentials.is_some() && (digest.is_none() || self.store.peek(&key).is_none());
        let key = if is_own { target.own_key(key) } else { key };
        if let Some(object) = self.store.get(&key) {
            self.counters.count(Count::Hits);
            return Ok(Self::stored(object, target, None, "hit"));
        }
        self.fly(key, digest, None, target.media_type.to_owned(), target)
    }

    /// Answers with a file that may change. A file without a fresh copy costs a request for its head.
    fn file(self: &Arc<Self>, target: &Target) -> Result<Answer, Failure> {
        let key = target.own_key(Key::of_url(&target.sources[0]));
        let stored = self.store.get(&key).map(|object| (self.fields(&object), object));
        let verdict = stored.as_ref().map(|(fields, _)| fields.verdict(now_s()));
        let stored = match stored {
            Some((fields, object)) if verdict == Some(Verdict::Fresh) => {
                self.counters.count(Count::Hits);
                return Ok(Self::stored(object, target, Some(fields), "hit"));
            }
            stored => stored,
        };
        let mut errors = Vec::new();
        for url in &target.sources {
            let credentials = target.credentials.as_deref();
            match self.upstream.fetch(url, &RequestKind::Metadata, "*/*", credentials) {
                Ok((head, _)) => {
                    let new = fields_of(&head);
                    if let Some((old, object)) = stored {
                        let length = head.length.unwrap_or_else(|| object.length());
                        if is_unchanged(&old, &new) && length == object.length() {
                            self.counters.count(Count::Revalidated);
                            let fields = old.refreshed(&new);
                            self.remember(&key, &fields);
                            return Ok(Self::stored(object, target, Some(fields), "hit"));
                        }
                    }
                    let media_type = head.content_type.unwrap_or_else(|| target.media_type.to_owned());
                    return self.fly(key, None, Some(new), media_type, target);
                }
                Err(error) => errors.push((url.clone(), error)),
            }
        }
        match (stored, verdict) {
            (Some((fields, object)), Some(Verdict::RevalidateOrUse | Verdict::UseAndRevalidate)) => {
                self.counters.count(Count::Stale);
                Ok(Self::stored(object, target, Some(fields), "hit; detail=stale"))
            }
            _ => Err(failure(&errors)),
        }
    }

    fn stored(
        object: Arc<Object>,
        target: &Target,
        fields: Option<CacheFields>,
        how: &'static str,
    ) -> Answer {
        let media_type = object.meta().media_type.clone().unwrap_or_else(|| target.media_type.to_owned());
        let tag = Some(object.tag().to_owned());
        let links = object.meta().links.clone();
        let body = Source::Object(object, target.sources.clone());
        Answer { body, tag, media_type, fields, links, further: Vec::new(), how }
    }

    /// Returns the newest fields of a stored object.
    fn fields(&self, object: &Object) -> CacheFields {
        let newer = lock(&self.revalidated).get(object.key()).cloned();
        newer.or_else(|| object.meta().fields.clone()).unwrap_or_default()
    }

    /// Keeps the fields of a stored object that is unchanged.
    fn remember(&self, key: &Key, fields: &CacheFields) {
        let mut revalidated = lock(&self.revalidated);
        if revalidated.len() >= REVALIDATED_MAX {
            // Their servers are asked once more.
            revalidated.clear();
        }
        revalidated.insert(key.clone(), fields.clone());
    }

    /// Fills `out` with bytes of a stored object. A damaged block is fetched anew; if it cannot be had, or is
    /// damaged again, the object is removed.
    ///
    /// # Errors
    /// If the bytes cannot be read.
    pub(super) fn read_object(
        &self,
        object: &Object,
        sources: &[String],
        offset: u64,
        out: &mut [u8],
    ) -> Result<(), ReadError> {
        let mut last = None;
        loop {
            match object.read_at(offset, out) {
                Err(ReadError::Damaged(Some(block))) => {
                    self.store.count_damaged();
                    let repaired = last.replace(block) != Some(block) && self.repair(object, sources, block);
                    let url = object.meta().url.clone();
                    (self.listener)(&Event::Damaged { url, block, repaired });
                    if !repaired {
                        self.store.remove(object.key());
                        return Err(ReadError::Damaged(Some(block)));
                    }
                    self.counters.count(Count::Repaired);
                }
                other => return other,
            }
        }
    }
}

/// Whether two answers to requests for one URL say that the bytes are the same.
fn is_unchanged(old: &CacheFields, new: &CacheFields) -> bool {
    match (&old.etag, &new.etag) {
        (Some(old), Some(new)) => old == new,
        (None, None) => old.last_modified.is_some() && old.last_modified == new.last_modified,
        _ => false,
    }
}
