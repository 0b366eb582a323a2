//! Writes a snapshot in the text exposition format of Prometheus, version 0.0.4.

use std::fmt::Display;

use anabranch_net::prometheus::{Exposition, Kind};

use super::{ConnectionKind, Snapshot, SubflowRow};

/// A metric of subflows: its name without prefix, its type, its help, and the function that reads its value.
type Metric = (&'static str, Kind, &'static str, fn(&SubflowRow) -> Option<f64>);

const SUBFLOW: &[Metric] = &[
    ("cwnd_packets", Kind::Gauge, "Congestion window.", |s| Some(f64::from(s.cwnd))),
    ("ssthresh_packets", Kind::Gauge, "Slow start threshold; absent before the first loss.", |s| {
        s.ssthresh.map(f64::from)
    }),
    ("srtt_seconds", Kind::Gauge, "Smoothed round-trip time.", |s| Some(f64::from(s.srtt_us) / 1e6)),
    ("rttvar_seconds", Kind::Gauge, "Variation of the round-trip time.", |s| {
        Some(f64::from(s.rttvar_us) / 1e6)
    }),
    ("acked_bytes_total", Kind::Counter, "Bytes that the peer acknowledged.", |s| Some(s.acked_bytes as f64)),
    ("received_bytes_total", Kind::Counter, "Bytes received.", |s| Some(s.received_bytes as f64)),
    ("retransmitted_packets_total", Kind::Counter, "Packets sent again.", |s| Some(f64::from(s.retransmits))),
    ("retransmitted_bytes_total", Kind::Counter, "Bytes sent again.", |s| Some(s.retransmitted_bytes as f64)),
    ("backup", Kind::Gauge, "Whether it carries data only while no other can.", |s| {
        Some(f64::from(u8::from(s.backup)))
    }),
    ("m", Kind::Gauge, "NMCC's m: it grows by 1/m^2 of what TCP would.", |s| s.factors.map(|f| f.m)),
    ("m_t", Kind::Gauge, "NMCC's m_t: at a loss it cuts by m_t/2, TCP by 1/2.", |s| s.factors.map(|f| f.m_t)),
];

/// Writes a snapshot as text for Prometheus.
#[must_use]
pub fn prometheus_text(snapshot: &Snapshot) -> String {
    let mut all = Exposition::new();
    all.metric("connections", Kind::Gauge, "Connections there are; fallback: MPTCP that goes on as TCP.");
    for kind in [ConnectionKind::Mptcp, ConnectionKind::Fallback, ConnectionKind::Tcp] {
        let count = snapshot.connections.iter().filter(|c| c.kind == kind).count();
        all.sample(&[("kind", &word(kind))], count);
    }
    all.metric("connections_left_out", Kind::Gauge, "Connections that the others do not count: too many.");
    all.sample(&[], snapshot.left_out);
    let help = "Bytes sent again on another subflow than at first.";
    all.metric("connection_reinjected_bytes_total", Kind::Counter, help);
    for c in snapshot.connections.iter().filter(|c| c.kind == ConnectionKind::Mptcp) {
        let token = c.token.as_deref().unwrap_or_default();
        all.sample(&[("token", &token), ("local", &c.local), ("remote", &c.remote)], c.reinjected_bytes);
    }
    let subflows = || snapshot.connections.iter().flat_map(|c| c.subflows.iter().map(move |s| (c, s)));
    for (name, kind, help, value) in SUBFLOW {
        all.metric(&format!("subflow_{name}"), *kind, help);
        for (c, s) in subflows() {
            let Some(value) = value(s).filter(|value| value.is_finite()) else { continue };
            let labels: [(&str, &dyn Display); 6] = [
                ("kind", &word(c.kind)),
                ("token", &c.token.as_deref().unwrap_or_default()),
                ("local", &s.local),
                ("remote", &s.remote),
                ("interface", &s.interface.as_deref().unwrap_or_default()),
                ("controller", &s.controller),
            ];
            all.sample(&labels, value);
        }
    }
    all.into_text()
}

const fn word(kind: ConnectionKind) -> &'static str {
    match kind {
        ConnectionKind::Mptcp => "mptcp",
        ConnectionKind::Fallback => "fallback",
        ConnectionKind::Tcp => "tcp",
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::row;
    use super::super::{ConnectionKind, ConnectionRow, NmccFactors};
    use anabranch_net::prometheus::check;

    use super::*;

    fn connection(subflows: Vec<SubflowRow>) -> ConnectionRow {
        let (local, remote) = (subflows[0].local, subflows[0].remote);
        ConnectionRow {
            kind: ConnectionKind::Mptcp,
            token: Some("0000004d".into()),
            local,
            remote,
            state: "established".into(),
            sent_rate_bytes: 0,
            received_rate_bytes: 0,
            reinjected_bytes: 3,
            subflows,
        }
    }

    #[test]
    fn it_is_what_prometheus_reads() {
        let odd = SubflowRow { interface: Some("a\"b\\c".into()), ssthresh: Some(20), ..row(2) };
        let known = SubflowRow { factors: Some(NmccFactors { m: 1.5, m_t: f64::NAN }), ..row(1) };
        let snapshot = Snapshot { connections: vec![connection(vec![known, odd])], left_out: 0 };
        let text = prometheus_text(&snapshot);
        check(&text);
        let labels = "kind=\"mptcp\",token=\"0000004d\",local=\"10.0.0.1:1\",remote=\"[2001:db8::1]:443\",\
                      interface=\"wlan0\",controller=\"reno\"";
        for line in [
            "anabranch_connections{kind=\"mptcp\"} 1".to_owned(),
            format!("anabranch_subflow_srtt_seconds{{{labels}}} 0.0205"),
            format!("anabranch_subflow_m{{{labels}}} 1.5"),
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
        assert!(text.contains("interface=\"a\\\"b\\\\c\""));
        assert!(!text.contains("NaN"));
        assert_eq!(text.matches("anabranch_subflow_ssthresh_packets{").count(), 1);
        check(&prometheus_text(&Snapshot::default()));
    }
}
