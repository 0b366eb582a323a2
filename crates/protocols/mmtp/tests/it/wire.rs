//! Writes and parses every packet, and checks that other bytes are refused.

use anabranch_mmtp::id::{BLOCK_BYTES, ChunksPerBlock, ContentId, LENGTH_MAX};
use anabranch_mmtp::tree::LEVELS_MAX;
use anabranch_mmtp::wire::{
    CACHED_NUMBER_END, Cookie, DATA_HEADER, HASHES_MAX, NAME_MAX, NUMBER_END, PACKET_MAX, PADDED_MIN, PREFIX,
    Packet, ParseError, Prefix, RANGES_MAX, Range, RangeKind, Reason, VERSION, data_header, emit_cookie,
    emit_data, emit_hashes, emit_meta, emit_padded, emit_probe, emit_refuse, emit_request, parse, peek,
    set_no_caches, set_responder,
};
use proptest::collection::vec;
use proptest::prelude::*;

fn a_cut() -> impl Strategy<Value = ChunksPerBlock> {
    (1_u8..=64).prop_map(|cut| ChunksPerBlock::new(cut).unwrap())
}

fn an_id() -> impl Strategy<Value = ContentId> {
    (any::<[u8; 32]>(), 0..=LENGTH_MAX).prop_map(|(root, length)| ContentId { root, length })
}

fn a_cookie() -> impl Strategy<Value = Option<Cookie>> {
    proptest::option::of(any::<[u8; 16]>().prop_map(Cookie))
}

fn a_range() -> impl Strategy<Value = Range> {
    let kind = prop_oneof![
        a_cut().prop_map(RangeKind::Data),
        Just(RangeKind::Meta),
        (0..LEVELS_MAX).prop_map(|level| RangeKind::Hashes { level }),
    ];
    (kind, 1_u16.., 0_u64..NUMBER_END - 65_535).prop_map(|(kind, count, first)| Range { kind, first, count })
}

fn emitted(emit: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    // Emitters append to the buffer.
    let mut out = vec![0xee];
    emit(&mut out);
    assert_eq!(out.remove(0), 0xee);
    out
}

/// Checks that no beginning of a packet is a packet.
fn every_cut_off_is_truncated(bytes: &[u8], min: usize) {
    for len in 0..min {
        assert_eq!(parse(&bytes[..len]), Err(ParseError::Truncated), "{len}");
    }
}

