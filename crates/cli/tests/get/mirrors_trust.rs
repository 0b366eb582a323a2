//! Which HTTP servers `get` believes and trusts, and how long it waits for them.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::fetch::{checksum, leaf_list};
use crate::common::{anabranch, noise, wait_until};
use crate::peers::site::{PATH, Reply, Request, Site, honest};
use anabranch_mmtp::id::BLOCK_BYTES;
use sha2::{Digest as _, Sha256};

const LENGTH: usize = 40 * BLOCK_BYTES + 77;
const DATE: &str = "Sun, 22 Nov 2026 10:00:00 GMT";

/// Returns the answer of a good server, with this `ETag`.
fn file(request: &Request, content: &[u8], etag: &str) -> Reply {
    if request.path == PATH { honest(request, content, etag) } else { Reply::new(404, b"") }
}

/// Whether a request contains a secret that only its server may know.
fn is_secret(request: &Request) -> bool {
    request.field("authorization").or(request.field("cookie")).is_some()
}

fn get(dir: &Path, args: &[&str]) -> (Option<i32>, String) {
    let mut command = anabranch();
    for name in ["http_proxy", "https_proxy", "all_proxy", "HTTPS_PROXY", "ALL_PROXY"] {
        command.env_remove(name);
    }
    command.env("XDG_CACHE_HOME", dir.join("cache"));
    command.args(["get", "--output"]).arg(dir.join("f")).args(args);
    let output = command.output().expect("it runs");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn secrets_go_to_nobody_that_a_server_names() {
    let content = noise(LENGTH);
    let there = content.clone();
    let stranger = Site::answering(move |request| file(request, &there, "\"s\""));
    let (there, link) = (content.clone(), stranger.url());
    let named = Site::answering(move |request| {
        file(request, &there, "\"n\"").with("link", format!("<{link}>; rel=duplicate"))
    });
    let dir = tempfile::tempdir().expect("a directory");
    let more = ["-u", "ann:secret", "-H", "Cookie: c=1", "-H", "X-Other: o"];
    let (code, said) = get(dir.path(), &[&[named.url().as_str()], &more[..]].concat());
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(fs::read(dir.path().join("f")).expect("it"), content);
    assert!(named.seen().iter().all(is_secret), "{:?}", named.seen());
    let asked = stranger.seen().clone();
    assert!(asked.iter().any(|request| request.is_for_bytes() && request.path == PATH), "{said}");
    assert!(!asked.iter().any(is_secret), "{asked:?}");
    assert!(!asked.iter().any(|request| request.field("x-other").is_some()));
    // The stranger is an ordinary mirror once the user names it.
    fs::remove_file(dir.path().join("f")).expect("removed");
    let (code, said) = get(dir.path(), &[&[named.url().as_str(), &stranger.url()], &more[..]].concat());
    assert_eq!(code, Some(0), "{said}");
    assert!(stranger.seen().iter().any(is_secret));
}

#[test]
fn a_checksum_counts_more_than_what_a_server_offers() {
    let (right, wrong) = (noise(LENGTH), noise(LENGTH + 1)[1..].to_vec());
    let (sum_right, sum_wrong) = (checksum(&right), checksum(&wrong));
    let site = Site::answering(move |request| match request.path == format!("{PATH}.b3leaves") {
        true => Reply::new(200, &leaf_list(&wrong)),
        false => file(request, &wrong, "\"n\""),
    });
    let dir = tempfile::tempdir().expect("a directory");
    let (code, said) = get(dir.path(), &[&site.url(), &sum_right]);
    assert_eq!(code, Some(5), "{said}");
    assert!(!dir.path().join("f").exists());
    assert!(!said.contains("itself offers"), "{said}");
    fs::remove_file(dir.path().join("f.unverified")).expect("it would be recognised");
    let (code, said) = get(dir.path(), &[&site.url(), &sum_wrong]);
    assert_eq!(code, Some(0), "{said}");
    fs::remove_file(dir.path().join("f")).expect("removed");
    fs::remove_dir_all(dir.path().join("cache")).expect("what is known of the URL");
    let (code, said) = get(dir.path(), &[&site.url()]);
    let says = format!("by hashes that {} itself offers", site.address);
    assert!(code == Some(0) && said.contains(&says), "{said}");
}

#[test]
fn a_way_that_fails_closes_no_other() {
    let content = noise(LENGTH);
    let there = content.clone();
    let refused = Arc::new(AtomicBool::new(false));
    let site = Site::answering(move |request| match request.from.ip().to_string().as_str() {
        "127.0.0.9" if request.range().is_some() => {
            refused.store(true, Ordering::Relaxed);
            Reply::new(403, b"")
        }
        _ => {
            if request.range().is_some() {
                // The answer waits until the refusal has arrived.
                wait_until(20, || refused.load(Ordering::Relaxed));
                thread::sleep(Duration::from_millis(300));
            }
            file(request, &there, "\"n\"")
        }
    });
    let dir = tempfile::tempdir().expect("a directory");
    let (code, said) = get(dir.path(), &[&site.url(), "--via=127.0.0.9", "--via=127.0.0.8"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("via 127.0.0.9") && said.contains("not asked over this route"), "{said}");
    assert_eq!(fs::read(dir.path().join("f")).expect("it"), content);
}

#[test]
fn what_was_known_of_a_url_is_forgotten_once_it_is_wrong() {
    let contents = [noise(LENGTH), noise(LENGTH + 1)[1..].to_vec()];
    let now = Arc::new(AtomicUsize::new(0));
    let (which, there) = (Arc::clone(&now), contents.clone());
    // The server gives the same validator to any content.
    let site = Site::answering(move |request| file(request, &there[which.load(Ordering::SeqCst)], "\"n\""));
    let dir = tempfile::tempdir().expect("a directory");
    assert_eq!(get(dir.path(), &[&site.url()]).0, Some(0));
    fs::remove_file(dir.path().join("f")).expect("removed");
    let (code, said) = get(dir.path(), &[&site.url()]);
    assert!(code == Some(0) && said.contains("had the content"), "{said}");
    fs::remove_file(dir.path().join("f")).expect("removed");
    now.store(1, Ordering::SeqCst);
    let (code, said) = get(dir.path(), &[&site.url()]);
    assert_eq!(code, Some(5), "{said}");
    assert!(said.contains("forgotten") && !dir.path().join("f").exists(), "{said}");
    assert_eq!(get(dir.path(), &[&site.url()]).0, Some(0));
    assert_eq!(fs::read(dir.path().join("f")).expect("it"), contents[1]);
}

#[test]
fn what_is_there_is_recognised_where_nothing_verifies_it() {
    let content = noise(LENGTH);
    // These servers know only the date of the file.
    let sites = [1, 2].map(|_| {
        let there = content.clone();
        Site::answering(move |request| file(request, &there, "W/\"weak\"").with("last-modified", DATE))
    });
    let urls = sites.each_ref().map(Site::url);
    let dir = tempfile::tempdir().expect("a directory");
    let (target, cache) = (dir.path().join("f"), dir.path().join("cache"));
    let get_both =
        |more: &[&str]| get(dir.path(), &[&urls.each_ref().map(String::as_str)[..], more].concat());
    let (code, said) = get_both(&[]);
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = get_both(&[]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("UNVERIFIED, the same as on 20") && said.contains("all of it was there"), "{said}");
    // A file with other content stays.
    let mut other = content.clone();
    other[LENGTH / 2] ^= 1;
    fs::write(&target, &other).expect("a file");
    let (code, said) = get_both(&[]);
    assert!(code == Some(6) && said.contains("with other content") && said.contains("--force"), "{said}");
    // Without the history, it is not known whether the file is the same.
    fs::remove_dir_all(&cache).expect("the cache");
    let (code, said) = get_both(&[]);
    assert!(code == Some(6) && said.contains("nothing tells whether it is what would come"), "{said}");
    assert!(fs::read(&target).expect("a file") == other);
    assert_eq!(get_both(&["--force"]).0, Some(0));
    assert!(fs::read(&target).expect("a file") == content);
}

#[test]
fn what_is_there_is_recognised_by_the_sha256_beside_the_pieces() {
    let content = noise(LENGTH);
    let there = content.clone();
    let site = Site::answering(move |request| file(request, &there, "").without("etag"));
    let hex = |bytes: &[u8]| data_encoding::HEXLOWER.encode(&Sha256::digest(bytes));
    let pieces: String =
        content.chunks(1 << 18).map(|piece| format!("<hash>{}</hash>", hex(piece))).collect();
    // Other programs write such lists, without BLAKE3.
    let list = format!(
        "<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\"><file name=\"f\"><size>{LENGTH}</size>\
         <hash type=\"sha-256\">{}</hash><pieces length=\"262144\" type=\"sha-256\">{pieces}</pieces>\
         <url>{}</url></file></metalink>",
        hex(&content),
        site.url()
    );
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("f.meta4");
    fs::write(&path, list).expect("a file");
    let path = path.to_str().expect("UTF-8");
    let (code, said) = get(dir.path(), &[path]);
    assert!(code == Some(0) && said.contains("every piece will be verified"), "{said}");
    let (code, said) = get(dir.path(), &[path]);
    assert!(code == Some(0) && said.contains(" verified, all of it was there"), "{said}");
}

#[test]
fn who_refuses_is_named_with_what_was_sent_there() {
    let refusing = Site::answering(|_| Reply::new(401, b""));
    let to = refusing.url();
    let leading = Site::answering(move |request| match request.path == PATH {
        true => Reply::new(302, b"").with("location", to.clone()),
        false => Reply::new(404, b""),
    });
    let dir = tempfile::tempdir().expect("a directory");
    let host = refusing.address.to_string();
    // The password is for the first server, and is not sent to the one that it redirects to.
    let (code, said) = get(dir.path(), &[&leading.url(), "--user=ann:secret"]);
    assert!(code == Some(9) && said.contains(&format!("it leads to {host}, which wants a name")), "{said}");
    assert!(said.contains("goes only to servers") && !said.contains("are wrong"), "{said}");
    assert!(!refusing.seen().iter().any(is_secret));
    let (code, said) = get(dir.path(), &[&leading.url()]);
    assert!(code == Some(9) && said.contains(": name a URL of this server"), "{said}");
    // These secrets are for the refusing server itself. The error calls them wrong, however they were given.
    let plain = refusing.url();
    let in_it = plain.replace("http://", "http://ann:secret@");
    let netrc = dir.path().join("netrc");
    fs::write(&netrc, "machine 127.0.0.1 login ann password secret\n").expect("a file");
    let netrc = format!("--netrc={}", netrc.to_str().expect("UTF-8"));
    for args in [vec![in_it.as_str()], vec![plain.as_str(), &netrc]] {
        let (code, said) = get(dir.path(), &args);
        assert!(code == Some(9) && said.contains("(401): those that were given are wrong"), "{said}");
    }
}
