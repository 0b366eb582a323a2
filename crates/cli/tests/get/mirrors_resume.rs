//! Interrupted transfers that are finished later: from mirrors, and from mirrors and mmTP sources together,
//! at the same time or one after the other.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::fetch::{Done, Ground, checksum, names, run, spawn};
use crate::common::{Server, wait_until};
use crate::peers::hostile::{Hostile, Mode};
use crate::peers::relay::Relay;
use crate::peers::site::{Reply, Request, Site, honest};
use anabranch_mmtp::ContentId;
use anabranch_mmtp::id::BLOCK_BYTES;
use anabranch_mmtp::uri::Uri;
use nix::sys::signal::Signal;

/// Makes the URI of the content with these sources and mirrors.
fn uri(ground: &Ground, sources: &[String], mirrors: &[String]) -> String {
    let mut uri = Uri::new(ContentId::of(&ground.content));
    uri.from = sources.to_vec();
    uri.mirrors = mirrors.to_vec();
    uri.to_string()
}

fn resumed(done: &Done) -> u64 {
    done.summary()["last"]["resumed_bytes"].as_u64().expect("a number")
}

/// Returns the bytes in the part, counting the blocks that are not all zero.
fn part_bytes(ground: &Ground) -> u64 {
    let part = fs::read(ground.to().join("f.part")).unwrap_or_default();
    let blocks = part.chunks(BLOCK_BYTES).filter(|block| block.iter().any(|byte| *byte != 0));
    blocks.map(|block| block.len() as u64).sum()
}

#[test]
fn after_kill_9_only_the_rest_is_fetched() {
    let ground = Ground::new(6_000_000);
    let sites = [1, 2].map(|_| Site::slow(&ground.content, 1_500_000));
    let urls = sites.each_ref().map(Site::url);
    let running = spawn(ground.get_named(&urls, &["--json"]));
    wait_until(20, || part_bytes(&ground) > 2_000_000);
    running.signal(Signal::SIGKILL);
    assert_eq!(running.end().code, None);
    ground.assert_part();
    let before: u64 = sites.iter().map(Site::body_bytes).sum();
    let done = run(ground.get_named(&urls, &["--json"])).expect(0);
    ground.assert_arrived();
    let there = resumed(&done);
    assert!(there >= 2_000_000, "{there}");
    let again = sites.iter().map(Site::body_bytes).sum::<u64>() - before;
    // Bytes that are compared, copied at the end, or were under way come twice.
    assert!(again <= 6_000_000 - there + 1_500_000, "{again} bytes came after {there}");
}

#[test]
fn an_interrupt_keeps_the_part() {
    let ground = Ground::new(6_000_000);
    let site = Site::slow(&ground.content, 2_000_000);
    let running = spawn(ground.get_named(&[site.url()], &["--json"]));
    wait_until(20, || part_bytes(&ground) > 1_000_000);
    running.signal(Signal::SIGINT);
    let done = running.end().expect(130);
    assert!(done.err.contains("the same command resumes"), "{}", done.err);
    assert_eq!(done.summary()["complete"], false);
    ground.assert_part();
    // Another file of the same length under this URL is not mixed with the part.
    drop(site);
    let other = crate::common::noise(6_000_001)[1..].to_vec();
    let moved = Site::new(&other.clone(), move |request, _| honest(request, &other, "\"v2\""));
    let done = run(ground.get_named(&[moved.url()], &[])).expect(6);
    assert!(done.err.contains("--force"), "{}", done.err);
    ground.assert_part();
}

/// Begins to fetch these URLs, and interrupts that.
fn begin(ground: &Ground, urls: &[String], more: &[&str]) {
    let running = spawn(ground.get_named(urls, &[&["--json"], more].concat()));
    wait_until(20, || part_bytes(ground) > 1_000_000);
    running.signal(Signal::SIGINT);
    running.end().expect(130);
}

