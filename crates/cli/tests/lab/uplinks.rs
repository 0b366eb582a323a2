//! Tests of `anabranch uplinks` as an administrator runs it. They need root; without it, they say so and
//! pass.
#![cfg(target_os = "linux")]

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Output, Stdio};

use anabranch_net::netlink::{Netlink, PathManager};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::common::anabranch;
use crate::kernel::world;

fn uplinks(dir: &Path, words: &str) -> Output {
    let words = words.split(' ').filter(|word| !word.is_empty());
    anabranch().arg("uplinks").args(words).arg("--state-dir").arg(dir).output().expect("it runs")
}

/// Starts the daemon, and waits until both uplinks are active.
fn start(dir: &Path) -> Child {
    let mut command = anabranch();
    command.arg("uplinks").args(["--json", "--via", "up1", "--via", "up2:backup", "--state-dir"]).arg(dir);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("it runs");
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok);
    let mut lines = lines.map(|line| serde_json::from_str::<Value>(&line).expect("JSON"));
    let is_last = |line: &Value| line["event"] == "link" && line["name"] == "up2";
    let line = lines.find(is_last).expect("up2 is reported");
    assert_eq!(
        (&line["state"], &line["why"]),
        (&"backup".into(), &"it is to be a backup, and up1 works".into())
    );
    std::thread::spawn(move || lines.for_each(drop));
    child
}

fn signal(mut child: Child, signal: Signal) -> Option<i32> {
    kill(Pid::from_raw(child.id().cast_signed()), signal).expect("it runs");
    child.wait().expect("it ends").code()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

#[test]
fn a_daemon_begins_tells_and_puts_back() {
    let day = || {
        let Some(_hosts) = world() else { return };
        let place = tempfile::tempdir().expect("a directory");
        let dir = place.path().join("state");
        let state = || {
            let netlink = Netlink::open().expect("netlink");
            let endpoints =
                PathManager::open().and_then(|manager| manager.endpoints()).expect("the endpoints");
            (netlink.rules().expect("the rules"), netlink.routes().expect("the routes"), endpoints)
        };
        let before = state();
        let planned = uplinks(&dir, "--via up1 --via up2:backup --dry-run");
        let lines = text(&planned.stdout);
        assert!(lines.contains("mptcp endpoint add 10.2.0.1 dev up2 subflow backup\n"), "{planned:?}");
        assert_eq!(state(), before, "a dry run changes nothing");
        let none = uplinks(&dir, "status");
        assert_eq!(none.status.code(), Some(1));
        assert!(text(&none.stderr).contains("no daemon runs in this network namespace"), "{none:?}");
        assert_eq!(uplinks(&dir, "--via up1:cap=1GB/day").status.code(), Some(2));

        let child = start(&dir);
        assert_eq!(state().2.len(), 2);
        let status = uplinks(&dir, "status --json");
        let status = text(&status.stdout);
        let status: Value = serde_json::from_str(status.lines().next().expect("a line")).expect("JSON");
        let links = status["links"].as_array().expect("links");
        assert_eq!(links.len(), 2);
        assert_eq!(links[1]["addresses"][0]["flags"], "subflow backup");
        assert_eq!(links[1]["addresses"][0]["gateway"], "10.2.0.2");
        let picture = text(&uplinks(&dir, "status").stdout);
        assert!(picture.contains("up2: it is to be a backup, and up1 works\n"), "{picture}");
        let second = uplinks(&dir, "");
        assert!(text(&second.stderr).contains("another program manages the links"), "{second:?}");
        assert_eq!(signal(child, Signal::SIGTERM), Some(0));
        assert_eq!(state(), before);

        assert_eq!(signal(start(&dir), Signal::SIGKILL), None);
        assert_eq!(state().2.len(), 2);
        let put_back = uplinks(&dir, "clean");
        assert!(text(&put_back.stdout).contains("mptcp endpoint del 10.2.0.1 dev up2\n"), "{put_back:?}");
        assert_eq!(state(), before);
    };
    let ended = std::thread::spawn(day).join();
    assert!(ended.is_ok(), "the day ended badly");
}
