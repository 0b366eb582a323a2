//! What the source of a move and the agent at its destination say to each other: lines of JSON inside TLS.
//! The source asks, the agent answers.

use std::io::{self, Read, Write};
use std::net::IpAddr;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::journal::{Arrival, Asked};
use crate::qmp::Version;

/// The name of the protocol in TLS (RFC 7301).
pub const ALPN: &[u8] = b"anabranch-vm/1";
/// The default port of an agent.
pub const PORT: u16 = 26_230;
/// The most bytes of a line.
const LINE_MAX: usize = 256 << 10;
/// The most bytes of one block of a measurement.
pub(crate) const BLOCK: usize = 64 << 10;

/// The number of a move, which both ends know: 16 random bytes. It is a file's name at both.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MoveId(String);

impl MoveId {
    /// Makes a number of random bytes.
    #[must_use]
    pub fn new(random: [u8; 16]) -> Self {
        Self(data_encoding::HEXLOWER.encode(&random))
    }
}

impl TryFrom<String> for MoveId {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let is_one = text.len() == 32 && text.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'));
        if is_one { Ok(Self(text)) } else { Err("this is no number of a move") }
    }
}

impl From<MoveId> for String {
    fn from(id: MoveId) -> Self {
        id.0
    }
}

impl std::fmt::Display for MoveId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// A request of a source.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum Ask {
    /// What is there.
    Hello,
    /// Blocks follow, each with its length before it, until one of length 0.
    Measure,
    /// Whether an image is there.
    Have {
        /// Its hash.
        sha256: String,
    },
    /// An image follows.
    Put {
        /// Its hash.
        sha256: String,
        /// Its length.
        bytes: u64,
    },
    /// To wait for the state of a machine.
    Prepare(Box<Prepare>),
    /// To run a machine, or to give it up.
    Decide {
        /// The number of the move.
        id: MoveId,
        /// Which of the two.
        asked: Asked,
    },
    /// To take the disks of a machine for as long as it runs at its source: its shadow.
    Shadow(Box<Prepare>),
    /// What became of a shadow.
    Follow {
        /// Its number.
        id: MoveId,
        /// Whether the first copy is complete.
        is_whole: bool,
        /// How far it is behind, ms, as its source has measured.
        lag_ms: u64,
    },
    /// When the guest was heard for the first time since it runs.
    Beat {
        /// The number of the move.
        id: MoveId,
        /// How long to wait for it, ms.
        wait_ms: u64,
    },
}

/// A machine that is going to come.
#[derive(Clone, Serialize, Deserialize)]
pub struct Prepare {
    /// The number of the move.
    pub id: MoveId,
    /// What it is made of. Its kernel and its initial file system are named by their hashes.
    pub config: Config,
    /// The key of the connection that carries its state, a secret.
    pub key: String,
    /// Whether the guest may run before all of its memory is there.
    pub post_copy: bool,
    /// Whether the connection is to be over IPv6.
    pub ipv6: bool,
    /// The lengths of the disks that are not shared, in their order, bytes.
    #[serde(default)]
    pub disk_bytes: Vec<u64>,
}

impl std::fmt::Debug for Prepare {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prepare").field("id", &self.id).field("config", &self.config).finish_non_exhaustive()
    }
}

/// An answer of an agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "told", rename_all = "snake_case")]
pub enum Told {
    /// What is there.
    Hello {
        /// The version of QEMU.
        qemu: Version,
        /// The addresses of the host.
        addresses: Vec<IpAddr>,
        /// The memory that a machine can have, bytes.
        memory_bytes: u64,
    },
    /// When the bytes of a measurement came.
    Measured {
        /// Milliseconds since the first byte, and bytes until then.
        ticks: Vec<(u64, u64)>,
    },
    /// Whether an image is there.
    Have {
        /// That.
        is_there: bool,
    },
    /// An image is stored.
    Stored,
    /// A QEMU waits for the state of a machine.
    Ready {
        /// The port at which it waits.
        port: u16,
        /// The port at which it takes the disks that are not shared, if there are any.
        #[serde(default)]
        disks: Option<u16>,
    },
    /// What was written of a move.
    Decided {
        /// That.
        state: Arrival,
        /// How long after the request the guest ran, microseconds, if it was started now.
        runs_after_us: Option<u64>,
        /// How long after the request this was sent, microseconds.
        told_after_us: u64,
    },
    /// What was written of a shadow; nothing if it is not known.
    Shadow {
        /// That.
        state: Option<Arrival>,
        /// Whether it is written that the first copy is complete, so that it can be taken over.
        is_whole: bool,
        /// Whether the program lives that takes its disks.
        serves: bool,
    },
    /// When the guest was heard.
    Beat {
        /// How long after the request to run it, microseconds; nothing if it was not.
        after_us: Option<u64>,
    },
    /// It is not done.
    Refused {
        /// Why, for people.
        text: String,
    },
}

