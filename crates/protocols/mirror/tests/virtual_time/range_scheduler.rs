//! Tests of the range scheduler and of the pool of mirrors alone, with mirrors whose properties are all
//! known.

use crate::simulated_mirrors::{Counting, Link, Outcome, World, is, mbit, secs};
use anabranch_algo::control::Algorithm;
use anabranch_algo::{Output, Span, SplitMix64, Time};
use anabranch_mirror::digests::PieceHashes;
use anabranch_mirror::range_scheduler::{
    Command, ConnectionConfig, ConnectionReport, Failure, Input, RangeScheduler, State,
};
use anabranch_mirror::receive_windows::Sharing;
use anabranch_mirror::verified_pool::{Check, VerifiedPool};
use anabranch_mmtp::id::BLOCK_BYTES;
use anabranch_mmtp::tree::block_cv;
use proptest::prelude::*;
use sha2::{Digest as _, Sha256};

const GB: u64 = 1_000_000_000;
const PIECE: usize = 256 << 10;

fn count(length: u64, links: &[Link]) -> Outcome {
    World::new(length, None, links, 1).run(&mut Counting::new(length.div_ceil(BLOCK_BYTES as u64)))
}

pub(crate) fn content(length: usize) -> Vec<u8> {
    let mut luck = SplitMix64(7);
    (0..length.div_ceil(4)).flat_map(|_| (luck.below(1 << 31) as u32).to_le_bytes()).take(length).collect()
}

pub(crate) fn leaves(content: &[u8]) -> Check {
    let blocks = content.chunks(BLOCK_BYTES).enumerate();
    Check::Leaves(blocks.map(|(block, bytes)| block_cv(block as u64, bytes)).collect())
}

fn pieces(content: &[u8]) -> Check {
    let hashes = content.chunks(PIECE).map(|piece| Sha256::digest(piece).into()).collect();
    Check::Pieces { bytes: PIECE as u64, hashes: PieceHashes::Sha256(hashes) }
}

pub(crate) fn fetch(content: &[u8], check: Check, links: &[Link], seed: u64) -> Outcome {
    let length = content.len() as u64;
    let mut pool = VerifiedPool::new(length, check, |_| false).expect("it fits");
    links.iter().for_each(|link| pool.mirror_joins(link.mirror, true));
    World::new(length, Some(content), links, seed).run(&mut pool)
}

fn three(rtt_ms: u64, pipelines: bool) -> [Link; 3] {
    [0, 1, 2].map(|mirror| Link { pipelines, ..Link::new(mirror, mbit(100), rtt_ms) })
}

#[test]
fn equal_links_are_full() {
    for (rtt, pipelines) in [1, 20, 50].into_iter().flat_map(|rtt| [(rtt, true), (rtt, false)]) {
        let links = three(rtt, pipelines);
        let outcome = count(GB, &links);
        let permille = outcome.permille(GB, 3 * mbit(100));
        let duplicate: u64 =
            outcome.connections.iter().map(|connection| connection.counters.duplicate_bytes).sum();
        let fetches: Vec<_> =
            outcome.connections.iter().map(|connection| connection.counters.fetches).collect();
        let what = format!("{rtt} ms, pipelines {pipelines}: {permille} permille, fetches {fetches:?}");
        assert!(permille >= 970, "{what}");
        assert!(duplicate < GB / 200, "{what}: {duplicate} duplicate");
        println!("equal {what}, duplicate {duplicate}");
    }
}

#[test]
fn asked_ahead_links_are_never_idle() {
    for (rtt, length) in [1, 20, 50, 200].into_iter().flat_map(|rtt| [(rtt, GB / 4), (rtt, GB)]) {
        let outcome = count(length, &three(rtt, true));
        // The time for the connection and the first request cannot be saved.
        let took = outcome.complete.expect("complete").as_nanos() - 2 * rtt * 1_000_000;
        let ideal = length * 1_000_000_000 / (3 * mbit(100));
        let permille = ideal * 1_000 / took;
        let duplicate: u64 =
            outcome.connections.iter().map(|connection| connection.counters.duplicate_bytes).sum();
        let brought: u64 = outcome.connections.iter().map(|connection| connection.counters.bytes).sum();
        let fetches: Vec<_> =
            outcome.connections.iter().map(|connection| connection.counters.fetches).collect();
        let what = format!("{rtt} ms, {length}: {permille} permille, fetches {fetches:?}, dup {duplicate}");
        println!("ahead {what}");
        assert!(permille >= 980, "{what}");
        assert!(brought == length && duplicate < length / 200, "{what}: {brought} brought");
        assert!(
            outcome
                .connections
                .iter()
                .all(|connection| connection.counters.failures + connection.counters.stalls == 0),
            "{what}"
        );
        if length == GB {
            // Two seconds each, except at the beginning and at the end.
            assert!(fetches.iter().all(|fetches| (9..=24).contains(fetches)), "{what}");
        }
        // The head of a prefetched answer, which comes at once, does not change the time to the first byte.
        let trip = Span::from_millis(rtt);
        assert!(outcome.connections.iter().all(|connection| connection.first_byte >= trip), "{what}");
    }
}

