//! Short documents that may change: kept as HTTP's rules allow, asked for again with their validators.

use std::sync::{Arc, Mutex};
use std::thread;

use anabranch_http::client::{FetchError, Head, RequestKind};

use super::{Answer, Count, Desk, Event, Failure, Source, failure, fields_of, lock, now_s};
use crate::config::Route;
use crate::digest::Hasher;
use crate::freshness::{CacheFields, Verdict};
use crate::gateway::upstream::DOCUMENT_BYTES_MAX;
use crate::preset::{Document, Resolution, Target, rewrite_index};
use crate::store::{Key, Meta, Object, Writer};

/// The most documents that are revalidated at once while stale ones are used.
const BACKGROUND_MAX: usize = 64;

/// A request for a document.
struct Wanted<'a> {
    key: Key,
    route: &'a Route,
    depth: usize,
    document: Document,
    target: &'a Target,
}

impl Desk {
    /// Answers with a document.
    pub(super) fn document(
        self: &Arc<Self>,
        route: &Route,
        depth: usize,
        document: Document,
        target: &Target,
    ) -> Result<Answer, Failure> {
        // The links of an index depend on the settings of its route.
        let links = document.is_index.then_some((&route.sources, &route.files));
        let key = Key::of_url(&format!("{} {} {links:?}", document.accept, target.sources[0]));
        let key = target.own_key(key);
        let wanted = Wanted { key, route, depth, document, target };
        match self.stored_document(&wanted) {
            Some((answer, Verdict::Fresh)) => {
                self.counters.count(Count::Hits);
                return Ok(answer);
            }
            Some((answer, Verdict::UseAndRevalidate)) => {
                self.counters.count(Count::Stale);
                self.revalidate_behind(&wanted);
                return Ok(answer);
            }
            _ => {}
        }
        // One request at a time asks for a document. The others wait, and use its answer if it may be kept.
        let turn = Arc::clone(lock(&self.asking).entry(wanted.key.clone()).or_default());
        let answer = {
            let _turn = lock(&turn);
            match self.stored_document(&wanted) {
                Some((answer, Verdict::Fresh)) => {
                    self.counters.count(Count::Joined);
                    Ok(answer)
                }
                stored => self.ask(&wanted, stored),
            }
        };
        self.leave(&wanted.key, turn);
        answer
    }

    /// Forgets the lock of a document if nothing else uses it.
    fn leave(&self, key: &Key, turn: Arc<Mutex<()>>) {
        let mut asking = lock(&self.asking);
        drop(turn);
        if asking.get(key).is_some_and(|turn| Arc::strong_count(turn) == 1) {
            asking.remove(key);
        }
    }

    fn stored_document(&self, wanted: &Wanted<'_>) -> Option<(Answer, Verdict)> {
        let object = self.store.get(&wanted.key)?;
        let fields = self.fields(&object);
        // A document that its path verifies never changes.
        let verdict = if lasts(&wanted.document) { Verdict::Fresh } else { fields.verdict(now_s()) };
        let how = if verdict == Verdict::Fresh { "hit" } else { "hit; detail=stale" };
        Some((Self::stored(object, wanted.target, Some(fields), how), verdict))
    }

    /// Asks the sources one after the other, with the validators of the document that is stored.
    fn ask(&self, wanted: &Wanted<'_>, stored: Option<(Answer, Verdict)>) -> Result<Answer, Failure> {
        let old = stored.as_ref().and_then(|(answer, _)| match (&answer.body, &answer.fields) {
            (Source::Object(object, _), Some(fields)) => Some((object.meta().url.clone(), fields.clone())),
            _ => None,
        });
        let mut errors = Vec::new();
        for url in &wanted.target.sources {
            // A validator means something only to the server that made it.
            let known = old.as_ref().filter(|(from, _)| from == url).map(|(_, fields)| fields);
            let request = if wanted.document.is_resolution { RequestKind::Metadata } else { request(known) };
            match self.upstream.fetch(
                url,
                &request,
                wanted.document.accept,
                wanted.target.credentials.as_deref(),
            ) {
                Ok((head, _)) if head.status == 304 => {
                    let refreshed = known.map(|known| known.refreshed(&fields_of(&head)));
                    let (Some(fields), Some((answer, _))) = (refreshed, stored) else {
                        return Err(Failure::Upstream(format!("{url}: the server answers 304 unasked")));
                    };
                    self.counters.count(Count::Revalidated);
                    self.remember(&wanted.key, &fields);
                    return Ok(Answer { fields: Some(fields), how: "hit", ..answer });
                }
                Ok((head, body)) => match self.accept(wanted, url, &head, body) {
                    Ok(answer) => return Ok(answer),
                    Err(error) => errors.push((url.clone(), error)),
                },
                Err(error) => errors.push((url.clone(), error)),
            }
        }
        match stored {
            Some((answer, Verdict::RevalidateOrUse | Verdict::UseAndRevalidate)) => {
                self.counters.count(Count::Stale);
                Ok(answer)
            }
            _ => Err(failure(&errors)),
        }
    }

