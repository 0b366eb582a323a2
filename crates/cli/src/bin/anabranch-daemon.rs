//! The `anabranch daemon` command.

#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;

use anabranch_cli::args::Command;
use anabranch_cli::{daemon_command, dispatch};

fn main() -> ExitCode {
    dispatch::main("anabranch-daemon", |command| match command {
        Command::Daemon(args) => daemon_command::daemon(args),
        _ => dispatch::not_here(),
    })
}
