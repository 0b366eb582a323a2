//! Runs random worlds: `anabranch soak` runs hundreds of thousands, this test only a few.

use anabranch_net::testing::extent;

#[test]
fn all_is_well_whatever_happens() {
    let seeds = extent(100, 1_000);
    let mut bad = Vec::new();
    for seed in 1..=seeds {
        let report = anabranch_lab::soak::run(seed);
        if let Some(what) = report.violations.first() {
            bad.push(format!("anabranch soak --seeds {seed}..{seed} -v: {what}"));
        }
    }
    assert!(bad.is_empty(), "{} of {seeds} seeds went wrong:\n{}", bad.len(), bad.join("\n"));
}
