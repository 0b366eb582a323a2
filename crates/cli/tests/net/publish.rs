//! Tests what the README shows of publish/subscribe networks: a whole domain with two publishers and a cache
//! is brought up, a file is fetched by name over several paths, a forwarder is killed in the meantime, and
//! the file is complete.
#![cfg(target_os = "linux")]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::common::{anabranch, wait_until};
use anabranch_algo::{Rate, Time};
use anabranch_net::Clock;
use serde_json::Value;

/// The bytes of the film, which take some seconds on the demo's lines.
const FILM: usize = 60_000_000;

struct Bed {
    dir: tempfile::TempDir,
    name: String,
}

impl Bed {
    /// Brings up the domain of `net new` with additional keys in its file, under this name. Returns `None`
    /// without root.
    fn up(name: &str, more: &str) -> Option<Self> {
        let bed = Self {
            dir: tempfile::tempdir().expect("a directory"),
            name: format!("{name}-{}", std::process::id()),
        };
        let allowed = anabranch_net::Namespace::new()
            .and_then(|space| anabranch_net::Tun::new(&space, "p0", 1_500, false));
        if let Err(e) = allowed {
            anabranch_net::testing::refused_device(format!("no domain can be brought up here: {e}"));
            return None;
        }
        let mut film: Vec<u8> = Vec::with_capacity(FILM);
        film.extend((0..FILM as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8));
        fs::write(bed.path("film.mkv"), film).expect("written");
        bed.run(&["net", "new"]);
        let file = fs::read_to_string(bed.path("demo.toml")).expect("a file");
        fs::write(bed.path("demo.toml"), [more, &file].concat()).expect("written");
        let serve = ["--serve", "p1=film.mkv", "--serve", "p2=film.mkv", "--key", "demo.key"];
        bed.run(
            &[&["net", "up", "demo.toml", "--name", &bed.name, "--cache", "r1=64M"], &serve[..]].concat(),
        );
        let published = |node: &str| {
            let log = bed.run(&["net", "log", &bed.node(node)]);
            String::from_utf8_lossy(&log.stdout).contains("films/film.mkv is published")
        };
        wait_until(20, || published("p1") && published("p2"));
        Some(bed)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = anabranch();
        command.args(args).current_dir(self.dir.path()).env("XDG_CACHE_HOME", self.dir.path());
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        let output = self.command(args).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {said}");
        output
    }

    fn node(&self, node: &str) -> String {
        format!("{}/{node}", self.name)
    }

    /// Fetches the film at host `a`, and passes each line of JSON to `each`. Returns the paths that brought
    /// bytes.
    fn get(&self, target: &str, more: &[&str], mut each: impl FnMut(&Value)) -> Vec<(String, String)> {
        let me = crate::common::program();
        let node = self.node("a");
        let args = ["net", "exec", &node, "--", me, "get", "films/film.mkv", "-o", target, "--json"];
        let mut child =
            self.command(&[&args[..], more].concat()).stdout(Stdio::piped()).spawn().expect("it runs");
        let mut summary = Value::Null;
        for line in BufReader::new(child.stdout.take().expect("a pipe")).lines() {
            let line: Value = serde_json::from_str(&line.expect("a line")).expect("JSON");
            each(&line);
            if line["event"] == "summary" {
                summary = line;
            }
        }
        child.wait().expect("it ends");
        assert_eq!(summary["exit"], 0, "{summary}");
        used(&summary["last"]["paths"])
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = self.command(&["net", "down", &self.name]).output();
    }
}

fn is_same(a: &Path, b: &Path) -> bool {
    fs::read(a).expect("a file") == fs::read(b).expect("a file")
}

/// Returns the paths that have brought bytes: their forwarders and their sources.
fn used(paths: &Value) -> Vec<(String, String)> {
    let brought = paths.as_array().expect("paths").iter().filter(|path| path["bytes"].as_u64() > Some(0));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    brought.map(|path| (text(&path["via"]), text(&path["source"]))).collect()
}

