//! Tests of the status of a client and a server on loopback: for programs, at a Unix socket, and over HTTP.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use crate::bench::{Bench, LONG, origin, refused_port, socks, socks_to};
use anabranch_net::prometheus::check;
use anabranch_proxy::Status;
use anabranch_proxy::status::{
    ConnectionState, LinkState, Role, Snapshot, Token, local, prometheus_text, web,
};

/// A hostile name of printable characters. Names may have nearly all of these.
const HOSTILE: &str = "<b>\"&'`{{x}}<img>";

/// Waits until the status of a role fulfils `is_so`.
fn wait(status: &Status, is_so: impl Fn(&Snapshot) -> bool) -> Snapshot {
    let clock = anabranch_net::Clock::start();
    loop {
        let snapshot = status.snapshot();
        if is_so(&snapshot) {
            return snapshot;
        }
        assert!(
            clock.now() < anabranch_algo::Time::ZERO + anabranch_algo::Span::from_secs(LONG.as_secs()),
            "{snapshot:#?}"
        );
        sleep(Duration::from_millis(20));
    }
}

/// Starts an origin that sends this many bytes and waits for the end.
fn sends(count: usize) -> SocketAddr {
    origin(move |mut stream| {
        let _ = stream.write_all(&vec![7; count]);
        let _ = stream.read_to_end(&mut Vec::new());
    })
}

#[test]
fn a_snapshot_has_what_moves_while_it_does_and_what_has_ended() {
    let bench = Bench::new();
    let (server, client) = bench.status();
    wait(&client, |snapshot| snapshot.trunks.len() == 2);
    let origin = sends(300_000);
    let mut stream = socks(&bench, origin);
    stream.write_all(b"hello").unwrap();
    stream.read_exact(&mut vec![0; 300_000]).unwrap();

    let all = wait(&client, |all| all.links.first().is_some_and(|link| link.received_rate_bytes > 0));
    assert_eq!((all.role, all.open_connections, all.datagram_flows), (Role::Client, 1, 0));
    assert_eq!(all.pid, std::process::id());
    assert_eq!(all.several.server, Some(bench.server_address().to_string()));
    let doors: Vec<_> = all.listening.iter().map(|one| (one.door.as_str(), one.address.clone())).collect();
    assert_eq!(doors, [("socks", bench.socks().to_string()), ("http", bench.http().to_string())]);
    let connection = &all.connections[0];
    assert_eq!((connection.sent_bytes, connection.received_bytes), (5, 300_000));
    assert_eq!((&connection.destination, connection.state), (&origin.to_string(), ConnectionState::Open));
    assert_eq!(connection.from, stream.local_addr().unwrap().to_string());
    let [link] = &all.links[..] else { panic!("{all:#?}") };
    assert_eq!((link.name.as_str(), link.state), ("lo", LinkState::Up));
    assert!(link.received_bytes > 300_000 && link.sent_bytes > 5 && link.rtt_us.is_some(), "{link:?}");
    assert!((link.share_percent - 100.0).abs() < 1e-9 && link.subflows >= 2, "{link:?}");
    assert!(all.trunks.iter().all(|trunk| trunk.subflows.iter().all(|subflow| subflow.link == "lo")));
    assert_eq!(all.trunks.iter().map(|trunk| trunk.open_streams).sum::<u32>(), 1);

    let all = wait(&server, |all| all.clients.first().is_some_and(|client| client.sent_bytes > 300_000));
    let [laptop] = &all.clients[..] else { panic!("{all:#?}") };
    assert_eq!((laptop.name.as_str(), laptop.trunks, laptop.open_connections), ("laptop", 2, 1));
    let connection = &all.connections[0];
    assert_eq!((connection.sent_bytes, connection.received_bytes), (5, 300_000));
    assert_eq!(
        (connection.client.as_deref(), &connection.origin),
        (Some("laptop"), &Some(origin.to_string()))
    );
    let [link] = &all.links[..] else { panic!("{all:#?}") };
    assert_eq!((link.name.as_str(), link.client.as_deref()), ("127.0.0.1", Some("laptop")));

    stream.shutdown(Shutdown::Write).unwrap();
    let all = wait(&client, |all| !all.finished.is_empty());
    assert_eq!((all.open_connections, all.totals.connections, all.connections.len()), (0, 1, 0));
    assert_eq!((all.finished[0].received_bytes, &all.finished[0].error), (300_000, &None));
    // The trunks' bytes are still counted when the trunks are gone.
    let before = all.links[0].received_bytes;
    let mut bench = bench;
    bench.stop_server();
    let all = wait(&client, |all| all.trunks.is_empty());
    assert_eq!(all.links[0].subflows, 0);
    assert!(all.links[0].received_bytes >= before, "{all:#?}");
}

