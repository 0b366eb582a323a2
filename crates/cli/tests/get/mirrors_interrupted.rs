//! A transfer without any hash is interrupted before a mirror that lies was found out, or after it was; it
//! goes on with others, and what the liar brought is not in the file.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::common::fetch::{Done, Ground, checksum, killed_when, names, run, spawn};
use crate::common::wait_until;
use crate::peers::site::{Reply, Request, Site, honest, late_liar, late_wrong, wrong};
use data_encoding::BASE64;
use nix::sys::signal::Signal;
use sha2::{Digest as _, Sha256};

fn resumed(done: &Done) -> u64 {
    done.summary()["last"]["resumed_bytes"].as_u64().expect("a number")
}

/// Wrong bytes in the part.
fn wrong_bytes(ground: &Ground) -> usize {
    let part = fs::read(ground.to().join("f.part")).unwrap_or_default();
    part.iter().zip(&ground.content).filter(|(there, right)| **there == **right ^ 0x55).count()
}

/// Begins with an honest mirror and one that lies, and ends before these are compared: the honest one is slow
/// for as long, and has its own first range to send before the liar's first block.
fn begin(ground: &Ground, signal: Signal) -> Site {
    begin_with(ground, signal, &[])
}

fn begin_with(ground: &Ground, signal: Signal, more: &[&str]) -> Site {
    // The liar brings enough before the other has a block to compare.
    let is_over = Arc::new(AtomicBool::new(false));
    let is_fast = Arc::clone(&is_over);
    let honest = Site::new(&ground.content, move |_, reply| match is_fast.load(Ordering::Relaxed) {
        true => reply.at(8_000_000),
        false => reply.at(30_000),
    });
    let liar = late_liar(&ground.content, 12_000_000);
    let running = spawn(ground.get_named(&[honest.url(), liar.url()], &[&["--json"], more].concat()));
    wait_until(20, || wrong_bytes(ground) > 4_000_000);
    running.signal(signal);
    let done = running.end();
    assert_eq!(done.code, (signal == Signal::SIGINT).then_some(130), "{}", done.err);
    ground.assert_part();
    is_over.store(true, Ordering::Relaxed);
    honest
}

#[test]
fn what_a_liar_left_is_not_in_the_file_that_others_bring() {
    for signal in [Signal::SIGKILL, Signal::SIGINT] {
        for others in 0..2 {
            let ground = Ground::new(24_000_000);
            let honest = begin(&ground, signal);
            let more: Vec<Site> = (0..others).map(|_| Site::slow(&ground.content, 8_000_000)).collect();
            let urls: Vec<String> = [&honest].into_iter().chain(&more).map(Site::url).collect();
            let done = run(ground.get_named(&urls, &["--json"])).expect(0);
            ground.assert_arrived();
            assert!(resumed(&done) > 4_000_000, "{}", resumed(&done));
            assert!(done.notes().contains("is fetched again"), "{}", done.notes());
            assert!(done.banned().is_empty(), "nobody of now has lied: {:?}", done.banned());
            assert_eq!(done.summary()["verified"], "nothing");
        }
    }
}

/// A mirror that began alone is named again when it is dead: the other one goes on with what it left, and
/// what was wrong of that comes again.
#[test]
fn what_a_dead_mirror_began_alone_is_gone_on_with_by_another() {
    for is_honest in [true, false] {
        let ground = Ground::new(24_000_000);
        let first = match is_honest {
            true => Site::slow(&ground.content, 6_000_000),
            false => late_liar(&ground.content, 6_000_000),
        };
        let url = first.url();
        killed_when(ground.get_named(&[&url], &["--json"]), || first.body_bytes() > 9_000_000);
        drop(first);
        ground.assert_part();
        let other = Site::slow(&ground.content, 8_000_000);
        let done = run(ground.get_named(&[&other.url()], &["--json"])).expect(6);
        assert!(done.err.contains("name that URL too to go on"), "{}", done.err);
        let done = run(ground.get_named(&[url, other.url()], &["--json"])).expect(0);
        ground.assert_arrived();
        assert!(resumed(&done) > 5_000_000, "{}", resumed(&done));
        assert_eq!(done.notes().contains("is fetched again"), !is_honest, "{}", done.notes());
        assert_eq!(done.summary()["verified"], "nothing");
    }
}

