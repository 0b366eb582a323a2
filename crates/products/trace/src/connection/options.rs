//! Applies the options of Multipath TCP to a connection.

use anabranch_mptcp_wire::keys::join_hmac_short;
use anabranch_mptcp_wire::{AddAddr, Dss, DssMapping, Join, Key, MpCapable, MptcpOption};

use super::{Connection, Fallback};
use crate::half::Mapping;
use crate::handover::Cause;
use crate::journal::What;
use crate::segment::{Flags, Segment};
use crate::subflow::Side;

/// The length of an infinite mapping in bytes, more than any connection carries.
pub(super) const INFINITE: u64 = 1 << 62;

impl Connection {
    /// Takes an option. Returns whether it maps data or acknowledges it.
    pub(super) fn option(
        &mut self,
        now: u64,
        number: u16,
        sender: Side,
        segment: &Segment<'_>,
        option: &MptcpOption<'_>,
    ) -> bool {
        match option {
            MptcpOption::Capable(capable) => return self.capable(number, sender, segment, capable),
            MptcpOption::Join(join) => self.joining(now, number, sender, join),
            MptcpOption::Dss(dss) => {
                self.dss(now, number, sender, segment, dss);
                return true;
            }
            MptcpOption::AddAddr(address) => self.add_addr(now, number, sender, address),
            MptcpOption::RemoveAddr(removed) => self.remove_addr(now, number, sender, removed.address_ids),
            MptcpOption::Prio { backup, address_id } => {
                self.prio(now, number, sender, *backup, *address_id);
            }
            MptcpOption::Fail { .. } => self.event(now, number, sender, What::Fail),
            MptcpOption::FastClose { .. } => self.event(now, number, sender, What::FastClose),
            MptcpOption::Reset(reset) => {
                if let Some(subflow) = self.subflows.get_mut(usize::from(number)) {
                    subflow.reset_reason = Some(reset.reason);
                }
            }
            MptcpOption::Unknown { .. } => {}
        }
        false
    }

    fn capable(&mut self, number: u16, sender: Side, segment: &Segment<'_>, capable: &MpCapable) -> bool {
        let agreement = &mut self.agreement;
        if agreement.fallback.is_some() || number != 0 {
            return false;
        }
        agreement.version = Some(capable.version);
        agreement.checksums.required |= capable.flags & MpCapable::CHECKSUM != 0;
        let keys = [(sender, capable.sender_key), (sender.peer(), capable.receiver_key)];
        for (side, key) in keys {
            let Some(key) = key else { continue };
            self.learn(side, key);
        }
        // The first data of version 1 comes with MP_CAPABLE in place of a DSS.
        let Some(bytes) = capable.data_bytes.filter(|bytes| *bytes > 0) else {
            return capable.data_bytes.is_some();
        };
        let Some(data_seq) = self.streams[sender.index()].first else { return true };
        let Some(subflow) = self.subflows.get_mut(usize::from(number)) else { return true };
        let half = subflow.half(sender);
        let seq = half.first().unwrap_or_else(|| half.number(segment.seq));
        let is_new = half.map(Mapping { seq, data_seq, bytes: u64::from(bytes) });
        if let Some(checksum) = capable.checksum.filter(|_| is_new) {
            let range = (seq, seq + u64::from(bytes));
            let counts = &mut self.agreement.checksums;
            subflow.checksums[sender.index()].begin(range, (data_seq, 1, bytes), checksum, counts);
        }
        true
    }

    fn learn(&mut self, side: Side, key: Key) {
        let agreement = &mut self.agreement;
        if agreement.keys[side.index()] == Some(key) {
            return;
        }
        let Some(version) = agreement.hash() else { return };
        agreement.keys[side.index()] = Some(key);
        agreement.new_tokens.push(key.token(version));
        let first = key.initial_data_seq(version).wrapping_add(1);
        self.streams[side.index()].first.get_or_insert(first);
    }

    fn joining(&mut self, now: u64, number: u16, sender: Side, join: &Join) {
        let (version, keys) = (self.agreement.hash(), self.agreement.keys);
        let Some(subflow) = self.subflows.get_mut(usize::from(number)) else { return };
        let (own, peer) = (sender.index(), sender.peer().index());
        let both = || Some((version?, keys[own]?, keys[peer]?));
        let joining = &mut subflow.joining;
        let mut check = |is_right: bool| {
            joining.hmac_is_right = Some(is_right && joining.hmac_is_right.unwrap_or(true));
        };
        match *join {
            Join::Syn { backup, address_id, nonce, .. } => {
                joining.nonces[own] = Some(nonce);
                subflow.address_ids[own] = Some(address_id);
                subflow.backup |= backup;
                self.event(now, number, sender, What::Join { backup });
            }
            Join::SynAck { backup, address_id, hmac, nonce } => {
                if let (Some((version, key, other)), Some(peer_nonce)) = (both(), joining.nonces[peer]) {
                    let expected = key.join_hmac(other, nonce, peer_nonce, version);
                    check(join_hmac_short(&expected) == hmac);
                }
                joining.nonces[own] = Some(nonce);
                subflow.address_ids[own] = Some(address_id);
                subflow.backup |= backup;
            }
            Join::Ack { hmac } => {
                if let (Some((version, key, other)), [Some(_), Some(_)]) = (both(), joining.nonces) {
                    let nonces = (joining.nonces[own].unwrap_or(0), joining.nonces[peer].unwrap_or(0));
                    check(key.join_hmac(other, nonces.0, nonces.1, version) == hmac);
                }
            }
        }
    }

