//! The queue: a machine without disk, clock and thread. It is told what requests want and how transfers end;
//! it answers which transfers begin and end, which jobs have changed, and what others are to be told.
//!
//! A job's state changes at once. The transfer of a job that was paused, removed or restarted may still run
//! for a moment: until it has ended, the job is not started again.

mod order;
mod requests;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZero;

use crate::gid::Gid;
use crate::job::{End, Job, Known, Options, Source, Status};
use order::Order;

/// The number of jobs that run at a time, unless it is set: aria2's default.
pub const AT_ONCE: NonZero<usize> = NonZero::new(5).unwrap();
/// The most results that are kept, unless it is set: aria2's default.
pub const RESULTS_MAX: usize = 1_000;

/// Identifies one run of a job's transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Run(u64);

/// Something that the queue wants to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The transfer of a job begins.
    Start(Gid, Run),
    /// A transfer ends soon.
    Stop(Run),
    /// Listeners are told.
    Tell(Notice, Gid),
}

/// What listeners are told of a job. The names are aria2's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// It has become active.
    Start,
    /// It was paused.
    Pause,
    /// It was removed.
    Stop,
    /// It is complete.
    Complete,
    /// It has failed.
    Error,
}

/// How a transfer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All has arrived.
    Complete,
    /// It failed.
    Failed(End),
    /// It was stopped.
    Stopped,
}

/// What a new position counts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// From the head of the queue.
    Set,
    /// From where the job is.
    Current,
    /// From the end of the queue.
    End,
}

/// Why a request about a job is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no such job.
    Unknown,
    /// The job's state does not allow it.
    State,
}

/// The queue; see the [module](self).
#[derive(Clone, Debug)]
pub struct Queue {
    jobs: BTreeMap<Gid, Job>,
    active: Order,
    /// Waiting and paused jobs.
    waiting: Order,
    results: Order,
    at_once: NonZero<usize>,
    results_max: usize,
    /// The transfers that have not ended, and their jobs, which may be gone.
    runs: BTreeMap<Run, Gid>,
    /// The jobs of these transfers.
    busy: BTreeMap<Gid, Run>,
    next_run: u64,
    effects: Vec<Effect>,
    changed: BTreeSet<Gid>,
    /// The number of jobs that have ended since the start.
    ended_total: u64,
    /// Whether no further transfer begins.
    is_ending: bool,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            jobs: BTreeMap::new(),
            active: Order::default(),
            waiting: Order::default(),
            results: Order::default(),
            at_once: AT_ONCE,
            results_max: RESULTS_MAX,
            runs: BTreeMap::new(),
            busy: BTreeMap::new(),
            next_run: 0,
            effects: Vec::new(),
            changed: BTreeSet::new(),
            ended_total: 0,
            is_ending: false,
        }
    }
}

impl Queue {
    /// Makes the queue of the jobs that an earlier one had. Those that were active wait before all others.
    #[must_use]
    pub fn of(jobs: impl IntoIterator<Item = Job>) -> Self {
        let mut new = Self::default();
        let mut jobs: Vec<Job> = jobs.into_iter().collect();
        jobs.sort_by_key(|job| job.place);
        let mut interrupted = Vec::new();
        for mut job in jobs {
            let (gid, place) = (job.gid, job.place);
            match job.status {
                Status::Active => {
                    job.status = Status::Waiting;
                    interrupted.push(gid);
                }
                status => {
                    let order = if status.is_result() { &mut new.results } else { &mut new.waiting };
                    job.place = order.restore(gid, place);
                    if job.place != place {
                        new.changed.insert(gid);
                    }
                }
            }
            new.jobs.insert(gid, job);
        }
        for gid in interrupted.into_iter().rev() {
            new.wait_at(0, gid);
        }
        new
    }

    /// Adds a job, and returns whether there was none with this identifier. Of a job that is there already,
    /// nothing changes.
    pub fn add(&mut self, new: NewJob, gid: Gid) -> bool {
        if self.jobs.contains_key(&gid) {
            return false;
        }
        let NewJob { source, options, is_paused, index } = new;
        let status = if is_paused { Status::Paused } else { Status::Waiting };
        let known = Known::default();
        self.jobs.insert(gid, Job { gid, source, options, status, place: 0, known, end: None });
        self.wait_at(index.unwrap_or(usize::MAX), gid);
        self.fill();
        true
    }

