//! The APs that a receiver uses at the same time: the best ones, and not more than three.
//!
//! Each further AP on a channel takes airtime even if its subflow is marked, so the throughput falls with the
//! number of APs (the source, Fig. 2.11).

use alloc::vec::Vec;

use super::PacketTime;

/// The most APs that are used at the same time.
pub const APS_USED_MAX: usize = 3;
/// The percentage of its packet time at which an AP that is not used competes with those that are. Otherwise
/// two equal APs would take turns.
const NEWCOMER_PERCENT: u128 = 120;

/// Returns which APs to use: at most `most` with the shortest packet times, in the order of their numbers. An
/// AP without a packet time is not used. `used` tells which ones are used now: such an AP gives way only to
/// one that is better by a fifth. APs beyond the end of `used` are not used now.
#[must_use]
pub fn choose_aps(times: &[Option<PacketTime>], used: &[bool], most: usize) -> Vec<usize> {
    let mut known: Vec<(u128, usize)> = times
        .iter()
        .enumerate()
        .filter_map(|(ap, time)| {
            let percent = if used.get(ap).copied().unwrap_or(false) { 100 } else { NEWCOMER_PERCENT };
            Some((u128::from((*time)?.units()) * percent, ap))
        })
        .collect();
    known.sort_unstable();
    known.truncate(most);
    let mut chosen: Vec<usize> = known.into_iter().map(|(_, ap)| ap).collect();
    chosen.sort_unstable();
    chosen
}
