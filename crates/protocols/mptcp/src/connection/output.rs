//! Decides what a connection sends, and when.
//!
//! The order is: retransmissions of subflows, then reinjections and new data as the scheduler says, then mere
//! acknowledgements. Each segment gets its options here ([`Connection::dress`]).

use anabranch_algo::control::Group;
use anabranch_algo::{Output, Span, Time};
use anabranch_mptcp_wire::checksum::dss_checksum;
use anabranch_mptcp_wire::{
    AddAddr, DataNumber, Dss, DssMapping, Join, MpCapable, MptcpOption, OptionBuffer, RemoveAddr, Reset,
    TcpOption,
};

use super::{Connection, ConnectionEvent, Mode, TailProbe};
use crate::config::{SUBFLOWS_MAX, TailLoss};
use crate::handshake_options::VERSION;
use crate::overtake::{Pace, Paces, Underway};
use crate::path::{Handshake, Path, ResetReason, Signal};
use crate::scheduler::{PathView, Schedule as _, Work};
use crate::segment::Segment;
use crate::send::Mover;
use crate::subflow::{Alarm, Chunk, Due, SubflowError};

/// Bytes of the largest DSS: acknowledgement and mapping of 64 bits each, with a checksum.
const DSS_BYTES: usize = 28;
/// The shortest time after which data that subflows have delivered is sent again.
const DATA_RTO_MIN: Span = Span::from_secs(1);

/// Appends an option and returns whether there was room for it.
fn push(options: &mut OptionBuffer, option: MptcpOption<'_>) -> bool {
    options.push(&TcpOption::Mptcp(option))
}

impl Connection {
    /// Returns the next segment, event or deadline of the connection.
    pub(crate) fn poll(&mut self, now: Time) -> Output<Segment, ConnectionEvent> {
        self.tick(now);
        self.note_ends(now);
        if let Some(event) = self.reports.events.pop_front() {
            return Output::Event(event);
        }
        for _ in 0..self.paths.len() {
            let slot = self.turn;
            if let Some(due) = self.paths[slot].as_mut().and_then(|path| path.subflow.due(now)) {
                let segment = self.build(now, slot, &due);
                if matches!(due, Due::Reset) {
                    self.note_ends(now);
                }
                return Output::Send(segment);
            }
            self.turn = (slot + 1) % self.paths.len();
        }
        if let Some((slot, due)) = self.schedule(now) {
            return Output::Send(self.build(now, slot, &due));
        }
        self.close_subflows();
        for slot in 0..self.paths.len() {
            if let Some(due) = self.paths[slot].as_mut().and_then(|path| path.subflow.due_last(now)) {
                return Output::Send(self.build(now, slot, &due));
            }
        }
        self.note_ends(now);
        match self.reports.events.pop_front() {
            Some(event) => Output::Event(event),
            None => Output::Wait(self.deadline()),
        }
    }

    fn deadline(&self) -> Time {
        let subflows = self.paths.iter().flatten().map(|path| {
            let join = match path.handshake {
                Handshake::JoinProven { due, .. } => due,
                _ => Time::NEVER,
            };
            path.subflow.deadline().min(join)
        });
        let timers = self.timers;
        let data = timers.fin_due.min(timers.retransmit_at).min(self.notices.next());
        let data = data.min(timers.rejoin_at).min(timers.overtake_at);
        let data = if self.ending.is_over || !self.is_multipath() { Time::NEVER } else { data };
        subflows.min().unwrap_or(Time::NEVER).min(data).min(self.addresses.race_at())
    }

