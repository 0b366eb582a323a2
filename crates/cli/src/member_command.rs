//! `anabranch forward`, `rendezvous`, `topology`: the servers of a publish/subscribe network.
//! [`anabranch_network`] does the work.

pub mod args;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use anabranch::{Control, Result, Stop, text};
use anabranch_network::{
    ForwardStats, Metrics, Place, RendezvousStats, ServiceEvent, StateAt, TopologyStats,
    forward as run_forwarder, manage_topology, rendezvous as run_rendezvous,
};
use serde::Serialize;

use crate::exit::{Failure, Outcome};
use crate::json::{self, End};
use crate::metrics;
use crate::signals::stop_on_signals;
use crate::view::{can_redraw, say};
use args::{Forward, Member, Rendezvous, Topology};

/// The environment variable that has the same meaning as `--state`.
const STATE: &str = "ANABRANCH_STATE";

/// Runs the forwarder of a node.
///
/// # Errors
/// 2 if this machine is no forwarder of the network, 1 if it cannot listen.
pub fn forward(args: &Forward) -> Outcome {
    let cache = args.cache.map(|bytes| (args.cache_policy.into(), bytes));
    let forward = |place: &Place, stop: &Stop, listener: Listener<'_, ForwardStats>| {
        run_forwarder(place, cache, stop, listener)
    };
    run(&args.member, forward, |stats: &ForwardStats| {
        let down: Vec<&str> =
            stats.lines.iter().filter(|line| line.up == Some(false)).map(|line| &*line.to).collect();
        let down = if down.is_empty() { "none".into() } else { down.join(", ") };
        let dropped: u64 = stats.dropped.values().sum();
        let cache = stats.cache.as_ref().map_or_else(String::new, |cache| {
            format!(
                "; cache: {} of {} packets, {}, {} kept",
                cache.hits,
                cache.asked,
                text::bytes(cache.hit_bytes),
                text::bytes(cache.stored_bytes as u64)
            )
        });
        format!(
            "forwarded {} packets, {}; dropped {dropped}; neighbours that do not answer: {down}{cache}",
            stats.forwarded,
            text::bytes(stats.forwarded_bytes)
        )
    })
}

/// Runs the rendezvous, which keeps publications.
///
/// # Errors
/// 2 if this machine is not the network's rendezvous or --state makes no sense, 6 if a file cannot be used, 4
/// if a server does not answer, 1 if it cannot listen.
pub fn rendezvous(args: &Rendezvous) -> Outcome {
    let state = args.state.clone().or_else(|| std::env::var_os(STATE));
    let rendezvous = |place: &Place, stop: &Stop, listener: Listener<'_, RendezvousStats>| {
        let state = state.as_deref().map(StateAt::parse).transpose()?;
        run_rendezvous(place, state.as_ref(), stop, listener)
    };
    run(&args.member, rendezvous, |stats: &RendezvousStats| {
        let refused: u64 = stats.refused.values().sum();
        let RendezvousStats { kept, published, lookups, unknown, .. } = stats;
        let kept = kept.map_or_else(String::new, |kept| format!("{kept} publications; "));
        let unanswered = stats.shared_state.as_ref().map_or_else(String::new, |state| {
            let down = if state.answers { "" } else { ", and the state does not answer" };
            format!("; {} messages got no answer{down}", state.unanswered)
        });
        format!(
            "{kept}{published} taken, {refused} refused; {lookups} lookups, {unknown} in vain{unanswered}"
        )
    })
}

/// Runs the topology manager, which hands out paths.
///
/// # Errors
/// 2 if this machine is not the network's topology manager, 1 if it cannot listen.
pub fn topology(args: &Topology) -> Outcome {
    run(&args.member, manage_topology, |stats: &TopologyStats| {
        let down: Vec<String> = stats.down.iter().map(|[a, b]| format!("{a} – {b}")).collect();
        let down = if down.is_empty() { "none".into() } else { down.join(", ") };
        let TopologyStats { forwarders, watchers, requests, pushes, .. } = stats;
        format!(
            "{forwarders} forwarders report; {requests} requests, {watchers} receivers are told of changes, \
             {pushes} were sent; lines that are down: {down}"
        )
    })
}

type Listener<'a, S> = &'a mut dyn FnMut(ServiceEvent<S>) -> Control;

/// The addresses at which a member listens, as a line of JSON.
#[derive(Serialize)]
struct ListeningLine<'a> {
    node: &'a str,
    addresses: Vec<SocketAddr>,
}

#[derive(Serialize)]
struct NoticeLine {
    text: String,
}

/// The final counters and the end, as a line of JSON.
#[derive(Serialize)]
struct Summary<S> {
    #[serde(flatten)]
    stats: Option<S>,
    #[serde(flatten)]
    end: End,
}

fn run<S: Serialize + Metrics + Clone + Default + Send + 'static>(
    args: &Member,
    member: impl FnOnce(&Place, &Stop, Listener<'_, S>) -> Result<S>,
    line: impl Fn(&S) -> String,
) -> Outcome {
    let place = args.network.place().and_then(|place| match &args.key {
        Some(file) => Ok(place.with_key(file)?),
        None => Ok(place),
    });
    let done = place.and_then(|place| {
        let stop = stop_on_signals()?;
        let counted: Arc<Mutex<S>> = Arc::default();
        let _server = match args.prometheus {
            None => None,
            Some(address) => {
                let (place, counted) = (place.clone(), Arc::clone(&counted));
                let served = metrics::serve(address, move || {
                    Some(counted.lock().unwrap_or_else(PoisonError::into_inner).prometheus_text(&place))
                });
                let (server, address) =
                    served.map_err(|e| Failure::other(format!("cannot serve metrics: {e}")))?;
                say(&format!("metrics at http://{address}/metrics"));
                Some(server)
            }
        };
        let mut last = String::new();
        let mut listener = |event| {
            if let ServiceEvent::Stats(stats) = &event {
                *counted.lock().unwrap_or_else(PoisonError::into_inner) = S::clone(stats);
            }
            match event {
                ServiceEvent::Listening(addresses) if args.json => {
                    json::put("listening", &ListeningLine { node: place.node_name(), addresses });
                }
                ServiceEvent::Listening(addresses) => {
                    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
                    let (node, domain) = (place.node_name(), &place.domain().name);
                    say(&format!("{node} of {domain} listens on {}", addresses.join(", ")));
                }
                ServiceEvent::Notice(text) if args.json => json::put("notice", &NoticeLine { text }),
                ServiceEvent::Notice(text) => say(&text),
                ServiceEvent::Stats(stats) if args.json => json::put("stats", &*stats),
                // Without JSON, counters are shown on a terminal only, when they have changed.
                ServiceEvent::Stats(stats) => {
                    let now = line(&stats);
                    if !args.quiet && can_redraw() && now != last {
                        say(&now);
                        last = now;
                    }
                }
                _ => {}
            }
            Control::Continue
        };
        Ok(member(&place, &stop, &mut listener)?)
    });
    let failure = done.as_ref().err();
    if args.json {
        json::put("summary", &Summary { stats: done.as_ref().ok(), end: End::new(failure) });
    } else if let Ok(stats) = &done
        && !args.quiet
    {
        say(&line(stats));
    }
    done.map(drop)
}
