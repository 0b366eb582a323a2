//! Servers that have files of several lengths, now or in turn, where a hash says which is wanted.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::fetch::{Ground, checksum, killed_when, names, run};
use crate::common::noise;
use crate::peers::site::{PATH, Reply, Site, Switch, honest, wrong};
use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};

/// Gets these until so much more has come from `from`, and is killed.
fn killed_at(ground: &Ground, urls: &[String], hash: &str, from: &Site, bytes: u64) {
    let before = from.body_bytes();
    killed_when(ground.get_named(urls, &["--json", hash, "--timeout", "8"]), || {
        from.body_bytes() > before + bytes
    });
}

/// A file a day, each with its hash, and only the last comes whole: nothing is left of the others.
#[test]
fn nothing_is_left_of_what_was_never_whole() {
    let files = [5_000_000, 6_000_000, 7_000_000].map(noise);
    let ground = Ground::new(8_000_000);
    let today = Arc::new(AtomicUsize::new(0));
    let (day, all) = (today.clone(), [&files[..], std::slice::from_ref(&ground.content)].concat());
    let site = Site::new(&ground.content, move |request, _: Reply| {
        let day = day.load(Ordering::Relaxed);
        honest(request, &all[day], &format!("\"{day}\"")).at(4_000_000)
    });
    for file in &files {
        killed_at(&ground, &[site.url()], &checksum(file), &site, 2_000_000);
        today.fetch_add(1, Ordering::Relaxed);
    }
    assert_eq!(names(&ground.to()).len(), 6, "{:?}", names(&ground.to()));
    // What has a name of its own is found when the usual one is free again.
    let hash = checksum(&ground.content);
    killed_at(&ground, &[site.url()], &hash, &site, 4_000_000);
    fs::remove_file(ground.to().join("f.part")).expect("the part");
    fs::write(ground.to().join("f.1.part"), b"somebody's").expect("a file");
    let before = site.body_bytes();
    run(ground.get_named(&[site.url()], &["--json", &hash])).expect(0);
    assert!(site.body_bytes() < before + 6_000_000, "{}", site.body_bytes() - before);
    assert_eq!(names(&ground.to()), ["f", "f.1.part"]);
}

/// A hash that only the server says does not tell that its file of now is meant.
#[test]
fn the_servers_own_word_does_not_replace_what_the_users_hash_began() {
    let ground = Ground::new(6_000_000);
    let is_new = Switch::default();
    let shorter = noise(2_000_000);
    let digest = data_encoding::BASE64.encode(&Sha256::digest(&shorter));
    let (switch, old) = (is_new.clone(), ground.content.clone());
    let site = Site::new(&ground.content, move |request, _: Reply| match switch.is_turned() {
        true => honest(request, &shorter, "\"v2\"").with("repr-digest", format!("sha-256=:{digest}:")),
        false => honest(request, &old, "\"v1\"").at(4_000_000),
    });
    let hash = checksum(&ground.content);
    killed_at(&ground, &[site.url()], &hash, &site, 3_000_000);
    is_new.set(true);
    let done = run(ground.get_named(&[site.url()], &[])).expect(6);
    assert!(done.err.contains("is of a content of 6000000 bytes, not of 2000000"), "{}", done.err);
    ground.assert_part();
}

/// Two of three say that it is longer than the disk has room for.
#[test]
fn a_length_that_has_no_room_is_not_the_end() {
    let ground = Ground::new(2_000_000);
    let huge = || {
        Site::new(&ground.content, |request, reply| match request.range() {
            Some(range) => {
                let (first, last) = (range.start, range.end - 1);
                reply.with("content-range", format!("bytes {first}-{last}/{}", 1_u64 << 44))
            }
            None => reply,
        })
    };
    let (sites, good) = ([huge(), huge()], Site::good(&ground.content));
    let urls = [sites[0].url(), sites[1].url(), good.url()];
    let done = run(ground.get_named(&urls, &["--json", &checksum(&ground.content)])).expect(0);
    ground.assert_arrived();
    assert!(done.notes().contains("make room"), "{}", done.notes());
}

