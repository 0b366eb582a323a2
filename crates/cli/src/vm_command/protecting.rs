//! Protects machines, and takes them over and back.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use anabranch_machines::Error;
use anabranch_machines::journal::{Arrival, Guarded};
use anabranch_machines::protect::{self, Status};
use anabranch_machines::shadow::{self, Said};
use anabranch_machines::store::{Incoming, Store};
use anabranch_net::Clock;
use serde::Serialize;

use super::args::{Keep, Named, Protect, Shown, Sync};
use super::failure::failure;
use super::moving::start_guard;
use crate::exit::{Code, Failure, Outcome};
use crate::signals::stop_signals;
use crate::view::{bytes, note, printable};
use crate::{json, stdout};

/// How long a keeper may take to say something.
const SILENCE: u32 = 100;
/// How long a keeper that is patient tries to begin, s.
const PATIENCE_S: u64 = 180;

/// A protection at its source, as a line of JSON.
#[derive(Serialize)]
struct ProtectionLine<'a> {
    name: &'a str,
    to: &'a str,
    /// `copying`, `following`, `leaving` or `lost`.
    state: Guarded,
    /// Whether its keeper lives.
    is_kept: bool,
    lag_ms: Option<u64>,
    sent_bytes: u64,
    left_bytes: u64,
    ended: Option<&'a str>,
}

/// A shadow at this host, as a line of JSON.
#[derive(Serialize)]
struct ShadowLine<'a> {
    name: &'a str,
    from: &'a str,
    state: Arrival,
    is_whole: bool,
    serves: bool,
    #[serde(flatten)]
    said: Option<Said>,
}

/// A machine that was taken over or given back, as a line of JSON.
#[derive(Serialize)]
struct TakenLine<'a> {
    name: &'a str,
    to: Option<&'a str>,
    #[serde(flatten)]
    taken: Option<shadow::TakenOver>,
}

