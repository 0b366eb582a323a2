//! Tests the client without TLS against good and hostile servers on loopback.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::{
    Request, Server, client, fetch, fetch_request, file, good, options, outcome, partial, range, wait,
};
use anabranch_http::client::{
    Client, CredentialStatus, Event, FetchError, FetchRequest, METADATA_BYTES, Options, RequestKind,
};
use anabranch_net::{Clock, Egress};

const LENGTH: u64 = 1 << 20;

#[test]
fn ranges_come_over_one_connection() {
    let server = good(file(LENGTH as usize));
    let mut client = client();
    let all = file(LENGTH as usize);
    for (id, first) in (0..LENGTH).step_by(100_000).enumerate() {
        let end = (first + 100_000).min(LENGTH);
        let (head, bytes) =
            fetch(&mut client, id as u64, range(&server.url("/f"), first, end, LENGTH)).unwrap();
        assert_eq!(bytes, all[first as usize..end as usize]);
        assert_eq!((head.status, head.length, head.ranges, head.whole), (206, Some(LENGTH), true, false));
        assert_eq!(head.etag.as_deref(), Some("\"one\""));
    }
    assert_eq!((server.connections(), server.requests().len()), (1, 11));
    let request = &server.requests()[1];
    assert_eq!(request.field("range"), Some("bytes=100000-199999"));
    assert_eq!(request.field("accept-encoding"), Some("identity"));
    assert_eq!(request.field("host"), Some(server.address.to_string().as_str()));
    assert!(request.field("user-agent").unwrap().starts_with("anabranch/"));
    assert_eq!(request.field("if-range"), None);
}

#[test]
fn routes_have_their_own_connections_and_addresses() {
    let server = good(file(LENGTH as usize));
    let mut client = client();
    for route in 0..3 {
        let via = Egress::parse(&format!("127.0.0.{}", route + 7)).unwrap();
        let request = FetchRequest { route, via, ..range(&server.url("/f"), 5, 10, LENGTH) };
        assert_eq!(fetch(&mut client, route as u64, request).unwrap().1, file(10)[5..]);
    }
    assert_eq!(server.connections(), 3);
    let request = FetchRequest { via: Egress::parse("lo").unwrap(), ..range("http://192.0.2.1/f", 0, 1, 2) };
    let error = fetch(&mut client, 9, request).unwrap_err();
    assert!(matches!(&error, FetchError::Unreachable(why) if why.contains("lo")), "{error}");
    let request =
        FetchRequest { via: Egress::parse("127.0.0.1").unwrap(), ..range("http://[::1]/f", 0, 1, 2) };
    assert!(matches!(fetch(&mut client, 10, request), Err(FetchError::Unreachable(_))));
}

#[test]
fn a_connection_that_has_the_address_already_is_kept() {
    let server = good(file(LENGTH as usize));
    let mut client = client();
    let vias = [("any", Egress::any(), 1), ("the same", Egress::parse("127.0.0.1").unwrap(), 1)];
    let others = [("another", Egress::parse("127.0.0.7").unwrap(), 2), ("any again", Egress::any(), 3)];
    for (id, (name, via, connections)) in vias.into_iter().chain(others).enumerate() {
        let request = FetchRequest { via, ..range(&server.url("/f"), 0, 10, LENGTH) };
        fetch(&mut client, id as u64, request).unwrap();
        assert_eq!(server.connections(), connections, "{name}");
    }
}

#[test]
fn a_connection_closed_meanwhile_is_replaced() {
    let all = file(1000);
    let server = Server::start(move |request, stream| {
        partial(request, stream, &all, "");
        // The server closes the connection without having announced it.
        thread::sleep(Duration::from_millis(20));
        false
    });
    let mut client = client();
    for id in 0..5 {
        assert_eq!(fetch(&mut client, id, range(&server.url("/f"), 0, 10, 1000)).unwrap().1, file(10));
        thread::sleep(Duration::from_millis(10 * id));
    }
}

/// A server need not tell how long the file is (RFC 9110, 14.4).
#[test]
fn a_range_of_a_file_of_unsaid_length_is_as_good() {
    let server =
        Server::says("HTTP/1.1 206 P\nContent-Length: 10\nContent-Range: bytes 10-19/*\n\n0123456789");
    let came = fetch(&mut client(), 1, range(&server.url("/f"), 10, 20, 100)).expect("a range");
    assert_eq!(came.1, b"0123456789");
}

