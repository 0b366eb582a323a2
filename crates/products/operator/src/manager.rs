//! Runs, lists and ends instances: what is in the records, in the plane and in wasmtime at the same time.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anabranch_algo::Span;
use anabranch_house::random::random;
use anabranch_machines::journal::Departure;
use anabranch_machines::wire::MoveId;
use serde::{Deserialize, Serialize};

use crate::delta;
use crate::error::{Error, Result};
use crate::frame::Mac;
use crate::host::Host;
use crate::plane::{Look, Phase};
use crate::records::{Change, Kind, Records};
use crate::spec::{Place, Spec};
use crate::wasm::{Instance, Wasm};

/// An instance that a user wants.
#[derive(Clone, Debug)]
pub struct Wish {
    /// Its name.
    pub name: String,
    /// What the user calls its function.
    pub function: String,
    /// Its module.
    pub module: Vec<u8>,
    /// Its settings.
    pub settings: Vec<(String, String)>,
    /// Its address at the users' side.
    pub inside: Place,
    /// Its address at the other side.
    pub outside: Option<Place>,
    /// Where packets go that leave outside.
    pub gateway: Option<Ipv4Addr>,
}

/// What the parts of a start took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// The module was compiled, or found.
    pub compile: Span,
    /// Memory was found, and the module's exports.
    pub instantiate: Span,
    /// The function read its settings.
    pub configure: Span,
    /// It was recorded.
    pub record: Span,
    /// The thread that moves packets knew of it.
    pub attach: Span,
}

/// The record of an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// What it is made of.
    pub spec: Spec,
    /// How long it had run when its state was kept, milliseconds; the state is a record of its own.
    #[serde(default)]
    pub age_ms: u64,
    /// Where it goes, if it moves.
    #[serde(default)]
    pub leaving: Option<Leaving>,
}

/// The move of an instance, at its source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leaving {
    /// The number of the move, which both ends know.
    pub id: MoveId,
    /// The name of the destination.
    pub to: String,
    /// Its addresses, of which some may not be reached later.
    pub addresses: Vec<IpAddr>,
    /// Who may run it.
    pub state: Departure,
}

/// The instances of a host.
pub struct Manager {
    wasm: Arc<Wasm>,
    host: Host,
    records: Mutex<Box<dyn Records>>,
    /// The instances of which a move is being walked through.
    busy: Mutex<BTreeSet<String>>,
}

/// The right to walk through the move of an instance, until it is dropped.
pub(crate) struct Claim<'a> {
    busy: &'a Mutex<BTreeSet<String>>,
    name: String,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.name);
    }
}

pub(crate) fn to_json(value: &impl Serialize) -> Vec<u8> {
    // Records have no maps whose keys are not text.
    serde_json::to_vec(value).unwrap_or_default()
}

impl Manager {
    /// Makes the manager of a host, and starts the instances of its records. Returns what could not be
    /// started, as sentences.
    ///
    /// # Errors
    /// If the records cannot be read.
    pub fn new(wasm: Arc<Wasm>, host: Host, records: Box<dyn Records>) -> Result<(Self, Vec<String>)> {
        let manager = Self { wasm, host, records: Mutex::new(records), busy: Mutex::default() };
        let names = manager.records().names(Kind::Instance)?;
        let mut troubles = Vec::new();
        for name in names {
            if let Err(e) = manager.restore(&name) {
                troubles.push(format!("{name} does not run: {e}"));
            }
        }
        Ok((manager, troubles))
    }

    /// Returns the thread that moves packets.
    #[must_use]
    pub const fn host(&self) -> &Host {
        &self.host
    }

    /// Returns the modules.
    #[must_use]
    pub fn wasm(&self) -> &Wasm {
        &self.wasm
    }

    /// Returns the records, which no other thread changes meanwhile.
    pub(crate) fn records(&self) -> MutexGuard<'_, Box<dyn Records>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the instances of which a move is being walked through.
    pub(crate) fn busy(&self) -> BTreeSet<String> {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Claims the move of an instance.
    ///
    /// # Errors
    /// `Refused` if another thread walks through one.
    pub(crate) fn claim(&self, name: &str) -> Result<Claim<'_>> {
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        match busy.insert(name.to_owned()) {
            true => Ok(Claim { busy: &self.busy, name: name.to_owned() }),
            false => Err(Error::Refused(format!("{name} is on its way already"))),
        }
    }

    /// Reads the record of an instance.
    ///
    /// # Errors
    /// `Failed` if it is damaged.
    pub(crate) fn record(records: &dyn Records, name: &str) -> Result<Option<Record>> {
        let damaged = |e| Error::Failed(format!("the record of {name} is damaged: {e}"));
        let bytes = records.get(Kind::Instance, name)?;
        bytes.map(|bytes| serde_json::from_slice(&bytes).map_err(damaged)).transpose()
    }