/// A single block that is requested for comparison is too short to cover the time until the next answer.
#[test]
fn what_is_compared_leaves_no_link_idle() {
    let content = content(60 << 20);
    for rtt in [20, 120, 200] {
        let links = [0, 1].map(|mirror| Link::new(mirror, mbit(30), rtt));
        let outcome = fetch(&content, Check::Nothing, &links, 1);
        let took = outcome.complete.expect("complete").as_nanos() - 2 * rtt * 1_000_000;
        let permille = content.len() as u64 * 1_000_000_000 / (2 * mbit(30)) * 1_000 / took;
        println!("compared, {rtt} ms: {permille}");
        assert!(outcome.file == content && permille >= 993, "{rtt} ms: {permille} permille");
    }
}

/// This connection is idle between two answers even with prefetch, so it gets longer ranges.
#[test]
fn a_server_that_answers_one_after_the_other_has_longer_ranges() {
    for (rtt, least) in [(20, 980), (200, 930)] {
        let (early, late) = (count(GB, &three(rtt, true)), count(GB, &three(rtt, false)));
        let fetches = |outcome: &Outcome| {
            outcome.connections.iter().map(|connection| connection.counters.fetches).sum::<u64>()
        };
        let permille = late.permille(GB, 3 * mbit(100));
        let what = format!("{rtt} ms: {permille}, {} and {} requests", fetches(&early), fetches(&late));
        println!("one after the other, {what}");
        assert!(fetches(&late) < fetches(&early) && permille >= least, "{what}");
    }
}

#[test]
fn unequal_links_are_full() {
    for rtts in [[20, 20, 20], [10, 40, 80], [80, 40, 10]] {
        let rates = [100, 50, 10];
        let mut links: Vec<_> = (0..3).map(|i| Link::new(i as u8, mbit(rates[i]), rtts[i])).collect();
        for (length, pipelines) in [(GB / 4, true), (GB, true), (GB / 4, false), (GB, false)] {
            links.iter_mut().for_each(|link| link.pipelines = pipelines);
            let outcome = count(length, &links);
            let permille = outcome.permille(length, mbit(160));
            let fetches: Vec<_> =
                outcome.connections.iter().map(|connection| connection.counters.fetches).collect();
            let what = format!("{rtts:?} ms, {length}, pipelines {pipelines}");
            assert!(permille >= 950, "{what}: {permille}, fetches {fetches:?}");
            println!("unequal {what}: {permille} permille, fetches {fetches:?}");
        }
    }
}

#[test]
fn a_stalled_mirror_costs_its_share_only() {
    for (from, to) in [(5, 10_000), (5, 15), (20, 10_000), (2, 4)] {
        let mut links = [0, 1, 2].map(|mirror| Link::new(mirror, mbit(100), 20));
        links[1].silent.push(secs(from)..secs(to));
        let outcome = count(GB, &links);
        // Three connections until the stall, then two, then perhaps three again.
        let (before, pause) = (from * 3 * mbit(100), (to - from) * 2 * mbit(100));
        let ideal = if before + pause > GB {
            from * 1_000 + (GB - before) * 1_000 / (2 * mbit(100))
        } else {
            to * 1_000 + (GB - before - pause) * 1_000 / (3 * mbit(100))
        };
        let took = outcome.complete.expect("complete").as_nanos() / 1_000_000;
        assert!(took * 100 <= ideal * 105, "{from} to {to}: {took} ms, ideal {ideal}");
        println!("stall {from} to {to}: {took} ms, ideal {ideal} ms");
    }
}

/// The ranges that the slow mirror has, with prefetched ones, would take it longer than the rest takes the
/// others.
#[test]
fn a_mirror_that_becomes_slow_keeps_nothing_up() {
    for (from, pipelines) in [(3, true), (3, false), (24, true), (24, false)] {
        let mut links = three(20, pipelines);
        let tick = |n: u64| secs(from) + Span::from_millis(50 * n);
        links[1].silent = (0..1_000).map(|n| tick(n)..tick(n) + Span::from_millis(45)).collect();
        let outcome = count(GB, &links);
        let rest = GB - from * 3 * mbit(100);
        let ideal = from * 1_000 + rest * 1_000 / mbit(210);
        let took = outcome.complete.expect("complete").as_nanos() / 1_000_000;
        println!("slow from {from} on, pipelines {pipelines}: {took} ms, ideal {ideal} ms");
        assert!(took * 100 <= ideal * 102, "{from}, {pipelines}: {took} ms, ideal {ideal}");
    }
}

#[test]
fn small_files_do_not_wait_for_slow_mirrors() {
    let links = [Link::new(0, mbit(100), 20), Link::new(1, 10_000, 300)];
    for length in [1, 16_384, 100_000, 5_000_000] {
        let outcome = count(length, &links);
        let took = outcome.complete.expect("complete").as_nanos() / 1_000_000;
        assert!(took <= 1_300, "{length} bytes: {took} ms");
    }
}

#[test]
fn a_dead_mirror_does_not_matter() {
    let mut links = [Link::new(0, mbit(100), 20), Link::new(1, mbit(100), 20)];
    links[1].silent.push(Time::ZERO..secs(100_000));
    for length in [1 << 20, 50 << 20] {
        let outcome = count(length, &links);
        let took = outcome.complete.expect("complete").as_nanos() / 1_000_000;
        let ideal = length * 1_000 / mbit(100);
        assert!(took <= ideal + 500, "{length} bytes: {took} ms, ideal {ideal}");
    }
}