/// Each kind of wrong answer to a request for bytes 10 to 19 of 100 leads to the expected error.
#[test]
fn wrong_answers_are_refused() {
    const RANGE: &str = "HTTP/1.1 206 P\nContent-Length: 10\nContent-Range: ";
    let is = |text: &'static str, expected: &str| {
        let server = Server::says(text);
        let kind = RequestKind::Range {
            first: 10,
            end: 20,
            length: 100,
            validator: Some("\"v\"".into()),
            modified: None,
            seen_at: None,
        };
        let error = fetch(&mut client(), 1, fetch_request(&server.url("/f"), kind)).expect_err(text);
        assert!(format!("{error:?}").starts_with(expected), "{text:?}: {error:?}, not {expected}");
        assert_eq!(server.requests()[0].field("if-range"), Some("\"v\""));
    };
    macro_rules! partial {
        ($range:literal, $more:literal) => {
            concat!("HTTP/1.1 206 P\nContent-Length: 10\nContent-Range: ", $range, $more, "\n\n0123456789")
        };
    }
    assert!(partial!("x", "").starts_with(RANGE));
    for (text, expected) in [
        (partial!("bytes 11-20/100", ""), "NotTheFile"),
        (partial!("bytes 10-18/100", ""), "NotTheFile"),
        (partial!("bytes */100", ""), "NotTheFile"),
        (partial!("bytes 10-19/101", ""), "Changed"),
        (partial!("bytes 10-19/100", "\nContent-Range: bytes 10-19/100"), "NotTheFile"),
        (partial!("bytes 10-99999999999999999999999/100", ""), "NotTheFile"),
        (partial!("lines 10-19/100", ""), "NotTheFile"),
        (partial!("bytes 10-19/100", "\nETag: \"w\""), "Changed"),
        (partial!("bytes 10-19/100", "\nContent-Encoding: gzip"), "Encoded(\"gzip\")"),
        (partial!("bytes 10-19/100", "\nContent-Type: multipart/byteranges; boundary=x"), "NotTheFile"),
        ("HTTP/1.1 206 P\nContent-Range: bytes 10-19/100\nContent-Length: 9\n\n012345678", "NotTheFile"),
        ("HTTP/1.1 206 P\nContent-Range: bytes 10-19/100\n\n012345678", "Broken"),
        ("HTTP/1.1 206 P\nContent-Range: bytes 10-19/100\n\n0123456789A", "Broken"),
        ("HTTP/1.1 206 P\nContent-Range: bytes 10-19/100\nContent-Length: 10\n\n012", "Broken"),
        ("HTTP/1.1 206 P\nContent-Length: 10\n\n0123456789", "NotTheFile"),
        ("HTTP/1.1 200 OK\nContent-Length: 100\nETag: \"v\"\n\n", "NoRanges"),
        ("HTTP/1.1 200 OK\nETag: \"v\"\n\nabc", "NoRanges"),
        ("HTTP/1.1 200 OK\nContent-Length: 100\nETag: \"w\"\n\n", "Changed"),
        ("HTTP/1.1 200 OK\nContent-Length: 100\n\n", "Changed"),
        ("HTTP/1.1 200 OK\nContent-Length: 99\nETag: \"v\"\n\n", "Changed"),
        ("HTTP/1.1 200 OK\nContent-Length: 4\nContent-Type: text/html; charset=x\n\n<ht>", "NotTheFile"),
        ("HTTP/1.1 200 OK\nContent-Type: text/html\n\n<ht>", "NotTheFile"),
        ("HTTP/1.1 416 R\nContent-Range: bytes */7\nContent-Length: 0\n\n", "Changed"),
        ("HTTP/1.1 416 R\nContent-Range: bytes */100\nContent-Length: 0\n\n", "NotTheFile"),
        ("HTTP/1.1 404 N\nContent-Length: 0\n\n", "NotFound(404)"),
        ("HTTP/1.1 410 N\nContent-Length: 0\n\n", "NotFound(410)"),
        ("HTTP/1.1 401 N\nContent-Length: 0\n\n", "Forbidden { status: 401, credentials: None, at: None }"),
        ("HTTP/1.1 403 N\nContent-Length: 0\n\n", "Forbidden { status: 403, credentials: None, at: None }"),
        ("HTTP/1.1 429 N\nRetry-After: 7\nContent-Length: 0\n\n", "Busy { retry: Some(7s) }"),
        ("HTTP/1.1 503 N\nContent-Length: 0\n\n", "Busy { retry: None }"),
        (
            "HTTP/1.1 503 N\nDate: Sun, 06 Nov 1994 08:49:37 GMT\n\
             Retry-After: Sun, 06 Nov 1994 08:50:37 GMT\n\n",
            "Busy { retry: Some(60s) }",
        ),
        ("HTTP/1.1 500 N\nContent-Length: 0\n\n", "ServerError { status: 500, retry: None }"),
        ("HTTP/1.1 502 N\nRetry-After: 7\n\n", "ServerError { status: 502, retry: Some(7s) }"),
        ("HTTP/1.1 408 N\nContent-Length: 0\n\n", "ServerError { status: 408, retry: None }"),
        ("HTTP/1.1 511 N\nContent-Length: 0\n\n", "NotTheFile"),
        ("HTTP/1.1 451 N\nContent-Length: 0\n\n", "Refused"),
        ("HTTP/1.1 304 N\nContent-Length: 0\n\n", "Refused"),
        ("SSH-2.0-x\n\n", "Broken"),
    ] {
        is(text, expected);
    }
}

