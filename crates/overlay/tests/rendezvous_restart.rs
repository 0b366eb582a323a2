//! A rendezvous that is ended and started again, from what it reported as changes, answers as one that was
//! not.

use std::collections::BTreeMap;
use std::sync::Arc;

use algo::{Machine as _, Output, Span, Time};
use mmtp::ContentId;
use mmtp::peer::Peer;
use overlay::call::{Call, Reach};
use overlay::domain::Domain;
use overlay::frame::{self, Frame};
use overlay::message::{Body, Message, Wanted};
use overlay::publication::{Publication, ScopeKey, SignedPublication};
use overlay::rendezvous::{Change, Record, Rendezvous};
use proptest::prelude::*;

const START: Time = Time::from_nanos(1_800_000_000_000_000_000);
const HOSTS: [&str; 2] = ["a", "b"];

fn key() -> ScopeKey {
    ScopeKey::new([7; 32]).expect("a key")
}

fn domain() -> Arc<Domain> {
    let text = format!(
        "name = \"small\"\nforwarders = [\"r\"]\n[rendezvous]\nnode = \"rv\"\n[topology]\nnode = \"rv\"\n\
         port = 7702\n[scopes]\nfilms = \"{}\"\n{}",
        key().public(),
        ["a", "b", "rv"].map(|host| format!("[[line]]\nbetween = [\"r\", \"{host}\"]\n")).concat()
    );
    Arc::new(overlay::domain_file::read(&text).expect("a domain"))
}

/// A rendezvous, and what its world has written down.
struct World {
    machine: Rendezvous,
    written: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl World {
    fn new(domain: &Arc<Domain>) -> Self {
        Self { machine: Rendezvous::new(Arc::clone(domain)), written: BTreeMap::new() }
    }

    /// Writes what has changed, gives what is answered, and until when it waits.
    fn drain(&mut self, now: Time) -> (Vec<Vec<u8>>, Time) {
        let mut answers: Vec<Vec<u8>> = Vec::new();
        loop {
            match self.machine.poll(now) {
                Output::Event(Change::Kept(record)) => {
                    assert!(answers.is_empty(), "it is written before anything is answered");
                    let key = overlay::rendezvous::Key::of(&record.signed.publication);
                    self.written.insert(key.to_bytes(), record.to_bytes());
                }
                Output::Event(Change::Forgotten(key)) => {
                    assert!(self.written.remove(&key.to_bytes()).is_some(), "it was written");
                }
                Output::Send(answer) => answers.push(answer.message),
                Output::Wait(until) => return (answers, until),
            }
        }
    }

    /// What was not polled is lost; what was written comes back.
    fn restart(&mut self, domain: &Arc<Domain>, now: Time) {
        self.machine = Rendezvous::new(Arc::clone(domain));
        let machine = &mut self.machine;
        self.written.retain(|_, bytes| machine.restore(now, Record::parse(bytes).expect("a record")).is_ok());
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// A host publishes this content under this name for so many seconds, issued so long ago; 0: withdraws.
    Publish {
        host: usize,
        name: u8,
        port: u16,
        content: u8,
        lease_s: u32,
        ago_ms: u64,
    },
    /// One of those sent so far is sent once more.
    Again(prop::sample::Index),
    Pass(u64),
    Look {
        name: u8,
    },
    LookFor {
        content: u8,
    },
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let lease = prop_oneof![2 => Just(0_u32), 5 => 1..90_u32, 1 => Just(3_600)];
    prop_oneof![
        8 => (0..2_usize, 0..3_u8, 0..2_u16, 0..3_u8, lease, 0..40_000_u64).prop_map(
            |(host, name, port, content, lease_s, ago_ms)| Step::Publish {
                host, name, port: 26_227 + port, content, lease_s, ago_ms,
            }
        ),
        4 => any::<prop::sample::Index>().prop_map(Step::Again),
        4 => (0..50_000_u64).prop_map(Step::Pass),
        3 => (0..3_u8).prop_map(|name| Step::Look { name }),
        2 => (0..3_u8).prop_map(|content| Step::LookFor { content }),
        3 => Just(Step::Restart),
    ]
}

fn content(number: u8) -> ContentId {
    ContentId { root: [number; 32], length: 20_000 }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn a_restart_changes_nothing(steps in prop::collection::vec(step(), 1..60)) {
        let domain = domain();
        let reaches = HOSTS.map(|host| {
            Reach::new(&domain, domain.graph.by_name(host).expect("a host"), domain.rendezvous)
        });
        let (mut whole, mut restarted) = (World::new(&domain), World::new(&domain));
        let mut sent: Vec<(usize, SignedPublication)> = Vec::new();
        let mut now = START;
        for (number, step) in steps.into_iter().enumerate() {
            let asked = match step {
                Step::Publish { host, name, port, content: number, lease_s, ago_ms } => {
                    let publication = Publication {
                        name: format!("films/{name}").parse().expect("a name"),
                        content: content(number),
                        collection: false,
                        node: domain.graph.by_name(HOSTS[host]).expect("a host"),
                        port,
                        version_ms: u64::from(number),
                        issued_ms: now.as_nanos() / 1_000_000 - ago_ms,
                        lease_s,
                    };
                    let signed = key().sign("small", publication);
                    sent.push((host, signed.clone()));
                    Some((host, Body::Publish(signed)))
                }
                Step::Again(_) if sent.is_empty() => None,
                Step::Again(which) => {
                    let (host, signed) = which.get(&sent).clone();
                    Some((host, Body::Publish(signed)))
                }
                Step::Look { name } => {
                    let name = format!("films/{name}").parse().expect("a name");
                    Some((0, Body::Lookup(Wanted::Name(name))))
                }
                Step::LookFor { content: number } => {
                    Some((0, Body::Lookup(Wanted::Content(content(number)))))
                }
                Step::Pass(ms) => {
                    now += Span::from_millis(ms);
                    None
                }
                Step::Restart => {
                    restarted.restart(&domain, now);
                    None
                }
            };
            if let Some((host, body)) = asked {
                let message = Message { call: number as u64, body };
                let call = Call::new(&message, 5_000, now).poll(now, &reaches[host]).expect("it is sent");
                let Ok(Frame::Routed(routed)) = frame::parse(&call.frame) else { panic!("a frame") };
                let peer = Peer { address: ([10, 0, 0, 1], 7_700).into(), way_back: routed.way_back };
                whole.machine.handle(now, (peer, routed.payload));
                restarted.machine.handle(now, (peer, routed.payload));
            }
            prop_assert_eq!(whole.drain(now), restarted.drain(now));
            prop_assert_eq!(whole.machine.len(), restarted.machine.len());
            prop_assert_eq!(&whole.written, &restarted.written);
            prop_assert_eq!(whole.written.len(), whole.machine.len(), "all of it is written, and no more");
        }
    }
}
