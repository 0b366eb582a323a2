//! One end of a trunk: frames in and out, streams, credit, whose turn it is. A machine: no clock, no socket.
//!
//! The world gives it what arrives ([`receive`](Trunk::receive)) and takes what is to be sent
//! ([`transmit`](Trunk::transmit)), tells it the time, and drains [`poll_event`](Trunk::poll_event) after
//! each call. It works on streams by their numbers. It holds at most:
//! * received and not read: what it granted, [`Settings::memory`] for all streams together;
//! * written and not sent: [`STREAM_QUEUE_MAX`] of a stream, and [`TRUNK_QUEUE_MAX`] of all, beyond which a
//!   stream may still queue [`STREAM_QUEUE_MIN`];
//! * for each stream [`STREAM_STATE_BYTES`] and no buffer while nothing waits; streams as `Settings` say;
//! * short frames to send: two for each stream that there may be, and a thousand.

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
mod stream;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use activity::Activity;
use anabranch_algo::{Span, Time};
use bytes::{Bytes, BytesMut};

pub use destination::{Destination, DestinationError, Host};
pub use frame::{Association, GoAwayReason, ProtocolError, Reason, Transport};
use frame::{Frame, FrameReader, Hello, STREAM_CREDIT_MIN, STREAMS_MIN, TRUNK_CREDIT_MIN};
use liveness::Liveness;
use pressure::Pressure;
use schedule::Schedule;
use stream::Stream;

/// Bytes of one stream that wait to be sent, at most.
pub const STREAM_QUEUE_MAX: usize = 256 * 1024;
/// Bytes that a stream may always have waiting, however many others have.
pub const STREAM_QUEUE_MIN: usize = 16 * 1024;
/// Bytes of all streams that wait to be sent: beyond this only [`STREAM_QUEUE_MIN`] of each.
pub const TRUNK_QUEUE_MAX: usize = 4 * 1024 * 1024;
/// Memory of a stream without bytes, in this module: its state, and its part of the map.
pub const STREAM_STATE_BYTES: usize = 200;
/// Streams that have ended and are not released may be as many again as those that are open.
const LINGERING_FACTOR: u32 = 2;

/// Which end it is: only the client opens streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The end that programs connect to.
    Client,
    /// The end that connects to origins.
    Server,
}

/// What one end grants and demands.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// What the world sees of the connection; said to the other side.
    pub transport: Transport,
    /// Window of a new stream, bytes; [`STREAM_CREDIT_MIN`] at least.
    pub stream_window: u32,
    /// Streams that the other side may have open; [`STREAMS_MIN`] at least.
    pub streams: u32,
    /// Bytes of all streams that came and were not read, at most; [`TRUNK_CREDIT_MIN`] at least.
    pub memory: u32,
    /// A ping is sent after so long without a word from the other side.
    pub keepalive: Span,
    /// The trunk is dead if something of ours has no answer for so long.
    pub dead_after: Span,
}

impl Default for Settings {
    /// 256 KiB a stream, 4,096 streams, 64 MiB; a ping after 25 s, so that address translators do not forget
    /// the connection; dead after 120 s: TCP, which doubles its time-outs, may need 102 s to find out that
    /// links are back that were gone for a minute.
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

/// What happened. A stream's number is that of the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The other side speaks our protocol, and sees this of the connection.
    Hello(Transport),
    /// The client has opened a stream. Bytes of it may be there.
    Opened {
        /// The stream.
        stream: u32,
        /// Where to.
        destination: Destination,
        /// Whether it waits for [`Trunk::confirm`].
        wants_reply: bool,
    },
    /// The server has connected to the origin at this address; only if a reply was wanted.
    Connected {
        /// The stream.
        stream: u32,
        /// The origin's address.
        address: SocketAddr,
    },
    /// [`Trunk::read`] has something after it had nothing.
    Readable(u32),
    /// [`Trunk::write`] takes bytes again.
    Writable(u32),
    /// The other side has reset the stream, or the trunk is gone. What it had sent to the end can be read.
    Reset {
        /// The stream.
        stream: u32,
        /// Why.
        reason: Reason,
    },
    /// The other side takes no new streams.
    GoAway(GoAwayReason),
    /// The client asks for a leg, in this version of its format.
    LegAsked(u16),
    /// The server's word on the leg that was asked for.
    Leg(Association),
}

