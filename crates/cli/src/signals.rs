//! Ctrl-C, SIGTERM and the end of the terminal stop what runs.

use std::io;
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
    let connect = || {
        let stop = Stop::new()?;
        for signal in SIGNALS {
            let status = i32::from(Code::Interrupted as u8);
            signal_hook::flag::register_conditional_shutdown(signal, status, stop.flag())?;
            signal_hook::flag::register(signal, stop.flag())?;
            signal_hook::low_level::pipe::register(signal, stop.stream()?)?;
        }
        Ok(stop)
    };
    connect().map_err(|e: io::Error| Failure::other(format!("cannot catch signals: {e}")))
}

/// The same as a flag, and what ends a wait.
///
/// # Errors
/// What catching signals fails with.
pub fn stop_signals() -> io::Result<(WakeReceiver, Arc<AtomicBool>)> {
    let (wake, stop) = (WakeReceiver::new()?, Arc::new(AtomicBool::new(false)));
    for signal in SIGNALS {
        let status = i32::from(Code::Interrupted as u8);
        signal_hook::flag::register_conditional_shutdown(signal, status, Arc::clone(&stop))?;
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
        signal_hook::low_level::pipe::register(signal, wake.waker().stream()?)?;
    }
    Ok((wake, stop))
}
