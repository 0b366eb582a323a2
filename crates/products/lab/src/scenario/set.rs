//! Changes values of a scenario or removes keys: `--set KEY=VALUE`, and the `set` and `remove` of a case.
//!
//! Only scenarios that run are checked: not a scenario without its cases if it has some, and not cases that
//! were not chosen.

use toml::{Table, Value};

use super::error::ScenarioError;
use super::load::{known, verify};
use super::schema::{SchemaNode, schema_at};
use super::{Case, Scenario};
use crate::hint::{hint, missing};

impl Scenario {
    /// Gives the dotted `key` (`link.c.rate`, `flow.mp.paths.0.rtt`) another value, written as in TOML. A
    /// text that is not a TOML value is taken as a string: `250 pkt/s`. The result is not
    /// [checked](Self::check).
    ///
    /// # Errors
    /// If there is no such key; the error names the nearest. If the value makes no sense there.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), ScenarioError> {
        let steps: Vec<&str> = key.split('.').collect();
        let value = match (literal(value), schema_at(&steps)) {
            // A key that needs a string gets one, even if the text looks like a number.
            (Some(Value::String(text)), _) => Value::String(text),
            (_, Some(SchemaNode::Text | SchemaNode::Word(_))) | (None, _) => {
                Value::String(value.trim().into())
            }
            (Some(value), _) => value,
        };
        self.put(&[(key.into(), value)])
    }

    /// Returns the variants of this scenario: each case with its name, or the scenario itself if it has no
    /// cases. They have the measures and conditions of all cases ([`for_case`](Self::for_case) selects those
    /// of one), and are not [checked](Self::check).
    ///
    /// # Errors
    /// If a case sets or removes a key that does not exist, or its value makes no sense there.
    pub fn cases(&self) -> Result<Vec<(Option<String>, Self)>, ScenarioError> {
        self.cases_of(None)
    }

    /// Returns the variants that run if only the case `only` is chosen: this case, and those that it is
    /// compared with.
    ///
    /// # Errors
    /// If [`cases`](Self::cases) fails, or there is no such case.
    pub fn cases_of(&self, only: Option<&str>) -> Result<Vec<(Option<String>, Self)>, ScenarioError> {
        let names = || self.case.iter().map(|case| case.name.as_str());
        if let Some(case) = only.filter(|case| !names().any(|name| name == *case)) {
            return Err(ScenarioError::of("case", missing("case", case, names())));
        }
        if self.case.is_empty() {
            return Ok(vec![(None, self.clone())]);
        }
        let versus = |name: &str| self.measure.iter().any(|m| m.versus.as_deref() == Some(name));
        let runs = |case: &Case| only.is_none_or(|only| case.name == only || versus(&case.name));
        let cases = self.case.iter().enumerate().filter(|(_, case)| runs(case));
        cases.map(|(index, case)| Ok((Some(case.name.clone()), self.variant(index, case)?))).collect()
    }

    fn variant(&self, index: usize, case: &Case) -> Result<Self, ScenarioError> {
        let (mut sets, mut scenario) = (Vec::new(), self.clone());
        flatten(&case.set, "", &mut sets);
        let at = |field: &'static str| {
            move |e: ScenarioError| {
                let key = format!("case.{index}.{field}.{}", e.key);
                ScenarioError { key, ..e.in_case(&case.name) }
            }
        };
        scenario.remove(&case.remove).map_err(at("remove"))?;
        scenario.put(&sets).map_err(at("set"))?;
        Ok(scenario)
    }

    /// Removes the measures and conditions that do not apply to this case.
    #[must_use]
    pub fn for_case(mut self, case: Option<&str>) -> Self {
        let has = |cases: &[String]| cases.is_empty() || cases.iter().any(|name| Some(name.as_str()) == case);
        self.measure.retain(|measure| has(&measure.cases));
        self.assert.retain(|assert| has(&assert.cases));
        self
    }

    /// [Checks](Self::check) the variants that run if only the case `only` is chosen; without a name, all
    /// variants.
    ///
    /// # Errors
    /// If something makes no sense; the error is the first one found.
    pub fn check_cases(&self, only: Option<&str>) -> Result<(), ScenarioError> {
        self.check_references()?;
        // An error of the scenario itself must not be reported as an error of a case.
        let plain = self.check().err();
        for (case, scenario) in self.cases_of(only)? {
            scenario.for_case(case.as_deref()).check().map_err(|error| match case {
                Some(case) if plain.as_ref() != Some(&error) => error.in_case(&case),
                _ => error,
            })?;
        }
        Ok(())
    }

    /// Checks that the cases that measures and conditions name exist.
    fn check_references(&self) -> Result<(), ScenarioError> {
        let names = || self.case.iter().map(|case| case.name.as_str());
        let measures = self.measure.iter().map(|measure| &measure.cases).enumerate();
        let measures = measures.map(|(index, cases)| (format!("measure.{index}"), cases));
        let asserts = self.assert.iter().map(|assert| &assert.cases).enumerate();
        let asserts = asserts.map(|(index, cases)| (format!("assert.{index}"), cases));
        for (key, cases) in measures.chain(asserts) {
            if let Some(place) = cases.iter().position(|case| names().all(|name| name != case)) {
                let what = missing("case", &cases[place], names());
                return Err(ScenarioError::at(format!("{key}.cases.{place}"), what));
            }
        }
        Ok(())
    }

    /// Removes keys, all of which must exist; a key with a default gets the default again.
    ///
    /// # Errors
    /// If a key does not exist, or the rest makes no sense without it.
    fn remove(&mut self, keys: &[String]) -> Result<(), ScenarioError> {
        if keys.is_empty() {
            return Ok(());
        }
        let table = Table::try_from(&*self).map_err(|e| ScenarioError::of("", e.to_string()))?;
        let mut root = Value::Table(table);
        keys.iter().try_for_each(|key| take(&mut root, key))?;
        let said = |e: toml::de::Error| e.message().trim().replace("missing field", "missing key");
        let mut new: Self = root.try_into().map_err(|e| ScenarioError::at(&keys[0], said(e)))?;
        new.keep(self);
        *self = new;
        Ok(())
    }

    /// Keeps the controllers of `old`, and the traces that it has already read.
    fn keep(&mut self, old: &Self) {
        self.controllers.known = old.controllers.known.clone();
        for (name, link) in &mut self.link {
            let old = old.link.get(name).and_then(|old| old.trace.as_ref());
            if let (Some(trace), Some(old)) = (&mut link.trace, old)
                && trace == old
            {
                *trace = old.clone();
            }
        }
    }

    fn put(&mut self, sets: &[(String, Value)]) -> Result<(), ScenarioError> {
        if sets.is_empty() {
            return Ok(());
        }
        let table = Table::try_from(&*self).map_err(|e| ScenarioError::of("", e.to_string()))?;
        let mut root = Value::Table(table);
        for (key, value) in sets {
            place(&mut root, key, value.clone())?;
            let steps: Vec<&str> = key.split('.').collect();
            verify(value, &steps)?;
        }
        let mut new: Self = root.try_into().map_err(|all| self.blame(sets, &all))?;
        new.keep(self);
        *self = new;
        Ok(())
    }

    /// Returns the error for the wrong one of `sets`: the first without which the others work, or else
    /// `all`.
    fn blame(&self, sets: &[(String, Value)], all: &toml::de::Error) -> ScenarioError {
        let alone = |(key, value): &&(String, Value)| {
            let mut root = Value::Table(Table::try_from(self).ok()?);
            place(&mut root, key, value.clone()).ok()?;
            let error = root.try_into::<Self>().err()?;
            Some(ScenarioError::at(key, error.message().trim().replace("missing field", "missing key")))
        };
        let first = sets.iter().find_map(|set| alone(&set));
        first.unwrap_or_else(|| ScenarioError::at(&sets[0].0, all.message().trim()))
    }
}

