//! Tests of programs' connections through `anabranch proxy` while one link after the other dies: nothing is
//! lost, and no program waits long. They need root and `/dev/net/tun`; without these, they say so and pass.
#![cfg(target_os = "linux")]

use std::thread::sleep;
use std::time::Duration;

use crate::bed::{Bed, Traffic};
use crate::common::wait_until;
use anabranch_algo::Span;

/// The addresses of the client's host on its two links.
const LINKS: [&str; 2] = ["10.1.0.1", "10.1.1.1"];

/// Starts a client that uses both links. The server's host allows `subflows` subflows beside the first.
fn bed(name: &str, subflows: &str) -> Option<Bed> {
    let mut bed = Bed::without_client(name)?;
    bed.ip("rx", &format!("mptcp limits set subflows {subflows}"));
    bed.client(&["--via", "p0", "--via", "p1"]);
    wait_until(20, || LINKS.iter().all(|link| knows(&bed, link) && bed.subflows(link) >= 2));
    Some(bed)
}

fn knows(bed: &Bed, link: &str) -> bool {
    bed.ip("tx", "mptcp endpoint").contains(&format!("{link} id"))
}

/// Whether every trunk has a subflow over both links.
fn both_are_used(bed: &Bed) -> bool {
    let [a, b] = LINKS.map(|link| bed.connections(link));
    a.len() >= 2 && a == b
}

fn worst(traffic: &[Traffic]) -> Span {
    traffic.iter().map(Traffic::stall).max().expect("some")
}

/// Silences a link. Restores it when the client has taken it away and two seconds have passed. Asserts that
/// no traffic waited as long as `limit`.
fn dies_and_comes_back(bed: &Bed, link: &str, traffic: &[Traffic], limit: Span) {
    worst(traffic);
    bed.silence(link);
    wait_until(10, || !knows(bed, link));
    sleep(Duration::from_secs(2));
    let stall = worst(traffic);
    bed.restore(link);
    println!("{link} died: the longest wait was {stall:?}");
    assert!(stall < limit, "{stall:?}");
}

/// The longest wait that the death of a link may cause.
const DEATH: Span = Span::from_secs(1);
/// The longest wait for a stream that shares its trunk with a bulk transfer: before new bytes, the kernel
/// repeats all bytes that the trunk has sent since the link died, also those sent over the other link.
const DEATH_BESIDE_BULK: Span = Span::from_secs(2);

fn since(clock: anabranch_net::Clock) -> Span {
    clock.now().since(anabranch_algo::Time::ZERO)
}

#[test]
fn connections_live_on_while_links_die_in_turn_and_trunks_take_them_up_again() {
    let Some(bed) = bed("proxy-turns", "8") else { return };
    let origin = bed.tcp_origin();
    let mut traffic: Vec<_> = (0..4).map(|_| bed.session(origin)).collect();
    sleep(Duration::from_secs(1));
    for (n, link) in [LINKS, LINKS].concat().into_iter().enumerate() {
        if n == 2 {
            // The sessions use all idle trunks, so a new trunk was opened for the download.
            traffic.push(bed.download(origin));
            sleep(Duration::from_secs(1));
        }
        dies_and_comes_back(&bed, link, &traffic, DEATH);
        let clock = anabranch_net::Clock::start();
        wait_until(10, || knows(&bed, link) && both_are_used(&bed));
        let back = since(clock);
        println!("both are used again {back:?} after its return");
        assert!(back < Span::from_secs(2), "{back:?}");
    }
    traffic.into_iter().for_each(Traffic::end);
}

#[test]
fn a_session_that_shares_a_trunk_with_a_download_waits_little_longer() {
    let Some(bed) = bed("proxy-shared", "8") else { return };
    let origin = bed.tcp_origin();
    // All start at once, so they share two trunks.
    let mut traffic: Vec<_> = (0..4).map(|_| bed.session(origin)).collect();
    traffic.push(bed.download(origin));
    sleep(Duration::from_secs(1));
    for link in LINKS {
        dies_and_comes_back(&bed, link, &traffic, DEATH_BESIDE_BULK);
        wait_until(10, || knows(&bed, link) && both_are_used(&bed));
    }
    traffic.into_iter().for_each(Traffic::end);
}

