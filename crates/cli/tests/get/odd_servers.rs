//! Honest servers that answer in odd ways: the file arrives unchanged, or the error says what is wrong.

use std::fs;

use crate::common::fetch::{Done, Ground, checksum, names, run};
use crate::peers::site::{PATH, Reply, Request, Site, Then, honest};

/// A length that is larger than the first request.
const LENGTH: usize = 40_960;

/// Answers a request for a part with that part and this status. `range` makes `Content-Range` from the first
/// byte, the byte after the last, and the file's length.
fn part(content: &[u8], request: &Request, status: u16, range: fn(usize, usize, usize) -> String) -> Reply {
    match request.range() {
        None => Reply::new(200, content),
        Some(asked) => {
            let end = asked.end.min(content.len());
            let range = range(asked.start, end, content.len());
            Reply::new(status, &content[asked.start..end]).with("content-range", range)
        }
    }
}

/// Gets these URLs into the ground's target, and removes it.
fn gets(ground: &Ground, urls: &[String], more: &[&str]) {
    run(ground.get_named(urls, more)).expect(0);
    ground.assert_arrived();
    fs::remove_file(ground.target()).expect("the file");
}

#[test]
fn an_archive_that_is_labelled_as_coded_is_stored_as_it_comes() {
    let ground = Ground::new(LENGTH);
    let content = ground.content.clone();
    let site = Site::answering(move |request| match request.path.as_str() {
        "/x.tar.gz" | "/x.tar" => {
            part(&content, request, 206, |first, end, length| format!("bytes {first}-{}/{length}", end - 1))
                .with("content-encoding", "x-gzip")
        }
        _ => Reply::new(404, b""),
    });
    gets(&ground, &[format!("http://{}/x.tar.gz", site.address)], &[]);
    let done = run(ground.get_named(&[format!("http://{}/x.tar", site.address)], &[])).expect(3);
    assert!(done.err.contains("sends it compressed (x-gzip)"), "{}", done.err);
}

#[test]
fn a_query_goes_out_as_it_was_given() {
    let ground = Ground::new(1_000);
    let content = ground.content.clone();
    let path = format!("{PATH}?n='a'&m=%27&sig=1");
    let wanted = path.clone();
    let site = Site::answering(move |request| match request.path == wanted {
        true => Reply::new(200, &content),
        false => Reply::new(403, b""),
    });
    gets(&ground, &[format!("http://{}{path}", site.address)], &[]);
}

#[test]
fn the_login_in_the_url_selects_among_those_of_a_netrc_and_a_scheme_is_named() {
    let ground = Ground::new(1_000);
    let netrc = ground.dir.path().join("netrc");
    let entry = |login: &str| format!("machine 127.0.0.1 login {login} password of-{login}\n");
    fs::write(&netrc, entry("alice") + &entry("bob")).expect("a file");
    let content = ground.content.clone();
    let site =
        Site::answering(move |request| match (request.path.as_str(), request.field("authorization")) {
            // This is bob:of-bob.
            (PATH, Some("Basic Ym9iOm9mLWJvYg==")) => Reply::new(200, &content),
            (PATH, _) => Reply::new(401, b"").with("www-authenticate", "Basic realm=\"x\""),
            _ => Reply::new(401, b"").with("www-authenticate", "Digest realm=\"x, Basic\", nonce=\"n\""),
        });
    let netrc = format!("--netrc={}", netrc.display());
    gets(&ground, &[format!("http://bob@{}{PATH}", site.address)], &[&netrc]);
    let done = run(ground.get_named(&[format!("http://bob:x@{}/digest", site.address)], &[])).expect(9);
    assert!(done.err.contains("scheme Digest, and only Basic"), "{}", done.err);
}

#[test]
fn no_proxy_may_be_an_asterisk() {
    let ground = Ground::new(1_000);
    let site = Site::good(&ground.content);
    let mut command = ground.get_named(&[site.url()], &[]);
    command.env("http_proxy", "http://127.0.0.1:9").env("no_proxy", "*");
    run(command).expect(0);
    ground.assert_arrived();
}

