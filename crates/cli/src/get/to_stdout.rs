//! `get --output -`: writes the content to standard output, in order, while it arrives.

use std::fs::File;
use std::io::{self, BufRead as _, ErrorKind, Write as _};
use std::os::fd::AsFd as _;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anabranch::get::Reader;
use anabranch::{Error, Event, Get, Stop};
use signal_hook::consts::SIGPIPE;

use crate::exit::{Failure, Outcome};

/// The time after an interruption in which the reader of standard output can take the last bytes.
const LAST_WRITE: Duration = Duration::from_secs(1);

/// Says why writing ended early.
enum Ended {
    /// The transfer failed, or was stopped.
    Read(Failure),
    /// Standard output cannot be written.
    Write(io::Error),
}

/// Writes the content that `get` fetches to standard output. Meanwhile, passes events to `listener`.
///
/// # Errors
/// If the transfer fails, or standard output cannot be written. If the reader of a pipe has gone, as `head`
/// does, there is no error: SIGPIPE ends the process quietly, as it ends other programs.
pub(super) fn write(get: &Get, stop: &Stop, listener: impl FnMut(Event)) -> Outcome {
    // A plain file is used because `Stdout` writes by lines.
    let owned = io::stdout().as_fd().try_clone_to_owned();
    let out = File::from(owned.map_err(|e| Failure::target(format!("standard output: {e}")))?);
    let reader = get.read_stopped_by(stop)?;
    let events = reader.events();
    let (sender, end) = mpsc::channel();
    thread::spawn(move || sender.send(copy(reader, out)));
    events.for_each(listener);
    let end = if stop.is_stopped() { end.recv_timeout(LAST_WRITE).ok() } else { end.recv().ok() };
    match end {
        Some(Ok(())) => Ok(()),
        Some(Err(Ended::Write(e))) if e.kind() == ErrorKind::BrokenPipe => {
            let _ = signal_hook::low_level::emulate_default_handler(SIGPIPE);
            Err(Failure::target("standard output has been closed"))
        }
        Some(Err(Ended::Write(e))) => Err(Failure::target(format!("standard output: {e}"))),
        Some(Err(Ended::Read(failure))) => Err(failure),
        None => Err(Error::interrupted("interrupted: standard output takes no more").into()),
    }
}

fn copy(mut reader: Reader, mut out: File) -> Result<(), Ended> {
    loop {
        let block = reader.fill_buf().map_err(|error| {
            let cause = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
            Ended::Read(cause.map_or_else(|| Failure::other(error.to_string()), |e| e.clone().into()))
        })?;
        if block.is_empty() {
            return Ok(());
        }
        out.write_all(block).map_err(Ended::Write)?;
        let len = block.len();
        reader.consume(len);
    }
}
