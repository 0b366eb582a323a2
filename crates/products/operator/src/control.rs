//! What a command says to the agent of its host: lines of JSON over a Unix socket in the directory for state,
//! which only its user can enter. A module follows its line as bytes.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use anabranch_machines::store::Store;
use anabranch_machines::wire::Lines;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::journey;
use crate::manager::{Costs, Manager, Wish};
use crate::mover::Moved;
use crate::plane::{Counters, Look, Phase};
use crate::spec::Place;
use crate::wasm::MODULE_BYTES_MAX;

/// Returns the path of the socket in a directory for state.
#[must_use]
pub fn socket_path(state: &Path) -> PathBuf {
    state.join("op.sock")
}

/// A request.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum Ask {
    /// To start an instance, whose module follows.
    Run {
        /// Its name.
        name: String,
        /// What the user calls its function.
        function: String,
        /// The length of the module, bytes.
        module_bytes: usize,
        /// Its settings.
        settings: Vec<(String, String)>,
        /// Its address at the users' side.
        inside: Place,
        /// Its address at the other side.
        outside: Option<Place>,
        /// Where packets go that leave outside.
        gateway: Option<Ipv4Addr>,
    },
    /// To tell of all instances.
    List,
    /// What an instance says that it has done.
    Console {
        /// Its name.
        name: String,
    },
    /// To end an instance.
    End {
        /// Its name.
        name: String,
    },
    /// To move an instance.
    Move {
        /// Its name.
        name: String,
        /// The name of the host.
        to: String,
        /// The links to use; none: all that lead there.
        via: Vec<String>,
    },
}

/// An answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "told", rename_all = "snake_case")]
pub enum Told {
    /// An instance runs.
    Ran {
        /// What its start took, microseconds: compile, instantiate, configure, record, attach.
        costs_us: [u64; 5],
    },
    /// An instance, of a list.
    Instance(Box<Shown>),
    /// What an instance says.
    Console {
        /// The instance.
        shown: Box<Shown>,
        /// Lines `NAME NUMBER`, or nothing if it has failed.
        report: String,
    },
    /// An instance runs at another host.
    Moved {
        /// How long it stood still, microseconds.
        still_us: u64,
        /// The length of its state, and the part that was sent while it stood still, bytes.
        state_bytes: usize,
        /// See `state_bytes`.
        late_bytes: usize,
        /// The frames that came meanwhile, and those that came later and were sent after it.
        waited: usize,
        /// See `waited`.
        late: usize,
        /// The bytes that each link carried.
        links: BTreeMap<String, u64>,
        /// Why it used one path only, if it did not mean to.
        note: Option<String>,
    },
    /// It is done, or the list has ended.
    Done,
    /// It is not done.
    Failed {
        /// Why.
        error: Error,
    },
}

/// An instance as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shown {
    /// Its name.
    pub name: String,
    /// Its function.
    pub function: String,
    /// `runs`, `stands still` or `failed`.
    pub state: String,
    /// How it has failed.
    pub why: Option<String>,
    /// Its address at the users' side.
    pub inside: Place,
    /// Its address at the other side.
    pub outside: Option<Place>,
    /// Its MAC.
    pub mac: String,
    /// How long it has run, at all hosts, milliseconds.
    pub age_ms: u64,
    /// Packets that came.
    pub came: u64,
    /// Packets that were sent on.
    pub passed: u64,
    /// Packets that were answered.
    pub replied: u64,
    /// Packets that the function dropped.
    pub dropped: u64,
    /// Packets that the host dropped.
    pub lost: u64,
}

impl From<Look> for Shown {
    fn from(look: Look) -> Self {
        let (state, why) = match look.phase {
            Phase::Runs => ("runs", None),
            Phase::Still | Phase::Away => ("stands still", None),
            Phase::Failed(how) => ("failed", Some(how)),
        };
        let Counters { came, passed, replied, dropped, lost } = look.counters;
        Self {
            name: look.spec.name,
            function: look.spec.function,
            state: state.to_owned(),
            why,
            inside: look.spec.inside,
            outside: look.spec.outside,
            mac: look.spec.mac.to_string(),
            age_ms: look.age_ms,
            came,
            passed,
            replied,
            dropped,
            lost,
        }
    }
}