/// Parses `text` as a TOML value; `None` if it is not one.
fn literal(text: &str) -> Option<Value> {
    let table: Table = format!("value = {text}\n").parse().ok()?;
    // With more than one key, the text had several lines.
    let value = (table.len() == 1).then(|| table.get("value").cloned())??;
    (!value.is_datetime()).then_some(value)
}

/// Flattens `{ "a.b" = 1, c = { d = 2 } }` to `a.b = 1`, `c.d = 2`.
fn flatten(table: &Table, path: &str, into: &mut Vec<(String, Value)>) {
    for (key, value) in table {
        let path = super::load::join(path, key);
        match value {
            Value::Table(table) if !table.is_empty() => flatten(table, &path, into),
            _ => into.push((path, value.clone())),
        }
    }
}

/// Removes `key`, which must exist.
fn take(root: &mut Value, key: &str) -> Result<(), ScenarioError> {
    let steps: Vec<&str> = key.split('.').collect();
    let mut at = root;
    for (depth, step) in steps.iter().enumerate() {
        let before = &steps[..depth];
        known(step, before)?;
        let Value::Table(table) = at else {
            return Err(ScenarioError::at(key, "only keys are removed, not places in a list"));
        };
        if !table.contains_key(*step) {
            let of_names = schema_at(before) == Some(SchemaNode::Map);
            let what = match of_names {
                true => missing(&before.join("."), step, table.keys().map(String::as_str)),
                false => "it is not set, so there is nothing to remove".into(),
            };
            return Err(ScenarioError::at(key, what));
        }
        if depth + 1 == steps.len() {
            table.remove(*step);
            return Ok(());
        }
        at = &mut table[*step];
    }
    Ok(())
}

