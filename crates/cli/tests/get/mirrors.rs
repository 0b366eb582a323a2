//! `anabranch get` from web servers that work correctly: real nginx, Metalinks, plain URLs, and the options
//! that users of curl expect.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::anabranch;
use crate::common::fetch::{Ground, leaf_list, names, run, skipped};
use crate::peers::nginx::Nginx;
use crate::peers::site::{PATH, Reply, Site, gone, honest};
use anabranch_http::client::METADATA_BYTES;
use anabranch_mmtp::ContentId;
use anabranch_mmtp::uri::Uri;
use sha2::{Digest as _, Sha256};

/// Starts three servers with the content, and writes its Metalink and leaf list into the ground's directory.
fn three(test: &str, ground: &Ground) -> Option<Nginx> {
    // The servers are slow, so that none of them sends everything before the other connections exist.
    let nginx = Nginx::start(test, &["limit_rate 8m;"; 3])?;
    for server in 0..3 {
        nginx.put(server, "f.bin", &ground.content);
    }
    let urls: Vec<String> = (0..3).map(|server| nginx.url(server, "f.bin")).collect();
    mirror_list(ground, &urls);
    Some(nginx)
}

/// Writes `f.bin.meta4` and `f.bin.b3leaves` for the content into the ground's directory.
fn mirror_list(ground: &Ground, urls: &[String]) {
    let file = ground.dir.path().join("f.bin");
    fs::write(&file, &ground.content).expect("a file");
    let mut command = anabranch();
    command.args(["mirror-list", "make", "--quiet"]).arg(&file).args(urls);
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{output:?}");
    fs::remove_file(file).expect("the file");
}

fn beside(ground: &Ground, name: &str) -> String {
    ground.dir.path().join(name).to_str().expect("UTF-8").to_owned()
}

fn hex(content: &[u8]) -> String {
    data_encoding::HEXLOWER.encode(&Sha256::digest(content))
}

#[test]
fn all_that_may_lie_beside_a_file_is_asked_for_with_its_metadata() {
    let ground = Ground::new(3_000_000);
    let content = ground.content.clone();
    let asked = Arc::new(AtomicUsize::new(0));
    let site = Site::answering(move |request| {
        if request.path != PATH {
            asked.fetch_add(1, Ordering::SeqCst);
            return Reply::new(404, b"");
        }
        // The server answers only if all four are requested at the same time.
        let patience = (0..5_000).find(|_| {
            thread::sleep(Duration::from_millis(1));
            asked.load(Ordering::SeqCst) == 4
        });
        if patience.is_some() { honest(request, &content, "\"v\"") } else { Reply::new(500, b"") }
    });
    run(ground.get_named(&[site.url()], &["--json"])).expect(0);
    ground.assert_arrived();
    // One request returns all metadata, and the ranges use its connection.
    let seen = site.seen();
    let file: Vec<_> = seen.iter().filter(|request| request.path == PATH).collect();
    assert!(file.len() >= 2 && file.iter().all(|request| request.from == file[0].from), "{file:?}");
}

#[test]
fn a_leaf_list_that_is_too_long_to_be_taken_at_once_is_asked_for_when_the_length_is_known() {
    for (length, times) in [(3_000_000, 1), (3_000_000_000_u64, 2)] {
        let site = Site::answering(move |request| match request.path.as_str() {
            PATH if !request.is_for_bytes() => Reply::new(206, &[0; METADATA_BYTES as usize])
                .with("content-range", format!("bytes 0-{}/{length}", METADATA_BYTES - 1)),
            "/f.bin.b3leaves" => Reply::new(200, b"anb3leaf").with("content-length", "5860000"),
            _ => Reply::new(404, b""),
        });
        let ground = Ground::new(1);
        run(ground.get_named(&[site.url()], &["--json"])).expect(3);
        let lists = site.seen().iter().filter(|request| request.path.ends_with(".b3leaves")).count();
        assert_eq!(lists, times, "{:?}", site.seen());
    }
}

