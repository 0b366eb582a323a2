//! A rendezvous whose publications are in a store that several of them share: what one has taken, all answer.
//!
//! The store knows no rule and checks nothing. It has a table of *fields* for each name, a field for each
//! place (`NODE:PORT`), whose value is a [`Record`] as bytes; and for each content a list of the fields that
//! may say something of it. It can be asked for these, and to [keep](Keep) a value if what is there is still
//! what has been read ("compare and set"). So the rules are those of [one process](super::Rendezvous), and
//! of two publications at one moment the later one counts, whichever process was first.
//!
//! What is read is believed only if it makes sense where it is and the owner of the scope has signed it.
//!
//! The list of a content may name too much, never too little: it is written before the field. What it leads
//! to decides.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use anabranch_algo::{Machine, Output, Span, Time};
use anabranch_mmtp::ContentId;
use anabranch_mmtp::peer::Peer;
use anabranch_topology::keyed::DomainKey;

use super::rules::{self, Asked, CANDIDATES_MAX};
use super::{Answer, Answers, Counters, HOSTS_OF_A_NAME_MAX, Record};
use crate::domain::Domain;
use crate::message::{Body, Wanted};
use crate::publication::{AHEAD_MAX, LEASE_MAX, Name, Publication, Rejection, SignedPublication};
use crate::seal::Sealer;

/// How long the store may take over a message. Who asked asks again, every 2 s at the latest.
pub const PATIENCE: Span = Span::from_secs(5);
/// Messages that wait for the store, at most.
pub const WAITING_MAX: usize = 16_384;
/// How often a publication is tried while others change what it depends on.
const TRIES_MAX: u32 = 8;
/// Signatures that are known to be right, in each of two generations.
const VERIFIED_MAX: usize = 1 << 19;

/// What the store is asked for. It answers each with a [`Told`], in any order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// Of the answer, too.
    pub id: u64,
    /// What.
    pub ask: Ask,
}

/// See [`Query`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// All fields of a name.
    Name(Name),
    /// The fields that are listed for a content and have not ended, those that end last first.
    Content {
        /// Its root.
        root: [u8; 32],
        /// What ends later than this, milliseconds since 1970.
        after_ms: u64,
        /// Fields at most.
        most: usize,
    },
    /// To keep something.
    Keep(Box<Keep>),
}

/// A field that is to have a value, if nothing has happened meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keep {
    /// The name.
    pub name: Name,
    /// The field.
    pub field: Vec<u8>,
    /// What is in it as far as is known. If it is something else, nothing is changed.
    pub before: Option<Vec<u8>>,
    /// What shall be.
    pub value: Vec<u8>,
    /// For how long from now on the name must be kept at least.
    pub keep_for: Span,
    /// A new field comes only where there are fewer than this.
    pub fields_max: usize,
    /// Fields with values that are nothing any more, which go first if they still have these.
    pub gone: Vec<(Vec<u8>, Vec<u8>)>,
    /// To be listed before it is kept.
    pub list: Option<List>,
}

/// A field that is to be listed for a content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct List {
    /// The content's root.
    pub root: [u8; 32],
    /// Until when at least, milliseconds since 1970.
    pub until_ms: u64,
    /// What of the list has ended, milliseconds since 1970.
    pub now_ms: u64,
    /// For how long from now on the list must be kept at least.
    pub keep_for: Span,
}

/// A field of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Of this name.
    pub name: Name,
    /// What it is called.
    pub field: Vec<u8>,
    /// What is in it.
    pub value: Vec<u8>,
}

/// What a store answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// These are there.
    Found {
        /// What was asked for.
        fields: Vec<Field>,
        /// What was there and is no field at all.
        nonsense: u64,
    },
    /// It is kept.
    Kept,
    /// It is not, for something else is there by now.
    Changed,
    /// It is not, for the store has no room.
    Full,
    /// The store cannot be asked now; nobody knows whether something is kept.
    Failed,
}

/// What went through that only a shared store has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedCounters {
    /// Messages that got no answer, because the store gave none in time.
    pub unanswered: u64,
    /// Fields that were not believed.
    pub unbelieved: u64,
    /// Publications that were tried once more, because another process had changed what they depend on.
    pub conflicts: u64,
}

