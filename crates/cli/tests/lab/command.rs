//! Tests of the laboratory's command as people and scripts use it. The name of each test says what holds.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::common::anabranch;
use assert_cmd::assert::OutputAssertExt as _;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

/// A small, quick and valid scenario.
const SMALL: &str = r#"
title = "Two paths beside one"
source = "A paper, figure 1"
duration = "3 s"
count_from = "1 s"
seeds = 2
controllers = ["nmcc", "reno"]

[link.bottleneck]
rate = "2 Mbit/s"
queue = "50 ms"

[flow.mp]
paths = [{ via = ["bottleneck"], rtt = "20 ms" }, { via = ["bottleneck"], rtt = "20 ms" }]

[flow.sp]
paths = [{ via = ["bottleneck"], rtt = "20 ms" }]

[[case]]
name = "narrow"

[[case]]
name = "wide"
set = { "link.bottleneck.rate" = "4 Mbit/s" }

[[measure]]
metric = "mp_share"
kind = "share"
flows = ["mp"]
paper = { "narrow/nmcc" = 50, reno = 66.7 }
model = { "*" = 50 }

[[measure]]
metric = "utilisation"
kind = "utilisation"
links = ["bottleneck"]
"#;

/// A directory with `small.toml`, in which the command runs.
struct Bench(TempDir);

impl Bench {
    fn new() -> Self {
        let bench = Self(tempfile::tempdir().expect("a directory"));
        bench.write("small.toml", SMALL);
        bench
    }
    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("written");
    }
    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).expect(name)
    }
    fn lab(&self, args: &[&str]) -> Command {
        let mut command = anabranch();
        command.current_dir(self.0.path()).arg("lab").args(args);
        command
    }
    /// Returns the standard output of a command that succeeds.
    fn out(&self, args: &[&str]) -> String {
        let assert = self.lab(args).assert().success();
        String::from_utf8(assert.get_output().stdout.clone()).expect("UTF-8")
    }
    /// Returns the standard error of a command that ends with this status.
    fn err(&self, status: i32, args: &[&str]) -> String {
        let assert = self.lab(args).assert().code(status);
        String::from_utf8(assert.get_output().stderr.clone()).expect("UTF-8")
    }
    fn sweep(&self, more: &[&str]) -> String {
        let args = ["sweep", "small", "--set", "flow.sp.count=1,2,3", "--seeds", "1..3", "--json"];
        self.out(&[&args, more].concat())
    }
}

