//! Captures of Linux 6.18, made by `tests/captures/make.py`.
//!
//! The bytes of each subflow were checked with tshark 4.0.17, which finds them by its own mapping of data
//! sequence numbers (`mptcp.rawdsn64`, in one pass), when each byte is counted once. There is one exception:
//! for the second segment of a first mapping, which MP_CAPABLE carries, tshark gives the number of the first
//! segment. There the sum of bytes that the sender counted decides. The kernel's own count of duplicate data
//! (MPTcpExtDuplicateData) stands beside each test.

use anabranch_trace::handover::Cause;
use anabranch_trace::report::{End, Tap, Unused};
use anabranch_trace::{ConnectionReport, Fallback, Protocol, Side};

use crate::wire::only;

fn capture(name: &str) -> ConnectionReport {
    let path = format!("{}/tests/captures/{name}.pcap", env!("CARGO_MANIFEST_DIR"));
    only(&std::fs::read(path).expect("a capture"))
}

/// The unique bytes, the retransmitted bytes, and the bytes and packets that were reinjected and that were
/// re-sent.
type Bytes = (u64, u64, (u64, u64), (u64, u64));

/// Returns the bytes that each subflow carried of this side's data.
fn bytes(report: &ConnectionReport, side: Side) -> Vec<Bytes> {
    let halves = report.subflows.iter().map(|subflow| subflow.halves.from(side));
    halves.map(|half| (half.unique_bytes, half.retransmitted.0, half.reinjected, half.resent)).collect()
}

fn handovers(report: &ConnectionReport) -> Vec<(u16, u16, Cause)> {
    report.handovers.iter().map(|handover| (handover.from, handover.to, handover.cause)).collect()
}

#[test]
fn a_small_transfer_whose_second_subflow_comes_too_late() {
    let report = capture("small_client");
    assert_eq!((report.protocol, report.tap, report.end), (Protocol::Mptcp1, Tap::Client, End::Closed));
    assert!(report.begin_seen && report.fallback.is_none() && report.inexact == (0, 0));
    // The client sent 300,000 bytes, and half of them twice; DuplicateData is 106.
    assert_eq!(bytes(&report, Side::Client)[0], (300_000, 0, (0, 0), (150_528, 106)));
    assert_eq!(report.streams.up.acked_bytes, 300_000);
    assert_eq!(report.subflows[1].unused, Some(Unused::NotEstablished));
    assert_eq!(report.subflows[1].hmac_is_right, Some(true));
    assert_eq!(report.handovers, []);
    assert_eq!(report.streams.up.stalls.count, 0);
}

#[test]
fn an_upload_whose_first_link_dies() {
    let report = capture("handover_up_client");
    // DuplicateData is 158, because the kernel joins some of the 160 packets.
    let wanted = [(390_208, 0, (0, 0), (0, 0)), (592_832, 89_936, (0, 0), (225_728, 160))];
    assert_eq!(bytes(&report, Side::Client), wanted);
    assert_eq!(report.bytes(), 983_040);
    assert_eq!(handovers(&report), [(0, 1, Cause::Silence)]);
    let handover = &report.handovers[0];
    assert!((1.9..2.1).contains(&handover.at_s) && handover.stood_still_ms > 200.0, "{handover:?}");
    assert!(report.subflows[0].halves.up.rtt_us.is_some_and(|rtt| rtt.min >= 20_000));
}

#[test]
fn a_download_whose_first_link_dies_seen_from_both_ends() {
    let client = capture("handover_down_client");
    // DuplicateData is 115.
    let wanted = [(344_720, 0, (0, 0), (0, 0)), (572_784, 0, (0, 0), (163_840, 118))];
    assert_eq!(bytes(&client, Side::Server), wanted);
    assert_eq!(handovers(&client), [(0, 1, Cause::Silence)]);
    let server = capture("handover_down_server");
    let wanted = [(371_040, 3040, (0, 0), (0, 0)), (546_464, 14_200, (26_320, 19), (163_840, 118))];
    assert_eq!(bytes(&server, Side::Server), wanted);
    assert_eq!(handovers(&server), [(0, 1, Cause::Silence)]);
    assert_eq!((client.tap, server.tap), (Tap::Client, Tap::Server));
    assert_eq!(client.streams.down.unique_bytes, server.streams.down.unique_bytes);
}

#[test]
fn a_backup_takes_over() {
    let report = capture("backup_down_client");
    let wanted = [(362_372, 0, (0, 0), (0, 0)), (292_988, 0, (1420, 1), (0, 0))];
    assert_eq!(bytes(&report, Side::Server), wanted);
    assert!(report.subflows[1].backup);
    assert_eq!((report.streams.down.blocks, handovers(&report)), (2, vec![(0, 1, Cause::Silence)]));
    let stood_still = report.handovers[0].stood_still_ms;
    assert!((600.0..630.0).contains(&stood_still), "{stood_still}");
}

#[test]
fn an_address_is_removed() {
    let report = capture("signals_client");
    let wanted = [
        (611_228, 0, (42_600, 36), (245_172, 178)),
        (120_220, 0, (0, 0), (0, 0)),
        (120_520, 0, (0, 0), (0, 0)),
    ];
    assert_eq!(bytes(&report, Side::Server), wanted);
    let removed = [(1, 0, Cause::RemoveAddr), (2, 0, Cause::RemoveAddr)];
    assert_eq!(handovers(&report), removed);
}

#[test]
fn checksums_and_a_fallback() {
    let report = capture("checksum_client");
    assert_eq!(bytes(&report, Side::Client)[0], (60_000, 0, (0, 0), (0, 0)));
    let sums = report.checksums;
    assert!(sums.required && sums.right > 0 && sums.wrong == 0, "{sums:?}");
    let report = capture("fallback_client");
    assert_eq!(report.fallback, Some(Fallback::NotAnswered));
    assert_eq!((report.bytes(), report.streams.up.acked_bytes), (40_000, 40_000));
}
