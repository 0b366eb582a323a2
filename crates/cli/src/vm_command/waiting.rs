//! Runs `anabranch vm agent`.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::Duration;

use anabranch_machines::Allowed;
use anabranch_machines::agent::{self, Event, Settings};
use anabranch_machines::store::Store;
use serde::Serialize;

use super::args::Agent;
use super::failure::failure;
use super::protecting::protect_again;
use crate::exit::{Failure, Outcome};
use crate::json;
use crate::signals::stop_signals;
use crate::view::{note, say};

#[derive(Serialize)]
struct ListeningLine<'a> {
    addresses: &'a [SocketAddr],
}

/// What happens to a machine or a client, as a line of JSON.
#[derive(Serialize)]
struct AgentLine<'a> {
    /// `comes`, `runs`, `given_up`, `refused` or `notice`.
    what: &'a str,
    machine: Option<&'a str>,
    client: Option<&'a str>,
    text: Option<&'a str>,
}

/// Runs an agent until a signal ends it.
pub(super) fn agent(store: &Store, args: &Agent) -> Outcome {
    let (_wake, stop) = stop_signals()?;
    let disks: Result<Vec<_>, Failure> = args
        .disks
        .iter()
        .map(|dir| dir.canonicalize().map_err(|e| Failure::usage(format!("{}: {e}", dir.display())).at(dir)))
        .collect();
    let allowed =
        Allowed { memory_bytes: args.memory_max.map(|mb| mb << 20), disks: disks?, nets: args.net.clone() };
    let settings = Settings { listen: args.listen.clone(), addresses: args.address.clone(), allowed };
    let (events, happens) = mpsc::channel();
    let agent = agent::Agent::start(store, settings, events).map_err(failure)?;
    match args.json {
        true => json::put("listening", &ListeningLine { addresses: agent.addresses() }),
        false => {
            let all: Vec<String> = agent.addresses().iter().map(ToString::to_string).collect();
            note(&format!(
                "waits for machines at {}; `anabranch vm pair CLIENT` lets one in",
                all.join(", ")
            ));
        }
    }
    while !stop.load(Ordering::SeqCst) {
        if let Ok(event) = happens.recv_timeout(Duration::from_millis(100)) {
            tell(&event, args.json);
            if let Event::Runs { name } = &event {
                protect_again(store, name);
            }
        }
    }
    drop(agent);
    Ok(())
}

fn tell(event: &Event, is_json: bool) {
    let (what, machine, client, text) = match event {
        Event::Notice(text) => ("notice", None, None, Some(text.as_str())),
        Event::Refused { client, text } => ("refused", None, Some(client.as_str()), Some(text.as_str())),
        Event::Comes { name, client } => ("comes", Some(name.as_str()), Some(client.as_str()), None),
        Event::Runs { name } => ("runs", Some(name.as_str()), None, None),
        Event::GivenUp { name } => ("given_up", Some(name.as_str()), None, None),
    };
    if is_json {
        return json::put("agent", &AgentLine { what, machine, client, text });
    }
    match event {
        Event::Notice(text) => note(text),
        Event::Refused { client, text } => say(&format!("{client} is refused: {text}")),
        Event::Comes { name, client } => say(&format!("{name} comes from {client}")),
        Event::Runs { name } => say(&format!("{name} runs here")),
        Event::GivenUp { name } => say(&format!("{name} does not come")),
    }
}
