//! A running program with all its children, and what it has said.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use anabranch_algo::Span;
use anabranch_net::{Clock, end_with_parent};
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use super::host::Host;

/// The time between two looks at a program.
pub(super) const LOOK: Span = Span::from_millis(2);
/// The end of a program's output that is read, bytes.
const OUTPUT_BYTES_MAX: u64 = 64 << 10;

/// A program that was started on a host, as the leader of a process group. It is killed when this is dropped.
#[derive(Debug)]
pub(super) struct Program {
    name: String,
    child: Child,
    out: PathBuf,
    err: PathBuf,
    ended: Option<ExitStatus>,
}

impl Program {
    /// Starts a program; its output goes to files in `dir`.
    pub(super) fn start(host: &Host, name: &str, mut command: Command, dir: &Path) -> io::Result<Self> {
        let (out, err) = (dir.join(format!("{name}.out")), dir.join(format!("{name}.err")));
        command.stdin(Stdio::null()).stdout(File::create(&out)?).stderr(File::create(&err)?);
        command.process_group(0);
        end_with_parent(&mut command);
        let said = |e: io::Error| io::Error::new(e.kind(), format!("{name} cannot be started: {e}"));
        let child = host.spawn(command).map_err(said)?;
        Ok(Self { name: name.to_owned(), child, out, err, ended: None })
    }

    /// Returns how the program ended, if it has. What it left of its group is killed then.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
            // Before it is waited for, the number of its group cannot be another group's.
            match waitid(Id::Pid(self.pid()), flags) {
                Ok(WaitStatus::StillAlive) => {}
                _ => {
                    let _ = killpg(self.pid(), Signal::SIGKILL);
                    self.ended = self.child.wait().ok();
                }
            }
        }
        self.ended
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    /// Asks the program to end, and waits for that; after `patience` it is killed.
    pub(super) fn stop(&mut self, signal: Signal, patience: Span) {
        if self.ended().is_none() {
            let _ = killpg(self.pid(), signal);
        }
        let clock = Clock::start();
        let until = clock.now() + patience;
        while self.ended().is_none() && clock.now() < until {
            clock.sleep_until(clock.now() + LOOK);
        }
        self.kill();
    }

    /// Kills the program and its group.
    pub(super) fn kill(&mut self) {
        if self.ended().is_none() {
            let _ = killpg(self.pid(), Signal::SIGKILL);
            self.ended = self.child.wait().ok();
        }
    }

    /// Returns the end of what the program has printed.
    pub(super) fn output(&self) -> String {
        end_of(&self.out)
    }

    /// Returns the end of what the program has printed as errors.
    pub(super) fn errors(&self) -> String {
        end_of(&self.err)
    }

    /// Waits until `of` finds something in the program's output (or in its errors).
    ///
    /// # Errors
    /// If the program ends before, or says nothing in time.
    pub(super) fn wait_for<T>(&mut self, patience: Span, of: impl Fn(&str) -> Option<T>) -> io::Result<T> {
        let clock = Clock::start();
        let until = clock.now() + patience;
        loop {
            if let Some(found) = of(&self.output()).or_else(|| of(&self.errors())) {
                return Ok(found);
            }
            if let Some(status) = self.ended() {
                return Err(io::Error::other(self.why(status)));
            }
            if clock.now() >= until {
                return Err(io::Error::other(format!("{} was not ready in time", self.name)));
            }
            clock.sleep_until(clock.now() + LOOK);
        }
    }

    /// Says how the program ended, with the last line of its errors.
    pub(super) fn why(&self, status: ExitStatus) -> String {
        let how = match (status.code(), status.signal()) {
            (Some(code), _) => format!("exited with {code}"),
            (_, Some(signal)) => format!("was killed by signal {signal}"),
            _ => "ended".to_owned(),
        };
        let errors = self.errors();
        match errors.lines().rev().map(str::trim).find(|line| !line.is_empty()) {
            Some(line) => format!("{} {how}: {line}", self.name),
            None => format!("{} {how}", self.name),
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns the last bytes of a file, however long it is; nothing if it cannot be read.
fn end_of(path: &Path) -> String {
    let read = || {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(OUTPUT_BYTES_MAX)))?;
        let mut bytes = Vec::new();
        file.take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes)?;
        io::Result::Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    read().unwrap_or_default()
}