/// With a limit of one, the server refuses the subflow by which a trunk would use the link again on which it
/// began.
#[test]
fn trunks_that_cannot_take_a_link_up_again_are_replaced() {
    let Some(bed) = bed("proxy-lame", "1") else { return };
    let origin = bed.tcp_origin();
    let old = [bed.session(origin)];
    let of_old = || bed.subflows(LINKS[1]).saturating_sub(bed.subflows(LINKS[0]));
    dies_and_comes_back(&bed, LINKS[0], &old, DEATH);
    // The trunk of the session stays unchanged; the idle ones are replaced.
    wait_until(10, || knows(&bed, LINKS[0]) && bed.subflows(LINKS[0]) >= 2 && of_old() == 1);
    let new = [bed.session(origin), bed.download(origin)];
    let received = || ["p0", "p1"].map(|device| bed.counted(device)[0]);
    sleep(Duration::from_secs(1));
    let before = received();
    sleep(Duration::from_secs(2));
    let [a, b] = [0, 1].map(|n| received()[n] - before[n]);
    println!("{a} bytes by the link that came back, {b} by the other");
    assert!(a.min(b) > (a + b) / 4, "{a} {b}");
    // When nothing uses the old trunk any more, it ends.
    old.into_iter().for_each(Traffic::end);
    wait_until(10, || both_are_used(&bed));
    dies_and_comes_back(&bed, LINKS[1], &new, DEATH);
    let clock = anabranch_net::Clock::start();
    let late = bed.session(origin);
    wait_until(10, || late.bytes() > 0);
    assert!(since(clock) < Span::from_secs(1), "{:?}", since(clock));
    new.into_iter().chain([late]).for_each(Traffic::end);
}

/// The bytes of an upload, which take at least 5 s at the 100 Mbit/s that both links share in that direction.
const UPLOAD_BYTES: u64 = 64_000_000;

#[test]
fn an_upload_loses_nothing_when_a_link_dies() {
    let Some(bed) = bed("proxy-upload", "8") else { return };
    let upload = [bed.upload(bed.tcp_origin(), UPLOAD_BYTES)];
    sleep(Duration::from_secs(1));
    dies_and_comes_back(&bed, LINKS[0], &upload, DEATH);
    wait_until(10, || both_are_used(&bed));
    let [upload] = upload;
    assert!(!upload.is_finished(), "the link died too late");
    upload.end();
}

/// The time for which both links are silent. A minute gives the same result and only takes longer (README of
/// the crate).
const BOTH_DOWN: Duration = Duration::from_secs(8);

#[test]
fn connections_outlive_both_links_and_go_on_as_soon_as_one_is_back() {
    // The test measures times that other tests would lengthen.
    let _alone = anabranch_net::testing::alone();
    let Some(bed) = bed("proxy-none", "8") else { return };
    let origin = bed.tcp_origin();
    let traffic = [bed.session(origin), bed.download(origin), bed.upload(origin, UPLOAD_BYTES)];
    sleep(Duration::from_secs(2));
    LINKS.iter().for_each(|link| bed.silence(link));
    sleep(BOTH_DOWN);
    // One link may have been taken away while the other seemed to live. The last link is never taken away: it
    // has subflows on which TCP would only retransmit after seconds or a minute.
    let last = LINKS.into_iter().find(|link| knows(&bed, link)).expect("the last link stays");
    let before = traffic.each_ref().map(Traffic::bytes);
    bed.restore(last);
    let clock = anabranch_net::Clock::start();
    let goes_on = |(one, before): (&Traffic, &u64)| one.bytes() > *before;
    wait_until(150, || traffic.iter().zip(&before).all(goes_on));
    println!("all go on {:?} after {last} is back", since(clock));
    // A lost SYN of a new subflow costs one second; TCP alone would retransmit after eight.
    assert!(since(clock) < Span::from_secs(3), "{:?}", since(clock));
    // The server was told while no link worked, so it is told again. Else it keeps bytes of the dead subflows
    // until their timers end.
    let other = LINKS.into_iter().find(|link| *link != last).expect("there are two");
    if !knows(&bed, other) {
        wait_until(3, || bed.subflows_at_server(other) == 0);
    }
    LINKS.iter().filter(|link| **link != last).for_each(|link| bed.restore(link));
    let clock = anabranch_net::Clock::start();
    wait_until(60, || LINKS.iter().all(|link| knows(&bed, link)) && both_are_used(&bed));
    println!("both are used {:?} after the other is back", since(clock));
    assert!(since(clock) < Span::from_secs(2), "{:?}", since(clock));
    traffic.into_iter().for_each(Traffic::end);
}

/// For a connection whose SYNs are lost, the kernel falls back to TCP after 3 s.
#[test]
fn trunks_that_begin_while_no_link_answers_take_both_when_they_are_back() {
    let Some(mut bed) = Bed::without_client("proxy-begins") else { return };
    bed.ip("rx", "mptcp limits set subflows 8");
    LINKS.iter().for_each(|link| bed.silence(link));
    bed.client(&["--via", "p0", "--via", "p1"]);
    // The SYN that is repeated after 4 s has no MPTCP.
    sleep(Duration::from_millis(3_600));
    LINKS.iter().for_each(|link| bed.restore(link));
    let clock = anabranch_net::Clock::start();
    wait_until(15, || both_are_used(&bed));
    println!("both are used {:?} after they are back", since(clock));
    assert!(since(clock) < Span::from_secs(4), "{:?}", since(clock));
}
