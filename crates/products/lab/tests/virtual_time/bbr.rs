//! Tests BBR in the simulator: cases of `scenarios/bbr-idle.toml` and `scenarios/bbr-beside.toml`, by their
//! bounds.

use std::path::Path;

use anabranch_lab::run::run;
use anabranch_lab::scenario::Scenario;

/// Returns a case of a scenario of the repository.
fn case(scenario: &str, name: &str) -> Scenario {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../scenarios").join(scenario);
    let cases = Scenario::load(&path).and_then(|scenario| scenario.cases()).expect("it is one");
    let found = cases.into_iter().find(|(case, _)| case.as_deref() == Some(name));
    found.unwrap_or_else(|| panic!("{scenario} has no case {name}")).1
}

/// Returns the first measure of a case with this seed; the run must meet its conditions.
fn value(scenario: &Scenario, controller: &str, seed: u64) -> f64 {
    let outcome = run(scenario, controller, seed);
    assert_eq!(outcome.violations, Vec::<String>::new(), "{controller}");
    outcome.values[0].expect("it was measured")
}

/// 40 MB over two links of 50 Mbit/s take about 4 s with Linux' BBR, and random losses cost nearly nothing.
#[test]
fn a_file_over_two_lossy_links_takes_at_most_a_fifth_longer_than_by_linux() {
    for lost in ["0 %", "0.1 %", "0.3 %"] {
        let case = case("bbr-idle.toml", &format!("two links, {lost} lost"));
        let seconds = value(&case, "bbr-coupled", 1);
        assert!(seconds <= 4.8, "{lost}: {seconds} s");
    }
}

/// Separate links are as fast if they are wrongly taken for one bottleneck.
#[test]
fn a_wrong_group_costs_nothing() {
    let case = case("bbr-idle.toml", "two links, 0.1 % lost, taken for one");
    let (coupled, uncoupled) = (value(&case, "bbr-coupled", 1), value(&case, "bbr", 1));
    assert!(coupled <= 1.1 * uncoupled, "{coupled} s, uncoupled {uncoupled} s");
}

/// Returns the share that a neighbour keeps beside `paths`, the mean of two seeds.
fn kept(other: &str, paths: &str, controller: &str) -> f64 {
    let mut case = case("bbr-beside.toml", &format!("{other}, 20 ms, queue 1, {paths}"));
    case.set("duration", "60 s").expect("it is a time");
    (1..=2).map(|seed| value(&case, controller, seed)).sum::<f64>() / 2.0
}

#[test]
fn paths_of_a_group_take_about_what_one_flow_does() {
    let one = kept("bbr", "1 path", "bbr");
    assert!((45.0..=55.0).contains(&one), "the control: one beside one keeps {one} %");
    let apart = kept("bbr", "2 paths", "bbr");
    assert!(apart <= 37.0, "the control: one beside two keeps {apart} %");
    let coupled = kept("bbr", "2 paths", "bbr-coupled");
    assert!(coupled >= 43.0, "one beside a group of two keeps {coupled} %");
    let (one, coupled) = (kept("cubic", "1 path", "bbr"), kept("cubic", "2 paths", "bbr-coupled"));
    assert!(coupled >= one - 6.0, "CUBIC keeps {one} % beside one, {coupled} % beside a group of two");
}
