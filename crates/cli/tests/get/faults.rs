//! Sources that lie, vanish, flood or never existed, and receivers that are killed, with the real command.
//! The name of each test says what must hold.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt as _;
use std::thread;
use std::time::Duration;

use crate::common::fetch::{Ground, names, run, spawn};
use crate::common::{Server, anabranch, noise};
use crate::peers::hostile::{Hostile, Mode};
use crate::peers::relay::Relay;
use anabranch_mmtp::ContentId;
use anabranch_mmtp::id::BLOCK_BYTES;
use nix::sys::signal::Signal;

/// Makes another version of a content, in which most blocks are the same.
fn other_version(content: &[u8]) -> Vec<u8> {
    let mut other = content.to_vec();
    for at in (0..other.len()).step_by(3 * BLOCK_BYTES) {
        other[at] ^= 1;
    }
    other
}

/// Runs `run` with each of these modes at the same time, because each run mostly waits.
fn in_parallel<const N: usize>(modes: [Mode; N], run: impl Fn(Mode) + Sync) {
    // Called here because the test must register itself before its threads start programs.
    anabranch_net::testing::side_by_side();
    let run = &run;
    thread::scope(|scope| modes.into_iter().for_each(|mode| drop(scope.spawn(move || run(mode)))));
}

#[test]
fn one_process_on_three_ports_contributes_from_all() {
    let ground = Ground::new(30_000_000);
    let mut command = anabranch();
    command.arg("serve").arg(ground.source()).args(["--json", "--no-cache"]);
    // Each port has a third of the limit, so two alone would take three seconds, and one would take six.
    command.args(["--listen=127.0.0.1:0"; 3]).arg("--limit=15M");
    let server = Server::run(command);
    assert_eq!(server.addresses.len(), 3);
    let done = run(ground.get(&server.addresses, &[])).expect(0);
    ground.assert_arrived();
    let each: Vec<u64> = server.addresses.iter().map(|a| done.bytes_from(*a)).collect();
    assert!(each.iter().all(|bytes| *bytes > 1_000_000), "{each:?}");
    let sum: u64 = each.iter().sum();
    assert!((30_000_000..33_000_000).contains(&sum), "{each:?}");
}

#[test]
fn with_one_source_killed_and_restarted_and_another_lying_the_file_arrives_and_the_liar_is_named() {
    let ground = Ground::new(12_000_000);
    let serve = |listen: &str| Server::start_at(&ground.source(), listen, &["--limit=2M"]);
    let (steady, dying, honest) =
        (serve("127.0.0.1:0"), serve("127.0.0.1:0"), Server::start(&ground.source()));
    // The liar tells the truth at first, and serves long enough to be asked all the time.
    let liar = Relay::liar(honest.address, 200);
    let address = dying.address;
    let from = [steady.address, address, liar.address];
    // This is run as people run it: the summary is text on standard error.
    let running = spawn(ground.get_for_people(&from, &["--disjoint"]));
    ground.wait_recorded(50);
    drop(dying);
    let before = ground.recorded().len();
    ground.wait_recorded(before + 50);
    let back = serve(&address.to_string());
    let done = running.end().expect(0);
    ground.assert_arrived();
    let named = format!("banned: {}: wrong bytes in block", liar.address);
    assert!(done.err.contains(&named), "{}", done.err);
    assert_eq!(done.err.matches("banned: 127").count(), 1, "nobody else: {}", done.err);
    assert!(done.err.contains(" verified; "), "{}", done.err);
    assert!(back.end()["sent_bytes"].as_u64() > Some(100_000), "the one that came back is used again");
}

