//! Simulates a source: a publisher, its bytes, and its faults.

use std::net::SocketAddr;
use std::ops::Range;

use anabranch_algo::{Machine, Output, Time};
use anabranch_mmtp::id::{BLOCK_BYTES, ContentId};
use anabranch_mmtp::publisher::{Publisher, ReplyBody};
use anabranch_mmtp::wire;
use anabranch_sim::Rng;

use crate::content::{Content, MemoryStore, fill};

/// The way in which a source misbehaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Misbehaviour {
    /// The source behaves correctly.
    #[default]
    Honest,
    /// Flips eight bytes of the content at regular distances.
    Flip {
        /// Bytes from one fault to the next.
        every: u64,
    },
    /// Serves bytes that do not match the source's hashes, as after an update in place.
    Stale,
    /// Serves random bytes.
    Random,
    /// Answers nothing at all.
    Unresponsive,
    /// Sends everything three times.
    Triplicate,
    /// Sends wrong hashes.
    WrongHashes,
    /// Sends packets of random bytes, broken copies of correct packets, and sometimes the correct packet.
    Garbage,
}

/// Number of bytes that [`Misbehaviour::Flip`] flips at each fault.
const FLIPPED: usize = 8;

/// A packet that a source sends.
pub(crate) struct Sent {
    pub(crate) bytes: Vec<u8>,
    pub(crate) ect: bool,
}

pub(crate) struct SimSource {
    publisher: Publisher<MemoryStore>,
    misbehaviour: Misbehaviour,
    rng: Rng,
    pub(crate) alive: bool,
    /// Whether the source's host reports a dead source (ICMP port unreachable).
    pub(crate) unreachable: bool,
}

impl SimSource {
    pub(crate) fn new(store: MemoryStore, misbehaviour: Misbehaviour, rng: Rng) -> Self {
        let mut new = Self {
            publisher: Publisher::new(store, [0; 32]),
            misbehaviour,
            rng,
            alive: true,
            unreachable: false,
        };
        new.restart();
        new
    }

    /// Restarts the source as a new process: alive, with a new secret and without memory.
    pub(crate) fn restart(&mut self) {
        let mut secret = [0; 32];
        fill(&mut self.rng, &mut secret);
        self.publisher = Publisher::new(self.publisher.store().clone(), secret);
        self.alive = true;
    }

    /// Answers `bytes` with zero or more packets.
    pub(crate) fn answer(&mut self, now: Time, from: SocketAddr, bytes: &[u8], mut send: impl FnMut(Sent)) {
        if !self.alive || self.misbehaviour == Misbehaviour::Unresponsive {
            return;
        }
        self.publisher.handle(now, (from.into(), bytes));
        loop {
            let reply = match self.publisher.poll(now) {
                Output::Wait(_) => break,
                Output::Send(reply) => reply,
                Output::Event(never) => match never {},
            };
            debug_assert_eq!(reply.to.address, from, "a source answers only who asked");
            let ect = reply.ect;
            for bytes in self.packets(reply.body) {
                let copies = if self.misbehaviour == Misbehaviour::Triplicate { 3 } else { 1 };
                for bytes in std::iter::repeat_n(bytes, copies) {
                    send(Sent { bytes, ect });
                }
            }
        }
    }

    /// Returns the packets of a reply, as a real publisher would send them.
    fn packets(&mut self, body: ReplyBody) -> Vec<Vec<u8>> {
        let Self { publisher, misbehaviour, rng, .. } = self;
        let store = publisher.store();
        let find = |id: &ContentId| store.find(id).expect("a publisher answers for what it has");
        let wrong = *misbehaviour == Misbehaviour::WrongHashes && matches!(body, ReplyBody::Hashes { .. });
        let read = |id: &ContentId, range: Range<usize>| {
            let (content, block) = (find(id), range.start / BLOCK_BYTES);
            let at = range.start % BLOCK_BYTES;
            let mut payload = content.block(block as u64)[at..at + range.len()].to_vec();
            spoil(*misbehaviour, rng, content, range.start as u64, &mut payload);
            payload
        };
        let mut packets = body.packets(|id| find(id).outboard(), read);
        if wrong && let Some(last_cv) = packets.iter_mut().find_map(|packet| packet.last_chunk_mut::<32>()) {
            last_cv[0] ^= 1;
        }
        if *misbehaviour == Misbehaviour::Garbage {
            packets.iter_mut().for_each(|packet| garble(rng, packet));
        }
        packets
    }
}

/// Falsifies the bytes that begin at `at`.
fn spoil(misbehaviour: Misbehaviour, rng: &mut Rng, content: &Content, at: u64, payload: &mut [u8]) {
    match misbehaviour {
        Misbehaviour::Flip { every } => {
            let every = every.max(1);
            let end = at + payload.len() as u64;
            let mut fault = at.saturating_sub(FLIPPED as u64 - 1).div_ceil(every) * every;
            while fault < end {
                let span = fault.max(at)..(fault + FLIPPED as u64).min(end);
                payload[(span.start - at) as usize..(span.end - at) as usize]
                    .iter_mut()
                    .for_each(|b| *b ^= 0xff);
                fault += every;
            }
        }
        // This is deterministic, so that repeated requests get equal wrong bytes.
        Misbehaviour::Stale => fill(&mut Rng::new(at ^ content.id().length), payload),
        Misbehaviour::Random => fill(rng, payload),
        Misbehaviour::Honest
        | Misbehaviour::Unresponsive
        | Misbehaviour::Triplicate
        | Misbehaviour::WrongHashes
        | Misbehaviour::Garbage => {}
    }
}

/// Corrupts a packet, three times out of four.
fn garble(rng: &mut Rng, packet: &mut Vec<u8>) {
    match rng.below(4) {
        0 => {
            packet.resize(rng.below(1_400) as usize, 0);
            fill(rng, packet);
        }
        1 => packet.truncate(rng.below(packet.len() as u64 + 1) as usize),
        // Flip a bit in the header; a flip in the payload is `Misbehaviour::Flip`.
        2 if !packet.is_empty() => {
            let bit = rng.below(packet.len().min(wire::DATA_HEADER) as u64 * 8);
            packet[(bit / 8) as usize] ^= 1 << (bit % 8);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flip_is_the_same_however_the_bytes_are_cut() {
        let content = Content::random(3, 50_000);
        let whole: Vec<u8> = (0..4).flat_map(|g| content.block(g).to_vec()).collect();
        let (misbehaviour, mut rng) = (Misbehaviour::Flip { every: 1_000 }, Rng::new(1));
        let mut at_once = whole.clone();
        spoil(misbehaviour, &mut rng, &content, 0, &mut at_once);
        for size in [1, 7, 8, 997, 1_366] {
            let mut pieces = whole.clone();
            for (i, piece) in pieces.chunks_mut(size).enumerate() {
                spoil(misbehaviour, &mut rng, &content, (i * size) as u64, piece);
            }
            assert!(pieces == at_once, "cut every {size}");
        }
        let wrong = whole.iter().zip(&at_once).filter(|(a, b)| a != b).count();
        assert_eq!(wrong, 50 * FLIPPED);
    }
}
