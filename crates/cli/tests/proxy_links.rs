//! `anabranch proxy` between two hosts that two emulated links join: one download takes both, and goes on
//! when one of them dies. Needs root and `/dev/net/tun`; says so and passes without.
#![cfg(target_os = "linux")]

mod common;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use common::{anabranch, noise};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

/// Two links towards `f.tx`, which is the host with the links.
const TWO_LINKS: &str = r#"
title = "Two links"
duration = "20 s"

[link.up]
rate = "100 Mbit/s"

[link.a]
rate = "20 Mbit/s"

[link.b]
rate = "20 Mbit/s"

[flow.f]
paths = [{ via = ["up"], back = ["a"], rtt = "20 ms" }, { via = ["up"], back = ["b"], rtt = "20 ms" }]
"#;
/// Takes 1.6 s over both links.
const BYTES: usize = 8_000_000;
/// The address of `f.rx`, where the server and the origin are.
const SERVER: &str = "10.1.255.1";

/// Two hosts that are up, with a server on one, a client on the other, and an origin beside the server.
struct Bed {
    dir: TempDir,
    name: String,
    content: Vec<u8>,
    server: String,
    socks: String,
    /// The URL of the film.
    origin: String,
    running: Vec<Child>,
}

impl Bed {
    /// None where it cannot be.
    fn new(name: &str) -> Option<Self> {
        let mut bed = Self::without_client(name)?;
        bed.client(&[]);
        Some(bed)
    }

    /// Starts a client with these options besides.
    fn client(&mut self, more: &[&str]) {
        let to = self.server.clone();
        let all =
            ["proxy", "client", "--server", &to, "--pair-file", "pair", "--socks", "127.0.0.1:0", "--json"];
        self.socks = self.start("tx", &[&all, more].concat(), "address");
    }

    fn without_client(name: &str) -> Option<Self> {
        if let Err(e) = lab::linux::testbed::allowed() {
            net::testing::refused_device(format!("the proxy between hosts: {e}"));
            return None;
        }
        let name = format!("{name}-{}", std::process::id());
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(dir.path().join(format!("{name}.toml")), TWO_LINKS).expect("written");
        let content = noise(BYTES);
        fs::write(dir.path().join("film"), &content).expect("written");
        let mut bed = Self {
            dir,
            name,
            content,
            server: String::new(),
            socks: String::new(),
            origin: String::new(),
            running: Vec::new(),
        };
        let up = bed.lab(&["up", &bed.name.clone()]).output().expect("it runs");
        assert!(up.status.success(), "{up:?}");
        let paired = bed.own(&["proxy", "pair"]).output().expect("it runs");
        assert!(paired.status.success(), "{paired:?}");
        fs::write(bed.dir.path().join("pair"), paired.stdout).expect("written");
        let server = ["proxy", "server", "--listen", "0.0.0.0:0", "--allow", "127.0.0.0/8", "--json"];
        let port = bed.start("rx", &server, "address").rsplit(':').next().expect("a port").to_owned();
        let http = ["serve", "film", "--http", "127.0.0.1:0", "--listen", "127.0.0.1:0", "--json"];
        bed.origin = bed.start("rx", &http, "http");
        bed.server = format!("{SERVER}:{port}");
        Some(bed)
    }

    fn own(&self, args: &[&str]) -> Command {
        let mut command = anabranch();
        command.current_dir(self.dir.path()).env("STATE_DIRECTORY", self.dir.path()).args(args);
        command
    }

    fn lab(&self, args: &[&str]) -> Command {
        self.own(&[&["lab"], args].concat())
    }

    /// A program on a host.
    fn on(&self, host: &str, program: &[&str]) -> Command {
        self.lab(&[&["exec", &format!("{}/f.{host}", self.name), "--"], program].concat())
    }

