//! Runs tests: hosts, programs, a watchdog, and what comes of it.

mod bed;
mod commands;
mod host;
mod program;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use anabranch_algo::{Span, Time};
use anabranch_net::Clock;

use crate::facts;
use crate::network::Interface;
use crate::output;
use crate::plan::Plan;
use crate::profile::{Event, Kind, Profile, Victim};
use crate::results::{Ending, Journal, TestResult, Wire};
use crate::schedule::Test;
use bed::{Bed, Files, capture_files};
use commands::Client;
pub use commands::Programs;
use program::{LOOK, Program};

/// The directory of temporary files. It is removed, so no user's directory may have this name.
const WORK: &str = ".anabranch-drive";
/// After the program's end, packets under way have this time to arrive.
const SETTLE: Span = Span::from_millis(150);
/// The size of the file in the repository that git clones, bytes.
const REPOSITORY_BYTES: usize = 3_000_000;

/// Why a run of tests ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// All tests have a result.
    Done,
    /// The user wants an end.
    Interrupted,
}

/// Runs tests of a plan.
#[derive(Debug)]
pub struct Runner<'a> {
    plan: &'a Plan,
    programs: &'a Programs,
    files: Files,
    /// The directory of all temporary files.
    work: PathBuf,
}

/// How a program ended.
struct Run {
    ending: Ending,
    why: Option<String>,
    seconds: f64,
}

impl<'a> Runner<'a> {
    /// Makes what all tests share, in the directory `dir`.
    ///
    /// # Errors
    /// If this process may not make hosts, or if the directory cannot be written; the error is a sentence.
    pub fn new(plan: &'a Plan, programs: &'a Programs, dir: &Path) -> io::Result<Self> {
        anabranch_lab::linux::testbed::allowed()?;
        let work = dir.join(WORK);
        // A run that was killed has left its own.
        let _ = fs::remove_dir_all(&work);
        fs::create_dir_all(&work)?;
        let work = work.canonicalize()?;
        let files = Files { served: work.join("served"), proxy: work.join("proxy"), test: work.join("test") };
        fs::create_dir_all(&files.served)?;
        fs::create_dir_all(&files.proxy)?;
        let runner = Self { plan, programs, files, work };
        if plan.profiles.iter().any(|name| plan.profile(name).kind(name) == Kind::Git) {
            runner.make_repository()?;
        }
        if let Some(program) = &programs.proxy {
            let paired = commands::proxy(program, &runner.files.proxy, &["pair"]).output()?;
            if !paired.status.success() {
                let why = String::from_utf8_lossy(&paired.stderr).trim().to_owned();
                return Err(io::Error::other(format!("the proxies cannot be paired: {why}")));
            }
            write_secret(&runner.files.proxy.join("pair"), &paired.stdout)?;
        }
        Ok(runner)
    }

    /// Runs tests one after the other, and notes each result before the next begins. `each` is told of every
    /// result. Ends early when `stop` says so; the test that runs then has no result.
    ///
    /// # Errors
    /// If a result cannot be written.
    pub fn run(
        &self,
        tests: &[Test],
        journal: &mut Journal,
        stop: &dyn Fn() -> bool,
        mut each: impl FnMut(&TestResult),
    ) -> io::Result<Stopped> {
        for test in tests {
            let result = self.test(test, stop);
            if stop() {
                return Ok(Stopped::Interrupted);
            }
            each(&result);
            journal.add(result)?;
        }
        Ok(Stopped::Done)
    }

    /// Runs a test. Whatever goes wrong is its result.
    fn test(&self, test: &Test, stop: &dyn Fn() -> bool) -> TestResult {
        let profile = self.plan.profile(&test.profile);
        let mut result = TestResult::new(test, Ending::Ok, None);
        let done = self.clear().and_then(|()| self.try_test(test, &profile, stop, &mut result));
        if let Err(e) = done {
            result.ending = Ending::Failed;
            result.why = Some(e.to_string());
        }
        result
    }

