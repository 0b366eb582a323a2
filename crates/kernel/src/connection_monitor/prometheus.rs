//! A snapshot as text for Prometheus (its text exposition format, version 0.0.4).

use std::fmt::{Display, Write as _};

use super::{ConnectionKind, ConnectionRow, Snapshot, SubflowRow};

/// One metric of each subflow: name without prefix, type, help, value.
type Metric = (&'static str, &'static str, &'static str, fn(&SubflowRow) -> Option<f64>);

const SUBFLOW: &[Metric] = &[
    ("cwnd_packets", "gauge", "Congestion window.", |s| Some(f64::from(s.cwnd))),
    ("ssthresh_packets", "gauge", "Slow start threshold; absent before the first loss.", |s| {
        s.ssthresh.map(f64::from)
    }),
    ("srtt_seconds", "gauge", "Smoothed round-trip time.", |s| Some(f64::from(s.srtt_us) / 1e6)),
    ("rttvar_seconds", "gauge", "Variation of the round-trip time.", |s| Some(f64::from(s.rttvar_us) / 1e6)),
    ("acked_bytes_total", "counter", "Bytes that the peer acknowledged.", |s| Some(s.acked_bytes as f64)),
    ("received_bytes_total", "counter", "Bytes received.", |s| Some(s.received_bytes as f64)),
    ("retransmitted_packets_total", "counter", "Packets sent again.", |s| Some(f64::from(s.retransmits))),
    ("retransmitted_bytes_total", "counter", "Bytes sent again.", |s| Some(s.retransmitted_bytes as f64)),
    ("backup", "gauge", "Whether it carries data only while no other can.", |s| {
        Some(f64::from(u8::from(s.backup)))
    }),
    ("m", "gauge", "NMCC's m: it grows by 1/m^2 of what TCP would.", |s| s.factors.map(|f| f.m)),
    ("m_t", "gauge", "NMCC's m_t: at a loss it cuts by m_t/2, TCP by 1/2.", |s| s.factors.map(|f| f.m_t)),
];

/// The metrics of a snapshot.
#[must_use]
pub fn prometheus_text(snapshot: &Snapshot) -> String {
    let mut text = String::new();
    let head = |text: &mut String, name: &str, kind: &str, help: &str| {
        let _ = writeln!(text, "# HELP anabranch_{name} {help}\n# TYPE anabranch_{name} {kind}");
    };
    head(&mut text, "connections", "gauge", "Connections there are; fallback: MPTCP that goes on as TCP.");
    for kind in [ConnectionKind::Mptcp, ConnectionKind::Fallback, ConnectionKind::Tcp] {
        let count = snapshot.connections.iter().filter(|c| c.kind == kind).count();
        let _ = writeln!(text, "anabranch_connections{{kind=\"{}\"}} {count}", word(kind));
    }
    head(&mut text, "connections_left_out", "gauge", "Connections that the others do not count: too many.");
    let _ = writeln!(text, "anabranch_connections_left_out {}", snapshot.left_out);
    let name = "connection_reinjected_bytes_total";
    head(&mut text, name, "counter", "Bytes sent again on another subflow than at first.");
    for c in snapshot.connections.iter().filter(|c| c.kind == ConnectionKind::Mptcp) {
        let labels = labels(&[
            ("token", c.token.as_ref().map_or(&"", |token| token)),
            ("local", &c.local),
            ("remote", &c.remote),
        ]);
        let _ = writeln!(text, "anabranch_{name}{{{labels}}} {}", c.reinjected_bytes);
    }
    let all: Vec<_> =
        snapshot.connections.iter().flat_map(|c| c.subflows.iter().map(|s| (of_subflow(c, s), s))).collect();
    for (name, kind, help, value) in SUBFLOW {
        head(&mut text, &format!("subflow_{name}"), kind, help);
        for (labels, subflow) in &all {
            if let Some(value) = value(subflow).filter(|value| value.is_finite()) {
                let _ = writeln!(text, "anabranch_subflow_{name}{{{labels}}} {value}");
            }
        }
    }
    text
}

fn of_subflow(c: &ConnectionRow, s: &SubflowRow) -> String {
    labels(&[
        ("kind", &word(c.kind)),
        ("token", c.token.as_ref().map_or(&"", |token| token)),
        ("local", &s.local),
        ("remote", &s.remote),
        ("interface", s.interface.as_ref().map_or(&"", |name| name)),
        ("controller", &s.controller),
    ])
}

const fn word(kind: ConnectionKind) -> &'static str {
    match kind {
        ConnectionKind::Mptcp => "mptcp",
        ConnectionKind::Fallback => "fallback",
        ConnectionKind::Tcp => "tcp",
    }
}

/// Labels; a name of an interface may hold any byte but a slash and white space.
fn labels(all: &[(&str, &dyn Display)]) -> String {
    let escaped = |value: &dyn Display| {
        value.to_string().replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
    };
    let each = all.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(*value)));
    each.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::super::tests::row;
    use super::super::{ConnectionKind, NmccFactors};
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

    /// The format's rules (Prometheus documentation, "Exposition formats"), as far as we use it.
    pub(crate) fn check(text: &str) {
        let name = |text: &str| {
            let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
            !text.is_empty() && text.chars().all(fits) && !text.starts_with(|c: char| c.is_ascii_digit())
        };
        let (mut typed, mut helped) = (Vec::new(), Vec::new());
        let mut samples = std::collections::BTreeSet::new();
        assert!(text.ends_with('\n'));
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                helped.push(rest.split_once(' ').unwrap().0);
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (one, kind) = rest.split_once(' ').unwrap();
                assert!(name(one) && !typed.contains(&one), "{line}");
                assert!(kind == "gauge" || kind == "counter" && one.ends_with("_total"), "{line}");
                typed.push(one);
            } else {
                let (series, value) = line.rsplit_once(' ').unwrap();
                let _: f64 = value.parse().unwrap();
                let one = series.split('{').next().unwrap();
                assert_eq!(typed.last(), Some(&one), "a sample follows its type: {line}");
                assert!(samples.insert(series.to_owned()), "twice: {line}");
            }
        }
        assert_eq!(typed, helped);
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
