//! The counters of emulated links: for programs, and as tables for people.

use std::fmt::Write as _;

use anabranch_algo::Span;
use anabranch_emulator::Snapshot;
use serde::{Deserialize, Serialize};

/// The counters of one link since it is up.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct LinkCounts {
    pub(crate) offered: u64,
    pub(crate) delivered: u64,
    pub(crate) delivered_bytes: u64,
    /// Packets dropped by the queue; `lost`: lost at random or by script; `other`: dropped for other reasons.
    pub(crate) dropped: u64,
    pub(crate) lost: u64,
    pub(crate) other: u64,
    pub(crate) queue_max_packets: u64,
}

impl LinkCounts {
    pub(crate) fn of(stats: &anabranch_sim::Stats) -> Self {
        let (dropped, lost) = (stats.dropped.congestion(), stats.dropped.loss + stats.dropped.scripted);
        Self {
            offered: stats.offered,
            delivered: stats.delivered,
            delivered_bytes: stats.delivered_bytes,
            dropped,
            lost,
            other: stats.dropped.total() - dropped - lost,
            queue_max_packets: stats.queue_max_packets,
        }
    }
}

/// The lateness of all packets.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Lateness {
    /// The number of packets that links handed over; their median lateness, the largest 99th percentile among
    /// the connections, and the largest lateness, in µs.
    pub(crate) packets: u64,
    pub(crate) late_p50_us: f64,
    pub(crate) late_p99_us: f64,
    pub(crate) late_max_us: f64,
    /// Whether the thread of the links is of the real-time class.
    pub(crate) realtime: bool,
}

impl Lateness {
    pub(crate) fn of(snapshot: &Snapshot) -> Self {
        let late = snapshot.lateness();
        let micros = |span: Span| span.as_nanos() as f64 / 1e3;
        Self {
            packets: late.count(),
            late_p50_us: micros(late.quantile(0.5)),
            late_p99_us: micros(snapshot.late_p99()),
            late_max_us: micros(late.max()),
            realtime: snapshot.realtime,
        }
    }

    fn line(&self) -> String {
        let class = if self.realtime { "" } else { "; the thread is not of the real-time class" };
        format!(
            "lateness of {} packets: half within {:.3} ms, 99 % of each path within {:.3} ms, \
             all within {:.3} ms{class}\n",
            self.packets,
            self.late_p50_us / 1e3,
            self.late_p99_us / 1e3,
            self.late_max_us / 1e3
        )
    }
}

/// A row of the table of links: the name, the rate if there is one, and the counters.
pub(crate) type Row<'a> = (String, Option<String>, &'a LinkCounts);

/// Writes the table of links, the lateness of packets, and the reasons not to trust the numbers.
pub(crate) fn links(rows: &[Row<'_>], lateness: &Lateness, faults: &[String]) -> String {
    let width = rows.iter().map(|(name, ..)| name.chars().count()).max().unwrap_or(0).max(4);
    let mut text = format!(
        "{:width$}  {:>12}  {:>10}  {:>10}  {:>12}  {:>9}  {:>8}  {:>8}\n",
        "link", "rate", "offered", "delivered", "bytes", "longest", "dropped", "lost"
    );
    for (name, rate, link) in rows {
        let _ = writeln!(
            text,
            "{name:width$}  {:>12}  {:>10}  {:>10}  {:>12}  {:>5} pkt  {:>8}  {:>8}",
            rate.as_deref().unwrap_or("-"),
            link.offered,
            link.delivered,
            link.delivered_bytes,
            link.queue_max_packets,
            link.dropped,
            link.lost
        );
    }
    let _ = write!(text, "\n{}", lateness.line());
    for fault in faults {
        let _ = writeln!(text, "not to be trusted: {fault}");
    }
    text
}