/// Starts the keeper of a machine, which goes on when this command has ended.
fn start_keeper(store: &Store, name: &str, is_patient: bool) -> Outcome {
    let failed = |e: std::io::Error| Failure::other(format!("cannot start the keeper of {name}: {e}"));
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command.arg("keep").arg(name).arg("--state").arg(store.dir()).process_group(0);
    if is_patient {
        command.arg("--patient");
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().map(drop).map_err(failed)
}

/// Protects a machine, and waits for the end of its first copy.
pub(super) fn protect(store: &Store, args: &Protect) -> Outcome {
    begin(store, &args.name, &args.to, &args.via, args.json)
}

/// Copies a machine that was taken over to where it came from.
pub(super) fn sync(store: &Store, args: &Sync) -> Outcome {
    let origin = protect::origin(store, &args.name).map_err(failure);
    let to = args.to.clone().map_or(origin, Ok)?;
    begin(store, &args.name, &to, &args.via, args.json)
}

fn begin(store: &Store, name: &str, to: &str, via: &[String], is_json: bool) -> Outcome {
    let (_wake, stop) = stop_signals()?;
    protect::begin(store, name, to, via).map_err(failure)?;
    start_keeper(store, name, false)?;
    let (mut silent, mut shown) = (0, 0);
    loop {
        if stop.load(Ordering::SeqCst) {
            return Err(Failure::new(
                Code::Interrupted,
                "interrupted: the copy goes on without this command",
            ));
        }
        let Some(status) = protect::status(store, name).map_err(failure)? else {
            return Err(Failure::other(format!("the protection of {name} was ended")));
        };
        if let Some(why) = &status.now.ended {
            return Err(Failure::other(why.clone()));
        }
        if status.protection.state == Guarded::Following && status.lag_ms.is_some() {
            show(name, &status, is_json);
            return Ok(());
        }
        silent = if status.is_kept { 0 } else { silent + 1 };
        if silent > SILENCE {
            return Err(Failure::other(format!("the keeper of {name} has ended, and does not say why")));
        }
        shown += 1;
        if shown % 10 == 0 && status.now.sent_bytes > 0 {
            show(name, &status, is_json);
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// Protects a machine that has come back, to the host from which it did.
pub(super) fn protect_again(store: &Store, name: &str) {
    let Ok(Some(known)) = store.protection(name) else { return };
    if known.state != Guarded::Lost {
        return;
    }
    let begun = protect::begin(store, name, &known.to, &known.via).map_err(failure);
    match begun.and_then(|()| start_keeper(store, name, true)) {
        Ok(()) => note(&format!("{name} is protected again, by a shadow at {}", known.to)),
        Err(e) => note(&format!("{name} is not protected: {e}")),
    }
}

/// Follows the copy of a machine.
pub(super) fn keep(store: &Store, args: &Keep) -> Outcome {
    let (_wake, stop) = stop_signals()?;
    let clock = Clock::start();
    let until = clock.now() + anabranch_algo::Span::from_secs(if args.is_patient { PATIENCE_S } else { 0 });
    loop {
        let kept = protect::keep(store, &args.name, &|| stop.load(Ordering::SeqCst));
        let known = store.protection(&args.name).map_err(failure)?;
        let has_begun = known.is_none_or(|known| known.state != Guarded::Copying);
        match kept {
            Err(Error::Refused(_) | Error::Unreachable(_)) if !has_begun && clock.now() < until => {
                thread::sleep(Duration::from_millis(500));
            }
            other => return other.map_err(failure),
        }
    }
}

fn show(name: &str, status: &Status, is_json: bool) {
    let Status { protection, now, lag_ms, is_kept } = status;
    if is_json {
        let line = ProtectionLine {
            name,
            to: &protection.to,
            state: protection.state,
            is_kept: *is_kept,
            lag_ms: *lag_ms,
            sent_bytes: now.sent_bytes,
            left_bytes: now.left_bytes,
            ended: now.ended.as_deref(),
        };
        return json::put("protection", &line);
    }
    let to = &protection.to;
    let mut text = match (protection.state, lag_ms) {
        (Guarded::Copying, _) => {
            format!("is copied to {to}: {} sent, {} left", bytes(now.sent_bytes), bytes(now.left_bytes))
        }
        (Guarded::Following, Some(lag)) => {
            format!("is followed at {to}, {}.{:02} s behind", lag / 1_000, lag % 1_000 / 10)
        }
        (Guarded::Following, None) => format!("is followed at {to}, nothing is known of how far"),
        (Guarded::Leaving, _) => format!("was about to leave the shadow at {to}"),
        (Guarded::Lost, _) => format!("was taken over by {to}, and does not run here"),
    };
    if let Some(ended) = &now.ended {
        text = format!("{text}; {ended}");
    } else if !is_kept && matches!(protection.state, Guarded::Copying | Guarded::Following) {
        text += "; its keeper has ended: `anabranch vm protect` starts it again";
    }
    stdout::line(printable(&format!("{name} {text}")));
}

fn show_shadow(store: &Store, arrival: &Incoming, is_json: bool) {
    let name = &arrival.name;
    let said = shadow::said(store, name);
    let is_whole = arrival.shadow.as_ref().is_some_and(|shadow| shadow.is_whole);
    let line = ShadowLine {
        name,
        from: &arrival.client,
        state: arrival.state,
        is_whole,
        serves: shadow::serves(store, name),
        said,
    };
    if is_json {
        return json::put("shadow", &line);
    }
    let state = match (arrival.state, is_whole) {
        (Arrival::Waiting, true) => "can be taken over here",
        (Arrival::Waiting, false) => "is being copied here, and cannot be taken over yet",
        (Arrival::Starting, _) => "is being taken over here: repeat the failover if it has ended",
        (Arrival::Running, _) => "was taken over here",
        (Arrival::Refused, _) => "was given up here",
    };
    let from = &arrival.client;
    let said =
        said.map(|said| format!(", was {}.{:02} s behind", said.lag_ms / 1_000, said.lag_ms % 1_000 / 10));
    stdout::line(printable(&format!("{name} from {from} {state}{}", said.unwrap_or_default())));
}

/// Shows protections and shadows of this host.
pub(super) fn protection(store: &Store, args: &Shown) -> Outcome {
    let is_shown = |name: &str| args.name.as_deref().is_none_or(|wanted| wanted == name);
    let mut count = 0;
    for name in store.machines().map_err(failure)?.iter().filter(|name| is_shown(name)) {
        if let Some(status) = protect::status(store, name).map_err(failure)? {
            show(name, &status, args.json);
            count += 1;
        }
    }
    for arrival in store.arrivals().map_err(failure)?.into_iter().flatten() {
        if arrival.shadow.is_some() && is_shown(&arrival.name) {
            show_shadow(store, &arrival, args.json);
            count += 1;
        }
    }
    if count == 0 && !args.json {
        note(
            "no machine is protected here, and no shadow is kept: `anabranch vm protect NAME --to HOST` \
             makes one",
        );
    }
    Ok(())
}

/// Ends a protection.
pub(super) fn unprotect(store: &Store, args: &Named) -> Outcome {
    protect::unprotect(store, &args.name).map_err(failure)
}

/// Takes a machine over whose shadow is here.
pub(super) fn failover(store: &Store, args: &Named) -> Outcome {
    let name = &args.name;
    let taken = shadow::take_over(store, name, Clock::start()).map_err(failure)?;
    if args.json {
        json::put("taken_over", &TakenLine { name, to: None, taken: Some(taken) });
        return Ok(());
    }
    let said = match (taken.lag_ms, taken.silent_ms) {
        (Some(lag), Some(silent)) => format!(
            "its source said {silent} ms ago that the shadow was {lag} ms behind: what was written in these \
             {lag} ms, and since, may be lost"
        ),
        _ => "its source has not said how far the shadow was behind".to_owned(),
    };
    stdout::line(format!("{name} runs here; {said}"));
    Ok(())
}

/// Gives a machine back to where it came from.
pub(super) fn failback(store: &Store, args: &Named) -> Outcome {
    let name = &args.name;
    let mut child = None;
    let mut guard = || {
        child = Some(start_guard(store, name)?);
        Ok(())
    };
    let given = protect::give_back(store, name, &mut guard);
    // A guard that finds nothing to settle ends by itself; one that does goes on.
    drop(child);
    let to = given.map_err(failure)?.to;
    match args.json {
        true => json::put("given_back", &TakenLine { name, to: Some(&to), taken: None }),
        false => stdout::line(format!("{name} runs at {to}, and nothing that it wrote is lost")),
    }
    Ok(())
}