/// If there is no strong `ETag`, the date tells two versions of a file apart.
#[test]
fn dates_tell_versions_apart() {
    let server = Server::start(|request, stream| {
        let more = match request.path() {
            "/none" => "",
            "/old" => "Last-Modified: old\r\n",
            _ => "Last-Modified: new\r\n",
        };
        partial(request, stream, &file(10), more)
    });
    let mut client = client();
    let mut dated = |path: &str, validator: Option<&str>| {
        let kind = RequestKind::Range {
            first: 1,
            end: 5,
            length: 10,
            validator: validator.map(str::to_owned),
            modified: Some("old".into()),
            seen_at: None,
        };
        fetch(&mut client, 1, fetch_request(&server.url(path), kind)).map(|(_, bytes)| bytes)
    };
    let right = Ok(file(10)[1..5].to_vec());
    assert_eq!(dated("/old", None), right);
    assert_eq!(dated("/none", None), right);
    let changed = Err(FetchError::ChangedDate);
    assert_eq!(dated("/new", None), changed);
    assert_eq!(dated("/new", Some("W/\"one\"")), changed);
    assert_eq!(dated("/new", Some("\"one\"")), right);
}

#[test]
fn a_server_without_ranges_may_send_it_whole() {
    let server = Server::says("HTTP/1.1 200 OK\nContent-Length: 5\n\nhello");
    let (head, bytes) = fetch(&mut client(), 1, range(&server.url("/f"), 0, 3, 5)).unwrap();
    assert_eq!((bytes.as_slice(), head.whole, head.ranges), (b"hello".as_slice(), true, false));
    let error = fetch(&mut client(), 1, range(&server.url("/f"), 2, 3, 5)).unwrap_err();
    assert_eq!(error, FetchError::NoRanges);
}

#[test]
fn looking_at_a_file() {
    let mut client = client();
    let look = |server: &Server, path: &str| fetch_request(&server.url(path), RequestKind::Metadata);

    let server = Server::start(|request, stream| {
        partial(request, stream, &file(77), "Link: <m>; rel=duplicate\r\nLink: <n>\r\nRepr-Digest: a=:b:\r\n")
    });
    let (head, bytes) = fetch(&mut client, 1, look(&server, "/f?x")).unwrap();
    assert_eq!((head.length, head.ranges, head.status, bytes.len()), (Some(77), true, 206, 77));
    assert_eq!(head.links, ["<m>; rel=duplicate", "<n>"]);
    assert_eq!((head.repr_digest.as_deref(), head.url), (Some("a=:b:"), server.url("/f?x")));
    let asked = server.requests().iter().map(|request| request.range()).collect::<Vec<_>>();
    assert_eq!(asked, [Some((0, METADATA_BYTES as usize - 1))], "one request tells all");

    // The range behind it goes over the same connection, although part of the file came before.
    let long = good(file(100_000));
    let (head, bytes) = fetch(&mut client, 2, look(&long, "/f")).unwrap();
    assert_eq!((head.length, head.ranges), (Some(100_000), true));
    assert_eq!(bytes, file(100_000)[..METADATA_BYTES as usize]);
    let (_, bytes) = fetch(&mut client, 3, range(&long.url("/f"), 5, 9, 100_000)).unwrap();
    assert_eq!((bytes, long.connections()), (file(100_000)[5..9].to_vec(), 1));

    // An empty file has no first byte. A server without ranges sends the whole file, of which only the
    // beginning is read.
    let empty = Server::start(|request, stream| partial(request, stream, &[], ""));
    let (head, _) = fetch(&mut client, 4, look(&empty, "/f")).unwrap();
    assert_eq!((head.length, head.ranges), (Some(0), true));
    for length in [5, 100_000_000] {
        let plain = Server::start(move |_, stream| {
            let fields = "Accept-Ranges: bytes\r\n";
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n{fields}\r\n");
            stream.write_all(head.as_bytes()).is_ok() && stream.write_all(&file(length)).is_ok()
        });
        let (head, bytes) = fetch(&mut client, 5, look(&plain, "/f")).unwrap();
        assert_eq!((head.length, head.ranges), (Some(length as u64), false));
        assert_eq!(bytes, file(length.min(METADATA_BYTES as usize)));
    }
    // It is no error if the file's beginning does not come, because it is optional.
    let silent = Server::start(|_, stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nabc").is_ok()
    });
    let (head, bytes) = fetch(&mut client, 5, look(&silent, "/f")).unwrap();
    assert_eq!((head.length, bytes.len()), (Some(99), 0));
    // These parts do not begin at byte 0, or are too long.
    for (first, last) in [(1, 76), (0, METADATA_BYTES)] {
        let other = Server::start(move |_, stream| {
            let bytes = last + 1 - first;
            let range = format!("Content-Range: bytes {first}-{last}/99999\r\nContent-Length: {bytes}\r\n");
            write!(stream, "HTTP/1.1 206 Partial\r\n{range}\r\n").is_ok()
        });
        let error = fetch(&mut client, 6, look(&other, "/f")).unwrap_err();
        assert!(matches!(error, FetchError::NotTheFile(_)), "{error}");
    }

    let portal = Server::says("HTTP/1.1 200 OK\nContent-Type: text/html\nContent-Length: 4\n\n<ht>");
    assert!(matches!(fetch(&mut client, 5, look(&portal, "/a.iso")), Err(FetchError::NotTheFile(_))));
    assert!(fetch(&mut client, 6, look(&portal, "/page")).is_ok());
    let gzip = Server::says("HTTP/1.1 200 OK\nContent-Encoding: gzip\n\n");
    assert_eq!(fetch(&mut client, 7, look(&gzip, "/a")).unwrap_err(), FetchError::Encoded("gzip".into()));
}

