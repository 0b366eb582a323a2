//! One connection: its subflows, both directions of its data, and how its segments change them.

pub(crate) mod options;

use std::net::SocketAddr;

use anabranch_mptcp_wire::{Key, OptionError, TcpOption, TcpOptions, Version};

use crate::audit::Checksums;
use crate::half::{Half, Mapping, PayloadPiece};
use crate::handover::{Cause, Handovers};
use crate::journal::{Journal, What};
use crate::pam16::Pam16;
use crate::plot::{Kind, Mark};
use crate::segment::{Flags, Segment};
use crate::stream::{Split, Stream};
use crate::subflow::{Side, Subflow};

/// The most subflows of one connection; further ones are counted as connections of their own.
pub(crate) const SUBFLOWS_MAX: usize = 1024;

/// The protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// TCP from the beginning.
    Tcp,
    /// Multipath TCP, version 0 (RFC 6824).
    Mptcp0,
    /// Multipath TCP, version 1 (RFC 8684).
    Mptcp1,
}

/// The reason why a connection is or became plain TCP although an end asked for Multipath TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fallback {
    /// The SYN/ACK has no MP_CAPABLE: the server or a middlebox does not support it.
    NotAnswered,
    /// Data came without a mapping.
    NoMapping,
    /// An infinite mapping was sent.
    Infinite,
}

/// The parameters that were agreed in the first handshake.
#[derive(Debug, Default)]
pub(crate) struct Agreement {
    /// The version in the last MP_CAPABLE.
    pub(crate) version: Option<u8>,
    pub(crate) keys: [Option<Key>; 2],
    pub(crate) fallback: Option<Fallback>,
    pub(crate) checksums: Checksums,
    /// The tokens that the table does not know yet.
    pub(crate) new_tokens: Vec<u32>,
    /// The number of options that the snap length cut off.
    pub(crate) options_cut: u64,
}

impl Agreement {
    pub(crate) fn hash(&self) -> Option<Version> {
        match self.version {
            Some(0) => Some(Version::V0),
            Some(1) => Some(Version::V1),
            _ => None,
        }
    }

    pub(crate) fn protocol(&self) -> Protocol {
        match self.version {
            Some(0) => Protocol::Mptcp0,
            Some(_) => Protocol::Mptcp1,
            None => Protocol::Tcp,
        }
    }

    /// Returns whether data has only TCP sequence numbers.
    pub(crate) const fn is_plain(&self) -> bool {
        self.version.is_none() || matches!(self.fallback, Some(Fallback::NotAnswered))
    }
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection {
    /// The number of the connection in the capture, from 0.
    pub(crate) id: u64,
    pub(crate) begin_ns: u64,
    pub(crate) end_ns: u64,
    pub(crate) agreement: Agreement,
    pub(crate) subflows: Vec<Subflow>,
    /// The data of the client and the data of the server.
    pub(crate) streams: [Stream; 2],
    pub(crate) handovers: Handovers,
    pub(crate) journal: Journal,
    pub(crate) marks: Marks,
    /// The counts of the study for the data of the client and of the server, if they are wanted.
    pub(crate) pam16: Option<Box<[Pam16; 2]>>,
}

/// The optional parts of a connection that are recorded.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wanted {
    /// Whether marks for plots are recorded.
    pub(crate) plots: bool,
    /// Whether the counts of [`Pam16`] are recorded.
    pub(crate) study: bool,
}

/// The marks that segments add to the plots of their connection, if plots are wanted.
#[derive(Debug)]
pub(crate) struct Marks {
    begin_ns: u64,
    list: Option<Vec<(Side, Mark)>>,
}

impl Marks {
    const fn is_wanted(&self) -> bool {
        self.list.is_some()
    }

    fn add(&mut self, now: u64, side: Side, subflow: u16, bytes: (u64, u64), kind: Kind) {
        if let Some(list) = &mut self.list {
            let time_ns = now.saturating_sub(self.begin_ns);
            list.push((side, Mark { time_ns: (time_ns, time_ns), bytes, subflow, kind }));
        }
    }

    /// What was added since it was taken last; it is gone whether it is read or not.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = (Side, Mark)> {
        self.list.as_mut().map(|list| list.drain(..)).into_iter().flatten()
    }
}