    fn dss(&mut self, now: u64, number: u16, sender: Side, segment: &Segment<'_>, dss: &Dss) {
        // The handshake is not in the capture, and a DSS does not show the version: version 1 is assumed.
        self.agreement.version.get_or_insert(1);
        if let Some(ack) = dss.data_ack {
            let stream = &self.streams[sender.peer().index()];
            let near = stream.first.unwrap_or(0).wrapping_add(stream.acked);
            self.data_acked(now, sender.peer(), ack.near(near));
        }
        if dss.data_fin {
            self.event(now, number, sender, What::DataFin);
        }
        // A DATA_FIN alone maps no byte of the subflow.
        let Some(mapping) = dss.mapping.filter(|mapping| mapping.subflow_seq != 0 || !dss.data_fin) else {
            return;
        };
        if mapping.is_infinite() && self.agreement.fallback.is_none() {
            self.fall_back(now, number, sender, Fallback::Infinite);
        }
        self.mapping(number, sender, segment, &mapping, dss.data_fin);
    }

    fn mapping(
        &mut self,
        number: u16,
        sender: Side,
        segment: &Segment<'_>,
        mapping: &DssMapping,
        data_fin: bool,
    ) {
        let stream = &mut self.streams[sender.index()];
        let data_seq = match stream.first {
            Some(_) => mapping.data_seq.near(stream.near()),
            None => mapping.data_seq.near(0),
        };
        stream.first.get_or_insert(data_seq);
        let Some(subflow) = self.subflows.get_mut(usize::from(number)) else { return };
        let half = &mut subflow.halves[sender.index()];
        let bytes = match mapping.data_bytes {
            0 => INFINITE,
            bytes => u64::from(bytes) - u64::from(data_fin),
        };
        if let Some(pam16) = self.pam16.as_mut().filter(|_| segment.payload_bytes > 0) {
            pam16[sender.index()].mapping(number, data_seq, u64::from(mapping.data_bytes));
        }
        let here = half.number(segment.seq);
        let seq = match half.isn {
            Some(isn) => {
                let wire = (isn as u32).wrapping_add(mapping.subflow_seq);
                half.number(wire)
            }
            None => half.known(data_seq, bytes).map_or(here, |known| known.seq),
        };
        let is_new = half.map(Mapping { seq, data_seq, bytes });
        if let Some(checksum) = mapping.checksum.filter(|_| is_new) {
            let numbers = (data_seq, mapping.subflow_seq, mapping.data_bytes);
            let counts = &mut self.agreement.checksums;
            subflow.checksums[sender.index()].begin((seq, seq + bytes), numbers, checksum, counts);
        }
    }

    fn add_addr(&mut self, now: u64, number: u16, sender: Side, address: &AddAddr) {
        let keys = self.agreement.keys;
        let what = match *address {
            AddAddr::V1 { echo: true, address_id, .. } => What::AddAddrEcho { address_id },
            AddAddr::V1 { address_id, address, port, hmac, .. } => {
                let (own, peer) = (keys[sender.index()], keys[sender.peer().index()]);
                let expected =
                    own.zip(peer).map(|(own, peer)| own.add_addr_hmac(peer, address_id, address, port));
                let hmac_is_right = hmac.zip(expected).map(|(hmac, expected)| hmac == expected);
                What::AddAddr { address_id, address, port, hmac_is_right }
            }
            AddAddr::V0 { address_id, address, port } => {
                What::AddAddr { address_id, address, port, hmac_is_right: None }
            }
        };
        self.event(now, number, sender, what);
    }

    fn remove_addr(&mut self, now: u64, number: u16, sender: Side, ids: &[u8]) {
        for subflow in &self.subflows {
            // The first subflow's addresses have the identifier 0.
            let default = (subflow.number == 0).then_some(0);
            let id = subflow.address_ids[sender.index()].or(default);
            if id.is_some_and(|id| ids.contains(&id)) {
                self.handovers.leave(subflow, Cause::RemoveAddr, now);
            }
        }
        self.event(now, number, sender, What::RemoveAddr { address_ids: ids.to_vec() });
    }

    /// Takes an MP_PRIO. Version 0 may name an address; without one, the subflow that carries the option is
    /// meant.
    fn prio(&mut self, now: u64, number: u16, sender: Side, backup: bool, address_id: Option<u8>) {
        for subflow in &mut self.subflows {
            let is_meant = match address_id {
                Some(id) => subflow.address_ids[sender.index()] == Some(id),
                None => subflow.number == number,
            };
            if is_meant {
                subflow.backup = backup;
                if backup {
                    self.handovers.leave(subflow, Cause::Prio, now);
                }
            }
        }
        self.event(now, number, sender, What::Prio { backup });
    }
}

/// Returns the token of a SYN that asks to join a connection, or `None` for other segments.
pub(crate) fn join_token(segment: &Segment<'_>) -> Option<u32> {
    if !segment.has(Flags::SYN) || segment.has(Flags::ACK) {
        return None;
    }
    anabranch_mptcp_wire::TcpOptions::new(segment.options).mptcp().find_map(|option| match option {
        MptcpOption::Join(Join::Syn { token, .. }) => Some(token),
        _ => None,
    })
}
