//! Collects the warnings that arise while a catalog is made.

use std::sync::Mutex;

use crate::monitor::lock;

/// The number of warnings that are given in full.
pub(crate) const WARNINGS_MAX: usize = 20;

/// The first warnings, and the number of further ones. Any thread may add one.
#[derive(Debug, Default)]
pub(crate) struct Warnings(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    first: Vec<String>,
    more: usize,
}

impl Warnings {
    pub(crate) fn add(&self, warning: String) {
        let mut state = lock(&self.0);
        if state.first.len() < WARNINGS_MAX {
            state.first.push(warning);
        } else {
            state.more += 1;
        }
    }

    /// Takes the warnings. If there were more than [`WARNINGS_MAX`], a last one says how many more.
    pub(crate) fn take(&self) -> Vec<String> {
        let State { mut first, more } = std::mem::take(&mut *lock(&self.0));
        if more > 0 {
            first.push(format!("skipped {more} more"));
        }
        first
    }
}
