//! The anonymised copy: it has the same numbers, other addresses and no payload.

use std::net::{IpAddr, SocketAddr};
use std::ops::ControlFlow;

use anabranch_mptcp_wire::{AddAddr, MptcpOption, Version};
use anabranch_trace::anonymise::{Addresses, Anonymiser};
use anabranch_trace::journal::What;
use anabranch_trace::segment::Flags;
use anabranch_trace::segment::segment;
use anabranch_trace::{Analysis, ConnectionReport, read_capture};

use crate::wire::{Script, analyse, pcap};

const KEY: [u8; 16] = *b"0123456789abcdef";

fn anonymised(capture: &[u8]) -> Vec<u8> {
    let mut copy = Anonymiser::new(Vec::new(), KEY).expect("memory");
    let mut analysis = Analysis::new(|_| {});
    read_capture(capture, |frame| {
        analysis.frame(&frame);
        copy.frame(&frame, |from, to| analysis.keys(from, to)).expect("memory");
        ControlFlow::Continue(())
    })
    .expect("a capture");
    copy.finish().expect("memory").0
}

/// Returns the report of a capture without addresses, and without the checks that need payload.
fn hidden(mut report: ConnectionReport) -> String {
    let nowhere = |end: &mut SocketAddr| end.set_ip(IpAddr::V4([0; 4].into()));
    for subflow in &mut report.subflows {
        nowhere(&mut subflow.client);
        nowhere(&mut subflow.server);
    }
    for event in &mut report.events {
        if let What::AddAddr { address, .. } = &mut event.what {
            *address = IpAddr::V4([0; 4].into());
        }
    }
    report.checksums.unchecked += std::mem::take(&mut report.checksums.right);
    serde_json::to_string(&report).expect("JSON")
}

#[test]
fn a_copy_gives_the_same_tables() {
    let folder = format!("{}/tests/captures", env!("CARGO_MANIFEST_DIR"));
    let mut captures = 0;
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        if entry.path().extension().is_none_or(|end| end != "pcap") {
            continue;
        }
        captures += 1;
        let original = std::fs::read(entry.path()).expect("a capture");
        let copy = anonymised(&original);
        let (before, totals, _) = analyse(&original);
        let (after, copied, read) = analyse(&copy);
        assert!(read.is_ok(), "{read:?}");
        assert_eq!(copied.frames, totals.segments);
        let [before, after] =
            [before, after].map(|reports| reports.into_iter().map(hidden).collect::<Vec<_>>());
        assert_eq!(before, after, "{:?}", entry.path());
        // No address and no byte of payload is left.
        read_capture(&copy[..], |frame| {
            let found = segment(&frame).expect("TCP");
            assert!(found.payload.is_empty());
            for address in [[10, 77, 1], [10, 77, 2]] {
                assert!(!frame.bytes.windows(3).any(|bytes| bytes == address), "{:?}", frame.bytes);
            }
            ControlFlow::Continue(())
        })
        .expect("a copy");
    }
    assert_eq!(captures, 8);
}

#[test]
fn prefixes_are_preserved_and_nothing_more() {
    let mut addresses = Addresses::new(KEY);
    let mut replaced = |text: &str| addresses.replace(text.parse().expect("an address"));
    let common = |a: IpAddr, b: IpAddr| match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        _ => panic!("two families"),
    };
    let pairs = [
        ("10.1.2.3", "10.1.2.4"),
        ("10.1.2.3", "10.1.130.4"),
        ("10.1.2.3", "192.0.2.1"),
        ("2001:db8::1", "2001:db8::2"),
        ("2001:db8::1", "2001:db8:8000::1"),
        ("fe80::1", "2001:db8::1"),
    ];
    for (a, b) in pairs {
        let before = common(a.parse().expect("an address"), b.parse().expect("an address"));
        assert_eq!(common(replaced(a), replaced(b)), before, "{a} {b}");
        assert_ne!(replaced(a).to_string(), a);
    }
    let again = Addresses::new(KEY).replace([10, 1, 2, 3].into());
    let other = Addresses::new([7; 16]).replace([10, 1, 2, 3].into());
    assert_eq!(again, replaced("10.1.2.3"));
    assert_ne!(other, again);
}

#[test]
fn an_announced_address_is_replaced_as_those_of_packets_are() {
    for is_right in [true, false] {
        let mut script = Script::new(Version::V1);
        script.join();
        let address: IpAddr = [10, 1, 1, 1].into();
        let hmac = Some(script.add_addr_hmac(1, 5, address) ^ u64::from(!is_right));
        let option = AddAddr::V1 { echo: false, address_id: 5, address, port: None, hmac };
        script.send(0, 1, Flags::default(), &[MptcpOption::AddAddr(option)], 0, true);
        let (reports, ..) = analyse(&anonymised(&pcap(101, &script.frames)));
        let announced = reports[0].events.iter().find_map(|event| match event.what {
            What::AddAddr { address, hmac_is_right, .. } => Some((address, hmac_is_right)),
            _ => None,
        });
        assert_eq!(announced, Some((reports[0].subflows[1].client.ip(), Some(is_right))));
    }
}

/// Options that identify a host become padding, and unreadable options stay unreadable.
#[test]
fn options_that_tell_of_a_host_are_left_out() {
    let script = Script::new(Version::V1);
    let with = |options: &[u8]| {
        let mut frame = script.frames[2].1.clone();
        let header = frame[32] >> 4;
        assert_eq!(header, 10);
        frame[40..60].fill(1);
        frame[40..40 + options.len()].copy_from_slice(options);
        let copy = anonymised(&pcap(101, &[script.frames[0].clone(), (script.frames[2].0, frame)]));
        let mut bytes = Vec::new();
        read_capture(&copy[..], |frame| {
            bytes = segment(&frame).expect("TCP").options.to_vec();
            ControlFlow::Continue(())
        })
        .expect("a copy");
        bytes
    };
    let padding = [1_u8; 20];
    assert_eq!(with(&[8, 10, 1, 2, 3, 4, 5, 6, 7, 8]), padding);
    assert_eq!(with(&[34, 6, 9, 9, 9, 9]), padding);
    assert_eq!(with(&[254, 6, 9, 9, 9, 9]), padding);
    assert_eq!(with(&[30, 6, 0xf0, 9, 9, 9]), padding);
    assert_eq!(with(&[2, 4, 5, 180, 3, 3, 7, 4, 2])[..9], [2, 4, 5, 180, 3, 3, 7, 4, 2]);
    assert_eq!(with(&[30, 7, 0x20, 1, 9, 9, 9])[..7], [30, 7, 0x20, 1, 0, 0, 0]);
    assert_eq!(with(&[30, 40, 0x20, 1, 9, 9, 9])[..7], [30, 40, 0, 0, 0, 0, 0]);
}