impl Connection {
    pub(crate) fn new(id: u64, now: u64, ends: [SocketAddr; 2], wanted: Wanted) -> Self {
        Self {
            id,
            begin_ns: now,
            end_ns: now,
            agreement: Agreement::default(),
            subflows: vec![Subflow::new(0, ends, Side::Client, now)],
            streams: Default::default(),
            handovers: Handovers::default(),
            journal: Journal::default(),
            marks: Marks { begin_ns: now, list: wanted.plots.then(Vec::new) },
            pam16: wanted.study.then(Box::default),
        }
    }

    /// Adds a subflow between these ends of the client and of the server. Returns `None` if there are too
    /// many.
    pub(crate) fn join(&mut self, now: u64, ends: [SocketAddr; 2], opener: Side) -> Option<u16> {
        let number = u16::try_from(self.subflows.len()).ok().filter(|n| usize::from(*n) < SUBFLOWS_MAX)?;
        self.subflows.push(Subflow::new(number, ends, opener, now));
        Some(number)
    }

    /// Returns whether no further segment is expected.
    pub(crate) fn is_closed(&self) -> bool {
        self.journal.is_fast_closed() || self.subflows.iter().all(Subflow::is_closed)
    }

    /// Takes a segment that `sender` sent on subflow `number`.
    pub(crate) fn segment(&mut self, now: u64, number: u16, sender: Side, segment: &Segment<'_>) {
        self.end_ns = self.end_ns.max(now);
        let Some(subflow) = self.subflows.get_mut(usize::from(number)) else { return };
        handshake(subflow, now, sender, segment);
        if segment.has(Flags::SYN) && sender == Side::Server && number == 0 {
            let speaks = TcpOptions::new(segment.options)
                .mptcp()
                .any(|option| matches!(option, anabranch_mptcp_wire::MptcpOption::Capable(_)));
            if self.agreement.version.is_some() && !speaks {
                self.fall_back(now, number, sender, Fallback::NotAnswered);
            }
        }
        let has_dss = self.options(now, number, sender, segment);
        if segment.has(Flags::ACK) && !segment.has(Flags::RST) {
            self.acknowledge(now, number, sender, segment);
        }
        if segment.payload_bytes > 0 && !segment.has(Flags::RST) {
            self.payload(now, number, sender, segment, has_dss);
        }
        self.ending(now, number, sender, segment);
        self.handovers.look(now, &self.subflows, &self.streams);
    }

    /// Reads the options. Returns whether there is a DSS, or may be one that was cut off.
    fn options(&mut self, now: u64, number: u16, sender: Side, segment: &Segment<'_>) -> bool {
        let mut has_dss = false;
        for option in TcpOptions::new(segment.options) {
            match option {
                Ok(TcpOption::Mptcp(option)) => has_dss |= self.option(now, number, sender, segment, &option),
                Ok(_) => {}
                Err(OptionError::Truncated { .. }) => {
                    self.agreement.options_cut += 1;
                    has_dss = true;
                }
                Err(OptionError::BadLength { .. }) => self.event(now, number, sender, What::Malformed),
            }
        }
        has_dss
    }

    fn acknowledge(&mut self, now: u64, number: u16, sender: Side, segment: &Segment<'_>) {
        let of = sender.peer();
        let Some(subflow) = self.subflows.get_mut(usize::from(number)) else { return };
        let half = subflow.half(of);
        half.acknowledge(now, segment.ack);
        let Some(acked) = half.acked.filter(|_| number == 0) else { return };
        let first = half.first().zip(self.streams[of.index()].first);
        if self.agreement.is_plain() {
            self.data_acked(now, of, acked);
        } else if self.agreement.fallback.is_some()
            && let Some((first, data_seq)) = first
        {
            self.data_acked(now, of, data_seq.wrapping_add(acked.wrapping_sub(first)));
        }
    }

    /// Records that the receiver has all of `sender`'s data below the data sequence number `ack`.
    fn data_acked(&mut self, now: u64, sender: Side, ack: u64) {
        if let Some(bytes) = self.streams[sender.index()].acknowledge(now, ack) {
            self.marks.add(now, sender, 0, bytes, Kind::Acknowledged);
        }
    }

