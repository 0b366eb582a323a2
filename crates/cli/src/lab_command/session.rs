//! `anabranch lab up`, `exec`, `status`, `down`: a scenario's hosts and links without its flows, for programs
//! that know nothing of all this.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use lab::linux;
use lab::scenario::error::nearest;
use lab::scenario::{Duration, Groups, Scenario, TraceFile, Transport};
use net::Namespace;

use super::args::{Down, Exec, Status, Up};
use super::daemon::{Host, Request, Started, State, labs, send_request};
use super::find::{FoundScenario, find, stem, wrong};
use super::lab_name::{NAME_BYTES_MAX, is_plain_char};
use super::orphans;
use super::output::note;
use crate::exit::{Code, Failure, Outcome};
use crate::json;
use crate::man::print;
use crate::names::show;
use crate::view::say;

/// The variable that programs find the name of their host in,
const HOST: &str = "ANABRANCH_HOST";
/// and the address of the host at the other end.
const PEER: &str = "ANABRANCH_PEER";

/// Makes the hosts and links of a scenario, in a process of their own.
///
/// # Errors
/// 2 if the scenario makes no sense or this is a host of a laboratory, 1 if it cannot be set up.
pub(super) fn up(args: &Up) -> Outcome {
    refuse_inside()?;
    let FoundScenario { name, scenario, .. } = find(&args.file)?;
    let scenario = hosts_only(configure(scenario, args)?);
    linux::supports(&scenario).map_err(Failure::usage)?;
    let name = plain_name(args.name.as_deref().unwrap_or(&name));
    let me = std::env::current_exe().map_err(|e| Failure::other(format!("cannot start the holder: {e}")))?;
    let mut daemon = Command::new(me)
        .args(["lab", "hold", &name, "--seed", &args.seed.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .current_dir("/")
        .spawn()
        .map_err(|e| Failure::other(format!("cannot start the holder: {e}")))?;
    // It reads all or has ended, and says so.
    let text = serde_json::to_string(&absolute(scenario)).unwrap_or_default();
    let _ = daemon.stdin.take().map(|mut stdin| stdin.write_all(text.as_bytes()));
    let mut line = String::new();
    let _ = daemon.stdout.take().map(|stdout| BufReader::new(stdout).read_line(&mut line));
    match serde_json::from_str(&line) {
        Ok(Started::Ready(state)) => print(if args.json { object(&state) } else { usage(&state) }.as_bytes()),
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

/// The scenario as it is to be built: with what is set, of the case that is named.
fn configure(mut scenario: Scenario, args: &Up) -> Outcome<Scenario> {
    let case = args.case.as_deref().or(scenario.case.first().map(|case| case.name.as_str()));
    if let Some(case) = case.map(str::to_owned) {
        let known: Vec<String> = scenario.case.iter().map(|case| case.name.clone()).collect();
        let found = scenario.cases().map_err(wrong)?.into_iter();
        let found =
            found.filter(|(name, _)| name.as_ref() == Some(&case)).map(|(_, scenario)| scenario).next();
        let Some(found) = found else {
            let near = nearest(&case, known.iter().map(String::as_str));
            let hint = near.map_or_else(String::new, |near| format!("did you mean `{near}`? "));
            let all = if known.is_empty() { "it has none".into() } else { quoted(&known) };
            return Err(Failure::usage(format!("there is no case `{case}`: {hint}The cases: {all}")));
        };
        if args.case.is_none() && known.len() > 1 {
            note(&format!("case `{case}`, the first of {}: --case NAME takes another", quoted(&known)));
        }
        scenario = found;
    }
    for axis in &args.sets {
        scenario.set(&axis.key, &axis.values[0]).map_err(wrong)?;
    }
    scenario.check().map_err(wrong)?;
    Ok(scenario)
}

/// What is needed for its hosts and links: no flow is started, nothing goes wrong and nothing is measured. So
/// scenarios of mmTP can be had too.
fn hosts_only(mut scenario: Scenario) -> Scenario {
    scenario.fault.clear();
    scenario.measure.clear();
    scenario.assert.clear();
    for (name, flow) in scenario.flow.iter_mut().filter(|(_, flow)| flow.transport == Transport::Mmtp) {
        (flow.transport, flow.coalesce) = (Transport::Packet, Duration::default());
        note(&format!(
            "flow {name} is mmTP's: run `anabranch serve` on {name}.tx and `anabranch get` on {name}.rx"
        ));
    }
    for flow in scenario.flow.values_mut().filter(|flow| flow.groups == Groups::Auto) {
        flow.groups = Groups::All;
    }
    scenario
}

fn quoted(names: &[String]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// With traces that are found from everywhere.
fn absolute(mut scenario: Scenario) -> Scenario {
    for trace in scenario.link.values_mut().filter_map(|link| link.trace.as_mut()) {
        if let Ok(path) = std::fs::canonicalize(trace.path()) {
            *trace = TraceFile::new(path.to_string_lossy());
        }
    }
    scenario
}

/// A name that a socket can have and a shell need not quote.
fn plain_name(name: &str) -> String {
    let plain = |c: char| if is_plain_char(c) { c } else { '-' };
    name.chars().map(plain).take(NAME_BYTES_MAX).collect()
}

/// Runs a program on a host, in place of this one. If that cannot be, it ends the process as a shell would:
/// with 127 if there is no such program, 126 if it cannot be executed (POSIX.1-2024, XCU 2.8.2).
///
/// # Errors
/// 2 if there is no such host, 1 if it cannot be entered. Else the program's exit status is that of the
/// command.
pub(super) fn exec(args: &Exec) -> Outcome {
    let (state, host) = host(&args.host)?;
    let path = format!("/proc/{}/fd/{}", state.pid, host.fd);
    let space = Namespace::open(Path::new(&path)).and_then(|space| space.enter());
    space.map_err(|e| Failure::other(format!("cannot enter {}: {e}", host.name)))?;
    let program = show(args.command[0].as_os_str());
    let mut command = Command::new(&args.command[0]);
    let error = command.args(&args.command[1..]).env(HOST, &host.name).env(PEER, &host.peer).exec();
    say(&format!("anabranch: cannot run {program}: {error}"));
    std::process::exit(if error.kind() == ErrorKind::NotFound { 127 } else { 126 })
}

/// The host that `LAB/HOST`, or `HOST` alone where that is clear, names.
fn host(name: &str) -> Outcome<(State, Host)> {
    let (lab, name) = match name.split_once('/') {
        Some((lab, host)) => (Some(lab), host),
        None => (None, name),
    };
    let labs = match lab {
        Some(lab) => vec![known(lab)?],
        None => labs().own,
    };
    if labs.is_empty() {
        return Err(none_up("sudo anabranch lab up FILE"));
    }
    let (mut found, mut others) = (Vec::new(), Vec::new());
    for lab in labs {
        let mut state = state(&lab)?;
        match state.hosts.iter().position(|host| host.name == name) {
            Some(place) => {
                let host = state.hosts.swap_remove(place);
                found.push((state, host));
            }
            None => others.extend(state.hosts.into_iter().map(|host| host.name)),
        }
    }
    if found.len() > 1 {
        let full: Vec<String> =
            found.iter().map(|(state, host)| format!("{}/{}", state.name, host.name)).collect();
        return Err(Failure::usage(format!("which {name}? {}", full.join(", "))));
    }
    found.pop().ok_or_else(|| {
        let near = nearest(name, others.iter().map(String::as_str));
        let hint = near.map_or_else(
            || format!("; there are {}", others.join(", ")),
            |near| format!(": did you mean {near}?"),
        );
        Failure::usage(format!("there is no host {name}{hint}"))
    })
}

/// A laboratory that is up, by its name or its scenario's file.
fn known(name: &str) -> Outcome<String> {
    pick(name, &labs().own)
}

/// That of these which is named.
fn pick(name: &str, names: &[String]) -> Outcome<String> {
    let wanted = [plain_name(name), plain_name(&stem(Path::new(name)))];
    if let Some(name) = names.iter().find(|name| wanted.contains(name)) {
        return Ok(name.clone());
    }
    if let Some((name, uid)) = labs().others.iter().find(|(name, _)| wanted.contains(name)) {
        return Err(Failure::usage(format!("{name} is up, but not this user's: run this as {}", user(*uid))));
    }
    if names.is_empty() {
        return Err(Failure::usage(format!("{name} is not up; {}", no_lab())));
    }
    Err(Failure::usage(format!("{name} is not up; there are {}", names.join(", "))))
}

fn user(uid: u32) -> String {
    if uid == 0 { "root (sudo)".into() } else { format!("user {uid}") }
}

/// That none is up that this user may use.
fn none_up(hint: &str) -> Failure {
    Failure::usage(format!("{}: {hint}", no_lab()))
}

fn no_lab() -> String {
    let others = labs().others;
    if others.is_empty() {
        return "no laboratory is up".into();
    }
    let one = |(name, uid): &(String, u32)| format!("{name}: as {}", user(*uid));
    let others: Vec<String> = others.iter().map(one).collect();
    format!("no laboratory of this user is up (but {})", others.join(", "))
}

fn state(name: &str) -> Outcome<State> {
    send_request(name, Request::State).map_err(|e| Failure::other(format!("{name} does not answer: {e}")))
}

/// Tells which laboratories are up and how they do.
///
/// # Errors
/// 6 if standard output takes no more.
pub(super) fn status(args: &Status) -> Outcome {
    let up = labs().own;
    let states: Vec<State> = up.iter().filter_map(|name| send_request(name, Request::State).ok()).collect();
    if states.is_empty() && !args.json {
        note(&no_lab());
    }
    for (name, programs) in orphans::all() {
        if !up.contains(&name) {
            let list = orphans::list(&programs);
            note(&format!(
                "{name} is not up any more, but on its hosts there is still {list}: lab down ends it"
            ));
        }
    }
    let text: String = states.iter().map(if args.json { object } else { report }).collect();
    print(text.as_bytes())
}

/// Refuses on a host of a laboratory: none can be found from there, and what `down` ends there might be
/// whoever runs it.
fn refuse_inside() -> Outcome {
    orphans::current_lab().map_or(Ok(()), |lab| {
        Err(Failure::usage(format!("this is a host of the laboratory {lab}: run it outside of that")))
    })
}

/// Ends laboratories, with the programs on their hosts, and tells how they did.
///
/// # Errors
/// 2 if it is not clear which or this is a host of one, 7 if what was measured on one should not be trusted,
/// 1 if a program does not end.
pub(super) fn down(args: &Down) -> Outcome {
    refuse_inside()?;
    let up = labs().own;
    // Programs may have outlived whoever held theirs.
    let mut names = up.clone();
    names.extend(orphans::all().into_keys().filter(|name| !up.contains(name)));
    let names = match &args.name {
        _ if args.all => names,
        Some(name) => vec![pick(name, &names)?],
        None if names.len() == 1 => names,
        None if names.is_empty() => return Err(Failure::usage(no_lab())),
        None => return Err(Failure::usage(format!("which one? {}, or --all", names.join(", ")))),
    };
    let mut violations = Vec::new();
    for name in names {
        let state = match up.contains(&name) {
            true => Some(send_request(&name, Request::Down)),
            false => None,
        };
        let state = state.transpose().map_err(|e| Failure::other(format!("{name} does not end: {e}")))?;
        let ended = orphans::end(&name, state.as_ref().map(|state| state.pid))
            .map_err(|e| Failure::other(format!("{name}: {e}")))?;
        if !ended.is_empty() {
            note(&format!("{name}: ended {}", orphans::list(&ended)));
        }
        let text = match (&state, args.json) {
            (Some(state), false) => report(state),
            (None, false) => String::new(),
            (state, true) => {
                let mut object = serde_json::json!(state.as_ref());
                if object.is_null() {
                    object = serde_json::json!({ "name": name });
                }
                object["ended"] = serde_json::json!(ended);
                json::text("lab", &object)
            }
        };
        print(text.as_bytes())?;
        let more = state.into_iter().flat_map(|state| state.violations);
        violations.extend(more.map(|fault| format!("{name}: {fault}")));
    }
    if violations.is_empty() { Ok(()) } else { Err(Failure::new(Code::Unmet, violations.join("; "))) }
}

/// For programs.
fn object(state: &State) -> String {
    json::text("lab", state)
}

/// What one can do now.
fn usage(state: &State) -> String {
    let State { name, pid, hosts, .. } = state;
    let mut text =
        format!("{name} is up (process {pid}): {} hosts, {} links\n\n", hosts.len(), state.links.len());
    let width = hosts.iter().map(|host| host.name.len()).max().unwrap_or(0).max(4);
    let _ = writeln!(text, "{:width$}  addresses", "host");
    for host in hosts {
        let several = host.addresses.len() == host.rtts_ms.len() && host.name.ends_with(".tx");
        let one = |(p, address): (usize, &String)| match host.rtts_ms.get(p).filter(|_| several) {
            Some(rtt) => format!("{address} (p{p}, RTT {rtt} ms)"),
            None => address.clone(),
        };
        let addresses: Vec<String> = host.addresses.iter().enumerate().map(one).collect();
        let _ = writeln!(text, "{:width$}  {}", host.name, addresses.join(", "));
    }
    if let [tx, rx, ..] = &hosts[..] {
        let at = &rx.addresses[0];
        // Over all paths by MPTCP, which most programs have to be told to ask for.
        let with = if tx.addresses.len() > 1 { "mptcpize run " } else { "" };
        let _ = write!(
            text,
            "\nTry:\n  anabranch lab exec {} -- {with}iperf3 -s -1 &\n  \
             anabranch lab exec {} -- {with}iperf3 -c {at}\n  anabranch lab down {name}\n",
            rx.name, tx.name
        );
    }
    text
}

/// How it has been.
fn report(state: &State) -> String {
    let mut text =
        format!("{}: {}\nup for {:.0} s, process {}\n\n", state.name, state.title, state.up_s, state.pid);
    let width = state.links.iter().map(|link| link.name.len()).max().unwrap_or(0).max(4);
    let _ = writeln!(
        text,
        "{:width$}  {:>12}  {:>10}  {:>10}  {:>12}  {:>9}  {:>8}  {:>8}",
        "link", "rate", "offered", "delivered", "bytes", "longest", "dropped", "lost"
    );
    for link in &state.links {
        let _ = writeln!(
            text,
            "{:width$}  {:>12}  {:>10}  {:>10}  {:>12}  {:>5} pkt  {:>8}  {:>8}",
            link.name,
            link.rate.as_deref().unwrap_or("-"),
            link.offered,
            link.delivered,
            link.delivered_bytes,
            link.queue_max_packets,
            link.dropped,
            link.lost
        );
    }
    let class = if state.realtime { "" } else { "; the thread is not of the real-time class" };
    let _ = writeln!(
        text,
        "\nlateness of {} packets: half within {:.3} ms, 99 % within {:.3} ms, all within {:.3} ms{class}",
        state.packets,
        state.late_p50_us / 1e3,
        state.late_p99_us / 1e3,
        state.late_max_us / 1e3
    );
    for fault in &state.violations {
        let _ = writeln!(text, "not to be trusted: {fault}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain() {
        assert_eq!(plain_name("fig-4.9 b/ü"), "fig-4.9-b--");
        assert_eq!(plain_name(&"x".repeat(300)).len(), NAME_BYTES_MAX);
    }
}
