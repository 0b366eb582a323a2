//! Tests of a whole domain on this machine as people use it: `net new`, `key`, `up`, `exec`, `status`, `log`,
//! `kill`, `start`, `down`. All but the first two need root and `/dev/net/tun`; without them, each test says
//! so in a line and passes. The nodes run a program of these tests; other tests run the domain's own
//! programs.
#![cfg(target_os = "linux")]

use std::fs;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::Duration;

use crate::common::held::{held, left, namespace};
use crate::common::{anabranch, wait_until};
use anabranch_net::Clock;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

/// A domain with one way from a to p, of 10 ms, 5 ms and nothing, and services at r2.
const DOMAIN: &str = r#"
name = "small"
forwarders = ["r1", "r2"]
[rendezvous]
node = "rv"
[topology]
node = "tm"
[scopes]
films = "KEY"
[[line]]
between = ["a", "r1"]
delay_ms = 10
rate_mbit = 10
[[line]]
between = ["r1", "r2"]
delay_ms = 5
[[line]]
between = ["r2", "p"]
[[line]]
between = ["r2", "rv"]
[[line]]
between = ["r2", "tm"]
addresses = ["2001:db8::1", "2001:db8::2"]
"#;

/// The program that runs on the nodes: it prints how it was started, and fails as the topology manager.
const PROGRAM: &str = "#!/bin/sh\necho \"$ANABRANCH_NODE of $ANABRANCH_DOMAIN: $*\"\n\
    [ \"$1\" != topology ] || { echo 'no such luck' >&2; exit 3; }\nexec sleep 1000\n";

/// A directory with a domain whose name no other test uses, its key, a program and a file to serve.
struct Bed {
    dir: TempDir,
    name: String,
}

impl Bed {
    fn new(name: &str) -> Self {
        let name = format!("{name}-{}", std::process::id());
        let bed = Self { dir: tempfile::tempdir().expect("a directory"), name };
        let output = bed.run(&["key", "films.key"]);
        let line = String::from_utf8(output.stdout).expect("UTF-8");
        let key = line.strip_prefix("films = \"").and_then(|line| line.strip_suffix("\"\n"));
        let text = DOMAIN.replace("KEY", key.expect("a line of [scopes]"));
        fs::write(bed.path(&format!("{}.toml", bed.name)), text).expect("written");
        fs::write(bed.path("film.mkv"), "a film").expect("written");
        fs::write(bed.path("program"), PROGRAM).expect("written");
        fs::set_permissions(bed.path("program"), fs::Permissions::from_mode(0o755)).expect("set");
        bed
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn net(&self, args: &[&str]) -> Command {
        let mut command = anabranch();
        command.current_dir(self.dir.path()).arg("net").args(args);
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.net(args).output().expect("it runs")
    }

    /// Brings the domain up with a source and a cache. Returns the state that it reports.
    fn up(&self) -> Value {
        let more =
            ["--serve", "p=film.mkv", "--key", "films.key", "--cache", "r1=64M", "--program", "program"];
        let output = self.run(&[&["up", &self.name, "--json"][..], &more].concat());
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// Returns the state that the domain reports now, if it is up.
    fn status(&self) -> Option<Value> {
        let output = self.run(&["status", "--json"]);
        let states = String::from_utf8(output.stdout).expect("UTF-8");
        let mut states = states.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        states.find(|state| state["name"] == *self.name)
    }

    fn node(&self, node: &str) -> String {
        format!("{}/{node}", self.name)
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        // This is needed if a test failed.
        let _ = self.run(&["down", &self.name]);
    }
}

/// Whether these tests cannot run here.
fn skipped() -> bool {
    let allowed =
        anabranch_net::Namespace::new().and_then(|space| anabranch_net::Tun::new(&space, "p0", 1_500, false));
    if let Err(e) = &allowed {
        anabranch_net::testing::refused_device(format!("no domain can be brought up here: {e}"));
    }
    allowed.is_err()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns the index of a node in a state.
fn place(state: &Value, name: &str) -> usize {
    let nodes = state["nodes"].as_array().expect("nodes");
    nodes.iter().position(|node| node["name"] == name).expect("a node")
}

/// Returns the first program of a node.
fn program<'a>(state: &'a Value, name: &str) -> &'a Value {
    &state["nodes"][place(state, name)]["programs"][0]
}

/// Returns the names of all fields in a value.
fn fields(value: &Value) -> Vec<&str> {
    match value {
        Value::Object(map) => {
            map.iter().flat_map(|(name, value)| [name.as_str()].into_iter().chain(fields(value))).collect()
        }
        Value::Array(all) => all.iter().flat_map(fields).collect(),
        _ => Vec::new(),
    }
}

fn alive(pid: &Value) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn a_domain_to_begin_with_and_keys_are_written_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let run = |args: &[&str]| {
        let output = anabranch().current_dir(dir.path()).arg("net").args(args).output().expect("it runs");
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned(), said(&output))
    };
    let (code, out, err) = run(&["new"]);
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("sudo anabranch net up demo.toml --serve p1=FILE"), "{out}");
    let text = fs::read_to_string(dir.path().join("demo.toml")).expect("a domain");
    let mode = fs::metadata(dir.path().join("demo.key")).expect("a key").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let (_, line, _) = run(&["key", "demo.key", "--show"]);
    assert!(text.contains(&line.replacen("demo", "films", 1)), "{line} {text}");
    assert_eq!(run(&["new"]).0, Some(6));
    assert!(run(&["new", "demo.toml"]).2.contains("demo.toml exists already"));
    assert_eq!(text, fs::read_to_string(dir.path().join("demo.toml")).expect("the same"));
    assert_eq!(run(&["new", "Other"]).0, Some(0));

    assert_eq!(run(&["key", "mine.key"]).0, Some(0));
    let (code, _, err) = run(&["key", "mine.key"]);
    assert!(code == Some(6) && err.contains("mine.key exists already"), "{err}");
    fs::set_permissions(dir.path().join("mine.key"), fs::Permissions::from_mode(0o644)).expect("set");
    let (code, _, err) = run(&["key", "mine.key", "--show"]);
    assert!(code == Some(2) && err.contains("(mode 644): chmod 600 mine.key"), "{err}");
    let (code, _, err) = run(&["key", "gone.key", "--show"]);
    assert!(code == Some(2) && err.contains("`anabranch net key gone.key` makes one"), "{err}");
    anabranch_net::testing::write_secret(&dir.path().join("diary.key"), "dear diary").expect("written");
    let (code, _, err) = run(&["key", "diary.key", "--show"]);
    assert!(code == Some(2) && err.contains("no secret key"), "{err}");
}