#[test]
fn a_server_without_ranges_is_the_last_resort() {
    let mut links = [Link::new(0, mbit(100), 20), Link::new(1, mbit(100), 20)];
    links[1].ranges = false;
    let outcome = count(3 << 20, &links);
    assert_eq!(outcome.connections[1].counters.fetches, 0);
    let outcome = count(3 << 20, &links[1..]);
    assert_eq!(outcome.connections[0].counters.fetches, 1);
    assert!(outcome.complete.is_some());
}

/// The server without ranges delivers the beginning, the others deliver the end, and no block is requested
/// twice.
#[test]
fn a_server_without_ranges_brings_the_beginning_of_a_long_file() {
    for whole in [10, 50, 100, 200, 400, 800] {
        let mut links = three(20, true);
        (links[1].ranges, links[1].rate) = (false, mbit(whole));
        let outcome = count(GB, &links);
        let permille = outcome.permille(GB, 2 * mbit(100) + mbit(whole));
        let counters = outcome.connections.iter().map(|connection| connection.counters);
        let duplicate: u64 = counters.map(|counters| counters.duplicate_bytes).sum();
        let took = outcome.complete.expect("complete").as_nanos() / 1_000_000;
        println!(
            "without ranges {whole} Mbit/s, beside 200: {took} ms, {permille} permille, {duplicate} twice"
        );
        assert!(permille >= 950, "{whole}: {permille} permille");
        assert!(duplicate < GB / 200, "{whole}: {duplicate} duplicate");
        assert_eq!(outcome.connections[1].counters.fetches, 1, "{whole}");
    }
}

#[test]
fn what_a_server_without_ranges_brings_is_verified_as_all_is() {
    let content = content(60_000_000);
    for check in [leaves(&content), pieces(&content), Check::Nothing] {
        let is_compared = check == Check::Nothing;
        for wrong in [0..0, 300..301, 0..4_000] {
            let mut links = three(20, true);
            links[1].ranges = false;
            links[1].wrong = wrong.clone();
            links[1].silent = vec![secs(1)..secs(4)];
            let outcome = fetch(&content, check.clone(), &links, 3);
            assert!(outcome.complete.is_some(), "{wrong:?}");
            // Where mirrors are only compared, one wrong block may be missed.
            let may_be_wrong = is_compared && wrong == (300..301);
            assert!(outcome.file == content || may_be_wrong, "{wrong:?}");
            assert_eq!(outcome.liars, if wrong.is_empty() || may_be_wrong { vec![] } else { vec![1] });
        }
    }
}

/// A liar with ranges is beside an honest server without ranges, whose answer also has the blocks that were
/// wrong.
#[test]
fn what_a_liar_had_wrong_comes_from_a_server_without_ranges() {
    for length in [900_000, 3_000_000, 60_000_000] {
        let content = content(length);
        let blocks = (length as u64).div_ceil(16_384);
        for check in [leaves(&content), pieces(&content)] {
            for wrong in [0..1, blocks / 2..blocks / 2 + 1, blocks - 1..blocks, 0..blocks] {
                for honest in 1..3 {
                    let mut links = three(20, true);
                    links[0].wrong = wrong.clone();
                    links[1..].iter_mut().for_each(|link| link.ranges = false);
                    let outcome = fetch(&content, check.clone(), &links[..=honest], 3);
                    assert!(outcome.complete.is_some(), "{length}: {wrong:?}, {honest}");
                    assert!(outcome.file == content, "{length}: {wrong:?}, {honest}");
                    let fetches = outcome.connections[1..].iter().map(|c| c.counters.fetches).sum::<u64>();
                    assert!(fetches <= 1 + honest as u64, "{length}: {wrong:?}, {honest}: {fetches}");
                }
            }
        }
    }
}

/// The bytes that a server sends in one part.
static SENT: [u8; 64 << 10] = [0; 64 << 10];

/// Creates the pool and the scheduler of a content of `length` bytes with one server, which took `delay` to
/// answer before.
fn one_server(length: u64, ranges: bool, delay: Span) -> (VerifiedPool, RangeScheduler) {
    let pool = VerifiedPool::new(length, Check::Nothing, |_| false).expect("it fits");
    let mut machine = RangeScheduler::new(length);
    let control = Algorithm::by_name("reno").expect("an algorithm");
    let config = ConnectionConfig { mirror: 0, sharing: Sharing::Given(0), control, ranges, delay };
    assert_eq!(machine.add_connection(&config), Some(0));
    (pool, machine)
}

/// Requests 4 MiB from one server until a minute is over. Returns the times of the requests and the last
/// report.
fn always(ranges: bool, answer: impl Fn(u64) -> Vec<Input<'static>>) -> (Vec<Time>, ConnectionReport) {
    let (mut pool, mut machine) = one_server(4 << 20, ranges, Span::ZERO);
    let (mut now, mut asked) = (Time::ZERO, Vec::new());
    while now < secs(60) {
        match machine.poll(now, &mut pool) {
            Output::Wait(until) => now = until,
            Output::Send(Command::Fetch { fetch, .. }) => {
                asked.push(now);
                for input in answer(fetch) {
                    now += Span::from_millis(1);
                    machine.handle(now, input, &mut pool);
                }
            }
            Output::Send(_) | Output::Event(_) => {}
        }
    }
    let report = machine.connections().next().expect("a connection");
    (asked, report)
}

