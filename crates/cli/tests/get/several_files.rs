//! Several URLs: of one file, as mirrors are, or of several files.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::common::fetch::{leaf_list, names, run};
use crate::common::{anabranch, noise};
use crate::peers::site::{Reply, Request, Site, Switch, Then, gone, honest};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// Makes a server of these files.
fn server(files: &[(&'static str, Vec<u8>)]) -> Site {
    let files = files.to_vec();
    Site::answering(move |request: &Request| {
        let path = request.path.split('?').next().unwrap_or_default();
        match files.iter().find(|(name, _)| path.strip_prefix('/') == Some(name)) {
            Some((name, content)) => honest(request, content, &format!("\"{name}\"")),
            None => Reply::new(404, b"no such file"),
        }
    })
}

fn hex(bytes: &[u8]) -> String {
    data_encoding::HEXLOWER.encode(bytes)
}

fn url(site: &Site, name: &str) -> String {
    format!("http://{}/{name}", site.address)
}

/// A directory for the files that arrive, with a list of hashes beside it.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().expect("a directory"));
        fs::create_dir(place.to()).expect("a directory");
        place
    }

    fn to(&self) -> PathBuf {
        self.0.path().join("to")
    }

    fn list(&self, files: &[(&str, &[u8])]) -> String {
        let line = |(name, content): &(&str, &[u8])| format!("{}  {name}\n", hex(&Sha256::digest(content)));
        let path = self.0.path().join("SHA256SUMS");
        fs::write(&path, files.iter().map(line).collect::<String>()).expect("a file");
        format!("--checksum={}", path.display())
    }

    fn get(&self, urls: &[&str], more: &[&str]) -> Command {
        let mut command = anabranch();
        command.arg("get").args(urls).args(more).current_dir(self.to());
        command
    }

    fn assert_has(&self, files: &[(&str, &[u8])]) {
        assert_eq!(names(&self.to()), files.iter().map(|(name, _)| *name).collect::<Vec<_>>());
        for (name, content) in files {
            assert!(fs::read(self.to().join(name)).expect("a file") == *content, "{name}");
        }
    }
}

fn events(out: &str, event: &str) -> Vec<Value> {
    let all = out.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    all.filter(|value| value["event"] == event).collect()
}

/// URLs of different files, typed as for curl and wget, are refused in every order: no file gets the bytes of
/// another one.
#[test]
fn different_files_are_not_taken_for_one() {
    let (mid, album) = (noise(300_000), noise(400_000));
    let mut other = mid.clone();
    other[0] ^= 1;
    let all = [("mid.iso", mid), ("album.tar", album), ("same-length.iso", other)];
    let (one, two) = (server(&all), server(&all));
    for (at, name) in [(&one, "album.tar"), (&two, "album.tar"), (&one, "same-length.iso")] {
        let pair = [url(&one, "mid.iso"), url(at, name)];
        for urls in [[&pair[0], &pair[1]], [&pair[1], &pair[0]]] {
            for more in [&[][..], &["-o", "./"], &["-o", "-"]] {
                let place = Place::new();
                let done = run(place.get(&urls.map(String::as_str), more)).expect(2);
                assert!(pair.iter().all(|url| done.err.contains(url.as_str())), "{}", done.err);
                assert!(done.err.contains("--each") && done.err.contains("--output"), "{}", done.err);
                place.assert_has(&[]);
            }
        }
    }
}

/// The query tells a server which file is meant.
#[test]
fn a_query_is_a_name_too() {
    let site = Site::answering(|request| {
        honest(request, &noise(if request.path.ends_with('1') { 300_000 } else { 400_000 }), "\"v\"")
    });
    let urls = [url(&site, "get?f=1"), url(&site, "get?f=2")];
    let done = run(Place::new().get(&urls.each_ref().map(String::as_str), &[])).expect(2);
    assert!(urls.iter().all(|url| done.err.contains(url.as_str())), "{}", done.err);
}

