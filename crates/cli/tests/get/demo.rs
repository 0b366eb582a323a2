//! `anabranch demo`: a real transfer from three processes on loopback, one of which is killed. Nothing is
//! left behind.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::fetch::{Running, names, run, spawn};
use crate::common::{anabranch, wait_until};
use nix::sys::signal::Signal;
use serde_json::Value;

/// The time that its processes may take to end on a busy machine, in seconds.
const END_S: u64 = 10;

/// Makes a demonstration that puts its directory into `dir`.
fn demo(dir: &Path, more: &[&str]) -> Command {
    let mut command = anabranch();
    command.env("TMPDIR", dir).args(["demo", "--json"]).args(more);
    command
}

fn events<'a>(all: &'a [Value], name: &str) -> Vec<&'a Value> {
    all.iter().filter(|object| object["event"] == name).collect()
}

fn pids(sources: &[&Value]) -> Vec<u64> {
    sources.iter().map(|source| source["pid"].as_u64().expect("a pid")).collect()
}

fn has_ended(pid: u64) -> bool {
    let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    state.is_empty() || state.contains(") Z ")
}

/// Waits until the transfer is under way, and returns the process ids of the sources.
fn wait_for_sources(running: &Running) -> Vec<u64> {
    running.wait_event(|event| event["event"] == "progress");
    let pid = |name| running.wait_event(|event| event["name"] == name)["pid"].as_u64().expect("a pid");
    ["fast", "middle", "slow"].map(pid).to_vec()
}

#[test]
fn a_source_is_killed_and_comes_back_and_the_file_is_whole() {
    let dir = tempfile::tempdir().expect("a directory");
    let done = run(demo(dir.path(), &["--size", "16", "--seed", "7", "--keep"])).expect(0);
    let all: Vec<Value> = done.out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let sources = events(&all, "source");
    assert_eq!(sources.len(), 4, "three, and one of them again: {}", done.out);
    let (first, again) = (sources[0], sources[3]);
    assert_eq!((&first["name"], &first["address"]), (&again["name"], &again["address"]));
    assert!(first["pid"] != again["pid"], "it is another process");
    assert_eq!(events(&all, "killed")[0]["pid"], first["pid"]);
    assert!(pids(&sources).into_iter().all(has_ended), "a source still runs");
    let rows = events(&all, "row");
    let computed: Vec<bool> = rows.iter().map(|row| row["computed"] == true).collect();
    assert_eq!(computed, [true, true, true, true, false]);
    assert_eq!(rows[0]["seconds"], 3.2, "128 Mbit at 40 Mbit/s");
    let last = rows[4];
    assert_eq!(last["verified"], true);
    // It is faster than the fastest source alone even though that was dead for a while, and slower than all
    // limits.
    let seconds = |row: &Value| row["seconds"].as_f64().expect("a number");
    assert!(seconds(last) > seconds(rows[3]), "{last}");
    let shares = last["share_percent"].as_array().expect("shares").iter();
    assert!(shares.clone().all(|share| share.as_f64() > Some(5.0)), "all of them took part: {last}");
    let kept = names(dir.path());
    let kept = dir.path().join(&kept[0]);
    let read = |name| fs::read(kept.join(name)).expect("a file");
    assert!(read("film.bin").len() == 16_000_000 && read("film.bin") == read("copy.bin"));
}

#[test]
fn nothing_is_left_after_ctrl_c() {
    let dir = tempfile::tempdir().expect("a directory");
    let running = spawn(demo(dir.path(), &["--size", "64"]));
    let pids = wait_for_sources(&running);
    running.signal(Signal::SIGINT);
    let done = running.end().expect(130);
    assert_eq!(done.summary()["exit"], 130);
    assert!(pids.into_iter().all(has_ended), "a source still runs");
    assert_eq!(names(dir.path()), [""; 0]);
}

#[test]
fn sources_do_not_outlive_a_demonstration_that_is_killed() {
    let dir = tempfile::tempdir().expect("a directory");
    let running = spawn(demo(dir.path(), &["--size", "64"]));
    let pids = wait_for_sources(&running);
    running.signal(Signal::SIGKILL);
    let _ = running.end();
    wait_until(END_S, || pids.iter().all(|pid| has_ended(*pid)));
}