/// What has come.
#[derive(Debug)]
pub enum Input<'a> {
    /// The payload of a frame, and who sent it.
    Message(Peer, &'a [u8]),
    /// What the store says to the query of this number.
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
    /// What is known of the name is asked for.
    Publish {
        signed: SignedPublication,
        tries: u32,
    },
    /// It is being kept.
    Keep {
        signed: SignedPublication,
        is_outdated: bool,
        tries: u32,
    },
}

/// The machine; see the [module](self). Its events are for the store.
#[derive(Debug)]
pub struct SharedRendezvous {
    domain: Arc<Domain>,
    waiting: BTreeMap<u64, Waiting>,
    /// In the order in which their time is over, which is that in which they came.
    deadlines: VecDeque<(Time, u64)>,
    next: u64,
    queries: VecDeque<Query>,
    answers: Answers,
    verified: Verified,
    counters: Counters,
    shared: SharedCounters,
}

impl SharedRendezvous {
    /// Of a domain.
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

    /// The same, of a domain with keyed identifiers, which has this key.
    #[must_use]
    pub fn with_key(mut self, key: DomainKey) -> Self {
        self.answers.sealer = Some(Sealer::new(Arc::clone(&self.domain), key));
        self
    }

    /// What has gone through so far.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What only a shared store has.
    #[must_use]
    pub const fn shared_counters(&self) -> SharedCounters {
        self.shared
    }

    /// How many messages wait for the store.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    fn ask(&mut self, ask: Ask, waiting: Waiting) {
        let id = self.next;
        self.next += 1;
        // One that asks again keeps its time, so these are not quite in order: `expire` bears that.
        self.deadlines.push_back((waiting.until, id));
        self.waiting.insert(id, waiting);
        self.queries.push_back(Query { id, ask });
    }

    fn message(&mut self, now: Time, from: Peer, bytes: &[u8]) {
        let Some((call, asked)) = rules::read(&from, bytes) else {
            self.counters.dropped += 1;
            return;
        };
        // Before anything that costs more than reading it.
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
            Asked::Publish(signed) => {
                if let Err(why) = rules::check(&self.domain, now, &from, &signed) {
                    let body = self.counters.refuse(why);
                    return self.answers.push(now, from, call, body);
                }
                // Each that asks will read it.
                self.verified.insert(fingerprint(&signed));
                (Ask::Name(signed.publication.name.clone()), Asks::Publish { signed, tries: 0 })
            }
        };
        self.ask(ask, Waiting { from, call, asks, until: now + PATIENCE });
    }

    fn told(&mut self, now: Time, id: u64, told: Told) {
        // One whose time is over is counted already.
        let Some(Waiting { from, call, asks, until }) = self.waiting.remove(&id) else { return };
        let body = match (asks, told) {
            (Asks::LookUp(content), Told::Found { fields, nonsense }) => {
                self.shared.unbelieved += nonsense;
                self.look_up(now, content, &fields)
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
            // Nothing is said where nothing is known: who asked asks again.
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

    /// What follows for a publication from what is there: whether it is outdated, and what to keep of it.
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

    /// The record of a field, unless it is a thing of the past, or none.
    fn believe(&mut self, now: Time, field: &Field) -> Option<Record> {
        let Some(record) = self.read(now, field) else {
            self.shared.unbelieved += 1;
            return None;
        };
        Some(record).filter(|record| record.guards_until > now)
    }

    /// The record of a field; `None` if it is none, at least not there.
    fn read(&mut self, now: Time, field: &Field) -> Option<Record> {
        let record = Record::parse(&field.value).ok()?;
        let publication = &record.signed.publication;
        let key = rules::check_place(&self.domain, publication).ok()?;
        let is_there = publication.name == field.name && field_of(&self.domain, publication) == field.field;
        // Longer nobody guards; and what is over need not be checked.
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

    /// Gives up what the store takes too long over.
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

/// Where a name's table has what a host says: by the name of the node, for its number is another where the
/// domain's file has changed.
fn field_of(domain: &Domain, publication: &Publication) -> Vec<u8> {
    format!("{}:{}", domain.graph.node(publication.node).name, publication.port).into_bytes()
}

fn millis(time: Time) -> u64 {
    time.as_nanos() / 1_000_000
}

/// Of a publication and its signature; in one domain, whose keys do not change.
fn fingerprint(signed: &SignedPublication) -> [u8; 32] {
    let mut bytes = Vec::new();
    signed.put(&mut bytes);
    *blake3::hash(&bytes).as_bytes()
}

/// Fingerprints of what need not be verified again: two generations, of which the elder goes when the younger
/// is full.
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
