//! The report for people: what a capture shows, in words and small tables.

use std::fmt::Write as _;

use crate::connection::{Fallback, Protocol};
use crate::handover::{Cause, Handover};
use crate::journal::What;
use crate::report::{ConnectionReport, End, StreamReport, SubflowReport, Tap, Unused};
use crate::subflow::Side;
use crate::table::Totals;

/// Connections that are shown in full, the largest of those with several subflows first.
const SHOWN_MAX: usize = 5;
/// Stalls that are listed of a direction, the longest first.
const STALLS_SHOWN: usize = 4;

/// A direction with less than this part of the other one's data is a request: it has no table.
const REQUEST_SHARE: u64 = 100;

/// Connections are gathered here while the capture is read: the largest are kept, the others counted.
#[derive(Debug, Default)]
pub struct Summary {
    shown: Vec<ConnectionReport>,
    multipath: u64,
    several: u64,
    used: u64,
    handovers: u64,
    fallbacks: u64,
    bytes: u64,
}

/// Subflows first, as they are what is looked for; then bytes.
fn rank(report: &ConnectionReport) -> (bool, u64) {
    (report.subflows.len() > 1, report.bytes())
}

fn used(report: &ConnectionReport) -> usize {
    let carries = |s: &&SubflowReport| s.halves.up.unique_bytes + s.halves.down.unique_bytes > 0;
    report.subflows.iter().filter(carries).count()
}

impl Summary {
    /// Takes a connection.
    pub fn add(&mut self, report: ConnectionReport) {
        self.multipath += u64::from(report.is_multipath());
        self.several += u64::from(report.subflows.len() > 1);
        self.used += u64::from(used(&report) > 1);
        self.handovers += report.handovers.len() as u64;
        self.fallbacks += u64::from(report.fallback.is_some());
        self.bytes += report.bytes();
        self.shown.push(report);
        self.shown.sort_by_key(|report| std::cmp::Reverse(rank(report)));
        self.shown.truncate(SHOWN_MAX);
    }

    /// The text.
    #[must_use]
    pub fn text(&self, totals: &Totals) -> String {
        let mut text = String::new();
        let seconds = totals.last_ns.saturating_sub(totals.first_ns) as f64 / 1e9;
        let _ = writeln!(
            text,
            "{} in {}, {}, {} of data",
            plural(totals.frames, "frame"),
            duration(seconds),
            plural(totals.connections, "connection"),
            bytes(self.bytes)
        );
        if totals.connections > 1 || self.multipath == 0 {
            let _ = writeln!(
                text,
                "  {} Multipath TCP ({} with several subflows, {} used several), {} plain TCP",
                self.multipath,
                self.several,
                self.used,
                totals.connections - self.multipath
            );
        }
        for (count, what) in [
            (totals.not_tcp, "without TCP"),
            (totals.strays, "of connections that began before the capture"),
            (
                totals.cut_off,
                "cut off within their headers: capture with a longer snap length (tcpdump -s 128)",
            ),
            (totals.fragments, "are fragments"),
            (totals.malformed, "with headers that contradict themselves"),
        ] {
            if count > 0 {
                let _ = writeln!(text, "  {} {what}", plural(count, "frame"));
            }
        }
        if let Some(kind) = totals.unknown_link_type {
            let count = plural(totals.unknown_link, "frame");
            let _ = writeln!(text, "  {count} of a link type that cannot be read ({kind})");
        }
        for report in &self.shown {
            text.push('\n');
            connection(&mut text, report);
        }
        let left = totals.connections - self.shown.len() as u64;
        if left > 0 {
            let more = plural(left, "more connection");
            let _ = writeln!(text, "\n{more}, which --json has in full");
        }
        text
    }
}

fn connection(text: &mut String, report: &ConnectionReport) {
    let protocol = match report.protocol {
        Protocol::Tcp => "TCP",
        Protocol::Mptcp0 => "Multipath TCP version 0",
        Protocol::Mptcp1 => "Multipath TCP version 1",
    };
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
    let first = &report.subflows[0];
    let _ = writeln!(
        text,
        "connection {}: {protocol}, client {} to server {}\n  {}, {end}; {tap}",
        report.id,
        first.client,
        first.server,
        duration(report.duration_s)
    );
    if let Some(why) = report.fallback {
        let why = match why {
            Fallback::NotAnswered => "the server's SYN/ACK has no MP_CAPABLE",
            Fallback::NoMapping => "data came without a mapping",
            Fallback::Infinite => "an infinite mapping was sent",
        };
        let _ = writeln!(text, "  FELL BACK to plain TCP: {why}");
    }
    for side in [Side::Client, Side::Server] {
        let stream = report.streams.from(side);
        let other = report.streams.from(side.peer());
        if stream.unique_bytes > 0 && stream.unique_bytes >= other.unique_bytes / REQUEST_SHARE {
            direction(text, report, side, stream);
        } else if stream.unique_bytes > 0 {
            let _ = writeln!(text, "\n  {}: {}", towards(side), bytes(stream.unique_bytes));
        }
    }
    joins(text, report);
    for handover in &report.handovers {
        let _ = writeln!(text, "  {}", told(handover));
    }
    if report.handovers.is_empty() && report.subflows.len() > 1 {
        text.push_str("  no handover: no subflow that was in use left while another one carried on\n");
    }
    audits(text, report);
}

