//! Every message comes back as it was written, and no bytes make the reader panic.

use proptest::prelude::*;

use super::*;
use crate::publication::Key;
use crate::publication::tests::{key, publication};
use listing::Position;

fn header(byte: u8) -> Header {
    Header::parse(&[&[0, byte][..], &[byte; 32]].concat()).expect("a header").0
}

fn all() -> Vec<Body> {
    let signed = key().sign("d", publication("films/x"));
    let route = Route {
        target: 1,
        group: 2,
        places: vec![3, 0, 2, 1, 63],
        delay: Span::from_millis(4),
        there: header(5),
        back: header(6),
    };
    let link = LinkReport { link: LinkId(9), up: true, delay: None };
    let position = Position { cursor: 8, after: Some(Key::of(&signed.publication)) };
    vec![
        Body::Publish(signed.clone()),
        Body::Published,
        Body::Outdated,
        Body::Lookup(Wanted::Name("films/x".parse().expect("a name"))),
        Body::Lookup(Wanted::Content(ContentId { root: [1; 32], length: 7 })),
        Body::Match { known: 9, publications: vec![signed.clone(), signed.clone()] },
        Body::Match { known: 0, publications: Vec::new() },
        Body::Paths(PathsRequest {
            from: NodeId(1),
            port: 2,
            targets: vec![NodeId(3), NodeId(4)],
            k: 5,
            policy: Policy::NodeDisjoint,
            class: NonZeroU8::new(7).map(ClassId),
            lease_s: 6,
        }),
        Body::Routes(Routes { revision: 7, routes: vec![route; PATHS_MAX] }),
        Body::RoutesAck { revision: 8 },
        Body::LinkState(LinkState {
            node: NodeId(1),
            started_ms: 2,
            sequence: 3,
            links: vec![link, LinkReport { up: false, delay: Some(Span::from_micros(8)), ..link }],
        }),
        Body::LinkStateAck { sequence: 4 },
        Body::Refused { reason: 5 },
        Body::Lines { from: 6 },
        Body::List(PageRequest::default()),
        Body::List(PageRequest { scope: "films".parse().ok(), from: position.clone() }),
        Body::Listed(Page::default()),
        Body::Listed(Page { next: Some(position), publications: vec![signed.clone()] }),
        Body::Down(Down { forwarders: 7, known: 8, lines: Vec::new() }),
        Body::Down(Down { forwarders: 7, known: 300, lines: (0..DOWN_MAX as u32).collect() }),
    ]
}

#[test]
fn what_is_written_is_read() {
    for body in all() {
        let message = Message { call: 0x0102_0304_0506_0708, body };
        let bytes = message.to_bytes();
        assert!(bytes.len() <= MESSAGE_MAX, "{} bytes: {message:?}", bytes.len());
        assert_eq!(Message::parse(&bytes), Ok(message));
        for short in 0..bytes.len() {
            assert!(Message::parse(&bytes[..short]).is_err());
        }
        assert!(Message::parse(&[&bytes[..], &[0]].concat()).is_err());
        if bytes.len() == QUESTION_BYTES {
            let mut dirty = bytes.clone();
            dirty[QUESTION_BYTES - 1] = 1;
            assert_eq!(Message::parse(&dirty), Err(MessageError::Oversized));
        }
    }
}

/// Without a class, a request has the bytes that members wrote before there were classes.
#[test]
fn without_a_class_a_request_is_as_ever() {
    let (from, targets) = (NodeId(1), vec![NodeId(3)]);
    let (port, k, policy, class, lease_s) = (2, 5, Policy::NodeDisjoint, None, 6);
    let request = PathsRequest { from, port, targets, k, policy, class, lease_s };
    let bytes = Message { call: 1, body: Body::Paths(request) }.to_bytes();
    let fields = [0, 0, 0, 1, 0, 2, 0, 6, 5, 2, 1, 0, 0, 0, 3];
    assert_eq!(bytes[PREFIX..][..fields.len()], fields);
    assert!(bytes.len() == QUESTION_BYTES && bytes[PREFIX + fields.len()..].iter().all(|byte| *byte == 0));
}

#[test]
fn a_route_has_a_delay() {
    let route = all().into_iter().find(|body| matches!(body, Body::Routes(_))).expect("it");
    let mut bytes = Message { call: 1, body: route }.to_bytes();
    // The bytes before the delay: prefix, revision, count, target, group.
    bytes[12 + 4 + 1 + 1 + 4..][..4].fill(0xff);
    assert_eq!(Message::parse(&bytes), Err(MessageError::Field));
}

#[test]
fn no_answer_is_three_times_as_long_as_its_question() {
    // The headers of frame, UDP and IP: a question has two frame headers, an answer has one.
    let (question, answer) = (QUESTION_BYTES + 76 + 28, MESSAGE_MAX + 38 + 28);
    assert!(answer <= 3 * question, "{answer} for {question}");
}

#[test]
fn as_many_publications_as_fit() {
    let name = format!("s/{}", "x".repeat(crate::publication::LABEL_MAX));
    let signed = key().sign("d", publication(&name));
    let message = Message { call: 1, body: Body::Match { known: 100, publications: vec![signed; 100] } };
    let bytes = message.to_bytes();
    assert!(bytes.len() <= MESSAGE_MAX);
    let Ok(Message { body: Body::Match { known: 100, publications }, .. }) = Message::parse(&bytes) else {
        panic!("a match")
    };
    assert_eq!(publications.len(), 3);
}

#[test]
fn every_reason_has_words() {
    for reason in (1..=3).chain(10..=16) {
        assert!(!refusal::text(reason).contains("reason"), "{reason}");
    }
    assert_eq!(refusal::text(99), "refused with reason 99");
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..400), forced: bool) {
        if forced && bytes.len() > 1 {
            bytes[0] = MESSAGE;
            bytes[1] = 1 + bytes[1] % LISTED;
            bytes.resize(QUESTION_BYTES, 0);
        }
        if let Ok(message) = Message::parse(&bytes) {
            prop_assert_eq!(Message::parse(&message.to_bytes()), Ok(message));
        }
    }
}