/// Tests that `net ls` on host `a` lists the film and both of its hosts.
fn lists(bed: &Bed) {
    let (me, node) = (crate::common::program(), bed.node("a"));
    let list = |args: &[&str]| {
        let output = bed.command(&[&["net", "exec", &node, "--", me, "net", "ls"], args].concat()).output();
        let Output { status, stdout, stderr } = output.expect("it runs");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        (status.code(), text(stdout), text(stderr))
    };
    let all = (Some(0), "films/film.mkv  60.0 MB  p1, p2\n".to_owned(), String::new());
    assert_eq!(list(&[]), all);
    assert_eq!(list(&["films/"]), all);
    let (_, json, _) = list(&["--json"]);
    let objects: Vec<Value> = json.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(objects.iter().map(|it| &it["host"]).collect::<Vec<_>>(), ["p1", "p2"]);
    let documented = include_str!("../../../../docs/json.md");
    for object in &objects {
        assert_eq!((&object["event"], &object["newest"]), (&"publication".into(), &true.into()), "{json}");
        assert_eq!((&object["scope"], &object["length"]), (&"films".into(), &FILM.into()), "{json}");
        let fields = object.as_object().expect("an object").keys();
        let missing: Vec<_> = fields.filter(|it| !documented.contains(&format!("`{it}`"))).collect();
        assert!(missing.is_empty(), "docs/json.md: no word about {missing:?}");
    }
    for (args, says) in
        [(&["films/film.mkv"][..], "is a name, expected a scope"), (&["songs"], "has no scope")]
    {
        let (status, out, err) = list(args);
        assert!(status == Some(2) && out.is_empty() && err.contains(says), "{args:?}: {err}");
    }
}

