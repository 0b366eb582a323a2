//! Runs `anabranch lab`: experiments. The crate `lab` has the simulation and makes rows from numbers; this
//! module has files, threads and output.

pub mod args;
mod cdn;
mod domain;
#[cfg(target_os = "linux")]
mod drive;
mod find;
#[cfg(target_os = "linux")]
mod held;
mod latency;
mod list;
mod new;
mod output;
mod progress;
mod run;
#[cfg(target_os = "linux")]
mod session;
mod study;
mod sweep;
mod tail_loss;
mod workers;

use crate::exit::Outcome;
use crate::json;
use args::{Lab, LabCommand};

/// Runs a command of the laboratory.
///
/// # Errors
/// 2 if a scenario is invalid, 6 if a file cannot be written, 7 if a condition was not met or a value is
/// outside of its expected range, 130 on Ctrl-C.
pub fn lab(args: &Lab) -> Outcome {
    match &args.command {
        LabCommand::List(args) => list::list(args),
        LabCommand::New(args) => new::new(args),
        LabCommand::Run(args) => json::end(args.choice.json, run::run(args)),
        LabCommand::Domain(args) => domain::domain(args),
        LabCommand::TailLoss(args) => tail_loss::tail_loss(&args.study),
        LabCommand::Latency(args) => latency::latency(args),
        LabCommand::Cdn(args) => cdn::cdn(args),
        LabCommand::Sweep(args) => json::end(args.choice.json, sweep::sweep(args)),
        #[cfg(target_os = "linux")]
        LabCommand::Drive(args) => json::end(args.json, drive::drive(args)),
        #[cfg(target_os = "linux")]
        LabCommand::DrivePart(args) => drive::part(args),
        #[cfg(target_os = "linux")]
        LabCommand::Up(args) => session::up(args),
        #[cfg(target_os = "linux")]
        LabCommand::Exec(args) => session::exec(args),
        #[cfg(target_os = "linux")]
        LabCommand::Status(args) => session::status(args),
        #[cfg(target_os = "linux")]
        LabCommand::Down(args) => session::down(args),
        #[cfg(target_os = "linux")]
        LabCommand::Hold(args) => held::hold(args),
    }
}
