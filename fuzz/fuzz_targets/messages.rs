//! Any messages at everybody who reads some, and any records of a rendezvous: what parses is the same as
//! bytes again, nobody panics, and services answer once at most.
#![no_main]

use std::sync::{Arc, OnceLock};

use anabranch_algo::{Machine, Output, Span, Time};
use libfuzzer_sys::fuzz_target;
use anabranch_mmtp::peer::Peer;
use anabranch_overlay::call::{Call, Reach};
use anabranch_overlay::client::{Member, Registration, Subscription};
use anabranch_overlay::domain::{Domain, PathChoice, Service};
use anabranch_overlay::domain_file;
use anabranch_overlay::frame::{self, Frame};
use anabranch_overlay::message::{Body, MESSAGE_MAX, Message, Wanted};
use anabranch_overlay::publication::ScopeKey;
use anabranch_overlay::rendezvous::shared::{Ask, Field, Input, SharedRendezvous, Told};
use anabranch_overlay::rendezvous::{Record, Rendezvous};
use anabranch_overlay::topology_manager::TopologyManager;
use anabranch_topology::plan::Policy;

const DOMAIN: &str = r#"
name = "fuzz"
forwarders = ["r1", "r2"]
[rendezvous]
node = "rv"
[topology]
node = "tm"
[[line]]
between = ["a", "r1"]
[[line]]
between = ["r1", "r2"]
[[line]]
between = ["r2", "p"]
[[line]]
between = ["r2", "rv"]
[[line]]
between = ["r2", "tm"]
"#;

fn domain() -> &'static Arc<Domain> {
    static READ: OnceLock<Arc<Domain>> = OnceLock::new();
    READ.get_or_init(|| Arc::new(domain_file::read(DOMAIN).expect("a domain")))
}

/// Host `a`, as a service sees it.
fn peer(service: Service) -> Peer {
    let domain = domain();
    let a = domain.graph.by_name("a").expect("a node");
    let mut call = Call::new(&Message { call: 0, body: Body::Published }, 40_000, Time::ZERO);
    let sent = call.poll(Time::ZERO, &Reach::new(domain, a, service)).expect("it is due");
    let Ok(Frame::Routed(routed)) = frame::parse(&sent.frame) else { panic!("a frame") };
    Peer { address: ([10, 0, 0, 1], 7_700).into(), way_back: routed.way_back }
}

/// Lets a machine do what it wants, a while; returns how often it sends.
fn drain<M: Machine>(machine: &mut M, now: Time) -> usize {
    let mut sent = 0;
    for _ in 0..10_000 {
        match machine.poll(now) {
            Output::Send(_) => sent += 1,
            Output::Event(_) => {}
            Output::Wait(until) => {
                assert!(until > now, "it waits for the past");
                return sent;
            }
        }
    }
    panic!("it never waits");
}

/// Lets a rendezvous ask a store, in which each name has one field with this value; returns how often it
/// sends.
fn drain_shared(shared: &mut SharedRendezvous, now: Time, value: &[u8]) -> usize {
    let mut sent = 0;
    for _ in 0..100 {
        match shared.poll(now) {
            Output::Send(_) => sent += 1,
            Output::Event(query) => {
                let found = |name| Told::Found {
                    fields: vec![Field { name, field: b"a:26227".to_vec(), value: value.to_vec() }],
                    nonsense: 0,
                };
                let told = match query.ask {
                    Ask::Name(name) => found(name),
                    Ask::Content { .. } => found("films/x".parse().expect("a name")),
                    Ask::Names { cursor, .. } => Told::Names {
                        names: vec!["films/x".parse().expect("a name")],
                        next: (cursor + 1) % 4,
                        nonsense: 0,
                    },
                    Ask::Tables(names) => names.into_iter().next().map_or(Told::Failed, found),
                    Ask::Keep(_) => Told::Kept,
                };
                shared.handle(now, Input::Told(query.id, told));
            }
            Output::Wait(until) => {
                assert!(until > now && shared.waiting() == 0, "it waits for nothing");
                return sent;
            }
        }
    }
    panic!("it never waits");
}

fuzz_target!(|bytes: &[u8]| {
    let domain = domain();
    let a = domain.graph.by_name("a").expect("a node");
    let member = Member {
        domain: Arc::clone(domain),
        node: a,
        port: 40_000,
        secret: [7; 32],
        zero_since_1970: Span::from_secs(1_800_000_000),
    };
    let mut now = Time::ZERO;
    let mut rendezvous = Rendezvous::new(Arc::clone(domain));
    let mut shared = SharedRendezvous::new(Arc::clone(domain));
    let mut manager = TopologyManager::new(Arc::clone(domain));
    let wanted = Wanted::Name("films/x".parse().expect("a name"));
    let paths = PathChoice { policy: Policy::Shortest, per_host: 3, class: None };
    let mut subscription = Subscription::new(member.clone(), wanted, paths, now);
    let key = Arc::new(ScopeKey::new([7; 32]).expect("a key"));
    let mut registration = Registration::new(member, key, Vec::new(), now);
    // Of each message: its length in two bytes, then itself.
    let (mut rest, mut before) = (bytes, &[][..]);
    while let [high, low, tail @ ..] = rest {
        let len = usize::from(u16::from_be_bytes([*high, *low]));
        let (message, tail) = tail.split_at(len.min(tail.len()));
        rest = tail;
        if let Ok(parsed) = Message::parse(message) {
            let again = parsed.to_bytes();
            assert!(again.len() <= MESSAGE_MAX && Message::parse(&again) == Ok(parsed));
        }
        if let Ok(record) = Record::parse(message) {
            assert_eq!(record.to_bytes(), message);
            let _ = rendezvous.restore(now, record);
        }
        now = now + Span::from_millis(50);
        rendezvous.handle(now, (peer(domain.rendezvous), message));
        assert!(drain(&mut rendezvous, now) <= 1);
        shared.handle(now, Input::Message(peer(domain.rendezvous), message));
        // What is in the store is what came before.
        assert!(drain_shared(&mut shared, now, before) <= 1);
        before = message;
        manager.handle(now, (peer(domain.topology), message));
        drain(&mut manager, now);
        subscription.handle(now, message);
        drain(&mut subscription, now);
        registration.handle(now, message);
        drain(&mut registration, now);
    }
});
