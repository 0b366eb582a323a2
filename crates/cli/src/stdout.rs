//! Writes to standard output. A reader that has gone away (`| head`) is no error, and the command goes on. A
//! full disk is an error.

use std::io::{self, ErrorKind, Write as _};
use std::sync::{Mutex, PoisonError};

use crate::exit::{Failure, Outcome};

/// The first failure of [`tell`].
static FAILURE: Mutex<Option<Failure>> = Mutex::new(None);

/// Writes and flushes, so that a reader sees the output at once.
///
/// # Errors
/// [`Code::Target`](crate::exit::Code::Target) if standard output cannot be written.
pub(crate) fn print(bytes: impl AsRef<[u8]>) -> Outcome {
    written(io::stdout().lock().write_all(bytes.as_ref()))
}

/// Turns the result of writing to standard output into the outcome of a command. A broken pipe is no error.
///
/// # Errors
/// As [`print`].
pub fn written(result: io::Result<()>) -> Outcome {
    match result.and_then(|()| io::stdout().flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::target(format!("cannot write to standard output: {e}")))
        }
        _ => Ok(()),
    }
}

/// Writes for a command that goes on even if this fails; [`end`] then reports the failure.
pub(crate) fn tell(text: impl AsRef<str>) {
    if let Err(failure) = print(text.as_ref()) {
        FAILURE.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure);
    }
}

/// Writes a line as [`tell`] does.
pub(crate) fn line(text: impl AsRef<str>) {
    tell(text.as_ref().to_owned() + "\n");
}

/// Returns the final outcome of a command that ended with `outcome`: a failure if some output was not
/// written.
///
/// # Errors
/// The error of `outcome`, or else the failure to write.
pub fn end(outcome: Outcome) -> Outcome {
    outcome?;
    FAILURE.lock().unwrap_or_else(PoisonError::into_inner).take().map_or(Ok(()), Err)
}
