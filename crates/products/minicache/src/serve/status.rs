//! What a cache has done, as JSON and for Prometheus.

use anabranch_net::counters::{Row, exposition};
use serde_json::{Value, json};

use super::site::Site;

/// The most objects of which the use is told.
const OBJECTS_MAX: usize = 100;

/// Returns every number.
fn rows(site: &Site) -> impl Iterator<Item = Row> {
    let room = site.image().room();
    let chunk = u64::from(site.image().layout().chunk_bytes());
    let longest = room.longest_run * chunk;
    site.counters.rows().chain([
        Row::gauge("objects", "Objects in the image.", room.objects),
        Row::gauge("entries", "Entries of the table, used or not.", room.entries),
        Row::gauge("used_bytes", "Bytes of chunks in use.", room.used_chunks * chunk),
        Row::gauge("capacity_bytes", "Bytes of all chunks.", room.chunks * chunk),
        Row::gauge("longest_run_bytes", "Bytes of the longest run of free chunks.", longest),
        Row::counter("restarts", "Workers that the keeper had to replace.", site.restarts),
    ])
}

/// Returns all numbers as one JSON object, with those of the objects that were used most.
pub(super) fn json(site: &Site) -> String {
    let mut all: serde_json::Map<_, _> =
        rows(site).map(|row| (row.name.to_owned(), row.value.into())).collect();
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
    exposition("minicache", rows(site))
}