/// The part of another output has a number where a part has its length.
#[test]
fn the_part_of_another_name_is_not_taken_for_one_of_this() {
    let ground = Ground::new(4_000_000);
    let is_new = Switch::default();
    let site = is_new.updated(&noise(6_000_000), &ground.content, 4_000_000);
    let dated = ground.to().join("f.20261126");
    let mut command = crate::common::fetch::fetch(site.url(), &dated);
    command.arg(checksum(&noise(6_000_000)));
    killed_when(command, || site.body_bytes() > 3_000_000);
    is_new.set(true);
    run(ground.get_named(&[site.url()], &["--json", &checksum(&ground.content)])).expect(0);
    assert_eq!(names(&ground.to()), ["f", "f.20261126.part", "f.20261126.part.journal"]);
}

/// A Metalink that has this of the file, and no size of it.
fn metalink(hashes: &str, urls: &[String]) -> String {
    let urls: Vec<String> = urls.iter().map(|url| format!("<url>{url}</url>")).collect();
    let file = format!("<file name=\"f\">{hashes}{}</file>", urls.concat());
    format!("<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\">{file}</metalink>")
}

/// Whatever a Metalink has of a file, what comes of a server that says no length is held against that.
#[test]
fn what_has_no_length_is_held_against_every_kind_of_hash() {
    for len in [3_000_000, 9_000] {
        let ground = Ground::new(len);
        let hex = |bytes: &[u8]| HEXLOWER.encode(&Sha256::digest(bytes));
        let pieces: Vec<String> =
            ground.content.chunks(65_536).map(|piece| format!("<hash>{}</hash>", hex(piece))).collect();
        let kinds = [
            format!("<hash type=\"sha-256\">{}</hash>", hex(&ground.content)),
            format!("<hash type=\"blake3\">{}</hash>", blake3::hash(&ground.content).to_hex()),
            format!("<pieces length=\"65536\" type=\"sha-256\">{}</pieces>", pieces.concat()),
        ];
        let longer = [&ground.content[..], &[0; 70_000]].concat();
        let bad = [
            Site::untold(&wrong(&ground.content)),
            Site::untold(&ground.content[..len - 1]),
            Site::untold(&longer),
            Site::good(&longer),
            Site::good(&ground.content[..len.saturating_sub(70_000)]),
        ];
        let good = Site::untold(&ground.content);
        let list = ground.dir.path().join("f.meta4");
        for (kind, hashes) in kinds.iter().enumerate() {
            for bad in &bad {
                fs::write(&list, metalink(hashes, &[bad.url()])).expect("a Metalink");
                let done = run(ground.get_named(&[&list], &["--json"])).expect(5);
                assert_eq!(done.summary()["verified"], "nothing", "{kind}");
                assert!(!ground.target().exists(), "{kind}");
                let _ = fs::remove_file(ground.to().join("f.unverified"));
                assert_eq!(names(&ground.to()), [""; 0], "{kind}");
                fs::write(&list, metalink(hashes, &[bad.url(), good.url()])).expect("a Metalink");
                run(ground.get_named(&[&list], &["--json"])).expect(0);
                ground.assert_arrived();
                fs::remove_file(ground.target()).expect("the file");
            }
            // It is recognised, and so is another file.
            let site = Site::good(&ground.content);
            fs::write(&list, metalink(hashes, &[site.url()])).expect("a Metalink");
            fs::write(ground.target(), &ground.content).expect("a file");
            run(ground.get_named(&[&list], &["--json"])).expect(0);
            assert!(site.seen().iter().all(|request| !request.is_for_bytes() || request.path != PATH));
            ground.assert_arrived();
            fs::write(ground.target(), &longer).expect("a file");
            let done = run(ground.get_named(&[&list], &[])).expect(6);
            assert!(done.err.contains("with other content"), "{}", done.err);
            run(ground.get_named(&[&list], &["--force"])).expect(0);
            ground.assert_arrived();
            fs::remove_file(ground.target()).expect("the file");
        }
    }
}
