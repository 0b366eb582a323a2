//! What a cache has done, as JSON and for Prometheus.

use anabranch_net::counters::{Counted, Row, exposition};

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

impl Counted for Count {
    const ALL: &'static [(&'static str, &'static str, Self)] = &[
        ("hits", "Requests that were answered from the store.", Self::Hits),
        ("misses", "Requests that began a fetch.", Self::Misses),
        ("joined", "Requests that joined the fetch of another one.", Self::Joined),
        ("revalidated", "Stored answers that their server said are unchanged.", Self::Revalidated),
        ("stale", "Stored answers that were used although they were stale.", Self::Stale),
        ("failed", "Requests that were refused because their sources failed.", Self::Failed),
        ("fetched_bytes", "Bytes that were fetched from sources.", Self::FetchedBytes),
        ("repaired_blocks", "Damaged blocks that were fetched anew.", Self::Repaired),
        ("wrong_sources", "Times that a source sent wrong bytes.", Self::Lies),
        ("from_neighbours", "Objects that came from caches of the LAN.", Self::Neighbours),
        ("neighbour_bytes", "Bytes of objects that came from caches of the LAN.", Self::NeighbourBytes),
        ("shared", "Times that a cache of the LAN fetched an object.", Self::Shared),
        ("shared_bytes", "Bytes that were sent to caches of the LAN.", Self::SharedBytes),
    ];

    fn place(self) -> usize {
        self as usize
    }
}

/// The numbers of a cache since its start.
pub(super) type Counters = anabranch_net::counters::Counters<Count>;

/// Returns all numbers of a cache. `neighbours` is the number of caches of the LAN that it knows.
fn rows(counters: &Counters, store: &StoreCounters, neighbours: u64) -> impl Iterator<Item = Row> {
    counters.rows().chain([
        Row::gauge("objects", "Objects in the store.", store.objects),
        Row::gauge("stored_bytes", "Bytes of the store's files.", store.bytes),
        Row::gauge("capacity_bytes", "Most bytes that the store's files may have.", store.capacity_bytes),
        Row::gauge("neighbours", "Caches of the LAN that are known.", neighbours),
        Row::counter("evicted", "Objects that were removed to make room.", store.evicted),
        Row::counter("damaged", "Objects and blocks that were found damaged.", store.damaged),
    ])
}

/// Returns all numbers as one JSON object.
pub(super) fn json(counters: &Counters, store: &StoreCounters, neighbours: u64) -> String {
    let rows = rows(counters, store, neighbours);
    let all: serde_json::Map<_, _> = rows.map(|row| (row.name.to_owned(), row.value.into())).collect();
    format!("{}\n", serde_json::Value::Object(all))
}

/// Returns all numbers in Prometheus' text format.
pub(super) fn prometheus(counters: &Counters, store: &StoreCounters, neighbours: u64) -> String {
    exposition("cache", rows(counters, store, neighbours))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_its_own_place() {
        anabranch_net::counters::check::<Count>();
        let counters = Counters::new();
        counters.add(Count::Lies, 7);
        let store = StoreCounters { objects: 3, ..StoreCounters::default() };
        anabranch_net::prometheus::check(&prometheus(&counters, &store, 2));
        let json = json(&counters, &store, 2);
        let parts = ["\"wrong_sources\":7", "\"objects\":3", "\"neighbours\":2"];
        assert!(parts.iter().all(|part| json.contains(part)), "{json}");
    }
}
