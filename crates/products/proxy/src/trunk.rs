//! One end of a trunk: frames, streams, credit and the order of sending. It is a machine without a clock or a
//! socket.
//!
//! The world passes in the bytes that arrive ([`receive`](Trunk::receive)), takes the bytes to send
//! ([`transmit`](Trunk::transmit)), tells the time, and drains [`poll_event`](Trunk::poll_event) after each
//! call. Streams are identified by their numbers. The machine holds at most:
//! * bytes received and not read: the granted credit, [`Settings::memory`] for all streams together;
//! * bytes written and not sent: [`STREAM_QUEUE_MAX`] of a stream, and [`TRUNK_QUEUE_MAX`] of all, beyond
//! which each stream may still queue [`STREAM_QUEUE_MIN`];
//! * for each stream [`STREAM_STATE_BYTES`], and no buffer while no bytes wait; `Settings` limits the
//! streams;
//! * short frames to send: two for each allowed stream, and a thousand.

mod activity;
mod association;
mod bookkeeping;
mod chunks;
pub mod destination;
pub mod frame;
mod incoming;
mod liveness;
mod outgoing;
mod pressure;
mod schedule;
mod several;
mod stream;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use activity::Activity;
use anabranch_algo::{Span, Time};
use bytes::{Bytes, BytesMut};

pub use destination::{Destination, DestinationError, Host};
pub use frame::{Announced, Association, GoAwayReason, ProtocolError, Reason, Transport};
use frame::{Frame, FrameReader, Hello, STREAM_CREDIT_MIN, STREAMS_MIN, TRUNK_CREDIT_MIN};
use liveness::Liveness;
use pressure::Pressure;
use schedule::Schedule;
use stream::Stream;

/// The most bytes of one stream that wait to be sent.
pub const STREAM_QUEUE_MAX: usize = 256 * 1024;
/// The number of waiting bytes that a stream may always have, however many others wait.
pub const STREAM_QUEUE_MIN: usize = 16 * 1024;
/// The number of waiting bytes of all streams beyond which each may only have [`STREAM_QUEUE_MIN`].
pub const TRUNK_QUEUE_MAX: usize = 4 * 1024 * 1024;
/// The memory in bytes of a stream without waiting bytes in this module: its state, and its part of the map.
pub const STREAM_STATE_BYTES: usize = 200;
/// The most streams that the other side may have, open or ended and not released, as a multiple of
/// [`Settings::streams`].
const LINGERING_FACTOR: u32 = 2;

/// The end of a trunk. Only the client opens streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The end that programs connect to.
    Client,
    /// The end that connects to origins.
    Server,
}

/// The limits and times of one end.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The transport as this end sees it, which is told to the other side.
    pub transport: Transport,
    /// The window of a new stream in bytes, at least [`STREAM_CREDIT_MIN`].
    pub stream_window: u32,
    /// The most open streams of the other side, at least [`STREAMS_MIN`].
    pub streams: u32,
    /// The most bytes of all streams that were received and not read, at least [`TRUNK_CREDIT_MIN`].
    pub memory: u32,
    /// The time without a frame from the other side after which a ping is sent.
    pub keepalive: Span,
    /// The time without an answer after which the trunk is dead.
    pub dead_after: Span,
}

impl Default for Settings {
    /// Returns 256 KiB per stream, 4,096 streams and 64 MiB. A ping follows after 25 s, so that address
    /// translators do not forget the connection. The trunk is dead after 120 s: TCP doubles its time-outs and
    /// may need 102 s to notice that links work again after a minute.
    fn default() -> Self {
        Self {
            transport: Transport::Tcp,
            stream_window: STREAM_CREDIT_MIN,
            streams: 4_096,
            memory: 64 * 1024 * 1024,
            keepalive: Span::from_secs(25),
            dead_after: Span::from_secs(120),
        }
    }
}

