//! Runs `anabranch op`: packet functions that start at once and move. The crate `anabranch-operator` does the
//! work.

pub mod args;
mod failure;
mod functions;
mod storming;
mod waiting;

use std::path::Path;

use anabranch_machines::store::Store;

use crate::exit::{Failure, Outcome};
use crate::json;
use crate::pairing::{pair, trust};
use crate::state_dir::state_dir;
use args::{FnCommand, Op, OpCommand};

/// Runs a command of `anabranch op`.
///
/// # Errors
/// 2 if the command line, a name, a module or a file makes no sense; 4 if the agent or the other host is not
/// reached; 8 if the kernel cannot do it; 130 if it was interrupted; otherwise 1.
pub fn op(args: &Op) -> Outcome {
    let state = args.state.as_deref();
    match &args.command {
        OpCommand::Agent(args) => json::end(args.json, open(state).and_then(|s| waiting::agent(&s, args))),
        OpCommand::Pair(args) => open(state).and_then(|s| pair(&s, &args.client)),
        OpCommand::Trust(args) => open(state).and_then(|s| trust(&s, &args.host, &args.address, "functions")),
        OpCommand::Fn(group) => match &group.command {
            FnCommand::Run(args) => json::end(args.json, open(state).and_then(|s| functions::run(&s, args))),
            FnCommand::Ls(args) => json::end(args.json, open(state).and_then(|s| functions::list(&s, args))),
            FnCommand::Console(args) => {
                json::end(args.json, open(state).and_then(|s| functions::console(&s, args)))
            }
            FnCommand::Move(args) => json::end(args.json, open(state).and_then(|s| functions::go(&s, args))),
            FnCommand::Rm(args) => open(state).and_then(|s| functions::end(&s, &args.name)),
            FnCommand::Storm(args) => json::end(args.json, storming::storm(args)),
        },
    }
}

fn open(given: Option<&Path>) -> Outcome<Store> {
    let unknown = || Failure::usage("HOME is not set: name a directory for state with --state");
    let dir = match given {
        Some(dir) => dir.to_owned(),
        None => state_dir().ok_or_else(unknown)?.join("op"),
    };
    Store::open(&dir).map_err(|e| Failure::usage(e.to_string()).at(&dir))
}
