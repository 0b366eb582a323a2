//! The rendezvous keeps publications while their leases last, and tells which hosts publish a name or a
//! content, and which publications there are.
//!
//! Its time is the time since 1970, because publications have dates. It reports each change of its records as
//! a [`Change`], so that a world can write it down; [`Rendezvous::restore`] takes the records back. A change
//! is polled before the answer that depends on it: if a world writes before it sends, every answer rests on
//! records that are written.
//!
//! If one process is not enough, several share their records: [`shared`]. The rules are the same.

mod record;
pub(crate) mod rules;
pub mod shared;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use anabranch_algo::{Machine, Output, Time};
use anabranch_mmtp::ContentId;
use anabranch_mmtp::peer::Peer;
use anabranch_topology::graph::NodeId;
use anabranch_topology::keyed::DomainKey;

use crate::domain::Domain;
use crate::message::listing::{Page, PageRequest, Position};
use crate::message::{Body, Message, Wanted};
use crate::publication::{Key, Name, Rejection, SignedPublication};
use crate::seal::Sealer;
use rules::{ANSWERS_MAX, Asked, CANDIDATES_MAX};

pub use record::{Record, RecordError};
pub use rules::Counters;

/// The most publications that are kept.
pub const PUBLICATIONS_MAX: usize = 4_000_000;
/// The most hosts that one name can have.
pub const HOSTS_OF_A_NAME_MAX: usize = 256;

/// A message that is complete except for the headers of the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The member that asked.
    pub to: Peer,
    /// The message, without [`Peer::prefix`].
    pub message: Vec<u8>,
}

/// The answers that wait to be sent.
#[derive(Debug)]
struct Answers {
    /// The node of the rendezvous.
    at: NodeId,
    /// Makes identifiers, in a domain with keyed identifiers.
    sealer: Option<Sealer>,
    waiting: VecDeque<Answer>,
}

impl Answers {
    fn new(domain: &Domain) -> Self {
        Self { at: domain.rendezvous.node, sealer: None, waiting: VecDeque::new() }
    }

    fn push(&mut self, now: Time, to: Peer, call: u64, body: Body) {
        let to = Sealer::answers(self.sealer.as_ref(), self.at, to, now);
        let answer = |to| Answer { to, message: Message { call, body }.to_bytes() };
        self.waiting.extend(to.map(answer));
    }

    fn pop(&mut self) -> Option<Answer> {
        self.waiting.pop_front()
    }
}

/// A change of the records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The record is kept now, instead of the earlier record of its [`Key`].
    Kept(Record),
    /// There is no record of this key any more.
    Forgotten(Key),
}

#[derive(Debug)]
struct Entry {
    record: Record,
    /// Whether the record is of the past: its lease has ended, or it is a withdrawal.
    over: bool,
}

impl Entry {
    /// Returns when the entry has to be looked at: when its lease ends, or when it can be forgotten.
    fn ends(&self) -> Time {
        if self.over { self.record.guards_until } else { self.record.signed.publication.ends() }
    }
}

/// The machine of a rendezvous; see the [module](self).
#[derive(Debug)]
pub struct Rendezvous {
    domain: Arc<Domain>,
    kept: BTreeMap<Key, Entry>,
    /// The keys by content, in one set for all contents: a set for each would have room for eleven hosts
    /// where there is mostly one.
    by_content: BTreeSet<([u8; 32], Key)>,
    ends: BTreeSet<(Time, Key)>,
    answers: Answers,
    changes: VecDeque<Change>,
    counters: Counters,
}

impl Rendezvous {
    /// Creates a rendezvous of a domain, without any record.
    #[must_use]
    pub fn new(domain: Arc<Domain>) -> Self {
        Self {
            answers: Answers::new(&domain),
            domain,
            kept: BTreeMap::new(),
            by_content: BTreeSet::new(),
            ends: BTreeSet::new(),
            changes: VecDeque::new(),
            counters: Counters::new(),
        }
    }

    /// Sets the domain's key, for a domain with keyed identifiers.
    #[must_use]
    pub fn with_key(mut self, key: DomainKey) -> Self {
        self.answers.sealer = Some(Sealer::new(Arc::clone(&self.domain), key));
        self
    }

    /// Returns the counters.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns how many publications are kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// Whether no publication is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Takes back a record that an earlier run reported as kept, if the record still counts. The signature is
    /// not checked again, because the earlier run has checked it.
    ///
    /// # Errors
    /// If the record no longer guards, its scope or host is not in this domain, a record of its key is known
    /// already, or there is no room.
    pub fn restore(&mut self, now: Time, record: Record) -> Result<(), Rejection> {
        let publication = &record.signed.publication;
        rules::check_place(&self.domain, publication)?;
        if record.guards_until <= now {
            return Err(Rejection::Expired);
        }
        let key = Key::of(publication);
        if self.kept.contains_key(&key) {
            return Err(Rejection::Replayed);
        }
        if !self.has_room(&key) {
            return Err(Rejection::Full);
        }
        let over = record.is_over(now);
        self.keep(key, Entry { record, over });
        Ok(())
    }