    fn payload(&mut self, now: u64, number: u16, sender: Side, segment: &Segment<'_>, has_dss: bool) {
        let is_syn = u64::from(segment.has(Flags::SYN));
        let Some(subflow) = self.subflows.get_mut(usize::from(number)) else { return };
        let start = subflow.half(sender).number(segment.seq) + is_syn;
        let bytes = u64::from(segment.payload_bytes);
        let index = sender.index();
        subflow.checksums[index].payload(start, bytes, segment.payload, &mut self.agreement.checksums);
        if let Some(pam16) = &mut self.pam16 {
            pam16[index].payload(number, segment.seq, bytes);
        }
        let alive_ns = subflow.alive_ns();
        let half = &mut subflow.halves[index];
        let is_new = half.payload(now, start, start + bytes);
        let pieces = std::mem::take(&mut half.pieces);
        let (split, unmapped) = self.pieces(now, number, sender, &pieces);
        let unmapped_bytes = unmapped.iter().map(|piece| piece.end - piece.start).sum();
        let half = &mut self.subflows[usize::from(number)].halves[index];
        half.pieces = pieces;
        count(half, &split, unmapped_bytes);
        self.streams[index].blocks.packet(number);
        if is_new {
            if let Some(ended) = self.streams[index].busy(now, number) {
                self.slot(now, index, ended);
            }
            self.handovers.data(now, (number, alive_ns), sender, split.bytes());
        }
        let is_only = self.subflows.len() == 1;
        if unmapped_bytes > 0 && !has_dss && is_only && self.agreement.fallback.is_none() {
            self.fall_back(now, number, sender, Fallback::NoMapping);
            let (split, _) = self.pieces(now, number, sender, &unmapped);
            let counts = &mut self.subflows[0].halves[index].counts;
            counts.unique_bytes += split.unique_bytes;
            counts.unmapped_bytes -= split.unique_bytes.min(counts.unmapped_bytes);
        }
    }

    /// Adds pieces of a subflow's payload to the data. Returns their bytes by kind, and the pieces without a
    /// mapping.
    fn pieces(
        &mut self,
        now: u64,
        number: u16,
        sender: Side,
        pieces: &[PayloadPiece],
    ) -> (Split, Vec<PayloadPiece>) {
        let (mut split, mut unmapped) = (Split::default(), Vec::new());
        let is_plain = self.agreement.is_plain();
        let (stream, marks) = (&mut self.streams[sender.index()], &mut self.marks);
        let is_plotted = marks.is_wanted();
        let half = &self.subflows[usize::from(number)].halves[sender.index()];
        for piece in pieces {
            let mut at = piece.start;
            let mut each = |data_seq: Option<u64>, bytes| {
                let start = at;
                at += bytes;
                match data_seq {
                    Some(data_seq) if piece.is_new => {
                        let mark = |bytes, kind| marks.add(now, sender, number, bytes, kind);
                        stream.add(now, (data_seq, bytes), number, &mut split, mark);
                    }
                    Some(data_seq) => {
                        if let Some(start) = stream.offset(data_seq) {
                            let bytes = (start, start.saturating_add(bytes));
                            marks.add(now, sender, number, bytes, Kind::Retransmitted);
                        }
                    }
                    None if piece.is_new => unmapped.push(PayloadPiece { start, end: at, is_new: true }),
                    None => {}
                }
            };
            if is_plain {
                each(Some(piece.start), piece.end - piece.start);
            } else if piece.is_new || is_plotted {
                half.data(piece.start, piece.end, each);
            }
        }
        (split, unmapped)
    }

    /// Ends a slot of time, in which the subflows with bits in `busy` carried new data.
    fn slot(&mut self, now: u64, index: usize, busy: u64) {
        for subflow in &mut self.subflows {
            if subflow.number >= 64 || !subflow.is_established() || subflow.opened_ns() > now {
                continue;
            }
            let slots = &mut subflow.halves[index].slots;
            if busy >> subflow.number & 1 == 1 {
                slots.0 += 1;
            } else {
                slots.1 += 1;
            }
        }
    }