#[test]
fn a_part_that_is_not_gone_on_with_says_why_and_how_it_would_be() {
    let ground = Ground::new(6_000_000);
    let changed = Arc::new(AtomicBool::new(false));
    let (new, is_changed) = (ground.content.clone(), Arc::clone(&changed));
    let a = Site::new(&ground.content, move |request: &Request, reply| {
        let is_changed = is_changed.load(Ordering::Relaxed);
        if is_changed { honest(request, &new, "\"v2\"") } else { reply.at(3_000_000) }
    });
    let b = Site::slow(&ground.content, 3_000_000);
    let sum = checksum(&ground.content);
    let why = |urls: &[String], more: &[&str]| run(ground.get_named(urls, more)).expect(6).err;
    let has = |text: &str, parts: [&str; 2]| assert!(parts.iter().all(|part| text.contains(part)), "{text}");

    begin(&ground, &[a.url()], &[]);
    let from_another =
        ["was begun from another URL without any hash", "name that URL too to go on, remove it"];
    has(&why(&[b.url()], &[]), from_another);
    has(&why(&[b.url()], &[&sum]), from_another);
    changed.store(true, Ordering::Relaxed);
    has(
        &why(&[a.url()], &[]),
        ["another version now, or gives each answer another", "lets a get go on): remove it, or "],
    );
    changed.store(false, Ordering::Relaxed);
    run(ground.get_named(&[b.url(), a.url()], &[])).expect(0);
    ground.assert_arrived();
    fs::remove_file(ground.target()).expect("the file");

    begin(&ground, &[a.url()], &[&sum]);
    let other = checksum(b"another content");
    has(&why(&[b.url()], &[]), ["was begun with a hash, and this request has none", "--checksum"]);
    has(
        &why(&[b.url()], &[&other]),
        [
            "was begun with another hash, or one of another kind: give that one too",
            "else remove it, or let --force",
        ],
    );
    let done = run(ground.get_named(&[b.url()], &["--json", &sum])).expect(0);
    ground.assert_arrived();
    assert!(resumed(&done) >= 1_000_000, "{}", done.out);
}

#[test]
fn begun_over_mmtp_and_finished_over_http() {
    let ground = Ground::new(6_000_000);
    let open = Arc::new(AtomicBool::new(false));
    let is_open = open.clone();
    let site = Site::new(&ground.content, move |_, reply| match is_open.load(Ordering::Relaxed) {
        true => reply,
        false => Reply::new(404, b""),
    });
    let server = Server::start_at(&ground.source(), "127.0.0.1:0", &["--limit", "2M"]);
    // The same URI is used twice: first its mirror has nothing, then its source is gone.
    let name = uri(&ground, &[server.address.to_string()], &[site.url()]);
    let running = spawn(ground.get_named(&[&name], &["--json"]));
    running.wait_note("going on without mirrors");
    ground.wait_recorded(100);
    running.signal(Signal::SIGKILL);
    running.end();
    ground.assert_part();
    drop(server);
    open.store(true, Ordering::Relaxed);
    let done = run(ground.get_named(&[&name], &["--json"])).expect(0);
    ground.assert_arrived();
    assert!(done.notes().contains("mirrors alone go on"), "{}", done.notes());
    assert_eq!(done.summary()["verified"], "whole");
    assert!(resumed(&done) >= 100 * BLOCK_BYTES as u64, "{}", resumed(&done));
    assert!(site.body_bytes() <= 6_000_000 - 100 * BLOCK_BYTES as u64 + 1_000_000, "{}", site.body_bytes());
}

#[test]
fn both_at_the_same_time() {
    let ground = Ground::new(12_000_000);
    let server = Server::start_at(&ground.source(), "127.0.0.1:0", &["--limit", "4M"]);
    let site = Site::slow(&ground.content, 4_000_000);
    let from = format!("--from={}", server.address);
    let done = run(ground.get_named(&[uri(&ground, &[], &[site.url()])], &["--json", &from])).expect(0);
    ground.assert_arrived();
    let (by_mmtp, by_http) = (done.bytes_from(server.address), done.bytes_from(site.address));
    assert!(by_mmtp > 1_000_000 && by_http > 1_000_000, "{by_mmtp} and {by_http}");
    assert_eq!(done.summary()["verified"], "blocks");
    assert!(done.banned().is_empty());
}

#[test]
fn both_at_the_same_time_and_the_mirror_lies() {
    let ground = Ground::new(6_000_000);
    let wrong: Vec<u8> = ground.content.iter().map(|byte| byte ^ 1).collect();
    let server = Server::start_at(&ground.source(), "127.0.0.1:0", &["--limit", "4M"]);
    let site = Site::new(&ground.content, move |request, _| honest(request, &wrong, "\"v1\"").at(4_000_000));
    let from = format!("--from={}", server.address);
    let done = run(ground.get_named(&[uri(&ground, &[], &[site.url()])], &["--json", &from])).expect(0);
    ground.assert_arrived();
    assert_eq!(done.banned(), [site.name()]);
}

#[test]
fn both_at_the_same_time_and_the_source_lies() {
    let ground = Ground::new(6_000_000);
    let server = Server::start_at(&ground.source(), "127.0.0.1:0", &["--limit", "4M"]);
    let liar = Relay::liar(server.address, 40);
    let site = Site::slow(&ground.content, 4_000_000);
    let from = format!("--from={}", liar.address);
    let done = run(ground.get_named(&[uri(&ground, &[], &[site.url()])], &["--json", &from])).expect(0);
    ground.assert_arrived();
    assert_eq!(done.banned(), [liar.address.to_string()]);
}

