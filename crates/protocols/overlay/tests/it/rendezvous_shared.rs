//! Several rendezvous that share a store answer as one that has everything in memory, whichever of them is
//! asked. Of publications that they take at one moment, the later one counts.

use std::collections::BTreeMap;

use crate::rendezvous_bed::{Bed, START, key, publication};
use anabranch_algo::{Machine as _, Output, Span, Time};
use anabranch_mmtp::peer::Peer;
use anabranch_overlay::message::listing::{PageRequest, Position};
use anabranch_overlay::message::{Body, MESSAGE_MAX, Message, Wanted, refusal};
use anabranch_overlay::publication::{Key, Name, Publication, Rejection, ScopeKey, SignedPublication};
use anabranch_overlay::rendezvous::shared::{
    Ask, Field, Input, Keep, PATIENCE, Query, SharedCounters, SharedRendezvous, Told, WAITING_MAX,
};
use anabranch_overlay::rendezvous::{Record, Rendezvous};
use proptest::prelude::*;

/// The fields of a content, and until when they are listed.
type Listed = BTreeMap<(Name, Vec<u8>), u64>;

/// A store, as a table. It does not remove fields that have ended: a reader must see by itself that they are
/// over.
#[derive(Default)]
struct Store {
    names: BTreeMap<Name, BTreeMap<Vec<u8>, Vec<u8>>>,
    contents: BTreeMap<[u8; 32], Listed>,
    /// The most fields that a name has had.
    fields_max: usize,
}

impl Store {
    fn run(&mut self, ask: &Ask) -> Told {
        match ask {
            Ask::Name(name) => {
                let all = self.names.get(name).into_iter().flatten();
                let field = |(field, value): (&Vec<u8>, &Vec<u8>)| Field {
                    name: name.clone(),
                    field: field.clone(),
                    value: value.clone(),
                };
                Told::Found { fields: all.map(field).collect(), nonsense: 0 }
            }
            Ask::Content { root, after_ms, most } => {
                let listed = self.contents.get(root).into_iter().flatten();
                let mut listed: Vec<_> = listed.filter(|(_, until)| *until > after_ms).collect();
                listed.sort_by_key(|(_, until)| std::cmp::Reverse(**until));
                let field = |((name, field), _): (&(Name, Vec<u8>), &u64)| {
                    let value = self.names.get(name)?.get(field)?.clone();
                    Some(Field { name: name.clone(), field: field.clone(), value })
                };
                Told::Found {
                    fields: listed.into_iter().take(*most).filter_map(field).collect(),
                    nonsense: 0,
                }
            }
            // A part has two names, and its number is how many names come before it.
            Ask::Names { scope, cursor } => {
                let all = self.names.keys().skip(*cursor as usize).take(2);
                let names = all.filter(|name| scope.as_ref().is_none_or(|scope| name.scope() == scope));
                let next = if cursor + 2 < self.names.len() as u64 { cursor + 2 } else { 0 };
                Told::Names { names: names.cloned().collect(), next, nonsense: 0 }
            }
            Ask::Tables(names) => {
                let found = |name: &Name| match self.run(&Ask::Name(name.clone())) {
                    Told::Found { fields, .. } => fields,
                    other => panic!("{other:?}"),
                };
                Told::Found { fields: names.iter().flat_map(found).collect(), nonsense: 0 }
            }
            Ask::Keep(keep) => self.keep(keep),
        }
    }

    fn keep(&mut self, keep: &Keep) -> Told {
        if let Some(list) = &keep.list {
            let listed = self.contents.entry(list.root).or_default();
            listed.retain(|_, until| *until > list.now_ms);
            let until = listed.entry((keep.name.clone(), keep.field.clone())).or_default();
            *until = list.until_ms.max(*until);
        }
        let fields = self.names.entry(keep.name.clone()).or_default();
        for (field, value) in &keep.gone {
            if fields.get(field) == Some(value) {
                fields.remove(field);
            }
        }
        if fields.get(&keep.field) != keep.before.as_ref()
            || keep.before.is_none() && fields.len() >= keep.fields_max
        {
            return Told::Changed;
        }
        assert!(keep.keep_for > Span::ZERO);
        fields.insert(keep.field.clone(), keep.value.clone());
        self.fields_max = self.fields_max.max(fields.len());
        Told::Kept
    }
}

/// A rendezvous, and its queries to the store.
struct One {
    machine: SharedRendezvous,
    queries: Vec<Query>,
    answers: Vec<Vec<u8>>,
}

impl One {
    fn new(bed: &Bed) -> Self {
        Self { machine: SharedRendezvous::new(bed.domain.clone()), queries: Vec::new(), answers: Vec::new() }
    }

