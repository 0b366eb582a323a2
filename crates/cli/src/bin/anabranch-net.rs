//! The `anabranch net` command, and the commands of a publish/subscribe network's servers.

#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;

use anabranch_cli::args::Command;
use anabranch_cli::{dispatch, member_command, net_command};

fn main() -> ExitCode {
    dispatch::main("anabranch-net", |command| match command {
        Command::Net(args) => net_command::net(args),
        Command::Forward(args) => member_command::forward(args),
        Command::Rendezvous(args) => member_command::rendezvous(args),
        Command::Topology(args) => member_command::topology(args),
        _ => dispatch::not_here(),
    })
}
