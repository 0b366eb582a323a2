//! Handles the segments that arrive for a connection.

use std::net::SocketAddr;

use anabranch_algo::Time;
use anabranch_algo::control::Group;
use anabranch_mptcp_wire::keys::join_hmac_short;
use anabranch_mptcp_wire::{
    AddAddr, DataNumber, Dss, DssMapping, Join, Key, MpCapable, MptcpOption, Reset, Version,
};

use super::{Connection, ConnectionEvent, Mode};
use crate::handshake_options::{VERSION, capable, join};
use crate::mapping::{Check, MapError, Mapping};
use crate::path::{Backup, Handshake, Path, ResetReason, Signal};
use crate::path_manager::UNKNOWN_ID;
use crate::secrets::Secrets;
use crate::segment::{Flags, Segment};
use crate::subflow::handshake::TcpFields;
use crate::subflow::{Arrival, Subflow, SubflowError};

/// Returns the data sequence number `number` from the wire, counted from `base`. Of the values that fit a
/// short number, takes the one closest to `near`.
fn counted(number: DataNumber, base: u64, near: u64) -> u64 {
    number.near(base.wrapping_add(near)).wrapping_sub(base)
}

impl Connection {
    /// Notes whether the SYN offers Multipath TCP; if it does not, the connection becomes plain TCP.
    pub(super) fn offered(&mut self, syn: &Segment) {
        let offer = capable(syn).filter(|offer| {
            offer.version == VERSION && offer.flags & MpCapable::HMAC != 0 && offer.sender_key.is_none()
        });
        match offer {
            Some(offer) if self.mode == Mode::Offered => {
                self.keys.checksums |= offer.flags & MpCapable::CHECKSUM != 0;
            }
            _ => {
                self.mode = Mode::Plain;
                self.send.set_window_end(u64::MAX);
            }
        }
    }

    /// Creates a subflow for a SYN that joins this connection. Returns whether the SYN is answered.
    pub(crate) fn accept_join(
        &mut self,
        now: Time,
        syn: &Segment,
        (backup, address_id, peer_nonce): (bool, u8, u32),
        secrets: &mut Secrets,
    ) -> bool {
        if !self.is_multipath() || self.is_ending() {
            return false;
        }
        let Some(slot) = self.slot_for_join(address_id) else { return false };
        let nonce = secrets.draw() as u32;
        let setup = Self::setup(&self.config, syn.target, syn.source, secrets);
        let subflow = Subflow::accept(now, &setup, syn);
        let local = self.addresses.local(syn.target.ip());
        let local_id = local.map_or(UNKNOWN_ID, |local| local.id);
        let backup = Backup { own: local.is_some_and(|local| local.backup), peer: backup };
        let handshake = Handshake::JoinReceived { nonce, peer_nonce };
        self.paths[slot] = Some(Path::new(subflow, handshake, backup, (local_id, address_id)));
        true
    }

    /// Takes a segment of one of the connection's subflows.
    pub(crate) fn segment(&mut self, now: Time, segment: &Segment) {
        let ends =
            |path: &Path| path.subflow.local == segment.target && path.subflow.remote == segment.source;
        let Some(slot) = self.paths.iter().position(|path| path.as_ref().is_some_and(ends)) else { return };
        let (members, me) = self.group(slot);
        let group = Group { members: &members, me };
        let fields = TcpFields::read(segment);
        let Some(path) = self.paths[slot].as_mut() else { return };
        if self.mode == Mode::Offered && !self.is_client && Self::overtakes_keys(segment) {
            return;
        }
        if !Self::proves_itself(self.keys.own, self.keys.peer, path, segment) {
            path.abort(ResetReason::Subflow(Reset::MPTCP_SPECIFIC));
            return;
        }
        let arrival = path.subflow.segment(now, segment, &fields, &group);
        if arrival.established {
            self.established(now, slot, segment);
        }
        if arrival.undone {
            self.send.keep_on(slot);
        }
        if arrival.is_valid {
            self.options(now, slot, segment, arrival);
            self.data(slot);
        }
        self.note_ends(now);
    }