#[test]
fn a_server_that_is_always_busy_is_asked_later_and_later() {
    let (asked, report) =
        always(true, |fetch| vec![Input::Failed { fetch, failure: Failure::Busy { retry: Span::ZERO } }]);
    let waits: Vec<Span> = asked.windows(2).map(|pair| pair[1].since(pair[0])).collect();
    assert!((5..=7).contains(&waits.len()), "{waits:?}");
    assert!(waits.windows(2).all(|pair| pair[0] < pair[1]), "{waits:?}");
    assert_eq!(report.state, State::Busy);
}

/// Servers may send less of a range than requested (RFC 9110 section 15.3.7). In these cases all servers or
/// some of them do so, with less than a block or more.
#[test]
fn servers_that_send_less_than_was_asked_for_bring_the_file() {
    let content = content((1 << 20) + 5);
    for most in
        [[Some(1_000); 3], [Some(10_000); 3], [Some(20_000), None, None], [Some(200_000), Some(9), None]]
    {
        for check in [Check::Nothing, leaves(&content), pieces(&content)] {
            for rtt in [0, 20] {
                let links = [0, 1, 2].map(|mirror| Link {
                    most: most[usize::from(mirror)],
                    ..Link::new(mirror, mbit(10), rtt)
                });
                for links in [&links[..], &links[..1]] {
                    let outcome = fetch(&content, check.clone(), links, 1);
                    let what = format!("{most:?}, {} of them, {rtt} ms", links.len());
                    assert!(outcome.file == content, "{what}");
                    assert!(outcome.liars.is_empty() && outcome.disagree.is_empty(), "{what}");
                    let failures: u64 = outcome.connections.iter().map(|all| all.counters.failures).sum();
                    assert_eq!(failures, 0, "{what}");
                }
            }
        }
    }
}

/// The scheduler learns the most bytes of one answer. Then the next ranges are prefetched, and no bytes are
/// wasted.
#[test]
fn a_server_that_sends_little_at_once_is_not_idle() {
    let link = Link { most: Some(200_000), ..Link::new(0, mbit(20), 20) };
    let outcome = count(20_000_000, &[link]);
    let permille = outcome.permille(20_000_000, mbit(20));
    // Without prefetch, 20 of 100 ms would be lost.
    assert!(permille >= 880, "{permille}");
}

/// A server that limits the rate of requests, as with nginx's `limit_req`: few requests have to fetch
/// everything.
#[test]
fn a_server_that_takes_few_requests_is_asked_for_much_at_once() {
    let (mut pool, mut machine) = one_server(32 << 20, true, Span::ZERO);
    let (mut now, mut free_at, mut requests) = (Time::ZERO, Time::ZERO, 0);
    while pool.blocks_left() > 0 && now < secs(60) {
        let (fetch, bytes) = match machine.poll(now, &mut pool) {
            Output::Wait(until) => {
                now = until;
                continue;
            }
            Output::Send(Command::Fetch { fetch, first_byte, end_byte, .. }) => {
                (fetch, end_byte - first_byte)
            }
            Output::Send(_) | Output::Event(_) => continue,
        };
        requests += 1;
        if now < free_at {
            let failure = Failure::Busy { retry: Span::ZERO };
            machine.handle(now, Input::Failed { fetch, failure }, &mut pool);
            continue;
        }
        free_at = now + Span::from_millis(100);
        machine.handle(now, Input::Head { fetch }, &mut pool);
        for _ in 0..bytes / SENT.len() as u64 {
            now += Span::from_micros(100);
            machine.handle(now, Input::Body { fetch, bytes: &SENT }, &mut pool);
        }
        machine.handle(now, Input::Done { fetch }, &mut pool);
    }
    assert!(pool.blocks_left() == 0 && now < secs(8) && requests < 20, "{requests} until {now:?}");
}

/// A server is slow before each answer. The scheduler waits longer each time.
#[test]
fn a_server_that_is_slow_to_answer_is_heard() {
    assert_eq!(slow_to_answer(Span::from_secs(15), Span::ZERO), (0, 4));
    // If the server is known to be slow, the first request is waited for.
    assert_eq!(slow_to_answer(Span::from_secs(15), Span::from_secs(14)), (0, 1));
    assert_eq!(slow_to_answer(Span::from_secs(40), Span::from_secs(38)), (0, 1));
}

