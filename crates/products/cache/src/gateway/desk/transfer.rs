//! Fetches of objects by [`anabranch::Get`]: from all sources at once, over all links.

use std::collections::btree_map::Entry;
use std::io::Read as _;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anabranch::{Checksum, Event as GetEvent, Get, Reader};
use anabranch_algo::Span;
use anabranch_http::client::FetchError;
use anabranch_net::Clock;

use super::small::small_body;
use super::{Answer, Count, Desk, Event, FLIGHTS_MAX, Failure, Flight, Source, failure, lock};
use crate::digest::{Digest, Hasher};
use crate::freshness::CacheFields;
use crate::preset::Target;
use crate::store::{Key, Meta, Object, Writer};

/// How often a transfer says how long the object is, until it knows.
const PROGRESS_EVERY: Duration = Duration::from_millis(20);
/// How long a transfer waits for any answer. The client waits meanwhile, and has a patience of its own.
const TIMEOUT: Duration = Duration::from_secs(20);
/// How long neighbours may be silent, how fast they must be in bytes a second, and from when on. One that is
/// slower is no help, or means none.
const NEIGHBOUR_TIMEOUT: Duration = Duration::from_secs(2);
const NEIGHBOUR_PACE: u64 = 256 << 10;
const SLOW_AFTER: Span = Span::from_secs(3);
/// The longest time for which clients wait until an object of a neighbour without a secret is whole and
/// verified.
const HELD_FOR: Span = Span::from_secs(10);
/// The most bytes of an object that askers wait for to be whole. Their patience has a limit.
const HELD_BYTES_MAX: u64 = 256 << 20;
/// The bytes that are written at once.
const WRITE_BYTES: usize = 256 << 10;

/// Who sends an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Giver {
    Sources,
    Neighbours,
}

impl Giver {
    /// Returns the number of the bytes that they send.
    const fn counts(self) -> Count {
        match self {
            Self::Sources => Count::FetchedBytes,
            Self::Neighbours => Count::NeighbourBytes,
        }
    }
}

/// A fetch that is about to begin.
struct Plan {
    key: Key,
    digest: Option<Digest>,
    /// The fields of the server, if the object may change.
    fields: Option<CacheFields>,
    media_type: String,
    sources: Vec<String>,
    /// What goes to the sources with each request.
    credentials: Option<String>,
    flight: Arc<Flight>,
    writer: Writer,
    /// Whether clients get nothing before the whole is verified, because any host of the LAN may have sent
    /// it.
    is_held: bool,
}

/// Returns the hash in the form that a transfer compares; `None` if a transfer does not know its kind.
fn checksum(digest: &Digest) -> Option<Checksum> {
    match digest {
        Digest::Sha256(bytes) => Some(Checksum::sha256(*bytes)),
        Digest::Sha512(bytes) => Some(Checksum::sha512(*bytes)),
        Digest::Sha512Of256(_) => None,
    }
}

impl Desk {
    /// Answers with a fetch of an object: the one that runs, or a new one.
    pub(super) fn fly(
        self: &Arc<Self>,
        key: Key,
        digest: Option<Digest>,
        fields: Option<CacheFields>,
        media_type: String,
        target: &Target,
    ) -> Result<Answer, Failure> {
        let answer = |flight: Arc<Flight>, how| Answer {
            body: Source::Flight(flight),
            tag: digest.map(|digest| Key::of_digest(&digest).as_str().to_owned()),
            media_type: media_type.clone(),
            fields: fields.clone(),
            links: Vec::new(),
            further: Vec::new(),
            how,
        };
        let mut flights = lock(&self.flights);
        let running = flights.len();
        let entry = match flights.entry(key) {
            Entry::Occupied(flight) => {
                self.counters.count(Count::Joined);
                return Ok(answer(Arc::clone(flight.get()), "fwd=miss; collapsed"));
            }
            Entry::Vacant(_) if running >= FLIGHTS_MAX => {
                return Err(Failure::Busy(format!(
                    "{FLIGHTS_MAX} objects are being fetched: ask again soon"
                )));
            }
            Entry::Vacant(entry) => entry,
        };
        // A fetch may have ended since the store was asked.
        if fields.is_none()
            && let Some(object) = self.store.get(entry.key())
        {
            self.counters.count(Count::Joined);
            return Ok(Self::stored(object, target, None, "hit"));
        }
        let writer = Writer::begin(&self.store).map_err(|e| Failure::of_store(&e))?;
        let flight = Arc::new(Flight::new(writer.file()));
        let plan = Plan {
            key: entry.key().clone(),
            digest,
            fields: fields.clone(),
            media_type: media_type.clone(),
            sources: target.sources.clone(),
            credentials: target.credentials.clone(),
            flight: Arc::clone(&flight),
            writer,
            is_held: false,
        };
        let desk = Arc::clone(self);
        let started = thread::Builder::new().name("fetch".into()).spawn(move || desk.run(plan));
        started.map_err(|e| Failure::Busy(format!("no thread is left: {e}")))?;
        entry.insert(Arc::clone(&flight));
        self.counters.count(Count::Misses);
        Ok(answer(flight, "fwd=miss"))
    }

