//! Chooses the frames to send, and their order.

use std::collections::VecDeque;

use anabranch_algo::Time;
use bytes::Bytes;

use crate::trunk::frame::{DATA_BYTES_MAX, Frame, HEADER_BYTES, Hello, encode_data_header};
use crate::trunk::schedule::Turn;
use crate::trunk::{Event, STREAM_QUEUE_MIN, Trunk};

/// Payloads of at most this many bytes are copied after their header, so that a write has fewer pieces.
const COPIED_BYTES_MAX: usize = 2 * 1024;
/// The trunk's credit is returned when it is this part of the memory, or as much as the other side has left.
const CREDIT_PART: u32 = 8;
/// The least credit that is returned in the latter case.
const CREDIT_LEAST: u32 = 16 * 1024;

impl Trunk {
    /// Whether [`transmit`](Self::transmit) has anything to send.
    #[must_use]
    pub fn has_to_send(&self, now: Time) -> bool {
        let is_going = self.going_away.is_some_and(|(_, is_due)| is_due);
        let is_control_due = self.is_hello_due || is_going || self.pong.is_some() || self.is_credit_due();
        let has_streams = !self.controls.is_empty() || !self.credits.is_empty();
        let has_data = self.credit > 0 && !self.schedule.is_empty();
        is_control_due || (!self.is_closed && (has_streams || has_data || now >= self.liveness.ping_at()))
    }

    /// Appends the next bytes to send to `out`, in pieces that must keep their order. Stops at `at_most`
    /// bytes, plus at most one frame. Returns the number of appended bytes. A small `at_most` delays
    /// decisions, because later frames cannot overtake the appended ones.
    pub fn transmit(&mut self, now: Time, out: &mut VecDeque<Bytes>, at_most: usize) -> usize {
        let mut sent = self.transmit_control(now);
        while sent < at_most && self.credit > 0 && !self.is_closed {
            let Some(turn) = self.schedule.next() else { break };
            sent += self.transmit_turn(now, turn, out);
        }
        self.flush(out);
        sent
    }

    /// Moves the written bytes from the scratch buffer to `out`.
    fn flush(&mut self, out: &mut VecDeque<Bytes>) {
        if !self.scratch.is_empty() {
            out.push_back(self.scratch.split().freeze());
        }
    }

    /// Writes the short frames to the scratch buffer. Returns their number of bytes.
    fn transmit_control(&mut self, now: Time) -> usize {
        if std::mem::take(&mut self.is_hello_due) {
            let hello = Hello {
                transport: self.settings.transport,
                stream_credit: self.settings.stream_window,
                streams: self.settings.streams,
                trunk_credit: self.settings.memory,
            };
            Frame::Hello(hello).encode(&mut self.scratch);
            self.liveness.note_sent(now);
        }
        if let Some((reason, true)) = self.going_away {
            self.going_away = Some((reason, false));
            Frame::GoAway(reason).encode(&mut self.scratch);
        }
        if let Some(bytes) = self.pong.take() {
            Frame::Pong(bytes).encode(&mut self.scratch);
        }
        if self.is_closed {
            return self.scratch.len();
        }
        if let Some(bytes) = self.liveness.ping(now) {
            Frame::Ping(bytes).encode(&mut self.scratch);
        }
        while let Some(frame) = self.controls.pop_front() {
            if let Frame::Open { stream, .. } = &frame {
                // The stream may have been reset before its OPEN was sent.
                let state = self.streams.get_mut(stream).filter(|state| state.reset.is_none());
                let Some(state) = state else { continue };
                state.is_announced = true;
                self.liveness.note_sent(now);
            }
            if let Frame::AskDistance { stream } = &frame
                && !self.streams.get(stream).is_some_and(|state| state.is_announced)
            {
                continue;
            }
            frame.encode(&mut self.scratch);
        }
        self.transmit_credit();
        self.scratch.len()
    }

    fn is_credit_due(&self) -> bool {
        let due = self.credit_due();
        let is_short = due >= self.granted && due >= CREDIT_LEAST;
        !self.is_closed && (due >= self.settings.memory / CREDIT_PART || is_short)
    }

    /// Returns the bytes that the other side may send on all streams beyond the credit that it knows of.
    fn credit_due(&self) -> u32 {
        // The held bytes are part of the granted ones, which are at most the memory.
        let held = u32::try_from(self.held).unwrap_or(u32::MAX);
        self.settings.memory.saturating_sub(self.granted.saturating_add(held))
    }

    fn transmit_credit(&mut self) {
        if self.is_credit_due() {
            let bytes = self.credit_due();
            self.granted += bytes;
            Frame::Credit { stream: 0, bytes }.encode(&mut self.scratch);
        }
        while let Some(number) = self.credits.pop_front() {
            let Some(stream) = self.streams.get_mut(&number) else { continue };
            stream.is_credit_listed = false;
            if stream.is_credit_due() {
                let bytes = stream.credit_due();
                stream.granted += bytes;
                Frame::Credit { stream: number, bytes }.encode(&mut self.scratch);
            }
        }
    }

    /// Appends a frame of the stream that is next in turn. Returns its number of bytes.
    fn transmit_turn(&mut self, now: Time, turn: Turn, out: &mut VecDeque<Bytes>) -> usize {
        let Some(stream) = self.streams.get_mut(&turn.stream) else { return 0 };
        if !stream.has_to_send() {
            stream.is_scheduled = !self.schedule.ran_out(turn);
            return 0;
        }
        let limit = DATA_BYTES_MAX.min(turn.left as usize).min(self.credit as usize);
        let bytes = stream.queued.len().min(limit);
        // All the limits above are below 2^16, so the conversions succeed.
        let (n16, n32) = (u16::try_from(bytes).unwrap_or(0), u32::try_from(bytes).unwrap_or(0));
        let is_last = stream.is_all_written && bytes == stream.queued.len();
        stream.is_all_sent = is_last;
        encode_data_header(turn.stream, n16, is_last, &mut self.scratch);
        let mut left = bytes;
        while let Some(piece) = if left > 0 { stream.queued.pop(left) } else { None } {
            left -= piece.len();
            if bytes <= COPIED_BYTES_MAX {
                self.scratch.extend_from_slice(&piece);
            } else {
                if !self.scratch.is_empty() {
                    out.push_back(self.scratch.split().freeze());
                }
                out.push_back(piece);
            }
        }
        self.activity.note(now, &mut stream.active_epoch);
        self.queued -= bytes;
        self.credit -= n32;
        let has_room = stream.queued.len() < STREAM_QUEUE_MIN && !stream.is_all_written && stream.credit > 0;
        if has_room && std::mem::take(&mut stream.awaits_room) {
            self.events.push_back(Event::Writable(turn.stream));
        }
        self.schedule.sent(turn, n32);
        self.liveness.note_sent(now);
        if is_last {
            self.remove_if_done(turn.stream);
        }
        HEADER_BYTES + bytes
    }
}
