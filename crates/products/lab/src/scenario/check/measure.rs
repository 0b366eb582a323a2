//! Checks measures and conditions: the keys that each kind needs, and the expected ranges.

use anabranch_algo::Span;

use super::super::error::ScenarioError;
use super::super::notes::{KERNEL_PREFIX, Range, RangeError};
use super::super::units::seeds;
use super::super::{Assert, Condition, Measure, MeasureKind, Scenario, Statistic};
use super::needs::Reference;
use super::{Checked, MEASURES_MAX, SEEDS_MAX, ensure};
use crate::hint::missing;

/// Checks all measures and conditions.
pub(super) fn check(scenario: &Scenario) -> Checked {
    let count = scenario.measure.len();
    ensure(count <= MEASURES_MAX, "measure", || format!("more than {MEASURES_MAX} measures"))?;
    for (index, measure) in scenario.measure.iter().enumerate() {
        let key = format!("measure.{index}");
        let (name, before) = (&measure.metric, &scenario.measure[..index]);
        ensure(!name.is_empty(), format!("{key}.metric"), || "a row needs a name".into())?;
        ensure(before.iter().all(|other| other.metric != *name), format!("{key}.metric"), || {
            format!("there are two measures `{name}`")
        })?;
        subject(scenario, measure, &key)?;
        window(scenario, measure, &key)?;
        statistic(measure, &key)?;
        notes(scenario, measure, &key)?;
    }
    for (index, condition) in scenario.assert.iter().enumerate() {
        asserted(scenario, condition, &format!("assert.{index}"))?;
    }
    Ok(())
}

/// Checks the flows, paths and links that are measured.
fn subject(scenario: &Scenario, measure: &Measure, key: &str) -> Checked {
    let at = |field: &str| format!("{key}.{field}");
    let needs = measure.kind.needs();
    let (has, lacks) = if needs.flows { ("flows", "links") } else { ("links", "flows") };
    let (own, other) = match needs.flows {
        true => (&measure.flows, &measure.links),
        false => (&measure.links, &measure.flows),
    };
    ensure(other.is_empty(), at(lacks), || format!("this kind is about `{has}`"))?;
    ensure(!needs.named || !own.is_empty() || (needs.flows && !measure.paths.is_empty()), key, || {
        format!("which? `{has} = [\"…\"]`")
    })?;
    for (index, name) in measure.flows.iter().enumerate() {
        scenario.flow_of(name, at(&format!("flows.{index}")))?;
    }
    for (index, name) in measure.links.iter().enumerate() {
        has_rate(scenario, name, at(&format!("links.{index}")), needs.rates)?;
    }
    let traces = measure.links.iter().filter(|name| scenario.link[*name].trace.is_some()).count();
    let alike = traces == 0 || traces == measure.links.len();
    ensure(measure.kind != MeasureKind::Queue || alike, at("links"), || {
        "the queue of a link with a trace is the time that packets stay, that of others is in time of their \
         rate: measure them apart"
            .into()
    })?;
    for (index, name) in measure.of.iter().enumerate() {
        let key = at(&format!("of.{index}"));
        match needs.of {
            Reference::Flows => drop(scenario.flow_of(name, key)?),
            Reference::Links => has_rate(scenario, name, key, needs.rates)?,
            Reference::Nothing => {
                return Err(ScenarioError::at(at("of"), "this kind is in proportion to nothing"));
            }
        }
    }
    ensure(needs.of != Reference::Links || !measure.of.is_empty(), at("of"), || "of which links?".into())?;
    let flows = || match measure.flows.is_empty() {
        true => scenario.flow.iter().collect::<Vec<_>>(),
        false => scenario.flow.iter().filter(|(name, _)| measure.flows.contains(name)).collect(),
    };
    if !measure.paths.is_empty() {
        ensure(needs.flows, at("paths"), || "paths are of flows, and this kind is about links".into())?;
        for (index, path) in measure.paths.iter().enumerate() {
            for (name, flow) in flows() {
                flow.has_path(name, *path, at(&format!("paths.{index}")))?;
            }
        }
    }
    if needs.sizes {
        let endless = flows().into_iter().find(|(_, flow)| !flow.is_finite());
        ensure(endless.is_none(), at("flows"), || {
            let name = endless.map_or("", |(name, _)| name);
            format!("flow `{name}` has no `size` and so never completes")
        })?;
    }
    Ok(())
}

fn has_rate(scenario: &Scenario, name: &str, key: String, needed: bool) -> Checked {
    let link = scenario.link_of(name, key.clone())?;
    ensure(!needed || link.is_limited(), key, || {
        format!("link `{name}` has no `rate` or `trace` to compare with")
    })
}

