//! Tests with programs' datagrams through a client and a server.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use anabranch_algo::Rate;
use anabranch_proxy::Protocol;
use anabranch_proxy::ingress::capsule::{self, PAYLOAD_BYTES_MAX};
use anabranch_proxy::quota::UserLimits;
use anabranch_proxy::trunk::Reason;

use crate::bench::{Bench, LONG};

/// Starts an origin that returns each datagram backwards.
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

/// Requests an association. Returns its connection, the program's socket, and the address to which the
/// program sends.
pub(crate) fn associate(bench: &Bench) -> (TcpStream, UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (control, at) = associate_from(bench, 0);
    socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    (control, socket, at)
}

/// Requests an association of a program that names its port, or 0. Returns its connection, and the address to
/// which the program sends.
fn associate_from(bench: &Bench, port: u16) -> (TcpStream, SocketAddr) {
    let mut control = TcpStream::connect(bench.socks()).unwrap();
    control.set_read_timeout(Some(LONG)).unwrap();
    control.write_all(&[&[5, 1, 0, 5, 3, 0, 1, 0, 0, 0, 0], &port.to_be_bytes()[..]].concat()).unwrap();
    let mut said = [0; 12];
    control.read_exact(&mut said).unwrap();
    assert_eq!(said[..6], [5, 0, 5, 0, 0, 1], "{said:?}");
    let ip: [u8; 4] = said[6..10].try_into().unwrap();
    (control, SocketAddr::new(ip.into(), u16::from_be_bytes([said[10], said[11]])))
}

/// Returns the header of SOCKS before a datagram to or from this address.
pub(crate) fn header(address: SocketAddr) -> Vec<u8> {
    let SocketAddr::V4(v4) = address else { panic!("IPv4") };
    [&[0, 0, 0, 1], &v4.ip().octets()[..], &v4.port().to_be_bytes()].concat()
}

/// Sends a datagram until it is answered, because datagrams may be lost.
pub(crate) fn ask(socket: &UdpSocket, at: SocketAddr, head: &[u8], payload: &[u8]) -> Vec<u8> {
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
    // These are a fragment and a malformed datagram.
    socket.send_to(&[&[0, 0, 1], &header(origin)[3..], b"query"].concat(), at).unwrap();
    socket.send_to(b"\0\0\0\x09", at).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    assert!(socket.recv_from(&mut [0; 64]).is_err());
    // The flow continues.
    assert!(ask(&socket, at, &header(origin), b"query").ends_with(b"yreuq"));
    // The association ends with its client.
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
    // The program's right to send ends with its connection.
    drop(control);
    assert_eq!(bench.finished().reason, None::<Reason>);
    socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    socket.send_to(&[&header(origin), &b"query"[..]].concat(), at).ok();
    assert!(socket.recv_from(&mut [0; 64]).is_err());
}

