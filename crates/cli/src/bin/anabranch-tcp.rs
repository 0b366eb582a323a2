//! The `anabranch tcp` command.

#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;

use anabranch_cli::args::Command;
use anabranch_cli::{dispatch, tcp_command};

fn main() -> ExitCode {
    dispatch::main("anabranch-tcp", |command| match command {
        Command::Tcp(args) => tcp_command::tcp(args),
        _ => dispatch::not_here(),
    })
}
