//! A source as a process, and other helpers that several tests need.

#![allow(dead_code, reason = "each executable uses another part of this")]

pub(crate) mod disk;
pub(crate) mod fetch;
#[cfg(target_os = "linux")]
pub(crate) mod held;
pub(crate) mod netns;

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use self::fetch::{Done, spawn};

/// Returns the path of the program under test. It runs in parallel with other tests, except for those that
/// are [`anabranch_net::testing::alone`].
pub(crate) fn program() -> &'static str {
    anabranch_net::testing::side_by_side();
    env!("CARGO_BIN_EXE_anabranch")
}

/// Makes a command that runs the program under test.
pub(crate) fn anabranch() -> Command {
    let mut command = Command::new(program());
    command.env("XDG_CACHE_HOME", "/dev/null").stdin(Stdio::null());
    command
}

/// A process of `anabranch serve --json`, which ends when this is dropped.
pub(crate) struct Server {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
    /// The offers that it printed, in the order of its arguments.
    pub(crate) offers: Vec<Value>,
    /// The first address at which it listens.
    pub(crate) address: SocketAddr,
    /// All addresses at which it listens.
    pub(crate) addresses: Vec<SocketAddr>,
}

impl Server {
    /// Serves `path` at `listen`.
    pub(crate) fn start_at(path: &Path, listen: &str, more: &[&str]) -> Self {
        let mut command = anabranch();
        command.arg("serve").arg(path).args(["--json", "--no-cache", "--listen", listen]).args(more);
        Self::run(command)
    }

    /// Runs a command that is `anabranch serve --json …`, and waits until it listens.
    #[expect(clippy::zombie_processes, reason = "dropping it waits for it")]
    pub(crate) fn run(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("a source");
        let mut out = BufReader::new(child.stdout.take().expect("its output"));
        let mut offers = Vec::new();
        loop {
            let mut line = String::new();
            assert!(out.read_line(&mut line).expect("a line") > 0, "the source ended");
            let event: Value = serde_json::from_str(&line).expect("JSON");
            if event["event"] == "listening" {
                let all = event["addresses"].as_array().expect("addresses").iter();
                let addresses: Vec<SocketAddr> =
                    all.map(|a| a.as_str().expect("an address").parse().expect("an address")).collect();
                return Self { child, out, offers, address: addresses[0], addresses };
            }
            offers.push(event);
        }
    }

    /// Returns the process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Serves `path` on a free port of loopback.
    pub(crate) fn start(path: &Path) -> Self {
        Self::start_at(path, "127.0.0.1:0", &[])
    }

    /// Returns the URI of the first offer.
    pub(crate) fn uri(&self) -> String {
        self.offers.first().expect("an offer")["uri"].as_str().expect("a URI").to_owned()
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).expect("a signal");
    }

    /// Ends the source with Ctrl-C, and returns its summary.
    pub(crate) fn end(mut self) -> Value {
        self.signal(Signal::SIGINT);
        let lines: Vec<String> = self.out.by_ref().lines().map(|line| line.expect("a line")).collect();
        assert!(self.child.wait().expect("its end").success());
        let summary: Value = serde_json::from_str(lines.last().expect("a summary")).expect("JSON");
        assert_eq!((&summary["event"], &summary["exit"]), (&"summary".into(), &0.into()));
        summary
    }
}

/// Runs `anabranch serve` without `--json` until it has printed its offers, and returns its output.
pub(crate) fn serve_for_people(path: &Path, more: &[&str]) -> Done {
    let mut command = anabranch();
    command.arg("serve").arg(path).args(["--listen", "127.0.0.1:0", "--no-cache"]).args(more);
    let running = spawn(command);
    // The URIs come after this line, possibly with other lines in between.
    running.wait_said("Fetch with: anabranch get");
    running.signal(Signal::SIGTERM);
    running.end().expect(0)
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Makes bytes that do not repeat.
pub(crate) fn noise(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    blake3::Hasher::new().update(&len.to_le_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

/// Waits until `done` returns true, for at most `secs` seconds.
pub(crate) fn wait_until(secs: u64, done: impl FnMut() -> bool) {
    wait_or_say(secs, done, String::new);
}

/// Waits as [`wait_until`] does. If `done` never returns true, the failure has what `says` returns.
pub(crate) fn wait_or_say(secs: u64, mut done: impl FnMut() -> bool, says: impl Fn() -> String) {
    for _ in 0..secs * 100 {
        if done() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("not within {secs} s {}", says());
}
