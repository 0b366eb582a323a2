//! Tests of whole handshakes, split at every place.

use proptest::prelude::*;

use super::*;

const SOCKS_GREETING: &[u8] = &[5, 1, 0];

fn users() -> Users {
    Users::new([("bob".to_owned(), "secret".to_owned()), ("eve".to_owned(), "s:t".to_owned())])
}

/// Feeds all bytes in pieces of the given sizes; after these, each piece has one byte. Bytes after the result
/// are given to the request's body.
fn run(mut handshake: Handshake, bytes: &[u8], sizes: &[usize]) -> (Progress, Vec<u8>) {
    let (mut out, mut at, mut sizes) = (Vec::new(), 0, sizes.iter().copied().chain(std::iter::repeat(1)));
    let mut progress = Progress::More;
    while at < bytes.len() {
        let end = (at + sizes.next().unwrap_or(1).max(1)).min(bytes.len());
        let piece = &bytes[at..end];
        match &mut progress {
            Progress::More => progress = handshake.handle(piece, &mut out),
            Progress::Wanted(request) => match request.body.take(piece) {
                Ok(taken) => request.first.extend_from_slice(&piece[..taken]),
                // This can be known earlier or later, depending on the pieces.
                Err(Malformed) => progress = Progress::Refused,
            },
            Progress::Associate(wanted) if wanted.to.is_some() => wanted.first.extend_from_slice(piece),
            Progress::Refused | Progress::Associate(_) => {}
        }
        at = end;
    }
    (progress, out)
}

fn socks(bytes: &[u8]) -> (Progress, Vec<u8>) {
    run(Handshake::socks(Users::default()), bytes, &[bytes.len()])
}

fn http(text: &str) -> (Progress, Vec<u8>) {
    run(Handshake::http(Users::default()), text.as_bytes(), &[text.len()])
}

fn wanted(progress: Progress) -> Request {
    let Progress::Wanted(request) = progress else { panic!("{progress:?}") };
    *request
}

/// Returns the status line of an answer.
fn status(out: &[u8]) -> &str {
    let line = out.split(|byte| *byte == b'\r').next().unwrap_or_default();
    str::from_utf8(line).expect("text").strip_prefix("HTTP/1.1 ").expect("a status")
}

#[test]
fn socks_names_and_addresses_are_understood_with_what_comes_behind() {
    for (address, shown) in [
        (b"\x01\xc0\x00\x02\x07".as_slice(), "192.0.2.7:443"),
        (b"\x04\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01", "[2001:db8::1]:443"),
        (b"\x03\x0bexample.org", "example.org:443"),
        (b"\x03\x09192.0.2.7", "192.0.2.7:443"),
        (b"\x03\x01x", "x:443"),
    ] {
        let bytes = [SOCKS_GREETING, &[5, 1, 0], address, &[1, 187], b"hello"].concat();
        let (progress, out) = socks(&bytes);
        let request = wanted(progress);
        assert_eq!(request.destination.to_string(), shown);
        assert_eq!((request.first.as_slice(), &request.body), (b"hello".as_slice(), &Body::Endless));
        assert_eq!(out, [5, 0], "the method alone");
        assert_eq!(request.accepted()[..2], [5, 0]);
        assert_eq!(request.failed(Reason::Refused)[..2], [5, 5]);
        assert!(!request.is_answered_by_origin());
    }
}