    /// Fetches an object to its end.
    fn run(&self, mut plan: Plan) {
        let fetched = match self.fetch_from_neighbours(&mut plan) {
            true => Ok(()),
            false => self.fetch_from_sources(&mut plan),
        };
        let (key, flight) = (plan.key.clone(), Arc::clone(&plan.flight));
        match fetched {
            Ok(()) => {
                // Its askers need not wait for the disk.
                flight.end(Ok(()));
                self.publish(plan);
                lock(&self.flights).remove(&key);
            }
            Err(failure) => {
                // A request that comes after the failure begins anew, and does not join it.
                lock(&self.flights).remove(&key);
                flight.end(Err(failure));
            }
        }
    }

    /// Fetches an object from caches of the LAN, if its hash is known and one of them says that it has it.
    /// Returns whether it is whole and right.
    ///
    /// Without a secret any host of the LAN may answer, so clients get nothing before the whole is verified.
    /// With a secret they get bytes as they come. If the neighbour fails then, the bytes that have come are
    /// compared with those of the sources.
    fn fetch_from_neighbours(&self, plan: &mut Plan) -> bool {
        let (Some(lan), Some(digest), None) = (&self.lan, &plan.digest, &plan.credentials) else {
            return false;
        };
        let Some(offer) = lan.find(digest) else { return false };
        let is_held = !lan.is_keyed();
        if is_held && offer.length > HELD_BYTES_MAX {
            return false;
        }
        plan.is_held = is_held;
        let get = Get::new([&offer.uri]).map(|get| get.client(&self.transfers));
        let get = get.map(|get| get.progress_every(PROGRESS_EVERY).timeout(NEIGHBOUR_TIMEOUT));
        let get = get.map_err(|e| Failure::of(&e));
        let fetched = get.and_then(|get| self.fetch(get, plan, Giver::Neighbours));
        plan.is_held = false;
        if let Err(Failure::WrongBytes(_) | Failure::Upstream(_) | Failure::NotFound(_)) = &fetched {
            // Each next miss would cost these seconds again.
            lan.leave_alone(&offer.holders);
        }
        if let Err(Failure::WrongBytes(why)) = &fetched {
            for source in &offer.holders {
                self.counters.count(Count::Lies);
                (self.listener)(&Event::WrongBytes { source: source.to_string(), why: why.clone() });
            }
        }
        if fetched.is_err() {
            self.begin_again(plan);
            return false;
        }
        self.counters.count(Count::Neighbours);
        true
    }

    /// Forgets the bytes that have come, unless an asker has got some of them.
    fn begin_again(&self, plan: &mut Plan) {
        if let Ok(writer) = Writer::begin(&self.store)
            && plan.flight.restart(writer.file())
        {
            plan.writer = writer;
        }
    }

    /// Fetches an object from its sources.
    fn fetch_from_sources(&self, plan: &mut Plan) -> Result<(), Failure> {
        let (sources, is_begun) = (plan.sources.clone(), plan.writer.length() > 0);
        let fetched = match !is_begun && self.fetch_small(plan)? {
            true => Ok(()),
            false => self.fetch_urls(&sources, plan),
        };
        match fetched {
            // Without hashes of its parts only the whole of one source says whether that source is right.
            Err(failure @ Failure::WrongBytes(_))
                if plan.digest.is_some() && (is_begun || sources.len() > 1) =>
            {
                self.fetch_from_one(&sources, plan, failure)
            }
            fetched => fetched,
        }
    }