#[test]
fn a_name_over_many_paths_and_a_forwarder_that_dies() {
    let _alone = anabranch_net::testing::alone();
    let Some(bed) = Bed::up("publish", "") else { return };
    let begin = Clock::start();
    let paths = bed.get("got.mkv", &[], |_| {});
    let took = begin.now().since(Time::ZERO);
    assert!(is_same(&bed.path("film.mkv"), &bed.path("got.mkv")));
    let sources = |name: &str| paths.iter().filter(|(_, source)| source == name).count();
    assert!(sources("p1") >= 3 && sources("p2") >= 3, "three paths to each: {paths:?}");
    // The receiver's lines have 120 Mbit/s together; the best one alone has 50.
    let alone = Rate::from_bytes(50_000_000 / 8).time_for(FILM as u64);
    assert!(took < alone, "{took}, on the best line alone {alone}");

    let mut killed = false;
    let mut told = Vec::new();
    let paths = bed.get("again.mkv", &[], |line| {
        let done = line["done_bytes"].as_u64().unwrap_or(0);
        if line["event"] == "progress" && done > 4_000_000 && !killed {
            killed = true;
            bed.run(&["net", "kill", &bed.node("r2")]);
        }
        told.extend(line["note"].as_str().map(str::to_owned));
    });
    assert!(killed, "r2 died meanwhile");
    assert!(told.iter().any(|note| note == "the network has changed: 4 paths, 6 before"), "{told:?}");
    assert!(is_same(&bed.path("film.mkv"), &bed.path("again.mkv")));
    assert!(paths.iter().any(|(via, _)| !via.contains("r2")));

    // `net show` shows the programs that ended, the lines that are down, the remaining paths, the publishers
    // and the cache.
    let show = |more: &[&str]| {
        let output = bed.run(&[&["net", "show", &bed.name], more].concat());
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let transfer = ["--from", "a", "--to", "films/film.mkv"];
    let json = show(&[&transfer[..], &["--json"]].concat());
    let objects: Vec<Value> = json.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let of = |event: &str| objects.iter().filter(|object| object["event"] == event).collect::<Vec<_>>();
    let [domain] = of("domain")[..] else { panic!("{json}") };
    assert_eq!((&domain["live"], &domain["reporting"]), (&true.into(), &4.into()));
    let down: Vec<_> = of("line").into_iter().filter(|line| line["up"] == false).collect();
    assert!(down.len() == 3 && down.iter().all(|line| line["from"] == "r2" || line["to"] == "r2"), "{json}");
    assert_eq!(of("path").len(), 4);
    assert!(of("path").iter().all(|path| !path["nodes"].to_string().contains("r2")));
    let node = |name: &str| of("node").into_iter().find(|node| node["name"] == name).expect("a node").clone();
    for name in ["p1", "p2"] {
        assert_eq!(node(name)["publishes"], serde_json::json!(["films/film.mkv"]));
    }
    assert_eq!((&node("r1")["cache"], &node("r1")["ended"]), (&"64M".into(), &serde_json::json!([])));
    assert_eq!(node("r2")["ended"], serde_json::json!(["forward ended by SIGKILL"]));
    let svg = show(&[&transfer[..], &["--svg"]].concat());
    assert_eq!((svg.matches("stroke-dasharray").count(), svg.matches("<polyline").count()), (3, 4));
    let text = show(&[]);
    assert!(text.contains("4 of 5 forwarders report, 3 of the lines down"), "{text}");
    assert!(text.contains("r2  forwarder, forward ended by SIGKILL"), "{text}");
    let me = crate::common::program();
    let inside = bed.run(&["net", "exec", &bed.node("a"), "--", me, "net", "show", "--to", "p1"]);
    let inside = String::from_utf8_lossy(&inside.stdout).into_owned();
    assert!(inside.lines().filter(|line| line.starts_with("path ")).count() == 2, "{inside}");

    // The rendezvous is killed and started again. It knows all names at once, before any publisher has
    // renewed one.
    bed.run(&["net", "kill", &bed.node("rv")]);
    bed.run(&["net", "start", &bed.node("rv")]);
    let log = || String::from_utf8_lossy(&bed.run(&["net", "log", &bed.node("rv")]).stdout).into_owned();
    wait_until(20, || log().contains("took back 2 publications from /proc/"));
    bed.get("third.mkv", &[], |_| {});
    assert!(is_same(&bed.path("film.mkv"), &bed.path("third.mkv")));
}

/// All members have keys, which `net up` made. Users see no difference.
#[test]
fn a_domain_with_keyed_identifiers() {
    let Some(bed) = Bed::up("keyed", "identifiers = \"keyed\"\nepoch_s = 8\n") else { return };
    lists(&bed);
    let paths = bed.get("got.mkv", &[], |_| {});
    assert!(is_same(&bed.path("film.mkv"), &bed.path("got.mkv")));
    let of = |name: &str| paths.iter().filter(|(_, source)| source == name).count();
    assert!(of("p1") >= 3 && of("p2") >= 3, "three paths to each: {paths:?}");
    bed.run(&["net", "kill", &bed.node("r2")]);
    bed.run(&["net", "start", &bed.node("r2")]);
    bed.get("again.mkv", &[], |_| {});
    assert!(is_same(&bed.path("film.mkv"), &bed.path("again.mkv")));
    let me = crate::common::program();
    let show = bed.run(&["net", "exec", &bed.node("a"), "--", me, "net", "show", "--to", "p1"]);
    let show = String::from_utf8_lossy(&show.stdout).into_owned();
    assert!(show.contains("5 of 5 forwarders report"), "{show}");
    assert_eq!(show.lines().filter(|line| line.starts_with("path ")).count(), 3, "{show}");
}

/// The kernels of the receiver and of the source count the packets with and without the class's code point.
#[test]
fn a_class_marks_what_comes_to_both_ends() {
    if Command::new("nft").arg("--version").output().is_err() {
        return anabranch_net::testing::skip("there is no nft, which counts packets");
    }
    let class = "class.bulk = { policy = \"shortest\", paths = 1, dscp = \"le\" }\n";
    let Some(bed) = Bed::up("classes", class) else { return };
    let nft = |node: &str, rules: &str| {
        let output = bed.run(&["net", "exec", &bed.node(node), "--", "nft", rules]);
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    // Only packets of data are that long, and only requests go to the source's port.
    for (node, which) in [("a", "udp sport 7700 meta length > 1250"), ("p1", "udp dport 26227")] {
        let chain = "add table ip count; add chain ip count in { type filter hook input priority 0; }";
        let rule = |dscp: &str| format!("add rule ip count in {which} ip dscp {dscp} counter");
        nft(node, &format!("{chain}; {}; {}", rule("1"), rule("!= 1")));
    }
    // Returns the number of packets with the code point, and of those without.
    let counted = |node: &str| -> Vec<u64> {
        let list = nft(node, "list table ip count");
        let after = list.split("packets ").skip(1);
        after.filter_map(|rest| rest.split(' ').next()?.parse().ok()).collect()
    };
    bed.get("marked.mkv", &["--class", "bulk"], |_| {});
    assert!(is_same(&bed.path("film.mkv"), &bed.path("marked.mkv")));
    for (node, least) in [("a", FILM as u64 / 1_500), ("p1", 50)] {
        let [marked, others] = counted(node)[..] else { panic!("{node}: {:?}", counted(node)) };
        assert!(marked >= least && others == 0, "{node}: {marked} with it, {others} without");
    }
    let before = ["a", "p1"].map(|node| counted(node)[0]);
    bed.get("plain.mkv", &[], |_| {});
    let after = ["a", "p1"].map(counted);
    assert_eq!(after.each_ref().map(|counted| counted[0]), before, "none of what has no class");
    assert!(after.iter().all(|counted| counted[1] > 50), "{after:?}");
}
