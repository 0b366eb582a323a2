//! `anabranch soak` as scripts use it.

use crate::common::anabranch;
use crate::common::fetch::{Done, spawn};
use assert_cmd::assert::OutputAssertExt as _;
use nix::sys::signal::Signal;
use serde_json::Value;

fn lines(args: &[&str]) -> Vec<String> {
    let assert = anabranch().arg("soak").args(args).assert().success();
    let text = String::from_utf8(assert.get_output().stdout.clone()).expect("UTF-8");
    text.lines().map(str::to_owned).collect()
}

#[test]
fn seeds_run_and_are_counted() {
    let lines = lines(&["--seeds", "1..12", "--json"]);
    let [line] = &lines[..] else { panic!("one line, for nothing failed: {lines:?}") };
    let summary: Value = serde_json::from_str(line).expect("JSON");
    assert_eq!((&summary["event"], &summary["seeds"]), (&"summary".into(), &12.into()));
    assert_eq!((&summary["failed"], &summary["stopped"]), (&0.into(), &false.into()));
    for some in ["cpu_s", "virtual_s", "packets", "peak_bytes"] {
        assert!(summary[some].as_f64().expect("a number") > 0.0, "{some}");
    }
}

/// The description and the digest of a world do not depend on the seeds that run in parallel.
#[test]
fn jobs_change_nothing() {
    let of = |jobs| {
        let mut lines = lines(&["--seeds", "1..8", "-v", "--jobs", jobs]);
        lines.retain(|line| line.contains("is well: "));
        lines.sort();
        lines
    };
    let one = of("1");
    assert_eq!(one.len(), 8);
    assert_eq!(one, of("3"));
}

#[test]
fn one_seed_tells_its_story() {
    let lines = lines(&["--seeds", "3..3", "-v"]);
    let has = |what: &str| lines.iter().any(|line| line.starts_with(what));
    assert!(has("link 0: LinkConfig") && has("seed 3 is well: ") && has("1 seeds, 0 failed"), "{lines:?}");
}

#[test]
fn ctrl_c_says_how_far_it_came() {
    let mut command = anabranch();
    command.args(["soak", "--seeds", "5..1000000000", "--jobs", "1", "-v"]);
    let running = spawn(command);
    running.wait_said("seed 5 is well: ");
    running.signal(Signal::SIGINT);
    let Done { out, err, .. } = running.end().expect(130);
    assert!(out.contains(" seeds, 0 failed; "), "{out}");
    assert!(err.contains("go on with: anabranch soak --seeds ") && err.contains("..1000000000"), "{err}");
}

#[test]
fn wrong_usage_is_status_2() {
    for args in [["--seeds", "2..1"], ["--seeds", "x"], ["--jobs", "0"]] {
        anabranch().arg("soak").args(args).assert().code(2);
    }
}
