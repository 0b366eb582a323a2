//! Many subflows beside one flow, the fast version of `examples/fairness.rs`: five seeds, three places.

use algo::control::ALGORITHMS;
use algo::{Rate, Span};
use lab::fairness::{FairnessRow, Setup};
use lab::small_objects;

const SEEDS: u64 = 5;

#[track_caller]
fn measure(algorithm: &str, rtts_ms: &[u64], competitor_ms: u64) -> FairnessRow {
    let setup = Setup { rtts_ms: rtts_ms.into(), competitor_ms, ..Setup::new(algorithm) };
    let row = FairnessRow::measure(setup, SEEDS);
    println!("{}\n{}", FairnessRow::head(), row.text());
    assert_eq!(row.violations(), Vec::<String>::new(), "the conditions");
    row
}

#[test]
fn control_three_uncoupled_flows_leave_a_quarter() {
    let share = measure("reno", &[35, 35, 35], 35).mean(|run| run.share);
    assert!((0.20..=0.30).contains(&share), "{share:.3}, in theory 0.25 ± 20 %");
}

#[test]
fn control_one_flow_leaves_half() {
    let share = measure("reno", &[35], 35).mean(|run| run.share);
    assert!((0.40..=0.60).contains(&share), "{share:.3}, in theory 0.5 ± 20 %");
}

#[test]
fn control_round_trips_that_differ_share_in_proportion() {
    let row = measure("reno", &[20, 35, 50], 35);
    let (share, theory) =
        (row.mean(|run| run.share), row.setup.uncoupled_share(row.mean(|run| run.queue_ms)));
    assert!((share / theory - 1.0).abs() <= 0.2, "{share:.3}, in theory {theory:.3} ± 20 %");
}

/// Coupled, three subflows are to take no more than one TCP on the best of their paths: the competitor, whose
/// path is as good as that, keeps half, and at the very least 45 %. And the link is not left idle for that.
fn keeps(rtts_ms: &[u64]) {
    let row = measure(ALGORITHMS[0].name, rtts_ms, rtts_ms[0]);
    let (share, utilisation) = (row.mean(|run| run.share), row.mean(|run| run.utilisation));
    assert!(share >= 0.45, "the competitor keeps {share:.3}");
    assert!(share <= 0.60, "the competitor gets {share:.3}: what is the coupling worth?");
    assert!(utilisation >= 0.97, "{utilisation:.3}");
}

#[test]
fn coupled_short_round_trips_keep_the_competitor_alive() {
    keeps(&[20, 35, 50]);
}

#[test]
fn coupled_long_round_trips_keep_the_competitor_alive() {
    keeps(&[35, 50, 80]);
}

#[test]
fn short_objects_take_few_round_trips() {
    let times = small_objects::measure(100, 10_000, Span::from_millis(50), Rate::from_bits(100_000_000), 1);
    assert_eq!(times.violations, Vec::<String>::new());
    let (cold, warm) = times.medians();
    assert!(cold <= 2.2, "cold: {cold:.2} round trips");
    assert!(warm <= 1.2, "with a cookie: {warm:.2} round trips");
}