#[test]
fn keys_of_members_are_made_where_they_are_missing() {
    let bed = Bed::new("keys");
    let file = format!("{}.toml", bed.name);
    let refused = bed.run(&["keys", &bed.name]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(said(&refused).contains("has open identifiers: identifiers = \"keyed\" would"), "{refused:?}");
    let text = fs::read_to_string(bed.path(&file)).expect("a file");
    fs::write(bed.path(&file), format!("identifiers = \"keyed\"\n{text}")).expect("written");
    let keys = || {
        let output = bed.run(&["keys", &bed.name, "--dir", "secrets"]);
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned() + &said(&output))
    };
    let (code, text) = keys();
    assert!(code == Some(0) && text.starts_with("keys of r1, r2 are in secrets; give each"), "{text}");
    let mode = |name: &str| fs::metadata(bed.path(name)).expect("it").permissions().mode() & 0o777;
    let modes = ["secrets", "secrets/services.key", "secrets/r1.key"].map(mode);
    assert_eq!(modes, [0o700, 0o600, 0o600]);
    let read = |name: &str| fs::read_to_string(bed.path(name)).expect("a file");
    let before = ["secrets/services.key", "secrets/r1.key", "secrets/r2.key"].map(read);
    // A lost key is made again with the same content, and nothing else changes.
    fs::remove_file(bed.path("secrets/r2.key")).expect("removed");
    let (code, text) = keys();
    assert!(
        code == Some(0) && text.starts_with("keys of r2 are in secrets (1 of forwarders were there)"),
        "{text}"
    );
    assert_eq!(["secrets/services.key", "secrets/r1.key", "secrets/r2.key"].map(read), before);
    // It fails without the key from which the others are derived, with another such key, and with a file that
    // is no key.
    fs::remove_file(bed.path("secrets/services.key")).expect("removed");
    let (code, text) = keys();
    let says = "secrets/r1.key is there and secrets/services.key is not: put that back";
    assert!(code == Some(2) && text.contains(says), "{text}");
    let output = bed.run(&["keys", &bed.name, "--dir", "others"]);
    assert!(output.status.success(), "{output:?}");
    fs::copy(bed.path("others/services.key"), bed.path("secrets/services.key")).expect("copied");
    let (code, text) = keys();
    assert!(code == Some(2) && text.contains("r1.key does not follow from secrets/services.key"), "{text}");
    fs::write(bed.path("secrets/services.key"), "dear diary").expect("written");
    let (code, text) = keys();
    assert!(code == Some(2) && text.contains("services.key: it is no key of a domain's services"), "{text}");
}

