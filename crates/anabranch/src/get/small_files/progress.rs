//! How far each route is, for reports.

use algo::Time;

use super::SmallFiles;
use crate::report::is_same;
use crate::{PathProgress, PathState, Progress};

impl SmallFiles<'_> {
    /// The progress of all routes; at the `end` with mean rates.
    pub(super) fn snapshot(&mut self, now: Time, end: bool) -> Progress {
        let counts: Vec<u64> =
            self.machine.connections().map(|connection| connection.counters.bytes).collect();
        let rates = self.rows.rates(now, &counts, end);
        let all: u64 = counts.iter().sum();
        let rows = self.machine.connections().zip(&self.routes).zip(rates).map(|((report, route), rate)| {
            let server = &self.servers[usize::from(route.mirror)];
            PathProgress {
                rate_bytes: rate,
                share_percent: report.counters.bytes as f64 * 100.0 / all.max(1) as f64,
                srtt_us: report.srtt.as_micros(),
                bytes: report.counters.bytes,
                timeouts: report.counters.stalls,
                ..route.row(&server.status, report.state)
            }
        });
        let mut paths: Vec<PathProgress> = Vec::new();
        for row in rows {
            // A second connection belongs to its route; its state counts once it has done something.
            match paths.iter_mut().find(|first| is_same(first, &row)) {
                Some(first) => {
                    if first.state == PathState::NoAnswerYet {
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
        Progress {
            total_bytes: self.totals.total_bytes,
            done_bytes: self.totals.done_bytes,
            resumed_bytes: self.totals.resumed_bytes,
            elapsed_s: now.since(self.rows.start).as_nanos() as f64 / 1e9,
            paths,
            note: None,
        }
    }
}
