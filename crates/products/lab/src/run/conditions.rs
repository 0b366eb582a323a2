//! Checks whether a run was as the scenario describes it.

use crate::observations::{Observations, ObservedFlow};
use crate::scenario::{Assert, Condition, Scenario};

/// Returns the conditions that were not met: those of the scenario, those that its faults imply, and
/// invariants.
pub(super) fn violations(scenario: &Scenario, controller: &str, observations: &Observations) -> Vec<String> {
    let mut violations = observations.violations.clone();
    implied(scenario, observations, &mut violations);
    let applies = |assert: &&Assert| {
        assert.controllers.is_empty() || assert.controllers.iter().any(|name| name == controller)
    };
    for assert in scenario.assert.iter().filter(applies) {
        let before = violations.len();
        for (what, value) in of(scenario, observations, assert) {
            let least = assert.at_least.is_none_or(|least| value >= least);
            let most = assert.at_most.is_none_or(|most| value <= most);
            // A value that is not a number does not meet the condition.
            if !(least && most) && violations.len() == before {
                let bound = |word: &str, bound: Option<f64>| bound.map(|b| format!(", {word} {b} wanted"));
                violations.push(format!(
                    "{what}: {value:.3}{}{}",
                    bound("at least", assert.at_least).unwrap_or_default(),
                    bound("at most", assert.at_most).unwrap_or_default()
                ));
            }
        }
    }
    violations
}

/// Checks that each requested fault has happened.
fn implied(scenario: &Scenario, observations: &Observations, violations: &mut Vec<String>) {
    for ((name, link), stats) in scenario.link.iter().zip(&observations.last().links) {
        let mut never = |what: &str, asked: bool, happened: u64| {
            if asked && happened == 0 {
                violations.push(format!("link {name}: {what} was asked for and never happened"));
            }
        };
        let later = scenario.fault.iter().filter(|fault| fault.link.as_ref() == Some(name));
        let loses =
            link.loss > 0.0 || link.gilbert.is_some() || later.filter_map(|f| f.loss).any(|p| p > 0.0);
        // An explicit condition on losses replaces this one: if losses are rare, zero may be right.
        let own = |assert: &Assert| assert.what == Condition::Losses && assert.link.as_ref() == Some(name);
        let loses = loses && !scenario.assert.iter().any(own);
        never("random loss", loses, stats.dropped.loss);
        never("duplication", link.duplicate > 0.0, stats.duplicated);
        never(
            "reordering",
            link.reorder.as_ref().is_some_and(|reorder| reorder.probability > 0.0),
            stats.reordered,
        );
        never("a congestion event with chosen victims", link.queueing.victims.is_some(), stats.congestions);
        if stats.scripted_left > 0 {
            let scripted = (link.drop.len() + link.drop_of.len()) as u64;
            let came = scripted.saturating_sub(stats.scripted_left);
            violations.push(format!("link {name}: {came} of the {scripted} packets to drop came by"));
        }
    }
    for flow in &observations.flows {
        if flow.end.transfers.is_empty() {
            violations.push(format!("flow {} never started", flow.name));
        }
    }
}

/// Returns the names and values of the quantities that a condition is about.
fn of(scenario: &Scenario, observations: &Observations, assert: &Assert) -> Vec<(String, f64)> {
    let window = observations.window(scenario, scenario.count_from.time(), scenario.duration.time());
    let stats = || {
        let place = assert.link.as_ref().and_then(|name| scenario.link.keys().position(|key| key == name));
        place.map(|i| observations.last().links[i]).unwrap_or_default()
    };
    let link = |what: &str, value: f64| -> Vec<(String, f64)> {
        assert.link.iter().map(|name| (format!("link {name}: {what}"), value)).collect()
    };
    let flows =
        || observations.flows.iter().enumerate().filter(|(_, flow)| Some(&flow.base) == assert.flow.as_ref());
    let place = |flow: &ObservedFlow, path: Option<usize>| match path {
        Some(path) => format!("flow {}, path {path}", flow.name),
        None => format!("flow {}", flow.name),
    };
    match assert.what {
        Condition::Drops => link("packets dropped by the queue", stats().dropped.congestion() as f64),
        Condition::Losses => {
            let dropped = stats().dropped;
            link("packets lost at random or by script", (dropped.loss + dropped.scripted) as f64)
        }
        Condition::Marks => link("packets marked", stats().marked as f64),
        Condition::QueueMax => {
            let most = stats().queue_max_bytes as f64 / observations.packet_bytes as f64;
            link("longest queue in packets", most)
        }
        Condition::Utilisation => {
            link("percent of its rate used", window.utilisation(assert.link.as_slice()))
        }
        Condition::Rtt => flows()
            .flat_map(|(_, flow)| {
                let srtts = flow.end.srtts.iter().enumerate();
                let asked = srtts.filter(|(p, _)| assert.path.is_none_or(|path| path == *p));
                asked.map(move |(p, srtt)| {
                    (format!("{}: RTT in ms", place(flow, Some(p))), srtt.as_nanos() as f64 / 1e6)
                })
            })
            .collect(),
        Condition::Timeouts => flows()
            .map(|(_, flow)| (format!("{}: timeouts", place(flow, None)), flow.end.timeouts as f64))
            .collect(),
        Condition::Goodput => flows()
            .map(|(f, flow)| {
                let rate = window.goodput_of(f, assert.path.as_slice()) * 8.0 / 1e6;
                (format!("{}: goodput in Mbit/s", place(flow, assert.path)), rate)
            })
            .collect(),
    }
}
