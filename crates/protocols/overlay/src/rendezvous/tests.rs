use super::*;
use crate::call::{Call, Reach};
use crate::domain::tests::{SQUARE, node};
use crate::frame::{self, Frame};
use crate::message::refusal;
use crate::publication::tests::{NOW, key, publication};
use crate::publication::{Publication, SignedPublication};
use anabranch_algo::Span;

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

    /// Asks from a node and returns the answer. Nothing but an answer may come.
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
            Body::Match { publications, .. } => publications.into_iter().map(|it| it.publication).collect(),
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
    // The publication does not outlive the end of the short one either.
    let mut bed = Bed::new();
    assert_eq!(bed.publish(NOW, "b", long.clone()), Body::Published);
    assert_eq!(bed.publish(NOW, "b", short.clone()), Body::Published);
    assert_eq!(bed.found(later, "films/x"), []);
    assert_eq!(bed.publish(later, "b", long), refused(Rejection::Replayed));
    assert_eq!(bed.found(NOW + Span::from_secs(3_600), "films/x"), []);
    assert!(bed.rendezvous.is_empty());
    // Two publications of one moment are not the same.
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
fn the_list_passes_over_what_is_over() {
    let mut bed = Bed::new();
    // More records than one page looks at are withdrawn.
    for number in 0..CANDIDATES_MAX + 10 {
        let it = bed.publication(&format!("films/{number:05}"), "b");
        assert_eq!(bed.publish(NOW, "b", it.clone()), Body::Published);
        let withdrawn = Publication { issued_ms: it.issued_ms + 5, lease_s: 0, ..it };
        assert_eq!(bed.publish(NOW, "b", withdrawn), Body::Published);
    }
    let last = bed.publication("films/x", "b");
    assert_eq!(bed.publish(NOW, "b", last.clone()), Body::Published);
    let Body::Listed(first) = bed.ask(NOW, "a", Body::List(PageRequest::default())) else { panic!("a page") };
    assert_eq!(first.publications, []);
    let from = first.next.expect("it goes on");
    let Body::Listed(page) = bed.ask(NOW, "a", Body::List(PageRequest { scope: None, from })) else {
        panic!("a page")
    };
    let told: Vec<_> = page.publications.iter().map(|signed| &signed.publication).collect();
    assert_eq!((told, page.next), (vec![&last], None));
    assert_eq!(bed.rendezvous.counters().pages, 2);
    // A place before the scope is its beginning, and behind it there is nothing.
    for (scope, count) in [("films", 1), ("a", 0), ("songs", 0)] {
        let from = Position { cursor: 9, after: Some(Key::of(&bed.publication("films/w", "b"))) };
        let request = PageRequest { scope: scope.parse().ok(), from };
        let Body::Listed(page) = bed.ask(NOW, "a", Body::List(request)) else { panic!("a page") };
        assert_eq!((page.publications.len(), page.next), (count, None), "{scope}");
    }
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
