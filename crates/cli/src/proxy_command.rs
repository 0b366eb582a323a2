//! `anabranch proxy`: lets every program use several links.

pub mod args;
mod client;
mod drain;
mod pair;
mod places;
mod role_args;
mod rules;
mod server;
mod status;
mod view;

use std::os::fd::AsFd as _;
use std::sync::atomic::Ordering;
use std::thread;

use anabranch_algo::Time;
use anabranch_net::{Clock, Interest, Poller};
use anabranch_proxy::config::{self, ConfigError};
use anabranch_proxy::{Reloader, Running, Totals};

use crate::descriptors;
use crate::exit::{Code, Failure, Outcome};
use crate::signals::service_signals;
use args::{Proxy, ProxyCommand};
use role_args::{About, RoleArgs};
use status::Page;
use view::View;

/// Runs a command about the proxy.
///
/// # Errors
/// 1 if it cannot listen or keep its keys, 2 if the command line is invalid.
pub fn proxy(args: &Proxy) -> Outcome {
    match &args.command {
        ProxyCommand::Server(args) => run(args, &server::Server),
        ProxyCommand::Client(args) => run(args, &client::Client),
        ProxyCommand::Pair(args) => pair::pair(args),
        ProxyCommand::Remove(args) => pair::remove(args),
        ProxyCommand::Status(args) => status::status(args),
        ProxyCommand::Rules(args) => rules::rules(args),
        ProxyCommand::Drain(args) => drain::drain(args),
    }
}

/// Converts an error of the crate `proxy` to a failure with an exit status.
fn wrong(error: anabranch_proxy::Error) -> Failure {
    let code = match &error {
        anabranch_proxy::Error::Usage(_) => Code::Usage,
        _ => Code::Other,
    };
    Failure::new(code, error.to_string())
}

/// Runs a role with the settings of its command line and its file, until a signal ends it.
fn run<S: About + Send + Sync>(args: &RoleArgs<S>, role: &(impl Role<S> + Sync)) -> Outcome {
    let view = View { json: args.common.json, quiet: args.common.quiet };
    let settings = || -> Outcome<S> {
        let file = args.common.config.as_deref().map(config::load::<S>).transpose().map_err(unusable)?;
        let given = args.flags.clone().over(file.unwrap_or_default());
        Ok(role.completed(given))
    };
    if args.common.check {
        let all = settings().and_then(|all| role.check(&all).map(|()| all).map_err(unusable));
        return view.checked(all.map(|all| all.over(S::defaults()).to_toml()));
    }
    let begun = || {
        descriptors::raise_limit();
        let settings = settings()?;
        Ok((role.start(&settings)?, settings))
    };
    view.end(begun().and_then(|(running, in_force)| {
        let _shown = status::show(&running, role.page(&in_force)?, &view)?;
        let reloads = args.common.config.is_some();
        let reload = |reloader: &Reloader, in_force: &mut S| {
            let reloaded = settings().and_then(|new| {
                role.reload(reloader, &new)?;
                Ok(config::changes(&std::mem::replace(in_force, new.clone()), &new))
            });
            view.reloaded(&reloaded);
        };
        until_it_ends(running, in_force, reloads.then_some(&reload), &view)
    }))
}

/// Defines the steps of a role of the proxy, from its settings on.
trait Role<S> {
    /// Adds the settings that were not given and that this process can determine.
    fn completed(&self, settings: S) -> S;
    /// Checks the settings.
    fn check(&self, settings: &S) -> Result<(), ConfigError>;
    /// Returns the status page that the settings ask for.
    fn page(&self, settings: &S) -> Outcome<Option<Page>>;
    /// Starts the role.
    fn start(&self, settings: &S) -> Outcome<Running>;
    /// Applies the settings that can change while the role runs.
    fn reload(&self, reloader: &Reloader, settings: &S) -> Outcome;
}

fn unusable(error: ConfigError) -> Failure {
    Failure::usage(error.to_string())
}

/// Shows a role's events until it ends or a signal ends it. SIGHUP reloads the settings, if `reload` is
/// given.
fn until_it_ends<S: Send>(
    mut running: Running,
    mut in_force: S,
    reload: Option<&(impl Fn(&Reloader, &mut S) + Sync)>,
    view: &View,
) -> Outcome<Totals> {
    let signals = service_signals(reload.is_some())?;
    let (stop, reloader) = (running.stop(), running.reloader());
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut poller = Poller::new(Clock::start());
            while !signals.stop.load(Ordering::Relaxed) {
                // A failed wait would make this loop spin, so signals are not waited for any more; a second
                // signal still ends the process.
                if poller.wait([(signals.wake.as_fd(), Interest::Read)], Time::NEVER).is_err() {
                    break;
                }
                signals.wake.drain();
                if signals.hangup.swap(false, Ordering::Relaxed)
                    && let Some(reload) = reload
                {
                    reload(&reloader, &mut in_force);
                }
            }
            stop.stop();
        });
        while let Some(event) = running.wait_event() {
            view.show(&event);
        }
        // The role may have ended by itself.
        signals.stop.store(true, Ordering::Relaxed);
        signals.wake.waker().wake();
    });
    Ok(running.totals())
}
