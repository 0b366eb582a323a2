//! The destination of moves: instances that wait for their state and for the word to run.
//!
//! The rules are those of [`anabranch_machines::journal`]. An instance that waits is in memory alone: if this
//! process is killed, the move is one that it does not know, which is refused for ever. One that runs is
//! recorded with its state before the source is told so, so that the next process runs it, and says the same.
//! It may run a moment before it is recorded: it ends with this process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anabranch_algo::{Span, Time};
use anabranch_machines::journal::{Arrival, Asked, answer};
use anabranch_machines::wire::MoveId;

use crate::delta;
use crate::error::{Error, Result};
use crate::frame::{Arp, Header};
use crate::manager::{Manager, Record, to_json};
use crate::records::{Change, Kind};
use crate::spec::Spec;
use crate::wasm::Instance;
use crate::wire::Frame;

/// How long an instance waits for its source.
const GRACE: Span = Span::from_secs(30);
/// The most instances that wait, of one client.
const WAITING_MAX: usize = 64;

/// An instance that waits.
struct Waiting {
    client: String,
    spec: Spec,
    instance: Instance,
    /// Its state, as far as it is here.
    state: Vec<u8>,
    /// Its age, milliseconds, when all of its state is here.
    age_ms: Option<u64>,
    heard: Time,
}

/// The moves that come to a host.
pub struct Arrivals {
    manager: Arc<Manager>,
    waiting: Mutex<BTreeMap<MoveId, Waiting>>,
}

/// What is recorded of a move that ended here.
#[derive(serde::Serialize, serde::Deserialize)]
struct Came {
    client: String,
    /// Its frames may still come after it.
    spec: Spec,
}

