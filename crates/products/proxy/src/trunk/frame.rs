//! The wire format of a trunk: `docs/wire-proxy.md`.

use std::net::SocketAddr;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

use crate::trunk::destination::{Destination, ENCODED_BYTES_MAX, encode_address};

/// The version that this code speaks.
pub const VERSION: u16 = 1;
/// Bytes before a payload.
pub const HEADER_BYTES: usize = 8;
/// Bytes of a DATA payload that this code sends at most: with the header it fills one record of TLS
/// (RFC 8446 section 5.1). It takes whatever the length field can say.
pub const DATA_BYTES_MAX: usize = 16 * 1024 - HEADER_BYTES;
/// Credit of a new stream before the HELLO came, in bytes; no HELLO may say less.
pub const STREAM_CREDIT_MIN: u32 = 256 * 1024;
/// Credit of a trunk before the HELLO came, in bytes; no HELLO may say less.
pub const TRUNK_CREDIT_MIN: u32 = 4 * 1024 * 1024;
/// Streams of a trunk before the HELLO came; no HELLO may say less.
pub const STREAMS_MIN: u32 = 1_024;
/// Credit that a stream or a trunk may have, in bytes.
pub const CREDIT_MAX: u32 = i32::MAX as u32;

const HELLO: u8 = 0;
pub(super) const OPEN: u8 = 1;
pub(super) const OPENED: u8 = 2;
pub(super) const DATA: u8 = 3;
pub(super) const CREDIT: u8 = 4;
pub(super) const RESET: u8 = 5;
const PING: u8 = 6;
const PONG: u8 = 7;
const GOAWAY: u8 = 8;
pub(super) const ASK_LEG: u8 = 9;
pub(super) const LEG: u8 = 10;
pub(super) const FULL: u8 = 11;

/// Of OPEN: say when it is connected. Of DATA: the last ones.
const FLAG: u8 = 1;
/// Bytes of a HELLO that have a meaning.
const HELLO_BYTES: usize = 16;

/// What a peer does that `docs/wire-proxy.md` does not allow. It ends the trunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// It speaks another version.
    #[error("the other side speaks version {0} of the trunk's protocol, this one version {VERSION}")]
    Version(u16),
    /// It does not begin with HELLO, or says it twice.
    #[error("HELLO is not the first frame, or comes again")]
    Hello,
    /// A HELLO grants less than every side must.
    #[error("HELLO grants less than the protocol's least")]
    HelloLimits,
    /// A frame's length is not one that its type has.
    #[error("a frame of type {0} with {1} bytes")]
    Length(u8, u16),
    /// A frame of the trunk names a stream, or one of a stream does not, or names one that cannot be.
    #[error("a frame of type {0} for stream {1}")]
    Stream(u8, u32),
    /// An OPEN or OPENED has no destination.
    #[error("a destination that is none")]
    Destination,
    /// A frame that only the other role sends, or that was not asked for.
    #[error("a frame of type {0} from the wrong side, or unasked")]
    Unasked(u8),
    /// More bytes than there was credit for.
    #[error("bytes without credit")]
    NoCredit,
    /// More bytes after the last ones of a stream.
    #[error("bytes after the last ones of a stream")]
    AfterEnd,
    /// Credit beyond [`CREDIT_MAX`].
    #[error("more credit than there can be")]
    CreditOverflow,
    /// Streams beyond the limit are asked for, and the refusals not read.
    #[error("streams beyond the limit, again and again")]
    TooManyRefused,
}

/// Why a stream was reset. The numbers are those of the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Reason {
    /// No more interest: the program or the origin has reset its connection. Also any reason that this
    /// version does not know.
    NoInterest = 0,
    /// The policy does not allow the destination.
    Denied = 1,
    /// The network is unreachable.
    NetworkUnreachable = 2,
    /// The host is unreachable, or did not answer in time.
    HostUnreachable = 3,
    /// The connection was refused.
    Refused = 4,
    /// The name has no address, or could not be looked up.
    Name = 5,
    /// There are too many streams, or too few descriptors.
    Busy = 6,
    /// The trunk is gone; never sent.
    TrunkGone = 7,
}

