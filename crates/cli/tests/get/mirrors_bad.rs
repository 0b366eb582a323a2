//! Mirrors with other bytes, and servers that answer what they should not: the file arrives as it should be
//! or not at all, and who is to blame is named.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::anabranch;
use crate::common::fetch::{Done, Ground, checksum, names, run, spawn};
use crate::peers::nginx::Nginx;
use crate::peers::site::{LOGIN, PATH, Reply, Request, Site, Then, honest, liar, whole};
use nix::sys::signal::Signal;
use sha2::{Digest as _, Sha256};

/// The content with eight bytes flipped every `pitch` bytes from `first` on.
fn flipped(content: &[u8], first: usize, pitch: usize) -> Vec<u8> {
    let mut flipped = content.to_vec();
    for at in (first..content.len() - 8).step_by(pitch) {
        flipped[at..at + 8].iter_mut().for_each(|byte| *byte ^= 0x55);
    }
    flipped
}

/// Servers with these contents, all under the same name.
fn serve(test: &str, contents: &[&[u8]]) -> Option<(Nginx, Vec<String>)> {
    let nginx = Nginx::start(test, &vec![""; contents.len()])?;
    for (server, content) in contents.iter().enumerate() {
        nginx.put(server, "f.bin", content);
    }
    let urls = (0..contents.len()).map(|server| nginx.url(server, "f.bin")).collect();
    Some((nginx, urls))
}

/// The Metalink of the content, with its leaf list beside it or without.
fn metalink(ground: &Ground, urls: &[String], leaves: bool) -> PathBuf {
    let file = ground.dir.path().join("f.bin");
    fs::write(&file, &ground.content).expect("a file");
    let mut command = anabranch();
    command.args(["mirror-list", "make", "--quiet", "--force"]).arg(&file).args(urls);
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{output:?}");
    if !leaves {
        fs::remove_file(ground.dir.path().join("f.bin.b3leaves")).expect("the file");
    }
    ground.dir.path().join("f.bin.meta4")
}

#[test]
fn a_corrupt_mirror_is_named_by_leaves_and_by_pieces() {
    let ground = Ground::new(12_000_000);
    let corrupt = flipped(&ground.content, 500_000, 1_000_000);
    let Some((nginx, urls)) = serve("a corrupt mirror", &[&ground.content, &corrupt, &ground.content]) else {
        return;
    };
    for leaves in [true, false] {
        let list = metalink(&ground, &urls, leaves);
        let done = run(ground.get_named(&[list], &["--json"])).expect(0);
        ground.assert_arrived();
        fs::remove_file(ground.target()).expect("the file");
        assert_eq!(done.banned(), [nginx.name(1)], "leaves: {leaves}");
        assert!(done.notes().contains(&format!("{}: wrong bytes in block", nginx.name(1))), "{}", done.out);
    }
    // Alone it has nothing to offer, and what is right of it may stay.
    let Some((nginx, urls)) = serve("a corrupt mirror alone", &[&corrupt]) else { return };
    for leaves in [true, false] {
        let list = metalink(&ground, &urls, leaves);
        let done = run(ground.get_named(&[list], &["--json", "--force"])).expect(5);
        assert_eq!(done.banned(), [nginx.name(0)], "leaves: {leaves}");
        assert!(done.err.contains(&nginx.name(0)) && done.err.contains("no mirror is left"), "{}", done.err);
        assert!(!ground.target().exists());
    }
}

#[test]
fn without_hashes_two_outvote_one() {
    let ground = Ground::new(8 << 20);
    // Throughout: of less than a region of comparisons nothing is promised.
    let corrupt = flipped(&ground.content, 0, 1 << 14);
    for odd in 0..3 {
        let mut contents = [&*ground.content; 3];
        contents[odd] = &corrupt;
        let Some((nginx, urls)) = serve("the odd one", &contents) else { return };
        let done = run(ground.get_named(&urls, &["--json"])).expect(0);
        ground.assert_arrived();
        fs::remove_file(ground.target()).expect("the file");
        assert_eq!(done.banned(), [nginx.name(odd)]);
        assert_eq!(done.summary()["verified"], "nothing");
    }
}