fn objects(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

/// Returns the rows of a command, and checks that its summary after them reports success.
fn rows(text: &str) -> Vec<Value> {
    let mut rows = objects(text);
    let summary = rows.pop().expect("a summary");
    assert_eq!(summary, serde_json::json!({ "version": 1, "event": "summary", "exit": 0, "error": null }));
    assert!(rows.iter().all(|row| row["version"] == 1 && row["event"] == "row"), "{text}");
    rows
}

fn lines(path: &Path) -> BTreeSet<String> {
    fs::read_to_string(path).expect("a file").lines().map(String::from).collect()
}

#[test]
fn an_unknown_key_is_an_error_with_file_line_and_the_nearest() {
    let bench = Bench::new();
    bench.write("wrong.toml", &SMALL.replace("rate =", "rtae ="));
    let said = bench.err(2, &["run", "wrong.toml"]);
    assert_eq!(
        said.trim(),
        "anabranch: wrong.toml:10: unknown key `rtae` in link.bottleneck: did you mean `rate`?"
    );
    let said = bench.err(2, &["run", "small", "--set", "link.botleneck.rate=1 Mbit/s"]);
    assert!(said.contains("there is no link `botleneck`: did you mean `bottleneck`?"), "{said}");
    let said = bench.err(2, &["run", "small", "--set", "flow.sp.conut=4"]);
    assert!(said.contains("unknown key `conut` in flow.sp: did you mean `count`?"), "{said}");
    let said = bench.err(2, &["run", "small", "--case", "wdie"]);
    assert!(said.contains("there is no case `wdie`: did you mean `wide`?"), "{said}");
    let said = bench.err(2, &["run", "small", "--cc", "nmcc,rneo"]);
    assert!(said.contains("did you mean `reno`?"), "{said}");
}

#[test]
fn a_scenario_is_found_by_its_name_and_one_that_is_not_there_brings_the_nearest() {
    let bench = Bench::new();
    fs::create_dir(bench.path("scenarios")).expect("a directory");
    bench.write("scenarios/fig-4.9.toml", SMALL);
    for name in ["small", "small.toml", "./small.toml", "fig-4.9", "scenarios/fig-4.9"] {
        assert!(bench.out(&["run", name, "--seeds", "1"]).contains("Two paths beside one"), "{name}");
    }
    let said = bench.err(2, &["run", "smal"]);
    assert!(said.contains("there is no scenario smal: did you mean small?"), "{said}");
    // `fig-4-9` is the name of another scenario, which is part of the program.
    let said = bench.err(2, &["run", "fig-4_9"]);
    assert!(said.contains("did you mean fig-4.9?") || said.contains("did you mean fig-4-9?"), "{said}");
    let said = bench.err(2, &["run", "scenarios/fog-4.9.toml"]);
    assert!(said.contains("did you mean fig-4.9?"), "{said}");
}

#[test]
fn rows_are_json_objects_with_null_where_there_is_nothing() {
    let rows = rows(&Bench::new().out(&["run", "small", "--json"]));
    assert_eq!(rows.len(), 2 * 2 * 2, "cases, measures, controllers");
    let row = &rows[0];
    let keys: Vec<&str> = row.as_object().expect("an object").keys().map(String::as_str).collect();
    for key in ["scenario", "world", "case", "seeds", "controller", "metric", "value", "unit", "sd", "ci95"] {
        assert!(keys.contains(&key), "{key}");
    }
    for key in ["paper", "model", "verdict", "why", "faults"] {
        assert!(keys.contains(&key), "{key}");
    }
    assert_eq!(
        (&row["scenario"], &row["world"], &row["case"]),
        (&"small".into(), &"sim".into(), &"narrow".into())
    );
    assert_eq!((&row["metric"], &row["unit"]), (&"mp_share".into(), &"%".into()));
    assert_eq!((&row["paper"], &row["model"]), (&50.0.into(), &50.0.into()));
    assert!(row["verdict"].is_null() && rows[2]["paper"].is_null());
    let chosen = ["run", "small", "--json", "--cc", "reno", "--case", "wide", "--seeds", "3..3"];
    let few = self::rows(&Bench::new().out(&chosen));
    assert_eq!(few.len(), 2);
    assert_eq!((&few[0]["case"], &few[0]["controller"]), (&"wide".into(), &"reno".into()));
}

#[test]
fn comma_separated_values_have_one_head() {
    let text = Bench::new().out(&["run", "small", "small.toml", "--csv"]);
    assert_eq!(text.lines().count(), 1 + 2 * 8);
    assert!(text.starts_with("scenario,world,case,controller,seeds,metric,value,unit,"), "{text}");
    assert_eq!(text.matches("scenario,world").count(), 1);
    let columns = text.lines().next().expect("a head").matches(',').count();
    assert!(text.lines().all(|line| line.matches(',').count() == columns), "{text}");
}

#[test]
fn standard_input_and_values_that_are_set() {
    let bench = Bench::new();
    let mut command = bench.lab(&["run", "-", "--set", "flow.sp.count=2", "--seeds", "1"]);
    command.stdin(fs::File::open(bench.path("small.toml")).expect("a file"));
    let out = String::from_utf8(command.output().expect("output").stdout).expect("UTF-8");
    assert!(out.starts_with("stdin: Two paths"), "{out}");
    assert!(out.contains("with:   flow.sp.count=2\n"), "{out}");
}

#[test]
fn the_table_is_saved_beside_the_scenario_and_is_what_is_printed() {
    let bench = Bench::new();
    let printed = bench.out(&["run", "small", "--save"]);
    assert_eq!(bench.read("small.table"), printed);
    assert!(printed.lines().all(|line| line.chars().count() <= 110), "{printed}");
    // The table does not depend on the time, the place or the number of cores.
    assert_eq!(bench.out(&["run", "small.toml", "--save", "--jobs", "1"]), printed);
    bench.err(2, &["run", "small", "--save", "--set", "flow.sp.count=2"]);
    bench.err(2, &["run", "small", "--save", "--cc", "reno"]);
}

#[test]
fn all_scenarios_are_run_by_one_command() {
    let bench = Bench::new();
    assert!(bench.err(2, &["run", "--all"]).contains("no scenarios in scenarios"));
    fs::create_dir(bench.path("scenarios")).expect("a directory");
    for name in ["a", "b"] {
        bench.write(&format!("scenarios/{name}.toml"), SMALL);
    }
    bench.err(2, &["run", "--all", "a"]);
    let printed = bench.out(&["run", "--all", "--save", "--seeds", "1"]);
    let both = [bench.read("scenarios/a.table"), bench.read("scenarios/b.table")];
    assert_eq!(both.join("\n\n"), printed);
}

#[test]
fn a_value_that_is_not_where_it_is_expected_is_status_7() {
    let bench = Bench::new();
    // This is more than 100 %.
    bench.write("odd.toml", &SMALL.replace("paper = {", "expect = { \"*\" = \"101..\" }\npaper = {"));
    let assert = bench.lab(&["run", "odd"]).assert().code(7);
    let out = String::from_utf8_lossy(&assert.get_output().stdout);
    assert!(out.contains("NOT 101.."), "{out}");
    assert!(out.contains("Not where the scenario expects it:"), "{out}");
    assert!(bench.err(7, &["run", "odd", "--json"]).contains("4 rows not where expected"));
}

#[test]
fn a_report_is_a_page() {
    let bench = Bench::new();
    bench.out(&["run", "small", "--seeds", "1", "--report", "small.html"]);
    let page = bench.read("small.html");
    assert!(page.to_lowercase().starts_with("<!doctype html>") && page.contains("mp_share"), "{page}");
}

/// Tables are printed before pages are written, and results before tables; none of that may have happened.
#[test]
fn a_file_that_cannot_be_written_is_found_before_the_first_run() {
    let bench = Bench::new();
    fs::create_dir(bench.path("small.table")).expect("a directory");
    fs::write(bench.path("there.html"), "as it was").expect("a file");
    for args in [
        &["run", "small", "--report", "no/such/dir.html"][..],
        &["run", "small", "--save"],
        &["run", "small", "--save", "--report", "there.html"],
        &["sweep", "small", "--report", "no/such/dir.html"],
        &["sweep", "small", "--report", "."],
        &["sweep", "small", "--out", "results.jsonl", "--report", "no/such/dir.html"],
        &["sweep", "small", "--out", "no/such/results.jsonl"],
    ] {
        let output = bench.lab(args).assert().code(6).get_output().clone();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.stdout.is_empty() && said.starts_with("anabranch: cannot "), "{args:?}: {said}");
        assert!(!bench.path("results.jsonl").exists(), "{args:?}");
    }
    assert_eq!(bench.read("there.html"), "as it was");
    // Invalid scenarios are reported first, and the check leaves no file.
    bench.err(2, &["run", "nosuch", "--report", "new.html"]);
    bench.err(6, &["run", "small", "--save", "--report", "new.html"]);
    assert!(!bench.path("new.html").exists());
}

