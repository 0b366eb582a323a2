//! `anabranch kernel`: coupled congestion control inside Linux.

pub mod args;
mod group;
mod load;
pub mod setup;
mod status;
pub mod teardown;
pub mod watch;

use std::io::ErrorKind;
use std::sync::Arc;

use anabranch_net::Namespace;

use crate::exit::{Code, Failure, Outcome};
use crate::names::show;
use args::{Kernel, KernelCommand};

/// Runs a command of `anabranch kernel`.
///
/// # Errors
/// 2 if the command line makes no sense, 8 if the kernel cannot or may not do it, 130 on Ctrl-C.
pub fn kernel(args: &Kernel) -> Outcome {
    match &args.command {
        KernelCommand::Load(args) => load::load(args),
        KernelCommand::Unload(args) => load::unload(args),
        KernelCommand::Status(args) => status::status(args),
        KernelCommand::Group(args) => group::group(args),
        KernelCommand::Watch(args) => {
            watch::watch(args, Arc::new(anabranch_kernel::subflow_state::BpfControllerStats::default()))
        }
        KernelCommand::Setup(args) => setup::setup(args),
        KernelCommand::Teardown(args) => teardown::teardown(args),
    }
}

/// Converts an error of the crate `kernel` to one with an exit status.
fn wrong(e: anabranch_kernel::Error) -> Failure {
    let code = if matches!(e, anabranch_kernel::Error::Unknown(_)) { Code::Usage } else { Code::Kernel };
    Failure::new(code, e.to_string())
}

/// Converts an error as [`wrong`] does. If the cause is that this command has its own `/sys`, adds the
/// command to run outside.
fn wrong_here(e: anabranch_kernel::Error, words: &str) -> Failure {
    let private = matches!(e, anabranch_kernel::Error::PrivateSys);
    let mut failure = wrong(e);
    if private {
        failure.message += &format!(": run it outside, as `sudo anabranch kernel {words}`");
    }
    failure
}

/// Returns ` --netns NAME` for the caller's network namespace, if that has a name.
fn netns_option() -> String {
    anabranch_kernel::namespaces::own_name()
        .map_or_else(String::new, |name| format!(" --netns {}", show(name)))
}

/// The network namespace that a command is for: one that `ip netns` has named, or the caller's.
struct NamespaceArg(Option<(String, Namespace)>);

impl NamespaceArg {
    /// Finds the namespace, and checks that it can be entered.
    fn find(netns: Option<&str>) -> Result<Self, Failure> {
        let Some(name) = netns else { return Ok(Self(None)) };
        let dir = std::path::Path::new("/run/netns");
        let known = || {
            let names = std::fs::read_dir(dir).into_iter().flatten().flatten();
            let mut names: Vec<String> = names.map(|entry| show(entry.file_name())).collect();
            names.sort_unstable();
            if names.is_empty() { "there is none".into() } else { format!("there are {}", names.join(", ")) }
        };
        let missing = || Failure::usage(format!("there is no network namespace `{name}`; {}", known()));
        if name.is_empty() || name.contains('/') {
            return Err(missing());
        }
        let opened = Namespace::open(&dir.join(name));
        let entered = opened.and_then(|space| space.run(|| ()).map(|()| space));
        match entered {
            Ok(space) => Ok(Self(Some((name.into(), space)))),
            Err(e) if e.kind() == ErrorKind::PermissionDenied => {
                Err(Failure::new(Code::Kernel, format!("entering the network namespace `{name}` needs root")))
            }
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::InvalidInput) => Err(missing()),
            Err(e) => Err(Failure::new(Code::Kernel, format!("cannot enter `{name}`: {e}"))),
        }
    }

    /// Runs `work` in the namespace.
    fn run<T: Send>(&self, work: impl FnOnce() -> Result<T, Failure> + Send) -> Result<T, Failure> {
        let Some((name, space)) = &self.0 else { return work() };
        let enter = |e| Failure::new(Code::Kernel, format!("cannot enter the namespace `{name}`: {e}"));
        space.run(work).map_err(enter)?
    }

    /// Says where the namespace is, in words that follow a verb.
    fn name(&self) -> String {
        self.0.as_ref().map_or_else(|| "here".into(), |(name, _)| format!("in namespace {name}"))
    }
}