impl Reason {
    fn from_number(number: u8) -> Self {
        let all = [Self::Denied, Self::NetworkUnreachable, Self::HostUnreachable, Self::Refused, Self::Name]
            .into_iter()
            .chain([Self::Busy]);
        all.into_iter().find(|reason| *reason as u8 == number).unwrap_or(Self::NoInterest)
    }
}

/// What the program is told.
impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NoInterest => "the connection was reset",
            Self::Denied => "the server's policy does not allow the destination",
            Self::NetworkUnreachable => "the network is unreachable",
            Self::HostUnreachable => "the host is unreachable, or did not answer in time",
            Self::Refused => "the connection was refused",
            Self::Name => "the name has no address, or could not be looked up",
            Self::Busy => "there are too many streams, or too few descriptors",
            Self::TrunkGone => "the connection to the proxy's server is gone",
        })
    }
}

/// Why a side takes no new streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum GoAwayReason {
    /// It ends. Also any reason that this version does not know.
    Ends = 0,
    /// It wants another version.
    Version = 1,
    /// This client has too many trunks.
    TooManyTrunks = 2,
    /// The other side broke a rule of the protocol; the connection is closed.
    Protocol = 3,
}

impl GoAwayReason {
    fn from_number(number: u8) -> Self {
        let all = [Self::Version, Self::TooManyTrunks, Self::Protocol];
        all.into_iter().find(|reason| *reason as u8 == number).unwrap_or(Self::Ends)
    }
}

impl std::fmt::Display for GoAwayReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Ends => "the other side ends",
            Self::Version => "the other side wants another version of the protocol",
            Self::TooManyTrunks => "the server has too many trunks of this client",
            Self::Protocol => "the other side says that a rule of the protocol was broken",
        })
    }
}

/// What a side sees of the connection that carries the trunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Transport {
    /// TCP, because this kernel has no MPTCP.
    NoMptcp = 0,
    /// TCP.
    Tcp = 1,
    /// MPTCP.
    Mptcp = 2,
}

impl Transport {
    /// `MPTCP`, or `TCP`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mptcp => "MPTCP",
            Self::Tcp | Self::NoMptcp => "TCP",
        }
    }
}

/// The first frame of each side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// What the sender sees of the connection.
    pub transport: Transport,
    /// Credit of a new stream in bytes, from [`STREAM_CREDIT_MIN`].
    pub stream_credit: u32,
    /// Streams at most, from [`STREAMS_MIN`].
    pub streams: u32,
    /// Credit of the trunk in bytes, from [`TRUNK_CREDIT_MIN`].
    pub trunk_credit: u32,
}

/// The server's word on a leg.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Association {
    /// The version of its format.
    pub version: u16,
    /// The server's UDP port; 0 if there is no leg to be had.
    pub port: u16,
    /// Its number, which its packets carry.
    pub number: u32,
}

/// A frame other than DATA.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "docs/wire-proxy.md describes the fields")]
pub enum Frame {
    Hello(Hello),
    Open { stream: u32, destination: Destination, wants_reply: bool },
    Opened { stream: u32, address: SocketAddr },
    Credit { stream: u32, bytes: u32 },
    Reset { stream: u32, reason: Reason },
    Ping([u8; 8]),
    Pong([u8; 8]),
    GoAway(GoAwayReason),
    AskLeg { version: u16 },
    Leg(Association),
    Full,
}

