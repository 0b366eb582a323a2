//! Begins and ends every program of the command: finds out which program a command line is for, and turns the
//! outcome into an exit status.

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::FromArgMatches as _;
use clap::error::ErrorKind;

use crate::args::{self, Cli, Command};
use crate::exit::{Failure, Outcome};
use crate::programs::{MAIN, Program, exec};
use crate::view::say;
use crate::{json, man, stdout, usage};

/// The commands that every program has.
const SHARED: [&str; 3] = ["man", "completions", "help"];

/// Says whether a program runs its command line itself.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    /// The program runs this itself. The first word is [`MAIN`].
    Own(Vec<OsString>),
    /// The program runs another program with these words.
    Other(&'static str, Vec<OsString>),
}

/// Decides how the program `own` handles the words after its name.
fn line(own: &'static str, words: Vec<OsString>) -> Line {
    let first = words.first().and_then(|word| word.to_str()).unwrap_or_default();
    let command = own.strip_prefix("anabranch-");
    let has_it = |command: &str| args::command().find_subcommand(command)?.find_subcommand(first).map(drop);
    let owner = match Program::of(first) {
        // `anabranch-minicache serve` is its own, although there is `anabranch serve`.
        None if command.and_then(has_it).is_some() => None,
        Some(program) => Some(program.name),
        None if SHARED.contains(&first) => Some(own),
        None => args::command().find_subcommand(first).map(|_| MAIN),
    };
    match (owner, command) {
        (Some(owner), _) if owner != own => {
            let skipped = usize::from(owner.strip_prefix("anabranch-") == Some(first));
            Line::Other(owner, words.into_iter().skip(skipped).collect())
        }
        // The words are arguments of the program's first command.
        (None, Some(command)) => Line::Own([MAIN.into(), command.into()].into_iter().chain(words).collect()),
        _ => Line::Own(std::iter::once(MAIN.into()).chain(words).collect()),
    }
}

/// Runs a program: reads its command line, and runs it with `run`, or runs the program that has the command.
/// Ends with the exit status.
#[must_use]
pub fn main(own: &'static str, run: impl FnOnce(&Command) -> Outcome) -> ExitCode {
    let outcome = match line(own, std::env::args_os().skip(1).collect()) {
        Line::Other(program, words) => {
            let failure = exec(program, &words);
            json::end(usage::wants_json(words), Err(failure))
        }
        Line::Own(words) => {
            match args::command().try_get_matches_from(&words).and_then(|m| Cli::from_arg_matches(&m)) {
                Ok(cli) => catch_file_limit().and_then(|()| match &cli.command {
                    Command::Man(args) => man::man(args, own),
                    Command::Completions(args) => man::completions(args),
                    command => run(command),
                }),
                // The command needs more words than its name, so its help is the best answer.
                Err(help) if help.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
                    help.exit()
                }
                // The user asked for help or the version.
                Err(help) if !help.use_stderr() => stdout::written(help.print()),
                Err(error) => json::end(usage::wants_json(words), Err(usage::failure(&error))),
            }
        }
    };
    match stdout::end(outcome) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.lines().iter().for_each(|line| say(line));
            ExitCode::from(failure.code as u8)
        }
    }
}

/// Makes a write beyond `ulimit -f` an error to report, instead of the end of the process.
fn catch_file_limit() -> Outcome {
    let caught = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::new(AtomicBool::new(false)));
    caught.map(drop).map_err(|e| Failure::other(format!("cannot catch signals: {e}")))
}

/// Fails for a command that [`main`] passes to another program.
///
/// # Errors
/// Always.
pub fn not_here() -> Outcome {
    Err(Failure::other("this program does not have that command"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(Into::into).collect()
    }

    #[test]
    fn each_line_finds_its_program() {
        let own = |text: &str| Line::Own(words(text));
        let other = |program, text: &str| Line::Other(program, words(text));
        for (program, text, wanted) in [
            (MAIN, "get x", own("anabranch get x")),
            (MAIN, "", own("anabranch")),
            (MAIN, "--help", own("anabranch --help")),
            (MAIN, "no-such", own("anabranch no-such")),
            (MAIN, "help lab", own("anabranch help lab")),
            (MAIN, "lab run x --json", other("anabranch-lab", "run x --json")),
            (MAIN, "lab", other("anabranch-lab", "")),
            (MAIN, "soak -v", other("anabranch-lab", "soak -v")),
            (MAIN, "forward", other("anabranch-net", "forward")),
            ("anabranch-lab", "run x", own("anabranch lab run x")),
            ("anabranch-lab", "", own("anabranch lab")),
            ("anabranch-lab", "--help", own("anabranch lab --help")),
            ("anabranch-lab", "lab run x", own("anabranch lab run x")),
            ("anabranch-lab", "soak -v", own("anabranch soak -v")),
            ("anabranch-lab", "man lab-run", own("anabranch man lab-run")),
            ("anabranch-minicache", "serve x", own("anabranch minicache serve x")),
            ("anabranch-net", "serve x --publish y", other(MAIN, "serve x --publish y")),
            ("anabranch-net", "lab down", other("anabranch-lab", "down")),
        ] {
            assert_eq!(line(program, words(text)), wanted, "{program} {text}");
        }
    }

    #[test]
    fn what_is_said_of_a_command_is_what_its_own_help_says() {
        let known = <Cli as clap::CommandFactory>::command();
        for (name, about) in crate::programs::PROGRAMS.iter().flat_map(|program| program.commands) {
            let Some(command) = known.find_subcommand(name) else { continue };
            assert_eq!(command.get_about().map(ToString::to_string).as_deref(), Some(*about), "{name}");
        }
    }
}