#[test]
fn what_socks_cannot_have_is_said() {
    let connect = |address: &[u8]| [SOCKS_GREETING, &[5, 1, 0], address].concat();
    for (bytes, said) in [
        // BIND, an unknown command, unknown address types and invalid destinations.
        ([SOCKS_GREETING, &[5, 2, 0, 1, 1, 2, 3, 4, 0, 80]].concat(), [5, 0, 5, 7].as_slice()),
        ([SOCKS_GREETING, &[5, 9, 0, 1, 1, 2, 3, 4, 0, 80]].concat(), &[5, 0, 5, 7]),
        (connect(&[2, 0, 0, 0]), &[5, 0, 5, 8]),
        (connect(&[3, 0, 0, 80]), &[5, 0, 5, 1]),
        (connect(b"\x03\x03a\0b\0\x50"), &[5, 0, 5, 1]),
        (connect(b"\x03\x02\xff\xfe\0\x50"), &[5, 0, 5, 1]),
        (connect(&[1, 1, 2, 3, 4, 0, 0]), &[5, 0, 5, 1]),
        ([SOCKS_GREETING, &[4, 1, 0, 1]].concat(), &[5, 0, 5, 1]),
        // The program offers no method that the proxy has.
        (vec![5, 0], &[5, 0xff]),
        (vec![5, 1, 1], &[5, 0xff]),
        (vec![5, 2, 1, 0x80], &[5, 0xff]),
        // Other versions and other protocols.
        (vec![4, 1, 0, 80, 1, 2, 3, 4, 0], &[]),
        (vec![0x16, 3, 1], &[]),
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), b"HTTP/1.1 400 "),
    ] {
        let (progress, out) = socks(&bytes);
        assert_eq!(progress, Progress::Refused, "{bytes:?}");
        assert!(out.starts_with(said) && said.is_empty() == out.is_empty(), "{bytes:?}: {out:?}");
    }
}

#[test]
fn socks_wants_a_name_where_there_are_users() {
    let request = [5, 1, 0, 1, 192, 0, 2, 7, 0, 80].as_slice();
    let run = |bytes: &[&[u8]]| {
        let bytes = bytes.concat();
        run(Handshake::socks(users()), &bytes, &[bytes.len()])
    };
    for login in [b"\x01\x03bob\x06secret".as_slice(), b"\x01\x03eve\x03s:t"] {
        let (progress, out) = run(&[&[5, 2, 0, 2], login, request, b"hello"]);
        assert_eq!(wanted(progress).first, b"hello");
        assert_eq!(out, [5, 2, 1, 0]);
    }
    for login in [b"\x01\x03bob\x03s:t".as_slice(), b"\x01\x00\x00", b"\x01\x03bob\x07secret1"] {
        assert_eq!(run(&[&[5, 1, 2], login, request]), (Progress::Refused, vec![5, 2, 1, 1]));
    }
    assert_eq!(run(&[&[5, 1, 0], request]), (Progress::Refused, vec![5, 0xff]));
    assert_eq!(run(&[&[5, 1, 2], request]), (Progress::Refused, vec![5, 2, 1, 1]), "it did not wait");
    // A program may give a name even if none is needed.
    let (progress, out) = socks(&[&[5, 1, 2], b"\x01\x03any\x03one".as_slice(), request].concat());
    assert_eq!((wanted(progress).destination.to_string().as_str(), out), ("192.0.2.7:80", vec![5, 2, 1, 0]));
}

