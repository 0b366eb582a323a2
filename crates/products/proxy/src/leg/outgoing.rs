//! Chooses the packets to send: first those that keep paths up, then second copies, then datagrams.

use anabranch_algo::Time;

use super::numbered::Numbered;
use super::packet::{FRAMES_BYTES_MAX, Frame, HEADER_BYTES, Header, datagram_bytes};
use super::{Leg, Mode, Transmit};

impl Leg {
    /// Appends the next packet to `out`. With `None`, there is nothing to send before the
    /// [`deadline`](Self::deadline).
    pub fn poll_transmit(&mut self, now: Time, out: &mut Vec<u8>) -> Option<Transmit> {
        self.tick(now);
        for i in 0..self.paths.len() {
            if let Some(transmit) = self.transmit_control(now, i, out) {
                return Some(transmit);
            }
        }
        while let Some((path, copy)) = self.copies.pop_front() {
            let place = self.paths.binary_search_by_key(&path, |path| path.number);
            if let Ok(i) = place
                && let Some(transmit) = self.transmit_datagram(now, i, &copy, out)
            {
                return Some(transmit);
            }
        }
        self.transmit_next(now, out)
    }

    /// Appends a packet with the path's acknowledgement, probe, challenge or response, if one is due.
    fn transmit_control(&mut self, now: Time, i: usize, out: &mut Vec<u8>) -> Option<Transmit> {
        let path = &mut self.paths[i];
        let is_ack_due = path.ack_at <= now && path.has_ack();
        let asks = path.is_probe_due || path.is_challenge_due || path.response.is_some();
        if !is_ack_due && !asks {
            path.ack_at = if path.ack_at <= now { Time::NEVER } else { path.ack_at };
            return None;
        }
        let mut frames = Vec::new();
        if let Some(ack) = path.take_ack(now) {
            Frame::Ack(ack).encode(&mut frames);
        }
        if let Some(bytes) = path.challenge.filter(|_| std::mem::take(&mut path.is_challenge_due)) {
            Frame::Challenge(bytes).encode(&mut frames);
        }
        if let Some(bytes) = path.response.take() {
            Frame::Response(bytes).encode(&mut frames);
        }
        if std::mem::take(&mut path.is_probe_due) {
            Frame::Probe(path.rank).encode(&mut frames);
        }
        let transmit = self.transmit(now, i, &frames, asks, out);
        if asks && transmit.is_none() {
            // The unproven address may get no more bytes now. The next probe is due as if this one had been
            // sent.
            self.paths[i].asked_at = Some(now);
        }
        transmit
    }

    /// Sends the datagram that is next in turn.
    fn transmit_next(&mut self, now: Time, out: &mut Vec<u8>) -> Option<Transmit> {
        let flow = self.queue.next_flow()?;
        let mode = self.flows.get(&flow).map_or(Mode::Best, |flow| flow.mode);
        // The allowance of an unproven address is checked for a packet of the largest size first.
        let bytes = HEADER_BYTES + FRAMES_BYTES_MAX + self.protection.tag_bytes();
        let (first, second) = match self.choose(now, mode, bytes) {
            (None, _) => self.choose(now, mode, self.queue.next_bytes() + HEADER_BYTES),
            chosen => chosen,
        };
        let first = first?;
        let taken = self.queue.take(now);
        self.counters.queue_drops += self.queue.take_dropped();
        let waiting = taken?;
        let flow = self.flows.get_mut(&waiting.flow)?;
        let number = flow.next;
        flow.next += 1;
        self.sent_datagrams += 1;
        let numbered = Numbered {
            flow: waiting.flow,
            mode: flow.mode,
            number,
            peer: waiting.peer,
            bytes: waiting.bytes,
        };
        self.last_path = Some(self.paths[first].number);
        let transmit = self.transmit_datagram(now, first, &numbered, out);
        if numbered.mode == Mode::Duplicate
            && let Some(second) = second
        {
            self.copies.push_back((self.paths[second].number, numbered));
        }
        transmit
    }

    fn transmit_datagram(
        &mut self,
        now: Time,
        i: usize,
        numbered: &Numbered,
        out: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let path = &mut self.paths[i];
        let mut frames = Vec::with_capacity(FRAMES_BYTES_MAX);
        let bytes = datagram_bytes(&numbered.peer, numbered.bytes.len());
        if path.has_ack() {
            let ack = path.take_ack(now);
            if let Some(ack) = ack {
                if ack.bytes() + bytes <= FRAMES_BYTES_MAX {
                    Frame::Ack(ack).encode(&mut frames);
                } else {
                    // The acknowledgement does not fit, so it is sent in its own packet.
                    path.note_asked(now, false);
                }
            }
        }
        numbered.encode(&mut frames);
        self.transmit(now, i, &frames, true, out)
    }

    /// Appends a packet with these frames. Returns `None` if the address may not get it now.
    fn transmit(
        &mut self,
        now: Time,
        i: usize,
        frames: &[u8],
        asks: bool,
        out: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let bytes = HEADER_BYTES + frames.len() + self.protection.tag_bytes();
        let path = &mut self.paths[i];
        if path.subflow.sent_packets().is_full() {
            path.subflow.forget(now);
        }
        if path.allowance() < bytes || path.subflow.sent_packets().is_full() {
            return None;
        }
        let number = path.subflow.sent(now, 1, ());
        if asks {
            (path.asked_at, path.waiting_since) = (Some(now), path.waiting_since.or(Some(now)));
        } else {
            // No answer will come to this packet.
            path.subflow.cancel(number, 0);
        }
        let start = out.len();
        Header { path: path.number, association: self.association, number: number as u32 }.encode(out);
        out.extend_from_slice(frames);
        self.protection.seal(path.number, number, out, start);
        path.note_sent(bytes);
        Some(Transmit { path: path.number, to: path.address, bytes })
    }
}