    /// Handles the timers that are due at `now`.
    fn tick(&mut self, now: Time) {
        for slot in 0..self.paths.len() {
            if self.paths[slot].as_ref().is_none_or(|path| path.subflow.deadline() > now) {
                continue;
            }
            let (members, me) = self.group(slot);
            let group = Group { members: &members, me };
            let Some(path) = self.paths[slot].as_mut() else { continue };
            let alarm = path.subflow.tick(now, &group);
            if !self.is_multipath() {
                continue;
            }
            match alarm {
                Alarm::Nothing => {}
                Alarm::Probe => {
                    let policy = self.config.tcp.tail_loss;
                    let alternates = matches!(policy, TailLoss::AlternatePath | TailLoss::Overtake);
                    if alternates && self.tail_probe.is_none() {
                        self.tail_probe = self.send.reinject_last(slot).map(|seq| TailProbe { slot, seq });
                    }
                }
                // The scheduler chooses another subflow for this data, and this subflow repeats it, too.
                Alarm::Timeout => self.send.reinject_from(slot),
            }
        }
        for path in self.paths.iter_mut().flatten() {
            if let Handshake::JoinProven { due, wait, .. } = &mut path.handshake
                && *due <= now
            {
                *due = now + *wait;
                *wait = wait.times(2);
                path.subflow.ack_now();
            }
        }
        if self.is_multipath() && !self.ending.is_over {
            self.tick_data(now);
        }
    }

    /// Handles the timers of the data level.
    fn tick_data(&mut self, now: Time) {
        if self.timers.rejoin_at <= now {
            self.rejoin();
            if self.paths.iter().all(Option::is_none) {
                return self.over(Some(SubflowError::Reset));
            }
        }
        if self.notices.next() <= now {
            let mut notices = std::mem::take(&mut self.notices);
            notices.take_due(now, |signal, slot| match slot {
                Some(slot) => self.signal_on(slot, signal),
                None => self.signal(signal),
            });
            self.notices = notices;
        }
        if let Some(data_seq) = self.send.fin_to_send() {
            if self.timers.fin_due <= now || self.timers.fin_due == Time::NEVER {
                self.timers.fin_due = now + self.slowest_rto().max(DATA_RTO_MIN);
                self.signal(Signal::DataFin { data_seq });
            }
        } else {
            self.timers.fin_due = Time::NEVER;
        }
        if !self.send.is_flying() {
            self.timers.retransmit_at = Time::NEVER;
        } else if self.timers.retransmit_at == Time::NEVER {
            self.timers.retransmit_at = now + self.slowest_rto().times(2).max(DATA_RTO_MIN);
        } else if self.timers.retransmit_at <= now {
            self.timers.retransmit_at = now + self.slowest_rto().times(2).max(DATA_RTO_MIN);
            self.send.reinject_first();
        }
    }

    /// Closes the subflows once the connection does not need them any more.
    fn close_subflows(&mut self) {
        let is_done = match self.mode {
            Mode::Offered => false,
            Mode::Multipath { .. } => self.is_finished(),
            Mode::Plain => self.send.is_all_sent() && !self.ending.is_over,
        };
        if is_done {
            self.send.fin_to_send();
            self.paths.iter_mut().flatten().for_each(|path| path.subflow.close());
        }
    }

    /// Appends the subflows as the scheduler sees them. `carried` has a bit for each slot that has carried
    /// the data.
    fn views(&self, now: Time, carried: u64, out: &mut Vec<PathView>) {
        for (slot, path) in self.paths.iter().enumerate() {
            let Some(path) = path.as_ref().filter(|path| path.can_send()) else { continue };
            let sender = path.subflow.sender();
            out.push(PathView {
                slot,
                srtt: sender.expected_round_trip(now),
                rttvar: sender.rtt().rttvar(),
                cwnd: sender.cwnd(),
                in_flight: sender.in_flight(),
                mss_bytes: path.subflow.payload_max(self.option_bytes()),
                has_room: path.subflow.room(self.option_bytes()) > 0,
                backup: path.backup.is_wanted(),
                has_carried: carried & (1 << slot) != 0,
                is_silent: sender.timeouts() > 0,
            });
        }
    }

    const fn option_bytes(&self) -> usize {
        if matches!(self.mode, Mode::Plain) { 0 } else { DSS_BYTES }
    }