#[test]
fn another_program_of_the_host_cannot_be_first_where_the_port_was_said() {
    let (bench, origin) = (Bench::plain("127.0.0.0/8"), echo());
    let [own, thief] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    let (_control, at) = associate_from(&bench, own.local_addr().unwrap().port());
    thief.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    thief.send_to(&[&header(origin), &b"stolen"[..]].concat(), at).unwrap();
    assert!(thief.recv_from(&mut [0; 64]).is_err(), "it has not given the password");
    own.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    assert!(ask(&own, at, &header(origin), b"query").ends_with(b"yreuq"));
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

/// Requests an association of a program that sends datagrams to one destination in capsules.
fn connect_udp(bench: &Bench, host: &str, port: u16) -> TcpStream {
    let mut stream = TcpStream::connect(bench.http()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    write!(
        stream,
        "GET /.well-known/masque/udp/{host}/{port}/ HTTP/1.1\r\nHost: proxy\r\nConnection: Upgrade\r\n\
         Upgrade: connect-udp\r\nCapsule-Protocol: ?1\r\n\r\n"
    )
    .unwrap();
    let expected = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: connect-udp\r\n\
                    Capsule-Protocol: ?1\r\n\r\n";
    let mut said = vec![0; expected.len()];
    stream.read_exact(&mut said).unwrap();
    assert_eq!(String::from_utf8(said).unwrap(), expected);
    stream
}

/// Sends a datagram in a capsule until its payload returns backwards.
fn is_answered(stream: &mut TcpStream, payload: &[u8]) {
    let mut capsule = Vec::new();
    capsule::encode(payload, &mut capsule);
    let backwards: Vec<u8> = payload.iter().rev().copied().collect();
    let mut expected = Vec::new();
    capsule::encode(&backwards, &mut expected);
    let mut answer = vec![0; expected.len()];
    for _ in 0..10 {
        stream.write_all(&capsule).unwrap();
        if stream.read_exact(&mut answer).is_ok() {
            assert_eq!(answer, expected);
            return;
        }
    }
    panic!("no answer");
}

#[test]
fn datagrams_in_capsules_reach_an_origin_by_address_and_by_name() {
    let (bench, origin) = (Bench::new(), echo());
    for host in ["127.0.0.1", "origin.example"] {
        let mut stream = connect_udp(&bench, host, origin.port());
        is_answered(&mut stream, b"query");
        // A capsule of an unknown type and one of an unknown context are skipped.
        stream.write_all(b"\x29\x02??\0\x03\x02??").unwrap();
        is_answered(&mut stream, &[7; 1_200]);
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
        let (finished, told) = bench.finished_after("unknown contexts");
        assert!(told, "what was dropped is counted");
        assert_eq!((finished.protocol, finished.reason), (Protocol::Udp, None));
        assert_eq!(finished.destination.to_string(), format!("{host}:{}", origin.port()));
        assert!(finished.sent_bytes >= 1_205 && finished.received_bytes >= 1_205, "{finished:?}");
    }
}

#[test]
fn capsules_that_nobody_may_send_and_those_that_are_cut_end_the_connection() {
    let (bench, origin) = (Bench::new(), echo());
    let mut long = Vec::new();
    capsule::encode(&[0; PAYLOAD_BYTES_MAX + 1], &mut long);
    for (bytes, why) in [(&long[..], "longer than one of UDP"), (b"\0\0", "over before the context")] {
        let mut stream = connect_udp(&bench, "127.0.0.1", origin.port());
        is_answered(&mut stream, b"query");
        let _ = stream.write_all(bytes);
        assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
        let said = bench.finished().why.unwrap_or_default();
        assert!(said.contains(why), "{said}");
    }
    let mut stream = connect_udp(&bench, "127.0.0.1", origin.port());
    is_answered(&mut stream, b"query");
    stream.write_all(b"\0\x09\0cut").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert!(bench.finished().why.unwrap_or_default().contains("within a capsule"));
    // Datagrams that the policy denies are dropped, as with SOCKS, and the server reports them.
    let mut denied = connect_udp(&bench, "192.0.2.1", 53);
    denied.write_all(b"\0\x06\0query").unwrap();
    denied.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    assert_eq!(denied.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn a_program_that_does_not_read_its_capsules_loses_its_own() {
    // Each datagram is answered by a hundred.
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    thread::spawn(move || {
        while let Ok((_, from)) = socket.recv_from(&mut [0; 64]) {
            for _ in 0..100 {
                let _ = socket.send_to(&[7; 1_200], from);
            }
        }
    });
    let bench = Bench::new();
    let mut deaf = connect_udp(&bench, "127.0.0.1", port);
    for _ in 0..500 {
        deaf.write_all(b"\0\x02\0!").unwrap();
        thread::sleep(Duration::from_millis(2));
    }
    let mut other = connect_udp(&bench, "127.0.0.1", echo().port());
    is_answered(&mut other, b"query");
}

/// Sends four times as much as this rate allows, by SOCKS or in capsules. Returns the number of bytes that
/// were echoed within `lasts`.
fn echoed(bench: &Bench, in_capsules: bool, rate: usize, lasts: Duration) -> usize {
    let origin = echo();
    let payload = [7; 1_000];
    let pause = Duration::from_secs(1) * payload.len() as u32 / (4 * rate) as u32;
    let clock = anabranch_net::Clock::start();
    let passed = || Duration::from_nanos(clock.now().as_nanos());
    let mut bytes = 0;
    if in_capsules {
        let mut stream = connect_udp(bench, "127.0.0.1", origin.port());
        let mut capsule = Vec::new();
        capsule::encode(&payload, &mut capsule);
        let mut reading = stream.try_clone().unwrap();
        // Bytes beyond the rate are not read, so the writer waits, and ends with its connection.
        let writing = thread::spawn(move || {
            while stream.write_all(&capsule).is_ok() {
                thread::sleep(pause);
            }
        });
        reading.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        while passed() < lasts {
            bytes += reading.read(&mut [0; 64 * 1024]).unwrap_or(0);
        }
        reading.shutdown(std::net::Shutdown::Both).unwrap();
        writing.join().unwrap();
    } else {
        let (_control, socket, at) = associate(bench);
        let datagram = [&header(origin), &payload[..]].concat();
        let sending = socket.try_clone().unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let writing = thread::spawn(move || {
            while clock.now() < anabranch_algo::Time::from_nanos(lasts.as_nanos() as u64) {
                let _ = sending.send_to(&datagram, at);
                thread::sleep(pause);
            }
        });
        while passed() < lasts {
            bytes += socket.recv(&mut [0; 2_048]).unwrap_or(0);
        }
        writing.join().unwrap();
    }
    bytes
}

#[test]
fn the_rate_of_a_user_holds_for_datagrams_too() {
    const RATE: usize = 100_000;
    let limits = UserLimits { rate: Some(Rate::from_bytes(RATE as u64)), ..UserLimits::default() };
    let lasts = Duration::from_secs(3);
    let holds = |at_server: bool, in_capsules: bool| {
        let bench = Bench::tuned(move |server, client| match at_server {
            true => server.client_limits = limits,
            false => client.user_limits = limits,
        });
        let bytes = echoed(&bench, in_capsules, RATE, lasts);
        let part = bytes as f64 / (RATE as f64 * lasts.as_secs_f64());
        println!("at the server: {at_server}, in capsules: {in_capsules}: {part:.2} of the rate");
        assert!((0.5..1.2).contains(&part), "{part}");
    };
    // The four cases run at the same time, because they mostly wait.
    thread::scope(|scope| {
        for (at_server, in_capsules) in [(false, false), (false, true), (true, false), (true, true)] {
            scope.spawn(move || holds(at_server, in_capsules));
        }
    });
}

#[test]
fn programs_that_send_datagrams_count_among_the_connections_of_a_user() {
    let one = UserLimits { connections: Some(1), ..UserLimits::default() };
    let (bench, origin) = (Bench::tuned(move |_, client| client.user_limits = one), echo());
    let (control, socket, at) = associate(&bench);
    assert!(ask(&socket, at, &header(origin), b"query").ends_with(b"yreuq"));
    let mut second = TcpStream::connect(bench.socks()).unwrap();
    second.set_read_timeout(Some(LONG)).unwrap();
    second.write_all(&[5, 1, 0, 5, 3, 0, 1, 0, 0, 0, 0, 0, 0]).unwrap();
    let mut said = [0; 12];
    second.read_exact(&mut said).unwrap();
    assert_eq!(said[..4], [5, 0, 5, 1], "refused");
    let mut third = TcpStream::connect(bench.http()).unwrap();
    third.set_read_timeout(Some(LONG)).unwrap();
    third
        .write_all(
            b"GET /.well-known/masque/udp/127.0.0.1/9/ HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\n\
              Upgrade: connect-udp\r\n\r\n",
        )
        .unwrap();
    let mut said = String::new();
    third.read_to_string(&mut said).unwrap();
    assert!(said.starts_with("HTTP/1.1 503 "), "{said}");
    drop(control);
    assert_eq!(bench.finished().protocol, Protocol::Udp);
    let (_control, socket, at) = associate(&bench);
    assert!(ask(&socket, at, &header(origin), b"query").ends_with(b"yreuq"));
}
