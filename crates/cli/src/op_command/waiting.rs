//! Runs `anabranch op agent`.

use std::sync::atomic::Ordering;

use anabranch_algo::Time;
use anabranch_machines::store::Store;
use anabranch_net::{Clock, Interest, Poller};
use anabranch_operator::agent::{Agent, Backend, Settings};
use anabranch_operator::wasm;
use serde::Serialize;

use super::args;
use super::failure::failure;
use crate::exit::{Failure, Outcome};
use crate::json;
use crate::signals::stop_signals;
use crate::view::{note, say};

#[derive(Serialize)]
struct ReadyLine<'a> {
    inside: &'a str,
    outside: Option<&'a str>,
    instances: usize,
}

#[derive(Serialize)]
struct NoticeLine<'a> {
    text: &'a str,
}

impl From<args::Backend> for Backend {
    fn from(backend: args::Backend) -> Self {
        match backend {
            args::Backend::Memory => Self::Memory,
            args::Backend::Redb => Self::Redb,
        }
    }
}

/// Runs an agent until a signal ends it.
pub(super) fn agent(store: &Store, args: &args::Agent) -> Outcome {
    use std::os::fd::AsFd as _;
    let (wake, stop) = stop_signals()?;
    let settings = Settings {
        inside: args.inside.clone(),
        outside: args.outside.clone(),
        backend: args.store.into(),
        wasm: wasm::Settings { instances_max: args.instances_max, ..wasm::Settings::default() },
    };
    let (agent, troubles) = Agent::start(store, &settings).map_err(failure)?;
    for text in &troubles {
        match args.json {
            true => json::put("notice", &NoticeLine { text }),
            false => say(text),
        }
    }
    let instances = agent.manager().list().map_err(failure)?.len();
    let outside = args.outside.as_ref().map(|wanted| wanted.name.as_str());
    match args.json {
        true => json::put("ready", &ReadyLine { inside: &args.inside.name, outside, instances }),
        false => note(&format!(
            "carries functions between {} and {} ({instances} so far); `anabranch op fn run` starts one",
            args.inside.name,
            outside.unwrap_or(&args.inside.name)
        )),
    }
    let mut poller = Poller::new(Clock::start());
    while !stop.load(Ordering::SeqCst) {
        let waited = poller.wait([(wake.as_fd(), Interest::Read)], Time::NEVER);
        waited.map_err(|e| Failure::other(e.to_string()))?;
    }
    drop(agent);
    Ok(())
}
