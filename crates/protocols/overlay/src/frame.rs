//! Frames travel between the nodes of a domain, one in a UDP payload. `docs/wire-overlay.md` has every field.
//!
//! A header is [`HEADER_BYTES`] long. A second header, the way back, may follow. The way back is a complete
//! header, so the node that answers puts it in front of the answer as it is.

use anabranch_mmtp::peer::{WAY_BACK_BYTES, WayBack};
use anabranch_topology::fid::{self, FidError, Header};

use crate::dscp::{Dscp, DscpSet};

/// The first byte of every frame. That of an mmTP packet is its version, 1.
pub const FRAME: u8 = 0x81;
/// The bytes in front of a packet that has no way back.
pub const HEADER_BYTES: usize = WAY_BACK_BYTES;
/// The bytes of a hello.
pub const HELLO_BYTES: usize = 12;
/// The offset of the hop limit in a frame.
const HOP_LIMIT_AT: usize = 5;

const ROUTED: u8 = 0;
const WITH_WAY_BACK: u8 = 1;
const HELLO: u8 = 2;
const HELLO_REPLY: u8 = 3;
/// The offset of the type and the mark in a frame: the low `KIND_BITS` bits are the type, those above are the
/// mark.
const KIND_AT: usize = 1;
const KIND_BITS: u32 = 2;
const KIND_MASK: u8 = (1 << KIND_BITS) - 1;

/// A frame, as a view of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// A packet on its way to a host or a service.
    Routed(Routed<'a>),
    /// A neighbour asks whether this node is there. The answer returns the stamp.
    Hello {
        /// Any number, by which the neighbour knows the answer.
        stamp: u64,
    },
    /// A neighbour answers that it is there.
    HelloReply {
        /// The stamp of the hello that is answered.
        stamp: u64,
    },
}

/// A packet on its way to a host or a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Routed<'a> {
    /// The UDP port at the host where the way ends.
    pub port: u16,
    /// The links that the packet takes, and how many at most.
    pub header: Header,
    /// The header of the answer, if the packet is to be answered.
    pub way_back: Option<WayBack>,
    /// The payload.
    pub payload: &'a [u8],
}

/// Why bytes are no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The bytes are too few.
    #[error("truncated")]
    Truncated,
    /// The first byte is not that of a frame.
    #[error("no frame")]
    NoFrame,
    /// There is no such type of frame.
    #[error("unknown type")]
    Type,
    /// The way back is no header of a frame without a way back.
    #[error("bad way back")]
    WayBack,
    /// The forwarding identifier is invalid.
    #[error("bad forwarding identifier")]
    Fid,
}

impl From<FidError> for FrameError {
    fn from(error: FidError) -> Self {
        if matches!(error, FidError::Short(_)) { Self::Truncated } else { Self::Fid }
    }
}

/// Reads a frame.
///
/// # Errors
/// If `bytes` is no frame; the error says why.
pub fn parse(bytes: &[u8]) -> Result<Frame<'_>, FrameError> {
    let Some(([first, kind, rest @ ..], _)) = bytes.split_first_chunk::<4>() else {
        return Err(FrameError::Truncated);
    };
    if *first != FRAME {
        return Err(FrameError::NoFrame);
    }
    let port = u16::from_be_bytes(*rest);
    // Only a routed frame has a mark.
    let kind = if *kind & KIND_MASK <= WITH_WAY_BACK { *kind & KIND_MASK } else { *kind };
    match kind {
        ROUTED | WITH_WAY_BACK => {
            let (header, payload) = Header::parse(&bytes[4..])?;
            let (way_back, payload) = match (kind, payload.split_first_chunk::<WAY_BACK_BYTES>()) {
                (ROUTED, _) => (None, payload),
                (_, Some((way_back, payload))) => (Some(read_way_back(way_back)?), payload),
                (_, None) => return Err(FrameError::Truncated),
            };
            Ok(Frame::Routed(Routed { port, header, way_back, payload }))
        }
        HELLO | HELLO_REPLY => {
            let stamp = bytes.get(4..HELLO_BYTES).and_then(|stamp| stamp.try_into().ok());
            let stamp = u64::from_be_bytes(stamp.ok_or(FrameError::Truncated)?);
            Ok(if kind == HELLO { Frame::Hello { stamp } } else { Frame::HelloReply { stamp } })
        }
        _ => Err(FrameError::Type),
    }
}

