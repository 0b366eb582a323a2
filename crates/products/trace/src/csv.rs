//! Writes subflows as comma-separated values (RFC 4180), one row for each subflow.

use std::fmt::Write as _;

use crate::distribution::Quantiles;
use crate::report::{ConnectionReport, HalfReport, SubflowReport};
use crate::subflow::Side;

const COLUMNS: [&str; 16] = [
    "connection",
    "protocol",
    "begin_ns",
    "duration_s",
    "end",
    "tap",
    "subflow",
    "client",
    "server",
    "opener",
    "join_delay_ms",
    "established",
    "backup",
    "unused",
    "handshake_rtt_us",
    "reset_reason",
];
const HALF_COLUMNS: [&str; 12] = [
    "packets",
    "payload_bytes",
    "unique_bytes",
    "retransmitted_bytes",
    "reinjected_bytes",
    "resent_bytes",
    "unmapped_bytes",
    "rtt_p50_us",
    "rtt_p99_us",
    "busy_s",
    "idle_s",
    "last_data_s",
];

/// Returns the first line with the names of the columns. Columns of the client's data begin with `up_`, those
/// of the server's data with `down_`.
#[must_use]
pub fn header() -> String {
    let mut line = COLUMNS.join(",");
    for prefix in ["up", "down"] {
        for column in HALF_COLUMNS {
            let _ = write!(line, ",{prefix}_{column}");
        }
    }
    line + "\n"
}

/// Returns the rows of a connection.
#[must_use]
pub fn rows(report: &ConnectionReport) -> String {
    let mut text = String::new();
    for subflow in &report.subflows {
        row(&mut text, report, subflow);
    }
    text
}

/// Returns a variant's name as JSON has it, made from its `Debug` form: `too_late` from `TooLate`.
fn word(value: impl std::fmt::Debug) -> String {
    let mut word = String::new();
    for letter in format!("{value:?}").chars() {
        if letter.is_ascii_uppercase() && !word.is_empty() {
            word.push('_');
        }
        word.push(letter.to_ascii_lowercase());
    }
    word
}

fn row(text: &mut String, report: &ConnectionReport, subflow: &SubflowReport) {
    let optional = |value: Option<u64>| value.map_or_else(String::new, |value| value.to_string());
    let cells = [
        report.id.to_string(),
        word(report.protocol),
        report.begin_ns.to_string(),
        format!("{:.9}", report.duration_s),
        word(report.end),
        word(report.tap),
        subflow.id.to_string(),
        subflow.client.to_string(),
        subflow.server.to_string(),
        word(subflow.opener),
        format!("{:.6}", subflow.join_delay_ms),
        subflow.established.to_string(),
        subflow.backup.to_string(),
        subflow.unused.map_or_else(String::new, word),
        optional(subflow.handshake_rtt_us),
        optional(subflow.reset_reason.map(u64::from)),
    ];
    text.push_str(&cells.join(","));
    for side in [Side::Client, Side::Server] {
        half(text, subflow.halves.from(side));
    }
    text.push('\n');
}

fn half(text: &mut String, half: &HalfReport) {
    let rtt = |of: fn(Quantiles) -> u64| half.rtt_us.map_or_else(String::new, |rtt| of(rtt).to_string());
    let last = half.last_data_s.map_or_else(String::new, |last| format!("{last:.9}"));
    let _ = write!(
        text,
        ",{},{},{},{},{},{},{},{},{},{:.1},{:.1},{last}",
        half.packets,
        half.payload_bytes,
        half.unique_bytes,
        half.retransmitted.0,
        half.reinjected.0,
        half.resent.0,
        half.unmapped_bytes,
        rtt(|rtt| rtt.p50),
        rtt(|rtt| rtt.p99),
        half.busy_s,
        half.idle_s,
    );
}