#[test]
fn small_documents() {
    let mut client = client();
    let small = |server: &Server, max| fetch_request(&server.url("/f.meta4"), RequestKind::Document { max });
    for text in [
        "HTTP/1.1 200 OK\nContent-Length: 5\n\nhello",
        "HTTP/1.1 200 OK\n\nhello",
        "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
    ] {
        let server = Server::says(text);
        assert_eq!(fetch(&mut client, 1, small(&server, 5)).unwrap().1, b"hello", "{text}");
        assert!(matches!(fetch(&mut client, 2, small(&server, 4)), Err(FetchError::Refused(_))), "{text}");
        assert_eq!(server.requests()[0].field("range"), None);
    }
}

/// A document that the caller has already is not sent again, and the fields for caches are told.
#[test]
fn an_unchanged_document() {
    let server = Server::start(|request, stream| {
        let is_same = request.field("if-none-match") == Some("W/\"a\"")
            || request.field("if-modified-since") == Some("Sun, 06 Nov 1994 08:49:37 GMT");
        let fields = "ETag: W/\"a\"\r\nCache-Control: max-age=60\r\nCache-Control: immutable\r\nAge: 7\r\n";
        let answer = match is_same {
            true => format!("HTTP/1.1 304 Not Modified\r\n{fields}\r\n"),
            false => format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: 3\r\n\r\nnew"),
        };
        stream.write_all(answer.as_bytes()).is_ok()
    });
    let mut client = client();
    let changed = |etag: Option<&str>, modified: Option<&str>| {
        let (etag, modified) = (etag.map(str::to_owned), modified.map(str::to_owned));
        fetch_request(&server.url("/f"), RequestKind::ChangedDocument { max: 100, etag, modified })
    };
    for (id, etag, modified, status, body) in [
        (1, Some("W/\"a\""), None, 304, &b""[..]),
        (2, None, Some("Sun, 06 Nov 1994 08:49:37 GMT"), 304, b""),
        (3, Some("\"b\""), None, 200, b"new"),
        (4, Some("W/\"a\""), None, 304, b""),
    ] {
        let (head, bytes) = fetch(&mut client, id, changed(etag, modified)).unwrap();
        assert_eq!((head.status, &bytes[..]), (status, body));
        assert_eq!(head.caching.cache_control.as_deref(), Some("max-age=60, immutable"));
        assert_eq!(head.caching.age.as_deref(), Some("7"));
    }
    assert_eq!(server.connections(), 1, "a 304 has no body");
    // Who did not ask for it does not get it.
    let server = Server::says("HTTP/1.1 304 Not Modified\nETag: \"a\"\n\n");
    let unasked = fetch_request(&server.url("/f"), RequestKind::Document { max: 100 });
    assert!(matches!(fetch(&mut client, 5, unasked), Err(FetchError::Refused(_))));
}

#[test]
fn redirects_are_followed_and_remembered() {
    let target = Arc::new(good(file(1000)));
    let address = target.address;
    let first = Server::start(move |request, stream| {
        let to = match request.path() {
            "/a/start" => "../b",
            "/b" => &format!("http://{address}/final?x=1"),
            _ => return false,
        };
        write!(stream, "HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 3\r\n\r\nbye").is_ok()
    });
    let mut client = client();
    let ask = || range(&first.url("/a/start"), 1, 5, 1000);
    let (head, bytes) = fetch(&mut client, 1, ask()).unwrap();
    assert_eq!((head.url, bytes.as_slice()), (target.url("/final?x=1"), &file(1000)[1..5]));
    fetch(&mut client, 2, ask()).unwrap();
    assert_eq!((first.requests().len(), first.connections()), (2, 1), "the second went there directly");
    assert_eq!((target.requests().len(), target.connections()), (2, 1));

    let looping = Server::start(|_, stream| {
        write!(stream, "HTTP/1.1 301 M\r\nLocation: /\r\nContent-Length: 0\r\n\r\n").is_ok()
    });
    let error = fetch(&mut client, 3, range(&looping.url("/"), 0, 1, 2)).unwrap_err();
    assert!(matches!(&error, FetchError::Refused(why) if why.contains("10 redirects")), "{error}");
    assert_eq!(looping.requests().len(), 11);
    let away = Server::says("HTTP/1.1 307 M\nLocation: ftp://h/\n\n");
    assert!(matches!(fetch(&mut client, 4, range(&away.url("/"), 0, 1, 2)), Err(FetchError::Refused(_))));
}

#[test]
fn a_redirect_that_expired_is_asked_for_again() {
    let count = AtomicUsize::new(0);
    let server = Server::start(move |request, stream| match request.path() {
        "/f" => {
            let n = count.fetch_add(1, Ordering::SeqCst);
            write!(stream, "HTTP/1.1 302 F\r\nLocation: /signed/{n}\r\nContent-Length: 0\r\n\r\n").is_ok()
        }
        "/signed/0" if request.range() == Some((1, 1)) => {
            write!(stream, "HTTP/1.1 403 Expired\r\nContent-Length: 0\r\n\r\n").is_ok()
        }
        _ => partial(request, stream, &file(10), ""),
    });
    let mut client = client();
    for id in 0..3 {
        assert_eq!(fetch(&mut client, id, range(&server.url("/f"), id, id + 1, 10)).unwrap().1.len(), 1);
    }
    let paths: Vec<_> = server.requests().iter().map(|request| request.path().to_owned()).collect();
    assert_eq!(paths, ["/f", "/signed/0", "/signed/0", "/f", "/signed/1", "/signed/1"]);
}

