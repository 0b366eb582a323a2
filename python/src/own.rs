//! Values that belong to one process.

use std::mem::ManuallyDrop;

use pyo3::prelude::*;

use crate::Error;

/// A value with threads, which a process that is forked does not have. There it is neither used nor dropped:
/// its pipes lead to the threads of the parent.
pub(crate) struct Own<T> {
    process: u32,
    value: ManuallyDrop<T>,
}

impl<T> Own<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { process: std::process::id(), value: ManuallyDrop::new(value) }
    }

    fn is_here(&self) -> bool {
        self.process == std::process::id()
    }

    /// Returns the value, or raises an error in another process than the one that made it.
    pub(crate) fn get(&self) -> PyResult<&T> {
        if self.is_here() {
            return Ok(&self.value);
        }
        Err(Error::new_err(
            "another process has made this, and a fork has none of its threads: make a new one here",
        ))
    }
}

impl<T> Drop for Own<T> {
    fn drop(&mut self) {
        if self.is_here() {
            // SAFETY: The value is dropped here only, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.value) }
        }
    }
}