/// Begins to get these, and is interrupted when so many bytes have come; returns what was said.
fn interrupted_at(ground: &Ground, sites: &[&Site], bytes: u64) -> String {
    let urls: Vec<String> = sites.iter().map(|site| site.url()).collect();
    let running = spawn(ground.get_named(&urls, &["--json"]));
    wait_until(20, || sites.iter().map(|site| site.body_bytes()).sum::<u64>() > bytes);
    running.signal(Signal::SIGINT);
    let done = running.end().expect(130);
    ground.assert_part();
    done.err
}

/// As while a get runs, it is left out, and the others go on.
#[test]
fn a_mirror_whose_file_has_changed_since_is_left_out() {
    let ground = Ground::new(24_000_000);
    let has_changed = Arc::new(AtomicBool::new(false));
    let other = wrong(&ground.content);
    let is_other = Arc::clone(&has_changed);
    let first = Site::new(&ground.content, move |request: &Request, reply: Reply| {
        let is_other = is_other.load(Ordering::Relaxed);
        if is_other { honest(request, &other, "\"v2\"") } else { reply.at(4_000_000) }
    });
    let second = Site::slow(&ground.content, 4_000_000);
    let says = interrupted_at(&ground, &[&first, &second], 12_000_000);
    assert!(says.contains("the same command resumes"), "{says}");
    has_changed.store(true, Ordering::Relaxed);
    let before = first.body_bytes();
    let done = run(ground.get_named(&[first.url(), second.url()], &["--json"])).expect(0);
    ground.assert_arrived();
    let says = format!("{}: the file has changed: it had another ETag or date", first.name());
    assert!(done.notes().contains(&says), "{}", done.notes());
    assert!(resumed(&done) > 8_000_000 && !done.notes().contains("is fetched again"), "{}", done.notes());
    assert!(first.body_bytes() < before + 100_000, "it is asked what it has, and no more");
}

/// Neither tells whether it has the same later: no resume is promised.
#[test]
fn where_no_version_stays_no_resume_is_promised() {
    let ground = Ground::new(24_000_000);
    let without = Site::new(&ground.content, |_, reply| reply.without("etag").at(4_000_000));
    let count = AtomicUsize::new(0);
    let each_another = Site::new(&ground.content, move |_, reply: Reply| {
        reply.with("etag", format!("\"{}\"", count.fetch_add(1, Ordering::Relaxed))).at(4_000_000)
    });
    let says = interrupted_at(&ground, &[&each_another, &without], 9_000_000);
    assert!(says.contains("no server gives an ETag or date that stays"), "{says}");
    assert!(says.contains("with --checksum from the beginning"), "{says}");
}

/// A URL without a version is no reason to say that it has another one now.
#[test]
fn what_a_mirror_without_a_version_began_with_another_is_gone_on_with_by_both() {
    let ground = Ground::new(24_000_000);
    let without = Site::new(&ground.content, |_, reply| reply.without("etag").at(6_000_000));
    let other = Site::slow(&ground.content, 6_000_000);
    let says = interrupted_at(&ground, &[&other, &without], 9_000_000);
    assert!(says.contains("the same command resumes"), "{says}");
    let done = run(ground.get_named(&[without.url()], &[])).expect(6);
    assert!(done.err.contains("this one gives neither ETag nor date"), "{}", done.err);
    assert!(done.err.contains("name the others too to go on"), "{}", done.err);
    let done = run(ground.get_named(&[without.url(), other.url()], &["--json"])).expect(0);
    ground.assert_arrived();
    assert!(resumed(&done) > 5_000_000, "{}", resumed(&done));
}

