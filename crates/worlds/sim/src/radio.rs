//! Implements the sender of a radio link: attempts, retries and what a receiver sees of them.
//!
//! An attempt to send a frame may fail. The station then contends for the medium again, with a contention
//! window twice as long: it wins half as often at each retry (802.11's DCF). After the last retry the packet
//! is lost. Each frame that arrives has a retry bit and a sequence number, by which a receiver can tell how
//! many attempts fail ([`Frame`]).
//!
//! One station sends to several receivers from one queue, and attempts to a far one fail more often
//! ([`Receiver`]).

use crate::rng::{Rng, RngSeed};
use crate::{MediumId, Packet};
use anabranch_algo::{Rate, Time};
use std::collections::{BTreeMap, VecDeque};

/// The most retries of a packet: the long retry limit of 802.11.
pub const RETRIES: u32 = 7;
/// The most frames that are kept until somebody reads them; with more, the oldest goes.
const FRAMES_MAX: usize = 4_096;

/// The configuration of a link that is a station of a medium.
#[derive(Clone, Debug, PartialEq)]
pub struct Station {
    /// The medium.
    pub medium: MediumId,
    /// The weight in the contention: a station of weight 4 wins four times as often as one of weight 1.
    pub weight: u32,
    /// The probability that an attempt fails.
    pub loss: f64,
    /// The most retries of a packet.
    pub retries: u32,
    /// Receivers for which other numbers hold.
    pub receivers: Vec<Receiver>,
}

/// A receiver of a station.
#[derive(Clone, Debug, PartialEq)]
pub struct Receiver {
    /// The [flow](Packet::flow) that goes to it.
    pub flow: u32,
    /// The probability that an attempt to it fails.
    pub loss: f64,
    /// The rate of frames to it; `None` for that of the link.
    pub rate: Option<Rate>,
}

/// A frame that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The time at which its last bit was sent.
    pub at: Time,
    /// The [flow](Packet::flow) of its packet.
    pub flow: Option<u32>,
    /// The bit rate at which it was sent; `None` if that is unlimited.
    pub rate: Option<Rate>,
    /// The sequence number, which counts the packets to this receiver.
    pub sequence: u16,
    /// Whether an earlier attempt failed.
    pub retry: bool,
}

impl Station {
    /// Makes a station whose attempts never fail.
    #[must_use]
    pub const fn new(medium: MediumId, weight: u32) -> Self {
        Self { medium, weight, loss: 0.0, retries: RETRIES, receivers: Vec::new() }
    }

    fn receiver(&self, flow: Option<u32>) -> Option<&Receiver> {
        self.receivers.iter().find(|receiver| Some(receiver.flow) == flow)
    }
}

/// The end of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    Arrived,
    Again,
    Lost,
}

/// The state of a station.
#[derive(Clone, Debug)]
pub(crate) struct Radio {
    rng: Rng,
    /// Whether the station keeps its packets.
    pub(crate) held: bool,
    /// The failed attempts of the packet at the head.
    failed: u32,
    sequences: BTreeMap<Option<u32>, u16>,
    frames: VecDeque<Frame>,
}

impl Radio {
    pub(crate) fn new(rng_seed: RngSeed) -> Self {
        let rng = rng_seed.stream("attempts");
        Self { rng, held: false, failed: 0, sequences: BTreeMap::new(), frames: VecDeque::new() }
    }

    /// Returns the failed attempts of the packet at the head.
    pub(crate) const fn failed(&self) -> u32 {
        self.failed
    }

    /// Forgets the attempts of the packet at the head, because that was dropped.
    pub(crate) const fn abort(&mut self) {
        self.failed = 0;
    }

    /// Returns the bytes that take as long at the `rate` of the link as the packet takes to its receiver.
    pub(crate) fn airtime_bytes(station: &Station, packet: &impl Packet, rate: Option<Rate>) -> u32 {
        let own = station.receiver(packet.flow()).and_then(|receiver| receiver.rate);
        let (Some(own), Some(rate)) = (own, rate) else { return packet.bytes() };
        let scaled = u64::from(packet.bytes()).saturating_mul(rate.as_bytes());
        u32::try_from(scaled / own.as_bytes().max(1)).unwrap_or(u32::MAX)
    }

    /// Decides how an attempt that ended at `at` went.
    pub(crate) fn attempted(
        &mut self,
        at: Time,
        station: &Station,
        packet: &impl Packet,
        rate: Option<Rate>,
    ) -> Attempt {
        let flow = packet.flow();
        let receiver = station.receiver(flow);
        let loss = receiver.map_or(station.loss, |receiver| receiver.loss);
        let rate = receiver.and_then(|receiver| receiver.rate).or(rate);
        let fails = self.rng.chance(loss);
        if fails && self.failed < station.retries {
            self.failed += 1;
            return Attempt::Again;
        }
        let sequence = self.sequences.entry(flow).or_default();
        let frame = Frame { at, flow, rate, sequence: *sequence, retry: self.failed > 0 };
        *sequence = sequence.wrapping_add(1);
        self.failed = 0;
        if fails {
            return Attempt::Lost;
        }
        if self.frames.len() >= FRAMES_MAX {
            self.frames.pop_front();
        }
        self.frames.push_back(frame);
        Attempt::Arrived
    }

    /// Takes the frames that have arrived.
    pub(crate) fn take_frames(&mut self) -> impl Iterator<Item = Frame> {
        self.frames.drain(..)
    }
}
