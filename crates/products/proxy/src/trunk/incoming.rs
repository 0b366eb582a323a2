//! Takes the bytes that arrive.

use std::net::SocketAddr;

use anabranch_algo::Time;
use bytes::Bytes;

use crate::trunk::frame::{CREDIT, DATA, FULL, OPEN, OPENED, RESET, STREAM_CREDIT_MIN, TRUNK_CREDIT_MIN};
use crate::trunk::frame::{CREDIT_MAX, Frame, GoAwayReason, Hello, Piece, ProtocolError, Reason};
use crate::trunk::stream::Stream;
use crate::trunk::{Destination, Event, LINGERING_FACTOR, Side, Trunk};

impl Trunk {
    /// Takes the bytes that arrived, in pieces of any length.
    ///
    /// # Errors
    /// If the other side violates the protocol. The world then sends the output of
    /// [`transmit`](Self::transmit), which is a GOAWAY, calls [`close`](Self::close), and closes the
    /// connection. Nothing more may be received.
    pub fn receive(&mut self, now: Time, mut bytes: Bytes) -> Result<(), ProtocolError> {
        if bytes.is_empty() || self.is_closed {
            return Ok(());
        }
        self.liveness.note_heard(now);
        let done = self.take_pieces(now, &mut bytes);
        if let Err(error) = done {
            let reason = match error {
                ProtocolError::Version(_) => GoAwayReason::Version,
                _ => GoAwayReason::Protocol,
            };
            self.going_away = Some((reason, true));
        }
        done
    }

    fn take_pieces(&mut self, now: Time, bytes: &mut Bytes) -> Result<(), ProtocolError> {
        while let Some(piece) = self.reader.next(bytes)? {
            match piece {
                Piece::Frame(Frame::Hello(hello)) => self.on_hello(hello)?,
                Piece::Frame(frame) => self.on_frame(now, frame)?,
                Piece::Data { stream, bytes, is_last } => self.on_data(now, stream, bytes, is_last)?,
            }
        }
        Ok(())
    }

    fn on_frame(&mut self, now: Time, frame: Frame) -> Result<(), ProtocolError> {
        match frame {
            Frame::Open { stream, destination, wants_reply } => {
                self.on_open(stream, destination, wants_reply)?;
            }
            Frame::Opened { stream, address } => self.on_opened(stream, address)?,
            Frame::Credit { stream, bytes } => self.on_credit(stream, bytes)?,
            Frame::Reset { stream, reason } => {
                self.check_known(stream, RESET)?;
                self.on_reset(stream, reason);
            }
            // If an earlier ping was not answered yet, the answer to this one answers both.
            Frame::Ping(bytes) => self.pong = Some(bytes),
            Frame::Pong(bytes) => self.liveness.on_pong(now, bytes),
            Frame::GoAway(reason) => {
                if !std::mem::replace(&mut self.is_peer_going, true) {
                    self.events.push_back(Event::GoAway(reason));
                }
            }
            Frame::AskLeg { version } => self.on_ask_leg(version)?,
            Frame::Leg(association) => self.on_leg(association)?,
            Frame::Full if self.side == Side::Server => return Err(ProtocolError::Unasked(FULL)),
            Frame::Full => self.pressure.note_peer(now),
            frame @ (Frame::Load(_)
            | Frame::AskDistance { .. }
            | Frame::Distance { .. }
            | Frame::Server { .. }) => self.on_several(frame)?,
            Frame::Hello(_) => return Err(ProtocolError::Hello),
        }
        Ok(())
    }

    fn on_hello(&mut self, hello: Hello) -> Result<(), ProtocolError> {
        if std::mem::replace(&mut self.has_peer_hello, true) {
            return Err(ProtocolError::Hello);
        }
        self.peer = hello;
        // Until now the least values were assumed.
        self.credit += hello.trunk_credit - TRUNK_CREDIT_MIN;
        let numbers: Vec<u32> = self.streams.keys().copied().collect();
        for number in numbers {
            self.add_credit(number, hello.stream_credit - STREAM_CREDIT_MIN)?;
        }
        self.events.push_back(Event::Hello(hello.transport));
        Ok(())
    }

    /// Fails if no stream of this number was ever opened.
    pub(super) fn check_known(&self, number: u32, kind: u8) -> Result<(), ProtocolError> {
        if number > self.last_opened { Err(ProtocolError::Stream(kind, number)) } else { Ok(()) }
    }

