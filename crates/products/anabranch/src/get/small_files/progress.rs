//! Reports the progress of each route.

use anabranch_algo::Time;

use super::SmallFiles;
use crate::Progress;
use crate::format::seconds;

impl SmallFiles<'_> {
    /// Returns the progress of all routes; at the `end` with the mean rates of the whole transfer.
    pub(super) fn snapshot(&mut self, now: Time, end: bool) -> Progress {
        let status = |server| &self.servers[usize::from(server)].status;
        let paths = self.connections.rows((now, end), &mut self.rows, status);
        Progress {
            total_bytes: Some(self.totals.total_bytes),
            done_bytes: self.totals.done_bytes,
            resumed_bytes: self.totals.resumed_bytes,
            elapsed_s: seconds(now.since(self.rows.start)),
            paths,
            ..Progress::default()
        }
    }
}
