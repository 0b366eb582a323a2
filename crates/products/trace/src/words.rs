//! Puts numbers and findings into words, for all forms of the report.

use std::fmt::Write as _;

use crate::connection::{Fallback, Protocol};
use crate::handover::{Cause, Handover};
use crate::journal::What;
use crate::report::{ConnectionReport, End, SubflowReport, Tap, Unused};
use crate::subflow::Side;

pub(crate) fn plural(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Returns a duration as text, in seconds or minutes.
pub(crate) fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 10.0 => format!("{s:.2} s"),
        s if s < 600.0 => format!("{s:.0} s"),
        s => format!("{:.0} min", s / 60.0),
    }
}

/// Returns a number of bytes as text, with a unit from B to GB.
pub(crate) fn bytes(count: u64) -> String {
    let count = count as f64;
    match count {
        c if c < 1e3 => format!("{c} B"),
        c if c < 1e6 => format!("{:.1} kB", c / 1e3),
        c if c < 1e9 => format!("{:.2} MB", c / 1e6),
        c => format!("{:.2} GB", c / 1e9),
    }
}

pub(crate) const fn protocol(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Tcp => "TCP",
        Protocol::Mptcp0 => "Multipath TCP version 0",
        Protocol::Mptcp1 => "Multipath TCP version 1",
    }
}

pub(crate) const fn towards(sender: Side) -> &'static str {
    match sender {
        Side::Client => "client to server",
        Side::Server => "server to client",
    }
}

/// Returns two sentences, without full stops, that say what a connection is and how it ended.
pub(crate) fn headline(report: &ConnectionReport) -> [String; 2] {
    let end = match report.end {
        End::Closed => "closed by both ends",
        End::FastClose => "closed at once (MP_FASTCLOSE)",
        End::Reset => "reset",
        End::Refused => "never answered",
        End::Open => "still open where the capture ends",
    };
    let tap = match report.tap {
        Tap::Client => "captured at the client",
        Tap::Server => "captured at the server",
        Tap::Between => "captured between both ends, or they are too near to tell",
        Tap::Unknown if report.begin_seen => "no handshake ended",
        Tap::Unknown => "begun before the capture",
    };
    let (first, protocol) = (&report.subflows[0], protocol(report.protocol));
    [
        format!("connection {}: {protocol}, client {} to server {}", report.id, first.client, first.server),
        format!("{}, {end}; {tap}", duration(report.duration_s)),
    ]
}

pub(crate) const fn fallback(why: Fallback) -> &'static str {
    match why {
        Fallback::NotAnswered => "the server's SYN/ACK has no MP_CAPABLE",
        Fallback::NoMapping => "data came without a mapping",
        Fallback::Infinite => "an infinite mapping was sent",
    }
}

/// Returns a sentence that says how a further subflow was made.
pub(crate) fn join(subflow: &SubflowReport) -> String {
    let mut text = format!(
        "subflow {}: {} to {}, joined after {:.1} ms",
        subflow.id, subflow.client, subflow.server, subflow.join_delay_ms
    );
    if subflow.opener == Side::Server {
        text.push_str(" by the server");
    }
    if subflow.backup {
        text.push_str(", a backup");
    }
    if subflow.hmac_is_right == Some(false) {
        text.push_str(", its HMAC is WRONG");
    }
    if let Some(why) = subflow.unused {
        text.push_str(match why {
            Unused::NotEstablished => ", not used: it was never established",
            Unused::TooLate => ", not used: it came after the last data",
            Unused::Backup => ", not used: it is a backup",
            Unused::LittleData => ", not used: all data fits into the first window of another",
            Unused::Slower => ", not used: its round trips take longer",
            Unused::Unknown => ", not used",
        });
    }
    text
}

/// Returns a sentence that says which subflow took over from which, and why.
pub(crate) fn handover(handover: &Handover) -> String {
    let cause = match handover.cause {
        Cause::Silence => "fell silent",
        Cause::RemoveAddr => "lost its address (REMOVE_ADDR)",
        Cause::Prio => "became a backup (MP_PRIO)",
        Cause::Fin => "was closed (FIN)",
        Cause::Reset => "was reset (RST)",
    };
    let mut text = format!(
        "HANDOVER at {:.2} s: subflow {} {cause}; subflow {} carried data {:.0} ms later, {} in all",
        handover.at_s,
        handover.from,
        handover.to,
        handover.first_data_after_ms,
        bytes(handover.bytes_after)
    );
    if handover.stood_still_ms > 0.0 {
        let _ = write!(text, "; the stream stood still for {:.0} ms", handover.stood_still_ms);
    }
    if let Some(returned) = handover.returned_s {
        let _ = write!(text, "; it came back at {returned:.2} s");
    }
    text
}

/// Returns a sentence for each handover, or one that there is none although there are several subflows.
pub(crate) fn handovers(report: &ConnectionReport) -> Vec<String> {
    if report.handovers.is_empty() && report.subflows.len() > 1 {
        return vec!["no handover: no subflow that was in use left while another one carried on".into()];
    }
    report.handovers.iter().map(handover).collect()
}

/// The columns of a direction's table.
pub(crate) const COLUMNS: [&str; 9] =
    ["subflow", "data", "share", "TCP again", "reinjected", "re-sent", "RTT ms", "busy s", "idle s"];

