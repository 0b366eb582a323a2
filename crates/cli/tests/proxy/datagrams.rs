//! Tests of a program's datagrams (SOCKS5's UDP ASSOCIATE) through `anabranch proxy` over two emulated links.
//! They need root and `/dev/net/tun`; without these, they say so and pass.
#![cfg(target_os = "linux")]

use std::thread::sleep;
use std::time::Duration;

use crate::bed::Bed;
use crate::common::wait_until;
use anabranch_algo::Span;

/// The rate of the datagrams, 36 Mbit/s: nine tenths of two links of 20 Mbit/s each, without headers and
/// seals.
const BYTES_PER_S: usize = 4_500_000;
/// The rate of one link in bytes per second.
const LINK: f64 = 2_500_000.0;

fn bed(name: &str) -> Option<Bed> {
    let mut bed = Bed::without_client(name)?;
    bed.client(&["--via", "p0", "--via", "p1", "--udp-mode", "aggregate"]);
    Some(bed)
}

const fn second(n: u64) -> Span {
    Span::from_secs(n)
}

#[test]
fn datagrams_take_both_links_in_order_and_no_leg_is_kept_for_nobody() {
    // Filling the links takes a part of a processor, so no other test may run.
    let alone = anabranch_net::testing::alone();
    let Some(bed) = bed("proxy-udp-both") else { return };
    wait_until(20, || bed.subflows("10.1.1.1") >= 2);
    assert_eq!(bed.udp_paths(), 0, "no program has asked for datagrams");
    let origin = bed.udp_origin(BYTES_PER_S, Duration::from_secs(5));
    let heard = bed.hear(origin, || assert_eq!(bed.udp_paths(), 2));
    let (whole, late) = (heard.bytes(second(2), second(5)) as f64 / 3.0, heard.late());
    println!(
        "{:.1} Mbit/s of {:.1} came, {late} of {} datagrams late",
        whole * 8e-6,
        BYTES_PER_S as f64 * 8e-6,
        heard.all.len()
    );
    assert!(whole > 1.6 * LINK, "{whole}");
    assert!(late * 100 <= heard.all.len(), "{late} of {}", heard.all.len());
    drop(alone);
    wait_until(30, || bed.udp_paths() == 0);
}

#[test]
fn datagrams_go_on_when_a_link_dies_and_take_it_again_when_it_is_back() {
    // Filling the links takes a part of a processor, so no other test may run.
    let _alone = anabranch_net::testing::alone();
    let Some(bed) = bed("proxy-udp-dies") else { return };
    wait_until(20, || bed.subflows("10.1.1.1") >= 2);
    let origin = bed.udp_origin(BYTES_PER_S, Duration::from_secs(9));
    let heard = bed.hear(origin, || {
        sleep(Duration::from_secs(2));
        bed.silence("10.1.0.1");
        sleep(Duration::from_secs(2));
        bed.restore("10.1.0.1");
    });
    let rate = |from, to| heard.bytes(second(from), second(to)) as f64 / (to - from) as f64;
    let [before, without, again] = [rate(1, 2), rate(3, 4), rate(7, 9)];
    println!(
        "Mbit/s: {:.1} over both, {:.1} over one, {:.1} when it is back; the longest gap {:?}",
        before * 8e-6,
        without * 8e-6,
        again * 8e-6,
        heard.gap()
    );
    assert!(heard.gap() < Span::from_millis(500), "{:?}", heard.gap());
    assert!(without > 0.75 * LINK, "{without}");
    assert!(again > 1.5 * LINK, "{again}");
}
