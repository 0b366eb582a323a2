//! Test of a program's datagrams by CONNECT-UDP (RFC 9298) through `anabranch proxy` over two emulated links.
//! It needs root and `/dev/net/tun`; without these, it says so and passes.
#![cfg(target_os = "linux")]

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::bed::{Bed, DATAGRAM_BYTES, Heard};
use crate::common::wait_until;
use anabranch_algo::Span;

/// The rate of the datagrams, 36 Mbit/s: nine tenths of two links of 20 Mbit/s each.
const BYTES_PER_S: usize = 4_500_000;
/// The rate of one link in bytes per second.
const LINK: f64 = 2_500_000.0;

const fn second(n: u64) -> Span {
    Span::from_secs(n)
}

/// The address at which the client takes programs that speak HTTP.
const HTTP: &str = "127.0.0.1:8080";
/// The bytes before each datagram: the type, the length of datagram and context in two bytes, and the
/// context.
const CAPSULE_HEAD: [u8; 4] = [0, 0x40 | ((DATAGRAM_BYTES + 1) >> 8) as u8, (DATAGRAM_BYTES + 1) as u8, 0];

/// Runs a program on the host with the links that requests CONNECT-UDP, sends one datagram, and receives
/// until none has come for a second and a half.
fn hear_capsules(bed: &Bed, origin: SocketAddr) -> Heard {
    let client = bed.running.last().expect("a client");
    let connect = || TcpStream::connect(HTTP).expect("a connection");
    let mut stream = Bed::namespace(client).run(connect).expect("a namespace");
    let (host, port) = (origin.ip(), origin.port());
    write!(
        stream,
        "GET http://{HTTP}/.well-known/masque/udp/{host}/{port}/ HTTP/1.1\r\nHost: {HTTP}\r\n\
         Connection: Upgrade\r\nUpgrade: connect-udp\r\nCapsule-Protocol: ?1\r\n\r\n"
    )
    .expect("written");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("an option");
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).expect("an answer");
        head.push(byte[0]);
    }
    assert!(head.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&head));
    stream.write_all(b"\0\x02\0!").expect("written");
    let (mut heard, clock) = (Heard::default(), anabranch_net::Clock::start());
    let mut capsule = [0; CAPSULE_HEAD.len() + DATAGRAM_BYTES];
    stream.set_read_timeout(Some(Duration::from_secs(5))).expect("an option");
    loop {
        match stream.read_exact(&mut capsule) {
            Ok(()) => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock => return heard,
            Err(e) => panic!("the connection lives: {e}"),
        }
        let (head, payload) = capsule.split_at(CAPSULE_HEAD.len());
        assert_eq!(head, CAPSULE_HEAD);
        let number = u32::from_be_bytes(payload[..4].try_into().expect("four"));
        heard.all.push((clock.now(), number));
        stream.set_read_timeout(Some(Duration::from_millis(1_500))).expect("an option");
    }
}

#[test]
fn datagrams_in_capsules_take_both_links_in_order() {
    // Filling the links takes a part of a processor, so no other test may run.
    let _alone = anabranch_net::testing::alone();
    let Some(mut bed) = Bed::without_client("proxy-udp-http") else { return };
    bed.client(&["--via", "p0", "--via", "p1", "--udp-mode", "aggregate", "--http", HTTP]);
    wait_until(20, || bed.subflows("10.1.1.1") >= 2);
    let heard = hear_capsules(&bed, bed.udp_origin(BYTES_PER_S, Duration::from_secs(5)));
    let (whole, late) = (heard.bytes(second(2), second(5)) as f64 / 3.0, heard.late());
    println!("{:.1} Mbit/s came, {late} of {} datagrams late", whole * 8e-6, heard.all.len());
    assert!(whole > 1.6 * LINK, "{whole}");
    assert!(late * 25 <= heard.all.len(), "{late} of {}", heard.all.len());
}
