//! The `anabranch` command: what fetches and serves files. The other programs are in `bin/`.

#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;

use anabranch_cli::args::Command;
#[cfg(feature = "lab")]
use anabranch_cli::demo;
use anabranch_cli::programs::MAIN;
use anabranch_cli::{dispatch, get, mirror_list, serve};

fn main() -> ExitCode {
    dispatch::main(MAIN, |command| match command {
        Command::Serve(args) => serve::serve(args),
        Command::Get(args) => get::get(args),
        Command::MirrorList(args) => mirror_list::mirror_list(args),
        #[cfg(feature = "lab")]
        Command::Demo(args) => demo::demo(args),
        _ => dispatch::not_here(),
    })
}
