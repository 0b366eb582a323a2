//! Warnings that come up while a catalog is made.

use std::sync::Mutex;

use crate::monitor::lock;

/// Warnings that are given in full.
pub(crate) const WARNINGS_MAX: usize = 20;

/// The first warnings, and how many came after them. Any thread may add one.
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

    /// Takes the warnings that have come up. After [`WARNINGS_MAX`] of them the last one says how many more
    /// there are.
    pub(crate) fn take(&self) -> Vec<String> {
        let State { mut first, more } = std::mem::take(&mut *lock(&self.0));
        if more > 0 {
            first.push(format!("skipped {more} more"));
        }
        first
    }
}
