//! A move at its source. The rules of who may run the instance are those of [`anabranch_machines::journal`]:
//! each step is recorded before anything follows from it.

use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use anabranch_algo::Span;
use anabranch_house::random::random;
use anabranch_machines::journal::{Arrival, Asked, Departure, Next, next};
use anabranch_machines::wire::MoveId;

use crate::delta;
use crate::error::{Error, Result};
use crate::manager::{Leaving, Manager, Record, forgotten, to_json};
use crate::records::{Change, Kind};
use crate::spec::Spec;
use crate::wire::Frame;

/// How long frames that still come to the source are sent after the instance: until the bridges between have
/// learned where it is.
pub const TAIL: Span = Span::from_secs(2);
/// The time between two looks for such frames.
const LOOK: Duration = Duration::from_millis(3);

/// A destination, as a move needs it.
pub trait Destination {
    /// Has it wait for an instance, whose module is sent if it is not there.
    ///
    /// # Errors
    /// `Refused` with its words; `Unreachable` if it does not answer.
    fn prepare(&mut self, id: &MoveId, spec: &Spec, module: &[u8]) -> Result;

    /// Sends it what has changed in the state since it was sent, at first since it was zero; with the age of
    /// the instance, in milliseconds, nothing changes after this.
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare).
    fn state(&mut self, id: &MoveId, age_ms: Option<u64>, delta: &[u8]) -> Result;

    /// Asks it to run the instance, or to give it up.
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare).
    fn decide(&mut self, id: &MoveId, asked: Asked) -> Result<Arrival>;

    /// Sends it frames that came for the instance.
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare).
    fn frames(&mut self, id: &MoveId, frames: &[Frame]) -> Result;

    /// Tells it that the instance is forgotten here.
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare).
    fn done(&mut self, id: &MoveId) -> Result;
}

/// A move that ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// How long the instance stood still: until the destination's word was here.
    pub still: Span,
    /// The length of its state, bytes.
    pub state_bytes: usize,
    /// What had changed of it when it stood still, as it was sent, bytes.
    pub late_bytes: usize,
    /// The frames that came meanwhile and went after it at once.
    pub waited: usize,
    /// The frames that came later.
    pub late: usize,
}

/// Where a move goes.
#[derive(Clone, Debug)]
pub struct Goal {
    /// The name of the host.
    pub to: String,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// How long frames that still come here are sent after the instance: [`TAIL`], if there are bridges.
    pub tail: Span,
}

impl Manager {
    /// Reads the record of an instance, which has to be here.
    fn own_record(&self, name: &str) -> Result<Record> {
        let unknown = || Error::NotFound(format!("there is no instance `{}` here", name.escape_default()));
        Self::record(&**self.records(), name)?.ok_or_else(unknown)
    }

    /// Moves an instance.
    ///
    /// # Errors
    /// `NotFound`; `Refused` if it is on its way, has failed, or the destination does not want it: it runs on
    /// here. `Unreachable` if the destination does not answer: it runs on here, or, if the word to run it was
    /// on its way, stands still until the destination says what is true ([`settle`](Self::settle)).
    pub fn depart(&self, name: &str, goal: &Goal, there: &mut (dyn Destination + Send)) -> Result<Moved> {
        let random =
            random().ok_or_else(|| Error::Failed("the system gives no random numbers".to_owned()))?;
        let id = MoveId::new(random);
        let _claim = self.claim(name)?;
        let (record, module) = self.begin(name, &id, goal)?;
        if let Err(e) = there.prepare(&id, &record.spec, &module) {
            self.stay(name)?;
            return Err(e);
        }
        let clock = self.host().clock();
        let mut begin = clock.now();
        let given = self.send_ahead(name, &id, there).and_then(|before| {
            begin = clock.now();
            Ok((before.len(), self.give(name, &id, &before, there)?))
        });
        let (state_bytes, late_bytes) = match given {
            Ok(bytes) => bytes,
            Err(e) => {
                self.stay(name)?;
                let _ = there.decide(&id, Asked::Abort);
                return Err(e);
            }
        };
        let word = there.decide(&id, Asked::Resume);
        let still = clock.now().since(begin);
        match next(Departure::Given, word.as_ref().ok().copied()) {
            Next::Leave => {
                let (waited, late) = self.see_off(name, &id, goal.tail, there)?;
                Ok(Moved { still, state_bytes, late_bytes, waited, late })
            }
            Next::Stay => {
                self.stay(name)?;
                Err(Error::Refused(format!("{} does not run {name} after all: it runs on here", goal.to)))
            }
            Next::Ask => {
                let why = word.err().map(|e| format!(" ({e})")).unwrap_or_default();
                Err(Error::Unreachable(format!(
                    "{} does not say whether it runs {name}{why}: it stands still here until that is known",
                    goal.to
                )))
            }
        }
    }

    /// Records that a move is under way.
    fn begin(&self, name: &str, id: &MoveId, goal: &Goal) -> Result<(Record, Vec<u8>)> {
        let mut records = self.records();
        let record = Self::record(&**records, name)?;
        let unknown = || Error::NotFound(format!("there is no instance `{}` here", name.escape_default()));
        let record = record.ok_or_else(unknown)?;
        if record.leaving.is_some() {
            return Err(Error::Refused(format!("{name} is on its way already")));
        }
        let missing = || Error::Failed("its module is not recorded".to_owned());
        let module = records.get(Kind::Module, &record.spec.module)?.ok_or_else(missing)?;
        let Goal { to, addresses, .. } = goal.clone();
        let leaving = Leaving { id: id.clone(), to, addresses, state: Departure::Moving };
        let record = Record { leaving: Some(leaving), ..record };
        records.commit(&[Change::set(Kind::Instance, name, to_json(&record))])?;
        Ok((record, module))
    }

