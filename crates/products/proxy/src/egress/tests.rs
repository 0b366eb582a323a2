//! Tests with real listeners on loopback.

use std::net::{Ipv4Addr, Ipv6Addr};

use anabranch_http::happy_eyeballs::ATTEMPT_DELAY;
use anabranch_net::{Clock, Namespace, testing};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::time::sleep;

use super::*;
use crate::policy::Scope;

fn everywhere() -> Policy {
    let scopes: Vec<Scope> =
        ["127.0.0.0/8", "::1", "192.0.2.0/24", "2001:db8::/32"].map(|text| text.parse().unwrap()).into();
    Policy::new(&scopes, &[])
}

/// Returns a connector that finds these addresses for every name.
fn connector(found: &[&str]) -> Connector {
    let found: Vec<SocketAddr> = found.iter().map(|ip| SocketAddr::new(ip.parse().unwrap(), 0)).collect();
    let resolver = Resolver::new(move |_| Ok(found.clone()));
    let options = Options { connect_timeout: Duration::from_secs(5), ..Options::default() };
    Connector::new(resolver, everywhere(), options)
}

/// Returns the time since a clock was started.
fn since(start: Clock) -> Duration {
    Duration::from_nanos(start.now().as_nanos())
}

fn name(port: u16) -> Destination {
    Destination::from_name(b"origin.example", port).unwrap()
}

/// A listener whose queue is full, so that connections to it hang.
struct Deaf {
    _listener: Socket,
    _fill: Vec<std::net::TcpStream>,
    address: SocketAddr,
}

impl Deaf {
    fn new(address: &str, port: u16) -> Self {
        let address = SocketAddr::new(address.parse().unwrap(), port);
        let listener = Socket::new(Domain::for_address(address), Type::STREAM, None).unwrap();
        listener.bind(&address.into()).unwrap();
        listener.listen(0).unwrap();
        let address = listener.local_addr().unwrap().as_socket().unwrap();
        let mut fill = Vec::new();
        while let Ok(one) = std::net::TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
            fill.push(one);
        }
        Self { _listener: listener, _fill: fill, address }
    }
}

#[test]
fn families_take_turns_and_nothing_is_tried_twice() {
    let of = |texts: &[&str]| {
        in_turn(texts.iter().map(|text| SocketAddr::new(text.parse().unwrap(), 1)))
            .iter()
            .map(|a| a.ip().to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        of(&["::1", "::2", "::3", "192.0.2.1", "192.0.2.1", "192.0.2.2"]),
        ["::1", "192.0.2.1", "::2", "192.0.2.2", "::3"]
    );
    assert_eq!(of(&["192.0.2.1", "192.0.2.2", "::1", "::ffff:192.0.2.1"]), ["192.0.2.1", "::1", "192.0.2.2"]);
    assert!(of(&[]).is_empty());
}

#[tokio::test]
async fn one_dead_family_costs_a_quarter_of_a_second_at_most() {
    let deaf = Deaf::new("::1", 0);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, deaf.address.port())).await.unwrap();
    let start = Clock::start();
    let connected = connector(&["::1", "127.0.0.1"]).connect(&name(deaf.address.port()), &Bytes::new()).await;
    let (connected, took) = (connected.unwrap(), since(start));
    assert_eq!(connected.peer, listener.local_addr().unwrap());
    assert!((ATTEMPT_DELAY..8 * ATTEMPT_DELAY).contains(&took), "{took:?}");
    assert!(connected.stream.nodelay().unwrap());

    // An address that refuses the connection costs no delay.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let start = Clock::start();
    connector(&["::1", "127.0.0.1"]).connect(&name(port), &Bytes::new()).await.unwrap();
    assert!(since(start) < ATTEMPT_DELAY, "{:?}", since(start));
}