#[test]
fn three_nginx_by_a_metalink_of_ours() {
    let ground = Ground::new(12_345_678);
    let Some(nginx) = three("three nginx", &ground) else { return };
    let metalink = beside(&ground, "f.bin.meta4");
    let done = run(ground.get_named(&[&metalink], &["--json"])).expect(0);
    ground.assert_arrived();
    assert!(done.notes().contains("every 16 KiB will be verified by BLAKE3"), "{}", done.out);
    let summary = done.summary();
    assert_eq!(summary["verified"], "blocks");
    assert_eq!(summary["content"], ContentId::of(&ground.content).to_string());
    let each: Vec<u64> = nginx.addresses.iter().map(|address| done.bytes_from(*address)).collect();
    assert!(each.iter().all(|bytes| *bytes >= 1 << 20), "{each:?}");
    assert_eq!(each.iter().sum::<u64>(), 12_345_678);
    // Now each server is reached from two addresses.
    let two = ["--json", "--force", "--via", "127.0.0.1", "--via", "127.0.0.77"];
    fs::remove_file(ground.target()).expect("the file");
    let summary = run(ground.get_named(&[&metalink], &two)).expect(0).summary();
    ground.assert_arrived();
    let rows = summary["last"]["paths"].as_array().expect("paths");
    assert_eq!(rows.len(), 6, "{summary}");
    assert!(rows.iter().all(|row| row["bytes"].as_u64() > Some(0)), "{summary}");
    // The second time, the file is there.
    let done = run(ground.get_named(&[&metalink], &[])).expect(0);
    assert!(done.err.contains("verified, all of it was there"), "{}", done.err);
}

#[test]
fn a_metalink_on_a_server_and_one_without_a_leaf_list() {
    let ground = Ground::new(4_000_001);
    let Some(nginx) = three("a Metalink on a server", &ground) else { return };
    for name in ["f.bin.meta4", "f.bin.b3leaves"] {
        nginx.put(1, name, &fs::read(beside(&ground, name)).expect("a file"));
    }
    let url = nginx.url(1, "f.bin.meta4");
    let done = run(ground.get_named(&[&url], &["--json"])).expect(0);
    ground.assert_arrived();
    assert_eq!(done.summary()["verified"], "blocks");
    fs::remove_file(ground.target()).expect("the file");
    // The name comes from the Metalink.
    let mut command = anabranch();
    command.current_dir(ground.to()).args(["get", "--json", &url]);
    run(command).expect(0);
    assert_eq!(names(&ground.to()), ["f.bin"]);
    fs::remove_file(ground.to().join("f.bin")).expect("the file");
    // Without a leaf list, hashes of pieces are enough.
    fs::remove_file(nginx.root(1).join("f.bin.b3leaves")).expect("the file");
    let done = run(ground.get_named(&[&url], &["--json"])).expect(0);
    ground.assert_arrived();
    assert_eq!(done.summary()["verified"], "pieces");
    assert!(done.notes().contains("every piece will be verified by SHA-256"), "{}", done.out);
}

