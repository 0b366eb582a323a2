//! A hash of the whole tells who is right: mirrors are tried alone, over interruptions too. One that does not
//! answer delays that, and undoes nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::fetch::{Ground, checksum, killed_when, names, run, spawn};
use crate::peers::site::{Reply, Request, Site, Switch, Then, honest, liar, whole, wrong};
use nix::sys::signal::Signal;

/// Answers with a head, and with nothing more once it `is_mute`.
fn mute(ground: &Ground, rate: u64, is_mute: &Switch) -> Site {
    let is_mute = is_mute.clone();
    Site::new(&ground.content, move |request: &Request, reply: Reply| {
        match is_mute.is_turned() && request.is_for_bytes() {
            true => reply.cut(0, Then::Stall),
            false => reply.at(rate),
        }
    })
}

/// Brings no more than `each` bytes with an answer, and then nothing, once it was asked for so many.
fn stalls_after(bytes: u64, content: &[u8], each: usize) -> Site {
    let sent = AtomicU64::new(0);
    Site::new(content, move |request, reply: Reply| {
        let more = reply.body.len() as u64;
        match request.is_for_bytes() && sent.fetch_add(more, Ordering::Relaxed) + more > bytes {
            true => reply.cut(each, Then::Stall),
            false => reply,
        }
    })
}

/// Fetches, and is interrupted after so many milliseconds, until the file is there; returns what was said.
fn interrupted_each(millis: u64, ground: &Ground, urls: &[String], hash: &str, sites: &[&Site]) -> String {
    let (mut runs, mut said) = (0, String::new());
    loop {
        runs += 1;
        let brought = || sites.iter().map(|site| site.body_bytes()).collect::<Vec<_>>();
        assert!(runs < 12, "no end of it: {:?}: {said}", brought());
        let signal = if runs % 2 == 0 { Signal::SIGINT } else { Signal::SIGKILL };
        let done = spawn(ground.get_named(urls, &["--json", hash])).end_or_interrupt(millis, signal);
        said += &done.notes();
        if done.code == Some(0) {
            assert!(runs > 1, "it was interrupted");
            return said;
        }
    }
}

/// The liar is the fastest, so it is tried first. Whoever fetches is interrupted each 4 s: it is not tried
/// anew each time, and the mute one is not waited for before the honest one has had its turn.
#[test]
fn a_liar_that_was_tried_is_not_tried_again_after_an_interruption() {
    let ground = Ground::new(24_000_000);
    let (good, bad) = (Site::slow(&ground.content, 5_000_000), liar(&ground.content, 12_000_000));
    let mute = mute(&ground, 1, &Switch::turned());
    let hash = checksum(&ground.content);
    let urls = [bad.url(), mute.url(), good.url()];
    let said = interrupted_each(4_000, &ground, &urls, &hash, &[&bad, &good]);
    ground.assert_arrived();
    assert!(said.contains("tried alone, and it does not have it"), "{said}");
    assert!(bad.body_bytes() < 24_000_000 + 8_000_000, "{}", bad.body_bytes());
    assert!(good.body_bytes() < 24_000_000 + 14_000_000, "{}", good.body_bytes());
}

/// The hash is mistyped, two mirrors have all of the file, and a third falls mute on the way: the verdict on
/// those two comes all the same. What they brought is there for the right hash.
#[test]
fn one_that_does_not_answer_does_not_hide_the_verdict_on_the_others() {
    let ground = Ground::new(12_000_000);
    let is_mute = Switch::default();
    let two = [(); 2].map(|()| Site::slow(&ground.content, 4_000_000));
    let third = mute(&ground, 4_000_000, &is_mute);
    let urls: Vec<String> = two.iter().chain([&third]).map(Site::url).collect();
    let wrong = checksum(b"another");
    let running = spawn(ground.get_named(&urls, &["--json", &wrong, "--timeout", "6"]));
    crate::common::wait_until(20, || third.body_bytes() > 1_000_000);
    is_mute.set(true);
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
    let is_mute = Switch::turned();
    let bad = liar(&ground.content, 12_000_000);
    let good = mute(&ground, 6_000_000, &is_mute);
    let hash = checksum(&ground.content);
    let urls = [bad.url(), good.url()];
    let mut args = vec!["--json", hash.as_str(), "--timeout", "6"];
    let done = run(ground.get_named(&urls, &args)).expect(5);
    assert!(done.err.contains("has not the file that is wanted"), "{}", done.err);
    is_mute.set(false);
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
    let is_away = Switch::default();
    let good = is_away.away(&ground.content, 4_000_000);
    let hash = checksum(&ground.content);
    let running = spawn(ground.get_named(&[good.url()], &["--json", &hash]));
    crate::common::wait_until(20, || good.body_bytes() > 8_000_000);
    running.signal(Signal::SIGINT);
    running.end().expect(130);
    let before = good.body_bytes();
    is_away.set(true);
    let bad = liar(&ground.content, 12_000_000);
    let (urls, args) = ([bad.url(), good.url()], ["--json", hash.as_str(), "--timeout", "5"]);
    let done = run(ground.get_named(&urls, &args)).expect(5);
    assert!(done.err.contains(&format!("{} could not be asked", good.name())), "{}", done.err);
    ground.assert_part();
    is_away.set(false);
    run(ground.get_named(&urls, &args)).expect(0);
    ground.assert_arrived();
    assert!(good.body_bytes() < before + 6_000_000, "{}", good.body_bytes() - before);
}