#[tokio::test]
async fn what_happened_is_told_by_the_address_that_came_nearest() {
    let deaf = Deaf::new("127.0.0.9", 0);
    let port = deaf.address.port();
    for (found, reason) in [
        (["127.0.0.1", "::1"].as_slice(), Reason::Refused),
        (&["127.0.0.9"], Reason::HostUnreachable),
        (&["192.168.7.7", "10.0.0.1"], Reason::Denied),
        (&[], Reason::Name),
    ] {
        let mut connector = connector(found);
        connector.options.connect_timeout = Duration::from_secs(1);
        let failed = connector.connect(&name(port), &Bytes::new()).await.unwrap_err();
        assert_eq!(failed.reason, reason, "{found:?}: {failed}");
    }
    let unknown = Resolver::new(|_| Err(io::Error::other("no such name")));
    let connector = Connector::new(unknown, everywhere(), Options::default());
    let failed = connector.connect(&name(80), &Bytes::new()).await.unwrap_err();
    assert_eq!((failed.reason, failed.why.as_str()), (Reason::Name, "no such name"));
}

#[tokio::test]
async fn names_do_not_lead_where_the_policy_does_not() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let resolver = Resolver::new(|_| Ok(vec![SocketAddr::from(([127, 0, 0, 1], 0))]));
    let strict = Connector::new(resolver, Policy::default(), Options::default());
    for destination in [name(port), Destination::from_ip(Ipv4Addr::LOCALHOST.into(), port).unwrap()] {
        let failed = strict.connect(&destination, &Bytes::new()).await.unwrap_err();
        assert_eq!(failed.reason, Reason::Denied, "{destination}");
    }
    // If a name has allowed and denied addresses, only the allowed ones are tried.
    connector(&["10.0.0.1", "127.0.0.1"]).connect(&name(port), &Bytes::new()).await.unwrap();
}

#[tokio::test]
async fn the_tenth_address_is_reached_when_nine_hang() {
    let first = Deaf::new("127.0.1.1", 0);
    let port = first.address.port();
    let _others: Vec<Deaf> = (2..=9).map(|n| Deaf::new(&format!("127.0.1.{n}"), port)).collect();
    let listener = TcpListener::bind(("127.0.1.10", port)).await.unwrap();
    let found: Vec<String> = (1..=10).map(|n| format!("127.0.1.{n}")).collect();
    let found: Vec<&str> = found.iter().map(String::as_str).collect();
    let mut connector = connector(&found);
    connector.options.connect_timeout = Duration::from_secs(30);
    let start = Clock::start();
    let connected = connector.connect(&name(port), &Bytes::new()).await.unwrap();
    assert_eq!(connected.peer, listener.local_addr().unwrap());
    assert!(since(start) >= 9 * ATTEMPT_DELAY, "{:?}", since(start));
}

#[test]
fn only_what_may_come_twice_travels_with_the_first_packet() {
    for (bytes, can) in [
        (b"\x16\x03\x01\x02\x00\x01".as_slice(), true),
        (b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", true),
        (b"HEAD / HTTP/1.1\r\nHost: h\r\n\r\n", true),
        (b"GET / HTTP/1.1\r\nHost: h\r\n", false),
        (b"GET / HTTP/1.1\r\n\r\nPOST / HTTP/1.1\r\n\r\n", false),
        (b"POST / HTTP/1.1\r\n\r\n", false),
        (b"SSH-2.0-x\r\n", false),
        (b"", false),
    ] {
        assert_eq!(can_be_repeated(bytes), can, "{}", String::from_utf8_lossy(bytes));
    }
}

/// Runs a whole exchange in this thread's namespace. Returns the bytes that the origin got, and how many
/// bytes went with the SYN.
fn exchange(listener: &std::net::TcpListener, first: &'static [u8]) -> (Vec<u8>, usize) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let at = listener.local_addr().unwrap();
        let listener = TcpListener::from_std(listener.try_clone().unwrap()).unwrap();
        let origin = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut got = Vec::new();
            stream.read_to_end(&mut got).await.unwrap();
            got
        };
        let program = async {
            let first = Bytes::from_static(first);
            let mut connected =
                connector(&[&at.ip().to_string()]).connect(&name(at.port()), &first).await.unwrap();
            connected.stream.write_all(&first[connected.sent..]).await.unwrap();
            connected.stream.shutdown().await.unwrap();
            connected.sent
        };
        tokio::join!(origin, program)
    })
}