/// What it brought is of a version that no other URL can be known to have.
#[test]
fn where_the_last_mirror_has_changed_no_other_is_advised() {
    let ground = Ground::new(24_000_000);
    let other = wrong(&ground.content);
    let site = Site::new(&ground.content, move |request: &Request, reply: Reply| match request.number {
        0..=1 => reply.at(6_000_000),
        _ => honest(request, &other, "\"v2\""),
    });
    let says = run(ground.get_named(&[site.url()], &[])).expect(3).err;
    assert!(says.contains("no other URL goes on with that without a hash: remove the part"), "{says}");
    ground.assert_part();
    let gone = Site::new(&ground.content, |request: &Request, reply: Reply| match request.number {
        0..=1 => reply.at(6_000_000),
        _ => Reply::new(404, b""),
    });
    fs::remove_dir_all(ground.to()).expect("the part");
    fs::create_dir(ground.to()).expect("a directory");
    let says = run(ground.get_named(&[gone.url()], &[])).expect(3).err;
    assert!(says.contains("what arrived is kept: name another beside"), "{says}");
    let other = Site::slow(&ground.content, 8_000_000);
    let done = run(ground.get_named(&[gone.url(), other.url()], &["--json"])).expect(0);
    ground.assert_arrived();
    assert!(resumed(&done) > 1_000_000, "{}", resumed(&done));
}

/// With a hash of the whole the one honest mirror that is left is enough.
#[test]
fn what_a_liar_left_comes_again_where_a_hash_tells() {
    let ground = Ground::new(24_000_000);
    let hash = checksum(&ground.content);
    let more = [hash.as_str()];
    let honest = begin_with(&ground, Signal::SIGKILL, &more);
    let done = run(ground.get_named(&[honest.url()], &[&["--json"], &more[..]].concat())).expect(0);
    ground.assert_arrived();
    assert!(done.notes().contains("what an earlier run left of it is fetched again"), "{}", done.notes());
    assert!(resumed(&done) > 4_000_000);
    assert_eq!(names(&ground.to()), ["f"]);
}

/// A part of a file that its only server has replaced since, or that somebody wrote over: the hash is of what
/// it has now, and no mixture of both is the end of it.
#[test]
fn what_one_server_left_comes_again_where_a_hash_tells() {
    let ground = Ground::new(12_000_000);
    let old = wrong(&ground.content);
    let hash = checksum(&ground.content);
    let is_new = Arc::new(AtomicBool::new(false));
    let is_replaced = Arc::clone(&is_new);
    let site = Site::new(&ground.content, move |request: &Request, reply: Reply| {
        match is_replaced.load(Ordering::Relaxed) {
            true => reply.at(8_000_000),
            false => honest(request, &old, "\"v0\"").at(4_000_000),
        }
    });
    let args = ["--json", hash.as_str()];
    let running = spawn(ground.get_named(&[site.url()], &args));
    wait_until(20, || wrong_bytes(&ground) > 3_000_000);
    running.signal(Signal::SIGINT);
    running.end().expect(130);
    is_new.store(true, Ordering::Relaxed);
    let done = run(ground.get_named(&[site.url()], &args)).expect(0);
    ground.assert_arrived();
    assert!(done.notes().contains("what an earlier run left of it is fetched again"), "{}", done.notes());
    assert_eq!(done.summary()["verified"], "whole");
    assert_eq!(names(&ground.to()), ["f"]);
}