    fn has_room(&self, key: &Key) -> bool {
        self.kept.len() < PUBLICATIONS_MAX && self.of_name(&key.name).count() < HOSTS_OF_A_NAME_MAX
    }

    /// Returns the entries of a name, withdrawn or not.
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

    /// Ends leases, and forgets records once no earlier publication could be sent again.
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

    /// Returns the publications of a name that an answer may contain.
    fn good<'a>(&'a self, name: &Name) -> impl Iterator<Item = &'a SignedPublication> + use<'a> {
        self.of_name(name).filter(|entry| !entry.over).map(|entry| &entry.record.signed)
    }

    fn publish(&mut self, now: Time, from: &Peer, signed: SignedPublication) -> Body {
        let key = Key::of(&signed.publication);
        let known = self.kept.get(&key).map(|entry| &entry.record);
        let judged = rules::check(&self.domain, now, from, &signed).and_then(|()| {
            let is_outdated = rules::is_outdated(&signed.publication, self.good(&key.name));
            Ok((is_outdated, rules::judge(known, signed, || self.has_room(&key))?))
        });
        match judged {
            Ok((is_outdated, record)) => {
                if let Some(record) = record {
                    self.changes.push_back(Change::Kept(record.clone()));
                    let over = record.is_over(now);
                    self.keep(key, Entry { record, over });
                }
                self.counters.taken(is_outdated)
            }
            Err(why) => self.counters.refuse(why),
        }
    }

    fn look_up(&mut self, wanted: &Wanted) -> Body {
        let found: Vec<&SignedPublication> = match wanted {
            Wanted::Name(name) => self.good(name).take(CANDIDATES_MAX).collect(),
            Wanted::Content(content) => self.of_content(content).take(CANDIDATES_MAX).collect(),
        };
        let known = found.len();
        let body = rules::best(found);
        self.counters.looked_up(known);
        body
    }

    /// Returns a page of the list of publications. The list is in the order of the keys, so it is one part. A
    /// page is made of [`CANDIDATES_MAX`] records at most, of which many may be over.
    fn list(&mut self, request: PageRequest) -> Body {
        let PageRequest { scope, from } = request;
        let name = scope.clone().map_or_else(Name::lowest, Name::lowest_of);
        let first = Key { name, node: NodeId(0), port: 0 };
        let from = match from.after {
            Some(after) if after >= first => Bound::Excluded(after),
            _ => Bound::Included(first),
        };
        let all = self.kept.range((from, Bound::Unbounded));
        let all = all.take_while(|(key, _)| scope.as_ref().is_none_or(|scope| key.name.scope() == scope));
        let (mut found, mut last, mut rest) = (Vec::new(), None::<&Key>, None);
        for (looked, (key, entry)) in all.enumerate() {
            if looked == CANDIDATES_MAX || found.len() == ANSWERS_MAX {
                rest = Some(Position { cursor: 0, after: last.cloned() });
                break;
            }
            found.extend((!entry.over).then_some(&entry.record.signed));
            last = Some(key);
        }
        let page = Page::of(found, 0, rest);
        self.counters.listed(page)
    }
}

impl Machine for Rendezvous {
    /// The payload of a frame, and its sender.
    type Input<'a> = (Peer, &'a [u8]);
    type Transmit = Answer;
    type Event = Change;

    fn handle(&mut self, now: Time, (from, bytes): Self::Input<'_>) {
        self.expire(now);
        let Some((call, asked)) = rules::read(&from, bytes) else {
            self.counters.dropped += 1;
            return;
        };
        let body = match asked {
            Asked::Publish(signed) => self.publish(now, &from, signed),
            Asked::LookUp(wanted) => self.look_up(&wanted),
            Asked::List(request) => self.list(request),
            Asked::Elsewhere(body) => body,
        };
        self.answers.push(now, from, call, body);
    }

    fn poll(&mut self, now: Time) -> Output<Answer, Change> {
        self.expire(now);
        if let Some(change) = self.changes.pop_front() {
            return Output::Event(change);
        }
        if let Some(answer) = self.answers.pop() {
            return Output::Send(answer);
        }
        Output::Wait(self.ends.first().map_or(Time::NEVER, |(ends, _)| *ends))
    }
}
