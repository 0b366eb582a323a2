//! QEMU's machine protocol (QMP): JSON lines over a Unix socket.
//!
//! It is written here because the crate `qapi-qmp` compiles the types of all commands of one version of QEMU,
//! while this crate needs twenty commands, of every version since 6.1, whose answers differ in their fields.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anabranch_algo::{Span, Time};
use anabranch_net::Clock;
use serde_json::{Value, json};

use crate::error::{Error, Result};

/// The most bytes of one line.
const LINE_MAX: usize = 4 << 20;
/// The most events that are kept until the caller takes them.
const EVENTS_MAX: usize = 1_000;
/// The longest time that QEMU may take to answer.
const PATIENCE: Span = Span::from_secs(20);
/// The longest time until QEMU greets. It greets one client at a time.
const GREETING: Span = Span::from_secs(3);

/// The version of a QEMU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct Version {
    /// The first number.
    pub major: u32,
    /// The second number.
    pub minor: u32,
    /// The third number.
    pub micro: u32,
}

/// The first QEMU that migrates over Multipath TCP.
pub const OLDEST: Version = Version { major: 6, minor: 1, micro: 0 };

impl Version {
    /// Reads the version in a text such as `QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg)`.
    #[must_use]
    pub fn find(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace().skip_while(|word| *word != "version");
        let mut numbers = words.nth(1)?.split('.').map(|part| part.parse().ok());
        Some(Self {
            major: numbers.next()??,
            minor: numbers.next()??,
            micro: numbers.next().flatten().unwrap_or(0),
        })
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.micro)
    }
}

/// Something that QEMU reported by itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// The name, for example `MIGRATION`.
    pub name: String,
    /// The data; `null` if there is none.
    pub data: Value,
    /// The time at which it was read, by the clock of the connection.
    pub at: Time,
}

/// A connection to a QEMU.
#[derive(Debug)]
pub struct Qmp {
    stream: UnixStream,
    path: PathBuf,
    clock: Clock,
    version: Version,
    unread: Vec<u8>,
    events: VecDeque<Event>,
    next_id: u64,
}

impl Qmp {
    /// Connects, and waits for the greeting. Times of events are by `clock`.
    ///
    /// # Errors
    /// `NotFound` if there is no socket, or no program listens at it; `Failed` if the other end is no QEMU,
    /// or another program holds the socket.
    pub fn connect(path: &Path, clock: Clock) -> Result<Self> {
        let failed = |e: io::Error| match e.kind() {
            ErrorKind::NotFound => Error::NotFound(format!("there is no QMP socket {}", path.display())),
            ErrorKind::ConnectionRefused => {
                Error::NotFound(format!("no QEMU listens at {}: it has ended", path.display()))
            }
            ErrorKind::WouldBlock => held(path),
            _ => Error::of_path(path, &e),
        };
        let stream = UnixStream::connect(path).map_err(failed)?;
        stream.set_write_timeout(Some(Duration::from_secs(5))).map_err(failed)?;
        let version = OLDEST;
        let mut qmp = Self {
            stream,
            path: path.to_owned(),
            clock,
            version,
            unread: Vec::new(),
            events: VecDeque::new(),
            next_id: 0,
        };
        let greeting = qmp.read(clock.now() + GREETING)?.ok_or_else(|| held(path))?;
        let numbers = &greeting["QMP"]["version"]["qemu"];
        let number = |key: &str| numbers[key].as_u64().and_then(|n| u32::try_from(n).ok());
        let (Some(major), Some(minor), Some(micro)) = (number("major"), number("minor"), number("micro"))
        else {
            return Err(Error::Failed(format!("{} is no QMP socket: it says {greeting}", path.display())));
        };
        qmp.version = Version { major, minor, micro };
        qmp.execute("qmp_capabilities", json!({}))?;
        Ok(qmp)
    }

