//! The `anabranch lab` and `anabranch soak` commands.

#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;

use anabranch_cli::args::Command;
use anabranch_cli::{dispatch, lab_command, soak};

fn main() -> ExitCode {
    dispatch::main("anabranch-lab", |command| match command {
        Command::Lab(args) => lab_command::lab(args),
        Command::Soak(args) => soak::soak(args),
        _ => dispatch::not_here(),
    })
}