#[test]
fn urls_alone_are_called_unverified_and_known_the_next_time() {
    let ground = Ground::new(5_000_000);
    let Some(nginx) = three("URLs alone", &ground) else { return };
    let cache = ground.dir.path().join("cache");
    let urls: Vec<String> = (0..3).map(|server| nginx.url(server, "f.bin")).collect();
    let get = |more: &[&str]| {
        let mut command = ground.get_named(&urls, more);
        command.env("XDG_CACHE_HOME", &cache);
        command
    };
    let id = ContentId::of(&ground.content);
    let done = run(get(&["--print-uri"])).expect(0);
    ground.assert_arrived();
    assert_eq!(done.out, format!("anabranch:{id}?len=5000000\n"), "this was asked for");
    assert!(!done.err.contains("b3:") && done.err.matches("UNVERIFIED").count() == 1, "{}", done.err);
    let advice = done.err.lines().last().expect("an advice");
    assert!(advice.starts_with("there is no hash of it, so mirrors are only compared"), "{advice}");
    assert!(
        advice.ends_with("--checksum with a hash that you trust, or a list such as SHA256SUMS, verifies it")
    );
    let end = done.err.lines().rfind(|line| line.contains("5.0 MB")).expect("an end");
    assert!(end.contains("UNVERIFIED") && !end.contains(" verified"), "{end}");

    // The file that is there is the one that came, and the message claims no more than that.
    let done = run(get(&[])).expect(0);
    let end = done.err.lines().last().expect("an end");
    assert!(end.contains("UNVERIFIED, the same as on 20") && end.ends_with("all of it was there"), "{end}");
    let done = run(get(&["--json"])).expect(0);
    assert_eq!(done.summary()["verified"], "unchanged");
    assert_eq!(done.summary()["unverified_since"].as_str().expect("a day").len(), 10);

    // Bytes from several servers without a proof may be a mixture. A file from one server is remembered.
    let few = |count: usize, more: &[&str]| {
        let mut command = ground.get_named(&urls[..count], more);
        command.env("XDG_CACHE_HOME", &cache);
        command
    };
    run(few(1, &["--force"])).expect(0);

    // A server with the same validator has the same content. Its bytes are compared with that, which proves
    // no origin.
    let done = run(few(2, &["--force", "--json"])).expect(0);
    assert!(done.notes().contains(&format!("had the content {id} before")), "{}", done.out);
    assert_eq!(done.summary()["verified"], "unchanged");
    fs::remove_file(ground.target()).expect("the file");
    let done = run(few(2, &["--json"])).expect(0);
    ground.assert_arrived();
    assert_eq!(done.summary()["content"], id.to_string());
    assert!(done.advice().contains("held against what came on 20"), "{}", done.out);
    assert_eq!(done.summary()["verified"], "unchanged");

    // Another file of the same length has another validator.
    let mut other = ground.content.clone();
    other.reverse();
    let later = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    for server in 0..3 {
        nginx.put(server, "f.bin", &other);
        let file = fs::File::options().write(true).open(nginx.root(server).join("f.bin")).expect("the file");
        file.set_modified(later).expect("a time");
    }
    let done = run(get(&["--json", "--force"])).expect(0);
    assert_eq!(done.summary()["verified"], "nothing");
    assert_eq!(done.summary()["content"], ContentId::of(&other).to_string());
    assert!(fs::read(ground.target()).expect("a file") == other);
}

#[test]
fn hashes_beside_the_file_are_found() {
    let ground = Ground::new(3_000_000);
    let Some(nginx) = Nginx::start("hashes beside", &[""]) else { return };
    nginx.put(0, "f.bin", &ground.content);
    let url = nginx.url(0, "f.bin");
    let get = |verified: &str| {
        let done = run(ground.get_named(&[&url], &["--json", "--force"])).expect(0);
        assert_eq!(done.summary()["verified"], verified, "{}", done.out);
        ground.assert_arrived();
        fs::remove_file(ground.target()).expect("the file");
    };
    get("nothing");
    nginx.put(0, "f.bin.b3", format!("{}  f.bin\n", blake3::hash(&ground.content).to_hex()).as_bytes());
    get("whole");
    nginx.put(0, "f.bin.b3leaves", &leaf_list(&ground.content));
    get("blocks");
    // The hash beside the file is not the file's.
    fs::remove_file(nginx.root(0).join("f.bin.b3leaves")).expect("the file");
    nginx.put(0, "f.bin.b3", format!("{}  f.bin\n", blake3::hash(b"other").to_hex()).as_bytes());
    let done = run(ground.get_named(&[&url], &["--json"])).expect(5);
    assert!(done.err.contains("the whole of it is not b3:"), "{}", done.err);
    // The file is kept, because the hash may be wrong.
    assert_eq!(names(&ground.to()), ["f.unverified"]);
}

#[test]
fn a_leaf_list_beside_any_url_serves_where_the_id_is_known() {
    let ground = Ground::new(3_000_000);
    let Some(nginx) = Nginx::start("a leaf list beside the third", &["", "", ""]) else { return };
    for server in 0..3 {
        nginx.put(server, "f.bin", &ground.content);
    }
    nginx.put(1, "f.bin.b3leaves", &leaf_list(&crate::common::noise(2_000_000)));
    nginx.put(2, "f.bin.b3leaves", &leaf_list(&ground.content));
    let urls = [0, 1, 2].map(|server| nginx.url(server, "f.bin"));
    // A list whose root the user did not ask for is believed only for the first server.
    let done = run(ground.get_named(&urls, &["--json"])).expect(0);
    assert_eq!(done.summary()["verified"], "nothing", "{}", done.out);
    let id = Uri::new(ContentId::of(&ground.content)).to_string();
    let done = run(ground.get_named(&[&[id], &urls[..]].concat(), &["--json", "--force"])).expect(0);
    assert_eq!(done.summary()["verified"], "blocks", "{}", done.out);
    ground.assert_arrived();
}

