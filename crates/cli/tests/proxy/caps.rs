//! Tests of the cap of a link, `--via p1:cap=6MB/month`, with real bytes over emulated links: the interface's
//! own counter shows whether it was kept. They need root and `/dev/net/tun`; without these, they say so and
//! pass.
#![cfg(target_os = "linux")]

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use crate::bed::{Bed, Traffic};
use crate::common::wait_until;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const CAP: u64 = 6_000_000;
const FILE: &str = "links.json";

fn knows(bed: &Bed, address: &str) -> bool {
    bed.ip("tx", "mptcp endpoint").contains(&format!("{address} id"))
}

/// Returns the bytes that the interface has carried in both directions.
fn carried(bed: &Bed, device: &str) -> u64 {
    bed.counted(device).iter().sum()
}

/// Ends the client by this signal.
fn end(bed: &mut Bed, signal: Signal) {
    let mut client = bed.running.pop().expect("a client");
    kill(Pid::from_raw(client.id().cast_signed()), signal).expect("it lives");
    client.wait().expect("it ends");
}

fn file(bed: &Bed) -> serde_json::Value {
    let text = fs::read_to_string(bed.dir.path().join(FILE)).expect("a file");
    serde_json::from_str(&text).expect("JSON")
}

fn in_file(bed: &Bed) -> u64 {
    file(bed)["links"]["p1 month"]["bytes"].as_u64().expect("a number")
}

#[test]
fn a_cap_is_kept_over_a_kill_and_a_restart_and_the_link_is_back_in_the_next_month() {
    let Some(mut bed) = Bed::without_client("proxy-cap") else { return };
    let before = carried(&bed, "p1");
    let used = |bed: &Bed| carried(bed, "p1") - before;
    let via = ["--via", "p0", "--via", "p1:cap=6MB/month"];
    // One client is killed after a megabyte or two, and another one is told to end.
    for signal in [Signal::SIGKILL, Signal::SIGTERM] {
        bed.client(&via);
        wait_until(20, || bed.subflows("10.1.1.1") >= 2);
        let origin = bed.tcp_origin();
        let (download, so_far) = (bed.download(origin), used(&bed));
        wait_until(20, || used(&bed) > so_far + 500_000);
        end(&mut bed, signal);
        download.ends_cut();
    }
    let so_far = used(&bed);
    assert!(so_far > 1_000_000 && so_far < CAP / 2, "{so_far}");
    assert!(in_file(&bed) <= so_far && in_file(&bed) + 100_000 > so_far, "{} {so_far}", in_file(&bed));
    // Bytes that others carry while no client runs count too, and are known at once.
    bed.client(&via);
    wait_until(20, || bed.subflows("10.1.1.1") >= 2);
    let origin = bed.tcp_origin();
    let traffic = [bed.session(origin), bed.download(origin)];
    wait_until(30, || !knows(&bed, "10.1.1.1"));
    sleep(Duration::from_secs(1));
    let spent = used(&bed);
    println!("{spent} bytes of {CAP} over the link, {so_far} of them by two clients before");
    assert!(spent <= CAP && spent > CAP / 2, "{spent}");
    // The other link goes on, and nothing uses this one.
    let (bytes, other) = (traffic[1].bytes(), carried(&bed, "p0"));
    sleep(Duration::from_secs(2));
    assert!(traffic[1].bytes() > bytes + 3_000_000 && carried(&bed, "p0") > other);
    assert_eq!((used(&bed), bed.subflows("10.1.1.1")), (spent, 0));
    traffic.into_iter().for_each(Traffic::end);
    // The next client does not use this link either.
    end(&mut bed, Signal::SIGKILL);
    bed.client(&via);
    wait_until(20, || bed.subflows("10.1.0.1") >= 2);
    let origin = bed.tcp_origin();
    let download = bed.download(origin);
    sleep(Duration::from_secs(2));
    assert_eq!((used(&bed), knows(&bed, "10.1.1.1")), (spent, false));
    download.end();
    end(&mut bed, Signal::SIGTERM);
    // A month passes.
    let mut changed = file(&bed);
    let began = &mut changed["links"]["p1 month"]["period-began"];
    *began = (began.as_i64().expect("a number") - 86_400).into();
    fs::write(bed.dir.path().join(FILE), changed.to_string()).expect("written");
    bed.client(&via);
    wait_until(20, || bed.subflows("10.1.1.1") >= 2);
    assert!(in_file(&bed) < CAP / 2);
}

#[test]
fn when_every_link_has_carried_what_it_may_nothing_moves() {
    let Some(mut bed) = Bed::without_client("proxy-caps") else { return };
    let before = ["p0", "p1"].map(|device| carried(&bed, device));
    let used = |bed: &Bed| [0, 1].map(|n| carried(bed, ["p0", "p1"][n]) - before[n]);
    bed.client(&["--via", "p0:cap=6MB/month", "--via", "p1:cap=6MB/month"]);
    wait_until(20, || bed.subflows("10.1.1.1") >= 2);
    let origin = bed.tcp_origin();
    let download = bed.download(origin);
    wait_until(30, || download.is_finished());
    download.ends_cut();
    sleep(Duration::from_secs(1));
    let spent = used(&bed);
    println!("{spent:?} bytes of {CAP} each");
    assert!(spent.iter().all(|bytes| *bytes <= CAP && *bytes > CAP / 2), "{spent:?}");
    sleep(Duration::from_secs(2));
    assert_eq!(used(&bed), spent);
}

#[test]
fn a_cap_counts_datagrams() {
    let Some(mut bed) = Bed::without_client("proxy-cap-udp") else { return };
    let before = carried(&bed, "p1");
    bed.client(&["--via", "p0", "--via", "p1:cap=6MB/month", "--udp-mode", "aggregate"]);
    wait_until(20, || bed.subflows("10.1.1.1") >= 2);
    let origin = bed.udp_origin(4_500_000, Duration::from_secs(6));
    let heard = bed.hear(origin, || {});
    let used = carried(&bed, "p1") - before;
    println!("{used} bytes of {CAP} over the link, {} heard", heard.all.len());
    assert!(used <= CAP && used > CAP / 4, "{used}");
    let last = heard.bytes(anabranch_algo::Span::from_secs(5), anabranch_algo::Span::from_secs(6));
    assert!(last > 1_800_000, "the other one carries on: {last}");
}
