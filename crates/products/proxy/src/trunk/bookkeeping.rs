//! Keeps the streams, and the lists that contain them.

use crate::trunk::frame::{Frame, Reason};
use crate::trunk::stream::Stream;
use crate::trunk::{Event, Trunk};

/// The number of short frames that may wait beyond two for each stream.
const CONTROLS_MIN: usize = 1_024;

impl Trunk {
    /// Adds a stream to the schedule if it has bytes or its end to send.
    pub(super) fn list_to_send(&mut self, number: u32) {
        if let Some(stream) = self.streams.get_mut(&number)
            && stream.has_to_send()
            && !std::mem::replace(&mut stream.is_scheduled, true)
        {
            self.schedule.add(number);
        }
    }

    /// Adds a stream to the list of those that have credit to return.
    pub(super) fn list_credit(&mut self, number: u32) {
        if let Some(stream) = self.streams.get_mut(&number)
            && stream.is_credit_due()
            && !std::mem::replace(&mut stream.is_credit_listed, true)
        {
            self.credits.push_back(number);
        }
    }

    /// Returns the bytes that wait here: those received and not read, and those written and not sent.
    #[must_use]
    pub const fn held_bytes(&self) -> usize {
        self.held + self.queued
    }

    /// Frees half of the waiting bytes by resetting the streams that hold the most ([`Reason::Busy`]).
    pub fn shed(&mut self) {
        let enough = self.held_bytes() / 2;
        let sizes = self
            .streams
            .iter()
            .map(|(number, stream)| (stream.received.len() + stream.queued.len(), *number));
        let mut largest: Vec<(usize, u32)> = sizes.collect();
        largest.sort_unstable();
        while self.held_bytes() > enough
            && let Some((_, stream)) = largest.pop()
        {
            self.reset(stream, Reason::Busy);
            self.events.push_back(Event::Reset { stream, reason: Reason::Busy });
        }
    }

    pub(super) fn push_control(&mut self, frame: Frame) {
        if !self.is_closed {
            self.controls.push_back(frame);
        }
    }

    pub(super) fn controls_max(&self) -> usize {
        CONTROLS_MIN + 2 * self.settings.streams as usize
    }

    /// Drops the received bytes of a stream, with `both` also its queued ones. If `reset` is given, marks it
    /// as reset.
    pub(super) fn drop_bytes(&mut self, number: u32, both: bool, reset: Option<Reason>) {
        let Some(stream) = self.streams.get_mut(&number) else { return };
        self.held -= stream.received.len();
        stream.received.clear();
        if both {
            self.queued -= stream.queued.len();
            stream.queued.clear();
        }
        stream.reset = stream.reset.or(reset);
        self.count_if_ended(number);
    }

    pub(super) fn count_if_ended(&mut self, number: u32) {
        if let Some(stream) = self.streams.get_mut(&number)
            && stream.has_ended()
            && std::mem::take(&mut stream.is_counted)
        {
            self.open_streams -= 1;
        }
    }

    /// Forgets a stream that was released and has nothing left to send.
    pub(super) fn remove_if_done(&mut self, number: u32) {
        self.count_if_ended(number);
        let is_done = |stream: &Stream| stream.is_released && (stream.reset.is_some() || stream.is_all_sent);
        let Some(stream) = self.streams.get(&number).filter(|stream| is_done(stream)) else { return };
        if !stream.has_ended() {
            // The other side may still send, so the stream is reset.
            return self.reset_and_remove(number);
        }
        self.grown -= stream.window - self.settings.stream_window;
        self.streams.remove(&number);
        // The lists may contain streams that no longer exist. They are cleaned when there are too many of
        // these.
        let (streams, limit) = (&self.streams, 64 + 2 * self.streams.len());
        if self.schedule.len() > limit {
            self.schedule.retain(|number| streams.contains_key(&number));
        }
        if self.credits.len() > limit {
            self.credits.retain(|number| streams.contains_key(number));
        }
        if self.controls.len() > limit {
            self.controls.retain(|frame| match frame {
                Frame::Open { stream, .. }
                | Frame::Opened { stream, .. }
                | Frame::AskDistance { stream }
                | Frame::Distance { stream, .. } => streams.contains_key(stream),
                _ => true,
            });
        }
    }

    fn reset_and_remove(&mut self, number: u32) {
        self.reset(number, Reason::NoInterest);
        self.remove_if_done(number);
    }
}