/// The list shows the error before any server is asked, even for a silent server, and whatever name the file
/// is to have.
#[test]
fn a_list_with_another_hash_of_each_is_an_error_at_once() {
    let (old, new) = (noise(300_000), noise(400_000));
    let all = [("os-12.4.iso", old.clone()), ("os-12.5.iso", new.clone())];
    let (one, two) = (server(&all), server(&all));
    let away = format!("http://{}/os-12.5.iso", gone());
    let place = Place::new();
    let list = place.list(&[("os-12.4.iso", &old), ("os-12.5.iso", &new)]);
    for other in [url(&one, "os-12.5.iso"), url(&two, "os-12.5.iso"), away] {
        let pair = [url(&one, "os-12.4.iso"), other];
        for urls in [[&pair[0], &pair[1]], [&pair[1], &pair[0]]] {
            for more in [&[&*list][..], &[&list, "-o", "os-12.4.iso"], &[&list, "-o", "-"]] {
                let done = run(place.get(&urls.map(String::as_str), more)).expect(2);
                assert!(pair.iter().all(|url| done.err.contains(url.as_str())), "{}", done.err);
                assert!(done.err.contains("--each"), "{}", done.err);
            }
        }
    }
    place.assert_has(&[]);
    assert!(one.seen().is_empty() && two.seen().is_empty(), "nobody is asked");
}

/// Mirrors rename files. A URL with a name from the list of hashes keeps that name.
#[test]
fn renamed_mirrors_are_mirrors() {
    let content = noise(2_000_000);
    let (one, two) = (server(&[("latest.iso", content.clone())]), server(&[("os.iso", content.clone())]));
    let urls = [url(&one, "latest.iso"), url(&two, "os.iso")];
    let urls = urls.each_ref().map(String::as_str);
    let place = Place::new();
    run(place.get(&urls, &[])).expect(0);
    place.assert_has(&[("latest.iso", &content)]);
    let place = Place::new();
    let list = place.list(&[("os.iso", &content), ("other.iso", b"other")]);
    run(place.get(&urls, &[&list])).expect(0);
    place.assert_has(&[("os.iso", &content)]);
}

/// A mirror of the same name has another version. It is left out and named, by its URL if its server has
/// several, and the others send theirs. If the user gives a name, all URLs are of one file, whatever they are
/// called.
#[test]
fn another_version_is_left_out_and_named() {
    let content = noise(300_000);
    let files = [("f", content.clone()), ("old/f", noise(200_000)), ("g", noise(100_000))];
    let sites = [(); 2].map(|()| server(&files));
    let (a, b, old) = (url(&sites[0], "f"), url(&sites[1], "f"), url(&sites[0], "old/f"));
    let place = Place::new();
    let done = run(place.get(&[&a, &b, &old], &["-q"])).expect(0);
    assert!(done.err.contains(&format!("{old}: it has 200000 bytes")), "{}", done.err);
    place.assert_has(&[("f", &content)]);
    let place = Place::new();
    run(place.get(&[&a, &b, &url(&sites[0], "g")], &["-o", "x"])).expect(0);
    place.assert_has(&[("x", &content)]);
}

#[test]
fn each_url_is_a_file_of_its_own() {
    let (one, two) = (noise(300_000), noise(400_000));
    let site = server(&[("a.iso", one.clone()), ("b.iso", two.clone()), ("c.iso", one.clone())]);
    let urls = ["a.iso", "missing.iso", "c.iso", "b.iso"].map(|name| url(&site, name));
    let urls = urls.each_ref().map(String::as_str);
    // No line of the list is for c.iso, which affects only that file. The first failure gives the exit
    // status.
    for (urls, exits, code) in [
        (&urls[..], &[0, 3, 2, 0][..], 3),
        (&[urls[2], urls[1], urls[0]], &[2, 3, 0], 2),
        (&[urls[0], urls[3]], &[0, 0], 0),
    ] {
        let place = Place::new();
        let list = place.list(&[("a.iso", &one), ("b.iso", &two), ("missing.iso", b"x")]);
        let more = ["--each", "--json", "-o", "new/", &list];
        let done = run(place.get(urls, &more)).expect(code);
        let files = events(&done.out, "file");
        let found: Vec<_> = files.iter().map(|file| file["url"].as_str().unwrap_or_default()).collect();
        assert_eq!(found, urls);
        let found: Vec<_> = files.iter().map(|file| file["exit"].as_i64().unwrap_or(-1)).collect();
        assert_eq!(found, exits);
        for file in files.iter().filter(|file| file["exit"] == 0) {
            let name = file["url"].as_str().and_then(|url| url.rsplit('/').next()).expect("a name");
            assert_eq!(file["target"], format!("new/{name}"));
            assert_eq!(
                (file["verified"].as_str(), file["verified_by"].as_str()),
                (Some("whole"), Some("user"))
            );
            let content = if name == "a.iso" { &one } else { &two };
            assert!(fs::read(place.to().join("new").join(name)).expect("a file") == *content);
        }
        let summary = done.summary();
        let whole: u64 = files.iter().filter_map(|file| file["last"]["done_bytes"].as_u64()).sum();
        assert_eq!(summary["last"]["done_bytes"], whole);
        assert_eq!((&summary["exit"], &summary["complete"]), (&code.into(), &(code == 0).into()));
        assert_eq!(summary["content"], format!("{} files", urls.len()));
        assert_eq!(summary["target"], "new/");
        assert_eq!(summary["verified_by"], "user");
    }
    // Without --json, `--each` is the only option.
    let place = Place::new();
    let done = run(place.get(&urls, &["--each"])).expect(3);
    place.assert_has(&[("a.iso", &one), ("b.iso", &two), ("c.iso", &one)]);
    assert!(done.err.contains("1 of 4 files could not be had (missing.iso)"), "{}", done.err);
}