#[test]
fn without_hashes_two_that_differ_are_both_named() {
    let ground = Ground::new(8 << 20);
    let corrupt = flipped(&ground.content, 0, 1 << 14);
    for contents in [[&*ground.content, &corrupt], [&corrupt, &*ground.content]] {
        let Some((nginx, urls)) = serve("two that differ", &contents) else { return };
        let done = run(ground.get_named(&urls, &["--json"])).expect(5);
        assert!(done.err.contains(&nginx.name(0)) && done.err.contains(&nginx.name(1)), "{}", done.err);
        assert!(done.err.contains("different bytes"), "{}", done.err);
        assert!(!ground.target().exists());
        // With a hash of the whole, each is tried alone.
        let done = run(ground.get_named(&urls, &["--json", &checksum(&ground.content)])).expect(0);
        ground.assert_arrived();
        let liar = usize::from(contents[0] == &*ground.content);
        assert_eq!(done.banned(), [nginx.name(liar)], "{}", done.out);
        fs::remove_file(ground.target()).expect("the file");
        // What came of it is nobody's: with another mirror, or alone, the same command works.
        run(ground.get_named(&urls[..1], &["--force"])).expect(0);
        fs::remove_file(ground.target()).expect("the file");
    }
}

#[test]
fn the_hash_of_the_whole_finds_what_comparing_does_not() {
    let ground = Ground::new(12_000_000);
    let corrupt = flipped(&ground.content, 500_000, 1_000_000);
    let Some((nginx, urls)) = serve("the whole", &[&ground.content, &corrupt, &ground.content]) else {
        return;
    };
    let checksum = checksum(&ground.content);
    let done = run(ground.get_named(&urls, &["--json", &checksum])).expect(0);
    ground.assert_arrived();
    assert!(done.banned().iter().all(|banned| *banned == nginx.name(1)), "{}", done.out);
    fs::remove_file(ground.target()).expect("the file");
    // Nobody knows this: it is called unverified, and the next best thing is that it is.
    let all = flipped(&ground.content, 0, 1 << 14);
    let Some((nginx, urls)) = serve("much is wrong", &[&ground.content, &all, &ground.content]) else {
        return;
    };
    let done = run(ground.get_named(&urls, &["--json", &checksum])).expect(0);
    ground.assert_arrived();
    assert_eq!(done.banned(), [nginx.name(1)]);
}

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

/// Fetches from two honest mirrors and one between them that is not: the file is right. The bad one is named
/// in a note that says `says`.
fn beside(len: usize, twist: impl Twist, says: &str) -> Done {
    let ground = Ground::new(len);
    let (one, two) = (Site::slow(&ground.content, 8_000_000), Site::slow(&ground.content, 8_000_000));
    let bad = Site::new(&ground.content, twist);
    let done = run(ground.get_named(&[one.url(), bad.url(), two.url()], &["--json"])).expect(0);
    ground.assert_arrived();
    let says = if says.is_empty() { String::new() } else { format!("{}: {says}", bad.name()) };
    assert!(done.notes().contains(&says), "{says:?} in {}", done.notes());
    done
}

/// Fetches from this mirror alone.
fn alone(len: usize, twist: impl Twist, more: &[&str]) -> (Ground, Done) {
    let ground = Ground::new(len);
    let bad = Site::new(&ground.content, twist);
    let done = run(ground.get_named(&[bad.url()], &[&["--json"], more].concat()));
    (ground, done)
}

/// Alone it ends with this exit status, says why, and leaves no file under the final name.
fn never(twist: impl Twist, code: i32, says: &str) {
    never_of(3_000_000, twist, code, says);
}

fn never_of(len: usize, twist: impl Twist, code: i32, says: &str) {
    let (ground, done) = alone(len, twist, &["--timeout", "3"]);
    let done = done.expect(code);
    assert!(done.err.contains(says), "{says:?} in {}", done.err);
    let left = names(&ground.to());
    assert!(left.is_empty() || left == ["f.part", "f.part.journal"], "{left:?}");
    // What is left is no whole file.
    let whole = fs::read(ground.to().join("f.part")).is_ok_and(|part| part == ground.content);
    assert!(!whole, "a part that is whole");
}

/// Another content of this length.
fn reversed(len: usize) -> Vec<u8> {
    let mut other = crate::common::noise(len);
    other.reverse();
    other
}

/// Alone it brings the file.
fn arrives(len: usize, twist: impl Twist) -> Done {
    let (ground, done) = alone(len, twist, &[]);
    let done = done.expect(0);
    ground.assert_arrived();
    done
}

#[test]
fn an_old_version_of_another_length() {
    let old = crate::common::noise(2_000_000);
    let twist = move |request: &Request, _: Reply| honest(request, &old, "\"v0\"");
    beside(3_000_000, twist.clone(), "it has 2000000 bytes, not 3000000: another file");
    // By a Metalink, which says how long it is.
    let ground = Ground::new(3_000_000);
    let bad = Site::new(&ground.content, twist);
    let done = run(ground.get_named(&[metalink(&ground, &[bad.url()], true)], &["--json"])).expect(3);
    assert!(done.err.contains("2000000 bytes"), "{}", done.err);
    assert!(names(&ground.to()).is_empty());
}

