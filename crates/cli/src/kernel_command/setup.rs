//! `anabranch kernel setup`: several uplinks, used together.

use anabranch_kernel::uplinks::{self, Options, TABLE_BASE};
use anabranch_net::via::{self, Via};
use clap::Args;

use crate::exit::Outcome;
use crate::plan_report::{refused, report};
use crate::view::say;

/// Use several uplinks together
#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Use several uplinks together: every MPTCP connection of this host gets a subflow over \
        each.\n\n\
        Switches MPTCP on; gives each interface's addresses an MPTCP endpoint; raises the limits of subflows \
        as far as needed; and makes policy routes, so that what comes from an address leaves by its \
        interface, through the gateway that the main table has for it. Programs use MPTCP if they ask for it \
        (`mptcpize run PROGRAM` makes others ask). Run it again when addresses or gateways have changed: \
        only the difference is done. What was there before is kept until the next boot, and `anabranch \
        kernel teardown` puts it back.",
    after_help = "Examples:\n  \
        anabranch kernel setup --via wlan0 --via wwan0\n  \
        anabranch kernel setup --via wlan0 --via wwan0:backup\n  \
        anabranch kernel setup --via eth0 --via eth1 --dry-run"
)]
pub struct Setup {
    #[arg(long, required = true, value_name = via::VALUE, value_parser = uplink, help = via::HELP)]
    #[expect(missing_docs, reason = "the help is one text for every command")]
    pub via: Vec<Via>,

    /// The same as --via IFACE:backup, of an interface that is named
    #[arg(long, value_name = "IFACE", hide = true)]
    pub backup: Vec<String>,

    /// The routing table of the first interface; the others have the next numbers
    #[arg(long, value_name = "N", default_value_t = TABLE_BASE)]
    pub table_base: u32,

    /// Print what would be done, and do nothing
    #[arg(long)]
    pub dry_run: bool,

    /// Print what was done as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Sets up the uplinks.
///
/// # Errors
/// 2 if the options contradict each other; 1 if an interface cannot be used or the kernel refuses.
pub fn setup(args: &Setup) -> Outcome {
    let names: Vec<String> = args.via.iter().map(|via| via.name.clone()).collect();
    let backups = args.via.iter().filter(|via| via.is_backup).map(|via| via.name.clone());
    let options = Options {
        backup: backups.chain(args.backup.iter().cloned()).collect(),
        table_base: args.table_base,
        ..Options::new(names.clone())
    };
    let plan = if args.dry_run { uplinks::plan(&options) } else { uplinks::setup(&options) };
    report(&plan.map_err(refused)?, args.dry_run, args.json);
    if !args.dry_run && !args.json {
        say(&format!("{}: in use; `anabranch kernel teardown` puts everything back", names.join(", ")));
    }
    Ok(())
}

fn uplink(text: &str) -> Result<Via, String> {
    let via = text.parse::<Via>().and_then(|via| via.allow("the kernel", &["backup"]));
    via.map_err(|e| e.to_string())
}
