//! The wire format of a trunk; `docs/wire-proxy.md` defines it.

use std::net::SocketAddr;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

use crate::trunk::destination::{Destination, ENCODED_BYTES_MAX, encode_address};

/// The version of the format.
pub const VERSION: u16 = 1;
/// The number of bytes of a frame's header.
pub const HEADER_BYTES: usize = 8;
/// The most payload bytes of a DATA frame that this code sends. With the header they fill one record of TLS
/// (RFC 8446 section 5.1). Received frames may be as long as the length field allows.
pub const DATA_BYTES_MAX: usize = 16 * 1024 - HEADER_BYTES;
/// The credit of a new stream before HELLO arrives, in bytes. A HELLO must not grant less.
pub const STREAM_CREDIT_MIN: u32 = 256 * 1024;
/// The credit of a trunk before HELLO arrives, in bytes. A HELLO must not grant less.
pub const TRUNK_CREDIT_MIN: u32 = 4 * 1024 * 1024;
/// The number of allowed streams before HELLO arrives. A HELLO must not grant less.
pub const STREAMS_MIN: u32 = 1_024;
/// The most credit that a stream or a trunk may have, in bytes.
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
pub(super) const LOAD: u8 = 12;
pub(super) const ASK_DISTANCE: u8 = 13;
pub(super) const DISTANCE: u8 = 14;
pub(super) const SERVER: u8 = 15;

/// The flag of OPEN that asks for a confirmation, that of DATA for the last bytes of a stream, and that of
/// SERVER for the server to go to.
const FLAG: u8 = 1;
/// The number of bytes of a HELLO that this version reads.
const HELLO_BYTES: usize = 16;

/// A violation of `docs/wire-proxy.md` by the other side. It ends the trunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// The other side speaks another version.
    #[error("the other side speaks version {0} of the trunk's protocol, this one version {VERSION}")]
    Version(u16),
    /// The first frame is not HELLO, or HELLO came twice.
    #[error("HELLO is not the first frame, or comes again")]
    Hello,
    /// HELLO grants less than the protocol's least values.
    #[error("HELLO grants less than the protocol's least")]
    HelloLimits,
    /// The length of a frame is not valid for its type.
    #[error("a frame of type {0} with {1} bytes")]
    Length(u8, u16),
    /// A frame of the trunk names a stream, a frame of a stream names none, or the stream cannot exist.
    #[error("a frame of type {0} for stream {1}")]
    Stream(u8, u32),
    /// The destination of an OPEN or OPENED is malformed.
    #[error("a destination that is none")]
    Destination,
    /// The frame may only be sent by the other role, or was not requested.
    #[error("a frame of type {0} from the wrong side, or unasked")]
    Unasked(u8),
    /// The other side sent more bytes than it had credit for.
    #[error("bytes without credit")]
    NoCredit,
    /// Bytes arrived after the last ones of a stream.
    #[error("bytes after the last ones of a stream")]
    AfterEnd,
    /// The credit would exceed [`CREDIT_MAX`].
    #[error("more credit than there can be")]
    CreditOverflow,
    /// The other side opens streams beyond the limit and does not read the refusals.
    #[error("streams beyond the limit, again and again")]
    TooManyRefused,
}

/// The reason why a stream was reset. The numbers are those of the wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Reason {
    /// The program or the origin has reset its connection. Unknown reasons are read as this one.
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
    /// The trunk is gone. This is never sent.
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

/// Writes the sentence that the program is told.
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

/// The reason why a side takes no new streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum GoAwayReason {
    /// The side ends. Unknown reasons are read as this one.
    Ends = 0,
    /// The side speaks another version.
    Version = 1,
    /// This client has too many trunks.
    TooManyTrunks = 2,
    /// The other side broke a rule of the protocol; the connection is closed.
    Protocol = 3,
    /// The server drains: the client is to take another one.
    Drains = 4,
}