#[test]
fn lengths_that_differ() {
    let ground = Ground::new(3_000_000);
    let (long, short) = (Site::good(&ground.content), Site::good(&ground.content[..2_000_000]));
    for urls in [[long.url(), short.url()], [short.url(), long.url()]] {
        let done = run(ground.get_named(&urls, &["--quiet"])).expect(5);
        for says in [
            format!("{} has 3000000 bytes", long.url()),
            format!("{} has 2000000 bytes", short.url()),
            "name one of them alone".to_owned(),
        ] {
            assert!(done.err.contains(&says), "{says:?} in {}", done.err);
        }
        assert!(names(&ground.to()).is_empty());
    }
    // Two against one, whoever is the first.
    let other = Site::good(&ground.content);
    let done = run(ground.get_named(&[short.url(), long.url(), other.url()], &["--json"])).expect(0);
    ground.assert_arrived();
    let says = format!("{}: it has 2000000 bytes, not 3000000: another file", short.name());
    assert!(done.notes().contains(&says), "{}", done.notes());
    // What a server itself offers does not speak against it.
    fs::remove_file(ground.target()).expect("the file");
    let links = format!("<{}>; rel=duplicate", short.url());
    let offers = Site::new(&ground.content, move |_, reply| reply.with("link", links.clone()));
    let done = run(ground.get_named(&[offers.url()], &["--json"])).expect(0);
    ground.assert_arrived();
    assert!(done.notes().contains(&says), "{}", done.notes());
}

/// One honest mirror is enough where the user knows a hash, however many have another file.
#[test]
fn a_hash_tells_which_length_is_right() {
    let ground = Ground::new(3_000_000);
    let mut longer = ground.content.clone();
    longer.extend_from_slice(&[0; 70_000]);
    let short = || Site::good(&ground.content[..2_000_000]);
    let (good, a, b, long) = (Site::good(&ground.content), short(), short(), Site::good(&longer));
    let checksum = checksum(&ground.content);
    for urls in [
        vec![good.url(), a.url()],
        vec![a.url(), good.url()],
        vec![a.url(), b.url(), good.url()],
        vec![a.url(), good.url(), b.url(), long.url()],
    ] {
        let done = run(ground.get_named(&urls, &["--json", &checksum])).expect(0);
        ground.assert_arrived();
        assert_eq!(done.summary()["verified"], "whole", "{}", done.notes());
        if urls.len() > 2 {
            let says = format!("trying that of 3000000 bytes, from {}", good.name());
            assert!(done.notes().contains(&says), "{}", done.notes());
        }
        fs::remove_file(ground.target()).expect("the file");
    }
    // A part of the right length is gone on with, though another length has more votes.
    let slow = Site::slow(&ground.content, 1_000_000);
    let running = spawn(ground.get_named(&[slow.url()], &["--json", &checksum]));
    running.wait_event(|event| event["done_bytes"].as_u64() > Some(500_000));
    running.signal(Signal::SIGINT);
    running.end().expect(130);
    ground.assert_part();
    let done = run(ground.get_named(&[a.url(), b.url(), good.url()], &["--json", &checksum])).expect(0);
    ground.assert_arrived();
    assert!(done.summary()["last"]["resumed_bytes"].as_u64() > Some(500_000), "{}", done.notes());
    // It is there already: nothing is fetched.
    let done = run(ground.get_named(&[a.url(), b.url(), good.url()], &["--json", &checksum])).expect(0);
    ground.assert_arrived();
    assert_eq!(done.summary()["last"]["resumed_bytes"], 3_000_000, "{}", done.notes());
    fs::remove_file(ground.target()).expect("the file");
    // Nobody has it.
    let done = run(ground.get_named(&[a.url(), long.url()], &["--json", &checksum])).expect(5);
    assert!(done.err.contains("no file of 2000000 bytes is the one that is wanted, either"), "{}", done.err);
}

#[test]
fn another_version_after_a_while() {
    // From the second request for a part on, or from the first.
    for first in [1, 0] {
        let other = reversed(6_000_000);
        let twist =
            move |request: &Request, reply: Reply| match request.is_for_bytes() && request.number >= first {
                true => honest(request, &other, "\"v2\""),
                false => reply,
            };
        // It may not be asked a second time.
        beside(6_000_000, twist.clone(), if first == 0 { "the file has changed" } else { "" });
        if first == 0 {
            // Nothing has come of the old one: the new one is taken, in one answer.
            let (ground, done) = alone(6_000_000, twist, &[]);
            let done = done.expect(0);
            assert!(fs::read(ground.target()).expect("the file") == reversed(6_000_000));
            assert!(done.notes().contains("the file has changed"), "{}", done.notes());
        } else {
            never_of(6_000_000, twist, 3, "the file has changed");
        }
    }
}

