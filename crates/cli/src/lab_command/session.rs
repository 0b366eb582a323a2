//! `anabranch lab up`, `exec`, `status`, `down`: makes a scenario's hosts and links without its flows, for
//! ordinary programs.

use std::fmt::Write as _;

use anabranch_lab::linux;
use anabranch_lab::scenario::{Duration, Groups, Scenario, StackSettings, Steering, TraceFile, Transport};

use super::args::{Down, Exec, Status, Up};
use super::find::{FoundScenario, find, wrong};
use super::held::State;
use crate::exit::{Failure, Outcome};
use crate::holder::commands;
use crate::holder::plain_name::plain_name;
use crate::stdout::print;
use crate::view::note;

/// The environment variable in which programs find the name of their host.
const HOST: &str = "ANABRANCH_HOST";
/// The environment variable in which programs find the address of the host at the other end.
const PEER: &str = "ANABRANCH_PEER";

/// Makes the hosts and links of a scenario, in a process of their own.
///
/// # Errors
/// 2 if the scenario is invalid or this is a host of a laboratory, 1 if it cannot be set up.
pub(super) fn up(args: &Up) -> Outcome {
    commands::refuse_inside()?;
    let FoundScenario { name, scenario, .. } = find(&args.file, args.case.as_deref())?;
    let scenario = hosts_only(configure(scenario, args)?);
    linux::supports(&scenario).map_err(Failure::usage)?;
    let name = plain_name(args.name.as_deref().unwrap_or(&name));
    let text = serde_json::to_string(&absolute(scenario)).unwrap_or_default();
    let seed = args.seed.to_string();
    let state: State = commands::start(&name, &["hold", &name, "--seed", &seed], &text)?;
    print(if args.json { commands::object(&state) } else { usage(&state) }.as_bytes())
}

/// Returns the scenario that is to be built: the named case, with the values of `--set`.
fn configure(mut scenario: Scenario, args: &Up) -> Outcome<Scenario> {
    let case = args.case.as_deref().or(scenario.case.first().map(|case| case.name.as_str()));
    if let Some(case) = case.map(str::to_owned) {
        let known: Vec<String> = scenario.case.iter().map(|case| case.name.clone()).collect();
        let cases = scenario.cases_of(Some(&case)).map_err(wrong)?;
        let found = cases.into_iter().find(|(name, _)| name.as_ref() == Some(&case));
        let found = found.map_or(scenario, |(_, scenario)| scenario.for_case(Some(&case)));
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

/// Removes everything but the hosts and links: no flow is started, no fault happens and nothing is measured.
/// So scenarios of mmTP can be brought up too.
fn hosts_only(mut scenario: Scenario) -> Scenario {
    scenario.fault.clear();
    scenario.measure.clear();
    scenario.assert.clear();
    for (name, flow) in scenario.flow.iter_mut() {
        let (whose, serve) = match std::mem::take(&mut flow.transport) {
            Transport::Packet => continue,
            Transport::Tcp | Transport::Mptcp => {
                flow.stack = StackSettings::default();
                continue;
            }
            Transport::Mmtp => ("mmTP", "serve"),
            Transport::Mirrors => ("HTTP", "serve --http"),
        };
        flow.coalesce = Duration::default();
        note(&format!(
            "flow {name} is {whose}'s: run `anabranch {serve}` on {name}.tx and `anabranch get` on {name}.rx"
        ));
    }
    for flow in scenario.flow.values_mut() {
        flow.steering = Steering::None;
        if flow.groups == Groups::Auto {
            flow.groups = Groups::All;
        }
    }
    scenario
}

fn quoted(names: &[String]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// Makes the paths of traces absolute, so that they are found from every directory.
fn absolute(mut scenario: Scenario) -> Scenario {
    for trace in scenario.link.values_mut().filter_map(|link| link.trace.as_mut()) {
        if let Ok(path) = std::fs::canonicalize(trace.path()) {
            *trace = TraceFile::new(path.to_string_lossy());
        }
    }
    scenario
}

/// Replaces this program by a program on a host.
///
/// # Errors
/// 2 if there is no such host, 1 if it cannot be entered. Otherwise the program's own exit status.
pub(super) fn exec(args: &Exec) -> Outcome {
    let (state, place) = commands::find_host::<State>(&args.host)?;
    let host = &state.hosts[place];
    commands::exec(&state, place, &args.command, &[(HOST, &host.name), (PEER, &host.peer)])
}

/// Reports which laboratories are up, and their state.
///
/// # Errors
/// 6 if standard output cannot be written.
pub(super) fn status(args: &Status) -> Outcome {
    commands::status::<State>(args.json)
}

/// Ends laboratories with the programs on their hosts, and reports their state.
///
/// # Errors
/// 2 if it is not clear which laboratory is meant, or if this is a host of one; 7 if measurements on one
/// should not be trusted; 1 if a program does not end.
pub(super) fn down(args: &Down) -> Outcome {
    commands::down::<State>(args.name.as_deref(), args.all, args.json)
}

/// Writes the commands that the user can run next.
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
        // MPTCP uses all paths, but most programs have to be told to use it.
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