/// A redirect within the asked origin says things, too; another origin says nothing.
#[test]
fn fields_that_the_caller_names_are_those_of_the_asked_origin() {
    let other = Server::start(|request, stream| {
        partial(request, stream, &file(10), "X-Said: other\r\nX-Late: 1\r\n")
    });
    let address = other.address;
    let server = Server::start(move |request, stream| {
        let (to, fields) = match request.path() {
            "/f" => ("/g".to_owned(), "X-Said: first\r\n"),
            "/g" => (format!("http://{address}/h"), "X-Said: second\r\nX-More: more\r\nX-None: 1\r\n"),
            _ => return partial(request, stream, &file(10), "X-Said: here\r\n"),
        };
        write!(stream, "HTTP/1.1 302 F\r\nLocation: {to}\r\n{fields}Content-Length: 0\r\n\r\n").is_ok()
    });
    let keep_fields = &["x-said", "x-more", "x-late"];
    let mut client = Client::start(Options { keep_fields, ..options() }).unwrap();
    let kept = |client: &mut Client, id, path: &str| {
        fetch(client, id, range(&server.url(path), 0, 5, 10)).unwrap().0.caching.kept
    };
    let both = [("x-said", "first".to_owned()), ("x-more", "more".to_owned())];
    assert_eq!(kept(&mut client, 1, "/f"), both);
    assert_eq!(kept(&mut client, 2, "/here"), [("x-said", "here".to_owned())]);
}

#[test]
fn credentials_stay_with_their_origin() {
    let other = good(file(10));
    let address = other.address;
    let server = Server::start(move |request, stream| match request.path() {
        "/away" => write!(
            stream,
            "HTTP/1.1 302 F\r\nLocation: http://evil:x@{address}/f\r\nContent-Length: 0\r\n\r\n"
        )
        .is_ok(),
        _ => partial(request, stream, &file(10), ""),
    });
    let dir = tempfile::tempdir().unwrap();
    let netrc = dir.path().join("netrc");
    fs::write(&netrc, "machine 127.0.0.1 login n password m\ndefault login d password d").unwrap();
    let sent_to = |options: Options, url: &str, trusted: bool| {
        let mut client = Client::start(options).unwrap();
        fetch(&mut client, 1, FetchRequest { trusted, ..range(url, 0, 5, 10) }).unwrap();
        let last = if url.ends_with("/away") { &other } else { &server };
        let request = last.requests().last().unwrap().clone();
        ["authorization", "cookie", "x"].map(|name| request.field(name).map(str::to_owned))
    };
    let sent = |options: Options, url: &str| sent_to(options, url, true);
    let with_user = || Options { user: Some(("a".into(), "bc".into())), ..options() };
    let basic = |text: &str| Some(format!("Basic {text}"));
    assert_eq!(sent(with_user(), &server.url("/f"))[0], basic("YTpiYw=="));
    assert_eq!(sent(with_user(), &server.url("/away"))[0], None);
    let in_url = format!("http://a:b@{}", server.address);
    assert_eq!(sent(with_user(), &format!("{in_url}/f"))[0], basic("YTpi"));
    assert_eq!(sent(options(), &format!("{in_url}/away"))[0], None);
    // Both URLs are on the machine that the .netrc names, but without TLS no server proves to be that
    // machine.
    let with_netrc = || Options { netrc: Some(netrc.clone()), ..options() };
    assert_eq!(sent(with_netrc(), &server.url("/f"))[0], basic("bjpt"));
    assert_eq!(sent(with_netrc(), &server.url("/away"))[0], None);
    assert_eq!(sent_to(with_netrc(), &server.url("/f"), false)[0], None, "nobody named its origin");
    fs::write(&netrc, "default login d password d").unwrap();
    assert_eq!(sent(with_netrc(), &server.url("/f"))[0], basic("ZDpk"));
    assert_eq!(sent(with_netrc(), &server.url("/away"))[0], None);
    let pairs = [("Cookie", "c"), ("X", "y"), ("Authorization", "Bearer t")];
    let headers = || pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let given = |text: &str| Some(text.to_owned());
    let near = sent(Options { headers: headers(), ..with_user() }, &server.url("/f"));
    assert_eq!(near, [given("Bearer t"), given("c"), given("y")]);
    let far = sent(Options { headers: headers(), ..with_user() }, &server.url("/away"));
    assert_eq!(far, [None, None, None]);
    // The URL was named by another server or by a list, not by the user.
    let stranger = sent_to(Options { headers: headers(), ..with_user() }, &server.url("/f"), false);
    assert_eq!(stranger, [None, None, None]);
    assert_eq!(sent_to(with_user(), &server.url("/f"), false)[0], None);
    assert_eq!(sent_to(with_netrc(), &server.url("/f"), false)[0], None);
    assert_eq!(sent_to(with_user(), &format!("{in_url}/f"), false)[0], basic("YTpi"), "the URL's own");
}