    /// Fetches an object if it is small and has one source. Returns whether it is whole, and right as far as
    /// its digest says.
    ///
    /// # Errors
    /// If the source does not have it or cannot be reached, or if it cannot be written.
    fn fetch_small(&self, plan: &mut Plan) -> Result<bool, Failure> {
        let [source] = &plan.sources[..] else { return Ok(false) };
        let body = match small_body(&self.upstream, source, plan.credentials.as_deref()) {
            Ok(Some(body)) => body,
            Err(
                error @ (FetchError::Unreachable(_)
                | FetchError::NotFound(_)
                | FetchError::Forbidden { .. }
                | FetchError::UnknownScheme { .. }),
            ) => {
                return Err(failure(&[(source.clone(), error)]));
            }
            Ok(None) | Err(_) => return Ok(false),
        };
        let is_right = plan.digest.is_none_or(|digest| {
            let mut hasher = Hasher::new(digest.kind());
            hasher.update(&body);
            hasher.finish() == digest
        });
        if is_right {
            plan.writer.write(&body).map_err(|e| Failure::of_store(&e))?;
            self.counters.add(Count::FetchedBytes, body.len() as u64);
            plan.flight.set_written(body.len() as u64);
        }
        Ok(is_right)
    }

    /// Fetches an object from one source after the other, after all together have sent wrong bytes. Names
    /// those whose bytes are wrong.
    fn fetch_from_one(&self, sources: &[String], plan: &mut Plan, first: Failure) -> Result<(), Failure> {
        let mut last = first;
        for source in sources {
            let writer = Writer::begin(&self.store).map_err(|e| Failure::of_store(&e))?;
            if !plan.flight.restart(writer.file()) {
                // Its askers have bytes that may be wrong: only later ones get the right ones.
                let next = Arc::new(Flight::new(writer.file()));
                lock(&self.flights).insert(plan.key.clone(), Arc::clone(&next));
                std::mem::replace(&mut plan.flight, next).end(Err(last.clone()));
            }
            plan.writer = writer;
            match self.fetch_urls(std::slice::from_ref(source), plan) {
                Ok(()) => return Ok(()),
                Err(Failure::WrongBytes(why)) => {
                    self.counters.count(Count::Lies);
                    (self.listener)(&Event::WrongBytes { source: source.clone(), why: why.clone() });
                    last = Failure::WrongBytes(why);
                }
                Err(_) => {}
            }
        }
        Err(last)
    }

    fn publish(&self, plan: Plan) {
        if plan.fields.as_ref().is_some_and(|fields| !fields.is_storable()) {
            return;
        }
        let url = plan.sources[0].clone();
        let verified = plan.digest.map(|digest| digest.to_string());
        let (media_type, fields, links) = (Some(plan.media_type), plan.fields, Vec::new());
        let is_private = plan.credentials.is_some();
        let meta = Meta { url: url.clone(), media_type, verified, fields, links, is_private };
        lock(&self.revalidated).remove(&plan.key);
        if let Err(error) = plan.writer.finish(&plan.key, &meta) {
            (self.listener)(&Event::NotStored { url, why: error.to_string() });
        }
    }

    /// Returns a request for the bytes of these URLs.
    fn get(&self, sources: &[String], credentials: Option<&str>) -> anabranch::Result<Get> {
        let mut get =
            Get::new(sources)?.client(&self.transfers).progress_every(PROGRESS_EVERY).timeout(TIMEOUT);
        for via in &self.config.via {
            get = get.via(via.clone());
        }
        if let Some(credentials) = credentials {
            get = get.header("Authorization", credentials);
        }
        Ok(match &self.config.ca_file {
            Some(file) => get.ca_file(file),
            None => get,
        })
    }

    /// Reads an object from `sources` into its file, and verifies it.
    fn fetch_urls(&self, sources: &[String], plan: &mut Plan) -> Result<(), Failure> {
        let get = self.get(sources, plan.credentials.as_deref()).map_err(|e| Failure::of(&e))?;
        self.fetch(get, plan, Giver::Sources)
    }