    /// Returns whether a segment has a DSS but not the keys: the third segment was lost or overtaken. The
    /// client will repeat the keys, with its first data if it has sent any.
    fn overtakes_keys(segment: &Segment) -> bool {
        let is_dss = |option| matches!(option, MptcpOption::Dss(_));
        capable(segment).is_none() && segment.options.iter().mptcp().any(is_dss)
    }

    /// Checks the HMAC of a segment that belongs to the handshake of MP_JOIN, which only an end with the keys
    /// can make. Returns true for all other segments.
    fn proves_itself(own: Key, peer: Option<Key>, path: &mut Path, segment: &Segment) -> bool {
        let Some(peer) = peer.filter(|_| path.subflow.is_handshake(segment)) else { return true };
        match path.handshake {
            Handshake::JoinSent { nonce } if segment.flags.has(Flags::SYN.and(Flags::ACK)) => {
                let Some(Join::SynAck { hmac, nonce: peer_nonce, backup, .. }) = join(segment) else {
                    return false;
                };
                if hmac != join_hmac_short(&peer.join_hmac(own, peer_nonce, nonce, Version::V1)) {
                    return false;
                }
                let hmac = own.join_hmac(peer, nonce, peer_nonce, Version::V1);
                let wait = anabranch_algo::rtt::RTO_INITIAL;
                path.backup.peer = backup;
                path.handshake = Handshake::JoinProven { hmac, due: Time::ZERO, wait };
                true
            }
            Handshake::JoinReceived { nonce, peer_nonce } if !segment.flags.has(Flags::SYN) => {
                if segment.flags.has(Flags::RST) {
                    return true;
                }
                let wanted = peer.join_hmac(own, peer_nonce, nonce, Version::V1);
                let proves = matches!(join(segment), Some(Join::Ack { hmac }) if hmac == wanted);
                if proves {
                    path.handshake = Handshake::Joined;
                }
                proves
            }
            _ => true,
        }
    }

    /// Handles the end of a subflow's TCP handshake, which this segment completes.
    fn established(&mut self, now: Time, slot: usize, segment: &Segment) {
        let Some(path) = self.paths[slot].as_mut() else { return };
        if path.handshake != Handshake::First {
            if path.handshake == Handshake::Joined {
                path.subflow.ack_now();
                self.up(now, slot);
            }
            return;
        }
        self.win(now, slot);
        let option = capable(segment).filter(|option| option.version == VERSION);
        let both = option.and_then(|option| option.sender_key.zip(Some(option)));
        match both {
            Some((key, option)) if self.mode == Mode::Offered => {
                // The client's third segment has both keys; the server's SYN/ACK has the server's key.
                let is_right = self.is_client || option.receiver_key == Some(self.keys.own);
                if is_right {
                    self.keys.learn(key);
                    self.keys.checksums |= self.is_client && option.flags & MpCapable::CHECKSUM != 0;
                    self.mode = Mode::Multipath { confirmed: false };
                } else {
                    self.fall_back();
                }
            }
            _ if self.mode == Mode::Offered => self.fall_back(),
            _ => {}
        }
        let multipath = self.is_multipath();
        self.reports.events.push_back(ConnectionEvent::Established { multipath });
        self.up(now, slot);
        if multipath {
            // The window of the SYN/ACK is not scaled. That of the third segment is read with its options.
            let window = if self.is_client { u64::from(segment.window) } else { 0 };
            self.send.set_window_end(1 + window);
            self.announce(now);
        } else {
            self.send.set_window_end(u64::MAX);
        }
    }

    /// Begins the connection on the first subflow whose SYN was answered, and gives up the other first
    /// subflows. The stack resets them if they are answered after all.
    fn win(&mut self, now: Time, slot: usize) {
        for other in (0..self.paths.len()).filter(|other| *other != slot) {
            let path = self.paths[other].take_if(|path| path.handshake == Handshake::First);
            self.reports.ended.extend(path.map(|path| path.ends()));
        }
        let Some(path) = self.paths[slot].as_mut().filter(|_| self.is_client) else { return };
        if self.addresses.won(path.subflow.local.ip()) && slot != 0 {
            path.backup.own = true;
            self.notices.add(now, Signal::Prio { backup: true }, Some(slot));
        }
    }