#[test]
fn a_liar_beside_an_honest_source_is_named_and_the_file_arrives() {
    let ground = Ground::new(2_500_000);
    let old = other_version(&ground.content);
    for mode in [Mode::WrongBytes, Mode::OldBytes(old), Mode::RandomBytes, Mode::WrongHashes] {
        let what = format!("{mode:?}").chars().take(12).collect::<String>();
        let honest = Server::start_at(&ground.source(), "127.0.0.1:0", &["--limit=10M"]);
        let liar = Hostile::start(&ground.content, mode);
        let done = run(ground.get(&[honest.address, liar.address], &[])).expect(0);
        ground.assert_arrived();
        assert_eq!(done.banned(), [liar.address.to_string()], "{what}");
        // Once the liar is known, it is not asked again.
        assert!(liar.tally().requests < 1_000, "{what}: {}", liar.tally().requests);
        fs::remove_file(ground.target()).expect("removed");
    }
}

#[test]
fn nonsense_beside_an_honest_source_does_no_harm_and_frames_nobody() {
    let _few = anabranch_net::testing::among_few();
    let ground = Ground::new(2_500_000);
    for mode in [
        Mode::Silent,
        Mode::TooMuch,
        Mode::Malformed,
        Mode::ShortChunks,
        Mode::Unknown,
        Mode::Busy,
        Mode::Cookies,
    ] {
        let what = format!("{mode:?}");
        let honest = Server::start_at(&ground.source(), "127.0.0.1:0", &["--limit=10M"]);
        let elapsed_s = |from: &[SocketAddr]| {
            let done = run(ground.get(from, &["--timeout=5"])).expect(0);
            ground.assert_arrived();
            fs::remove_file(ground.target()).expect("removed");
            assert!(done.banned().is_empty(), "{what}: {}", done.out);
            done.summary()["last"]["elapsed_s"].as_f64().expect("a number")
        };
        // Alone it takes a quarter of a second, more on a busy machine.
        let alone_s = elapsed_s(&[honest.address]);
        let other = Hostile::start(&ground.content, mode);
        let beside_s = elapsed_s(&[honest.address, other.address]);
        eprintln!("{what}: {} requests", other.tally().requests);
        assert!(
            beside_s < 12.0 * alone_s,
            "{what}: {beside_s} s for what takes the honest source {alone_s} s"
        );
    }
}

#[test]
fn with_liars_only_it_ends_with_status_5_and_nothing_gets_the_name() {
    let old = other_version(&noise(500_000));
    in_parallel([Mode::WrongBytes, Mode::OldBytes(old), Mode::RandomBytes, Mode::WrongHashes], |mode| {
        let ground = Ground::new(500_000);
        let liar = Hostile::start(&ground.content, mode);
        let done = run(ground.get(&[liar.address], &["--timeout=5"])).expect(5);
        assert_eq!(done.banned(), [liar.address.to_string()]);
        assert!(done.err.contains(&liar.address.to_string()), "{}", done.err);
        assert!(!ground.target().exists());
        // Every byte in the part is right. If no right byte arrived, there is no part.
        let Ok(part) = fs::File::open(ground.to().join("f.part")) else { return };
        for block in ground.recorded() {
            let (from, mut bytes) = (block as usize * BLOCK_BYTES, vec![0; BLOCK_BYTES]);
            let len = part.read_at(&mut bytes, from as u64).expect("bytes");
            assert_eq!(bytes[..len], ground.content[from..from + len]);
        }
    });
}

#[test]
fn with_nobody_who_answers_usefully_it_ends_with_status_4() {
    in_parallel([Mode::Silent, Mode::Malformed, Mode::Busy, Mode::Cookies, Mode::ShortChunks], |mode| {
        let ground = Ground::new(500_000);
        let what = format!("{mode:?}");
        let source = Hostile::start(&ground.content, mode);
        let done = run(ground.get(&[source.address], &["--timeout=2"]));
        eprintln!("{what}: {} requests", source.tally().requests);
        let done = done.expect(4);
        assert!(done.err.contains("no source has answered for 2 s"), "{what}: {}", done.err);
        assert!(source.tally().requests < 1_000, "{what}: asked {} times", source.tally().requests);
        assert!(!ground.target().exists());
    });
}

#[test]
fn a_source_that_sends_too_much_is_no_problem_even_alone() {
    let ground = Ground::new(2_500_000);
    let source = Hostile::start(&ground.content, Mode::TooMuch);
    let done = run(ground.get(&[source.address], &[])).expect(0);
    ground.assert_arrived();
    assert!(done.banned().is_empty());
}