impl GoAwayReason {
    fn from_number(number: u8) -> Self {
        let all = [Self::Version, Self::TooManyTrunks, Self::Protocol, Self::Drains];
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
            Self::Drains => "the server drains: its clients go to other servers",
        })
    }
}

/// The transport of the trunk's connection, as one side sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Transport {
    /// TCP, because this kernel has no MPTCP.
    NoMptcp = 0,
    /// TCP.
    Tcp = 1,
    /// MPTCP.
    Mptcp = 2,
    /// MPTCP of the two processes, in UDP.
    Udp = 3,
}

impl Transport {
    /// Returns `MPTCP`, `MPTCP over UDP` or `TCP`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mptcp => "MPTCP",
            Self::Udp => "MPTCP over UDP",
            Self::Tcp | Self::NoMptcp => "TCP",
        }
    }
}

/// The first frame of each side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The transport as the sender sees it.
    pub transport: Transport,
    /// The credit of a new stream in bytes, at least [`STREAM_CREDIT_MIN`].
    pub stream_credit: u32,
    /// The most open streams, at least [`STREAMS_MIN`].
    pub streams: u32,
    /// The credit of the trunk in bytes, at least [`TRUNK_CREDIT_MIN`].
    pub trunk_credit: u32,
}

/// The server's answer to the request for a leg.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Association {
    /// The version of the leg's format.
    pub version: u16,
    /// The server's UDP port, or 0 if the request is refused.
    pub port: u16,
    /// The number of the association, which its packets carry.
    pub number: u32,
}

/// The load of a server, which it announces to its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announced {
    /// The number of open connections of programs.
    pub open: u32,
    /// The number of connections that the server wants at most. 0 says nothing.
    pub capacity: u32,
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
    Load(Announced),
    AskDistance { stream: u32 },
    Distance { stream: u32, us: u32 },
    Server { server: Destination, is_wanted: bool },
}

impl Frame {
    /// Appends the frame to `out`.
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
            Self::Load(_) => (LOAD, 0, 0),
            Self::AskDistance { stream } => (ASK_DISTANCE, 0, *stream),
            Self::Distance { stream, .. } => (DISTANCE, 0, *stream),
            Self::Server { is_wanted, .. } => (SERVER, u8::from(*is_wanted) * FLAG, 0),
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
            Self::Load(load) => {
                out.put_u32(load.open);
                out.put_u32(load.capacity);
            }
            Self::Distance { us, .. } => out.put_u32(*us),
            Self::Server { server, .. } => server.encode(out),
            Self::Full | Self::AskDistance { .. } => {}
        }
        // No other frame is longer than ENCODED_BYTES_MAX.
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

/// Appends the header before `len` bytes of a stream. `is_last` marks the last bytes of the stream.
pub fn encode_data_header(stream: u32, len: u16, is_last: bool, out: &mut BytesMut) {
    put_header(out, DATA, u8::from(is_last) * FLAG, len, stream);
}

/// The result of a [`FrameReader`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// A complete frame.
    Frame(Frame),
    /// The bytes of a DATA frame that have arrived so far.
    Data {
        /// The stream.
        stream: u32,
        /// The bytes, perhaps none.
        bytes: Bytes,
        /// Whether these are the last bytes of the stream.
        is_last: bool,
    },
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// The reader is within a header, or within the payload of a short frame.
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

/// Splits a stream of bytes into frames, however it is cut into pieces. It holds at most a part of one short
/// frame.
#[derive(Debug)]
pub struct FrameReader {
    partial: [u8; HEADER_BYTES + ENCODED_BYTES_MAX],
    have: usize,
    state: State,
    /// Whether the next frame is the first one, which must be HELLO.
    is_first: bool,
}

impl Default for FrameReader {
    fn default() -> Self {
        Self { partial: [0; HEADER_BYTES + ENCODED_BYTES_MAX], have: 0, state: State::Frame, is_first: false }
    }
}

impl FrameReader {
    /// Creates a reader for the start of a trunk, where HELLO is first. [`default`](Self::default) reads from
    /// the middle.
    #[must_use]
    pub fn at_start() -> Self {
        Self { is_first: true, ..Self::default() }
    }