#[test]
fn who_is_led_home_by_another_server_comes_without_secrets() {
    let home = Server::start(move |request, stream| match request.path() {
        "/out" => {
            let to = format!("http://{}/", request.field("x").unwrap_or_default());
            write!(stream, "HTTP/1.1 302 F\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n").is_ok()
        }
        "/closed" => write!(stream, "HTTP/1.1 401 W\r\nContent-Length: 0\r\n\r\n").is_ok(),
        _ => partial(request, stream, &file(10), ""),
    });
    let back = home.address;
    let lead = |path: &'static str| {
        Server::start(move |_, stream| {
            let to = format!("http://{back}{path}");
            write!(stream, "HTTP/1.1 302 F\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n").is_ok()
        })
    };
    let client = |stranger: &Server| {
        let headers = vec![("X".to_owned(), stranger.address.to_string())];
        let user = Some(("a".into(), "b".into()));
        Client::start(Options { headers, user, ..options() }).unwrap()
    };
    let in_url = format!("http://a:b@{}/out", home.address);
    for url in [home.url("/out"), in_url] {
        let stranger = lead("/f");
        let mut client = client(&stranger);
        for id in 0..2 {
            fetch(&mut client, id, range(&url, 0, 5, 10)).unwrap();
            let last = home.requests().last().unwrap().clone();
            let sent = ["authorization", "x"].map(|name| last.field(name).map(str::to_owned));
            assert_eq!((last.path(), sent), ("/f", [None, None]), "{id}");
        }
    }
    let stranger = lead("/closed");
    let error = fetch(&mut client(&stranger), 9, range(&home.url("/out"), 0, 5, 10)).unwrap_err();
    let FetchError::Forbidden { credentials, at, .. } = error else { panic!("{error}") };
    assert_eq!((credentials, at), (CredentialStatus::Withheld, None));
}

/// A server's `ETag` says nothing about another server that a redirect leads to.
#[test]
fn validators_are_for_the_url_that_had_them() {
    let server = Server::start(|request, stream| match request.path() {
        "/f" => write!(stream, "HTTP/1.1 302 F\r\nLocation: /there?2\r\nContent-Length: 0\r\n\r\n").is_ok(),
        _ => partial(request, stream, &file(10), ""),
    });
    let mut client = client();
    let with = |seen_at: Option<&str>| RequestKind::Range {
        first: 1,
        end: 5,
        length: 10,
        validator: Some("\"two\"".into()),
        modified: None,
        seen_at: seen_at.map(|path| server.url(path)),
    };
    let other = fetch(&mut client, 1, fetch_request(&server.url("/f"), with(Some("/elsewhere"))));
    assert_eq!(other.unwrap().1, file(10)[1..5]);
    assert!(server.requests().iter().all(|request| request.field("if-range").is_none()));
    let same = fetch(&mut client, 2, fetch_request(&server.url("/f"), with(Some("/there?1"))));
    assert!(matches!(same, Err(FetchError::ChangedTag)), "{same:?}");
    assert_eq!(server.requests().last().unwrap().field("if-range"), Some("\"two\""));
    let any = fetch(&mut client, 3, fetch_request(&server.url("/f"), with(None)));
    assert!(matches!(any, Err(FetchError::ChangedTag)), "{any:?}");
}

#[test]
fn options_that_cannot_be_followed() {
    let why = |options: Options| Client::start(options).err().expect("an error").to_string();
    let header = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
    assert!(why(Options { headers: header("Range", "bytes=0-"), ..options() }).contains("range"));
    assert!(why(Options { headers: header("a b", "c"), ..options() }).contains("a b"));
    assert!(why(Options { headers: header("a", "c\r\nd: e"), ..options() }).contains('a'));
    assert!(why(Options { netrc: Some("/nonexistent".into()), ..options() }).contains("/nonexistent"));
    assert!(why(Options { ca_file: Some("/dev/null".into()), ..options() }).contains("no certificate"));
    assert!(why(Options { proxy: Some("ftp://h".into()), ..options() }).contains("ftp"));
    let mut client = client();
    for url in ["ftp://h/", "h", "http://a b/"] {
        assert!(matches!(fetch(&mut client, 1, range(url, 0, 1, 2)), Err(FetchError::Refused(_))), "{url}");
    }
    for (first, end) in [(1, 1), (2, 1), (0, 3)] {
        let error = fetch(&mut client, 1, range("http://127.0.0.1:9/", first, end, 2)).unwrap_err();
        assert!(matches!(error, FetchError::Refused(_)), "{error}");
    }
    assert!(matches!(
        fetch(&mut client, 1, range("http://127.0.0.1:9/", 0, 1, 2)),
        Err(FetchError::Unreachable(_))
    ));
    assert!(matches!(
        fetch(&mut client, 1, range("http://x.invalid/", 0, 1, 2)),
        Err(FetchError::Unreachable(_))
    ));
}

