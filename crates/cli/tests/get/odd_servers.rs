//! Honest servers that answer in odd ways: the file arrives as it is, or the error says what is wrong.

use std::fs;

use crate::common::fetch::{Ground, run};
use crate::peers::site::{PATH, Reply, Request, Site};

/// A length that is longer than what is asked for first.
const LENGTH: usize = 40_960;

/// What a request for a part is answered by: the part, with this status, and what `Content-Range` says of its
/// first byte, the byte behind it, and the file's length.
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

/// A server that sends no more than so many bytes of a range.
fn sends_at_most(content: &[u8], most: usize) -> Site {
    let content = content.to_vec();
    Site::new(&content.clone(), move |request, reply| match request.range() {
        Some(range) => {
            let end = range.end.min(range.start + most).min(content.len());
            let said = format!("bytes {}-{}/{}", range.start, end - 1, content.len());
            Reply::new(206, &content[range.start..end]).with("content-range", said)
        }
        None => reply,
    })
}

/// Gets this into the ground's target.
fn gets(ground: &Ground, urls: &[String], more: &[&str]) {
    run(ground.get_named(urls, more)).expect(0);
    ground.assert_arrived();
    fs::remove_file(ground.target()).expect("the file");
}

/// Writes a `Content-Range` from the first byte, the end and the length.
type ContentRange = fn(usize, usize, usize) -> String;

#[test]
fn an_answer_that_is_not_a_clean_part_is_not_taken_for_the_file() {
    let ground = Ground::new(LENGTH);
    let odd: [(u16, ContentRange); 3] = [
        // The status of the whole, and only the part.
        (200, |first, end, length| format!("bytes {first}-{}/{length}", end - 1)),
        // The total is the length of the part.
        (206, |first, end, _| format!("bytes {first}-{}/{}", end - 1, end - first)),
        // Without the unit.
        (206, |first, end, length| format!("{first}-{}/{length}", end - 1)),
    ];
    for (status, range) in odd {
        let content = ground.content.clone();
        let site = Site::new(&ground.content, move |request, _| part(&content, request, status, range));
        gets(&ground, &[site.url()], &["-q"]);
    }
}

#[test]
fn servers_that_send_less_than_was_asked_for_bring_the_file_together() {
    let ground = Ground::new(LENGTH);
    for most in [10_000, 20_000] {
        let short = sends_at_most(&ground.content, most);
        let plain = [(); 2].map(|()| Site::good(&ground.content));
        gets(&ground, &[short.url()], &[]);
        for others in 1..=2 {
            let urls: Vec<String> = std::iter::once(&short).chain(&plain[..others]).map(Site::url).collect();
            gets(&ground, &urls, &[]);
        }
        let shorter = sends_at_most(&ground.content, 1_000);
        gets(&ground, &[short.url(), shorter.url()], &[]);
    }
}

#[test]
fn an_empty_file_has_no_first_byte() {
    let ground = Ground::new(0);
    let twists: [fn(&Request) -> Reply; 2] = [
        |_| Reply::new(416, b""),
        |_| Reply { length: Some(1), ..Reply::new(206, b"").with("content-range", "bytes 0-0/0") },
    ];
    for twist in twists {
        let site = Site::new(&[], move |request, _| match request.range() {
            Some(_) => twist(request),
            None => Reply::new(200, b""),
        });
        gets(&ground, &[site.url()], &[]);
    }
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
            // bob:of-bob
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
