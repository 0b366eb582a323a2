//! The `anabranch` command.

#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anabranch_cli::args::{Cli, Command};
use anabranch_cli::exit::{Failure, Outcome};
use anabranch_cli::view::say;
use anabranch_cli::{
    demo, get, json, kernel_command, lab_command, man, member_command, mirror_list, net_command,
    proxy_command, serve, soak, stdout, usage,
};
use clap::Parser as _;
use clap::error::ErrorKind;

/// Nothing follows the name of a command that needs something.
const SHOWS_HELP: ErrorKind = ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;

fn main() -> ExitCode {
    let outcome = match Cli::try_parse() {
        Ok(cli) => run(&cli),
        // All that can be said.
        Err(help) if help.kind() == SHOWS_HELP => help.exit(),
        // What was asked for.
        Err(help) if !help.use_stderr() => stdout::written(help.print()),
        Err(error) => json::end(usage::wants_json(std::env::args_os()), Err(usage::failure(&error))),
    };
    match stdout::end(outcome) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.lines().iter().for_each(|line| say(line));
            ExitCode::from(failure.code as u8)
        }
    }
}

fn run(cli: &Cli) -> Outcome {
    // Caught and then left alone: writing beyond `ulimit -f` is an error to report, not a reason to die.
    let caught = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::new(AtomicBool::new(false)));
    caught.map_err(|e| Failure::other(format!("cannot catch signals: {e}")))?;
    match &cli.command {
        Command::Serve(args) => serve::serve(args),
        Command::Get(args) => get::get(args),
        Command::MirrorList(args) => mirror_list::mirror_list(args),
        Command::Demo(args) => demo::demo(args),
        Command::Lab(args) => lab_command::lab(args),
        Command::Soak(args) => soak::soak(args),
        Command::Kernel(args) => kernel_command::kernel(args),
        Command::Proxy(args) => proxy_command::proxy(args),
        Command::Net(args) => net_command::net(args),
        Command::Forward(args) => member_command::forward(args),
        Command::Rendezvous(args) => member_command::rendezvous(args),
        Command::Topology(args) => member_command::topology(args),
        Command::Man(args) => man::man(args),
        Command::Completions(args) => man::completions(args),
    }
}
