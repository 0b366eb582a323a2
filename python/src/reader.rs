//! A file that is read in order while it arrives.

use std::io::BufRead as _;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use anabranch::{Error, Get, Report, Stop};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::own::Own;
use crate::{SIGNALS_EVERY, raised, report};

/// The most blocks that wait for Python, besides those that the transfer keeps ready.
const BLOCKS_MAX: usize = 16;

/// What the reading thread says.
enum Piece {
    Bytes(Vec<u8>),
    /// All bytes have arrived, and the checks of the whole have passed.
    End(Box<Report>),
    Failed(Error),
}

/// A file that is read in order while it arrives. Dropping it stops the transfer.
#[pyclass(frozen, module = "anabranch")]
pub(crate) struct Reader(Own<Inner>);

struct Inner {
    stop: Stop,
    state: Mutex<State>,
}

struct State {
    pieces: Receiver<Piece>,
    bytes: Vec<u8>,
    /// The number of `bytes` that have been handed over.
    at: usize,
    end: Option<Result<Report, Error>>,
}

impl Reader {
    /// Starts a transfer, and a thread that waits for its bytes: a wait on a thread of Python would not end
    /// with Ctrl-C.
    pub(crate) fn start(get: &Get) -> anabranch::Result<Self> {
        let stop = Stop::new()?;
        let mut reader = get.read_stopped_by(&stop)?;
        let (sender, pieces) = sync_channel(BLOCKS_MAX);
        thread::spawn(move || {
            loop {
                let piece = match reader.fill_buf() {
                    Ok([]) => Piece::End(Box::new(reader.report().cloned().unwrap_or_default())),
                    Ok(bytes) => Piece::Bytes(bytes.to_vec()),
                    Err(error) => {
                        let own = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
                        Piece::Failed(own.cloned().unwrap_or_else(|| Error::system(error.to_string())))
                    }
                };
                let Piece::Bytes(bytes) = &piece else {
                    let _ = sender.send(piece);
                    return;
                };
                reader.consume(bytes.len());
                if sender.send(piece).is_err() {
                    return;
                }
            }
        });
        let state = State { pieces, bytes: Vec::new(), at: 0, end: None };
        Ok(Self(Own::new(Inner { stop, state: Mutex::new(state) })))
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Waits a while for bytes or the end, if neither is there.
    fn wait(&mut self) {
        if self.at < self.bytes.len() || self.end.is_some() {
            return;
        }
        match self.pieces.recv_timeout(SIGNALS_EVERY) {
            Ok(Piece::Bytes(bytes)) => (self.bytes, self.at) = (bytes, 0),
            Ok(Piece::End(report)) => self.end = Some(Ok(*report)),
            Ok(Piece::Failed(error)) => self.end = Some(Err(error)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                self.end = Some(Err(Error::system("the thread of a transfer has panicked")));
            }
        }
    }

    /// Takes at most `size` bytes that are there, or none at the end; returns `None` if neither has come yet.
    fn take(&mut self, size: usize) -> Option<Result<&[u8], Error>> {
        let from = self.at;
        self.at = self.bytes.len().min(from.saturating_add(size));
        match &self.end {
            _ if self.at > from => Some(Ok(&self.bytes[from..self.at])),
            Some(Ok(_)) => Some(Ok(&[])),
            Some(Err(error)) => Some(Err(error.clone())),
            None => None,
        }
    }
}

#[pymethods]
impl Reader {
    /// Returns bytes that are there, at most `size`, and waits for the first one. No bytes are the end, when
    /// all have arrived and the checks of the whole have passed.
    fn read<'py>(&self, py: Python<'py>, size: usize) -> PyResult<Bound<'py, PyBytes>> {
        if size == 0 {
            return Ok(PyBytes::new(py, &[]));
        }
        let inner = self.0.get()?;
        loop {
            py.detach(|| inner.lock().wait());
            py.check_signals()?;
            if let Some(bytes) = inner.lock().take(size) {
                return bytes.map(|bytes| PyBytes::new(py, bytes)).map_err(|e| raised(py, &e));
            }
        }
    }

    /// Returns the report once all bytes have been read, else `None`.
    fn report<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let done = match &self.0.get()?.lock().end {
            Some(Ok(done)) => done.clone(),
            _ => return Ok(None),
        };
        report(py, &done).map(Some)
    }

    /// Stops the transfer. Later reads fail. In a process that is forked it does nothing.
    fn stop(&self) {
        if let Ok(inner) = self.0.get() {
            inner.stop.stop();
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.stop.stop();
    }
}