/// Returns the rows of a direction's table, one for each subflow.
pub(crate) fn rows(report: &ConnectionReport, side: Side) -> Vec<[String; COLUMNS.len()]> {
    let unique_bytes = report.streams.from(side).unique_bytes;
    let row = |subflow: &SubflowReport| {
        let half = subflow.halves.from(side);
        let share = 100.0 * half.unique_bytes as f64 / unique_bytes.max(1) as f64;
        [
            subflow.id.to_string(),
            bytes(half.unique_bytes),
            format!("{share:.1} %"),
            bytes(half.retransmitted.0),
            bytes(half.reinjected.0),
            bytes(half.resent.0),
            half.rtt_us.map_or_else(|| "-".into(), |rtt| format!("{:.1}", rtt.p50 as f64 / 1e3)),
            format!("{:.1}", half.busy_s),
            format!("{:.1}", half.idle_s),
        ]
    };
    report.subflows.iter().map(row).collect()
}

/// Returns the amount of data of a direction, and its rate.
pub(crate) fn direction(report: &ConnectionReport, side: Side) -> String {
    let unique_bytes = report.streams.from(side).unique_bytes;
    let mut text = format!("{}: {}", towards(side), bytes(unique_bytes));
    if report.duration_s > 0.0 {
        let rate = unique_bytes as f64 * 8e-6 / report.duration_s;
        let _ = write!(text, ", {rate:.2} Mbit/s on average");
    }
    text
}

/// A direction with less than one part in this many of the other one's data is a request, and has no table.
const REQUEST_SHARE: u64 = 100;

/// Returns whether a direction has enough data for a table.
pub(crate) fn is_bulk(report: &ConnectionReport, side: Side) -> bool {
    let [own, other] = [side, side.peer()].map(|side| report.streams.from(side).unique_bytes);
    own > 0 && own >= other / REQUEST_SHARE
}

/// The most stalls of a direction that are listed, the longest first.
const STALLS_SHOWN: usize = 4;

/// Returns the findings about a direction that its table does not show.
pub(crate) fn notes(report: &ConnectionReport, side: Side) -> Vec<String> {
    let (stream, mut notes) = (report.streams.from(side), Vec::new());
    if report.subflows.len() > 1 {
        let acked = stream.ack_bytes;
        notes.push(format!(
            "{} (runs of packets on one subflow); acknowledged at a time: {}",
            plural(stream.blocks, "block"),
            acked.map_or_else(|| "-".into(), |ack| format!("{} (median by bytes)", bytes(ack.p50)))
        ));
    }
    let stalls = &stream.stalls;
    if stalls.count == 0 {
        let longest = stalls.longest_ms;
        notes.push(format!("the receiver's stream never stood still for 200 ms (longest: {longest:.0} ms)"));
    } else {
        let mut longest: Vec<_> = stalls.list.iter().collect();
        longest.sort_by(|a, b| b.ms.total_cmp(&a.ms));
        let told = longest.iter().take(STALLS_SHOWN);
        let told: Vec<_> = told.map(|stall| format!("{:.0} ms at {:.2} s", stall.ms, stall.at_s)).collect();
        notes.push(format!(
            "the receiver's stream stood still {}, {:.0} ms in all: {}",
            plural(stalls.count, "time"),
            stalls.total_ms,
            told.join(", ")
        ));
    }
    if stream.missing_bytes > 0 {
        notes.push(format!("{} never passed here", bytes(stream.missing_bytes)));
    }
    notes
}

/// Returns the errors of a connection, and the parts of it that were not examined.
pub(crate) fn audits(report: &ConnectionReport) -> Vec<String> {
    let (sums, mut audits) = (&report.checksums, Vec::new());
    if sums.required || sums.right + sums.wrong + sums.unchecked > 0 {
        let (right, wrong, unchecked) = (sums.right, sums.wrong, sums.unchecked);
        audits.push(format!("checksums: {right} right, {wrong} WRONG, {unchecked} not captured whole"));
    }
    let malformed = report.events.iter().filter(|event| event.what == What::Malformed).count() as u64;
    if malformed > 0 {
        audits.push(format!("{} that cannot be read", plural(malformed, "option")));
    }
    let unmapped: u64 =
        report.subflows.iter().map(|s| s.halves.up.unmapped_bytes + s.halves.down.unmapped_bytes).sum();
    if unmapped > 0 {
        audits.push(format!("{} of payload without a mapping: not counted as data", bytes(unmapped)));
    }
    let (cut, forgotten) = report.inexact;
    if cut > 0 {
        audits.push(format!("NOT EXACT: the snap length cut the options of {}", plural(cut, "segment")));
    }
    if forgotten > 0 {
        audits.push("NOT EXACT: it has more gaps than are remembered".into());
    }
    audits
}

/// Appends rows of cells to `text`, with each column aligned to the right.
pub(crate) fn table<const N: usize>(text: &mut String, rows: &[[String; N]]) {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    for row in rows {
        text.push_str("    ");
        for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
            let gap = if column == 0 { "" } else { "  " };
            let _ = write!(text, "{gap}{cell:>width$}");
        }
        text.push('\n');
    }
}
