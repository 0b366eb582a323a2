//! One fetch for all who ask for an object while it arrives.
//!
//! The bytes are written to a file as they come, in order, and each asker reads that file as far as it
//! goes. So memory is bounded whatever the askers' pace. The last block is not handed over before the
//! whole has been verified: an answer that is complete is right.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::store::BLOCK_BYTES;

/// An object of at most this many bytes is verified before the head of an answer is sent, so that a
/// failure can still be told by the status.
pub(super) const WAITED_FOR_BYTES: u64 = 1 << 20;

/// The reason why there is nothing to answer with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// No source has it: 404.
    NotFound(String),
    /// A source wants other credentials, or does not allow it: 403, where a client's go to the source.
    Forbidden(String),
    /// The sources failed: 502.
    Upstream(String),
    /// The sources sent wrong bytes: 502.
    WrongBytes(String),
    /// There is too much to do: 503.
    Busy(String),
    /// The store cannot be written: 507.
    Store(String),
}

impl Failure {
    /// Converts the error of a transfer.
    pub(super) fn of(error: &anabranch::Error) -> Self {
        match error.kind() {
            anabranch::ErrorKind::NotFound => Self::NotFound(error.to_string()),
            anabranch::ErrorKind::Corrupt => Self::WrongBytes(error.to_string()),
            anabranch::ErrorKind::Refused => Self::Forbidden(error.to_string()),
            _ => Self::Upstream(error.to_string()),
        }
    }

    /// Converts an error of the store.
    pub(super) fn of_store(error: &io::Error) -> Self {
        Self::Store(format!("the store cannot be written: {error}"))
    }

    /// Returns the words.
    pub(super) fn why(&self) -> &str {
        match self {
            Self::NotFound(why)
            | Self::Forbidden(why)
            | Self::Upstream(why)
            | Self::WrongBytes(why)
            | Self::Busy(why)
            | Self::Store(why) => why,
        }
    }
}

/// A fetch and the bytes that it has brought.
#[derive(Debug)]
pub(super) struct Flight {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    file: Arc<File>,
    /// Whether an asker has got bytes.
    is_read: bool,
    length: Option<u64>,
    written: u64,
    end: Option<Result<(), Failure>>,
}

impl State {
    const fn new(file: Arc<File>) -> Self {
        Self { file, is_read: false, length: None, written: 0, end: None }
    }
}

impl Flight {
    /// Creates a fetch that writes to `file`.
    pub(super) fn new(file: Arc<File>) -> Self {
        Self { state: Mutex::new(State::new(file)), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins anew with another file, unless an asker has got bytes. Returns whether it did.
    pub(super) fn restart(&self, file: Arc<File>) -> bool {
        let mut state = self.lock();
        let can = !state.is_read && state.end.is_none();
        if can {
            *state = State::new(file);
        }
        can
    }

    /// Says the length of the whole.
    pub(super) fn set_length(&self, length: u64) {
        if self.lock().length.replace(length) != Some(length) {
            self.changed.notify_all();
        }
    }

    /// Says how many bytes have been written.
    pub(super) fn set_written(&self, written: u64) {
        self.lock().written = written;
        self.changed.notify_all();
    }

    /// Says that all bytes are there and verified, or why they never will be. The first end counts.
    pub(super) fn end(&self, end: Result<(), Failure>) {
        let mut state = self.lock();
        if end.is_ok() {
            state.length = Some(state.written);
        }
        state.end.get_or_insert(end);
        drop(state);
        self.changed.notify_all();
    }

    /// Waits until the length is known, and for short objects until all of it is verified. Returns the
    /// length.
    ///
    /// # Errors
    /// The failure of the fetch.
    pub(super) fn length(&self) -> Result<u64, Failure> {
        let mut state = self.lock();
        loop {
            match (&state.end, state.length) {
                (Some(Err(failure)), _) => return Err(failure.clone()),
                (Some(Ok(())), _) => return Ok(state.written),
                (None, Some(length)) if length > WAITED_FOR_BYTES => return Ok(length),
                (None, _) => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    /// Fills `out` with the bytes from `offset` on, once they are there.
    ///
    /// # Errors
    /// If they never will be.
    pub(super) fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let wanted = offset.saturating_add(out.len() as u64);
        let mut state = self.lock();
        loop {
            let last = state.length.map_or(0, |length| length.saturating_sub(BLOCK_BYTES as u64));
            match &state.end {
                Some(Err(failure)) => return Err(io::Error::other(failure.why().to_owned())),
                Some(Ok(())) if wanted > state.written => return Err(io::ErrorKind::UnexpectedEof.into()),
                Some(Ok(())) => break,
                None if wanted <= state.written.min(last) => break,
                None => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
        state.is_read = true;
        let file = Arc::clone(&state.file);
        drop(state);
        file.read_exact_at(out, offset)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::thread;

    use super::*;

    fn flight_of(bytes: &[u8]) -> Flight {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        Flight::new(Arc::new(file))
    }

    #[test]
    fn the_last_block_waits_for_the_verification() {
        let bytes: Vec<u8> = (0..2_000_000_u32).map(|n| (n >> 7) as u8).collect();
        let flight = Arc::new(flight_of(&bytes));
        flight.set_length(2_000_000);
        flight.set_written(2_000_000);
        assert_eq!(flight.length(), Ok(2_000_000));
        let mut out = vec![0; 2_000_000 - BLOCK_BYTES];
        flight.read_at(0, &mut out).unwrap();
        assert_eq!(out, bytes[..out.len()]);
        assert!(!flight.restart(Arc::new(tempfile::tempfile().unwrap())), "bytes were handed over");
        let readers = [Ok(()), Err(Failure::Upstream("wrong bytes".into()))].map(|end| {
            let flight = match end {
                Ok(()) => Arc::clone(&flight),
                Err(_) => {
                    let wrong = flight_of(&bytes);
                    wrong.set_length(2_000_000);
                    wrong.set_written(2_000_000);
                    Arc::new(wrong)
                }
            };
            let reader = Arc::clone(&flight);
            let read = thread::spawn(move || reader.read_at(1_999_999, &mut [0]).map_err(|e| e.to_string()));
            flight.end(end);
            read.join().unwrap()
        });
        assert_eq!(readers, [Ok(()), Err("wrong bytes".into())]);
    }

    #[test]
    fn a_short_object_is_verified_before_its_length_is_told() {
        let flight = flight_of(b"short");
        flight.set_length(5);
        flight.set_written(5);
        assert!(flight.restart(Arc::new(tempfile::tempfile().unwrap())), "no byte was handed over");
        flight.end(Err(Failure::NotFound("nowhere".into())));
        flight.end(Ok(()));
        assert!(!flight.restart(Arc::new(tempfile::tempfile().unwrap())), "it has ended");
        assert_eq!(flight.length(), Err(Failure::NotFound("nowhere".into())));
    }
}
