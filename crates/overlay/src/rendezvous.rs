//! Rendezvous: keeps publications while their leases last, and says who publishes what.
//!
//! Its time is that since 1970, for publications have dates. What it keeps it reports as [`Change`]s, so that
//! a world can write them down; [`Rendezvous::restore`] takes them back. A change is polled before the answer
//! that rests on it: a world that writes before it sends has written what an answer says.

mod record;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use algo::{Machine, Output, Time};
use mmtp::ContentId;
use mmtp::peer::Peer;
use topology::graph::NodeId;
use topology::keyed::DomainKey;

use crate::domain::Domain;
use crate::frame;
use crate::message::{Body, Message, Wanted, refusal};
use crate::publication::{Name, Publication, Rejection, SignedPublication};
use crate::seal::Sealer;

pub use record::{Key, Record, RecordError};

/// Publications that are kept at most.
pub const PUBLICATIONS_MAX: usize = 4_000_000;
/// Hosts that one name can have at most.
pub const HOSTS_OF_A_NAME_MAX: usize = 256;
/// Publications that an answer is chosen from, at most.
const CANDIDATES_MAX: usize = 1_024;
/// Publications of an answer at most: more of them fit into no message.
const ANSWERS_MAX: usize = 8;

/// A message, complete but for what the network adds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Who asked.
    pub to: Peer,
    /// The message, without [`Peer::prefix`].
    pub message: Vec<u8>,
}

/// What has changed in what is remembered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// This is remembered now, instead of what there was of its [`Key`].
    Kept(Record),
    /// Nothing is remembered of this any more.
    Forgotten(Key),
}

/// What went through.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Publications kept, and leases renewed.
    pub published: u64,
    /// Publications refused, by reason.
    pub refused: BTreeMap<&'static str, u64>,
    /// Lookups answered, and how many of them with nothing.
    pub lookups: u64,
    /// See `lookups`.
    pub unknown: u64,
    /// Messages dropped: malformed, or not for a rendezvous.
    pub dropped: u64,
}

#[derive(Debug)]
struct Entry {
    record: Record,
    /// Its lease has ended, or it is a withdrawal.
    over: bool,
}

impl Entry {
    /// When it is to be looked at: its lease ends, or it can be forgotten.
    fn ends(&self) -> Time {
        if self.over { self.record.guards_until } else { self.record.signed.publication.ends() }
    }
}

/// The machine; see the [module](self).
#[derive(Debug)]
pub struct Rendezvous {
    domain: Arc<Domain>,
    kept: BTreeMap<Key, Entry>,
    /// One set for all contents: a set for each would have room for eleven hosts where there is mostly one.
    by_content: BTreeSet<([u8; 32], Key)>,
    ends: BTreeSet<(Time, Key)>,
    answers: VecDeque<Answer>,
    changes: VecDeque<Change>,
    counters: Counters,
    /// Of a domain with keyed identifiers.
    sealer: Option<Sealer>,
}

impl Rendezvous {
    /// Of a domain; it knows nothing yet.
    #[must_use]
    pub const fn new(domain: Arc<Domain>) -> Self {
        Self {
            domain,
            sealer: None,
            kept: BTreeMap::new(),
            by_content: BTreeSet::new(),
            ends: BTreeSet::new(),
            answers: VecDeque::new(),
            changes: VecDeque::new(),
            counters: Counters { published: 0, refused: BTreeMap::new(), lookups: 0, unknown: 0, dropped: 0 },
        }
    }

    /// The same, of a domain with keyed identifiers, which has this key.
    #[must_use]
    pub fn with_key(mut self, key: DomainKey) -> Self {
        self.sealer = Some(Sealer::new(Arc::clone(&self.domain), key));
        self
    }

