//! Standard output. A reader that has gone away (`| head`) is no error: what is done goes on. A disk that is
//! full is one.

use std::io::{self, ErrorKind, Write as _};
use std::sync::{Mutex, PoisonError};

use crate::exit::{Failure, Outcome};

/// What was remembered first.
static FAILURE: Mutex<Option<Failure>> = Mutex::new(None);

/// Writes, flushed, so that a reader sees it at once.
///
/// # Errors
/// [`Code::Target`](crate::exit::Code::Target) if it takes no more.
pub(crate) fn print(bytes: impl AsRef<[u8]>) -> Outcome {
    written(io::stdout().lock().write_all(bytes.as_ref()))
}

/// How a command ends that has written to it.
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

/// Writes of what goes on whether it can be told or not; [`end`] says if it could not.
pub(crate) fn tell(text: impl AsRef<str>) {
    if let Err(failure) = print(text.as_ref()) {
        FAILURE.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure);
    }
}

/// The same, of a line.
pub(crate) fn line(text: impl AsRef<str>) {
    tell(text.as_ref().to_owned() + "\n");
}

/// How a command ends that has ended with `outcome`: not well if something could not be told.
///
/// # Errors
/// What it ended with, else why standard output took no more.
pub fn end(outcome: Outcome) -> Outcome {
    outcome?;
    FAILURE.lock().unwrap_or_else(PoisonError::into_inner).take().map_or(Ok(()), Err)
}
