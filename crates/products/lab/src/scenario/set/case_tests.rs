//! Tests the values that cases set, remove and measure.

use super::*;
use crate::scenario::load::ScenarioReader;

const TEXT: &str = r#"
    title = "t"
    duration = "60 s"
    controllers = ["reno"]
    [link.c]
    rate = "500 pkt/s"
    codel.target = "5 ms"
    [flow.f]
    paths = [{ via = ["c"] }]
    [flow.g]
    paths = [{ via = ["c"] }]
    [[case]]
    name = "drop-tail"
    remove = ["link.c.codel", "flow.g"]
    [[case]]
    name = "both"
    [[measure]]
    metric = "all"
    kind = "goodput"
    [[measure]]
    metric = "g"
    kind = "goodput"
    flows = ["g"]
    cases = ["both"]
    [[assert]]
    what = "drops"
    link = "c"
    at_least = 1
    cases = ["drop-tail"]
"#;

fn error(from: &str, to: &str) -> String {
    Scenario::parse(&TEXT.replacen(from, to, 1), "t").expect_err(to).to_string()
}

#[test]
fn a_case_removes_keys_and_has_measures_and_conditions_of_its_own() {
    let scenario = Scenario::parse(TEXT, "t").expect("a scenario");
    let cases: Vec<Scenario> = scenario
        .cases()
        .expect("cases")
        .into_iter()
        .map(|(name, case)| case.for_case(name.as_deref()))
        .collect();
    assert!(cases[0].link["c"].queueing.codel.is_none() && cases[1].link["c"].queueing.codel.is_some());
    assert_eq!((cases[0].flow.len(), cases[1].flow.len()), (1, 2));
    assert_eq!((cases[0].measure.len(), cases[1].measure.len()), (1, 2));
    assert_eq!((cases[0].assert.len(), cases[1].assert.len()), (1, 0));
}

#[test]
fn what_cannot_be_removed_is_said() {
    for (from, to, said) in [
        ("link.c.codel", "link.c.codle", "unknown key `codle` in link.c: did you mean `codel`?"),
        ("link.c.codel", "link.c.random", "link.c.random: it is not set, so there is nothing to remove"),
        ("\"flow.g\"", "\"flow.x\"", "there is no flow `x`"),
        ("\"flow.g\"", "\"flow.g.paths.0\"", "only keys are removed, not places in a list"),
        ("cases = [\"both\"]", "cases = [\"botth\"]", "measure.1.cases.0: there is no case `botth`"),
        ("cases = [\"drop-tail\"]", "cases = [\"x\"]", "assert.0.cases.0: there is no case `x`"),
        ("cases = [\"both\"]", "", "case `drop-tail`: measure.1.flows.0: there is no flow `g`"),
    ] {
        let what = error(from, to);
        assert!(what.contains(said), "{to}: {what}");
    }
}

#[test]
fn only_what_runs_is_checked() {
    let text = TEXT.replace("name = \"both\"", "name = \"both\"\nset = { \"link.c.rate\" = \"0 B/s\" }");
    assert!(Scenario::parse(&text, "t").is_err());
    let scenario =
        ScenarioReader::default().case(Some("drop-tail")).parse(&text, "t").expect("that case is right");
    assert_eq!(scenario.cases_of(Some("drop-tail")).expect("one").len(), 1);
    let error =
        ScenarioReader::default().case(Some("drop-tial")).parse(&text, "t").expect_err("none").to_string();
    assert!(error.contains("did you mean `drop-tail`?"), "{error}");
    // A scenario that only its cases complete must not be run by itself.
    let text = TEXT
        .replace("rate = \"500 pkt/s\"", "")
        .replace("name = \"both\"", "name = \"both\"\nset = { \"link.c.rate\" = \"1 MB/s\" }")
        .replace("remove = [", "set = { \"link.c.rate\" = \"2 MB/s\" }\nremove = [");
    Scenario::parse(&text, "t").expect("both cases are right");
}
