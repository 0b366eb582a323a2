//! What a cache has done, as JSON and for Prometheus.

use std::sync::atomic::{AtomicU64, Ordering};

use anabranch_net::prometheus::{Exposition, Kind};
use serde_json::{Value, json};

use super::site::Site;

/// The most objects of which the use is told.
const OBJECTS_MAX: usize = 100;

/// A number that only grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Count {
    /// Requests.
    Requests,
    /// Requests that were answered with an object, or a part of one.
    Hits,
    /// Requests for objects that the image does not have.
    Misses,
    /// Bytes of objects that were sent.
    SentBytes,
    /// Times that bytes were not what was written.
    Damaged,
    /// Objects that were fetched from origins.
    Fetched,
    /// Bytes of these.
    FetchedBytes,
    /// Objects that could not be fetched.
    NotFetched,
    /// Connections that were refused, because there were too many.
    Refused,
    /// Packets that were sent by mmTP.
    MmtpPackets,
    /// Bytes of these.
    MmtpBytes,
}

/// Every number: its name, its help, and itself.
const ALL: &[(&str, &str, Count)] = &[
    ("requests", "Requests.", Count::Requests),
    ("hits", "Requests that were answered with an object or a part of one.", Count::Hits),
    ("misses", "Requests for objects that the image did not have.", Count::Misses),
    ("sent_bytes", "Bytes of objects that were sent.", Count::SentBytes),
    ("damaged", "Times that bytes in the image were not what was written.", Count::Damaged),
    ("fetched", "Objects that were fetched from origins.", Count::Fetched),
    ("fetched_bytes", "Bytes that were fetched from origins.", Count::FetchedBytes),
    ("not_fetched", "Objects that could not be fetched.", Count::NotFetched),
    ("refused", "Connections that were refused because there were too many.", Count::Refused),
    ("mmtp_packets", "Packets that were sent by mmTP.", Count::MmtpPackets),
    ("mmtp_bytes", "Bytes of packets that were sent by mmTP.", Count::MmtpBytes),
];

/// The numbers of a worker since its start.
#[derive(Debug, Default)]
pub(super) struct Counters([AtomicU64; ALL.len()]);

impl Counters {
    /// Adds one.
    pub(super) fn count(&self, what: Count) {
        self.add(what, 1);
    }

    /// Adds `number`.
    pub(super) fn add(&self, what: Count, number: u64) {
        self.0[what as usize].fetch_add(number, Ordering::Relaxed);
    }

    fn rows(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        ALL.iter().map(|(name, help, what)| (*name, *help, self.0[*what as usize].load(Ordering::Relaxed)))
    }
}

/// The numbers that are not counted here.
fn others(site: &Site) -> [(&'static str, &'static str, Kind, u64); 6] {
    let room = site.image().room();
    let chunk = u64::from(site.image().layout().chunk_bytes());
    [
        ("objects", "Objects in the image.", Kind::Gauge, room.objects),
        ("entries", "Entries of the table, used or not.", Kind::Gauge, room.entries),
        ("used_bytes", "Bytes of chunks in use.", Kind::Gauge, room.used_chunks * chunk),
        ("capacity_bytes", "Bytes of all chunks.", Kind::Gauge, room.chunks * chunk),
        (
            "longest_run_bytes",
            "Bytes of the longest run of free chunks.",
            Kind::Gauge,
            room.longest_run * chunk,
        ),
        ("restarts", "Workers that the keeper had to replace.", Kind::Counter, site.restarts),
    ]
}

/// Returns all numbers as one JSON object, with those of the objects that were used most.
pub(super) fn json(site: &Site) -> String {
    let mut all = serde_json::Map::new();
    for (name, _, value) in site.counters.rows() {
        all.insert(name.to_owned(), value.into());
    }
    for (name, _, _, value) in others(site) {
        all.insert(name.to_owned(), value.into());
    }
    all.insert("pid".to_owned(), std::process::id().into());
    all.insert("uptime_s".to_owned(), site.now_s().into());
    let table = site.image().table();
    let uses = (0..site.image().layout().entries()).map(|slot| (slot, table.uses(slot)));
    let mut uses: Vec<_> = uses.filter(|(_, uses)| uses.hits > 0).collect();
    uses.sort_by_key(|(slot, uses)| (std::cmp::Reverse(uses.hits), *slot));
    let objects = uses.iter().take(OBJECTS_MAX).filter_map(|(slot, uses)| {
        let entry = table.entry(*slot)?;
        let ago = site.now_s().saturating_sub(uses.last_s);
        Some(json!({
            "name": entry.digest.to_string(), "label": entry.label.as_str(), "length": entry.id.length,
            "hits": uses.hits, "sent_bytes": uses.bytes, "last_s": ago,
        }))
    });
    all.insert("most_used".to_owned(), objects.collect());
    format!("{}\n", Value::Object(all))
}

/// Returns all numbers in Prometheus' text format.
pub(super) fn prometheus(site: &Site) -> String {
    let mut text = Exposition::new();
    let counted = site.counters.rows().map(|(name, help, value)| (name, help, Kind::Counter, value));
    for (name, help, kind, value) in counted.chain(others(site)) {
        let end = if kind == Kind::Counter { "_total" } else { "" };
        text.metric(&format!("minicache_{name}{end}"), kind, help);
        text.sample(&[], value);
    }
    text.into_text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_its_own_place() {
        for (place, (_, _, what)) in ALL.iter().enumerate() {
            assert_eq!(*what as usize, place);
        }
    }
}