    /// Starts an instance from its record.
    fn restore(&self, name: &str) -> Result {
        let mut records = self.records();
        let Some(record) = Self::record(&**records, name)? else { return Ok(()) };
        match record.leaving.as_ref().map(|leaving| leaving.state) {
            Some(Departure::Gone) => return records.commit(&forgotten(name)),
            Some(Departure::Moving) => {
                // It never ran at the destination.
                let stays = Record { leaving: None, ..record.clone() };
                records.commit(&[Change::set(Kind::Instance, name, to_json(&stays))])?;
            }
            Some(Departure::Given) | None => {}
        }
        let is_given = record.leaving.is_some_and(|leaving| leaving.state == Departure::Given);
        let module = records.get(Kind::Module, &record.spec.module)?;
        let state = records.get(Kind::State, name)?;
        drop(records);
        let module = module.ok_or_else(|| Error::Failed("its module is not recorded".to_owned()))?;
        let mut instance = self.wasm.instantiate(&self.wasm.compile(&module)?)?;
        match &state {
            Some(recorded) => {
                let mut state = vec![0; instance.state()?.len()];
                let damaged = || Error::Failed("its recorded state is damaged".to_owned());
                delta::apply(&mut state, recorded).ok_or_else(damaged)?;
                instance.set_state(&state)?;
            }
            None => instance.start(&record.spec.to_lines())?,
        }
        self.attach(record.spec, instance, record.age_ms, is_given)
    }

    /// Gives an instance to the thread that moves packets.
    ///
    /// # Errors
    /// `Refused` if its name or an address is taken.
    pub(crate) fn attach(&self, spec: Spec, instance: Instance, age_ms: u64, is_still: bool) -> Result {
        self.host
            .ask(move |plane, now, send| plane.add(now, &spec, Box::new(instance), age_ms, is_still, send))?
    }

    /// Starts an instance. Returns what it is made of, and what its start took.
    ///
    /// # Errors
    /// `Usage` if the wish makes no sense, or the function says so; `Refused` if a name or an address is
    /// taken, or there are too many instances.
    pub fn run(&self, wish: Wish) -> Result<(Spec, Costs)> {
        let random =
            random::<13>().ok_or_else(|| Error::Failed("the system gives no random numbers".to_owned()))?;
        let (mut mac, mut seed) = ([0; 5], [0; 8]);
        mac.copy_from_slice(&random[..5]);
        seed.copy_from_slice(&random[5..]);
        let clock = self.host.clock();
        let mut last = clock.now();
        let mut lap = || {
            let now = clock.now();
            now.since(std::mem::replace(&mut last, now))
        };
        let program = self.wasm.compile(&wish.module)?;
        let mut costs = Costs { compile: lap(), ..Costs::default() };
        let spec = Spec {
            name: wish.name,
            function: wish.function,
            module: program.hash().to_owned(),
            settings: wish.settings,
            inside: wish.inside,
            outside: wish.outside,
            gateway: wish.gateway,
            mac: Mac::local(mac),
            seed: u64::from_le_bytes(seed),
        };
        spec.check()?;
        let mut instance = self.wasm.instantiate(&program)?;
        costs.instantiate = lap();
        instance.start(&spec.to_lines())?;
        costs.configure = lap();
        let mut records = self.records();
        if records.get(Kind::Instance, &spec.name)?.is_some() {
            return Err(Error::Refused(format!("the name {} is taken by another instance", spec.name)));
        }
        let record = Record { spec: spec.clone(), age_ms: 0, leaving: None };
        let mut changes = vec![Change::set(Kind::Instance, &spec.name, to_json(&record))];
        if records.get(Kind::Module, &spec.module)?.is_none() {
            changes.push(Change::set(Kind::Module, &spec.module, wish.module));
        }
        records.commit(&changes)?;
        costs.record = lap();
        if let Err(e) = self.attach(spec.clone(), instance, 0, false) {
            records.commit(&forgotten(&spec.name))?;
            return Err(e);
        }
        costs.attach = lap();
        Ok((spec, costs))
    }

    /// Ends an instance at once; its state is gone.
    ///
    /// # Errors
    /// `NotFound` if there is none of this name; `Refused` if it is on its way to another host.
    pub fn end(&self, name: &str) -> Result {
        let mut records = self.records();
        let record = Self::record(&**records, name)?;
        let unknown = || Error::NotFound(format!("there is no instance `{}` here", name.escape_default()));
        let leaving = record.ok_or_else(unknown)?.leaving;
        if leaving.is_some_and(|leaving| leaving.state != Departure::Gone) {
            return Err(Error::Refused(format!("{name} is on its way to another host")));
        }
        records.commit(&forgotten(name))?;
        let name = name.to_owned();
        self.host.ask(move |plane, _, _| plane.remove(&name)).map(drop)
    }

    /// Looks at all instances, by name.
    ///
    /// # Errors
    /// `Failed` if the thread that moves packets has ended.
    pub fn list(&self) -> Result<Vec<Look>> {
        let mut all = self.host.ask(|plane, now, _| plane.look_at_all(now))?;
        all.retain(|look| look.phase != Phase::Away);
        Ok(all)
    }

    /// Looks at an instance, and asks it what it has done.
    ///
    /// # Errors
    /// `NotFound` if there is none of this name.
    pub fn console(&self, name: &str) -> Result<(Look, Result<String>)> {
        let name = name.to_owned();
        self.host.ask(move |plane, now, _| {
            plane.look(now, &name)?;
            let report = plane.report(&name);
            plane.look(now, &name).map(|look| (look, report))
        })?
    }
}

/// Returns the changes by which an instance is forgotten. Its module stays, for the next one.
pub(crate) fn forgotten(name: &str) -> [Change; 2] {
    [Change::remove(Kind::Instance, name), Change::remove(Kind::State, name)]
}
