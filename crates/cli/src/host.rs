//! What every long-running command asks of the host: a way to be stopped, and a secret.

use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use net::Wake;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::exit::{Code, Failure, Outcome};

/// Ctrl-C, SIGTERM and the end of the terminal set a flag and end a wait.
///
/// # Errors
/// What catching signals fails with.
pub fn stop_signals() -> io::Result<(Wake, Arc<AtomicBool>)> {
    let (wake, stop) = (Wake::new()?, Arc::new(AtomicBool::new(false)));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        // The second one ends the process at once, whatever hangs.
        let status = i32::from(Code::Interrupted as u8);
        signal_hook::flag::register_conditional_shutdown(signal, status, Arc::clone(&stop))?;
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
        signal_hook::low_level::pipe::register(signal, wake.waker().stream()?)?;
    }
    Ok((wake, stop))
}

/// What Ctrl-C, SIGTERM and the end of the terminal stop.
///
/// # Errors
/// What catching signals fails with.
pub fn stop_on_signals() -> Outcome<anabranch::Stop> {
    let caught = || {
        let stop = anabranch::Stop::new()?;
        for signal in [SIGHUP, SIGINT, SIGTERM] {
            // The second one ends the process at once, whatever hangs.
            let status = i32::from(Code::Interrupted as u8);
            signal_hook::flag::register_conditional_shutdown(signal, status, stop.flag())?;
            signal_hook::flag::register(signal, stop.flag())?;
            signal_hook::low_level::pipe::register(signal, stop.stream()?)?;
        }
        Ok(stop)
    };
    caught().map_err(|e: io::Error| Failure::other(format!("cannot catch signals: {e}")))
}

/// What ends a wait, and the flag that says why.
pub type Stop = (Arc<Wake>, Arc<AtomicBool>);

/// The same, once for the whole process, for transfers that come one after the other.
///
/// # Errors
/// What catching signals fails with.
pub fn shared_stop() -> io::Result<Stop> {
    static SHARED: OnceLock<Stop> = OnceLock::new();
    if let Some(known) = SHARED.get() {
        return Ok(known.clone());
    }
    let (wake, stop) = stop_signals()?;
    Ok(SHARED.get_or_init(|| (Arc::new(wake), stop)).clone())
}

/// A secret: the seed of a receiver's tags, the key of a source's cookies.
///
/// # Errors
/// If the system has no random numbers.
#[expect(clippy::disallowed_methods, reason = "tags and cookies must be unpredictable")]
pub fn secret() -> Outcome<[u8; 32]> {
    let mut secret = [0; 32];
    getrandom::fill(&mut secret)
        .map_err(|e| Failure::other(format!("the system has no random numbers: {e}")))?;
    Ok(secret)
}
