//! Any packets to both ends of a leg, at any time: no panic; no timer turns in a circle; an address that
//! has not proven itself gets at most three times what came from it; what is sent is what the format allows.
#![no_main]

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anabranch_algo::{Span, Time};
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use anabranch_proxy::leg::packet::{Frames, HEADER_BYTES, Header};
use anabranch_proxy::leg::{Leg, Mode, Protection, Settings};

fuzz_target!(|steps: Vec<(u8, u8, u16, Vec<u8>)>| {
    let server_address: SocketAddr = "198.51.100.1:26228".parse().expect("an address");
    let peer = "203.0.113.1:443".parse().expect("a destination");
    let mut client = Leg::client(9, Protection::plain(), Settings::default());
    let mut server = Leg::server(9, Protection::plain(), Settings::default(), [3; 32]);
    client.add_path(Time::ZERO, server_address);
    client.add_path(Time::ZERO, server_address);
    client.open(1, Mode::Aggregate);
    let (mut now, mut came, mut went) = (Time::ZERO, BTreeMap::new(), BTreeMap::new());
    for (number, (path, from, wait, frames)) in steps.into_iter().take(200).enumerate() {
        now += Span::from_millis(wait.into());
        let mut packet = Vec::new();
        Header { path, association: 9, number: number as u32 }.encode(&mut packet);
        packet.extend_from_slice(&frames);
        let from = SocketAddr::new([192, 0, 2, from & 3].into(), 1_000);
        *came.entry(from).or_insert(0) += packet.len();
        let _ = server.receive(now, from, &mut packet.clone());
        let _ = client.receive(now, server_address, &mut packet);
        client.send(now, 1, &peer, Bytes::from(vec![0; 100]));
        server.send(now, 1, &peer, Bytes::from(vec![0; 900]));
        for (leg, is_server) in [(&mut client, false), (&mut server, true)] {
            let (mut out, mut sent) = (Vec::new(), 0);
            while let Some(transmit) = leg.poll_transmit(now, &mut out) {
                let last = &out[out.len() - transmit.bytes..];
                assert!(Header::decode(last).is_some());
                assert!(Frames::new(&last[HEADER_BYTES..]).all(|frame| frame.is_ok()));
                if is_server {
                    *went.entry(transmit.to).or_insert(0) += transmit.bytes;
                }
                sent += 1;
                assert!(sent < 5_000);
            }
            while leg.poll_event().is_some() {}
            assert!(leg.deadline(now) > now, "{now:?} {leg:?}");
        }
    }
    // Nobody here can answer a challenge but by guessing it.
    for (to, bytes) in went {
        assert!(bytes <= 3 * came.get(&to).copied().unwrap_or(0));
    }
});