impl Frame {
    /// Appends it.
    pub fn encode(&self, out: &mut BytesMut) {
        let start = out.len();
        let (kind, flags, stream) = match self {
            Self::Hello(_) => (HELLO, 0, 0),
            Self::Open { stream, wants_reply, .. } => (OPEN, u8::from(*wants_reply) * FLAG, *stream),
            Self::Opened { stream, .. } => (OPENED, 0, *stream),
            Self::Credit { stream, .. } => (CREDIT, 0, *stream),
            Self::Reset { stream, .. } => (RESET, 0, *stream),
            Self::Ping(_) => (PING, 0, 0),
            Self::Pong(_) => (PONG, 0, 0),
            Self::GoAway(_) => (GOAWAY, 0, 0),
            Self::AskLeg { .. } => (ASK_LEG, 0, 0),
            Self::Leg(_) => (LEG, 0, 0),
            Self::Full => (FULL, 0, 0),
        };
        put_header(out, kind, flags, 0, stream);
        match self {
            Self::Hello(hello) => {
                out.put_u16(VERSION);
                out.put_u8(hello.transport as u8);
                out.put_u8(0);
                out.put_u32(hello.stream_credit);
                out.put_u32(hello.streams);
                out.put_u32(hello.trunk_credit);
            }
            Self::Open { destination, .. } => destination.encode(out),
            Self::Opened { address, .. } => encode_address(*address, out),
            Self::Credit { bytes, .. } => out.put_u32(*bytes),
            Self::Reset { reason, .. } => out.put_u8(*reason as u8),
            Self::Ping(bytes) | Self::Pong(bytes) => out.put_slice(bytes),
            Self::GoAway(reason) => out.put_u8(*reason as u8),
            Self::AskLeg { version } => out.put_u16(*version),
            Self::Leg(association) => {
                out.put_u16(association.version);
                out.put_u16(association.port);
                out.put_u32(association.number);
            }
            Self::Full => {}
        }
        // No frame above is longer than ENCODED_BYTES_MAX.
        let len = u16::try_from(out.len() - start - HEADER_BYTES).unwrap_or(0);
        out[start + 2..start + 4].copy_from_slice(&len.to_be_bytes());
    }
}

fn put_header(out: &mut BytesMut, kind: u8, flags: u8, len: u16, stream: u32) {
    out.put_u8(kind);
    out.put_u8(flags);
    out.put_u16(len);
    out.put_u32(stream);
}

/// Appends what stands before `len` bytes of a stream; `is_last` if no more follow.
pub fn encode_data_header(stream: u32, len: u16, is_last: bool, out: &mut BytesMut) {
    put_header(out, DATA, u8::from(is_last) * FLAG, len, stream);
}

/// What a [`FrameReader`] finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// A whole frame.
    Frame(Frame),
    /// Bytes of a DATA frame: all that came of it by now.
    Data {
        /// The stream.
        stream: u32,
        /// The bytes, maybe none.
        bytes: Bytes,
        /// Whether the sender has no more.
        is_last: bool,
    },
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Within a header or the payload of a short frame.
    Frame,
    Data {
        stream: u32,
        left: u16,
        is_last: bool,
    },
    Skip {
        left: u16,
    },
}

/// Cuts a stream of bytes into frames, in whatever pieces it arrives. It holds part of one short frame.
#[derive(Debug)]
pub struct FrameReader {
    partial: [u8; HEADER_BYTES + ENCODED_BYTES_MAX],
    have: usize,
    state: State,
    /// Whether the next frame is the first, and so must be HELLO.
    is_first: bool,
}

impl Default for FrameReader {
    fn default() -> Self {
        Self { partial: [0; HEADER_BYTES + ENCODED_BYTES_MAX], have: 0, state: State::Frame, is_first: false }
    }
}

impl FrameReader {
    /// At the start of a trunk, where HELLO is first; [`default`](Self::default) is in its midst.
    #[must_use]
    pub fn at_start() -> Self {
        Self { is_first: true, ..Self::default() }
    }