/// An event of a trunk. Stream numbers are those of the wire format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The other side speaks this protocol, and reports this transport.
    Hello(Transport),
    /// The client has opened a stream, which may already have bytes.
    Opened {
        /// The stream.
        stream: u32,
        /// The destination.
        destination: Destination,
        /// Whether the client waits for [`Trunk::confirm`].
        wants_reply: bool,
    },
    /// The server has connected to the origin at this address. Only sent if the client asked for it.
    Connected {
        /// The stream.
        stream: u32,
        /// The origin's address.
        address: SocketAddr,
    },
    /// [`Trunk::read`] has bytes again after it had none.
    Readable(u32),
    /// [`Trunk::write`] takes bytes again after it took none.
    Writable(u32),
    /// The other side has reset the stream, or the trunk is gone. If it had sent its last bytes, they can
    /// still be read.
    Reset {
        /// The stream.
        stream: u32,
        /// The reason.
        reason: Reason,
    },
    /// The other side takes no new streams.
    GoAway(GoAwayReason),
    /// The client asks for a leg, in this version of its format.
    LegAsked(u16),
    /// The server's answer to the request for a leg.
    Leg(Association),
    /// The server announces its load.
    Load(Announced),
    /// The round trip between the server and the origin of a stream.
    Distance {
        /// The stream.
        stream: u32,
        /// The round trip.
        rtt: Span,
    },
    /// The server names another server.
    Server {
        /// The other server.
        server: Destination,
        /// Whether the client is to go there.
        is_wanted: bool,
    },
}

/// The result of [`Trunk::read`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    /// The next bytes, at least one.
    Bytes(Bytes),
    /// No bytes yet; [`Event::Readable`] follows.
    Empty,
    /// The stream has ended; no more bytes follow.
    End,
    /// The stream was reset.
    Reset(Reason),
}

/// The reason why no stream can be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The server allows no more open streams.
    #[error("the server allows no more streams on this trunk")]
    TooManyStreams,
    /// One side takes no new streams, the trunk is gone, or all numbers have been used.
    #[error("this trunk takes no new streams")]
    Closing,
    /// Only clients open streams.
    #[error("only the client opens streams")]
    NotClient,
}

/// One end of a trunk.
#[derive(Debug)]
pub struct Trunk {
    side: Side,
    settings: Settings,
    reader: FrameReader,
    /// The other side's HELLO. Before it arrives, the least values of the protocol.
    peer: Hello,
    has_peer_hello: bool,
    events: VecDeque<Event>,

    streams: BTreeMap<u32, Box<Stream>>,
    /// The number of the latest stream.
    last_opened: u32,
    /// The number of streams that have not ended.
    open_streams: u32,

    /// The bytes that this end may send on all streams, and those that the other side may send.
    credit: u32,
    granted: u32,
    /// The bytes that were received and not read, and those that were written and not sent.
    held: usize,
    queued: usize,
    /// The number of bytes by which all windows together have grown.
    grown: u32,

    schedule: Schedule,
    controls: VecDeque<Frame>,
    /// The streams that have credit to return.
    credits: VecDeque<u32>,
    is_hello_due: bool,
    pong: Option<[u8; 8]>,
    /// The reason of this end's GOAWAY, and whether it must still be sent.
    going_away: Option<(GoAwayReason, bool)>,
    is_peer_going: bool,
    /// Whether a leg was requested and the answer is missing.
    is_leg_asked: bool,
    is_closed: bool,
    liveness: Liveness,
    activity: Activity,
    pressure: Pressure,
    /// The buffer for short frames and headers.
    scratch: BytesMut,
}

