//! Objects that have a hash: verified, kept, and fetched once for all.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::thread;
use std::time::Duration;

use anabranch_cache::gateway::Event;

use crate::bed::{Cache, Origin, Page, bytes, sha256};

fn blob(body: &[u8]) -> String {
    format!("/v2/a/blobs/sha256:{}", sha256(body))
}

#[test]
fn the_first_request_fetches_and_the_others_are_answered_from_the_disk() {
    let (origin, body) = (Origin::start(), bytes(3_000_000, 1));
    let path = blob(&body);
    origin.put(&path, Page::new(body.clone()));
    let cache = Cache::start("/", "oci", &[&origin]);
    let first = cache.get(&path);
    assert_eq!((first.status, first.field("cache-status")), (200, Some("anabranch; fwd=miss")));
    assert!(first.is_whole() && first.body == body);
    cache.wait_until_stored(1);
    let asked = origin.asked(&path).len();
    let again = cache.get(&path);
    assert_eq!((again.status, again.field("cache-status")), (200, Some("anabranch; hit")));
    assert!(again.body == body);
    assert_eq!(origin.asked(&path).len(), asked, "nothing was asked for again");
    let etag = again.field("etag").expect("a tag");
    assert_eq!(first.field("etag"), Some(etag));
    let same = cache.ask("GET", &path, &format!("If-None-Match: {etag}\r\n"));
    assert_eq!((same.status, same.body.len()), (304, 0));
    let head = cache.ask("HEAD", &path, "");
    assert_eq!((head.status, head.field("content-length"), head.body.len()), (200, Some("3000000"), 0));
    let part = cache.ask("GET", &path, "Range: bytes=20000-2000000\r\n");
    assert_eq!((part.status, part.field("content-range")), (206, Some("bytes 20000-2000000/3000000")));
    assert!(part.body == body[20_000..=2_000_000]);
    assert_eq!(cache.get("/v2/a/blobs/other").status, 404);
    let metrics = cache.get("/metrics").text();
    anabranch_net::prometheus::check(&metrics);
    assert!(metrics.contains("anabranch_cache_misses_total 1\n"), "{metrics}");
    // A restart keeps it.
    let cache = Cache::start_in(cache.stop(), "/", "oci", &[&origin], "");
    assert!(cache.get(&path).body == body);
    assert_eq!(origin.asked(&path).len(), asked);
}

#[test]
fn wrong_bytes_are_never_an_answer() {
    let (liar, honest, body) = (Origin::start(), Origin::start(), bytes(400_000, 1));
    let path = blob(&body);
    let mut wrong = body.clone();
    wrong[399_999] ^= 1;
    liar.put(&path, Page::new(wrong));
    let cache = Cache::start("/", "oci", &[&liar, &honest]);
    let refused = cache.get(&path);
    assert_eq!(refused.status, 502, "{}", refused.text());
    assert!(refused.text().contains("does not have the hash"), "{}", refused.text());
    assert_eq!((cache.files().len(), cache.number("failed")), (0, 1));
    honest.put(&path, Page::new(body.clone()));
    cache.events.lock().unwrap().clear();
    let answer = cache.get(&path);
    assert!(answer.status == 200 && answer.body == body, "{} {}", answer.head, answer.text());
    let liar = format!("{}{path}", liar.url());
    let named = cache.events.lock().unwrap().clone();
    let is_liar = |event: &Event| matches!(event, Event::WrongBytes { source, .. } if *source == liar);
    assert!(named.iter().all(is_liar), "{named:?}");
}

#[test]
fn a_long_object_that_turns_out_wrong_is_cut_off_before_its_end() {
    let (liar, honest, body) = (Origin::start(), Origin::start(), bytes(3_000_000, 1));
    let path = blob(&body);
    let mut wrong = body.clone();
    wrong[7] ^= 1;
    liar.put(&path, Page::new(wrong));
    let cache = Cache::start("/", "oci", &[&liar, &honest]);
    let answer = cache.get(&path);
    assert!(answer.status == 502 || !answer.is_whole(), "{}", answer.head);
    assert_eq!(cache.files().len(), 0);
    // The next one gets the right bytes, if a source has them.
    honest.put(&path, Page::new(body.clone()));
    let answers = [cache.get(&path), cache.get(&path), cache.get(&path)];
    assert!(answers.iter().all(|answer| !answer.is_whole() || answer.body == body));
    assert!(answers[2].body == body);
}

#[test]
fn many_askers_share_one_fetch() {
    let (origin, body) = (Origin::start(), bytes(4_000_000, 1));
    let path = blob(&body);
    let pause = Duration::from_millis(5);
    origin.put(&path, Page { pause, ..Page::new(body.clone()) });
    let cache = Cache::start("/", "oci", &[&origin]);
    thread::scope(|scope| {
        let askers: Vec<_> = (0..40).map(|_| scope.spawn(|| cache.get(&path))).collect();
        for asker in askers {
            let answer = asker.join().unwrap();
            assert!(answer.status == 200 && answer.body == body, "{}", answer.head);
        }
    });
    assert_eq!((cache.number("misses"), cache.number("joined") + cache.number("hits")), (1, 39));
    let fetched = cache.number("fetched_bytes");
    assert_eq!(fetched, 4_000_000);
}

#[test]
fn the_end_of_a_cache_ends_its_fetches() {
    let (origin, body) = (Origin::start(), bytes(4_000_000, 1));
    let path = blob(&body);
    let pause = Duration::from_millis(500);
    origin.put(&path, Page { pause, ..Page::new(body) });
    let cache = Cache::start("/", "oci", &[&origin]);
    let url = cache.address();
    let asker = thread::spawn(move || crate::bed::ask(url, "GET", &path, ""));
    while cache.number("misses") == 0 {
        thread::sleep(Duration::from_millis(5));
    }
    // The store can be opened again at once.
    drop(Cache::start_in(cache.stop(), "/", "oci", &[&origin], ""));
    drop(asker.join());
}

#[test]
fn a_damaged_block_is_fetched_anew_and_named() {
    let (origin, body) = (Origin::start(), bytes(1_000_000, 1));
    let path = blob(&body);
    origin.put(&path, Page::new(body.clone()));
    let cache = Cache::start("/", "oci", &[&origin]);
    assert!(cache.get(&path).body == body);
    cache.wait_until_stored(1);
    let file = File::options().write(true).open(&cache.files()[0]).unwrap();
    file.write_all_at(b"damage", 500_000).unwrap();
    let answer = cache.get(&path);
    assert!(answer.body == body, "{} bytes", answer.body.len());
    let url = format!("{}{path}", origin.url());
    let damaged = |repaired| Event::Damaged { url: url.clone(), block: 30, repaired };
    assert_eq!(*cache.events.lock().unwrap(), [damaged(true)]);
    assert_eq!((cache.number("repaired_blocks"), cache.number("damaged")), (1, 1));
    // If it cannot be had, the answer is broken off, and the object is gone.
    file.write_all_at(b"damage", 500_000).unwrap();
    origin.remove(&path);
    let answer = cache.get(&path);
    assert!(!answer.is_whole() && answer.body == body[..answer.body.len()]);
    assert!(cache.events.lock().unwrap().contains(&damaged(false)));
    assert_eq!((cache.files().len(), cache.get(&path).status), (0, 404));
    origin.put(&path, Page::new(body.clone()));
    assert!(cache.get(&path).body == body);
}