#[test]
fn scenarios_are_listed_and_broken_ones_named() {
    let bench = Bench::new();
    let list = bench.out(&["list", "."]);
    let line = list.lines().find(|line| line.starts_with("small ")).expect("its line");
    assert!(line.ends_with(" 2×2×2  Two paths beside one (A paper, figure 1)"), "{list}");
    let list = objects(&bench.out(&["list", ".", "--json"]));
    assert_eq!((&list[0]["scenario"], &list[0]["runs"]), (&"small".into(), &8.into()));
    bench.write("bad.toml", "title = 7\n");
    let assert = bench.lab(&["list", "."]).assert().code(2);
    assert!(String::from_utf8_lossy(&assert.get_output().stdout).contains("Two paths"));
    assert!(String::from_utf8_lossy(&assert.get_output().stderr).contains("bad.toml:1: title: "));
    assert!(bench.err(2, &["list", "scenarios"]).contains("no scenarios in scenarios"));
}

/// The directory is not one with scenarios of a clone.
#[test]
fn the_programs_own_scenarios_are_listed_and_run_anywhere() {
    let bench = Bench::new();
    let list = bench.out(&["list"]);
    assert!(list.starts_with("scenario"), "{list}");
    assert!(list.lines().next().is_some_and(|head| head.contains("cases×controllers×seeds")), "{list}");
    for name in ["bench-a", "trace-lte", "groups-mmtp"] {
        assert!(list.lines().any(|line| line.starts_with(&format!("{name} "))), "{name}: {list}");
    }
    assert!(!list.contains("small"), "files here are not listed, for they are no collection");
    let row = &objects(&bench.out(&["list", "--json"]))[0];
    assert!(row["file"].is_null() && row["scenario"].is_string());
    // This scenario has a trace. It runs only for a moment, so its values may not be where they are expected.
    let short = ["--seeds", "1", "--set", "duration=2 s", "--set", "count_from=1 s"];
    let output = bench.lab(&[&["run", "trace-lte"], &short[..]].concat()).output().expect("it runs");
    assert!(matches!(output.status.code(), Some(0 | 7)), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("trace-lte: "), "{output:?}");
    // A file is preferred to a scenario of the program.
    bench.write("bench-a.toml", SMALL);
    assert!(bench.out(&["run", "bench-a", "--seeds", "1"]).contains("Two paths beside one"));
    assert!(bench.err(2, &["run", "bench-b", "--save"]).contains("--save needs a file"));
}

