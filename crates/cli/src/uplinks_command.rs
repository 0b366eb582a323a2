//! `anabranch uplinks`: keeps the uplinks of this host right for the kernel's MPTCP.

use std::io::{self, IsTerminal as _};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use anabranch_kernel::uplinks::PROGRAM_STATE_DIR;
use anabranch_net::via::{self, Via};
use anabranch_uplinks::daemon::Event;
use anabranch_uplinks::decide::State;
use anabranch_uplinks::status::{self, LinkStatus, Snapshot};
use anabranch_uplinks::{Daemon, Error, Options, Policy, clean, policy, preview};
use clap::{Args, Subcommand, ValueHint};
use console::Term;
use serde::Serialize;

use crate::exit::{Failure, Outcome};
use crate::plan_report::{refused, report};
use crate::signals::stop_signals;
use crate::view::{Column, duration, note, plural, printable, rate, say, table};
use crate::{json, stdout};

/// The width without a terminal, at which nothing is left out.
const WIDE: usize = 1_000;

/// Keep several uplinks right for MPTCP while links come and go
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Keep several uplinks right for MPTCP while links come and go.\n\n\
        Every MPTCP connection of this host gets a subflow over each uplink, and gets it back when a link \
        returns: after docking, another WiFi, another address. The daemon follows interfaces, addresses and \
        routes, keeps MPTCP endpoints and policy routes as they must be, and makes a WiFi link a backup \
        before it fades. An uplink is an interface with a default route in the main table. Programs use \
        MPTCP if they ask for it (`mptcpize run PROGRAM` makes others ask). No proxy is needed: the peer \
        must speak MPTCP.\n\n\
        Ctrl-C puts everything back as it was; connections that began over these uplinks end then, unless \
        --stay leaves all in place for the next start.",
    after_help = "Examples:\n  \
        sudo anabranch uplinks\n  \
        sudo anabranch uplinks --via wlan0 --via wwan0:backup\n  \
        sudo anabranch uplinks --via wwan0:cost=5 --others\n  \
        anabranch uplinks --dry-run\n  \
        anabranch uplinks status",
    args_conflicts_with_subcommands = true
)]
pub struct Uplinks {
    #[command(flatten)]
    #[expect(missing_docs, reason = "clap would show it as the help of all")]
    pub run: Run,

    /// What to do; without it, to run.
    #[command(subcommand)]
    pub command: Option<UplinksCommand>,
}

/// The commands about uplinks.
#[expect(missing_docs, reason = "clap would put a comment here before the help of the options")]
#[derive(Clone, Debug, Subcommand)]
pub enum UplinksCommand {
    Run(Run),
    Status(Status),
    Clean(Clean),
}

/// Run until Ctrl-C: the same as no command
#[derive(Args, Clone, Debug)]
pub struct Run {
    #[arg(long, value_name = via::VALUE, value_parser = policy::link)]
    #[arg(
        help = "Use this interface, and only interfaces that are named; repeat the option for each. HOW sets \
        conditions: `backup`, only while no other can carry data; `cost=5`, only while the cheaper ones are \
        lost or fade. Without it: every line of this host"
    )]
    #[expect(missing_docs, reason = "the help is in an attribute, for its length")]
    pub via: Vec<Via>,

    /// Use lines that are not named, too, at cost 0
    #[arg(long)]
    pub others: bool,

    /// Open a subflow from every uplink to every address of the peer
    #[arg(long)]
    pub fullmesh: bool,

    /// Read settings from this file (TOML: via, others, fullmesh); options come before it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub config: Option<PathBuf>,

    /// Leave everything in place at the end, for the next start
    #[arg(long)]
    pub stay: bool,

    /// Print what would be done, and do nothing
    #[arg(long)]
    pub dry_run: bool,

    #[command(flatten)]
    #[expect(missing_docs, reason = "clap would show it as the help of all")]
    pub place: Place,

    /// Report on standard output as JSON, one object a line
    #[arg(long)]
    pub json: bool,

    /// Only errors
    #[arg(short, long)]
    pub quiet: bool,
}

/// Show each uplink: its state and why, addresses, gateway, endpoint
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  \
    anabranch uplinks status\n  \
    anabranch uplinks status --json | jq '.links[] | {name, state, why}'")]
pub struct Status {
    #[command(flatten)]
    #[expect(missing_docs, reason = "clap would show it as the help of all")]
    pub place: Place,

    /// One JSON object
    #[arg(long)]
    pub json: bool,
}

/// Put back what a killed daemon, or --stay, left behind
#[derive(Args, Clone, Debug)]
pub struct Clean {
    #[command(flatten)]
    #[expect(missing_docs, reason = "clap would show it as the help of all")]
    pub place: Place,