proptest! {
    #[test]
    fn request(
        tag: u64, cookie in a_cookie(), ect: bool, id in an_id(),
        ranges in vec(a_range(), 1..=RANGES_MAX), pad in 0..50_usize,
    ) {
        let mut bytes = emitted(|out| emit_request(out, tag, cookie.as_ref(), ect, &id, &ranges));
        every_cut_off_is_truncated(&bytes, bytes.len());
        bytes.resize(bytes.len() + pad, 0xff);
        let Ok(Packet::Request(request)) = parse(&bytes) else { panic!() };
        prop_assert_eq!((request.tag, request.cookie, request.ect, request.content), (tag, cookie, ect, id));
        prop_assert_eq!(request.ranges.len(), ranges.len());
        prop_assert_eq!(request.ranges.collect::<Vec<_>>(), ranges);
        prop_assert_eq!(peek(&bytes), Some(Prefix { version: VERSION, expects_reply: true, tag }));
    }

    #[test]
    fn data(tag: u64, cut in a_cut(), chunk in 0..NUMBER_END, len in 1..=BLOCK_BYTES, pad: bool) {
        let len = len.min(cut.chunk_bytes());
        let wire_len = if pad { cut.chunk_bytes() } else { len };
        let payload: Vec<u8> = (0..len).map(|i| i as u8).collect();
        let bytes = emitted(|out| emit_data(out, tag, cut, chunk, &payload, wire_len));
        prop_assert_eq!(&bytes[..DATA_HEADER], &data_header(tag, cut, chunk));
        prop_assert_eq!(bytes.len(), DATA_HEADER + wire_len);
        let Ok(Packet::Data(data)) = parse(&bytes) else { panic!() };
        prop_assert_eq!((data.tag, data.cut, data.chunk), (tag, cut, chunk));
        prop_assert_eq!(&data.payload[..len], &payload);
        prop_assert!(data.payload[len..].iter().all(|byte| *byte == 0));
        every_cut_off_is_truncated(&bytes, DATA_HEADER + 1);
        // With an extension to skip, the general path agrees with the fast one.
        let mut extended = bytes.clone();
        extended[3] = 2;
        extended.splice(PREFIX..PREFIX, [0x7f, 2, 1, 2, 3, 4, 5, 6]);
        prop_assert_eq!(parse(&extended), Ok(Packet::Data(data)));
    }

    #[test]
    fn hashes(
        tag: u64, level in 0..LEVELS_MAX, first in 0..NUMBER_END,
        cvs in vec(any::<[u8; 32]>(), 1..=HASHES_MAX),
    ) {
        let bytes = emitted(|out| emit_hashes(out, tag, level, first, &cvs));
        let Ok(Packet::Hashes(hashes)) = parse(&bytes) else { panic!() };
        prop_assert_eq!((hashes.tag, hashes.level, hashes.first, hashes.cvs), (tag, level, first, &cvs[..]));
        every_cut_off_is_truncated(&bytes, 20 + 32);
    }

    #[test]
    fn what_caches_answer(
        tag: u64, node: u16, cut in a_cut(), level in 0..LEVELS_MAX, number in 0..CACHED_NUMBER_END,
        cvs in vec(any::<[u8; 32]>(), 1..=HASHES_MAX),
    ) {
        let mut bytes = emitted(|out| emit_data(out, tag, cut, number, &[5; 100], 100));
        let Ok(Packet::Data(source)) = parse(&bytes) else { panic!() };
        prop_assert_eq!(source.responder, None);
        let len = bytes.len();
        set_responder(&mut bytes, node);
        prop_assert_eq!(bytes.len(), len, "it fits wherever that of the source does");
        let Ok(Packet::Data(data)) = parse(&bytes) else { panic!() };
        prop_assert_eq!((data.tag, data.responder, data.cut), (tag, Some(node), cut));
        prop_assert_eq!((data.chunk, data.payload), (number, &[5; 100][..]));
        let mut bytes = emitted(|out| emit_hashes(out, tag, level, number, &cvs));
        set_responder(&mut bytes, node);
        let Ok(Packet::Hashes(hashes)) = parse(&bytes) else { panic!() };
        prop_assert_eq!((hashes.responder, hashes.level, hashes.first), (Some(node), level, number));
        prop_assert_eq!(hashes.cvs, &cvs[..]);
    }

    #[test]
    fn a_request_can_forbid_caches(
        tag: u64, cookie in a_cookie(), ect: bool, id in an_id(), range in a_range(),
    ) {
        let mut bytes = emitted(|out| emit_request(out, tag, cookie.as_ref(), ect, &id, &[range]));
        for forbidden in [false, true] {
            let Ok(Packet::Request(request)) = parse(&bytes) else { panic!() };
            prop_assert_eq!((request.ect, request.no_caches), (ect, forbidden));
            set_no_caches(&mut bytes);
        }
    }

    #[test]
    fn meta(tag: u64, id in an_id(), collection: bool, name in vec(any::<u8>(), 0..=NAME_MAX)) {
        let bytes = emitted(|out| emit_meta(out, tag, &id, collection, &name));
        let Ok(Packet::Meta(meta)) = parse(&bytes) else { panic!() };
        prop_assert_eq!((meta.tag, meta.content), (tag, id));
        prop_assert_eq!((meta.collection, meta.name), (collection, &name[..]));
        every_cut_off_is_truncated(&bytes, bytes.len());
    }

    #[test]
    fn the_small_ones(
        tag: u64, cookie: [u8; 16], proof in a_cookie(), reason: u8, retry_ms: u16,
        size in PADDED_MIN..=PACKET_MAX,
    ) {
        let size = size as u16;
        let cookie = Cookie(cookie);
        let bytes = emitted(|out| emit_cookie(out, tag, &cookie));
        prop_assert_eq!(parse(&bytes), Ok(Packet::Cookie { tag, cookie }));
        every_cut_off_is_truncated(&bytes, bytes.len());
        let reason = Reason::from_code(reason);
        let bytes = emitted(|out| emit_refuse(out, tag, reason, retry_ms));
        prop_assert_eq!(parse(&bytes), Ok(Packet::Refuse { tag, reason, version: VERSION, retry_ms }));
        every_cut_off_is_truncated(&bytes, bytes.len());
        let bytes = emitted(|out| emit_probe(out, tag, proof.as_ref(), size));
        prop_assert_eq!(parse(&bytes), Ok(Packet::Probe { tag, cookie: proof, size }));
        every_cut_off_is_truncated(&bytes, bytes.len());
        let mut bytes = emitted(|out| emit_padded(out, tag, size));
        prop_assert_eq!(parse(&bytes), Ok(Packet::Padded { tag, size }));
        prop_assert_eq!(bytes.len(), usize::from(size));
        every_cut_off_is_truncated(&bytes, bytes.len());
        bytes.push(0);
        prop_assert_eq!(parse(&bytes), Err(ParseError::Oversized));
    }

    #[test]
    fn arbitrary_bytes(
        mut bytes in vec(any::<u8>(), 0..400), version: bool, kind in 0_u8..10, words in 0_u8..8,
    ) {
        let _ = (parse(&bytes), peek(&bytes));
        if version && bytes.len() >= PREFIX {
            (bytes[0], bytes[1], bytes[3]) = (VERSION, kind, words);
        }
        if let Ok(Packet::Request(request)) = parse(&bytes) {
            prop_assert_eq!(request.ranges.count(), request.ranges.len());
        }
    }
}