#[test]
fn who_waits_for_an_origin_is_connecting_and_a_failure_is_told() {
    let bench = Bench::tuned(|server, _| {
        server.resolver = anabranch_net::Resolver::new(|name| match name {
            "slow.example" => {
                sleep(Duration::from_millis(500));
                Ok(vec!["127.0.0.1:0".parse().unwrap()])
            }
            _ => Ok(vec!["127.0.0.1:0".parse().unwrap()]),
        });
    });
    let (server, client) = bench.status();
    let port = refused_port().port();
    let mut stream = socks_to(&bench, b"\x03\x0cslow.example", port).unwrap();
    let all = wait(&server, |all| all.open_connections == 1);
    assert_eq!(all.connections[0].state, ConnectionState::Connecting);
    assert!(stream.read_exact(&mut [0]).is_err());
    let all = wait(&client, |all| all.totals.failed == 1);
    assert!(all.finished[0].error.as_ref().unwrap().contains("refused"), "{all:#?}");
}

#[test]
fn a_unix_socket_gives_it_to_its_owner_and_goes_with_the_role() {
    let bench = Bench::new();
    let (_, client) = bench.status();
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("run");
    std::fs::create_dir(&place).unwrap();
    // One file is the socket of a process that has ended, the other one is not a socket of a role.
    std::os::unix::net::UnixListener::bind(place.join("proxy-client-4194305.sock")).unwrap();
    std::fs::write(place.join("other.sock"), "").unwrap();
    let there = local::listen(&client, &place).unwrap();
    assert_eq!(local::sockets(&place), [there.path().to_owned()]);
    assert_eq!(std::fs::metadata(there.path()).unwrap().permissions().mode() & 0o777, 0o600);
    let snapshot = local::ask(there.path()).unwrap();
    assert_eq!((snapshot.role, snapshot.pid), (Role::Client, std::process::id()));
    assert!(local::listen(&client, &place).is_err(), "it is taken");
    assert_eq!(local::ask(there.path()).unwrap().role, Role::Client, "and still there");

    // Clients that do not read delay others only for a short time.
    let idle: Vec<_> =
        (0..40).map(|_| std::os::unix::net::UnixStream::connect(there.path()).unwrap()).collect();
    assert_eq!(local::ask(there.path()).unwrap().role, Role::Client);
    drop(idle);
    let path = there.path().to_owned();
    drop(there);
    assert!(!path.exists() && local::ask(&path).is_err());
    assert!(local::listen(&client, Path::new("/proc/none")).is_err());
}

/// Sends a request. Returns the status, the head and the body of the answer.
fn ask(address: SocketAddr, request: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head.to_ascii_lowercase(), body.to_owned())
}