    /// Reads an object into its file, and verifies it.
    fn fetch(&self, mut get: Get, plan: &mut Plan, giver: Giver) -> Result<(), Failure> {
        if let Some(checksum) = plan.digest.as_ref().and_then(checksum) {
            get = get.checksum(checksum);
        }
        let mut reader = get.read_stopped_by(&self.stop).map_err(|e| Failure::of(&e))?;
        let events = reader.events();
        let (flight, is_held) = (Arc::clone(&plan.flight), plan.is_held);
        thread::scope(|scope| {
            scope.spawn(|| {
                for event in events {
                    self.heard(&event, &flight, is_held);
                }
            });
            let copied = self.copy(&mut reader, plan, giver);
            // This ends the transfer if it failed here, and with it the events.
            drop(reader);
            copied
        })
    }

    /// Takes what a transfer says.
    fn heard(&self, event: &GetEvent, flight: &Flight, is_held: bool) {
        match event {
            GetEvent::Progress(progress) => {
                if let Some(length) = progress.total_bytes.filter(|_| !is_held) {
                    flight.set_length(length);
                }
            }
            GetEvent::Banned { source, reason } => {
                self.counters.count(Count::Lies);
                let (source, why) = (source.clone(), reason.clone());
                (self.listener)(&Event::WrongBytes { source, why });
            }
            _ => {}
        }
    }

    fn copy(&self, reader: &mut Reader, plan: &mut Plan, giver: Giver) -> Result<(), Failure> {
        // Hashes that the transfer knows are compared by it, before it says that this is the end.
        let own = plan.digest.filter(|digest| checksum(digest).is_none());
        let mut hasher = own.map(|digest| Hasher::new(digest.kind()));
        let (mut buffer, clock, mut at) = (vec![0; WRITE_BYTES], Clock::start(), 0);
        let begun = clock.now();
        loop {
            let read = match reader.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => &buffer[..read],
                Err(error) => {
                    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<anabranch::Error>());
                    return Err(inner.map_or_else(|| Failure::Upstream(error.to_string()), Failure::of));
                }
            };
            if let Some(hasher) = &mut hasher {
                hasher.update(read);
            }
            let known = (plan.writer.length() - at).min(read.len() as u64) as usize;
            if !plan.writer.has(at, &read[..known]).map_err(|e| Failure::of_store(&e))? {
                return Err(Failure::WrongBytes("it is not what a neighbour has sent of it".to_owned()));
            }
            plan.writer.write(&read[known..]).map_err(|e| Failure::of_store(&e))?;
            at += read.len() as u64;
            self.counters.add(giver.counts(), read.len() as u64);
            if !plan.is_held {
                plan.flight.set_written(plan.writer.length());
            }
            let waited = clock.now().since(begun);
            if plan.is_held && waited > HELD_FOR {
                return Err(Failure::Upstream(
                    "its askers have waited for the whole of it for too long".to_owned(),
                ));
            }
            if giver == Giver::Neighbours
                && waited > SLOW_AFTER
                && at < NEIGHBOUR_PACE * (waited.as_millis() / 1_000)
            {
                return Err(Failure::Upstream("it comes too slowly".to_owned()));
            }
        }
        match (hasher.map(Hasher::finish), own) {
            (Some(is), Some(wanted)) if is != wanted => {
                return Err(Failure::WrongBytes(format!("its hash is {is} instead of {wanted}")));
            }
            _ if at < plan.writer.length() => {
                return Err(Failure::WrongBytes("it is shorter than what a neighbour has sent".to_owned()));
            }
            _ => {}
        }
        plan.flight.set_written(at);
        Ok(())
    }

    /// Fetches a damaged block of an object anew. Returns whether a source had it.
    pub(super) fn repair(&self, object: &Object, sources: &[String], block: u64) -> bool {
        let range = object.block_range(block);
        sources.iter().any(|source| {
            let get = self.get(std::slice::from_ref(source), None);
            let fetched = get.and_then(|get| get.get_range(range.clone()));
            match fetched.map(|bytes| object.repair(block, &bytes)) {
                Ok(Ok(repaired)) => repaired,
                Ok(Err(_)) | Err(_) => false,
            }
        })
    }
}
