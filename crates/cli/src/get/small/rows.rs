//! What the ways look like to people.

use super::Small;
use crate::view::{NO_ANSWER_YET, PathRow, Snapshot, is_same};

impl Small<'_> {
    /// A picture of it all; at the `end` with mean rates.
    pub(super) fn snapshot(&mut self, end: bool) -> Snapshot {
        let now = self.clock.now();
        let counts: Vec<u64> = self.machine.connections().map(|way| way.counters.bytes).collect();
        let rates = self.rows.rates(now, &counts, end);
        let all: u64 = counts.iter().sum();
        let rows = self.machine.connections().zip(&self.ways).zip(rates).map(|((report, way), rate)| {
            let seen = &self.servers[usize::from(way.mirror)];
            PathRow {
                rate_bytes: rate,
                share_percent: report.counters.bytes as f64 * 100.0 / all.max(1) as f64,
                srtt_us: report.srtt.as_micros(),
                bytes: report.counters.bytes,
                timeouts: report.counters.stalls,
                ..way.row(&seen.standing, report.state)
            }
        });
        let mut paths: Vec<PathRow> = Vec::new();
        for row in rows {
            // A second lane is part of its way; what it does is told when it does something.
            match paths.iter_mut().find(|first| is_same(first, &row)) {
                Some(first) => {
                    if first.state == NO_ANSWER_YET {
                        first.state.clone_from(&row.state);
                    }
                    first.rate_bytes += row.rate_bytes;
                    first.share_percent += row.share_percent;
                    first.bytes += row.bytes;
                    first.timeouts += row.timeouts;
                }
                None => paths.push(row),
            }
        }
        Snapshot {
            total_bytes: self.totals.total_bytes,
            done_bytes: self.totals.done_bytes,
            resumed_bytes: self.totals.resumed_bytes,
            elapsed_s: now.since(self.rows.start).as_nanos() as f64 / 1e9,
            paths,
            note: None,
        }
    }
}
