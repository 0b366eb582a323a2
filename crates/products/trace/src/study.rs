//! The tables of the study of smartphones, computed anew from any captures: by two definitions, beside the
//! paper's numbers.
//!
//! Source: 000 section 2.3.4 and 2.3.5 (PAM 2016). Each row is a share in per cent. The column `exact`
//! follows the definitions of this crate's README. The column `pam16` follows the study's scripts: see
//! `pam16` for bytes, and
//!
//! * a join counts if both ends acknowledged something on the subflow;
//! * the size of a connection is the larger of its data and of the payload that its subflows sent once;
//! * a handover (section 2.3.5.6): the client has sent no FIN on a used subflow k, and on another one its
//!   last acknowledgement and the last new payload are later than its last acknowledgement on k.
//!
//! Only connections that asked for Multipath TCP count. The server is the proxy of the paper, where the study
//! captured. Sizes of acknowledgements and of blocks are counted in buckets an eighth of a power of two wide.

use serde::Serialize;

use crate::journal::What;
use crate::report::{ConnectionReport, End, SubflowReport, Unused};
use crate::subflow::Side;
use crate::words;

/// The rows of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
enum Row {
    Established,
    Used,
    Handover,
    Subflows,
    Failed = Self::Subflows as usize + 6,
    Short,
    Long,
    Small,
    Join,
    FirstJoin = Self::Join as usize + 4,
    RttSpread = Self::FirstJoin as usize + 2,
    TcpAck = Self::RttSpread as usize + 3,
    DataAck = Self::TcpAck as usize + 2,
    LargeBlocks = Self::DataAck as usize + 2,
    SmallBlocks,
    Unused,
    UnusedJoined,
    TooLate,
    Backup,
    Retransmitting,
    Retransmitted,
    Reinjecting = Self::Retransmitted as usize + 2,
    Reinjected,
    HandoverOfUsed = Self::Reinjected as usize + 2,
    NoRemoveAddr,
    AllOnFirst,
}

/// The text of each row, and the paper's per cent.
const ROWS: [(&str, f64); Row::AllOnFirst as usize + 1] = [
    ("T1: connections with 2 established subflows or more", 32.25),
    ("T2: connections with 2 used subflows or more", 8.43),
    ("T3: connections with a handover", 1.93),
    ("connections with 1 subflow", 67.75),
    ("… 2 subflows", 29.96),
    ("… 3 subflows", 1.07),
    ("… 4 subflows", 0.48),
    ("… 5 subflows", 0.26),
    ("… more", 0.48),
    ("connections whose handshake never ended", 4.3),
    ("connections shorter than 10 s", 65.0),
    ("connections longer than 100 s", 20.8),
    ("connections of less than 10 kB", 86.9),
    ("joins within 200 ms", 60.0),
    ("joins within 1 s", 72.5),
    ("joins after 60 s", 14.5),
    ("joins after 1 h", 1.5),
    ("first joins within 200 ms", 67.3),
    ("first joins within 1 s", 81.1),
    ("T1: mean RTTs of subflows differ by at most 10 ms", 19.4),
    ("T1: … 100 ms", 77.9),
    ("T1: … by 1 s or more", 3.9),
    ("bytes in TCP ACKs of one segment (1428 B)", 50.7),
    ("bytes in TCP ACKs of at most 20 kB", 91.1),
    ("bytes in data ACKs of two segments (2856 B)", 51.0),
    ("bytes in data ACKs of at most 20 kB", 70.6),
    ("T1 over 1 MB: packets in blocks of at most a fifth", 54.5),
    ("T1 under 10 kB: one block", 72.8),
    ("T1: subflows that are not used", 41.2),
    ("T1: joined subflows that are not used", 75.6),
    ("of these: established after the last data", 21.0),
    ("of these: backup", 2.1),
    ("T2: with retransmissions", 52.7),
    ("T2: less than 1 % of bytes retransmitted", 68.7),
    ("T2: less than 10 % of bytes retransmitted", 85.0),
    ("T2: with reinjections", 29.3),
    ("T2: less than 1 % of bytes reinjected", 79.7),
    ("T2: less than 10 % of bytes reinjected", 89.8),
    ("T2: with a handover", 22.9),
    ("T3: without REMOVE_ADDR", 17.9),
    ("T3: all data of the server on the first subflow", 21.3),
];

/// The columns that are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Exact,
    Pam16,
}

const COLUMNS: [Column; 2] = [Column::Exact, Column::Pam16];

/// A part and the whole that it belongs to.
#[derive(Clone, Copy, Debug, Default)]
struct Ratio {
    part: f64,
    of: f64,
}

/// The study, to which connections are added.
#[derive(Debug)]
pub struct Study {
    ratios: [[Ratio; 2]; ROWS.len()],
    connections: u64,
}

/// A row of the report.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StudyRow {
    /// The text of the row.
    pub what: &'static str,
    /// The share by the exact definitions, per cent; `null` if the whole is empty.
    pub exact: Option<f64>,
    /// The share by the definitions of the study, per cent; `null` if the whole is empty.
    pub pam16: Option<f64>,
    /// The share in the paper, per cent.
    pub paper: f64,
}

