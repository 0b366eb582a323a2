//! Rendezvous: keeps publications while their leases last, and says who publishes what.
//!
//! Its time is that since 1970, for publications have dates. What it keeps it reports as [`Change`]s, so that
//! a world can write them down; [`Rendezvous::restore`] takes them back. A change is polled before the answer
//! that rests on it: a world that writes before it sends has written what an answer says.

mod record;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use algo::{Machine, Output, Time};
use mmtp::ContentId;
use mmtp::peer::Peer;
use topology::graph::NodeId;

use crate::domain::Domain;
use crate::frame;
use crate::message::{Body, Message, Wanted, refusal};
use crate::publication::{Name, Rejection, SignedPublication};

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
}

impl Rendezvous {
    /// Of a domain; it knows nothing yet.
    #[must_use]
    pub const fn new(domain: Arc<Domain>) -> Self {
        Self {
            domain,
            kept: BTreeMap::new(),
            by_content: BTreeSet::new(),
            ends: BTreeSet::new(),
            answers: VecDeque::new(),
            changes: VecDeque::new(),
            counters: Counters { published: 0, refused: BTreeMap::new(), lookups: 0, unknown: 0, dropped: 0 },
        }
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
                if let Some(record) = self.record(signed) {
                    self.changes.push_back(Change::Kept(record.clone()));
                    let over = record.is_over(now);
                    self.keep(Key::of(&record.signed.publication), Entry { record, over });
                }
                Body::Published
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
            Ok(Message { call, body: Body::Paths(_) | Body::LinkState(_) }) => {
                Some((call, Body::Refused { reason: refusal::NOT_HERE }))
            }
            Ok(_) | Err(_) => None,
        };
        match body {
            Some((call, body)) => {
                self.answers.push_back(Answer { to: from, message: Message { call, body }.to_bytes() });
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::{Call, Reach};
    use crate::domain::tests::{SQUARE, node};
    use crate::frame::Frame;
    use crate::publication::Publication;
    use crate::publication::tests::{NOW, key, publication};
    use algo::Span;

    struct Bed {
        domain: Arc<Domain>,
        rendezvous: Rendezvous,
        calls: u64,
    }

    impl Bed {
        fn new() -> Self {
            let text = SQUARE
                .replace("GEOCV2BQS65VZKVJEN2YJWPJPQJX4SIEBHFOJN4OOWUZQV6NE7WQ", &key().public().to_string());
            let domain = Arc::new(crate::domain_file::read(&text).expect("a domain"));
            Self { rendezvous: Rendezvous::new(Arc::clone(&domain)), domain, calls: 0 }
        }

        /// Asks from a node, and gives the answer; nothing but an answer may come.
        fn ask(&mut self, now: Time, from: &str, body: Body) -> Body {
            self.calls += 1;
            let reach = Reach::new(&self.domain, node(&self.domain, from), self.domain.rendezvous);
            let message = Message { call: self.calls, body };
            let sent = Call::new(&message, 5_000, now).poll(now, &reach).expect("it is sent at once");
            let Ok(Frame::Routed(routed)) = frame::parse(&sent.frame) else { panic!("a frame") };
            let peer = Peer { address: ([10, 0, 0, 1], 7_700).into(), way_back: routed.way_back };
            self.rendezvous.handle(now, (peer, routed.payload));
            let mut answer = None;
            loop {
                match self.rendezvous.poll(now) {
                    Output::Send(sent) => {
                        assert_eq!(sent.to, peer);
                        answer = Some(Message::parse(&sent.message).expect("a message"));
                    }
                    Output::Event(_) => {}
                    Output::Wait(_) => break,
                }
            }
            let answer = answer.expect("an answer");
            assert_eq!(answer.call, self.calls);
            answer.body
        }

        fn publication(&self, name: &str, host: &str) -> Publication {
            Publication { node: node(&self.domain, host), ..publication(name) }
        }

        fn publish(&mut self, now: Time, from: &str, publication: Publication) -> Body {
            let signed = key().sign("square", publication);
            self.ask(now, from, Body::Publish(signed))
        }

        fn found(&mut self, now: Time, name: &str) -> Vec<Publication> {
            let wanted = Wanted::Name(name.parse().expect("a name"));
            match self.ask(now, "a", Body::Lookup(wanted)) {
                Body::Match { publications, .. } => {
                    publications.into_iter().map(|it| it.publication).collect()
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn refused(why: Rejection) -> Body {
        Body::Refused { reason: refusal::of(why) }
    }

    #[test]
    fn what_is_published_is_found_until_its_lease_ends() {
        let mut bed = Bed::new();
        let it = bed.publication("films/x", "b");
        assert_eq!(bed.publish(NOW, "b", it.clone()), Body::Published);
        assert_eq!(bed.found(NOW, "films/x"), std::slice::from_ref(&it));
        assert_eq!(bed.found(NOW, "films/y"), []);
        let by_content = bed.ask(NOW, "a", Body::Lookup(Wanted::Content(it.content)));
        assert!(matches!(by_content, Body::Match { known: 1, .. }));
        let other = ContentId { length: 1, ..it.content };
        let by_content = bed.ask(NOW, "a", Body::Lookup(Wanted::Content(other)));
        assert!(matches!(by_content, Body::Match { known: 0, .. }), "another length");
        let later = NOW + Span::from_secs(50);
        let renewed = Publication { issued_ms: later.as_nanos() / 1_000_000, ..it.clone() };
        assert_eq!(bed.publish(later, "b", renewed.clone()), Body::Published);
        assert_eq!(bed.found(NOW + Span::from_secs(109), "films/x"), [renewed]);
        assert_eq!(bed.found(NOW + Span::from_secs(110), "films/x"), []);
        assert!(bed.rendezvous.is_empty() && bed.rendezvous.by_content.is_empty());
    }

    #[test]
    fn what_is_not_taken() {
        let mut bed = Bed::new();
        let it = bed.publication("films/x", "b");
        let other_scope = Publication { name: "songs/x".parse().expect("a name"), ..it.clone() };
        assert_eq!(bed.publish(NOW, "b", other_scope), refused(Rejection::UnknownScope));
        let forged = SignedPublication { publication: it.clone(), signature: [0; 64] };
        assert_eq!(bed.ask(NOW, "b", Body::Publish(forged)), refused(Rejection::Signature));
        assert_eq!(bed.publish(NOW, "a", it.clone()), refused(Rejection::OtherHost));
        let at_a_forwarder = bed.publication("films/x", "r1");
        assert_eq!(bed.publish(NOW, "r1", at_a_forwarder), refused(Rejection::NoHost));
        let late = NOW + Span::from_secs(60);
        assert_eq!(bed.publish(late, "b", it.clone()), refused(Rejection::Expired));
        let newer = Publication { issued_ms: it.issued_ms + 1, ..it.clone() };
        assert_eq!(bed.publish(NOW, "b", newer), Body::Published);
        assert_eq!(bed.publish(NOW, "b", it), refused(Rejection::Replayed));
        assert_eq!(bed.rendezvous.counters().refused.values().sum::<u64>(), 6);
    }

    #[test]
    fn what_is_withdrawn_cannot_be_sent_again() {
        let mut bed = Bed::new();
        let it = bed.publication("films/x", "b");
        assert_eq!(bed.publish(NOW, "b", it.clone()), Body::Published);
        let withdrawn = Publication { issued_ms: it.issued_ms + 5, lease_s: 0, ..it.clone() };
        assert_eq!(bed.publish(NOW, "b", withdrawn.clone()), Body::Published);
        assert_eq!(bed.found(NOW, "films/x"), []);
        assert_eq!(bed.publish(NOW, "b", it), refused(Rejection::Replayed));
        assert_eq!(bed.rendezvous.len(), 1, "it remembers that");
        assert_eq!(bed.found(NOW + Span::from_secs(60), "films/x"), []);
        assert!(bed.rendezvous.is_empty(), "until what was withdrawn would have ended");
        assert_eq!(bed.publish(NOW, "b", withdrawn), Body::Published);
        assert!(bed.rendezvous.is_empty(), "nothing was there");
    }

    #[test]
    fn an_earlier_longer_lease_does_not_outlive_a_withdrawal() {
        let mut bed = Bed::new();
        let long = Publication { lease_s: 3_600, ..bed.publication("films/x", "b") };
        assert_eq!(bed.publish(NOW, "b", long.clone()), Body::Published);
        let short = Publication { issued_ms: long.issued_ms + 1, lease_s: 60, ..long.clone() };
        assert_eq!(bed.publish(NOW, "b", short.clone()), Body::Published);
        let withdrawn = Publication { issued_ms: long.issued_ms + 2, lease_s: 0, ..long.clone() };
        assert_eq!(bed.publish(NOW, "b", withdrawn), Body::Published);
        let later = NOW + Span::from_secs(600);
        assert_eq!(bed.publish(later, "b", long.clone()), refused(Rejection::Replayed));
        // Nor does it outlive the end of the short one.
        let mut bed = Bed::new();
        assert_eq!(bed.publish(NOW, "b", long.clone()), Body::Published);
        assert_eq!(bed.publish(NOW, "b", short.clone()), Body::Published);
        assert_eq!(bed.found(later, "films/x"), []);
        assert_eq!(bed.publish(later, "b", long), refused(Rejection::Replayed));
        assert_eq!(bed.found(NOW + Span::from_secs(3_600), "films/x"), []);
        assert!(bed.rendezvous.is_empty());
        // Two of one moment are not the same.
        let other = Publication { port: short.port, version_ms: 9, ..short.clone() };
        assert_eq!(bed.publish(NOW, "b", short), Body::Published);
        assert_eq!(bed.publish(NOW, "b", other), refused(Rejection::Replayed));
    }

    #[test]
    fn the_newest_content_comes_first() {
        let mut bed = Bed::new();
        for (host, version_ms) in [("a", 7), ("b", 9), ("tm", 8)] {
            let it = Publication { version_ms, ..bed.publication("films/x", host) };
            assert_eq!(bed.publish(NOW, host, it), Body::Published);
        }
        let versions: Vec<_> = bed.found(NOW, "films/x").iter().map(|it| it.version_ms).collect();
        assert_eq!(versions, [9, 8, 7]);
    }

    #[test]
    fn a_new_run_takes_back_what_is_good() {
        let mut bed = Bed::new();
        let signed = key().sign("square", bed.publication("films/x", "b"));
        let record = Record { guards_until: NOW + Span::from_secs(90), signed: signed.clone() };
        let other_scope = Publication { name: "songs/x".parse().expect("a name"), ..signed.publication };
        let other_scope = Record { signed: key().sign("square", other_scope), ..record.clone() };
        assert_eq!(bed.rendezvous.restore(NOW, other_scope), Err(Rejection::UnknownScope));
        let at_a_forwarder =
            Record { signed: key().sign("square", bed.publication("films/x", "r1")), ..record.clone() };
        assert_eq!(bed.rendezvous.restore(NOW, at_a_forwarder), Err(Rejection::NoHost));
        assert_eq!(bed.rendezvous.restore(NOW, record.clone()), Ok(()));
        assert_eq!(bed.rendezvous.restore(NOW, record.clone()), Err(Rejection::Replayed));
        assert_eq!(bed.found(NOW, "films/x").len(), 1);
        let mut bed = Bed::new();
        let later = NOW + Span::from_secs(70);
        assert_eq!(bed.rendezvous.restore(later, record.clone()), Ok(()));
        assert_eq!(bed.found(later, "films/x"), [], "its lease has ended");
        assert_eq!(bed.rendezvous.len(), 1, "and it guards against earlier ones");
        let mut bed = Bed::new();
        assert_eq!(bed.rendezvous.restore(NOW + Span::from_secs(90), record), Err(Rejection::Expired));
    }
}