#[test]
fn a_tunnel_is_opened_by_connect() {
    for (target, shown) in [
        ("example.org:443", "example.org:443"),
        ("192.0.2.7:22", "192.0.2.7:22"),
        ("[2001:db8::1]:443", "[2001:db8::1]:443"),
    ] {
        let (progress, out) = http(&format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\nhello"));
        let request = wanted(progress);
        assert_eq!((request.destination.to_string().as_str(), out.len()), (shown, 0));
        assert_eq!((request.first.as_slice(), &request.body), (b"hello".as_slice(), &Body::Endless));
        assert_eq!(status(request.accepted()), "200 Connection established");
        assert_eq!(status(&request.failed(Reason::Denied)), "403 Forbidden");
    }
    for bad in [
        "example.org",
        ":443",
        "example.org:",
        "example.org:0",
        "example.org:65536",
        "a:b:1",
        "http://example.org/",
        "/",
        "bob@example.org:443",
        "[::1]",
        "[::1:443",
        "[x]:443",
        "[192.0.2.7]:443",
    ] {
        let (progress, out) = http(&format!("CONNECT {bad} HTTP/1.1\r\n\r\n"));
        assert_eq!((progress, status(&out)), (Progress::Refused, "400 Bad Request"), "{bad}");
    }
}

#[test]
fn a_plain_request_is_rewritten_for_its_origin() {
    let text = "\r\nPOST http://example.org:8080/a?b#c HTTP/1.1\r\nHost: elsewhere\r\nAccept: */*\r\n\
                Proxy-Connection: keep-alive\r\nProxy-Authorization: Basic eA==\r\nKeep-Alive: 5\r\n\
                TE: trailers\r\nX-Hop: 1\r\nUpgrade: h2c\r\n\
                Connection: X-Hop, upgrade,Content-Length, host\r\n\
                Content-Length: 5\r\n\r\nhelloGET http://other.example/ HTTP/1.1\r\n\r\n";
    let (progress, out) = http(text);
    let request = wanted(progress);
    let head = "POST /a?b HTTP/1.1\r\nHost: example.org:8080\r\nAccept: */*\r\nContent-Length: 5\r\n\
                Via: 1.1 anabranch\r\nConnection: close\r\n\r\nhello";
    assert_eq!(String::from_utf8_lossy(&request.first), head);
    assert_eq!((request.destination.to_string().as_str(), out.len()), ("example.org:8080", 0));
    assert!(request.body.is_over() && request.is_answered_by_origin() && request.accepted().is_empty());

    for (line, first, destination) in [
        ("GET http://a.example HTTP/1.1", "GET / HTTP/1.1\r\nHost: a.example\r\n", "a.example:80"),
        ("GET http://a.example?q HTTP/1.1", "GET /?q HTTP/1.1\r\nHost: a.example\r\n", "a.example:80"),
        ("OPTIONS http://a.example HTTP/1.1", "OPTIONS * HTTP/1.1\r\nHost: a.example\r\n", "a.example:80"),
        ("GET HTTP://[::1]:81/ HTTP/1.0", "GET / HTTP/1.0\r\nHost: [::1]:81\r\n", "[::1]:81"),
        ("GET http://a.example:/x HTTP/1.1", "GET /x HTTP/1.1\r\nHost: a.example:\r\n", "a.example:80"),
    ] {
        let request = wanted(http(&format!("{line}\r\n\r\n")).0);
        let said = String::from_utf8_lossy(&request.first);
        assert!(said.starts_with(first), "{line}: {said}");
        assert_eq!(request.destination.to_string(), destination, "{line}");
        assert_eq!(request.body, Body::Length(0), "{line}");
    }
    let chunked = "PUT http://h/ HTTP/1.1\r\nTransfer-Encoding: gzip, Chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\nX";
    let request = wanted(http(chunked).0);
    assert!(request.body.is_over() && request.first.ends_with(b"close\r\n\r\n3\r\nabc\r\n0\r\n\r\n"));
}

#[test]
fn what_http_cannot_have_is_said() {
    let long = format!("GET http://h/ HTTP/1.1\r\nA: {}\r\n\r\n", "x".repeat(70_000));
    let many = format!("GET http://h/ HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(200));
    let post = |fields: &str| format!("POST http://h/ HTTP/1.1\r\n{fields}\r\n\r\n0\r\n\r\n");
    for (text, said) in [
        ("GET / HTTP/1.1\r\nHost: h\r\n\r\n".to_owned(), "400 Bad Request"),
        ("GET https://h/ HTTP/1.1\r\n\r\n".into(), "501 Not Implemented"),
        ("GET ftp://h/ HTTP/1.1\r\n\r\n".into(), "501 Not Implemented"),
        ("GET http:///x HTTP/1.1\r\n\r\n".into(), "400 Bad Request"),
        ("GET http://bob:secret@h/ HTTP/1.1\r\n\r\n".into(), "400 Bad Request"),
        ("TRACE http://h/ HTTP/1.1\r\n\r\n".into(), "501 Not Implemented"),
        ("GET http://h/\r\n\r\n".into(), "400 Bad Request"),
        ("GET http://h/ HTTP/2.0\r\n\r\n".into(), "400 Bad Request"),
        ("GET http://h/ HTTP/1.1\r\nbad field: x\r\n\r\n".into(), "400 Bad Request"),
        ("\x16\x03\x01".into(), "400 Bad Request"),
        ("\x05\x01\x00".into(), "400 Bad Request"),
        (long.clone(), "431 Request Header Fields Too Large"),
        (long.trim_end().to_owned(), "431 Request Header Fields Too Large"),
        (many, "431 Request Header Fields Too Large"),
        (post("Content-Length: 5\r\nContent-Length: 5"), "400 Bad Request"),
        (post("Content-Length: 5, 6"), "400 Bad Request"),
        (post("Content-Length: +5"), "400 Bad Request"),
        (post("Content-Length: "), "400 Bad Request"),
        (post("Content-Length: 99999999999999999999"), "400 Bad Request"),
        (post("Content-Length: 5\r\nTransfer-Encoding: chunked"), "400 Bad Request"),
        (post("Transfer-Encoding: gzip"), "400 Bad Request"),
        (post("Transfer-Encoding: chunked, gzip"), "400 Bad Request"),
        (post("Transfer-Encoding: chunked, chunked"), "400 Bad Request"),
        (post("Transfer-Encoding:"), "400 Bad Request"),
        ("POST http://h/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n".into(), "400 Bad Request"),
        ("POST http://h/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n".into(), "400 Bad Request"),
    ] {
        let (progress, out) = http(&text);
        assert_eq!((progress, status(&out)), (Progress::Refused, said), "{text:.80}");
    }
}

#[test]
fn http_wants_a_name_where_there_are_users() {
    let run = |field: &str| {
        let text = format!("CONNECT h:1 HTTP/1.1\r\n{field}\r\n\r\n");
        run(Handshake::http(users()), text.as_bytes(), &[text.len()])
    };
    // The credentials are bob:secret and eve:s:t.
    for right in ["Basic Ym9iOnNlY3JldA==", "basic Ym9iOnNlY3JldA==", "Basic  ZXZlOnM6dA=="] {
        let (progress, _) = run(&format!("Proxy-Authorization: {right}"));
        assert_eq!(wanted(progress).destination.to_string(), "h:1", "{right}");
    }
    for wrong in ["Basic Ym9iOnM6dA==", "Basic", "Basic !", "Bearer Ym9iOnNlY3JldA==", "Basic Ym9i", ""] {
        let (progress, out) = run(&format!("Proxy-Authorization: {wrong}"));
        assert_eq!((progress, status(&out)), (Progress::Refused, "407 Proxy Authentication Required"));
        assert!(String::from_utf8_lossy(&out).contains("\r\nProxy-Authenticate: Basic realm="), "{wrong}");
    }
    assert_eq!(run("Authorization: Basic Ym9iOnNlY3JldA==").0, Progress::Refused, "that is for the origin");
}

/// Returns random sequences of valid pieces and nonsense.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b"\x05\x01\x00".to_vec()),
        Just(b"\x05\x02\x00\x02".to_vec()),
        Just(b"\x01\x03bob\x06secret".to_vec()),
        Just(b"\x05\x01\x00\x03\x01h\x00\x50".to_vec()),
        Just(b"\x05\x01\x00\x01\x01\x02\x03\x04\x00\x50".to_vec()),
        Just(b"CONNECT h:1 HTTP/1.1\r\n".to_vec()),
        Just(b"POST http://h/ HTTP/1.1\r\n".to_vec()),
        Just(b"GET /.well-known/masque/udp/h/1/ HTTP/1.1\r\n".to_vec()),
        Just(b"Host: h\r\nConnection: Upgrade\r\nUpgrade: connect-udp\r\n".to_vec()),
        Just(b"Proxy-Authorization: Basic Ym9iOnNlY3JldA==\r\n".to_vec()),
        Just(b"Content-Length: 7\r\n".to_vec()),
        Just(b"Transfer-Encoding: chunked\r\n".to_vec()),
        Just(b"3\r\nabc\r\n".to_vec()),
        Just(b"0\r\n".to_vec()),
        Just(b"\r\n".to_vec()),
        Just(b"\n".to_vec()),
        prop::collection::vec(any::<u8>(), 0..20),
    ];
    prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn the_outcome_is_the_same_however_the_bytes_are_cut(
        bytes in bytes(),
        sizes in prop::collection::vec(1..40_usize, 0..20),
        with_users: bool,
    ) {
        let users = if with_users { users() } else { Users::default() };
        for new in [Handshake::socks, Handshake::http] {
            let whole = run(new(users.clone()), &bytes, &[bytes.len().max(1)]);
            let cut = run(new(users.clone()), &bytes, &sizes);
            // Malformed chunks are reported to the program only if nothing was passed on yet.
            let same = |out: &[u8]| if out.starts_with(b"HTTP/1.1 400") { Vec::new() } else { out.to_vec() };
            prop_assert_eq!((&whole.0, same(&whole.1)), (&cut.0, same(&cut.1)));
        }
    }
}