const fn towards(sender: Side) -> &'static str {
    match sender {
        Side::Client => "client to server",
        Side::Server => "server to client",
    }
}

/// A table of the subflows that carried this direction.
fn direction(text: &mut String, report: &ConnectionReport, side: Side, stream: &StreamReport) {
    let name = towards(side);
    let rate = if report.duration_s > 0.0 {
        format!(", {:.2} Mbit/s on average", stream.unique_bytes as f64 * 8e-6 / report.duration_s)
    } else {
        String::new()
    };
    let _ = writeln!(text, "\n  {name}: {}{rate}", bytes(stream.unique_bytes));
    let header =
        ["subflow", "data", "share", "TCP again", "reinjected", "re-sent", "RTT ms", "busy s", "idle s"];
    let mut rows = vec![header.map(str::to_owned)];
    for subflow in &report.subflows {
        let half = subflow.halves.from(side);
        let share = 100.0 * half.unique_bytes as f64 / stream.unique_bytes.max(1) as f64;
        let rtt = half.rtt_us.map_or_else(|| "-".into(), |rtt| format!("{:.1}", rtt.p50 as f64 / 1e3));
        rows.push([
            subflow.id.to_string(),
            bytes(half.unique_bytes),
            format!("{share:.1} %"),
            bytes(half.retransmitted.0),
            bytes(half.reinjected.0),
            bytes(half.resent.0),
            rtt,
            format!("{:.1}", half.busy_s),
            format!("{:.1}", half.idle_s),
        ]);
    }
    table(text, &rows);
    if report.subflows.len() > 1 {
        let _ = writeln!(
            text,
            "    {} (runs of packets on one subflow); acknowledged at a time: {}",
            plural(stream.blocks, "block"),
            stream
                .ack_bytes
                .map_or_else(|| "-".into(), |ack| format!("{} (median by bytes)", bytes(ack.p50)))
        );
    }
    stalls(text, stream);
}

fn stalls(text: &mut String, stream: &StreamReport) {
    let stalls = &stream.stalls;
    if stalls.count == 0 {
        let _ = writeln!(
            text,
            "    the receiver's stream never stood still for 200 ms (longest: {:.0} ms)",
            stalls.longest_ms
        );
    } else {
        let mut longest: Vec<_> = stalls.list.iter().collect();
        longest.sort_by(|a, b| b.ms.total_cmp(&a.ms));
        let told = longest
            .iter()
            .take(STALLS_SHOWN)
            .map(|stall| format!("{:.0} ms at {:.2} s", stall.ms, stall.at_s));
        let _ = writeln!(
            text,
            "    the receiver's stream stood still {}, {:.0} ms in all: {}",
            plural(stalls.count, "time"),
            stalls.total_ms,
            told.collect::<Vec<_>>().join(", ")
        );
    }
    if stream.missing_bytes > 0 {
        let _ = writeln!(text, "    {} never passed here", bytes(stream.missing_bytes));
    }
}

/// How each further subflow came about.
fn joins(text: &mut String, report: &ConnectionReport) {
    if report.subflows.len() > 1 {
        text.push('\n');
    }
    for subflow in report.subflows.iter().skip(1) {
        let _ = write!(
            text,
            "  subflow {}: {} to {}, joined after {:.1} ms",
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
        text.push('\n');
    }
}

fn told(handover: &Handover) -> String {
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

/// What is wrong, and what was not looked at.
fn audits(text: &mut String, report: &ConnectionReport) {
    let sums = &report.checksums;
    if sums.required || sums.right + sums.wrong + sums.unchecked > 0 {
        let _ = writeln!(
            text,
            "  checksums: {} right, {} WRONG, {} not captured whole",
            sums.right, sums.wrong, sums.unchecked
        );
    }
    let malformed = report.events.iter().filter(|event| event.what == What::Malformed).count() as u64;
    if malformed > 0 {
        let _ = writeln!(text, "  {} that cannot be read", plural(malformed, "option"));
    }
    let unmapped: u64 =
        report.subflows.iter().map(|s| s.halves.up.unmapped_bytes + s.halves.down.unmapped_bytes).sum();
    if unmapped > 0 {
        let _ = writeln!(text, "  {} of payload without a mapping: not counted as data", bytes(unmapped));
    }
    let (cut, forgotten) = report.inexact;
    if cut > 0 {
        let _ = writeln!(text, "  NOT EXACT: the snap length cut the options of {}", plural(cut, "segment"));
    }
    if forgotten > 0 {
        text.push_str("  NOT EXACT: it has more gaps than are remembered\n");
    }
}

/// Columns, aligned to the right.
fn table<const N: usize>(text: &mut String, rows: &[[String; N]]) {
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

fn plural(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 10.0 => format!("{s:.2} s"),
        s if s < 600.0 => format!("{s:.0} s"),
        s => format!("{:.0} min", s / 60.0),
    }
}

/// Bytes with three digits.
fn bytes(count: u64) -> String {
    let count = count as f64;
    match count {
        c if c < 1e3 => format!("{c} B"),
        c if c < 1e6 => format!("{:.1} kB", c / 1e3),
        c if c < 1e9 => format!("{:.2} MB", c / 1e6),
        c => format!("{:.2} GB", c / 1e9),
    }
}