    /// Makes the next segment with data, and returns it with the slot of the subflow that carries it.
    fn schedule(&mut self, now: Time) -> Option<(usize, Due)> {
        if self.mode == Mode::Offered || self.ending.is_over {
            return None;
        }
        let bytes = self.option_bytes();
        let mut work = Work {
            now,
            is_reinjection: true,
            unsent_bytes: self.send.unsent(),
            window_bytes: self.send.window_room(),
            reinjections: self.send.reinjections(),
        };
        let mut views = Vec::with_capacity(self.paths.len());
        if let Some(carried) = self.send.reinjection() {
            self.views(now, carried, &mut views);
            if let Some(slot) = self.scheduler.pick(&work, &views) {
                let room = self.paths[slot].as_ref()?.subflow.room(bytes);
                let underway = self.underway(now, slot)?;
                let (data_seq, payload) = self.send.take_reinjection(room, underway)?;
                return Some((slot, self.paths[slot].as_mut()?.subflow.send(now, data_seq, payload)));
            }
        }
        if self.send.unsent() > 0 && self.send.window_room() > 0 {
            views.clear();
            work.is_reinjection = false;
            self.views(now, 0, &mut views);
            if let Some(slot) = self.scheduler.pick(&work, &views) {
                let room = self.paths[slot].as_ref()?.subflow.room(bytes);
                let underway = self.underway(now, slot)?;
                let (data_seq, payload) = self.send.take(room, underway)?;
                return Some((slot, self.paths[slot].as_mut()?.subflow.send(now, data_seq, payload)));
            }
        }
        if self.scheduler.is_redundant() {
            for slot in 0..self.paths.len() {
                let Some(path) = self.paths[slot].as_ref().filter(|path| path.can_send()) else { continue };
                let room = path.subflow.room(bytes);
                if room == 0 {
                    continue;
                }
                let underway = self.underway(now, slot)?;
                if let Some((data_seq, payload)) = self.send.take_copy(room, underway) {
                    return Some((slot, self.paths[slot].as_mut()?.subflow.send(now, data_seq, payload)));
                }
            }
        }
        if let Some(due) = self.overtake(now) {
            return Some(due);
        }
        if self.send.unsent() > 0 {
            let is_closed = self.send.window_room() == 0;
            for path in self.paths.iter_mut().flatten().filter(|path| path.can_send()) {
                path.subflow.blocked(now, is_closed);
            }
        }
        None
    }

    /// Returns the note on data that the subflow in `slot` is about to get.
    fn underway(&self, now: Time, slot: usize) -> Option<Underway> {
        Some(Underway::new(slot, now, self.paths[slot].as_ref()?.subflow.used_offset()))
    }

    /// Has a subflow that has room, while there is nothing new to send, carry data that comes late on another
    /// one. Of several such subflows the one with the shortest round trip does it, and a backup last.
    fn overtake(&mut self, now: Time) -> Option<(usize, Due)> {
        self.timers.overtake_at = Time::NEVER;
        let has_news = self.send.unsent() > 0 && self.send.window_room() > 0;
        if self.config.tcp.tail_loss != TailLoss::Overtake
            || has_news
            || !self.send.is_flying()
            || self.scheduler.is_redundant()
        {
            return None;
        }
        let mut paces = Paces::default();
        let (mut movers, mut count) = ([(false, Span::ZERO, 0); SUBFLOWS_MAX], 0);
        for (slot, path) in self.paths.iter().enumerate() {
            let Some(path) = path.as_ref().filter(|path| path.can_send()) else { continue };
            let pace = path.subflow.sender().pace(now);
            paces[slot] = Some(Pace { acked: path.subflow.acked_offset(), ..pace });
            movers[count] = (path.backup.is_wanted(), pace.round_trip, slot);
            count += 1;
        }
        if count < 2 {
            return None;
        }
        movers[..count].sort_unstable();
        let bytes = self.option_bytes();
        for &(is_backup, _, slot) in &movers[..count] {
            let path = self.paths[slot].as_mut()?;
            let room = path.subflow.room(bytes);
            if room == 0 || path.subflow.sender().timeouts() > 0 {
                continue;
            }
            let underway = Underway::new(slot, now, path.subflow.used_offset());
            let mover = Mover { underway, paces: &paces, is_backup };
            if let Some((data_seq, payload)) = self.send.overtake(room, &mover) {
                return Some((slot, path.subflow.send(now, data_seq, payload)));
            }
        }
        self.timers.overtake_at = self.send.overdue_at(now, &paces);
        None
    }

