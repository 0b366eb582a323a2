//! The source as browsers, curl and aria2 see it.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::fetch::{Ground, skipped, spawn};
use crate::common::{Server, anabranch, noise, serve_for_people, wait_until};
use anabranch_mirror::leaf_list::LeafList;
use anabranch_mirror::metalink::{self, Metalink};
use anabranch_mirror::url::Url;
use anabranch_mmtp::ContentId;
use anabranch_mmtp::id::BLOCK_BYTES;
use anabranch_mmtp::tree::{ChainingValue, root_of_leaves};
use nix::sys::signal::Signal;

/// Starts a source that offers `path` by HTTP too, and returns its HTTP address.
fn start(path: &Path, more: &[&str]) -> (Server, SocketAddr) {
    let server = Server::start_at(path, "127.0.0.1:0", &[&["--http", "127.0.0.1:0"], more].concat());
    let url = url(&server);
    let address = url.strip_prefix("http://").and_then(|url| url.split('/').next()).expect("a URL");
    let address = address.parse().expect("an address");
    (server, address)
}

/// Returns the URL of the first offer.
fn url(server: &Server) -> String {
    server.offers[0]["http"][0].as_str().expect("a URL").to_owned()
}

/// Starts a source that offers one file `f` with these bytes.
fn one_file(content: &[u8]) -> (tempfile::TempDir, Server, SocketAddr) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("f");
    fs::write(&path, content).expect("a file");
    let (server, address) = start(&path, &[]);
    (dir, server, address)
}