#[test]
fn the_source_goes_away_and_the_mirror_finishes() {
    let ground = Ground::new(8_000_000);
    let server = Server::start_at(&ground.source(), "127.0.0.1:0", &["--limit", "2M"]);
    let site = Site::slow(&ground.content, 2_000_000);
    let from = format!("--from={}", server.address);
    let running = spawn(ground.get_named(&[uri(&ground, &[], &[site.url()])], &["--json", &from]));
    ground.wait_recorded(100);
    let address = server.address;
    drop(server);
    let done = running.end().expect(0);
    ground.assert_arrived();
    assert!(done.notes().contains("mirrors alone go on"), "{}", done.notes());
    let summary = done.summary();
    assert_eq!(summary["complete"], true);
    assert_eq!(summary["verified"], "whole");
    // Bytes that the mirror sent before, whose hashes only the source has, are not fetched again.
    let (by_source, by_mirror) = (done.bytes_from(address), done.bytes_from(site.address));
    assert!(by_source > 0 && by_source + by_mirror >= 8_000_000, "one table: {by_source} and {by_mirror}");
    assert!(site.body_bytes() + by_source < 8_000_000 + 1_000_000, "{} twice", site.body_bytes() + by_source);
    // All events use one clock, so none is earlier than the one before.
    let events = done.out.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let elapsed: Vec<f64> = events.filter_map(|event| event["elapsed_s"].as_f64()).collect();
    assert!(elapsed.len() > 3 && elapsed.is_sorted(), "{elapsed:?}");
    assert!(summary["last"]["elapsed_s"].as_f64() >= elapsed.last().copied(), "{summary}");
    assert_eq!(summary["last"]["resumed_bytes"], 0);
}

#[test]
fn a_mirror_begins_at_once_though_no_source_answers() {
    let _few = anabranch_net::testing::among_few();
    let ground = Ground::new(8_000_000);
    let silent = Hostile::start(&ground.content, Mode::Silent);
    let site = Site::slow(&ground.content, 4_000_000);
    let clock = anabranch_net::Clock::start();
    let from = format!("--from={}", silent.address);
    let done = run(ground.get_named(&[uri(&ground, &[], &[site.url()])], &["--json", &from])).expect(0);
    let took_s = clock.now().as_nanos() as f64 / 1e9;
    ground.assert_arrived();
    assert!(done.notes().contains("mirrors alone go on"), "{}", done.notes());
    // The transfer takes two seconds; waiting in vain for the silent source took five.
    assert!(took_s < 4.5, "it took {took_s} s");
    assert!(site.body_bytes() < 8_000_000 + 500_000, "{}", site.body_bytes());
}

#[test]
fn a_source_that_answers_without_any_hash_does_not_hold_mirrors_up() {
    // The file is longer than the bytes that may wait for hashes. The source answers every request, so it is
    // never silent.
    let ground = Ground::new(60_000_000);
    let busy = Hostile::start(&ground.content, Mode::Busy);
    let site = Site::slow(&ground.content, 20_000_000);
    let from = format!("--from={}", busy.address);
    let args = ["--json", "--timeout=40", &from];
    let done = run(ground.get_named(&[uri(&ground, &[], &[site.url()])], &args)).expect(0);
    ground.assert_arrived();
    assert!(done.notes().contains("no source sends the hashes"), "{}", done.notes());
    assert!(site.body_bytes() < 60_000_000 + 1_000_000, "{} bytes", site.body_bytes());
}

#[test]
fn a_source_serves_both_ways() {
    // The URL for browsers works like any mirror, without anything else.
    let ground = Ground::new(5_000_000);
    let server = Server::start_at(&ground.source(), "127.0.0.1:0", &["--http", "127.0.0.1:0"]);
    let url = server.offers[0]["http"][0].as_str().expect("a URL").to_owned();
    let done = run(ground.get_named(&[&url], &["--json"])).expect(0);
    ground.assert_arrived();
    assert_eq!(done.summary()["verified"], "blocks", "{}", done.notes());
    fs::remove_file(ground.target()).expect("the file");
    // Here both protocols fetch from the same source at once: its URI has the URL as a mirror.
    let mut both: Uri = server.uri().parse().expect("a URI");
    both.mirrors = vec![url];
    run(ground.get_named(&[both.to_string()], &[&format!("--from={}", server.address)])).expect(0);
    ground.assert_arrived();
    assert_eq!(names(&ground.to()), ["f"]);
}