    /// Empties the directory of the test.
    fn clear(&self) -> io::Result<()> {
        let _ = fs::remove_dir_all(&self.files.test);
        fs::create_dir_all(&self.files.test)
    }

    fn try_test(
        &self,
        test: &Test,
        profile: &Profile,
        stop: &dyn Fn() -> bool,
        result: &mut TestResult,
    ) -> io::Result<()> {
        let dir = &self.files.test;
        let unspecified = std::net::Ipv4Addr::UNSPECIFIED.into();
        let programs = self.programs;
        let mut client = Client { programs, profile, test, server: unspecified, socks: None, dir };
        if let Some(missing) = client.missing() {
            (result.ending, result.why) = (Ending::Skipped, Some(missing));
            return Ok(());
        }
        if profile.kind(&test.profile) == Kind::Upload {
            File::create(self.work.join("upload"))?.set_len(commands::bytes(profile))?;
        }
        let mut bed = Bed::new(self.plan, test, programs, &self.files)?;
        if let Some(program) = programs.proxy.as_ref().filter(|_| test.transport.is_proxy()) {
            bed.start_proxies(test.transport, program, &self.files)?;
        }
        (client.server, client.socks) = (bed.address(), bed.socks);
        let before = bed.wire(&bed.snapshot());
        let mut program = bed.start_client(&client)?;
        let timeout = profile.timeout.unwrap_or(self.plan.timeout).0;
        let run = watch(&mut program, &mut bed, &profile.events, timeout, stop);
        (result.ending, result.why, result.seconds) = (run.ending, run.why, run.seconds);
        let clock = Clock::start();
        clock.sleep_until(clock.now() + SETTLE);
        result.wire = since(&before, bed.wire(&bed.snapshot()));
        if bed.end_captures() {
            self.read_captures(test, &bed, result);
        }
        result.notes = std::mem::take(&mut bed.notes);
        take_values(profile, &test.profile, &program.output(), result);
        Ok(())
    }

    fn read_captures(&self, test: &Test, bed: &Bed, result: &mut TestResult) {
        let files = capture_files(&self.files.test);
        let [phone, server] = &files;
        match facts::read(phone, server, |address| bed.interface(address)) {
            Ok(captured) => result.captured = Some(captured),
            Err(e) => result.notes.push(format!("the captures were not read: {e}")),
        }
        if self.plan.keep_captures {
            let name = test.to_string().replace('/', "-");
            for (file, host) in files.iter().zip(["phone", "server"]) {
                let kept = self.work.with_file_name(format!("{name}-{host}.pcap"));
                let _ = fs::rename(file, kept);
            }
        }
    }

    /// Makes the repository that git clones: one commit with one file that cannot be compressed.
    fn make_repository(&self) -> io::Result<()> {
        let (bare, source) = (self.files.served.join("repository.git"), self.work.join("source"));
        if !commands::is_installed("git") || bare.join("info/refs").exists() {
            return Ok(());
        }
        let _ = fs::remove_dir_all(&bare);
        let _ = fs::remove_dir_all(&source);
        fs::create_dir_all(&source)?;
        let mut numbers = anabranch_algo::SplitMix64(self.plan.seed);
        let noise: Vec<u8> = (0..REPOSITORY_BYTES).map(|_| numbers.bits() as u8).collect();
        fs::write(source.join("noise"), noise)?;
        let (of, to) = (source.to_string_lossy(), bare.to_string_lossy());
        let name = ["-c", "user.name=anabranch", "-c", "user.email=anabranch@localhost"];
        let commit = [&["-C", &of][..], &name, &["commit", "-q", "-m", "noise"]].concat();
        for arguments in [
            vec!["init", "-q", &of],
            vec!["-C", &of, "add", "noise"],
            commit,
            vec!["clone", "-q", "--bare", &of, &to],
            vec!["-C", &to, "update-server-info"],
        ] {
            let done = Command::new("git").args(&arguments).env("HOME", &self.work).output()?;
            if !done.status.success() {
                let why = String::from_utf8_lossy(&done.stderr).trim().to_owned();
                return Err(io::Error::other(format!("git {}: {why}", arguments.join(" "))));
            }
        }
        Ok(())
    }
}

