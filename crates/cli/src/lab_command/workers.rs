//! Runs many tasks on all cores, with progress, until Ctrl-C.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anabranch_lab::sweep::pool::{self, Event};

use super::progress::Progress;
use crate::exit::{Code, Failure};

/// Holds the settings with which tasks are run.
pub(super) struct Workers {
    pub(super) jobs: usize,
    /// Whether the user wants an end.
    pub(super) stop: Arc<AtomicBool>,
    /// What the tasks are called in messages, in the plural.
    pub(super) what: &'static str,
}

impl Workers {
    /// Works on all tasks. Returns the results in the order of the tasks.
    ///
    /// # Errors
    /// 130 on Ctrl-C.
    pub(super) fn all<J, R>(
        &self,
        tasks: Vec<J>,
        work: impl Fn(&J) -> R + Send + Sync + 'static,
    ) -> Result<Vec<R>, Failure>
    where
        J: Send + Sync + 'static,
        R: Send + 'static,
    {
        let (count, mut ended) = (tasks.len(), 0);
        let mut results: Vec<Option<R>> = (0..count).map(|_| None).collect();
        let mut progress = Progress::new(count);
        pool::run(tasks, self.jobs, work, |event| {
            if let Event::Done(index, result) = event {
                results[index] = Some(result);
                ended += 1;
            }
            progress.update(ended);
            if self.stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        progress.clear();
        let results: Vec<R> = results.into_iter().flatten().collect();
        if results.len() < count {
            let what = format!("interrupted: {ended} of {count} {} are done", self.what);
            return Err(Failure::new(Code::Interrupted, what));
        }
        Ok(results)
    }
}
