//! `anabranch kernel teardown`: undoes `anabranch kernel setup`.

use std::path::Path;

use anabranch_kernel::uplinks::{STATE_DIR, plan_teardown, teardown as put_back};
use clap::Args;

use crate::exit::Outcome;
use crate::plan_report::{refused, report};
use crate::stdout;
use crate::view::say;

/// Put back what setup changed
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Put back what `anabranch kernel setup` changed: endpoints, limits, policy routes and the \
        switch of MPTCP, exactly as they were.\n\n\
        It does not matter whether setup came to its end, or whether an interface is gone meanwhile. What \
        somebody else has changed since is left as it is, and said. The kernel closes the subflows from an \
        endpoint that goes: connections that have no other end.",
    after_help = "Examples:\n  \
        anabranch kernel teardown\n  \
        anabranch kernel teardown --dry-run"
)]
pub struct Teardown {
    /// Print what would be done, and do nothing
    #[arg(long)]
    pub dry_run: bool,

    /// Print what was done as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Undoes the set-up of uplinks.
///
/// # Errors
/// 1 if the kernel refuses; it can be tried again then.
pub fn teardown(args: &Teardown) -> Outcome {
    let dir = Path::new(STATE_DIR);
    let plan = if args.dry_run { plan_teardown(dir) } else { put_back(dir) };
    match plan.map_err(refused)? {
        Some(plan) => report(&plan, args.dry_run, args.json),
        None if args.json => stdout::line("{\"done\":false,\"changes\":[],\"notes\":[]}"),
        None => say("there is nothing to put back"),
    }
    Ok(())
}
