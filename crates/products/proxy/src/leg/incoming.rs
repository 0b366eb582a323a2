//! Takes the packets that arrive.

use std::net::SocketAddr;

use anabranch_algo::Time;
use bytes::Bytes;
use ring::hmac;

use super::liveness::PROBE_UNANSWERED;
use super::packet::{Datagram, Frame, Frames, Header};
use super::path::Path;
use super::received::{Received, WINDOW};
use super::seal::{FORGED_MAX, SECRET_BYTES};
use super::{Event, Leg, Mode, Refused};
use crate::trunk::Side;

/// The most bytes of all flows that may wait for earlier datagrams.
pub(super) const HELD_BYTES_MAX: usize = 16 * 1024 * 1024;

impl Leg {
    /// Takes a packet from this address. The packet is decrypted in place.
    ///
    /// # Errors
    /// If the packet was dropped; the error is the reason, which is also counted.
    pub fn receive(&mut self, now: Time, from: SocketAddr, packet: &mut [u8]) -> Result<(), Refused> {
        let taken = self.take_packet(now, from, packet);
        match taken {
            Err(Refused::Forged) => self.counters.forged += 1,
            Err(Refused::Replayed) => self.counters.replayed += 1,
            Err(Refused::Malformed) => self.counters.malformed += 1,
            Ok(()) => {}
        }
        taken
    }

    /// Whether so many packets were forged that the keys must not be used any more.
    #[must_use]
    pub const fn is_worn_out(&self) -> bool {
        self.counters.forged >= FORGED_MAX
    }

    fn take_packet(&mut self, now: Time, from: SocketAddr, packet: &mut [u8]) -> Result<(), Refused> {
        let bytes = packet.len();
        let header = Header::decode(packet).ok_or(Refused::Malformed)?;
        if header.association != self.association || self.is_worn_out() {
            return Err(Refused::Forged);
        }
        let place = self.paths.binary_search_by_key(&header.path, |path| path.number);
        let nothing = Received::default();
        let received = place.map_or(&nothing, |i| &self.paths[i].received);
        let number = received.expand(header.number, 32);
        // This is checked before decryption, so that repeated packets cost little.
        if !received.is_new(number) {
            return Err(Refused::Replayed);
        }
        let opened = self.protection.open(header.path, number, packet).ok_or(Refused::Forged)?;
        let frames: Vec<Frame<'_>> =
            Frames::new(opened).collect::<Result<_, _>>().map_err(|_| Refused::Malformed)?;
        let i = match place {
            Ok(i) => i,
            // Only the client makes paths.
            Err(_) if self.side == Side::Client => return Err(Refused::Forged),
            Err(i) => {
                self.insert_path(Path::of_client(header.path, from, self.settings.control, now));
                self.events.push_back(Event::Path { path: header.path, is_alive: true });
                i
            }
        };
        let challenge = challenge(&self.secret, &mut self.challenges);
        self.paths[i].note_received(now, from, number, bytes, challenge);
        self.take_frames(now, i, from, frames);
        self.release(now);
        Ok(())
    }

    fn take_frames(&mut self, now: Time, i: usize, from: SocketAddr, frames: Vec<Frame<'_>>) {
        let (mut asks, mut at_once) = (false, false);
        for frame in frames {
            match frame {
                Frame::Ack(ack) => {
                    self.on_ack(now, i, &ack);
                    continue;
                }
                Frame::Probe(rank) => {
                    at_once = true;
                    if self.side == Side::Server {
                        self.paths[i].rank = rank;
                    }
                }
                Frame::Challenge(bytes) => {
                    at_once = true;
                    self.paths[i].response = Some(bytes);
                }
                Frame::Response(bytes) => self.paths[i].note_response(from, bytes),
                Frame::Datagram(datagram) => self.on_datagram(now, i, datagram),
            }
            asks = true;
        }
        let path = &mut self.paths[i];
        if asks {
            path.note_asked(now, at_once);
        }
        // The client's packet arrived; a probe shows whether packets to the client arrive too.
        let may_ask = path.asked_at.is_none_or(|at| now.since(at) >= PROBE_UNANSWERED);
        path.is_probe_due |= !path.is_alive && may_ask && self.side == Side::Server;
    }

    fn on_datagram(&mut self, now: Time, i: usize, datagram: Datagram<'_>) {
        self.traffic_at = Some(now);
        let Datagram { mode, flow: name, number: low, peer, bytes } = datagram;
        let path = self.paths[i].number;
        let is_known = self.flows.contains_key(&name);
        if self.side == Side::Client && !is_known {
            self.counters.strays += 1;
            return;
        }
        let side = self.side;
        let Some(flow) = self.flow(name, mode) else {
            self.counters.strays += 1;
            return;
        };
        if side == Side::Server {
            flow.mode = mode;
        }
        let mut out = Vec::new();
        let number = flow.received.expand(low, 24);
        let is_far = number + WINDOW < flow.received.next();
        if !std::mem::replace(&mut flow.has_received, true) || is_far {
            // The numbers are far from the expected ones, so the other side has started the flow anew.
            flow.received = Received::default();
            flow.reorder.restart(number, &mut out);
        }
        let (is_copy, mut is_late) = (!flow.received.is_new(number), false);
        if !is_copy {
            flow.received.note(number);
            let item = (peer, Bytes::copy_from_slice(bytes));
            if mode == Mode::Aggregate {
                is_late = flow.reorder.insert(now, path, number, item, &mut out);
            } else {
                flow.reorder.pass(number, &mut out);
                out.push(item);
            }
        }
        let is_holding = flow.reorder.held_bytes() > 0;
        self.counters.copies += u64::from(is_copy);
        self.counters.late += u64::from(is_late);
        if is_holding {
            self.holding.insert(name);
        }
        self.hand_out(name, out);
    }

    fn hand_out(&mut self, flow: u32, items: Vec<super::reorder::Item>) {
        let event = |(peer, bytes)| Event::Datagram { flow, peer, bytes };
        self.events.extend(items.into_iter().map(event));
    }

    /// Passes on the datagrams that have waited long enough for earlier ones.
    pub(super) fn release(&mut self, now: Time) {
        if self.holding.is_empty() {
            return;
        }
        let hold = self.hold();
        let alive: Vec<u8> = self.paths.iter().filter(|path| path.is_alive).map(|path| path.number).collect();
        let names: Vec<u32> = self.holding.iter().copied().collect();
        let mut held = 0;
        for name in names {
            let mut out = Vec::new();
            if let Some(flow) = self.flows.get_mut(&name) {
                flow.reorder.release(now, hold, alive.iter().copied(), &mut out);
                held += flow.reorder.held_bytes();
                if held > HELD_BYTES_MAX {
                    held -= flow.reorder.held_bytes();
                    flow.reorder.pass(u64::MAX - 1, &mut out);
                    flow.has_received = false;
                }
            }
            if self.flows.get(&name).is_none_or(|flow| flow.reorder.held_bytes() == 0) {
                self.holding.remove(&name);
            }
            self.hand_out(name, out);
        }
    }
}

/// Makes a challenge that only this end can know.
fn challenge<'a>(secret: &'a [u8; SECRET_BYTES], made: &'a mut u64) -> impl FnOnce() -> [u8; 8] + use<'a> {
    move || {
        *made += 1;
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
        let tag = hmac::sign(&key, &made.to_be_bytes());
        tag.as_ref().first_chunk().copied().unwrap_or_default()
    }
}
