//! `anabranch proxy` between two hosts that two emulated links join: one download takes both, and goes on
//! when one of them dies. Needs root and `/dev/net/tun`; says so and passes without.
#![cfg(target_os = "linux")]

mod common;

use std::fs;
use std::path::Path;
use std::process::Child;

use common::proxy_bed::{BYTES, Bed};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Bytes of a file that grows.
fn len(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |data| data.len())
}

#[test]
fn one_download_of_a_program_takes_both_links() {
    let Some(bed) = Bed::new("proxy-both") else { return };
    assert!(bed.curl().wait().expect("it ends").success());
    assert!(bed.is_here());
    let carried = bed.carried();
    let (a, b) = (carried("a"), carried("b"));
    println!("{a} bytes by one link, {b} by the other");
    assert!(a.min(b) > BYTES as u64 / 4 && a + b > BYTES as u64, "{a} {b}");
}

#[test]
fn a_download_goes_on_when_a_link_dies() {
    let Some(bed) = Bed::new("proxy-dies") else { return };
    let mut curl = bed.curl();
    let got = bed.dir.path().join("got");
    common::wait_until(60, || len(&got) > BYTES as u64 / 4 || curl.try_wait().expect("a status").is_some());
    let devices = bed.on("tx", &["ip", "-o", "address"]).output().expect("it runs");
    let devices = String::from_utf8(devices.stdout).expect("text");
    let device = devices.lines().find(|line| line.contains("10.1.1.1/")).expect("the second address");
    let device = device.split_whitespace().nth(1).expect("a name");
    assert!(curl.try_wait().expect("a status").is_none(), "the link died too late");
    let down = bed.on("tx", &["ip", "link", "set", "dev", device, "down"]).status().expect("it runs");
    assert!(down.success());
    assert!(curl.wait().expect("it ends").success());
    assert!(bed.is_here());
    let carried = bed.carried();
    let (a, b) = (carried("a"), carried("b"));
    assert!(a > b, "the one that lives carried {a} bytes, the other {b}");
}

#[test]
fn the_kernel_knows_the_links_as_long_as_a_client_lives_and_after_a_kill_until_the_next() {
    let Some(mut bed) = Bed::without_client("proxy-via") else { return };
    let known = |bed: &Bed| bed.ip("tx", "mptcp endpoint") + &bed.ip("tx", "mptcp limits");
    let before = known(&bed);
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        bed.client(&["--via", "p0", "--via", "p1:backup"]);
        common::wait_until(20, || {
            let says = known(&bed);
            says.contains("10.1.0.1 id")
                && says.lines().any(|line| line.contains("p1") && line.contains("backup"))
        });
        let mut client = bed.running.pop().expect("a client");
        kill(Pid::from_raw(client.id().cast_signed()), signal).expect("it lives");
        client.wait().expect("it ends");
        assert_eq!(known(&bed) == before, signal == Signal::SIGTERM);
    }
    bed.client(&[]);
    common::wait_until(20, || known(&bed) == before);
}

#[test]
fn a_trunk_begins_over_the_link_that_answers() {
    let Some(mut bed) = Bed::without_client("proxy-first") else { return };
    bed.silence("10.1.0.1");
    bed.client(&["--via", "p0", "--via", "p1"]);
    let clock = net::Clock::start();
    let args = [
        "curl",
        "-sS",
        "--max-time",
        "60",
        "-x",
        &format!("socks5h://{}", bed.socks),
        "-r",
        "0-9",
        "-o",
        "got",
        &bed.origin,
    ];
    assert!(bed.on("tx", &args).status().expect("it runs").success());
    let took = clock.now().since(algo::Time::ZERO);
    println!("ten bytes in {took:?} with the first link dead");
    assert_eq!(fs::read(bed.dir.path().join("got")).expect("a file"), bed.content[..10]);
    assert!(took < algo::Span::from_secs(2), "{took:?}");
}

/// The longest time in which a file did not grow, until the program has ended.
fn longest_stall(of: &Path, program: &mut Child) -> algo::Span {
    let clock = net::Clock::start();
    let (mut size, mut since, mut longest) = (len(of), clock.now(), algo::Span::ZERO);
    while program.try_wait().expect("a status").is_none() {
        let (now, bytes) = (clock.now(), len(of));
        if bytes != size {
            longest = longest.max(now.since(since));
            (size, since) = (bytes, now);
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    longest
}

/// A link dies silently in the middle of a download, and comes back.
fn dies_silently(name: &str, address: &str, is_back: impl Fn(&Bed) -> bool) {
    let Some(mut bed) = Bed::without_client(name) else { return };
    bed.client(&["--via", "p0", "--via", "p1"]);
    let knows = |bed: &Bed| bed.ip("tx", "mptcp endpoint").contains(&format!("{address} id"));
    common::wait_until(20, || knows(&bed) && bed.subflows("10.1.0.1") >= 2 && bed.subflows("10.1.1.1") >= 2);
    let mut curl = bed.curl();
    let got = bed.dir.path().join("got");
    common::wait_until(60, || len(&got) > BYTES as u64 / 4);
    assert!(curl.try_wait().expect("a status").is_none(), "the link died too late");
    bed.silence(address);
    let stall = longest_stall(&got, &mut curl);
    assert!(curl.wait().expect("it ends").success() && bed.is_here());
    common::wait_until(10, || !knows(&bed) && bed.subflows(address) == 0);
    bed.restore(address);
    let clock = net::Clock::start();
    common::wait_until(10, || knows(&bed) && is_back(&bed));
    let back = clock.now().since(algo::Time::ZERO);
    println!("{address} died: nothing came for {stall:?}; is back: used again after {back:?}");
    assert!(stall < algo::Span::from_secs(1) && back < algo::Span::from_secs(2), "{stall:?} {back:?}");
}

#[test]
fn a_link_that_trunks_began_on_dies_silently_and_costs_no_second() {
    dies_silently("proxy-first-silent", "10.1.0.1", |bed| bed.subflows("10.1.0.1") >= 2);
}

#[test]
fn a_link_that_trunks_joined_dies_silently_and_is_joined_again() {
    dies_silently("proxy-join-silent", "10.1.1.1", |bed| bed.subflows("10.1.1.1") >= 2);
}