impl Default for Study {
    fn default() -> Self {
        Self { ratios: [[Ratio::default(); 2]; ROWS.len()], connections: 0 }
    }
}

impl Study {
    /// Adds a connection from an analysis that was told to [count for a study](crate::Analysis::with_study).
    /// Ignores connections that did not ask for Multipath TCP.
    pub fn add(&mut self, report: &ConnectionReport) {
        if !report.is_multipath() {
            return;
        }
        self.connections += 1;
        for column in COLUMNS {
            self.shape(column, report);
            self.joins(column, report);
            self.acknowledgements(column, report);
            self.several(column, report);
        }
    }

    /// Returns how many connections were added.
    #[must_use]
    pub const fn connections(&self) -> u64 {
        self.connections
    }

    /// Returns the rows.
    #[must_use]
    pub fn rows(&self) -> Vec<StudyRow> {
        let percent = |ratio: &Ratio| (ratio.of > 0.0).then(|| 100.0 * ratio.part / ratio.of);
        let row = |((what, paper), [exact, pam16]): (&(&'static str, f64), &[Ratio; 2])| StudyRow {
            what,
            exact: percent(exact),
            pam16: percent(pam16),
            paper: *paper,
        };
        ROWS.iter().zip(&self.ratios).map(row).collect()
    }

    /// Returns the table as text.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text =
            format!("{} of Multipath TCP; per cent\n", words::plural(self.connections, "connection"));
        let mut rows = vec![["", "exact", "pam16", "paper"].map(str::to_owned)];
        let cell = |value: Option<f64>| value.map_or_else(|| "-".into(), |value| format!("{value:.2}"));
        let width = ROWS.iter().map(|(what, _)| what.chars().count()).max().unwrap_or(0);
        for row in self.rows() {
            rows.push([
                format!("{:<width$}", row.what),
                cell(row.exact),
                cell(row.pam16),
                cell(Some(row.paper)),
            ]);
        }
        words::table(&mut text, &rows);
        text
    }

    fn count(&mut self, column: Column, row: Row, further: usize, is_part: bool) {
        self.weigh(column, row, further, f64::from(u8::from(is_part)), 1.0);
    }

    fn weigh(&mut self, column: Column, row: Row, further: usize, part: f64, of: f64) {
        let ratio = &mut self.ratios[row as usize + further][column as usize];
        ratio.part += part;
        ratio.of += of;
    }

    /// Counts the numbers of subflows, the durations and the sizes of connections.
    fn shape(&mut self, column: Column, report: &ConnectionReport) {
        let established = report.subflows.iter().filter(|subflow| subflow.established).count();
        self.count(column, Row::Established, 0, established > 1);
        self.count(column, Row::Used, 0, used(report).count() > 1);
        self.count(column, Row::Handover, 0, has_handover(column, report));
        for further in 0..6 {
            self.count(column, Row::Subflows, further, report.subflows.len().min(6) == further + 1);
        }
        let has_failed = report.end == End::Refused || !report.subflows[0].established;
        self.count(column, Row::Failed, 0, has_failed);
        self.count(column, Row::Short, 0, report.duration_s < 10.0);
        self.count(column, Row::Long, 0, report.duration_s > 100.0);
        self.count(column, Row::Small, 0, size_bytes(column, report) < 10_000);
    }

    fn joins(&mut self, column: Column, report: &ConnectionReport) {
        let counts = |subflow: &&SubflowReport| {
            let is_acked = |side| subflow.halves.from(side).last_ack_s.is_some();
            column == Column::Exact || Side::BOTH.into_iter().all(is_acked)
        };
        for (number, subflow) in report.subflows.iter().skip(1).filter(counts).enumerate() {
            let delay_s = subflow.join_delay_ms / 1e3;
            let parts = [delay_s <= 0.2, delay_s <= 1.0, delay_s > 60.0, delay_s > 3600.0];
            for (further, is_part) in parts.into_iter().enumerate() {
                self.count(column, Row::Join, further, is_part);
            }
            if number == 0 {
                self.count(column, Row::FirstJoin, 0, parts[0]);
                self.count(column, Row::FirstJoin, 1, parts[1]);
            }
        }
    }

    /// Counts the bytes that each acknowledgement of the client added.
    fn acknowledgements(&mut self, column: Column, report: &ConnectionReport) {
        let facts = &report.streams.down.facts;
        for (row, sizes, segments_bytes) in
            [(Row::TcpAck, &facts.tcp_acks, 1428), (Row::DataAck, &facts.data_acks, 2856)]
        {
            for (further, limit) in [segments_bytes, 20_000].into_iter().enumerate() {
                let (part, of) = sizes.below(limit);
                self.weigh(column, row, further, part as f64, of as f64);
            }
        }
    }