/// What [`Trunk::read`] finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    /// These bytes, at least one.
    Bytes(Bytes),
    /// Nothing yet: [`Event::Readable`] follows.
    Empty,
    /// Nothing any more.
    End,
    /// The stream was reset.
    Reset(Reason),
}

/// Why no stream can be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// As many are open as the server allows.
    #[error("the server allows no more streams on this trunk")]
    TooManyStreams,
    /// One side takes no new ones, the trunk is gone, or all numbers were used.
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
    /// The other side's word; before it came, the least that it must say.
    peer: Hello,
    has_peer_hello: bool,
    events: VecDeque<Event>,

    streams: BTreeMap<u32, Box<Stream>>,
    /// The number of the stream that was opened last.
    last_opened: u32,
    /// Streams that have not ended.
    open_streams: u32,

    /// Bytes that we may send on all streams; and that the other side may.
    credit: u32,
    granted: u32,
    /// Bytes that came and were not read; that were written and not sent.
    held: usize,
    queued: usize,
    /// By how much windows have grown, in all.
    grown: u32,

    schedule: Schedule,
    controls: VecDeque<Frame>,
    /// Streams that have credit to give.
    credits: VecDeque<u32>,
    is_hello_due: bool,
    pong: Option<[u8; 8]>,
    /// Our GOAWAY, and whether it is still to be sent.
    going_away: Option<(GoAwayReason, bool)>,
    is_peer_going: bool,
    /// Whether a leg was asked for, and there was no answer.
    is_leg_asked: bool,
    is_closed: bool,
    liveness: Liveness,
    activity: Activity,
    pressure: Pressure,
    /// Where short frames and headers are written.
    scratch: BytesMut,
}

impl Trunk {
    /// A new trunk over a connection that was just made. Values of `settings` below the protocol's least
    /// count as that.
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

    /// The next thing that happened.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Opens a stream. OPEN leaves together with what is written next.
    ///
    /// # Errors
    /// See [`OpenError`].
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

    /// Says that the origin is connected, if the client asked for it.
    pub fn confirm(&mut self, stream: u32, address: SocketAddr) {
        let Some(state) = self.streams.get_mut(&stream) else { return };
        if self.side == Side::Server && std::mem::take(&mut state.wants_reply) && state.reset.is_none() {
            self.push_control(Frame::Opened { stream, address });
        }
    }

    /// How many bytes [`write`](Self::write) takes now; [`Event::Writable`] follows a 0.
    ///
    /// # Errors
    /// The stream was reset.
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

    /// Takes bytes off the front of `bytes` to send them, as many as there is [`room`](Self::room) for.
    /// Returns how many.
    ///
    /// # Errors
    /// The stream was reset.
    pub fn write(&mut self, stream: u32, bytes: &mut Bytes) -> Result<usize, Reason> {
        let taken = self.room(stream)?.min(bytes.len());
        let Some(state) = self.streams.get_mut(&stream).filter(|_| taken > 0) else { return Ok(0) };
        state.queued.push(bytes.split_to(taken));
        // `room` is no more than the credit, which is a u32.
        state.credit -= u32::try_from(taken).unwrap_or(state.credit);
        self.queued += taken;
        self.list_to_send(stream);
        Ok(taken)
    }

    /// No more bytes will be written; those that were are sent.
    pub fn finish(&mut self, stream: u32) {
        if let Some(state) = self.streams.get_mut(&stream) {
            state.is_all_written = true;
            self.list_to_send(stream);
        }
    }

