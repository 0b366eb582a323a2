//! Tests of time-outs, of the limits of a user, and of reloads.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread::sleep;
use std::time::Duration;

use crate::bench::{Bench, LONG, origin, pattern, socks, socks_at, socks_to};
use anabranch_algo::{Rate, Time};
use anabranch_net::{Clock, Resolver};
use anabranch_proxy::flows::Timeouts;
use anabranch_proxy::ingress::Users;
use anabranch_proxy::policy::Policy;
use anabranch_proxy::quota::UserLimits;
use anabranch_proxy::trunk::Reason;

const SHORT: Duration = Duration::from_millis(300);

/// Starts an origin that sends a byte and waits for the end.
fn waits() -> SocketAddr {
    origin(|mut stream| {
        let _ = stream.write_all(b"x");
        let _ = stream.read_to_end(&mut Vec::new());
    })
}

/// Returns how many seconds `what` takes.
fn seconds(what: impl FnOnce()) -> f64 {
    let clock = Clock::start();
    what();
    clock.now().since(Time::ZERO).as_nanos() as f64 / 1e9
}

#[test]
fn a_connection_on_which_nothing_moves_is_reset_at_either_end() {
    let short = Timeouts { idle: SHORT, ..Timeouts::default() };
    let at_server = Bench::tuned(move |server, _| server.timeouts = short);
    let at_client = Bench::tuned(move |_, client| client.timeouts = short);
    for bench in [at_server, at_client] {
        let mut stream = socks(&bench, waits());
        stream.read_exact(&mut [0]).unwrap();
        // The connection lives as long as bytes move.
        for _ in 0..6 {
            sleep(SHORT / 3);
            stream.write_all(b"y").unwrap();
        }
        assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
        let finished = bench.finished();
        assert_eq!((finished.reason, finished.received_bytes), (Some(Reason::NoInterest), 1), "{finished:?}");
    }
}

