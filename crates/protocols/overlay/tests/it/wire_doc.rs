//! Compares the examples of docs/wire-overlay.md with the bytes that the code reads and writes.

use anabranch_algo::Span;
use anabranch_overlay::frame::{self, Frame};
use anabranch_overlay::message::listing::{Page, PageRequest, Position};
use anabranch_overlay::message::{Body, LinkReport, LinkState, Message, Wanted};
use anabranch_overlay::publication::Key;
use anabranch_topology::fid::Header;
use anabranch_topology::graph::{LinkId, NodeId};

const DOC: &str = include_str!("../../../../../docs/wire-overlay.md");
const CALL: u64 = 0x0102_0304_0506_0708;

/// Returns the bytes of the hexadecimal digits in the first code block after `marker`. A remark follows a
/// `;`.
fn hex(marker: &str) -> Vec<u8> {
    let (_, rest) = DOC.split_once(marker).unwrap_or_else(|| panic!("no {marker:?} in the document"));
    let (_, rest) = rest.split_once("```text\n").expect("a block");
    let block = rest.split_once("```").expect("its end").0;
    let digits: String = block.lines().map(|line| line.split(';').next().unwrap_or("")).collect();
    let digits: Vec<u8> = digits.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    let (pairs, rest) = digits.as_chunks::<2>();
    assert!(rest.is_empty(), "{marker}");
    pairs.iter().map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// Returns the header of a frame over these links, in a domain with exact identifiers.
fn header(links: &[usize]) -> Header {
    let mut bytes = [0; 34];
    bytes[1] = 5;
    links.iter().for_each(|link| bytes[2 + link / 8] |= 1 << (link % 8));
    Header::parse(&bytes).expect("a header").0
}

#[test]
fn a_frame() {
    let bytes = hex("Example frame");
    let there = frame::header(&header(&[0, 2, 8]), 26_227);
    let back = frame::header(&header(&[9, 3, 1]), 40_000);
    assert_eq!(bytes, frame::request_header(&there, &back));
    let Ok(Frame::Routed(routed)) = frame::parse(&bytes) else { panic!("a frame") };
    assert_eq!((routed.port, routed.way_back, routed.payload), (26_227, Some(back), &[][..]));
}

#[test]
fn a_marked_frame() {
    let bytes = hex("Example marked frame");
    let dscp = "af11".parse().expect("a name");
    let there = frame::marked(frame::header(&header(&[0, 2, 8]), 26_227), dscp);
    let back = frame::header(&header(&[9, 3, 1]), 40_000);
    assert_eq!(bytes, frame::request_header(&there, &back));
    assert_eq!(frame::mark(&bytes), dscp);
}

#[test]
fn messages() {
    let lookup = Body::Lookup(Wanted::Name("films/x".parse().expect("a name")));
    let links = vec![
        LinkReport { link: LinkId(3), up: true, delay: Some(Span::from_millis(10)) },
        LinkReport { link: LinkId(4), up: false, delay: None },
    ];
    let scope = Some("films".parse().expect("a scope"));
    let key = Key { name: "films/x".parse().expect("a name"), node: NodeId(3), port: 26_227 };
    let list = PageRequest { scope, from: Position { cursor: 0, after: Some(key) } };
    let next = Some(Position { cursor: 48, after: None });
    let listed = Body::Listed(Page { next, publications: Vec::new() });
    let state = LinkState { node: NodeId(2), started_ms: 0x019a_bcde_f012, sequence: 2, links };
    for (marker, body, len) in [
        ("Example LOOKUP", lookup, anabranch_overlay::message::QUESTION_BYTES),
        ("Example LIST of", Body::List(list), anabranch_overlay::message::QUESTION_BYTES),
        ("Example LISTED", listed, 0),
        ("Example LINK-STATE", Body::LinkState(state), 0),
    ] {
        let mut bytes = hex(marker);
        bytes.resize(bytes.len().max(len), 0);
        let message = Message { call: CALL, body };
        assert_eq!(message.to_bytes(), bytes, "{marker}");
        assert_eq!(Message::parse(&bytes), Ok(message), "{marker}");
    }
}

#[test]
fn limits() {
    for text in [
        "400 bytes long",
        "At most 1,150 bytes",
        "at most 12 of these",
        "1 to 8 nodes",
        "at most 64 of",
        "below 1024",
        "a label 1 to 200 bytes",
        "a scope has 1 to 40",
        "the numbers of the first\n250 of them",
        "at most 16 classes",
    ] {
        assert!(DOC.contains(text), "{text}");
    }
    let numbers = [
        anabranch_overlay::message::MESSAGE_MAX,
        anabranch_overlay::message::QUESTION_BYTES,
        anabranch_overlay::domain::PATHS_MAX,
        anabranch_overlay::message::TARGETS_MAX,
        anabranch_overlay::message::LINKS_MAX,
        usize::from(anabranch_overlay::forwarder::HOST_PORT_MIN),
        anabranch_overlay::publication::LABEL_MAX,
        anabranch_overlay::publication::SCOPE_MAX,
        anabranch_overlay::message::DOWN_MAX,
        anabranch_overlay::domain_file::CLASSES_MAX,
    ];
    assert_eq!(numbers, [1_150, 400, 12, 8, 64, 1_024, 200, 40, 250, 16]);
}
