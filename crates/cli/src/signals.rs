//! Turns Ctrl-C, SIGTERM and SIGHUP into an orderly stop.

use std::io::{self, Read as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use anabranch::Stop;
use anabranch_net::WakeReceiver;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::exit::{Code, Failure, Outcome};

/// The signals that stop a command in an orderly way. A signal that comes more than [`BURST`] after the first
/// ends the process at once, even if something hangs.
const SIGNALS: [i32; 3] = [SIGHUP, SIGINT, SIGTERM];

/// Returns a [`Stop`] that the signals trigger.
///
/// # Errors
/// If the signals cannot be caught.
pub fn stop_on_signals() -> Outcome<Stop> {
    let stop = Stop::new()?;
    catch(&SIGNALS, &stop.flag(), || stop.stream()).map_err(uncaught)?;
    Ok(stop)
}

/// Returns a receiver that becomes readable at a signal, and the flag that the signals set.
///
/// # Errors
/// If the signals cannot be caught.
pub fn stop_signals() -> Outcome<(WakeReceiver, Arc<AtomicBool>)> {
    let signals = service_signals(false)?;
    Ok((signals.wake, signals.stop))
}

/// The state that signals change in a service.
#[derive(Debug)]
pub struct ServiceSignals {
    /// Becomes readable when a signal has come.
    pub wake: WakeReceiver,
    /// Set when the service is to end.
    pub stop: Arc<AtomicBool>,
    /// Set when SIGHUP has come, and the service is to read its settings again.
    pub hangup: Arc<AtomicBool>,
}

/// Catches the signals of a service. With `reloads`, SIGHUP sets `hangup` instead of ending the service.
///
/// # Errors
/// If the signals cannot be caught.
pub fn service_signals(reloads: bool) -> Outcome<ServiceSignals> {
    let (wake, stop, hangup) = (WakeReceiver::new().map_err(uncaught)?, Arc::default(), Arc::default());
    if !reloads {
        catch(&SIGNALS, &stop, || wake.waker().stream()).map_err(uncaught)?;
        return Ok(ServiceSignals { wake, stop, hangup });
    }
    let others: Vec<i32> = SIGNALS.into_iter().filter(|signal| *signal != SIGHUP).collect();
    let caught = catch(&others, &stop, || wake.waker().stream()).and_then(|()| {
        signal_hook::flag::register(SIGHUP, Arc::clone(&hangup))?;
        signal_hook::low_level::pipe::register(SIGHUP, wake.waker().stream()?).map(drop)
    });
    caught.map_err(uncaught)?;
    Ok(ServiceSignals { wake, stop, hangup })
}

/// Signals within this time of the first count as one: timeout(1) signals a process, then its group.
const BURST: Duration = Duration::from_millis(500);

/// Makes the signals, except for ignored ones, set `flag` and write a byte into a `stream`.
fn catch(
    signals: &[i32],
    flag: &Arc<AtomicBool>,
    stream: impl Fn() -> io::Result<UnixStream>,
) -> io::Result<()> {
    let ignored = ignored_signals();
    let ends_at_once = Arc::new(AtomicBool::new(false));
    let (mut first, signaled) = UnixStream::pair()?;
    for &signal in signals.iter().filter(|signal| ignored >> (**signal - 1) & 1 == 0) {
        let status = i32::from(Code::Interrupted as u8);
        signal_hook::flag::register_conditional_shutdown(signal, status, Arc::clone(&ends_at_once))?;
        signal_hook::flag::register(signal, Arc::clone(flag))?;
        signal_hook::low_level::pipe::register(signal, stream()?)?;
        signal_hook::low_level::pipe::register(signal, signaled.try_clone()?)?;
    }
    let arm = move || {
        if first.read_exact(&mut [0]).is_ok() {
            sleep(BURST);
            ends_at_once.store(true, Ordering::SeqCst);
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(arm).map(drop)
}

/// Returns the signals that the parent of this process wants ignored, one bit each from SIGHUP on. `nohup`
/// ignores the end of the terminal, and a shell ignores Ctrl-C for background jobs (POSIX.1-2017, section
/// 2.11). Returns none if /proc does not tell.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.unwrap_or_default()
}

fn uncaught(error: io::Error) -> Failure {
    Failure::other(format!("cannot catch signals: {error}"))
}