/// One mirror of two lies, a hash tells, and whoever fetches is interrupted again and again: what the honest
/// one has brought stays its own, so there is an end of it.
#[test]
fn with_a_hash_what_each_mirror_brought_stays_its_own() {
    let ground = Ground::new(24_000_000);
    let (honest, bad) = (Site::slow(&ground.content, 10_000_000), late_liar(&ground.content, 10_000_000));
    let hash = checksum(&ground.content);
    let urls = [bad.url(), honest.url()];
    let came = || honest.body_bytes() + bad.body_bytes();
    let mut runs = 0;
    loop {
        runs += 1;
        assert!(runs < 20, "there is no end of it: {} and {}", honest.body_bytes(), bad.body_bytes());
        let mut running = spawn(ground.get_named(&urls, &["--json", &hash]));
        let before = came();
        wait_until(20, || came() > before + 6_000_000 || running.has_ended());
        if !running.has_ended() {
            running.signal(if runs % 2 == 0 { Signal::SIGINT } else { Signal::SIGKILL });
        }
        if running.end().code == Some(0) {
            break;
        }
    }
    ground.assert_arrived();
    assert!(runs > 3, "it was interrupted");
    // Of what it brought before they were seen to differ some is lost if the liar is tried first.
    assert!(honest.body_bytes() < 24_000_000 + 12_000_000, "{}", honest.body_bytes());
}

/// All of it is of one mirror and one version: that it is wrong is told at once, without a second fetch.
#[test]
fn of_a_mistyped_hash_the_verdict_comes_after_an_interruption_too() {
    let ground = Ground::new(24_000_000);
    let site = Site::slow(&ground.content, 8_000_000);
    let wrong = checksum(b"another");
    killed_when(ground.get_named(&[site.url()], &["--json", &wrong]), || site.body_bytes() > 12_000_000);
    let done = run(ground.get_named(&[site.url()], &["--json", &wrong])).expect(5);
    assert!(done.err.contains("in case the hash is mistyped"), "{}", done.err);
    assert!(site.body_bytes() < 24_000_000 + 2_000_000, "{}", site.body_bytes());
    assert_eq!(names(&ground.to()), ["f.unverified"]);
    // As it says.
    assert!(
        done.err.contains("renamed to") && done.err.contains("recognised by the right one"),
        "{}",
        done.err
    );
    fs::rename(ground.to().join("f.unverified"), ground.target()).expect("renamed");
    let before = site.body_bytes();
    run(ground.get_named(&[site.url()], &["--json", &checksum(&ground.content)])).expect(0);
    ground.assert_arrived();
    assert!(site.body_bytes() < before + 100_000);
}

/// A mirror with an older file of another length comes first: interrupted, its file is found to be wrong all
/// the same, and the other one's turn comes.
#[test]
fn of_two_lengths_the_second_has_its_turn_after_an_interruption_too() {
    let ground = Ground::new(24_000_000);
    let older = wrong(&ground.content[..20_000_000]);
    let served = older.clone();
    let old = Site::new(&older, move |request, _| honest(request, &served, "\"v1\"").at(8_000_000));
    let site = Site::slow(&ground.content, 8_000_000);
    let hash = checksum(&ground.content);
    let (urls, args) = ([old.url(), site.url()], ["--json", hash.as_str()]);
    for (of, bytes) in [(&old, 9_000_000), (&site, 9_000_000)] {
        let running = spawn(ground.get_named(&urls, &args));
        wait_until(20, || of.body_bytes() > bytes);
        running.signal(Signal::SIGINT);
        running.end().expect(130);
    }
    run(ground.get_named(&urls, &args)).expect(0);
    ground.assert_arrived();
    assert!(old.body_bytes() < 20_000_000 + 2_000_000, "{}", old.body_bytes());
    assert!(site.body_bytes() < 24_000_000 + 2_000_000, "{}", site.body_bytes());
}

/// Begins with these; then one that lies, and was not asked before, is named beside them.
fn then_a_liar_is_named_too(ground: &Ground, honest: &[Site]) -> Done {
    interrupted_at(ground, &honest.iter().collect::<Vec<_>>(), 12_000_000);
    let bad = late_liar(&ground.content, 6_000_000);
    let urls: Vec<String> = honest.iter().chain([&bad]).map(Site::url).collect();
    run(ground.get_named(&urls, &["--json"]))
}