fn read_way_back(bytes: &[u8; WAY_BACK_BYTES]) -> Result<WayBack, FrameError> {
    if !is_carried_only(bytes) || Header::parse(&bytes[4..]).is_err() {
        return Err(FrameError::WayBack);
    }
    Ok(WayBack(*bytes))
}

/// Returns the header of a frame without a way back. It is also a way back.
#[must_use]
pub fn header(header: &Header, port: u16) -> WayBack {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..2].copy_from_slice(&[FRAME, ROUTED]);
    bytes[2..4].copy_from_slice(&port.to_be_bytes());
    bytes[4..4 + fid::HEADER_BYTES].copy_from_slice(&header.to_bytes());
    WayBack(bytes)
}

/// Returns the headers in front of a packet that is to be answered. The answer gets the mark of `there`.
#[must_use]
pub fn request_header(there: &WayBack, way_back: &WayBack) -> [u8; 2 * HEADER_BYTES] {
    let mut bytes = [0; 2 * HEADER_BYTES];
    bytes[..HEADER_BYTES].copy_from_slice(&there.0);
    bytes[KIND_AT] |= WITH_WAY_BACK;
    bytes[HEADER_BYTES..].copy_from_slice(&way_back.0);
    set_mark(&mut bytes[HEADER_BYTES..], mark(&there.0));
    bytes
}

/// Returns a header with this mark.
#[must_use]
pub fn marked(header: WayBack, dscp: Dscp) -> WayBack {
    let mut header = header;
    set_mark(&mut header.0, dscp);
    header
}

/// Returns the mark of a frame; none for other bytes.
#[must_use]
pub fn mark(frame: &[u8]) -> Dscp {
    match frame {
        [FRAME, kind, ..] if kind & KIND_MASK <= WITH_WAY_BACK => {
            Dscp::new(kind >> KIND_BITS).unwrap_or_default()
        }
        _ => Dscp::NONE,
    }
}

fn set_mark(frame: &mut [u8], dscp: Dscp) {
    if let Some(byte) = frame.get_mut(KIND_AT) {
        *byte = dscp.number() << KIND_BITS | *byte & KIND_MASK;
    }
}

/// Removes the marks of a frame and of its way back that are not among the `allowed` ones. Returns whether
/// there was one.
pub(crate) fn clear_marks(frame: &mut [u8], allowed: DscpSet) -> bool {
    let clear = |header: &mut [u8]| {
        let is_other = !allowed.has(mark(header));
        if is_other {
            set_mark(header, Dscp::NONE);
        }
        is_other
    };
    let mut cleared = clear(frame);
    if let [_, kind, ..] = frame
        && *kind & KIND_MASK == WITH_WAY_BACK
        && let Some(way_back) = frame.get_mut(HEADER_BYTES..)
    {
        cleared |= clear(way_back);
    }
    cleared
}

/// Returns the forwarding header and the port of a way back that [`parse`] has returned.
#[must_use]
pub fn fields(way_back: &WayBack) -> Option<(Header, u16)> {
    let (header, _) = Header::parse(&way_back.0[4..]).ok()?;
    Some((header, u16::from_be_bytes([way_back.0[2], way_back.0[3]])))
}

/// Whether a frame with this header is only carried: its receiver need not answer it.
pub(crate) fn is_carried_only(header: &[u8; HEADER_BYTES]) -> bool {
    header[0] == FRAME && header[KIND_AT] & KIND_MASK == ROUTED
}

/// Writes the hop limit of a frame that has been read.
pub(crate) fn set_hop_limit(frame: &mut [u8], hop_limit: u8) {
    if let Some(byte) = frame.get_mut(HOP_LIMIT_AT) {
        *byte = hop_limit;
    }
}

/// Returns a hello.
#[must_use]
pub fn hello(stamp: u64) -> [u8; HELLO_BYTES] {
    hello_of(HELLO, stamp)
}

/// Returns the answer to a hello.
#[must_use]
pub fn hello_reply(stamp: u64) -> [u8; HELLO_BYTES] {
    hello_of(HELLO_REPLY, stamp)
}

