//! Servers with wrong bytes or impossible answers: the right file arrives, or none does, and the message
//! names the server. Virtual time holds most of this: `get/promises.rs` of the library.

use std::fs;

use crate::common::fetch::{Done, Ground, checksum, names, run};
use crate::peers::nginx::Nginx;
use crate::peers::site::{Reply, Request, Site, Then, honest};
use sha2::{Digest as _, Sha256};

#[test]
fn digests_that_contradict_each_other_are_not_used() {
    let ground = Ground::new(3_000_000);
    let digest =
        |content: &[u8]| format!("sha-256=:{}:", data_encoding::BASE64.encode(&Sha256::digest(content)));
    let (right, wrong) = (digest(&ground.content), digest(b"something else"));
    let sites = [right.clone(), right, wrong]
        .map(|digest| Site::new(&ground.content, move |_, reply| reply.with("repr-digest", digest.clone())));
    let done = run(ground.get_named(&sites.each_ref().map(Site::url), &["--json"])).expect(0);
    ground.assert_arrived();
    // What more than half of them say counts, and the other is told.
    assert_eq!(done.summary()["verified"], "whole");
    let by = format!("self-asserted by {}, {}", sites[0].name(), sites[1].name());
    assert_eq!(done.summary()["verified_by"], by);
    assert!(done.notes().contains(&format!("{} itself says that the file has the SHA-256", sites[2].name())));
    fs::remove_file(ground.target()).expect("the file");
    // One alone that has another digest than its file.
    let done = run(ground.get_named(&[sites[2].url()], &["--json", "--force"])).expect(5);
    assert!(done.err.contains("SHA-256"), "{}", done.err);
}

/// Answers of a mirror.
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
        // Only a clean part is believed at all.
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

#[test]
fn compressed_by_nginx() {
    let ground = Ground::new(2_000_000);
    let gzip = "gzip on; gzip_types application/octet-stream; gzip_proxied any;";
    let Some(nginx) = Nginx::start("compressed by nginx", &[gzip, "add_header Content-Encoding gzip;"])
    else {
        return;
    };
    nginx.put(0, "f.bin", &ground.content);
    nginx.put(1, "f.bin", &ground.content);
    // Asked not to, it does not.
    run(ground.get_named(&[nginx.url(0, "f.bin")], &[])).expect(0);
    ground.assert_arrived();
    let done = run(ground.get_named(&[nginx.url(1, "f.bin")], &["--force"])).expect(3);
    assert!(done.err.contains("compressed (gzip)"), "{}", done.err);
}

/// A link that leads to one mirror and not to another, and says nothing: that one is asked over the next.
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

/// It is longer than what is read at once, so that the rate is held.
#[test]
fn a_long_head_does_not_stop_what_is_limited() {
    let ground = Ground::new(300_000);
    let long = Site::new(&ground.content, |_, reply| reply.with("x-long", "y".repeat(200_000)));
    let good = Site::good(&ground.content);
    let hash = checksum(&ground.content);
    run(ground.get_named(&[long.url(), good.url()], &["--json", "--limit", "1M", &hash])).expect(0);
    ground.assert_arrived();
}

/// More URLs than are asked: that is said, also where none of the others has it.
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
