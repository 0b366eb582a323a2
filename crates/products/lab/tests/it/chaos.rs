//! Random worlds, as `anabranch soak` runs them by the hundred thousand; here as many as a test may take.

/// Seeds 1 to this.
const SEEDS: u64 = 250;

#[test]
fn all_is_well_whatever_happens() {
    let mut bad = Vec::new();
    for seed in 1..=SEEDS {
        let report = anabranch_lab::soak::run(seed);
        if let Some(what) = report.violations.first() {
            bad.push(format!("anabranch soak --seeds {seed}..{seed} -v: {what}"));
        }
    }
    assert!(bad.is_empty(), "{} of {SEEDS} seeds went wrong:\n{}", bad.len(), bad.join("\n"));
}
