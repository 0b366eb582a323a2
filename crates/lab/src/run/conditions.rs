//! Whether a run was what the scenario says it is.

use super::Log;
use super::build::World;
use crate::scenario::{Assert, Condition, Scenario};

/// The conditions that were not met: those of the scenario, those that its faults imply, and what must always
/// hold.
pub(super) fn faults(scenario: &Scenario, controller: &str, world: &World, log: &Log) -> Vec<String> {
    let mut faults = world.swarm.violations();
    faults.extend(world.swarm.crowd().violations());
    implied(scenario, world, &mut faults);
    let applies = |assert: &&Assert| {
        assert.controllers.is_empty() || assert.controllers.iter().any(|name| name == controller)
    };
    for assert in scenario.assert.iter().filter(applies) {
        let before = faults.len();
        for (what, value) in seen(scenario, world, log, assert) {
            let least = assert.at_least.is_none_or(|least| value >= least);
            let most = assert.at_most.is_none_or(|most| value <= most);
            // Not a number is not met.
            if !(least && most) && faults.len() == before {
                let bound = |word: &str, bound: Option<f64>| bound.map(|b| format!(", {word} {b} wanted"));
                faults.push(format!(
                    "{what}: {value:.3}{}{}",
                    bound("at least", assert.at_least).unwrap_or_default(),
                    bound("at most", assert.at_most).unwrap_or_default()
                ));
            }
        }
    }
    faults
}

/// A fault that was asked for must have happened.
fn implied(scenario: &Scenario, world: &World, faults: &mut Vec<String>) {
    for (name, link) in &scenario.link {
        let stats = world.swarm.stats(world.links[name]);
        let mut never = |what: &str, asked: bool, happened: u64| {
            if asked && happened == 0 {
                faults.push(format!("link {name}: {what} was asked for and never happened"));
            }
        };
        let later = scenario.fault.iter().filter(|fault| fault.link.as_ref() == Some(name));
        let loses =
            link.loss > 0.0 || link.gilbert.is_some() || later.filter_map(|f| f.loss).any(|p| p > 0.0);
        never("random loss", loses, stats.dropped.loss);
        never("duplication", link.duplicate > 0.0, stats.duplicated);
        never("reordering", link.reorder > 0.0, stats.reordered);
        never("a congestion event with chosen victims", link.victims.is_some(), stats.congestions);
        if stats.script_left > 0 {
            let scripted = (link.drop.len() + link.drop_of.len()) as u64;
            let came = scripted.saturating_sub(stats.script_left);
            faults.push(format!("link {name}: {came} of the {scripted} packets to drop came by"));
        }
    }
    for flow in &world.flows {
        if world.began_and_ended(flow).0.is_none() {
            faults.push(format!("flow {} never started", flow.name));
        }
    }
}

/// What a condition is about, and what was seen of it.
fn seen(scenario: &Scenario, world: &World, log: &Log, assert: &Assert) -> Vec<(String, f64)> {
    let link = |f: &dyn Fn(&str) -> f64, what: &str| -> Vec<(String, f64)> {
        assert.link.iter().map(|name| (format!("link {name}: {what}"), f(name))).collect()
    };
    let stats = |name: &str| world.swarm.stats(world.links[name]);
    let flows =
        || world.flows.iter().enumerate().filter(|(_, flow)| Some(&flow.base) == assert.flow.as_ref());
    let (before, after) = (log.note(scenario.count_from.time()), log.note(scenario.duration.time()));
    let secs = after.at.since(before.at).as_nanos() as f64 / 1e9;
    match assert.what {
        Condition::Drops => {
            link(&|name| stats(name).dropped.congestion() as f64, "packets dropped by the queue")
        }
        Condition::Losses => {
            let lost = |name: &str| (stats(name).dropped.loss + stats(name).dropped.script) as f64;
            link(&lost, "packets lost at random or by script")
        }
        Condition::Marks => link(&|name| stats(name).marked as f64, "packets marked"),
        Condition::QueueMax => {
            let most = |name: &str| stats(name).queue_max_bytes as f64 / world.packet_bytes as f64;
            link(&most, "longest queue in packets")
        }
        Condition::Utilisation => {
            let used = |name: &str| {
                let i = world.links.keys().position(|key| key == name).expect("checked: it exists");
                let carried = after.links[i].delivered_bytes - before.links[i].delivered_bytes;
                let rate = scenario.link[name].rate.map(|rate| rate.rate(world.packet_bytes).as_bytes());
                100.0 * carried as f64 / secs / rate.unwrap_or(0) as f64
            };
            link(&used, "percent of its rate used")
        }
        Condition::Rtt => flows()
            .flat_map(|(_, flow)| {
                let srtts = world.srtts(flow).into_iter().enumerate();
                srtts.map(|(p, srtt)| {
                    (format!("flow {}, path {p}: RTT in ms", flow.name), srtt.as_nanos() as f64 / 1e6)
                })
            })
            .collect(),
        Condition::Timeouts => flows()
            .map(|(_, flow)| (format!("flow {}: timeouts", flow.name), world.timeouts(flow) as f64))
            .collect(),
        Condition::Goodput => flows()
            .map(|(f, flow)| {
                let of = |note: &super::Note| note.bytes[f].iter().sum::<u64>();
                let rate = (of(after) - of(before)) as f64 * 8.0 / 1e6 / secs;
                (format!("flow {}: goodput in Mbit/s", flow.name), rate)
            })
            .collect(),
    }
}
