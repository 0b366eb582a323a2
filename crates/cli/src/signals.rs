//! Ctrl-C, SIGTERM and the end of the terminal stop what runs.

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

/// The signals that end a command in order. One that comes more than [`BURST`] after the first ends the
/// process at once, whatever hangs.
const SIGNALS: [i32; 3] = [SIGHUP, SIGINT, SIGTERM];

/// A [`Stop`] that the signals use.
///
/// # Errors
/// If they cannot be caught.
pub fn stop_on_signals() -> Outcome<Stop> {
    let stop = Stop::new()?;
    catch(&SIGNALS, &stop.flag(), || stop.stream()).map_err(uncaught)?;
    Ok(stop)
}

/// The same as a flag, and what ends a wait.
///
/// # Errors
/// If they cannot be caught.
pub fn stop_signals() -> Outcome<(WakeReceiver, Arc<AtomicBool>)> {
    let signals = service_signals(false)?;
    Ok((signals.wake, signals.stop))
}

/// What signals tell a service.
#[derive(Debug)]
pub struct ServiceSignals {
    /// It becomes readable when a signal has come.
    pub wake: WakeReceiver,
    /// It is to end.
    pub stop: Arc<AtomicBool>,
    /// SIGHUP has come: it is to read its settings again.
    pub hangup: Arc<AtomicBool>,
}

/// The signals of a service. SIGHUP ends it as the others do unless it `reloads`.
///
/// # Errors
/// If they cannot be caught.
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

/// Signals that come so soon after the first count as the same: timeout(1) signals a process, then its group.
const BURST: Duration = Duration::from_millis(500);

/// Lets the signals set `flag`, and write a byte into a `stream`; but those that are ignored.
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

/// The signals that whoever started this process wants ignored, a bit for each from SIGHUP on: `nohup` the
/// end of the terminal, a shell Ctrl-C for what is in its background (POSIX.1-2017, section 2.11). None where
/// /proc does not tell.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.unwrap_or_default()
}

fn uncaught(error: io::Error) -> Failure {
    Failure::other(format!("cannot catch signals: {error}"))
}
