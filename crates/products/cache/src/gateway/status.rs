//! What a cache has done, as JSON and for Prometheus.

use std::sync::atomic::{AtomicU64, Ordering};

use anabranch_net::prometheus::{Exposition, Kind};

use crate::store::StoreCounters;

/// A number that only grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Count {
    /// Requests that were answered from the store.
    Hits,
    /// Requests that began a fetch.
    Misses,
    /// Requests that joined a fetch of another one.
    Joined,
    /// Stored answers that their server said are unchanged.
    Revalidated,
    /// Stored answers that were used although they were stale.
    Stale,
    /// Requests that were refused because their sources failed.
    Failed,
    /// Bytes that were fetched.
    FetchedBytes,
    /// Damaged blocks that were fetched anew.
    Repaired,
    /// Sources that sent wrong bytes, each time.
    Lies,
    /// Objects that came from caches of the LAN.
    Neighbours,
    /// Bytes of these.
    NeighbourBytes,
    /// Times that a cache of the LAN fetched an object here.
    Shared,
    /// Bytes that were sent to them.
    SharedBytes,
}

/// Every number: its name, its help, and itself.
const ALL: &[(&str, &str, Count)] = &[
    ("hits", "Requests that were answered from the store.", Count::Hits),
    ("misses", "Requests that began a fetch.", Count::Misses),
    ("joined", "Requests that joined the fetch of another one.", Count::Joined),
    ("revalidated", "Stored answers that their server said are unchanged.", Count::Revalidated),
    ("stale", "Stored answers that were used although they were stale.", Count::Stale),
    ("failed", "Requests that were refused because their sources failed.", Count::Failed),
    ("fetched_bytes", "Bytes that were fetched from sources.", Count::FetchedBytes),
    ("repaired_blocks", "Damaged blocks that were fetched anew.", Count::Repaired),
    ("wrong_sources", "Times that a source sent wrong bytes.", Count::Lies),
    ("from_neighbours", "Objects that came from caches of the LAN.", Count::Neighbours),
    ("neighbour_bytes", "Bytes of objects that came from caches of the LAN.", Count::NeighbourBytes),
    ("shared", "Times that a cache of the LAN fetched an object.", Count::Shared),
    ("shared_bytes", "Bytes that were sent to caches of the LAN.", Count::SharedBytes),
];

/// The numbers of a cache since its start.
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

    /// Returns all numbers as one JSON object.
    pub(super) fn json(&self, store: &StoreCounters, neighbours: u64) -> String {
        let mut all = serde_json::Map::new();
        for (name, _, value) in
            self.rows().chain(others(store, neighbours).map(|(name, help, _, value)| (name, help, value)))
        {
            all.insert(name.to_owned(), value.into());
        }
        format!("{}\n", serde_json::Value::Object(all))
    }

    /// Returns all numbers in Prometheus' text format.
    pub(super) fn prometheus(&self, store: &StoreCounters, neighbours: u64) -> String {
        let mut text = Exposition::new();
        for (name, help, value) in self.rows() {
            text.metric(&format!("cache_{name}_total"), Kind::Counter, help);
            text.sample(&[], value);
        }
        for (name, help, kind, value) in others(store, neighbours) {
            let end = if kind == Kind::Counter { "_total" } else { "" };
            text.metric(&format!("cache_{name}{end}"), kind, help);
            text.sample(&[], value);
        }
        text.into_text()
    }
}

fn others(store: &StoreCounters, neighbours: u64) -> impl Iterator<Item = (&'static str, &'static str, Kind, u64)> {
    [
        ("objects", "Objects in the store.", Kind::Gauge, store.objects),
        ("stored_bytes", "Bytes of the store's files.", Kind::Gauge, store.bytes),
        ("capacity_bytes", "Most bytes that the store's files may have.", Kind::Gauge, store.capacity_bytes),
        ("neighbours", "Caches of the LAN that are known.", Kind::Gauge, neighbours),
        ("evicted", "Objects that were removed to make room.", Kind::Counter, store.evicted),
        ("damaged", "Objects and blocks that were found damaged.", Kind::Counter, store.damaged),
    ]
    .into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_its_own_place() {
        for (place, (_, _, what)) in ALL.iter().enumerate() {
            assert_eq!(*what as usize, place);
        }
        let counters = Counters::default();
        counters.add(Count::Lies, 7);
        let store = StoreCounters { objects: 3, ..StoreCounters::default() };
        anabranch_net::prometheus::check(&counters.prometheus(&store, 2));
        let json = counters.json(&store, 2);
        assert!(json.contains("\"wrong_sources\":7") && json.contains("\"objects\":3"), "{json}");
    }
}
