//! Runs `anabranch vm`: running machines that move. The crate `anabranch-machines` does the work.

pub mod args;
mod failure;
mod here;
mod moving;
mod protecting;
mod waiting;

use std::path::Path;

use anabranch_machines::store::Store;

use crate::exit::{Failure, Outcome};
use crate::json;
use crate::pairing::{pair, trust};
use crate::state_dir::state_dir;
use args::{Vm, VmCommand};

/// Runs a command of `anabranch vm`.
///
/// # Errors
/// 2 if the command line, a name or a file makes no sense; 4 if the other host or a named link is not
/// reached; 7 if the move would never end; 8 if the kernel cannot do it; 130 if it was interrupted;
/// otherwise 1.
pub fn vm(args: &Vm) -> Outcome {
    let store = open(args.state.as_deref())?;
    match &args.command {
        VmCommand::Run(args) => json::end(args.json, here::run(&store, args)),
        VmCommand::Attach(args) => json::end(args.json, here::attach(&store, args)),
        VmCommand::Ls(args) => json::end(args.json, here::list(&store, args)),
        VmCommand::Stop(args) => json::end(args.json, here::stop(&store, &args.name)),
        VmCommand::Forget(args) => json::end(args.json, here::forget(&store, &args.name)),
        VmCommand::Pair(args) => pair(&store, &args.client),
        VmCommand::Trust(args) => trust(&store, &args.host, &args.address, "machines"),
        VmCommand::Agent(args) => json::end(args.json, waiting::agent(&store, args)),
        VmCommand::Predict(args) => json::end(args.json, moving::predict(&store, args)),
        VmCommand::Move(args) => json::end(args.json, moving::migrate(&store, args)),
        VmCommand::Recover(args) => json::end(args.json, moving::recover(&store, args)),
        VmCommand::Protect(args) => json::end(args.json, protecting::protect(&store, args)),
        VmCommand::Unprotect(args) => json::end(args.json, protecting::unprotect(&store, args)),
        VmCommand::Protection(args) => json::end(args.json, protecting::protection(&store, args)),
        VmCommand::Failover(args) => json::end(args.json, protecting::failover(&store, args)),
        VmCommand::Sync(args) => json::end(args.json, protecting::sync(&store, args)),
        VmCommand::Failback(args) => json::end(args.json, protecting::failback(&store, args)),
        VmCommand::Keep(args) => protecting::keep(&store, args),
        VmCommand::Guard(args) => moving::guard(&store, &args.name),
    }
}

fn open(given: Option<&Path>) -> Outcome<Store> {
    let unknown = || Failure::usage("HOME is not set: name a directory for state with --state");
    let dir = match given {
        Some(dir) => dir.to_owned(),
        None => state_dir().ok_or_else(unknown)?.join("vm"),
    };
    Store::open(&dir).map_err(|e| Failure::usage(e.to_string()).at(&dir))
}