    /// Takes the next piece off `input`; `None` when all of it is used up.
    ///
    /// # Errors
    /// What ends the trunk. After an error it must not be called again.
    pub fn next(&mut self, input: &mut Bytes) -> Result<Option<Piece>, ProtocolError> {
        loop {
            match self.state {
                State::Data { stream, left, is_last } => {
                    if left > 0 && input.is_empty() {
                        return Ok(None);
                    }
                    let bytes = input.split_to(usize::from(left).min(input.len()));
                    // As long as `left` at most.
                    let left = left - u16::try_from(bytes.len()).unwrap_or(left);
                    let ends = left == 0;
                    self.state = if ends { State::Frame } else { State::Data { stream, left, is_last } };
                    return Ok(Some(Piece::Data { stream, bytes, is_last: is_last && ends }));
                }
                State::Skip { left } => {
                    let n = usize::from(left).min(input.len());
                    input.advance(n);
                    let left = left - u16::try_from(n).unwrap_or(left);
                    self.state = if left == 0 { State::Frame } else { State::Skip { left } };
                    if left > 0 {
                        return Ok(None);
                    }
                }
                State::Frame => {
                    if !self.fill(HEADER_BYTES, input) {
                        return Ok(None);
                    }
                    if let Some(piece) = self.frame(input)? {
                        return Ok(Some(piece));
                    }
                    // What was begun waits for the rest of its payload.
                    if self.have > 0 {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Whether it stands between two frames.
    #[must_use]
    pub fn is_between_frames(&self) -> bool {
        self.have == 0 && matches!(self.state, State::Frame)
    }

    /// Whether `wanted` bytes of the frame are there, after what `input` has was added.
    fn fill(&mut self, wanted: usize, input: &mut Bytes) -> bool {
        let n = wanted.saturating_sub(self.have).min(input.len());
        self.partial[self.have..self.have + n].copy_from_slice(&input[..n]);
        input.advance(n);
        self.have += n;
        self.have >= wanted
    }

    /// The header is there: the frame, or the state for what follows.
    fn frame(&mut self, input: &mut Bytes) -> Result<Option<Piece>, ProtocolError> {
        let [kind, flags, l0, l1, s0, s1, s2, s3] = *self.partial.first_chunk().unwrap_or(&[0; 8]);
        if std::mem::take(&mut self.is_first) && kind != HELLO {
            return Err(ProtocolError::Hello);
        }
        let (len, stream) = (u16::from_be_bytes([l0, l1]), u32::from_be_bytes([s0, s1, s2, s3]));
        let n = usize::from(len);
        // How long the payload may be, and whether the frame is one of a stream: CREDIT may be either.
        let (is_len, names_stream) = match kind {
            HELLO => (n >= HELLO_BYTES, Some(false)),
            OPEN => ((4..=ENCODED_BYTES_MAX).contains(&n), Some(true)),
            OPENED => (n == 7 || n == 19, Some(true)),
            DATA => (true, Some(true)),
            CREDIT => (n == 4, None),
            RESET => (n == 1, Some(true)),
            PING | PONG => (n == 8, Some(false)),
            GOAWAY => (n == 1, Some(false)),
            ASK_LEG => (n == 2, Some(false)),
            LEG => (n == 8, Some(false)),
            FULL => (n == 0, Some(false)),
            _ => {
                self.have = 0;
                self.state = State::Skip { left: len };
                return Ok(None);
            }
        };
        if !is_len {
            return Err(ProtocolError::Length(kind, len));
        }
        if names_stream.is_some_and(|names| names != (stream != 0)) {
            return Err(ProtocolError::Stream(kind, stream));
        }
        if kind == DATA {
            self.have = 0;
            self.state = State::Data { stream, left: len, is_last: flags & FLAG != 0 };
            return Ok(None);
        }
        let used = if kind == HELLO { HELLO_BYTES } else { n };
        if !self.fill(HEADER_BYTES + used, input) {
            return Ok(None);
        }
        self.have = 0;
        if n > used {
            // `n` came from 16 bits.
            self.state = State::Skip { left: u16::try_from(n - used).unwrap_or(0) };
        }
        let body = &self.partial[HEADER_BYTES..HEADER_BYTES + used];
        parse(kind, flags, stream, body).map(|frame| Some(Piece::Frame(frame)))
    }
}

/// Reads a payload whose length was checked.
fn parse(kind: u8, flags: u8, stream: u32, body: &[u8]) -> Result<Frame, ProtocolError> {
    let u32_at = |at: usize| {
        let bytes = body.get(at..).and_then(|rest| rest.first_chunk()).copied();
        u32::from_be_bytes(bytes.unwrap_or_default())
    };
    let first = body.first().copied().unwrap_or(0);
    let u16_at = |at: usize| {
        let bytes = body.get(at..).and_then(|rest| rest.first_chunk()).copied();
        u16::from_be_bytes(bytes.unwrap_or_default())
    };
    let eight = body.first_chunk::<8>().copied().unwrap_or_default();
    Ok(match kind {
        HELLO => {
            let version = u16::from_be_bytes([eight[0], eight[1]]);
            if version != VERSION {
                return Err(ProtocolError::Version(version));
            }
            let transport = match eight[2] {
                0 => Transport::NoMptcp,
                2 => Transport::Mptcp,
                _ => Transport::Tcp,
            };
            let hello =
                Hello { transport, stream_credit: u32_at(4), streams: u32_at(8), trunk_credit: u32_at(12) };
            let is_enough =
                hello.stream_credit >= STREAM_CREDIT_MIN && hello.trunk_credit >= TRUNK_CREDIT_MIN;
            if !is_enough || hello.streams < STREAMS_MIN {
                return Err(ProtocolError::HelloLimits);
            }
            if hello.stream_credit > CREDIT_MAX || hello.trunk_credit > CREDIT_MAX {
                return Err(ProtocolError::CreditOverflow);
            }
            Frame::Hello(hello)
        }
        OPEN => {
            let destination = Destination::decode(body).ok_or(ProtocolError::Destination)?;
            Frame::Open { stream, destination, wants_reply: flags & FLAG != 0 }
        }
        OPENED => {
            let address = Destination::decode(body).and_then(|destination| destination.address());
            Frame::Opened { stream, address: address.ok_or(ProtocolError::Destination)? }
        }
        CREDIT => Frame::Credit { stream, bytes: u32_at(0) },
        RESET => Frame::Reset { stream, reason: Reason::from_number(first) },
        PING => Frame::Ping(eight),
        PONG => Frame::Pong(eight),
        ASK_LEG => Frame::AskLeg { version: u16_at(0) },
        FULL => Frame::Full,
        LEG => Frame::Leg(Association { version: u16_at(0), port: u16_at(2), number: u32_at(4) }),
        _ => Frame::GoAway(GoAwayReason::from_number(first)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames() -> Vec<Frame> {
        let hello = Hello {
            transport: Transport::Mptcp,
            stream_credit: STREAM_CREDIT_MIN,
            streams: 4_096,
            trunk_credit: TRUNK_CREDIT_MIN,
        };
        let name = format!("{}:443", "n".repeat(255)).parse().unwrap();
        vec![
            Frame::Hello(hello),
            Frame::Open { stream: 1, destination: name, wants_reply: true },
            Frame::Open { stream: 2, destination: "192.0.2.1:80".parse().unwrap(), wants_reply: false },
            Frame::Open { stream: 3, destination: "[2001:db8::1]:80".parse().unwrap(), wants_reply: false },
            Frame::Opened { stream: 1, address: "[2001:db8::1]:443".parse().unwrap() },
            Frame::Opened { stream: 2, address: "192.0.2.1:80".parse().unwrap() },
            Frame::Credit { stream: 0, bytes: CREDIT_MAX },
            Frame::Credit { stream: u32::MAX, bytes: 1 },
            Frame::Reset { stream: 3, reason: Reason::Refused },
            Frame::Ping(*b"12345678"),
            Frame::Pong(*b"12345678"),
            Frame::GoAway(GoAwayReason::TooManyTrunks),
        ]
    }

    fn read(reader: &mut FrameReader, bytes: &[u8]) -> Result<Vec<Piece>, ProtocolError> {
        let (mut input, mut pieces) = (Bytes::copy_from_slice(bytes), Vec::new());
        while let Some(piece) = reader.next(&mut input)? {
            pieces.push(piece);
        }
        assert!(input.is_empty());
        Ok(pieces)
    }

    #[test]
    fn what_is_written_is_read_in_one_piece_or_byte_by_byte() {
        let mut out = BytesMut::new();
        frames().iter().for_each(|frame| frame.encode(&mut out));
        let expected: Vec<Piece> = frames().into_iter().map(Piece::Frame).collect();
        assert_eq!(read(&mut FrameReader::default(), &out), Ok(expected.clone()));
        let mut reader = FrameReader::default();
        let pieces = out.iter().flat_map(|byte| read(&mut reader, &[*byte]).unwrap());
        assert_eq!(pieces.collect::<Vec<_>>(), expected);
        assert!(reader.is_between_frames());
    }

    #[test]
    fn data_is_passed_on_as_it_comes() {
        let mut out = BytesMut::new();
        encode_data_header(9, 5, true, &mut out);
        out.put_slice(b"hello");
        encode_data_header(9, 0, false, &mut out);
        let mut reader = FrameReader::default();
        let piece =
            |bytes: &'static [u8], is_last| Piece::Data { stream: 9, bytes: Bytes::from(bytes), is_last };
        assert_eq!(read(&mut reader, &out[..10]), Ok(vec![piece(b"he", false)]));
        assert_eq!(read(&mut reader, &out[10..]), Ok(vec![piece(b"llo", true), piece(b"", false)]));
    }

    #[test]
    fn an_unknown_type_and_more_of_a_hello_are_skipped() {
        let mut out = BytesMut::new();
        let hello = frames().remove(0);
        hello.encode(&mut out);
        out[3] += 3;
        out.put_slice(b"new");
        put_header(&mut out, 200, 255, 5, 77);
        out.put_slice(b"ahead");
        put_header(&mut out, 201, 255, 0, 0);
        Frame::Ping([1; 8]).encode(&mut out);
        let expected = [Piece::Frame(hello), Piece::Frame(Frame::Ping([1; 8]))];
        assert_eq!(read(&mut FrameReader::default(), &out).unwrap(), expected);
        let mut reader = FrameReader::default();
        let pieces = out.iter().flat_map(|byte| read(&mut reader, &[*byte]).unwrap());
        assert_eq!(pieces.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn what_the_format_does_not_allow_is_an_error() {
        let hello = |change: fn(&mut [u8])| {
            let mut out = BytesMut::new();
            frames()[0].encode(&mut out);
            change(&mut out);
            out.to_vec()
        };
        let cases: &[(&[u8], ProtocolError)] = &[
            (&[HELLO, 0, 0, 15, 0, 0, 0, 0], ProtocolError::Length(HELLO, 15)),
            (&hello(|h| h[9] = 2), ProtocolError::Version(2)),
            (&hello(|h| h[13] = 0), ProtocolError::HelloLimits),
            (&hello(|h| h[18] = 1), ProtocolError::HelloLimits),
            (&hello(|h| h[20] = 0x80), ProtocolError::CreditOverflow),
            (&[OPEN, 0, 0, 3, 0, 0, 0, 1], ProtocolError::Length(OPEN, 3)),
            (&[OPEN, 0, 1, 3, 0, 0, 0, 1], ProtocolError::Length(OPEN, 259)),
            (&[OPEN, 0, 0, 4, 0, 0, 0, 0], ProtocolError::Stream(OPEN, 0)),
            (&[OPEN, 0, 0, 4, 0, 0, 0, 1, 0, 80, 3, b' '], ProtocolError::Destination),
            (&[OPENED, 0, 0, 8, 0, 0, 0, 1], ProtocolError::Length(OPENED, 8)),
            (&[DATA, 0, 0, 0, 0, 0, 0, 0], ProtocolError::Stream(DATA, 0)),
            (&[CREDIT, 0, 0, 3, 0, 0, 0, 1], ProtocolError::Length(CREDIT, 3)),
            (&[RESET, 0, 0, 0, 0, 0, 0, 1], ProtocolError::Length(RESET, 0)),
            (&[PING, 0, 0, 8, 0, 0, 0, 1], ProtocolError::Stream(PING, 1)),
            (&[GOAWAY, 0, 0, 2, 0, 0, 0, 0], ProtocolError::Length(GOAWAY, 2)),
        ];
        for (bytes, error) in cases {
            assert_eq!(read(&mut FrameReader::default(), bytes), Err(*error), "{bytes:?}");
        }
    }
}