/// The liar has brought much, and cannot be reached now. Two others are there to bring the file.
#[test]
fn one_that_cannot_be_reached_does_not_keep_two_others_from_bringing_it() {
    let ground = Ground::new(6_000_000);
    let is_away = Switch::default();
    let bad = is_away.away(&wrong(&ground.content), 4_000_000);
    let good = [(); 2].map(|()| Site::slow(&ground.content, 2_000_000));
    let (urls, hash) = ([bad.url(), good[0].url(), good[1].url()], checksum(&ground.content));
    killed_when(ground.get_named(&urls[..1], &["--json", &hash]), || bad.body_bytes() > 4_000_000);
    is_away.set(true);
    run(ground.get_named(&urls, &["--json", &hash])).expect(0);
    ground.assert_arrived();
}

/// Neither says which version it has, or a new one each time: what they brought in one run is their own in
/// the next all the same, and who was found wrong comes last.
#[test]
fn a_trial_goes_on_where_no_version_tells_whose_a_block_is() {
    for is_random in [false, true] {
        let ground = Ground::new(20_000_000);
        let answers = AtomicU64::new(0);
        let twist = move |reply: Reply| {
            let tag = format!("\"{}\"", answers.fetch_add(1, Ordering::Relaxed));
            if is_random { reply.with("etag", tag) } else { reply.without("etag") }
        };
        let twist = Arc::new(twist);
        let site = |bytes: Vec<u8>, rate: u64| {
            let (twist, content) = (Arc::clone(&twist), bytes.clone());
            Site::new(&bytes, move |request: &Request, _| {
                twist(honest(&request.without("if-range"), &content, "\"v1\"").at(rate))
            })
        };
        let (bad, good) = (site(wrong(&ground.content), 5_000_000), site(ground.content.clone(), 4_000_000));
        let hash = checksum(&ground.content);
        let said = interrupted_each(3_000, &ground, &[bad.url(), good.url()], &hash, &[&bad, &good]);
        ground.assert_arrived();
        assert!(said.contains("is tried alone"), "{said}");
        assert!(bad.body_bytes() < 20_000_000 + 8_000_000, "{}", bad.body_bytes());
        assert!(good.body_bytes() < 20_000_000 + 12_000_000, "{}", good.body_bytes());
    }
}

/// It would have to begin anew in each run.
#[test]
fn a_liar_without_ranges_is_tried_last() {
    let ground = Ground::new(20_000_000);
    let bytes = wrong(&ground.content);
    let twist = move |_: &Request, _: Reply| {
        let reply = Reply::new(200, &bytes).with("etag", "\"w\"").at(8_000_000);
        reply.with("content-type", "application/octet-stream")
    };
    let (bad, good) = (Site::new(&ground.content, twist), Site::slow(&ground.content, 3_000_000));
    let hash = checksum(&ground.content);
    interrupted_each(2_000, &ground, &[bad.url(), good.url()], &hash, &[&bad, &good]);
    ground.assert_arrived();
    assert!(good.body_bytes() < 20_000_000 + 4_000_000, "{}", good.body_bytes());
}

/// A liar that brings a little with each request, and then nothing, has no more than its turn.
#[test]
fn a_liar_that_drips_does_not_keep_the_others_from_their_turn() {
    let ground = Ground::new(100_000);
    let bad = wrong(&ground.content);
    let drip = stalls_after(20_000, &bad, 1_024);
    let honest = Site::new(&ground.content, |_, _| whole(100_000));
    let urls = [liar(&ground.content, u64::MAX), drip, honest];
    let done =
        run(ground.get_named(&urls.each_ref().map(Site::url), &["--json", &checksum(&ground.content)]));
    done.expect(0);
    ground.assert_arrived();
}