/// Starts a server that sends the head of an endless range, and then as many bytes as the client takes.
/// Returns it with the number of bytes taken.
fn endless() -> (Server, Arc<AtomicUsize>) {
    let taken = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&taken);
    let server = Server::start(move |request, stream| {
        let (first, last) = request.range().unwrap();
        let bytes = last + 1 - first;
        let head =
            format!("Content-Range: bytes {first}-{last}/{}\r\nContent-Length: {bytes}\r\n", u64::MAX >> 1);
        write!(stream, "HTTP/1.1 206 P\r\n{head}\r\n").unwrap();
        let piece = vec![0; 1 << 16];
        let mut left = bytes;
        while left > 0 {
            let now = left.min(piece.len());
            if stream.write_all(&piece[..now]).is_err() {
                return false;
            }
            count.fetch_add(now, Ordering::SeqCst);
            left -= now;
        }
        true
    });
    (server, taken)
}

#[test]
fn a_cancel_closes_the_connection_and_ends_the_events() {
    let (server, _) = endless();
    let mut client = client();
    client.fetch(1, range(&server.url("/f"), 0, 1 << 40, u64::MAX >> 1));
    let mut came = 0;
    while came < 100_000 {
        wait(&client);
        client.events(|event| came += if let Event::Body { bytes, .. } = event { bytes.len() } else { 0 });
    }
    wait(&client);
    client.cancel(1);
    client.fetch(2, range(&server.url("/f"), 0, 5, u64::MAX >> 1));
    // `outcome` fails on events of another fetch.
    assert_eq!(outcome(&mut client, 2).unwrap().1.len(), 5);
    assert_eq!(server.connections(), 2);
    client.fetch(3, range(&server.url("/f"), 0, 5, u64::MAX >> 1));
    outcome(&mut client, 3).unwrap();
    client.cancel(3);
    client.fetch(4, range(&server.url("/f"), 0, 5, u64::MAX >> 1));
    outcome(&mut client, 4).unwrap();
    assert_eq!(server.connections(), 2, "a fetch that had ended keeps its connection");
}

#[test]
fn what_is_not_taken_is_not_read() {
    let (server, taken) = endless();
    let mut client = client();
    client.window(0, 1 << 20);
    client.fetch(1, range(&server.url("/f"), 0, 1 << 40, u64::MAX >> 1));
    let counted = |client: &mut Client| {
        let (mut waiting, mut received) = (0, 0);
        client.events(|event| match event {
            Event::Body { bytes, .. } => waiting += bytes.len() as u64,
            Event::Sample { sample, .. } => received = sample.received_bytes,
            _ => {}
        });
        (waiting, received)
    };
    // Wait until the client has taken nothing more for a second: its queue and the kernel's buffers are full.
    let mut before = 0;
    loop {
        thread::sleep(Duration::from_secs(1));
        let now = taken.load(Ordering::SeqCst);
        if now == before && now > 1 << 20 {
            break;
        }
        before = now;
    }
    let (waiting, received) = counted(&mut client);
    assert!((1 << 20..2 << 20).contains(&waiting), "{waiting} bytes waited");
    assert!(received > 0);
    // The transfer goes on once the events are taken.
    let mut more = 0;
    while more < 1 << 20 {
        wait(&client);
        more += counted(&mut client).0;
    }
    let clock = Clock::start();
    let before = clock.now();
    drop(client);
    // Dropping must not wait for the server until the idle timeout of 20 s.
    assert!(clock.now().since(before).as_millis() < 10_000, "dropping ends the thread");
}

/// After many bytes come a few. They are handed over too, although the reader is only woken for more bytes
/// than these.
#[test]
fn a_little_after_much_is_not_kept_back() {
    const MUCH: usize = 64 << 20;
    const LITTLE: usize = 1_000;
    let (go, gone) = std::sync::mpsc::channel();
    let gone = std::sync::Mutex::new(gone);
    let server = Server::start(move |_, stream| {
        let length = MUCH + 1_000 * LITTLE;
        let head = format!("Content-Range: bytes 0-{}/{length}\r\nContent-Length: {length}\r\n", length - 1);
        write!(stream, "HTTP/1.1 206 P\r\n{head}\r\n").unwrap();
        stream.write_all(&vec![1; MUCH]).unwrap();
        for step in 0..1_000 {
            stream.write_all(&[2; LITTLE]).unwrap();
            // The first 20 small pieces wait until the one before has been handed over.
            if step < 20 {
                gone.lock().unwrap().recv().unwrap();
            }
        }
        true
    });
    let mut client = client();
    let length = (MUCH + 1_000 * LITTLE) as u64;
    client.fetch(1, range(&server.url("/f"), 0, length, length));
    let (mut came, mut step, mut done) = (0, 0, false);
    while !done {
        wait(&client);
        client.events(|event| match event {
            Event::Body { bytes, .. } => came += bytes.len(),
            Event::Done { .. } => done = true,
            Event::Failed { error, .. } => panic!("{error}"),
            _ => {}
        });
        while step < 20 && came >= MUCH + (step + 1) * LITTLE {
            step += 1;
            go.send(()).unwrap();
        }
    }
    assert_eq!(came as u64, length);
}

