//! Programs' datagrams through a client and a server.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use proxy::Protocol;
use proxy::trunk::Reason;

use crate::bench::{Bench, LONG};

/// An origin that says each datagram again, backwards.
fn echo() -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    thread::spawn(move || {
        let mut buffer = [0; 2_048];
        while let Ok((n, from)) = socket.recv_from(&mut buffer) {
            buffer[..n].reverse();
            let _ = socket.send_to(&buffer[..n], from);
        }
    });
    address
}

/// A program that may send datagrams: its connection, its socket, and where it sends them.
fn associate(bench: &Bench) -> (TcpStream, UdpSocket, SocketAddr) {
    let mut control = TcpStream::connect(bench.socks()).unwrap();
    control.set_read_timeout(Some(LONG)).unwrap();
    control.write_all(&[5, 1, 0, 5, 3, 0, 1, 0, 0, 0, 0, 0, 0]).unwrap();
    let mut said = [0; 12];
    control.read_exact(&mut said).unwrap();
    assert_eq!(said[..6], [5, 0, 5, 0, 0, 1], "{said:?}");
    let ip: [u8; 4] = said[6..10].try_into().unwrap();
    let at = SocketAddr::new(ip.into(), u16::from_be_bytes([said[10], said[11]]));
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    (control, socket, at)
}

/// What SOCKS puts before a datagram to or from this address.
fn header(address: SocketAddr) -> Vec<u8> {
    let SocketAddr::V4(v4) = address else { panic!("IPv4") };
    [&[0, 0, 0, 1], &v4.ip().octets()[..], &v4.port().to_be_bytes()].concat()
}

/// Sends a datagram until it is answered: datagrams may be lost.
fn ask(socket: &UdpSocket, at: SocketAddr, head: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut answer = [0; 2_048];
    for _ in 0..10 {
        socket.send_to(&[head, payload].concat(), at).unwrap();
        if let Ok((n, from)) = socket.recv_from(&mut answer) {
            assert_eq!(from, at);
            return answer[..n].to_vec();
        }
    }
    panic!("no answer");
}

#[test]
fn datagrams_reach_an_origin_by_address_and_by_name() {
    let (bench, origin) = (Bench::new(), echo());
    let (control, socket, at) = associate(&bench);
    let answer = ask(&socket, at, &header(origin), b"query");
    assert_eq!(answer, [&header(origin), &b"yreuq"[..]].concat());
    let name = [&b"\0\0\0\x03\x0eorigin.example"[..], &origin.port().to_be_bytes()].concat();
    let long = vec![7; 1_200];
    assert_eq!(ask(&socket, at, &name, &long), [&header(origin), &long[..]].concat());
    drop(control);
    let finished = bench.finished();
    assert_eq!((finished.protocol, finished.reason), (Protocol::Udp, None));
    assert!(finished.sent_bytes >= 1_205 && finished.received_bytes >= 1_205, "{finished:?}");
}

#[test]
fn datagrams_to_what_is_denied_go_nowhere_and_are_told() {
    let (bench, origin) = (Bench::new(), echo());
    let (_control, socket, at) = associate(&bench);
    let denied = header("192.0.2.1:53".parse().unwrap());
    socket.send_to(&[&denied, &b"query"[..]].concat(), at).unwrap();
    // A fragment, and what is malformed.
    socket.send_to(&[&[0, 0, 1], &header(origin)[3..], b"query"].concat(), at).unwrap();
    socket.send_to(b"\0\0\0\x09", at).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    assert!(socket.recv_from(&mut [0; 64]).is_err());
    // The flow goes on.
    assert!(ask(&socket, at, &header(origin), b"query").ends_with(b"yreuq"));
    // Its association ends with its client.
    drop(bench);
}

#[test]
fn only_the_program_that_asked_may_send() {
    let (bench, origin) = (Bench::plain("127.0.0.0/8"), echo());
    let (control, socket, at) = associate(&bench);
    assert!(ask(&socket, at, &header(origin), b"query").ends_with(b"yreuq"));
    let other = UdpSocket::bind("127.0.0.1:0").unwrap();
    other.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    other.send_to(&[&header(origin), &b"query"[..]].concat(), at).unwrap();
    assert!(other.recv_from(&mut [0; 64]).is_err());
    // With its connection its right ends.
    drop(control);
    assert_eq!(bench.finished().reason, None::<Reason>);
    socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    socket.send_to(&[&header(origin), &b"query"[..]].concat(), at).ok();
    assert!(socket.recv_from(&mut [0; 64]).is_err());
}

#[test]
fn datagrams_go_on_after_a_restart_of_the_server() {
    let (mut bench, origin) = (Bench::new(), echo());
    let (_control, socket, at) = associate(&bench);
    assert!(ask(&socket, at, &header(origin), b"query").ends_with(b"yreuq"));
    bench.stop_server();
    bench.start_server();
    assert!(ask(&socket, at, &header(origin), b"again").ends_with(b"niaga"));
}