    /// Starts a command of ours on a host; the first thing that it says with this key.
    fn start(&mut self, host: &str, args: &[&str], key: &'static str) -> String {
        let program = [&[env!("CARGO_BIN_EXE_anabranch")], args].concat();
        let mut child = self.on(host, &program).stdout(Stdio::piped()).spawn().expect("it runs");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok);
        let mut said = lines.filter_map(move |line| {
            let line: Value = serde_json::from_str(&line).ok()?;
            line[key].as_str().or(line[key][0].as_str()).map(str::to_owned)
        });
        let first = said.next().expect("where it listens");
        // What it says later is for nobody.
        std::thread::spawn(move || said.for_each(drop));
        self.running.push(child);
        first
    }

    /// Fetches the film through the proxy, as a program on the host with the links does.
    fn curl(&self) -> Child {
        let proxy = format!("socks5h://{}", self.socks);
        let args = ["curl", "-sS", "--max-time", "60", "-x", &proxy, "-o", "got", &self.origin];
        self.on("tx", &args).spawn().expect("it runs")
    }

    /// What `ip` says on a host.
    fn ip(&self, host: &str, arguments: &str) -> String {
        let program: Vec<_> = ["ip"].into_iter().chain(arguments.split_whitespace()).collect();
        self.says(host, &program)
    }

    fn says(&self, host: &str, program: &[&str]) -> String {
        let done = self.on(host, program).output().expect("it runs");
        assert!(done.status.success(), "{program:?}: {done:?}");
        String::from_utf8(done.stdout).expect("text")
    }

    /// From now on nothing passes between the server and this address of the client, and nobody is told.
    fn silence(&self, address: &str) {
        for direction in ["from", "to"] {
            self.ip("rx", &format!("rule add {direction} {address} blackhole priority 1"));
        }
    }

    fn restore(&self, address: &str) {
        for direction in ["from", "to"] {
            self.ip("rx", &format!("rule del {direction} {address} blackhole priority 1"));
        }
    }

    /// How many connections have a subflow from this address that has been established.
    fn subflows(&self, address: &str) -> usize {
        let all = self.says("tx", &["ss", "-tHn", "state", "established", "src", address]);
        all.lines().count()
    }

    fn is_here(&self) -> bool {
        fs::read(self.dir.path().join("got")).expect("a file") == self.content
    }

    /// Takes it down; the bytes that each link carried.
    fn carried(mut self) -> impl Fn(&str) -> u64 {
        let down = self.down();
        let state: Value = serde_json::from_slice(&down.stdout).expect("JSON");
        move |link| {
            let links = state["links"].as_array().expect("a list");
            let link = links.iter().find(|row| row["name"] == link).expect("a link");
            link["delivered_bytes"].as_u64().expect("a count")
        }
    }

    fn down(&mut self) -> Output {
        let down = self.lab(&["down", &self.name, "--json"]).output().expect("it runs");
        for mut child in self.running.drain(..) {
            let _ = child.wait();
        }
        down
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        if !self.running.is_empty() {
            self.down();
        }
    }
}

/// Bytes of a file that grows.
fn len(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |data| data.len())
}

#[test]
fn one_download_of_a_program_takes_both_links() {
    let Some(bed) = Bed::new("proxy-both") else { return };
    assert!(bed.curl().wait().expect("it ends").success());
    assert!(bed.is_here());
    let carried = bed.carried();
    let (a, b) = (carried("a"), carried("b"));
    println!("{a} bytes by one link, {b} by the other");
    assert!(a.min(b) > BYTES as u64 / 4 && a + b > BYTES as u64, "{a} {b}");
}

#[test]
fn a_download_goes_on_when_a_link_dies() {
    let Some(bed) = Bed::new("proxy-dies") else { return };
    let mut curl = bed.curl();
    let got = bed.dir.path().join("got");
    common::wait_until(60, || len(&got) > BYTES as u64 / 4 || curl.try_wait().expect("a status").is_some());
    let devices = bed.on("tx", &["ip", "-o", "address"]).output().expect("it runs");
    let devices = String::from_utf8(devices.stdout).expect("text");
    let device = devices.lines().find(|line| line.contains("10.1.1.1/")).expect("the second address");
    let device = device.split_whitespace().nth(1).expect("a name");
    assert!(curl.try_wait().expect("a status").is_none(), "the link died too late");
    let down = bed.on("tx", &["ip", "link", "set", "dev", device, "down"]).status().expect("it runs");
    assert!(down.success());
    assert!(curl.wait().expect("it ends").success());
    assert!(bed.is_here());
    let carried = bed.carried();
    let (a, b) = (carried("a"), carried("b"));
    assert!(a > b, "the one that lives carried {a} bytes, the other {b}");
}

