//! Decides what a subflow sends, and makes the segments.

use anabranch_algo::{Span, Time};
use anabranch_mptcp_wire::{OptionBuffer, TcpOption};

use super::handshake::own_mss;
use super::sender::Outgoing;
use super::sent::Chunk;
use super::{Due, State, Subflow};
use crate::payload::Payload;
use crate::segment::{EcnField, Flags, Segment};

/// The wait before the first retransmission of a SYN (RFC 6298 section 2.1), and the longest wait.
const SYN_TIMEOUT: Span = Span::from_secs(1);
const SYN_TIMEOUT_MAX: Span = Span::from_secs(16);

impl Subflow {
    /// Returns the segment that must be sent before new data, if one is due. None of these needs more room
    /// than there is.
    pub(crate) fn due(&mut self, now: Time) -> Option<Due> {
        if std::mem::take(&mut self.reset_due) {
            return Some(Due::Reset);
        }
        let timestamp = self.timestamp(now);
        match self.state {
            State::Closed => return None,
            State::SynSent | State::SynReceived => {
                if self.syn.due > now {
                    return None;
                }
                self.syn.sent_at = now;
                let wait = SYN_TIMEOUT.times(1 << self.syn.count.min(5)).min(SYN_TIMEOUT_MAX);
                self.syn.count += 1;
                self.syn.due = now + wait;
                return Some(if self.state == State::SynSent { Due::Syn } else { Due::SynAck });
            }
            State::TimeWait => return self.receiver.ack_due(now).then_some(Due::Ack),
            _ => {}
        }
        if let Some(outgoing) = self.sender.resend_lost(now, timestamp) {
            return Some(Due::Segment(outgoing));
        }
        if std::mem::take(&mut self.liveness.probe_due) || self.sender.window_probe_due(now) {
            return Some(Due::Probe);
        }
        None
    }

    /// Returns the segment that must be sent after new data: a tail-loss probe if no new data served as one,
    /// the FIN, or an acknowledgement.
    pub(crate) fn due_last(&mut self, now: Time) -> Option<Due> {
        if matches!(self.state, State::SynSent | State::SynReceived | State::Closed) {
            return None;
        }
        let timestamp = self.timestamp(now);
        if self.sender.probe_due()
            && let Some(outgoing) = self.sender.resend_last(now, timestamp)
        {
            return Some(Due::Segment(outgoing));
        }
        let next = match self.state {
            State::Established => Some(State::FinWait1),
            State::CloseWait => Some(State::LastAck),
            _ => None,
        };
        if let Some(next) = next.filter(|_| self.is_closing) {
            self.state = next;
            let chunk = Chunk { data_seq: 0, payload: Payload::default(), fin: true };
            return Some(Due::Segment(self.sender.send_new(now, chunk, timestamp)));
        }
        self.receiver.ack_due(now).then_some(Due::Ack)
    }

    /// Returns the bytes of new data that may be sent now in one segment, beside `option_bytes` of the
    /// connection's options.
    pub(crate) fn room(&self, option_bytes: usize) -> u64 {
        if self.can_send() { self.sender.room(self.payload_max(option_bytes)) } else { 0 }
    }

    /// Records that there is data to send but no [room](Self::room) for it. If the subflow's window is full,
    /// or if the peer's window for the data `is_closed`, the window will be probed.
    pub(crate) fn blocked(&mut self, now: Time, is_closed: bool) {
        if is_closed || self.sender.window_room() == 0 {
            self.sender.blocked_by_window(now);
        }
    }

    /// Sends new data, no more than there is [room](Self::room) for.
    pub(crate) fn send(&mut self, now: Time, data_seq: u64, payload: Payload) -> Due {
        self.sender.probed();
        let chunk = Chunk { data_seq, payload, fin: false };
        Due::Segment(self.sender.send_new(now, chunk, self.timestamp(now)))
    }

    /// Makes the segment that is due. `window` is the bytes that the connection has room for.
    pub(crate) fn build(&mut self, now: Time, due: &Due, window: u64) -> Segment {
        let timestamps = (self.timestamp(now), self.receiver.ts_recent());
        let mut segment = Segment {
            source: self.local,
            target: self.remote,
            seq: self.sender.next() as u32,
            ack: self.receiver.next() as u32,
            flags: Flags::ACK,
            window: u16::try_from(window >> self.agreed.own_scale).unwrap_or(u16::MAX),
            ecn: EcnField::NotEct,
            options: OptionBuffer::default(),
            payload: Payload::default(),
        };
        match due {
            Due::Syn | Due::SynAck => {
                let is_reply = matches!(due, Due::SynAck);
                let mss = own_mss(&self.config, self.local);
                segment.options = self.agreed.write(mss, timestamps, is_reply);
                segment.seq = self.syn.iss;
                segment.window = u16::try_from(window).unwrap_or(u16::MAX);
                segment.flags = if is_reply { Flags::SYN.and(Flags::ACK) } else { Flags::SYN };
                if self.agreed.ecn {
                    let ecn = if is_reply { Flags::ECE } else { Flags::ECE.and(Flags::CWR) };
                    segment.flags = segment.flags.and(ecn);
                }
                if !is_reply {
                    segment.ack = 0;
                }
                self.receiver.acked(window.min(u64::from(u16::MAX)));
                return segment;
            }
            Due::Segment(outgoing) => self.fill(&mut segment, outgoing),
            Due::Ack => {}
            Due::Probe => segment.seq = (self.sender.una() as u32).wrapping_sub(1),
            Due::Reset => segment.flags = Flags::RST.and(Flags::ACK),
        }
        if self.agreed.timestamps {
            segment.options.push(&TcpOption::Timestamps { value: timestamps.0, echo: timestamps.1 });
        }
        if self.agreed.ecn && self.receiver.echo_congestion() {
            segment.flags = segment.flags.and(Flags::ECE);
        }
        self.receiver.acked(u64::from(segment.window) << self.agreed.own_scale);
        segment
    }

    fn fill(&mut self, segment: &mut Segment, outgoing: &Outgoing) {
        segment.seq = outgoing.seq as u32;
        segment.payload = outgoing.chunk.payload.clone();
        if !segment.payload.is_empty() {
            segment.flags = segment.flags.and(Flags::PSH);
        }
        if outgoing.chunk.fin {
            segment.flags = segment.flags.and(Flags::FIN);
        }
        // Retransmissions are not ECN-capable (RFC 3168 section 6.1.5).
        if self.agreed.ecn && !outgoing.again && !segment.payload.is_empty() {
            segment.ecn = EcnField::Ect0;
            if self.sender.take_reduced() {
                segment.flags = segment.flags.and(Flags::CWR);
            }
        }
    }

    /// Appends selective acknowledgements, as many as there is room for.
    pub(crate) fn finish(&mut self, segment: &mut Segment) {
        if !self.agreed.sack || segment.flags.has(Flags::SYN) || !self.receiver.has_sack() {
            return;
        }
        let room = segment.options.room().saturating_sub(2) / 8;
        let blocks = self.receiver.sack_blocks(room.min(3));
        if !blocks.as_slice().is_empty() {
            segment.options.push(&TcpOption::Sack(blocks));
        }
    }
}
