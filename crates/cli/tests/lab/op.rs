//! `anabranch op` as processes: an agent behind a real device, and the commands that ask it.

use std::fs;
use std::process::{Command, Stdio};

use anabranch_net::testing;
use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::common::fetch::{Done, Running, run, spawn};
use crate::common::netns::Net;
use crate::common::{anabranch, wait_until};

/// One host with an agent.
struct Bed {
    net: Net,
    dir: TempDir,
}

impl Bed {
    fn new(test: &str) -> Option<Self> {
        Some(Self { net: Net::new(test, &["h"])?, dir: tempfile::tempdir().expect("a directory") })
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = anabranch();
        command.arg("op").args(words).arg("--state").arg(self.dir.path());
        self.net.inside("h", &command)
    }

    fn op(&self, words: &[&str]) -> Done {
        run(self.command(words))
    }

    fn agent(&self, more: &[&str]) -> Running {
        let words = ["agent", "--inside", "fn0=10.1.0.254/24", "--listen", "127.0.0.1:0", "--json"];
        let agent = spawn(self.command(&[&words, more].concat()));
        agent.wait_event(|event| event["event"] == "ready");
        agent
    }

    fn lines(&self, words: &[&str], event: &str) -> Vec<Value> {
        let done = self.op(words).expect(0);
        let lines = done.out.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(|line| line["event"] == event).collect()
    }
}

/// Whether the functions were built into the program.
fn has_functions(bed: &Bed) -> bool {
    let said = bed.op(&["fn", "run", "x", "firewall", "--inside", "10.1.0.1/24"]).err;
    if said.contains("was built without any") {
        testing::skip("packet functions: Rust has no target wasm32-unknown-unknown");
        return false;
    }
    assert!(said.contains("no agent carries functions here"), "{said}");
    true
}

#[test]
fn functions_run_are_looked_at_and_come_back_after_a_kill() {
    let Some(bed) = Bed::new("op") else { return };
    if !has_functions(&bed) {
        return;
    }
    let agent = bed.agent(&["--store", "redb", "--instances-max", "2"]);
    let second = bed.op(&["agent", "--inside", "fn1"]).expect(1);
    assert!(second.err.contains("another agent uses this directory"), "{}", second.err);
    let start = |name: &str, inside: &str| bed.op(&["fn", "run", name, "firewall", "--inside", inside]);
    start("a", "10.1.0.1/24").expect(0);
    assert!(start("a", "10.1.0.2/24").expect(1).err.contains("the name a is taken"));
    assert!(start("b", "10.1.0.1/24").expect(1).err.contains("the address 10.1.0.1 is taken"));
    start("b", "10.1.0.2/24").expect(0);
    assert!(start("c", "10.1.0.3/24").expect(1).err.contains("2 instances here, which is the limit"));
    let wrong = bed.op(&["fn", "run", "d", "limiter", "--inside", "10.1.0.4/24"]).expect(1);
    assert!(wrong.err.contains("which is the limit"), "{}", wrong.err);
    bed.op(&["fn", "rm", "b"]).expect(0);
    assert!(bed.op(&["fn", "rm", "b"]).expect(2).err.contains("there is no instance `b` here"));
    let wrong = bed.op(&["fn", "run", "d", "limiter", "--inside", "10.1.0.4/24"]).expect(2);
    assert!(wrong.err.contains("a limiter needs a rate"), "{}", wrong.err);
    let wrong =
        bed.op(&["fn", "run", "d", "firewall", "--inside", "10.1.0.4/24", "--set", "allow=x"]).expect(2);
    assert!(wrong.err.contains("allow x: this is no service"), "{}", wrong.err);
    let other = bed.op(&["fn", "move", "a", "--to", "nowhere"]).expect(2);
    assert!(other.err.contains("there is no host `nowhere`"), "{}", other.err);

    // A packet of this host goes through its function.
    let mut packet = Command::new("bash");
    packet.args(["-c", "echo x > /dev/udp/10.1.0.1/9"]);
    assert!(bed.net.inside("h", &packet).status().expect("bash").success());
    let console = || bed.lines(&["fn", "console", "a", "--json"], "console").remove(0);
    wait_until(20, || console()["came"].as_u64() > Some(0));
    assert_eq!(console()["report"]["flows"], 1, "{}", console());

    agent.signal(Signal::SIGKILL);
    let _ = agent.end();
    assert!(bed.op(&["fn", "ls"]).expect(4).err.contains("no agent carries functions here"));
    let agent = bed.agent(&["--store", "redb"]);
    let all = bed.lines(&["fn", "ls", "--json"], "instance");
    assert_eq!((all.len(), &all[0]["name"], &all[0]["state"]), (1, &"a".into(), &"runs".into()));
    agent.signal(Signal::SIGTERM);
    agent.end().expect(0);
}

#[test]
fn words_that_make_no_sense_are_refused_by_op() {
    let dir = tempfile::tempdir().expect("a directory");
    let op = |words: &[&str]| {
        let mut command = anabranch();
        command.arg("op").args(words).arg("--state").arg(dir.path().join("s"));
        command.stdin(Stdio::null());
        run(command)
    };
    let (garbage, large) = (dir.path().join("garbage.wasm"), dir.path().join("large.wasm"));
    fs::write(&garbage, "no module").expect("written");
    fs::write(&large, vec![0; (1 << 20) + 1]).expect("written");
    let path = |path: &std::path::Path| path.to_str().expect("UTF-8").to_owned();
    for (words, said) in [
        (&["fn", "run", "n", "firewall", "--inside", "10.1.0.1"][..], "no address with a prefix"),
        (&["fn", "run", "n", "firewall", "--inside", "10.1.0.1/24", "--set", "x"], "KEY=VALUE"),
        (&["fn", "run", "n", "firewall", "--inside", "10.1.0.1/24", "--gateway", "10.2.0.1"], "--outside"),
        (&["fn", "run", "n", "none.wasm", "--inside", "10.1.0.1/24"], "none.wasm"),
        (&["fn", "run", "n", "router", "--inside", "10.1.0.1/24"], "there is no function `router`"),
        (&["agent", "--inside", "a@"], "is no device"),
        (&["fn", "storm", "--count", "0"], "0"),
        (&["trust", "b", "192.0.2.1"], "anabranch-pair-"),
    ] {
        let done = op(words).expect(2);
        assert!(done.err.contains(said), "{words:?}: {}", done.err);
    }
    let line = op(&["pair", "x"]).expect(0).out;
    assert!(line.starts_with("anabranch-pair-1:"), "{line}");
    op(&["pair", "x"]).expect(2);
    for module in [&garbage, &large] {
        if nix::unistd::geteuid().is_root() {
            let said = op(&["fn", "storm", "--count", "1", "--function", &path(module)]).err;
            assert!(said.contains("this is no function") || said.contains("TUN device"), "{said}");
        }
    }
}
