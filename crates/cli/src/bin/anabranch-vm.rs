//! The `anabranch vm` command.

#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;

use anabranch_cli::args::Command;
use anabranch_cli::{dispatch, vm_command};

fn main() -> ExitCode {
    dispatch::main("anabranch-vm", |command| match command {
        Command::Vm(args) => vm_command::vm(args),
        _ => dispatch::not_here(),
    })
}