    fn handle(&mut self, now: Time, input: Input<'_>) {
        self.machine.handle(now, input);
        self.poll(now);
    }

    fn poll(&mut self, now: Time) {
        loop {
            match self.machine.poll(now) {
                Output::Event(query) => self.queries.push(query),
                Output::Send(answer) => self.answers.push(answer.message),
                Output::Wait(until) => {
                    assert!(until > now, "it waits for the past");
                    return;
                }
            }
        }
    }

    /// Asks, and lets the store answer at once.
    fn ask(&mut self, now: Time, store: &mut Store, peer: Peer, bytes: &[u8]) -> Vec<Vec<u8>> {
        self.handle(now, Input::Message(peer, bytes));
        while let Some(Query { id, ask }) = self.queries.pop() {
            let told = store.run(&ask);
            self.handle(now, Input::Told(id, told));
        }
        std::mem::take(&mut self.answers)
    }

    /// Returns all publications of a scope, or of all, page by page.
    fn list(&mut self, now: Time, store: &mut Store, bed: &Bed, scope: Option<&str>) -> Vec<Publication> {
        listed(scope, |body| self.body(now, store, bed, 0, body).expect("an answer"))
    }

    fn body(&mut self, now: Time, store: &mut Store, bed: &Bed, host: usize, body: Body) -> Option<Body> {
        let (peer, bytes) = bed.message(host, now, 7, body);
        let answers = self.ask(now, store, peer, &bytes);
        assert!(answers.len() <= 1);
        answers.first().map(|answer| Message::parse(answer).expect("a message").body)
    }
}

/// Asks for one page after the other. Returns the publications in the order in which they were told.
fn listed(scope: Option<&str>, mut ask: impl FnMut(Body) -> Body) -> Vec<Publication> {
    let scope = scope.map(|scope| scope.parse().expect("a scope"));
    let (mut all, mut from) = (Vec::new(), Position::default());
    for _ in 0..10_000 {
        let Body::Listed(page) = ask(Body::List(PageRequest { scope: scope.clone(), from })) else {
            panic!("a page")
        };
        all.extend(page.publications.into_iter().map(|signed| signed.publication));
        match page.next {
            Some(next) => from = next,
            None => return all,
        }
    }
    panic!("it never ends");
}

