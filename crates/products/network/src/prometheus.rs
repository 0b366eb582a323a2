//! Writes the statistics of members as text for Prometheus. docs/network.md names the metrics.

use std::collections::BTreeMap;
use std::fmt::Display;

use anabranch_net::prometheus::{Exposition, Kind};
use anabranch_overlay::forwarder::DropReason;
use anabranch_overlay::message::refusal;

use super::forward::{CacheStats, ForwardStats, LineStats};
use super::rendezvous_service::RendezvousStats;
use super::state_server::SharedStateStats;
use super::topology_service::TopologyStats;
use anabranch::network::Place;

/// Statistics of a member that can be written for Prometheus.
pub trait Metrics {
    /// Returns the metrics of the member at this place in Prometheus's text format.
    fn prometheus_text(&self, place: &Place) -> String;
}

/// A metric: its name without the common prefix, its type, help and value.
type Metric<T> = (&'static str, Kind, &'static str, fn(&T) -> Option<f64>);

const FORWARDER: &[Metric<ForwardStats>] = &[
    ("forwarder_frames_total", Kind::Counter, "Frames sent on.", |s| Some(s.forwarded as f64)),
    ("forwarder_bytes_total", Kind::Counter, "Bytes of frames sent on.", |s| Some(s.forwarded_bytes as f64)),
    ("forwarder_unsent_frames_total", Kind::Counter, "Frames that the system had no room for.", |s| {
        Some(s.unsent as f64)
    }),
];

const LINE: &[Metric<LineStats>] = &[
    ("forwarder_line_up", Kind::Gauge, "Whether the other end answers; hosts are not asked.", |line| {
        line.up.map(|up| f64::from(u8::from(up)))
    }),
    ("forwarder_line_delay_seconds", Kind::Gauge, "Measured delay in one direction.", |line| {
        line.delay_ms.map(|ms| ms / 1e3)
    }),
    ("forwarder_line_frames_total", Kind::Counter, "Frames sent over it.", |line| Some(line.frames as f64)),
    ("forwarder_line_bytes_total", Kind::Counter, "Bytes of them.", |line| Some(line.bytes as f64)),
];

const CACHE: &[Metric<CacheStats>] = &[
    ("cache_stored_bytes", Kind::Gauge, "Bytes that the cache holds.", |c| Some(c.stored_bytes as f64)),
    ("cache_asked_packets_total", Kind::Counter, "Packets that it might have answered with.", |c| {
        Some(c.asked as f64)
    }),
    ("cache_hit_packets_total", Kind::Counter, "Those of them that it had.", |c| Some(c.hits as f64)),
    ("cache_hit_bytes_total", Kind::Counter, "Bytes that it answered with.", |c| Some(c.hit_bytes as f64)),
];

const RENDEZVOUS: &[Metric<RendezvousStats>] = &[
    ("rendezvous_publications", Kind::Gauge, "Publications that are kept, if that is known.", |s| {
        s.kept.map(|kept| kept as f64)
    }),
    ("rendezvous_published_total", Kind::Counter, "Publications taken, renewed leases among them.", |s| {
        Some(s.published as f64)
    }),
    ("rendezvous_lookups_total", Kind::Counter, "Lookups answered.", |s| Some(s.lookups as f64)),
    ("rendezvous_unknown_lookups_total", Kind::Counter, "Those of them with nothing.", |s| {
        Some(s.unknown as f64)
    }),
    ("rendezvous_listed_pages_total", Kind::Counter, "Pages of the list of publications.", |s| {
        Some(s.pages as f64)
    }),
    ("rendezvous_dropped_messages_total", Kind::Counter, "Messages that made no sense.", |s| {
        Some(s.dropped as f64)
    }),
];

const SHARED_STATE: &[Metric<SharedStateStats>] = &[
    ("rendezvous_state_up", Kind::Gauge, "Whether the server of the state answers.", |s| {
        Some(f64::from(u8::from(s.answers)))
    }),
    ("rendezvous_state_outages_total", Kind::Counter, "How often that server was lost.", |s| {
        Some(s.outages as f64)
    }),
    ("rendezvous_unanswered_messages_total", Kind::Counter, "Messages it gave no answer to in time.", |s| {
        Some(s.unanswered as f64)
    }),
    ("rendezvous_state_unbelieved_total", Kind::Counter, "What was found there and not believed.", |s| {
        Some(s.unbelieved as f64)
    }),
    ("rendezvous_state_conflicts_total", Kind::Counter, "Publications tried again beside others.", |s| {
        Some(s.conflicts as f64)
    }),
    ("rendezvous_state_round_trips_total", Kind::Counter, "Exchanges with that server.", |s| {
        Some(s.round_trips as f64)
    }),
];

