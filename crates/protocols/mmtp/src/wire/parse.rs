//! Parses received bytes into checked views.

use super::packet::{
    Cookie, DATA_HEADER, Data, HASHES_MAX, Hashes, Meta, NAME_MAX, NUMBER_END, PACKET_MAX, PADDED_MIN,
    PREFIX, Packet, ParseError, RANGES_MAX, Range, RangeKind, Ranges, Reason, Request, VERSION,
};
use super::{code, ext};
use crate::id::{BLOCK_BYTES, ChunksPerBlock, ContentId, LENGTH_MAX};
use crate::tree::LEVELS_MAX;

/// The fields of the prefix that are the same in every version. They suffice to refuse a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// The version.
    pub version: u8,
    /// Whether the packet asks for something (REQUEST or PROBE), so that an answer is due.
    pub expects_reply: bool,
    /// The tag that the answer must echo.
    pub tag: u64,
}

/// Reads the prefix of a packet of any version. Returns `None` if the bytes are too short.
#[must_use]
pub fn peek(bytes: &[u8]) -> Option<Prefix> {
    let (prefix, _) = bytes.split_first_chunk::<PREFIX>()?;
    let [version, kind, _, _, tag @ ..] = *prefix;
    let expects_reply = kind == code::REQUEST || kind == code::PROBE;
    Some(Prefix { version, expects_reply, tag: u64::from_be_bytes(tag) })
}

/// Parses one packet.
///
/// # Errors
/// If `bytes` is not a packet; the error says why. [`peek`] may still find the tag that a refusal needs.
pub fn parse(bytes: &[u8]) -> Result<Packet<'_>, ParseError> {
    // DATA without extensions is nearly all that a receiver sees.
    if let Some((&[VERSION, code::DATA, flags, 0, t0, t1, t2, t3, t4, t5, t6, t7, cut, n @ ..], payload)) =
        bytes.split_first_chunk::<DATA_HEADER>()
    {
        return data(u64::from_be_bytes([t0, t1, t2, t3, t4, t5, t6, t7]), flags, cut, n, payload);
    }
    general(bytes)
}

/// Parses any packet by its prefix, extensions and body.
fn general(bytes: &[u8]) -> Result<Packet<'_>, ParseError> {
    let (prefix, rest) = bytes.split_first_chunk::<PREFIX>().ok_or(ParseError::Truncated)?;
    let [version, kind, flags, words, tag @ ..] = *prefix;
    if version != VERSION {
        return Err(ParseError::Version(version));
    }
    if !(code::REQUEST..=code::PADDED).contains(&kind) {
        return Err(ParseError::Type(kind));
    }
    if bytes.len() > PACKET_MAX {
        return Err(ParseError::Oversized);
    }
    let (area, body) = rest.split_at_checked(usize::from(words) * 4).ok_or(ParseError::Truncated)?;
    let extensions = ext::read(area)?;
    let tag = u64::from_be_bytes(tag);
    let body = &mut Reader(body);
    match kind {
        code::REQUEST => request(tag, extensions.cookie, flags, body),
        code::DATA => {
            let [cut, n @ ..] = body.take::<8>()?;
            data(tag, flags, cut, n, body.0)
        }
        code::HASHES => hashes(tag, flags, body),
        code::META => meta(tag, body),
        code::COOKIE => Ok(Packet::Cookie { tag, cookie: Cookie(body.take()?) }),
        code::REFUSE => {
            let [reason, version, r0, r1] = body.take()?;
            let retry_ms = u16::from_be_bytes([r0, r1]);
            Ok(Packet::Refuse { tag, reason: Reason::from_code(reason), version, retry_ms })
        }
        code::PROBE => {
            let size = u16::from_be_bytes(body.take()?);
            check_size(size)?;
            Ok(Packet::Probe { tag, cookie: extensions.cookie, size })
        }
        _ => {
            let size = u16::from_be_bytes(body.take()?);
            check_size(size)?;
            match bytes.len().cmp(&usize::from(size)) {
                core::cmp::Ordering::Less => Err(ParseError::Truncated),
                core::cmp::Ordering::Greater => Err(ParseError::Oversized),
                core::cmp::Ordering::Equal => Ok(Packet::Padded { tag, size }),
            }
        }
    }
}

/// Checks that a PADDED packet may have this size.
const fn check_size(size: u16) -> Result<(), ParseError> {
    match size as usize {
        0..PADDED_MIN => Err(ParseError::Truncated),
        PADDED_MIN..=PACKET_MAX => Ok(()),
        _ => Err(ParseError::Oversized),
    }
}