    /// Records the end of a transfer, and the length and path that the transfer found.
    pub fn ended(&mut self, run: Run, outcome: Outcome, known: Known) {
        let Some(gid) = self.runs.remove(&run) else { return };
        self.busy.remove(&gid);
        if let Some(job) = self.jobs.get_mut(&gid).filter(|job| job.status != Status::Removed) {
            job.known = known;
            self.changed.insert(gid);
            match (job.status, outcome) {
                (Status::Complete | Status::Error | Status::Removed, _) | (_, Outcome::Stopped) => {}
                (_, Outcome::Complete) => self.finish(gid, Status::Complete, End::complete()),
                (Status::Active, Outcome::Failed(end)) => self.finish(gid, Status::Error, end),
                // A failure of the transfer that was stopped does not count for the next one.
                (Status::Waiting | Status::Paused, Outcome::Failed(_)) => {}
            }
        }
        self.fill();
    }

    /// Stops all transfers, and begins no other: the daemon ends. The jobs stay active for the next start.
    pub fn end(&mut self) {
        self.is_ending = true;
        self.effects.extend(self.runs.keys().map(|run| Effect::Stop(*run)));
    }

    /// Whether a transfer has not ended yet.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        !self.runs.is_empty()
    }

    /// Returns what is to be done, in this order, since the last call.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Returns the identifiers of the jobs that have changed, or are gone, since the last call.
    pub fn take_changed(&mut self) -> BTreeSet<Gid> {
        std::mem::take(&mut self.changed)
    }

    /// Starts waiting jobs while there are free places.
    fn fill(&mut self) {
        while !self.is_ending && self.active.len() < self.at_once.get() {
            let may_start =
                |gid: &Gid| self.jobs[gid].status == Status::Waiting && !self.busy.contains_key(gid);
            let Some(gid) = self.waiting.iter().find(may_start) else { return };
            let run = Run(self.next_run);
            self.next_run += 1;
            self.runs.insert(run, gid);
            self.busy.insert(gid, run);
            self.leave(gid);
            let place = self.active.push(gid);
            self.set(gid, Status::Active, place);
            self.effects.push(Effect::Start(gid, run));
            self.effects.push(Effect::Tell(Notice::Start, gid));
        }
    }

    /// Puts a job that is in no list into the waiting list, so that `index` jobs are before it.
    fn wait_at(&mut self, index: usize, gid: Gid) {
        for (gid, place) in self.waiting.insert(index, gid) {
            if let Some(job) = self.jobs.get_mut(&gid) {
                job.place = place;
            }
            self.changed.insert(gid);
        }
    }

    /// Takes a job out of its list.
    fn leave(&mut self, gid: Gid) {
        let job = &self.jobs[&gid];
        let list = match job.status {
            Status::Active => &mut self.active,
            Status::Waiting | Status::Paused => &mut self.waiting,
            Status::Complete | Status::Error | Status::Removed => &mut self.results,
        };
        list.remove(job.place);
    }

    fn set(&mut self, gid: Gid, status: Status, place: i64) {
        if let Some(job) = self.jobs.get_mut(&gid) {
            (job.status, job.place) = (status, place);
        }
        self.changed.insert(gid);
    }

    /// Makes a job a result, and forgets the oldest results beyond the most that are kept.
    fn finish(&mut self, gid: Gid, status: Status, end: End) {
        self.ended_total += 1;
        self.leave(gid);
        let place = self.results.push(gid);
        self.set(gid, status, place);
        if let Some(job) = self.jobs.get_mut(&gid) {
            job.end = Some(end);
        }
        let notice = match status {
            Status::Complete => Notice::Complete,
            Status::Removed => Notice::Stop,
            _ => Notice::Error,
        };
        self.effects.push(Effect::Tell(notice, gid));
        self.trim();
    }

    fn trim(&mut self) {
        while self.results.len() > self.results_max {
            let Some(oldest) = self.results.first() else { return };
            self.forget(oldest);
        }
    }

    /// Removes a job for good.
    fn forget(&mut self, gid: Gid) {
        self.leave(gid);
        self.jobs.remove(&gid);
        self.changed.insert(gid);
    }
}

/// A job that is to be added.
#[derive(Clone, Debug)]
pub struct NewJob {
    /// What it fetches.
    pub source: Source,
    /// Its options.
    pub options: Options,
    /// Whether it is paused from the start.
    pub is_paused: bool,
    /// The number of waiting jobs that stay before it; `None` for all.
    pub index: Option<usize>,
}
