//! The parts that the commands `up`, `exec`, `status` and `down` of all kinds share.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anabranch_net::{Namespace, nearest};

use super::daemon::{Request, Started, send_request, ups};
use super::plain_name::plain_name;
use super::{Kind, State, orphans};
use crate::exit::{Code, Failure, Outcome};
use crate::json;
use crate::names::show;
use crate::stdout::print;
use crate::toml_name::stem;
use crate::view::{note, say};

/// Starts a holder: this program with `args`, which reads `text`. Returns the first state, once all is up.
///
/// # Errors
/// 1 with the holder's reason if it cannot be started.
pub(crate) fn start<S: State>(name: &str, args: &[&str], text: &str) -> Outcome<S> {
    let failed = |e| Failure::other(format!("cannot start the holder: {e}"));
    let mut daemon = Command::new(std::env::current_exe().map_err(failed)?)
        .arg(S::KIND.command())
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .current_dir("/")
        .spawn()
        .map_err(failed)?;
    // The holder reads everything, or has ended and says why.
    let _ = daemon.stdin.take().map(|mut stdin| stdin.write_all(text.as_bytes()));
    let mut line = String::new();
    let _ = daemon.stdout.take().map(|stdout| BufReader::new(stdout).read_line(&mut line));
    match serde_json::from_str(&line) {
        Ok(Started::Ready(state)) => Ok(state),
        Ok(Started::Failed(why)) => {
            let _ = daemon.wait();
            Err(Failure::other(why))
        }
        Err(_) => {
            let status = daemon.wait().map_or_else(|e| e.to_string(), |status| status.to_string());
            Err(Failure::other(format!("the holder ended before {name} was up ({status})")))
        }
    }
}

/// Runs a program on a host, in place of this process. If that is impossible, ends the process as a shell
/// would: with 127 if there is no such program, 126 if it cannot be executed (POSIX.1-2024, XCU 2.8.2).
///
/// # Errors
/// 1 if the host cannot be entered.
pub(crate) fn exec(
    state: &impl State,
    host: usize,
    command: &[OsString],
    variables: &[(&str, &str)],
) -> Outcome {
    let (name, _) = state.hosts()[host];
    let entered = namespace(state, host)?.enter();
    entered.map_err(|e| Failure::other(format!("cannot enter {name}: {e}")))?;
    let mut program = Command::new(&command[0]);
    let error = program.args(&command[1..]).envs(variables.iter().copied()).exec();
    say(&format!("anabranch: cannot run {}: {error}", show(command[0].as_os_str())));
    std::process::exit(if error.kind() == ErrorKind::NotFound { 127 } else { 126 })
}

/// Opens the namespace of a host.
///
/// # Errors
/// 1 if it does not exist any more, or is not this user's.
pub(crate) fn namespace(state: &impl State, host: usize) -> Outcome<Namespace> {
    let (name, fd) = state.hosts()[host];
    let path = format!("/proc/{}/fd/{fd}", state.pid());
    let space = Namespace::open(Path::new(&path));
    space.map_err(|e| Failure::other(format!("cannot enter {name}: {e}")))
}

/// Returns the state of the setup with this name, if one is up.
///
/// # Errors
/// 2 if it belongs to another user, 1 if it does not answer.
#[cfg(feature = "network")]
pub(crate) fn find_up<S: State>(name: &str) -> Outcome<Option<S>> {
    let (ups, wanted) = (ups(S::KIND), plain_name(name));
    let others = ups.others.iter().map(|(name, _)| name);
    if !ups.own.iter().chain(others).any(|name| *name == wanted) {
        return Ok(None);
    }
    state(&pick(S::KIND, &wanted, &ups.own)?).map(Some)
}

/// Finds the host that `NAME/HOST` names, or `HOST` alone if that is unambiguous. Returns the setup's state,
/// and the index of the host in it.
///
/// # Errors
/// 2 if there is no such host, or more than one.
pub(crate) fn find_host<S: State>(name: &str) -> Outcome<(S, usize)> {
    let kind = S::KIND;
    let (up, name) = match name.split_once('/') {
        Some((up, host)) => (Some(up), host),
        None => (None, name),
    };
    let names = match up {
        Some(up) => vec![pick(kind, up, &ups(kind).own)?],
        None => ups(kind).own,
    };
    if names.is_empty() {
        return Err(Failure::usage(format!("{}: sudo anabranch {} up FILE", none_up(kind), kind.command())));
    }
    let (mut found, mut others) = (Vec::new(), Vec::new());
    for up in names {
        let state: S = state(&up)?;
        match state.hosts().iter().position(|(host, _)| *host == name) {
            Some(place) => found.push((state, place)),
            None => others.extend(state.hosts().into_iter().map(|(host, _)| host.to_owned())),
        }
    }
    let host = kind.host();
    if found.len() > 1 {
        let full: Vec<String> = found.iter().map(|(state, _)| format!("{}/{name}", state.name())).collect();
        return Err(Failure::usage(format!("which {name}? {}", full.join(", "))));
    }
    found.pop().ok_or_else(|| {
        let near = nearest(name, others.iter().map(String::as_str));
        let hint = near.map_or_else(
            || format!("; there are {}", others.join(", ")),
            |near| format!(": did you mean {near}?"),
        );
        Failure::usage(format!("there is no {host} {}{hint}", show(name)))
    })
}

