//! Tests of the resources that all clients of a server share: one client that takes all it can get keeps no
//! other out.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::thread::{self, sleep};
use std::time::Duration;

use anabranch_algo::{Span, Time};
use anabranch_net::{Clock, Resolver};
use anabranch_proxy::flows::Timeouts;
use anabranch_proxy::trunk::Reason;

use crate::bench::{Bench, LONG, connect, origin, pattern, socks, socks_at, socks_to};

/// Starts an origin that sends back everything that it receives.
fn echo() -> SocketAddr {
    origin(|mut stream| {
        let _ = stream.try_clone().map(|mut from| std::io::copy(&mut from, &mut stream));
        let _ = stream.shutdown(Shutdown::Write);
    })
}

/// Starts an origin that reads nothing.
fn deaf() -> SocketAddr {
    origin(|stream| {
        sleep(LONG);
        drop(stream);
    })
}

fn server_of(bench: &Bench) -> SocketAddr {
    bench.server_address().address().unwrap()
}

#[test]
fn a_thousand_connections_that_say_nothing_keep_no_client_out() {
    let bench = Bench::tuned(|server, client| {
        server.timeouts = Timeouts { handshake: LONG, ..Timeouts::default() };
        client.is_strict = true;
    });
    let silent: Vec<TcpStream> = (0..1_100).map(|_| TcpStream::connect(server_of(&bench)).unwrap()).collect();
    let (clock, origin) = (Clock::start(), echo());
    let (_running, at) = bench.another_client("desktop");
    let mut stream = socks_at(at, origin).expect("it is let in");
    stream.write_all(b"x").unwrap();
    stream.read_exact(&mut [0]).unwrap();
    let took = clock.now().since(Time::ZERO);
    assert!(took < Span::from_secs(5), "{took:?}");
    assert!(bench.status().0.snapshot().totals.refused >= 1, "they are counted");
    drop(silent);
}

#[test]
fn the_time_to_say_who_it_is_counts_once() {
    let bench = Bench::tuned(|server, _| {
        server.timeouts = Timeouts { handshake: Duration::from_secs(2), ..Timeouts::default() };
    });
    let SocketAddr::V4(server) = server_of(&bench) else { panic!() };
    let mut stream = TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    let clock = Clock::start();
    sleep(Duration::from_millis(1_800));
    // This is the beginning of a TLS record.
    stream.write_all(&[22]).unwrap();
    let _ = stream.read(&mut [0; 16]);
    let took = clock.now().since(Time::ZERO);
    assert!(took < Span::from_secs(3), "{took:?}");
}

#[test]
fn names_of_one_client_that_nobody_answers_delay_no_other() {
    let bench = Bench::tuned(|server, _| {
        server.resolver = Resolver::new(|name| {
            if name.starts_with("dead") {
                sleep(Duration::from_secs(5));
                return Err(std::io::Error::other("no answer"));
            }
            Ok(vec!["127.0.0.1:0".parse().unwrap()])
        });
    });
    let origin = echo();
    let (_running, other) = bench.another_client("desktop");
    let mut dead = Vec::new();
    for number in 0..300 {
        let name = format!("dead{number:03}.example");
        dead.push(socks_to(&bench, &[&[3, name.len() as u8], name.as_bytes()].concat(), 80).unwrap());
    }
    // All of these lookups are under way at the server.
    sleep(Duration::from_millis(300));
    let clock = Clock::start();
    let mut stream = connect(other, b"\x03\x0clive.example", origin.port()).unwrap();
    stream.write_all(b"x").unwrap();
    stream.read_exact(&mut [0]).unwrap();
    let took = clock.now().since(Time::ZERO);
    assert!(took < Span::from_secs(2), "{took:?}");
}

#[test]
fn one_client_that_has_all_descriptors_gives_some_to_another() {
    let bench = Bench::tuned(|server, client| {
        server.descriptors = 300;
        client.is_strict = true;
    });
    let origin = echo();
    let (_running, other) = bench.another_client("desktop");
    let mut held = Vec::new();
    while let Ok(stream) = socks_at(bench.socks(), origin) {
        held.push(stream);
        assert!(held.len() < 300, "there is a limit");
    }
    let mut theirs: Vec<TcpStream> = (0..20).map(|_| socks_at(other, origin).unwrap()).collect();
    for stream in &mut theirs {
        stream.write_all(b"x").unwrap();
        stream.read_exact(&mut [0]).unwrap();
    }
    // As many of the first client's connections have ended as were needed, those that were silent the
    // longest.
    let finished = bench.finished();
    assert_eq!(finished.reason, Some(Reason::Busy), "{finished:?}");
}

#[test]
fn one_client_whose_origins_read_nothing_does_not_fill_the_memory() {
    let bench = Bench::tuned(|server, _| server.trunk_memory_bytes = 2 << 20);
    let (deaf, echo) = (deaf(), echo());
    let (_running, other) = bench.another_client("desktop");
    let block = pattern(1 << 20, 3);
    let stuck: Vec<_> = (0..24)
        .map(|_| {
            let (mut stream, block) = (socks(&bench, deaf), block.clone());
            thread::spawn(move || while stream.write_all(&block).is_ok() {})
        })
        .collect();
    let finished = bench.finished();
    assert_eq!(finished.reason, Some(Reason::Busy), "{finished:?}");
    let mut stream = socks_at(other, echo).unwrap();
    let mut from = stream.try_clone().unwrap();
    let sent = block.clone();
    let sending = thread::spawn(move || {
        stream.write_all(&sent).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
    });
    let mut all = Vec::new();
    from.read_to_end(&mut all).unwrap();
    assert!(all == block, "{} bytes", all.len());
    sending.join().unwrap();
    drop((bench, stuck));
}

#[test]
fn a_flow_for_each_question_finds_a_place_though_the_server_is_not_told_that_they_end() {
    let bench = Bench::new();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    thread::spawn(move || {
        let mut buffer = [0; 64];
        while let Ok((n, from)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(&buffer[..n], from);
        }
    });
    for number in 0..1_100 {
        let (control, program, at) = crate::datagrams::associate(&bench);
        let query = format!("{number}");
        let answer =
            crate::datagrams::ask(&program, at, &crate::datagrams::header(address), query.as_bytes());
        assert!(answer.ends_with(query.as_bytes()));
        drop(control);
    }
    assert_eq!(bench.status().0.snapshot().datagram_flows, 1_024);
}