#[test]
fn a_stall_is_seen() {
    let server = Server::start(|_, stream| {
        write!(stream, "HTTP/1.1 206 P\r\nContent-Range: bytes 0-9/10\r\nContent-Length: 10\r\n\r\n0123")
            .unwrap();
        thread::sleep(Duration::from_secs(20));
        false
    });
    let silent = Server::start(|_, _| {
        thread::sleep(Duration::from_secs(20));
        false
    });
    let short = Options { idle_timeout: Duration::from_millis(500), ..options() };
    let mut client = Client::start(short).unwrap();
    let clock = Clock::start();
    let before = clock.now();
    for (id, server) in [&server, &silent].into_iter().enumerate() {
        let error = fetch(&mut client, id as u64, range(&server.url("/f"), 0, 10, 10)).unwrap_err();
        assert!(matches!(&error, FetchError::Broken(why) if why.contains("0.5 s")), "{error}");
    }
    assert!(clock.now().since(before).as_millis() < 10_000);
    // A listener that never accepts, with a full queue, answers no SYN.
    let deaf = TcpListener::bind("127.0.0.1:0").unwrap();
    let tls = Options { connect_timeout: Duration::from_millis(500), ..options() };
    let mut client = Client::start(tls).unwrap();
    let url = format!("https://{}/", deaf.local_addr().unwrap());
    let error = fetch(&mut client, 1, range(&url, 0, 1, 2)).unwrap_err();
    assert!(matches!(&error, FetchError::Unreachable(why) if why.contains("0.5 s")), "{error}");
}

#[test]
fn a_proxy_relays_http() {
    let proxy = Server::start(|request, stream| partial(request, stream, &file(10), ""));
    let given = Options { proxy: Some(format!("http://u:p@{}", proxy.address)), ..Options::default() };
    let mut client = Client::start(given).unwrap();
    assert!(client.is_proxied("http://files.example:81/a?b") && !self::client().is_proxied("http://h/"));
    fetch(&mut client, 1, range("http://files.example:81/a?b", 2, 4, 10)).unwrap();
    let request = &proxy.requests()[0];
    assert_eq!(request.line, "GET http://files.example:81/a?b HTTP/1.1");
    assert_eq!(request.field("host"), Some("files.example:81"));
    assert_eq!(request.field("proxy-authorization"), Some("Basic dTpw"));
}

/// Starts a SOCKS5 server that demands a password, and reports the requests that it gets.
fn socks(target: std::net::SocketAddr) -> (std::net::SocketAddr, std::sync::mpsc::Receiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut near = stream.unwrap();
            let mut take = |bytes: usize| {
                let mut buffer = vec![0; bytes];
                near.read_exact(&mut buffer).unwrap();
                buffer
            };
            assert_eq!(take(4), [5, 2, 0, 2]);
            near.write_all(&[5, 2]).unwrap();
            let mut take = |bytes: usize| {
                let mut buffer = vec![0; bytes];
                near.read_exact(&mut buffer).unwrap();
                buffer
            };
            assert_eq!(take(5), [1, 1, b'u', 1, b'p']);
            near.write_all(&[1, 0]).unwrap();
            let mut ask = vec![0; 5];
            near.read_exact(&mut ask).unwrap();
            let rest = if ask[3] == 3 { usize::from(ask[4]) + 2 } else { 3 + 2 };
            let mut more = vec![0; rest];
            near.read_exact(&mut more).unwrap();
            ask.extend(more);
            sender.send(ask).unwrap();
            near.write_all(&[5, 0, 0, 3, 1, b'x', 0, 9]).unwrap();
            let far = TcpStream::connect(target).unwrap();
            for (mut from, mut to) in
                [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far.try_clone().unwrap(), near)]
            {
                thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Write);
                });
            }
        }
    });
    (address, receiver)
}

#[test]
fn socks5_with_names_and_with_addresses() {
    let server = good(file(10));
    let (address, asked) = socks(server.address);
    let port = server.address.port().to_be_bytes();
    let run = |scheme: &str, host: &str| {
        let given = Options { proxy: Some(format!("{scheme}://u:p@{address}")), ..Options::default() };
        let mut client = Client::start(given).unwrap();
        let url = format!("http://{host}:{}/f", server.address.port());
        assert_eq!(fetch(&mut client, 1, range(&url, 2, 4, 10)).unwrap().1, file(10)[2..4]);
        asked.recv().unwrap()
    };
    let by_address = [&[5, 1, 0, 1, 127, 0, 0, 1], &port[..]].concat();
    assert_eq!(
        run("socks5h", "name.invalid"),
        [&[5, 1, 0, 3, 12], b"name.invalid".as_slice(), &port].concat()
    );
    assert_eq!(run("socks5", "127.0.0.1"), by_address);
    let resolved = run("socks5", "localhost");
    assert_eq!(resolved, by_address);
}

#[test]
fn a_server_that_closes_early() {
    let server = Server::start(|request: &Request, stream| {
        let (first, last) = request.range().unwrap();
        let _ = write!(
            stream,
            "HTTP/1.1 206 P\r\nContent-Range: bytes {first}-{last}/1000\r\nContent-Length: {}\r\n\r\n12345",
            last + 1 - first
        );
        false
    });
    let mut client = client();
    client.fetch(1, range(&server.url("/f"), 0, 1000, 1000));
    let error = outcome(&mut client, 1).unwrap_err();
    assert!(matches!(&error, FetchError::Broken(why) if why.contains("5 of 1000")), "{error}");
}