    fn up(&mut self, now: Time, slot: usize) {
        if let Some(path) = self.paths[slot].as_mut() {
            path.is_up = true;
            let (local, remote) = path.ends();
            self.reports.events.push_back(ConnectionEvent::SubflowUp { local, remote });
            self.leave(now);
        }
    }

    /// Has the peer told of this end's other addresses.
    pub(super) fn announce(&mut self, now: Time) {
        let Some(port) = self.ends().next().map(|(local, _)| local.port()) else { return };
        for own in self.addresses.announced() {
            let signal = Signal::Announce { id: own.id, address: SocketAddr::new(own.address, port) };
            self.notices.add(now, signal, None);
        }
    }

    /// Handles the options of Multipath TCP on a segment that belongs to a subflow.
    fn options(&mut self, now: Time, slot: usize, segment: &Segment, arrival: Arrival) {
        if !self.is_multipath() || segment.flags.has(Flags::SYN) {
            return;
        }
        self.confirm_join(now, slot, arrival);
        let mut has_signal = false;
        for option in segment.options.iter().mptcp() {
            has_signal |= !matches!(option, MptcpOption::Capable(MpCapable { data_bytes: None, .. }));
            match option {
                MptcpOption::Dss(dss) => {
                    self.dss(now, slot, segment, dss);
                }
                MptcpOption::Capable(capable) => {
                    // MP_CAPABLE stands for a DSS that acknowledges no data.
                    let window = self.paths[slot].as_ref().map_or(0, |path| path.subflow.window_of(segment));
                    self.send.set_window_end(1 + window);
                    self.capable_with_data(slot, capable);
                }
                MptcpOption::AddAddr(address) => self.peer_has_address(slot, address),
                MptcpOption::RemoveAddr(removed) => self.peer_lost_addresses(removed.address_ids),
                MptcpOption::Prio { backup, .. } => {
                    if let Some(path) = self.paths[slot].as_mut() {
                        path.backup.peer = backup;
                    }
                }
                MptcpOption::FastClose { key } if key == self.keys.own => {
                    for path in self.paths.iter_mut().flatten() {
                        path.abort(ResetReason::Subflow(Reset::UNSPECIFIED));
                    }
                    self.over(Some(SubflowError::Reset));
                }
                _ => {}
            }
        }
        self.confirm(slot, segment, has_signal);
        self.note_tail(slot);
    }

    /// Follows up the last segment of a silent subflow, which another subflow has delivered. If the peer
    /// still does not acknowledge this segment as data, earlier data is missing, and all of it is reinjected
    /// at once.
    fn note_tail(&mut self, slot: usize) {
        let Some(probe) = self.tail_probe else { return };
        if self.send.una() > probe.seq {
            self.tail_probe = None;
        } else if slot == probe.slot {
            // The subflow is not silent any more and repeats its own losses.
            self.tail_probe = None;
        } else if self.paths[slot].as_ref().is_some_and(|path| path.subflow.sender().is_idle()) {
            self.tail_probe = None;
            self.send.reinject_from(probe.slot);
        }
    }

    /// Completes a join: the peer has answered the third segment of the subflow's handshake.
    fn confirm_join(&mut self, now: Time, slot: usize, arrival: Arrival) {
        let Some(path) = self.paths[slot].as_mut() else { return };
        if matches!(path.handshake, Handshake::JoinProven { .. }) && !arrival.established {
            path.handshake = Handshake::Joined;
            self.up(now, slot);
        }
    }

    /// Decides whether options pass on the first subflow, and falls back to plain TCP if not (RFC 8684
    /// section 3.7).
    fn confirm(&mut self, slot: usize, segment: &Segment, has_signal: bool) {
        if self.mode != (Mode::Multipath { confirmed: false }) {
            return;
        }
        let acks_data = self.paths[slot].as_ref().is_some_and(|path| path.subflow.acked_offset() > 1);
        if has_signal {
            self.mode = Mode::Multipath { confirmed: true };
        } else if !segment.payload.is_empty()
            || segment.flags.has(Flags::FIN)
            || (acks_data && self.is_client)
        {
            self.fall_back();
        }
    }