#[test]
fn who_wants_to_send_datagrams_may_say_from_where_and_need_not() {
    for (from, port) in [
        (&[1, 0, 0, 0, 0, 0, 0][..], 0),
        (&[1, 127, 0, 0, 1, 4, 210], 1_234),
        (&[3, 1, b'a', 0, 1], 1),
        (&[4; 19], 0x404),
    ] {
        let bytes = [SOCKS_GREETING, &[5, 3, 0], from].concat();
        let (progress, out) = socks(&bytes);
        let wanted = Association { port: NonZero::new(port), ..Association::default() };
        assert_eq!((progress, out), (Progress::Associate(Box::new(wanted)), vec![5, 0]));
        assert_eq!(socks(&bytes[..bytes.len() - 1]).0, Progress::More);
    }
}

const PLACE: &str = "/.well-known/masque/udp";
const SWITCH: &str = "Connection: Upgrade\r\nUpgrade: connect-udp\r\nCapsule-Protocol: ?1";

#[test]
fn a_program_may_send_datagrams_in_capsules() {
    for (target, fields, to) in [
        (format!("{PLACE}/192.0.2.6/443/"), SWITCH, "192.0.2.6:443"),
        (format!("https://proxy.example{PLACE}/2001%3Adb8%3A%3A1/53/"), SWITCH, "[2001:db8::1]:53"),
        (format!("http://127.0.0.1:8080{PLACE}/a.example/53/"), SWITCH, "a.example:53"),
        (
            format!("{PLACE}/a.example/53/"),
            "connection: close, upgrade\r\nupgrade: h2c, Connect-UDP",
            "a.example:53",
        ),
        (format!("{PLACE}/a.example/53/"), &format!("{SWITCH}\r\nContent-Length: 0"), "a.example:53"),
    ] {
        let (progress, out) =
            http(&format!("GET {target} HTTP/1.1\r\nHost: h\r\n{fields}\r\n\r\n\0\x03\0hi"));
        let Progress::Associate(wanted) = progress else { panic!("{target}: {progress:?}") };
        assert_eq!((wanted.to.clone(), wanted.first.as_slice()), (to.parse().ok(), &b"\0\x03\0hi"[..]));
        assert!(out.is_empty());
        let accepted = wanted.accepted("127.0.0.1:9".parse().unwrap());
        assert_eq!(status(&accepted), "101 Switching Protocols");
        assert!(accepted.ends_with(b"Upgrade: connect-udp\r\nCapsule-Protocol: ?1\r\n\r\n"));
        assert_eq!(status(&wanted.failed(Reason::TrunkGone)), "503 Service Unavailable");
    }
}