#[test]
fn who_is_new_and_lies_costs_nothing_of_what_was_left() {
    let ground = Ground::new(24_000_000);
    let sites = [(); 2].map(|()| Site::slow(&ground.content, 6_000_000));
    let done = then_a_liar_is_named_too(&ground, &sites).expect(0);
    ground.assert_arrived();
    assert_eq!(done.banned().len(), 1);
    assert!(resumed(&done) > 8_000_000 && !done.notes().contains("is fetched again"), "{}", done.notes());
    let of_both: u64 = sites.iter().map(Site::body_bytes).sum();
    assert!(of_both < 24_000_000 + 4_000_000, "{of_both}");
}

/// Nobody can tell who is right; but what was left is of one of the two at most, and whoever says which of
/// them is meant, by its URL or by a hash, goes on with it.
#[test]
fn what_was_left_stays_where_one_and_a_new_one_differ() {
    for by_hash in [false, true] {
        let ground = Ground::new(24_000_000);
        let sites = [Site::slow(&ground.content, 6_000_000)];
        let done = then_a_liar_is_named_too(&ground, &sites).expect(5);
        let says = format!("what an earlier run left stays; {} alone goes on with it", sites[0].name());
        assert!(done.err.contains("different bytes") && done.err.contains(&says), "{}", done.err);
        ground.assert_part();
        let bad = late_liar(&ground.content, 6_000_000);
        let hash = checksum(&ground.content);
        let done = match by_hash {
            false => {
                let refused = run(ground.get_named(&[bad.url()], &[])).expect(6);
                assert!(refused.err.contains("name that URL too to go on"), "{}", refused.err);
                run(ground.get_named(&[sites[0].url()], &["--json"]))
            }
            true => run(ground.get_named(&[bad.url(), sites[0].url()], &["--json", &hash])),
        };
        let done = done.expect(0);
        ground.assert_arrived();
        assert!(resumed(&done) > 8_000_000, "{}", resumed(&done));
        assert_eq!(wrong_bytes(&ground), 0);
    }
}

/// It is named again: nobody can tell who is right, and no file comes.
#[test]
fn a_liar_that_takes_part_again_does_not_vouch_for_what_it_left() {
    let ground = Ground::new(24_000_000);
    let honest = begin(&ground, Signal::SIGKILL);
    let again = late_liar(&ground.content, 6_000_000);
    let done = run(ground.get_named(&[again.url(), honest.url()], &["--json"])).expect(5);
    assert!(done.err.contains("different bytes"), "{}", done.err);
    assert!(!ground.target().exists());
}

/// What honest mirrors left costs a few comparisons, and nothing of it comes again.
#[test]
fn what_honest_mirrors_left_stays() {
    let ground = Ground::new(40_000_000);
    let sites = [(); 2].map(|()| Site::slow(&ground.content, 6_000_000));
    let urls = sites.each_ref().map(Site::url);
    for (named, signal) in [(&urls[..], Signal::SIGKILL), (&urls[1..], Signal::SIGINT)] {
        let before: u64 = sites.iter().map(Site::body_bytes).sum();
        let running = spawn(ground.get_named(named, &["--json"]));
        wait_until(20, || sites.iter().map(Site::body_bytes).sum::<u64>() > before + 12_000_000);
        running.signal(signal);
        running.end();
        ground.assert_part();
    }
    let before: u64 = sites.iter().map(Site::body_bytes).sum();
    let done = run(ground.get_named(&urls, &["--json"])).expect(0);
    ground.assert_arrived();
    let (there, again) = (resumed(&done), sites.iter().map(Site::body_bytes).sum::<u64>() - before);
    assert!(there > 20_000_000, "{there}");
    assert!(again < 40_000_000 - there + 3_000_000, "{again} bytes came after {there}");
    assert!(!done.notes().contains("is fetched again"), "{}", done.notes());
}

