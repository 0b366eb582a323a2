//! A capture of any bytes: what is read of it is read without a panic and in bounded memory, the same however
//! the input is cut into reads, and no number contradicts another.

#![no_main]

use std::io::Read;
use std::ops::ControlFlow;

use anabranch_trace::anonymise::Anonymiser;
use anabranch_trace::both_ends::BothEnds;
use anabranch_trace::study::Study;
use anabranch_trace::summary::Summary;
use anabranch_trace::{Analysis, Capture, ConnectionReport, Side, Totals, csv, html, read_capture};
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

/// A copy that others may have: it is a sound capture, with as many connections and bytes.
fn anonymise(bytes: &[u8], totals: &Totals) {
    let mut copy = Anonymiser::new(Vec::new(), [7; 16]).expect("memory");
    let mut study = Study::default();
    let mut analysis = Analysis::new(|report| study.add(&report)).with_plots().with_study();
    let _ = read_capture(bytes, |frame| {
        analysis.frame(&frame);
        copy.frame(&frame, |from, to| analysis.keys(from, to)).expect("memory");
        ControlFlow::Continue(())
    });
    analysis.finish();
    assert!(
        study.connections() <= totals.connections && study.rows().iter().all(|row| is_percent(row.exact))
    );
    // A pcap has no seconds after 2106: such times begin anew in the copy.
    if totals.last_ns / 1_000_000_000 > u64::from(u32::MAX) {
        return;
    }
    let (reports, copied, read) = analyse(&copy.finish().expect("memory").0[..]);
    assert_eq!((copied.frames, copied.segments), (totals.segments, totals.segments), "{read}");
    assert_eq!((copied.connections, reports.len() as u64), (totals.connections, totals.connections));
}

fn is_percent(value: Option<f64>) -> bool {
    value.is_none_or(|value| (0.0..=100.0).contains(&value))
}

/// The first half of the bytes as the capture of one end, the whole as that of the other.
fn both_ends(bytes: &[u8]) {
    let mut both = BothEnds::default();
    let open = |bytes| [Capture::open(bytes), Capture::open(bytes)];
    let ([Ok(a), Ok(b)], [Ok(c), Ok(d)]) = (open(&bytes[..bytes.len() / 2]), open(bytes)) else { return };
    let _ = both.read([a, b], [c, d], || false);
    for flow in both.report().flows {
        assert!(flow.ways.up.lost_bytes <= flow.ways.up.sent_bytes);
    }
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
    let mut page = Vec::new();
    html::write(&mut page, "any", &summary, &totals).expect("memory");
    anonymise(bytes, &totals);
    both_ends(bytes);
});