/// Asks a server that takes `delay` to answer, and that took `before` to answer earlier requests, for a
/// minute. Returns the number of blocks that are still missing and the number of requests.
fn slow_to_answer(delay: Span, before: Span) -> (u64, usize) {
    let (mut pool, mut machine) = one_server(64 << 10, true, before);
    let (mut now, mut requests) = (Time::ZERO, 0);
    // The request that the server works on: the time of its answer, its name, and the bytes of the answer.
    let mut works_on: Option<(Time, _, u64)> = None;
    while pool.blocks_left() > 0 && now < secs(60) {
        match machine.poll(now, &mut pool) {
            Output::Wait(until) => {
                let Some((at, fetch, bytes)) = works_on.filter(|(at, ..)| *at <= until) else {
                    now = until;
                    continue;
                };
                (now, works_on) = (at, None);
                machine.handle(now, Input::Head { fetch }, &mut pool);
                for _ in 0..bytes / SENT.len() as u64 {
                    machine.handle(now, Input::Body { fetch, bytes: &SENT }, &mut pool);
                }
                machine.handle(now, Input::Done { fetch }, &mut pool);
            }
            Output::Send(Command::Fetch { fetch, first_byte, end_byte, .. }) => {
                requests += 1;
                works_on = Some((now + delay, fetch, end_byte - first_byte));
            }
            Output::Send(Command::Cancel { .. }) => works_on = None,
            Output::Send(_) | Output::Event(_) => {}
        }
    }
    (pool.blocks_left(), requests)
}

#[test]
fn a_server_without_ranges_that_breaks_off_is_asked_later_and_later() {
    static HALF: [u8; 2 << 20] = [0; 2 << 20];
    let (asked, report) = always(false, |fetch| {
        let broken = Input::Failed { fetch, failure: Failure::Broken };
        vec![Input::Head { fetch }, Input::Body { fetch, bytes: &HALF }, broken]
    });
    assert!((5..=8).contains(&asked.len()), "{asked:?}");
    assert_eq!((report.counters.bytes, report.breaks_at_byte), (2 << 20, Some(2 << 20)));
    // The second answer might have gone further than the first; the bytes of all later ones are in vain.
    let all = (asked.len() as u64 - 1) * (2 << 20);
    assert_eq!((report.counters.duplicate_bytes, report.counters.vain_bytes), (all, all - (2 << 20)));
}

#[test]
fn a_corrupt_mirror_is_named_and_the_file_is_right() {
    let content = content(40 << 20);
    for check in [leaves(&content), pieces(&content)] {
        for wrong in [0..10_000, 500..501, 1_800..2_000] {
            let mut links = [0, 1, 2].map(|mirror| Link::new(mirror, mbit(100), 20));
            links[1].wrong = wrong.clone();
            let outcome = fetch(&content, check.clone(), &links, 1);
            assert!(outcome.file == content, "{wrong:?}");
            let brought = outcome.connections[1].counters.bytes > 0;
            assert!(outcome.liars.iter().all(|mirror| *mirror == 1), "{wrong:?}: {:?}", outcome.liars);
            if wrong.end - wrong.start > 1_000 {
                assert!(brought && outcome.liars == [1], "{wrong:?}");
                assert!(is(&outcome, 1, State::Closed));
            }
        }
    }
}

#[test]
fn without_hashes_the_odd_one_of_three_is_named() {
    let content = content(40 << 20);
    let mut links = [0, 1, 2].map(|mirror| Link::new(mirror, mbit(100), 20));
    let outcome = fetch(&content, Check::Nothing, &links, 1);
    assert!(outcome.file == content && outcome.liars.is_empty());
    for liar in 0..3 {
        for link in &mut links {
            link.wrong = if link.mirror == liar { 0..10_000 } else { 0..0 };
        }
        let outcome = fetch(&content, Check::Nothing, &links, 1);
        assert!(outcome.file == content, "{liar}");
        assert_eq!(outcome.liars, [liar]);
        assert!(outcome.revoked > 0);
    }
}

#[test]
fn without_hashes_two_that_differ_are_both_named() {
    let content = content(8 << 20);
    let mut links = [0, 1].map(|mirror| Link::new(mirror, mbit(100), 20));
    let outcome = fetch(&content, Check::Nothing, &links, 1);
    assert!(outcome.file == content && outcome.disagree.is_empty());
    links[1].wrong = 0..10_000;
    let mut outcome = fetch(&content, Check::Nothing, &links, 1);
    outcome.disagree.sort_unstable();
    assert_eq!((outcome.complete, &outcome.disagree[..]), (None, &[0, 1][..]));
}

#[test]
fn without_hashes_a_wrong_block_is_noticed_wherever_it_is() {
    let content = content(80 << 20);
    for rates in [[100, 100], [200, 10], [10, 200]] {
        let mut links = [0, 1].map(|mirror| Link::new(mirror, mbit(rates[usize::from(mirror)]), 20));
        let outcome = fetch(&content, Check::Nothing, &links, 1);
        assert!(outcome.file == content && outcome.disagree.is_empty());
        for region in 0..5 {
            links[1].wrong = region * 1_024..(region + 1) * 1_024;
            let outcome = fetch(&content, Check::Nothing, &links, 1);
            assert_eq!(outcome.disagree.len(), 2, "{rates:?}, region {region}");
        }
    }
}

