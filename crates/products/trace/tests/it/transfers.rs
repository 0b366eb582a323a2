//! The definitions, applied to segments made by the tests.

use anabranch_mptcp_wire::{DataNumber, Dss, DssMapping, Key, MptcpOption, RemoveAddr, Version};
use anabranch_trace::handover::Cause;
use anabranch_trace::report::{End, Tap, Unused};
use anabranch_trace::segment::Flags;
use anabranch_trace::{Fallback, Protocol, Side};

use crate::wire::{MS, Script};

/// The worked example of 000 section 2.3.5.4: packets 0 and 1 on the first subflow, 2 to 4 on the second, a
/// retransmission of packet 1, then 6 and 7 on the second.
#[test]
fn blocks_of_the_worked_example() {
    for version in [Version::V0, Version::V1] {
        let mut script = Script::new(version);
        script.join();
        for (subflow, offset) in [(0, 0), (0, 100), (1, 200), (1, 300), (1, 400)] {
            script.data(subflow, offset, 100);
        }
        script.back(0, 100);
        script.data(0, 100, 100);
        script.data(1, 500, 100);
        script.data(1, 600, 100);
        let report = script.report();
        assert_eq!(report.streams.up.blocks, 4);
        assert_eq!(report.streams.up.unique_bytes, 700);
        assert_eq!(report.streams.up.retransmitted_bytes, 100);
        let protocol = if version == Version::V0 { Protocol::Mptcp0 } else { Protocol::Mptcp1 };
        assert_eq!((report.protocol, report.tap, report.end), (protocol, Tap::Client, End::Open));
        assert_eq!(report.subflows[1].hmac_is_right, Some(true));
        assert!((report.subflows[1].join_delay_ms - 20.0).abs() < 1e-9);
        assert_eq!(report.subflows[1].handshake_rtt_us, Some(20_000));
    }
}

#[test]
fn retransmission_reinjection_and_the_same_data_again_are_told_apart() {
    let report = Script::with_repeats().report();
    let (first, second) = (&report.subflows[0].halves.up, &report.subflows[1].halves.up);
    assert_eq!((first.unique_bytes, second.unique_bytes), (2000, 500));
    assert_eq!(first.retransmitted, (1000, 1));
    assert_eq!(second.reinjected, (500, 1));
    assert_eq!(first.resent, (300, 1));
    assert_eq!((first.payload_bytes, second.payload_bytes), (3300, 1000));
}

#[test]
fn round_trips_are_those_of_the_sender_at_the_tap() {
    let mut script = Script::new(Version::V1);
    for number in 0..5 {
        script.data(0, number * 100, 100);
        script.now += 30 * MS;
        script.data_ack(0, (number + 1) * 100);
    }
    let report = script.report();
    let rtt = report.subflows[0].halves.up.rtt_us.expect("samples");
    assert_eq!((rtt.samples, rtt.min, rtt.max), (5, 30_000, 30_000));
    assert!(report.subflows[0].halves.down.rtt_us.is_none());
    assert_eq!(report.streams.up.rtt_us.map(|rtt| rtt.max), Some(30_000));
    assert_eq!(report.streams.up.acked_bytes, 500);
}

#[test]
fn a_stream_that_stands_still_is_told_with_its_time() {
    let mut script = Script::new(Version::V1);
    script.data(0, 0, 100);
    script.data(0, 100, 100);
    script.now += 10 * MS;
    script.data_ack(0, 100);
    script.now += 350 * MS;
    script.data_ack(0, 200);
    // The stream does not stand still without data on its way.
    script.now += 5000 * MS;
    script.data(0, 200, 100);
    script.now += 10 * MS;
    script.data_ack(0, 300);
    let stalls = script.report().streams.up.stalls;
    assert_eq!((stalls.count, stalls.longest_ms), (1, 350.0));
    assert!((stalls.list[0].at_s - 0.030).abs() < 1e-9, "{stalls:?}");
}

/// Returns a transfer over two subflows that takes 2 s, in which the first is used only in the first second.
fn leaving(leave: impl FnOnce(&mut Script)) -> Script {
    let mut script = Script::new(Version::V1);
    script.join();
    let (mut offset, mut leave) = (0, Some(leave));
    for step in 0..200_u64 {
        for subflow in 0..2 {
            if subflow == 0 && step >= 100 {
                continue;
            }
            script.data(subflow, offset, 100);
            offset += 100;
            if subflow == 1 || step < 99 {
                script.data_ack(subflow, offset);
            }
        }
        if step == 100
            && let Some(leave) = leave.take()
        {
            leave(&mut script);
        }
        script.now += 10 * MS;
    }
    script
}