impl Arrivals {
    /// Prepares for moves to a host.
    #[must_use]
    pub fn new(manager: Arc<Manager>) -> Self {
        Self { manager, waiting: Mutex::default() }
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeMap<MoveId, Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a module.
    ///
    /// # Errors
    /// `Usage` if it is none of our ABI.
    pub fn module(&self, module: &[u8]) -> Result {
        self.manager.wasm().compile(module).map(drop)
    }

    /// Returns whether a module is here.
    #[must_use]
    pub fn has(&self, module: &str) -> bool {
        self.manager.wasm().known(module).is_some()
    }

    /// Makes an instance that waits.
    ///
    /// # Errors
    /// `Refused` if its name or an address is taken, its module is not here, or too many wait; `Usage` if it
    /// makes no sense.
    pub fn prepare(&self, client: &str, id: &MoveId, spec: Spec) -> Result {
        spec.check()?;
        let missing = || Error::Refused("its module is not here".to_owned());
        let program = self.manager.wasm().known(&spec.module).ok_or_else(missing)?;
        let mut instance = self.manager.wasm().instantiate(&program)?;
        // The source compares with zeros, too.
        let state = vec![0; instance.state()?.len()];
        let asked = spec.clone();
        self.manager.host().ask(move |plane, _, _| plane.check(&asked))??;
        let heard = self.manager.host().clock().now();
        let mut waiting = self.waiting();
        if waiting.values().filter(|known| known.client == client).count() >= WAITING_MAX {
            return Err(Error::Refused(format!("{WAITING_MAX} instances of {client} wait here already")));
        }
        if waiting.contains_key(id) || self.came(id)?.is_some() {
            return Err(Error::Refused("this move is known already".to_owned()));
        }
        let client = client.to_owned();
        waiting.insert(id.clone(), Waiting { client, spec, instance, state, age_ms: None, heard });
        Ok(())
    }

    /// Takes what has changed in the state of an instance that waits. With `age_ms`, nothing changes any
    /// more.
    ///
    /// # Errors
    /// `NotFound` if the instance does not wait; `Refused` if its module cannot have this state.
    pub fn state(&self, client: &str, id: &MoveId, age_ms: Option<u64>, delta: &[u8]) -> Result {
        let mut waiting = self.waiting();
        let unknown = || Error::NotFound("this move is not known here".to_owned());
        let known = waiting.get_mut(id).filter(|known| known.client == client).ok_or_else(unknown)?;
        let other = || Error::Refused("the state is not that of its module".to_owned());
        delta::apply(&mut known.state, delta).ok_or_else(other)?;
        if age_ms.is_some() {
            known.instance.set_state(&known.state)?;
        }
        known.age_ms = age_ms;
        known.heard = self.manager.host().clock().now();
        Ok(())
    }

    /// Returns the record of a move that ended here.
    fn came(&self, id: &MoveId) -> Result<Option<Came>> {
        let bytes = self.manager.records().get(Kind::Arrival, &id.to_string())?;
        let damaged = |e| Error::Failed(format!("the record of the move {id} is damaged: {e}"));
        bytes.map(|bytes| serde_json::from_slice(&bytes).map_err(damaged)).transpose()
    }

    /// Runs an instance, or gives it up. Returns what is true of the move from now on.
    ///
    /// # Errors
    /// `Failed` if that cannot be recorded: nothing has changed then.
    pub fn decide(&self, client: &str, id: &MoveId, asked: Asked) -> Result<Arrival> {
        if let Some(came) = self.came(id)? {
            // Another client learns nothing of it.
            return Ok(if came.client == client { Arrival::Running } else { Arrival::Refused });
        }
        let mut waiting = self.waiting();
        let known = waiting.get(id).filter(|known| known.client == client);
        let arrival = known.map(|_| Arrival::Waiting);
        let is_whole = known.is_some_and(|known| known.age_ms.is_some());
        match answer(arrival, asked, is_whole) {
            Arrival::Starting => {}
            Arrival::Refused if arrival.is_some() => {
                waiting.remove(id);
                return Ok(Arrival::Refused);
            }
            other => return Ok(other),
        }
        let Some(known) = waiting.remove(id) else { return Ok(Arrival::Refused) };
        drop(waiting);
        self.run(id, known)
    }

    /// Records that an instance runs here, and runs it.
    fn run(&self, id: &MoveId, known: Waiting) -> Result<Arrival> {
        let Waiting { client, spec, instance, state, age_ms, .. } = known;
        let Some(age_ms) = age_ms else { return Ok(Arrival::Refused) };
        let module = instance.program().bytes().to_vec();
        // A thread that takes a name or an address holds the records meanwhile.
        let mut records = self.manager.records();
        if self.manager.attach(spec.clone(), instance, age_ms, false).is_err() {
            return Ok(Arrival::Refused);
        }
        let record = Record { spec: spec.clone(), age_ms, leaving: None };
        let came = Came { client, spec: spec.clone() };
        let mut changes = vec![
            Change::set(Kind::Arrival, &id.to_string(), to_json(&came)),
            Change::set(Kind::Instance, &spec.name, to_json(&record)),
            Change::set(Kind::State, &spec.name, delta::between(&[], &state)),
        ];
        let recorded = records.get(Kind::Module, &spec.module).and_then(|known| {
            changes.extend(known.is_none().then(|| Change::set(Kind::Module, &spec.module, module)));
            records.commit(&changes)
        });
        if let Err(e) = recorded {
            // It has run for nothing, as if this process had been killed.
            self.manager.host().ask(move |plane, _, _| plane.remove(&spec.name))?;
            return Err(e);
        }
        Ok(Arrival::Running)
    }

    /// Has frames that came at the source go through an instance that runs here.
    ///
    /// # Errors
    /// `NotFound` if the move did not end here; `Refused` if a frame is for another instance.
    pub fn frames(&self, client: &str, id: &MoveId, frames: Vec<Frame>) -> Result {
        let unknown = || Error::NotFound("this move is not known here".to_owned());
        let came = self.came(id)?.filter(|came| came.client == client).ok_or_else(unknown)?;
        let own = [Some(came.spec.inside), came.spec.outside].map(|place| place.map(|place| place.address));
        let is_for_it = |frame: &[u8]| {
            Header::parse(frame).is_some_and(|header| header.to == came.spec.mac)
                || Arp::parse(frame).is_some_and(|arp| own.contains(&Some(arp.target)))
        };
        if !frames.iter().all(|(_, frame)| is_for_it(frame)) {
            return Err(Error::Refused("a frame is for another instance".to_owned()));
        }
        self.manager.host().ask(move |plane, now, send| {
            frames.iter().for_each(|(side, frame)| plane.handle(now, *side, frame, send));
        })
    }

    /// Forgets a move that its source has forgotten, and says once more where the instance is.
    ///
    /// # Errors
    /// `Failed` if the records cannot be changed.
    pub fn done(&self, client: &str, id: &MoveId) -> Result {
        let Some(came) = self.came(id)?.filter(|came| came.client == client) else { return Ok(()) };
        self.manager.records().commit(&[Change::remove(Kind::Arrival, &id.to_string())])?;
        self.manager.host().ask(move |plane, _, send| plane.announce(&came.spec.name, send))
    }

    /// Gives up instances whose source was not heard for long.
    pub fn give_up_late(&self) {
        let now = self.manager.host().clock().now();
        self.waiting().retain(|_, known| now.since(known.heard) < GRACE);
    }
}
