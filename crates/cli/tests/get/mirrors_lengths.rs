//! Servers that have files of several lengths, now or in turn, where a hash says which is wanted.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::fetch::{Ground, checksum, killed_when, names, run, spawn};
use crate::common::noise;
use crate::peers::site::{PATH, Reply, Request, Site, Switch, Then, honest, wrong};
use data_encoding::HEXLOWER;
use nix::sys::signal::Signal;
use sha2::{Digest as _, Sha256};

/// Gets these until so much more has come from `from`, and is killed.
fn killed_at(ground: &Ground, urls: &[String], hash: &str, from: &Site, bytes: u64) {
    let before = from.body_bytes();
    killed_when(ground.get_named(urls, &["--json", hash, "--timeout", "8"]), || {
        from.body_bytes() > before + bytes
    });
}

/// The file is another one, of another length, while a get runs; a hash says that this one is wanted. The
/// get after that fetches it, and what came before is there until it is.
#[test]
fn a_length_that_changes_on_the_way_needs_no_more_than_the_same_command_again() {
    for newer in [9_000_000, 7_000_000] {
        let ground = Ground::new(newer);
        let is_new = Switch::default();
        let older = noise(8_000_000);
        let sites = [(); 2].map(|()| is_new.updated(&older, &ground.content, 2_000_000));
        let (urls, hash) = (sites.each_ref().map(Site::url), checksum(&ground.content));
        let get = || ground.get_named(&urls, &["--json", &hash]);
        let came = || sites.iter().map(Site::body_bytes).sum::<u64>();
        let running = spawn(get());
        crate::common::wait_until(20, || came() > 3_000_000);
        is_new.set(true);
        let done = running.end().expect(3);
        assert!(done.err.contains("the same command fetches what is there now"), "{}", done.err);
        ground.assert_part();
        // Interrupted, it goes on with what there is of the new one.
        let running = spawn(get());
        let before = came();
        crate::common::wait_until(20, || came() > before + 3_000_000);
        running.signal(Signal::SIGINT);
        let done = running.end().expect(130);
        assert!(done.notes().contains("f.part is of another file, of 8000000 bytes"), "{}", done.notes());
        let new_part = format!("f.{newer}.part");
        let journals = [format!("{new_part}.journal"), "f.part.journal".to_owned()];
        let mut all = vec![new_part, "f.part".to_owned()];
        all.extend(journals);
        all.sort();
        assert_eq!(names(&ground.to()), all);
        let done = run(get()).expect(0);
        ground.assert_arrived();
        let resumed = done.summary()["last"]["resumed_bytes"].as_u64().expect("a number");
        assert!(resumed > 1_000_000, "{resumed}");
    }
}

/// A server is not what it was, and says another length with another file (as a portal may): what came before
/// is there still, and is gone on with when it is itself again.
#[test]
fn another_file_of_another_length_does_not_cost_what_came() {
    let ground = Ground::new(8_000_000);
    let (is_other, other) = (Switch::default(), noise(50_000));
    let site = is_other.updated(&ground.content, &other, 4_000_000);
    let hash = checksum(&ground.content);
    let get = || ground.get_named(&[site.url()], &["--json", &hash]);
    let running = spawn(get());
    crate::common::wait_until(20, || site.body_bytes() > 4_000_000);
    running.signal(Signal::SIGINT);
    running.end().expect(130);
    is_other.set(true);
    for _ in 0..2 {
        run(get()).expect(5);
        assert!(names(&ground.to()).contains(&"f.part".to_owned()));
    }
    is_other.set(false);
    let before = site.body_bytes();
    run(get()).expect(0);
    assert!(fs::read(ground.target()).expect("a file") == ground.content);
    assert!(site.body_bytes() < before + 5_000_000, "{}", site.body_bytes() - before);
}

/// The only one that answered had a longer file, and does not answer now. Those that have the right one do.
#[test]
fn a_part_of_who_is_away_is_not_in_the_way_of_the_others() {
    for is_named in [true, false] {
        let ground = Ground::new(6_000_000);
        let (are_away, is_away) = (Switch::turned(), Switch::default());
        let good = [(); 2].map(|()| are_away.away(&ground.content, 4_000_000));
        let longer = is_away.away(&noise(8_000_000), 4_000_000);
        let urls = [good[0].url(), good[1].url(), longer.url()];
        let hash = checksum(&ground.content);
        killed_at(&ground, &urls, &hash, &longer, 3_000_000);
        ground.assert_part();
        are_away.set(false);
        is_away.set(true);
        let urls = &urls[..if is_named { 3 } else { 2 }];
        run(ground.get_named(urls, &["--json", &hash, "--timeout", "8"])).expect(0);
        assert!(fs::read(ground.target()).expect("a file") == ground.content);
        // Whose it is nobody knows if that URL is left out.
        let all: &[&str] = if is_named { &["f"] } else { &["f", "f.part", "f.part.journal"] };
        assert_eq!(names(&ground.to()), all);
    }
}