/// Puts `value` at `key`, which must be a key that scenarios can have.
fn place(root: &mut Value, key: &str, value: Value) -> Result<(), ScenarioError> {
    let steps: Vec<&str> = key.split('.').collect();
    let mut at = root;
    for (depth, step) in steps.iter().enumerate() {
        let (before, last) = (&steps[..depth], depth + 1 == steps.len());
        known(step, before)?;
        let here = before.join(".");
        match at {
            Value::Table(table) => {
                // Only the file may add links, flows and cases, so that a typing error does not.
                let named = schema_at(before) == Some(SchemaNode::Map)
                    && matches!(schema_at(&steps[..=depth]), Some(SchemaNode::Struct(_)));
                if named && !table.contains_key(*step) {
                    let names = hint(step, table.keys().map(String::as_str));
                    return Err(ScenarioError::of(key, format!("{key}: there is no {here} `{step}`{names}")));
                }
                if last {
                    table.insert((*step).into(), value);
                    return Ok(());
                }
                let empty = match schema_at(&steps[..=depth]) {
                    Some(SchemaNode::List) => Value::Array(Vec::new()),
                    _ => Value::Table(Table::new()),
                };
                at = table.entry(*step).or_insert(empty);
            }
            Value::Array(values) => {
                let count = values.len();
                let slot = step.parse::<usize>().ok().and_then(|index| values.get_mut(index));
                let Some(slot) = slot else {
                    let which = match count {
                        0 => "it is empty".into(),
                        n => format!("write a number from 0 to {}", n - 1),
                    };
                    return Err(ScenarioError::of(key, format!("{key}: {here} has no `{step}`: {which}")));
                };
                if last {
                    *slot = value;
                    return Ok(());
                }
                at = slot;
            }
            _ => return Err(ScenarioError::of(key, format!("{key}: {here} has no keys"))),
        }
    }
    Ok(())
}

#[cfg(test)]
mod case_tests;

#[cfg(test)]
mod tests {
    use super::super::{Duration, RateSpec, SizeSpec};
    use super::*;
    use anabranch_algo::Span;

    const TEXT: &str = r#"
        title = "t"
        duration = "60 s"
        controllers = ["reno"]
        [link.c]
        rate = "500 pkt/s"
        [link.d]
        rate = "1 Mbit/s"
        [flow.mp]
        paths = [{ via = ["c"], rtt = "50 ms" }, { via = ["d"], rtt = "50 ms" }]
        [[measure]]
        metric = "mp_share"
        kind = "share"
        flows = ["mp"]
        [[case]]
        name = "slow"
        set = { "link.c.rate" = "250 pkt/s", flow.mp.count = 4 }
        [[case]]
        name = "as it is"
    "#;

    fn scenario() -> Scenario {
        Scenario::parse(TEXT, "t").expect("a scenario")
    }