/// A pipe can be read only once.
#[test]
fn the_list_of_each_is_read_once() {
    let (one, two) = (noise(300_000), noise(400_000));
    let site = server(&[("a.iso", one.clone()), ("b.iso", two.clone())]);
    let place = Place::new();
    place.list(&[("a.iso", &one), ("b.iso", &two)]);
    let program = anabranch().get_program().to_string_lossy().into_owned();
    let script = "exec \"$0\" get --each --no-history \"$1\" \"$2\" --checksum <(cat ../SHA256SUMS)";
    let mut command = Command::new("bash");
    let urls = [url(&site, "a.iso"), url(&site, "b.iso")];
    command.args(["-c", script, &program]).args(urls).current_dir(place.to());
    run(command).expect(0);
    place.assert_has(&[("a.iso", &one), ("b.iso", &two)]);
}

#[test]
fn what_is_of_one_file_does_not_go_with_each() {
    let place = Place::new();
    let (a, b, other) = ("http://127.0.0.1:1/a", "http://127.0.0.1:1/b", "http://127.0.0.1:2/a");
    let hash = format!("--checksum={}", "ab".repeat(32));
    let uri = format!("anabranch:{}?len=1", anabranch_mmtp::ContentId::of(b"x"));
    fs::write(place.to().join("there"), b"x").expect("a file");
    for (names, more, says) in [
        (&[a, b][..], &["-o", "new"][..], "end its name with a slash"),
        (&[a, b], &["-o", "there"], "end its name with a slash"),
        (&[a, b], &["-o", "-"], "end its name with a slash"),
        (&[a, b], &[&hash], "SHA256SUMS"),
        (&[a, b], &["--from", "127.0.0.1:1"], "--from"),
        (&[a, other], &[], "have the same name"),
        (&[a, &uri], &[], "by itself"),
        (&[a, "http://127.0.0.1:1/f.meta4"], &[], "by itself"),
    ] {
        let done = run(place.get(names, &[&["--each"], more].concat())).expect(2);
        assert!(done.err.contains(says), "{names:?} {more:?}: {}", done.err);
    }
    place.assert_has(&[("there", b"x")]);
}

/// The server supports neither ranges nor versions. The part that came cannot be used again, and the same
/// command starts over, as its message says.
#[test]
fn what_cannot_be_resumed_begins_anew() {
    let (content, is_healthy) = (noise(300_000), Switch::default());
    let (sent, turned) = (content.clone(), is_healthy.clone());
    let site = Site::answering(move |_| {
        let reply = Reply::new(200, &sent).with("content-type", "application/octet-stream");
        if turned.is_turned() { reply } else { reply.cut(100_000, Then::Close) }
    });
    let place = Place::new();
    let url = url(&site, "f");
    for _ in 0..2 {
        let done = run(place.get(&[&url], &["--timeout", "1"])).expect(4);
        assert!(done.err.contains("the same command begins anew"), "{}", done.err);
        assert!(!done.err.contains("resumes"), "{}", done.err);
    }
    is_healthy.set(true);
    run(place.get(&[&url], &[])).expect(0);
    place.assert_has(&[("f", &content)]);
}