fn hello_of(kind: u8, stamp: u64) -> [u8; HELLO_BYTES] {
    let mut bytes = [0; HELLO_BYTES];
    bytes[..2].copy_from_slice(&[FRAME, kind]);
    bytes[4..].copy_from_slice(&stamp.to_be_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns a header of bytes that are one.
    fn some_header(hop_limit: u8, fid: [u8; 32]) -> Header {
        Header::parse(&[&[0, hop_limit][..], &fid].concat()).expect("a header").0
    }

    #[test]
    fn a_request_carries_its_way_back() {
        let there = header(&some_header(5, [1; 32]), 26_227);
        let back = header(&some_header(6, [2; 32]), 40_000);
        let frame = [&request_header(&there, &back)[..], b"payload"].concat();
        let Ok(Frame::Routed(routed)) = parse(&frame) else { panic!("a frame") };
        assert_eq!((routed.port, routed.header), (26_227, some_header(5, [1; 32])));
        assert_eq!((routed.way_back, routed.payload), (Some(back), &b"payload"[..]));
        let reply = [&routed.way_back.expect("it").0[..], b"answer"].concat();
        let Ok(Frame::Routed(routed)) = parse(&reply) else { panic!("a frame") };
        assert_eq!((routed.port, routed.header), (40_000, some_header(6, [2; 32])));
        assert_eq!((routed.way_back, routed.payload), (None, &b"answer"[..]));
        assert_eq!(fields(&back), Some((some_header(6, [2; 32]), 40_000)));
    }

    #[test]
    fn what_is_no_frame() {
        let there = header(&some_header(5, [1; 32]), 1);
        let good = request_header(&there, &there);
        assert_eq!(parse(&good[..3]), Err(FrameError::Truncated));
        assert_eq!(parse(&good[..37]), Err(FrameError::Truncated));
        assert_eq!(parse(&good[..75]), Err(FrameError::Truncated));
        assert!(parse(&good).is_ok() && parse(&good[..0]).is_err());
        let with = |at: usize, byte: u8| {
            let mut bytes = good;
            bytes[at] = byte;
            parse(&bytes).map(|_| ()).expect_err("no frame")
        };
        assert_eq!(with(0, 1), FrameError::NoFrame);
        assert_eq!(with(1, 9 << KIND_BITS | HELLO), FrameError::Type, "only what is routed has a mark");
        assert_eq!(with(4, 3), FrameError::Fid);
        assert_eq!(with(38, 1), FrameError::WayBack);
        assert_eq!(with(39, 1), FrameError::WayBack, "a way back has none itself");
        assert_eq!(with(42, 3), FrameError::WayBack);
    }

    #[test]
    fn a_mark_is_that_of_the_answer_too() {
        let dscp = Dscp::new(46).expect("one");
        let there = marked(header(&some_header(5, [1; 32]), 26_227), dscp);
        let back = header(&some_header(6, [2; 32]), 40_000);
        let plain = request_header(&marked(there, Dscp::NONE), &back);
        let frame = request_header(&there, &back);
        let Ok(Frame::Routed(routed)) = parse(&frame) else { panic!("a frame") };
        let way_back = routed.way_back.expect("it");
        assert_eq!((mark(&frame), mark(&way_back.0)), (dscp, dscp));
        assert_eq!(fields(&way_back), Some((some_header(6, [2; 32]), 40_000)));
        assert_eq!((mark(&plain), mark(&hello(7)), mark(&[1, 0xff]), mark(&[])), <_>::default());
        // Only the marks are different.
        let differ = frame.iter().zip(&plain).enumerate().filter(|(_, (a, b))| a != b);
        assert_eq!(differ.map(|(at, _)| at).collect::<Vec<_>>(), [1, HEADER_BYTES + 1]);
        let cleared = |allowed: &[Dscp], mut frame: [u8; 2 * HEADER_BYTES]| {
            clear_marks(&mut frame, allowed.iter().copied().collect());
            frame
        };
        assert_eq!((cleared(&[], frame), cleared(&[dscp], frame)), (plain, frame));
        assert_eq!(cleared(&[], plain), plain);
        let mut forged = plain;
        set_mark(&mut forged[HEADER_BYTES..], dscp);
        assert_eq!(cleared(&[], forged), plain, "of the answer alone");
    }

    #[test]
    fn hellos() {
        assert_eq!(parse(&hello(7)), Ok(Frame::Hello { stamp: 7 }));
        assert_eq!(parse(&hello_reply(u64::MAX)), Ok(Frame::HelloReply { stamp: u64::MAX }));
        assert_eq!(parse(&hello(7)[..11]), Err(FrameError::Truncated));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..120), forced: bool) {
            if forced && bytes.len() > 1 {
                bytes[0] = FRAME;
                bytes[1] %= 5;
            }
            let _ = parse(&bytes);
        }
    }
}