/// Checks the counted time, and the case to compare with.
fn window(scenario: &Scenario, measure: &Measure, key: &str) -> Checked {
    let at = |field: &str| format!("{key}.{field}");
    let from = measure.from.unwrap_or(scenario.count_from);
    let until = measure.until.unwrap_or(scenario.duration);
    ensure(until <= scenario.duration, at("until"), || {
        format!("{until} is after the end ({})", scenario.duration)
    })?;
    let field = if measure.until.is_some() { "until" } else { "from" };
    ensure(from < until, at(field), || format!("from {from} until {until} there is nothing to count"))?;
    if let Some(mean) = measure.mean {
        ensure(measure.kind.needs().mean, at("mean"), || "only `converged` averages over it".into())?;
        ensure(mean.0 > Span::ZERO, at("mean"), || "it takes some time".into())?;
    }
    if let Some(versus) = &measure.versus {
        let cases = || scenario.case.iter().map(|case| case.name.as_str());
        ensure(cases().any(|name| name == versus), at("versus"), || missing("case", versus, cases()))?;
    }
    Ok(())
}

/// Checks the statistic and the seeds.
fn statistic(measure: &Measure, key: &str) -> Checked {
    let at = |field: &str| format!("{key}.{field}");
    let pooled = measure.statistic == Statistic::Pooled;
    ensure(!pooled || measure.kind == MeasureKind::Converged, at("statistic"), || {
        "only `converged` is known of all runs together".into()
    })?;
    let spreads = matches!(measure.statistic, Statistic::Variance | Statistic::Pooled);
    ensure(measure.versus.is_none() || !spreads, at("statistic"), || {
        "a difference to another case is a mean".into()
    })?;
    match measure.seeds.as_ref().map(|text| seeds(text, SEEDS_MAX)) {
        Some(Err(what)) => Err(ScenarioError::at(at("seeds"), what)),
        _ => Ok(()),
    }
}

/// Checks the values of the source, the expected ranges and the reasons.
fn notes(scenario: &Scenario, measure: &Measure, key: &str) -> Checked {
    let keys = [
        ("paper", measure.paper.keys().collect::<Vec<_>>()),
        ("model", measure.model.keys().collect()),
        ("expect", measure.expect.keys().collect()),
        ("why", measure.why.keys().collect()),
    ];
    for (field, keys) in keys {
        for whose in keys {
            refers(scenario, whose)
                .map_err(|what| ScenarioError::at(format!("{key}.{field}.{whose}"), what))?;
        }
    }
    for (field, values) in [("paper", &measure.paper), ("model", &measure.model)] {
        if let Some((whose, value)) = values.iter().find(|(_, value)| !value.is_finite()) {
            return Err(ScenarioError::at(format!("{key}.{field}.{whose}"), format!("{value} is no number")));
        }
    }
    for (whose, range) in &measure.expect {
        let wrong = |e: RangeError| ScenarioError::at(format!("{key}.expect.{whose}"), e);
        range.parse::<Range>().map_err(wrong)?;
    }
    Ok(())
}

/// Checks that `whose` is `CASE/CONTROLLER`, `CASE`, `CONTROLLER` or `*`, with or without the kernel's
/// prefix.
fn refers(scenario: &Scenario, whose: &str) -> Result<(), String> {
    let whose = whose.strip_prefix(KERNEL_PREFIX).unwrap_or(whose);
    let cases = || scenario.case.iter().map(|case| case.name.as_str());
    let known = &scenario.controllers.known;
    let is_case = |name: &str| cases().any(|case| case == name);
    if whose == "*" || is_case(whose) || known.check(whose).is_ok() {
        return Ok(());
    }
    match whose.split_once('/') {
        Some((case, _)) if !is_case(case) => Err(missing("case", case, cases())),
        Some((_, name)) => known.check(name),
        None => {
            let names = cases().chain(scenario.controllers.iter().map(String::as_str));
            Err(missing("case or controller", whose, names))
        }
    }
}