/// Another program, such as curl, has begun the file. Bytes that hashes of blocks or pieces prove are kept.
#[test]
fn what_another_program_has_begun_is_gone_on_with_as_far_as_it_is_proven() {
    let content = noise(2_000_000);
    let site = server(&[("f", content.clone()), ("f.b3leaves", leaf_list(&content))]);
    let url = url(&site, "f");
    let uri = format!("anabranch:{}?len={}", anabranch_mmtp::ContentId::of(&content), content.len());
    let digests = content.chunks(1 << 20).map(|piece| hex(&Sha256::digest(piece)));
    let pieces: String = digests.map(|hash| format!("<hash>{hash}</hash>")).collect();
    let metalink = format!(
        "<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\"><file name=\"f\"><size>{}</size>\
         <pieces length=\"1048576\" type=\"sha-256\">{pieces}</pieces><url>{url}</url></file></metalink>",
        content.len()
    );
    // One block is wrong. The other blocks are kept, or with hashes of pieces, the other piece.
    let mut begun = content[..1_500_000].to_vec();
    begun[1_200_000] ^= 1;
    for (names, kept) in [([&*uri, &*url], (1_500_000 / 16_384 - 1) * 16_384), (["-", "-"], 1 << 20)] {
        let place = Place::new();
        fs::write(place.to().join("f"), &begun).expect("a file");
        let is_listed = names[0] == "-";
        let list = place.0.path().join("f.meta4");
        fs::write(&list, &metalink).expect("a file");
        let list = list.to_str().expect("UTF-8");
        let names = if is_listed { &[list][..] } else { &names[..] };
        // Without `-C -`, the file is not touched.
        run(place.get(names, &[])).expect(6);
        place.assert_has(&[("f", &begun)]);
        let done = run(place.get(names, &["-C", "-", "--json"])).expect(0);
        assert_eq!(done.summary()["last"]["resumed_bytes"], kept, "{}", done.out);
        place.assert_has(&[("f", &content)]);
    }
}

/// Without such hashes the file stays, and a message says what to do.
#[test]
fn what_another_program_has_begun_stays_where_nothing_proves_it() {
    let content = noise(2_000_000);
    let bare = server(&[("f", content.clone())]);
    let with_leaves = server(&[("f", content.clone()), ("f.b3leaves", leaf_list(&content))]);
    let other = noise(1_500_001).split_off(1);
    for (site, begun, says) in [
        (&bare, &content[..1_500_000], "1500000 of 2000000 bytes"),
        (&with_leaves, &other[..], "nothing in it is proven"),
    ] {
        let place = Place::new();
        fs::write(place.to().join("f"), begun).expect("a file");
        let done = run(place.get(&[&url(site, "f")], &["-C", "-"])).expect(6);
        assert!(done.err.contains(says) && done.err.contains("--force"), "{}", done.err);
        place.assert_has(&[("f", begun)]);
        run(place.get(&[&url(site, "f")], &["-C", "-", "--force"])).expect(0);
        place.assert_has(&[("f", &content)]);
    }
}

/// A list beside the file is offered, and used if the user names it by its URL.
#[test]
fn a_list_of_hashes_beside_the_file_is_offered_and_used_by_its_url() {
    let (one, two) = (noise(300_000), noise(400_000));
    let line = |name: &str, content: &[u8]| format!("{}  {name}\n", hex(&Sha256::digest(content)));
    let list = (line("a.iso", &one) + &line("b.iso", &two)).into_bytes();
    let files = [("pub/a.iso", one.clone()), ("pub/b.iso", two.clone()), ("pub/SHA256SUMS", list)];
    let site = server(&files);
    let (a, b, sums) = (url(&site, "pub/a.iso"), url(&site, "pub/b.iso"), url(&site, "pub/SHA256SUMS"));
    let done = run(Place::new().get(&[&a], &["--no-history"])).expect(0);
    assert!(done.err.contains(&format!("--checksum {sums} verifies it")), "{}", done.err);
    assert_eq!(done.err.matches("UNVERIFIED").count(), 1, "{}", done.err);
    let place = Place::new();
    let done = run(place.get(&[&a, &b], &["--each", "--json", "--checksum", &sums])).expect(0);
    let files = events(&done.out, "file");
    assert!(files.iter().all(|file| file["verified_by"] == "user" && file["verified"] == "whole"));
    place.assert_has(&[("a.iso", &one), ("b.iso", &two)]);
    // A list without the file, or one that is not there, is an error before anything is fetched.
    let (other, gone) = (url(&site, "pub/c.iso"), url(&site, "SHA256SUMS"));
    let done = run(place.get(&[&other], &["--checksum", &sums])).expect(2);
    assert!(done.err.contains(&format!("{sums} has no SHA-256")), "{}", done.err);
    let done = run(place.get(&[&other], &["--checksum", &gone])).expect(3);
    assert!(done.err.contains(&gone), "{}", done.err);
}

