//! Tests of `anabranch lab cdn` as people and scripts use it.

use std::fs;

use assert_cmd::assert::OutputAssertExt as _;
use serde_json::Value;
use tempfile::TempDir;

use crate::common::anabranch;

/// A study of some hundred viewers.
const PLAN: &str = "[network]\ncontent = 6\naccess = 12\ntransit = 4\nlines = 42\n\
    [demand]\nchannels = 6\nstreams_least = 200\nstreams_most = 300\nfirst_per_s = 40\nminutes = 2\n\
    [capacities]\nleaf_mbits = 100\n\
    [caches]\nboots_s = [0.1, 1, 10]\ndeployed_percent = [50, 100]\n";
/// The network and the demand of docs/cdn.md.
const LINKS: &str = "Oslo Hamar 10G\nHamar Trondheim 10G\nTrondheim Bodo 2.5G\nOslo Bergen 10G\n";
const DEMAND: &str = "# at night\nHamar 300 5M\n192.0.2.7 2500 5M\nBodo 900 5M\nBergen 2600 5M\n";
const PREFIXES: &str = "192.0.2.0/24 Trondheim\n";

/// Runs the command in a directory with these files; returns its status, standard output and standard error.
fn cdn(dir: &TempDir, args: &[&str]) -> (i32, String, String) {
    let files =
        [("plan.toml", PLAN), ("links.txt", LINKS), ("demand.txt", DEMAND), ("prefixes.txt", PREFIXES)];
    for (name, text) in files {
        fs::write(dir.path().join(name), text).expect("written");
    }
    let mut command = anabranch();
    command.current_dir(dir.path()).args(["lab", "cdn"]).args(args);
    let output = command.assert().get_output().clone();
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

fn objects(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

#[test]
fn the_study_is_the_same_whatever_the_number_of_jobs() {
    let dir = tempfile::tempdir().expect("a directory");
    let run = |jobs| cdn(&dir, &["--plan", "plan.toml", "--seeds", "2", "--json", "--jobs", jobs]);
    let (status, one, _) = run("1");
    assert_eq!((status, &one), (0, &run("2").1));
    let objects = objects(&one);
    // Two seeds of no caches, two deployments and three boot times.
    assert_eq!(objects.len(), 12);
    assert!(
        objects.iter().all(|it| it["event"] == "policy" && it["start_s"].as_array().unwrap().len() == 21)
    );
}

#[test]
fn the_report_is_a_page_with_a_figure() {
    let dir = tempfile::tempdir().expect("a directory");
    let (status, out, _) = cdn(&dir, &["--plan", "plan.toml", "--seeds", "2", "--report", "page.md"]);
    assert!(
        status == 0 && out.contains("| traditional, 50 % |") && out.contains("a knee at about 1 s"),
        "{out}"
    );
    let page = fs::read_to_string(dir.path().join("page.md")).expect("a page");
    assert!(
        page.contains("anabranch lab cdn --plan plan.toml --seed 1 --seeds 2 --report page.md"),
        "{page}"
    );
    assert!(fs::read_to_string(dir.path().join("page.svg")).expect("a figure").starts_with("<svg"));
}

/// The large town at the end of the long way comes first; a cache where the origin's own line has room for
/// all brings nothing but less load.
#[test]
fn the_next_caches_are_named_with_what_they_bring() {
    let dir = tempfile::tempdir().expect("a directory");
    let question =
        ["--links", "links.txt", "--demand", "demand.txt", "--prefixes", "prefixes.txt", "--origin", "Oslo"];
    let (status, out, err) = cdn(&dir, &[&question[..], &["--caches", "3", "--hits", "100"]].concat());
    assert_eq!(status, 0, "{err}");
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines[0].starts_with("without caches: 20000 of 31500 Mbit/s delivered"), "{out}");
    assert!(
        lines[1].starts_with("1. Trondheim: +6500 Mbit/s") && lines[2].starts_with("2. Bergen: +3000"),
        "{out}"
    );
    let (_, json, _) = cdn(&dir, &[&question[..], &["--caches", "2", "--hits", "100", "--json"]].concat());
    let places: Vec<Value> = objects(&json).iter().map(|it| it["place"].clone()).collect();
    assert_eq!(places, [Value::Null, "Trondheim".into(), "Bergen".into()]);
}

#[test]
fn errors_name_the_file_and_the_line() {
    let dir = tempfile::tempdir().expect("a directory");
    let question = ["--links", "links.txt", "--origin", "Oslo", "--demand"];
    for (args, says) in [
        (vec!["--plan", "links.txt"], "links.txt: "),
        (vec!["--plan", "none.toml"], "cannot read none.toml"),
        ([&question[..], &["demand.txt"]].concat(), "demand.txt: line 3: expected a place of the links"),
        ([&question[..], &["links.txt"]].concat(), "links.txt: line 1"),
        (vec!["--links", "links.txt", "--demand", "demand.txt"], "--origin"),
        (vec!["--caches", "3"], "--demand"),
        (vec!["--links", "plan.toml"], "plan.toml: line 1"),
    ] {
        let (status, _, err) = cdn(&dir, &args);
        assert!(status == 2 && err.contains(says), "{args:?}: {status} {err}");
    }
}
