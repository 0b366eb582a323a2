//! The `anabranch cache` command.

#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;

use anabranch_cli::args::Command;
use anabranch_cli::{cache_command, dispatch};

fn main() -> ExitCode {
    dispatch::main("anabranch-cache", |command| match command {
        Command::Cache(args) => cache_command::cache(args),
        _ => dispatch::not_here(),
    })
}
