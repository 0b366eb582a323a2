//! The programs at both ends of one connection: what they write, what they have read, and when.

use std::collections::VecDeque;

use anabranch_algo::Time;
use anabranch_mptcp::{ConnectionId, Payload, Stack};

use super::body;
use super::config::{Message, TransferConfig, Workload};

/// Most bytes of one write.
const WRITE_BYTES_MAX: u64 = 1 << 18;
/// Room that an endless program waits for before it writes on.
const WRITE_BYTES_MIN: u64 = 1 << 14;

/// The state of a transfer, for measures.
#[derive(Clone, Debug, Default)]
pub struct TransferReport {
    /// Time at which the connection was opened; `None` before that.
    pub began: Option<Time>,
    /// Time at which the receiver's program had read everything; `None` before that.
    pub ended: Option<Time>,
    /// Time at which the receiver's program had read each message, or each object, in order.
    pub messages: Vec<Time>,
    /// Timeouts of all subflows, until the transfer ended.
    pub timeouts: u64,
    /// Reductions of windows of all subflows without a timeout, until the transfer ended.
    pub reductions: u64,
}

/// A transfer.
pub(super) struct Transfer {
    /// Names of the connection at the sender and at the receiver, once they exist.
    pub(super) ids: [Option<ConnectionId>; 2],
    pub(super) report: TransferReport,
    /// Whether the connection is over at the sender.
    pub(super) is_over: bool,
    workload: Workload,
    /// Number of messages that are due.
    messages_due: usize,
    /// Bytes of data that are to be written, that have been written and that have been read.
    due: u64,
    written: u64,
    read: u64,
    /// Offsets at which messages or objects that are under way end.
    ends: VecDeque<u64>,
    /// Bytes of requests that the receiver has written and that the sender has read.
    asked: u64,
    heard: u64,
    /// Whether the data is complete: nothing more becomes due.
    is_complete: bool,
}

impl Transfer {
    pub(super) fn new(config: TransferConfig) -> Self {
        Self {
            ids: [None; 2],
            report: TransferReport::default(),
            is_over: false,
            due: if matches!(config.workload, Workload::Endless) { u64::MAX } else { 0 },
            workload: config.workload,
            messages_due: 0,
            written: 0,
            read: 0,
            ends: VecDeque::new(),
            asked: 0,
            heard: 0,
            is_complete: false,
        }
    }

    pub(super) const fn read_bytes(&self) -> u64 {
        self.read
    }

    /// Whether the sender's program has something to write.
    pub(super) const fn wants_to_write(&self) -> bool {
        self.written < self.due && !self.is_over
    }

    /// Lets messages become due; returns the time of the next one.
    pub(super) fn become_due(&mut self, now: Time) -> Option<Time> {
        let Workload::Messages(messages) = &self.workload else { return None };
        while let Some(&Message { at, bytes }) = messages.get(self.messages_due) {
            if at > now {
                return Some(at);
            }
            self.messages_due += 1;
            self.due += bytes;
            self.ends.push_back(self.due);
        }
        self.is_complete = true;
        None
    }

    /// Writes what is due as far as there is room, and closes the connection after the last byte.
    pub(super) fn write(&mut self, stack: &mut Stack) {
        let Some(id) = self.ids[0].filter(|_| !self.is_over) else { return };
        while self.written < self.due {
            let rest = self.due - self.written;
            let room = stack.writable(id);
            if room < rest.min(WRITE_BYTES_MIN) {
                return;
            }
            let view = body::view(self.written, rest.min(room).min(WRITE_BYTES_MAX));
            match stack.write_view(id, view) {
                0 => return,
                count => self.written += count as u64,
            }
        }
        if self.is_complete {
            stack.finish(id);
        }
    }

    /// Takes bytes that the receiver's program has read; returns whether they are right.
    pub(super) fn take(&mut self, now: Time, bytes: &Payload) -> bool {
        let is_right = body::has(self.read, bytes.as_bytes());
        self.read += bytes.len() as u64;
        while self.ends.front().is_some_and(|end| *end <= self.read) {
            self.ends.pop_front();
            self.report.messages.push(now);
        }
        if self.is_complete && self.ends.is_empty() && self.report.ended.is_none() {
            self.report.ended = Some(now);
        }
        is_right
    }

    /// Lets the receiver's program ask for the next object if it has read the one before, or close the
    /// connection if there is none left.
    pub(super) fn ask(&mut self, now: Time, stack: &mut Stack, objects: &mut VecDeque<u64>) {
        let (Workload::Fetch { request_bytes }, Some(id)) = (&self.workload, self.ids[1]) else { return };
        if self.read < self.ends.back().copied().unwrap_or(0) || self.is_complete {
            return;
        }
        if let Some(bytes) = objects.pop_front() {
            let end = self.ends.back().copied().unwrap_or(self.read) + bytes;
            self.ends.push_back(end);
            self.asked += stack.write_view(id, body::view(0, *request_bytes)) as u64;
        } else {
            self.is_complete = true;
            self.report.ended = Some(now);
            stack.finish(id);
        }
    }

    /// Takes bytes of requests that the sender's program has read; a whole request makes its object due.
    pub(super) fn hear(&mut self, bytes: u64) {
        self.heard += bytes;
        if self.heard == self.asked {
            self.due = self.ends.back().copied().unwrap_or(0);
        }
    }
}