#[test]
fn the_first_bytes_travel_with_the_first_packet_where_the_origin_takes_them() {
    const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";
    let space = match Namespace::new() {
        Ok(space) => space,
        Err(e) => return testing::refused(e),
    };
    // 1027 enables Fast Open for clients, for servers, and for listeners that do not ask for it.
    space.sysctl("net.ipv4.tcp_fastopen", "1027").unwrap();
    space
        .run(|| {
            for ip in [Ipv4Addr::LOCALHOST.to_string(), Ipv6Addr::LOCALHOST.to_string()] {
                let socket = Socket::new(
                    Domain::for_address(SocketAddr::new(ip.parse().unwrap(), 0)),
                    Type::STREAM,
                    None,
                )
                .unwrap();
                socket.bind(&SocketAddr::new(ip.parse().unwrap(), 0).into()).unwrap();
                socket.listen(16).unwrap();
                socket.set_nonblocking(true).unwrap();
                let listener = socket.into();
                assert_eq!(exchange(&listener, GET), (GET.to_vec(), 0), "the first time there is no cookie");
                assert_eq!(exchange(&listener, GET), (GET.to_vec(), GET.len()));
                let post = b"POST / HTTP/1.1\r\nHost: h\r\n\r\n";
                assert_eq!(exchange(&listener, post), (post.to_vec(), 0));
            }
        })
        .unwrap();
}

/// Starts an origin that answers each connection's first bytes with the number of the connection. It closes
/// those at once for which `is_closed` is true.
async fn numbered(is_closed: fn(usize) -> bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        for number in 0.. {
            let (mut stream, _) = listener.accept().await.unwrap();
            if !is_closed(number) {
                tokio::spawn(async move {
                    let n = stream.read(&mut [0; 1_000]).await.unwrap_or(0);
                    let _ = stream.write_all(format!("{n} {number}").as_bytes()).await;
                });
            }
        }
    });
    address
}

const GET: Bytes = Bytes::from_static(b"GET / HTTP/1.1\r\n\r\n");

fn with_spares() -> Connector {
    let options = Options { is_fast_open: false, spares_from: Duration::ZERO, ..Options::default() };
    Connector::new(Resolver::new(|_| Ok(Vec::new())), everywhere(), options)
}

/// Sends one request. Returns whether it used a spare connection, and the origin's answer.
async fn ask(connector: &Connector, to: SocketAddr, first: &Bytes) -> (bool, String) {
    let to = Destination::from_ip(to.ip(), to.port()).unwrap();
    let mut connected = connector.connect(&to, first).await.unwrap();
    let mut answer = String::new();
    // The connection may be closed; then there is no answer.
    let _ = connected.stream.write_all(&first[connected.sent..]).await;
    let _ = connected.stream.read_to_string(&mut answer).await;
    (connected.sent > 0, answer)
}

async fn until_two_wait(connector: &Connector, origin: SocketAddr) {
    while connector.spares.waiting(origin) < 2 {
        sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn an_origin_that_is_asked_often_has_two_connections_ready() {
    let origin = numbered(|_| false).await;
    let connector = with_spares();
    for number in 0..3 {
        let (is_spare, answer) = ask(&connector, origin, &GET).await;
        assert_eq!((is_spare, answer), (false, format!("18 {number}")));
    }
    // The fourth connection makes the origin busy.
    assert!(!ask(&connector, origin, &GET).await.0);
    assert!(
        !ask(&connector, origin, &"220 I speak first".into()).await.0,
        "what cannot be repeated gets none"
    );
    timeout(Duration::from_secs(20), async {
        while !ask(&connector, origin, &GET).await.0 {}
        // A spare connection that is taken is replaced.
        ask(&connector, origin, &GET).await;
        until_two_wait(&connector, origin).await;
        assert!(ask(&connector, origin, &GET).await.1.starts_with("18 "), "all of the request, and once");
    })
    .await
    .expect("a spare one");
}

#[tokio::test]
async fn a_spare_connection_that_was_closed_is_not_used_and_none_is_kept_for_long() {
    // All spare connections are closed at once: only the first four connections and each seventh are
    // answered.
    let origin = numbered(|number| number >= 4 && !number.is_multiple_of(7)).await;
    let connector = with_spares();
    for _ in 0..4 {
        assert!(!ask(&connector, origin, &GET).await.0);
    }
    sleep(Duration::from_millis(100)).await;
    for _ in 0..10 {
        let (is_spare, answer) = ask(&connector, origin, &GET).await;
        assert!(!is_spare || answer.starts_with("18 "), "{answer}");
    }
    sleep(Duration::from_millis(4_500)).await;
    assert_eq!(connector.spares.waiting(origin), 0);
}