#[test]
fn what_is_no_request_for_capsules_is_said() {
    let host = "Host: h";
    for (line, fields) in [
        (format!("POST {PLACE}/a.example/53/ HTTP/1.1"), format!("{host}\r\n{SWITCH}")),
        (format!("GET {PLACE}/a.example/0/ HTTP/1.1"), format!("{host}\r\n{SWITCH}")),
        (format!("GET {PLACE}/a.example/53 HTTP/1.1"), format!("{host}\r\n{SWITCH}")),
        ("GET /elsewhere HTTP/1.1".to_owned(), format!("{host}\r\n{SWITCH}")),
        ("GET http://h HTTP/1.1".to_owned(), format!("{host}\r\n{SWITCH}")),
        (format!("GET {PLACE}/a.example/53/ HTTP/1.1"), SWITCH.to_owned()),
        (format!("GET {PLACE}/a.example/53/ HTTP/1.1"), format!("{host}\r\n{host}\r\n{SWITCH}")),
        (format!("GET {PLACE}/a.example/53/ HTTP/1.1"), format!("{host}\r\nUpgrade: connect-udp")),
        (format!("GET {PLACE}/a.example/53/ HTTP/1.1"), format!("{host}\r\n{SWITCH}\r\nContent-Length: 2")),
        // Without `Upgrade`, or in HTTP/1.0, the request is for the proxy itself.
        (format!("GET {PLACE}/a.example/53/ HTTP/1.1"), format!("{host}\r\nConnection: Upgrade")),
        (format!("GET {PLACE}/a.example/53/ HTTP/1.0"), format!("{host}\r\n{SWITCH}")),
    ] {
        let (progress, out) = http(&format!("{line}\r\n{fields}\r\n\r\n"));
        assert_eq!((progress, status(&out)), (Progress::Refused, "400 Bad Request"), "{line} {fields}");
    }
    let text = format!("GET {PLACE}/h/1/ HTTP/1.1\r\n{host}\r\n{SWITCH}\r\n");
    let run = |field: &str| run(Handshake::http(users()), format!("{text}{field}\r\n").as_bytes(), &[1_000]);
    assert_eq!(status(&run("").1), "407 Proxy Authentication Required");
    let (progress, _) = run("Proxy-Authorization: Basic Ym9iOnNlY3JldA==\r\n");
    let Progress::Associate(wanted) = progress else { panic!("{progress:?}") };
    assert_eq!(wanted.user.as_deref(), Some("bob"));
}