    /// Makes the segment that is due on a subflow, with all options.
    fn build(&mut self, now: Time, slot: usize, due: &Due) -> Segment {
        let window = self.receive.window();
        let Some(mut path) = self.paths[slot].take() else {
            unreachable!("a subflow that has something due")
        };
        let mut segment = path.subflow.build(now, due, window);
        if self.mode != Mode::Plain {
            self.dress(&mut path, due, &mut segment);
        }
        path.subflow.finish(&mut segment);
        self.paths[slot] = Some(path);
        segment
    }

    /// Appends the options of Multipath TCP to a segment.
    fn dress(&self, path: &mut Path, due: &Due, segment: &mut Segment) {
        match due {
            Due::Syn | Due::SynAck => self.dress_syn(path, due, &mut segment.options),
            Due::Segment(outgoing) => {
                let is_first = self.is_client && path.subflow.sent_offset(segment.seq) == 1;
                if is_first && self.mode == (Mode::Multipath { confirmed: false }) {
                    self.dress_first(&outgoing.chunk, &mut segment.options);
                } else {
                    self.dress_data(path, &outgoing.chunk, segment);
                }
            }
            Due::Ack | Due::Probe => self.dress_ack(path, &mut segment.options),
            Due::Reset => match path.reset {
                Some(ResetReason::Subflow(reason)) => {
                    push(&mut segment.options, MptcpOption::Reset(Reset { flags: 0, reason }));
                }
                Some(ResetReason::Checksum(data_seq)) => {
                    push(&mut segment.options, MptcpOption::Fail { data_seq });
                }
                Some(ResetReason::Connection(key)) => {
                    push(&mut segment.options, MptcpOption::FastClose { key });
                }
                None => {}
            },
        }
    }

    fn capable(&self) -> MpCapable {
        let checksum = if self.keys.checksums { MpCapable::CHECKSUM } else { 0 };
        MpCapable::new(VERSION, MpCapable::HMAC | checksum)
    }

    fn dress_syn(&self, path: &Path, due: &Due, options: &mut OptionBuffer) {
        let is_reply = matches!(due, Due::SynAck);
        let (own, backup, address_id) = (self.keys.own, path.backup.own, path.local_id);
        let option = match (path.handshake, self.keys.peer) {
            (Handshake::First, _) => {
                MptcpOption::Capable(MpCapable { sender_key: is_reply.then_some(own), ..self.capable() })
            }
            (Handshake::JoinSent { nonce }, Some(peer)) => {
                let token = peer.token(anabranch_mptcp_wire::Version::V1);
                MptcpOption::Join(Join::Syn { backup, address_id, token, nonce })
            }
            (Handshake::JoinReceived { nonce, peer_nonce }, Some(peer)) => {
                let hmac = own.join_hmac(peer, nonce, peer_nonce, anabranch_mptcp_wire::Version::V1);
                let hmac = anabranch_mptcp_wire::keys::join_hmac_short(&hmac);
                MptcpOption::Join(Join::SynAck { backup, address_id, hmac, nonce })
            }
            _ => return,
        };
        push(options, option);
    }

    /// Returns the MP_CAPABLE with both keys.
    fn both_keys(&self) -> MpCapable {
        MpCapable { sender_key: Some(self.keys.own), receiver_key: self.keys.peer, ..self.capable() }
    }