    /// Has the instance stand still, sends its state, and records that the destination may run it: both at
    /// the same time, because each takes milliseconds in which packets wait.
    fn give(
        &self,
        name: &str,
        id: &MoveId,
        before: &[u8],
        there: &mut (dyn Destination + Send),
    ) -> Result<usize> {
        let owned = name.to_owned();
        let (state, age_ms) = self.host().ask(move |plane, now, _| plane.hold(now, &owned))??;
        let delta = delta::between(before, &state);
        thread::scope(|scope| {
            let sent = scope.spawn(|| there.state(id, Some(age_ms), &delta));
            let recorded = self.record_given(name, age_ms, &state);
            let ended = || Error::Failed("the thread that sends the state has ended".to_owned());
            sent.join().unwrap_or_else(|_| Err(ended())).and(recorded)
        })?;
        Ok(delta.len())
    }

    /// Sends the state while the instance runs on, and returns it: while it stands still, only what has
    /// changed since is sent.
    fn send_ahead(&self, name: &str, id: &MoveId, there: &mut (dyn Destination + Send)) -> Result<Vec<u8>> {
        let owned = name.to_owned();
        let state = self.host().ask(move |plane, _, _| plane.state(&owned))??;
        there.state(id, None, &delta::between(&[], &state))?;
        Ok(state)
    }

    fn record_given(&self, name: &str, age_ms: u64, state: &[u8]) -> Result {
        let mut record = self.own_record(name)?;
        if let Some(leaving) = &mut record.leaving {
            leaving.state = Departure::Given;
        }
        record.age_ms = age_ms;
        let changes = [
            Change::set(Kind::Instance, name, to_json(&record)),
            Change::set(Kind::State, name, delta::between(&[], state)),
        ];
        self.records().commit(&changes)
    }

    /// Has the instance run on here, and records that.
    fn stay(&self, name: &str) -> Result {
        let record = Record { leaving: None, ..self.own_record(name)? };
        self.records().commit(&[Change::set(Kind::Instance, name, to_json(&record))])?;
        let name = name.to_owned();
        self.host().ask(move |plane, now, send| {
            plane.go_on(now, &name, send)?;
            plane.announce(&name, send);
            Ok(())
        })?
    }

    /// Records that the instance is not here any more, and sends frames after it for a while. Returns how
    /// many waited, and how many came later.
    fn see_off(
        &self,
        name: &str,
        id: &MoveId,
        tail: Span,
        there: &mut (dyn Destination + Send),
    ) -> Result<(usize, usize)> {
        let owned = name.to_owned();
        self.host().ask(move |plane, _, _| plane.leave(&owned))??;
        let clock = self.host().clock();
        let (end, mut waited, mut late, mut is_lost) = (clock.now() + tail, None, 0, false);
        loop {
            let owned = name.to_owned();
            let frames = self.host().ask(move |plane, _, _| plane.take_waiting(&owned))??;
            if !is_lost && !frames.is_empty() {
                is_lost = there.frames(id, &frames).is_err();
            }
            match waited {
                None => {
                    waited = Some(frames.len());
                    // If this process is killed before, the next one asks once more what is true.
                    self.records().commit(&forgotten(name))?;
                }
                Some(_) => late += frames.len(),
            }
            if clock.now() >= end {
                break;
            }
            thread::sleep(LOOK);
        }
        let owned = name.to_owned();
        self.host().ask(move |plane, _, _| plane.remove(&owned))?;
        let _ = there.done(id);
        Ok((waited.unwrap_or(0), late))
    }

    /// Returns the instances that stand still here until their destination says what is true, with the moves.
    ///
    /// # Errors
    /// `Failed` if the records cannot be read.
    pub fn undecided(&self) -> Result<Vec<(String, Leaving)>> {
        let records = self.records();
        let busy = self.busy();
        let mut all = Vec::new();
        for name in records.names(Kind::Instance)? {
            let leaving = Self::record(&**records, &name)?.and_then(|record| record.leaving);
            let is_open = |leaving: &Leaving| leaving.state == Departure::Given && !busy.contains(&name);
            all.extend(leaving.filter(is_open).map(|leaving| (name.clone(), leaving)));
        }
        Ok(all)
    }

    /// Asks the destination of a move that was interrupted what is true, and follows it. Returns whether the
    /// instance runs here.
    ///
    /// # Errors
    /// `Unreachable` if the destination does not answer, or does not know yet.
    pub fn settle(
        &self,
        name: &str,
        leaving: &Leaving,
        tail: Span,
        there: &mut (dyn Destination + Send),
    ) -> Result<bool> {
        let _claim = self.claim(name)?;
        let word = there.decide(&leaving.id, Asked::Resume)?;
        match next(leaving.state, Some(word)) {
            Next::Leave => self.see_off(name, &leaving.id, tail, there).map(|_| false),
            Next::Stay => self.stay(name).map(|()| true),
            Next::Ask => Err(Error::Unreachable(format!("{} does not know yet", leaving.to))),
        }
    }
}
