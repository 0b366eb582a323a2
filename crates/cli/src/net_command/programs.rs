//! Runs the programs on the nodes of a domain, as children of the process that holds the domain.

use std::ffi::CStr;
use std::fs::{File, Permissions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};

use anabranch_algo::{Span, Time};
use anabranch_net::{Clock, Namespace};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use super::plan::Task;
use crate::network_options::{DOMAIN, NODE};

/// The time in which programs that were asked to end can do so, for example to withdraw their publications.
const GRACE: Span = Span::from_secs(2);
const LOOK_EVERY: Span = Span::from_millis(10);
/// The largest part of the end of a program's output that is shown, in bytes and in lines.
const LAST_BYTES: u64 = 4_096;
const LAST_LINES: usize = 3;

/// Describes the state of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Program {
    /// The command and its arguments.
    pub(super) command: Vec<String>,
    /// The number of its process, while it runs.
    pub(super) pid: Option<u32>,
    /// The status with which it ended; `None` if a signal ended it.
    pub(super) exit: Option<i32>,
    /// The signal that ended it.
    pub(super) signal: Option<i32>,
}

impl Program {
    /// Describes the state in a few words.
    pub(super) fn text(&self) -> String {
        let what = self.command.first().map_or("", String::as_str);
        match (self.pid, self.exit, self.signal) {
            (Some(pid), ..) => format!("{what} (process {pid})"),
            (None, Some(exit), _) => format!("{what} ended with status {exit}"),
            (None, None, Some(signal)) => {
                let name = Signal::try_from(signal).map_or_else(|_| signal.to_string(), |s| s.to_string());
                format!("{what} ended by {name}")
            }
            _ => format!("{what} did not start"),
        }
    }
}

/// Holds a program, and its process if it was started.
struct Slot {
    task: Task,
    child: Option<Child>,
    status: Option<ExitStatus>,
    /// Whether the program was asked to end, as all programs are when the domain ends.
    asked: bool,
}

impl Slot {
    /// Notes whether the process has ended.
    fn look(&mut self) {
        if let Some(child) = &mut self.child
            && let Ok(Some(status)) = child.try_wait()
        {
            (self.status, self.child) = (Some(status), None);
        }
    }
}

/// Holds the programs of all nodes.
pub(super) struct Programs {
    /// The path of the program that is started.
    program: String,
    /// The path of the domain's file.
    file: String,
    slots: Vec<Slot>,
    /// The output of each node's programs. It is in memory, so that it vanishes with this process, however
    /// the process ends; users who want to keep it copy it.
    logs: Vec<File>,
    /// The states that programs keep for their next start, and their keys. They are also in memory.
    _states: Vec<File>,
}

/// Makes a file in memory that other processes can open by the path of its descriptor. The kernel gives it
/// mode 777, so it is restricted to its user here.
fn in_memory(name: &CStr) -> io::Result<File> {
    let fd: OwnedFd = memfd_create(name, MFdFlags::MFD_CLOEXEC)?;
    let file = File::from(fd);
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok(file)
}

/// Returns the path by which other processes can open a file of this process.
fn path(file: &File) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd())
}

impl Programs {
    /// Creates the programs of a domain with `nodes` nodes, without starting them.
    ///
    /// # Errors
    /// If no descriptors are left.
    pub(super) fn new(program: String, file: String, tasks: Vec<Task>, nodes: usize) -> io::Result<Self> {
        let logs = (0..nodes).map(|_| in_memory(c"anabranch-log")).collect::<io::Result<_>>()?;
        let (mut slots, mut states) = (Vec::new(), Vec::new());
        for mut task in tasks {
            if let Some(text) = task.key.take() {
                let mut key = in_memory(c"anabranch-key")?;
                key.write_all(text.as_bytes())?;
                task.args.extend(["--key".into(), path(&key)]);
                states.push(key);
            }
            if let Some(option) = task.state.take() {
                let state = in_memory(c"anabranch-state")?;
                task.args.extend([option, path(&state)]);
                states.push(state);
            }
            slots.push(Slot { task, child: None, status: None, asked: false });
        }
        Ok(Self { program, file, slots, logs, _states: states })
    }

