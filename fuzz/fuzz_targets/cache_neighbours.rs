//! A packet of a neighbour of a cache, with a right check sum: no panic, and at most one shorter answer.
#![no_main]

use std::net::SocketAddr;

use anabranch_algo::{Machine as _, Output, Time};
use anabranch_cache::neighbours::{Event, Input, Neighbours, PACKET_BYTES_MAX, Packet, PacketKey, Transmit};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|said: &[u8]| {
    let (now, key) = (Time::ZERO, PacketKey::of(b""));
    let from = SocketAddr::from(([10, 0, 0, 1], 9));
    let mut one = Neighbours::new(now, key, [1; 32]);
    while !matches!(one.poll(now), Output::Wait(_)) {}
    let bytes = key.seal(said.to_vec());
    let is_packet = Packet::parse(&key, &bytes).is_some();
    one.handle(now, Input::Packet(from, &bytes));
    let mut sent = 0;
    loop {
        match one.poll(now) {
            Output::Wait(_) => break,
            Output::Event(Event::Asked(asked)) => one.handle(now, Input::Have(asked, None)),
            Output::Event(Event::Holders(..)) => {}
            Output::Send(Transmit { to, bytes: answer }) => {
                assert!(to == Some(from) && answer.len() <= bytes.len() && answer.len() <= PACKET_BYTES_MAX);
                sent += 1;
            }
        }
    }
    assert!(sent <= usize::from(is_packet));
});
