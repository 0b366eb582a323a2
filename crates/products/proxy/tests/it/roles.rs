//! Tests with a client and a server on loopback, real programs on one side and real origins on the other.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use crate::bench::{Bench, LONG, origin, pattern, refused_port, socks, socks_to};
use anabranch_proxy::client::{self, Options};
use anabranch_proxy::keys::{Clients, KeyPair, Pairing};
use anabranch_proxy::trunk::{Reason, Transport};
use anabranch_proxy::{Door, Event};

/// Starts an origin of HTTP that answers one request with its head, and closes the connection.
fn http_origin() -> SocketAddr {
    origin(|mut stream| {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) > 0 {
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap();
        let body = format!("you said {head}");
        let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    })
}

fn get(stream: &mut TcpStream) -> String {
    stream.write_all(b"GET /page HTTP/1.1\r\nHost: origin.example\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn socks_reaches_an_origin_by_address_and_by_name() {
    let bench = Bench::new();
    let origin = http_origin();
    let mut stream = socks(&bench, origin);
    assert!(get(&mut stream).contains("you said GET /page"));
    let mut stream = socks_to(&bench, b"\x03\x0eorigin.example", origin.port()).unwrap();
    assert!(get(&mut stream).contains("200 OK"));
    drop(stream);
    let finished = bench.finished();
    assert_eq!(finished.destination.port(), origin.port());
    assert_eq!((finished.reason, finished.sent_bytes), (None, 44), "{finished:?}");
}

#[test]
fn http_connect_and_plain_http_reach_an_origin() {
    let bench = Bench::new();
    let origin = http_origin();
    let mut stream = TcpStream::connect(bench.http()).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    write!(stream, "CONNECT {origin} HTTP/1.1\r\nHost: {origin}\r\n\r\n").unwrap();
    let mut said = [0; 39];
    stream.read_exact(&mut said).unwrap();
    assert_eq!(&said, b"HTTP/1.1 200 Connection established\r\n\r\n");
    assert!(get(&mut stream).contains("200 OK"));

    let mut stream = TcpStream::connect(bench.http()).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    write!(stream, "GET http://{origin}/page HTTP/1.1\r\nHost: {origin}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.contains("GET /page HTTP/1.1"), "{answer}");
    assert!(answer.contains("Connection: close"), "{answer}");
}

/// An origin does not end the connection as the request asks, and the program sends another request. The
/// program must not be left without an answer, and its request must not reach that origin.
#[test]
fn a_second_request_behind_an_answer_ends_the_connection() {
    let bench = Bench::new();
    let (tell, told) = std::sync::mpsc::channel();
    let stays = origin(move |mut stream| {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) > 0 {
            head.push(byte[0]);
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi").unwrap();
        let mut more = Vec::new();
        let _ = stream.read_to_end(&mut more);
        tell.send(more).unwrap();
        thread::sleep(LONG);
    });
    let mut stream = TcpStream::connect(bench.http()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let request = format!("GET http://{stays}/a HTTP/1.1\r\nHost: {stays}\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = [0; 40];
    stream.read_exact(&mut answer).unwrap();
    assert!(answer.ends_with(b"\r\n\r\nhi"));
    stream.write_all(request.as_bytes()).unwrap();
    assert_eq!(stream.read(&mut answer).unwrap(), 0);
    assert_eq!(told.recv_timeout(LONG).unwrap(), b"");
}

#[test]
fn an_unknown_client_and_a_wrong_server_get_nothing_and_say_so() {
    let bench = Bench::new();
    let origin = http_origin();
    // The server does not know the first client, and the second client expects another server.
    let stranger = Pairing::new(bench.server_key()).unwrap();
    let mistaken = Pairing::new(KeyPair::generate().unwrap().public()).unwrap();
    for (pairing, says) in [(stranger, "does not know this client's key"), (mistaken, "was paired with")] {
        let mut options = Options::new(bench.server_address(), Some(pairing));
        options.doors = vec![(Door::Socks, "127.0.0.1:0".parse().unwrap())];
        options.is_strict = true;
        let mut client = client::start(options).unwrap();
        let socks = client.address(Door::Socks).unwrap();
        let error = crate::bench::socks_at(socks, origin).unwrap_err();
        assert_eq!(error, 1, "general failure");
        let why = loop {
            match client.wait_event().unwrap() {
                Event::TrunkDown { why, .. } => break why,
                Event::TrunkUp { .. } => panic!("it was let in"),
                _ => {}
            }
        };
        assert!(why.contains(says), "{why}");
    }
}

#[test]
fn a_destination_that_is_denied_or_refuses_resets_the_program_or_is_said_if_strict() {
    let bench = Bench::new();
    let denied = "192.0.2.1:80".parse().unwrap();
    for (destination, reason) in [(denied, Reason::Denied), (refused_port(), Reason::Refused)] {
        let mut stream = socks(&bench, destination);
        let error = stream.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        assert_eq!(bench.finished().reason, Some(reason));
    }
    let mut stream = TcpStream::connect(bench.http()).unwrap();
    stream.write_all(b"GET http://192.0.2.1/ HTTP/1.1\r\nHost: 192.0.2.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 403 Forbidden"), "{answer}");

    let strict = Bench::strict();
    assert_eq!(crate::bench::socks_at(strict.socks(), denied).unwrap_err(), 2);
    assert_eq!(crate::bench::socks_at(strict.socks(), refused_port()).unwrap_err(), 5);
    assert!(get(&mut socks(&strict, http_origin())).contains("200 OK"));
    let mut stream = TcpStream::connect(strict.http()).unwrap();
    stream.write_all(b"CONNECT 192.0.2.1:80 HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 403 Forbidden"), "{answer}");
}

#[test]
fn half_closes_pass_in_both_directions() {
    let bench = Bench::new();
    // This origin answers when it has received everything.
    let counts = origin(|mut stream| {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        stream.write_all(&all.len().to_be_bytes()).unwrap();
    });
    let mut stream = socks(&bench, counts);
    stream.write_all(&pattern(1 << 20, 3)).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, (1_usize << 20).to_be_bytes());

    // This origin has sent everything before it reads.
    let (tell, told) = std::sync::mpsc::channel();
    let speaks = origin(move |mut stream| {
        stream.write_all(b"all").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        tell.send(all).unwrap();
    });
    let mut stream = socks(&bench, speaks);
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, b"all");
    stream.write_all(b"late").unwrap();
    drop(stream);
    assert_eq!(told.recv_timeout(LONG).unwrap(), b"late");
}