fn one_port(bytes: &[u8]) -> (Progress, Vec<u8>) {
    run(Handshake::any(Users::default()), bytes, &[1])
}

/// One port takes all: what a program speaks is seen by its first byte.
#[test]
fn the_first_byte_tells_what_a_program_speaks() {
    let (progress, out) = one_port(b"\x05\x01\0\x05\x01\0\x03\x0bexample.org\x01\xbbhello");
    let request = wanted(progress);
    assert_eq!(
        (request.destination.to_string().as_str(), &request.first[..]),
        ("example.org:443", &b"hello"[..])
    );
    assert_eq!((&out[..], request.accepted()), (&[5, 0][..], &[5, 0, 0, 1, 0, 0, 0, 0, 0, 0][..]));
    let (progress, _) = one_port(b"CONNECT example.org:443 HTTP/1.1\r\nHost: example.org\r\n\r\nhello");
    let request = wanted(progress);
    assert_eq!(
        (request.destination.to_string().as_str(), &request.first[..]),
        ("example.org:443", &b"hello"[..])
    );
    assert!(request.accepted().starts_with(b"HTTP/1.1 200 "));
    let (progress, out) = one_port(b"\x16\x03\x01");
    assert_eq!((progress, status(&out)), (Progress::Refused, "400 Bad Request"));
    assert_eq!(one_port(b""), (Progress::More, Vec::new()));
}

#[test]
fn socks4_and_4a_are_understood() {
    for (bytes, shown) in [
        (&b"\x04\x01\x01\xbb\xc0\0\x02\x07me\0hello"[..], "192.0.2.7:443"),
        (b"\x04\x01\0\x50\0\0\0\x01\0example.org\0hello", "example.org:80"),
    ] {
        let (progress, out) = one_port(bytes);
        let request = wanted(progress);
        assert_eq!((request.destination.to_string().as_str(), &request.first[..]), (shown, &b"hello"[..]));
        assert_eq!((&out[..], request.accepted()), (&[][..], &[0, 90, 0, 0, 0, 0, 0, 0][..]));
        assert_eq!(request.failed(Reason::Refused), [0, 91, 0, 0, 0, 0, 0, 0]);
    }
    let rejected = (Progress::Refused, vec![0, 91, 0, 0, 0, 0, 0, 0]);
    // BIND; a name without end; and where programs need a password, version 4 has none.
    assert_eq!(one_port(b"\x04\x02\x01\xbb\xc0\0\x02\x07"), rejected);
    assert_eq!(one_port(&[&b"\x04\x01\x01\xbb\xc0\0\x02\x07"[..], &[b'x'; 300]].concat()), rejected);
    assert_eq!(run(Handshake::any(users()), b"\x04\x01\x01\xbb\xc0\0\x02\x07me\0", &[99]), rejected);
}