#[test]
fn a_digest_of_the_server_or_of_the_user() {
    let ground = Ground::new(2_000_000);
    let digest = data_encoding::BASE64.encode(&Sha256::digest(&ground.content));
    let field = format!("add_header Repr-Digest \"sha-256=:{digest}:\";");
    let Some(nginx) = Nginx::start("a digest", &[&field, ""]) else { return };
    for server in 0..2 {
        nginx.put(server, "f.bin", &ground.content);
    }
    let get = |server: usize, more: &[&str]| {
        run(ground.get_named(&[nginx.url(server, "f.bin")], &[&["--json"], more].concat()))
    };
    let done = get(0, &[]).expect(0);
    ground.assert_arrived();
    assert_eq!(done.summary()["verified"], "whole");
    assert!(done.advice().contains("the whole is only compared, by hashes"), "{}", done.out);
    fs::remove_file(ground.target()).expect("the file");
    let done = get(1, &["--checksum", &format!("sha-256={}", hex(&ground.content))]).expect(0);
    ground.assert_arrived();
    assert_eq!(done.summary()["verified"], "whole");
    let done = get(1, &["--checksum", &format!("sha-256={}", hex(&ground.content))]).expect(0);
    assert_eq!(done.summary()["last"]["resumed_bytes"], 2_000_000, "it is there");
    fs::remove_file(ground.target()).expect("the file");
    let done = get(1, &["--checksum", &format!("sha-256={}", hex(b"other"))]).expect(5);
    assert!(done.err.contains("SHA-256") && done.err.contains("f.unverified"), "{}", done.err);
    assert_eq!(names(&ground.to()), ["f.unverified"], "the only mirror has just this");
}