impl Trunk {
    /// Creates a trunk over a new connection. Values of `settings` below the protocol's least values are
    /// raised to these.
    #[must_use]
    pub fn new(side: Side, settings: Settings, now: Time) -> Self {
        let settings = Settings {
            stream_window: settings.stream_window.clamp(STREAM_CREDIT_MIN, stream::WINDOW_MAX),
            streams: settings.streams.max(STREAMS_MIN),
            memory: settings.memory.clamp(TRUNK_CREDIT_MIN, frame::CREDIT_MAX),
            ..settings
        };
        let peer = Hello {
            transport: Transport::Tcp,
            stream_credit: STREAM_CREDIT_MIN,
            streams: STREAMS_MIN,
            trunk_credit: TRUNK_CREDIT_MIN,
        };
        Self {
            side,
            settings,
            reader: FrameReader::at_start(),
            peer,
            has_peer_hello: false,
            events: VecDeque::new(),
            streams: BTreeMap::new(),
            last_opened: 0,
            open_streams: 0,
            credit: peer.trunk_credit,
            granted: settings.memory,
            held: 0,
            queued: 0,
            grown: 0,
            schedule: Schedule::default(),
            controls: VecDeque::new(),
            credits: VecDeque::new(),
            is_hello_due: true,
            pong: None,
            going_away: None,
            is_peer_going: false,
            is_leg_asked: false,
            is_closed: false,
            liveness: Liveness::new(now, settings.keepalive, settings.dead_after),
            activity: Activity::default(),
            pressure: Pressure::new(now),
            scratch: BytesMut::new(),
        }
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Opens a stream. Its OPEN frame leaves together with the first bytes that are written.
    ///
    /// # Errors
    /// If the server allows no more streams, if the trunk takes no new ones, or if this is the server; see
    /// [`OpenError`].
    pub fn open(&mut self, destination: Destination, wants_reply: bool) -> Result<u32, OpenError> {
        if self.side != Side::Client {
            return Err(OpenError::NotClient);
        }
        if !self.takes_streams() {
            return Err(OpenError::Closing);
        }
        if self.open_streams >= self.peer.streams {
            return Err(OpenError::TooManyStreams);
        }
        self.last_opened += 1;
        let number = self.last_opened;
        let mut stream = Stream::new(self.settings.stream_window, self.peer.stream_credit);
        stream.wants_reply = wants_reply;
        self.streams.insert(number, Box::new(stream));
        self.open_streams += 1;
        self.push_control(Frame::Open { stream: number, destination, wants_reply });
        Ok(number)
    }

    /// Tells the client that the origin is connected, if the client asked for that.
    pub fn confirm(&mut self, stream: u32, address: SocketAddr) {
        let Some(state) = self.streams.get_mut(&stream) else { return };
        if self.side == Side::Server && std::mem::take(&mut state.wants_reply) && state.reset.is_none() {
            self.push_control(Frame::Opened { stream, address });
        }
    }

    /// Returns how many bytes [`write`](Self::write) takes now. After 0, [`Event::Writable`] follows.
    ///
    /// # Errors
    /// If the stream was reset or does not exist.
    pub fn room(&mut self, stream: u32) -> Result<usize, Reason> {
        let is_full = self.queued >= TRUNK_QUEUE_MAX;
        let state = self.streams.get_mut(&stream).ok_or(Reason::TrunkGone)?;
        if let Some(reason) = state.reset {
            return Err(reason);
        }
        if state.is_all_written {
            return Ok(0);
        }
        let limit = if is_full { STREAM_QUEUE_MIN } else { STREAM_QUEUE_MAX };
        let room = limit.saturating_sub(state.queued.len()).min(state.credit as usize);
        state.awaits_room |= room == 0;
        Ok(room)
    }

    /// Takes as many bytes from the front of `bytes` as there is [`room`](Self::room) for, to send them.
    /// Returns how many it took.
    ///
    /// # Errors
    /// If the stream was reset or does not exist.
    pub fn write(&mut self, stream: u32, bytes: &mut Bytes) -> Result<usize, Reason> {
        let taken = self.room(stream)?.min(bytes.len());
        let Some(state) = self.streams.get_mut(&stream).filter(|_| taken > 0) else { return Ok(0) };
        state.queued.push(bytes.split_to(taken));
        // `room` is at most the credit, which is a u32.
        state.credit -= u32::try_from(taken).unwrap_or(state.credit);
        self.queued += taken;
        self.list_to_send(stream);
        Ok(taken)
    }

    /// Ends this side's direction of the stream. Bytes that were written are still sent.
    pub fn finish(&mut self, stream: u32) {
        if let Some(state) = self.streams.get_mut(&stream) {
            state.is_all_written = true;
            self.list_to_send(stream);
        }
    }

    /// Ends the stream in both directions, and drops the bytes that wait in either.
    pub fn reset(&mut self, stream: u32, reason: Reason) {
        let Some(state) = self.streams.get_mut(&stream) else { return };
        if state.has_ended() {
            return;
        }
        let is_announced = state.is_announced;
        state.is_all_received = false;
        self.drop_bytes(stream, true, Some(reason));
        if is_announced {
            self.push_control(Frame::Reset { stream, reason });
        }
    }

    /// Returns received bytes: at most `at_most`, in one piece. Reading returns credit to the other side.
    pub fn read(&mut self, now: Time, stream: u32, at_most: usize) -> Read {
        let rtt = self.liveness.longest_rtt();
        let Some(state) = self.streams.get_mut(&stream) else { return Read::Reset(Reason::TrunkGone) };
        let Some(bytes) = state.received.pop(at_most.max(1)) else {
            return match state.reset {
                _ if state.is_all_received => Read::End,
                Some(reason) => Read::Reset(reason),
                None => {
                    state.awaits_bytes = true;
                    Read::Empty
                }
            };
        };
        self.held -= bytes.len();
        let growth = state.note_read(now, u32::try_from(bytes.len()).unwrap_or(u32::MAX), rtt);
        // Half of the memory is reserved for streams with the least window, so that new streams always have
        // theirs.
        if growth > 0 && self.grown.saturating_add(growth) <= self.settings.memory / 2 {
            state.window += growth;
            self.grown += growth;
        }
        self.list_credit(stream);
        Read::Bytes(bytes)
    }

    /// Whether the other side has sent its last bytes on the stream.
    #[must_use]
    pub fn is_all_received(&self, stream: u32) -> bool {
        self.streams.get(&stream).is_some_and(|stream| stream.is_all_received)
    }

    /// Releases a stream that is not used any more. If its last bytes were written, they are still sent;
    /// otherwise the stream is reset.
    pub fn release(&mut self, stream: u32) {
        let Some(state) = self.streams.get_mut(&stream) else { return };
        state.is_released = true;
        let is_all_written = state.is_all_written;
        // Unread bytes are dropped now, also those of a stream that was reset after all its bytes had
        // arrived.
        self.drop_bytes(stream, false, None);
        if !is_all_written {
            self.reset(stream, Reason::NoInterest);
        }
        self.remove_if_done(stream);
    }

    /// Tells the other side that this side takes no new streams.
    pub fn go_away(&mut self, reason: GoAwayReason) {
        if self.going_away.is_none() {
            self.going_away = Some((reason, true));
        }
    }

    /// Notes that the connection is gone. Every stream that has not ended is reset ([`Reason::TrunkGone`]),
    /// but streams that were received to their end can still be read.
    pub fn close(&mut self) {
        self.is_closed = true;
        let open: Vec<u32> = self.streams.iter().filter(|(_, s)| !s.has_ended()).map(|(n, _)| *n).collect();
        for stream in open {
            self.on_reset(stream, Reason::TrunkGone);
        }
        self.controls.clear();
    }

    /// Whether this end has told the other one that it drains, and waits for that one to end the trunk:
    /// streams that were opened in the meantime are served.
    #[must_use]
    pub const fn awaits_departure(&self) -> bool {
        matches!(self.going_away, Some((GoAwayReason::Drains, _))) && !self.is_peer_going && !self.is_closed
    }

    /// Whether [`open`](Self::open) may succeed: the trunk lives and neither side goes away.
    #[must_use]
    pub const fn takes_streams(&self) -> bool {
        self.going_away.is_none() && !self.is_peer_going && !self.is_closed && self.last_opened < u32::MAX
    }

    /// Returns the number of streams that have not ended.
    #[must_use]
    pub const fn open_streams(&self) -> u32 {
        self.open_streams
    }

    /// Returns the most open streams that the other side allows.
    #[must_use]
    pub const fn streams_max(&self) -> u32 {
        self.peer.streams
    }

    /// Returns the number of streams that moved bytes in the last second or two.
    pub fn moving_streams(&mut self, now: Time) -> u32 {
        self.activity.moving(now)
    }

    /// Notes whether the connection takes no more bytes. The server tells the client, once a second, if its
    /// bytes have waited for half of that second.
    pub fn note_blocked(&mut self, now: Time, is_blocked: bool) {
        if self.pressure.note(now, is_blocked) && self.side == Side::Server {
            self.push_control(Frame::Full);
        }
    }

    /// Whether bytes of either side wait for the connection.
    #[must_use]
    pub fn is_full(&self, now: Time) -> bool {
        self.pressure.is_full(now)
    }

    /// Returns the transport that the other side reports, once it has.
    #[must_use]
    pub fn peer_transport(&self) -> Option<Transport> {
        self.has_peer_hello.then_some(self.peer.transport)
    }

    /// Returns the smoothed round-trip time, once it has been measured.
    #[must_use]
    pub fn rtt(&self) -> Option<Span> {
        self.liveness.rtt()
    }

    /// Returns how long something that was sent has waited for any answer. A ping is sent after half a
    /// second, so more than a second and a few round trips is a bad sign.
    #[must_use]
    pub fn unanswered(&self, now: Time) -> Span {
        self.liveness.unanswered(now)
    }

    /// Whether the other side has been silent for [`Settings::dead_after`].
    #[must_use]
    pub fn is_dead(&self, now: Time) -> bool {
        now >= self.liveness.dead_at()
    }

    /// Returns when to wake the machine: to [`transmit`](Self::transmit), or because it
    /// [`is_dead`](Self::is_dead). `can_send` tells whether the connection takes bytes now.
    #[must_use]
    pub fn deadline(&self, can_send: bool) -> Time {
        let dead_at = self.liveness.dead_at();
        if can_send { dead_at.min(self.liveness.ping_at()) } else { dead_at }
    }
}

#[cfg(test)]
mod tests;
