//! What mirrors look like to people: a row for each way.

use mirror::plan::State;

use super::Web;
use crate::get::standing::faults;
use crate::view::PathRow;

impl Web {
    /// Mirrors that sent wrong bytes, with what is known of it.
    pub(in crate::get) fn liars(&self) -> impl Iterator<Item = (&str, &str)> {
        self.mirrors.iter().filter_map(|seen| seen.standing.lie())
    }

    /// What those mirrors say that answer, but only that they cannot answer now.
    pub(in crate::get) fn faults(&self) -> Option<String> {
        faults(self.mirrors.iter().map(|seen| &seen.standing))
    }

    /// Bytes of each way, those that were not needed among them: what moves is alive.
    pub(in crate::get) fn bytes(&self) -> impl Iterator<Item = u64> {
        self.machine.ways().map(|way| way.counters.bytes)
    }

    /// All that has come over any way.
    pub(in crate::get) fn moved(&self) -> u64 {
        self.machine.ways().map(|way| way.counters.bytes + way.counters.duplicate_bytes).sum()
    }

    /// Whether no mirror answers.
    pub(in crate::get) fn is_silent(&self) -> bool {
        self.machine.ways().all(|way| way.state != State::Open)
    }

    /// A row for each way; `rates` are theirs, `all` the bytes of the whole transfer.
    pub(in crate::get) fn rows(&self, rates: &[u64], all: u64) -> impl Iterator<Item = PathRow> {
        self.machine.ways().zip(&self.ways).zip(rates).map(move |((report, way), rate)| {
            let seen = &self.mirrors[usize::from(way.mirror)];
            PathRow {
                rate_bytes: *rate,
                share_percent: report.counters.bytes as f64 * 100.0 / all.max(1) as f64,
                srtt_us: report.srtt.as_micros(),
                cwnd: report.cwnd,
                bytes: report.counters.bytes,
                timeouts: report.counters.stalls,
                group: report.group,
                ..way.row(&seen.standing, report.state)
            }
        })
    }
}