    /// What has gone through so far.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// How many publications are kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// Whether nothing is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Takes back what an earlier run reported as kept, if there is still something to it. Signatures are not
    /// checked again: that run has checked this one.
    ///
    /// # Errors
    /// Why there is not: it is of the past, or no more of this domain.
    pub fn restore(&mut self, now: Time, record: Record) -> Result<(), Rejection> {
        let publication = &record.signed.publication;
        if self.domain.scope_key(publication.name.scope()).is_none() {
            return Err(Rejection::UnknownScope);
        }
        self.check_host(publication.node)?;
        if record.guards_until <= now {
            return Err(Rejection::Expired);
        }
        let key = Key::of(publication);
        if self.kept.contains_key(&key) {
            return Err(Rejection::Replayed);
        }
        self.check_room(&key)?;
        let over = record.is_over(now);
        self.keep(key, Entry { record, over });
        Ok(())
    }

    fn check(&self, now: Time, signed: &SignedPublication) -> Result<(), Rejection> {
        let publication = &signed.publication;
        let key = self.domain.scope_key(publication.name.scope()).ok_or(Rejection::UnknownScope)?;
        self.check_host(publication.node)?;
        signed.check(&self.domain.name, key, now)?;
        let key = Key::of(publication);
        let Some(known) = self.kept.get(&key) else { return self.check_room(&key) };
        let known = &known.record.signed;
        let is_later = known.publication.issued_ms < publication.issued_ms;
        if is_later || known == signed { Ok(()) } else { Err(Rejection::Replayed) }
    }

    fn check_host(&self, node: NodeId) -> Result<(), Rejection> {
        let is_node = node.index() < self.domain.graph.nodes().len();
        if is_node && !self.domain.is_forwarder(node) { Ok(()) } else { Err(Rejection::NoHost) }
    }

    fn check_room(&self, key: &Key) -> Result<(), Rejection> {
        let is_full =
            self.kept.len() >= PUBLICATIONS_MAX || self.of_name(&key.name).count() >= HOSTS_OF_A_NAME_MAX;
        if is_full { Err(Rejection::Full) } else { Ok(()) }
    }

    /// What is known under a name, withdrawn or not.
    fn of_name<'a>(&'a self, name: &Name) -> impl Iterator<Item = &'a Entry> + use<'a> {
        let from = Key { name: name.clone(), node: NodeId(0), port: 0 };
        let to = Key { name: name.clone(), node: NodeId(u32::MAX), port: u16::MAX };
        self.kept.range(from..=to).map(|(_, entry)| entry)
    }

    fn of_content<'a>(
        &'a self,
        content: &'a ContentId,
    ) -> impl Iterator<Item = &'a SignedPublication> + use<'a> {
        let from = Key { name: Name::lowest(), node: NodeId(0), port: 0 };
        let known = self.by_content.range((content.root, from)..);
        let known = known.take_while(|(root, _)| *root == content.root);
        let known = known.filter_map(|(_, key)| self.kept.get(key)).map(|entry| &entry.record.signed);
        known.filter(|signed| signed.publication.content == *content)
    }

    /// What is to be remembered when this has come; `None` if that is so already, or if it withdraws nothing,
    /// which leaves nothing.
    fn record(&self, signed: SignedPublication) -> Option<Record> {
        let withdraws = signed.publication.lease_s == 0;
        let own = signed.publication.ends();
        let before = self.kept.get(&Key::of(&signed.publication)).map(|entry| &entry.record);
        let guards_until = match before {
            None if withdraws => return None,
            None => own,
            Some(before) if before.signed == signed => return None,
            Some(before) if withdraws => before.guards_until,
            Some(before) => own.max(before.guards_until),
        };
        Some(Record { signed, guards_until })
    }

    fn keep(&mut self, key: Key, entry: Entry) {
        self.remove(&key);
        if !entry.over {
            self.by_content.insert((entry.record.signed.publication.content.root, key.clone()));
        }
        self.ends.insert((entry.ends(), key.clone()));
        self.kept.insert(key, entry);
    }

    fn remove(&mut self, key: &Key) -> Option<Entry> {
        let entry = self.kept.remove(key)?;
        self.ends.remove(&(entry.ends(), key.clone()));
        self.by_content.remove(&(entry.record.signed.publication.content.root, key.clone()));
        Some(entry)
    }

    /// Ends leases, and forgets what nobody can send again any more.
    fn expire(&mut self, now: Time) {
        while let Some((_, key)) = self.ends.first().filter(|(ends, _)| *ends <= now).cloned() {
            match self.remove(&key) {
                Some(entry) if entry.record.guards_until > now => {
                    self.keep(key, Entry { over: true, ..entry });
                }
                _ => self.changes.push_back(Change::Forgotten(key)),
            }
        }
    }

    /// Whether somebody offers a newer content of the same name.
    fn is_outdated(&self, publication: &Publication) -> bool {
        let good = self.of_name(&publication.name).filter(|entry| !entry.over);
        good.map(|entry| &entry.record.signed.publication)
            .any(|other| other.content != publication.content && other.version_ms > publication.version_ms)
    }

    fn publish(&mut self, now: Time, from: &Peer, signed: SignedPublication) -> Body {
        let origin = from.way_back.as_ref().and_then(frame::fields);
        let origin = origin.and_then(|(back, _)| self.domain.origin(self.domain.rendezvous.node, &back));
        let checked = if origin == Some(signed.publication.node) {
            self.check(now, &signed)
        } else {
            Err(Rejection::OtherHost)
        };
        match checked {
            Ok(()) => {
                self.counters.published += 1;
                let is_outdated = self.is_outdated(&signed.publication);
                if let Some(record) = self.record(signed) {
                    self.changes.push_back(Change::Kept(record.clone()));
                    let over = record.is_over(now);
                    self.keep(Key::of(&record.signed.publication), Entry { record, over });
                }
                if is_outdated { Body::Outdated } else { Body::Published }
            }
            Err(why) => {
                *self.counters.refused.entry(refusal::name(why)).or_default() += 1;
                Body::Refused { reason: refusal::of(why) }
            }
        }
    }

    /// The newest content first; of one content the host that has published it last.
    fn look_up(&mut self, wanted: &Wanted) -> Body {
        let mut found: Vec<&SignedPublication> = match wanted {
            Wanted::Name(name) => {
                let good = self.of_name(name).filter(|entry| !entry.over).map(|entry| &entry.record.signed);
                good.take(CANDIDATES_MAX).collect()
            }
            Wanted::Content(content) => self.of_content(content).take(CANDIDATES_MAX).collect(),
        };
        found.sort_by_key(|signed| {
            let publication = &signed.publication;
            std::cmp::Reverse((publication.version_ms, publication.issued_ms))
        });
        let known = found.len() as u16;
        let publications = found.into_iter().take(ANSWERS_MAX).cloned().collect();
        self.counters.lookups += 1;
        self.counters.unknown += u64::from(known == 0);
        Body::Match { known, publications }
    }
}

