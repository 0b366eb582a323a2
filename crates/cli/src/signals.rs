//! Ctrl-C, SIGTERM and the end of the terminal stop what runs.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anabranch::Stop;
use net::WakeReceiver;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::exit::{Code, Failure, Outcome};

/// The signals that end a command in order. The second one ends the process at once, whatever hangs.
const SIGNALS: [i32; 3] = [SIGHUP, SIGINT, SIGTERM];

/// A [`Stop`] that the signals use.
///
/// # Errors
/// If they cannot be caught.
pub fn stop_on_signals() -> Outcome<Stop> {
    let stop = Stop::new()?;
    catch(&stop.flag(), || stop.stream()).map_err(uncaught)?;
    Ok(stop)
}

/// The same as a flag, and what ends a wait.
///
/// # Errors
/// If they cannot be caught.
pub fn stop_signals() -> Outcome<(WakeReceiver, Arc<AtomicBool>)> {
    let (wake, stop) = (WakeReceiver::new().map_err(uncaught)?, Arc::default());
    catch(&stop, || wake.waker().stream()).map_err(uncaught)?;
    Ok((wake, stop))
}

/// Lets the signals set `flag`, and write a byte into a `stream`.
fn catch(flag: &Arc<AtomicBool>, stream: impl Fn() -> io::Result<UnixStream>) -> io::Result<()> {
    for signal in SIGNALS {
        let status = i32::from(Code::Interrupted as u8);
        signal_hook::flag::register_conditional_shutdown(signal, status, Arc::clone(flag))?;
        signal_hook::flag::register(signal, Arc::clone(flag))?;
        signal_hook::low_level::pipe::register(signal, stream()?)?;
    }
    Ok(())
}

fn uncaught(error: io::Error) -> Failure {
    Failure::other(format!("cannot catch signals: {error}"))
}