#[test]
fn a_new_scenario_runs_as_it_stands_and_overwrites_nothing() {
    let bench = Bench::new();
    assert!(bench.out(&["new", "my"]).contains("my.toml is written; run it: anabranch lab run my\n"));
    let table = bench.out(&["run", "my", "--case", "slow", "--seeds", "2", "--cc", "nmcc"]);
    assert!(table.contains("mp_share") && !table.contains("not met"), "{table}");
    let text = bench.read("my.toml");
    assert!(bench.err(6, &["new", "my.toml"]).contains("my.toml exists already"));
    assert_eq!(bench.read("my.toml"), text);
    bench.out(&["new", "copy", "--from", "trace-lte"]);
    assert!(bench.path("traces/saw-1-5.trace").is_file());
    let list = bench.out(&["list", "."]);
    assert!(list.contains("copy ") && list.contains("my "), "{list}");
    assert!(bench.err(2, &["new", "x", "--from", "bench-"]).contains("did you mean bench-"));
}

#[test]
fn loss_may_be_percent() {
    let bench = Bench::new();
    let run = |loss: &str| {
        bench.write("lossy.toml", &SMALL.replace("queue =", &format!("loss = {loss}\nqueue =")));
        bench.out(&["run", "lossy", "--seeds", "1", "--json"])
    };
    assert_eq!(run("\"1 %\""), run("0.01"));
    let set = |loss: &str| {
        let set = format!("link.bottleneck.loss={loss}");
        bench.out(&["run", "small", "--seeds", "1", "--json", "--set", &set])
    };
    // Rows show the value that was set as it was written.
    assert_eq!(set("1 %").replace("1 %", "0.01"), set("0.01"));
}