/// The honest one does not answer now. A liar that has its length, and one of another, do not cost what it
/// brought.
#[test]
fn what_the_honest_one_left_stays_while_it_is_away() {
    let ground = Ground::new(6_000_000);
    let is_away = Switch::default();
    let good = is_away.away(&ground.content, 4_000_000);
    let (bad, other) = (Site::good(&wrong(&ground.content)), Site::good(&noise(5_000_000)));
    let hash = checksum(&ground.content);
    killed_at(&ground, &[good.url()], &hash, &good, 4_000_000);
    is_away.set(true);
    // An attempt to go on with what is there takes its timeout.
    let args = ["--json", &hash, "--timeout", "2"];
    let get = || ground.get_named(&[bad.url(), other.url(), good.url()], &args);
    for _ in 0..2 {
        run(get()).expect(5);
        assert!(names(&ground.to()).contains(&"f.part".to_owned()), "{:?}", names(&ground.to()));
    }
    is_away.set(false);
    let before = good.body_bytes();
    run(get()).expect(0);
    ground.assert_arrived();
    assert!(good.body_bytes() < before + 4_000_000, "{}", good.body_bytes() - before);
}

/// One lags behind with a file that nobody wants, which is tried first; what is there is of neither.
#[test]
fn a_mirror_that_lags_behind_does_not_keep_the_new_file_away() {
    let ground = Ground::new(7_000_000);
    let is_new = Switch::default();
    let old = Site::slow(&noise(3_000_000), 4_000_000);
    let new = is_new.updated(&noise(5_000_000), &ground.content, 4_000_000);
    let urls = [old.url(), new.url()];
    killed_at(&ground, &urls[1..], &checksum(&noise(5_000_000)), &new, 3_000_000);
    is_new.set(true);
    run(ground.get_named(&urls, &["--json", &checksum(&ground.content)])).expect(0);
    ground.assert_arrived();
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

/// A mirror says that the file is shorter, is asked first, and never sends it whole: the other one does.
#[test]
fn a_mirror_that_only_says_a_length_does_not_keep_the_file_away() {
    type Twist = fn(&Request, Reply) -> Reply;
    let ways: [(&str, Twist); 4] = [
        ("not found", |_, _| Reply::new(404, b"")),
        ("later", |_, _| Reply::new(503, b"")),
        ("forbidden", |_, _| Reply::new(403, b"")),
        ("silent", |_, reply| reply.at(4_000_000).cut(100_000, Then::Stall)),
    ];
    for (way, twist) in ways {
        let ground = Ground::new(6_000_000);
        let shorter = Site::new(&noise(4_000_000), move |request, reply| match request.is_for_bytes() {
            true => twist(request, reply),
            false => reply,
        });
        let good = Site::good(&ground.content);
        let urls = [shorter.url(), good.url()];
        let args = ["--json", &checksum(&ground.content), "--timeout", "3"];
        let done = run(ground.get_named(&urls, &args)).expect(0);
        assert!(fs::read(ground.target()).expect("a file") == ground.content, "{way}");
        assert!(
            done.notes().contains("that of 4000000 bytes does not come whole"),
            "{way}: {}",
            done.notes()
        );
        assert_eq!(names(&ground.to()), ["f"], "{way}");
    }
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

/// If nothing comes of any, each is named.
#[test]
fn what_became_of_each_length_is_said() {
    let ground = Ground::new(3_000_000);
    let bad = Site::good(&noise(2_000_000));
    let mute = Site::new(&ground.content, |request, reply| match request.is_for_bytes() {
        true => Reply::new(404, b""),
        false => reply,
    });
    let hash = checksum(&ground.content);
    let done = run(ground.get_named(&[bad.url(), mute.url()], &["--json", &hash])).expect(5);
    assert!(done.err.contains("no file of 2000000 bytes is the one that is wanted"), "{}", done.err);
    assert!(done.err.contains(&mute.name()), "{}", done.err);
    let done = run(ground.get_named(&[mute.url()], &["--json", &hash])).expect(3);
    assert!(!done.err.contains("2000000"), "{}", done.err);
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

/// A liar falls silent while it is tried alone. The honest one of the same length has its turn before all of
/// them are given up, for the file of another length or for good.
#[test]
fn a_liar_that_falls_silent_does_not_take_the_turn_of_others() {
    for has_other in [true, false] {
        let ground = Ground::new(6_000_000);
        let bad = Switch::default().silent_after(3_500_000, &wrong(&ground.content), 6_000_000);
        let good = Site::slow(&ground.content, 4_000_000);
        let other = Site::good(&noise(5_000_000));
        let urls = [bad.url(), good.url(), other.url()];
        let args = ["--json", &checksum(&ground.content), "--timeout", "6"];
        let done = run(ground.get_named(&urls[..if has_other { 3 } else { 2 }], &args)).expect(0);
        ground.assert_arrived();
        assert!(done.notes().contains("is tried alone"), "{}", done.notes());
    }
}

/// A Metalink that has this of the file, and no size of it.
fn metalink(hashes: &str, urls: &[String]) -> String {
    let urls: Vec<String> = urls.iter().map(|url| format!("<url>{url}</url>")).collect();
    let file = format!("<file name=\"f\">{hashes}{}</file>", urls.concat());
    format!("<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\">{file}</metalink>")
}

/// The honest server gives no length. That of another one is not taken for its own.
#[test]
fn who_says_no_length_is_not_taken_to_have_that_of_another() {
    let ground = Ground::new(6_000_000);
    let [shorter, wrong] = [noise(5_000_000), wrong(&ground.content)];
    let good = Site::untold(&ground.content);
    let hash = checksum(&ground.content);
    let list = ground.dir.path().join("f.meta4");
    // With a length that it says, without one, and in both orders; named, and in a Metalink without a size.
    let gone = Site::new(&shorter, |request, reply| match request.is_for_bytes() {
        true => Reply::new(404, b""),
        false => reply.chunked(),
    });
    for bad in [Site::slow(&shorter, 20_000_000), Site::untold(&shorter), Site::untold(&wrong), gone] {
        let urls = [bad.url(), good.url()];
        for turned in [false, true] {
            let urls = if turned { [&urls[1], &urls[0]] } else { [&urls[0], &urls[1]] };
            let before = good.body_bytes();
            let done = run(ground.get_named(&urls, &["--json", &hash])).expect(0);
            ground.assert_arrived();
            assert_eq!(done.summary()["verified"], "whole");
            assert_eq!(done.summary()["last"]["total_bytes"], 6_000_000);
            // The answer to what it says of itself has a beginning.
            assert!(good.body_bytes() < before + 11_000_000, "{}", good.body_bytes() - before);
            fs::remove_file(ground.target()).expect("the file");
        }
        let digest = HEXLOWER.encode(&Sha256::digest(&ground.content));
        fs::write(&list, metalink(&format!("<hash type=\"sha-256\">{digest}</hash>"), &urls))
            .expect("a file");
        run(ground.get_named(&[&list], &["--json"])).expect(0);
        ground.assert_arrived();
        fs::remove_file(ground.target()).expect("the file");
    }
    // Where nobody has it each is named, and nothing is left but what the last one sent.
    let bad = [Site::good(&shorter), Site::untold(&wrong)];
    let done = run(ground.get_named(&bad.each_ref().map(Site::url), &["--json", &hash])).expect(5);
    assert!(done.err.contains("no file of 5000000 bytes is the one that is wanted"), "{}", done.err);
    assert_eq!(names(&ground.to()), ["f.unverified"]);
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

/// Beside one that says a length it is asked for the file only if that one does not bring it.
#[test]
fn who_says_no_length_is_in_reserve() {
    let ground = Ground::new(6_000_000);
    let hash = checksum(&ground.content);
    let spare = Site::untold(&ground.content);
    let good = Site::slow(&ground.content, 20_000_000);
    run(ground.get_named(&[spare.url(), good.url()], &["--json", &hash])).expect(0);
    ground.assert_arrived();
    let is_for_file = |request: &Request| request.is_for_bytes() && request.path == PATH;
    assert!(!spare.seen().iter().any(is_for_file), "{:?}", spare.seen());
    fs::remove_file(ground.target()).expect("the file");
    // It falls silent, with right bytes and with wrong ones: they are not mixed.
    for content in [ground.content.clone(), wrong(&ground.content)] {
        let silent = Switch::default().silent_after(2_000_000, &content, 6_000_000);
        let urls = [silent.url(), spare.url()];
        run(ground.get_named(&urls, &["--json", &hash, "--timeout", "4"])).expect(0);
        ground.assert_arrived();
        fs::remove_file(ground.target()).expect("the file");
    }
    // It falls silent, and what the other one has is wrong: what is right is there for the next time.
    let is_back = Switch::default();
    let silent = is_back.silent_after(2_000_000, &ground.content, 6_000_000);
    let bad = Site::untold(&wrong(&ground.content));
    let get = || ground.get_named(&[silent.url(), bad.url()], &["--json", &hash, "--timeout", "4"]);
    let done = run(get()).expect(5);
    assert!(done.err.contains("f.part stays"), "{}", done.err);
    ground.assert_part();
    is_back.set(true);
    let before = silent.body_bytes();
    run(get()).expect(0);
    ground.assert_arrived();
    assert!(silent.body_bytes() < before + 5_000_000, "{}", silent.body_bytes() - before);
}

/// Of servers that say no length, one that is silent, or whose answers break off, gives way to the next.
#[test]
fn who_says_no_length_and_does_not_send_it_gives_way() {
    let ground = Ground::new(3_000_000);
    let hash = checksum(&ground.content);
    let good = Site::untold(&ground.content);
    for (bytes, then) in [(300_000, Then::Stall), (0, Then::Stall), (3_000_000, Then::Close)] {
        let content = ground.content.clone();
        let bad = Site::new(&ground.content, move |_, _| {
            let reply = Reply::new(200, &content).chunked();
            Reply { length: Some(content.len()), body: content[..bytes].to_vec(), then, ..reply }
        });
        // Also where nothing tells what is right.
        for hash in [&[hash.as_str()][..], &[]] {
            let args = [&["--json", "--timeout", "5"], hash].concat();
            let done = run(ground.get_named(&[bad.url(), good.url()], &args)).expect(0);
            ground.assert_arrived();
            let wanted = format!("trying that of {}", good.name());
            assert!(done.notes().contains(&wanted), "{bytes} {then:?}: {}", done.notes());
            fs::remove_file(ground.target()).expect("the file");
        }
    }
}

/// Who could not be asked may have what the one that sent all of it does not.
#[test]
fn that_others_could_not_be_asked_is_said() {
    let ground = Ground::new(500_000);
    let away = Switch::turned().away(&ground.content, 4_000_000);
    let bad = Site::untold(&wrong(&ground.content));
    let urls = [bad.url(), away.url()];
    let args = ["--json", &checksum(&ground.content), "--timeout", "2"];
    let done = run(ground.get_named(&urls, &args)).expect(5);
    assert!(done.err.contains("could not be asked: the same command asks again"), "{}", done.err);
    assert!(done.err.contains(&away.name()), "{}", done.err);
}

/// What is slow gives way to what may be it, too.
#[test]
fn a_drip_does_not_keep_the_others_away() {
    let ground = Ground::new(2_000_000);
    let (hash, good) = (checksum(&ground.content), Site::untold(&ground.content));
    let drip = Site::slow(&noise(1_000_000), 8_000);
    let done = run(ground.get_named(&[drip.url(), good.url()], &["--json", &hash])).expect(0);
    ground.assert_arrived();
    assert!(done.notes().contains("which is slow"), "{}", done.notes());
}

/// What never ends gives way: to others that say no length, and to who could not be asked at the start.
#[test]
fn an_answer_without_an_end_does_not_keep_the_others_away() {
    let ground = Ground::new(700_000);
    let hash = checksum(&ground.content);
    let endless = Site::answering(|_| Reply::new(200, &vec![7; 20_000_000]).chunked().at(60_000));
    let (busy, content) = (AtomicUsize::new(0), ground.content.clone());
    let late = Site::new(&ground.content, move |request, _| match busy.fetch_add(1, Ordering::Relaxed) {
        0 => Reply::new(503, b""),
        _ => honest(request, &content, "\"v1\""),
    });
    let untold = Site::untold(&ground.content);
    let gives_way = [(&late, "once more to those"), (&untold, "it has not ended after 60 s")];
    let gets = gives_way.map(|(other, says)| {
        let ground = Ground::new(700_000);
        let urls = [endless.url(), other.url()];
        let running = spawn(ground.get_named(&urls, &["--json", &hash, "--timeout", "5"]));
        (ground, running, says)
    });
    for (ground, mut running, says) in gets {
        crate::common::wait_until(100, || running.has_ended());
        let done = running.end().expect(0);
        ground.assert_arrived();
        assert!(done.notes().contains(says), "{}", done.notes());
    }
}

/// It comes again after the others, and goes on where it was.
#[test]
fn what_is_slow_and_right_arrives() {
    let ground = Ground::new(500_000);
    let slow = Site::slow(&ground.content, 13_000);
    let bad = Site::untold(&wrong(&ground.content));
    let hash = checksum(&ground.content);
    let done = run(ground.get_named(&[slow.url(), bad.url()], &["--json", &hash])).expect(0);
    ground.assert_arrived();
    assert!(done.notes().contains("comes again after the others"), "{}", done.notes());
    assert!(slow.body_bytes() < 620_000, "{}", slow.body_bytes());
}
