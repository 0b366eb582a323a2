//! The `anabranch proxy` command.

#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;

use anabranch_cli::args::Command;
use anabranch_cli::{dispatch, proxy_command};

fn main() -> ExitCode {
    dispatch::main("anabranch-proxy", |command| match command {
        Command::Proxy(args) => proxy_command::proxy(args),
        _ => dispatch::not_here(),
    })
}
