//! Segments of attackers, both those who see the connection and those who do not.

use std::net::SocketAddr;

use anabranch_algo::Span;
use anabranch_mptcp::segment::{EcnField, Flags};
use anabranch_mptcp::{Config, ConnectionEvent, Payload, Segment, SubflowError};
use anabranch_mptcp_wire::{Join, MptcpOption, OptionBuffer, TcpOption};

use crate::network::{Faults, Network, PORT, client_address, server_address};

/// Returns a network in the middle of a transfer to the server.
fn busy(links: &[Faults]) -> Network {
    let mut network = Network::new(Config::default(), Config::default(), links, 1);
    network.keeps_log = true;
    network.connect(3_000_000, 0);
    network.run(Span::from_millis(100));
    network
}

/// Returns the last segment with data that the client sent.
fn last_data(network: &Network) -> Segment {
    let mut sent = network.log.iter().rev();
    sent.find(|(_, from, segment)| *from == 0 && !segment.payload.is_empty()).unwrap().2.clone()
}

fn is_reset(host: &crate::network::Host) -> bool {
    let reset = |event: &ConnectionEvent| {
        matches!(event, ConnectionEvent::SubflowDown { error: Some(SubflowError::Reset), .. })
    };
    host.has(reset)
}

#[test]
fn a_reset_must_name_the_exact_number() {
    for (ahead, resets) in [(0, true), (1, false), (10_000, false), (0x4000_0000, false)] {
        let mut network = busy(&[Faults::none(10)]);
        network.links.get_mut(&client_address(0)).unwrap().is_cut = true;
        network.run(Span::from_millis(50));
        // The number that the server expects next, as its last acknowledgement says.
        let acks = network.log.iter().rev().find(|(_, from, _)| *from == 1).unwrap().2.ack;
        let forged = Segment {
            seq: acks.wrapping_add(ahead),
            flags: Flags::RST,
            payload: Payload::default(),
            ..last_data(&network)
        };
        let before = network.log.len();
        network.inject(1, &forged);
        assert_eq!(is_reset(&network.hosts[1]), resets, "{ahead} ahead");
        // A number within the window is answered by a challenge (RFC 5961 section 3.2).
        let challenges = network.log.len() - before;
        assert_eq!(challenges, usize::from(ahead == 1 || ahead == 10_000), "{ahead} ahead");
        network.links.get_mut(&client_address(0)).unwrap().is_cut = false;
        if !resets {
            assert!(network.run_until_closed(Span::from_secs(60)));
            network.check().unwrap();
        }
    }
}

#[test]
fn blind_data_and_blind_syns_are_dropped() {
    let mut network = busy(&[Faults::none(10)]);
    let last = last_data(&network);
    let bytes = Payload::copy_of(&[0x55; 1000]);
    for ahead in (0..40_000_u32).step_by(500) {
        let seq = last.seq.wrapping_add(ahead);
        // RFC 5961 section 5: the acknowledgement is a guess.
        let ack = last.ack.wrapping_add(0x3000_0000);
        let mut options = OptionBuffer::default();
        options.push(&TcpOption::Timestamps { value: u32::MAX / 2, echo: 0 });
        network.inject(1, &Segment { seq, ack, payload: bytes.clone(), options, ..last.clone() });
        let flags = Flags::SYN;
        network.inject(1, &Segment { seq, flags, payload: Payload::default(), ..last.clone() });
    }
    assert!(network.run_until_closed(Span::from_secs(60)));
    network.check().unwrap();
}

/// Returns the segment's options with `change` applied to the MP_JOIN.
pub(crate) fn with_join(segment: &Segment, change: impl Fn(Join) -> Join) -> OptionBuffer {
    let mut options = OptionBuffer::default();
    for option in segment.options.iter().flatten() {
        options.push(&match option {
            TcpOption::Mptcp(MptcpOption::Join(join)) => TcpOption::Mptcp(MptcpOption::Join(change(join))),
            option => option,
        });
    }
    options
}

#[test]
fn a_wrong_hmac_joins_nothing() {
    let changes: [fn(Join) -> Join; 3] = [
        |join| match join {
            Join::Ack { mut hmac } => {
                hmac[19] ^= 1;
                Join::Ack { hmac }
            }
            join => join,
        },
        |join| match join {
            Join::SynAck { backup, address_id, hmac, nonce } => {
                Join::SynAck { backup, address_id, hmac: hmac ^ 1, nonce }
            }
            join => join,
        },
        |join| match join {
            Join::Syn { backup, address_id, token, nonce } => {
                Join::Syn { backup, address_id, token: token ^ 1, nonce }
            }
            join => join,
        },
    ];
    for change in changes {
        let links = [Faults::none(10), Faults::none(10)];
        let mut network = Network::new(Config::default(), Config::default(), &links, 1);
        network.filter = Some(Box::new(move |_, segment| {
            segment.options = with_join(segment, change);
            true
        }));
        network.connect(500_000, 0);
        assert!(network.run_until_closed(Span::from_secs(60)));
        network.check().unwrap();
        let is_joined = network.hosts[1].events.iter().any(|event| match event {
            ConnectionEvent::SubflowUp { remote, .. } => remote.ip() == client_address(1),
            _ => false,
        });
        assert!(!is_joined);
        let resets = network.hosts[1].events.iter().chain(&network.hosts[0].events);
        assert!(!resets.into_iter().any(|event| matches!(event, ConnectionEvent::FellBack)));
    }
}

#[test]
fn a_flood_of_syns_takes_bounded_memory_and_lets_clients_in() {
    let server = Config { half_open_max: 64, ..Config::default() };
    let mut network = Network::new(Config::default(), server, &[Faults::none(5)], 1);
    network.connect(50_000, 50_000);
    let mut options = OptionBuffer::default();
    options.push(&TcpOption::Mss(1460));
    let mut flood = Segment {
        source: SocketAddr::from(([192, 0, 2, 1], 1)),
        target: SocketAddr::new(server_address(), PORT),
        seq: 7,
        ack: 0,
        flags: Flags::SYN,
        window: 1000,
        ecn: EcnField::NotEct,
        options,
        payload: Payload::default(),
    };
    for round in 0..400_u16 {
        for port in 0..40 {
            flood.source.set_port(1 + round * 40 + port);
            network.inject(1, &flood);
        }
        network.run(Span::from_millis(10));
        assert!(network.hosts[1].stack.connection_count() <= 65);
    }
    assert!(network.hosts[1].stack.displaced(PORT) > 15_000);
    assert!(network.run_until_closed(Span::from_secs(60)));
    network.check().unwrap();
}
