//! Tests of hosts behind `anabranch proxy` that never answer: programs are told in time, and others are not
//! affected.
#![cfg(target_os = "linux")]

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::thread::{self, sleep};
use std::time::Duration;

use crate::common::netns::Net;
use crate::roles::{Role, ask, client_command, connect_to, echo, echoes, origin, server_command, v4};
use anabranch_algo::{Span, Time};
use anabranch_net::{Clock, Namespace};

/// The time-outs of the servers in these tests.
const TIMEOUT: Span = Span::from_secs(1);
/// The longest time that another connection may wait for an answer.
const PROMPT: Span = Span::from_millis(500);

fn span(clock: Clock) -> Span {
    clock.now().since(Time::ZERO)
}

/// A connection that echoes all the time until it is ended. Its thread returns the longest time of an echo.
struct Other {
    end: std::sync::mpsc::Sender<()>,
    thread: thread::JoinHandle<Span>,
}

impl Other {
    fn start(mut stream: TcpStream) -> Self {
        let (end, ended) = std::sync::mpsc::channel();
        let thread = thread::spawn(move || {
            let mut longest = Span::ZERO;
            while ended.try_recv().is_err() {
                let clock = Clock::start();
                assert!(echoes(&mut stream), "the other connection lives");
                longest = longest.max(span(clock));
                sleep(Duration::from_millis(20));
            }
            longest
        });
        Self { end, thread }
    }

    fn ends_prompt(self) {
        self.end.send(()).unwrap();
        let longest = self.thread.join().unwrap();
        assert!(longest < PROMPT, "the other connection waited for {longest:?}");
    }
}

/// Waits until the connection is reset. Returns how long that took.
fn reset_after(stream: &mut TcpStream) -> Span {
    let clock = Clock::start();
    let end = stream.read(&mut [0; 64]).unwrap_err();
    assert_eq!(end.kind(), ErrorKind::ConnectionReset);
    span(clock)
}

fn is_in_time(took: Span) {
    // Time-outs are checked at intervals, so the end may be later.
    assert!((TIMEOUT.over(2)..TIMEOUT.times(3)).contains(&took), "{took:?}");
}

#[test]
fn an_origin_that_takes_a_connection_and_says_nothing_is_given_up_after_the_idle_time() {
    let _few = anabranch_net::testing::among_few();
    let place = tempfile::tempdir().unwrap();
    let place = place.path();
    let server = Role::start(&mut server_command(place, &["--idle-timeout", "1s"]), 1);
    let client =
        Role::start(&mut client_command(place, server.address("trunks"), &["--http", "127.0.0.1:0"]), 2);
    let socks = client.address("socks");
    let other = Other::start(connect_to(socks, origin(echo)));
    // The kernel's queue takes the connection, and no program reads from it.
    let deaf = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = deaf.local_addr().unwrap();
    let mut stream = connect_to(socks, to);
    stream.write_all(b"is anybody there?").unwrap();
    is_in_time(reset_after(&mut stream));
    // A program that speaks HTTP gets an answer.
    let clock = Clock::start();
    let mut stream = TcpStream::connect(client.address("http")).unwrap();
    write!(stream, "GET http://{to}/ HTTP/1.1\r\nHost: {to}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    is_in_time(span(clock));
    assert!(answer.starts_with("HTTP/1.1 50"), "{answer}");
    other.ends_prompt();
    nothing_is_left(place, &[&server, &client]);
}

/// Waits until no connections are open any more.
fn nothing_is_left(place: &Path, roles: &[&Role]) {
    crate::common::wait_until(10, || roles.iter().all(|role| role.status(place)["open_connections"] == 0));
}

#[test]
fn a_server_that_takes_a_connection_and_says_nothing_costs_a_program_seconds_and_no_more() {
    let _few = anabranch_net::testing::among_few();
    let place = tempfile::tempdir().unwrap();
    let place = place.path();
    let deaf = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = deaf.local_addr().unwrap().to_string();
    let client = Role::start(&mut client_command(place, &to, &[]), 1);
    let strict = Role::start(&mut client_command(place, &to, &["--strict-socks"]), 1);
    let nowhere: SocketAddr = "192.0.2.1:80".parse().unwrap();
    let mut stream = connect_to(client.address("socks"), nowhere);
    let said = thread::scope(|scope| {
        let said = scope.spawn(|| ask(strict.address("socks"), &v4(nowhere), 80).unwrap().1);
        let took = reset_after(&mut stream);
        println!("reset after {took:?}");
        assert!((Span::from_secs(10)..Span::from_secs(20)).contains(&took), "{took:?}");
        said.join().unwrap()
    });
    assert_eq!(said, 1, "general failure");
    let why = client.said("trunk").first().map(|line| line["note"].clone());
    assert!(why.as_ref().is_some_and(|why| why.to_string().contains("does not say HELLO")), "{why:?}");
    nothing_is_left(place, &[&client, &strict]);
}

#[test]
fn a_host_that_drops_what_is_sent_to_it_is_given_up_after_the_connect_time() {
    let _few = anabranch_net::testing::among_few();
    let Some(net) = Net::new("proxy-hole", &["here", "hole"]) else { return };
    net.link(1_500, [("here", "out", &["203.0.114.1/24"]), ("hole", "in", &[])]);
    // Packets to a hardware address that no host has are lost, and no router reports that.
    net.ip("here", "neigh add 203.0.114.9 lladdr 02:00:00:00:00:09 dev out nud permanent");
    let place = tempfile::tempdir().unwrap();
    let place = place.path();
    let start = |command: std::process::Command, count| {
        // `ip netns exec` becomes the program, so both have one process id.
        Role::start(&mut net.inside("here", &command), count)
    };
    let server = start(server_command(place, &["--connect-timeout", "1s"]), 1);
    let to = server.address("trunks");
    let client = start(client_command(place, to, &["--http", "127.0.0.1:0"]), 2);
    let strict = start(client_command(place, to, &["--strict-socks"]), 1);
    let inside = Namespace::open(Path::new(&format!("/proc/{}/ns/net", client.pid()))).unwrap();
    let (socks, http) = (client.address("socks"), client.address("http"));
    let (strictly, hole) = (strict.address("socks"), "203.0.114.9:80".parse().unwrap());
    let work = || {
        let other = Other::start(connect_to(socks, origin(echo)));
        let mut stream = connect_to(socks, hole);
        stream.write_all(b"is anybody there?").unwrap();
        is_in_time(reset_after(&mut stream));
        let clock = Clock::start();
        assert_eq!(ask(strictly, &v4(hole), 80).unwrap().1, 4, "host unreachable");
        is_in_time(span(clock));
        let clock = Clock::start();
        let mut stream = TcpStream::connect(http).unwrap();
        write!(stream, "CONNECT {hole} HTTP/1.1\r\n\r\n").unwrap();
        stream.read_exact(&mut [0; 39]).unwrap();
        let _ = reset_after(&mut stream);
        is_in_time(span(clock));
        other.ends_prompt();
    };
    inside.run(work).unwrap();
    nothing_is_left(place, &[&server, &client, &strict]);
}
