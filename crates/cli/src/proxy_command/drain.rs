//! `anabranch proxy drain`.

use std::io;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anabranch_proxy::control::{Command, ControlError};
use anabranch_proxy::status::{DrainState, control};

use super::args::Drain;
use super::places::all_dirs;
use crate::exit::{Failure, Outcome};
use crate::json;
use crate::stdout;
use crate::view::{duration, plural, printable, say};

/// The time between two looks at a drain.
const EVERY: Duration = Duration::from_secs(1);

/// Drains a server of this user, and waits until it is over.
pub(super) fn drain(args: &Drain) -> Outcome {
    json::end(args.json, run(args))
}

fn run(args: &Drain) -> Outcome {
    let command = command(args)?;
    let path = server(args.process)?;
    let mut drain = give(&path, &command)?;
    let mut said = String::new();
    loop {
        let Some(now) = drain else {
            stdout::line("the server does not drain any more: clients may come back");
            return Ok(());
        };
        let line = line(&now);
        if args.json {
            json::put("drain", &now);
        } else if line != said {
            say(&line);
        }
        said = line;
        let is_over = now.state == "ended" || (now.waiting == 0 && now.present == 0);
        match is_over {
            true if now.present == 0 => return Ok(()),
            true => {
                let left = plural(usize::try_from(now.present).unwrap_or(usize::MAX), "client");
                return Err(Failure::other(format!("the time is over; {left} not gone")));
            }
            false if args.no_wait || args.pause || args.resume => return Ok(()),
            false => {}
        }
        sleep(EVERY);
        drain = give(&path, &Command::Show)?;
    }
}

/// Writes the state of a drain for people.
pub(super) fn line(drain: &DrainState) -> String {
    let count = |n: u64, what| plural(usize::try_from(n).unwrap_or(usize::MAX), what);
    let mut line = format!(
        "{}, {} told at {:.3}/s, {} to be told, {} here with {}",
        drain.state,
        count(drain.told, "client"),
        drain.rate,
        drain.waiting,
        drain.present,
        count(drain.open_connections, "connection"),
    );
    if let Some(to) = &drain.to {
        line.push_str(&format!(", to {}", printable(to)));
    }
    if let Some(left) = drain.left_s.filter(|_| drain.state != "ended") {
        line.push_str(&format!(", {} left", duration(left)));
    }
    line
}

fn command(args: &Drain) -> Outcome<Command> {
    if args.pause {
        return Ok(Command::Pause);
    }
    if args.resume {
        return Ok(Command::Resume);
    }
    if args.cancel {
        return Ok(Command::Cancel);
    }
    let rate = args.rate.as_deref().map(rate).transpose()?;
    let within_s = args.until.as_deref().map(seconds).transpose()?;
    Ok(Command::Drain { rate, within_s, to: args.to.clone() })
}

/// Reads a rate in clients a second.
fn rate(text: &str) -> Outcome<f64> {
    let (number, per) = match text.split_once('/') {
        None | Some((_, "s")) => (text.split('/').next().unwrap_or(text), 1.0),
        Some((number, "min")) => (number, 60.0),
        Some((number, "h")) => (number, 3_600.0),
        Some(_) => ("", 1.0),
    };
    let rate = number.trim().parse::<f64>().ok().map(|number| number / per);
    rate.filter(|rate| *rate > 0.0 && rate.is_finite()).ok_or_else(|| {
        Failure::usage(format!("--rate: '{text}' is no rate above 0: say 5, 5/s, 0.5/s or 30/min"))
    })
}

/// Reads a deadline. Returns the seconds from now.
fn seconds(text: &str) -> Outcome<f64> {
    let wrong = || {
        Failure::usage(format!("--until: '{text}' is no time: say 90s, 10min, 2h, or @ and seconds of Unix"))
    };
    let seconds = if let Some(unix) = text.strip_prefix('@') {
        let at = unix.parse::<f64>().map_err(|_| wrong())?;
        #[expect(clippy::disallowed_methods, reason = "the deadline is a time of the wall clock")]
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        at - now.as_secs_f64()
    } else {
        let units = [("min", 60.0), ("h", 3_600.0), ("s", 1.0)];
        let unit = units.iter().find_map(|(name, by)| Some((text.trim().strip_suffix(name)?, by)));
        let (number, by) = unit.ok_or_else(wrong)?;
        number.trim().parse::<f64>().map_err(|_| wrong())? * by
    };
    match seconds.is_finite() && seconds > 0.0 {
        true => Ok(seconds),
        false => Err(Failure::usage(format!("--until: '{text}' is over already"))),
    }
}

/// Returns the socket of the server that is meant.
fn server(process: Option<u32>) -> Outcome<PathBuf> {
    let mut found: Vec<(u32, PathBuf)> = all_dirs().iter().flat_map(|dir| control::sockets(dir)).collect();
    found.retain(|(pid, _)| process.is_none_or(|wanted| wanted == *pid));
    match &found[..] {
        [(_, path)] => Ok(path.clone()),
        [] => Err(Failure::other("no server of this user runs here; for one of root's or of a unit: sudo")),
        several => {
            let pids: Vec<_> = several.iter().map(|(pid, _)| pid.to_string()).collect();
            Err(Failure::usage(format!(
                "several servers run here: say --process, one of {}",
                pids.join(", ")
            )))
        }
    }
}

fn give(path: &std::path::Path, command: &Command) -> Outcome<Option<DrainState>> {
    control::give(path, command).map_err(|e| match e {
        ControlError::Io(e)
            if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) =>
        {
            Failure::other("the server has ended")
        }
        ControlError::Refused(why) => Failure::usage(why),
        e => Failure::other(e.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_times_are_read_and_nonsense_is_refused() {
        for (text, value) in [("5", 5.0), ("5/s", 5.0), ("0.5/s", 0.5), ("30/min", 0.5), ("36/h", 0.01)] {
            assert_eq!(rate(text).unwrap(), value, "{text}");
        }
        for text in ["0", "0/s", "-1", "nan", "inf", "", "/s", "5/year", "5/s/s"] {
            assert!(rate(text).is_err(), "{text}");
        }
        assert_eq!((seconds("90s").unwrap(), seconds("1.5min").unwrap()), (90.0, 90.0));
        assert!(seconds("@99999999999").unwrap() > 0.0);
        for text in ["", "10", "0s", "-5s", "@0", "@1700000000", "@x", "tomorrow", "nans"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