#[test]
fn names_on_standard_input() {
    let ground = Ground::new(2_500_000);
    let (one, two) = (Site::good(&ground.content), Site::good(&ground.content));
    let mut command = ground.get_named(&["-"], &["--json"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("a process");
    let list = format!("# mirrors\n\n  {}\n{}\n", one.url(), two.url());
    child.stdin.take().expect("its input").write_all(list.as_bytes()).expect("written");
    let output = child.wait_with_output().expect("its end");
    assert!(output.status.success(), "{output:?}");
    ground.assert_arrived();
    assert!(one.body_bytes() > 0 && two.body_bytes() > 0);
}

/// This is what `get <(cat x.meta4)` and `cat x.meta4 | anabranch get /dev/stdin` do.
#[test]
fn metalinks_and_lists_of_checksums_from_pipes() {
    let ground = Ground::new(2_500_000);
    let site = Site::good(&ground.content);
    let sum = |content: &[u8]| data_encoding::HEXLOWER.encode(&<Sha256 as sha2::Digest>::digest(content));
    let list = format!(
        "<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\"><file name=\"f\"><size>2500000</size>\
         <hash type=\"sha-256\">{}</hash><metaurl mediatype=\"application/x-anabranch-leaves\">0</metaurl>\
         <url>{}</url></file></metalink>",
        sum(&ground.content),
        site.url()
    );
    let piped = |names: &[&str], more: &[&str], text: &str| {
        let mut command = ground.get_named(names, &[&["--json"], more].concat());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("a process");
        child.stdin.take().expect("its input").write_all(text.as_bytes()).expect("written");
        let output = child.wait_with_output().expect("its end");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for name in ["/dev/stdin", "/dev/fd/0"] {
        assert_eq!(piped(&[name], &[], &list), (Some(0), String::new()), "{name}");
        ground.assert_arrived();
        fs::remove_file(ground.target()).expect("it arrived");
    }
    let (code, why) = piped(&["-"], &[], &format!("\u{feff}{list}"));
    assert!(code == Some(2) && why.contains("/dev/stdin"), "{why}");
    let (code, why) = piped(&["/dev/stdin"], &[], "no Metalink");
    assert!(code == Some(2) && why.contains("no Metalink"), "{why}");
    let sums = |content: &[u8]| format!("{}  f.bin\n{}  other\n", sum(content), sum(b"other"));
    let url = site.url();
    assert_eq!(piped(&[&url], &["--checksum", "/dev/stdin"], &sums(b"else")).0, Some(5));
    fs::remove_file(ground.to().join("f.unverified")).expect("kept");
    assert_eq!(piped(&[&url], &["--checksum", "/dev/stdin"], &sums(&ground.content)).0, Some(0));
    ground.assert_arrived();
}

#[test]
fn wrong_arguments() {
    let ground = Ground::new(100_000);
    let site = Site::good(&ground.content);
    let (url, id) = (site.url(), ContentId::of(&ground.content));
    let uri = format!("anabranch:{id}?len=100000");
    let two = "<?xml version=\"1.0\"?><metalink xmlns=\"urn:ietf:params:xml:ns:metalink\">\
               <file name=\"one\"><size>1</size><url>http://127.0.0.1/one</url></file>\
               <file name=\"two\"><size>1</size><url>http://127.0.0.1/two</url></file></metalink>";
    fs::write(beside(&ground, "two.meta4"), two).expect("a file");
    fs::write(beside(&ground, "no.meta4"), "<html>hello</html>").expect("a file");
    fs::write(beside(&ground, "f.bin"), "no list").expect("a file");
    let other = format!("anabranch:{}?len=1", ContentId::of(b"x"));
    let (two, checksum) = (beside(&ground, "two.meta4"), format!("sha-256={}", "ab".repeat(32)));
    for (names, more, says) in [
        (vec!["ftp://127.0.0.1/f"], vec![], "only http: and https:"),
        (vec!["http://"], vec![], "http://"),
        (vec!["/no/such.meta4"], vec![], "No such file"),
        (vec![&*two], vec!["--checksum", &*checksum], "2 files: --checksum is of one"),
        (vec![&*two], vec!["--from", "127.0.0.1:1"], "2 files: --from"),
        (vec![&*two, &*url], vec![], "2 files: the URLs beside it"),
        (vec![&*beside(&ground, "no.meta4")], vec![], "no Metalink"),
        (vec![&*beside(&ground, "f.bin")], vec![], "no Metalink"),
        (vec![&*uri, &*other], vec![], "two URIs"),
        (vec![&*url], vec!["--from", "127.0.0.1:1"], "--from needs the content's id"),
        (vec![&*url], vec!["--checksum", "md5=00"], "sha-256="),
        (vec![&*url], vec!["--header", "nonsense"], "NAME: VALUE"),
        (vec![&*url], vec!["--header", "Range: bytes=0-1"], "range cannot be set"),
        (vec![&*url], vec!["--user", "nobody"], "no terminal to ask for the password"),
        (vec![&*url], vec!["--proxy", "gopher://x"], "proxy"),
        (vec![&*url], vec!["--cacert", "/no/such.pem"], "/no/such.pem"),
        (vec!["-"], vec![], "standard input has no URI and no URL"),
    ] {
        let done = run(ground.get_named(&names, &more)).expect(2);
        assert!(done.err.contains(says), "{names:?} {more:?}: {}", done.err);
        assert!(crate::common::fetch::names(&ground.to()).is_empty());
    }
}

#[test]
fn a_target_that_is_there() {
    let ground = Ground::new(1_000_000);
    let site = Site::good(&ground.content);
    fs::write(ground.target(), b"mine").expect("a file");
    let done = run(ground.get_named(&[site.url()], &["--json"])).expect(6);
    assert!(done.err.contains("is there already"), "{}", done.err);
    assert_eq!(fs::read(ground.target()).expect("a file"), b"mine");
    assert_eq!(names(&ground.to()), ["f"]);
    run(ground.get_named(&[site.url()], &["--force"])).expect(0);
    ground.assert_arrived();
    // Nothing says that the file that is there is the same.
    run(ground.get_named(&[site.url()], &[])).expect(6);
    ground.assert_arrived();
}

#[test]
fn names_passwords_and_fields() {
    let ground = Ground::new(300_000);
    let auth = "auth_basic \"closed\"; auth_basic_user_file users;";
    let Some(nginx) = Nginx::start("names and passwords", &[auth]) else { return };
    // nginx looks for the file beside its configuration.
    fs::write(nginx.root(0).parent().expect("a parent").join("users"), "me:{PLAIN}se+cret\n")
        .expect("a file");
    nginx.put(0, "f.bin", &ground.content);
    let url = nginx.url(0, "f.bin");
    let done = run(ground.get_named(&[&url], &["--json"])).expect(9);
    assert!(done.err.contains("a name and a password (401): give them with --user"), "{}", done.err);
    let summary = done.summary();
    assert!(summary["exit"] == 9 && summary["complete"] == false && summary["content"].is_null());
    assert!(summary["error"].as_str().expect("why").contains("give them with --user"), "{summary}");
    let done = run(ground.get_named(&[&url], &["--user", "me:wrong"])).expect(9);
    assert!(done.err.contains("(401): those that were given are wrong"), "{}", done.err);
    let cache = ground.dir.path().join("cache");
    let arrives = |url: &str, more: &[&str]| {
        let mut command = ground.get_named(&[url], more);
        command.env("XDG_CACHE_HOME", &cache);
        let done = run(command).expect(0);
        ground.assert_arrived();
        assert!(!done.err.contains("cret") && !done.out.contains("cret"), "{}{}", done.err, done.out);
        fs::remove_file(ground.target()).expect("the file");
    };
    arrives(&url, &["--user", "me:se+cret"]);
    arrives(&url.replace("http://", "http://me:se%2Bcret@"), &[]);
    let netrc = beside(&ground, "netrc");
    fs::write(&netrc, format!("machine {} login me password se+cret\n", nginx.addresses[0].ip()))
        .expect("a file");
    arrives(&url, &[&format!("--netrc={netrc}")]);
    // The server wants a header field of its own.
    let content = ground.content.clone();
    let site = Site::new(&ground.content, move |request, reply| {
        if request.field("x-token") == Some("42") { reply } else { Reply::new(403, &content[..10]) }
    });
    run(ground.get_named(&[site.url()], &[])).expect(9);
    arrives(&site.url(), &["-H", "X-Token: 42"]);
    // Servers that only a Metalink names get no secrets, unless the user names them too.
    mirror_list(&ground, std::slice::from_ref(&url));
    let list = beside(&ground, "f.bin.meta4");
    let netrc = format!("--netrc={netrc}");
    let header = ["-H", "Authorization: Basic bWU6c2UrY3JldA=="];
    for more in [&["--user", "me:se+cret"][..], &header, &[&*netrc]] {
        let done = run(ground.get_named(&[&list], more)).expect(9);
        let says = "(401): what --user, --header and --netrc say goes only to";
        assert!(done.err.contains(says) && !done.err.contains("cret"), "{}", done.err);
        arrives(&list, &[&[&*url], more].concat());
    }
    // The history contains no password.
    let known = fs::read_to_string(cache.join("anabranch/urls.jsonl")).expect("what is known");
    assert!(known.contains(&url) && !known.contains("cret"), "{known}");
}

#[test]
fn a_redirect_does_not_take_the_password_along() {
    let ground = Ground::new(300_000);
    let there = Site::good(&ground.content);
    let url = there.url();
    let here =
        Site::new(&ground.content, move |_, _| Reply::new(302, b"there").with("location", url.clone()));
    let named = here.url().replace("http://", "http://me:cret@");
    run(ground.get_named(&[named], &["--json"])).expect(0);
    ground.assert_arrived();
    assert!(here.seen().iter().any(|request| request.field("authorization").is_some()));
    assert!(there.seen().iter().all(|request| request.field("authorization").is_none()));
    assert!(there.body_bytes() >= 300_000);
    // The redirects form an endless circle.
    let circle = Site::new(&ground.content, |_, _| Reply::new(302, b"").with("location", "/f.bin"));
    let done = run(ground.get_named(&[circle.url()], &["--force"])).expect(3);
    assert!(done.err.contains("redirect"), "{}", done.err);
}

/// Serves a file by TLS, with a certificate that `openssl req -x509` makes with these options.
fn certificate(of: &[&str]) {
    let ground = Ground::new(1_000_000);
    let mut command = Command::new("openssl");
    command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]);
    command.args(["-days", "2", "-keyout", "key.pem", "-out", "cert.pem"]).args(of);
    match command.current_dir(ground.dir.path()).output() {
        Ok(output) if output.status.success() => {}
        other => return skipped(format!("certificates: openssl: {other:?}")),
    }
    let read = |name: &str| fs::read_to_string(beside(&ground, name)).expect("a file");
    let Some(nginx) = Nginx::start_tls("certificates", &read("cert.pem"), &read("key.pem")) else { return };
    nginx.put(0, "f.bin", &ground.content);
    let url = nginx.url(0, "f.bin").replace("http://", "https://");
    let done = run(ground.get_named(&[&url], &["--json"])).expect(4);
    let words = done.err.split_once("no secure connection: ").expect("why").1;
    assert!(!words.contains(['(', '{', '"']) && words.contains("--cacert"), "words, no types: {words}");
    assert!(names(&ground.to()).is_empty());
    run(ground.get_named(&[&url], &["--cacert", &beside(&ground, "cert.pem")])).expect(0);
    ground.assert_arrived();
    run(ground.get_named(&[&url], &["--insecure", "--force"])).expect(0);
    ground.assert_arrived();
    // A name other than the certificate's is refused, even with the right authority.
    let other = url.replace("127.0.0.2", "localhost");
    let done = run(ground.get_named(&[&other], &["--cacert", &beside(&ground, "cert.pem"), "--force"]));
    assert_eq!(done.code, Some(4), "{}", done.err);
}

#[test]
fn certificates() {
    let name = ["-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.2"];
    certificate(&[&name[..], &["-addext", "basicConstraints=critical,CA:FALSE"]].concat());
    // Most people make such a certificate: an authority's, with only a common name.
    certificate(&["-subj", "/CN=127.0.0.2"]);
}

#[test]
fn servers_and_proxies_that_are_not_there() {
    let ground = Ground::new(2_000_000);
    let nobody = gone();
    let dead = format!("http://{nobody}/f.bin");
    let done = run(ground.get_named(&[&dead], &["--json"])).expect(4);
    assert!(done.err.contains("cannot be reached") && done.err.contains("refused"), "{}", done.err);
    let unknown = "http://no-such-host.invalid/f.bin";
    let done = run(ground.get_named(&[unknown], &["--json"])).expect(4);
    assert!(done.err.contains("no-such-host.invalid"), "{}", done.err);
    let site = Site::good(&ground.content);
    let done = run(ground.get_named(&[site.url()], &["--proxy", &format!("http://{nobody}")])).expect(4);
    assert!(done.err.contains("proxy"), "{}", done.err);
    assert!(names(&ground.to()).is_empty());
    // Beside a working server, they do no harm.
    let done = run(ground.get_named(&[&dead, unknown, &site.url()], &["--json"])).expect(0);
    ground.assert_arrived();
    assert!(done.notes().contains(&format!("{nobody}: it cannot be reached")), "{}", done.out);
    assert!(done.notes().contains("no-such-host.invalid: it cannot be reached"), "{}", done.out);
}

#[test]
fn files_of_no_byte_and_of_few() {
    for len in [0, 1, 16_384, 16_385] {
        let ground = Ground::new(len);
        let Some(nginx) = three("short files", &ground) else { return };
        let metalink = beside(&ground, "f.bin.meta4");
        run(ground.get_named(&[&metalink], &["--json"])).expect(0);
        ground.assert_arrived();
        fs::remove_file(ground.target()).expect("the file");
        let urls: Vec<String> = (0..3).map(|server| nginx.url(server, "f.bin")).collect();
        let done = run(ground.get_named(&urls, &["--json"])).expect(0);
        ground.assert_arrived();
        assert_eq!(done.summary()["content"], ContentId::of(&ground.content).to_string());
    }
}
