//! Writes packets as bytes. Every function appends exactly one packet to its buffer.
//!
//! The arguments come from our own state machines, never from outside. An argument over its limit is a broken
//! invariant and panics in debug builds.

use super::packet::{
    CACHED_NUMBER_END, Cookie, DATA_HEADER, HASHES_MAX, NAME_MAX, NUMBER_END, PACKET_MAX, PADDED_MIN, PREFIX,
    RANGES_MAX, Range, RangeKind, Reason, VERSION,
};
use super::{code, ext};
use crate::id::{BLOCK_BYTES, ChunksPerBlock, ContentId};

/// The offset of the flags in a packet.
const FLAGS_AT: usize = 2;

/// Appends a REQUEST with 1 to [`RANGES_MAX`] ranges. To let an unproven address get a longer answer, append
/// zeros afterwards: bytes behind the ranges are padding.
pub fn emit_request(
    out: &mut Vec<u8>,
    tag: u64,
    cookie: Option<&Cookie>,
    ect: bool,
    content: &ContentId,
    ranges: &[Range],
) {
    debug_assert!((1..=RANGES_MAX).contains(&ranges.len()));
    prefix(out, code::REQUEST, if ect { code::FLAG_ECT } else { 0 }, tag, cookie);
    out.extend_from_slice(&content.root);
    out.extend_from_slice(&content.length.to_be_bytes());
    out.extend_from_slice(&[ranges.len() as u8, 0, 0, 0]);
    for range in ranges {
        debug_assert!(range.count > 0 && range.first <= NUMBER_END - u64::from(range.count));
        let (kind, arg) = match range.kind {
            RangeKind::Data(cut) => (code::KIND_DATA, cut.get()),
            RangeKind::Meta => (code::KIND_META, 0),
            RangeKind::Hashes { level } => (code::KIND_HASHES, level),
        };
        out.extend_from_slice(&[kind, arg]);
        out.extend_from_slice(&range.count.to_be_bytes());
        out.extend_from_slice(&range.first.to_be_bytes());
    }
}

/// Forbids caches to answer a REQUEST from [`emit_request`].
pub fn set_no_caches(request: &mut [u8]) {
    debug_assert_eq!(request.get(1), Some(&code::REQUEST));
    if let Some(flags) = request.get_mut(FLAGS_AT) {
        *flags |= code::FLAG_NO_CACHES;
    }
}

/// Turns a DATA or HASHES packet from [`emit_data`] or [`emit_hashes`] into the answer of the cache at this
/// node. The number in the packet must be below [`CACHED_NUMBER_END`]. The packet keeps its length.
pub fn set_responder(packet: &mut [u8], node: u16) {
    debug_assert!(matches!(packet, [VERSION, code::DATA | code::HASHES, _, 0, ..]));
    let Some((header, _)) = packet.split_first_chunk_mut::<DATA_HEADER>() else { return };
    debug_assert!(header[13..15] == [0, 0], "a number below {CACHED_NUMBER_END}");
    header[FLAGS_AT] |= code::FLAG_CACHED;
    header[13..15].copy_from_slice(&node.to_be_bytes());
}

/// Returns the bytes in front of the payload of a DATA packet, for callers that append the payload
/// themselves.
#[must_use]
pub fn data_header(tag: u64, cut: ChunksPerBlock, chunk: u64) -> [u8; DATA_HEADER] {
    let mut header = [0; DATA_HEADER];
    header[..4].copy_from_slice(&[VERSION, code::DATA, 0, 0]);
    header[4..12].copy_from_slice(&tag.to_be_bytes());
    header[12..].copy_from_slice(&numbered(cut.get(), chunk));
    header
}

/// Appends a DATA packet. `wire_len` is the length of its payload, including the zeros that pad the last
/// chunk of a full block (see [`ContentId::chunk_wire_len`]).
pub fn emit_data(
    out: &mut Vec<u8>,
    tag: u64,
    cut: ChunksPerBlock,
    chunk: u64,
    payload: &[u8],
    wire_len: usize,
) {
    debug_assert!(!payload.is_empty() && payload.len() <= wire_len && wire_len <= cut.chunk_bytes());
    out.extend_from_slice(&data_header(tag, cut, chunk));
    out.extend_from_slice(payload);
    out.resize(out.len() + (wire_len - payload.len()), 0);
}