#[test]
fn runs_that_are_all_alike_have_no_interval_and_say_so() {
    let bench = Bench::new();
    let table = bench.out(&["run", "small"]);
    assert!(table.contains("\nAll seeds gave the same run: "), "{table}");
    assert!(!table.contains('±'), "{table}");
    assert_eq!(objects(&bench.out(&["run", "small", "--json"]))[0]["alike"], true);
    for more in [&["--seeds", "1"][..], &["--set", "link.bottleneck.jitter=1 ms"]] {
        let table = bench.out(&[&["run", "small"], more].concat());
        assert!(!table.contains("the same run"), "{table}");
    }
    bench.out(&["run", "small", "--report", "r.html"]);
    assert!(bench.read("r.html").contains("all seeds gave the same run"));
}

#[test]
fn a_scenario_without_measures_says_what_can_be_measured() {
    let bench = Bench::new();
    bench.write("bare.toml", SMALL.split("[[measure]]").next().expect("its head"));
    let said = bench.out(&["run", "bare"]);
    assert!(said.contains("measures nothing"), "{said}");
    for kind in ["share", "queue_p99", "completion", "timeouts"] {
        assert!(said.contains(kind), "{kind}: {said}");
    }
}

#[test]
fn the_report_of_a_resumed_sweep_has_its_plots() {
    let bench = Bench::new();
    let sweep = |more: &[&str]| {
        bench.out(&[&["sweep", "small", "--seeds", "1..3", "--out", "r.jsonl"], more].concat());
    };
    bench.out(&["sweep", "small", "--seeds", "1..3", "--report", "whole.html"]);
    let whole = bench.read("whole.html");
    assert!(whole.contains("<svg"), "{whole}");
    // The first sweep has no plots. The second has plots, so runs that are to be drawn are repeated. The
    // third takes all from the file.
    sweep(&[]);
    let file = bench.read("r.jsonl");
    sweep(&["--report", "first.html"]);
    let drawn = bench.read("r.jsonl");
    assert_eq!(bench.read("first.html"), whole);
    assert_eq!(drawn.lines().count(), file.lines().count() + 4, "cases and controllers, one seed");
    sweep(&["--report", "second.html"]);
    assert_eq!((bench.read("second.html"), bench.read("r.jsonl")), (whole.clone(), drawn));
    // The pictures are before the table.
    assert!(whole.rfind("<svg") < whole.find("<h3>Table</h3>"));
}

#[test]
fn two_sweeps_into_one_file_lose_nothing() {
    let bench = Bench::new();
    let args = ["sweep", "small", "--seeds", "1..40", "--out", "r.jsonl", "--shard"];
    for _ in 0..3 {
        let start = |shard: &str| {
            let mut command = bench.lab(&[&args[..], &[shard]].concat());
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs")
        };
        let both = ["1/2", "2/2"].map(start);
        for mut child in both {
            assert!(child.wait().expect("a child").success());
        }
        let records = objects(&bench.read("r.jsonl"));
        assert_eq!(records.len(), 2 * 2 * 40);
        fs::remove_file(bench.path("r.jsonl")).expect("removed");
    }
}

