//! One path: its window, the packets that were sent and arrived, and whether the other side answers.

use std::net::SocketAddr;

use anabranch_algo::control::Algorithm;
use anabranch_algo::subflow::Subflow;
use anabranch_algo::{Span, Time};

use super::health::PathHealth;
use super::packet::{ACK_RANGES_MAX, Ack};
use super::received::Received;

/// The number of packets after which an acknowledgement is sent at once.
const ACK_EVERY: u32 = 4;
/// The longest delay of an acknowledgement of fewer packets.
const ACK_DELAY: Span = Span::from_millis(5);
/// An address that has not answered a challenge gets at most this many times the bytes that came from it.
pub(super) const UNPROVEN_FACTOR: usize = 3;
/// The time between two challenges of an address.
const CHALLENGE_EVERY: Span = Span::from_millis(200);
/// The time after which a loss counts half.
const LOSS_HALF_LIFE: Span = Span::from_secs(2);

#[derive(Debug)]
pub(super) struct Path {
    pub(super) number: u8,
    /// The packets in flight. Each batch is a single packet with the number that is sent; its content is not
    /// kept.
    pub(super) subflow: Subflow<(), u8>,
    pub(super) address: SocketAddr,
    /// The rank: paths of lower rank are used first, and [`u8::MAX`] only if there is no other path.
    pub(super) rank: u8,

    /// The address that has answered a challenge.
    proven: Option<SocketAddr>,
    /// The number of bytes that may still be sent to an address that has not answered.
    budget: usize,
    pub(super) challenge: Option<[u8; 8]>,
    challenged_at: Option<Time>,
    pub(super) is_challenge_due: bool,
    pub(super) response: Option<[u8; 8]>,

    pub(super) received: Received,
    /// The number of packets that want an acknowledgement and have none yet.
    unacked: u32,
    pub(super) ack_at: Time,
    /// When the packet with the highest number arrived.
    newest_at: Time,
    /// The highest range of numbers in the last acknowledgement.
    pub(super) acked: std::ops::Range<u64>,

    pub(super) is_alive: bool,
    pub(super) heard_at: Option<Time>,
    /// Since when a packet that wants an answer has none.
    pub(super) waiting_since: Option<Time>,
    /// When a packet that wants an answer was last sent.
    pub(super) asked_at: Option<Time>,
    pub(super) is_probe_due: bool,

    arrived: u64,
    lost: u64,
    decayed_at: Time,
    pub(super) sent_bytes: u64,
    received_bytes: u64,
}

impl Path {
    pub(super) fn new(number: u8, address: SocketAddr, control: Algorithm, now: Time) -> Self {
        Self {
            number,
            subflow: Subflow::new(control),
            address,
            rank: 0,
            proven: Some(address),
            budget: 0,
            challenge: None,
            challenged_at: None,
            is_challenge_due: false,
            response: None,
            received: Received::default(),
            unacked: 0,
            ack_at: Time::NEVER,
            newest_at: now,
            acked: 0..0,
            is_alive: false,
            heard_at: None,
            waiting_since: None,
            asked_at: None,
            is_probe_due: false,
            arrived: 0,
            lost: 0,
            decayed_at: now,
            sent_bytes: 0,
            received_bytes: 0,
        }
    }

    /// Creates a path that the server learned from a packet from this address. It is used at once, within the
    /// allowance of an unproven address.
    pub(super) fn of_client(number: u8, address: SocketAddr, control: Algorithm, now: Time) -> Self {
        Self { proven: None, is_alive: true, ..Self::new(number, address, control, now) }
    }

    /// Returns how many bytes may be sent to the path's address.
    pub(super) fn allowance(&self) -> usize {
        if self.proven == Some(self.address) { usize::MAX } else { self.budget }
    }

    /// Counts a packet of this many bytes that is sent.
    pub(super) const fn note_sent(&mut self, bytes: usize) {
        self.sent_bytes += bytes as u64;
        self.budget = self.budget.saturating_sub(bytes);
    }

    /// Notes a packet with a new number. `challenge` makes a new challenge.
    pub(super) fn note_received(
        &mut self,
        now: Time,
        from: SocketAddr,
        number: u64,
        bytes: usize,
        challenge: impl FnOnce() -> [u8; 8],
    ) {
        self.received_bytes += bytes as u64;
        self.heard_at = Some(now);
        let is_newest = number >= self.received.next();
        if number > self.received.next() {
            // A packet is missing, so the other side is told soon.
            self.ack_at = self.ack_at.min(now);
        }
        self.received.note(number);
        if is_newest {
            self.newest_at = now;
            if from != self.address {
                (self.address, self.budget) = (from, 0);
                (self.challenge, self.challenged_at) = (None, None);
            }
        }
        if self.proven != Some(self.address) && from == self.address {
            self.budget = self.budget.saturating_add(UNPROVEN_FACTOR * bytes);
            if self.challenged_at.is_none_or(|at| now.since(at) >= CHALLENGE_EVERY) {
                let _ = self.challenge.get_or_insert_with(challenge);
                (self.is_challenge_due, self.challenged_at) = (true, Some(now));
            }
        }
    }

    /// Takes the answer to a challenge from this address.
    pub(super) fn note_response(&mut self, from: SocketAddr, bytes: [u8; 8]) {
        if from == self.address && self.challenge == Some(bytes) {
            self.proven = Some(from);
            (self.challenge, self.is_challenge_due) = (None, false);
        }
    }

    /// Notes that a packet wants an acknowledgement. With `at_once`, it is not delayed.
    pub(super) fn note_asked(&mut self, now: Time, at_once: bool) {
        self.unacked += 1;
        let wait = if at_once || self.unacked >= ACK_EVERY { Span::ZERO } else { ACK_DELAY };
        self.ack_at = self.ack_at.min(now + wait);
    }

    /// Returns the acknowledgement if packets want one, and counts it as sent.
    pub(super) fn take_ack(&mut self, now: Time) -> Option<Ack> {
        if self.unacked == 0 {
            self.ack_at = Time::NEVER;
            return None;
        }
        (self.unacked, self.ack_at) = (0, Time::NEVER);
        Some(Ack {
            next: self.received.next() as u32,
            delay: now.since(self.newest_at),
            ranges: self.received.ranges(ACK_RANGES_MAX),
        })
    }

    pub(super) const fn has_ack(&self) -> bool {
        self.unacked > 0
    }

    /// Counts packets that arrived and packets that were lost.
    pub(super) fn count(&mut self, now: Time, arrived: u64, lost: u64) {
        while now.since(self.decayed_at) >= LOSS_HALF_LIFE {
            (self.arrived, self.lost) = (self.arrived / 2, self.lost / 2);
            let is_long = now.since(self.decayed_at) >= LOSS_HALF_LIFE.times(64);
            self.decayed_at = if is_long { now } else { self.decayed_at + LOSS_HALF_LIFE };
        }
        (self.arrived, self.lost) = (self.arrived + arrived, self.lost + lost);
    }

    pub(super) fn health(&self) -> PathHealth {
        let rtt = self.subflow.rtt();
        let known = |span: Span| rtt.has_sample().then_some(span);
        PathHealth {
            path: self.number,
            is_alive: self.is_alive,
            srtt: known(rtt.srtt()),
            min_rtt: known(rtt.min()),
            loss: self.lost as f64 / (self.arrived + self.lost).max(1) as f64,
            window_packets: self.subflow.cwnd(),
            sent_bytes: self.sent_bytes,
            received_bytes: self.received_bytes,
        }
    }
}