/// Another `ETag` after so many answers.
fn tagged(answers: usize) -> impl Twist {
    let (content, count) = (crate::common::noise(6_000_000), Arc::new(AtomicUsize::new(0)));
    move |request: &Request, _: Reply| {
        let tag = count.fetch_add(1, Ordering::Relaxed) / answers;
        honest(request, &content, &format!("\"v{tag}\""))
    }
}

#[test]
fn another_etag_with_each_answer() {
    let done = arrives(6_000_000, tagged(1));
    assert!(done.notes().contains("everything is taken from one answer"), "{}", done.notes());
    // Two of the kind are no worse than one.
    let ground = Ground::new(6_000_000);
    let [one, two] = [1, 1].map(|answers| Site::new(&ground.content, tagged(answers)));
    run(ground.get_named(&[one.url(), two.url()], &["--json"])).expect(0);
    ground.assert_arrived();
    // It breaks off: what would come then may be of another file.
    let each = tagged(1);
    let breaks = move |request: &Request, reply: Reply| {
        let reply = each(request, reply);
        if request.is_for_bytes() { reply.cut(1_000_000, Then::Close) } else { reply }
    };
    never_of(6_000_000, breaks, 4, "it broke off, and its ETag or date is another with each answer");
    // Some of it has come when the tag is another.
    never_of(6_000_000, tagged(2), 3, "give a hash with --checksum");
    // What has come of an answer is of use to nobody.
    let (ground, each) = (Ground::new(6_000_000), tagged(1));
    let slow = move |request: &Request, reply: Reply| each(request, reply).at(1_000_000);
    let site = Site::new(&ground.content, slow);
    let running = spawn(ground.get_named(&[site.url()], &["--json"]));
    running.wait_event(|event| event["done_bytes"].as_u64().is_some_and(|bytes| bytes > 500_000));
    running.signal(Signal::SIGINT);
    let done = running.end().expect(130);
    assert!(
        done.err.contains("cannot go on with what arrived") && !done.err.contains("resumes"),
        "{}",
        done.err
    );
    // The hash tells.
    for answers in [1, 2] {
        let ground = Ground::new(6_000_000);
        let site = Site::new(&ground.content, tagged(answers));
        let checksum = checksum(&ground.content);
        let done = run(ground.get_named(&[site.url()], &["--json", &checksum])).expect(0);
        ground.assert_arrived();
        assert_eq!(done.summary()["verified"], "whole", "{}", done.notes());
        assert!(done.notes().contains("the hash of the whole tells"), "{}", done.notes());
    }
}

#[test]
fn another_version_of_the_same_length_without_etag() {
    // The date is all that tells.
    let other = reversed(6_000_000);
    let twist = move |request: &Request, reply: Reply| {
        let (reply, day) = match request.is_for_bytes() && request.number >= 1 {
            true => (honest(request, &other, "\"v1\""), 2),
            false => (reply, 1),
        };
        reply.without("etag").with("last-modified", format!("Fri, 0{day} Jan 2021 10:00:00 GMT"))
    };
    never_of(6_000_000, twist.clone(), 3, "the file has changed");
    beside(6_000_000, twist, "");
}