/// Returns the one of `names` that `name` means, either as it is or as the name of a file.
fn pick(kind: Kind, name: &str, names: &[String]) -> Outcome<String> {
    let wanted = [plain_name(name), plain_name(&stem(Path::new(name)))];
    if let Some(name) = names.iter().find(|name| wanted.contains(name)) {
        return Ok(name.clone());
    }
    let name = show(name);
    if let Some((name, uid)) = ups(kind).others.iter().find(|(name, _)| wanted.contains(name)) {
        return Err(Failure::usage(format!("{name} is up, but not this user's: run this as {}", user(*uid))));
    }
    if names.is_empty() {
        return Err(Failure::usage(format!("{name} is not up; {}", none_up(kind))));
    }
    Err(Failure::usage(format!("{name} is not up; there are {}", names.join(", "))))
}

fn user(uid: u32) -> String {
    if uid == 0 { "root (sudo)".into() } else { format!("user {uid}") }
}

/// Says that no setup is up that this user may use.
fn none_up(kind: Kind) -> String {
    let others = ups(kind).others;
    if others.is_empty() {
        return format!("no {} is up", kind.noun());
    }
    let one = |(name, uid): &(String, u32)| format!("{name}: as {}", user(*uid));
    let others: Vec<String> = others.iter().map(one).collect();
    format!("no {} of this user is up (but {})", kind.noun(), others.join(", "))
}

fn state<S: State>(name: &str) -> Outcome<S> {
    send_request(name, Request::State).map_err(|e| Failure::other(format!("{name} does not answer: {e}")))
}

/// Prints which setups are up, and their states.
///
/// # Errors
/// 6 if standard output cannot be written.
pub(crate) fn status<S: State>(as_json: bool) -> Outcome {
    let kind = S::KIND;
    let up = ups(kind).own;
    let states: Vec<S> = up.iter().filter_map(|name| send_request(name, Request::State).ok()).collect();
    if states.is_empty() && !as_json {
        note(&none_up(kind));
    }
    for (name, programs) in orphans::all(kind) {
        if !up.contains(&name) {
            note(&format!(
                "{name} is not up any more, but on its {}s there is still {}: {} down ends it",
                kind.host(),
                orphans::list(&programs),
                kind.command()
            ));
        }
    }
    let text: Vec<String> = states.iter().map(if as_json { object } else { S::report }).collect();
    print(text.join(if as_json { "" } else { "\n" }).as_bytes())
}

/// Returns a state as an object for programs.
pub(crate) fn object<S: State>(state: &S) -> String {
    json::text(S::KIND.command(), state)
}

/// Refuses to run on a host of a setup. From there, no setup can be found, and `down` might end the process
/// that runs it.
///
/// # Errors
/// 2 if this is a host of a setup.
pub(crate) fn refuse_inside() -> Outcome {
    orphans::current().map_or(Ok(()), |(kind, name)| {
        let (host, noun) = (kind.host(), kind.noun());
        Err(Failure::usage(format!("this is a {host} of the {noun} {name}: run it outside of that")))
    })
}

/// Takes down one or all setups, ends the programs on their hosts, and prints their last states.
///
/// # Errors
/// 2 if it is not clear which one, or this is a host of a setup; 7 if measurements in one should not be
/// trusted; 1 if a program does not end.
pub(crate) fn down<S: State>(name: Option<&str>, all: bool, as_json: bool) -> Outcome {
    refuse_inside()?;
    let kind = S::KIND;
    let up = ups(kind).own;
    // Programs may have outlived their holder.
    let mut names = up.clone();
    names.extend(orphans::all(kind).into_keys().filter(|name| !up.contains(name)));
    let names = match name {
        _ if all => names,
        Some(name) => vec![pick(kind, name, &names)?],
        None if names.len() == 1 => names,
        None if names.is_empty() => return Err(Failure::usage(none_up(kind))),
        None => return Err(Failure::usage(format!("which one? {}, or --all", names.join(", ")))),
    };
    let mut violations = Vec::new();
    for name in names {
        let state = up.contains(&name).then(|| send_request::<S>(&name, Request::Down));
        let state = state.transpose().map_err(|e| Failure::other(format!("{name} does not end: {e}")))?;
        let ended = orphans::end(kind, &name, state.as_ref().map(S::pid))
            .map_err(|e| Failure::other(format!("{name}: {e}")))?;
        if !ended.is_empty() {
            note(&format!("{name}: ended {}", orphans::list(&ended)));
        }
        let text = match (&state, as_json) {
            (Some(state), false) => state.report(),
            (None, false) => String::new(),
            (state, true) => {
                let mut object = serde_json::json!(state.as_ref());
                if object.is_null() {
                    object = serde_json::json!({ "name": name });
                }
                object["ended"] = serde_json::json!(ended);
                json::text(kind.command(), &object)
            }
        };
        print(text.as_bytes())?;
        let faults = state.iter().flat_map(|state| state.faults().to_vec());
        violations.extend(faults.map(|fault| format!("{name}: {fault}")));
    }
    if violations.is_empty() { Ok(()) } else { Err(Failure::new(Code::Unmet, violations.join("; "))) }
}