#[test]
fn a_half_closed_connection_has_a_limit_of_its_own() {
    let short = Timeouts { half_closed: SHORT, ..Timeouts::default() };
    let bench = Bench::tuned(move |_, client| client.timeouts = short);
    let origin = origin(|mut stream| {
        let _ = stream.read_to_end(&mut Vec::new());
        sleep(LONG);
    });
    let mut whole = socks(&bench, origin);
    whole.write_all(b"x").unwrap();
    let mut half = socks(&bench, origin);
    half.write_all(b"x").unwrap();
    half.shutdown(Shutdown::Write).unwrap();
    assert_eq!(half.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    whole.set_read_timeout(Some(SHORT)).unwrap();
    assert_eq!(whole.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock, "it has an hour");
}

#[test]
fn who_says_its_wish_byte_by_byte_or_nothing_at_all_is_closed() {
    let short = Timeouts { handshake: SHORT, ..Timeouts::default() };
    let bench = Bench::tuned(move |server, client| (server.timeouts, client.timeouts) = (short, short));
    let SocketAddr::V4(server) = bench.server_address().address().unwrap() else { panic!() };
    for address in [bench.socks(), bench.http(), server.into()] {
        for drips in [false, true] {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.set_read_timeout(Some(SHORT / 3)).unwrap();
            let first: &[u8] = if address == bench.http() { b"G" } else { &[5, 255] };
            let mut bytes = first.iter().chain(std::iter::repeat(&b'E'));
            let took = seconds(|| {
                for byte in &mut bytes {
                    if drips && stream.write_all(&[*byte]).is_err() {
                        break;
                    }
                    match stream.read(&mut [0; 64]) {
                        Ok(0) => break,
                        Err(e) if e.kind() != ErrorKind::WouldBlock => break,
                        _ => {}
                    }
                }
            });
            assert!(took < 10.0, "{address}: {took}");
        }
    }
    // Other programs are served in the meantime and afterwards.
    socks(&bench, waits()).read_exact(&mut [0]).unwrap();
}

#[test]
fn a_user_has_so_many_connections_and_is_told_of_more() {
    let two = UserLimits { connections: Some(2), ..UserLimits::default() };
    let at_server =
        Bench::tuned(move |server, client| (server.client_limits, client.is_strict) = (two, true));
    let at_client = Bench::tuned(move |_, client| (client.user_limits, client.is_strict) = (two, true));
    for bench in [at_server, at_client] {
        let origin = waits();
        let held = [socks(&bench, origin), socks(&bench, origin)];
        assert_eq!(socks_at(bench.socks(), origin).unwrap_err(), 1, "general failure");
        assert_eq!(bench.finished().reason, Some(Reason::Busy));
        let (mut server, mut client) = bench.options();
        (server.client_limits, client.user_limits) = (UserLimits::default(), UserLimits::default());
        bench.reload(&server, &client);
        socks(&bench, origin).read_exact(&mut [0]).unwrap();
        drop(held);
    }
}

#[test]
fn a_rate_holds_for_all_connections_of_a_user_in_each_direction() {
    let rate = Some(Rate::from_bytes(400_000));
    let limits = UserLimits { rate, ..UserLimits::default() };
    let at_server = Bench::tuned(move |server, _| server.client_limits = limits);
    let at_client = Bench::tuned(move |_, client| client.user_limits = limits);
    for bench in [at_server, at_client] {
        let down = pattern(400_000, 7);
        let origin = origin({
            let down = down.clone();
            move |mut stream| {
                let _ = stream.read(&mut [0]);
                let _ = stream.write_all(&down);
            }
        });
        let mut streams = [socks(&bench, origin), socks(&bench, origin)];
        let took = seconds(|| {
            streams.iter_mut().for_each(|stream| stream.write_all(b"x").unwrap());
            for stream in &mut streams {
                let mut all = Vec::new();
                stream.read_to_end(&mut all).unwrap();
                assert!(all == down, "{}", all.len());
            }
        });
        // The 800 kB go at 400 kB/s.
        assert!((1.7..6.0).contains(&took), "{took} s");
    }
}

#[test]
fn a_reload_changes_policy_users_and_strictness_for_those_who_come() {
    let bench = Bench::new();
    let origin = waits();
    let mut before = socks(&bench, origin);
    before.read_exact(&mut [0]).unwrap();
    let (mut server, mut client) = bench.options();
    server.policy = Policy::new(&[], &[]);
    client.is_strict = true;
    bench.reload(&server, &client);
    assert_eq!(socks_at(bench.socks(), origin).unwrap_err(), 2, "denied, and said");
    before.write_all(b"still there").unwrap();
    client.users = Users::new([("ann".to_owned(), "secret".to_owned())]);
    bench.reload(&server, &client);
    let mut stream = TcpStream::connect(bench.socks()).unwrap();
    stream.write_all(&[5, 1, 0]).unwrap();
    let mut answer = [0; 2];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, [5, 255], "a password is wanted now");
}

#[test]
fn a_name_without_an_address_is_told_as_such() {
    let bench = Bench::tuned(|server, client| {
        server.resolver = Resolver::new(|_| Err(std::io::Error::other("no such name")));
        client.is_strict = true;
    });
    assert_eq!(socks_to(&bench, b"\x03\x0eorigin.example", 80).unwrap_err(), 4);
    assert_eq!(bench.finished().reason, Some(Reason::Name));
}

#[test]
fn a_server_that_is_killed_under_load_comes_back_and_programs_go_on_within_two_seconds() {
    let mut bench = Bench::new();
    let floods = origin(|mut stream| {
        let block = pattern(1 << 16, 1);
        while stream.write_all(&block).is_ok() {}
    });
    let mut streams: Vec<TcpStream> = (0..20).map(|_| socks(&bench, floods)).collect();
    streams.iter_mut().for_each(|stream| stream.read_exact(&mut [0]).unwrap());
    bench.stop_server();
    for stream in &mut streams {
        // Bytes that were in flight may be read before the reset.
        let end = std::io::copy(stream, &mut std::io::sink()).unwrap_err();
        assert_eq!(end.kind(), ErrorKind::ConnectionReset);
    }
    bench.start_server();
    let took = seconds(|| socks(&bench, waits()).read_exact(&mut [0]).unwrap());
    assert!(took < 2.0, "{took} s");
}