    /// Ends the stream in both directions, and drops what waits in either.
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

    /// Takes bytes that came: at most `at_most`, in one piece. That gives credit back.
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
        // Half of the memory is for streams of the least window, so that new ones always have theirs.
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

    /// Nobody uses the stream any more. What was written to the end is sent still; a stream that is not at
    /// its end is reset.
    pub fn release(&mut self, stream: u32) {
        let Some(state) = self.streams.get_mut(&stream) else { return };
        state.is_released = true;
        let is_all_written = state.is_all_written;
        // Also of one that was reset when all had come: what was not read is held until now.
        self.drop_bytes(stream, false, None);
        if !is_all_written {
            self.reset(stream, Reason::NoInterest);
        }
        self.remove_if_done(stream);
    }

    /// Says that this side takes no new streams.
    pub fn go_away(&mut self, reason: GoAwayReason) {
        if self.going_away.is_none() {
            self.going_away = Some((reason, true));
        }
    }

    /// The connection is gone: every stream that has not ended is reset ([`Reason::TrunkGone`]), but what was
    /// received to its end can be read still.
    pub fn close(&mut self) {
        self.is_closed = true;
        let open: Vec<u32> = self.streams.iter().filter(|(_, s)| !s.has_ended()).map(|(n, _)| *n).collect();
        for stream in open {
            self.on_reset(stream, Reason::TrunkGone);
        }
        self.controls.clear();
    }

    /// Whether [`open`](Self::open) may succeed: neither side goes away.
    #[must_use]
    pub const fn takes_streams(&self) -> bool {
        self.going_away.is_none() && !self.is_peer_going && !self.is_closed && self.last_opened < u32::MAX
    }

    /// Streams that have not ended.
    #[must_use]
    pub const fn open_streams(&self) -> u32 {
        self.open_streams
    }

    /// Streams that the other side lets us have, at most.
    #[must_use]
    pub const fn streams_max(&self) -> u32 {
        self.peer.streams
    }

    /// Streams that have moved bytes in the last second or two.
    pub fn moving_streams(&mut self, now: Time) -> u32 {
        self.activity.moving(now)
    }

    /// The connection takes no more of what was handed out, or it does. The server tells the client, once a
    /// second, if its bytes have waited for half of it.
    pub fn note_blocked(&mut self, now: Time, is_blocked: bool) {
        if self.pressure.note(now, is_blocked) && self.side == Side::Server {
            self.push_control(Frame::Full);
        }
    }

    /// Whether bytes of either side wait for the connection, rather than it for bytes.
    #[must_use]
    pub fn is_full(&self, now: Time) -> bool {
        self.pressure.is_full(now)
    }

    /// What the other side sees of the connection, once it has said so.
    #[must_use]
    pub fn peer_transport(&self) -> Option<Transport> {
        self.has_peer_hello.then_some(self.peer.transport)
    }

    /// The smoothed round-trip time, once it was measured.
    #[must_use]
    pub fn rtt(&self) -> Option<Span> {
        self.liveness.rtt()
    }

    /// How long something that was sent has waited for any word from the other side. With a ping after half a
    /// second, more than a second and a few round trips is a bad sign.
    #[must_use]
    pub fn unanswered(&self, now: Time) -> Span {
        self.liveness.unanswered(now)
    }

    /// Whether the other side has been silent for too long ([`Settings::dead_after`]).
    #[must_use]
    pub fn is_dead(&self, now: Time) -> bool {
        now >= self.liveness.dead_at()
    }

    /// When the machine is to be woken: to [`transmit`](Self::transmit), or as it [`is_dead`](Self::is_dead).
    /// `can_send`: whether the connection takes bytes now.
    #[must_use]
    pub fn deadline(&self, can_send: bool) -> Time {
        let dead_at = self.liveness.dead_at();
        if can_send { dead_at.min(self.liveness.ping_at()) } else { dead_at }
    }
}

#[cfg(test)]
mod tests;
