//! What a cache has done, as JSON and for Prometheus.

use anabranch_net::prometheus::{Exposition, Kind};
use serde_json::{Value, json};

use super::site::Site;

/// The most objects of which the use is told.
const OBJECTS_MAX: usize = 100;

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