/// Appends a HASHES packet with 1 to [`HASHES_MAX`] chaining values.
pub fn emit_hashes(out: &mut Vec<u8>, tag: u64, level: u8, first: u64, cvs: &[[u8; 32]]) {
    debug_assert!((1..=HASHES_MAX).contains(&cvs.len()));
    prefix(out, code::HASHES, 0, tag, None);
    out.extend_from_slice(&numbered(level, first));
    out.extend_from_slice(cvs.as_flattened());
}

/// Appends a META packet. A name longer than [`NAME_MAX`] loses its end.
pub fn emit_meta(out: &mut Vec<u8>, tag: u64, content: &ContentId, collection: bool, name: &[u8]) {
    let name = &name[..name.len().min(NAME_MAX)];
    prefix(out, code::META, 0, tag, None);
    out.extend_from_slice(&content.length.to_be_bytes());
    out.extend_from_slice(&content.root);
    out.extend_from_slice(&(BLOCK_BYTES as u32).to_be_bytes());
    out.extend_from_slice(&content.blocks().to_be_bytes());
    out.push(u8::from(collection));
    out.extend_from_slice(&(name.len() as u16).to_be_bytes());
    out.extend_from_slice(name);
}

/// Appends a COOKIE packet.
pub fn emit_cookie(out: &mut Vec<u8>, tag: u64, cookie: &Cookie) {
    prefix(out, code::COOKIE, 0, tag, None);
    out.extend_from_slice(&cookie.0);
}

/// Appends a REFUSE packet. It names [`VERSION`] as the version of this side.
pub fn emit_refuse(out: &mut Vec<u8>, tag: u64, reason: Reason, retry_ms: u16) {
    prefix(out, code::REFUSE, 0, tag, None);
    out.extend_from_slice(&[reason.code(), VERSION]);
    out.extend_from_slice(&retry_ms.to_be_bytes());
}

/// Appends a PROBE packet for a PADDED packet of `size` bytes of UDP payload, [`PADDED_MIN`] to
/// [`PACKET_MAX`]. Zeros may be appended to it.
pub fn emit_probe(out: &mut Vec<u8>, tag: u64, cookie: Option<&Cookie>, size: u16) {
    debug_assert!((PADDED_MIN..=PACKET_MAX).contains(&usize::from(size)));
    prefix(out, code::PROBE, 0, tag, cookie);
    out.extend_from_slice(&size.to_be_bytes());
}

/// Appends a PADDED packet of `size` bytes, [`PADDED_MIN`] to [`PACKET_MAX`].
pub fn emit_padded(out: &mut Vec<u8>, tag: u64, size: u16) {
    debug_assert!((PADDED_MIN..=PACKET_MAX).contains(&usize::from(size)));
    let start = out.len();
    prefix(out, code::PADDED, 0, tag, None);
    out.extend_from_slice(&size.to_be_bytes());
    out.resize(start + usize::from(size).max(PADDED_MIN), 0);
}

fn prefix(out: &mut Vec<u8>, kind: u8, flags: u8, tag: u64, cookie: Option<&Cookie>) {
    out.reserve(PREFIX);
    out.extend_from_slice(&[VERSION, kind, flags, if cookie.is_some() { ext::COOKIE_WORDS } else { 0 }]);
    out.extend_from_slice(&tag.to_be_bytes());
    if let Some(cookie) = cookie {
        out.extend_from_slice(&[ext::COOKIE, ext::COOKIE_WORDS, 0, 0]);
        out.extend_from_slice(&cookie.0);
    }
}

/// Returns a byte followed by a 56-bit number.
fn numbered(byte: u8, number: u64) -> [u8; 8] {
    debug_assert!(number < NUMBER_END);
    let mut bytes = number.to_be_bytes();
    bytes[0] = byte;
    bytes
}