/// Lines of JSON over a connection, with bytes between them.
#[derive(Debug)]
pub struct Lines<S> {
    stream: S,
    unread: Vec<u8>,
}

impl<S: Read + Write> Lines<S> {
    /// Speaks over a connection.
    pub const fn new(stream: S) -> Self {
        Self { stream, unread: Vec::new() }
    }

    /// Returns the connection.
    pub const fn stream(&self) -> &S {
        &self.stream
    }

    /// Sends a message.
    ///
    /// # Errors
    /// If the connection has ended.
    pub fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.send_bytes(&line)
    }

    /// Sends bytes that follow a message.
    ///
    /// # Errors
    /// If the connection has ended.
    pub fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)?;
        self.stream.flush()
    }

    /// Reads a message; `None` at the end of the connection.
    ///
    /// # Errors
    /// If the connection has ended in the middle of one, or it is no message, or longer than 256 KiB.
    pub fn receive<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        loop {
            if let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=end).collect();
                return serde_json::from_slice(&line).map(Some).map_err(io::Error::from);
            }
            if self.unread.len() > LINE_MAX {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a line is too long"));
            }
            let mut bytes = [0; 16 << 10];
            let count = self.stream.read(&mut bytes)?;
            if count == 0 {
                return Ok(None);
            }
            self.unread.extend_from_slice(&bytes[..count]);
        }
    }

    /// Reads exactly this many bytes that follow a message.
    ///
    /// # Errors
    /// If the connection has ended.
    pub fn receive_bytes(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        let ready = self.unread.len().min(bytes.len());
        bytes[..ready].copy_from_slice(&self.unread[..ready]);
        self.unread.drain(..ready);
        self.stream.read_exact(&mut bytes[ready..])
    }
}

/// Returns the bytes a second of a measurement, without its first third, in which connections find their
/// rate.
#[must_use]
pub fn rate_of(ticks: &[(u64, u64)]) -> u64 {
    let Some((end, bytes)) = ticks.last().copied() else { return 0 };
    let start = ticks.iter().rev().find(|(at, _)| *at <= end / 3).copied().unwrap_or((0, 0));
    (bytes - start.1) * 1_000 / (end - start.0).max(1)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    #[test]
    fn messages_and_bytes_follow_each_other() {
        let mut lines = Lines::new(Cursor::new(Vec::new()));
        lines.send(&Ask::Hello).unwrap();
        lines.send_bytes(b"abc").unwrap();
        lines.send(&Told::Ready { port: 7, disks: None }).unwrap();
        lines.stream.set_position(0);
        assert!(matches!(lines.receive().unwrap(), Some(Ask::Hello)));
        let mut bytes = [0; 3];
        lines.receive_bytes(&mut bytes).unwrap();
        assert_eq!(&bytes, b"abc");
        assert!(matches!(lines.receive().unwrap(), Some(Told::Ready { port: 7, .. })));
        assert!(lines.receive::<Ask>().unwrap().is_none());
        let mut endless = Lines::new(Cursor::new(vec![b'x'; 2 * LINE_MAX]));
        assert!(endless.receive::<Ask>().is_err());
    }

    #[test]
    fn a_rate_is_that_of_the_end() {
        // A burst of 100 kB at the beginning, then 1 MB/s.
        let ticks: Vec<(u64, u64)> = (0..=20).map(|n| (n * 50, 100_000 + n * 50_000)).collect();
        assert_eq!(rate_of(&ticks), 1_000_000);
        assert_eq!(rate_of(&[]), 0);
        assert_eq!(rate_of(&[(0, 5)]), 0, "one mark is no rate");
    }

    #[test]
    fn a_number_of_a_move_is_no_path() {
        let decide = |id: &str| {
            let line = format!("{{\"ask\":\"decide\",\"id\":\"{id}\",\"asked\":\"abort\"}}\n");
            Lines::new(Cursor::new(line.into_bytes())).receive::<Ask>()
        };
        let id = MoveId::new([0xab; 16]).to_string();
        assert!(matches!(decide(&id), Ok(Some(Ask::Decide { id: read, .. })) if read.to_string() == id));
        for wrong in ["", "/etc/docker/daemon", "../machines/web/move", &id.to_uppercase(), &id[1..]] {
            assert!(decide(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn no_key_is_shown() {
        let config = Config::parse("name = \"a\"\nmemory_mb = 16\nkernel = \"k\"").unwrap();
        let prepare = Prepare {
            id: MoveId::new([1; 16]),
            config,
            key: "secret".into(),
            post_copy: false,
            ipv6: false,
            disk_bytes: vec![],
        };
        assert!(!format!("{:?}", Ask::Prepare(Box::new(prepare))).contains("secret"));
    }
}
