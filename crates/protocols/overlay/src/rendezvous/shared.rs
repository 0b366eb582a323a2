//! A rendezvous that keeps its publications in a store which several processes share: each process answers
//! with the publications that any of them has accepted.
//!
//! The store knows no rule and checks nothing. It has a table of *fields* for each name: one field for each
//! host and port (`NODE:PORT`), whose value is a [`Record`] as bytes. For each content it has a list of the
//! fields that may be about it. A process can ask for fields, and can ask to [keep](Keep) a value if the
//! field still has the value that the process has read ("compare and set"). So the rules are those of [one
//! process](super::Rendezvous): of two publications at one moment the later one counts, whichever process was
//! first.
//!
//! A value that was read is believed only if it makes sense in its field and is signed by the owner of the
//! scope.
//!
//! Names have no order in a store: the list of all publications is told in the parts in which the store
//! names them, and in order within a part. A name that is published all the time is told. One that comes or
//! goes meanwhile, or that the store moves to another part because its table has shrunk, may be missing or
//! may be told twice.
//!
//! The list of a content may name too many fields, never too few, because it is written before the field. The
//! fields decide.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use anabranch_algo::{Machine, Output, Span, Time};
use anabranch_mmtp::ContentId;
use anabranch_mmtp::peer::Peer;
use anabranch_topology::keyed::DomainKey;

use super::rules::{self, ANSWERS_MAX, Asked, CANDIDATES_MAX};
use super::{Answer, Answers, Counters, HOSTS_OF_A_NAME_MAX, Record};
use crate::domain::Domain;
use crate::message::listing::{Page, PageRequest, Position};
use crate::message::{Body, Wanted};
use crate::publication::{AHEAD_MAX, Key, LEASE_MAX, Name, Publication, Rejection, Scope, SignedPublication};
use crate::seal::Sealer;

/// How long the store may take over a message. A member without an answer asks again, every 2 s at the
/// latest.
pub const PATIENCE: Span = Span::from_secs(5);
/// The most messages that wait for the store.
pub const WAITING_MAX: usize = 16_384;
/// How many parts of the list are asked for until one has a name, for one question.
const PARTS_MAX: u32 = 16;
/// How often a publication is tried while other processes change the fields that it depends on.
const TRIES_MAX: u32 = 8;
/// The most signatures that are remembered as valid, in each of two generations.
const VERIFIED_MAX: usize = 1 << 19;

/// A question to the store, which answers each with a [`Told`], in any order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// The number of the question, which its answer has, too.
    pub id: u64,
    /// The question itself.
    pub ask: Ask,
}

/// The question of a [`Query`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// All fields of a name.
    Name(Name),
    /// The fields that are listed for a content and have not ended. Those that end last come first.
    Content {
        /// The root of the content.
        root: [u8; 32],
        /// Only fields that end later than this, in milliseconds since 1970.
        after_ms: u64,
        /// The most fields to return.
        most: usize,
    },
    /// The names of a part of the list of all names. A part has some tens of names at most.
    Names {
        /// The scope of the names; `None`: names of all scopes.
        scope: Option<Scope>,
        /// The number of the part: 0 first, then as the last answer said.
        cursor: u64,
    },
    /// All fields of several names.
    Tables(Vec<Name>),
    /// Asks to keep a value in a field.
    Keep(Box<Keep>),
}

/// A request to set the value of a field, if the field has not changed meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keep {
    /// The name.
    pub name: Name,
    /// The field.
    pub field: Vec<u8>,
    /// The value that the field is known to have. If it has another value, nothing is changed.
    pub before: Option<Vec<u8>>,
    /// The new value.
    pub value: Vec<u8>,
    /// How long from now on the name must be kept at least.
    pub keep_for: Span,
    /// The most fields of the name. A new field is added only where there are fewer.
    pub fields_max: usize,
    /// Fields that have ended, and their values. They are removed first, if they still have these values.
    pub gone: Vec<(Vec<u8>, Vec<u8>)>,
    /// The list to extend before the value is kept.
    pub list: Option<List>,
}

