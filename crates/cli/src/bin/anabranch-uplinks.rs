//! The `anabranch uplinks` command.

#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;

use anabranch_cli::args::Command;
use anabranch_cli::{dispatch, uplinks_command};

fn main() -> ExitCode {
    dispatch::main("anabranch-uplinks", |command| match command {
        Command::Uplinks(args) => uplinks_command::uplinks(args),
        _ => dispatch::not_here(),
    })
}
