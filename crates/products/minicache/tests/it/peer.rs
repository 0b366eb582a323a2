//! Peer mode: what is missing comes from origins.

use std::io::Read as _;
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use anabranch_minicache::image::{Image, Use};
use anabranch_mmtp::ContentId;
use anabranch_mmtp::uri::Uri;

use crate::bed::{Client, Ground, Site, bytes, get, path_of, root_of};

#[test]
fn a_miss_is_fetched_once_verified_and_kept() {
    let (object, small) = (bytes(1_300_000, 1), bytes(5, 2));
    let far = Ground::new(100, &[&object, &small, b""]);
    let origin = Site::start(&far.path(), &[]);
    let near = Ground::new(100, &[]);
    let site = Site::start(&near.path(), &[origin.url()]);
    thread::scope(|scope| {
        for n in 0..20_u64 {
            let (address, object) = (site.address(), &object);
            scope.spawn(move || {
                let mut client = Client::connect(address);
                let range = format!("Range: bytes={}-\r\n", n * 1_000);
                let answer = client.ask("GET", &path_of(object), &range);
                assert!(answer.status == 206 && answer.body == object[n as usize * 1_000..], "{answer:?}");
            });
        }
    });
    for bytes in [&small[..], b""] {
        let answer = get(site.address(), &path_of(bytes));
        assert!(answer.status == 200 && answer.body == bytes, "{answer:?}");
    }
    assert_eq!(get(site.address(), &path_of(b"nowhere")).status, 404);
    let status = get(site.address(), "/status").text();
    assert!(status.contains("\"fetched\":3") && status.contains("\"not_fetched\":1"), "{status}");
    drop(site);
    drop(origin);
    // All is there without the origin.
    let site = Site::start(&near.path(), &[]);
    let answer = get(site.address(), &format!("/{}", root_of(&object)));
    assert!(answer.status == 200 && answer.body == object);
}

/// Starts a server that has the wrong bytes under every name.
fn liar(body: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let body = body.clone();
            thread::spawn(move || serve(&stream, &body));
        }
    });
    url
}

/// Answers every request on a connection with all of `body`.
fn serve(stream: &std::net::TcpStream, body: &[u8]) {
    use std::io::{BufRead as _, BufReader, Write as _};
    let mut from = BufReader::new(stream);
    loop {
        let mut is_head = false;
        loop {
            let mut line = String::new();
            match from.read_line(&mut line) {
                Ok(1..) => is_head |= line.starts_with("HEAD"),
                _ => return,
            }
            if line == "\r\n" {
                break;
            }
        }
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        let body = if is_head { &[][..] } else { body };
        if (&*stream).write_all(&[head.as_bytes(), body].concat()).is_err() {
            return;
        }
    }
}

#[test]
fn a_liar_spoils_nothing_and_is_passed_over() {
    let object = bytes(200_000, 7);
    let far = Ground::new(20, &[&object]);
    let origin = Site::start(&far.path(), &[]);
    let wrong = liar(bytes(200_000, 8));
    let near = Ground::new(20, &[]);
    let site = Site::start(&near.path(), std::slice::from_ref(&wrong));
    let path = path_of(&object);
    let answer = get(site.address(), &path);
    assert_eq!(answer.status, 502, "{answer:?}");
    assert_eq!(get(site.address(), &format!("/{}", root_of(&object))).status, 502);
    assert!(site.told().contains(&path[1..]), "{}", site.told());
    drop(site);
    let image = Image::open(&near.path(), Use::Read).unwrap();
    assert_eq!((image.room().objects, image.room().used_chunks), (0, 0));
    drop(image);
    let site = Site::start(&near.path(), &[wrong, origin.url()]);
    let answer = get(site.address(), &path);
    assert!(answer.status == 200 && answer.body == object, "{}", answer.text());
}

#[test]
fn a_full_image_gives_up_what_was_used_least_recently_and_damage_is_fetched_anew() {
    let objects: Vec<Vec<u8>> = (0..4).map(|n| bytes(300_000, 20 + n)).collect();
    let all: Vec<&[u8]> = objects.iter().map(Vec::as_slice).collect();
    let far = Ground::new(100, &all);
    let origin = Site::start(&far.path(), &[]);
    // Room for three objects of five chunks.
    let near = Ground::new(16, &[]);
    let site = Site::start(&near.path(), &[origin.url()]);
    let ask = |object: &[u8]| {
        let answer = get(site.address(), &path_of(object));
        assert!(answer.status == 200 && answer.body == object, "{}", answer.text());
    };
    objects.iter().for_each(|object| ask(object));
    assert!(site.serving.image().table().find(&root_of(&objects[3])).is_some());
    assert_eq!(site.serving.image().room().objects, 3);
    let too_large = bytes(2_000_000, 40);
    let far = Ground::new(100, &[&too_large]);
    drop(site);
    near.damage(&objects[3], 299_000);
    near.damage(&objects[3], 1);
    let site = Site::start(&near.path(), &[origin.url()]);
    let answer = get(site.address(), &path_of(&objects[3]));
    assert!(answer.status == 200 && answer.body == objects[3], "{}", answer.text());
    assert!(site.told().contains("not what was written"), "{}", site.told());
    drop(site);
    let origin = Site::start(&far.path(), &[]);
    let site = Site::start(&near.path(), &[origin.url()]);
    assert_eq!(get(site.address(), &path_of(&too_large)).status, 507);
    assert_eq!(site.serving.image().room().objects, 3, "what cannot fit pushes nothing out");
}

#[test]
fn objects_come_by_mmtp_and_damage_does_not() {
    let (object, one) = (bytes(5_000_000, 60), bytes(9, 61));
    let ground = Ground::new(200, &[&object, &one]);
    let site = Site::start(&ground.path(), &[]);
    let fetch = |site: &Site, bytes: &[u8]| {
        let id = ContentId::of(bytes);
        let from = vec![site.serving.mmtp_address().unwrap().to_string()];
        let uri = Uri { from, ..Uri::new(id) }.to_string();
        let get = anabranch::Get::new([uri]).unwrap().via("lo").timeout(Duration::from_secs(20));
        let mut got = Vec::new();
        get.read().unwrap().read_to_end(&mut got).map(|_| got)
    };
    assert!(fetch(&site, &object).unwrap() == object);
    assert!(fetch(&site, &one).unwrap() == one);
    assert!(fetch(&site, b"not there").is_err());
    let status = get(site.address(), "/status").text();
    assert!(!status.contains("\"mmtp_packets\":0"), "{status}");
    drop(site);
    ground.damage(&object, 4_000_000);
    let site = Site::start(&ground.path(), &[]);
    assert!(fetch(&site, &object).is_err(), "the block is not sent");
    assert!(site.told().contains("block 244 is not what was written"), "{}", site.told());
}