#[test]
fn what_makes_no_sense_is_said_before_anything_is_made() {
    let bed = Bed::new("nonsense");
    fs::write(bed.path("bad.toml"), DOMAIN.replace("KEY", "no key")).expect("written");
    let demo = bed.run(&["new", "demo"]);
    assert!(demo.status.success(), "{demo:?}");
    let name = bed.name.as_str();
    for (args, says) in [
        (&["up", "gone"][..], "there is no file gone.toml: `anabranch net new gone` writes one"),
        (&["up", "bad"], "bad.toml: scope films: a key has 52"),
        (&["up", "film.mkv"], "film.mkv: "),
        (&["up", name, "--cache", "r3=1M"], "--cache: there is no node r3: did you mean r1?"),
        (&["up", name, "--cache", "p=1M"], "p is a host"),
        (&["up", name, "--cache", "r1"], "expected a node, `=` and a value"),
        (&["up", name, "--serve", "p=film.mkv"], "--key"),
        (&["up", name, "--serve", "r1=film.mkv", "--key", "films.key"], "r1 forwards; sources are on hosts"),
        (&["up", name, "--serve", "p=gone", "--key", "films.key"], "cannot read gone"),
        (&["up", name, "--serve", "p=film.mkv", "--key", "gone"], "there is no key gone"),
        (&["up", "demo", "--serve", "p1=film.mkv", "--key", "films.key"], "no scope of the domain demo has"),
        (&["down", name], "is not up"),
        (&["exec", &bed.node("a"), "--", "true"], "is not up"),
    ] {
        let output = bed.run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {output:?}");
        assert!(said(&output).contains(says), "{args:?}: {}", said(&output));
    }
    assert_eq!(bed.status(), None);
}