/// A line has the mirrors of a file.
#[test]
fn a_list_of_several_files_is_fetched() {
    let (one, two) = (noise(300_000), noise(400_000));
    let site = server(&[("a.iso", one.clone()), ("b.iso", two.clone()), ("old/a.iso", one.clone())]);
    let place = Place::new();
    let list = place.0.path().join("list.txt");
    let away = format!("http://{}/a.iso", gone());
    let text = format!("# two files\n{away}\t{}\n\n{}\n", url(&site, "a.iso"), url(&site, "b.iso"));
    fs::write(&list, text).expect("a list");
    let list = list.to_string_lossy().into_owned();
    run(place.get(&[], &["-i", &list, "-o", "./"])).expect(0);
    place.assert_has(&[("a.iso", &one), ("b.iso", &two)]);
    assert!(run(place.get(&[], &["-i", "no-such"])).expect(2).err.contains("no-such"));
    // As in lists of aria2, a file may have a name and a hash of its own.
    let place = Place::new();
    let list = place.0.path().join("list.txt");
    let of = |content: &[u8]| hex(&Sha256::digest(content));
    let (a, b) = (url(&site, "a.iso"), url(&site, "b.iso"));
    let text = format!("{a}\n  out=one.iso\n  checksum=sha-256={}\n{b}\n  checksum={}\n", of(&one), of(&one));
    fs::write(&list, text).expect("a list");
    let list = list.to_string_lossy().into_owned();
    let done = run(place.get(&[], &["-i", &list, "-o", "new/", "--json"])).expect(5);
    let files = events(&done.out, "file");
    assert_eq!(files[0]["verified"], "whole", "{files:?}");
    assert_eq!(fs::read(place.to().join("new/one.iso")).expect("a file"), one);
    assert!(!place.to().join("new/b.iso").exists(), "{files:?}");
    fs::write(&list, format!("{a}\n  out=../x\n")).expect("a list");
    assert!(run(place.get(&[], &["-i", &list])).expect(2).err.contains("../x"));
}

/// A server shows a page for a directory.
#[test]
fn the_page_of_a_directory_is_index_html_and_that_is_explained() {
    let site = Site::answering(|request| match request.path.as_str() {
        "/pub/" => Reply::new(200, b"<html>a list</html>").with("content-type", "text/html"),
        _ => Reply::new(404, b"no such file"),
    });
    let place = Place::new();
    let done = run(place.get(&[&url(&site, "pub/")], &[])).expect(0);
    place.assert_has(&[("index.html", b"<html>a list</html>")]);
    assert!(done.err.contains("/pub/ is a directory, so what comes is the page"), "{}", done.err);
}

/// The hash was mistyped. With the right one, the file that was kept gets its name, and nothing is fetched.
#[test]
fn what_was_kept_for_a_wrong_hash_is_recognised_by_the_right_one() {
    let content = noise(2_000_000);
    let site = server(&[("f", content.clone())]);
    let (place, url) = (Place::new(), url(&site, "f"));
    let checksum = |content: &[u8]| format!("--checksum={}", hex(&Sha256::digest(content)));
    run(place.get(&[&url], &[&checksum(b"other")])).expect(5);
    place.assert_has(&[("f.unverified", &content)]);
    let done = run(place.get(&[&url], &[&checksum(&content), "--json"])).expect(0);
    place.assert_has(&[("f", &content)]);
    let summary = done.summary();
    assert_eq!(summary["last"]["resumed_bytes"], 2_000_000, "{}", done.out);
    assert_eq!(summary["verified_by"], "user");
    assert!(done.notes().contains("f.unverified has the hash that is wanted: it is f now"), "{}", done.out);
}

/// The server renamed the file after it was hashed, or the hash is of another one: the user learns the name.
#[test]
fn a_hash_of_another_name_is_not_taken_silently() {
    let content = noise(300_000);
    let line = format!("{}  old.iso\n", hex(&anabranch_mmtp::ContentId::of(&content).root));
    let site = server(&[("new.iso", content.clone()), ("new.iso.b3", line.into_bytes())]);
    let done = run(Place::new().get(&[&url(&site, "new.iso")], &["--json"])).expect(0);
    assert!(done.summary()["verified_by"].as_str().is_some_and(|by| by.starts_with("self-asserted")));
    assert!(done.notes().contains("new.iso.b3 has a single hash, for a file called old.iso"), "{}", done.out);
}
