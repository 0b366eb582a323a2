//! Runs `anabranch op agent`.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::Duration;

use anabranch_machines::store::Store;
use anabranch_operator::agent::{Agent, Backend, Settings};
use anabranch_operator::event::Event;
use anabranch_operator::wasm;
use serde::Serialize;

use super::args;
use super::failure::failure;
use crate::exit::Outcome;
use crate::json;
use crate::signals::stop_signals;
use crate::view::{note, printable, say};

#[derive(Serialize)]
struct ReadyLine<'a> {
    inside: &'a str,
    outside: Option<&'a str>,
    instances: usize,
    addresses: &'a [SocketAddr],
}

/// What happens to an instance or a client, as a line of JSON.
#[derive(Default, Serialize)]
struct AgentLine<'a> {
    /// `comes`, `runs`, `given_up`, `settled`, `refused` or `notice`.
    what: &'a str,
    instance: Option<&'a str>,
    client: Option<&'a str>,
    /// The number of a move.
    id: Option<&'a str>,
    runs_here: Option<bool>,
    text: Option<&'a str>,
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
    let (_wake, stop) = stop_signals()?;
    let settings = Settings {
        inside: args.inside.clone(),
        outside: args.outside.clone(),
        backend: args.store.into(),
        listen: args.listen.clone(),
        addresses: args.address.clone(),
        wasm: wasm::Settings { instances_max: args.instances_max, ..wasm::Settings::default() },
    };
    let (events, happens) = mpsc::channel();
    let agent = Agent::start(store, &settings, events).map_err(failure)?;
    let instances = agent.manager().list().map_err(failure)?.len();
    let outside = args.outside.as_ref().map(|wanted| wanted.name.as_str());
    let (inside, addresses) = (args.inside.name.as_str(), agent.addresses());
    match args.json {
        true => json::put("ready", &ReadyLine { inside, outside, instances, addresses }),
        false => note(&format!(
            "carries functions between {inside} and {} ({instances} now); `anabranch op fn run` starts one",
            outside.unwrap_or(inside)
        )),
    }
    while !stop.load(Ordering::SeqCst) {
        if let Ok(event) = happens.recv_timeout(Duration::from_millis(100)) {
            tell(&event, args.json);
        }
    }
    drop(agent);
    Ok(())
}

fn tell(event: &Event, is_json: bool) {
    let none = AgentLine::default();
    let (line, text) = match event {
        Event::Notice(text) => (AgentLine { what: "notice", text: Some(text), ..none }, text.clone()),
        Event::Refused { client, text } => {
            let line = AgentLine { what: "refused", client: Some(client), text: Some(text), ..none };
            (line, format!("{client} is refused: {text}"))
        }
        Event::Comes { name, client } => {
            let line = AgentLine { what: "comes", instance: Some(name), client: Some(client), ..none };
            (line, format!("{name} comes from {client}"))
        }
        Event::Runs { client, id } => {
            let line = AgentLine { what: "runs", client: Some(client), id: Some(id), ..none };
            (line, format!("what came from {client} runs here"))
        }
        Event::GivenUp { client, id } => {
            let line = AgentLine { what: "given_up", client: Some(client), id: Some(id), ..none };
            (line, format!("what was to come from {client} does not"))
        }
        Event::Settled { name, runs_here } => {
            let line =
                AgentLine { what: "settled", instance: Some(name), runs_here: Some(*runs_here), ..none };
            let place = if *runs_here { "here" } else { "at the other host" };
            (line, format!("{name} runs {place}: its move was interrupted"))
        }
    };
    match is_json {
        true => json::put("agent", &line),
        false => say(&printable(&text)),
    }
}
