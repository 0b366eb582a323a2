//! `anabranch net up`, `exec`, `status`, `log`, `kill`, `start`, `down`: a whole domain on this machine.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use anabranch_topology::zoo::Builtin;

use super::domain_args::{Down, Exec, Kill, Log, Start, Status, Up};
use super::file::{find, read};
use super::held::{Node, Spec, State};
use super::plan::{absolute, tasks};
use crate::exit::{Failure, Outcome};
use crate::holder::commands;
use crate::holder::daemon::{Request, send_request};
use crate::holder::plain_name::plain_name;
use crate::network_options::{DOMAIN, NODE};
use crate::stdout::print;
use crate::toml_name::stem;
use crate::view::note;

/// The time between two reads of `log --follow`.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Makes the nodes and lines of a domain and starts its programs, in a separate process.
///
/// # Errors
/// 2 if the domain or an option is invalid, or if this is a node of a domain; 1 if it cannot be set up.
pub(super) fn up(args: &Up) -> Outcome {
    commands::refuse_inside()?;
    let path = find(&args.file)?;
    let (text, domain) = read(&path)?;
    let file = absolute(&path)?;
    let tasks = tasks(&domain, &file, args)?;
    let program = match &args.program {
        Some(program) => absolute(program)?,
        None => absolute(&std::env::current_exe().map_err(|e| Failure::other(e.to_string()))?)?,
    };
    let name = plain_name(&args.name.clone().unwrap_or_else(|| stem(&path)));
    let spec = serde_json::to_string(&Spec { file, text, program, tasks }).unwrap_or_default();
    let state: State = commands::start(&name, &["hold", &name], &spec)?;
    for node in &state.nodes {
        warn(node);
    }
    print(if args.json { commands::object(&state) } else { usage(&state) }.as_bytes())
}

/// Reports which programs of a node have ended, with their last line of output.
fn warn(node: &Node) {
    for program in node.programs.iter().filter(|program| program.pid.is_none()) {
        let last = node.last.last().map_or_else(String::new, |last| format!(": {last}"));
        note(&format!("{}: {}{last}", node.name, program.text()));
    }
}

/// Replaces this program by a program on a node.
///
/// # Errors
/// 2 if there is no such node, 1 if it cannot be entered. Otherwise the program's own exit status.
pub(super) fn exec(args: &Exec) -> Outcome {
    let (state, place) = commands::find_host::<State>(&args.node)?;
    let variables = [(DOMAIN, state.file.as_str()), (NODE, &state.nodes[place].name)];
    commands::exec(&state, place, &args.command, &variables)
}

/// Reports which domains are up, and their state.
///
/// # Errors
/// 6 if standard output cannot be written.
pub(super) fn status(args: &Status) -> Outcome {
    commands::status::<State>(args.json)
}

/// Returns the domain that is up under a name; `None` if no such domain is up, or if the name belongs to a
/// built-in network or a file.
///
/// # Errors
/// 2 if the domain belongs to another user, 1 if it does not answer.
pub(super) fn that_is_up(name: &str) -> Outcome<Option<State>> {
    if name == "-" || Builtin::named(name).is_some() || Path::new(name).exists() {
        return Ok(None);
    }
    commands::find_up(name)
}

/// Prints the output of a node's programs.
///
/// # Errors
/// 2 if there is no such node, 1 if the output cannot be read, 6 if standard output cannot be written.
pub(super) fn log(args: &Log) -> Outcome {
    let (state, place) = commands::find_host::<State>(&args.node)?;
    let path = &state.nodes[place].log;
    let failed = |e: io::Error| Failure::other(format!("cannot read {path}: {e}"));
    let mut file = File::open(path).map_err(failed)?;
    loop {
        // Check this before the read, so that the last output is read too.
        let over = !args.follow || !Path::new(path).exists();
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(failed)?;
        print(&text)?;
        if over {
            return Ok(());
        }
        sleep(LOOK_EVERY);
    }
}

/// Ends the programs of a node by SIGKILL.
///
/// # Errors
/// 2 if there is no such node, or if no program runs there.
pub(super) fn kill(args: &Kill) -> Outcome {
    let (state, place) = with_programs(&args.node)?;
    let node = &state.nodes[place];
    if node.programs.iter().all(|program| program.pid.is_none()) {
        let Node { name, .. } = node;
        return Err(Failure::usage(format!("nothing runs on {name} any more: anabranch net start {name}")));
    }
    order(&state, place, "kill").map(drop)
}

/// Starts the programs of a node that have ended.
///
/// # Errors
/// 2 if there is no such node or if all its programs run, 1 if one cannot be started.
pub(super) fn start(args: &Start) -> Outcome {
    let (state, place) = with_programs(&args.node)?;
    let node = &state.nodes[place];
    if node.programs.iter().all(|program| program.pid.is_some()) {
        return Err(Failure::usage(format!("{} runs already: {}", node.name, node.runs())));
    }
    let state = order(&state, place, "start")?;
    warn(&state.nodes[place]);
    Ok(())
}

/// Finds a node that has programs of the domain.
fn with_programs(name: &str) -> Outcome<(State, usize)> {
    let (state, place) = commands::find_host::<State>(name)?;
    let node = &state.nodes[place];
    if node.programs.is_empty() {
        let name = &node.name;
        return Err(Failure::usage(format!(
            "no program was started on {name}: it is for yours (anabranch net exec {name} -- CMD)"
        )));
    }
    Ok((state, place))
}

/// Sends an order about the programs of a node, and prints their state after it.
fn order(state: &State, place: usize, verb: &str) -> Outcome<State> {
    let node = &state.nodes[place].name;
    let order = format!("{verb} {node}");
    let state: State = send_request(&state.name, Request::Order(&order))
        .map_err(|e| Failure::other(format!("{}: {e}", state.name)))?;
    print(format!("{node}: {}\n", state.nodes[place].runs()).as_bytes())?;
    Ok(state)
}

/// Ends domains with all programs on their nodes, and reports their state.
///
/// # Errors
/// 2 if it is not clear which domain is meant, or if this is a node of one; 7 if measurements on one should
/// not be trusted; 1 if a program does not end.
pub(super) fn down(args: &Down) -> Outcome {
    commands::down::<State>(args.name.as_deref(), args.all, args.json)
}

/// Writes the commands that the user can run next.
fn usage(state: &State) -> String {
    let State { name, pid, nodes, lines, .. } = state;
    let mut text = format!(
        "{name} is up (process {pid}): {} nodes, {} lines\n\n{}\nTry:\n",
        nodes.len(),
        lines.len() / 2,
        state.node_table()
    );
    let free = nodes.iter().find(|node| !node.forwards && node.programs.is_empty());
    let published = nodes
        .iter()
        .flat_map(|node| &node.programs)
        .find_map(|program| program.command.iter().skip_while(|word| *word != "--publish").nth(1));
    if let Some(node) = free {
        let command = match (published, lines.iter().find(|line| line.from == node.name)) {
            (Some(published), _) => format!("anabranch get {} -o got", quoted(published)),
            (None, Some(line)) => format!("ping -c 3 {}", line.peer),
            (None, None) => "bash".into(),
        };
        text += &format!("  anabranch net exec {} -- {command}\n", node.name);
    }
    text + &format!("  anabranch net status\n  anabranch net down {name}\n")
}

/// Quotes a text so that a shell reads it as one word.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./,:@+".contains(c);
    if word.chars().all(plain) { word.into() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}
