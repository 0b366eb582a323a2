//! The two definitions of the study, side by side.

use std::ops::ControlFlow;

use anabranch_mptcp_wire::Version;
use anabranch_trace::segment::Flags;
use anabranch_trace::study::{Study, StudyRow};
use anabranch_trace::{Analysis, read_capture};

use crate::wire::{MS, Script, pcap};

fn study(captures: &[Vec<u8>]) -> Study {
    let mut study = Study::default();
    for capture in captures {
        let mut analysis = Analysis::new(|report| study.add(&report)).with_study();
        read_capture(&capture[..], |frame| {
            analysis.frame(&frame);
            ControlFlow::Continue(())
        })
        .expect("a capture");
        analysis.finish();
    }
    study
}

fn row(study: &Study, what: &str) -> (Option<f64>, Option<f64>, f64) {
    let found: Vec<StudyRow> = study.rows().into_iter().filter(|row| row.what.starts_with(what)).collect();
    assert_eq!(found.len(), 1, "{what}");
    (found[0].exact, found[0].pam16, found[0].paper)
}

/// The worked example of 000 section 2.3.5.4, and connections with one subflow.
#[test]
fn shares_of_connections_subflows_and_joins() {
    let mut two = Script::new(Version::V1);
    two.join();
    two.data(0, 0, 100);
    two.data(1, 100, 100);
    two.data_ack(1, 200);
    let mut unused = Script::new(Version::V0);
    unused.now += 2000 * MS;
    unused.join();
    unused.data(0, 0, 100);
    unused.data_ack(1, 100);
    let mut refused = Script::new(Version::V1);
    refused.join();
    let one = Script::new(Version::V1);
    // The study does not count the delay of a join on which the server acknowledges nothing.
    let captures = [&two, &unused, &one, &one, &refused].map(|script| pcap(101, &script.frames));
    let study = study(&captures);
    assert_eq!(study.connections(), 5);
    assert_eq!(row(&study, "T1: connections"), (Some(60.0), Some(60.0), 32.25));
    assert_eq!(row(&study, "T2: connections"), (Some(20.0), Some(20.0), 8.43));
    assert_eq!(row(&study, "… 2 subflows"), (Some(60.0), Some(60.0), 29.96));
    assert_eq!(row(&study, "joins within 1 s"), (Some(200.0 / 3.0), Some(50.0), 72.5));
    assert_eq!(row(&study, "T1: joined subflows"), (Some(200.0 / 3.0), Some(200.0 / 3.0), 75.6));
    assert_eq!(row(&study, "T3: without"), (None, None, 17.9));
    assert!(study.text().contains("5 connections of Multipath TCP") && study.text().contains("32.25"));
}

/// The server re-sends data in mappings that begin at other numbers, which the scripts of the study do not
/// see. The client continues on the other subflow a moment after its last acknowledgement on the first, which
/// the scripts count as a handover.
#[test]
fn where_the_definitions_differ() {
    let mut script = Script::new(Version::V1);
    script.join();
    script.server_data(0, 0, 1000);
    script.server_data(0, 1000, 1000);
    script.server_data(1, 1500, 500);
    script.server_data(1, 2000, 500);
    script.send(0, 0, Flags::default(), &[], 0, true);
    script.now += MS;
    script.send(1, 0, Flags::default(), &[], 0, true);
    script.server_data(1, 2500, 500);
    script.send(1, 0, Flags::FIN, &[], 0, true);
    let study = study(&[pcap(101, &script.frames)]);
    assert_eq!(row(&study, "T2: with reinjections"), (Some(100.0), Some(0.0), 29.3));
    assert_eq!(row(&study, "T2: with a handover"), (Some(0.0), Some(100.0), 22.9));
    assert_eq!(row(&study, "T2: less than 10 % of bytes reinjected"), (Some(0.0), Some(100.0), 89.8));
    // Both definitions see a mapping that begins where an earlier one began.
    script.server_data(0, 2500, 500);
    let study = self::study(&[pcap(101, &script.frames)]);
    assert_eq!(row(&study, "T2: with reinjections"), (Some(100.0), Some(100.0), 29.3));
}
