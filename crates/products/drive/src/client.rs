//! The programs of the phone that are part of this one: a chat, a video player, a call.
//!
//! Each prints one line of JSON with its numbers.

pub mod call;
pub mod chat;
pub mod dial;
pub mod player;
pub mod video;

use std::collections::BTreeMap;

/// The numbers of a program by name.
pub type Values = BTreeMap<String, f64>;

/// Adds the median and the 95 % quantile of latencies, ms, which are sorted for it.
fn add_latencies(values: &mut Values, latencies_ms: &mut [f64]) {
    latencies_ms.sort_by(f64::total_cmp);
    let at = |part: f64| latencies_ms.get(((latencies_ms.len() as f64 - 1.0) * part).round() as usize);
    if let (Some(median), Some(most)) = (at(0.5), at(0.95)) {
        values.insert("median ms".into(), *median);
        values.insert("95 % ms".into(), *most);
    }
}
