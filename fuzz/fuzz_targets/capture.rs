//! A capture of any bytes: what is read of it is read without a panic and in bounded memory, the same however
//! the input is cut into reads, and no number contradicts another.

#![no_main]

use std::io::Read;
use std::ops::ControlFlow;

use anabranch_trace::summary::Summary;
use anabranch_trace::{Analysis, ConnectionReport, Side, Totals, csv, read_capture};
use libfuzzer_sys::fuzz_target;

/// Gives a few bytes at a time.
struct Drips<'a>(&'a [u8]);

impl Read for Drips<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = buffer.len().min(7);
        self.0.read(&mut buffer[..count])
    }
}

fn analyse(input: impl Read) -> (Vec<ConnectionReport>, Totals, String) {
    let mut reports = Vec::new();
    let mut analysis = Analysis::new(|report| reports.push(report));
    let read = read_capture(input, |frame| {
        analysis.frame(&frame);
        ControlFlow::Continue(())
    });
    let totals = analysis.finish();
    (reports, totals, format!("{read:?}"))
}

fuzz_target!(|bytes: &[u8]| {
    let (reports, totals, read) = analyse(bytes);
    let (again, same_totals, same) = analyse(Drips(bytes));
    assert_eq!((&totals, &read), (&same_totals, &same));
    assert_eq!(format!("{reports:?}"), format!("{again:?}"));
    assert_eq!(totals.connections, reports.len() as u64);
    let mut summary = Summary::default();
    for report in reports {
        for side in [Side::Client, Side::Server] {
            let stream = report.streams.from(side);
            let halves = report.subflows.iter().map(|subflow| subflow.halves.from(side));
            let unique: u64 = halves.clone().map(|half| half.unique_bytes).sum();
            assert_eq!(unique, stream.unique_bytes);
            for half in halves {
                let again = half.retransmitted.0 + half.reinjected.0 + half.resent.0;
                assert!(half.unique_bytes + again + half.unmapped_bytes <= half.payload_bytes);
            }
        }
        assert_eq!(csv::rows(&report).lines().count(), report.subflows.len());
        summary.add(report);
    }
    assert!(!summary.text(&totals).is_empty());
});