    /// Appends the keys once more to the client's first data, in case that its third segment was lost (RFC
    /// 8684 section 3.1).
    fn dress_first(&self, chunk: &Chunk, options: &mut OptionBuffer) {
        let data_bytes = chunk.payload.len() as u16;
        let checksum = self.keys.checksums.then(|| {
            let first = self.keys.own_base.wrapping_add(chunk.data_seq);
            dss_checksum(first, 1, data_bytes, [chunk.payload.as_bytes()])
        });
        let option = MpCapable { data_bytes: Some(data_bytes), checksum, ..self.both_keys() };
        push(options, MptcpOption::Capable(option));
    }

    fn data_ack(&self) -> DataNumber {
        DataNumber::Full(self.keys.peer_base.wrapping_add(self.receive.next()))
    }

    fn dress_data(&self, path: &Path, chunk: &Chunk, segment: &mut Segment) {
        let mut dss = Dss { data_ack: Some(self.data_ack()), ..Dss::default() };
        if !chunk.payload.is_empty() {
            let wire_seq = self.keys.own_base.wrapping_add(chunk.data_seq);
            let (subflow_seq, data_bytes) =
                (path.subflow.sent_offset(segment.seq), chunk.payload.len() as u16);
            let bytes = [chunk.payload.as_bytes()];
            let checksum =
                self.keys.checksums.then(|| dss_checksum(wire_seq, subflow_seq, data_bytes, bytes));
            let data_seq = DataNumber::Full(wire_seq);
            dss.mapping = Some(DssMapping { data_seq, subflow_seq, data_bytes, checksum });
        }
        push(&mut segment.options, MptcpOption::Dss(dss));
    }

    fn dress_ack(&self, path: &mut Path, options: &mut OptionBuffer) {
        match path.handshake {
            Handshake::JoinProven { hmac, .. } => {
                push(options, MptcpOption::Join(Join::Ack { hmac }));
                return;
            }
            Handshake::JoinSent { .. } | Handshake::JoinReceived { .. } => return,
            Handshake::First | Handshake::Joined => {}
        }
        if self.is_client && self.mode == (Mode::Multipath { confirmed: false }) {
            push(options, MptcpOption::Capable(self.both_keys()));
            return;
        }
        let signal = path.signals.pop_front();
        // SACK blocks need the room more than the upper half of a number does.
        let data_ack = match self.data_ack() {
            DataNumber::Full(number) if path.subflow.has_sack() => DataNumber::Short(number as u32),
            number => number,
        };
        let mut dss = Dss { data_ack: Some(data_ack), ..Dss::default() };
        match signal {
            Some(Signal::DataFin { data_seq }) => {
                let wire_seq = self.keys.own_base.wrapping_add(data_seq);
                let checksum = self.keys.checksums.then(|| dss_checksum(wire_seq, 0, 1, []));
                let data_seq = DataNumber::Full(wire_seq);
                dss.mapping = Some(DssMapping { data_seq, subflow_seq: 0, data_bytes: 1, checksum });
                dss.data_fin = true;
            }
            Some(signal) => self.dress_signal(signal, options),
            None => {}
        }
        push(options, MptcpOption::Dss(dss));
        if !path.signals.is_empty() {
            path.subflow.ack_now();
        }
    }

    fn dress_signal(&self, signal: Signal, options: &mut OptionBuffer) {
        let option = match signal {
            Signal::Announce { id, address } => {
                let Some(peer) = self.keys.peer else { return };
                let hmac = Some(self.keys.own.add_addr_hmac(peer, id, address.ip(), None));
                let address = address.ip();
                MptcpOption::AddAddr(AddAddr::V1 { echo: false, address_id: id, address, port: None, hmac })
            }
            Signal::Echo { id, address, has_port } => MptcpOption::AddAddr(AddAddr::V1 {
                echo: true,
                address_id: id,
                address: address.ip(),
                port: has_port.then_some(address.port()),
                hmac: None,
            }),
            Signal::Remove { id } => {
                push(options, MptcpOption::RemoveAddr(RemoveAddr { address_ids: &[id] }));
                return;
            }
            Signal::Prio { backup } => MptcpOption::Prio { backup, address_id: None },
            Signal::DataFin { .. } => return,
        };
        push(options, option);
    }
}
