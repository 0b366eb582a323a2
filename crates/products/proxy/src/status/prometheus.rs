//! Writes a snapshot as text for Prometheus.

use std::fmt::Display;

use anabranch_net::prometheus::{Exposition, Kind};

use crate::status::{KnownServer, Link, LinkState, ServerState, Snapshot};

/// A metric of each link: name without prefix, type, help and value.
type Metric = (&'static str, Kind, &'static str, fn(&Link) -> Option<f64>);

const LINK: &[Metric] = &[
    ("up", Kind::Gauge, "Whether it is used, or would be.", |link| {
        Some(f64::from(u8::from(matches!(link.state, LinkState::Up | LinkState::Backup))))
    }),
    ("subflows", Kind::Gauge, "Subflows of trunks on it.", |link| Some(f64::from(link.subflows))),
    ("sent_bytes_total", Kind::Counter, "Bytes from here, those sent again among them.", |link| {
        Some(link.sent_bytes as f64)
    }),
    ("received_bytes_total", Kind::Counter, "Bytes to here.", |link| Some(link.received_bytes as f64)),
    ("retransmissions_total", Kind::Counter, "Packets from here that were sent again.", |link| {
        Some(link.retransmissions as f64)
    }),
    ("cap_bytes", Kind::Gauge, "What it may carry in a period.", |link| {
        link.cap_bytes.map(|bytes| bytes as f64)
    }),
    ("cap_used_bytes", Kind::Gauge, "What its interface has carried in this period.", |link| {
        link.cap_used_bytes.map(|bytes| bytes as f64)
    }),
    ("rtt_seconds", Kind::Gauge, "Round-trip time, mean of its subflows.", |link| {
        link.rtt_us.map(|us| us as f64 / 1e6)
    }),
    ("loss_ratio", Kind::Gauge, "Part of the bytes from here that was lost of late.", |link| {
        link.loss_percent.map(|percent| percent / 100.0)
    }),
];

/// A metric of each server of a client: name without prefix, help and value.
type ServerMetric = (&'static str, &'static str, fn(&KnownServer) -> Option<f64>);

const SERVER: &[ServerMetric] = &[
    ("up", "Whether it takes connections.", |server| {
        Some(f64::from(u8::from(server.state == ServerState::Up)))
    }),
    ("rtt_seconds", "Round-trip time of trunks to it.", |server| server.rtt_us.map(|us| us as f64 / 1e6)),
    ("load_ratio", "Connections per capacity, as it announced them.", |server| {
        let capacity = server.capacity.filter(|capacity| *capacity > 0)?;
        Some(f64::from(server.open?) / f64::from(capacity))
    }),
];

/// Writes the metrics of a snapshot. They have one series for each link and each present client, but none for
/// single connections.
#[must_use]
pub fn prometheus_text(snapshot: &Snapshot) -> String {
    let mut all = Exposition::new();
    let totals = &snapshot.totals;
    all.metric("proxy_info", Kind::Gauge, "Which proxy this is; always 1.");
    all.sample(&[("role", &snapshot.role.name()), ("release", &snapshot.release)], 1);
    let mut one = |name: &str, kind, help: &str, value: f64| {
        all.metric(name, kind, help);
        all.sample(&[], value);
    };
    one("proxy_uptime_seconds", Kind::Gauge, "Since it began.", snapshot.uptime_s);
    let open = snapshot.open_connections as f64;
    one("proxy_open_connections", Kind::Gauge, "Connections of programs that are open.", open);
    let ended = [
        ("connections_total", "Connections of programs that have ended.", totals.connections),
        ("failed_connections_total", "Those of them that did not end in order.", totals.failed),
        ("sent_bytes_total", "Bytes of those that have ended, towards origins.", totals.sent_bytes),
        ("received_bytes_total", "Bytes of those that have ended, from origins.", totals.received_bytes),
        ("dropped_reports_total", "Reports that nobody took in time.", totals.dropped_reports),
        ("refused_total", "Connections of nobody who is known that were refused.", totals.refused),
    ];
    for (name, help, value) in ended {
        one(&format!("proxy_{name}"), Kind::Counter, help, value as f64);
    }
    let flows = snapshot.datagram_flows as f64;
    one("proxy_datagram_flows", Kind::Gauge, "Programs that send datagrams.", flows);
    if let Some(load) = snapshot.several.load {
        let capacity = f64::from(load.capacity);
        let mut one = |name: &str, help: &str, value: f64| {
            all.metric(name, Kind::Gauge, help);
            all.sample(&[], value);
        };
        one("proxy_capacity", "Connections that the server wants at most.", capacity);
        one("proxy_load_ratio", "Open connections per capacity.", f64::from(load.open) / capacity.max(1.0));
        let waiting = snapshot.several.drain.as_ref().map_or(0, |drain| drain.waiting);
        one("proxy_drain_waiting_clients", "Clients that are to be told to go.", waiting as f64);
        all.metric("proxy_drain_told_clients_total", Kind::Counter, "Clients that were told to go.");
        all.sample(&[], snapshot.several.drain.as_ref().map_or(0, |drain| drain.told));
    }
    for (name, help, value) in SERVER {
        if snapshot.several.servers.is_empty() {
            break;
        }
        all.metric(&format!("proxy_server_{name}"), Kind::Gauge, help);
        for server in &snapshot.several.servers {
            let Some(value) = value(server) else { continue };
            all.sample(&[("server", &server.name)], value);
        }
    }
    all.metric("proxy_trunks", Kind::Gauge, "Connections between client and server.");
    for transport in ["MPTCP", "TCP"] {
        let count = snapshot.trunks.iter().filter(|trunk| trunk.transport == transport).count();
        all.sample(&[("transport", &transport)], count);
    }
    for (name, kind, help, value) in LINK {
        all.metric(&format!("proxy_link_{name}"), *kind, help);
        for link in &snapshot.links {
            let Some(value) = value(link).filter(|value| value.is_finite()) else { continue };
            let client = link.client.as_deref().unwrap_or_default();
            let labels: [(&str, &dyn Display); 2] = [("link", &link.name), ("client", &client)];
            // Prometheus treats an empty label as a missing one.
            all.sample(if link.client.is_some() { &labels } else { &labels[..1] }, value);
        }
    }
    all.metric("proxy_client_open_connections", Kind::Gauge, "Connections of a client that are open.");
    for client in &snapshot.clients {
        all.sample(&[("client", &client.name)], client.open_connections);
    }
    all.into_text()
}