    /// Takes the next piece from `input`. Returns `None` when all of `input` is used.
    ///
    /// # Errors
    /// If the bytes violate the format, which ends the trunk. It must not be called again after an error.
    pub fn next(&mut self, input: &mut Bytes) -> Result<Option<Piece>, ProtocolError> {
        loop {
            match self.state {
                State::Data { stream, left, is_last } => {
                    if left > 0 && input.is_empty() {
                        return Ok(None);
                    }
                    let bytes = input.split_to(usize::from(left).min(input.len()));
                    // The piece is at most `left` bytes long.
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
                    // The frame is not complete; the reader waits for the rest of its payload.
                    if self.have > 0 {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Whether the reader is between two frames.
    #[must_use]
    pub fn is_between_frames(&self) -> bool {
        self.have == 0 && matches!(self.state, State::Frame)
    }

    /// Moves bytes from `input` until the frame has `wanted` bytes. Returns whether it has.
    fn fill(&mut self, wanted: usize, input: &mut Bytes) -> bool {
        let n = wanted.saturating_sub(self.have).min(input.len());
        self.partial[self.have..self.have + n].copy_from_slice(&input[..n]);
        input.advance(n);
        self.have += n;
        self.have >= wanted
    }

    /// Reads the frame after its header, or sets the state for the bytes that follow.
    fn frame(&mut self, input: &mut Bytes) -> Result<Option<Piece>, ProtocolError> {
        let [kind, flags, l0, l1, s0, s1, s2, s3] = *self.partial.first_chunk().unwrap_or(&[0; 8]);
        if std::mem::take(&mut self.is_first) && kind != HELLO {
            return Err(ProtocolError::Hello);
        }
        let (len, stream) = (u16::from_be_bytes([l0, l1]), u32::from_be_bytes([s0, s1, s2, s3]));
        let n = usize::from(len);
        // Whether the length is valid, and whether the frame must name a stream; CREDIT may do either.
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
            LOAD => (n == 8, Some(false)),
            ASK_DISTANCE => (n == 0, Some(true)),
            DISTANCE => (n == 4, Some(true)),
            SERVER => ((4..=ENCODED_BYTES_MAX).contains(&n), Some(false)),
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
            // `n` was read from 16 bits.
            self.state = State::Skip { left: u16::try_from(n - used).unwrap_or(0) };
        }
        let body = &self.partial[HEADER_BYTES..HEADER_BYTES + used];
        parse(kind, flags, stream, body).map(|frame| Some(Piece::Frame(frame)))
    }
}

/// Parses a payload whose length was checked.
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
                3 => Transport::Udp,
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
        LOAD => Frame::Load(Announced { open: u32_at(0), capacity: u32_at(4) }),
        ASK_DISTANCE => Frame::AskDistance { stream },
        DISTANCE => Frame::Distance { stream, us: u32_at(0) },
        SERVER => {
            let server = Destination::decode(body).ok_or(ProtocolError::Destination)?;
            Frame::Server { server, is_wanted: flags & FLAG != 0 }
        }
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
            Frame::GoAway(GoAwayReason::Drains),
            Frame::Load(Announced { open: 7, capacity: u32::MAX }),
            Frame::AskDistance { stream: 1 },
            Frame::Distance { stream: 1, us: 20_000 },
            Frame::Server { server: "b.example:26228".parse().unwrap(), is_wanted: true },
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
            (&[LOAD, 0, 0, 7, 0, 0, 0, 0], ProtocolError::Length(LOAD, 7)),
            (&[DISTANCE, 0, 0, 4, 0, 0, 0, 0], ProtocolError::Stream(DISTANCE, 0)),
            (&[SERVER, 0, 0, 4, 0, 0, 0, 0, 0, 0, 3, b'b'], ProtocolError::Destination),
        ];
        for (bytes, error) in cases {
            assert_eq!(read(&mut FrameReader::default(), bytes), Err(*error), "{bytes:?}");
        }
    }
}
