//! Any frames at a forwarder, from neighbours, hosts and strangers: none goes back to where it came from, or
//! on without a hop less or with a mark that no class has; a request goes on only if its answer comes back
//! the same way.
#![no_main]

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use anabranch_algo::{Machine as _, Output, Span, Time};
use libfuzzer_sys::fuzz_target;
use anabranch_overlay::domain::Domain;
use anabranch_overlay::domain_file;
use anabranch_overlay::dscp::Dscp;
use anabranch_overlay::forwarder::{Forwarder, Frames, Step};
use anabranch_overlay::frame::{self, Frame, Routed};
use anabranch_topology::fid::Header;
use anabranch_topology::keyed::DomainKey;

const DOMAIN: &str = r#"
name = "fuzz"
class.c.dscp = 10
forwarders = ["r1", "r2", "r3"]
[rendezvous]
node = "rv"
[topology]
node = "tm"
[[line]]
between = ["a", "r1"]
[[line]]
between = ["r1", "r2"]
[[line]]
between = ["r1", "r3"]
[[line]]
between = ["r2", "r3"]
[[line]]
between = ["r2", "rv"]
[[line]]
between = ["r3", "tm"]
"#;

/// With open identifiers, and with keyed ones.
fn domains() -> &'static [Arc<Domain>; 2] {
    static READ: OnceLock<[Arc<Domain>; 2]> = OnceLock::new();
    let read = |keys: &str| Arc::new(domain_file::read(&[keys, DOMAIN].concat()).expect("a domain"));
    READ.get_or_init(|| ["", "identifiers = \"keyed\""].map(read))
}

fuzz_target!(|bytes: &[u8]| domains().iter().for_each(|domain| run(domain, bytes)));

fn run(domain: &Arc<Domain>, bytes: &[u8]) {
    let r1 = domain.graph.by_name("r1").expect("a node");
    let mut forwarder = Forwarder::new(domain, r1, 1, [7; 32], Time::ZERO);
    if domain.is_keyed() {
        forwarder = forwarder.with_secret(DomainKey::new([8; 32]).node_secret(r1), Time::ZERO);
    }
    let mut now = Time::ZERO;
    // Of each frame: who sends it, then its length, then itself.
    let mut rest = bytes;
    while let [who, len, tail @ ..] = rest {
        let (frame, tail) = tail.split_at(usize::from(*len).min(tail.len()));
        rest = tail;
        let links = domain.graph.outgoing(r1);
        let from = match links.get(usize::from(who % 4)) {
            Some(link) => {
                let (ip, port) = domain.address_there(*link);
                SocketAddr::new(ip, port.unwrap_or(40_000))
            }
            None => ([192, 0, 2, 1], 1).into(),
        };
        now = now + Span::from_millis(u64::from(who / 4));
        // Its own hellos and reports.
        while let Output::Send(own) = forwarder.poll(now) {
            let Step::Send(_, sent) = own else { panic!("all that came has been sent on") };
            assert!(frame::parse(&sent).is_ok());
        }
        let before: u64 = forwarder.counters().dropped.values().sum();
        let mut steps = 0;
        let mut arrived = frame.to_vec();
        forwarder.handle(now, Frames { from, bytes: &mut arrived, stride: frame.len() });
        // An answered hello may make a report due, and nothing else.
        let is_answer = matches!(frame::parse(frame), Ok(Frame::HelloReply { .. }));
        while let Output::Send(step) = forwarder.poll(now) {
            steps += 1;
            match step {
                Step::Forward(hop, sent) => {
                    let sent = &arrived[sent];
                    assert_ne!(hop.to.ip(), from.ip(), "not back");
                    let Ok(Frame::Routed(came)) = frame::parse(frame) else { panic!("no frame goes on") };
                    let Ok(Frame::Routed(next)) = frame::parse(sent) else { panic!("no frame goes on") };
                    let header = Header { hop_limit: came.header.hop_limit - 1, ..came.header };
                    let mark = |header: &[u8]| match frame::mark(header) {
                        dscp if dscp.number() == 10 => dscp,
                        _ => Dscp::NONE,
                    };
                    let way_back = came.way_back.map(|back| frame::marked(back, mark(&back.0)));
                    assert_eq!(next, Routed { header, way_back, ..came });
                    assert_eq!(frame::mark(sent), mark(frame));
                }
                Step::Send(hop, _) => assert!(is_answer || hop.to == from),
            }
        }
        assert!(steps == 0 || forwarder.counters().dropped.values().sum::<u64>() == before);
    }
}