#[test]
fn handovers_have_their_cause() {
    let removal = MptcpOption::RemoveAddr(RemoveAddr { address_ids: &[0] });
    let prio = MptcpOption::Prio { backup: true, address_id: None };
    type Leave<'a> = Box<dyn FnOnce(&mut Script) + 'a>;
    let leaves: [(Leave<'_>, Cause); 5] = [
        (Box::new(|_: &mut Script| {}), Cause::Silence),
        (
            Box::new(|script: &mut Script| script.send(1, 0, Flags::default(), &[removal], 0, true)),
            Cause::RemoveAddr,
        ),
        (Box::new(|script: &mut Script| script.send(0, 1, Flags::default(), &[prio], 0, true)), Cause::Prio),
        (Box::new(|script: &mut Script| script.send(0, 0, Flags::FIN, &[], 0, true)), Cause::Fin),
        (Box::new(|script: &mut Script| script.send(0, 0, Flags::RST, &[], 0, true)), Cause::Reset),
    ];
    for (leave, cause) in leaves {
        let report = leaving(leave).report();
        let found: Vec<_> = report.handovers.iter().map(|h| (h.from, h.to, h.cause)).collect();
        assert_eq!(found, [(0, 1, cause)]);
        // The other subflow carries on all the time, also before a silence is noticed.
        let handover = &report.handovers[0];
        assert!(handover.first_data_after_ms <= 20.0 && handover.bytes_after >= 9_800, "{handover:?}");
    }
}

/// After a pause of two seconds a subflow carries data again. Its answers have not come yet.
#[test]
fn a_subflow_that_is_used_again_after_a_pause_has_not_been_silent() {
    let mut script = Script::new(Version::V1);
    script.join();
    let mut offset = 0;
    let mut late = Vec::new();
    for step in 0..400_u64 {
        for subflow in 0..2 {
            if subflow == 1 && (50..250).contains(&step) {
                continue;
            }
            script.data(subflow, offset, 100);
            offset += 100;
            late.push((step + 12, subflow, offset));
        }
        late.retain(|(at, subflow, offset)| {
            let is_due = *at <= step;
            if is_due {
                script.data_ack(*subflow, *offset);
            }
            !is_due
        });
        script.now += 10 * MS;
    }
    assert_eq!(script.report().handovers, []);
}

/// Both subflows end one after the other, as at the end of every transfer. A subflow that carries nothing for
/// a while has no data on its way.
#[test]
fn what_is_no_handover() {
    let mut script = Script::new(Version::V1);
    script.join();
    let mut offset = 0;
    for step in 0..100_u64 {
        for subflow in 0..2 {
            // The second subflow is used only at the beginning: the scheduler does not need it any more.
            if subflow == 0 || step < 10 {
                script.data(subflow, offset, 100);
                offset += 100;
                script.data_ack(subflow, offset);
            }
        }
        script.now += 10 * MS;
    }
    script.send(1, 0, Flags::FIN, &[], 0, true);
    script.data(0, offset, 100);
    script.now += 20 * MS;
    script.data_ack(0, offset + 100);
    script.send(0, 0, Flags::FIN, &[], 0, true);
    let report = script.report();
    assert_eq!(report.handovers, []);
    let half = &report.subflows[1].halves.up;
    assert!(half.idle_s > half.busy_s, "{half:?}");
}

#[test]
fn a_join_after_the_data_is_too_late() {
    let mut script = Script::new(Version::V1);
    script.data(0, 0, 100);
    script.join();
    let report = script.report();
    assert_eq!(report.subflows[1].unused, Some(Unused::TooLate));
    assert_eq!((report.subflows[0].unused, report.subflows[1].opener), (None, Side::Client));
}

#[test]
fn a_closed_connection_is_reported_with_how_it_ended() {
    let mut script = Script::new(Version::V1);
    script.data(0, 0, 100);
    script.data_ack(0, 100);
    script.send(0, 0, Flags::RST, &[MptcpOption::FastClose { key: Key(1) }], 0, true);
    assert_eq!(script.report().end, End::FastClose);
}

/// A mapping contradicts the handshake, and data without a mapping follows. Its bytes have two positions in
/// the data but are counted once. The fuzz target found this.
#[test]
fn a_fallback_counts_each_byte_once() {
    let mut script = Script::new(Version::V1);
    let mapping = DssMapping {
        data_seq: DataNumber::Full(script.data_seq(0, 5000)),
        subflow_seq: 1,
        data_bytes: 150,
        checksum: None,
    };
    script.send(
        0,
        0,
        Flags::default(),
        &[MptcpOption::Dss(Dss { mapping: Some(mapping), ..Dss::default() })],
        100,
        true,
    );
    script.send(0, 0, Flags::default(), &[], 100, true);
    let report = script.report();
    let half = &report.subflows[0].halves.up;
    assert_eq!(report.fallback, Some(Fallback::NoMapping));
    assert_eq!((half.payload_bytes, half.unique_bytes, half.unmapped_bytes), (200, 200, 0));
    assert_eq!(report.streams.up.unique_bytes, 200);
}