#[test]
fn a_content_that_nobody_has_ends_with_status_3_at_once() {
    let ground = Ground::new(100_000);
    let other = ground.dir.path().join("other");
    fs::write(&other, noise(100_001)).expect("a file");
    let server = Server::start(&other);
    let also = Hostile::start(&ground.content, Mode::Unknown);
    let done = run(ground.get(&[server.address, also.address], &[])).expect(3);
    assert!(done.err.contains("no source has this content"), "{}", done.err);
    assert_eq!(done.summary()["complete"], false);
    assert!(!ground.target().exists());
}

/// After each kill, the journal is read. No later run may be *sent* a recorded block, let alone ask for one.
/// The source counts the blocks that it sends to each receiver. Each run has its own port, so that answers
/// still on the way to a dead run do not count for the next.
#[test]
fn killed_ten_times_at_random_it_resumes_and_no_recorded_block_is_fetched_twice() {
    let ground = Ground::new(8_000_000);
    let blocks = ContentId::of(&ground.content).blocks();
    let source = Hostile::paced(&ground.content, Mode::Honest, 6_000_000);
    let mut seed = [0; 8];
    #[expect(clippy::disallowed_methods, reason = "the moments are to be others in each run of the tests")]
    getrandom::fill(&mut seed).expect("randomness");
    println!("seed {seed:?}");
    let mut moments = blake3::Hasher::new().update(&seed).finalize_xof();
    let mut recorded = BTreeSet::new();
    let mut known: BTreeSet<SocketAddr> = BTreeSet::new();
    let mut kills = 0;
    for _ in 0..10 {
        let mut run = spawn(ground.get(&[source.address], &[]));
        let mut moment = [0];
        moments.fill(&mut moment);
        thread::sleep(Duration::from_micros(u64::from(moment[0]) * 600));
        if !run.has_ended() {
            run.signal(Signal::SIGKILL);
            kills += 1;
        }
        assert_eq!(run.end().code, None, "it was killed, long before its end");
        assert!(!ground.target().exists());
        let now = ground.recorded();
        assert!(now.is_superset(&recorded), "nothing is forgotten");
        for (receiver, sent) in &source.tally().sent {
            if known.insert(*receiver) {
                let twice: Vec<_> = sent.keys().filter(|block| recorded.contains(block)).collect();
                assert!(twice.is_empty(), "sent again: {twice:?}");
            }
        }
        // A port is first seen after its run has ended.
        recorded = now;
    }
    assert_eq!(kills, 10);
    assert!(!recorded.is_empty(), "it never got anywhere");
    let done = run(ground.get(&[source.address], &[])).expect(0);
    ground.assert_arrived();
    let last = &done.summary()["last"];
    let kept = last["resumed_bytes"].as_u64().expect("a number");
    assert!(kept >= (recorded.len() as u64 - 1) * BLOCK_BYTES as u64, "all that was recorded is used");
    let tally = source.tally();
    let sent: Vec<_> = tally.sent.iter().filter(|(receiver, _)| !known.contains(receiver)).collect();
    let asked: BTreeSet<u64> = sent.iter().flat_map(|(_, blocks)| blocks.keys().copied()).collect();
    assert_eq!(asked, (0..blocks).filter(|g| !recorded.contains(g)).collect(), "just what was missing");
    // Each missing block is sent once, padded to whole chunks, and few packets twice. No packets are lost
    // here, but a busy machine may be late.
    let bytes: u64 = sent.iter().flat_map(|(_, blocks)| blocks.values()).sum();
    let missing = (blocks - recorded.len() as u64) * BLOCK_BYTES as u64;
    assert!(bytes < missing + missing / 10 + 64 * 1_500, "{bytes} bytes for {missing} that were missing");
}