fn get(address: SocketAddr, path: &str, fields: &str) -> (u16, String, String) {
    ask(address, &format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n{fields}Connection: close\r\n\r\n"))
}

#[test]
fn the_page_is_for_everybody_here_and_its_numbers_for_those_who_know_the_token() {
    let bench = Bench::new();
    let (_, client) = bench.status();
    let token = Token::generate().unwrap();
    let page = web::serve(&client, "127.0.0.1:0".parse().unwrap(), token.clone()).unwrap();
    let at = page.address();
    for (path, kind, part) in [
        ("/", "text/html; charset=utf-8", "<script src=\"script.js\" defer>"),
        ("/style.css", "text/css; charset=utf-8", "prefers-color-scheme: dark"),
        ("/script.js", "text/javascript; charset=utf-8", "\"use strict\""),
    ] {
        let (status, head, body) = get(at, path, "");
        assert_eq!(status, 200, "{path}");
        assert!(head.contains(&format!("\r\ncontent-type: {kind}")) && body.contains(part), "{head}");
        assert!(
            head.contains("\r\ncontent-security-policy: default-src 'none'; script-src 'self';"),
            "{head}"
        );
        assert!(
            head.contains("frame-ancestors 'none'") && head.contains("\r\ncache-control: no-store"),
            "{head}"
        );
        assert!(head.contains("\r\nx-content-type-options: nosniff"), "{head}");
        assert!(!head.contains("access-control"), "{head}");
        for outside in ["http://", "https://", "//cdn", "innerHTML", "insertAdjacent", "eval("] {
            assert!(
                !body
                    .replace("http://www.w3.org/2000/svg", "")
                    .replace("\"http://\" +", "")
                    .contains(outside),
                "{outside} in {path}"
            );
        }
    }
    let wrong = Token::generate().unwrap();
    for path in ["/status.json", "/metrics"] {
        let (status, head, body) = get(at, path, "");
        assert_eq!((status, head.contains("\r\nwww-authenticate: bearer")), (401, true), "{head}");
        assert!(!body.contains(token.reveal()) && !body.contains("socks"), "{body}");
        for fields in ["Authorization: Basic eDp5\r\n", "Authorization: Bearer\r\n"] {
            assert_eq!(get(at, path, fields).0, 401, "{fields}");
        }
        let two = format!("Authorization: Bearer {0}\r\nAuthorization: Bearer {0}\r\n", token.reveal());
        assert_eq!(get(at, path, &two).0, 401, "one is enough");
        for secret in [wrong.reveal(), "", &token.reveal()[1..]] {
            assert_eq!(get(at, &format!("{path}?token={secret}"), "").0, 403);
        }
        assert_eq!(get(at, path, &format!("Authorization: Bearer {}\r\n", wrong.reveal())).0, 403);
        assert_eq!(get(at, &format!("{path}?x=1&token={}", token.reveal()), "").0, 200);
        assert_eq!(get(at, path, &format!("authorization: bearer {}\r\n", token.reveal())).0, 200);
    }
    let known = format!("Authorization: Bearer {}\r\n", token.reveal());
    let (_, head, body) = get(at, "/status.json", &known);
    assert!(
        head.contains("\r\ncontent-type: application/json") && !head.contains("access-control"),
        "{head}"
    );
    let snapshot: Snapshot = serde_json::from_str(&body).unwrap();
    assert_eq!(snapshot.role, Role::Client);
    check(&get(at, "/metrics", &known).2);
    assert_eq!(get(at, "/nothing", &known).0, 404);
    assert_eq!(get(at, "/%2e%2e/style.css", &known).0, 404);
    let post = format!("POST /status.json HTTP/1.1\r\nHost: {at}\r\n{known}Connection: close\r\n\r\n");
    assert_eq!(ask(at, &post).0, 405);

    // The request comes from a page of another site whose name leads here.
    for host in ["evil.example", "evil.example:80", &format!("localhost.evil.example:{}", at.port())] {
        for path in ["/", "/status.json", "/metrics"] {
            let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{known}Connection: close\r\n\r\n");
            let (status, _, body) = ask(at, &request);
            assert_eq!(status, 421, "{host} {path}");
            assert!(!body.contains("uptime"), "{body}");
        }
    }
    let local =
        format!("GET /metrics HTTP/1.1\r\nHost: localhost:{}\r\n{known}Connection: close\r\n\r\n", at.port());
    assert_eq!(ask(at, &local).0, 200);
    drop(page);
    assert!(TcpStream::connect(at).is_err());
}

#[test]
fn those_who_say_nothing_do_not_keep_others_from_the_page() {
    let bench = Bench::new();
    let (_, client) = bench.status();
    let token = Token::generate().unwrap();
    let page = web::serve(&client, "127.0.0.1:0".parse().unwrap(), token.clone()).unwrap();
    let most = anabranch_http::server::CONNECTIONS_MAX;
    let mut idle = Vec::new();
    for n in 0..most + 50 {
        let mut stream = TcpStream::connect(page.address()).unwrap();
        if n % 2 == 0 {
            stream.write_all(b"GET /status.json HTTP/1.1\r\nHost: ").unwrap();
        }
        idle.push(stream);
    }
    let known = format!("Authorization: Bearer {}\r\n", token.reveal());
    assert_eq!(get(page.address(), "/metrics", &known).0, 200);
    assert!(idle.len() > most);
}

#[test]
fn a_hostile_name_is_exact_in_json_and_in_no_metric() {
    let bench = Bench::new();
    let (_, client) = bench.status();
    let origin = sends(1);
    let to = [&[3, u8::try_from(HOSTILE.len()).unwrap()], HOSTILE.as_bytes()].concat();
    let mut stream = socks_to(&bench, &to, origin.port()).unwrap();
    stream.read_exact(&mut [0]).unwrap();
    let all = wait(&client, |all| all.open_connections == 1);
    assert_eq!(all.connections[0].destination, format!("{HOSTILE}:{}", origin.port()));
    let text = serde_json::to_string(&all).unwrap();
    assert_eq!(serde_json::from_str::<Snapshot>(&text).unwrap(), all, "as it was");
    let metrics = prometheus_text(&all);
    check(&metrics);
    assert!(!metrics.contains("<b>"));
    for name in [
        "anabranch_proxy_open_connections 1\n",
        "anabranch_proxy_info{role=\"client\",release=\"",
        "anabranch_proxy_link_up{link=\"lo\"} 1\n",
        "# TYPE anabranch_proxy_link_sent_bytes_total counter\n",
        "anabranch_proxy_trunks{transport=\"MPTCP\"} ",
    ] {
        assert!(metrics.contains(name), "{name} in {metrics}");
    }
    let mut odd = all;
    odd.links[0].name = "a\"b\\c\nd".to_owned();
    odd.links[0].client = Some("x\"} 1".to_owned());
    odd.links[0].loss_percent = Some(f64::NAN);
    let metrics = prometheus_text(&odd);
    check(&metrics);
    assert!(metrics.contains("link_up{link=\"a\\\"b\\\\c\\nd\",client=\"x\\\"} 1\"} 1\n"), "{metrics}");
}