/// A request to list a field for a content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct List {
    /// The content's root.
    pub root: [u8; 32],
    /// Until when the field must be listed at least, in milliseconds since 1970.
    pub until_ms: u64,
    /// The time now, in milliseconds since 1970: entries of the list that end before have ended.
    pub now_ms: u64,
    /// How long from now on the list must be kept at least.
    pub keep_for: Span,
}

/// A field of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// The name that the field belongs to.
    pub name: Name,
    /// The key of the field, `NODE:PORT`.
    pub field: Vec<u8>,
    /// The value of the field.
    pub value: Vec<u8>,
}

/// The answer of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// The fields that were asked for.
    Found {
        /// The fields.
        fields: Vec<Field>,
        /// How many entries were there that are no fields at all.
        nonsense: u64,
    },
    /// The names of a part of the list.
    Names {
        /// The names, in any order.
        names: Vec<Name>,
        /// The number of the next part; 0 if this part is the last one.
        next: u64,
        /// How many entries were there that are no names.
        nonsense: u64,
    },
    /// The value is kept.
    Kept,
    /// The value is not kept, because the field has changed.
    Changed,
    /// The value is not kept, because the store has no room.
    Full,
    /// The store cannot be asked now; whether it keeps the value is unknown.
    Failed,
}

/// Counters that only a rendezvous with a shared store has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedCounters {
    /// Messages without an answer, because the store gave none in time or too many messages were waiting.
    pub unanswered: u64,
    /// Fields whose values were not believed.
    pub unbelieved: u64,
    /// Publications that were tried again, because another process had changed fields that they depend on.
    pub conflicts: u64,
}

/// An input of the machine.
#[derive(Debug)]
pub enum Input<'a> {
    /// The payload of a frame, and its sender.
    Message(Peer, &'a [u8]),
    /// The answer of the store to the query of this number.
    Told(u64, Told),
}

/// A message that waits for the store.
#[derive(Debug)]
struct Waiting {
    from: Peer,
    call: u64,
    asks: Asks,
    until: Time,
}

#[derive(Debug)]
enum Asks {
    LookUp(Option<ContentId>),
    /// The names of a part of the list are asked for.
    Names {
        request: PageRequest,
        parts: u32,
    },
    /// The fields of names are asked for. `from` is where the page begins, `rest` is where the list goes on
    /// behind these names.
    Page {
        from: Position,
        rest: Option<Position>,
    },
    /// The fields of the name are asked for.
    Publish {
        signed: SignedPublication,
        tries: u32,
    },
    /// The record is being kept.
    Keep {
        signed: SignedPublication,
        is_outdated: bool,
        tries: u32,
    },
}

/// The machine of a rendezvous with a shared store; see the [module](self). Its events are for the store.
#[derive(Debug)]
pub struct SharedRendezvous {
    domain: Arc<Domain>,
    waiting: BTreeMap<u64, Waiting>,
    /// The messages that wait, in the order in which they arrived, with the time at which each is given up.
    deadlines: VecDeque<(Time, u64)>,
    next: u64,
    queries: VecDeque<Query>,
    answers: Answers,
    verified: Verified,
    counters: Counters,
    shared: SharedCounters,
}

impl SharedRendezvous {
    /// Creates a rendezvous of a domain.
    #[must_use]
    pub fn new(domain: Arc<Domain>) -> Self {
        Self {
            answers: Answers::new(&domain),
            domain,
            waiting: BTreeMap::new(),
            deadlines: VecDeque::new(),
            next: 0,
            queries: VecDeque::new(),
            verified: Verified::default(),
            counters: Counters::new(),
            shared: SharedCounters::default(),
        }
    }

    /// Sets the domain's key, for a domain with keyed identifiers.
    #[must_use]
    pub fn with_key(mut self, key: DomainKey) -> Self {
        self.answers.sealer = Some(Sealer::new(Arc::clone(&self.domain), key));
        self
    }

    /// Returns the counters that every rendezvous has.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns the counters that only a rendezvous with a shared store has.
    #[must_use]
    pub const fn shared_counters(&self) -> SharedCounters {
        self.shared
    }

