//! `anabranch daemon` as a process: its output and exit status, and what a kill leaves.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::common::fetch::{Running, checksum, run, spawn};
use crate::common::{anabranch, noise, wait_until};
use crate::peers::site::{Site, gone};

/// A daemon in a directory of its own.
struct Bed {
    dir: TempDir,
    running: Running,
    address: String,
}

/// Makes a command that runs a daemon in `dir`.
fn command(dir: &Path, more: &[&str]) -> std::process::Command {
    let mut command = anabranch();
    command.args(["daemon", "--json", "--listen", "127.0.0.1:0", "--dir"]).arg(dir.join("files"));
    command.arg("--state").arg(dir.join("state")).args(more);
    command
}

/// Calls a method at an address, and returns the answer and its status.
fn ask(address: &str, token: &str, method: &str, params: &Value) -> (Value, String) {
    let mut params = params.as_array().expect("a list of parameters").clone();
    params.insert(0, json!(format!("token:{token}")));
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
    let mut stream = TcpStream::connect(address).expect("a connection");
    let head = "POST /jsonrpc HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length:";
    write!(stream, "{head} {}\r\n\r\n{body}", body.len()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a body");
    let status = head.split(' ').nth(1).expect("a status").to_owned();
    (serde_json::from_str(body).expect("JSON"), status)
}

impl Bed {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        fs::create_dir(dir.path().join("files")).expect("made");
        Self::again(dir)
    }

    /// Starts a daemon where another one was.
    fn again(dir: TempDir) -> Self {
        let running = spawn(command(dir.path(), &[]));
        let listening = running.wait_event(|event| event["event"] == "listening");
        let address = listening["addresses"][0].as_str().expect("an address").to_owned();
        Self { dir, running, address }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn token(&self) -> String {
        let token = fs::read_to_string(self.path("state/token")).expect("a token");
        token.trim().to_owned()
    }

    fn call(&self, method: &str, params: Value) -> Value {
        let (answer, _) = ask(&self.address, &self.token(), method, &params);
        assert_eq!(answer.get("error"), None, "{method}");
        answer["result"].clone()
    }

    fn done_bytes(&self, gid: &Value) -> u64 {
        let job = self.call("aria2.tellStatus", json!([gid]));
        job["completedLength"].as_str().expect("a text").parse().expect("a number")
    }

    /// Kills the daemon (SIGKILL), and returns its directory.
    fn kill(self) -> TempDir {
        self.running.signal(Signal::SIGKILL);
        let _ = self.running.end();
        self.dir
    }
}

#[test]
fn a_killed_daemon_goes_on_where_it_was() {
    let content = noise(6_000_000);
    let sites = [Site::slow(&content, 1_000_000), Site::slow(&content, 1_000_000)];
    let bed = Bed::new();
    let options = json!({"checksum": checksum(&content).trim_start_matches("--checksum=")});
    let uris = sites.each_ref().map(Site::url);
    let gid = bed.call("aria2.addUri", json!([uris, options]));
    let paused = bed.call("aria2.addUri", json!([[sites[0].url()], {"pause": "true", "out": "other"}]));
    wait_until(30, || bed.done_bytes(&gid) > 1_000_000);
    let bed = Bed::again(bed.kill());
    assert_eq!(bed.call("aria2.tellActive", json!([["gid"]])), json!([{"gid": gid}]));
    assert_eq!(bed.call("aria2.tellWaiting", json!([0, 9, ["gid"]])), json!([{"gid": paused}]));
    wait_until(30, || bed.done_bytes(&gid) > 2_000_000);
    // A request ends it in order, and the next one still knows the download.
    assert_eq!(bed.call("aria2.shutdown", json!([])), "OK");
    let Bed { dir, running, .. } = bed;
    let end = running.end().expect(0);
    assert_eq!(end.summary()["exit"], 0);
    let bed = Bed::again(dir);
    let done = bed.running.wait_event(|event| event["event"] == "download" && event["status"] == "complete");
    assert_eq!((&done["gid"], done["path"].as_str().map(Path::new)), (&gid, Some(&*bed.path("files/f.bin"))));
    assert!(fs::read(bed.path("files/f.bin")).expect("a file") == content);
    bed.running.signal(Signal::SIGTERM);
    bed.running.end().expect(0);
    let asked: u64 = sites.iter().map(Site::body_bytes).sum();
    assert!(asked < 2 * content.len() as u64, "what had come was not fetched again: {asked}");
}

/// The lines of apt-fast and of yt-dlp, with an input file and without one.
#[test]
fn a_command_line_of_aria2c_fetches_its_files() {
    let dir = tempfile::tempdir().expect("a directory");
    let content = noise(300_000);
    let sites = [Site::good(&content), Site::good(&content)];
    let list = dir.path().join("list");
    let hash = checksum(&content).replace("--checksum=", "checksum=");
    let [a, b] = sites.each_ref().map(Site::url);
    fs::write(&list, format!("{a}\t{b}\n {hash}\n out=x.deb\n{a}\n out=sub/y.deb\n")).expect("written");
    let aria2c = |words: &[&str]| {
        let mut command = anabranch();
        command.args(["daemon", "aria2c"]).args(words).current_dir(dir.path());
        run(command)
    };
    let list = list.to_str().expect("text");
    let options = ["--no-conf", "-c", "-j", "20", "-x", "10", "-s10", "--min-split-size=1M", "-m0"];
    let end =
        aria2c(&[&options[..], &["-i", list, "--header", "Accept: */*", "-d", "new"]].concat()).expect(0);
    assert_eq!(end.out.lines().count(), 2, "{}", end.out);
    for name in ["new/x.deb", "new/sub/y.deb"] {
        assert!(fs::read(dir.path().join(name)).expect(name) == content, "{name}");
    }
    let fields = |site: &Site| site.seen().iter().filter(|one| one.field("accept") == Some("*/*")).count();
    assert!(fields(&sites[0]) > 0);
    aria2c(&["--dir", ".", "--out", "v.mp4", "-x16", "--auto-file-renaming=false", "-q", "--", &a]).expect(0);
    assert!(fs::read(dir.path().join("v.mp4")).expect("a file") == content);
    // What is there with the right hash is kept, and another file is not replaced.
    aria2c(&["-o", "v.mp4", &format!("--{hash}"), &a]).expect(0);
    fs::write(dir.path().join("v.mp4"), "mine").expect("written");
    let end = aria2c(&["-o", "v.mp4", &format!("--{hash}"), &a]).expect(6);
    assert!(end.err.contains("allow-overwrite"), "{}", end.err);
    assert!(aria2c(&["-v"]).expect(0).out.starts_with("aria2 version 1.37.0 (anabranch "));
    assert!(aria2c(&["--help"]).expect(0).out.contains("apt-fast"));
    for (words, code, why) in [
        (&["--no-such"][..], 2, "no option --no-such"),
        (&["-q"], 2, "no URI is named"),
        (&["magnet:?xt=urn:btih:0"], 2, "magnet"),
        (&["-i", "none"], 2, "cannot read none"),
    ] {
        let end = aria2c(words).expect(code);
        assert!(end.err.contains(why), "{}", end.err);
    }
}

#[test]
fn what_is_wrong_is_said_before_anything_is_done() {
    let bed = Bed::new();
    let mode = fs::metadata(bed.path("state/token")).expect("made").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let second = run(command(bed.dir.path(), &[])).expect(1);
    assert!(second.summary()["error"].as_str().expect("a sentence").contains("another daemon uses"));
    let other = tempfile::tempdir().expect("a directory");
    let taken = run(command(other.path(), &["--dir", ".", "--listen", &bed.address])).expect(2);
    let said = taken.summary()["error"].as_str().expect("a sentence").to_owned();
    assert!(said.contains("cannot be used multiple times"), "{said}");
    for (more, why) in [
        (&["--limit", "1M@08:00"][..], "time of day"),
        (&["--limit", "fast"], "rate"),
        (&["-j", "0"], "1..=500"),
        (&["--via", "eth0:price=2"], "expected backup"),
        (&["--via", "eth0:backup"], "every link is a backup"),
        (&[], "files: No such file"),
    ] {
        let end = run(command(other.path(), more)).expect(2);
        let said = end.summary()["error"].as_str().expect("a sentence").to_owned();
        assert!(said.contains(why), "{said}");
    }
    fs::create_dir(other.path().join("files")).expect("made");
    fs::write(other.path().join("state/token"), "x y").expect("written");
    let end = run(command(other.path(), &[])).expect(2);
    assert!(end.summary()["error"].as_str().expect("a sentence").contains("it has no token"));
    bed.running.signal(Signal::SIGINT);
    bed.running.end().expect(0);
}

/// aria2 itself, which ends when this is dropped.
struct Aria2(std::process::Child);

impl Drop for Aria2 {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts aria2 with a secret at a free port; `None` if it is not installed.
fn aria2(dir: &Path) -> Option<(Aria2, String)> {
    let address = gone();
    let mut command = std::process::Command::new("aria2c");
    command.args(["--no-conf", "--enable-rpc", "--rpc-secret=s", "--quiet", "--dir"]).arg(dir);
    command.arg(format!("--rpc-listen-port={}", address.port()));
    let child = Aria2(command.spawn().ok()?);
    wait_until(20, || TcpStream::connect(address).is_ok());
    Some((child, address.to_string()))
}

/// Whether `ours` has all keys of `theirs`, with values of the same types.
fn has_the_shape(ours: &Value, theirs: &Value) -> bool {
    match (ours, theirs) {
        (Value::Object(ours), Value::Object(theirs)) => {
            theirs.iter().all(|(key, value)| ours.get(key).is_some_and(|own| has_the_shape(own, value)))
        }
        (Value::Array(ours), Value::Array(theirs)) => match (ours.first(), theirs.first()) {
            (Some(own), Some(other)) => has_the_shape(own, other),
            _ => ours.is_empty() == theirs.is_empty(),
        },
        _ => std::mem::discriminant(ours) == std::mem::discriminant(theirs),
    }
}

/// The options that aria2 shows and this daemon does not know, as they are about its own files and output.
const NOT_HERE: [&str; 33] = [
    "ca-certificate",
    "rpc-allow-origin-all",
    "rpc-listen-all",
    "rpc-listen-port",
    "rpc-max-request-size",
    "conf-path",
    "console-log-level",
    "daemon",
    "deferred-input",
    "dht-file-path",
    "dht-file-path6",
    "dht-listen-port",
    "dht-message-timeout",
    "dscp",
    "enable-color",
    "enable-dht",
    "enable-dht6",
    "event-poll",
    "help",
    "human-readable",
    "listen-port",
    "min-tls-version",
    "netrc-path",
    "no-conf",
    "peer-agent",
    "peer-id-prefix",
    "quiet",
    "rlimit-nofile",
    "show-console-readout",
    "show-files",
    "stderr",
    "summary-interval",
    "truncate-console-readout",
];

/// Each method of AriaNg, with parameters that are right and wrong, at both.
#[test]
fn answers_are_those_of_aria2() {
    let bed = Bed::new();
    let Some((_aria2, theirs)) = aria2(&bed.path("files")) else {
        return anabranch_net::testing::skip("there is no aria2c");
    };
    let token = bed.token();
    let uris = json!(["http://127.0.0.1:1/f.iso", "http://127.0.0.1:2/f.iso"]);
    let gid = "aaaaaaaaaaaaaaaa";
    let ours_only =
        |method: &str| matches!(method, "aria2.saveSession" | "aria2.addTorrent" | "aria2.getVersion");
    let mut methods = std::collections::BTreeSet::new();
    for (method, params) in [
        ("aria2.addUri", json!([uris, {"pause": "true", "gid": gid}])),
        ("aria2.addUri", json!([[]])),
        ("aria2.addUri", json!(["http://127.0.0.1:1/f"])),
        ("aria2.addUri", json!([uris, 5])),
        ("aria2.addUri", json!([uris, {}, -1])),
        ("aria2.addUri", json!([uris, {"pause": "maybe"}])),
        ("aria2.addUri", json!([uris, {"checksum": "sha-256=zz"}])),
        ("aria2.addTorrent", json!([])),
        ("aria2.addTorrent", json!(["ZDg6"])),
        ("aria2.addMetalink", json!([])),
        ("aria2.tellStatus", json!([gid])),
        ("aria2.tellStatus", json!(["aaaa", ["gid", "status"]])),
        ("aria2.tellStatus", json!(["0123"])),
        ("aria2.tellStatus", json!(["zz"])),
        ("aria2.tellStatus", json!([5])),
        ("aria2.getUris", json!([gid])),
        ("aria2.getFiles", json!([gid])),
        ("aria2.getServers", json!([gid])),
        ("aria2.getPeers", json!([gid])),
        ("aria2.getOption", json!([gid])),
        ("aria2.getOption", json!(["0123"])),
        ("aria2.pause", json!([gid])),
        ("aria2.forcePause", json!([gid])),
        ("aria2.pauseAll", json!([])),
        ("aria2.forcePauseAll", json!([])),
        ("aria2.changePosition", json!([gid, 0, "POS_SET"])),
        ("aria2.changePosition", json!([gid, 0, "POS_NO"])),
        ("aria2.changePosition", json!([gid, "0", "POS_SET"])),
        ("aria2.changeUri", json!([gid, 1, ["http://127.0.0.1:1/f.iso"], ["http://127.0.0.1:3/f.iso"]])),
        ("aria2.changeUri", json!([gid, 2, [], []])),
        ("aria2.changeUri", json!([gid, 0, [], []])),
        ("aria2.changeOption", json!([gid, {"max-download-limit": "100K"}])),
        ("aria2.changeOption", json!([gid, {"split": "0"}])),
        ("aria2.changeOption", json!([gid])),
        ("aria2.getGlobalOption", json!([])),
        ("aria2.changeGlobalOption", json!([{"max-overall-download-limit": "1M"}])),
        ("aria2.changeGlobalOption", json!([{"max-overall-download-limit": "x"}])),
        ("aria2.getGlobalStat", json!([])),
        ("aria2.getVersion", json!([])),
        ("aria2.getSessionInfo", json!([])),
        ("aria2.saveSession", json!([])),
        ("aria2.tellActive", json!([["gid"]])),
        ("aria2.tellWaiting", json!([0, 9])),
        ("aria2.tellWaiting", json!([-1, 9, ["gid"]])),
        ("aria2.tellWaiting", json!([0])),
        ("aria2.tellStopped", json!([0, 9])),
        ("aria2.tellStopped", json!([0, -1])),
        ("aria2.removeDownloadResult", json!([gid])),
        ("aria2.remove", json!(["0123"])),
        ("aria2.forceRemove", json!(["0123"])),
        ("aria2.unpause", json!(["0123"])),
        ("aria2.unpause", json!([gid])),
        ("aria2.unpauseAll", json!([])),
        ("aria2.purgeDownloadResult", json!([])),
        ("aria2.noSuchMethod", json!([])),
        ("aria2.shutdown", json!([])),
        ("aria2.forceShutdown", json!([])),
    ] {
        methods.insert(method);
        let (own, own_status) = ask(&bed.address, &token, method, &params);
        let (mut other, other_status) = ask(&theirs, "s", method, &params);
        if let Some(options) = other["result"].as_object_mut() {
            NOT_HERE.iter().for_each(|name| drop(options.remove(*name)));
        }
        assert!(ours_only(method) || own_status == other_status, "{method} {params}: {own} {other}");
        match (own.get("error"), other.get("error")) {
            (Some(own), Some(other)) => {
                assert!(ours_only(method) || own == other, "{method} {params}: {own} {other}");
            }
            (own_error, _) => assert!(
                own_error.is_none() && (ours_only(method) || has_the_shape(&own["result"], &other["result"])),
                "{method} {params}: {own} {other}"
            ),
        }
    }
    // All 33, and one that there is not.
    assert_eq!(methods.len(), 34, "{methods:?}");
}
