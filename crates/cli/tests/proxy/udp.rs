//! Trunks over UDP, between two hosts that are joined by two emulated links of 20 Mbit/s. The tests need root
//! and `/dev/net/tun`; without these, they say so and pass.
#![cfg(target_os = "linux")]

use std::time::Duration;

use anabranch_algo::Span;
use serde_json::Value;

use crate::bed::Bed;

/// The payload of one link in a second, without the headers of IP, UDP, TCP and TLS, bytes.
const LINK_BYTES: u64 = 20_000_000 / 8 * 95 / 100;
/// The options of the client.
const VIA: [&str; 4] = ["--via", "p0", "--via", "p1"];

/// Returns the client's state.
fn status(bed: &Bed) -> Value {
    let out = bed.own(&["proxy", "status", "--json"]).output().expect("it runs");
    let lines = String::from_utf8(out.stdout).expect("text");
    let mut all = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    all.rfind(|state| state["role"] == "client").expect("a client")
}

/// Waits until every trunk of the client goes over UDP with two subflows.
fn wait_for_both(bed: &Bed) {
    crate::common::wait_until(20, || {
        let state = status(bed);
        let trunks = state["trunks"].as_array().expect("a list");
        let has_both = |trunk: &Value| {
            trunk["transport"] == "MPTCP over UDP" && trunk["subflows"].as_array().map_or(0, Vec::len) == 2
        };
        !trunks.is_empty() && trunks.iter().all(has_both)
    });
}

#[test]
fn without_mptcp_in_the_kernels_a_download_takes_both_links_and_outlives_one() {
    let Some(mut bed) = Bed::without_mptcp("proxy-udp", &["rx", "tx"]) else { return };
    bed.client(&VIA);
    wait_for_both(&bed);
    let state = status(&bed);
    let says = state["transport"].as_str().expect("a sentence");
    assert!(says.starts_with("MPTCP over UDP: MPTCP is switched off here"), "{says}");
    let download = bed.download(bed.tcp_origin());
    std::thread::sleep(Duration::from_millis(700));
    let (before, time) = (download.bytes(), Duration::from_millis(1_500));
    std::thread::sleep(time);
    let bytes = download.bytes() - before;
    let links = bytes as f64 / (LINK_BYTES as f64 * time.as_secs_f64());
    println!("{bytes} bytes in {time:?}: {links:.2} links");
    assert!(links > 1.6, "{links:.2} links");
    let _ = download.stall();
    bed.silence("10.1.0.1");
    std::thread::sleep(Duration::from_millis(1_500));
    let stall = download.stall();
    println!("a link died: {stall:?} without a byte");
    assert!(stall < Span::from_secs(1), "{stall:?}");
    download.end();
}

#[test]
fn a_server_without_mptcp_leads_to_udp() {
    let Some(mut bed) = Bed::without_mptcp("proxy-udp-server", &["rx"]) else { return };
    bed.client(&VIA);
    wait_for_both(&bed);
    assert_eq!(status(&bed)["transport"], "MPTCP over UDP: the other end has no MPTCP");
}