    /// Returns how many messages wait for the store.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    fn ask(&mut self, ask: Ask, waiting: Waiting) {
        let id = self.next;
        self.next += 1;
        // A message that asks again keeps its deadline, so the deadlines are not quite in order: `expire`
        // copes with that.
        self.deadlines.push_back((waiting.until, id));
        self.waiting.insert(id, waiting);
        self.queries.push_back(Query { id, ask });
    }

    fn message(&mut self, now: Time, from: Peer, bytes: &[u8]) {
        let Some((call, asked)) = rules::read(&from, bytes) else {
            self.counters.dropped += 1;
            return;
        };
        // This check comes before any work that costs more than reading the message.
        if self.waiting.len() >= WAITING_MAX {
            self.shared.unanswered += 1;
            return;
        }
        let (ask, asks) = match asked {
            Asked::Elsewhere(body) => return self.answers.push(now, from, call, body),
            Asked::LookUp(Wanted::Name(name)) => (Ask::Name(name), Asks::LookUp(None)),
            Asked::LookUp(Wanted::Content(content)) => {
                let (root, after_ms) = (content.root, millis(now));
                (Ask::Content { root, after_ms, most: CANDIDATES_MAX }, Asks::LookUp(Some(content)))
            }
            Asked::List(request) => {
                let (scope, cursor) = (request.scope.clone(), request.from.cursor);
                (Ask::Names { scope, cursor }, Asks::Names { request, parts: 1 })
            }
            Asked::Publish(signed) => {
                if let Err(why) = rules::check(&self.domain, now, &from, &signed) {
                    let body = self.counters.refuse(why);
                    return self.answers.push(now, from, call, body);
                }
                // Each process that asks the store will read this publication: its signature need not be
                // checked again.
                self.verified.insert(fingerprint(&signed));
                (Ask::Name(signed.publication.name.clone()), Asks::Publish { signed, tries: 0 })
            }
        };
        self.ask(ask, Waiting { from, call, asks, until: now + PATIENCE });
    }

    fn told(&mut self, now: Time, id: u64, told: Told) {
        // A message whose time is over has been counted already.
        let Some(Waiting { from, call, asks, until }) = self.waiting.remove(&id) else { return };
        let body = match (asks, told) {
            (Asks::LookUp(content), Told::Found { fields, nonsense }) => {
                self.shared.unbelieved += nonsense;
                self.look_up(now, content, &fields)
            }
            (Asks::Names { request, parts }, Told::Names { names, next, nonsense }) => {
                self.shared.unbelieved += nonsense;
                match next_step(request, parts, names, next) {
                    Step::Ask(ask, asks) => return self.ask(ask, Waiting { from, call, asks, until }),
                    Step::Answer(page) => self.counters.listed(page),
                }
            }
            (Asks::Page { from, rest }, Told::Found { fields, nonsense }) => {
                self.shared.unbelieved += nonsense;
                self.list(now, &from, rest, &fields)
            }
            (Asks::Publish { signed, tries }, Told::Found { fields, nonsense }) => {
                self.shared.unbelieved += nonsense;
                match self.publish(now, signed.clone(), &fields) {
                    Err(why) => self.counters.refuse(why),
                    Ok((is_outdated, None)) => self.counters.taken(is_outdated),
                    Ok((is_outdated, Some(keep))) => {
                        let asks = Asks::Keep { signed, is_outdated, tries };
                        return self.ask(Ask::Keep(Box::new(keep)), Waiting { from, call, asks, until });
                    }
                }
            }
            (Asks::Keep { is_outdated, .. }, Told::Kept) => self.counters.taken(is_outdated),
            (Asks::Keep { .. }, Told::Full) => self.counters.refuse(Rejection::Full),
            (Asks::Keep { signed, tries, .. }, Told::Changed) if tries + 1 < TRIES_MAX => {
                self.shared.conflicts += 1;
                let ask = Ask::Name(signed.publication.name.clone());
                let asks = Asks::Publish { signed, tries: tries + 1 };
                return self.ask(ask, Waiting { from, call, asks, until });
            }
            // There is no answer where nothing is known: the member asks again.
            _ => {
                self.shared.unanswered += 1;
                return;
            }
        };
        self.answers.push(now, from, call, body);
    }

    fn look_up(&mut self, now: Time, content: Option<ContentId>, fields: &[Field]) -> Body {
        let is_wanted = |record: &Record| {
            !record.is_over(now) && content.is_none_or(|it| record.signed.publication.content == it)
        };
        let read: Vec<_> = fields.iter().filter_map(|field| self.believe(now, field)).collect();
        let found: Vec<_> = read.iter().filter(|it| is_wanted(it)).map(|it| &it.signed).collect();
        self.counters.looked_up(found.len());
        rules::best(found)
    }

    /// Returns the page that begins at `from` and is made of these fields.
    fn list(&mut self, now: Time, from: &Position, rest: Option<Position>, fields: &[Field]) -> Body {
        let read = fields.iter().filter_map(|field| self.believe(now, field));
        let read = read.filter(|record| !record.is_over(now)).map(|record| record.signed);
        let mut found: Vec<(Key, SignedPublication)> =
            read.map(|signed| (Key::of(&signed.publication), signed)).collect();
        found.retain(|(key, _)| from.after.as_ref().is_none_or(|after| key > after));
        found.sort_by(|(a, _), (b, _)| a.cmp(b));
        let page = Page::of(found.iter().map(|(_, signed)| signed), from.cursor, rest);
        self.counters.listed(page)
    }

    /// Returns how a publication relates to the fields that are there: whether it is outdated, and the
    /// request that keeps it, if it has to be kept.
    fn publish(
        &mut self,
        now: Time,
        signed: SignedPublication,
        fields: &[Field],
    ) -> Result<(bool, Option<Keep>), Rejection> {
        let own = field_of(&self.domain, &signed.publication);
        let (mut before, mut known, mut others) = (None, None, Vec::new());
        let mut gone = Vec::new();
        for field in fields {
            let record = self.believe(now, field);
            if field.field == own {
                before = Some(field.value.clone());
                known = record;
            } else if let Some(record) = record {
                others.push(record);
            } else if Record::parse(&field.value).is_ok_and(|record| record.guards_until <= now) {
                gone.push((field.field.clone(), field.value.clone()));
            }
        }
        let all = others.iter().chain(&known).filter(|record| !record.is_over(now));
        let is_outdated = rules::is_outdated(&signed.publication, all.map(|record| &record.signed));
        let room = HOSTS_OF_A_NAME_MAX.saturating_sub(others.len());
        let Some(record) = rules::judge(known.as_ref(), signed, || room > 0)? else {
            return Ok((is_outdated, None));
        };
        let publication = &record.signed.publication;
        let ends = publication.ends();
        let list = (!record.is_over(now)).then(|| List {
            root: publication.content.root,
            until_ms: millis(ends),
            now_ms: millis(now),
            keep_for: ends.since(now),
        });
        let keep = Keep {
            name: publication.name.clone(),
            field: own,
            before,
            value: record.to_bytes(),
            keep_for: record.guards_until.since(now),
            fields_max: fields.len() - gone.len() + room,
            gone,
            list,
        };
        Ok((is_outdated, Some(keep)))
    }

    /// Returns the record of a field; `None` if the record no longer guards or is not believed.
    fn believe(&mut self, now: Time, field: &Field) -> Option<Record> {
        let Some(record) = self.read(now, field) else {
            self.shared.unbelieved += 1;
            return None;
        };
        Some(record).filter(|record| record.guards_until > now)
    }

    /// Reads the record of a field; `None` if the value is no record, or no record that belongs into this
    /// field.
    fn read(&mut self, now: Time, field: &Field) -> Option<Record> {
        let record = Record::parse(&field.value).ok()?;
        let publication = &record.signed.publication;
        let key = rules::check_place(&self.domain, publication).ok()?;
        let is_there = publication.name == field.name && field_of(&self.domain, publication) == field.field;
        // No rule lets a record guard longer. A record that no longer guards need not be checked.
        if !is_there || record.guards_until > now + AHEAD_MAX + AHEAD_MAX + LEASE_MAX {
            return None;
        }
        if record.guards_until > now {
            let fingerprint = fingerprint(&record.signed);
            if !self.verified.has(&fingerprint) {
                record.signed.check_signature(&self.domain.name, key).ok()?;
                self.verified.insert(fingerprint);
            }
        }
        Some(record)
    }

    /// Gives up messages for which the store takes too long.
    fn expire(&mut self, now: Time) {
        while let Some((until, id)) = self.deadlines.front().copied() {
            let is_waiting = self.waiting.contains_key(&id);
            if is_waiting && until > now {
                return;
            }
            self.deadlines.pop_front();
            self.shared.unanswered += u64::from(self.waiting.remove(&id).is_some());
        }
    }
}