    /// Returns the version of QEMU.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.version
    }

    /// Returns the path of the socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Executes a command, and returns what it returns. Events that come meanwhile are kept.
    ///
    /// # Errors
    /// `Refused` if QEMU does not execute it; `Unreachable` if QEMU has ended or does not answer.
    pub fn execute(&mut self, command: &str, arguments: Value) -> Result<Value> {
        self.next_id += 1;
        let id = self.next_id;
        let mut line = json!({"execute": command, "arguments": arguments, "id": id}).to_string();
        line.push('\n');
        self.stream.write_all(line.as_bytes()).map_err(|e| self.ended(&e))?;
        let deadline = self.clock.now() + PATIENCE;
        loop {
            let silent = || Error::Unreachable(format!("QEMU does not answer {command}"));
            let answer = self.read(deadline)?.ok_or_else(silent)?;
            if answer["id"].as_u64() != Some(id) {
                self.keep(&answer);
                continue;
            }
            if let Some(desc) = answer["error"]["desc"].as_str() {
                return Err(Error::Refused(format!("QEMU refuses {command}: {desc}")));
            }
            return Ok(answer["return"].clone());
        }
    }

    /// Returns the next event, for which it waits until `deadline`; `None` if none comes.
    ///
    /// # Errors
    /// `Unreachable` if QEMU has ended.
    pub fn event(&mut self, deadline: Time) -> Result<Option<Event>> {
        while self.events.is_empty() {
            match self.read(deadline)? {
                Some(line) => self.keep(&line),
                None => return Ok(None),
            }
        }
        Ok(self.events.pop_front())
    }

    /// Returns the state of the machine: `running`, `paused`, `inmigrate`, `postmigrate`, …
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    pub fn status(&mut self) -> Result<String> {
        let status = self.execute("query-status", json!({}))?;
        Ok(status["status"].as_str().unwrap_or_default().to_owned())
    }

    fn keep(&mut self, line: &Value) {
        if let Some(name) = line["event"].as_str() {
            if self.events.len() == EVENTS_MAX {
                self.events.pop_front();
            }
            let event = Event { name: name.to_owned(), data: line["data"].clone(), at: self.clock.now() };
            self.events.push_back(event);
        }
    }

    fn ended(&self, error: &io::Error) -> Error {
        Error::Unreachable(format!("QEMU at {} has ended: {error}", self.path.display()))
    }

    /// Reads a line; `None` after the deadline. One attempt is made in any case.
    fn read(&mut self, deadline: Time) -> Result<Option<Value>> {
        let mut bytes = [0; 64 << 10];
        loop {
            if let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=end).collect();
                if line.trim_ascii().is_empty() {
                    continue;
                }
                let no_json = |e| Error::Failed(format!("{} sends no JSON: {e}", self.path.display()));
                return serde_json::from_slice(&line).map(Some).map_err(no_json);
            }
            if self.unread.len() > LINE_MAX {
                return Err(Error::Failed(format!("{} sends a line without end", self.path.display())));
            }
            let left = deadline.since(self.clock.now()).as_nanos().max(1_000_000);
            let timeout = Some(Duration::from_nanos(left));
            self.stream.set_read_timeout(timeout).map_err(|e| self.ended(&e))?;
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(self.ended(&io::Error::other("it closed the connection"))),
                Ok(count) => self.unread.extend_from_slice(&bytes[..count]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(self.ended(&e)),
            }
        }
    }
}

fn held(path: &Path) -> Error {
    Error::Failed(format!(
        "{} does not greet: another program (a move, libvirt) holds this QMP socket, which serves one at a \
         time",
        path.display()
    ))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;

    const GREETING: &str =
        r#"{"QMP":{"version":{"qemu":{"micro":22,"minor":2,"major":7},"package":""},"capabilities":[]}}"#;

    /// Plays a QEMU that answers each command with the next of these texts.
    fn scripted(greeting: &'static str, answers: &'static [&'static str]) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("qmp");
        let listener = UnixListener::bind(&path).unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            writeln!(stream, "{greeting}").unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            for answer in answers {
                let line: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
                writeln!(stream, "{}", answer.replace("ID", &line["id"].to_string())).unwrap();
            }
        });
        (dir, path)
    }

    #[test]
    fn answers_find_their_commands_and_events_are_kept() {
        let (_dir, path) = scripted(
            GREETING,
            &[
                r#"{"return":{},"id":ID}"#,
                "{\"event\":\"STOP\",\"timestamp\":{}}\n{\"return\":{\"status\":\"paused\"},\"id\":ID}",
                r#"{"error":{"class":"GenericError","desc":"no such thing"},"id":ID}"#,
            ],
        );
        let clock = Clock::start();
        let mut qmp = Qmp::connect(&path, clock).unwrap();
        assert_eq!(qmp.version().to_string(), "7.2.22");
        assert_eq!(qmp.status().unwrap(), "paused");
        assert_eq!(qmp.event(clock.now()).unwrap().map(|e| e.name), Some("STOP".to_owned()));
        assert_eq!(qmp.event(clock.now()).unwrap(), None);
        let error = qmp.execute("x", json!({})).unwrap_err();
        assert_eq!(error, Error::Refused("QEMU refuses x: no such thing".to_owned()));
        let error = qmp.execute("x", json!({})).unwrap_err();
        assert!(matches!(error, Error::Unreachable(_)), "{error}");
    }

    #[test]
    fn what_is_no_qemu_is_told() {
        let clock = Clock::start();
        let (_dir, path) = scripted("hello", &[]);
        assert!(Qmp::connect(&path, clock).unwrap_err().to_string().contains("sends no JSON"));
        let (_dir, path) = scripted("{}", &[]);
        assert!(Qmp::connect(&path, clock).unwrap_err().to_string().contains("is no QMP socket"));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("none");
        assert!(matches!(Qmp::connect(&path, clock), Err(Error::NotFound(_))));
        drop(UnixListener::bind(&path).unwrap());
        assert!(Qmp::connect(&path, clock).unwrap_err().to_string().contains("it has ended"));
        let _silent = UnixListener::bind(dir.path().join("silent")).unwrap();
        let error = Qmp::connect(&dir.path().join("silent"), clock).unwrap_err();
        assert!(error.to_string().contains("one at a time"), "{error}");
    }

    #[test]
    fn versions_are_found_in_what_qemu_says() {
        let found = Version::find("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u16)\nCopyright");
        assert_eq!(found, Some(Version { major: 7, minor: 2, micro: 22 }));
        assert_eq!(
            Version::find("QEMU emulator version 6.0"),
            Some(Version { major: 6, minor: 0, micro: 0 })
        );
        assert!(Version::find("QEMU emulator version 6.0").unwrap() < OLDEST);
        assert_eq!(Version::find("busybox"), None);
    }
}