struct Response {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Response {
    fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    fn length(&self) -> usize {
        self.field("content-length").expect("a length").parse().expect("a number")
    }
}

/// Sends these bytes and reads the answer to its end.
fn raw(address: SocketAddr, request: &[u8]) -> Response {
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
    stream.write_all(request).expect("sent");
    let mut all = Vec::new();
    // A reset also counts as the end.
    let _ = stream.read_to_end(&mut all);
    let end = all.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
    let head = String::from_utf8(all[..end].to_vec()).expect("ASCII");
    let status = head.split(' ').nth(1).expect("a status").parse().expect("a number");
    Response { status, head, body: all[end + 4..].to_vec() }
}

/// Sends a request with this method, target and these header fields.
fn ask(address: SocketAddr, method: &str, target: &str, fields: &[(&str, &str)]) -> Response {
    let mut request = format!("{method} {target} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
    for (name, value) in fields {
        request += &format!("{name}: {value}\r\n");
    }
    raw(address, (request + "\r\n").as_bytes())
}

fn get(address: SocketAddr, target: &str) -> Response {
    ask(address, "GET", target, &[])
}

fn base32(id: &ContentId) -> String {
    id.to_string().trim_start_matches("b3:").to_owned()
}

fn hexadecimal(id: &ContentId) -> String {
    id.root.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn every_byte_is_the_files() {
    for len in [0, 1, 16_384, 16_385, 262_144, 3_000_007] {
        let content = noise(len);
        let (_dir, server, address) = one_file(&content);
        let id = ContentId::of(&content);
        let got = get(address, "/f");
        assert_eq!(got.status, 200);
        assert!(got.body == content, "{len}");
        assert_eq!(got.length(), len);
        assert_eq!(got.field("etag"), Some(&*format!("\"{}\"", base32(&id))));
        assert_eq!(got.field("accept-ranges"), Some("bytes"));
        assert_eq!(got.field("content-type"), Some("application/octet-stream"));
        assert!(got.head.contains("<f.meta4>; rel=\"describedby\"; type=\"application/metalink4+xml\""));
        let duplicate = got.head.lines().find(|line| line.contains("rel=\"duplicate\"")).expect("a link");
        let uri = duplicate.split(['<', '>']).nth(1).expect("a URI");
        let uri: anabranch_mmtp::uri::Uri = uri.parse().expect("a URI");
        assert_eq!((uri.id, uri.name.as_deref()), (id, Some(&b"f"[..])));
        assert_eq!(uri.from, [format!("127.0.0.1:{}", server.address.port())]);
        let head = ask(address, "HEAD", "/f", &[("Range", "bytes=0-0")]);
        assert_eq!((head.status, head.length(), head.body.len()), (200, len, 0));
        assert_eq!(head.field("etag"), got.field("etag"));
        let totals = server.end();
        assert_eq!(totals["http_requests"], 2, "{totals}");
        assert!(totals["http_bytes"].as_u64() >= Some(len as u64), "{totals}");
        assert_eq!(totals["http_connections"], 0, "{totals}");
    }
}

#[test]
fn ranges() {
    let content = noise(700_000);
    let (_dir, server, address) = one_file(&content);
    let range = |range: &str| ask(address, "GET", "/f", &[("Range", range)]);
    for (asked, first, last) in [
        ("bytes=0-0", 0, 0),
        ("bytes=5-9", 5, 9),
        ("bytes=100-600000", 100, 600_000),
        ("bytes=699999-", 699_999, 699_999),
        ("bytes=16384-", 16_384, 699_999),
        ("bytes=-1000", 699_000, 699_999),
        ("bytes=-9999999", 0, 699_999),
        ("bytes=10-99999999999999999999999", 10, 699_999),
    ] {
        let got = range(asked);
        assert_eq!(got.status, 206, "{asked}");
        assert_eq!(got.field("content-range"), Some(&*format!("bytes {first}-{last}/700000")));
        assert_eq!(got.length(), last - first + 1);
        assert!(got.body == content[first..=last], "{asked}");
    }
    for unsatisfiable in ["bytes=700000-", "bytes=-0", "bytes=99999999999999999999-"] {
        let got = range(unsatisfiable);
        assert_eq!((got.status, got.field("content-range")), (416, Some("bytes */700000")));
    }
    for ignored in ["bytes=0-1,5-6", "bytes=9-5", "lines=0-1", "bytes", "bytes=a-b"] {
        let got = range(ignored);
        assert_eq!((got.status, got.field("content-range")), (200, None));
        assert!(got.body == content, "{ignored}");
    }
    drop(server);
    let (_dir, _server, address) = one_file(b"");
    let got = ask(address, "GET", "/f", &[("Range", "bytes=0-")]);
    assert_eq!((got.status, got.field("content-range")), (416, Some("bytes */0")));
}

#[test]
fn preconditions() {
    let content = noise(1_000);
    let (_dir, _server, address) = one_file(&content);
    let tag = format!("\"{}\"", base32(&ContentId::of(&content)));
    let weak = format!("W/{tag}");
    let list = format!("\"x\", {tag}");
    let some = ("Range", "bytes=1-2");
    for (fields, status) in [
        (&[some, ("If-Range", &*tag)][..], 206),
        (&[some, ("If-Range", &weak)], 200),
        (&[some, ("If-Range", "\"x\"")], 200),
        (&[some, ("If-Range", "Sat, 29 Oct 1994 19:43:31 GMT")], 200),
        (&[("If-None-Match", &*tag)], 304),
        (&[("If-None-Match", &*weak)], 304),
        (&[("If-None-Match", &*list)], 304),
        (&[("If-None-Match", "*")], 304),
        (&[("If-None-Match", "\"x\"")], 200),
        (&[some, ("If-None-Match", &*tag)], 304),
        (&[("If-Match", &*list)], 200),
        (&[("If-Match", "*")], 200),
        (&[("If-Match", &*weak)], 412),
        (&[some, ("If-Match", "\"x\"")], 412),
        (&[("If-Modified-Since", "Sat, 29 Oct 2044 19:43:31 GMT")], 200),
    ] {
        for method in ["GET", "HEAD"] {
            let got = ask(address, method, "/f", fields);
            let status = if method == "HEAD" && status == 206 { 200 } else { status };
            assert_eq!(got.status, status, "{method} {fields:?}");
            match (status, method) {
                (304, _) => assert_eq!((got.field("etag"), got.body.len()), (Some(&*tag), 0)),
                (206, _) => assert!(got.body == content[1..3]),
                (200, "GET") => assert!(got.body == content),
                _ => {}
            }
        }
    }
}

/// Returns the links of a page, except those upwards and to Metalinks, as (reference, text).
fn links(page: &str) -> Vec<(String, String)> {
    let mut links = Vec::new();
    for link in page.split("<a href=\"").skip(1) {
        let (href, rest) = link.split_once("\">").expect("an end");
        let (text, _) = rest.split_once("</a>").expect("an end");
        if href != "../" && text != "metalink" {
            links.push((href.to_owned(), text.to_owned()));
        }
    }
    links
}

#[test]
fn lists_hold_every_name_and_nothing_else() {
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path().join("album & co");
    fs::create_dir_all(root.join("sub/deep")).expect("directories");
    let names = [
        &b"<script>alert(1)<script>"[..],
        b"\"onclick='x'",
        b"a&b",
        b"two words",
        b"new\nline",
        b"\xff\xfe",
        b"c:d",
        b"%2e%2e",
        b"?q#f",
        b"\xe2\x80\xaegnp.exe",
    ];
    for name in names {
        fs::write(root.join(std::ffi::OsStr::from_bytes(name)), name).expect("a file");
    }
    fs::write(root.join("<b>bold"), b"<b>bold").expect("a file");
    fs::write(root.join("sub/deep/x"), b"x").expect("a file");
    fs::write(root.join("sub-a"), b"sub-a").expect("a file");
    let (server, address) = start(&root, &[]);
    assert!(url(&server).ends_with("/album%20%26%20co/"), "{}", url(&server));

    let top = get(address, "/");
    assert_eq!(top.field("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(top.field("content-security-policy"), Some("default-src 'none'"));
    let page = String::from_utf8(top.body).expect("UTF-8");
    assert_eq!(links(&page), [("album%20%26%20co/".into(), "album &amp; co/".into())]);

    assert_eq!(get(address, "/album%20%26%20co").field("location"), Some("/album%20%26%20co/"));
    let page = String::from_utf8(get(address, "/album%20%26%20co/").body).expect("UTF-8");
    assert!(!page.contains("<script") && !page.contains("\u{202e}") && !page.contains("<b>"), "{page}");
    let found = links(&page);
    assert_eq!(found.len(), names.len() + 3, "{page}");
    for (href, _) in found.iter().filter(|(href, _)| !href.ends_with('/')) {
        let got = get(address, &format!("/album%20%26%20co/{href}"));
        assert_eq!(got.status, 200, "{href}");
        let at = root.join(std::ffi::OsStr::from_bytes(&got.body));
        assert!(at.is_file(), "each holds its own name: {href}");
    }
    for (path, want) in [("sub/", "deep/"), ("sub/deep/", "x")] {
        let page = String::from_utf8(get(address, &format!("/album%20%26%20co/{path}")).body).expect("UTF-8");
        assert_eq!(links(&page), [(want.into(), want.into())], "{path}");
    }
    assert_eq!(get(address, "/album%20%26%20co/sub").status, 301);
    assert_eq!(get(address, "/album%20%26%20co/sub/deep/x/").status, 404);
}

#[test]
fn long_lists_have_pages() {
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path().join("d");
    fs::create_dir(&root).expect("a directory");
    for n in 0..2_003 {
        fs::write(root.join(format!("{n:04}")), b"").expect("a file");
    }
    let (_server, address) = start(&root, &["--quiet"]);
    let page = |target| links(&String::from_utf8(get(address, target).body).expect("UTF-8"));
    let first = page("/d/");
    assert_eq!((first.len(), &*first[2_000].0), (2_001, "?from=2000"));
    let second = page("/d/?from=2000");
    assert_eq!(second.iter().map(|(href, _)| &**href).collect::<Vec<_>>(), ["2000", "2001", "2002"]);
    assert_eq!(page("/d/?from=99999999999999999999999"), first);
    assert!(page("/d/?from=9999").is_empty());
}

#[test]
fn nothing_but_what_is_offered() {
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path().join("d");
    fs::create_dir(&root).expect("a directory");
    fs::write(root.join("f"), b"f").expect("a file");
    fs::write(dir.path().join("secret"), b"secret").expect("a file");
    std::os::unix::fs::symlink("/etc", root.join("etc")).expect("a link");
    let (_server, address) = start(&root, &[]);
    // This file came after the start.
    fs::write(root.join("new"), b"new").expect("a file");
    for target in [
        "/secret",
        "/d/../secret",
        "/d/..%2fsecret",
        "/d/%2e%2e/secret",
        "/d/.%2e/secret",
        "/d/..%5csecret",
        "/d/..",
        "/../../../../../../etc/passwd",
        "//etc/passwd",
        "/d//f",
        "/d/./f",
        "/d/etc/passwd",
        "/d/new",
        "/d/f%00",
        "/d/f/",
        "/d/f%",
        "/D/F",
        "/b3/",
        "/b3",
        "/b3/x",
        "/b3/..",
        "/.meta4",
        "/secret.meta4",
        "/d/etc.meta4",
        "/d/x.meta4",
        "/d/f.meta4/",
        "/favicon.ico",
    ] {
        let got = get(address, target);
        assert_eq!(got.status, 404, "{target}");
        assert!(!got.body.windows(6).any(|six| six == b"secret"), "{target}");
    }
    assert_eq!(get(address, "/d/f").body, b"f");
    let absolute =
        raw(address, b"GET http://example.org/d/f HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert_eq!(absolute.body, b"f");
}

#[test]
fn requests_that_make_no_sense() {
    let (_dir, server, address) = one_file(b"content");
    for (method, status) in [
        ("POST", 405),
        ("PUT", 405),
        ("DELETE", 405),
        ("OPTIONS", 405),
        ("PATCH", 405),
        ("PROPFIND", 501),
        ("get", 501),
    ] {
        let got = ask(address, method, "/f", &[]);
        assert_eq!((got.status, got.field("allow")), (status, Some("GET, HEAD")), "{method}");
    }
    for request in [
        "GET /f HTTP/1.1\r\nConnection: close\r\n\r\n",
        "GET /f HTTP/1.1\r\nHost: a\r\nHost: b\r\nConnection: close\r\n\r\n",
        "GET /f HTTP/1.1\r\nHost: a b\r\nConnection: close\r\n\r\n",
        "GET /f HTTP/1.1\r\nHost: u@h\r\nConnection: close\r\n\r\n",
        "GET\r\n\r\n",
        "\u{1}\u{2}\r\n\r\n",
        "GET /f HTTP/9.9\r\n\r\n",
    ] {
        let status = raw(address, request.as_bytes()).status;
        assert!(matches!(status, 400 | 505), "{request}: {status}");
    }
    let long = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(100_000));
    assert!(matches!(raw(address, long.as_bytes()).status, 414 | 431));
    assert_eq!(raw(address, b"GET /f HTTP/1.0\r\n\r\n").body, b"content");
    // An unexpected body in a request does no harm.
    let got = ask(address, "GET", "/f", &[("Content-Length", "3")]);
    assert_eq!(got.body, b"content");
    // Noise does no harm either.
    for n in 0..50 {
        let mut stream = TcpStream::connect(address).expect("a connection");
        let _ = stream.write_all(&noise(n * 97 + 1));
    }
    assert_eq!(get(address, "/f").body, b"content");
    drop(server);
}

#[test]
fn a_connection_serves_many_requests() {
    let content = noise(100_000);
    let (_dir, _server, address) = one_file(&content);
    let mut stream = TcpStream::connect(address).expect("a connection");
    let mut request = String::new();
    for n in 0..40 {
        let end = if n == 39 { "Connection: close\r\n" } else { "" };
        request += &format!("GET /f HTTP/1.1\r\nHost: x\r\nRange: bytes={n}-50000\r\n{end}\r\n");
    }
    // All requests are sent at once; the answers come in order.
    stream.write_all(request.as_bytes()).expect("sent");
    let mut all = Vec::new();
    stream.read_to_end(&mut all).expect("answers");
    let mut rest = &all[..];
    for n in 0..40 {
        let end = rest.windows(4).position(|four| four == b"\r\n\r\n").expect("a head") + 4;
        let len = 50_001 - n;
        assert!(rest[end..end + len] == content[n..=50_000], "{n}");
        rest = &rest[end + len..];
    }
    assert!(rest.is_empty());
}

#[test]
fn contents_are_found_by_name_and_by_hash() {
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path().join("d");
    fs::create_dir_all(root.join("sub")).expect("a directory");
    let content = noise(50_000);
    fs::write(root.join("sub/f.txt"), &content).expect("a file");
    let (server, address) = start(&root, &[]);
    let id = ContentId::of(&content);
    let (b32, hex) = (base32(&id), hexadecimal(&id));
    for target in [
        "/d/sub/f.txt".to_owned(),
        format!("/b3/{b32}"),
        format!("/b3/{}", b32.to_uppercase()),
        format!("/b3/{hex}"),
        format!("/b3/{hex}/f.txt"),
        format!("/b3/{hex}/any%20name.bin"),
    ] {
        let got = get(address, &target);
        assert_eq!(got.status, 200, "{target}");
        assert!(got.body == content, "{target}");
    }
    assert_eq!(get(address, &format!("/b3/{}", hexadecimal(&ContentId::of(b"else")))).status, 404);
    assert_eq!(get(address, &format!("/b3/{hex}/a/b")).status, 404);
    assert_eq!(get(address, &format!("/b3/{hex}/")).status, 404);
    // A directory can be found by the hash of its manifest.
    let uri: anabranch_mmtp::uri::Uri = server.uri().parse().expect("a URI");
    let d = base32(&uri.id);
    let manifest = get(address, &format!("/b3/{d}")).body;
    assert_eq!(ContentId::of(&manifest), uri.id);
    assert!(get(address, &format!("/b3/{d}/sub/f.txt")).body == content);
    let list = String::from_utf8(get(address, &format!("/b3/{d}/sub/")).body).expect("UTF-8");
    assert_eq!(links(&list)[0].0, "f.txt");
    let moved = get(address, &format!("/b3/{d}/sub"));
    assert_eq!(moved.field("location"), Some(&*format!("/b3/{d}/sub/")));
}

#[test]
fn two_of_the_same_name_are_both_offered() {
    let dir = tempfile::tempdir().expect("a directory");
    for place in ["a", "b"] {
        fs::create_dir_all(dir.path().join(place).join("d")).expect("a directory");
        fs::write(dir.path().join(place).join("f"), place).expect("a file");
        fs::write(dir.path().join(place).join("d/x"), place.repeat(2)).expect("a file");
    }
    let mut command = anabranch();
    command.arg("serve").args(["--json", "--no-cache", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
    command.args(["a/f", "b/f", "a/d", "b/d"]).current_dir(dir.path());
    let server = Server::run(command);
    let mut bodies = Vec::new();
    for offer in server.offers.iter().filter(|offer| offer["collection"] == false) {
        let url = offer["http"][0].as_str().expect("a URL").strip_prefix("http://").expect("a scheme");
        let (address, path) = url.split_once('/').expect("a path");
        let got = get(address.parse().expect("an address"), &format!("/{path}"));
        bodies.push(String::from_utf8(got.body).expect("ASCII"));
    }
    bodies.sort();
    assert_eq!(bodies, ["a", "aa", "b", "bb"]);
}

/// Returns the last name of a path, as if it were at the root.
fn at_root(path: &str) -> String {
    path[path.rfind('/').expect("a slash")..].to_owned()
}

/// Fetches the leaf list that the Metalink at `place` names for a file.
fn leaf_list(address: SocketAddr, place: &str, file: &metalink::File) -> Option<LeafList> {
    let base = Url::parse(&format!("http://{address}{place}")).expect("a URL");
    let url = base.join(file.leaves.as_deref()?).expect("a reference");
    Some(LeafList::parse(&get(address, url.path()).body).expect("a leaf list"))
}

/// Returns the files of a Metalink by name, each fetched from its URL and verified by its leaf list.
fn files_of(address: SocketAddr, place: &str) -> BTreeMap<String, Vec<u8>> {
    let got = get(address, place);
    assert_eq!((got.status, got.field("content-type")), (200, Some("application/metalink4+xml")), "{place}");
    let listed = |file: metalink::File| {
        let [mirror] = &file.mirrors[..] else { panic!("one URL: {file:?}") };
        assert_eq!(format!("{}:{}", mirror.url.host(), mirror.url.port()), address.to_string());
        let bytes = get(address, mirror.url.path()).body;
        let id = ContentId::of(&bytes);
        assert_eq!(file.content(), Some(id), "{}", file.name);
        let list = leaf_list(address, place, &file);
        assert_eq!(list.map(|list| list.id()), (id.blocks() > 1).then_some(id));
        (file.name, bytes)
    };
    Metalink::parse(&got.body).expect("a Metalink").files.into_iter().map(listed).collect()
}

#[test]
fn a_directory_has_a_metalink_of_all_its_files() {
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path().join("d & co");
    fs::create_dir_all(root.join("sub/deep:er")).expect("directories");
    fs::create_dir(root.join("empty")).expect("a directory");
    let (large, list) = (noise(50_000), noise(20_000));
    let all = [
        ("sub/deep:er/x", &large[..]),
        ("sub/deep:er/x.b3leaves", &list),
        ("sub/a&b%41.txt", &large[..40_000]),
        ("none", b""),
        ("z.meta4", b"not made"),
        ("z/y", b"y"),
    ];
    fs::create_dir(root.join("z")).expect("a directory");
    for (name, bytes) in all {
        fs::write(root.join(name), bytes).expect("a file");
    }
    let (server, address) = start(&root, &[]);
    let below = |directory: &str| -> BTreeMap<String, Vec<u8>> {
        all.iter().filter_map(|(n, b)| Some((n.strip_prefix(directory)?.to_owned(), b.to_vec()))).collect()
    };
    let id = server.uri().parse::<anabranch_mmtp::uri::Uri>().expect("a URI").id;
    let by_content = format!("/b3/{}", base32(&id));
    for (place, directory) in [
        ("/d%20%26%20co".to_owned(), ""),
        (by_content.clone(), ""),
        (format!("{by_content}/sub"), "sub/"),
        ("/d%20%26%20co/sub/deep%3Aer".to_owned(), "sub/deep:er/"),
    ] {
        assert!(files_of(address, &format!("{place}.meta4")) == below(directory), "{place}");
        let page = get(address, &format!("{place}/"));
        let link = format!("<..{}.meta4>; rel=\"describedby\"", at_root(&place));
        assert!(page.head.contains(&link), "{place}: {}", page.head);
        let page = String::from_utf8(page.body).expect("UTF-8");
        assert!(page.contains(&format!("<a href=\"..{}.meta4\">metalink</a>", at_root(&place))), "{page}");
    }
    let other =
        raw(address, b"GET /d%20%26%20co.meta4 HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n");
    let text = String::from_utf8(other.body).expect("UTF-8");
    assert_eq!(text.matches("<url>http://a.test/d%20%26%20co/").count(), all.len(), "{text}");
    // A fetch of the directory's URL uses its Metalink.
    let target = dir.path().join("got");
    fs::create_dir(&target).expect("a directory");
    for (place, here) in [("/d%20%26%20co/", "d & co"), ("/d%20%26%20co/sub/", "sub")] {
        let url = format!("http://{address}{place}");
        let got = Command::new(crate::common::program())
            .args(["get", &url])
            .current_dir(&target)
            .output()
            .expect("it starts");
        assert!(got.status.success(), "{place}: {}", String::from_utf8_lossy(&got.stderr));
        let directory = if here == "sub" { "sub/" } else { "" };
        for (name, bytes) in below(directory) {
            assert!(fs::read(target.join(here).join(&name)).expect("it is there") == bytes, "{name}");
        }
    }
    // A real file of this name comes first, and is not announced as a Metalink of the directory.
    assert_eq!(get(address, "/d%20%26%20co/z.meta4").body, b"not made");
    assert!(!get(address, "/d%20%26%20co/z/").head.contains("describedby"));
    assert!(!get(address, "/").head.contains("describedby"));
    assert_eq!(get(address, "/d%20%26%20co/empty.meta4").status, 404);
}

#[test]
fn no_metalink_is_better_than_one_of_some_of_the_files() {
    let dir = tempfile::tempdir().expect("a directory");
    for (case, name) in [&b"\xff"[..], b"new\nline"].into_iter().enumerate() {
        let root = dir.path().join(format!("d{case}"));
        fs::create_dir(&root).expect("a directory");
        fs::write(root.join("good"), b"good").expect("a file");
        fs::write(root.join(std::ffi::OsStr::from_bytes(name)), b"bad").expect("a file");
        let (_server, address) = start(&root, &[]);
        let none = get(address, &format!("/d{case}.meta4"));
        let why = String::from_utf8_lossy(&none.body);
        let shown = ["\\xff", "new\\nline"][case];
        assert!(none.status == 404 && why.contains("cannot have the name") && why.contains(shown), "{why}");
        assert!(!get(address, &format!("/d{case}/")).head.contains("describedby"));
        // Each file still has its own Metalink.
        let of_one = get(address, &format!("/d{case}/{}.meta4", anabranch_http::server::path::encode(name)));
        let file = &Metalink::parse(&of_one.body).expect("a Metalink").files[0];
        assert_eq!(file.content(), Some(ContentId::of(b"bad")));
        assert!(file.name.contains('\u{fffd}'), "{}", file.name);
    }
    let root = dir.path().join("many");
    fs::create_dir(&root).expect("a directory");
    for n in 1..metalink::FILES_MAX {
        fs::write(root.join(n.to_string()), b"").expect("a file");
    }
    fs::create_dir(root.join("more")).expect("a directory");
    fs::write(root.join("more/1"), b"").expect("a file");
    let (server, address) = start(&root, &["--quiet"]);
    let most = get(address, "/many.meta4").body;
    assert_eq!(Metalink::parse(&most).expect("a Metalink").files.len(), metalink::FILES_MAX);
    drop(server);
    fs::write(root.join("more/2"), b"").expect("a file");
    let (_server, address) = start(&root, &["--quiet"]);
    let none = get(address, "/many.meta4");
    let why = String::from_utf8_lossy(&none.body);
    assert!(none.status == 404 && why.contains("10001 files are below this"), "{why}");
    assert_eq!(get(address, "/many/more.meta4").status, 200);
}

#[test]
fn metalinks_and_leaf_lists() {
    for len in [0, 7, 16_384, 16_385, 700_000] {
        let content = noise(len);
        let (_dir, _server, address) = one_file(&content);
        let id = ContentId::of(&content);
        for path in ["/f".to_owned(), format!("/b3/{}", base32(&id)), format!("/b3/{}/f", base32(&id))] {
            let got = get(address, &format!("{path}.meta4"));
            assert_eq!(got.field("content-type"), Some("application/metalink4+xml"), "{path}");
            let text = String::from_utf8(got.body).expect("UTF-8");
            assert!(text.contains(&format!("<size>{len}</size>")), "{text}");
            assert!(text.contains(&format!("<hash type=\"blake3\">{}</hash>", hexadecimal(&id))), "{text}");
            assert!(text.contains("<file name=\"f\">"), "{text}");
            assert!(text.contains(&format!("<url>http://{address}{path}</url>")), "{text}");
            let file = &Metalink::parse(text.as_bytes()).expect("a Metalink").files[0];
            assert_eq!(file.leaves.is_some(), id.blocks() > 1, "one block needs no list");
            if let Some(list) = leaf_list(address, &format!("{path}.meta4"), file) {
                assert_eq!((list.id(), file.content()), (id, Some(id)));
                let beside = file.sibling_leaf_list().expect("it is beside the Metalink");
                assert_eq!(format!("/{}", String::from_utf8_lossy(&beside)), at_root(&path) + ".b3leaves");
            }

            let got = get(address, &format!("{path}.b3leaves"));
            assert_eq!((got.status, got.length()), (200, got.body.len()));
            let (head, leaves) = got.body.split_at(56);
            assert_eq!(head[..16], *b"anb3leaf\x01\0\0\0\0\x40\0\0");
            assert_eq!(head[16..48], id.root);
            assert_eq!(head[48..], (len as u64).to_le_bytes());
            let leaves: Vec<ChainingValue> =
                leaves.chunks(32).map(|cv| cv.try_into().expect("32 bytes")).collect();
            assert_eq!(leaves.len() as u64, if id.blocks() > 1 { id.blocks() } else { 0 });
            if id.blocks() > 1 {
                assert_eq!(root_of_leaves(leaves), Some(id.root));
            }
            let part = ask(address, "GET", &format!("{path}.b3leaves"), &[("Range", "bytes=40-70")]);
            assert!(part.body == got.body[40..got.body.len().min(71)]);
        }
    }
}

#[test]
fn real_files_come_before_made_ones() {
    let dir = tempfile::tempdir().expect("a directory");
    let root = dir.path().join("d");
    fs::create_dir(&root).expect("a directory");
    for name in ["f", "f.meta4", "f.b3leaves"] {
        fs::write(root.join(name), name).expect("a file");
    }
    let (_server, address) = start(&root, &[]);
    let got = get(address, "/d/f");
    assert!(!got.head.contains("describedby"), "{}", got.head);
    assert_eq!(get(address, "/d/f.meta4").body, b"f.meta4");
    assert_eq!(get(address, "/d/f.b3leaves").body, b"f.b3leaves");
    assert!(get(address, "/d/f.meta4.meta4").body.starts_with(b"<?xml"));
}

#[test]
fn a_file_that_changes_is_refused_not_sent_wrong() {
    let content = noise(40_000_000);
    let (dir, server, address) = one_file(&content);
    let path = dir.path().join("f");
    // The file changes in the middle of the body: the answer ends early.
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.write_all(format!("GET /f HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes()).expect("sent");
    let mut begin = vec![0; 100_000];
    stream.read_exact(&mut begin).expect("a beginning");
    thread::sleep(Duration::from_millis(20));
    let changed: Vec<u8> = content.iter().map(|byte| !byte).collect();
    fs::write(&path, &changed).expect("overwritten");
    let _ = stream.read_to_end(&mut begin);
    let head = begin.windows(4).position(|four| four == b"\r\n\r\n").expect("a head") + 4;
    let body = &begin[head..];
    assert!(body.len() < content.len(), "the body is short");
    assert!(*body == content[..body.len()], "and right as far as it goes");
    // The file changed before the body: the request is refused.
    for method in ["GET", "HEAD"] {
        assert_eq!(ask(address, method, "/f", &[]).status, 410);
    }
    fs::remove_file(&path).expect("removed");
    assert_eq!(get(address, "/f").status, 410);
    let totals = server.end();
    assert!(totals["changed"].as_u64() >= Some(4), "{totals}");
}

#[test]
fn a_file_that_is_gone_is_refused() {
    let (dir, _server, address) = one_file(b"x");
    fs::remove_file(dir.path().join("f")).expect("removed");
    assert_eq!(get(address, "/f").status, 410);
}

/// Each protocol gets half of the limit while both are busy: two readers by HTTP, and one by mmTP.
#[test]
fn the_limit_holds_for_all_together() {
    let _few = anabranch_net::testing::among_few();
    const LIMIT: f64 = 2e6;
    // The numbers of blocks, of the four megabytes, between which both rates are measured.
    const LOOKS: [usize; 2] = [30, 210];
    let ground = Ground::new(4_000_000);
    let (server, address) = start(&ground.source(), &["--limit", "16Mbit"]);
    let (by_http, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let clock = anabranch_net::Clock::start();
    let [first, last] = thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| read_again_and_again(address, &by_http, &is_over));
        }
        wait_until(60, || by_http.load(Ordering::Relaxed) > 200_000);
        let by_mmtp = spawn(ground.get(&[server.address], &[]));
        let looks = LOOKS.map(|blocks| {
            ground.wait_recorded(blocks);
            [(ground.recorded().len() * BLOCK_BYTES) as f64, by_http.load(Ordering::Relaxed) as f64]
        });
        by_mmtp.end().expect(0);
        is_over.store(true, Ordering::Relaxed);
        looks
    });
    ground.assert_arrived();
    let [mmtp, http] = [0, 1].map(|kind| last[kind] - first[kind]);
    assert!((0.5..1.7).contains(&(http / mmtp)), "by mmTP {mmtp} bytes, by HTTP {http} in the same time");
    let totals = server.end();
    let sent = ["sent_bytes", "http_bytes"].map(|some| totals[some].as_f64().expect("a number"));
    let used = sent.iter().sum::<f64>() / LIMIT / (clock.now().as_nanos() as f64 / 1e9);
    assert!((0.5..1.07).contains(&used), "{used} of the limit were used: {totals}");
}

/// Reads a file again and again, until `is_over` is set.
fn read_again_and_again(address: SocketAddr, bytes: &AtomicU64, is_over: &AtomicBool) {
    let mut buffer = vec![0; 1 << 16];
    while !is_over.load(Ordering::Relaxed) {
        let mut stream = TcpStream::connect(address).expect("a connection");
        write!(stream, "GET /source HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").expect("sent");
        while !is_over.load(Ordering::Relaxed) {
            match stream.read(&mut buffer).expect("it goes on") {
                0 => break,
                some => bytes.fetch_add(some as u64, Ordering::Relaxed),
            };
        }
    }
}

#[test]
fn connections_are_bounded() {
    const MAX: usize = anabranch_http::server::CONNECTIONS_MAX;
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("f");
    fs::write(&path, noise(20_000_000)).expect("a file");
    let (server, address) = start(&path, &["--limit", "8Mbit"]);
    // Connections that do nothing make room for others.
    let idle: Vec<TcpStream> = (0..MAX).map(|_| TcpStream::connect(address).expect("a connection")).collect();
    assert_eq!(ask(address, "HEAD", "/f", &[]).status, 200);
    drop(idle);
    // Connections that wait because of our own limit do not make room.
    let mut served: Vec<TcpStream> = Vec::new();
    for _ in 0..MAX {
        let mut stream = TcpStream::connect(address).expect("a connection");
        write!(stream, "GET /f HTTP/1.1\r\nHost: {address}\r\n\r\n").expect("sent");
        served.push(stream);
    }
    // Connections are counted when they are accepted.
    let mut last = None;
    wait_until(20, || {
        last = Some(ask(address, "HEAD", "/f", &[]));
        last.as_ref().is_some_and(|got| got.status == 503)
    });
    let got = last.expect("an answer");
    assert!(got.field("retry-after").is_some(), "{}", got.head);
    assert_eq!(got.field("connection"), Some("close"));
    served.truncate(10);
    wait_until(20, || ask(address, "HEAD", "/f", &[]).status == 200);
    drop(served);
    assert!(server.end()["http_turned_away"].as_u64() >= Some(1));
}

#[test]
fn an_interrupt_ends_it_in_mid_download() {
    let (_dir, server, address) = one_file(&noise(20_000_000));
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.write_all(b"GET /f HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
    let mut begin = vec![0; 1_000];
    stream.read_exact(&mut begin).expect("a beginning");
    let totals = server.end();
    assert_eq!(totals["http_requests"], 1, "{totals}");
    let _ = stream.read_to_end(&mut begin);
    assert!(begin.len() < 20_000_000);
}

#[test]
fn people_are_told_the_urls() {
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join("a b"), b"x").expect("a file");
    let said = serve_for_people(&dir.path().join("a b"), &["--http", "127.0.0.1:0"]);
    let (out, told) = (said.out, said.err);
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), 2, "{out}");
    assert!(lines[0].starts_with("anabranch:b3:"), "{out}");
    assert!(lines[1].starts_with("http://127.0.0.1:") && lines[1].ends_with("/a%20b"), "{out}");
    assert!(told.contains(&format!("curl -O {}", lines[1])), "{told}");
}

#[test]
fn what_cannot_be_listened_on_is_said() {
    let (dir, _server, address) = one_file(b"x");
    let path = dir.path().join("f");
    let mut command = anabranch();
    command.arg("serve").arg(path).args(["--no-cache", "--listen", "127.0.0.1:0"]);
    let output = command.args(["--http", &address.to_string()]).output().expect("an end");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("--http") && told.contains(&address.to_string()), "{told}");
}

/// Runs a program in `dir`; returns `None` if the program is not installed.
fn run(program: &str, dir: &Path, args: &[&str]) -> Option<std::process::Output> {
    let mut command = Command::new(program);
    command.args(args).current_dir(dir).stdin(Stdio::null()).env("no_proxy", "*").env_remove("http_proxy");
    match command.output() {
        Ok(output) => Some(output),
        Err(e) => {
            skipped(format!("{program}: {e}"));
            None
        }
    }
}

#[test]
fn curl_fetches_resumes_and_asks() {
    let content = noise(3_000_007);
    let (dir, _server, address) = one_file(&content);
    let to = dir.path().join("to");
    fs::create_dir(&to).expect("a directory");
    let url = format!("http://{address}/f");
    let Some(fetched) = run("curl", &to, &["-sSfO", &url]) else { return };
    assert!(fetched.status.success(), "{fetched:?}");
    assert!(fs::read(to.join("f")).expect("a file") == content);
    // Part of the file is there already.
    fs::write(to.join("f"), &content[..1_234_567]).expect("a part");
    let resumed = run("curl", &to, &["-sSfO", "-C", "-", &url]).expect("curl");
    assert!(resumed.status.success(), "{resumed:?}");
    assert!(fs::read(to.join("f")).expect("a file") == content);
    let part = run("curl", &to, &["-sSf", "-r", "100-199", &url]).expect("curl");
    assert!(part.stdout == content[100..200]);
    let head = run("curl", &to, &["-sSfI", &url]).expect("curl");
    assert!(String::from_utf8_lossy(&head.stdout).contains("3000007"));
    let missing = run("curl", &to, &["-sSf", &format!("http://{address}/g")]).expect("curl");
    assert_eq!(missing.status.code(), Some(22));
}

#[test]
fn curl_sees_that_a_body_is_short() {
    let content = noise(30_000_000);
    let (dir, _server, address) = one_file(&content);
    let mut command = Command::new("curl");
    command.args(["-sS", "--limit-rate", "10M", "-o", "got", &format!("http://{address}/f")]);
    let child = command.current_dir(dir.path()).stderr(Stdio::null()).spawn();
    let Ok(mut child) = child else {
        skipped("curl is not installed");
        return;
    };
    let part = dir.path().join("got");
    wait_until(20, || part.metadata().is_ok_and(|meta| meta.len() > 1_000_000));
    fs::write(dir.path().join("f"), b"something else").expect("overwritten");
    // curl ends with CURLE_PARTIAL_FILE (18), or with CURLE_RECV_ERROR (56) if it sees the reset first.
    assert!(matches!(child.wait().expect("its end").code(), Some(18 | 56)));
    let got = fs::read(&part).expect("a part");
    assert!(got.len() < content.len() && got == content[..got.len()]);
}

#[test]
fn aria2_and_wget_fetch_the_same() {
    let content = noise(30_000_007);
    let (dir, _server, address) = one_file(&content);
    let url = format!("http://{address}/f");
    for (program, args) in [
        ("aria2c", &["-q", "--no-conf", "-x4", "-s4", "-k1M", "-o", "got", &url][..]),
        ("aria2c", &["-q", "--no-conf", "-M", &format!("{url}.meta4")]),
        ("wget", &["-q", "--no-config", "-O", "got", &url]),
        ("wget", &["-q", "--no-config", "-r", "-nH", &format!("http://{address}/")]),
    ] {
        let to = tempfile::tempdir_in(dir.path()).expect("a directory");
        let mut args = args.to_vec();
        let meta = to.path().join("f.meta4");
        if let Some(at) = args.iter().position(|arg| *arg == "-M") {
            fs::write(&meta, get(address, "/f.meta4").body).expect("a file");
            args[at + 1] = "f.meta4";
        }
        let Some(output) = run(program, to.path(), &args) else { continue };
        assert!(output.status.success(), "{program}: {output:?}");
        let got = ["got", "f"].iter().find_map(|name| fs::read(to.path().join(name)).ok());
        assert!(got.expect("a file") == content, "{program} {args:?}");
    }
}

/// The URL that is printed for a directory can be fetched, although the URL of its list shows a page.
#[test]
fn the_url_of_a_directory_is_that_of_its_metalink() {
    let dir = tempfile::tempdir().expect("a directory");
    let album = dir.path().join("album");
    fs::create_dir(&album).expect("a directory");
    fs::write(album.join("one"), b"one").expect("a file");
    let said = serve_for_people(&album, &["--http", "127.0.0.1:0"]);
    let urls: Vec<&str> = said.out.lines().filter(|line| line.starts_with("http")).collect();
    assert!(matches!(urls[..], [url] if url.ends_with("/album.meta4")), "{}", said.out);
    assert!(said.err.contains("/album/"), "its list is named for browsers: {}", said.err);
    // If there is no Metalink, a message at the start says why.
    fs::write(album.join("a\u{1}b"), b"two").expect("a file");
    let said = serve_for_people(&album, &["--http", "127.0.0.1:0"]);
    assert!(!said.out.contains("http"), "{}", said.out);
    assert!(
        said.err.contains("has no Metalink, so receivers cannot fetch all of it over HTTP"),
        "{}",
        said.err
    );
}

/// A new mode or a new link of a file does not end its offer, and a message names files that are no longer
/// offered.
#[test]
fn a_mode_does_not_change_a_file_and_what_changed_is_named() {
    let content = noise(3_000_000);
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("f");
    fs::write(&path, &content).expect("a file");
    let mut command = anabranch();
    command.arg("serve").arg(&path).args(["--json", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
    let running = spawn(command);
    let listening = running.wait_event(|event| event["event"] == "listening");
    let address: SocketAddr =
        listening["http"][0].as_str().and_then(|at| at.parse().ok()).expect("an address");
    assert_eq!(get(address, "/f").status, 200);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("a mode");
    fs::hard_link(&path, dir.path().join("g")).expect("a link");
    wait_until(20, || get(address, "/f").status == 200);
    assert!(get(address, "/f").body == content);
    fs::write(&path, b"another").expect("overwritten");
    assert_eq!(get(address, "/f").status, 410);
    running.wait_said("is gone or not what was hashed any more, and is refused");
    running.signal(Signal::SIGTERM);
    let done = running.end().expect(0);
    assert!(done.err.contains(path.to_str().expect("UTF-8")), "{}", done.err);
}