#[test]
fn ctrl_c_ends_it_with_status_130_and_the_same_command_resumes() {
    let ground = Ground::new(4_000_000);
    // It would take eight seconds, but is interrupted twice within three.
    let limited = Server::start_at(&ground.source(), "127.0.0.1:0", &["--limit=500k"]);
    let mut least = 0;
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let run = spawn(ground.get(&[limited.address], &[]));
        ground.wait_recorded(least + 40);
        // This is how timeout(1) signals: the process, and then its group.
        [signal, signal].into_iter().for_each(|signal| run.signal(signal));
        let done = run.end().expect(130);
        assert!(done.err.contains("interrupted") && done.err.contains("resumes"), "{}", done.err);
        assert_eq!(done.summary()["complete"], false);
        ground.assert_part();
        least = ground.recorded().len();
    }
    let server = Server::start(&ground.source());
    let done = run(ground.get(&[server.address], &[])).expect(0);
    assert_eq!(done.summary()["last"]["resumed_bytes"], least as u64 * BLOCK_BYTES as u64);
    ground.assert_arrived();
}

#[test]
fn with_all_sources_gone_it_waits_says_so_gives_up_keeps_the_part_and_resumes() {
    let ground = Ground::new(4_000_000);
    // Both together would take eight seconds, but they are killed long before.
    let serve = |listen: &str, limit: &str| Server::start_at(&ground.source(), listen, &[limit]);
    let servers = [(); 2].map(|()| serve("127.0.0.1:0", "--limit=250k"));
    let from = servers.each_ref().map(|s| s.address);
    let run = spawn(ground.get(&from, &["--timeout=5"]));
    ground.wait_recorded(40);
    drop(servers);
    run.wait_note("no source answers: waiting, gives up in");
    run.wait_event(|event| event["note"] == "waiting for a source");
    let done = run.end().expect(4);
    assert!(done.err.contains("no source has answered for 5 s"), "{}", done.err);
    assert!(done.err.contains("kept") && done.err.contains("resumes"), "{}", done.err);
    ground.assert_part();
    let kept = ground.recorded().len();
    assert!((40..240).contains(&kept));
    let _back = serve(&from[0].to_string(), "--limit=2M");
    let done = crate::common::fetch::run(ground.get(&from, &["--timeout=5"])).expect(0);
    assert_eq!(done.summary()["last"]["resumed_bytes"], kept as u64 * BLOCK_BYTES as u64);
    ground.assert_arrived();
}

#[test]
fn a_source_that_comes_back_while_it_waits_is_used_again() {
    let ground = Ground::new(2_000_000);
    // The server would take eight seconds, but is killed long before.
    let server = Server::start_at(&ground.source(), "127.0.0.1:0", &["--limit=250k"]);
    let address = server.address;
    let run = spawn(ground.get(&[address], &["--timeout=30"]));
    ground.wait_recorded(20);
    drop(server);
    run.wait_note("no source answers");
    let _back = Server::start_at(&ground.source(), &address.to_string(), &["--limit=2M"]);
    run.end().expect(0);
    ground.assert_arrived();
}

#[test]
fn a_way_that_does_not_lead_there_is_refused_at_once() {
    let ground = Ground::new(1);
    let far = "198.51.100.1:9".parse().expect("an address");
    // This promise cannot be kept, because there is no such interface; the error lists those that exist.
    let done = run(ground.get(&[far], &["--via=nosuch0"])).expect(2);
    assert!(done.err.contains("`nosuch0`") && done.err.contains("lo (127.0.0.1"), "{}", done.err);
    // Loopback exists, but does not lead there.
    let done = run(ground.get(&[far], &["--via=lo"])).expect(4);
    assert!(done.err.contains("--via lo leads to no source"), "{}", done.err);
    let done = run(ground.get(&[far], &["--via=127.0.0.1"])).expect(4);
    assert!(done.err.contains("--via 127.0.0.1 leads to no source"), "{}", done.err);
    // If only one of two promises can be kept, the command fails.
    let near = "127.0.0.1:9".parse().expect("an address");
    run(ground.get(&[far, near], &["--via=lo", "--via=192.0.2.99"])).expect(2);
    assert!(names(&ground.to()).is_empty());
}
