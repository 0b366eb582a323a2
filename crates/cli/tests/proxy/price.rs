//! Test of the cost of a link, `--via p1:cost=5`, over two emulated links: the expensive link carries data
//! only when the cheap one is full or dead. It needs root and `/dev/net/tun`; without these, it says so and
//! passes.
#![cfg(target_os = "linux")]

use std::thread::sleep;
use std::time::Duration;

use crate::bed::Bed;
use crate::common::wait_until;

#[test]
fn the_dear_link_carries_data_while_the_cheap_one_is_full_or_dead() {
    // Filling the links takes a part of a processor, so no other test may run.
    let _alone = anabranch_net::testing::alone();
    let Some(mut bed) = Bed::without_client("proxy-cost") else { return };
    bed.ip("rx", "mptcp limits set subflows 8");
    bed.client(&["--via", "p0", "--via", "p1:cost=5"]);
    wait_until(20, || bed.subflows("10.1.0.1") >= 2 && bed.subflows("10.1.1.1") >= 2);
    let carried = |device: &str| bed.counted(device).iter().sum::<u64>();
    let is_backup = || {
        let all = bed.ip("tx", "mptcp endpoint");
        all.lines().any(|line| line.contains("10.1.1.1 id") && line.contains("backup"))
    };
    assert!(is_backup());
    let origin = bed.tcp_origin();
    let session = bed.session(origin);
    sleep(Duration::from_secs(1));
    // A few messages a second fill no link.
    let before = ["p0", "p1"].map(carried);
    sleep(Duration::from_secs(2));
    let [cheap, dear] = [0, 1].map(|n| carried(["p0", "p1"][n]) - before[n]);
    println!("a session: {cheap} bytes over the cheap link, {dear} over the dear one");
    assert!(cheap > 2_000 && dear < 1_000, "{cheap} {dear}");
    // A dead link makes the next one join at once.
    session.stall();
    bed.silence("10.1.0.1");
    wait_until(10, || !is_backup());
    sleep(Duration::from_secs(1));
    let stall = session.stall();
    println!("the cheap link died: the longest wait was {stall:?}");
    assert!(stall < anabranch_algo::Span::from_secs(1), "{stall:?}");
    bed.restore("10.1.0.1");
    wait_until(10, is_backup);
    // A download fills the cheap link. A test in `links/price.rs` shows that the expensive link leaves ten
    // seconds after the download.
    let (download, before) = (bed.download(origin), carried("p1"));
    wait_until(10, || !is_backup());
    let early = carried("p1") - before;
    sleep(Duration::from_secs(1));
    let before = ["p0", "p1"].map(carried);
    sleep(Duration::from_secs(2));
    let [cheap, dear] = [0, 1].map(|n| carried(["p0", "p1"][n]) - before[n]);
    println!("a download: {cheap} and {dear}, and {early} before the cheap one was seen to be full");
    assert!(dear > (cheap + dear) / 4 && early < 400_000, "{cheap} {dear} {early}");
    download.end();
    session.end();
}
