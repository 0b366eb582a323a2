//! `anabranch kernel`: coupled congestion control inside Linux.

pub mod args;
mod group;
mod load;
pub mod setup;
mod status;
pub mod teardown;
pub mod watch;

use std::sync::Arc;

use crate::exit::{Code, Failure, Outcome};
use args::{Kernel, KernelCommand};

/// Runs a command about the kernel.
///
/// # Errors
/// 2 if the command line makes no sense, 8 if the kernel cannot or may not, 130 on Ctrl-C.
pub fn kernel(args: &Kernel) -> Outcome {
    match &args.command {
        KernelCommand::Load(args) => load::load(args),
        KernelCommand::Unload(args) => load::unload(args),
        KernelCommand::Status(args) => status::status(args),
        KernelCommand::Group(args) => group::group(args),
        KernelCommand::Watch(args) => watch::watch(args, Arc::new(::kernel::siblings::Live::default())),
        KernelCommand::Setup(args) => setup::setup(args),
        KernelCommand::Teardown(args) => teardown::teardown(args),
    }
}

/// What the crate `kernel` says, as an exit status.
fn wrong(e: ::kernel::Error) -> Failure {
    let code = if matches!(e, ::kernel::Error::Unknown(_)) { Code::Usage } else { Code::Kernel };
    Failure::new(code, e.to_string())
}

/// Does `work` in a network namespace: that of the name, as `ip netns` has them, or this one.
fn inside<T: Send>(
    netns: Option<&str>,
    work: impl FnOnce() -> Result<T, Failure> + Send,
) -> Result<T, Failure> {
    let Some(name) = netns else { return work() };
    let path = std::path::Path::new("/run/netns").join(name);
    let missing = |e| Failure::new(Code::Usage, format!("there is no network namespace `{name}`: {e}"));
    let namespace = net::namespace::Namespace::open(&path).map_err(missing)?;
    let enter = |e| Failure::new(Code::Kernel, format!("cannot enter the namespace `{name}`: {e}"));
    namespace.run(work).map_err(enter)?
}