#[test]
fn relative_urls_of_a_metalink_are_seen_from_it() {
    let ground = Ground::new(1_000);
    let content = ground.content.clone();
    let list = "<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\"><file name=\"f\"><url>../f.bin</url>\
                </file></metalink>";
    let site = Site::answering(move |request| match request.path.as_str() {
        PATH => Reply::new(200, &content),
        "/lists/f.meta4" => Reply::new(200, list.as_bytes()),
        _ => Reply::new(404, b""),
    });
    gets(&ground, &[format!("http://{}/lists/f.meta4", site.address)], &[]);
    let file = ground.dir.path().join("f.meta4");
    fs::write(&file, list).expect("a file");
    let done = run(ground.get_named(&[file], &[])).expect(2);
    assert!(done.err.contains("only relative URLs"), "{}", done.err);
}

#[test]
fn a_zone_in_a_url_leads_to_the_option() {
    let ground = Ground::new(1);
    let done = run(ground.get_named(&["http://[fe80::1%25lo]:8099/f.bin"], &[])).expect(2);
    assert!(done.err.contains("--via"), "{}", done.err);
}

/// A change to a mirror's answers.
trait Twist: Fn(&Request, Reply) -> Reply + Clone + Send + Sync + 'static {}
impl<T: Fn(&Request, Reply) -> Reply + Clone + Send + Sync + 'static> Twist for T {}

/// Fetches from this mirror alone.
fn alone(len: usize, twist: impl Twist, more: &[&str]) -> (Ground, Done) {
    let ground = Ground::new(len);
    let bad = Site::new(&ground.content, twist);
    let done = run(ground.get_named(&[bad.url()], &[&["--json"], more].concat()));
    (ground, done)
}

#[test]
fn lengths_that_no_file_has() {
    for length in ["18446744073709551615", "9007199254740992", "4503599627370496", "x", "-1"] {
        // Only a valid part is believed at all.
        let twist = move |request: &Request, reply: Reply| match request.range() {
            Some(range) => {
                reply.with("content-range", format!("bytes {}-{}/{length}", range.start, range.end - 1))
            }
            None => reply.with("content-length", length),
        };
        let (ground, done) = alone(3_000_000, twist, &["--timeout", "3"]);
        assert!(matches!(done.code, Some(1 | 3 | 4 | 6)), "{length}: {:?} {}", done.code, done.err);
        assert!(done.err.starts_with("anabranch: "), "{length}: {}", done.err);
        let is_too_long = length.len() > 1 && length != "-1";
        assert_eq!(done.err.contains("says it is, is too long"), is_too_long, "{length}: {}", done.err);
        assert!(names(&ground.to()).is_empty(), "{length}: {:?}", names(&ground.to()));
    }
}

/// A link leads to one mirror but silently not to another, which is then asked over the next link.
#[test]
fn a_mirror_that_the_first_link_does_not_reach() {
    let ground = Ground::new(8_000_000);
    let near = Site::slow(&ground.content, 2_000_000);
    let far = Site::new(&ground.content, |request, mut reply| {
        if request.from.ip().to_string() == "127.0.0.1" {
            reply.then = Then::Mute;
        }
        reply.at(4_000_000)
    });
    let via = ["--json", "--via", "127.0.0.1", "--via", "127.0.0.77"];
    let done = run(ground.get_named(&[near.url(), far.url()], &via)).expect(0);
    ground.assert_arrived();
    assert!(!done.notes().contains("no answer yet"), "{}", done.notes());
    assert!(far.body_bytes() > 2_000_000, "{}", far.body_bytes());
}

/// If there are more URLs than are asked, a message says so, even if none of the asked servers has the file.
#[test]
fn what_is_not_asked_is_said() {
    let ground = Ground::new(50_000);
    let content = ground.content.clone();
    let site = Site::answering(move |request| match request.path.contains("none") {
        true => Reply::new(404, b"no such file"),
        false => honest(request, &content, "\"v1\""),
    });
    for (what, code) in [("some", 0), ("none", 3)] {
        let urls: Vec<String> = (0..70).map(|n| format!("{}?{what}{n}", site.url())).collect();
        let done = run(ground.get_named(&urls, &["-q", &checksum(&ground.content)])).expect(code);
        assert!(
            done.err.contains("64 URLs are asked at most, the first ones: 6 more are not"),
            "{}",
            done.err
        );
    }
}