/// Each of these packets leads to its error.
#[test]
fn each_error_has_its_own_name() {
    let id = ContentId { root: [9; 32], length: 5 };
    let range = Range { kind: RangeKind::Meta, first: 0, count: 1 };
    let request = emitted(|out| emit_request(out, 1, None, false, &id, &[range]));
    let meta = emitted(|out| emit_meta(out, 1, &id, false, b"name"));
    let data = emitted(|out| emit_data(out, 1, ChunksPerBlock::MAX, 1, &[0; 256], 256));
    let hashes = emitted(|out| emit_hashes(out, 1, 0, 0, &[[0; 32]; HASHES_MAX]));
    let with = |packet: &[u8], changes: &[(usize, u8)]| {
        let mut packet = packet.to_vec();
        for (at, byte) in changes {
            packet[*at] = *byte;
        }
        packet
    };
    let longer = |packet: &[u8], by: usize| [packet, &vec![0; by]].concat();
    let extended = |area: &[u8]| {
        let mut packet = request.clone();
        packet[3] = (area.len() / 4) as u8;
        packet.splice(PREFIX..PREFIX, area.iter().copied());
        packet
    };
    let ranges = PREFIX + 44;
    let cases = [
        (vec![], ParseError::Truncated),
        (with(&request, &[(3, 255)]), ParseError::Truncated),
        (longer(&hashes, 31), ParseError::Truncated),
        (longer(&hashes, 32), ParseError::Oversized),
        (longer(&data, 1), ParseError::Oversized),
        (longer(&request, PACKET_MAX), ParseError::Oversized),
        (with(&meta, &[(PREFIX + 53, 1)]), ParseError::Oversized),
        (with(&request, &[(0, 0)]), ParseError::Version(0)),
        (with(&data, &[(0, 2)]), ParseError::Version(2)),
        (with(&request, &[(1, 0)]), ParseError::Type(0)),
        (with(&request, &[(1, 9)]), ParseError::Type(9)),
        (extended(&[9, 0, 0, 0]), ParseError::Extension),
        (extended(&[9, 2, 0, 0]), ParseError::Extension),
        (extended(&[1, 1, 0, 0]), ParseError::Extension),
        (extended(&[0x80, 1, 0, 0]), ParseError::Critical(0x80)),
        (extended(&[0, 1, 0, 0, 0x81, 1, 0, 0]), ParseError::Critical(0x81)),
        (with(&data, &[(12, 0)]), ParseError::Cut),
        (with(&data, &[(12, 65)]), ParseError::Cut),
        (with(&request, &[(PREFIX + 33, 0x41)]), ParseError::Length),
        (with(&meta, &[(PREFIX, 1)]), ParseError::Length),
        (with(&meta, &[(PREFIX + 43, 1)]), ParseError::Length),
        (with(&meta, &[(PREFIX + 51, 2)]), ParseError::Length),
        (with(&request, &[(PREFIX + 40, 0)]), ParseError::Range),
        (with(&request, &[(PREFIX + 40, 65)]), ParseError::Range),
        (with(&request, &[(ranges, 3)]), ParseError::Range),
        (with(&request, &[(ranges + 3, 0)]), ParseError::Range),
        (with(&request, &[(ranges + 4, 1)]), ParseError::Range),
        (with(&request, &[(ranges, 0)]), ParseError::Cut),
        (with(&request, &[(ranges, 2), (ranges + 1, LEVELS_MAX)]), ParseError::Level),
        (with(&hashes, &[(PREFIX, LEVELS_MAX)]), ParseError::Level),
        (with(&meta, &[(PREFIX + 52, 2)]), ParseError::Kind),
    ];
    for (packet, error) in cases {
        assert_eq!(parse(&packet), Err(error));
        assert!(!error.name().contains(' '));
    }
    // These packets must be accepted: unknown flags, padding, extensions that are not critical, and bytes
    // behind a body.
    for packet in [
        with(&request, &[(2, 0xfe)]),
        with(&data, &[(2, 0xff)]),
        extended(&[0, 1, 0, 0]),
        extended(&[0x7f, 1, 9, 9, 0, 1, 0, 0]),
        longer(&request, 7),
        longer(&meta, 7),
        longer(&emitted(|out| emit_probe(out, 1, None, 1_200)), 7),
    ] {
        assert!(parse(&packet).is_ok());
    }
    // The last range ends exactly at the bound of all numbers. Of two cookies, the first counts.
    let last = Range { kind: RangeKind::Data(ChunksPerBlock::MAX), first: NUMBER_END - 7, count: 7 };
    assert!(parse(&emitted(|out| emit_request(out, 1, None, false, &id, &[last]))).is_ok());
    let mut two = vec![1, 5, 0, 0];
    two.extend([7; 16]);
    two.extend([1, 5, 0, 0]);
    two.extend([8; 16]);
    let two = extended(&two);
    let Ok(Packet::Request(request)) = parse(&two) else { panic!() };
    assert_eq!(request.cookie, Some(Cookie([7; 16])));
}

#[test]
fn another_version_can_be_refused() {
    let mut bytes = emitted(|out| emit_probe(out, 77, None, 1_200));
    bytes[0] = 200;
    assert_eq!(parse(&bytes), Err(ParseError::Version(200)));
    assert_eq!(peek(&bytes), Some(Prefix { version: 200, expects_reply: true, tag: 77 }));
    assert_eq!(peek(&bytes[..11]), None);
    let answer = emitted(|out| emit_refuse(out, 77, Reason::Version, 0));
    assert_eq!(peek(&answer), Some(Prefix { version: VERSION, expects_reply: false, tag: 77 }));
}