#[test]
fn a_sweep_writes_a_line_a_run_and_skips_what_is_there() {
    let bench = Bench::new();
    let whole = bench.sweep(&["--out", "r.jsonl"]);
    let file = bench.read("r.jsonl");
    let records = objects(&file);
    assert_eq!(records.len(), 2 * 3 * 2 * 3, "cases, values, controllers, seeds");
    for key in ["scenario", "case", "set", "controller", "seed", "text", "code", "metrics", "outcome"] {
        assert!(records.iter().all(|record| record.get(key).is_some()), "{key}");
    }
    assert!(records[0]["set"]["flow.sp.count"].is_string());
    assert_eq!(rows(&whole).len(), 2 * 3 * 2 * 2, "cases, values, controllers, measures");
    assert_eq!(rows(&whole)[0]["case"], "narrow; flow.sp.count=1");
    // The second time, nothing is run or written, and the table is the same.
    assert_eq!(bench.sweep(&["--out", "r.jsonl"]), whole);
    assert_eq!(bench.read("r.jsonl"), file);
    // With more seeds, only the new ones are run.
    let more = ["sweep", "small", "--set", "flow.sp.count=1,2,3", "--seeds", "1..4", "--out", "r.jsonl"];
    assert!(bench.err(0, &more).contains("36 of 48 runs are in r.jsonl already"));
    assert!(bench.read("r.jsonl").starts_with(&file));
    assert_eq!(objects(&bench.read("r.jsonl")).len(), 48);
    // A scenario with other contents shares no runs, and one that is only written differently shares all.
    bench.write("small.toml", &SMALL.replace("A paper", "# Another\u{a0}paper"));
    assert!(bench.err(0, &more).contains("48 of 48 runs are in"));
    bench.write(
        "small.toml",
        &SMALL.replace("\"2 Mbit/s\"", "\"3 Mbit/s\"").replace("\"4 Mbit/s\"", "\"5 Mbit/s\""),
    );
    assert!(!bench.err(0, &more).contains("already"));
}

#[test]
fn a_sweep_resumes_after_it_was_killed_in_the_middle_of_a_line() {
    let bench = Bench::new();
    let whole = bench.sweep(&["--out", "whole.jsonl"]);
    let file = bench.read("whole.jsonl");
    for cut in [1, 17, file.len() / 3, file.len() / 2 + 11, file.len() - 1] {
        bench.write("torn.jsonl", &file[..cut]);
        assert_eq!(bench.sweep(&["--out", "torn.jsonl"]), whole, "cut at {cut}");
        assert_eq!(lines(&bench.path("torn.jsonl")), lines(&bench.path("whole.jsonl")), "cut at {cut}");
        assert_eq!(bench.read("torn.jsonl").lines().count(), file.lines().count());
    }
    bench.write("notes.txt", "not to be lost\n");
    let said = bench.err(6, &["sweep", "small", "--out", "notes.txt"]);
    assert!(said.contains("no results"), "{said}");
    assert_eq!(bench.read("notes.txt"), "not to be lost\n");
}

#[test]
fn a_sweep_that_is_stopped_says_what_is_done_and_leaves_whole_lines() {
    let bench = Bench::new();
    for (signal, status) in [(Signal::SIGINT, Some(130)), (Signal::SIGKILL, None)] {
        let mut command = bench.lab(&["sweep", "small", "--seeds", "1..20000", "--out", "r.jsonl"]);
        let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().expect("a sweep");
        while fs::metadata(bench.path("r.jsonl")).map_or(0, |file| file.len()) < 10_000 {
            assert!(child.try_wait().expect("a status").is_none(), "it ended");
            thread::sleep(Duration::from_millis(2));
        }
        kill(Pid::from_raw(child.id().cast_signed()), signal).expect("it runs");
        let output = child.wait_with_output().expect("an end");
        assert_eq!(output.status.code(), status);
        if status.is_some() {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(
                said.contains("interrupted: ") && said.contains("the same command does the rest"),
                "{said}"
            );
        }
        let file = bench.read("r.jsonl");
        let records = objects(file.rsplit_once('\n').expect("lines").0);
        let keys: BTreeSet<String> =
            records.iter().map(|r| format!("{} {} {}", r["text"], r["controller"], r["seed"])).collect();
        assert_eq!(keys.len(), records.len(), "no run is there twice");
        fs::remove_file(bench.path("r.jsonl")).expect("removed");
    }
}