#[test]
fn lines_have_their_delay_and_lead_to_the_neighbour_alone() {
    let _alone = anabranch_net::testing::alone();
    if skipped() {
        return;
    }
    let bed = Bed::new("lines");
    let state = bed.up();
    let line = |from: &str, to: &str| -> Value {
        let lines = state["lines"].as_array().expect("lines");
        lines.iter().find(|line| line["from"] == from && line["to"] == to).expect("a line").clone()
    };
    let (near, far) = (line("a", "r1"), line("r2", "p"));
    assert_eq!((&near["device"], &near["delay_ms"]), (&"to-r1".into(), &10.0.into()));
    assert_eq!((&near["rate_mbit"], &far["rate_mbit"]), (&10.0.into(), &Value::Null));
    let here = namespace(&state, "nodes", place(&state, "a"));
    let bound = |at: &str| UdpSocket::bind((at, 4_000)).expect("a socket");
    let echo = |node: &str, at: &str| {
        let socket = namespace(&state, "nodes", place(&state, node)).run(|| bound(at)).expect("entered");
        thread::spawn(move || {
            let mut buffer = [0; 2_000];
            while let Ok((bytes, from)) = socket.recv_from(&mut buffer)
                && bytes > 0
            {
                socket.send_to(&buffer[..bytes], from).expect("sent");
            }
        })
    };
    let there = near["peer"].as_str().expect("an address");
    let echoing = echo("r1", there);
    let clock = Clock::start();
    let socket = here.run(|| bound("0.0.0.0")).expect("entered");
    socket.connect((there, 4_000)).expect("a neighbour");
    socket.set_read_timeout(Some(Duration::from_secs(10))).expect("set");
    let round_trip = |bytes: usize| {
        let sent = clock.now();
        socket.send(&vec![7; bytes]).expect("sent");
        assert_eq!(socket.recv(&mut [0; 2_000]).expect("an echo"), bytes);
        clock.now().since(sent).as_nanos() as f64 / 1e6
    };
    // The shortest of several is taken, because single ones are late on a busy machine.
    let shortest = |bytes: usize| (0..20).map(|_| round_trip(bytes)).fold(f64::MAX, f64::min);
    let small = shortest(10);
    assert!((20.0..30.0).contains(&small), "twice 10 ms: {small} ms");
    // 1,000 more bytes take 0.8 ms more in each direction at 10 Mbit/s; the bound allows for the clock's
    // resolution.
    let large = shortest(1_010);
    assert!((21.5..32.0).contains(&large), "{large} ms");
    socket.send(&[]).expect("sent");
    echoing.join().expect("ended");

    // A node reaches only its neighbours: there is no route, and an added one does not work.
    let beyond = line("r1", "r2")["peer"].as_str().expect("an address").to_owned();
    let error =
        here.run(|| bound_any().connect((beyond.as_str(), 4_000))).expect("entered").expect_err("no way");
    assert_eq!(error.kind(), ErrorKind::NetworkUnreachable);
    let added = bed.run(&["exec", &bed.node("a"), "--", "ip", "route", "add", &beyond, "dev", "to-r1"]);
    if added.status.success() {
        let socket = here.run(bound_any).expect("entered");
        socket.connect((beyond.as_str(), 4_000)).expect("a route");
        socket.set_read_timeout(Some(Duration::from_millis(300))).expect("set");
        socket.send(b"x").expect("sent");
        assert!(socket.recv(&mut [0; 10]).is_err());
    }
    // This holds for IPv6 too.
    let peer = line("tm", "r2")["peer"].as_str().expect("an address").to_owned();
    assert_eq!(peer, "2001:db8::1");
    let echoing = echo("r2", &peer);
    let tm = namespace(&state, "nodes", place(&state, "tm"));
    let socket = tm.run(|| UdpSocket::bind("[::]:0").expect("a socket")).expect("entered");
    socket.connect((peer.as_str(), 4_000)).expect("a neighbour");
    socket.set_read_timeout(Some(Duration::from_secs(10))).expect("set");
    socket.send(b"six").expect("sent");
    assert_eq!(socket.recv(&mut [0; 10]).expect("an echo"), 3);
    socket.send(&[]).expect("sent");
    echoing.join().expect("ended");

    let state = bed.status().expect("it is up");
    let counted = state["lines"].as_array().expect("lines").iter().find(|line| line["from"] == "a");
    assert!(counted.expect("a line")["delivered"].as_u64() >= Some(41), "{counted:?}");
    assert!(state["late_p99_us"].as_f64() > Some(0.0));
}

fn bound_any() -> UdpSocket {
    UdpSocket::bind("0.0.0.0:0").expect("a socket")
}

