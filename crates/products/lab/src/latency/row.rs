//! The latencies of a stream, over all seeds.

use anabranch_algo::Span;

use super::grid::{Bed, Task, Transport};
use super::workload::DEADLINE;

/// The latencies of a stream with one transport, over all seeds.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The testbed.
    pub bed: Bed,
    /// Name of the stream: `video`, a game or a page.
    pub stream: &'static str,
    /// The transport.
    pub transport: Transport,
    /// Latencies, ms, ascending; infinite for messages that never came.
    pub latencies_ms: Vec<f64>,
}

impl Row {
    /// Returns the mean latency, ms.
    #[must_use]
    pub fn mean_ms(&self) -> f64 {
        self.latencies_ms.iter().sum::<f64>() / self.latencies_ms.len().max(1) as f64
    }

    /// Returns the least latency that at least `percent` of the messages do not exceed, ms.
    #[must_use]
    pub fn percentile_ms(&self, percent: f64) -> f64 {
        let count = self.latencies_ms.len();
        let rank = (percent / 100.0 * count as f64).ceil() as usize;
        self.latencies_ms.get(rank.clamp(1, count.max(1)) - 1).copied().unwrap_or(f64::NAN)
    }

    /// Returns how many messages came after the deadline of video frames, percent.
    #[must_use]
    pub fn missed_percent(&self) -> f64 {
        let deadline_ms = DEADLINE.as_nanos() as f64 / 1e6;
        let late = self.latencies_ms.iter().filter(|latency| **latency > deadline_ms).count();
        100.0 * late as f64 / self.latencies_ms.len().max(1) as f64
    }
}

/// Puts the results of tasks, in the order of the tasks, into rows.
///
/// # Errors
/// If a run does not count; the error says which and why.
pub fn rows(tasks: &[Task], results: &[Result<Vec<Vec<Span>>, String>]) -> Result<Vec<Row>, String> {
    let mut rows: Vec<Row> = Vec::new();
    for (task, result) in tasks.iter().zip(results) {
        for (stream, latencies) in task.workload.streams().iter().zip(result.clone()?) {
            let ms = |latency: &Span| match *latency {
                Span::MAX => f64::INFINITY,
                latency => latency.as_nanos() as f64 / 1e6,
            };
            let ms = latencies.iter().map(ms);
            let key = (task.bed, *stream, task.transport);
            match rows.iter_mut().rev().find(|row| (row.bed, row.stream, row.transport) == key) {
                Some(row) => row.latencies_ms.extend(ms),
                None => rows.push(Row {
                    bed: task.bed,
                    stream,
                    transport: task.transport,
                    latencies_ms: ms.collect(),
                }),
            }
        }
    }
    rows.iter_mut().for_each(|row| row.latencies_ms.sort_by(f64::total_cmp));
    Ok(rows)
}