    /// Starts the programs of a node that do not run.
    ///
    /// # Errors
    /// If the system refuses to start one; the error is a sentence.
    pub(super) fn start(&mut self, node: usize, name: &str, space: &Namespace) -> Result<(), String> {
        for slot in self.slots.iter_mut().filter(|slot| slot.task.node == node) {
            slot.look();
            if slot.child.is_some() {
                continue;
            }
            let (program, args) = (&self.program, &slot.task.args);
            let failed = |e: io::Error| format!("cannot start {program} {} on {name}: {e}", args[0]);
            let log = &self.logs[node];
            if slot.status.is_some() {
                let _ = writeln!(&mut &*log, "anabranch: {} is started again", args[0]);
            }
            // Both descriptors share one position in the file, so nothing is overwritten.
            let out = log.try_clone().map_err(failed)?;
            let err = log.try_clone().map_err(failed)?;
            let mut command = Command::new(program);
            command.args(args).env(DOMAIN, &self.file).env(NODE, name);
            command.stdin(Stdio::null()).stdout(out).stderr(err);
            let spawned = space.run(move || command.spawn()).and_then(|spawned| spawned);
            (slot.child, slot.status) = (Some(spawned.map_err(failed)?), None);
        }
        Ok(())
    }

    /// Ends the programs of a node by SIGKILL.
    pub(super) fn kill(&mut self, node: usize) {
        for slot in self.slots.iter_mut().filter(|slot| slot.task.node == node) {
            if let Some(mut child) = slot.child.take() {
                // The process may have ended by itself, so errors are ignored.
                let _ = child.kill();
                slot.status = child.wait().ok();
            }
        }
    }

    /// Ends all programs: asks them first, and kills those that have not ended after [`GRACE`].
    pub(super) fn end(&mut self) {
        for slot in &mut self.slots {
            slot.look();
            let Some(child) = &slot.child else { continue };
            slot.asked = true;
            let _ = nix::sys::signal::kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM);
        }
        self.wait(GRACE);
        (0..self.logs.len()).for_each(|node| self.kill(node));
    }

    /// Waits until no program runs, but at most for `span`.
    pub(super) fn wait(&mut self, span: Span) {
        let clock = Clock::start();
        loop {
            self.slots.iter_mut().for_each(Slot::look);
            let over = clock.now().since(Time::ZERO) >= span;
            if over || self.slots.iter().all(|slot| slot.child.is_none()) {
                return;
            }
            clock.sleep_until(clock.now() + LOOK_EVERY);
        }
    }

    /// Returns the state of a node's programs.
    pub(super) fn of(&mut self, node: usize) -> Vec<Program> {
        let those = self.slots.iter_mut().filter(|slot| slot.task.node == node);
        let told = those.map(|slot| {
            slot.look();
            Program {
                command: slot.task.args.clone(),
                pid: slot.child.as_ref().map(Child::id),
                exit: slot.status.and_then(|status| status.code()),
                signal: slot.status.and_then(|status| status.signal()),
            }
        });
        told.collect()
    }

    /// Returns the path of the output of a node's programs.
    pub(super) fn log(&self, node: usize) -> String {
        path(&self.logs[node])
    }

    /// Returns the last lines of a node's output, if one of its programs has ended without being told to.
    pub(super) fn last(&self, node: usize) -> Vec<String> {
        let mut those = self.slots.iter().filter(|slot| slot.task.node == node);
        if !those.any(|slot| slot.child.is_none() && !slot.asked) {
            return Vec::new();
        }
        // The descriptor's position is where the programs write, so the file is opened again for reading.
        let read = || -> io::Result<String> {
            let mut file = File::open(self.log(node))?;
            let bytes = file.metadata()?.len();
            file.seek(SeekFrom::Start(bytes.saturating_sub(LAST_BYTES)))?;
            let mut text = Vec::new();
            file.read_to_end(&mut text)?;
            Ok(String::from_utf8_lossy(&text).into_owned())
        };
        let text = read().unwrap_or_default();
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines[lines.len().saturating_sub(LAST_LINES)..].to_vec()
    }
}
