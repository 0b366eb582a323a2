//! `anabranch lab`: experiments. What is simulated, and how numbers become rows, is the crate `lab`; here are
//! files, threads and output.

pub mod args;
mod find;
#[cfg(target_os = "linux")]
mod holder;
#[cfg(target_os = "linux")]
mod left;
mod list;
mod output;
mod progress;
mod run;
mod sweep;
#[cfg(target_os = "linux")]
mod up;

use crate::exit::Outcome;
use args::{Lab, LabCommand};

/// Runs a command of the laboratory.
///
/// # Errors
/// 2 if a scenario makes no sense, 6 if a file cannot be written, 7 if a condition was not met or a value is
/// not where it is expected, 130 on Ctrl-C.
pub fn lab(args: &Lab) -> Outcome {
    match &args.command {
        LabCommand::List(args) => list::list(args),
        LabCommand::Run(args) => run::run(args),
        LabCommand::Sweep(args) => sweep::sweep(args),
        #[cfg(target_os = "linux")]
        LabCommand::Up(args) => up::up(args),
        #[cfg(target_os = "linux")]
        LabCommand::Exec(args) => up::exec(args),
        #[cfg(target_os = "linux")]
        LabCommand::Status(args) => up::status(args),
        #[cfg(target_os = "linux")]
        LabCommand::Down(args) => up::down(args),
        #[cfg(target_os = "linux")]
        LabCommand::Hold(args) => holder::hold(&args.name, args.seed),
    }
}
