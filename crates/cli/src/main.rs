//! The `anabranch` command, which fetches and serves files. The other programs are in `bin/`.

#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;

use anabranch_cli::args::Command;
use anabranch_cli::programs::MAIN;
use anabranch_cli::{demo, dispatch, get, mirror_list, serve};

fn main() -> ExitCode {
    dispatch::main(MAIN, |command| match command {
        Command::Serve(args) => serve::serve(args),
        Command::Get(args) => get::get(args),
        Command::MirrorList(args) => mirror_list::mirror_list(args),
        Command::Demo(args) => demo::demo(args),
        _ => dispatch::not_here(),
    })
}