const TOPOLOGY: &[Metric<TopologyStats>] = &[
    ("topology_forwarders", Kind::Gauge, "Forwarders that have reported.", |s| Some(s.forwarders as f64)),
    ("topology_lines_down", Kind::Gauge, "Lines that are down.", |s| Some(s.down.len() as f64)),
    ("topology_watchers", Kind::Gauge, "Receivers that are told of changes.", |s| Some(s.watchers as f64)),
    ("topology_requests_total", Kind::Counter, "Requests answered.", |s| Some(s.requests as f64)),
    ("topology_link_states_total", Kind::Counter, "Reports of forwarders taken.", |s| {
        Some(s.link_states as f64)
    }),
    ("topology_pushes_total", Kind::Counter, "Paths sent because a line went down or came up.", |s| {
        Some(s.pushes as f64)
    }),
    ("topology_dropped_messages_total", Kind::Counter, "Messages refused or that made no sense.", |s| {
        Some(s.dropped as f64)
    }),
];

/// Begins the text with the metrics that all members have: their identity and the time since their start.
fn begin(place: &Place, role: &str, elapsed_s: f64) -> Exposition {
    let mut all = Exposition::new();
    all.metric("member_info", Kind::Gauge, "Which member of which domain this is; always 1.");
    let (domain, node) = (&place.domain().name, place.node_name());
    all.sample(&[("domain", domain), ("node", &node), ("role", &role)], 1);
    all.metric("member_uptime_seconds", Kind::Gauge, "Since it began.");
    all.sample(&[], elapsed_s);
    all
}

/// Appends metrics that have one source.
fn put<T>(all: &mut Exposition, metrics: &[Metric<T>], source: &T) {
    put_each(all, metrics, std::slice::from_ref(source), |_| Vec::new());
}

/// Appends metrics of several sources, which labels distinguish.
fn put_each<'a, T>(
    all: &mut Exposition,
    metrics: &[Metric<T>],
    sources: &'a [T],
    labels: impl Fn(&'a T) -> Vec<(&'static str, &'a dyn Display)>,
) {
    for (name, kind, help, value) in metrics {
        all.metric(name, *kind, help);
        for source in sources {
            if let Some(value) = value(source) {
                all.sample(&labels(source), value);
            }
        }
    }
}

/// Appends a counter for each reason. Reasons that have not occurred have 0, so that their first occurrence
/// is an increase.
fn by_reason(
    all: &mut Exposition,
    name: &str,
    help: &str,
    reasons: impl Iterator<Item = &'static str>,
    counts: &BTreeMap<&'static str, u64>,
) {
    all.metric(name, Kind::Counter, help);
    for reason in reasons {
        all.sample(&[("reason", &reason)], counts.get(reason).copied().unwrap_or(0));
    }
}

impl Metrics for ForwardStats {
    fn prometheus_text(&self, place: &Place) -> String {
        let mut all = begin(place, "forwarder", self.elapsed_s);
        put(&mut all, FORWARDER, self);
        let reasons = DropReason::ALL.into_iter().map(DropReason::name);
        let help = "Frames that went nowhere.";
        by_reason(&mut all, "forwarder_dropped_frames_total", help, reasons, &self.dropped);
        put_each(&mut all, LINE, &self.lines, |line| vec![("to", &line.to), ("address", &line.address)]);
        if let Some(cache) = &self.cache {
            put(&mut all, CACHE, cache);
        }
        all.into_text()
    }
}

impl Metrics for RendezvousStats {
    fn prometheus_text(&self, place: &Place) -> String {
        let mut all = begin(place, "rendezvous", self.elapsed_s);
        put(&mut all, RENDEZVOUS, self);
        let reasons = refusal::REJECTIONS.into_iter().map(refusal::name);
        let help = "Publications that were refused.";
        by_reason(&mut all, "rendezvous_refused_total", help, reasons, &self.refused);
        if let Some(state) = &self.shared_state {
            put(&mut all, SHARED_STATE, state);
        }
        all.into_text()
    }
}

impl Metrics for TopologyStats {
    fn prometheus_text(&self, place: &Place) -> String {
        let mut all = begin(place, "topology", self.elapsed_s);
        put(&mut all, TOPOLOGY, self);
        all.into_text()
    }
}
