//! What mirrors look like to people: a row for each way.

use mirror::range_scheduler::{Counters, State};

use super::Web;
use crate::get::standing::faults;
use crate::view::{PathRow, View, bytes};

impl Web {
    /// Mirrors that sent wrong bytes, with what is known of it.
    pub(in crate::get) fn liars(&self) -> impl Iterator<Item = (&str, &str)> {
        self.mirrors.iter().filter_map(|seen| seen.standing.lie())
    }

    /// What those mirrors say that answer, but only that they cannot answer now, or that never come further.
    pub(in crate::get) fn faults(&self) -> Option<String> {
        let breaks = self.machine.connections().zip(&self.ways).filter_map(|(report, way)| {
            let (at, name) = (report.breaks_at_byte?, &self.mirrors[usize::from(way.mirror)].standing.name);
            Some(format!("{name}: the server breaks off after {} and gives no ranges", bytes(at)))
        });
        let all: Vec<String> =
            faults(self.mirrors.iter().map(|seen| &seen.standing)).into_iter().chain(breaks).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    /// Bytes of each way, those that were not needed among them: what moves is alive.
    pub(in crate::get) fn bytes(&self) -> impl Iterator<Item = u64> {
        self.machine.connections().map(|way| way.counters.bytes)
    }

    /// All that has come over any way, but for what comes again and again.
    pub(in crate::get) fn moved(&self) -> u64 {
        let moved = |c: Counters| c.bytes + c.duplicate_bytes - c.vain_bytes;
        self.machine.connections().map(|way| moved(way.counters)).sum()
    }

    /// Whether no mirror answers.
    pub(in crate::get) fn is_silent(&self) -> bool {
        self.machine.connections().all(|way| way.state != State::Open)
    }

    /// Says once which mirrors can only send everything, where others send parts.
    pub(super) fn tell_reserve(&mut self, view: &mut View) {
        if !self.machine.connections().any(|way| way.ranges && way.state != State::Closed) {
            return;
        }
        for way in self.machine.connections().filter(|way| !way.ranges && way.state != State::Closed) {
            let Some(seen) = self.mirrors.get_mut(usize::from(way.mirror)) else { continue };
            if !std::mem::replace(&mut seen.reserve, true) {
                view.note(&format!("{}: gives no ranges, kept in reserve", seen.standing.name));
            }
        }
    }

    /// A row for each way; `rates` are theirs, `all` the bytes of the whole transfer.
    pub(in crate::get) fn rows(&self, rates: &[u64], all: u64) -> impl Iterator<Item = PathRow> {
        self.machine.connections().zip(&self.ways).zip(rates).map(move |((report, way), rate)| {
            let seen = &self.mirrors[usize::from(way.mirror)];
            let row = way.row(&seen.standing, report.state);
            let waits = matches!(report.state, State::Opening | State::Open) && report.fetching.is_none();
            let is_out = seen.standing.out.is_some() || report.counters.bytes > 0;
            let idle = !report.ranges && waits && !is_out;
            let state = if idle { "no ranges".to_owned() } else { row.state.clone() };
            PathRow {
                state,
                rate_bytes: *rate,
                share_percent: report.counters.bytes as f64 * 100.0 / all.max(1) as f64,
                srtt_us: report.srtt.as_micros(),
                cwnd: report.cwnd,
                bytes: report.counters.bytes,
                timeouts: report.counters.stalls,
                group: report.group,
                ..row
            }
        })
    }
}
