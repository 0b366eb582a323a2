//! What clients get of an image.

use std::thread;

use crate::bed::{Client, Ground, Site, bytes, get, path_of, root_of};

#[test]
fn an_object_comes_whole_in_part_and_not_at_all_as_the_standard_says() {
    let (object, small) = (bytes(3_000_000, 1), bytes(10, 2));
    let ground = Ground::new(200, &[&object, &small, b""]);
    let site = Site::start(&ground.path(), &[]);
    let path = path_of(&object);
    // All on one connection.
    let mut client = Client::connect(site.address());
    let whole = client.ask("GET", &path, "");
    assert!(whole.status == 200 && whole.body == object, "{}", whole.head);
    assert_eq!((whole.field("content-type"), whole.field("accept-ranges")), ("text/x-test", "bytes"));
    let etag = whole.field("etag").to_owned();
    assert_eq!(etag, format!("\"{}\"", &path[1..]));
    let part = client.ask("GET", &path, "Range: bytes=999990-2000009\r\n");
    assert!(part.status == 206 && part.body == object[999_990..2_000_010], "{}", part.head);
    assert_eq!(part.field("content-range"), "bytes 999990-2000009/3000000");
    let last = client.ask("GET", &path, &format!("Range: bytes=-5\r\nIf-Range: {etag}\r\n"));
    assert!(last.status == 206 && last.body == object[2_999_995..]);
    let other = client.ask("GET", &path, "Range: bytes=-5\r\nIf-Range: \"x\"\r\n");
    assert!(other.status == 200 && other.body == object);
    assert_eq!(client.ask("GET", &path, "Range: bytes=3000000-\r\n").status, 416);
    assert_eq!(client.ask("GET", &path, &format!("If-None-Match: {etag}\r\n")).status, 304);
    assert_eq!(client.ask("GET", &path, "If-Match: \"x\"\r\n").status, 412);
    let head = client.ask("HEAD", &path, "Range: bytes=0-0\r\n");
    assert_eq!((head.status, head.field("content-length")), (200, "3000000"));
    let root = client.ask("GET", &format!("/{}", root_of(&small)), "");
    assert!(root.status == 200 && root.body == small);
    let blob = client.ask("GET", &format!("/v2/a/b/blobs{}", path_of(&small)), "");
    assert!(blob.status == 200 && blob.body == small);
    let empty = client.ask("GET", &path_of(b""), "");
    assert_eq!((empty.status, empty.field("content-length")), (200, "0"));
    for (path, status) in [
        (path_of(b"not there"), 404),
        ("/".to_owned(), 404),
        ("/sha256:00".to_owned(), 404),
        ("/../etc/passwd".to_owned(), 404),
        ("/v2/".to_owned(), 200),
        ("/status".to_owned(), 200),
    ] {
        assert_eq!(client.ask("GET", &path, "").status, status, "{path}");
    }
    assert_eq!(client.ask("POST", &path, "").status, 405);
    let foreign = b"GET /status HTTP/1.1\r\nHost: evil.example\r\n\r\n";
    client.send(foreign);
    assert_eq!(client.answer(false).status, 421);
    // Several requests in one packet are answered in their order.
    client.send(format!("GET {} HTTP/1.1\r\nHost: a\r\n\r\n", path_of(&small)).repeat(100).as_bytes());
    for _ in 0..100 {
        assert!(client.answer(false).body == small);
    }
    let status = get(site.address(), "/status").text();
    assert!(status.contains("\"objects\":3") && status.contains("\"damaged\":0"), "{status}");
    anabranch_net::prometheus::check(&get(site.address(), "/metrics").text());
}

#[test]
fn what_is_no_request_ends_the_connection() {
    let ground = Ground::new(10, &[]);
    let site = Site::start(&ground.path(), &[]);
    for (request, status) in [
        (&b"\x16\x03\x01\r\n\r\n"[..], 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (&[b"GET / HTTP/1.1\r\nHost: a\r\nx: ".as_slice(), &[b'a'; 20 << 10]].concat(), 431),
        (b"GET / HTTP/1.0\r\n\r\n", 404),
    ] {
        let mut client = Client::connect(site.address());
        client.send(request);
        assert_eq!(client.answer(false).status, status);
        assert_eq!(client.read(&mut [0]), 0, "it is closed");
    }
}

#[test]
fn a_damaged_block_is_never_sent() {
    let (early, late) = (bytes(1_000_000, 3), bytes(2_000_000, 4));
    let ground = Ground::new(100, &[&early, &late]);
    ground.damage(&early, 100_000);
    ground.damage(&late, 1_500_000);
    let site = Site::start(&ground.path(), &[]);
    let answer = get(site.address(), &path_of(&early));
    assert_eq!(answer.status, 500, "{}", answer.head);
    assert!(answer.text().contains("block 6 is not what was written"), "{}", answer.text());
    let after = Client::connect(site.address()).ask("GET", &path_of(&early), "Range: bytes=200000-\r\n");
    assert!(after.status == 206 && after.body == early[200_000..], "other blocks are right");
    let cut = get(site.address(), &path_of(&late));
    assert_eq!((cut.status, cut.field("content-length")), (200, "2000000"));
    assert!(cut.body.len() < 1_500_000 && cut.body == late[..cut.body.len()], "it is not taken for whole");
    assert!(site.told().contains(&path_of(&late)[1..]), "{}", site.told());
}

#[test]
fn a_few_hundred_streams_at_once_are_all_right() {
    let object = bytes(400_000, 5);
    let ground = Ground::new(100, &[&object]);
    let site = Site::start(&ground.path(), &[]);
    let mut clients: Vec<Client> = (0..300).map(|_| Client::connect(site.address())).collect();
    let path = path_of(&object);
    // All ask before one reads: the server holds the rest back.
    for client in &mut clients {
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
    }
    let mut parts = clients.chunks_mut(75);
    thread::scope(|scope| {
        for part in &mut parts {
            let object = &object;
            scope.spawn(move || {
                part.iter_mut().for_each(|client| assert!(client.answer(false).body == *object));
            });
        }
    });
}
