//! Measures and conditions: what each kind needs, and where a value is expected.

use std::fmt;
use std::str::FromStr;

use algo::Span;

use super::super::error::{ScenarioError, hint};
use super::super::{Assert, Condition, Measure, MeasureKind, Scenario};
use super::{Checked, MEASURES_MAX, controller, ensure, no_path};
use crate::table::KERNEL_PREFIX;

/// Where a value is expected, ends included: `"47..53"`, `"97.."`, `"..3"`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// At least this.
    pub low: f64,
    /// At most this.
    pub high: f64,
}

/// A text that is no range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeError(String);

impl fmt::Display for RangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\" is no range: write \"47..53\", \"97..\" or \"..3\"", self.0)
    }
}
impl std::error::Error for RangeError {}

impl Range {
    /// Whether `value` is there.
    #[must_use]
    pub fn contains(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }
}

impl FromStr for Range {
    type Err = RangeError;
    fn from_str(text: &str) -> Result<Self, RangeError> {
        let wrong = || RangeError(text.into());
        let (low, high) = text.split_once("..").ok_or_else(wrong)?;
        let end = |text: &str, open: f64| match text.trim() {
            "" => Ok(open),
            number => number.parse::<f64>().ok().filter(|n| n.is_finite()).ok_or_else(wrong),
        };
        let range = Self { low: end(low, f64::NEG_INFINITY)?, high: end(high, f64::INFINITY)? };
        let open = range.low.is_infinite() && range.high.is_infinite();
        if open || range.low > range.high { Err(wrong()) } else { Ok(range) }
    }
}

/// What a kind of measure needs.
struct Needs {
    /// It is about flows; otherwise about links.
    flows: bool,
    /// They must be named; otherwise "all" makes sense.
    named: bool,
    /// `of` may be: flows, links, nothing.
    of: Reference,
    /// The links must have a rate.
    rates: bool,
}

#[derive(PartialEq)]
enum Reference {
    Flows,
    Links,
    Nothing,
}

const fn needs(kind: MeasureKind) -> Needs {
    let (flows, named, of, rates) = match kind {
        MeasureKind::Share => (true, true, Reference::Flows, false),
        MeasureKind::OfRate => (true, false, Reference::Links, true),
        MeasureKind::Utilisation => (false, true, Reference::Nothing, true),
        MeasureKind::Loss | MeasureKind::Queue => (false, true, Reference::Nothing, false),
        MeasureKind::LossRatio => (false, true, Reference::Links, false),
        MeasureKind::Goodput
        | MeasureKind::Packets
        | MeasureKind::SpreadFastest
        | MeasureKind::SpreadMean
        | MeasureKind::Jain
        | MeasureKind::Completion
        | MeasureKind::Grouped
        | MeasureKind::WrongSplit
        | MeasureKind::WrongMerge
        | MeasureKind::FactorM => (true, false, Reference::Nothing, false),
        MeasureKind::Converged => (true, true, Reference::Nothing, false),
    };
    Needs { flows, named, of, rates }
}

/// All measures and conditions.
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
        notes(scenario, measure, &key)?;
    }
    for (index, condition) in scenario.assert.iter().enumerate() {
        asserted(scenario, condition, &format!("assert.{index}"))?;
    }
    Ok(())
}

/// Of what it is measured.
fn subject(scenario: &Scenario, measure: &Measure, key: &str) -> Checked {
    let at = |field: &str| format!("{key}.{field}");
    let needs = needs(measure.kind);
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
                let key = at(&format!("paths.{index}"));
                ensure(*path < flow.paths.len(), key, || no_path(*path, name, flow))?;
            }
        }
    }
    if measure.kind == MeasureKind::Completion {
        let endless = flows().into_iter().find(|(_, flow)| flow.size.is_none());
        ensure(endless.is_none(), at("flows"), || {
            let name = endless.map_or("", |(name, _)| name);
            format!("flow `{name}` has no `size` and so never completes")
        })?;
    }
    Ok(())
}

fn has_rate(scenario: &Scenario, name: &str, key: String, needed: bool) -> Checked {
    let link = scenario.link_of(name, key.clone())?;
    ensure(!needed || link.rate.is_some() || link.trace.is_some(), key, || {
        format!("link `{name}` has no `rate` to compare with")
    })
}

/// When, and compared with what.
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
        ensure(measure.kind == MeasureKind::Converged, at("mean"), || {
            "only `converged` averages over it".into()
        })?;
        ensure(mean.0 > Span::ZERO, at("mean"), || "it takes some time".into())?;
    }
    if let Some(versus) = &measure.versus {
        let cases = || scenario.case.iter().map(|case| case.name.as_str());
        ensure(cases().any(|name| name == versus), at("versus"), || {
            format!("there is no case `{versus}`{}", hint(versus, cases()))
        })?;
    }
    Ok(())
}

/// What the source reports, what is expected, and why it differs.
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

/// Whether `whose` is `CASE/CONTROLLER`, `CASE`, `CONTROLLER` or `*`, perhaps in the kernel.
fn refers(scenario: &Scenario, whose: &str) -> Result<(), String> {
    let whose = whose.strip_prefix(KERNEL_PREFIX).unwrap_or(whose);
    let cases = || scenario.case.iter().map(|case| case.name.as_str());
    let is_case = |name: &str| cases().any(|case| case == name);
    if whose == "*" || is_case(whose) || controller(whose).is_ok() {
        return Ok(());
    }
    match whose.split_once('/') {
        Some((case, _)) if !is_case(case) => Err(format!("there is no case `{case}`{}", hint(case, cases()))),
        Some((_, name)) => controller(name),
        None => {
            let names = cases().chain(scenario.controllers.iter().map(String::as_str));
            Err(format!("there is no case or controller `{whose}`{}", hint(whose, names)))
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
        let key = format!("{key}.controllers.{i}");
        controller(name).map_err(|what| ScenarioError::at(key, what))?;
    }
    match (&condition.link, &condition.flow) {
        (Some(link), None) if of_link => {
            has_rate(scenario, link, at("link"), condition.what == Condition::Utilisation)?;
        }
        (None, Some(flow)) if !of_link => drop(scenario.flow_of(flow, at("flow"))?),
        _ if of_link => {
            return Err(ScenarioError::at(key, "this is about a link: name it (`link`), and no flow"));
        }
        _ => return Err(ScenarioError::at(key, "this is about a flow: name it (`flow`), and no link")),
    }
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
    use super::*;

    #[test]
    fn ranges() {
        assert_eq!("47..53".parse(), Ok(Range { low: 47.0, high: 53.0 }));
        assert_eq!("-0.5 .. 1e3".parse(), Ok(Range { low: -0.5, high: 1e3 }));
        let range: Range = "97..".parse().expect("a range");
        assert!(range.contains(97.0) && range.contains(1e9) && !range.contains(96.9));
        assert!("..3".parse::<Range>().expect("a range").contains(-7.0));
        for text in ["", "..", "3", "5..4", "a..b", "1...", "nan..", "1..inf"] {
            assert!(text.parse::<Range>().is_err(), "{text}");
        }
    }

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
            ("at_least = 10\n", "\n", "say `at_least` or `at_most`"),
            ("at_most = 120", "at_most = 12", "49 is more than 12"),
        ] {
            let what = broken(from, to);
            assert!(what.contains(said), "{to}: {what}");
        }
    }
}