impl Drop for Runner<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.work);
    }
}

/// Waits for the end of a program while events happen; kills it after `timeout`.
fn watch(
    program: &mut Program,
    bed: &mut Bed,
    events: &[Event],
    timeout: Span,
    stop: &dyn Fn() -> bool,
) -> Run {
    let mut events: Vec<Event> = events.to_vec();
    events.sort_by_key(|event| event.at.0);
    let (clock, mut events) = (Clock::start(), events.into_iter().peekable());
    let end = Time::ZERO + timeout;
    let status = loop {
        let now = clock.now();
        while let Some(event) = events.next_if(|event| Time::ZERO + event.at.0 <= now) {
            happen(event, program, bed);
        }
        if let Some(status) = program.ended() {
            break Some(status);
        }
        if now >= end || stop() {
            program.kill();
            break None;
        }
        clock.sleep_until(now + LOOK);
    };
    let seconds = clock.now().since(Time::ZERO).as_nanos() as f64 / 1e9;
    let seconds = (seconds * 1e3).round() / 1e3;
    let (ending, why) = match status {
        None => {
            (Ending::Timeout, Some(format!("it ran for longer than {} s", timeout.as_nanos() as f64 / 1e9)))
        }
        Some(status) if status.success() => (Ending::Ok, None),
        Some(status) => (Ending::Failed, Some(program.why(status))),
    };
    let dead = bed.dead();
    let ending = if dead.is_empty() || ending == Ending::Timeout { ending } else { Ending::Failed };
    let why: Vec<String> = why.into_iter().chain(dead).collect();
    Run { ending, why: (!why.is_empty()).then(|| why.join("; ")), seconds }
}

fn happen(event: Event, program: &mut Program, bed: &mut Bed) {
    if let Some(interface) = event.interface() {
        bed.set_up(interface, event.up.is_some());
    }
    match event.kill {
        Some(Victim::Client) => program.kill(),
        Some(Victim::Server) => bed.origin.kill(),
        Some(Victim::Proxy) => bed.kill_proxy(),
        None => {}
    }
}

/// Takes the numbers of a program that ended well.
fn take_values(profile: &Profile, name: &str, output: &str, result: &mut TestResult) {
    if result.ending != Ending::Ok {
        return;
    }
    match profile.kind(name) {
        Kind::Web => drop(result.values.insert("page s".into(), result.seconds)),
        Kind::Download | Kind::Upload | Kind::Git => drop(result.values.insert("s".into(), result.seconds)),
        Kind::Chat | Kind::Video | Kind::Call | Kind::Command => {
            match output::result(output, profile.result.as_deref()) {
                Some((values, line)) => (result.values, result.line) = (values, line),
                None => {
                    result.ending = Ending::Failed;
                    let marker = profile.result.as_ref().map(|marker| format!(" with {marker:?}"));
                    result.why = Some(format!("the program printed no line{}", marker.unwrap_or_default()));
                }
            }
        }
    }
}

/// Subtracts what the links had carried before.
fn since(
    before: &BTreeMap<Interface, Wire>,
    mut now: BTreeMap<Interface, Wire>,
) -> BTreeMap<Interface, Wire> {
    for (interface, wire) in &mut now {
        let before = before.get(interface).copied().unwrap_or_default();
        wire.up_bytes = wire.up_bytes.saturating_sub(before.up_bytes);
        wire.down_bytes = wire.down_bytes.saturating_sub(before.down_bytes);
    }
    now
}

/// Writes a file that only this user may read.
fn write_secret(path: &Path, bytes: &[u8]) -> io::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let _ = fs::remove_file(path);
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)
}