    /// Handles FIN and RST.
    fn ending(&mut self, now: u64, number: u16, sender: Side, segment: &Segment<'_>) {
        let Some(subflow) = self.subflows.get_mut(usize::from(number)) else { return };
        let is_plain = self.agreement.is_plain();
        let half = subflow.half(sender);
        if segment.has(Flags::RST) && half.times.reset.is_none() {
            half.times.reset = Some(now);
            let reason = subflow.reset_reason;
            self.handovers.leave(subflow, Cause::Reset, now);
            self.event(now, number, sender, What::Reset { reason });
        } else if segment.has(Flags::FIN) && half.times.fin.is_none() {
            half.times.fin = Some(now);
            self.handovers.leave(subflow, Cause::Fin, now);
            self.event(now, number, sender, What::Fin);
            if is_plain {
                self.journal.add(now.saturating_sub(self.begin_ns), number, sender, What::DataFin);
            }
        }
    }

    fn event(&mut self, now: u64, number: u16, sender: Side, what: What) {
        self.journal.add(now.saturating_sub(self.begin_ns), number, sender, what);
    }

    /// Treats the bytes of the only subflow as the data from here on.
    fn fall_back(&mut self, now: u64, number: u16, sender: Side, why: Fallback) {
        self.agreement.fallback = Some(why);
        for (stream, half) in self.streams.iter_mut().zip(&mut self.subflows[0].halves) {
            match (why, half.first(), stream.first) {
                (Fallback::NotAnswered, ..) => stream.first = None,
                (Fallback::NoMapping, Some(seq), Some(data_seq)) => {
                    half.map(Mapping { seq, data_seq, bytes: options::INFINITE });
                }
                _ => {}
            }
        }
        self.event(now, number, sender, What::Fallback);
    }

    /// Ends the connection at its last segment, or at the end of the capture.
    pub(crate) fn finish(&mut self) {
        let is_open = !self.is_closed() && !self.journal.has_ended();
        for side in Side::BOTH {
            let index = side.index();
            if let Some(ended) = self.streams[index].last_slot() {
                self.slot(self.end_ns, index, ended);
            }
            self.streams[index].finish(self.end_ns, is_open);
            for subflow in &mut self.subflows {
                subflow.checksums[index].end(&mut self.agreement.checksums);
            }
        }
    }
}

/// Records the segment's part in the handshake, and the time of the segment.
fn handshake(subflow: &mut Subflow, now: u64, sender: Side, segment: &Segment<'_>) {
    let is_opener = sender == subflow.opener;
    let half = &mut subflow.halves[sender.index()];
    half.counts.packets += 1;
    half.times.segment = Some(now);
    let shakes = &mut subflow.handshake;
    if segment.has(Flags::SYN) {
        half.syn(segment.seq);
        // The handshake's time counts from the last SYN, because a lost SYN is no part of a round trip.
        match (is_opener, segment.has(Flags::ACK)) {
            (true, _) => shakes.syn = shakes.syn.filter(|_| shakes.syn_ack.is_some()).or(Some(now)),
            (false, _) => shakes.syn_ack = shakes.syn_ack.filter(|_| shakes.ack.is_some()).or(Some(now)),
        }
    } else if segment.has(Flags::ACK) && !segment.has(Flags::RST) {
        half.times.ack = Some(now);
        if is_opener && shakes.syn_ack.is_some() {
            shakes.ack.get_or_insert(now);
        }
    }
}

/// Adds the bytes of a segment's payload to the counts, by kind.
const fn count(half: &mut Half, split: &Split, unmapped_bytes: u64) {
    let counts = &mut half.counts;
    counts.unique_bytes += split.unique_bytes;
    counts.reinjected.0 += split.reinjected_bytes;
    counts.reinjected.1 += (split.reinjected_bytes > 0) as u64;
    counts.resent.0 += split.resent_bytes;
    counts.resent.1 += (split.resent_bytes > 0) as u64;
    counts.unmapped_bytes += unmapped_bytes;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_that_are_not_read_are_dropped() {
        let mut marks = Marks { begin_ns: 0, list: Some(Vec::new()) };
        for time in 0..3 {
            marks.add(time, Side::Client, 0, (0, 1), Kind::New);
            drop(marks.take());
        }
        assert_eq!(marks.list.as_deref().map(<[_]>::len), Some(0));
    }
}
