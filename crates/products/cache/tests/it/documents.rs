//! Documents and files that may change: HTTP's rules of caching.

use crate::bed::{Cache, Origin, Page, bytes};

#[test]
fn a_fresh_document_is_not_asked_for_and_a_stale_one_with_its_validator() {
    let origin = Origin::start();
    let cache = Cache::start("/debian", "apt", &[&origin]);
    let get = |path: &str| {
        let answer = cache.get(&format!("/debian{path}"));
        (answer.status, answer.text())
    };
    let page = |body: &str, control: &str| {
        let etag = Some(format!("\"{body}\""));
        Page { etag, ..Page::new(body) }.with(&format!("Cache-Control: {control}"))
    };
    let (fresh, stale, strict) = ("/a/InRelease", "/b/InRelease", "/c/InRelease");
    origin.put(fresh, page("one", "max-age=1000"));
    origin.put(stale, page("one", "max-age=0"));
    origin.put(strict, page("one", "max-age=0, must-revalidate"));
    for path in [fresh, stale, strict] {
        assert_eq!((get(path), get(path)), ((200, "one".into()), (200, "one".into())));
    }
    assert_eq!(origin.asked(fresh), ["/a/InRelease"]);
    assert_eq!(origin.asked(stale), ["/b/InRelease", "/b/InRelease \"one\""]);
    assert_eq!(cache.number("revalidated"), 2);
    // Changed ones are fetched.
    origin.put(stale, page("two", "max-age=0"));
    assert_eq!(get(stale), (200, "two".into()));
    // While the origin fails, a stale one is used unless that is forbidden.
    origin.set_away(true);
    assert_eq!((get(stale), get(fresh)), ((200, "two".into()), (200, "one".into())));
    let (status, text) = get(strict);
    assert_eq!(status, 502, "{text}");
    assert!(text.contains("InRelease: the server answers 500"), "{text}");
    assert_eq!(get("/d/InRelease").0, 502);
    origin.set_away(false);
    assert_eq!(get("/d/InRelease").0, 404);
}

#[test]
fn the_first_source_that_has_a_document_answers() {
    let (first, second) = (Origin::start(), Origin::start());
    let cache = Cache::start("/nix", "nix", &[&first, &second]);
    let name = format!("/{}.narinfo", "a".repeat(32));
    second.put(&name, Page::new("StorePath: x\n"));
    let answer = cache.get(&format!("/nix{name}"));
    assert_eq!((answer.status, answer.text().as_str()), (200, "StorePath: x\n"));
    assert_eq!(answer.field("content-type"), Some("text/x-nix-narinfo"));
    first.set_away(true);
    assert_eq!(cache.get(&format!("/nix{name}")).status, 200);
}

#[test]
fn a_document_for_one_client_is_not_kept() {
    let origin = Origin::start();
    let cache = Cache::start("/debian", "apt", &[&origin]);
    origin.put("/InRelease", Page::new("x").with("Cache-Control: private, max-age=1000"));
    assert_eq!((cache.get("/debian/InRelease").status, cache.files().len()), (200, 0));
    assert_eq!((cache.get("/debian/InRelease").status, origin.asked("/InRelease").len()), (200, 2));
}

#[test]
fn a_file_that_changes_is_fetched_anew() {
    let origin = Origin::start();
    let cache = Cache::start("/f", "files", &[&origin]);
    let page = |seed: u8| Page { etag: Some(format!("\"{seed}\"")), ..Page::new(bytes(2_000_000, seed)) };
    origin.put("/x.iso", page(1));
    let get = || cache.get("/f/x.iso");
    assert!(get().body == bytes(2_000_000, 1));
    cache.wait_until_stored(1);
    assert!(get().body == bytes(2_000_000, 1));
    assert_eq!((cache.number("misses"), cache.number("revalidated")), (1, 1));
    origin.put("/x.iso", page(2));
    assert!(get().body == bytes(2_000_000, 2));
    // An answer may end before its object is synced. Once it is, the origin is asked by the new tag.
    for _ in 0..2_000 {
        if cache.number("revalidated") >= 2 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
        assert!(get().body == bytes(2_000_000, 2));
    }
    assert_eq!(cache.number("revalidated"), 2);
    origin.set_away(true);
    assert!(get().body == bytes(2_000_000, 2), "a stale one is better than none");
    assert_eq!(cache.files().len(), 1);
}

#[test]
fn numbers_are_for_those_who_name_this_host() {
    let origin = Origin::start();
    let cache = Cache::start("/f", "files", &[&origin]);
    let evil = crate::bed::ask(cache.address(), "GET", "http://evil.example/status", "");
    assert_eq!(evil.status, 421);
    assert_eq!((cache.get("/nothing").status, cache.ask("POST", "/f/x", "").status), (404, 405));
}
