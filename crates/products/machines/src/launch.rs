//! Starts and ends the QEMU of a machine. It outlives this program: a guest does not end with the command
//! that started it.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anabranch_algo::{Span, Time};
use anabranch_net::Clock;
use serde_json::json;

use crate::config::{Config, Places};
use crate::error::{Error, Result};
use crate::qmp::{OLDEST, Qmp, Version};
use crate::store::Machine;

/// The program.
pub const PROGRAM: &str = "qemu-system-x86_64";
/// How long a QEMU may take until it answers.
const START: Span = Span::from_secs(20);
/// How long a QEMU may take to end.
const END: Span = Span::from_secs(10);

/// Returns the version of the QEMU on this host.
///
/// # Errors
/// `NotFound` if there is none; `Refused` if it is too old to migrate over Multipath TCP.
pub fn installed() -> Result<Version> {
    let said = Command::new(PROGRAM).arg("--version").stdin(Stdio::null()).output();
    let said = said.map_err(|e| {
        Error::NotFound(format!("{PROGRAM} does not run ({e}): install QEMU (apt install qemu-system-x86)"))
    })?;
    let text = String::from_utf8_lossy(&said.stdout);
    let unknown = || Error::Failed(format!("{PROGRAM} --version says no version"));
    let version = Version::find(&text).ok_or_else(unknown)?;
    check(version)?;
    Ok(version)
}

/// Refuses a QEMU that is too old.
///
/// # Errors
/// `Refused`.
pub fn check(version: Version) -> Result {
    match version < OLDEST {
        true => Err(Error::Refused(format!(
            "QEMU {version} is too old: machines move over several paths from {OLDEST} on"
        ))),
        false => Ok(()),
    }
}

/// Whether the QEMU of this host knows a machine type.
#[must_use]
pub fn knows_machine(machine: &str) -> bool {
    let said = Command::new(PROGRAM).args(["-machine", "help"]).stdin(Stdio::null()).output();
    let text = said.map(|said| String::from_utf8_lossy(&said.stdout).into_owned()).unwrap_or_default();
    text.lines().any(|line| line.split_whitespace().next() == Some(machine))
}

/// A QEMU that has been started.
#[derive(Debug)]
pub struct Started {
    /// Its process.
    pub child: Child,
    /// A connection to it.
    pub qmp: Qmp,
}

/// Starts a QEMU, and waits until it answers. With `waits`, it waits for the state of another one.
///
/// # Errors
/// If it does not start: with the last line that it said.
pub fn start(config: &Config, places: &Places, waits: bool, clock: Clock) -> Result<Started> {
    // Sockets of an earlier QEMU of this name would be taken for those of this one.
    for path in [places.look(), places.beat()] {
        let _ = fs::remove_file(path);
    }
    let mut command = Command::new(PROGRAM);
    command.args(config.arguments(places, waits));
    spawn(command, &places.qmp(), &places.messages(), clock)
}

/// Starts a program of QEMU that outlives this one, and waits until it answers at its QMP socket. Its
/// messages go to a file.
///
/// # Errors
/// As [`start`].
pub(crate) fn spawn(mut command: Command, socket: &Path, messages: &Path, clock: Clock) -> Result<Started> {
    let failed = |e| Error::of_path(messages, &e);
    let log = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(messages);
    let log = log.map_err(failed)?;
    let _ = fs::remove_file(socket);
    command.stdin(Stdio::null()).stdout(log.try_clone().map_err(failed)?).stderr(log).process_group(0);
    let program = command.get_program().to_string_lossy().into_owned();
    let mut child = command.spawn().map_err(|e| Error::NotFound(format!("cannot run {program}: {e}")))?;
    match greet(&mut child, socket, messages, clock) {
        Ok(qmp) => Ok(Started { child, qmp }),
        Err(e) => {
            let _ = child.kill();
            let _ = child.wait();
            Err(e)
        }
    }
}

fn greet(child: &mut Child, socket: &Path, messages: &Path, clock: Clock) -> Result<Qmp> {
    let deadline = clock.now() + START;
    loop {
        match Qmp::connect(socket, clock) {
            Ok(qmp) => return Ok(qmp),
            Err(e) if clock.now() > deadline => return Err(e),
            Err(_) => {}
        }
        if let Ok(Some(status)) = child.try_wait() {
            let said = fs::read_to_string(messages).unwrap_or_default();
            let last =
                said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it says nothing").to_owned();
            return Err(Error::Refused(format!("QEMU ends at once ({status}): {last}")));
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the machine type behind the name `pc`, with its version.
///
/// # Errors
/// If QEMU does not tell.
pub fn machine_type(qmp: &mut Qmp) -> Result<String> {
    let all = qmp.execute("query-machines", json!({}))?;
    let all = all.as_array().cloned().unwrap_or_default();
    let pc = all.iter().find(|machine| machine["alias"] == "pc" || machine["name"] == "pc");
    let name = pc.and_then(|machine| machine["name"].as_str()).unwrap_or("pc");
    Ok(name.to_owned())
}

/// Ends a QEMU, and waits until it is gone. The guest is not asked.
///
/// # Errors
/// If it does not end.
pub fn end(mut qmp: Qmp, clock: Clock) -> Result {
    let path = qmp.path().to_owned();
    match qmp.execute("quit", json!({})) {
        Ok(_) | Err(Error::Unreachable(_)) => {}
        Err(e) => return Err(e),
    }
    drop(qmp);
    let deadline = clock.now() + END;
    while is_alive(&path, clock, deadline) {
        if clock.now() > deadline {
            return Err(Error::Failed(format!("QEMU at {} does not end", path.display())));
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Ends the QEMU of a machine that may not run, in the hardest way that there is: what it writes is lost in
/// any case, and each moment counts.
///
/// # Errors
/// If it does not end.
pub(crate) fn kill(machine: &Machine, clock: Clock) -> Result {
    let is_its = |pid: &i32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&words).contains(&*machine.qmp.to_string_lossy())
    };
    if let Some(pid) = machine.pid.filter(is_its) {
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::SIGKILL);
        return Ok(());
    }
    match Qmp::connect(machine.look.as_ref().unwrap_or(&machine.qmp), clock) {
        Ok(qmp) => end(qmp, clock),
        Err(Error::NotFound(_)) => Ok(()),
        Err(e) => Err(e),
    }
}

/// Whether a QEMU still listens at its socket.
fn is_alive(path: &Path, clock: Clock, deadline: Time) -> bool {
    clock.now() <= deadline && std::os::unix::net::UnixStream::connect(path).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_qemu_is_refused_in_words() {
        let error = check(Version { major: 5, minor: 2, micro: 0 }).unwrap_err().to_string();
        assert_eq!(error, "QEMU 5.2.0 is too old: machines move over several paths from 6.1.0 on");
        assert_eq!(check(OLDEST), Ok(()));
    }
}
