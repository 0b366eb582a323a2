//! What requests do to the queue, and what they see of it.

use std::num::NonZero;
use std::ops::RangeInclusive;

use super::{Effect, How, Notice, Queue, Refusal};
use crate::gid::Gid;
use crate::job::{End, Job, Options, Source, Status};

impl Queue {
    /// Returns a job.
    #[must_use]
    pub fn job(&self, gid: Gid) -> Option<&Job> {
        self.jobs.get(&gid)
    }

    /// Returns the identifiers of this range, at most two.
    #[must_use]
    pub fn within(&self, range: RangeInclusive<Gid>) -> Vec<Gid> {
        self.jobs.range(range).take(2).map(|(gid, _)| *gid).collect()
    }

    /// Returns the active jobs, the first first.
    pub fn active(&self) -> impl DoubleEndedIterator<Item = &Job> {
        self.active.iter().map(|gid| &self.jobs[&gid])
    }

    /// Returns the waiting and paused jobs in their order.
    pub fn waiting(&self) -> impl DoubleEndedIterator<Item = &Job> {
        self.waiting.iter().map(|gid| &self.jobs[&gid])
    }

    /// Returns the results, the oldest first.
    pub fn results(&self) -> impl DoubleEndedIterator<Item = &Job> {
        self.results.iter().map(|gid| &self.jobs[&gid])
    }

    /// Returns the numbers of active jobs, of waiting and paused ones, and of results.
    #[must_use]
    pub fn counts(&self) -> [usize; 3] {
        [self.active.len(), self.waiting.len(), self.results.len()]
    }

    /// Returns the number of jobs that have ended since the start, also those that are forgotten.
    #[must_use]
    pub const fn ended_total(&self) -> u64 {
        self.ended_total
    }

    /// Sets how many jobs run at a time. If fewer may run than do, those that run go on.
    pub fn set_at_once(&mut self, at_once: NonZero<usize>) {
        self.at_once = at_once;
        self.fill();
    }

    /// Sets how many results are kept.
    pub fn set_results_max(&mut self, results_max: usize) {
        self.results_max = results_max;
        self.trim();
    }

    fn status(&self, gid: Gid) -> Result<Status, Refusal> {
        self.jobs.get(&gid).map(|job| job.status).ok_or(Refusal::Unknown)
    }

    /// Stops the transfer of a job, if it has one.
    fn stop(&mut self, gid: Gid) {
        self.effects.extend(self.busy.get(&gid).map(|run| Effect::Stop(*run)));
    }

    /// Pauses a job that is active or waits.
    ///
    /// # Errors
    /// If there is no such job, or its state is another.
    pub fn pause(&mut self, gid: Gid) -> Result<(), Refusal> {
        match self.status(gid)? {
            Status::Active => {
                self.stop(gid);
                self.leave(gid);
                self.wait_at(0, gid);
            }
            Status::Waiting => {}
            _ => return Err(Refusal::State),
        }
        let place = self.jobs[&gid].place;
        self.set(gid, Status::Paused, place);
        self.effects.push(Effect::Tell(Notice::Pause, gid));
        self.fill();
        Ok(())
    }

    /// Pauses all jobs that are active or wait.
    pub fn pause_all(&mut self) {
        // The waiting ones first, so that none of them takes the place of an active one that is paused.
        let waiting = self.waiting().filter(|job| job.status == Status::Waiting);
        let all: Vec<Gid> = waiting.chain(self.active().rev()).map(|job| job.gid).collect();
        for gid in all {
            // Each is active or waits, so it can be paused.
            let _ = self.pause(gid);
        }
    }

    /// Lets a paused job wait for its turn.
    ///
    /// # Errors
    /// If there is no such job, or it is not paused.
    pub fn unpause(&mut self, gid: Gid) -> Result<(), Refusal> {
        if self.status(gid)? != Status::Paused {
            return Err(Refusal::State);
        }
        let place = self.jobs[&gid].place;
        self.set(gid, Status::Waiting, place);
        self.fill();
        Ok(())
    }

    /// Lets all paused jobs wait for their turn.
    pub fn unpause_all(&mut self) {
        let paused = self.waiting().filter(|job| job.status == Status::Paused);
        let all: Vec<(Gid, i64)> = paused.map(|job| (job.gid, job.place)).collect();
        all.into_iter().for_each(|(gid, place)| self.set(gid, Status::Waiting, place));
        self.fill();
    }

    /// Stops an active job and puts it at the head of the queue, so that it starts again with what has
    /// changed of it. Does nothing to a job that is not active.
    pub fn restart(&mut self, gid: Gid) {
        if self.status(gid) == Ok(Status::Active) {
            self.stop(gid);
            self.leave(gid);
            self.wait_at(0, gid);
            let place = self.jobs[&gid].place;
            self.set(gid, Status::Waiting, place);
            self.fill();
        }
    }

    /// Removes a job that is active, waits or is paused. It becomes a result.
    ///
    /// # Errors
    /// If there is no such job, or it has ended.
    pub fn remove(&mut self, gid: Gid) -> Result<(), Refusal> {
        if self.status(gid)?.is_result() {
            return Err(Refusal::State);
        }
        self.stop(gid);
        self.finish(gid, Status::Removed, End::removed());
        self.fill();
        Ok(())
    }

    /// Forgets a result.
    ///
    /// # Errors
    /// If there is no such job, or it has not ended.
    pub fn remove_result(&mut self, gid: Gid) -> Result<(), Refusal> {
        match self.status(gid)?.is_result() {
            true => self.forget(gid),
            false => return Err(Refusal::State),
        }
        Ok(())
    }

    /// Forgets all results.
    pub fn purge(&mut self) {
        let all: Vec<Gid> = self.results.iter().collect();
        all.into_iter().for_each(|gid| self.forget(gid));
    }

    /// Moves a job that waits or is paused, and returns the number of jobs that are then before it.
    ///
    /// # Errors
    /// If there is no such job, or its state is another.
    pub fn change_position(&mut self, gid: Gid, by: i64, how: How) -> Result<usize, Refusal> {
        if !matches!(self.status(gid)?, Status::Waiting | Status::Paused) {
            return Err(Refusal::State);
        }
        let last = self.waiting.len() - 1;
        let base = match how {
            How::Set => 0,
            How::Current => self.waiting.index_of(self.jobs[&gid].place),
            How::End => last,
        };
        let index = (base as i64).saturating_add(by).clamp(0, last as i64) as usize;
        self.leave(gid);
        self.wait_at(index, gid);
        self.fill();
        Ok(index)
    }

    /// Changes what a job fetches and how, and starts it anew if it is active and `restarts`.
    ///
    /// # Errors
    /// If there is no such job, or it has ended.
    pub fn change(
        &mut self,
        gid: Gid,
        restarts: bool,
        change: impl FnOnce(&mut Source, &mut Options),
    ) -> Result<(), Refusal> {
        if self.status(gid)?.is_result() {
            return Err(Refusal::State);
        }
        if let Some(job) = self.jobs.get_mut(&gid) {
            change(&mut job.source, &mut job.options);
            self.changed.insert(gid);
        }
        if restarts {
            self.restart(gid);
        }
        Ok(())
    }
}