#[test]
fn the_kernel_knows_the_links_as_long_as_a_client_lives_and_after_a_kill_until_the_next() {
    let Some(mut bed) = Bed::without_client("proxy-via") else { return };
    let known = |bed: &Bed| bed.ip("tx", "mptcp endpoint") + &bed.ip("tx", "mptcp limits");
    let before = known(&bed);
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        bed.client(&["--via", "p0", "--via", "p1:backup"]);
        common::wait_until(20, || {
            let says = known(&bed);
            says.contains("10.1.0.1 id")
                && says.lines().any(|line| line.contains("p1") && line.contains("backup"))
        });
        let mut client = bed.running.pop().expect("a client");
        kill(Pid::from_raw(client.id().cast_signed()), signal).expect("it lives");
        client.wait().expect("it ends");
        assert_eq!(known(&bed) == before, signal == Signal::SIGTERM);
    }
    bed.client(&[]);
    common::wait_until(20, || known(&bed) == before);
}

#[test]
fn a_trunk_begins_over_the_link_that_answers() {
    let Some(mut bed) = Bed::without_client("proxy-first") else { return };
    bed.silence("10.1.0.1");
    bed.client(&["--via", "p0", "--via", "p1"]);
    let clock = net::Clock::start();
    let args = [
        "curl",
        "-sS",
        "--max-time",
        "60",
        "-x",
        &format!("socks5h://{}", bed.socks),
        "-r",
        "0-9",
        "-o",
        "got",
        &bed.origin,
    ];
    assert!(bed.on("tx", &args).status().expect("it runs").success());
    let took = clock.now().since(algo::Time::ZERO);
    println!("ten bytes in {took:?} with the first link dead");
    assert_eq!(fs::read(bed.dir.path().join("got")).expect("a file"), bed.content[..10]);
    assert!(took < algo::Span::from_secs(2), "{took:?}");
}

/// The longest time in which a file did not grow, until the program has ended.
fn longest_stall(of: &Path, program: &mut Child) -> algo::Span {
    let clock = net::Clock::start();
    let (mut size, mut since, mut longest) = (len(of), clock.now(), algo::Span::ZERO);
    while program.try_wait().expect("a status").is_none() {
        let (now, bytes) = (clock.now(), len(of));
        if bytes != size {
            longest = longest.max(now.since(since));
            (size, since) = (bytes, now);
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    longest
}

/// A link dies silently in the middle of a download, and comes back.
fn dies_silently(name: &str, address: &str, is_back: impl Fn(&Bed) -> bool) {
    let Some(mut bed) = Bed::without_client(name) else { return };
    bed.client(&["--via", "p0", "--via", "p1"]);
    let knows = |bed: &Bed| bed.ip("tx", "mptcp endpoint").contains(&format!("{address} id"));
    common::wait_until(20, || knows(&bed) && bed.subflows("10.1.0.1") >= 2 && bed.subflows("10.1.1.1") >= 2);
    let mut curl = bed.curl();
    let got = bed.dir.path().join("got");
    common::wait_until(60, || len(&got) > BYTES as u64 / 4);
    assert!(curl.try_wait().expect("a status").is_none(), "the link died too late");
    bed.silence(address);
    let stall = longest_stall(&got, &mut curl);
    assert!(curl.wait().expect("it ends").success() && bed.is_here());
    common::wait_until(10, || !knows(&bed) && bed.subflows(address) == 0);
    bed.restore(address);
    let clock = net::Clock::start();
    common::wait_until(10, || knows(&bed) && is_back(&bed));
    let back = clock.now().since(algo::Time::ZERO);
    println!("{address} died: nothing came for {stall:?}; is back: used again after {back:?}");
    assert!(stall < algo::Span::from_secs(1) && back < algo::Span::from_secs(2), "{stall:?} {back:?}");
}

#[test]
fn a_link_that_trunks_began_on_dies_silently_and_costs_no_second() {
    dies_silently("proxy-first-silent", "10.1.0.1", |_| true);
}

#[test]
fn a_link_that_trunks_joined_dies_silently_and_is_joined_again() {
    dies_silently("proxy-join-silent", "10.1.1.1", |bed| bed.subflows("10.1.1.1") >= 2);
}