fn unlucky(seed: u64, count: u8) -> Vec<Link> {
    let mut luck = SplitMix64(!seed);
    (0..count)
        .map(|i| {
            let mut link = Link::new(i / 2, 20_000 + luck.below(mbit(80)), 1 + luck.below(200));
            link.misfortunes = luck.below(90);
            link.good_from = secs(60);
            link.pipelines = luck.below(3) > 0;
            if luck.below(4) == 0 {
                let from = luck.below(5_000_000_000);
                let until = from + luck.below(10_000_000_000);
                link.down.push(Time::from_nanos(from)..Time::from_nanos(until));
            }
            if luck.below(3) == 0 {
                let from = luck.below(5_000_000_000);
                let until = from + luck.below(20_000_000_000);
                link.silent.push(Time::from_nanos(from)..Time::from_nanos(until));
            }
            if i > 1 && luck.below(4) == 0 {
                let first = luck.below(300);
                link.wrong = first..first + luck.below(50);
            }
            link
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// The simulation checks every command, and that every block is verified exactly once.
    #[test]
    fn whatever_happens_it_ends(
        (seed, count) in (any::<u64>(), 1_u8..8),
        (kind, length) in (0_u8..3, 1_usize..6_000_000),
    ) {
        let content = content(length);
        let mut links = unlucky(seed, count);
        let check = match kind {
            0 if length > BLOCK_BYTES => leaves(&content),
            1 => {
                // Mirrors that differ would end the transfer here.
                links.iter_mut().for_each(|link| link.wrong = 0..0);
                Check::Nothing
            }
            _ => pieces(&content),
        };
        let outcome = fetch(&content, check.clone(), &links, seed);
        prop_assert!(outcome.complete.is_some() && outcome.file == content);
        // Connections of one mirror may differ here. Only a mirror with wrong blocks may be named.
        for liar in &outcome.liars {
            prop_assert!(links.iter().any(|link| link.mirror == *liar && !link.wrong.is_empty()));
        }
        prop_assert!(fetch(&content, check, &links, seed) == outcome, "same seed, same run");
    }

    /// The content is long, so that connections prefetch again and again.
    #[test]
    fn nothing_is_lost_and_nothing_comes_twice(
        (seed, count) in (any::<u64>(), 1_u8..8),
        length in 1_u64..300_000_000,
    ) {
        let mut links = unlucky(seed, count);
        for link in &mut links {
            (link.good_from, link.misfortunes) = (secs(600), link.misfortunes / 3);
        }
        let mut pool = Counting::new(length.div_ceil(BLOCK_BYTES as u64));
        // The pool itself accepts no block twice.
        let outcome = World::new(length, None, &links, seed).run(&mut pool);
        prop_assert_eq!(outcome.connections.iter().map(|c| c.counters.bytes).sum::<u64>(), length);
    }
}

/// A mirror that delivers very little, with ranges or without, does not hold up the others.
#[test]
fn a_mirror_that_trickles_costs_no_more_than_a_few_seconds() {
    let content = content(60_000_000);
    let silences = [vec![], vec![secs(1)..secs(3)]];
    let mut worst = (0, String::new());
    for (slow, rate) in
        [500, 40_000, 200_000].into_iter().flat_map(|slow| [100, 1_000].map(|rate| (slow, mbit(rate))))
    {
        for (check, silence) in [leaves(&content), Check::Nothing]
            .iter()
            .flat_map(|check| silences.iter().map(move |s| (check, s)))
        {
            for (order, ranges) in [([0, 1], false), ([1, 0], false), ([0, 1], true), ([1, 0], true)] {
                let mut links = order.map(|mirror| Link::new(mirror, rate, 20));
                let (trickles, other) = if order[0] == 1 { (0, 1) } else { (1, 0) };
                (links[trickles].ranges, links[trickles].rate) = (ranges, slow);
                links[other].silent.clone_from(silence);
                let outcome = fetch(&content, check.clone(), &links, 3);
                let took = outcome.complete.expect("complete").as_nanos() / 1_000_000;
                let alone = content.len() as u64 * 1_000 / rate;
                assert!(outcome.file == content);
                let late = took.saturating_sub(alone * 11 / 10);
                let what =
                    format!("{slow} B/s, ranges {ranges}, {rate} B/s, {silence:?} {order:?}: {took} ms");
                worst = worst.max((late, what));
            }
        }
    }
    println!("{worst:?}");
    // The silence, the wait for comparisons, and a while to detect the trickle.
    assert!(worst.0 <= 2_000 + 5_000 + 2_000, "{worst:?}");
}

/// Comparisons are made while the rest arrives, not after it.
#[test]
fn comparing_with_a_slow_mirror_costs_little() {
    let content = content(100_000_000);
    let length = content.len() as u64;
    let mut worst = (0, String::new());
    for (slow_kbit, rtt) in
        [500, 1_000, 2_000, 5_000, 20_000].into_iter().flat_map(|slow| [20, 100].map(|rtt| (slow, rtt)))
    {
        for (seed, order) in [(0, [0, 1]), (1, [1, 0])] {
            let mut links = order.map(|mirror| Link::new(mirror, mbit(100), rtt));
            links[usize::from(order[0] == 0)].rate = slow_kbit * 125;
            let mut pool = VerifiedPool::new(length, Check::Nothing, |_| false).expect("it fits");
            pool.seed([seed; 32]);
            let mut world = World::new(length, Some(&content), &links, 3);
            world.patience = secs(30).since(Time::ZERO);
            let outcome = world.run(&mut pool);
            let took = outcome.complete.expect("complete").as_nanos() / 1_000_000;
            worst = worst.max((took, format!("{slow_kbit} kbit/s, {rtt} ms, {order:?}, {seed}")));
        }
    }
    println!("{worst:?}");
    let alone = length * 1_000 / mbit(100);
    // At 500 kbit/s the comparisons themselves take this long.
    assert!(worst.0 <= alone * 3 / 2, "{worst:?}: alone {alone} ms");
}

/// Blocks that are compared do not crowd out the next range, however long a round trip is.
#[test]
fn comparing_leaves_no_gap_where_round_trips_are_long() {
    let content = content(100_000_000);
    let length = content.len() as u64;
    let links = [0, 1].map(|mirror| Link::new(mirror, mbit(50), 400));
    for seed in 0..8 {
        let mut pool = VerifiedPool::new(length, Check::Nothing, |_| false).expect("it fits");
        links.iter().for_each(|link| pool.mirror_joins(link.mirror, true));
        pool.seed([seed; 32]);
        let outcome = World::new(length, Some(&content), &links, 3).run(&mut pool);
        let permille = outcome.permille(length, 2 * mbit(50));
        println!("{permille} permille");
        // The first byte comes after two round trips, and the last comparisons take one.
        assert!(permille >= 860, "{permille}");
    }
}

/// A server without ranges can be asked only once, so a pause in its answer must not end it.
#[test]
fn a_pause_of_a_server_without_ranges_costs_little_more_than_the_pause() {
    let content = content(120_000_000);
    for check in [leaves(&content), Check::Nothing] {
        for pause_ms in [1_200, 2_000, 2_800] {
            let mut fast = Link::new(1, mbit(160), 20);
            fast.ranges = false;
            let from = secs(2);
            fast.silent = vec![from..from + Span::from_millis(pause_ms)];
            let slow = Link::new(0, mbit(32), 20);
            let outcome = fetch(&content, check.clone(), &[slow, fast], 3);
            let took = outcome.complete.expect("complete").as_nanos() / 1_000_000;
            // The time if both deliver together, except for the pause, in which only the slow one delivers.
            let ideal = (content.len() as u64 * 1_000 + mbit(160) * pause_ms) / mbit(192);
            let what = format!("pause of {pause_ms} ms: {took} ms, ideal {ideal} ms");
            println!("{what}");
            assert!(outcome.file == content && took <= ideal * 21 / 20, "{what}");
        }
    }
}

/// A server without ranges that broke off is not asked again just because the other mirror pauses.
#[test]
fn what_broke_off_is_not_asked_again_in_a_pause_of_the_other() {
    for from_ms in [500, 800, 900, 1_000] {
        let breaks = Link { ranges: false, breaks_at: Some(20_000_000), ..Link::new(1, mbit(160), 20) };
        let mut other = Link::new(0, mbit(160), 20);
        let from = Time::ZERO + Span::from_millis(from_ms);
        other.silent = vec![from..from + Span::from_millis(1_500)];
        let outcome = count(60_000_000, &[other, breaks]);
        assert!(outcome.complete.is_some());
        let counters = outcome.connections.iter().map(|connection| connection.counters);
        let counters: Vec<_> = counters.collect();
        println!("{from_ms} ms: {counters:?}");
        assert!(counters[0].stalls > 0, "{from_ms} ms: the pause counts as a stall");
        assert_eq!(counters[1].fetches, 1, "{from_ms} ms");
    }
}

/// After a fast mirror has fallen silent for good, the remaining one goes on at its own rate.
#[test]
fn the_share_of_a_dead_mirror_goes_to_the_others() {
    let content = content(40_000_000);
    for check in [leaves(&content), pieces(&content)] {
        for pipelines in [true, false] {
            let mut dead = Link::new(0, mbit(8_000), 1);
            let from = Time::ZERO + Span::from_millis(12);
            dead.silent = vec![from..from + Span::from_secs(10_000)];
            let alive = Link { pipelines, ..Link::new(1, mbit(32), 40) };
            let outcome = fetch(&content, check.clone(), &[dead, alive], 3);
            let took = outcome.complete.expect("complete").as_nanos() / 1_000_000;
            let counters: Vec<_> = outcome.connections.iter().map(|connection| connection.counters).collect();
            println!("{took} ms, {counters:?}");
            assert!(
                (1_000_000..30_000_000).contains(&counters[0].bytes),
                "it brought something: {counters:?}"
            );
            // The remaining mirror delivers the rest. If it does not pipeline, it needs a round trip per
            // request.
            let ideal = counters[1].bytes * 1_000 / mbit(32);
            assert!(took < ideal * 6 / 5 + 1_000, "{took} ms of {ideal}");
            assert!(counters[1].fetches < 60, "{counters:?}");
        }
    }
}

/// A mirror that was fast and then trickles keeps no block that another mirror could deliver.
#[test]
fn a_mirror_that_begins_to_trickle_is_left_behind() {
    for length in [3_000_000, 30_000_000] {
        let content = content(length);
        for check in [leaves(&content), Check::Nothing] {
            for (trickle, pipelines) in [(1, true), (20, true), (1, false), (20_000, true)] {
                for order in [[0, 1], [1, 0]] {
                    let mut links = order.map(|mirror| Link::new(mirror, mbit(1_000), 1));
                    let bad = order.iter().position(|mirror| *mirror == 0).expect("it is there");
                    (links[bad].trickle, links[bad].pipelines) = (Some(trickle), pipelines);
                    let outcome = fetch(&content, check.clone(), &links, 3);
                    let took = outcome.complete.expect("complete").as_nanos() / 1_000_000;
                    println!("{length} bytes, {trickle} B/s, pipelines {pipelines}, {order:?}: {took} ms");
                    assert!(outcome.file == content);
                    // The wait for comparisons, and a while to detect the trickle.
                    assert!(
                        took < 5_000 + 4_000,
                        "{length}, {trickle} B/s, {pipelines}, {order:?}: {took} ms"
                    );
                }
            }
        }
    }
}

/// A server without ranges is not kept in reserve beside a mirror that only trickles.
#[test]
fn a_server_without_ranges_does_not_wait_for_one_that_trickles() {
    for length in [3_000_000, 20_000_000] {
        let content = content(length);
        for check in [leaves(&content), pieces(&content), Check::Nothing] {
            let trickles = Link { trickle: Some(1), ..Link::new(0, mbit(100), 1) };
            let whole = Link { ranges: false, ..Link::new(1, mbit(100), 1) };
            let outcome = fetch(&content, check, &[trickles, whole], 3);
            let took = outcome.complete.expect("complete").as_nanos() / 1_000_000;
            println!("{length} bytes: {took} ms");
            assert!(outcome.file == content);
            // The time until the average shows the trickle, the time for the file, and the wait for
            // comparisons.
            assert!(took < 12_000 + 2_000 + 5_000, "{length}: {took} ms");
        }
    }
}

/// A server that limits the bytes of one connection is asked again at once, for as many bytes.
#[test]
fn a_server_that_cuts_its_answers_costs_a_connection_each_time() {
    let length = 60_000_000;
    let lone = Link { cuts: Some(2 << 20), ..Link::new(0, mbit(100), 20) };
    let outcome = count(length, std::slice::from_ref(&lone));
    let took = outcome.complete.expect("complete").as_nanos() / 1_000_000;
    // Each 2 MiB takes two round trips more.
    let ideal = length * 1_000 / mbit(100) + 40 * (length / (2 << 20) + 1);
    println!("{took} ms of {ideal}");
    assert!(took < ideal * 11 / 10, "{took} ms of {ideal}");
    let outcome = count(length, &[lone, Link::new(1, mbit(100), 20)]);
    let took = outcome.complete.expect("complete").as_nanos() / 1_000_000;
    println!("beside another: {took} ms of {}", ideal / 2);
    assert!(took < ideal / 2 * 11 / 10, "{took} ms of {}", ideal / 2);
}

/// A server without ranges delivers its part of shorter files, too. The other connection's first request,
/// made while its rate is not known, cannot be taken over. It is a sixteenth of the file, which takes 5 s at
/// 2 Mbit/s.
#[test]
fn a_server_without_ranges_helps_with_a_file_of_some_megabytes() {
    for (length, whole, ranges, most) in [
        (8_000_000, 100, 20, 700),
        (20_000_000, 100, 20, 1_500),
        (20_000_000, 100, 2, 5_100),
        (30_000_000, 5, 100, 2_600),
    ] {
        let links = [Link::new(0, mbit(ranges), 20), Link { ranges: false, ..Link::new(1, mbit(whole), 20) }];
        let outcome = count(length, &links);
        let took = outcome.complete.expect("complete").as_nanos() / 1_000_000;
        let ideal = length * 1_000 / mbit(whole + ranges);
        println!("{length} bytes, without ranges {whole}, with {ranges} Mbit/s: {took} ms of {ideal}");
        assert!(took < most, "{length} bytes, {whole} beside {ranges}: {took} ms of {ideal}");
    }
}

/// A server turns out to have no ranges after the other one has begun at the first byte. It skips the blocks
/// that the other one delivers, or delivers them first.
#[test]
fn a_server_that_turns_out_to_have_no_ranges_helps_all_the_same() {
    let content = content(60_000_000);
    for (length, whole, ranges, permille) in [
        (20_000_000, 100, 20, 700),
        (20_000_000, 100, 100, 550),
        (20_000_000, 20, 100, 700),
        (60_000_000, 100, 20, 800),
        (60_000_000, 100, 100, 700),
        (60_000_000, 20, 100, 800),
    ] {
        let unsteady = Link { unsteady: true, ..Link::new(1, mbit(whole), 20) };
        let links = [Link::new(0, mbit(ranges), 20), unsteady];
        for check in [leaves(&content[..length]), Check::Nothing] {
            let outcome = fetch(&content[..length], check, &links, 3);
            let got = outcome.permille(length as u64, mbit(whole + ranges));
            let counters = outcome.connections[1].counters;
            println!(
                "{length} bytes, without ranges {whole}, with {ranges} Mbit/s: {got} permille, {counters:?}"
            );
            assert!(got >= permille, "{length} bytes, {whole} beside {ranges}: {got} permille");
            assert!(counters.fetches <= 2);
        }
    }
}
