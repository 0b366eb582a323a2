//! `anabranch vm` as processes: real machines that move between network namespaces over real links.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anabranch_net::testing;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

use crate::common::fetch::{Done, Running, run, spawn};
use crate::common::netns::Net;
use crate::common::{anabranch, wait_until};

/// The guest's memory, MB.
const MEMORY: &str = "96M";

/// Makes the guest, or says why the test is skipped.
fn guest() -> Option<PathBuf> {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guest");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/guest/guest.py");
    let made = Command::new("python3").arg(script).arg(&dir).output();
    let why = match made {
        Ok(made) if made.status.success() => None,
        Ok(made) => Some(String::from_utf8_lossy(&made.stderr).trim().to_owned()),
        Err(e) => Some(e.to_string()),
    };
    let qemu = Command::new("qemu-system-x86_64").arg("--version").output();
    let why = why.or_else(|| qemu.err().map(|e| format!("QEMU: {e}")));
    match why {
        Some(why) => {
            testing::skip(format!("machines: {why}"));
            None
        }
        None => Some(dir),
    }
}

/// Two hosts, `a` and `b`, with two links between them.
struct Bed {
    net: Net,
    dir: TempDir,
    guest: PathBuf,
}

impl Bed {
    /// Makes the hosts; each link carries so many Mbit/s.
    fn new(test: &str, mbit: u32) -> Option<Self> {
        let guest = guest()?;
        let net = Net::new(test, &["a", "b"])?;
        for n in 1..=2 {
            let device = format!("up{n}");
            let (here, there) = (format!("10.77.{n}.1/24"), format!("10.77.{n}.2/24"));
            net.link(1_500, [("a", &device, &[&here]), ("b", &device, &[&there])]);
            for host in ["a", "b"] {
                let mut tc = Command::new("tc");
                tc.args(["qdisc", "add", "dev", &device, "root", "tbf", "rate", &format!("{mbit}mbit")]);
                tc.args(["burst", "64kb", "latency", "40ms"]);
                let shaped = net.inside(host, &tc).output().expect("tc");
                assert!(shaped.status.success(), "{}", String::from_utf8_lossy(&shaped.stderr));
            }
        }
        let bed = Self { net, dir: tempfile::tempdir().expect("a directory"), guest };
        for (host, other, address) in [("a", "b", "10.77.1.2"), ("b", "a", "10.77.1.1")] {
            let line = bed.vm(other, &["pair", host]).expect(0).out;
            let mut trust = bed.command(host, &["trust", other, address]);
            trust.stdin(Stdio::piped()).stderr(Stdio::null());
            let mut child = trust.spawn().expect("a process");
            child.stdin.take().expect("a pipe").write_all(line.as_bytes()).expect("written");
            assert!(child.wait().expect("its end").success());
        }
        Some(bed)
    }

    /// Makes a command that runs `anabranch vm` at a host.
    fn command(&self, host: &str, words: &[&str]) -> Command {
        let mut command = anabranch();
        command.arg("vm").args(words).arg("--state").arg(self.dir.path().join(host));
        self.net.inside(host, &command)
    }

    fn vm(&self, host: &str, words: &[&str]) -> Done {
        run(self.command(host, words))
    }

    /// Starts the agent of a host.
    fn agent(&self, host: &str, more: &[&str]) -> Running {
        let agent = spawn(self.command(host, &[&["agent", "--json"], more].concat()));
        agent.wait_event(|event| event["event"] == "listening");
        agent
    }

    /// Starts a machine at `a`, and waits until it works.
    fn run(&self, name: &str, append: &str) {
        self.run_with(name, append, &[]);
    }

    /// The same, with more options.
    fn run_with(&self, name: &str, append: &str, more: &[&str]) {
        let (kernel, initrd) = (self.guest.join("vmlinuz"), self.guest.join("initrd"));
        let append = format!("console=ttyS0 quiet {append}");
        let mut command =
            self.command("a", &["run", name, "--tcg", "--memory", MEMORY, "--append", &append, "--json"]);
        command.arg("--kernel").arg(kernel).arg("--initrd").arg(initrd).args(more);
        run(command).expect(0);
        wait_until(60, || self.console("a", name).contains("READY"));
    }

