//! `anabranch lab drive` as people use it. The tests that run programs need root and `/dev/net/tun`; without
//! them they say so in a line and pass.
#![cfg(target_os = "linux")]

use std::fs;
use std::process::Output;

use anabranch_net::testing::{among_few, refused_device};
use serde_json::Value;
use tempfile::TempDir;

use crate::common::anabranch;

const PLAN: &str = r#"
title = "Three chats"
transports = ["mptcp"]
networks = ["home"]
profiles = ["chat", "killed", "alone"]
[network.home]
wifi = "wifi-70"
cell = "4g"
[profile.chat]
seconds = 0.5
[profile.killed]
kind = "chat"
seconds = 30
events = [{ at = "200 ms", kill = "client" }]
[profile.alone]
kind = "chat"
seconds = 30
events = [{ at = "200 ms", kill = "server" }]
"#;

fn drive(dir: &TempDir, args: &[&str]) -> Output {
    let mut command = anabranch();
    command.current_dir(dir.path()).args(["lab", "drive", "plan.toml"]).args(args);
    command.output().expect("it runs")
}

fn with_plan(text: &str) -> TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join("plan.toml"), text).expect("written");
    dir
}

#[test]
fn tests_are_listed_and_wrong_plans_refused() {
    let dir = with_plan(PLAN);
    let listed = drive(&dir, &["--list"]);
    let text = String::from_utf8(listed.stdout).expect("text");
    assert!(text.contains("killed/mptcp/both/wifi/home/1") && text.contains("\n3 tests\n"), "{text}");
    let none = drive(&dir, &["--list", "--only", "nosuch"]);
    assert_eq!(none.status.code(), Some(2), "{none:?}");
    let dir = with_plan(&PLAN.replace("\"4g\"", "\"4gg\""));
    let refused = drive(&dir, &["--list"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2));
    assert!(said.contains("plan.toml: network.home.cell") && said.contains("did you mean `4g`?"), "{said}");
}

#[test]
fn a_death_costs_one_test_and_a_night_goes_on() {
    if let Err(e) = anabranch_lab::linux::testbed::allowed() {
        return refused_device(format!("programs through settings: {e}"));
    }
    let _few = among_few();
    let dir = with_plan(PLAN);
    let first = drive(&dir, &["--out", "night", "--only", "killed", "--json"]);
    assert_eq!(first.status.code(), Some(7), "{first:?}");
    let rest = drive(&dir, &["--out", "night"]);
    assert_eq!(rest.status.code(), Some(7), "{rest:?}");
    assert!(String::from_utf8_lossy(&rest.stderr).contains("2 tests are left"), "{rest:?}");
    let results = fs::read_to_string(dir.path().join("night/results.jsonl")).expect("results");
    let results: Vec<Value> = results.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(results.len(), 3);
    let of = |profile: &str| results.iter().find(|result| result["profile"] == profile).expect("a result");
    assert_eq!(of("killed")["ending"], "failed");
    assert!(of("killed")["why"].as_str().expect("why").contains("signal 9"), "{results:?}");
    assert!(
        of("alone")["why"].as_str().expect("why").contains("server was killed by signal 9"),
        "{results:?}"
    );
    let chat = of("chat");
    assert_eq!(chat["ending"], "ok", "{chat}");
    assert!(chat["values"]["median ms"].as_f64().expect("a number") >= 14.0, "{chat}");
    assert!(chat["wire"]["wifi"]["up_bytes"].as_u64().expect("bytes") > 500, "{chat}");
    // Where tcpdump is installed, the one connection is in the capture.
    if !chat["captured"].is_null() {
        assert_eq!(chat["captured"]["connections"]["wifi"][0], 1, "{chat}");
    }
    let page = fs::read_to_string(dir.path().join("night/index.html")).expect("a page");
    assert!(page.contains("Three chats") && page.contains("3 tests: 1 ended well, 2 failed."));
    fs::write(dir.path().join("plan.toml"), PLAN.replace("0.5", "0.6")).expect("written");
    let other = drive(&dir, &["--out", "night"]);
    assert_eq!(other.status.code(), Some(2), "{other:?}");
    assert!(String::from_utf8_lossy(&other.stderr).contains("another plan"), "{other:?}");
}
