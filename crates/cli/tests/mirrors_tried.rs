//! A hash of the whole tells who is right: mirrors are tried alone, over interruptions too. One that does not
//! answer delays that, and undoes nothing.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::fetch::{Ground, checksum, names, run, spawn};
use common::site::{Reply, Request, Site, Then, liar};
use nix::sys::signal::Signal;

/// Answers with a head, and with nothing more once it `is_mute`.
fn mute(ground: &Ground, rate: u64, is_mute: &Arc<AtomicBool>) -> Site {
    let is_mute = Arc::clone(is_mute);
    Site::new(&ground.content, move |request: &Request, reply: Reply| {
        match is_mute.load(Ordering::Relaxed) && request.is_for_bytes() {
            true => reply.cut(0, Then::Stall),
            false => reply.at(rate),
        }
    })
}

/// The liar is the fastest, so it is tried first. Whoever fetches is interrupted each 4 s: it is not tried
/// anew each time, and the mute one is not waited for before the honest one has had its turn.
#[test]
fn a_liar_that_was_tried_is_not_tried_again_after_an_interruption() {
    let ground = Ground::new(24_000_000);
    let (good, bad) = (Site::slow(&ground.content, 5_000_000), liar(&ground.content, 12_000_000));
    let mute = mute(&ground, 1, &Arc::new(AtomicBool::new(true)));
    let hash = checksum(&ground.content);
    let urls = [bad.url(), mute.url(), good.url()];
    let (mut runs, mut said) = (0, String::new());
    loop {
        runs += 1;
        assert!(runs < 9, "no end of it: {} and {} bytes: {said}", good.body_bytes(), bad.body_bytes());
        let mut running = spawn(ground.get_named(&urls, &["--json", &hash]));
        for _ in 0..80 {
            if running.has_ended() {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        if !running.has_ended() {
            running.signal(if runs % 2 == 0 { Signal::SIGINT } else { Signal::SIGKILL });
        }
        let done = running.end();
        said += &done.notes();
        if done.code == Some(0) {
            break;
        }
    }
    ground.assert_arrived();
    assert!(runs > 1, "it was interrupted");
    assert!(said.contains("tried alone, and it does not have it"), "{said}");
    assert!(bad.body_bytes() < 24_000_000 + 8_000_000, "{}", bad.body_bytes());
    assert!(good.body_bytes() < 24_000_000 + 14_000_000, "{}", good.body_bytes());
}

/// The hash is mistyped, two mirrors have all of the file, and a third falls mute on the way: the verdict on
/// those two comes all the same. What they brought is there for the right hash.
#[test]
fn one_that_does_not_answer_does_not_hide_the_verdict_on_the_others() {
    let ground = Ground::new(12_000_000);
    let is_mute = Arc::new(AtomicBool::new(false));
    let two = [(); 2].map(|()| Site::slow(&ground.content, 4_000_000));
    let third = mute(&ground, 4_000_000, &is_mute);
    let urls: Vec<String> = two.iter().chain([&third]).map(Site::url).collect();
    let wrong = checksum(b"another");
    let running = spawn(ground.get_named(&urls, &["--json", &wrong, "--timeout", "6"]));
    common::wait_until(20, || third.body_bytes() > 1_000_000);
    is_mute.store(true, Ordering::Relaxed);
    let done = running.end().expect(5);
    assert!(done.err.contains("have not the file that is wanted"), "{}", done.err);
    assert!(done.err.contains("could not be tried to the end"), "{}", done.err);
    ground.assert_part();
    // With the same hash only the third is asked.
    let came = || two.iter().map(Site::body_bytes).sum::<u64>();
    let before = came();
    let done = run(ground.get_named(&urls, &["--json", &wrong, "--timeout", "4"])).expect(5);
    assert!(done.err.contains("have not the file that is wanted"), "{}", done.err);
    assert!(came() < before + 100_000, "{}", came() - before);
    let right = checksum(&ground.content);
    run(ground.get_named(&urls, &["--json", &right])).expect(0);
    ground.assert_arrived();
    assert!(came() < before + 1_000_000, "{}", came() - before);
    assert_eq!(names(&ground.to()), ["f"]);
}

/// The third is the one that has it: it does when it answers again.
#[test]
fn one_that_answers_again_has_its_turn() {
    let ground = Ground::new(12_000_000);
    let is_mute = Arc::new(AtomicBool::new(true));
    let bad = liar(&ground.content, 12_000_000);
    let good = mute(&ground, 6_000_000, &is_mute);
    let hash = checksum(&ground.content);
    let urls = [bad.url(), good.url()];
    let mut args = vec!["--json", hash.as_str(), "--timeout", "6"];
    let done = run(ground.get_named(&urls, &args)).expect(5);
    assert!(done.err.contains("has not the file that is wanted"), "{}", done.err);
    is_mute.store(false, Ordering::Relaxed);
    args.truncate(2);
    let done = run(ground.get_named(&urls, &args)).expect(0);
    ground.assert_arrived();
    assert!(done.notes().contains("an earlier run had all of it"), "{}", done.notes());
    assert!(bad.body_bytes() < 12_000_000 + 1_000_000, "{}", bad.body_bytes());
}

/// The honest one has brought much, and cannot be reached now: the other one does not replace that, and is
/// not the only one that counts.
#[test]
fn what_one_left_that_cannot_be_reached_is_not_given_up() {
    let ground = Ground::new(12_000_000);
    let is_away = Arc::new(AtomicBool::new(false));
    let away = Arc::clone(&is_away);
    let good =
        Site::new(&ground.content, move |_: &Request, reply: Reply| match away.load(Ordering::Relaxed) {
            true => Reply::new(503, b"later"),
            false => reply.at(4_000_000),
        });
    let hash = checksum(&ground.content);
    let running = spawn(ground.get_named(&[good.url()], &["--json", &hash]));
    common::wait_until(20, || good.body_bytes() > 8_000_000);
    running.signal(Signal::SIGINT);
    running.end().expect(130);
    let before = good.body_bytes();
    is_away.store(true, Ordering::Relaxed);
    let bad = liar(&ground.content, 12_000_000);
    let (urls, args) = ([bad.url(), good.url()], ["--json", hash.as_str(), "--timeout", "5"]);
    let done = run(ground.get_named(&urls, &args)).expect(5);
    assert!(done.err.contains(&format!("{} could not be asked", good.name())), "{}", done.err);
    ground.assert_part();
    is_away.store(false, Ordering::Relaxed);
    run(ground.get_named(&urls, &args)).expect(0);
    ground.assert_arrived();
    assert!(good.body_bytes() < before + 6_000_000, "{}", good.body_bytes() - before);
}