    fn capable_with_data(&mut self, slot: usize, capable: MpCapable) {
        let (Some(data_bytes), Some(path)) = (capable.data_bytes, self.paths[slot].as_mut()) else { return };
        let wire_seq = self.keys.peer_base.wrapping_add(1);
        let check = capable.checksum.map(|checksum| Check { checksum, wire_seq, has_fin: false });
        let mapping = Mapping { start: 1, len: u64::from(data_bytes), data_seq: 1, check };
        path.mappings.insert(mapping, path.subflow.unread_offset());
    }

    fn dss(&mut self, now: Time, slot: usize, segment: &Segment, dss: Dss) {
        if let Some(ack) = dss.data_ack {
            let ack = counted(ack, self.keys.own_base, self.send.una());
            if self.send.acked(ack) {
                self.timers.retransmit_at = now + self.slowest_rto().times(2);
            }
            // A number beyond the data that was sent is no acknowledgement of it. A number below the first
            // one wraps around and is beyond it, too.
            if ack <= self.send.next() + 1 {
                let window = self.paths[slot].as_ref().map_or(0, |path| path.subflow.window_of(segment));
                self.send.set_window_end(ack + window);
            }
        }
        let Some(mapping) = dss.mapping else { return };
        self.mapping(slot, mapping, dss.data_fin);
    }

    fn mapping(&mut self, slot: usize, mapping: DssMapping, data_fin: bool) {
        let base = self.keys.peer_base;
        let data_seq = counted(mapping.data_seq, base, self.receive.next());
        let len = u64::from(mapping.data_bytes).saturating_sub(u64::from(data_fin));
        // A number more than 4 GiB ahead belongs to another connection or is forged.
        if data_seq.wrapping_sub(self.receive.next()) as i64 > i64::from(u32::MAX) {
            return;
        }
        if data_fin {
            self.receive.finish_at(data_seq.wrapping_add(len));
        }
        let Some(path) = self.paths[slot].as_mut() else { return };
        if data_fin {
            path.subflow.ack_now();
        }
        let expected = path.subflow.expected_offset();
        let start = anabranch_mptcp_wire::expand(mapping.subflow_seq, expected);
        let has_fin = data_fin;
        let wire_seq = base.wrapping_add(data_seq);
        let check = mapping.checksum.map(|checksum| Check { checksum, wire_seq, has_fin });
        path.mappings.insert(Mapping { start, len, data_seq, check }, path.subflow.unread_offset());
    }

    fn peer_has_address(&mut self, slot: usize, option: AddAddr) {
        let AddAddr::V1 { echo, address_id, address, port, hmac } = option else { return };
        if echo {
            self.notices.echoed(address_id);
            return;
        }
        let (Some(peer), Some(path)) = (self.keys.peer, self.paths[slot].as_mut()) else { return };
        if hmac != Some(peer.add_addr_hmac(self.keys.own, address_id, address, port)) {
            return;
        }
        let (has_port, port) = (port.is_some(), port.unwrap_or_else(|| path.subflow.remote.port()));
        let address = SocketAddr::new(address, port);
        path.signal(Signal::Echo { id: address_id, address, has_port });
        self.addresses.add_remote(address_id, address);
    }

    /// Forgets addresses that the peer has lost, and ends the subflows to them. If no other subflow would be
    /// left, they stay: if their addresses are really gone, they will time out.
    fn peer_lost_addresses(&mut self, ids: &[u8]) {
        for &id in ids {
            self.addresses.remove_remote(id);
        }
        let is_gone = |path: &Path| ids.contains(&path.remote_id);
        let mut paths = self.paths.iter().flatten();
        if paths.any(|path| path.carries_signals() && !is_gone(path)) {
            for path in self.paths.iter_mut().flatten().filter(|path| is_gone(path)) {
                path.abort(ResetReason::Subflow(Reset::UNSPECIFIED));
            }
        }
    }

