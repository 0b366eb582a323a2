//! A domain with two hosts, and random steps that happen at its rendezvous.

use std::sync::Arc;

use anabranch_algo::{Span, Time};
use anabranch_mmtp::ContentId;
use anabranch_mmtp::peer::Peer;
use anabranch_overlay::call::{Call, Reach};
use anabranch_overlay::domain::Domain;
use anabranch_overlay::frame::{self, Frame};
use anabranch_overlay::message::{Body, Message, Wanted};
use anabranch_overlay::publication::{Publication, ScopeKey, SignedPublication};
use proptest::prelude::*;

pub(crate) const START: Time = Time::from_nanos(1_800_000_000_000_000_000);
const HOSTS: [&str; 2] = ["a", "b"];

pub(crate) fn key() -> ScopeKey {
    ScopeKey::new([7; 32]).expect("a key")
}

pub(crate) struct Bed {
    pub(crate) domain: Arc<Domain>,
    reaches: [Reach; 2],
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// A host publishes this content under this name, for this many seconds, issued this long ago; 0 seconds
    /// withdraw.
    Publish {
        host: usize,
        name: u8,
        port: u16,
        content: u8,
        lease_s: u32,
        ago_ms: u64,
    },
    /// A publication that was sent before is sent once more.
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

pub(crate) fn step() -> impl Strategy<Value = Step> {
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

/// Returns a publication of a host, issued at the start, for a minute.
pub(crate) fn publication(bed: &Bed, name: &str, host: usize) -> Publication {
    Publication {
        name: name.parse().expect("a name"),
        content: content(1),
        collection: false,
        node: bed.domain.graph.by_name(HOSTS[host]).expect("a host"),
        port: 26_227,
        version_ms: 1,
        issued_ms: START.as_nanos() / 1_000_000,
        lease_s: 60,
    }
}

impl Bed {
    pub(crate) fn new() -> Self {
        let text = format!(
            "name = \"small\"\nforwarders = [\"r\"]\n[rendezvous]\nnode = \"rv\"\n[topology]\nnode = \"rv\"\n\
             port = 7702\n[scopes]\nfilms = \"{}\"\n{}",
            key().public(),
            ["a", "b", "rv"].map(|host| format!("[[line]]\nbetween = [\"r\", \"{host}\"]\n")).concat()
        );
        let domain = Arc::new(anabranch_overlay::domain_file::read(&text).expect("a domain"));
        let reaches = HOSTS
            .map(|host| Reach::new(&domain, domain.graph.by_name(host).expect("a host"), domain.rendezvous));
        Self { domain, reaches }
    }

    /// Returns a message of a host, as the rendezvous receives it.
    pub(crate) fn message(&self, host: usize, now: Time, call: u64, body: Body) -> (Peer, Vec<u8>) {
        let call = Call::new(&Message { call, body }, 5_000, now).poll(now, &self.reaches[host]);
        let call = call.expect("it is sent");
        let Ok(Frame::Routed(routed)) = frame::parse(&call.frame) else { panic!("a frame") };
        let peer = Peer { address: ([10, 0, 0, 1], 7_700).into(), way_back: routed.way_back };
        (peer, routed.payload.to_vec())
    }

    /// Returns the message that a host sends in a step, if it sends one: a restart is left to the caller.
    pub(crate) fn apply(
        &self,
        step: Step,
        sent: &mut Vec<(usize, SignedPublication)>,
        now: &mut Time,
    ) -> Option<(usize, Body)> {
        match step {
            Step::Publish { host, name, port, content: number, lease_s, ago_ms } => {
                let publication = Publication {
                    content: content(number),
                    port,
                    version_ms: u64::from(number),
                    issued_ms: now.as_nanos() / 1_000_000 - ago_ms,
                    lease_s,
                    ..publication(self, &format!("films/{name}"), host)
                };
                let signed = key().sign("small", publication);
                sent.push((host, signed.clone()));
                Some((host, Body::Publish(signed)))
            }
            Step::Again(_) if sent.is_empty() => None,
            Step::Again(which) => {
                let (host, signed) = which.get(sent).clone();
                Some((host, Body::Publish(signed)))
            }
            Step::Look { name } => {
                let name = format!("films/{name}").parse().expect("a name");
                Some((0, Body::Lookup(Wanted::Name(name))))
            }
            Step::LookFor { content: number } => Some((0, Body::Lookup(Wanted::Content(content(number))))),
            Step::Pass(ms) => {
                *now += Span::from_millis(ms);
                None
            }
            Step::Restart => None,
        }
    }
}
