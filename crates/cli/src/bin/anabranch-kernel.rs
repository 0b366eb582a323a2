//! The `anabranch kernel` command.

#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;

use anabranch_cli::args::Command;
use anabranch_cli::{dispatch, kernel_command};

fn main() -> ExitCode {
    dispatch::main("anabranch-kernel", |command| match command {
        Command::Kernel(args) => kernel_command::kernel(args),
        _ => dispatch::not_here(),
    })
}