    fn on_open(
        &mut self,
        number: u32,
        destination: Destination,
        wants_reply: bool,
    ) -> Result<(), ProtocolError> {
        if self.side == Side::Client {
            return Err(ProtocolError::Unasked(OPEN));
        }
        if number <= self.last_opened {
            return Err(ProtocolError::Stream(OPEN, number));
        }
        if self.controls.len() >= self.controls_max() {
            return Err(ProtocolError::TooManyRefused);
        }
        self.last_opened = number;
        let limit = self.settings.streams;
        let all_max = limit.saturating_mul(LINGERING_FACTOR) as usize;
        let is_going = self.going_away.is_some() && !self.awaits_departure();
        let is_refused = self.open_streams >= limit || self.streams.len() >= all_max || is_going;
        if is_refused {
            self.push_control(Frame::Reset { stream: number, reason: Reason::Busy });
            return Ok(());
        }
        let mut stream = Stream::new(self.settings.stream_window, self.peer.stream_credit);
        (stream.wants_reply, stream.is_announced) = (wants_reply, true);
        self.streams.insert(number, Box::new(stream));
        self.open_streams += 1;
        self.events.push_back(Event::Opened { stream: number, destination, wants_reply });
        Ok(())
    }

    fn on_opened(&mut self, number: u32, address: SocketAddr) -> Result<(), ProtocolError> {
        self.check_known(number, OPENED)?;
        if self.side == Side::Server {
            return Err(ProtocolError::Unasked(OPENED));
        }
        let Some(stream) = self.streams.get_mut(&number).filter(|stream| stream.reset.is_none()) else {
            return Ok(());
        };
        if !std::mem::take(&mut stream.wants_reply) {
            return Err(ProtocolError::Unasked(OPENED));
        }
        self.events.push_back(Event::Connected { stream: number, address });
        Ok(())
    }

    fn on_data(&mut self, now: Time, number: u32, bytes: Bytes, is_last: bool) -> Result<(), ProtocolError> {
        self.check_known(number, DATA)?;
        self.liveness.note_data();
        // A piece is part of a frame, so its length is below 2^16.
        let n = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.granted = self.granted.checked_sub(n).ok_or(ProtocolError::NoCredit)?;
        let Some(stream) = self.streams.get_mut(&number).filter(|stream| stream.reset.is_none()) else {
            // The bytes were in flight when the stream ended.
            return Ok(());
        };
        if stream.is_all_received && (n > 0 || is_last) {
            return Err(ProtocolError::AfterEnd);
        }
        stream.granted = stream.granted.checked_sub(n).ok_or(ProtocolError::NoCredit)?;
        stream.is_all_received |= is_last;
        if stream.is_released {
            self.remove_if_done(number);
            return Ok(());
        }
        if n > 0 {
            stream.note_received(now);
            self.activity.note(now, &mut stream.active_epoch);
        }
        stream.received.push(bytes);
        self.held += n as usize;
        if (n > 0 || is_last) && std::mem::take(&mut stream.awaits_bytes) {
            self.events.push_back(Event::Readable(number));
        }
        self.count_if_ended(number);
        Ok(())
    }

    fn on_credit(&mut self, number: u32, bytes: u32) -> Result<(), ProtocolError> {
        if number == 0 {
            self.credit = sum(self.credit, bytes, 0)?;
            return Ok(());
        }
        self.check_known(number, CREDIT)?;
        self.add_credit(number, bytes)
    }

    fn add_credit(&mut self, number: u32, bytes: u32) -> Result<(), ProtocolError> {
        let Some(stream) = self.streams.get_mut(&number) else { return Ok(()) };
        stream.credit = sum(stream.credit, bytes, stream.queued.len())?;
        if bytes > 0 && stream.reset.is_none() && std::mem::take(&mut stream.awaits_room) {
            self.events.push_back(Event::Writable(number));
        }
        Ok(())
    }

    /// Handles the reset of a stream by the other side or by the end of the connection.
    pub(super) fn on_reset(&mut self, number: u32, reason: Reason) {
        let Some(stream) = self.streams.get_mut(&number) else { return };
        if !stream.has_ended() {
            if stream.is_all_received {
                // Only this side's direction was open, so the received bytes are complete.
                self.queued -= stream.queued.len();
                stream.queued.clear();
                stream.reset = Some(reason);
                self.count_if_ended(number);
            } else {
                self.drop_bytes(number, true, Some(reason));
            }
            self.events.push_back(Event::Reset { stream: number, reason });
        }
        self.remove_if_done(number);
    }
}

/// Adds credit and checks the limit. `queued` bytes of the credit are used up but not sent.
fn sum(credit: u32, more: u32, queued: usize) -> Result<u32, ProtocolError> {
    let sum = credit.checked_add(more).ok_or(ProtocolError::CreditOverflow)?;
    let all = sum as usize + queued;
    if all > CREDIT_MAX as usize { Err(ProtocolError::CreditOverflow) } else { Ok(sum) }
}