impl Machine for SharedRendezvous {
    type Input<'a> = Input<'a>;
    type Transmit = Answer;
    type Event = Query;

    fn handle(&mut self, now: Time, input: Input<'_>) {
        match input {
            Input::Message(from, bytes) => self.message(now, from, bytes),
            Input::Told(id, told) => self.told(now, id, told),
        }
    }

    fn poll(&mut self, now: Time) -> Output<Answer, Query> {
        self.expire(now);
        if let Some(query) = self.queries.pop_front() {
            return Output::Event(query);
        }
        if let Some(answer) = self.answers.pop() {
            return Output::Send(answer);
        }
        Output::Wait(self.deadlines.front().map_or(Time::NEVER, |(until, _)| *until))
    }
}

/// What follows on the names of a part of the list.
enum Step {
    Ask(Ask, Asks),
    Answer(Page),
}

/// Returns what follows on the names of a part: the question for the fields of those that the page begins
/// with, or, where there are none, for the next part. `parts` is the number of parts that were asked for.
fn next_step(request: PageRequest, parts: u32, mut names: Vec<Name>, next: u64) -> Step {
    let PageRequest { scope, from } = request;
    names.retain(|name| {
        scope.as_ref().is_none_or(|scope| name.scope() == scope)
            && from.after.as_ref().is_none_or(|after| Key::last_of(name.clone()) > *after)
    });
    names.sort();
    names.dedup();
    let part = |cursor| Position { cursor, after: None };
    let mut rest = (next != 0).then(|| part(next));
    match (names.is_empty(), &rest) {
        (true, Some(_)) if parts < PARTS_MAX => {
            let request = PageRequest { scope: scope.clone(), from: part(next) };
            return Step::Ask(Ask::Names { scope, cursor: next }, Asks::Names { request, parts: parts + 1 });
        }
        (true, _) => return Step::Answer(Page { next: rest, publications: Vec::new() }),
        (false, _) => {}
    }
    if names.len() > ANSWERS_MAX {
        names.truncate(ANSWERS_MAX);
        let last = names.last().cloned().map(Key::last_of);
        rest = Some(Position { cursor: from.cursor, after: last });
    }
    Step::Ask(Ask::Tables(names), Asks::Page { from, rest })
}

/// Returns the key of the field that holds a host's record in a name's table. It has the name of the node,
/// because the node's number changes with the domain's file.
fn field_of(domain: &Domain, publication: &Publication) -> Vec<u8> {
    format!("{}:{}", domain.graph.node(publication.node).name, publication.port).into_bytes()
}

fn millis(time: Time) -> u64 {
    time.as_nanos() / 1_000_000
}

/// Returns a hash of a publication and its signature. It is valid in one domain, whose keys do not change.
fn fingerprint(signed: &SignedPublication) -> [u8; 32] {
    let mut bytes = Vec::new();
    signed.put(&mut bytes);
    *blake3::hash(&bytes).as_bytes()
}

/// The fingerprints of publications that need not be verified again, in two generations. When the younger one
/// is full, it replaces the older one.
#[derive(Debug, Default)]
struct Verified {
    young: BTreeSet<[u8; 32]>,
    old: BTreeSet<[u8; 32]>,
}

impl Verified {
    fn has(&self, fingerprint: &[u8; 32]) -> bool {
        self.young.contains(fingerprint) || self.old.contains(fingerprint)
    }

    fn insert(&mut self, fingerprint: [u8; 32]) {
        if self.young.len() >= VERIFIED_MAX {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(fingerprint);
    }
}