fn in_memory(machine: &mut Rendezvous, now: Time, peer: Peer, bytes: &[u8]) -> Vec<Vec<u8>> {
    machine.handle(now, (peer, bytes));
    let mut answers = Vec::new();
    loop {
        match machine.poll(now) {
            Output::Event(_) => {}
            Output::Send(answer) => answers.push(answer.message),
            Output::Wait(_) => return answers,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn three_that_share_are_as_one(
        steps in prop::collection::vec((crate::rendezvous_bed::step(), 0..3_usize), 1..60),
    ) {
        let bed = Bed::new();
        let mut memory = Rendezvous::new(bed.domain.clone());
        let mut store = Store::default();
        let mut all = [One::new(&bed), One::new(&bed), One::new(&bed)];
        let (mut sent, mut now) = (Vec::new(), START);
        for (number, (step, which)) in steps.into_iter().enumerate() {
            if let crate::rendezvous_bed::Step::Restart = step {
                all[which] = One::new(&bed);
            }
            if let Some((host, body)) = bed.apply(step, &mut sent, &mut now) {
                let (peer, bytes) = bed.message(host, now, number as u64, body);
                let expected = in_memory(&mut memory, now, peer, &bytes);
                prop_assert_eq!(all[which].ask(now, &mut store, peer, &bytes), expected);
            }
        }
        for scope in [None, Some("films"), Some("songs")] {
            let expected = listed(scope, |body| {
                let (peer, bytes) = bed.message(0, now, 7, body);
                let answers = in_memory(&mut memory, now, peer, &bytes);
                Message::parse(&answers[0]).expect("a message").body
            });
            prop_assert!(expected.is_sorted_by_key(Key::of) && expected.iter().all(|it| it.ends() > now));
            for one in &mut all {
                let mut told = one.list(now, &mut store, &bed, scope);
                told.sort_by_key(Key::of);
                prop_assert_eq!(&told, &expected);
            }
        }
        let counters = all.map(|one| (one.machine.shared_counters(), one.machine.waiting()));
        let none = [(SharedCounters::default(), 0); 3];
        prop_assert_eq!(counters, none, "nothing is unanswered, unbelieved or tried twice");
    }

    /// The store answers in any order. In the end the latest publication of each host counts, whichever
    /// rendezvous took it.
    #[test]
    fn the_later_one_counts_in_whatever_order(
        ages in prop::collection::vec((0..2_usize, 0..6_u64, any::<bool>()), 1..12),
        order in prop::collection::vec((0..2_usize, any::<prop::sample::Index>()), 400),
    ) {
        let bed = Bed::new();
        let mut store = Store::default();
        let mut all = [One::new(&bed), One::new(&bed)];
        let mut latest = 0;
        for (number, (which, age, withdraws)) in ages.iter().enumerate() {
            let lease_s = if *withdraws { 0 } else { 60 };
            // Each publication has a moment of its own.
            let issued_ms = START.as_nanos() / 1_000_000 + age * 100 + number as u64;
            latest = latest.max(issued_ms);
            let it = Publication { issued_ms, lease_s, ..publication(&bed, "films/1", 0) };
            let (peer, bytes) = bed.message(0, START, number as u64, Body::Publish(key().sign("small", it)));
            all[*which].handle(START, Input::Message(peer, &bytes));
        }
        for (which, index) in order {
            let one = &mut all[which];
            if !one.queries.is_empty() {
                let query = one.queries.remove(index.index(one.queries.len()));
                let told = store.run(&query.ask);
                one.handle(START, Input::Told(query.id, told));
            }
        }
        prop_assert!(all.iter().all(|one| one.queries.is_empty()), "the order was long enough");
        let mut kept = store.names.values().flatten().map(|(_, value)| {
            Record::parse(value).expect("a record").signed.publication.issued_ms
        });
        let answered: usize = all.iter().map(|one| one.answers.len()).sum();
        let unanswered: u64 = all.iter().map(|one| one.machine.shared_counters().unanswered).sum();
        prop_assert_eq!(answered as u64 + unanswered, ages.len() as u64);
        // A withdrawal alone leaves nothing. A publication that could not be kept in eight tries is sent
        // again.
        if let Some(kept) = kept.next() {
            prop_assert!(kept <= latest);
            let taken = all.iter().flat_map(|one| &one.answers);
            let taken = taken.map(|answer| Message::parse(answer).expect("a message"));
            let lasts = |answer: &Message| !ages[answer.call as usize].2;
            let taken = taken.filter(|answer| answer.body == Body::Published && lasts(answer));
            let issued = taken.map(|answer| {
                START.as_nanos() / 1_000_000 + ages[answer.call as usize].1 * 100 + answer.call
            });
            let newest = issued.max().unwrap_or(0);
            prop_assert!(kept >= newest, "{} is kept where {} was taken", kept, newest);
        }
    }
}

fn signed(bed: &Bed, name: &str, host: usize) -> SignedPublication {
    key().sign("small", publication(bed, name, host))
}

fn look(name: &str) -> Body {
    Body::Lookup(Wanted::Name(name.parse().expect("a name")))
}

fn known(body: Option<Body>) -> u16 {
    match body {
        Some(Body::Match { known, .. }) => known,
        other => panic!("{other:?}"),
    }
}

/// Returns a rendezvous and a store with one publication, its only field.
fn filled(bed: &Bed) -> (One, Store) {
    let (mut one, mut store) = (One::new(bed), Store::default());
    let body = Body::Publish(signed(bed, "films/1", 0));
    assert_eq!(one.body(START, &mut store, bed, 0, body), Some(Body::Published));
    (one, store)
}

#[test]
fn what_others_have_written_is_not_believed() {
    let bed = Bed::new();
    let (mut one, store) = filled(&bed);
    let (name, good) = store.names.first_key_value().expect("a name");
    let (field, value) = good.first_key_value().expect("a field");
    assert_eq!(field, b"a:26227");
    let at = |field: &[u8], value: &[u8]| {
        let fields = BTreeMap::from([(field.to_vec(), value.to_vec())]);
        Store { names: BTreeMap::from([(name.clone(), fields)]), ..Store::default() }
    };
    let mut other = value.clone();
    let last = other.len() - 1;
    other[last] ^= 1;
    let mut long = value.clone();
    long[0] = 0xff;
    let strange = ScopeKey::new([8; 32]).expect("a key").sign("small", publication(&bed, "films/1", 0));
    let strange = [&value[..8], &{
        // The bytes of a publication in a message follow its head of twelve bytes.
        Message { call: 0, body: Body::Publish(strange) }.to_bytes()[12..].to_vec()
    }]
    .concat();
    let cases = [
        ("junk", at(field, b"junk")),
        ("nothing", at(field, b"")),
        ("another signature", at(field, &other)),
        ("another key", at(field, &strange)),
        ("too long a guard", at(field, &long)),
        ("another host", at(b"b:26227", value)),
        ("another port", at(b"a:26228", value)),
        ("no host", at(b"z", value)),
    ];
    for (what, mut store) in cases {
        let mut fresh = One::new(&bed);
        assert_eq!(known(fresh.body(START, &mut store, &bed, 0, look("films/1"))), 0, "{what}");
        assert_eq!(fresh.machine.shared_counters().unbelieved, 1, "{what}");
        // The field is not in the way either: the host that owns it replaces it.
        let body = Body::Publish(signed(&bed, "films/1", 0));
        assert_eq!(fresh.body(START, &mut store, &bed, 0, body), Some(Body::Published), "{what}");
        assert_eq!(known(fresh.body(START, &mut store, &bed, 0, look("films/1"))), 1, "{what}");
    }
    let mut elsewhere = at(field, value);
    let fields = elsewhere.names.remove(name).expect("its fields");
    elsewhere.names.insert("films/2".parse().expect("a name"), fields);
    assert_eq!(known(one.body(START, &mut elsewhere, &bed, 0, look("films/2"))), 0, "another name");
}

#[test]
fn forged_and_replayed_publications_are_refused() {
    let bed = Bed::new();
    let (mut one, mut store) = filled(&bed);
    let it = publication(&bed, "films/1", 0);
    let refused = |why| Some(Body::Refused { reason: refusal::of(why) });
    let forged = SignedPublication { publication: it.clone(), signature: [0; 64] };
    let mut other = One::new(&bed);
    let mut publish = |host, signed| other.body(START, &mut store, &bed, host, Body::Publish(signed));
    assert_eq!(publish(0, forged), refused(Rejection::Signature));
    assert_eq!(publish(1, key().sign("small", it.clone())), refused(Rejection::OtherHost));
    let withdrawn = Publication { issued_ms: it.issued_ms + 1, lease_s: 0, ..it.clone() };
    assert_eq!(publish(0, key().sign("small", withdrawn)), Some(Body::Published));
    let again = one.body(START, &mut store, &bed, 0, Body::Publish(key().sign("small", it)));
    assert_eq!(again, refused(Rejection::Replayed), "the other one knows that it is withdrawn");
    assert_eq!(known(one.body(START, &mut store, &bed, 0, look("films/1"))), 0);
}

#[test]
fn a_name_has_256_hosts_at_most_however_many_come_at_once() {
    let bed = Bed::new();
    let (mut store, mut all) = (Store::default(), [One::new(&bed), One::new(&bed)]);
    for port in 0..300 {
        let it = Publication { port: 30_000 + port, ..publication(&bed, "films/1", 0) };
        let (peer, bytes) = bed.message(0, START, u64::from(port), Body::Publish(key().sign("small", it)));
        all[usize::from(port % 2)].handle(START, Input::Message(peer, &bytes));
    }
    // All read before any of them writes.
    while all.iter().any(|one| !one.queries.is_empty()) {
        for one in &mut all {
            for Query { id, ask } in std::mem::take(&mut one.queries) {
                let told = store.run(&ask);
                one.handle(START, Input::Told(id, told));
            }
        }
    }
    assert_eq!(store.fields_max, 256);
    let answers = all.iter_mut().flat_map(|one| std::mem::take(&mut one.answers));
    let bodies: Vec<Body> = answers.map(|it| Message::parse(&it).expect("a message").body).collect();
    assert_eq!(bodies.iter().filter(|body| **body == Body::Published).count(), 256);
    let full = Body::Refused { reason: refusal::of(Rejection::Full) };
    assert_eq!(bodies.iter().filter(|body| **body == full).count(), 44);
    // Records that are over make room.
    let later = START + Span::from_secs(120);
    let it = Publication { issued_ms: later.as_nanos() / 1_000_000, ..publication(&bed, "films/1", 0) };
    let body = Body::Publish(key().sign("small", it));
    assert_eq!(all[0].body(later, &mut store, &bed, 0, body), Some(Body::Published));
    assert_eq!(store.names.values().map(BTreeMap::len).sum::<usize>(), 1);
}

/// Names in any number, with more hosts than a page has room for, are all told, each once.
#[test]
fn a_long_list_is_told_page_by_page() {
    let bed = Bed::new();
    let (mut one, mut store) = filled(&bed);
    let mut memory = Rendezvous::new(bed.domain.clone());
    let body = Body::Publish(signed(&bed, "films/1", 0));
    let (peer, bytes) = bed.message(0, START, 7, body);
    in_memory(&mut memory, START, peer, &bytes);
    for name in 0..40_u16 {
        for port in 0..=(name % 3) * 9 {
            let it = publication(&bed, &format!("films/{name:03}{}", "x".repeat(usize::from(name))), 0);
            let body = Body::Publish(key().sign("small", Publication { port: 30_000 + port, ..it }));
            let (peer, bytes) = bed.message(0, START, 7, body.clone());
            in_memory(&mut memory, START, peer, &bytes);
            assert_eq!(one.body(START, &mut store, &bed, 0, body), Some(Body::Published));
        }
    }
    let told = one.list(START, &mut store, &bed, Some("films"));
    let mut pages = 0;
    let expected = listed(None, |body| {
        pages += 1;
        let (peer, bytes) = bed.message(0, START, 7, body);
        let answers = in_memory(&mut memory, START, peer, &bytes);
        assert!(answers[0].len() <= MESSAGE_MAX);
        Message::parse(&answers[0]).expect("a message").body
    });
    assert_eq!((told.len(), &told), (memory.len(), &expected), "this store has names in order");
    assert!(pages > told.len() / 8 && pages < told.len() / 3, "{pages} pages for {}", told.len());
    assert_eq!(memory.counters().pages, pages as u64);
    assert_eq!(one.list(START, &mut store, &bed, Some("songs")), [], "of another scope");
    // Leases that end are told no more, and what a rendezvous remembers of them is passed over.
    let later = START + Span::from_secs(60);
    assert_eq!(one.list(later, &mut store, &bed, None), []);
    // A store that says that the list goes on for ever is asked for some parts, and then answered is what is
    // known: nothing, and where to go on.
    let (peer, bytes) = bed.message(0, START, 1, Body::List(PageRequest::default()));
    one.handle(START, Input::Message(peer, &bytes));
    let mut parts = 0;
    while let Some(query) = one.queries.pop() {
        assert!(matches!(query.ask, Ask::Names { cursor, .. } if cursor == parts));
        parts += 1;
        one.handle(START, Input::Told(query.id, Told::Names { names: vec![], next: parts, nonsense: 0 }));
    }
    let answer = Message::parse(&one.answers.pop().expect("an answer")).expect("a message");
    let Body::Listed(page) = answer.body else { panic!("a page") };
    assert_eq!((page.publications.len(), page.next.map(|next| next.cursor)), (0, Some(16)));
}

#[test]
fn a_store_that_is_gone_means_silence_and_never_unknown() {
    let bed = Bed::new();
    let (mut one, mut store) = filled(&bed);
    for told in [Told::Failed, Told::Changed, Told::Full, Told::Kept] {
        let (peer, bytes) = bed.message(0, START, 1, look("films/1"));
        one.handle(START, Input::Message(peer, &bytes));
        let query = one.queries.pop().expect("a query");
        one.handle(START, Input::Told(query.id, told));
        assert!(one.answers.is_empty() && one.queries.is_empty());
    }
    assert_eq!(one.machine.shared_counters().unanswered, 4);
    // A store that does not answer at all is not waited for.
    let (peer, bytes) = bed.message(0, START, 1, look("films/1"));
    one.handle(START, Input::Message(peer, &bytes));
    let Query { id, ask } = one.queries.pop().expect("a query");
    let late = START + PATIENCE;
    one.poll(late);
    let told = store.run(&ask);
    one.handle(late, Input::Told(id, told));
    assert_eq!((one.answers.len(), one.machine.waiting()), (0, 0));
    assert_eq!(one.machine.shared_counters().unanswered, 5);
    // A store without room is an answer.
    let (peer, bytes) = bed.message(1, START, 1, Body::Publish(signed(&bed, "films/1", 1)));
    one.handle(late, Input::Message(peer, &bytes));
    let Query { id, ask } = one.queries.pop().expect("a query");
    let told = store.run(&ask);
    one.handle(late, Input::Told(id, told));
    let Query { id, .. } = one.queries.pop().expect("a query");
    one.handle(late, Input::Told(id, Told::Full));
    let answer = Message::parse(&one.answers.pop().expect("an answer")).expect("a message");
    assert_eq!(answer.body, Body::Refused { reason: refusal::of(Rejection::Full) });
}

#[test]
fn only_so_many_wait() {
    let bed = Bed::new();
    let mut one = One::new(&bed);
    let (peer, bytes) = bed.message(0, START, 1, look("films/1"));
    for _ in 0..WAITING_MAX + 10 {
        one.handle(START, Input::Message(peer, &bytes));
    }
    assert_eq!((one.queries.len(), one.machine.waiting()), (WAITING_MAX, WAITING_MAX));
    assert_eq!(one.machine.shared_counters().unanswered, 10);
}