#[test]
fn lengths_that_no_file_has() {
    for length in ["18446744073709551615", "9007199254740992", "4503599627370496", "x", "-1"] {
        let twist = move |request: &Request, reply: Reply| {
            let reply = reply.with("content-range", format!("bytes 0-0/{length}"));
            if request.is_for_bytes() { reply } else { reply.with("content-length", length) }
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
fn compressed_on_the_fly() {
    let twist = |_: &Request, reply: Reply| reply.with("content-encoding", "gzip");
    beside(2_000_000, twist, "the server sends it compressed (gzip)");
    never(twist, 3, "compressed (gzip)");
    let later = |request: &Request, reply: Reply| {
        if request.is_for_bytes() { reply.with("content-encoding", "br") } else { reply }
    };
    beside(2_000_000, later, "the server sends it compressed (br)");
    never(later, 3, "compressed (br)");
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

#[test]
fn what_a_server_without_ranges_sent_is_not_asked_of_it_again() {
    // The other one breaks down; what would still be compared, only that could.
    let ground = Ground::new(3_000_000);
    let whole = Site::new(&ground.content, |_, _| whole(3_000_000));
    let breaks =
        Site::new(&ground.content, |request, reply| match request.is_for_bytes() && request.number > 0 {
            true => Reply::new(500, b"oops"),
            false => reply,
        });
    let done = run(ground.get_named(&[breaks.url(), whole.url()], &["--json"])).expect(0);
    ground.assert_arrived();
    assert!(done.notes().contains("not all parts could be compared"), "{}", done.notes());
    let seen = whole.seen();
    // That it has no ranges was seen before.
    let gets = seen.iter().filter(|request| request.is_for_bytes() && request.path == PATH);
    assert_eq!(gets.count(), 1, "{seen:?}");
}

#[test]
fn no_ranges() {
    let none = |_: &Request, _: Reply| whole(3_000_001);
    arrives(3_000_001, none);
    beside(3_000_001, none, "gives no ranges, kept in reserve");
    let ground = Ground::new(3_000_001);
    let both = [(); 2].map(|()| Site::new(&ground.content, none));
    let done = run(ground.get_named(&both.each_ref().map(Site::url), &["--json"])).expect(0);
    ground.assert_arrived();
    let notes = done.notes();
    assert!(notes.contains("no mirror gives ranges: fetched from 127.0.0.1:"), "{notes}");
    let Some(nginx) = Nginx::start("no ranges", &["max_ranges 0;"]) else { return };
    let ground = Ground::new(3_000_001);
    nginx.put(0, "f.bin", &ground.content);
    run(ground.get_named(&[nginx.url(0, "f.bin")], &["--json"])).expect(0);
    ground.assert_arrived();
    // It says that it has them.
    arrives(3_000_001, |_: &Request, _: Reply| whole(3_000_001).with("accept-ranges", "bytes"));
}

#[test]
fn without_ranges_it_breaks_off() {
    let breaks = |times: usize| {
        move |request: &Request, _: Reply| {
            let reply = whole(3_000_000);
            match request.is_for_bytes() && request.number < times {
                true => reply.cut(1_500_000, Then::Close),
                false => reply,
            }
        }
    };
    // What comes once more counts for as long as it may lead further.
    arrives(3_000_000, breaks(2));
    never(breaks(usize::MAX), 4, "the server breaks off after 1.5 MB and gives no ranges");
}

#[test]
fn other_ranges_than_asked_for() {
    let shifted = |request: &Request, reply: Reply| match request.range() {
        Some(range) if request.is_for_bytes() => {
            let total = 3_000_000;
            reply.with("content-range", format!("bytes {}-{}/{total}", range.start + 1, range.end))
        }
        _ => reply,
    };
    beside(3_000_000, shifted, "the server sends bytes ");
    never(shifted, 3, "the server sends bytes ");
    let unsaid = |_: &Request, reply: Reply| reply.without("content-range");
    beside(3_000_000, unsaid, "the server does not say which range it sends");
    never(unsaid, 3, "does not say which range");
    let longer = |request: &Request, reply: Reply| match request.range() {
        Some(range) if request.is_for_bytes() => {
            reply.with("content-range", format!("bytes {}-{}/3000005", range.start, range.end - 1))
        }
        _ => reply,
    };
    beside(3_000_000, longer, "the file has changed: it has 3000005 bytes now");
    never(longer, 3, "3000005 bytes");
}

#[test]
fn bodies_that_are_too_short_or_too_long() {
    // It ends in the middle, though its length was told: what came is used.
    let short = |request: &Request, reply: Reply| {
        let half = reply.body.len() / 2 + 20_000;
        if request.is_for_bytes() { reply.cut(half, Then::Close) } else { reply }
    };
    beside(2_000_000, short, "");
    // The length does not fit the range.
    let less = |request: &Request, mut reply: Reply| {
        if request.is_for_bytes() {
            reply.body.pop();
        }
        reply
    };
    beside(2_000_000, less, "");
    never(less, 3, "");
    // More comes than was told, as if it were the next answer.
    let more = |request: &Request, mut reply: Reply| {
        if request.is_for_bytes() {
            reply.length = Some(reply.body.len());
            reply.body.extend_from_slice(b"HTTP/1.1 206 x\r\ncontent-length: 3\r\n\r\nabcabcabc");
        }
        reply
    };
    beside(2_000_000, more, "");
    arrives(2_000_000, more);
}

#[test]
fn captive_portals() {
    let page = |_: &Request, _: Reply| {
        Reply::new(200, b"<html>log in first</html>").with("content-type", "text/html; charset=utf-8")
    };
    let sent_there = |_: &Request, _: Reply| Reply::new(302, b"").with("location", LOGIN);
    let wants_login = |_: &Request, _: Reply| Reply::new(511, b"<html>").with("content-type", "text/html");
    never(page, 3, "a web page came instead of the file");
    never(sent_there, 3, "a web page came instead of the file");
    never(wants_login, 3, "login");
    beside(2_000_000, page, "a web page came instead of the file");
    beside(2_000_000, sent_there, "a web page came instead of the file");
    // It shuts while the file comes.
    let later = move |request: &Request, reply: Reply| {
        if request.number >= 1 { sent_there(request, reply) } else { reply }
    };
    beside(3_000_000, later, "");
    never(later, 3, "");
}

#[test]
fn statuses() {
    for (status, code, says) in [
        (404, 3, "the server does not have it (404)"),
        (410, 3, "the server does not have it (410)"),
        (401, 9, "the server wants a name and a password (401)"),
        (403, 9, "the server does not allow it (403)"),
        (500, 4, "the server answers 500"),
        (418, 3, "the server answers 418"),
    ] {
        let twist = move |_: &Request, _: Reply| Reply::new(status, b"sorry");
        beside(1_000_000, twist, says);
        never(twist, code, says);
    }
    let busy = |_: &Request, _: Reply| Reply::new(503, b"").with("retry-after", "1");
    beside(1_000_000, busy, "the server is busy, for 1 s");
    never(busy, 4, "the server is busy, for 1 s");
    // At first.
    for (status, retry) in [(503, None), (503, Some("0")), (429, Some("1")), (500, None)] {
        let requests = AtomicUsize::new(0);
        let ground = Ground::new(1_000_000);
        let late = Site::new(&ground.content, move |_, reply| {
            if requests.fetch_add(1, Ordering::Relaxed) >= 4 {
                return reply;
            }
            let reply = Reply::new(status, b"");
            if let Some(retry) = retry { reply.with("retry-after", retry) } else { reply }
        });
        let done = run(ground.get_named(&[late.url()], &["--json"])).expect(0);
        ground.assert_arrived();
        let told = done.notes().matches("asked again, gives up in").count();
        assert_eq!(told, 1, "{status} {retry:?}: {}", done.notes());
    }
    // It goes in mid-transfer.
    let gone = |request: &Request, reply: Reply| match request.number {
        0 => reply,
        _ => Reply::new(404, b""),
    };
    beside(6_000_000, gone, "");
    never(gone, 3, "the server does not have it (404)");
}

#[test]
fn faults_now_and_then() {
    // Every third answer is none: it is tried again, and the file comes.
    for status in [500, 502] {
        arrives(3_000_000, move |request: &Request, reply: Reply| {
            match request.is_for_bytes() && request.number % 3 == 1 {
                true => Reply::new(status, b"oops"),
                false => reply,
            }
        });
    }
    arrives(3_000_000, |request: &Request, reply: Reply| {
        match request.is_for_bytes() && request.number % 3 == 1 {
            true => Reply::new(503, b"").with("retry-after", "1"),
            false => reply,
        }
    });
    // From some moment on it has nothing else to say.
    let breaks = |request: &Request, reply: Reply| match request.is_for_bytes() && request.number > 0 {
        true => Reply::new(500, b"oops"),
        false => reply,
    };
    never(breaks, 4, " s nothing has come but errors (127.0.0.1:");
    never(breaks, 4, "the server answers 500)");
    // It cannot say what it has, but sends it.
    let silent = |request: &Request, reply: Reply| match request.is_for_bytes() {
        true => reply,
        false => Reply::new(500, b""),
    };
    let done = beside(6_000_000, silent, "the server answers 500");
    let summary = done.summary();
    let bytes = summary["last"]["paths"].as_array().expect("paths").iter();
    assert!(bytes.map(|row| row["bytes"].as_u64()).all(|bytes| bytes > Some(0)), "{}", done.out);
    // The connection ends in the middle of every other answer.
    let closed = |request: &Request, reply: Reply| {
        let part = reply.body.len() * 2 / 3;
        if request.is_for_bytes() && request.number.is_multiple_of(2) {
            reply.cut(part, Then::Close)
        } else {
            reply
        }
    };
    arrives(3_000_000, closed);
    beside(3_000_000, closed, "");
}

/// A connection that ends before there is an answer says little of the server: it is asked once more.
#[test]
fn the_first_connection_ends_without_an_answer() {
    let hangs_up = |times: usize| {
        let asked = Arc::new(AtomicUsize::new(0));
        move |_: &Request, mut reply: Reply| {
            if asked.fetch_add(1, Ordering::Relaxed) < times {
                reply.then = Then::HangUp;
            }
            reply
        }
    };
    arrives(3_000_000, hangs_up(1));
    never(hangs_up(usize::MAX), 4, "no answer from 127.0.0.1");
    let ground = Ground::new(3_000_000);
    let (liar, honest) = (liar(&ground.content, 8_000_000), Site::new(&ground.content, hangs_up(1)));
    let right = checksum(&ground.content);
    let done = run(ground.get_named(&[liar.url(), honest.url()], &["--json", &right])).expect(0);
    ground.assert_arrived();
    assert_eq!(done.banned(), [liar.name()], "{}", done.out);
}

#[test]
fn it_says_nothing_any_more() {
    let stalls = |request: &Request, reply: Reply| {
        let half = reply.body.len() / 2;
        if request.is_for_bytes() { reply.cut(half, Then::Stall) } else { reply }
    };
    beside(3_000_000, stalls, "");
    let mute = |_: &Request, mut reply: Reply| {
        reply.then = Then::Mute;
        reply
    };
    let done = beside(3_000_000, mute, "no answer yet");
    assert!(done.banned().is_empty());
    // Nothing at all comes of the parts.
    let starves = |request: &Request, mut reply: Reply| {
        if request.is_for_bytes() {
            reply.then = Then::Mute;
        }
        reply
    };
    beside(3_000_000, starves, "");
    never(starves, 4, "no source has answered for 3 s");
}

#[test]
fn a_bad_mirror_does_no_harm_where_hashes_are() {
    let ground = Ground::new(3_000_000);
    let other = flipped(&ground.content, 0, 1 << 14);
    let bad = Site::new(&ground.content, move |request, _| honest(request, &other, "\"v1\""));
    let good = Site::slow(&ground.content, 6_000_000);
    let list = metalink(&ground, &[bad.url(), good.url()], true);
    let done = run(ground.get_named(&[list], &["--json"])).expect(0);
    ground.assert_arrived();
    assert_eq!(done.banned(), [bad.name()]);
    // What was wrong is counted with what it brought.
    assert!(done.bytes_from(bad.address) < 1 << 20);
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

/// What is made as it is sent: in chunks, all of it each time, with another `ETag` or none.
fn made(len: usize) -> impl Twist {
    let content = crate::common::noise(len);
    move |_: &Request, _: Reply| {
        let reply = Reply::new(200, &content).chunked();
        reply.with("content-type", "application/octet-stream")
    }
}

/// The user's Metalink says it, and the server only that nobody knows (RFC 9110, 14.4): its ranges are as
/// good.
#[test]
fn ranges_of_a_file_of_unsaid_length() {
    let ground = Ground::new(3_000_000);
    let twist = |request: &Request, reply: Reply| match request.range() {
        Some(range) => reply.with("content-range", format!("bytes {}-{}/*", range.start, range.end - 1)),
        None => reply,
    };
    for leaves in [true, false] {
        let site = Site::new(&ground.content, twist);
        let list = metalink(&ground, &[site.url()], leaves);
        run(ground.get_named(&[list], &["--json"])).expect(0);
        ground.assert_arrived();
        fs::remove_file(ground.target()).expect("the file");
        assert!(site.body_bytes() < 3_500_000, "{}", site.body_bytes());
    }
}

/// A piece that a liar had wrong comes from an honest server whose connections end before it is whole.
#[test]
fn pieces_of_an_honest_server_that_breaks_off() {
    let ground = Ground::new(3_000_000);
    let honest = Site::new(&ground.content, |request: &Request, reply: Reply| {
        let len = reply.body.len().min(600_000);
        if request.is_for_bytes() { reply.cut(len, Then::Close) } else { reply }
    });
    let liar = Site::good(&flipped(&ground.content, 0, 100_000));
    let list = metalink(&ground, &[liar.url(), honest.url()], false);
    let done = run(ground.get_named(&[list], &["--json"])).expect(0);
    ground.assert_arrived();
    assert_eq!(done.banned(), [liar.name()], "{}", done.out);
}

/// Pieces that a liar had wrong come from a server that can only be asked for everything.
#[test]
fn pieces_of_an_honest_server_without_ranges() {
    for len in [900_000, 6_000_000] {
        let ground = Ground::new(len);
        let liar = Site::good(&flipped(&ground.content, len / 2, len / 2 + 1));
        let honest = Site::new(&ground.content, move |_, _| whole(len));
        for urls in [[liar.url(), honest.url()], [honest.url(), liar.url()]] {
            let before = honest.body_bytes();
            let list = metalink(&ground, &urls, false);
            run(ground.get_named(&[list], &["--json"])).expect(0);
            ground.assert_arrived();
            fs::remove_file(ground.target()).expect("the file");
            let came = honest.body_bytes() - before;
            assert!(came < 3 * len as u64 + 2_000_000, "{came}");
        }
    }
}

#[test]
fn nobody_says_how_long_it_is() {
    for len in [3_000_000, 70_000, 10, 0] {
        let done = arrives(len, made(len));
        assert!(done.notes().contains("does not say how long the file is"), "{}", done.notes());
        assert_eq!(done.summary()["last"]["total_bytes"], len);
        assert_eq!(done.summary()["verified"], "nothing");
    }
    let ground = Ground::new(3_000_000);
    let site = Site::new(&ground.content, made(3_000_000));
    let right = checksum(&ground.content);
    let done = run(ground.get_named(&[site.url()], &["--json", &right])).expect(0);
    ground.assert_arrived();
    assert_eq!(done.summary()["verified"], "whole");
    // It is there, and is what would come.
    let done = run(ground.get_named(&[site.url()], &["--json", &right])).expect(0);
    assert!(!done.notes().contains("is taken in one answer"), "{}", done.notes());
    ground.assert_arrived();
    // What is not what the hash is of has no name.
    fs::remove_file(ground.target()).expect("the file");
    let wrong = checksum(b"something else");
    run(ground.get_named(&[site.url()], &["--json", &wrong])).expect(5);
    assert_eq!(names(&ground.to()), ["f.unverified"]);
    fs::remove_file(ground.to().join("f.unverified")).expect("the file");
    // A file that is there, of which nobody knows what it is, stays.
    fs::write(ground.target(), b"mine").expect("a file");
    for more in [&[][..], &[right.as_str()]] {
        let done = run(ground.get_named(&[site.url()], more)).expect(6);
        assert!(!done.err.contains("is taken in one answer"), "{}", done.err);
    }
    assert_eq!(fs::read(ground.target()).expect("the file"), b"mine");
    run(ground.get_named(&[site.url()], &["--force"])).expect(0);
    ground.assert_arrived();
    // In order it cannot be read.
    let mut command = anabranch();
    command.args(["get", "--no-history", &site.url(), "-o", "-"]);
    let done = run(command).expect(3);
    assert!(done.err.contains("name a file for it"), "{}", done.err);
}

#[test]
fn it_breaks_off_and_nobody_says_how_long_it_is() {
    let made = made(3_000_000);
    let twice = {
        let (made, answers) = (made.clone(), Arc::new(AtomicUsize::new(0)));
        move |request: &Request, reply: Reply| {
            let reply = made(request, reply);
            // The first is that for what it says of itself.
            let is_late = answers.fetch_add(1, Ordering::Relaxed) > 2;
            if is_late { reply } else { reply.cut(1_000_000, Then::Close) }
        }
    };
    let done = arrives(3_000_000, twice);
    assert!(done.notes().contains("begun anew"), "{}", done.notes());
    let always = move |request: &Request, reply: Reply| made(request, reply).cut(1_000_000, Then::Close);
    let (ground, done) = alone(3_000_000, always, &["--timeout", "5"]);
    done.expect(4);
    assert!(names(&ground.to()).is_empty(), "{:?}", names(&ground.to()));
    // What it is silent before it breaks off counts as one silence.
    let ground = Ground::new(3_000_000);
    let chunked = self::made(3_000_000);
    let site = Site::new(&ground.content, move |request: &Request, reply: Reply| {
        chunked(request, reply).cut(1_000_000, Then::CloseLate)
    });
    run(ground.get_named(&[site.url()], &["--json", "--timeout", "5"])).expect(4);
    let of_it = site.seen().iter().filter(|request| request.path == PATH && request.is_for_bytes()).count();
    assert_eq!(of_it, 2, "the first says what it has");
}

/// A Metalink says how long it is, and the server does not: it is as long all the same, and asked for once.
#[test]
fn only_the_metalink_says_how_long_it_is() {
    for leaves in [true, false] {
        let ground = Ground::new(3_000_000);
        let site = Site::new(&ground.content, made(3_000_000));
        let list = metalink(&ground, &[site.url()], leaves);
        run(ground.get_named(&[list], &["--json"])).expect(0);
        ground.assert_arrived();
        assert!(site.seen().len() < 6, "{} requests", site.seen().len());
    }
    // Shorter than it says, or longer.
    for len in [2_999_999, 3_000_001] {
        let ground = Ground::new(3_000_000);
        let site = Site::new(&ground.content, made(len));
        let list = metalink(&ground, &[site.url()], false);
        let done = run(ground.get_named(&[list], &["--json", "--timeout", "4"]));
        assert!(matches!(done.code, Some(3..=5)), "{:?} {}", done.code, done.err);
        assert!(site.seen().len() < 20, "{} requests", site.seen().len());
        assert!(!ground.target().exists());
    }
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