#[test]
fn a_megabyte_up_and_64_down_arrive_as_they_were_sent() {
    let bench = Bench::new();
    let up = pattern(1 << 20, 5);
    let down = pattern(64 << 20, 9);
    let origin = origin({
        let (up, down) = (up.clone(), down.clone());
        move |mut stream| {
            let mut all = vec![0; up.len()];
            stream.read_exact(&mut all).unwrap();
            assert!(all == up);
            stream.write_all(&down).unwrap();
        }
    });
    let mut stream = socks(&bench, origin);
    stream.write_all(&up).unwrap();
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    assert!(all == down, "{} bytes", all.len());
}

#[test]
fn a_program_that_never_reads_does_not_hold_the_others_up() {
    let bench = Bench::new();
    let floods = origin(|mut stream| {
        let block = pattern(1 << 20, 1);
        while stream.write_all(&block).is_ok() {}
    });
    // These are enough connections to fill a trunk's buffers, and to make all trunks busy.
    let deaf: Vec<TcpStream> = (0..40).map(|_| socks(&bench, floods)).collect();
    thread::sleep(Duration::from_secs(1));
    let origin = http_origin();
    // Each answer must come in time, because the program reads with a time limit.
    for _ in 0..5 {
        assert!(get(&mut socks(&bench, origin)).contains("200 OK"));
    }
    drop(deaf);
}