/// One that was fast and trickles now is no measure for the honest one, and gives way each time.
#[test]
fn what_was_fast_and_trickles_does_not_keep_the_honest_one_from_its_turn() {
    let ground = Ground::new(5_000_000);
    let staller = stalls_after(300_000, &ground.content, 16_384);
    let urls = [liar(&ground.content, 20_000_000), staller, Site::slow(&ground.content, 400_000)];
    let hash = checksum(&ground.content);
    run(ground.get_named(&urls.each_ref().map(Site::url), &["--json", &hash])).expect(0);
    ground.assert_arrived();
}

/// Neither has ranges. The one that is asked first sends a little, then nothing, or drips: the other is
/// asked.
#[test]
fn one_without_ranges_that_does_not_send_it_gives_way_to_another() {
    let ground = Ground::new(1_500_000);
    let honest = Site::new(&ground.content, |_, _| whole(1_500_000));
    for (bytes, rate) in [(16_384, u64::MAX), (1_500_000, 2_000)] {
        let bad = Site::new(&ground.content, move |request, _| match request.is_for_bytes() {
            true => whole(1_500_000).cut(bytes, Then::Stall).at(rate),
            false => whole(1_500_000),
        });
        let urls = [bad.url(), honest.url()];
        run(ground.get_named(&urls, &["--json", &checksum(&ground.content)])).expect(0);
        ground.assert_arrived();
        std::fs::remove_file(ground.target()).expect("the file");
    }
}

/// It answers its first request with 503: it is asked again before the get fails, for it has what is wanted.
/// `more`: how many bytes longer the liar's file is.
#[test]
fn a_busy_mirror_is_asked_again_where_the_others_do_not_have_it() {
    for more in [0, 1] {
        let ground = Ground::new(3_000_000);
        let bad = [wrong(&ground.content), vec![7; more]].concat();
        let busy = Site::busy_at_first(&ground.content);
        let liar = Site::good(&bad);
        let (urls, hash) = ([liar.url(), busy.url()], checksum(&ground.content));
        let done = run(ground.get_named(&urls, &["--json", &hash])).expect(0);
        ground.assert_arrived();
        assert!(done.notes().contains("once more to those that could not be asked"), "{}", done.notes());
    }
    // The same where a Metalink of the user's names both.
    for more in [0, 1] {
        let ground = Ground::new(3_000_000);
        let bad = [wrong(&ground.content), vec![7; more]].concat();
        let busy = Site::busy_at_first(&ground.content);
        let liar = Site::good(&bad);
        let hash = checksum(&ground.content).replace("--checksum=sha-256=", "");
        let list = ground.dir.path().join("f.meta4");
        let urls = [&liar, &busy].map(|site| format!("<url>{}</url>", site.url())).concat();
        let text = format!(
            "<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\"><file name=\"f\"><size>3000000</size>\
             <hash type=\"sha-256\">{hash}</hash>{urls}</file></metalink>"
        );
        std::fs::write(&list, text).expect("a file");
        run(ground.get_named(&[list.to_str().expect("UTF-8").to_owned()], &["--json"])).expect(0);
        ground.assert_arrived();
        assert_eq!(names(&ground.to()), ["f"]);
    }
    // It is busy for good: the time-out is for that as for all.
    let ground = Ground::new(3_000_000);
    let busy = Site::new(&ground.content, |_, _| Reply::new(503, b"later").with("retry-after", "1"));
    let liar = Site::good(&wrong(&ground.content));
    let hash = checksum(&ground.content);
    let done = run(ground.get_named(&[liar.url(), busy.url()], &["--json", "--timeout", "4", &hash]));
    let done = done.expect(5);
    assert!(done.err.contains("could not be asked"), "{}", done.err);
    assert!(busy.seen().len() > 2, "{}", busy.seen().len());
    ground.assert_part();
}

/// The only one that answers at the start falls silent: the busy one is asked again, and has it.
#[test]
fn a_busy_mirror_is_asked_again_where_the_other_falls_silent() {
    let ground = Ground::new(3_000_000);
    let busy = Site::busy_at_first(&ground.content);
    let silent = Switch::default().silent_after(1_000_000, &wrong(&ground.content), 4_000_000);
    let hash = checksum(&ground.content);
    let done = run(ground.get_named(&[silent.url(), busy.url()], &["--json", "--timeout", "5", &hash]));
    done.expect(0);
    ground.assert_arrived();
}

/// An honest mirror takes its time before each answer: where the others have something else it is waited for.
#[test]
fn one_that_is_slow_to_answer_is_waited_for_where_the_others_do_not_have_it() {
    let ground = Ground::new(300_000);
    let slow = Site::new(&ground.content, |_, reply| {
        std::thread::sleep(std::time::Duration::from_secs(4));
        reply
    });
    let liar = Site::good(&wrong(&ground.content));
    let hash = checksum(&ground.content);
    run(ground.get_named(&[liar.url(), slow.url()], &["--json", &hash])).expect(0);
    ground.assert_arrived();
}