    /// Makes a directory for disks of a host.
    fn disks(&self, host: &str) -> PathBuf {
        let dir = self.dir.path().join(format!("disks-{host}"));
        fs::create_dir_all(&dir).expect("a directory");
        dir
    }

    /// Makes a disk at `a`, a quarter of which is filled, and returns its path.
    fn disk(&self, mb: usize) -> String {
        let path = self.disks("a").join("disk.raw");
        let filled = (mb << 20) / 4;
        let mut bytes = vec![0_u8; mb << 20];
        bytes[mb << 19..][..filled].copy_from_slice(&crate::common::noise(filled));
        fs::write(&path, bytes).expect("written");
        path.to_str().expect("UTF-8").to_owned()
    }

    /// Returns the files for disks that a host has.
    fn files(&self, host: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.disks(host)).expect("a directory");
        entries.map(|entry| entry.expect("an entry").path()).collect()
    }

    fn console(&self, host: &str, name: &str) -> String {
        let path = self.dir.path().join(host).join("machines").join(name).join("console.log");
        String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
    }

    /// Returns what a host says of a machine.
    fn state(&self, host: &str, name: &str) -> String {
        let done = self.vm(host, &["ls", "--json"]).expect(0);
        let lines = done.out.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let found = lines.filter(|line| line["event"] == "machine").find(|line| line["name"] == name);
        found.map_or_else(|| "unknown".to_owned(), |line| line["state"].as_str().expect("a state").to_owned())
    }

    /// Waits until one host runs a machine and the other knows that it does not, and returns the one.
    fn settled(&self, name: &str, when: &str) -> &'static str {
        let is_away = |state: &String| ["unknown", "moved"].contains(&state.as_str());
        let mut states = [String::new(), String::new()];
        let mut at = None;
        for _ in 0..400 {
            states = ["a", "b"].map(|host| self.state(host, name));
            let runs = states.each_ref().map(|state| state == "running");
            assert!(runs != [true, true], "two run: {when}");
            at = match runs {
                [true, _] if is_away(&states[1]) => Some("a"),
                [_, true] if is_away(&states[0]) => Some("b"),
                _ => None,
            };
            if at.is_some() {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        let at = at.unwrap_or_else(|| panic!("{when}: {states:?}"));
        // It does not only say so.
        let alive = |text: String| text.matches("alive").count();
        let before = alive(self.console(at, name));
        wait_until(20, || alive(self.console(at, name)) > before);
        at
    }

    fn movement(&self, from: &str, to: &str, more: &[&str]) -> Command {
        self.command(from, &[&["move", "m", "--to", to, "--json"], more].concat())
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        for host in ["a", "b"] {
            let _ = self.command(host, &["stop", "m"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
        }
        // What a test that failed has left, and nothing else has this directory.
        for pid in processes(|words| words.contains(self.dir.path().to_str().expect("UTF-8"))) {
            let _ = kill(pid, Signal::SIGKILL);
        }
    }
}

/// Returns the numbers that the guest has written to its disk, and when it wrote each, ms, by its clock.
fn ledger(path: &Path) -> BTreeMap<u64, u64> {
    let bytes = fs::read(path).expect("a disk");
    let word = |block: &[u8], n: usize| u64::from_le_bytes(block[8 * n..][..8].try_into().expect("8 bytes"));
    let blocks = bytes.chunks_exact(4_096).filter(|block| block.starts_with(b"ANABRANC"));
    blocks.map(|block| (word(block, 1), word(block, 2))).collect()
}

/// Returns the highest number up to which nothing is missing, of those that the guest has not written over.
fn whole_until(ledger: &BTreeMap<u64, u64>) -> u64 {
    let mut numbers = ledger.keys().copied();
    let first = numbers.next().expect("a block");
    numbers.zip(first + 1..).take_while(|(is, wanted)| is == wanted).last().map_or(first, |(last, _)| last)
}

fn event(done: &Done, name: &str) -> Value {
    let lines = done.out.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut found = lines.filter(|line| line["event"] == name);
    found.next().unwrap_or_else(|| panic!("no {name} in {}\n{}", done.out, done.err))
}

const BOTH: [&str; 4] = ["--via", "up1", "--via", "up2"];

#[test]
fn a_machine_moves_over_two_links_and_what_cannot_be_is_refused() {
    let _alone = testing::alone();
    let Some(bed) = Bed::new("vm-move", 150) else { return };
    bed.run("m", "dirty=16,2");

    // First no agent runs at the destination, then one that has no memory to give.
    let done = run(bed.movement("a", "b", &["--no-predict"])).expect(4);
    assert!(done.err.contains("no agent is reached at 10.77.1.2:26230"), "{}", done.err);
    let small = bed.agent("b", &["--memory-max", "64M"]);
    let done = run(bed.movement("a", "b", &["--no-predict"])).expect(1);
    assert!(done.err.contains("has 64 MB of memory left, and the machine needs 96 MB"), "{}", done.err);
    drop(small);

    let agent = bed.agent("b", &[]);
    let done = run(bed.movement("a", "b", &["--no-predict", "--via", "up1", "--via", "usb0"])).expect(4);
    assert!(done.err.contains("usb0 does not exist here"), "{}", done.err);
    bed.net.ip("a", "link set up2 down");
    let done = run(bed.movement("a", "b", &[&["--no-predict"], &BOTH[..]].concat())).expect(4);
    assert!(done.err.contains("up2 is down: the move does not begin without it"), "{}", done.err);
    bed.net.ip("a", "link set up2 up");
    let done = run(bed.command("a", &["move", "m", "--to", "c"])).expect(2);
    assert!(done.err.contains("there is no host `c`: there are b"), "{}", done.err);

    let outlook = event(
        &bed.vm("a", &[&["predict", "m", "--to", "b", "--json"], &BOTH[..]].concat()).expect(0),
        "outlook",
    );
    let forecasts = outlook["forecasts"].as_array().expect("forecasts");
    let rates: Vec<u64> = forecasts.iter().map(|one| one["rate_bytes"].as_u64().expect("a rate")).collect();
    assert!(rates[0] > 15_000_000 && rates[2] > rates[0] * 3 / 2, "{rates:?}");

    let moving = spawn(bed.movement("a", "b", &BOTH));
    moving.wait_event(|event| event["event"] == "progress");
    let second = run(bed.movement("a", "b", &[])).expect(1);
    assert!(second.err.contains("another move of m"), "{}", second.err);
    let done = moving.end().expect(0);
    let moved = event(&done, "moved");
    let carried = |device: &str| moved["paths"][device].as_u64().unwrap_or(0);
    assert!(carried("up1") > 1_000_000 && carried("up2") > 1_000_000, "{moved}");
    let felt = moved["felt_ms"].as_u64().expect("it has a heartbeat");
    assert!((10..5_000).contains(&felt), "{moved}");
    assert!(moved["stood_still_ms"].as_u64().expect("it stood still") <= felt + 50, "{moved}");
    assert_eq!(bed.settled("m", "moved"), "b");
    assert_eq!(bed.state("a", "m"), "moved");
    drop(agent);
    assert_eq!(bed.state("b", "m"), "running", "a machine outlives the agent");
}

/// The first link is lost while a machine moves: the other one carries the rest, and the guest does not wait.
#[test]
fn a_machine_arrives_though_a_link_is_lost() {
    let _alone = testing::alone();
    let Some(bed) = Bed::new("vm-cut", 150) else { return };
    bed.run("m", "");
    let _agent = bed.agent("b", &[]);
    let moving = spawn(bed.movement("a", "b", &[&["--no-predict"], &BOTH[..]].concat()));
    moving
        .wait_event(|event| event["event"] == "progress" && event["paths"]["up2"].as_u64() > Some(1_000_000));
    bed.net.ip("a", "link set up1 down");
    let moved = event(&moving.end().expect(0), "moved");
    assert!(moved["felt_ms"].as_u64().expect("it has a heartbeat") < 8_000, "{moved}");
    assert!(moved["paths"]["up2"].as_u64() > Some(40_000_000), "{moved}");
    assert_eq!(bed.settled("m", "cut"), "b");
}

/// A disk of one host alone goes along, while the guest writes to it; a mover that is killed leaves nothing.
#[test]
fn a_machine_takes_its_disk_along() {
    let _alone = testing::alone();
    let Some(bed) = Bed::new("vm-disk", 300) else { return };
    let disk = bed.disk(32);
    bed.run_with("m", "disk=50", &["--disk", &disk]);
    let no_room = bed.agent("b", &[]);
    let done = run(bed.movement("a", "b", &["--no-predict"])).expect(1);
    assert!(done.err.contains("needs --disks with a directory for it"), "{}", done.err);
    drop(no_room);
    let _agent = bed.agent("b", &["--disks", bed.disks("b").to_str().expect("UTF-8")]);

    let moving = spawn(bed.movement("a", "b", &["--no-predict"]));
    moving.wait_event(|event| event["event"] == "progress" && event["state"] == "disks");
    moving.signal(Signal::SIGKILL);
    let _ = moving.end();
    assert_eq!(bed.settled("m", "killed while the disk is copied"), "a");
    wait_until(20, || bed.files("b").is_empty());

    let moved =
        event(&run(bed.movement("a", "b", &[&["--no-predict"], &BOTH[..]].concat())).expect(0), "moved");
    let carried = |device: &str| moved["paths"][device].as_u64().unwrap_or(0);
    assert!(carried("up1") + carried("up2") > 8_000_000 && carried("up2") > 1_000_000, "{moved}");
    assert_eq!(bed.settled("m", "with its disk"), "b");
    let written = |host: &str| ledger(&bed.files(host)[0]);
    let left = *written("a").keys().last().expect("a block");
    wait_until(20, || *written("b").keys().last().expect("a block") > left + 50);
    bed.vm("b", &["stop", "m"]).expect(0);
    let came = written("b");
    assert_eq!(whole_until(&came), *came.keys().last().expect("a block"), "a block is missing");
    assert!(!bed.console("b", "m").contains("WRITE FAILED"));
    let noise =
        |host: &str| fs::read(&bed.files(host)[0]).expect("a disk")[16 << 20..][4_096..64 << 10].to_vec();
    assert!(noise("a") == noise("b"));
}

/// Returns the processes whose words, with a space between two, are wanted.
fn processes(is_wanted: impl Fn(&str) -> bool) -> Vec<Pid> {
    let is_it = |pid: &i32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        is_wanted(&String::from_utf8_lossy(&words).replace('\0', " "))
    };
    let entries = fs::read_dir("/proc").expect("processes").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(is_it).map(Pid::from_raw).collect()
}

/// A host fails. Its machine goes on from the shadow, which has all writes that are older than the lag that
/// was shown, and later returns without a loss.
#[test]
fn a_machine_outlives_its_host_and_comes_back() {
    let _alone = testing::alone();
    let Some(bed) = Bed::new("vm-protect", 300) else { return };
    let disk = bed.disk(32);
    bed.run_with("m", "disk=50", &["--disk", &disk]);
    let dir = |name: &str| bed.disks(name).to_str().expect("UTF-8").to_owned();
    let mut there = bed.agent("b", &["--disks", &dir("b")]);
    let shadow = bed.dir.path().join("b/machines/m/shadow").to_str().expect("UTF-8").to_owned();
    let refused = |host: &str, words: &[&str], code: i32, said: &str| {
        let done = bed.vm(host, words).expect(code);
        assert!(done.err.contains(said), "{words:?}: {}", done.err);
    };
    refused("b", &["failover", "m"], 2, "there is no shadow of a machine `m` here");
    refused("a", &["failback", "m"], 1, "has no shadow that follows it");
    refused("a", &["sync", "m"], 1, "was not taken over here");
    refused("a", &["unprotect", "m"], 1, "is not protected");

    let protect = ["protect", "m", "--to", "b", "--json", "--via", "up1", "--via", "up2"];
    bed.vm("a", &protect).expect(0);
    bed.vm("a", &["unprotect", "m"]).expect(0);
    assert!(bed.files("b").is_empty() && processes(|words| words.contains(&shadow)).is_empty());
    bed.vm("a", &protect).expect(0);
    refused("a", &protect, 1, "is protected already");
    refused("a", &["stop", "m"], 1, "is protected");
    refused("a", &["move", "m", "--to", "b"], 1, "is protected");
    let shown = || event(&bed.vm("a", &["protection", "m", "--json"]).expect(0), "protection");
    // A keeper that is killed is missed, and the next one takes the copy up.
    let keeper = format!("keep m --state {}", bed.dir.path().join("a").display());
    let keepers = processes(|words| words.contains(&keeper));
    assert_eq!(keepers.len(), 1, "{keeper}");
    kill(keepers[0], Signal::SIGKILL).expect("killed");
    wait_until(20, || shown()["is_kept"] == false && shown()["lag_ms"].as_u64() > Some(1_000));
    let sent = shown()["sent_bytes"].as_u64().expect("bytes");
    bed.vm("a", &protect).expect(0);
    wait_until(20, || shown()["lag_ms"].as_u64() < Some(1_000));
    assert!(shown()["sent_bytes"].as_u64() >= Some(sent), "it was taken up, not begun again");

    // An agent that is killed is not needed for the copy, and the next one knows the shadow.
    there.signal(Signal::SIGKILL);
    let _ = there.end();
    there = bed.agent("b", &["--disks", &dir("b")]);
    wait_until(20, || shown()["is_kept"] == true && shown()["lag_ms"].as_u64() < Some(1_000));

    let began = anabranch_net::Clock::start();
    let lag = shown()["lag_ms"].as_u64().expect("a lag");
    let pid = event(&bed.vm("a", &["ls", "--json"]).expect(0), "machine")["pid"].as_i64().expect("a process");
    kill(Pid::from_raw(pid as i32), Signal::SIGKILL).expect("killed");
    let lag = lag + began.now().since(anabranch_algo::Time::ZERO).as_millis();
    bed.vm("b", &["failover", "m", "--json"]).expect(0);
    refused("b", &["failover", "m"], 1, "was taken over before");
    refused("a", &["run", "m", "--kernel", "/dev/null"], 1, "has a shadow at b");
    let found = |host: &str| {
        let console = bed.console(host, "m");
        let line = console.lines().rev().find_map(|line| line.strip_prefix("disk "));
        line.and_then(|line| line.trim().parse::<u64>().ok())
    };
    wait_until(60, || found("b").is_some());
    let (before, after) = (ledger(Path::new(&disk)), ledger(&bed.files("b")[0]));
    let (_, last) = before.last_key_value().expect("a block");
    let oldest = after.keys().last().expect("a block").saturating_sub(1_000);
    let certain = before.iter().filter(|(number, at)| **number > oldest && **at + lag <= *last);
    let missing: Vec<_> = certain.filter(|(number, _)| !after.contains_key(number)).collect();
    assert!(missing.is_empty(), "{lag} ms were said to be missing, but {missing:?} are, of {last}");
    assert!(after.len() > 100, "{}", after.len());

    let _here = bed.agent("a", &["--disks", &dir("back")]);
    bed.vm("b", &["sync", "m", "--json"]).expect(0);
    bed.vm("b", &["failback", "m", "--json"]).expect(0);
    assert_eq!(bed.state("b", "m"), "moved");
    let gone = ledger(&bed.files("b")[0]);
    // The first one is of its first start.
    wait_until(60, || bed.console("a", "m").matches("disk ").count() > 1);
    assert_eq!(found("a"), gone.keys().last().copied(), "nothing is lost on the way back");
    assert_eq!(
        whole_until(&ledger(Path::new(&disk))),
        *before.keys().last().expect("one"),
        "the old disk is left"
    );
    wait_until(60, || {
        let shown = bed.vm("a", &["protection", "m", "--json"]).expect(0);
        shown.out.contains("\"following\"") && shown.out.contains("\"to\":\"b\"")
    });
    assert_eq!(bed.files("b").len(), 2, "what was left, and the new shadow");

    // A source that is taken over although it lives is ended, and does not come back by itself.
    bed.vm("b", &["failover", "m", "--json"]).expect(0);
    wait_until(20, || bed.state("a", "m") == "ended");
    assert_eq!(shown()["state"], "lost");
    assert_eq!(bed.state("b", "m"), "running");
    refused("a", &["unprotect", "m"], 1, "b has taken m over");
    refused("a", &["protect", "m", "--to", "b"], 1, "does not run here: a failback there brings it back");
    drop(there);
}

/// Kills the mover, and the agent, at several steps; each time exactly one guest runs in the end.
#[test]
fn whatever_is_killed_one_machine_runs() {
    let _alone = testing::alone();
    let Some(bed) = Bed::new("vm-kill", 300) else { return };
    bed.run("m", "dirty=8,1");
    let mut agents = ["a", "b"].map(|host| Some(bed.agent(host, &[])));
    let is_note = |event: &Value, what: &str| event["event"] == "note" && event["what"] == what;
    let mut at = "a";
    for (victim, step) in
        [("mover", "begins"), ("agent", "begins"), ("mover", "given"), ("agent", "given"), ("mover", "runs")]
    {
        let (from, to, there) = if at == "a" { ("a", "b", 1) } else { ("b", "a", 0) };
        let moving = spawn(bed.movement(from, to, &["--no-predict"]));
        moving.wait_event(|event| is_note(event, step));
        let agent = if victim == "agent" { agents[there].take() } else { None };
        match agent {
            Some(agent) => {
                agent.signal(Signal::SIGKILL);
                let _ = agent.end();
                std::thread::sleep(Duration::from_millis(300));
                agents[there] = Some(bed.agent(to, &[]));
                let _ = moving.end();
            }
            None => {
                moving.signal(Signal::SIGKILL);
                let _ = moving.end();
            }
        }
        at = bed.settled("m", &format!("{victim} killed at {step}"));
        if step == "begins" {
            assert_eq!(at, from, "{victim} killed at {step}");
        }
    }
    // Ctrl-C leaves it where it is.
    let (from, to) = if at == "a" { ("a", "b") } else { ("b", "a") };
    let moving = spawn(bed.movement(from, to, &["--no-predict"]));
    moving.wait_event(|event| is_note(event, "begins"));
    moving.signal(Signal::SIGINT);
    let done = moving.end().expect(130);
    assert!(done.err.contains("the machine runs here, as before"), "{}", done.err);
    assert_eq!(bed.settled("m", "interrupted"), from);
}

/// A host with a QEMU that is missing or too old takes no machines, and another key is noticed.
#[test]
fn hosts_that_cannot_take_machines_say_why() {
    let dir = tempfile::tempdir().expect("a directory");
    let vm = |host: &str, words: &[&str]| {
        let mut command = anabranch();
        command.arg("vm").args(words).arg("--state").arg(dir.path().join(host));
        command
    };
    let agent = |path: &Path| {
        let mut command = vm("b", &["agent", "--listen", "127.0.0.1:0", "--json"]);
        command.env("PATH", path);
        command
    };
    let done = run(agent(&dir.path().join("empty"))).expect(2);
    assert!(done.err.contains("install QEMU"), "{}", done.err);
    let (bin, program) = (dir.path().join("bin"), dir.path().join("bin/qemu-system-x86_64"));
    fs::create_dir(&bin).expect("made");
    let says = |version: &str| {
        fs::write(&program, format!("#!/bin/sh\necho QEMU emulator version {version}\n")).expect("written");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("set");
    };
    says("5.2.0");
    let done = run(agent(&bin)).expect(1);
    assert!(done.err.contains("QEMU 5.2.0 is too old"), "{}", done.err);

    says("7.2.0");
    let agent = spawn(agent(&bin));
    let listening = agent.wait_event(|event| event["event"] == "listening");
    let address = listening["addresses"][0].as_str().expect("an address").to_owned();
    let trust = |host: &str| {
        let line = run(vm(host, &["pair", "a"])).expect(0).out;
        let mut command = vm("a", &["trust", host, &address]);
        command.stdin(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("a process");
        child.stdin.take().expect("a pipe").write_all(line.as_bytes()).expect("written");
        assert!(child.wait().expect("its end").success());
    };
    let qmp = qemu_that_runs(dir.path());
    run(vm("a", &["attach", "m", "--qmp", qmp.to_str().expect("UTF-8")])).expect(0);
    trust("c");
    let done = run(vm("a", &["predict", "m", "--to", "c"])).expect(1);
    assert!(done.err.contains("it was paired with ed25519:"), "{}", done.err);
    trust("b");
    let done = run(vm("a", &["move", "m", "--to", "b"])).expect(2);
    assert!(done.err.contains("nothing tells the destination how to start it"), "{}", done.err);
    fs::write(dir.path().join("b/agent-clients.toml"), "").expect("written");
    let done = run(vm("a", &["predict", "m", "--to", "b"])).expect(1);
    assert!(done.err.contains("does not know this client's key"), "{}", done.err);
}

/// Answers as a QEMU whose guest runs, for as long as the test does, and returns its socket.
fn qemu_that_runs(dir: &Path) -> PathBuf {
    let path = dir.join("qmp");
    let listener = UnixListener::bind(&path).expect("a socket");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let version = r#"{"qemu":{"micro":0,"minor":2,"major":7}}"#;
            writeln!(stream, "{{\"QMP\":{{\"version\":{version}}}}}").expect("written");
            for line in BufReader::new(stream.try_clone().expect("a copy")).lines().map_while(Result::ok) {
                let id = serde_json::from_str::<Value>(&line).expect("JSON")["id"].clone();
                let _ = writeln!(stream, "{{\"return\":{{\"status\":\"running\"}},\"id\":{id}}}");
            }
        }
    });
    path
}