    /// Verifies a document that has come, and keeps it if it may be kept.
    fn accept(
        &self,
        wanted: &Wanted<'_>,
        url: &str,
        head: &Head,
        body: Vec<u8>,
    ) -> Result<Answer, FetchError> {
        self.counters.count(Count::Misses);
        self.counters.add(Count::FetchedBytes, body.len() as u64);
        if let Some(digest) = wanted.document.digest {
            let mut hasher = Hasher::new(digest.kind());
            hasher.update(&body);
            if hasher.finish() != digest {
                self.counters.count(Count::Lies);
                let why = "the document is not the one that its path names".to_owned();
                (self.listener)(&Event::WrongBytes { source: url.to_owned(), why: why.clone() });
                return Err(FetchError::NotTheFile(why));
            }
        }
        let resolution = wanted
            .document
            .is_resolution
            .then(|| Resolution::of(&head.caching.kept, head.content_type.clone()));
        let body = match &resolution {
            Some(resolution) => serde_json::to_vec(resolution).unwrap_or_default(),
            None => body,
        };
        let body = match (wanted.document.is_index, std::str::from_utf8(&body)) {
            (true, Ok(html)) => rewrite_index(wanted.route, &head.url, wanted.depth, html).into_bytes(),
            _ => body,
        };
        // A redirect may be for a moment, and the file behind it for ever.
        let fields = if resolution.is_some() { fields_of_first(head) } else { fields_of(head) };
        let meta = Meta {
            url: url.to_owned(),
            media_type: head.content_type.clone(),
            links: head.links.clone(),
            is_private: wanted.target.credentials.is_some(),
            verified: wanted.document.digest.map(|digest| digest.to_string()),
            fields: Some(fields.clone()),
        };
        // A hub says the commit; what does not is perhaps a page for a login.
        let says = |name| head.caching.kept.iter().any(|(known, _)| *known == name);
        let is_of_hub = resolution.is_none() || says("x-repo-commit");
        let is_kept = (lasts(&wanted.document) && is_of_hub) || fields.is_storable();
        if is_kept {
            match self.keep(&wanted.key, &meta, &body) {
                Ok(object) => {
                    return Ok(Self::stored(object, wanted.target, Some(fields), "fwd=miss; stored"));
                }
                Err(error) => {
                    (self.listener)(&Event::NotStored { url: url.to_owned(), why: error.to_string() });
                }
            }
        }
        let media_type = meta.media_type.unwrap_or_else(|| wanted.target.media_type.to_owned());
        let tag = Some(blake3::hash(&body).to_hex()[..32].to_owned());
        let (body, fields, links) = (Source::Text(body), Some(fields), meta.links);
        Ok(Answer { body, tag, media_type, fields, links, how: "fwd=miss", further: Vec::new() })
    }

    fn keep(&self, key: &Key, meta: &Meta, body: &[u8]) -> std::io::Result<Arc<Object>> {
        let mut writer = Writer::begin(&self.store)?;
        writer.write(body)?;
        // The newest fields are now those of the object.
        lock(&self.revalidated).remove(key);
        writer.finish(key, meta)
    }

    /// Asks for a document on another thread, unless one does already or too many threads ask.
    fn revalidate_behind(self: &Arc<Self>, wanted: &Wanted<'_>) {
        {
            let mut background = lock(&self.background);
            if background.len() >= BACKGROUND_MAX || !background.insert(wanted.key.clone()) {
                return;
            }
        }
        let (desk, key, depth, document) =
            (Arc::clone(self), wanted.key.clone(), wanted.depth, wanted.document);
        let (route, target) = (wanted.route.clone(), wanted.target.clone());
        let started = thread::Builder::new().name("revalidate".into()).spawn(move || {
            let wanted = Wanted { key, route: &route, depth, document, target: &target };
            let stored = desk.stored_document(&wanted);
            // A failure leaves the stale one, which is asked for again.
            let _ = desk.ask(&wanted, stored);
            lock(&desk.background).remove(&wanted.key);
        });
        if started.is_err() {
            lock(&self.background).remove(&wanted.key);
        }
    }
}

/// Whether a document never changes: its path verifies it, or its store says so.
const fn lasts(document: &Document) -> bool {
    document.digest.is_some() || document.lasts
}

/// Returns the fields for caches of the first answer, which may be a redirect.
fn fields_of_first(head: &Head) -> CacheFields {
    let value = |name| Some(head.caching.kept.iter().find(|(known, _)| *known == name)?.1.clone());
    CacheFields {
        cache_control: value("cache-control"),
        age: value("age"),
        date: value("date"),
        expires: value("expires"),
        received_s: now_s(),
        ..CacheFields::default()
    }
}

/// Returns the request for a document of which an older one with these fields is there.
fn request(known: Option<&CacheFields>) -> RequestKind {
    match known {
        Some(CacheFields { etag: None, last_modified: None, .. }) | None => {
            RequestKind::Document { max: DOCUMENT_BYTES_MAX }
        }
        Some(fields) => RequestKind::ChangedDocument {
            max: DOCUMENT_BYTES_MAX,
            etag: fields.etag.clone(),
            modified: fields.last_modified.clone(),
        },
    }
}