    #[test]
    fn keys_take_other_values() {
        let mut s = scenario();
        for (key, value) in [
            ("link.c.rate", "250 pkt/s"),
            ("link.d.rate", "\"2 Mbit/s\""),
            ("link.d.codel.target", "7 ms"),
            ("link.d.queue", "53 pkt"),
            ("link.c.loss", "0.5"),
            ("link.c.drop", "[1, 7]"),
            ("flow.mp.paths.1.rtt", "20 ms"),
            ("flow.mp.count", "4"),
            ("flow.mp.groups", "none"),
            ("controllers", "[\"nmcc\", \"reno\"]"),
            ("title", "7"),
            ("measure.0.paper.nmcc", "50"),
        ] {
            s.set(key, value).expect(key);
        }
        assert_eq!(s.link["c"].rate, Some(RateSpec::Packets(250.0)));
        assert_eq!(s.link["d"].rate, Some(RateSpec::Bytes(250_000.0)));
        assert_eq!(
            s.link["d"].queueing.codel.as_ref().expect("codel").target,
            Duration(Span::from_millis(7))
        );
        assert_eq!(s.link["d"].queue, Some(SizeSpec::Packets(53)));
        assert_eq!((s.link["c"].loss, &s.link["c"].drop), (0.5, &vec![1, 7]));
        for loss in ["1 %", "\"1 %\"", "0.01"] {
            s.set("link.c.loss", loss).expect(loss);
            assert_eq!(s.link["c"].loss, 0.01, "{loss}");
        }
        assert_eq!(s.flow["mp"].paths[1].rtt, Duration(Span::from_millis(20)));
        assert_eq!((s.flow["mp"].count, s.title.as_str()), (4, "7"));
        assert_eq!(*s.controllers, ["nmcc", "reno"]);
        assert_eq!(s.measure[0].paper["nmcc"], 50.0);
    }

    #[test]
    fn keys_that_are_not_there_are_errors_with_the_nearest() {
        let error = |key: &str, value: &str| scenario().set(key, value).expect_err(key).to_string();
        assert_eq!(error("link.c.rtae", "1"), "unknown key `rtae` in link.c: did you mean `rate`?");
        assert_eq!(error("link.x.rate", "1 B/s"), "link.x.rate: there is no link `x`; there are c, d");
        assert_eq!(error("flow.mq.count", "1"), "flow.mq.count: there is no flow `mq`: did you mean `mp`?");
        assert!(error("flow.mp.paths.2.rtt", "1 ms").contains("write a number from 0 to 1"));
        assert!(error("flow.mp.paths.x.rtt", "1 ms").contains("write a number"));
        assert!(error("fault.0.at", "1 s").contains("it is empty"));
        assert!(error("link.c.rate.x", "1").contains("no keys"));
        assert!(error("link.c.rate", "5").starts_with("link.c.rate: \"5\" is not a rate"));
        assert!(error("flow.mp.count", "many").contains("should be a number"));
        assert!(error("flow.mp.count", "-4").starts_with("flow.mp.count: "));
        assert!(error("flow.mp.groups", "nnoe").contains("did you mean `none`?"));
        assert!(error("", "1").contains("unknown key"));
    }

    #[test]
    fn cases_differ_as_they_say() {
        let cases = scenario().cases().expect("cases");
        let names: Vec<_> = cases.iter().map(|(name, _)| name.as_deref()).collect();
        assert_eq!(names, [Some("slow"), Some("as it is")]);
        assert_eq!(cases[0].1.link["c"].rate, Some(RateSpec::Packets(250.0)));
        assert_eq!(cases[0].1.flow["mp"].count, 4);
        assert_eq!(cases[1].1, scenario());
    }

    #[test]
    fn a_wrong_case_is_named_with_its_line() {
        let text = TEXT.replace("flow.mp.count", "flow.mp.conut");
        let error = Scenario::parse(&text, "t.toml").expect_err("wrong").to_string();
        assert_eq!(error, "t.toml:17: case `slow`: unknown key `conut` in flow.mp: did you mean `count`?");
        let text = TEXT.replace("250 pkt/s", "250 pkts");
        let error = Scenario::parse(&text, "t.toml").expect_err("wrong").to_string();
        assert!(error.starts_with("t.toml:17: case `slow`: link.c.rate: \"250 pkts\" is not"), "{error}");
    }

    #[test]
    fn only_values_are_literals() {
        assert_eq!(literal("4"), Some(Value::Integer(4)));
        assert_eq!(literal("\"4\""), Some(Value::String("4".into())));
        assert_eq!(literal("true"), Some(Value::Boolean(true)));
        for text in ["250 pkt/s", "", "1979-05-27", "4\nx = 5", "nmcc"] {
            assert_eq!(literal(text), None, "{text}");
        }
    }
}