    /// Print what was done as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Where the daemon keeps its journal and its socket.
#[derive(Args, Clone, Debug)]
pub struct Place {
    /// The directory of the journal and of the socket for `status`; the next boot should empty it
    #[arg(long, value_name = "DIR", default_value = PROGRAM_STATE_DIR, value_hint = ValueHint::DirPath)]
    pub state_dir: PathBuf,
}

/// Runs a command of `anabranch uplinks`.
///
/// # Errors
/// 2 if the command line or the settings make no sense; 1 if another program is at work, the privilege is
/// missing or the kernel refuses.
pub fn uplinks(args: &Uplinks) -> Outcome {
    match &args.command {
        None => run(&args.run),
        Some(UplinksCommand::Run(args)) => run(args),
        Some(UplinksCommand::Status(args)) => json::end(args.json, show_status(args)),
        Some(UplinksCommand::Clean(args)) => put_back(args),
    }
}

fn failure(error: Error) -> Failure {
    match error {
        Error::Uplinks(error) => refused(error),
        Error::Settings(..) | Error::Links(_) => Failure::usage(error.to_string()),
        Error::System(..) => Failure::other(error.to_string()),
    }
}

fn options(args: &Run) -> Outcome<Options> {
    let mut policy = match &args.config {
        Some(path) => Policy::read(path).map_err(failure)?,
        None => Policy::default(),
    };
    if !args.via.is_empty() {
        policy.via.clone_from(&args.via);
    }
    policy.others |= args.others;
    policy.fullmesh |= args.fullmesh;
    policy.check().map_err(Failure::usage)?;
    Ok(Options { state_dir: args.place.state_dir.clone(), ..Options::new(policy) })
}

fn run(args: &Run) -> Outcome {
    let options = options(args)?;
    if args.dry_run {
        report(&preview(&options).map_err(failure)?, true, args.json);
        return Ok(());
    }
    json::end(args.json, keep(options, args))
}

fn keep(options: Options, args: &Run) -> Outcome {
    let (wake, stop) = stop_signals()?;
    let mut daemon = Daemon::begin(options).map_err(failure)?;
    let mut show = |event| show(&event, args);
    let ran = daemon.run(wake.as_fd(), &|| stop.load(Ordering::SeqCst), &mut show);
    let ends = if args.stay {
        daemon.leave();
        Ok(None)
    } else {
        daemon.end()
    };
    ran.and(ends).map_err(failure)?.map_or(Ok(()), |plan| {
        let done = plan.describe();
        for text in plan.notes() {
            show(Event::Notice(text.clone()));
        }
        show(Event::Changed(done));
        Ok(())
    })
}

#[derive(Serialize)]
struct LinkLine<'a> {
    name: &'a str,
    state: State,
    why: &'a str,
}

#[derive(Serialize)]
struct ChangeLine<'a> {
    changes: &'a [String],
}

#[derive(Serialize)]
struct NoticeLine<'a> {
    text: &'a str,
}

fn show(event: &Event, args: &Run) {
    match event {
        Event::Changed(changes) if args.json => json::put("change", &ChangeLine { changes }),
        Event::Link { name, state, why } if args.json => {
            json::put("link", &LinkLine { name, state: *state, why });
        }
        Event::Notice(text) if args.json => json::put("notice", &NoticeLine { text }),
        _ if args.quiet => {}
        Event::Changed(changes) => changes.iter().for_each(|change| stdout::line(printable(change))),
        Event::Link { name, state, why } => say(&format!("{name}: {}: {why}", word(*state))),
        Event::Notice(text) => note(text),
    }
}

const fn word(state: State) -> &'static str {
    match state {
        State::Active => "active",
        State::Backup => "backup",
        State::Settling => "settling",
        State::Kept => "kept",
        State::Unusable => "unusable",
        State::Ignored => "ignored",
    }
}

fn put_back(args: &Clean) -> Outcome {
    match clean(&args.place.state_dir).map_err(failure)? {
        Some(plan) => report(&plan, false, args.json),
        None if args.json => stdout::line("{\"done\":false,\"changes\":[],\"notes\":[]}"),
        None => say("there is nothing to put back"),
    }
    Ok(())
}

fn show_status(args: &Status) -> Outcome {
    let snapshot = ask(&args.place.state_dir)?;
    if args.json {
        json::put("status", &snapshot);
        return Ok(());
    }
    let width = match io::stdout().is_terminal() {
        true => usize::from(Term::stdout().size().1),
        false => WIDE,
    };
    for line in lines(&snapshot, width) {
        stdout::line(printable(&line));
    }
    Ok(())
}

fn ask(dir: &Path) -> Outcome<Snapshot> {
    let asked = status::socket(dir).and_then(|path| status::ask(&path));
    asked.map_err(|e| match e.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Failure::other(
            "no daemon runs in this network namespace: `sudo anabranch uplinks` starts one, and with \
             --dry-run it tells what that would do",
        ),
        _ => Failure::other(format!("the daemon gives no answer: {e}")),
    })
}