#[test]
fn words_that_make_no_sense_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let vm = |words: &[&str]| {
        let mut command = anabranch();
        command.arg("vm").args(words).arg("--state").arg(dir.path().join("s"));
        run(command)
    };
    for (words, said) in [
        (&["run", "a,b", "--kernel", "/dev/null"][..], "is no name of a machine"),
        (&["run", "m"], "there is nothing to start"),
        (&["run", "m", "--disk", "/none:shared"], "the disk /none"),
        (&["run", "m", "--kernel", "/dev/null", "--net", "tap:a,script=/x"], "is connected to user"),
        (&["run", "m", "--memory", "9X"], "is no size of memory"),
        (&["move", "m", "--to", "b"], "there is no machine `m` here"),
        (&["attach", "m", "--qmp", "/none"], "there is no QMP socket /none"),
        (&["stop", "<b>"], "is no name of a machine"),
    ] {
        let done = vm(words).expect(2);
        assert!(done.err.contains(said), "{words:?}: {}", done.err);
    }
    assert!(vm(&["ls"]).expect(0).err.contains("no machine is known here"));
    let mut trust = anabranch();
    trust.args(["vm", "trust", "b", "192.0.2.1", "--state"]).arg(dir.path().join("s"));
    assert!(run(trust).expect(2).err.contains("anabranch-pair-"));
    let done = vm(&["pair", "x"]).expect(0);
    assert!(done.out.starts_with("anabranch-pair-1:"), "{}", done.out);
    vm(&["pair", "x"]).expect(2);
}