    /// Counts the rows of T1, T2 and T3.
    fn several(&mut self, column: Column, report: &ConnectionReport) {
        if report.subflows.iter().filter(|subflow| subflow.established).count() > 1 {
            self.established(column, report);
        }
        if used(report).count() > 1 {
            self.again(column, report);
            self.count(column, Row::HandoverOfUsed, 0, has_handover(column, report));
        }
        if has_handover(column, report) {
            let removes = |event: &crate::journal::Event| matches!(event.what, What::RemoveAddr { .. });
            self.count(column, Row::NoRemoveAddr, 0, !report.events.iter().any(removes));
            let others = report.subflows.iter().skip(1).map(|subflow| subflow.halves.down.unique_bytes);
            self.count(column, Row::AllOnFirst, 0, others.sum::<u64>() == 0);
        }
    }

    fn established(&mut self, column: Column, report: &ConnectionReport) {
        let means = report.subflows.iter().filter_map(|subflow| subflow.halves.down.rtt_us);
        let means: Vec<f64> = means.filter(|rtt| rtt.samples >= 3).map(|rtt| rtt.mean / 1e3).collect();
        if means.len() > 1 {
            let (low, high) =
                means.iter().fold((f64::MAX, 0.0_f64), |(low, high), m| (low.min(*m), high.max(*m)));
            for (further, is_part) in
                [high - low <= 10.0, high - low <= 100.0, high - low >= 1000.0].into_iter().enumerate()
            {
                self.count(column, Row::RttSpread, further, is_part);
            }
        }
        let down = &report.streams.down;
        let (blocks, packets) = match column {
            Column::Exact => (down.blocks, &down.facts.block_packets),
            Column::Pam16 => (down.facts.pam16.blocks, &down.facts.pam16.block_packets),
        };
        let bytes = size_bytes(column, report);
        if bytes > 1_000_000 {
            let (_, all) = packets.below(0);
            let (part, of) = packets.below(all / 5);
            if of > 0 {
                self.weigh(column, Row::LargeBlocks, 0, part as f64 / of as f64, 1.0);
            }
        } else if bytes < 10_000 && blocks > 0 {
            self.count(column, Row::SmallBlocks, 0, blocks == 1);
        }
        for subflow in &report.subflows {
            let is_unused = unique_bytes(subflow) == 0;
            self.count(column, Row::Unused, 0, is_unused);
            if subflow.id > 0 {
                self.count(column, Row::UnusedJoined, 0, is_unused);
            }
            if subflow.id > 0 && is_unused {
                self.count(column, Row::TooLate, 0, subflow.unused == Some(Unused::TooLate));
                self.count(column, Row::Backup, 0, subflow.backup);
            }
        }
    }

    /// Counts the bytes that the server sent again.
    fn again(&mut self, column: Column, report: &ConnectionReport) {
        let down = &report.streams.down;
        let pam16 = &down.facts.pam16;
        let (retransmitted, reinjected) = match column {
            Column::Exact => (down.retransmitted_bytes, down.reinjected_bytes),
            Column::Pam16 => (pam16.retransmitted_bytes, pam16.reinjected_bytes),
        };
        let unique = down.unique_bytes.max(1) as f64;
        for (has, share, bytes) in [
            (Row::Retransmitting, Row::Retransmitted, retransmitted),
            (Row::Reinjecting, Row::Reinjected, reinjected),
        ] {
            self.count(column, has, 0, bytes > 0);
            self.count(column, share, 0, (bytes as f64) < 0.01 * unique);
            self.count(column, share, 1, (bytes as f64) < 0.1 * unique);
        }
    }
}

fn unique_bytes(subflow: &SubflowReport) -> u64 {
    subflow.halves.up.unique_bytes + subflow.halves.down.unique_bytes
}

fn used(report: &ConnectionReport) -> impl Iterator<Item = &SubflowReport> {
    report.subflows.iter().filter(|subflow| unique_bytes(subflow) > 0)
}

fn size_bytes(column: Column, report: &ConnectionReport) -> u64 {
    let halves = report.subflows.iter().flat_map(|subflow| [&subflow.halves.up, &subflow.halves.down]);
    let once: u64 = halves.map(|half| half.payload_bytes - half.retransmitted.0).sum();
    match column {
        Column::Exact => report.bytes(),
        Column::Pam16 => report.bytes().max(once),
    }
}

fn has_handover(column: Column, report: &ConnectionReport) -> bool {
    if column == Column::Exact {
        return !report.handovers.is_empty();
    }
    let last_ack = |subflow: &SubflowReport| subflow.halves.up.last_ack_s;
    let last_data = |subflow: &SubflowReport| {
        let [up, down] = [subflow.halves.up.last_data_s, subflow.halves.down.last_data_s];
        up.unwrap_or(0.0).max(down.unwrap_or(0.0))
    };
    let left = used(report).filter(|subflow| subflow.halves.up.fin_s.is_none());
    left.filter_map(|subflow| Some((subflow.id, last_ack(subflow)?))).any(|(id, left_s)| {
        used(report).any(|other| {
            other.id != id && last_ack(other).is_some_and(|ack| ack > left_s) && last_data(other) > left_s
        })
    })
}
