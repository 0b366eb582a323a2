//! The `anabranch minicache` command.

#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;

use anabranch_cli::args::Command;
use anabranch_cli::{dispatch, minicache_command};

fn main() -> ExitCode {
    dispatch::main("anabranch-minicache", |command| match command {
        Command::Minicache(args) => minicache_command::minicache(args),
        _ => dispatch::not_here(),
    })
}