impl Machine for Rendezvous {
    /// The payload of a frame, and who sent it.
    type Input<'a> = (Peer, &'a [u8]);
    type Transmit = Answer;
    type Event = Change;

    fn handle(&mut self, now: Time, (from, bytes): Self::Input<'_>) {
        self.expire(now);
        let body = match Message::parse(bytes) {
            // Who gives no way back cannot be answered.
            _ if from.way_back.is_none() => None,
            Ok(Message { call, body: Body::Publish(signed) }) => {
                Some((call, self.publish(now, &from, signed)))
            }
            Ok(Message { call, body: Body::Lookup(wanted) }) => Some((call, self.look_up(&wanted))),
            Ok(Message { call, body: Body::Paths(_) | Body::LinkState(_) | Body::Lines { .. } }) => {
                Some((call, Body::Refused { reason: refusal::NOT_HERE }))
            }
            Ok(_) | Err(_) => None,
        };
        match body {
            Some((call, body)) => {
                let sealed = |sealer: &Sealer| sealer.reply(self.domain.rendezvous.node, &from, now);
                if let Some(to) = self.sealer.as_ref().map_or(Some(from), sealed) {
                    self.answers.push_back(Answer { to, message: Message { call, body }.to_bytes() });
                }
            }
            None => self.counters.dropped += 1,
        }
    }

    fn poll(&mut self, now: Time) -> Output<Answer, Change> {
        self.expire(now);
        if let Some(change) = self.changes.pop_front() {
            return Output::Event(change);
        }
        if let Some(answer) = self.answers.pop_front() {
            return Output::Send(answer);
        }
        Output::Wait(self.ends.first().map_or(Time::NEVER, |(ends, _)| *ends))
    }
}