#[test]
fn a_mirror_that_was_found_out_is_not_asked_again() {
    let ground = Ground::new(30_000_000);
    let sites = [(); 2].map(|()| Site::slow(&ground.content, 3_000_000));
    let bad = late_liar(&ground.content, 3_000_000);
    let urls = [sites[0].url(), bad.url(), sites[1].url()];
    let running = spawn(ground.get_named(&urls, &["--json"]));
    running.wait_said("wrong bytes in block");
    running.signal(Signal::SIGINT);
    running.end().expect(130);
    ground.assert_part();
    let asked = |site: &Site| site.seen().iter().filter(|request| request.is_for_bytes()).count();
    let before = asked(&bad);
    let done = run(ground.get_named(&urls, &["--json"])).expect(0);
    ground.assert_arrived();
    assert_eq!(done.banned(), [bad.name()]);
    assert!(done.out.contains("struck off earlier: wrong bytes"), "{}", done.out);
    assert_eq!(asked(&bad), before, "it was asked again");
    assert!(resumed(&done) > 0, "{}", done.out);
    // Without the part it is asked like any other.
    fs::remove_file(ground.target()).expect("the file");
    let done = run(ground.get_named(&urls, &["--json"])).expect(0);
    assert!(asked(&bad) > before && names(&ground.to()) == ["f"], "{}", done.out);
}

/// Where only those are named that were found out, nothing comes, and it is said how they are asked again.
#[test]
fn who_was_found_out_and_is_named_alone_is_told_so() {
    let ground = Ground::new(30_000_000);
    let sites = [(); 2].map(|()| Site::slow(&ground.content, 3_000_000));
    let bad = late_liar(&ground.content, 3_000_000);
    let running = spawn(ground.get_named(&[sites[0].url(), bad.url(), sites[1].url()], &["--json"]));
    running.wait_said("wrong bytes in block");
    // It is recorded right after it is said, and more comes then.
    let before = sites[0].body_bytes();
    wait_until(20, || sites[0].body_bytes() > before + 1_000_000);
    running.signal(Signal::SIGKILL);
    running.end();
    let done = run(ground.get_named(&[bad.url()], &["--json"])).expect(5);
    assert!(done.err.contains("struck off earlier") && done.err.contains("remove the part"), "{}", done.err);
    ground.assert_part();
}

/// A liar offers a hash of what it has. In one go it is found out, and that hash counts no more: nor does it
/// after an interruption.
#[test]
fn what_one_says_of_the_file_that_was_found_out_does_not_count() {
    let ground = Ground::new(30_000_000);
    let sites = [(); 2].map(|()| Site::slow(&ground.content, 3_000_000));
    let bad = late_wrong(&ground.content);
    let digest = format!("sha-256=:{}:", BASE64.encode(&Sha256::digest(&bad)));
    let liars = [(); 2].map(|()| {
        let digest = digest.clone();
        Site::new(&bad, move |_, reply| reply.with("repr-digest", digest.clone()).at(3_000_000))
    });
    let third = Site::slow(&ground.content, 3_000_000);
    let urls = [&sites[0], &liars[0], &sites[1], &liars[1], &third].map(Site::url);
    let running = spawn(ground.get_named(&urls, &["--json"]));
    for liar in &liars {
        running.wait_said(&format!("{}: wrong bytes in block", liar.name()));
    }
    running.signal(Signal::SIGKILL);
    let _ = running.end();
    ground.assert_part();
    run(ground.get_named(&urls, &["--json"])).expect(0);
    ground.assert_arrived();
}

/// It shows that something wrong came.
#[test]
fn what_comes_again_is_said_with_quiet_too() {
    let ground = Ground::new(24_000_000);
    let honest = begin(&ground, Signal::SIGKILL);
    let other = Site::slow(&ground.content, 8_000_000);
    let done = run(ground.get_named(&[honest.url(), other.url()], &["-q"])).expect(0);
    ground.assert_arrived();
    assert!(done.err.contains("is fetched again"), "{}", done.err);
}