/// Writes a snapshot for people.
fn lines(snapshot: &Snapshot, width: usize) -> Vec<String> {
    let Snapshot { pid, uptime_s, changes, links, notes, .. } = snapshot;
    let up = duration(*uptime_s);
    let made = plural(usize::try_from(*changes).unwrap_or(usize::MAX), "change");
    let mut out = vec![format!("process {pid}, up {up}, {made}"), String::new()];
    let used: Vec<&LinkStatus> = links.iter().filter(|link| link.state != State::Ignored).collect();
    if used.is_empty() {
        out.push("there is no uplink: no interface has a default route".to_owned());
    } else {
        out.extend(link_table(&used, width));
        out.push(String::new());
        out.extend(used.iter().map(|link| format!("{}: {}", link.name, link.why)));
    }
    let ignored = links.iter().filter(|link| link.state == State::Ignored);
    out.extend(ignored.map(|link| format!("{}: not used: {}", link.name, link.why)));
    out.extend(notes.iter().map(|text| format!("note: {text}")));
    out
}

/// A row of the table: a link, and one of its addresses if it has some.
type Row<'a> = (&'a LinkStatus, Option<&'a status::AddressStatus>);

/// Makes a row for each address; a link without one has a row, too.
fn link_table(links: &[&LinkStatus], width: usize) -> Vec<String> {
    let rows = links.iter().flat_map(|link| {
        let addresses = link.addresses.iter().map(Some);
        let none = link.addresses.is_empty().then_some(None);
        addresses.chain(none).map(move |address| (*link, address))
    });
    let rows: Vec<_> = rows.collect();
    let dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let cells = |of: &dyn Fn(&Row<'_>) -> String| rows.iter().map(of).collect::<Vec<_>>();
    let mut columns = vec![
        Column::names("uplink", cells(&|(link, _)| link.name.clone())),
        Column::names("address", cells(&|(_, a)| dash(a.map(|a| a.ip.to_string())))),
        Column::numbers(
            "gateway",
            1,
            cells(&|(_, a)| dash(a.and_then(|a| a.gateway).map(|ip| ip.to_string()))),
        ),
        Column::numbers("table", 3, cells(&|(link, _)| dash(link.table.map(|table| table.to_string())))),
        Column::numbers(
            "endpoint",
            0,
            cells(&|(_, a)| dash(a.and_then(|a| a.endpoint).map(|id| id.to_string()))),
        ),
        Column::numbers(
            "flags",
            0,
            cells(&|(_, a)| dash(a.map(|a| a.flags.clone()).filter(|flags| !flags.is_empty()))),
        ),
        Column::numbers("lost", 2, cells(&|(link, _)| link.losses.to_string())),
    ];
    if links.iter().any(|link| link.radio.is_some()) {
        let signal = |link: &LinkStatus| Some(format!("{} dBm", link.radio?.signal_dbm?));
        columns.push(Column::numbers("signal", 0, cells(&|(link, _)| dash(signal(link)))));
        let bits = |link: &LinkStatus| Some(rate(link.radio?.rate_bits? / 8));
        columns.push(Column::numbers("rate", 2, cells(&|(link, _)| dash(bits(link)))));
    }
    table(columns, &cells(&|(link, _)| word(link.state).to_owned()), width)
}

#[cfg(test)]
mod tests {
    use anabranch_uplinks::status::{AddressStatus, RadioStatus};

    use super::*;

    fn link(name: &str, state: State, why: &str) -> LinkStatus {
        LinkStatus {
            name: name.to_owned(),
            state,
            why: why.to_owned(),
            addresses: vec![AddressStatus {
                ip: [192, 168, 1, 7].into(),
                gateway: Some([192, 168, 1, 1].into()),
                endpoint: Some(3),
                flags: "subflow backup".to_owned(),
            }],
            table: Some(26_235),
            losses: 2,
            radio: None,
        }
    }

    #[test]
    fn a_status_fits_a_terminal_and_says_why() {
        let radio =
            RadioStatus { signal_dbm: Some(-79), rate_bits: Some(65_000_000), packet_time_ns: Some(500_000) };
        let lost = LinkStatus { addresses: vec![], ..link("usb0", State::Unusable, "it does not exist now") };
        let snapshot = Snapshot {
            release: "0.1.0".to_owned(),
            pid: 4_711,
            uptime_s: 7_440.0,
            changes: 12,
            links: vec![
                LinkStatus { radio: Some(radio), ..link("wlan0", State::Backup, "it fades") },
                lost,
                link("tun0", State::Ignored, "it is no line"),
            ],
            notes: vec!["mptcpd runs".to_owned()],
        };
        let all = lines(&snapshot, 80);
        let text = all.join("\n");
        for part in ["process 4711, up 2 h 04 min, 12 changes", "-79 dBm", "usb0: it does not exist now"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        let end = [
            "wlan0: it fades",
            "usb0: it does not exist now",
            "tun0: not used: it is no line",
            "note: mptcpd runs",
        ];
        assert_eq!(all[all.len() - 4..], end, "{text}");
        let row = all.iter().find(|line| line.starts_with("wlan0  ")).unwrap();
        assert!(row.contains("subflow backup") && row.ends_with("backup"), "{text}");
        assert!(all.iter().all(|line| console::measure_text_width(line) <= 80), "{text}");
        let none = Snapshot { links: vec![], ..snapshot };
        assert!(lines(&none, 80).join("\n").contains("there is no uplink"));
    }
}
