//! Checks that the code reads and writes the examples of docs/wire-mmtp.md.

use anabranch_mmtp::collection::{Collection, Entry};
use anabranch_mmtp::id::{ChunksPerBlock, ContentId};
use anabranch_mmtp::tree::{CheckResult, Outboard, Verifier};
use anabranch_mmtp::uri::Uri;
use anabranch_mmtp::wire::{
    Cookie, Packet, Range, RangeKind, Reason, emit_cookie, emit_data, emit_hashes, emit_meta, emit_padded,
    emit_probe, emit_refuse, emit_request, parse, set_no_caches, set_responder,
};

const DOC: &str = include_str!("../../../../../docs/wire-mmtp.md");

/// Returns the first code block after `marker`.
fn block(marker: &str) -> &'static str {
    let (_, rest) = DOC.split_once(marker).unwrap_or_else(|| panic!("no {marker:?} in the document"));
    let (_, rest) = rest.split_once("```text\n").expect("a block");
    rest.split_once("```").expect("its end").0
}

/// Returns the bytes of a block of hexadecimal digits. Text behind a `;` is a remark.
fn hex(marker: &str) -> Vec<u8> {
    let digits: String = block(marker).lines().map(|line| line.split(';').next().unwrap_or("")).collect();
    let digits: Vec<u8> = digits.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    let (pairs, rest) = digits.as_chunks::<2>();
    assert!(rest.is_empty(), "{marker}");
    pairs.iter().map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

const TAG: u64 = 0x0102_0304_0506_0708;
const COOKIE: Cookie = Cookie([0xc0; 16]);

fn emitted(emit: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    emit(&mut out);
    out
}

/// Returns the content of the examples: 20,000 bytes, which are two blocks.
fn content() -> Vec<u8> {
    vec![b'a'; 20_000]
}

#[test]
fn packets() {
    let bytes = content();
    let tree = Outboard::of_bytes(&bytes);
    let id = tree.id();
    let cut = ChunksPerBlock::new(12).unwrap();
    let ranges = [
        Range { kind: RangeKind::Meta, first: 0, count: 1 },
        Range { kind: RangeKind::Hashes { level: 0 }, first: 0, count: 2 },
        Range { kind: RangeKind::Data(cut), first: 0, count: 15 },
    ];
    let request = hex("Example REQUEST");
    assert_eq!(request, emitted(|out| emit_request(out, TAG, Some(&COOKIE), true, &id, &ranges)));
    let Ok(Packet::Request(read)) = parse(&request) else { panic!() };
    assert_eq!(read.ranges.collect::<Vec<_>>(), ranges);

    // The last chunk is the third of the second block, which is short.
    let (block, offset, len) = id.chunk_extent(14, cut).unwrap();
    assert_eq!((block, offset, len), (1, 2_732, 884));
    assert_eq!(id.chunk_extent(15, cut), None);
    let data = emitted(|out| emit_data(out, TAG, cut, 14, &bytes[16_384 + 2_732..], 884));
    let shown = hex("Example DATA");
    assert_eq!(data[..shown.len()], shown);
    assert_eq!(data.len(), 20 + 884);

    // The same chunk comes from the cache at node 7.
    let cached = emitted(|out| {
        emit_data(out, TAG, cut, 14, &bytes[16_384 + 2_732..], 884);
        set_responder(out, 7);
    });
    let shown = hex("Example of a cache's DATA");
    assert_eq!((&cached[..shown.len()], cached.len()), (&shown[..], data.len()));
    let Ok(Packet::Data(read)) = parse(&cached) else { panic!() };
    assert_eq!((read.responder, read.chunk, read.payload), (Some(7), 14, &data[20..]));
    let mut bypassing = request.clone();
    set_no_caches(&mut bypassing);
    assert_eq!(bypassing[..3], [1, 1, 3], "and ECT");
    let Ok(Packet::Request(read)) = parse(&bypassing) else { panic!() };
    assert!(read.no_caches && read.ect);

    assert_eq!(hex("Example HASHES"), emitted(|out| emit_hashes(out, TAG, 0, 0, tree.leaves())));
    assert_eq!(hex("Example META"), emitted(|out| emit_meta(out, TAG, &id, false, b"a.txt")));
    assert_eq!(hex("Example COOKIE"), emitted(|out| emit_cookie(out, TAG, &COOKIE)));
    assert_eq!(hex("Example REFUSE"), emitted(|out| emit_refuse(out, TAG, Reason::Busy, 250)));
    assert_eq!(hex("Example PROBE"), emitted(|out| emit_probe(out, TAG, None, 1_452)));
    assert_eq!(hex("Example PADDED"), emitted(|out| emit_padded(out, TAG, 16)));
    for name in ["REQUEST", "HASHES", "META", "COOKIE", "REFUSE", "PROBE", "PADDED"] {
        let bytes = hex(&format!("Example {name}"));
        assert_eq!(parse(&bytes).map(|packet| packet.tag()), Ok(TAG), "{name}");
    }

    let mut verifier = Verifier::new(id);
    verifier.add_page(0, 0, tree.leaves()).unwrap();
    assert_eq!(verifier.check(1, &bytes[16_384..]), CheckResult::Valid(tree.leaves()[1]));
}

#[test]
fn uri() {
    let text = block("Example URI").replace('\n', "");
    let uri: Uri = text.parse().unwrap();
    assert_eq!(uri.to_string(), text);
    assert_eq!(uri.id, ContentId::of(&content()));
    assert_eq!(uri.name.as_deref(), Some(&b"a b.txt"[..]));
    assert_eq!(uri.from, ["[2001:db8::1]:9000", "source.example:9000"]);
}

#[test]
fn manifest() {
    let bytes = hex("Example manifest");
    let entries = vec![Entry { path: b"bin/a".to_vec(), executable: true, id: ContentId::of(&content()) }];
    let collection = Collection::new(entries).unwrap();
    assert_eq!(bytes, collection.encode());
    assert_eq!(Collection::parse(&bytes), Ok(collection));
}