    /// Moves the data that a subflow has delivered in order to its position in the connection's data.
    fn data(&mut self, slot: usize) {
        let (before, multipath) = (self.receive.readable(), self.is_multipath());
        let Some(path) = self.paths[slot].as_mut() else { return };
        let mut failed = None;
        while let Some((seq, payload)) = path.subflow.pop() {
            if multipath {
                let start = path.subflow.received_offset(seq);
                let receive = &mut self.receive;
                let mapped = path.mappings.map(start, payload, |at, part| receive.insert(at, part));
                failed = failed.or(mapped.err());
            } else {
                let next = self.receive.next();
                self.receive.insert(next, payload);
            }
        }
        if !multipath && path.subflow.is_peer_finished() && !self.receive.is_finished() {
            let next = self.receive.next();
            self.receive.finish_at(next);
        }
        if !multipath {
            let acked = path.subflow.acked_offset().min(self.send.next());
            self.send.acked(acked);
        }
        if let Some(error) = failed {
            self.unmapped(slot, error);
        }
        if self.receive.readable() > before {
            self.reports.events.push_back(ConnectionEvent::Readable);
        }
        if self.receive.is_finished() && !self.ending.peer_finished {
            self.ending.peer_finished = true;
            self.reports.events.push_back(ConnectionEvent::PeerFinished);
        }
    }

    /// Resets a subflow whose bytes have no mapping or a wrong checksum (RFC 8684 section 3.7).
    fn unmapped(&mut self, slot: usize, error: MapError) {
        let Some(path) = self.paths[slot].as_mut() else { return };
        path.abort(match error {
            MapError::Unmapped => ResetReason::Subflow(Reset::MIDDLEBOX),
            MapError::Checksum(wire_seq) => ResetReason::Checksum(wire_seq),
        });
    }

    /// Removes the subflow in `slot`, which has ended for this reason.
    fn remove(&mut self, slot: usize, error: Option<SubflowError>) {
        let Some(path) = self.paths[slot].take() else { return };
        let (local, remote) = path.ends();
        self.reports.ended.push((local, remote));
        self.notices.forget_slot(slot);
        self.send.forget_subflow(slot);
        if path.is_up {
            self.reports.events.push_back(ConnectionEvent::SubflowDown { last: path.report(), error });
        }
    }

    /// Makes a slot free for a join from the peer's address with this identifier: a subflow from there that
    /// does not answer gives way, because the address may have changed on the way (NAT).
    fn slot_for_join(&mut self, address_id: u8) -> Option<usize> {
        let is_silent = |path: &Path| path.remote_id == address_id && path.subflow.sender().timeouts() > 0;
        self.free_slot().or_else(|| {
            let slot = self.paths.iter().position(|path| path.as_ref().is_some_and(is_silent))?;
            self.remove(slot, Some(SubflowError::TimedOut));
            Some(slot)
        })
    }

    /// Removes subflows that have ended, and notices the end of the connection.
    pub(super) fn note_ends(&mut self, now: Time) {
        for slot in 0..self.paths.len() {
            let Some(path) = self.paths[slot].as_mut() else { continue };
            if self.mode != Mode::Plain && path.subflow.is_peer_finished() && path.subflow.can_send() {
                // The peer closes this subflow.
                path.subflow.close();
                self.send.reinject_from(slot);
            }
            let Some(path) = self.paths[slot].as_ref() else { continue };
            if !path.subflow.is_closed() {
                continue;
            }
            let (was_up, error, is_first) =
                (path.is_up, path.subflow.error(), path.handshake == Handshake::First);
            let ids = (path.local_id, path.remote_id);
            self.remove(slot, error);
            if error == Some(SubflowError::TimedOut) && !is_first {
                self.addresses.retry(ids.0, ids.1);
            }
            if let Some(wait) =
                self.config.rejoin_after.filter(|_| self.is_client && was_up && error.is_some())
            {
                self.timers.rejoin_at = self.timers.rejoin_at.min(now + wait);
            }
            if self.paths.iter().all(Option::is_none) {
                if let Some(wait) = self.config.rejoin_after.filter(|_| self.may_rejoin(was_up, error)) {
                    self.rejoin();
                    self.timers.rejoin_at = now + wait;
                    continue;
                }
                let is_regular = error.is_none() || self.is_finished();
                self.over(if is_regular { None } else { error });
            }
        }
        // The data level decides: when both directions are finished, the program need not wait for a subflow
        // that does not answer.
        let is_done = self.is_multipath() && self.is_finished();
        let mut paths = self.paths.iter().flatten().peekable();
        // Without a subflow, the connection is over already or waits for a join.
        if is_done || (paths.peek().is_some() && paths.all(|path| path.subflow.is_time_wait())) {
            self.over(None);
        }
    }
}
