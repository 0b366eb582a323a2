//! `--json` as docs/json.md describes it: a version in every object, a summary at the end in every case, and
//! no event and no field that the document does not name.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::fetch::{Ground, run, spawn};
use crate::common::{anabranch, noise};
use crate::peers::site::Site;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

const DOCUMENT: &str = include_str!("../../../../docs/json.md");

const SCENARIO: &str = r#"
title = "One path"
source = "nobody"
duration = "3 s"
seeds = 2
controllers = ["reno"]

[link.l]
rate = "2 Mbit/s"
queue = "50 ms"

[flow.f]
paths = [{ via = ["l"], rtt = "20 ms" }]

[[measure]]
metric = "utilisation"
kind = "utilisation"
links = ["l"]
expect = { "*" = "EXPECTED" }
"#;

/// Parses all objects, and checks that each has the version.
fn objects(out: &str) -> Vec<Value> {
    let objects: Vec<Value> =
        out.lines().map(|line| serde_json::from_str(line).expect("JSON in each line")).collect();
    for object in &objects {
        assert_eq!(object["version"], 1, "{object}");
    }
    objects
}

/// Returns the summary at the end, and checks that there is no other.
fn summary(out: &str) -> Value {
    let objects = objects(out);
    let is_summary = |object: &&Value| object["event"] == "summary";
    assert_eq!(objects.iter().filter(is_summary).count(), 1, "{out}");
    let last = objects.last().expect("an object").clone();
    assert!(is_summary(&&last), "{out}");
    last
}

/// Returns the section of the document about one command.
fn section(command: &str) -> &'static str {
    let start = DOCUMENT.find(&format!("\n## `{command}`\n")).expect("a section") + 1;
    let rest = &DOCUMENT[start..];
    &rest[..rest[3..].find("\n## ").map_or(rest.len(), |end| end + 3)]
}

/// Checks that the document names everything in these objects.
fn assert_documented(command: &str, objects: &[Value]) {
    let section = section(command);
    let mut names = BTreeSet::new();
    for object in objects {
        names.insert(object["event"].as_str().expect("an event").to_owned());
        keys(object, &mut names);
    }
    // The keys within `malformed` are words of the wire format.
    for name in names.iter().filter(|name| !["version", "event"].contains(&name.as_str())) {
        assert!(section.contains(&format!("`{name}`")), "docs/json.md, {command}: no word about `{name}`");
    }
}

fn keys(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                names.insert(name.clone());
                if name != "malformed" {
                    keys(value, names);
                }
            }
        }
        Value::Array(all) => all.iter().for_each(|value| keys(value, names)),
        _ => {}
    }
}

#[test]
fn wrong_usage_has_a_summary() {
    let dir = tempfile::tempdir().expect("a directory");
    for line in [
        "get --json",
        "get --json --bogus http://h/f",
        "get --json ftp://h/f",
        "get --json http://h/f --limit fast",
        "get --json no-such.meta4",
        "get --json http://h/f --via no-such-interface",
        "serve --json",
        "serve --json /no/such/file",
        "serve --json . --listen nowhere",
        "lab run --json",
        "lab run --json no-such-scenario",
        "lab sweep --json no-such-scenario",
        "demo --json --size 0",
    ] {
        let mut command = anabranch();
        command.current_dir(dir.path()).args(line.split(' '));
        let done = run(command).expect(2);
        let summary = summary(&done.out);
        assert_eq!(summary["exit"], 2, "{line}: {summary}");
        let error = summary["error"].as_str().expect("why");
        assert_eq!(done.err, format!("anabranch: {error}\n"), "{line}: one error, one line");
    }
}

#[test]
fn a_transfer_is_documented_however_it_ends() {
    let ground = Ground::new(3_000_000);
    let site = Site::slow(&ground.content, 2_000_000);
    let bad = Site::new(&ground.content, |_, mut reply| {
        reply.body.iter_mut().for_each(|byte| *byte ^= 1);
        reply
    });
    let done = run(ground.get_named(&[site.url()], &["--json"])).expect(0);
    let mut all = objects(&done.out);
    assert!(all.iter().any(|object| object["event"] == "progress"), "{}", done.out);
    let end = summary(&done.out);
    assert_eq!((&end["exit"], &end["error"], &end["complete"]), (&0.into(), &Value::Null, &true.into()));
    let advice = end["advice"].as_str().expect("nothing vouches for it");
    assert!(advice.contains("--checksum with a hash that you trust"), "it names options: {advice}");
    // Two mirrors that differ; a server that does not answer; a target that cannot be written.
    let urls = [site.url(), bad.url()];
    let nobody = "http://127.0.0.1:1/f".to_owned();
    let one_of_two = run(ground.get_named(&[site.url(), nobody.clone()], &["--json", "--force"])).expect(0);
    all.extend(objects(&one_of_two.out));
    for (names, status) in [(&urls[..], 5), (&[nobody], 4), (&urls[..1], 6)] {
        if status == 6 {
            fs::write(ground.target(), b"mine").expect("a file");
        }
        let force: &[&str] = if status == 6 { &[] } else { &["--force"] };
        let options = [&["--json", "--timeout", "5"], force].concat();
        let done = run(ground.get_named(names, &options)).expect(status);
        let end = summary(&done.out);
        assert_eq!((&end["exit"], &end["complete"]), (&status.into(), &false.into()), "{}", done.out);
        assert_eq!(done.err, format!("anabranch: {}\n", end["error"].as_str().expect("why")));
        let (kind, at) = match status {
            5 => ("corrupt", Value::Null),
            4 => ("unreachable", json!({ "url": "http://127.0.0.1:1/f" })),
            _ => ("target", json!({ "path": ground.target() })),
        };
        assert_eq!((&end["error_kind"], &end["error_at"]), (&kind.into(), &at), "{end}");
        all.extend(objects(&done.out));
    }
    assert!(all.iter().any(|object| object["event"] == "note"), "{all:?}");
    fs::remove_file(ground.target()).expect("the file");
    let running = spawn(ground.get_named(&[site.url()], &["--json"]));
    running.wait_event(|event| event["event"] == "progress");
    running.signal(Signal::SIGTERM);
    let done = running.end().expect(130);
    assert_eq!(summary(&done.out)["exit"], 130);
    all.extend(objects(&done.out));
    assert_documented("get", &all);
}

