//! Equal segments in every format and on every link type.

use anabranch_mptcp_wire::Version;
use anabranch_trace::ConnectionReport;

use crate::wire::{Script, analyse, only, pcap};

fn script() -> Script {
    let mut script = Script::new(Version::V1);
    script.join();
    script.data(0, 0, 700);
    script.data(1, 700, 500);
    script.data_ack(0, 1200);
    script
}

fn numbers(report: &ConnectionReport) -> (u64, u64, u64, usize, u64) {
    let up = &report.streams.up;
    let rtt = report.subflows[1].handshake_rtt_us.unwrap_or(0);
    (report.begin_ns, up.unique_bytes, up.acked_bytes, report.subflows.len(), rtt)
}

fn expected() -> (u64, u64, u64, usize, u64) {
    numbers(&script().report())
}

#[test]
fn link_types() {
    let script = script();
    let links: [(u32, &[u8]); 12] = [
        (101, &[]),
        (12, &[]),
        (228, &[]),
        (1, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 8, 0]),
        (1, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0x81, 0, 0, 7, 8, 0]),
        (1, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0x88, 0xa8, 0, 7, 0x81, 0, 0, 8, 8, 0]),
        (113, &[0, 0, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0, 8, 0]),
        (276, &[8, 0, 0, 0, 0, 0, 0, 2, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0]),
        (0, &[2, 0, 0, 0]),
        (108, &[0, 0, 0, 2]),
        (9, &[0xff, 3, 0, 0x21]),
        (9, &[0x21]),
    ];
    for (link_type, header) in links {
        let frames: Vec<_> = script.frames.iter().map(|(time, ip)| (*time, [header, ip].concat())).collect();
        assert_eq!(numbers(&only(&pcap(link_type, &frames))), expected(), "link type {link_type}");
    }
    let (reports, totals, _) = analyse(&pcap(147, &script.frames));
    assert!(reports.is_empty());
    assert_eq!((totals.unknown_link, totals.unknown_link_type), (script.frames.len() as u64, Some(147)));
}

#[test]
fn pcap_in_both_byte_orders_with_micro_and_nanoseconds() {
    for (nanoseconds, is_big) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut bytes = Vec::new();
        let word = |bytes: &mut Vec<u8>, value: u32| {
            bytes.extend(if is_big { value.to_be_bytes() } else { value.to_le_bytes() });
        };
        word(&mut bytes, if nanoseconds { 0xa1b2_3c4d } else { 0xa1b2_c3d4 });
        word(&mut bytes, if is_big { 0x0002_0004 } else { 0x0004_0002 });
        for value in [0, 0, 65535, 101] {
            word(&mut bytes, value);
        }
        for (time, frame) in &script().frames {
            let fraction = time % 1_000_000_000;
            word(&mut bytes, (time / 1_000_000_000) as u32);
            word(&mut bytes, if nanoseconds { fraction } else { fraction / 1000 } as u32);
            word(&mut bytes, frame.len() as u32);
            word(&mut bytes, frame.len() as u32);
            bytes.extend(frame);
        }
        assert_eq!(numbers(&only(&bytes)), expected(), "{nanoseconds} {is_big}");
    }
}

#[test]
fn pcapng_in_both_byte_orders_with_resolutions_and_blocks_between() {
    for (resolution, units, is_big) in [
        (6_u8, 1_000_000_u64, false),
        (9, 1_000_000_000, false),
        (9, 1_000_000_000, true),
        (0x94, 1 << 20, false),
    ] {
        let put = |value: u32| if is_big { value.to_be_bytes() } else { value.to_le_bytes() };
        let block = |kind: u32, body: &[u8]| {
            let padded = body.len().next_multiple_of(4);
            let length = put(12 + padded as u32);
            let mut bytes = [put(kind), length].concat();
            bytes.extend(body);
            bytes.resize(8 + padded, 0);
            bytes.extend(length);
            bytes
        };
        let section =
            [&put(0x1a2b_3c4d)[..], &[if is_big { 0 } else { 1 }, u8::from(is_big), 0, 0], &[0xff; 8]];
        let mut bytes = block(0x0a0d_0d0a, &section.concat());
        let half = |value: u16| if is_big { value.to_be_bytes() } else { value.to_le_bytes() };
        // There are two interfaces: one with a link type that is not known, and the interface of the frames.
        let options = [&half(9)[..], &half(1), &[resolution, 0, 0, 0], &[0; 4]].concat();
        for link_type in [147, 101] {
            bytes.extend(block(1, &[&half(link_type)[..], &[0; 2], &put(0), &options].concat()));
        }
        for (time, frame) in &script().frames {
            let ticks = (u128::from(*time) * u128::from(units) / 1_000_000_000) as u64;
            let length = put(frame.len() as u32);
            let header = [put(1), put((ticks >> 32) as u32), put(ticks as u32), length, length].concat();
            bytes.extend(block(6, &[header, frame.clone()].concat()));
            // A block of a type that does not exist.
            bytes.extend(block(0x7777_7777, &[1, 2, 3]));
        }
        let report = only(&bytes);
        let (begin, unique, acked, subflows, rtt) = numbers(&report);
        let wanted = expected();
        assert_eq!((unique, acked, subflows), (wanted.1, wanted.2, wanted.3));
        assert!(begin.abs_diff(wanted.0) <= 1000 && rtt.abs_diff(wanted.4) <= 1, "{resolution}");
    }
}

/// No number changes if a snap length cuts payload.
#[test]
fn a_snap_length_changes_nothing_but_what_it_cuts_from_options() {
    let script = script();
    for snap in [96, 80, 45] {
        let mut bytes = pcap(101, &[]);
        for (time, frame) in &script.frames {
            let kept = snap.min(frame.len());
            for word in [time / 1_000_000_000, time % 1_000_000_000 / 1000, kept as u64, frame.len() as u64] {
                bytes.extend((word as u32).to_le_bytes());
            }
            bytes.extend(&frame[..kept]);
        }
        let (reports, ..) = analyse(&bytes);
        if snap >= 80 {
            assert_eq!(numbers(&reports[0]), expected(), "{snap}");
        } else {
            assert!(reports[0].inexact.0 > 0);
        }
    }
}