fn asserted(scenario: &Scenario, condition: &Assert, key: &str) -> Checked {
    let at = |field: &str| format!("{key}.{field}");
    let of_link = match condition.what {
        Condition::Drops
        | Condition::Losses
        | Condition::Marks
        | Condition::Utilisation
        | Condition::QueueMax => true,
        Condition::Rtt | Condition::Timeouts | Condition::Goodput => false,
    };
    for (i, name) in condition.controllers.iter().enumerate() {
        scenario.controller(name, format!("{key}.controllers.{i}"))?;
    }
    match (&condition.link, &condition.flow) {
        (Some(link), None) if of_link => {
            has_rate(scenario, link, at("link"), condition.what == Condition::Utilisation)?;
        }
        (None, Some(name)) if !of_link => {
            let flow = scenario.flow_of(name, at("flow"))?;
            condition.path.map_or(Ok(()), |path| flow.has_path(name, path, at("path")))?;
        }
        _ if of_link => {
            return Err(ScenarioError::at(key, "this is about a link: name it (`link`), and no flow"));
        }
        _ => return Err(ScenarioError::at(key, "this is about a flow: name it (`flow`), and no link")),
    }
    let of_paths = matches!(condition.what, Condition::Rtt | Condition::Goodput);
    ensure(of_paths || condition.path.is_none(), at("path"), || {
        "only `rtt` and `goodput` are known of one path: leave `path` out".into()
    })?;
    match (condition.at_least, condition.at_most) {
        (None, None) => Err(ScenarioError::at(key, "say `at_least` or `at_most`")),
        (Some(least), Some(most)) if least > most => Err(ScenarioError::at(
            at("at_least"),
            format!("{least} is more than {most}, which it is `at_most`"),
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::broken;

    #[test]
    fn measures_have_what_they_need() {
        for (from, to, said) in [
            ("flows = [\"mp\"]", "", "measure.0: which? `flows"),
            ("flows = [\"mp\"]", "flows = [\"pm\"]", "no flow `pm`: did you mean `mp`?"),
            ("flows = [\"mp\"]", "flows = [\"mp\"]\npaths = [2]", "flow `mp` has no path 2"),
            ("flows = [\"mp\"]", "flows = [\"mp\"]\nof = [\"other\"]", "measure.0.of.0: there is no flow"),
            ("flows = [\"mp\"]", "flows = [\"mp\"]\nlinks = [\"other\"]", "this kind is about `flows`"),
            ("flows = [\"sp\"]", "flows = [\"mp\"]", "flow `mp` has no `size`"),
            ("kind = \"share\"", "kind = \"of_rate\"", "measure.0.of: of which links?"),
            ("kind = \"share\"", "kind = \"jain\"\nof = [\"mp\"]", "in proportion to nothing"),
            ("links = [\"bottleneck\"]", "", "which? `links"),
            ("until = \"40 s\"", "until = \"61 s\"", "is after the end"),
            ("until = \"40 s\"", "until = \"30 s\"", "nothing to count"),
            ("versus = \"slow\"", "versus = \"slwo\"", "no case `slwo`: did you mean `slow`?"),
            ("metric = \"gain\"", "metric = \"loss\"", "two measures `loss`"),
            (
                "versus = \"slow\"",
                "versus = \"slow\"\nstatistic = \"variance\"",
                "measure.1.statistic: a diff",
            ),
            ("kind = \"share\"", "kind = \"share\"\nstatistic = \"pooled\"", "only `converged` is known"),
            (
                "kind = \"share\"",
                "kind = \"share\"\nseeds = \"few\"",
                "measure.0.seeds: 'few' names no seeds",
            ),
            ("reno = \"97..\"", "reno = \"97\"", "measure.0.expect.reno: \"97\" is no range"),
            ("\"slow/nmcc\"", "\"slwo/nmcc\"", "no case `slwo`"),
            ("\"slow/nmcc\"", "\"slow/nmc\"", "no controller `nmc`"),
            ("paper = { nmcc = 50 }", "paper = { nmc = 50 }", "did you mean `nmcc`?"),
            ("paper = { nmcc = 50 }", "paper = { nmcc = nan }", "is no number"),
        ] {
            let what = broken(from, to);
            assert!(what.contains(said), "{to}: {what}");
        }
    }

    #[test]
    fn conditions_have_what_they_need() {
        for (from, to, said) in [
            (
                "what = \"drops\"\n        link",
                "what = \"drops\"\n        flow",
                "assert.0: this is about a link",
            ),
            ("what = \"rtt\"", "what = \"drops\"", "assert.1: this is about a link"),
            (
                "what = \"rtt\"\n        flow = \"mp\"",
                "what = \"rtt\"\n        flow = \"pm\"",
                "did you mean `mp`",
            ),
            ("at_least = 49", "at_least = 49\npath = 2", "assert.1.path: flow `mp` has no path 2: they are"),
            ("at_least = 49", "at_least = 49\npath = \"1\"", "assert.1.path: \"1\" should be a number"),
            ("at_least = 10\n", "at_least = 10\npath = 0\n", "assert.0.path: only `rtt` and `goodput` are"),
            ("at_least = 10\n", "\n", "say `at_least` or `at_most`"),
            ("at_most = 120", "at_most = 12", "49 is more than 12"),
        ] {
            let what = broken(from, to);
            assert!(what.contains(said), "{to}: {what}");
        }
    }
}
