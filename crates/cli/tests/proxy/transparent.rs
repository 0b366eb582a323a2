//! Tests with programs that know no proxy: `anabranch proxy client --transparent` between two hosts that are
//! joined by two emulated links. They need root, `/dev/net/tun` and nft; without these, they say so and pass.
#![cfg(target_os = "linux")]

use std::process::{Command, Stdio};

use crate::bed::{BYTES, Bed};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A public address that exists only in the namespaces of the test.
const ORIGIN: &str = "203.0.114.1";

/// Brings up hosts with an origin that programs reach by its address. Returns `None` where that is not
/// possible.
fn bed(name: &str) -> Option<Bed> {
    if Command::new("nft").arg("--version").output().is_err() {
        anabranch_net::testing::skip("transparent redirection: nft (nftables) is not installed");
        return None;
    }
    let mut bed = Bed::without_client(name)?;
    bed.ip("rx", &format!("address add {ORIGIN}/32 dev lo"));
    bed.ip("tx", &format!("route add {ORIGIN}/32 via 10.1.255.1 dev p0 onlink"));
    let listen = format!("{ORIGIN}:0");
    let serve = ["serve", "film", "--http", &listen, "--listen", "127.0.0.1:0", "--json"];
    bed.origin = bed.start("rx", &serve, "http");
    Some(bed)
}

/// Whether the rules are set.
fn has_rules(bed: &Bed) -> bool {
    bed.says("tx", &["nft", "list", "tables"]).contains(anabranch_proxy::redirect::TABLE)
}

const TRANSPARENT: [&str; 3] = ["--transparent", "127.0.0.1:1081", "--install-rules"];

#[test]
fn a_program_that_knows_of_no_proxy_takes_both_links() {
    let Some(mut bed) = bed("proxy-clear") else { return };
    bed.client(&TRANSPARENT);
    crate::common::wait_until(20, || has_rules(&bed));
    let got = ["curl", "-sS", "--max-time", "60", "-o", "got", &bed.origin];
    assert!(bed.on("tx", &got).status().expect("it runs").success());
    assert!(bed.is_here());
    // A connection that the origin refuses is reset for the program.
    let refused = format!("http://{ORIGIN}:9/");
    let refused = bed.on("tx", &["curl", "-sS", "--max-time", "20", &refused]).output().expect("it runs");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("reset"), "{said}");
    // A program that connects to the listener itself gets no answer, and there is no endless loop.
    let own = ["curl", "-sS", "--max-time", "20", "http://127.0.0.1:1081/"];
    assert!(!bed.on("tx", &own).output().expect("it runs").status.success());
    let carried = bed.carried();
    let (a, b) = (carried("a"), carried("b"));
    println!("{a} bytes by one link, {b} by the other");
    assert!(a.min(b) > BYTES as u64 / 4 && a + b > BYTES as u64, "{a} {b}");
}

#[test]
fn rules_end_with_the_client_and_those_of_a_killed_one_with_the_next() {
    let Some(mut bed) = bed("proxy-rules") else { return };
    for signal in [Signal::SIGKILL, Signal::SIGTERM] {
        bed.client(&TRANSPARENT);
        crate::common::wait_until(20, || has_rules(&bed));
        let mut client = bed.running.pop().expect("a client");
        kill(Pid::from_raw(client.id().cast_signed()), signal).expect("it lives");
        client.wait().expect("it ends");
        assert_eq!(has_rules(&bed), signal == Signal::SIGKILL, "{signal}");
        if signal == Signal::SIGKILL {
            // The next client reports the rules, whatever its options are.
            let client = bed.client_command(&[]).stdout(Stdio::piped()).spawn().expect("it runs");
            std::thread::sleep(std::time::Duration::from_secs(2));
            kill(Pid::from_raw(client.id().cast_signed()), Signal::SIGTERM).expect("it lives");
            let said = client.wait_with_output().expect("it ends").stdout;
            let said = String::from_utf8_lossy(&said);
            assert!(said.contains("nft delete table inet anabranch_proxy"), "{said}");
        }
    }
    // The rules are removed even if the client ends while it sets them.
    for millis in 0..12 {
        bed.client(&TRANSPARENT);
        std::thread::sleep(std::time::Duration::from_millis(millis * 3));
        let mut client = bed.running.pop().expect("a client");
        kill(Pid::from_raw(client.id().cast_signed()), Signal::SIGTERM).expect("it lives");
        client.wait().expect("it ends");
        assert!(!has_rules(&bed), "ended after {} ms", millis * 3);
    }
    // The printed rules can be set.
    let printed = bed.own(&["proxy", "rules", "--transparent", "[::1]:1081", "--server", "192.0.2.7"]);
    let printed = { printed }.output().expect("it runs");
    assert!(printed.status.success(), "{printed:?}");
    let file = bed.dir.path().join("rules");
    std::fs::write(&file, printed.stdout).expect("written");
    bed.says("tx", &["nft", "-f", file.to_str().expect("UTF-8")]);
    let set = bed.says("tx", &["nft", "list", "table", "inet", anabranch_proxy::redirect::TABLE]);
    assert!(
        set.contains("redirect to :1081") && set.contains("ip daddr 192.0.2.7 tcp dport 26228 return"),
        "{set}"
    );
}

#[test]
fn rules_want_a_place_to_redirect_to() {
    for args in [
        &["client", "--server", "h", "--plain", "--install-rules"][..],
        &["rules", "--server", "h"],
        &["rules", "--transparent", "127.0.0.1:1081"],
        &["rules", "--transparent", "here", "--server", "h"],
    ] {
        let done = crate::common::anabranch().arg("proxy").args(args).output().expect("it runs");
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(2), "{said}");
        assert!(said.contains("transparent") && said.lines().count() == 1, "{said}");
    }
}
