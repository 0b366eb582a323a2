//! The `anabranch op` command.

#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;

use anabranch_cli::args::Command;
use anabranch_cli::{dispatch, op_command};

fn main() -> ExitCode {
    dispatch::main("anabranch-op", |command| match command {
        Command::Op(args) => op_command::op(args),
        _ => dispatch::not_here(),
    })
}
