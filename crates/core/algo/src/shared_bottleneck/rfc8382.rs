//! Groups flows exactly as RFC 8382 section 3.3.1 says.

use alloc::vec::Vec;

use super::parameters::{P_D_PERCENT, P_F_PPM, P_L_PPM, P_MAD_PERCENT, P_S_PPM};
use super::stats::SummaryStats;

/// Returns the group of each path that passes a bottleneck. Groups are numbered in the order of the first
/// path of each. Sorts four times.
pub(super) fn group(paths: &[SummaryStats]) -> Vec<Option<u32>> {
    // Step 1: only paths that pass a bottleneck. Each element is the group so far, and the path.
    let congested = |(i, path): (usize, &SummaryStats)| path.congested.then_some((0, i));
    let mut sorted: Vec<(u32, usize)> = paths.iter().enumerate().filter_map(congested).collect();
    // Step 2: by frequency of oscillation.
    split(&mut sorted, |i| paths[i].freq_ppm, |high, low| high - low >= P_F_PPM);
    // Step 3: by variability, relative to the higher one.
    split(
        &mut sorted,
        |i| paths[i].var_ns as i64,
        |high, low| {
            high > low && i128::from(high - low) * 100 >= i128::from(high) * i128::from(P_MAD_PERCENT)
        },
    );
    // Step 4: by skewness.
    split(&mut sorted, |i| paths[i].skew_ppm, |high, low| high - low >= P_S_PPM);
    // Step 5: by loss, where there is enough of it to be a reliable measure.
    split(
        &mut sorted,
        |i| paths[i].loss_ppm,
        |high, low| high > P_L_PPM && (high - low) * 100 >= high * P_D_PERCENT,
    );
    let mut groups = alloc::vec![None; paths.len()];
    for (group, i) in sorted {
        groups[i] = Some(group);
    }
    dense(&mut groups);
    groups
}

/// Divides every group where two neighbours, from the highest value to the lowest, are `apart`.
fn split(sorted: &mut [(u32, usize)], value: impl Fn(usize) -> i64, apart: impl Fn(i64, i64) -> bool) {
    sorted.sort_unstable_by_key(|&(group, i)| (group, core::cmp::Reverse(value(i)), i));
    let mut next = 0;
    let mut before: Option<(u32, i64)> = None;
    for (group, i) in sorted {
        let value = value(*i);
        if let Some((old, high)) = before
            && (old != *group || apart(high, value))
        {
            next += 1;
        }
        before = Some((*group, value));
        *group = next;
    }
}

/// Renumbers groups in the order of their first paths.
pub(super) fn dense(groups: &mut [Option<u32>]) {
    let mut names: Vec<Option<u32>> = Vec::new();
    let mut next = 0;
    for group in groups.iter_mut().flatten() {
        let old = *group as usize;
        if names.len() <= old {
            names.resize(old + 1, None);
        }
        *group = *names[old].get_or_insert_with(|| {
            next += 1;
            next - 1
        });
    }
}