#[test]
fn shards_together_are_the_whole() {
    let bench = Bench::new();
    let whole = bench.sweep(&["--out", "whole.jsonl"]);
    for shard in ["1/3", "2/3", "3/3"] {
        bench.sweep(&["--out", &format!("part-{}.jsonl", &shard[..1]), "--shard", shard]);
    }
    let parts: Vec<_> =
        ["part-1.jsonl", "part-2.jsonl", "part-3.jsonl"].map(|name| lines(&bench.path(name))).into();
    assert_eq!(parts.iter().map(BTreeSet::len).collect::<Vec<_>>(), [12, 12, 12]);
    let union: BTreeSet<String> = parts.into_iter().flatten().collect();
    assert_eq!(union, lines(&bench.path("whole.jsonl")));
    // The concatenated parts make the whole table without a run.
    let together: String =
        ["part-3.jsonl", "part-1.jsonl", "part-2.jsonl"].map(|name| bench.read(name)).concat();
    bench.write("all.jsonl", &together);
    assert_eq!(bench.sweep(&["--out", "all.jsonl"]), whole);
    assert_eq!(bench.read("all.jsonl"), together);
    bench.err(2, &["sweep", "small", "--shard", "1/3"]);
    bench.err(2, &["sweep", "small", "--out", "x.jsonl", "--shard", "4/3"]);
}

#[test]
fn results_do_not_depend_on_the_number_of_jobs() {
    let bench = Bench::new();
    let one = bench.sweep(&["--jobs", "1", "--out", "one.jsonl"]);
    let two = bench.sweep(&["--jobs", "2", "--out", "two.jsonl"]);
    let many = bench.sweep(&["--jobs", "50"]);
    assert_eq!((&two, &many), (&one, &one));
    assert_eq!(lines(&bench.path("one.jsonl")), lines(&bench.path("two.jsonl")));
    let run = |jobs: &str| bench.out(&["run", "small", "--json", "--jobs", jobs]);
    assert_eq!(run("1"), run("2"));
}

#[test]
fn what_a_sweep_cannot_vary_it_says() {
    let bench = Bench::new();
    for (set, said) in [
        ("controllers=nmcc,reno", "use --cc"),
        ("seeds=1,2", "use --seeds"),
        ("link.bottleneck.loss=0.1,7", "7 is no probability"),
        ("link.bottleneck.rate=1 Mbit/s,", "has an empty value"),
        ("link.bottleneck.rate", "expected KEY=VALUE"),
    ] {
        let text = bench.err(2, &["sweep", "small", "--set", set]);
        assert!(text.contains(said), "{set}: {text}");
    }
}

#[test]
fn help_teaches() {
    let bench = Bench::new();
    assert!(bench.out(&["--help"]).contains("anabranch lab list"));
    assert!(bench.out(&["run", "--help"]).contains("link.c.rate=250 pkt/s"));
    assert!(bench.out(&["sweep", "--help"]).contains("--shard $N/16"));
}

#[test]
fn lines_over_time_and_what_was_set_are_data() {
    let bench = Bench::new();
    let set = ["--set", "link.bottleneck.queue=20 ms,40 ms"];
    let args = ["sweep", "small", "--cc", "nmcc", "--csv", "--series", "time.csv"];
    let rows = bench.out(&[&args[..], &set[..]].concat());
    assert!(rows.lines().next().expect("a head").ends_with("no_value,link.bottleneck.queue"), "{rows}");
    assert!(rows.lines().nth(1).expect("a row").ends_with(",20 ms"), "{rows}");
    let series = bench.read("time.csv");
    let mut lines = series.lines();
    let head = "scenario,world,case,controller,seed,link.bottleneck.queue,kind,name,time_s,value";
    assert_eq!(lines.next(), Some(head));
    // There are two values in two cases with two seeds, and two goodputs, three windows and a queue in 60
    // steps of 50 ms.
    assert_eq!(lines.count(), 2 * 2 * 2 * 6 * 60);
}