/// Runs `serve --json` until it has printed counters, then sends Ctrl-C.
fn serve(path: &Path, more: &[&str]) -> (Option<i32>, String) {
    let mut command = anabranch();
    command.args(["serve", "--json", "--no-cache"]).args(more).arg(path);
    let mut child: std::process::Child = start(command);
    let (mut out, mut lines) = (String::new(), BufReader::new(child.stdout.take().expect("its output")));
    while !out.contains("\"counters\"") && lines.read_line(&mut out).expect("UTF-8") > 0 {}
    let _ = kill(Pid::from_raw(child.id() as i32), Signal::SIGINT);
    while lines.read_line(&mut out).expect("UTF-8") > 0 {}
    (child.wait().expect("its end").code(), out)
}

fn start(mut command: Command) -> std::process::Child {
    command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("a process")
}

#[test]
fn a_source_is_documented_however_it_ends() {
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join("f"), noise(100_000)).expect("a file");
    let (code, out) = serve(dir.path(), &["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
    assert_eq!(code, Some(0), "{out}");
    let end = summary(&out);
    assert_eq!((&end["exit"], &end["error"]), (&0.into(), &Value::Null));
    assert!(end["elapsed_s"].as_f64() > Some(0.5) && end["sent_bytes"] == 0, "{end}");
    assert_documented("serve", &objects(&out));
    let taken = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let (code, out) = serve(dir.path(), &["--listen", &taken.local_addr().expect("an address").to_string()]);
    let end = summary(&out);
    assert!(code.is_some_and(|code| code > 0 && end["exit"] == code) && end["error"].is_string(), "{end}");
    assert_documented("serve", &objects(&out));
}

#[test]
fn experiments_are_documented() {
    let dir = tempfile::tempdir().expect("a directory");
    let lab = |line: &str| {
        let mut command = anabranch();
        command.current_dir(dir.path()).args(line.split(' '));
        run(command)
    };
    let mut all = Vec::new();
    // In the first run the value is in the expected range, in the second it cannot be.
    for (expected, status) in [("0..100", 0), ("101..", 7)] {
        let scenario = SCENARIO.replace("EXPECTED", expected);
        fs::write(dir.path().join("small.toml"), scenario).expect("a file");
        for line in ["lab run small --json", "lab sweep small --json"] {
            let done = lab(line).expect(status);
            assert_eq!(summary(&done.out)["exit"], status, "{}", done.out);
            all.extend(objects(&done.out));
            assert!(all.iter().any(|object| object["event"] == "row"), "{}", done.out);
        }
    }
    all.extend(objects(&lab("lab list . --json").expect(0).out));
    assert_documented("lab", &all);
    let domain = objects(&lab("lab domain --network Nsfnet --draws 1 --json").expect(0).out);
    // There are five settings of Fig. 4.16; three capacities and policies of the network, and of the mean.
    assert_eq!(domain.len(), 5 + 2 * 9);
    assert_documented("lab domain", &domain);
}

#[test]
fn the_demonstration_is_documented() {
    let mut command = anabranch();
    command.args(["demo", "--json", "--size", "4"]);
    let done = run(command).expect(0);
    assert_eq!(summary(&done.out)["exit"], 0);
    let mut all = objects(&done.out);
    // Progress is described once, for `get`.
    all.retain(|object| object["event"] != "progress");
    assert_documented("demo", &all);
}

#[test]
fn networks_are_documented() {
    let mut all = Vec::new();
    for line in [
        "net show --json",
        "net show Nsfnet --json",
        "net paths Nsfnet --from NorthWestNet --to SURANET --json",
        "net paths Uninett2011 --from UiO --to UNIS --json",
    ] {
        let mut command = anabranch();
        command.args(line.split(' '));
        all.extend(objects(&run(command).expect(0).out));
    }
    assert!(all.iter().any(|object| object["event"] == "path"));
    assert_documented("net", &all);
}