fn data(tag: u64, flags: u8, cut: u8, number: [u8; 7], payload: &[u8]) -> Result<Packet<'_>, ParseError> {
    let cut = ChunksPerBlock::new(cut).ok_or(ParseError::Cut)?;
    if payload.is_empty() {
        return Err(ParseError::Truncated);
    }
    if payload.len() > cut.chunk_bytes() {
        return Err(ParseError::Oversized);
    }
    let (responder, chunk) = numbered(flags, number);
    Ok(Packet::Data(Data { tag, responder, cut, chunk, payload }))
}

fn request<'a>(
    tag: u64,
    cookie: Option<Cookie>,
    flags: u8,
    body: &mut Reader<'a>,
) -> Result<Packet<'a>, ParseError> {
    let content = ContentId { root: body.take()?, length: u64::from_be_bytes(body.take()?) };
    if content.length > LENGTH_MAX {
        return Err(ParseError::Length);
    }
    let [count, ..] = body.take::<4>()?;
    if count == 0 || usize::from(count) > RANGES_MAX {
        return Err(ParseError::Range);
    }
    let (raw, _) = body.0.as_chunks::<12>();
    let raw = raw.get(..usize::from(count)).ok_or(ParseError::Truncated)?;
    for one in raw {
        range(one)?;
    }
    let (ect, no_caches) = (flags & code::FLAG_ECT != 0, flags & code::FLAG_NO_CACHES != 0);
    Ok(Packet::Request(Request { tag, cookie, ect, no_caches, content, ranges: Ranges { raw } }))
}

fn range(raw: &[u8; 12]) -> Result<Range, ParseError> {
    let [kind, arg, c0, c1, first @ ..] = *raw;
    let kind = match kind {
        code::KIND_DATA => RangeKind::Data(ChunksPerBlock::new(arg).ok_or(ParseError::Cut)?),
        code::KIND_META => RangeKind::Meta,
        code::KIND_HASHES if arg < LEVELS_MAX => RangeKind::Hashes { level: arg },
        code::KIND_HASHES => return Err(ParseError::Level),
        _ => return Err(ParseError::Range),
    };
    let (first, count) = (u64::from_be_bytes(first), u16::from_be_bytes([c0, c1]));
    if count == 0 || first > NUMBER_END - u64::from(count) {
        return Err(ParseError::Range);
    }
    Ok(Range { kind, first, count })
}

fn hashes<'a>(tag: u64, flags: u8, body: &mut Reader<'a>) -> Result<Packet<'a>, ParseError> {
    let [level, first @ ..] = body.take::<8>()?;
    if level >= LEVELS_MAX {
        return Err(ParseError::Level);
    }
    let (cvs, rest) = body.0.as_chunks::<32>();
    if cvs.is_empty() || !rest.is_empty() {
        return Err(ParseError::Truncated);
    }
    if cvs.len() > HASHES_MAX {
        return Err(ParseError::Oversized);
    }
    let (responder, first) = numbered(flags, first);
    Ok(Packet::Hashes(Hashes { tag, responder, level, first, cvs }))
}

fn meta<'a>(tag: u64, body: &mut Reader<'a>) -> Result<Packet<'a>, ParseError> {
    let length = u64::from_be_bytes(body.take()?);
    let content = ContentId { root: body.take()?, length };
    let block_bytes = u32::from_be_bytes(body.take()?);
    let blocks = u64::from_be_bytes(body.take()?);
    if length > LENGTH_MAX || block_bytes as usize != BLOCK_BYTES || blocks != content.blocks() {
        return Err(ParseError::Length);
    }
    let [kind] = body.take()?;
    let collection = match kind {
        0 => false,
        1 => true,
        _ => return Err(ParseError::Kind),
    };
    let name_len = usize::from(u16::from_be_bytes(body.take()?));
    if name_len > NAME_MAX {
        return Err(ParseError::Oversized);
    }
    let name = body.0.get(..name_len).ok_or(ParseError::Truncated)?;
    Ok(Packet::Meta(Meta { tag, content, collection, name }))
}

/// Returns the node of the answering cache, if a cache answers, and the number of a chunk or chaining value.
fn numbered(flags: u8, [a, b, c, d, e, f, g]: [u8; 7]) -> (Option<u16>, u64) {
    if flags & code::FLAG_CACHED == 0 {
        (None, u64::from_be_bytes([0, a, b, c, d, e, f, g]))
    } else {
        (Some(u16::from_be_bytes([a, b])), u64::from_be_bytes([0, 0, 0, c, d, e, f, g]))
    }
}

/// The unread rest of a body.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    /// Takes the next `N` bytes.
    fn take<const N: usize>(&mut self) -> Result<[u8; N], ParseError> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or(ParseError::Truncated)?;
        self.0 = rest;
        Ok(*head)
    }
}

impl Iterator for Ranges<'_> {
    type Item = Range;

    fn next(&mut self) -> Option<Range> {
        let (first, rest) = self.raw.split_first()?;
        self.raw = rest;
        range(first).ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.raw.len(), Some(self.raw.len()))
    }
}

impl ExactSizeIterator for Ranges<'_> {}
