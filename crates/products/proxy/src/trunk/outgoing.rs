//! What is sent, and in which order.

use std::collections::VecDeque;

use anabranch_algo::Time;
use bytes::Bytes;

use crate::trunk::frame::{DATA_BYTES_MAX, Frame, HEADER_BYTES, Hello, encode_data_header};
use crate::trunk::schedule::Turn;
use crate::trunk::{Event, STREAM_QUEUE_MIN, Trunk};

/// Payloads up to so many bytes are copied behind their header, so that a write has fewer pieces.
const COPIED_BYTES_MAX: usize = 2 * 1024;
/// The trunk's credit is given back when it is this part of the memory, or all that the other side has left.
const CREDIT_PART: u32 = 8;
/// In the latter case at least so many bytes.
const CREDIT_LEAST: u32 = 16 * 1024;

impl Trunk {
    /// Whether [`transmit`](Self::transmit) has something to send.
    #[must_use]
    pub fn has_to_send(&self, now: Time) -> bool {
        let is_going = self.going_away.is_some_and(|(_, is_due)| is_due);
        let is_control_due = self.is_hello_due || is_going || self.pong.is_some() || self.is_credit_due();
        let has_streams = !self.controls.is_empty() || !self.credits.is_empty();
        let has_data = self.credit > 0 && !self.schedule.is_empty();
        is_control_due || (!self.is_closed && (has_streams || has_data || now >= self.liveness.ping_at()))
    }

    /// Appends what is to be sent next to `out`, in pieces whose order counts; stops when they have `at_most`
    /// bytes, or a frame more. Returns how many bytes were added. Small `at_most` keeps the choice late:
    /// what was handed out is not overtaken any more.
    pub fn transmit(&mut self, now: Time, out: &mut VecDeque<Bytes>, at_most: usize) -> usize {
        let mut sent = self.transmit_control(now);
        while sent < at_most && self.credit > 0 && !self.is_closed {
            let Some(turn) = self.schedule.next() else { break };
            sent += self.transmit_turn(now, turn, out);
        }
        self.flush(out);
        sent
    }

    /// Hands out what was written into the scratch.
    fn flush(&mut self, out: &mut VecDeque<Bytes>) {
        if !self.scratch.is_empty() {
            out.push_back(self.scratch.split().freeze());
        }
    }

    /// Short frames. The number of bytes.
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
                // It may have been reset before anybody heard of it.
                let state = self.streams.get_mut(stream).filter(|state| state.reset.is_none());
                let Some(state) = state else { continue };
                state.is_announced = true;
                self.liveness.note_sent(now);
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

    /// Bytes that the other side may send on all streams, and does not know of yet.
    fn credit_due(&self) -> u32 {
        // What is held is part of what was granted, which is no more than the memory.
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

    /// One frame of the stream whose turn it is. The number of bytes.
    fn transmit_turn(&mut self, now: Time, turn: Turn, out: &mut VecDeque<Bytes>) -> usize {
        let Some(stream) = self.streams.get_mut(&turn.stream) else { return 0 };
        if !stream.has_to_send() {
            stream.is_scheduled = !self.schedule.ran_out(turn);
            return 0;
        }
        let limit = DATA_BYTES_MAX.min(turn.left as usize).min(self.credit as usize);
        let bytes = stream.queued.len().min(limit);
        // All limits above fit.
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
