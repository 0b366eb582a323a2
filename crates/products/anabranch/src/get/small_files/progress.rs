//! Reports the progress of each route.

use anabranch_algo::Time;

use super::SmallFiles;
use crate::format::seconds;
use crate::report::one_a_path;
use crate::{PathProgress, Progress};

impl SmallFiles<'_> {
    /// Returns the progress of all routes; at the `end` with the mean rates of the whole transfer.
    pub(super) fn snapshot(&mut self, now: Time, end: bool) -> Progress {
        let counts: Vec<u64> =
            self.machine.connections().map(|connection| connection.counters.bytes).collect();
        let rates = self.rows.rates(now, &counts, end);
        let rows = self.machine.connections().zip(&self.routes).zip(rates).map(|((report, route), rate)| {
            let server = &self.servers[usize::from(route.mirror)];
            PathProgress {
                rate_bytes: rate,
                srtt_us: report.srtt.as_micros(),
                bytes: report.counters.bytes,
                timeouts: report.counters.stalls,
                ..route.row(&server.status, report.state)
            }
        });
        Progress {
            total_bytes: Some(self.totals.total_bytes),
            done_bytes: self.totals.done_bytes,
            resumed_bytes: self.totals.resumed_bytes,
            elapsed_s: seconds(now.since(self.rows.start)),
            paths: one_a_path(rows),
            ..Progress::default()
        }
    }
}
