//! The `anabranch trace` command.

#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;

use anabranch_cli::args::Command;
use anabranch_cli::{dispatch, trace_command};

fn main() -> ExitCode {
    dispatch::main("anabranch-trace", |command| match command {
        Command::Trace(args) => trace_command::trace(args),
        _ => dispatch::not_here(),
    })
}
