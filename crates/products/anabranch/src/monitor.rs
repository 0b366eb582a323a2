//! State that threads share. If a thread panics, the others continue: between two calls the state is always
//! consistent.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Locks a mutex, even if a thread has panicked while it held the lock.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A state, and a way to wait for its next change.
#[derive(Debug, Default)]
pub(crate) struct Monitor<T> {
    state: Mutex<T>,
    changed: Condvar,
}

impl<T> Monitor<T> {
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        lock(&self.state)
    }

    /// Waits for a change; it may also return without one.
    pub(crate) fn wait<'a>(&self, state: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a change, but no longer than `max`; it may also return without one.
    pub(crate) fn wait_for<'a>(&self, state: MutexGuard<'a, T>, max: Duration) -> MutexGuard<'a, T> {
        self.changed.wait_timeout(state, max).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Wakes all threads that wait.
    pub(crate) fn notify(&self) {
        self.changed.notify_all();
    }
}