#[test]
fn programs_run_end_and_are_started_again() {
    if skipped() {
        return;
    }
    let bed = Bed::new("programs");
    let output = bed.run(&["up", &bed.name, "--program", "program"]);
    assert!(output.status.success(), "{output:?}");
    assert!(said(&output).contains("tm: topology ended with status 3: no such luck"), "{}", said(&output));
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(out.contains("6 nodes, 5 lines") && out.contains("net exec a -- ping -c 3 10.91.0.2"), "{out}");
    assert!(bed.run(&["down", &bed.name]).status.code().is_some_and(|code| [0, 7].contains(&code)));

    let state = bed.up();
    let file = fs::canonicalize(bed.path(&format!("{}.toml", bed.name))).expect("a file");
    let file = file.to_str().expect("UTF-8");
    let command = |node: &str| {
        let words = program(&state, node)["command"].as_array().expect("words").iter();
        words.map(|word| word.as_str().expect("text").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(command("r1"), ["forward", "--domain", file, "--node", "r1", "--cache", "64M"]);
    assert_eq!(command("r2"), ["forward", "--domain", file, "--node", "r2"]);
    // The state for its next start is in a file of the process that holds the domain.
    let rendezvous = command("rv");
    assert_eq!(rendezvous[..6], ["rendezvous", "--domain", file, "--node", "rv", "--state"]);
    assert!(rendezvous[6].starts_with(&format!("/proc/{}/fd/", state["pid"])), "{rendezvous:?}");
    let path = |name: &str| fs::canonicalize(bed.path(name)).expect("a path").display().to_string();
    let serve = ["serve", &path("film.mkv"), "--domain", file, "--node", "p", "--publish", "films/film.mkv"];
    assert_eq!(command("p"), [&serve[..], &["--key", &path("films.key")]].concat());
    assert_eq!(program(&state, "tm")["exit"], 3);
    assert_eq!(state["nodes"][place(&state, "tm")]["last"][1], "no such luck");
    assert_eq!(state["nodes"][place(&state, "a")]["programs"], Value::Array(Vec::new()));

    let log = |node: &str| {
        let output = bed.run(&["log", &bed.node(node)]);
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    wait_until(60, || log("rv") == format!("rv of {file}: {}\n", rendezvous.join(" ")));
    let pid = program(&state, "r1")["pid"].clone();
    assert!(alive(&pid));
    let killed = bed.run(&["kill", &bed.node("r1")]);
    assert_eq!(String::from_utf8_lossy(&killed.stdout), "r1: forward ended by SIGKILL\n", "{killed:?}");
    assert!(!alive(&pid));
    let now = bed.status().expect("it is up");
    assert_eq!((&program(&now, "r1")["pid"], &program(&now, "r1")["signal"]), (&Value::Null, &9.into()));
    assert!(alive(&program(&now, "r2")["pid"]));
    let again = bed.run(&["kill", &bed.node("r1")]);
    assert!(again.status.code() == Some(2) && said(&again).contains("net start r1"), "{again:?}");
    let started = bed.run(&["start", &bed.node("r1")]);
    assert!(started.status.success(), "{started:?}");
    let now = bed.status().expect("it is up");
    assert!(alive(&program(&now, "r1")["pid"]) && program(&now, "r1")["pid"] != pid);
    wait_until(60, || log("r1").lines().count() == 3);
    assert!(log("r1").contains("\nanabranch: forward is started again\nr1 of "), "{}", log("r1"));
    for (args, says) in [
        (["start", "r1"], "r1 runs already: forward (process "),
        (["kill", "a"], "no program was started on a"),
        (["start", "r9"], "there is no node r9: did you mean r1?"),
    ] {
        let output = bed.run(&[args[0], &bed.node(args[1])]);
        assert!(output.status.code() == Some(2) && said(&output).contains(says), "{args:?}: {output:?}");
    }
    let text = String::from_utf8(bed.run(&["status"]).stdout).expect("UTF-8");
    assert!(
        text.contains("tm    topology ended with status 3") && text.contains("tm: no such luck\n"),
        "{text}"
    );
    assert!(text.contains("a → r1 ") && text.contains("10 Mbit/s") && text.contains("lateness of"), "{text}");
}

#[test]
fn whoever_is_not_root_is_told_so() {
    if skipped() {
        return;
    }
    let bed = Bed::new("whose");
    // The built command may be in a directory that this user cannot enter.
    let copy = bed.path("anabranch");
    fs::copy(env!("CARGO_BIN_EXE_anabranch-net"), &copy).expect("copied");
    for path in [bed.dir.path(), &copy] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("set");
    }
    let nobody = |words: &[&str]| {
        let mut command = Command::new(&copy);
        command.arg("net").args(words).current_dir(bed.dir.path()).uid(65_534).gid(65_534);
        command.output().expect("it runs")
    };
    let output = nobody(&["up", &bed.name]);
    assert!(output.status.code() == Some(1) && said(&output).contains("run as root"), "{output:?}");
    bed.up();
    for (words, status) in
        [(&["status"][..], 0), (&["down", &bed.name], 2), (&["exec", &bed.node("a"), "--", "true"], 2)]
    {
        let output = nobody(words);
        assert_eq!(output.status.code(), Some(status), "{words:?}: {output:?}");
        assert!(said(&output).contains(&bed.name) && said(&output).contains("as root"), "{output:?}");
    }
}

#[test]
fn nothing_is_left_however_it_ends() {
    // This test checks at once whether anything is left, so no other test may run.
    let _alone = anabranch_net::testing::alone();
    if skipped() {
        return;
    }
    let bed = Bed::new("left");
    let pids = |state: &Value| -> Vec<Value> {
        ["rv", "r1", "r2", "p"].iter().map(|node| program(state, node)["pid"].clone()).collect()
    };
    let state = bed.up();
    let namespaces = held(&state["pid"].to_string());
    assert_eq!(namespaces.len(), 6, "one a node");
    let mut own = bed.net(&["exec", &bed.node("a"), "--", "sleep", "1000"]).spawn().expect("it runs");
    wait_until(60, || {
        fs::read_to_string(format!("/proc/{}/comm", own.id())).is_ok_and(|name| name == "sleep\n")
    });
    let waiting = thread::spawn(move || own.wait());
    let output = bed.run(&["down", &bed.name, "--json"]);
    // Status 7 means that the lines were late, as on a busy machine.
    assert!(matches!(output.status.code(), Some(0 | 7)), "{output:?}");
    let last: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(last["ended"].as_array().map(Vec::len), Some(1), "the domain's own are not named: {last}");
    let documented =
        include_str!("../../../../docs/json.md").split("\n### `net`\n").nth(1).expect("a section");
    for name in fields(&last).into_iter().filter(|name| !["version", "event"].contains(name)) {
        assert!(documented.contains(&format!("`{name}`")), "docs/json.md: no word about {name}");
    }
    assert_eq!(program(&last, "r1")["signal"], 15);
    assert_eq!(last["nodes"][place(&last, "r1")]["last"], Value::Array(Vec::new()), "it was asked to");
    assert_eq!(waiting.join().expect("ended").expect("a status").code(), None, "by a signal");
    assert!(left(&namespaces).is_empty() && !pids(&state).iter().any(alive));
    assert_eq!(bed.status(), None);

    // A signal ends everything too. After SIGKILL, the programs on the nodes stay until the domain is taken
    // down.
    for (signal, stays) in [(Signal::SIGTERM, false), (Signal::SIGKILL, true)] {
        let state = bed.up();
        let namespaces = held(&state["pid"].to_string());
        let pid = state["pid"].to_string().parse().expect("a number");
        kill(Pid::from_raw(pid), signal).expect("a signal");
        wait_until(60, || !alive(&state["pid"]));
        if stays {
            assert!(pids(&state).iter().all(alive));
            let output = bed.run(&["status"]);
            assert!(said(&output).contains(&format!("{} is not up any more", bed.name)), "{output:?}");
            let output = bed.run(&["down", &bed.name]);
            assert!(output.status.success() && said(&output).contains("ended sleep (process "), "{output:?}");
        }
        wait_until(60, || left(&namespaces).is_empty() && !pids(&state).iter().any(alive));
    }
}

#[test]
fn a_node_is_told_what_it_is_and_brings_nothing_up() {
    if skipped() {
        return;
    }
    let bed = Bed::new("inside");
    bed.up();
    let file = fs::canonicalize(bed.path(&format!("{}.toml", bed.name))).expect("a file");
    let script = "echo $ANABRANCH_NODE $ANABRANCH_DOMAIN $PWD; exit 7";
    let output = bed.run(&["exec", &bed.node("a"), "--", "sh", "-c", script]);
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    let here = fs::canonicalize(bed.dir.path()).expect("a directory");
    let expected = format!("a {} {}\n", file.display(), here.display());
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    assert_eq!(bed.run(&["exec", &bed.node("a"), "--", "no-such-program"]).status.code(), Some(127));
    for words in
        [&["net", "up", &bed.name][..], &["net", "down"], &["lab", "up", "bench-a"], &["lab", "down"]]
    {
        let program = crate::common::program();
        let output = bed.run(&[&["exec", &bed.node("a"), "--", program][..], words].concat());
        assert_eq!(output.status.code(), Some(2), "{words:?}: {output:?}");
        assert!(said(&output).contains(&format!("a node of the domain {}: run it outside", bed.name)));
    }
    let output = bed.run(&["up", &bed.name, "--program", "program"]);
    assert!(output.status.code() == Some(1) && said(&output).contains("is up already"), "{output:?}");
    assert!(bed.status().is_some());
    // A laboratory of the same name would be a different thing.
    let output = anabranch().args(["lab", "down", &bed.name]).output().expect("it runs");
    assert!(output.status.code() == Some(2) && said(&output).contains("is not up"), "{output:?}");
}
