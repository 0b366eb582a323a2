//! Tests of `anabranch proxy` between two hosts that are joined by two emulated links: one download uses
//! both, and goes on when one of them dies. They need root and `/dev/net/tun`; without these, they say so and
//! pass.
#![cfg(target_os = "linux")]

use std::fs;
use std::path::Path;
use std::process::Child;

use crate::bed::{BYTES, Bed};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// Returns the length in bytes of a growing file.
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
    crate::common::wait_until(60, || {
        len(&got) > BYTES as u64 / 4 || curl.try_wait().expect("a status").is_some()
    });
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
        crate::common::wait_until(20, || {
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
    crate::common::wait_until(20, || known(&bed) == before);
}

#[test]
fn a_trunk_begins_over_the_link_that_answers() {
    let Some(mut bed) = Bed::without_client("proxy-first") else { return };
    bed.silence("10.1.0.1");
    bed.client(&["--via", "p0", "--via", "p1"]);
    let clock = anabranch_net::Clock::start();
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
    let took = clock.now().since(anabranch_algo::Time::ZERO);
    println!("ten bytes in {took:?} with the first link dead");
    assert_eq!(fs::read(bed.dir.path().join("got")).expect("a file"), bed.content[..10]);
    assert!(took < anabranch_algo::Span::from_secs(2), "{took:?}");
}

/// Waits for the program's end. Returns the longest time in which the file did not grow.
fn longest_stall(of: &Path, program: &mut Child) -> anabranch_algo::Span {
    let clock = anabranch_net::Clock::start();
    let (mut size, mut since, mut longest) = (len(of), clock.now(), anabranch_algo::Span::ZERO);
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
    crate::common::wait_until(20, || {
        knows(&bed) && bed.subflows("10.1.0.1") >= 2 && bed.subflows("10.1.1.1") >= 2
    });
    let mut curl = bed.curl();
    let got = bed.dir.path().join("got");
    crate::common::wait_until(60, || len(&got) > BYTES as u64 / 4);
    assert!(curl.try_wait().expect("a status").is_none(), "the link died too late");
    bed.silence(address);
    let stall = longest_stall(&got, &mut curl);
    assert!(curl.wait().expect("it ends").success() && bed.is_here());
    crate::common::wait_until(10, || !knows(&bed) && bed.subflows(address) == 0);
    bed.restore(address);
    let clock = anabranch_net::Clock::start();
    crate::common::wait_until(10, || knows(&bed) && is_back(&bed));
    let back = clock.now().since(anabranch_algo::Time::ZERO);
    println!("{address} died: nothing came for {stall:?}; is back: used again after {back:?}");
    assert!(
        stall < anabranch_algo::Span::from_secs(1) && back < anabranch_algo::Span::from_secs(2),
        "{stall:?} {back:?}"
    );
}

#[test]
fn a_link_that_trunks_began_on_dies_silently_and_costs_no_second() {
    dies_silently("proxy-first-silent", "10.1.0.1", |bed| bed.subflows("10.1.0.1") >= 2);
}

#[test]
fn a_link_that_trunks_joined_dies_silently_and_is_joined_again() {
    dies_silently("proxy-join-silent", "10.1.1.1", |bed| bed.subflows("10.1.1.1") >= 2);
}

/// Returns the status that a role reports.
fn status(bed: &Bed, role: &str) -> Value {
    let said = bed.own(&["proxy", "status", "--json"]).output().expect("it runs");
    let text = String::from_utf8(said.stdout).expect("text");
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    lines.into_iter().find(|line| line["role"] == role).expect("a role")
}

#[test]
fn status_tells_what_each_link_carries_and_which_one_is_dead() {
    let Some(mut bed) = Bed::without_client("proxy-status") else { return };
    bed.client(&["--via", "p0", "--via", "p1"]);
    crate::common::wait_until(20, || bed.subflows("10.1.0.1") >= 2 && bed.subflows("10.1.1.1") >= 2);
    let link = |bed: &Bed, role: &str, n: usize| status(bed, role)["links"][n].clone();
    let number = |link: &Value, key: &str| link[key].as_f64().unwrap_or_default();
    // The three downloads take 5 s.
    let proxy = format!("socks5h://{}", bed.socks);
    let args = ["curl", "-sS", "--max-time", "60", "-x", &proxy, "-o", "/dev/null", &bed.origin];
    let others = [(); 2].map(|()| bed.on("tx", &args).spawn().expect("it runs"));
    let mut curl = bed.curl();
    crate::common::wait_until(20, || {
        let rates = [0, 1].map(|n| number(&link(&bed, "client", n), "received_rate_bytes"));
        rates.iter().all(|rate| (500e3..4e6).contains(rate)) || curl.try_wait().expect("a status").is_some()
    });
    assert!(curl.try_wait().expect("a status").is_none(), "both links had their rates before the end");
    assert!(curl.wait().expect("it ends").success() && bed.is_here());
    others.into_iter().for_each(|mut other| assert!(other.wait().expect("it ends").success()));
    let of_client = status(&bed, "client");
    let links = of_client["links"].as_array().expect("a list");
    let names: Vec<&Value> = links.iter().map(|link| &link["name"]).collect();
    assert_eq!(names, ["p0", "p1"]);
    let sum = |key: &str| links.iter().map(|link| number(link, key)).sum::<f64>();
    assert!((sum("share_percent") - 100.0).abs() < 0.01, "{of_client}");
    crate::common::wait_until(5, || {
        let all = [0, 1].map(|n| number(&link(&bed, "client", n), "received_bytes"));
        let part = all[1] / (all[0] + all[1]);
        all[0] + all[1] > 3.0 * BYTES as f64 && (0.25..0.75).contains(&part)
    });
    for n in [0, 1] {
        let link = link(&bed, "client", n);
        assert_eq!(link["state"], "up");
        // The time is 20 ms and the time in the queue.
        assert!((20e3..2e6).contains(&number(&link, "rtt_us")), "{link}");
    }
    // At the server, the links are the addresses of the client, and the bytes are those sent to it.
    crate::common::wait_until(5, || {
        let all = [0, 1].map(|n| link(&bed, "server", n));
        let names = all.iter().map(|link| link["name"].clone()).collect::<Vec<_>>();
        names == ["10.1.0.1", "10.1.1.1"]
            && all.iter().map(|link| number(link, "sent_bytes")).sum::<f64>() > 3.0 * BYTES as f64
    });

    let mut curl = bed.curl();
    bed.silence("10.1.1.1");
    crate::common::wait_until(10, || link(&bed, "client", 1)["state"] == "dead");
    assert_eq!(link(&bed, "client", 0)["state"], "up");
    assert!(curl.wait().expect("it ends").success());
    let dead = link(&bed, "client", 1);
    assert_eq!((&dead["rtt_us"], &dead["subflows"]), (&Value::Null, &0.into()), "{dead}");
    bed.restore("10.1.1.1");
    crate::common::wait_until(10, || {
        let link = link(&bed, "client", 1);
        link["state"] == "up" && number(&link, "subflows") > 0.0
    });
}

#[test]
fn status_calls_the_last_link_dead_too_while_nothing_answers() {
    let Some(mut bed) = Bed::without_client("proxy-nothing") else { return };
    bed.client(&["--via", "p0", "--via", "p1"]);
    crate::common::wait_until(20, || bed.subflows("10.1.0.1") >= 2 && bed.subflows("10.1.1.1") >= 2);
    let traffic = bed.download(bed.tcp_origin());
    let states = |bed: &Bed| [0, 1].map(|n| status(bed, "client")["links"][n]["state"].clone());
    crate::common::wait_until(10, || states(&bed) == ["up", "up"] && traffic.bytes() > 0);
    ["10.1.0.1", "10.1.1.1"].iter().for_each(|link| bed.silence(link));
    crate::common::wait_until(10, || states(&bed) == ["dead", "dead"]);
    ["10.1.0.1", "10.1.1.1"].iter().for_each(|link| bed.restore(link));
    crate::common::wait_until(20, || states(&bed) == ["up", "up"]);
    traffic.end();
}

/// The laboratory has set the kernel's endpoints for both links.
#[test]
fn a_link_that_somebody_else_has_told_the_kernel_of_is_said() {
    let Some(bed) = Bed::without_client("proxy-stranger") else { return };
    bed.ip("tx", "mptcp endpoint flush");
    bed.ip("tx", "mptcp endpoint add 10.1.1.1 id 7 dev p1 subflow");
    let said = bed.dir.path().join("said");
    let log = fs::File::create(&said).expect("a file");
    let mut client = bed.client_command(&["--via", "p0"]).stdout(log).spawn().expect("it runs");
    crate::common::wait_until(10, || {
        let text = fs::read_to_string(&said).expect("text");
        text.contains("10.1.1.1 by somebody else") && text.contains("endpoint delete id 7")
    });
    kill(Pid::from_raw(client.id().cast_signed()), Signal::SIGTERM).expect("it runs");
    assert!(client.wait().expect("it ends").success());
    // If no link is named and the kernel has no endpoint, one link is used.
    bed.ip("tx", "mptcp endpoint flush");
    let log = fs::File::create(&said).expect("a file");
    let mut client = bed.client_command(&[]).stdout(log).spawn().expect("it runs");
    crate::common::wait_until(10, || {
        let text = fs::read_to_string(&said).expect("text");
        text.contains("one link only is used") && text.contains("--via p0 --via p1")
    });
    kill(Pid::from_raw(client.id().cast_signed()), Signal::SIGTERM).expect("it runs");
    assert!(client.wait().expect("it ends").success());
}