#[test]
fn what_fails_on_one_side_is_reset_on_the_other() {
    let bench = Bench::new();
    let (tell, told) = std::sync::mpsc::channel();
    let waits = origin(move |mut stream| {
        stream.write_all(b"x").unwrap();
        tell.send(stream.read(&mut [0]).map_err(|e| e.kind())).unwrap();
    });
    let mut stream = socks(&bench, waits);
    stream.read_exact(&mut [0]).unwrap();
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    drop(stream);
    let seen = told.recv_timeout(LONG).unwrap();
    assert_eq!(seen, Err(std::io::ErrorKind::ConnectionReset));

    let resets = origin(|mut stream| {
        stream.write_all(b"part").unwrap();
        let _ = stream.read(&mut [0]);
        socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    });
    let mut stream = socks(&bench, resets);
    let mut part = [0; 4];
    stream.read_exact(&mut part).unwrap();
    stream.write_all(b"x").unwrap();
    assert_eq!(stream.read(&mut part).unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
}

#[test]
fn after_a_restart_of_the_server_the_next_request_works() {
    let mut bench = Bench::new();
    let origin = http_origin();
    assert!(get(&mut socks(&bench, origin)).contains("200 OK"));
    bench.stop_server();
    // A program waits in the meantime.
    let mut waiting = socks(&bench, origin);
    thread::sleep(Duration::from_millis(300));
    bench.start_server();
    assert!(get(&mut waiting).contains("200 OK"));
    assert!(get(&mut socks(&bench, origin)).contains("200 OK"));
}

#[test]
fn a_client_is_let_in_once_it_is_paired_and_ends_when_it_is_taken_off_the_list() {
    let bench = Bench::new();
    let origin = http_origin();
    let pairing = Pairing::new(bench.server_key()).unwrap();
    Clients::append(&bench.list(), "second", pairing.client.public()).unwrap();
    let mut options = Options::new(bench.server_address(), Some(pairing));
    options.doors = vec![(Door::Socks, "127.0.0.1:0".parse().unwrap())];
    let mut client = client::start(options).unwrap();
    let at = client.address(Door::Socks).unwrap();
    assert!(get(&mut crate::bench::socks_at(at, origin).unwrap()).contains("200 OK"));
    std::fs::write(bench.list(), "").unwrap();
    loop {
        if let Event::TrunkDown { why, .. } = client.wait_event().unwrap()
            && why.contains("does not know this client's key")
        {
            break;
        }
    }
    let mut stream = crate::bench::socks_at(at, origin).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
}

#[test]
fn without_keys_only_the_networks_that_were_named_are_believed() {
    let origin = http_origin();
    let bench = Bench::plain("127.0.0.0/8");
    assert!(get(&mut socks(&bench, origin)).contains("200 OK"));
    let Event::TrunkUp { transport, note, .. } = bench.trunk_up() else { panic!() };
    assert_eq!(note.is_none(), transport == Transport::Mptcp, "what refuses MPTCP is said");
    let bench = Bench::plain("192.0.2.0/24");
    let mut stream = socks(&bench, origin);
    stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "it waits");
}

#[test]
fn a_role_that_is_stopped_resets_its_programs_and_says_its_last_event() {
    let mut bench = Bench::new();
    let waits = origin(|mut stream| _ = stream.read_to_end(&mut Vec::new()));
    let mut stream = socks(&bench, waits);
    stream.write_all(b"x").unwrap();
    thread::sleep(Duration::from_millis(200));
    bench.stop_client();
    assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    let nowhere = client::start(Options::new(bench.server_address(), None)).unwrap_err();
    assert!(matches!(nowhere, anabranch_proxy::Error::Usage(_)));
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut options = Options::new(bench.server_address(), None);
    options.doors.push((Door::Http, taken.local_addr().unwrap()));
    assert!(matches!(client::start(options).unwrap_err(), anabranch_proxy::Error::Listen(..)));
}

/// GOAWAY comes with the server's first bytes, not after the client's HELLO, because streams that a client
/// opened in between would be reset.
#[test]
fn a_client_of_too_many_trunks_is_told_at_once() {
    let bench = Bench::plain("127.0.0.0/8");
    let server: SocketAddr = bench.server_address().to_string().parse().unwrap();
    let hello = [0, 0, 0, 16, 0, 0, 0, 0, 0, 1, 2, 0, 0, 4, 0, 0, 0, 0, 16, 0, 4, 0, 0, 0];
    let go_away = [8, 0, 0, 1, 0, 0, 0, 0, 2];
    let (mut trunks, mut is_told) = (Vec::new(), false);
    // The bench's own client has some of the 64 trunks.
    while !is_told && trunks.len() < 66 {
        let mut stream = TcpStream::connect(server).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        // The first byte shows that this is no probe, but HELLO is not complete yet.
        stream.write_all(&hello[..1]).unwrap();
        let (mut said, mut buffer) = (Vec::new(), [0; 256]);
        while let Ok(n @ 1..) = stream.read(&mut buffer) {
            said.extend_from_slice(&buffer[..n]);
        }
        is_told = said.windows(go_away.len()).any(|frame| frame == go_away);
        let _ = stream.write_all(&hello[1..]);
        trunks.push(stream);
    }
    assert!(is_told && trunks.len() > 32, "{} trunks", trunks.len());
}
