//! `anabranch proxy`: every program on several links.

pub mod args;
mod client;
mod pair;
mod server;
mod view;

use std::fs::DirBuilder;
use std::os::fd::AsFd as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::thread;

use algo::Time;
use net::{Clock, Interest, Poller};
use proxy::keys::{KeyFileError, KeyPair};
use proxy::{Running, Totals};

use crate::exit::{Code, Failure, Outcome};
use crate::signals::stop_signals;
use args::{Proxy, ProxyCommand};
use view::View;

/// Runs a command about the proxy.
///
/// # Errors
/// 1 if it cannot listen or keep its keys, 2 if the command line makes no sense.
pub fn proxy(args: &Proxy) -> Outcome {
    match &args.command {
        ProxyCommand::Server(args) => server::server(args),
        ProxyCommand::Client(args) => client::client(args),
        ProxyCommand::Pair(args) => pair::pair(args),
    }
}

/// What the crate `proxy` says, as an exit status.
fn wrong(error: proxy::Error) -> Failure {
    let code = match &error {
        proxy::Error::Usage(_) => Code::Usage,
        _ => Code::Other,
    };
    Failure::new(code, error.to_string())
}

/// Shows what a role does until it ends, or a signal ends it.
fn run(mut role: Running, view: &View) -> Outcome<Totals> {
    let (wake, is_stopped) = stop_signals()?;
    let stop = role.stop();
    thread::spawn(move || {
        let mut poller = Poller::new(Clock::start());
        while !is_stopped.load(Ordering::Relaxed) {
            // Without it this would turn for ever: then no signal ends it but the second one.
            if poller.wait([(wake.as_fd(), Interest::Read)], Time::NEVER).is_err() {
                return;
            }
        }
        stop.stop();
    });
    while let Some(event) = role.wait_event() {
        view.show(&event);
    }
    Ok(role.totals())
}

/// What a server keeps: its key, and the list of its clients.
struct State {
    pair: KeyPair,
    clients: PathBuf,
}

/// Reads what a server keeps; what is not there yet is made.
fn state(dir: Option<&PathBuf>) -> Outcome<State> {
    let dir = state_dir(dir)?;
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&dir);
    made.map_err(|e| Failure::other(format!("cannot make {}: {e}", dir.display())))?;
    let failed = |e: KeyFileError| Failure::other(e.to_string());
    let (pair, _) = KeyPair::load_or_create(&dir.join("proxy-server.key")).map_err(failed)?;
    Ok(State { pair, clients: dir.join("proxy-clients.toml") })
}

/// Where keys are kept if nobody says where: `$STATE_DIRECTORY`, which systemd sets,
/// `$XDG_STATE_HOME/anabranch`, or `~/.local/state/anabranch`.
fn state_dir(given: Option<&PathBuf>) -> Outcome<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|dir| dir.is_absolute());
    given
        .cloned()
        .or_else(|| absolute("STATE_DIRECTORY"))
        .or_else(|| absolute("XDG_STATE_HOME").map(|dir| dir.join("anabranch")))
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state/anabranch")))
        .ok_or_else(|| Failure::usage("there is no home directory to keep keys in: say --state-dir"))
}