/// Listens in a directory for state, of which this process has the lock: a socket that is there is a dead
/// one's.
///
/// # Errors
/// `Failed` if the socket cannot be made.
pub fn listen(state: &Path) -> Result<UnixListener> {
    let path = socket_path(state);
    let failed = |e: io::Error| Error::Failed(format!("{}: {e}", path.display()));
    match fs::remove_file(&path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(failed(e)),
        _ => {}
    }
    let listener = UnixListener::bind(&path).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(listener)
}

/// Serves a command until it ends.
///
/// # Errors
/// If the connection breaks.
pub fn serve(store: &Store, manager: &Manager, stream: UnixStream) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    let mut lines = Lines::new(stream);
    while let Some(ask) = lines.receive::<Ask>()? {
        let answered = answer(store, manager, ask, &mut lines);
        let told = match answered {
            Ok(told) => told,
            Err(error) => Told::Failed { error },
        };
        lines.send(&told)?;
    }
    Ok(())
}

fn answer(store: &Store, manager: &Manager, ask: Ask, lines: &mut Lines<UnixStream>) -> Result<Told> {
    let failed = |e: io::Error| Error::Failed(e.to_string());
    match ask {
        Ask::Run { name, function, module_bytes, settings, inside, outside, gateway } => {
            if module_bytes > MODULE_BYTES_MAX {
                return Err(Error::Usage(format!("the module is larger than {MODULE_BYTES_MAX} bytes")));
            }
            let mut module = vec![0; module_bytes];
            lines.receive_bytes(&mut module).map_err(failed)?;
            let wish = Wish { name, function, module, settings, inside, outside, gateway };
            let (_, costs) = manager.run(wish)?;
            let Costs { compile, instantiate, configure, record, attach } = costs;
            let costs_us = [compile, instantiate, configure, record, attach].map(|cost| cost.as_micros());
            Ok(Told::Ran { costs_us })
        }
        Ask::List => {
            for look in manager.list()? {
                lines.send(&Told::Instance(Box::new(look.into()))).map_err(failed)?;
            }
            Ok(Told::Done)
        }
        Ask::Console { name } => {
            let (look, report) = manager.console(&name)?;
            Ok(Told::Console { shown: Box::new(look.into()), report: report.unwrap_or_default() })
        }
        Ask::End { name } => manager.end(&name).map(|()| Told::Done),
        Ask::Move { name, to, via } => {
            let journey::Report { moved, links, note } = journey::go(store, manager, &name, &to, &via)?;
            let still_us = moved.still.as_micros();
            let Moved { state_bytes, late_bytes, waited, late, .. } = moved;
            Ok(Told::Moved { still_us, state_bytes, late_bytes, waited, late, links, note })
        }
    }
}

/// A command's connection to the agent of its host.
pub struct Client(Lines<UnixStream>);

impl Client {
    /// Connects to the agent that uses a directory for state.
    ///
    /// # Errors
    /// `Unreachable` if none does.
    pub fn connect(state: &Path) -> Result<Self> {
        let stream = UnixStream::connect(socket_path(state)).map_err(|e| {
            let dir = state.display();
            Error::Unreachable(format!("no agent carries functions here ({dir}: {e}): `op agent` starts one"))
        })?;
        Ok(Self(Lines::new(stream)))
    }

    /// Asks, and returns the next answer.
    ///
    /// # Errors
    /// The agent's; `Unreachable` if it has ended.
    pub fn ask(&mut self, ask: &Ask, module: &[u8]) -> Result<Told> {
        let ended = |e: io::Error| Error::Unreachable(format!("the agent has ended: {e}"));
        self.0.send(ask).and_then(|()| self.0.send_bytes(module)).map_err(ended)?;
        self.answer()
    }

    /// Returns the next answer to the same request.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub fn answer(&mut self) -> Result<Told> {
        let ended = |e: io::Error| Error::Unreachable(format!("the agent has ended: {e}"));
        match self.0.receive().and_then(|told| told.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())) {
            Ok(Told::Failed { error }) => Err(error),
            Ok(told) => Ok(told),
            Err(e) => Err(ended(e)),
        }
    }
}
