//! The packets that were asked for on one path: which have arrived, which are lost, and which are
//! outstanding.
//!
//! One request packet asks for a *batch* of up to 64 packets. Each packet has a sequence number of its path,
//! in the order in which the source sends them. A packet is declared lost when a packet that was asked for
//! later on the same path has arrived and
//! * its sequence number is at least the packet threshold below the highest that arrived (RFC 9002 section
//!   6.1.1), or
//! * it was asked for longer ago than 9/8 of the round-trip time (RFC 9002 section 6.1.2; RFC 8985 section
//!   6.2).
//!
//! Both thresholds adapt to the path. A packet that arrives after it was declared lost raises the packet
//! threshold above its distance. It widens the time threshold by 1/8 RTT, once a window and up to twice the
//! RTT (RFC 8985 section 6.2, step 4). After [`REO_WND_PERSIST`] loss episodes without such a packet, both
//! return to their first values.
//!
//! Packets from caches on the path arrive [aside](SentPackets::deliver_aside).
//!
//! Delivered packets are never visited again: a cursor stands at the first batch with an outstanding packet,
//! and the packets of a batch are bits of a word.

mod aside;
mod batch;

use alloc::collections::VecDeque;

use crate::rtt::{GRANULARITY, RttEstimator};
use crate::{Span, Time};
use batch::{Arrival, SentBatch};
pub use batch::{BATCH_PACKETS_MAX, PacketBitmap};

/// The most batches that are remembered.
pub const BATCHES_MAX: usize = 65_536;
/// The packet threshold at first (kPacketThreshold of RFC 9002).
pub const PACKET_THRESHOLD_INITIAL: u64 = 3;
/// The largest packet threshold.
pub const PACKET_THRESHOLD_MAX: u64 = 256;
/// Loss episodes without a late arrival after which reordering is forgotten (RFC 8985: 16).
pub const REO_WND_PERSIST: u32 = 16;
/// The eighths of an RTT by which the time threshold exceeds one RTT: at first, and at most.
const REO_WND_MULT: (u64, u64) = (1, 8);

/// The meaning of an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The packet was outstanding.
    Acked {
        /// When the packet was asked for.
        sent_at: Time,
        /// The sequence number of the packet.
        seq: u64,
    },
    /// The packet had been declared lost, wrongly.
    SpuriousLoss {
        /// When the packet was asked for.
        sent_at: Time,
        /// The sequence number of the packet.
        seq: u64,
        /// How far the packet is below the highest that had arrived; zero if it is the highest.
        distance: u64,
    },
    /// The packet had arrived before, or had been cancelled.
    Duplicate,
    /// There is no such packet, or it has been forgotten.
    Unknown,
}

/// Returns a mask of the lowest `n` bits; of all bits if `n` is 64 or more.
const fn low_bits(n: u64) -> u64 {
    if n >= 64 { u64::MAX } else { (1 << n) - 1 }
}

/// Iterates over the positions of the set bits, lowest first.
fn bits(mut mask: u64) -> impl Iterator<Item = u32> {
    core::iter::from_fn(move || {
        let bit = (mask != 0).then(|| mask.trailing_zeros())?;
        mask &= mask - 1;
        Some(bit)
    })
}

/// The packets that were asked for on one path. `T` describes what a batch asks for, and [`M`](PacketBitmap)
/// limits the size of a batch.
#[derive(Clone, Debug)]
pub struct SentPackets<T, M = u64> {
    batches: VecDeque<SentBatch<T, M>>,
    /// The identifier of the first batch that is remembered.
    base: u64,
    /// The identifier of the first batch with an outstanding packet, or of the next batch to be sent.
    cursor: u64,
    next_seq: u64,
    in_flight: u32,
    highest: Option<u64>,
    /// The highest sequence number that arrived aside.
    highest_aside: Option<u64>,
    /// How long the packet with the highest sequence number took.
    rack_rtt: Span,
    newest: Option<Time>,
    /// The packet threshold, and the eighths of an RTT by which the time threshold exceeds one.
    packet_threshold: u64,
    reo_wnd_mult: u64,
    /// Late packets below the first number do not widen the time threshold again, and losses below the second
    /// do not begin another loss episode.
    reo_wnd_round_end: u64,
    loss_episode_end: u64,
    /// The loss episodes that are left until reordering is forgotten.
    reo_wnd_persist: u32,
}

impl<T> SentPackets<T> {
    /// Creates a record without packets.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl<T, M> Default for SentPackets<T, M> {
    fn default() -> Self {
        Self {
            batches: VecDeque::new(),
            base: 0,
            cursor: 0,
            next_seq: 0,
            in_flight: 0,
            highest: None,
            highest_aside: None,
            rack_rtt: Span::ZERO,
            newest: None,
            packet_threshold: PACKET_THRESHOLD_INITIAL,
            reo_wnd_mult: REO_WND_MULT.0,
            reo_wnd_round_end: 0,
            loss_episode_end: 0,
            reo_wnd_persist: 0,
        }
    }
}

impl<T, M: PacketBitmap> SentPackets<T, M> {
    /// Records a request for `count` packets at `now`, which is not earlier than the batch before. Returns
    /// the identifier of the batch: 0, 1, 2 and so on.
    ///
    /// # Panics
    /// If `count` is not 1 to [`PacketBitmap::PACKETS`], or if the record [is full](Self::is_full).
    #[inline]
    pub fn send(&mut self, now: Time, count: u32, what: T) -> u64 {
        assert!((1..=M::PACKETS).contains(&count), "a batch has 1 to {} packets", M::PACKETS);
        assert!(!self.is_full(), "at most {BATCHES_MAX} batches");
        debug_assert!(self.newest.is_none_or(|newest| newest <= now), "time runs forward");
        let id = self.end();
        self.batches.push_back(SentBatch {
            sent_at: now,
            first_seq: self.next_seq as u32,
            count: count as u8,
            kept: M::from_bits(low_bits(u64::from(count))),
            gone: M::from_bits(0),
            what,
        });
        self.next_seq += u64::from(count);
        self.in_flight += count;
        self.newest = Some(now);
        id
    }

    /// Whether nothing can be sent before a batch [is forgotten](Self::forget).
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.batches.len() >= BATCHES_MAX
    }

    /// Returns how many batches can be sent before one [is forgotten](Self::forget).
    #[must_use]
    pub fn free(&self) -> u32 {
        BATCHES_MAX.saturating_sub(self.batches.len()) as u32
    }

    /// Returns what batch `id` asks for; `None` if it is forgotten.
    #[must_use]
    #[inline]
    pub fn get(&self, id: u64) -> Option<&T> {
        self.batch(id).map(|batch| &batch.what)
    }

    /// Returns what batch `id` asks for, so that it can be changed; `None` if it is forgotten.
    pub fn get_mut(&mut self, id: u64) -> Option<&mut T> {
        self.batch_mut(id).map(|batch| &mut batch.what)
    }

    /// Returns when batch `id` was sent; `None` if it is forgotten.
    #[must_use]
    #[inline]
    pub fn sent_at(&self, id: u64) -> Option<Time> {
        self.batch(id).map(|batch| batch.sent_at)
    }

    /// Records that packet `i` of batch `id` has arrived at `now`.
    ///
    /// A cancelled packet that arrives is a [`Delivery::Duplicate`], but it still shows that packets before
    /// it on the path have been overtaken.
    #[inline]
    pub fn deliver(&mut self, now: Time, id: u64, i: u32) -> Delivery {
        let (highest, next_seq) = (self.highest, self.next_seq);
        let Some(batch) = self.batch_mut(id).filter(|batch| i < u32::from(batch.count)) else {
            return Delivery::Unknown;
        };
        let Some(Arrival { seq, sent_at, outstanding, lost }) = batch.arrive(i, next_seq) else {
            return Delivery::Duplicate;
        };
        if highest.is_none_or(|highest| highest < seq) {
            self.highest = Some(seq);
            self.rack_rtt = now.since(sent_at);
        }
        if outstanding {
            self.in_flight -= 1;
            self.advance();
            Delivery::Acked { sent_at, seq }
        } else if lost {
            let distance = highest.map_or(0, |highest| highest.saturating_sub(seq));
            self.adapt(seq, distance);
            Delivery::SpuriousLoss { sent_at, seq, distance }
        } else {
            Delivery::Duplicate
        }
    }

    /// Adapts the thresholds to a packet that was declared lost and has arrived.
    fn adapt(&mut self, seq: u64, distance: u64) {
        if distance == 0 {
            // No packet overtook it: the path was silent, which says nothing about its order.
            return;
        }
        self.reo_wnd_persist = REO_WND_PERSIST;
        self.packet_threshold = self.packet_threshold.max(distance + 1).min(PACKET_THRESHOLD_MAX);
        if seq >= self.reo_wnd_round_end {
            self.reo_wnd_mult = (self.reo_wnd_mult + 1).min(REO_WND_MULT.1);
            self.reo_wnd_round_end = self.next_seq;
        }
    }

    /// Returns the age from which on an overtaken packet is lost: the time since it was asked for.
    ///
    /// The packets of a batch are asked for at once but leave the source one after the other, so the last may
    /// take much longer than the smoothed RTT. Therefore the time that the highest packet took counts, too
    /// (RACK.rtt of RFC 8985).
    fn loss_delay(&self, rtt: &RttEstimator) -> Span {
        if !rtt.has_sample() {
            return rtt.rto();
        }
        let eighth = rtt.srtt().max(rtt.latest()).max(self.rack_rtt).over(8);
        eighth.times(8 + self.reo_wnd_mult).max(GRANULARITY)
    }

    /// Declares packets lost that should have arrived by now. Calls `lost` for each packet with what its
    /// batch asks for, its position in the batch and its sequence number. Returns how many.
    pub fn detect(&mut self, now: Time, rtt: &RttEstimator, mut lost: impl FnMut(&T, u32, u64)) -> u32 {
        let mut total = 0;
        if let Some(highest) = self.overtaken() {
            // Packets below this sequence number exceed the packet threshold.
            let behind = (highest + 1).saturating_sub(self.packet_threshold);
            let behind = if self.overtaken_aside().is_some() { 0 } else { behind };
            total += self.detect_below(now, highest, behind, self.loss_delay(rtt), &mut lost);
        }
        if let Some(highest) = self.overtaken_aside() {
            total += self.detect_below(now, highest, 0, rtt.rto(), &mut lost);
        }
        total
    }

    /// Declares packets lost that were asked for before packet `highest`, and also before packet `behind` or
    /// longer than `loss_delay` ago.
    fn detect_below(
        &mut self,
        now: Time,
        highest: u64,
        behind: u64,
        loss_delay: Span,
        lost: &mut impl FnMut(&T, u32, u64),
    ) -> u32 {
        let (mut total, mut first_lost) = (0, None);
        let (from, next_seq) = (self.position(self.cursor), self.next_seq);
        for batch in self.batches.iter_mut().skip(from) {
            let first_seq = batch.first_seq(next_seq);
            if first_seq >= highest {
                break;
            }
            let overtaken = batch.outstanding() & low_bits(highest - first_seq);
            let overdue = batch.sent_at + loss_delay <= now;
            if !overdue && first_seq >= behind {
                // Neither this batch nor a later one can have a loss.
                break;
            }
            let gone =
                if overdue { overtaken } else { overtaken & low_bits(behind.saturating_sub(first_seq)) };
            if gone == 0 {
                continue;
            }
            batch.lose(gone);
            total += gone.count_ones();
            for i in bits(gone) {
                let seq = first_seq + u64::from(i);
                first_lost.get_or_insert(seq);
                lost(&batch.what, i, seq);
            }
        }
        if let Some(seq) = first_lost {
            self.in_flight -= total;
            self.count_loss_episode(seq);
            self.advance();
        }
        total
    }

    /// Counts loss episodes. An episode begins with a lost packet that was asked for after the last one
    /// began.
    fn count_loss_episode(&mut self, seq: u64) {
        if seq < self.loss_episode_end {
            return;
        }
        self.loss_episode_end = self.next_seq;
        self.reo_wnd_persist = self.reo_wnd_persist.saturating_sub(1);
        if self.reo_wnd_persist == 0 {
            (self.packet_threshold, self.reo_wnd_mult) = (PACKET_THRESHOLD_INITIAL, REO_WND_MULT.0);
        }
    }

    /// Returns when [`detect`](Self::detect) would next declare a packet lost by time alone, if it would. The
    /// time may have passed.
    #[must_use]
    pub fn next_deadline(&self, rtt: &RttEstimator) -> Option<Time> {
        // Batches are in order of time.
        let oldest = self.oldest_outstanding()?;
        let aside = self.overtaken_aside().map(|_| oldest + rtt.rto());
        let overtaken = self.overtaken().map(|_| oldest + self.loss_delay(rtt));
        match (overtaken, aside) {
            (Some(overtaken), Some(aside)) => Some(overtaken.min(aside)),
            (only, None) | (None, only) => only,
        }
    }

    /// Whether an outstanding packet has been overtaken by a packet that arrived.
    #[must_use]
    pub fn is_overtaken(&self) -> bool {
        self.overtaken().is_some() || self.overtaken_aside().is_some()
    }

    /// Returns the highest sequence number that arrived, if it has overtaken an outstanding packet. It is
    /// enough to look at the first of these: a packet that has not overtaken the first has overtaken no
    /// other.
    #[inline]
    fn overtaken(&self) -> Option<u64> {
        self.overtaken_by(self.highest)
    }

    /// Returns how many packets in flight were overtaken by a packet that arrived
    /// [aside](Self::deliver_aside). They may be lost, or may still come from the other end.
    #[must_use]
    pub fn overtaken_aside_count(&self) -> u32 {
        let Some(highest) = self.highest_aside else { return 0 };
        let behind = self.next_seq.saturating_sub(highest + 1);
        self.in_flight().saturating_sub(u32::try_from(behind).unwrap_or(u32::MAX))
    }

    /// Returns the highest sequence number that arrived aside, if it has overtaken an outstanding packet.
    #[inline]
    fn overtaken_aside(&self) -> Option<u64> {
        self.overtaken_by(self.highest_aside)
    }

    #[inline]
    fn overtaken_by(&self, highest: Option<u64>) -> Option<u64> {
        let (highest, batch) = (highest?, self.batch(self.cursor)?);
        let first = batch.first_seq(self.next_seq) + u64::from(batch.outstanding().trailing_zeros());
        (first < highest).then_some(highest)
    }

    /// Iterates over all outstanding packets, oldest first: what the batch asks for, the packet's position in
    /// the batch, and when it was asked for.
    pub fn outstanding(&self) -> impl Iterator<Item = (&T, u32, Time)> {
        let from = self.position(self.cursor);
        self.batches
            .iter()
            .skip(from)
            .flat_map(|batch| bits(batch.outstanding()).map(|i| (&batch.what, i, batch.sent_at)))
    }

    /// Declares all outstanding packets lost after a retransmission timeout, and calls `lost` as
    /// [`detect`](Self::detect) does. Returns how many.
    pub fn expire(&mut self, mut lost: impl FnMut(&T, u32, u64)) -> u32 {
        let (from, next_seq) = (self.position(self.cursor), self.next_seq);
        for batch in self.batches.iter_mut().skip(from) {
            let gone = batch.outstanding();
            batch.lose(gone);
            for i in bits(gone) {
                lost(&batch.what, i, batch.first_seq(next_seq) + u64::from(i));
            }
        }
        self.cursor = self.end();
        core::mem::take(&mut self.in_flight)
    }

    /// Cancels packet `i` of batch `id`, which is no longer wanted. Returns whether it was outstanding. That
    /// is no loss, and if the packet arrives, it is a [`Delivery::Duplicate`]. A packet that was declared
    /// lost stays lost: if it arrives, the path is to learn from it.
    pub fn cancel(&mut self, id: u64, i: u32) -> bool {
        let Some(batch) = self.batch_mut(id).filter(|batch| i < u32::from(batch.count)) else {
            return false;
        };
        let bit = 1 << i;
        if batch.outstanding() & bit == 0 {
            return false;
        }
        batch.cancel(bit);
        self.in_flight -= 1;
        self.advance();
        true
    }

    /// Makes packet `i` of batch `id`, which was declared lost, outstanding again. Returns whether it was
    /// lost.
    pub fn reclaim(&mut self, id: u64, i: u32) -> bool {
        let Some(batch) = self.batch_mut(id).filter(|batch| i < u32::from(batch.count)) else {
            return false;
        };
        let bit = 1 << i;
        if batch.lost() & bit == 0 {
            return false;
        }
        batch.reclaim(bit);
        self.in_flight += 1;
        self.cursor = self.cursor.min(id);
        true
    }

    /// Drops the oldest batch as long as it has been delivered completely, or has no outstanding packet and
    /// was sent before `before`. Hands what each batch asked for to `dropped`, oldest first. Packets of these
    /// batches that arrive later are [`Delivery::Unknown`].
    #[inline]
    pub fn forget(&mut self, before: Time, mut dropped: impl FnMut(T)) {
        while let Some(first) = self.batches.front() {
            let done = first.delivered() == low_bits(u64::from(first.count));
            let old = first.outstanding() == 0 && first.sent_at < before;
            if !done && !old {
                break;
            }
            if let Some(batch) = self.batches.pop_front() {
                self.base += 1;
                dropped(batch.what);
            }
        }
        self.cursor = self.cursor.max(self.base);
    }

    /// Returns the number of outstanding packets: asked for, and neither delivered nor lost nor cancelled.
    #[must_use]
    pub const fn in_flight(&self) -> u32 {
        self.in_flight
    }
    /// Returns when the oldest outstanding packet was asked for.
    #[must_use]
    pub fn oldest_outstanding(&self) -> Option<Time> {
        self.sent_at(self.cursor)
    }
    /// Returns when a batch was last sent.
    #[must_use]
    pub const fn newest_sent(&self) -> Option<Time> {
        self.newest
    }
    /// Returns the sequence number of the next packet to be asked for.
    #[must_use]
    pub const fn next_seq(&self) -> u64 {
        self.next_seq
    }
    /// Returns the highest sequence number that has arrived.
    #[must_use]
    pub const fn highest_delivered(&self) -> Option<u64> {
        self.highest
    }
    /// Sets the highest delivered sequence number back to `highest`, because later deliveries may have been
    /// confused with others. Packets above it count as having overtaken none.
    pub const fn overtake_from(&mut self, highest: Option<u64>) {
        self.highest = highest;
    }
    /// Returns the present packet threshold: [`PACKET_THRESHOLD_INITIAL`] to [`PACKET_THRESHOLD_MAX`].
    #[must_use]
    pub const fn packet_threshold(&self) -> u64 {
        self.packet_threshold
    }

    /// Returns the identifier of the next batch.
    fn end(&self) -> u64 {
        self.base + self.batches.len() as u64
    }

    /// Returns the position of batch `id` in the queue; a position beyond the end if it is not there.
    #[inline]
    fn position(&self, id: u64) -> usize {
        id.checked_sub(self.base).and_then(|at| usize::try_from(at).ok()).unwrap_or(usize::MAX)
    }

    #[inline]
    fn batch(&self, id: u64) -> Option<&SentBatch<T, M>> {
        self.batches.get(self.position(id))
    }

    #[inline]
    fn batch_mut(&mut self, id: u64) -> Option<&mut SentBatch<T, M>> {
        let at = self.position(id);
        self.batches.get_mut(at)
    }

    /// Moves the cursor to the first batch with an outstanding packet.
    #[inline]
    fn advance(&mut self) {
        while self.batch(self.cursor).is_some_and(|batch| batch.outstanding() == 0) {
            self.cursor += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::{collections::BTreeMap, vec, vec::Vec};

    fn at(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    fn rtt(ms: u64) -> RttEstimator {
        let mut rtt = RttEstimator::new();
        rtt.sample(at(0), Span::from_millis(ms));
        rtt
    }

    fn detected(sent: &mut SentPackets<char>, now: u64, rtt: &RttEstimator) -> Vec<(char, u32, u64)> {
        let mut lost = Vec::new();
        let n = sent.detect(at(now), rtt, |&what, i, seq| lost.push((what, i, seq)));
        assert_eq!(n as usize, lost.len());
        lost
    }

    #[test]
    fn what_a_timeout_declared_lost_can_be_expected_again() {
        let mut sent = SentPackets::<char>::new();
        let (a, b) = (sent.send(at(0), 2, 'a'), sent.send(at(1), 1, 'b'));
        sent.deliver(at(5), a, 1);
        assert_eq!(sent.expire(|_, _, _| {}), 2);
        assert!(sent.reclaim(b, 0) && sent.reclaim(a, 0));
        // It is outstanding; that one has arrived; there is none.
        assert!(!sent.reclaim(a, 0) && !sent.reclaim(a, 1) && !sent.reclaim(b + 1, 0));
        assert_eq!((sent.in_flight(), sent.oldest_outstanding()), (2, Some(at(0))));
        assert_eq!(sent.deliver(at(9), a, 0), Delivery::Acked { sent_at: at(0), seq: 0 });
        assert_eq!((sent.in_flight(), sent.oldest_outstanding()), (1, Some(at(1))));
    }

    #[test]
    fn packet_threshold_inside_a_batch_and_across() {
        let mut sent = SentPackets::new();
        let (a, b) = (sent.send(at(0), 4, 'a'), sent.send(at(1), 64, 'b'));
        assert_eq!((a, b, sent.next_seq(), sent.in_flight()), (0, 1, 68, 68));
        assert_eq!(sent.deliver(at(20), a, 1), Delivery::Acked { sent_at: at(0), seq: 1 });
        assert_eq!(detected(&mut sent, 20, &rtt(20)), []);
        assert_eq!(sent.deliver(at(20), a, 3), Delivery::Acked { sent_at: at(0), seq: 3 });
        assert_eq!(detected(&mut sent, 20, &rtt(20)), [('a', 0, 0)]);
        assert_eq!(sent.deliver(at(21), b, 1), Delivery::Acked { sent_at: at(1), seq: 5 });
        assert_eq!(detected(&mut sent, 21, &rtt(20)), [('a', 2, 2)]);
        assert_eq!(sent.deliver(at(21), b, 63), Delivery::Acked { sent_at: at(1), seq: 67 });
        assert_eq!(
            detected(&mut sent, 21, &rtt(20)).len(),
            60,
            "all but the last three and the one delivered"
        );
        assert_eq!(sent.in_flight(), 2);
        assert_eq!(sent.highest_delivered(), Some(67));
    }

    #[test]
    fn what_arrives_aside_overtakes_nothing_before_the_retransmission_timeout() {
        let mut sent = SentPackets::new();
        let a = sent.send(at(0), 64, 'a');
        // A cache has all packets but 3, 30 and 31; packet 40 is lost behind it.
        for i in (0..64).filter(|i| ![3, 30, 31, 40].contains(i)) {
            assert!(matches!(sent.deliver_aside(a, i), Delivery::Acked { .. }));
        }
        assert_eq!((sent.in_flight(), sent.highest_delivered()), (4, None));
        assert_eq!(sent.next_deadline(&rtt(60)), Some(at(200)), "the shortest");
        assert_eq!(detected(&mut sent, 199, &rtt(60)), []);
        // The source has swapped 3 and 30: 30 has overtaken 3, however far apart they are.
        assert_eq!(sent.deliver(at(60), a, 30), Delivery::Acked { sent_at: at(0), seq: 30 });
        assert_eq!(sent.next_deadline(&rtt(60)), Some(Time::from_nanos(67_500_000)));
        assert_eq!(detected(&mut sent, 67, &rtt(60)), []);
        assert_eq!(sent.deliver(at(67), a, 3), Delivery::Acked { sent_at: at(0), seq: 3 });
        // No packet of the source has overtaken the last two.
        assert_eq!(sent.next_deadline(&rtt(60)), Some(at(200)));
        sent.deliver(at(70), a, 31);
        assert_eq!(detected(&mut sent, 200, &rtt(60)), [('a', 40, 40)]);
        assert_eq!(
            sent.deliver_aside(a, 40),
            Delivery::SpuriousLoss { sent_at: at(0), seq: 40, distance: 0 }
        );
        assert_eq!(
            (sent.deliver_aside(a, 40), sent.deliver_aside(7, 0)),
            (Delivery::Duplicate, Delivery::Unknown)
        );
        assert_eq!(sent.packet_threshold(), PACKET_THRESHOLD_INITIAL);
        // Once no cache answers any more, all is as before.
        let b = sent.send(at(300), 8, 'b');
        sent.deliver(at(360), b, 4);
        assert_eq!(detected(&mut sent, 360, &rtt(60)), [('b', 0, 64), ('b', 1, 65)]);
    }

    #[test]
    fn time_threshold() {
        let mut sent = SentPackets::new();
        sent.send(at(0), 1, 'a');
        let b = sent.send(at(5), 1, 'b');
        assert_eq!(sent.next_deadline(&rtt(80)), None);
        sent.deliver(at(85), b, 0);
        assert_eq!(sent.next_deadline(&rtt(80)), Some(at(90)));
        assert_eq!(detected(&mut sent, 89, &rtt(80)), []);
        assert_eq!(detected(&mut sent, 90, &rtt(80)), [('a', 0, 0)]);
        assert_eq!((sent.next_deadline(&rtt(80)), sent.in_flight()), (None, 0));
        // No packet asked for later has arrived: no time is long enough.
        sent.send(at(100), 1, 'c');
        assert_eq!(detected(&mut sent, 100_000, &rtt(80)), []);
        // Without a sample, only the retransmission timeout counts.
        let mut sent = SentPackets::new();
        sent.send(at(0), 1, 'a');
        let b = sent.send(at(0), 1, 'b');
        sent.deliver(at(5), b, 0);
        assert_eq!(sent.next_deadline(&RttEstimator::new()), Some(at(1000)));
    }

    #[test]
    fn a_long_batch_on_a_slow_link_is_not_late() {
        // The first packet takes 20 ms, the last 84; each pair is swapped on the way. The first packet
        // gives the sample.
        let mut sent = SentPackets::new();
        let a = sent.send(at(0), 64, 'a');
        for i in 0..64 {
            sent.deliver(at(20 + u64::from(i)), a, i ^ 1);
            assert_eq!(detected(&mut sent, 20 + u64::from(i), &rtt(20)), []);
        }
        assert_eq!(sent.in_flight(), 0);
    }

    #[test]
    fn late_arrivals_raise_the_thresholds() {
        let mut sent = SentPackets::new();
        let a = sent.send(at(0), 20, 'a');
        sent.deliver(at(80), a, 9);
        assert_eq!(detected(&mut sent, 80, &rtt(80)).len(), 7);
        assert_eq!(
            sent.deliver(at(81), a, 2),
            Delivery::SpuriousLoss { sent_at: at(0), seq: 2, distance: 7 }
        );
        assert_eq!(sent.deliver(at(81), a, 2), Delivery::Duplicate);
        assert_eq!(sent.packet_threshold(), 8);
        assert_eq!(
            sent.deliver(at(81), a, 1),
            Delivery::SpuriousLoss { sent_at: at(0), seq: 1, distance: 8 }
        );
        assert_eq!((sent.packet_threshold(), sent.reo_wnd_mult), (9, 2), "widened once a window");
        sent.deliver(at(82), a, 15);
        assert_eq!(detected(&mut sent, 82, &rtt(80)), []);
        assert_eq!(
            sent.next_deadline(&rtt(80)),
            Some(Time::from_nanos(102_500_000)),
            "82 ms and two eighths"
        );
        sent.expire(|_, _, _| ());
        // The thresholds are forgotten after a number of loss episodes that were real.
        for episode in 1..=u64::from(REO_WND_PERSIST) {
            assert!(sent.packet_threshold() > PACKET_THRESHOLD_INITIAL);
            let id = sent.send(at(1000 * episode), 2, 'x');
            sent.deliver(at(1000 * episode + 80), id, 1);
            assert!(!detected(&mut sent, 1000 * episode + 900, &rtt(80)).is_empty());
        }
        assert_eq!((sent.packet_threshold(), sent.reo_wnd_mult), (PACKET_THRESHOLD_INITIAL, REO_WND_MULT.0));
    }

    #[test]
    fn thresholds_have_a_limit() {
        let mut sent = SentPackets::new();
        for round in 0..20 {
            let first = sent.send(at(round), 1, 'a');
            for _ in 0..10 {
                sent.send(at(round), 64, 'b');
            }
            sent.deliver(at(round), first + 10, 63);
            detected(&mut sent, round, &rtt(100));
            sent.deliver(at(round), first, 0);
        }
        assert_eq!((sent.packet_threshold(), sent.reo_wnd_mult), (PACKET_THRESHOLD_MAX, REO_WND_MULT.1));
    }

    #[test]
    fn expire_cancel_forget() {
        let mut sent = SentPackets::new();
        let (a, b, c) = (sent.send(at(0), 2, 'a'), sent.send(at(10), 2, 'b'), sent.send(at(20), 2, 'c'));
        assert_eq!(sent.oldest_outstanding(), Some(at(0)));
        assert!(sent.cancel(a, 0) && !sent.cancel(a, 0) && !sent.cancel(a, 2) && !sent.cancel(9, 0));
        assert!(sent.cancel(a, 1));
        assert_eq!((sent.oldest_outstanding(), sent.newest_sent()), (Some(at(10)), Some(at(20))));
        let mut lost = Vec::new();
        sent.deliver(at(30), b, 0);
        assert_eq!(sent.expire(|&what, i, seq| lost.push((what, i, seq))), 3);
        assert_eq!(lost, [('b', 1, 3), ('c', 0, 4), ('c', 1, 5)]);
        assert_eq!((sent.in_flight(), sent.oldest_outstanding()), (0, None));
        assert!(!sent.cancel(c, 0), "lost stays lost");
        assert_eq!(sent.deliver(at(31), a, 0), Delivery::Duplicate, "cancelled");
        assert_eq!(
            sent.deliver(at(31), c, 0),
            Delivery::SpuriousLoss { sent_at: at(20), seq: 4, distance: 0 }
        );
        assert_eq!(sent.packet_threshold(), PACKET_THRESHOLD_INITIAL, "silence is not reordering");
        let mut dropped = Vec::new();
        sent.forget(at(0), |what| dropped.push(what));
        assert_eq!(dropped, []);
        sent.deliver(at(32), a, 1);
        sent.forget(at(0), |what| dropped.push(what));
        assert_eq!(dropped, ['a']);
        assert_eq!(sent.deliver(at(33), a, 1), Delivery::Unknown);
        assert_eq!((sent.get(a), sent.get(b)), (None, Some(&'b')));
        sent.forget(at(20), |what| dropped.push(what));
        assert_eq!(dropped, ['a', 'b']);
        assert_eq!(sent.send(at(40), 1, 'd'), 3);
        sent.forget(at(1000), |what| dropped.push(what));
        assert_eq!((dropped, sent.oldest_outstanding()), (vec!['a', 'b', 'c'], Some(at(40))));
        assert_eq!(sent.deliver(at(41), 3, 1), Delivery::Unknown);
        assert_eq!(sent.deliver(at(41), 4, 0), Delivery::Unknown);
        assert_eq!(sent.deliver(at(41), u64::MAX, u32::MAX), Delivery::Unknown);
    }

    #[test]
    fn full() {
        let mut sent = SentPackets::new();
        for _ in 0..BATCHES_MAX {
            assert!(!sent.is_full());
            sent.send(at(0), 1, ());
        }
        assert!(sent.is_full());
        sent.deliver(at(0), 0, 0);
        sent.forget(at(0), |()| ());
        assert!(!sent.is_full());
    }

    #[derive(Clone, Copy, PartialEq, Debug)]
    enum State {
        Outstanding,
        Lost,
        Delivered,
        Cancelled,
    }

    struct Packet {
        seq: u64,
        sent_at: Time,
        state: State,
    }

    /// A model of the record, packet by packet.
    #[derive(Default)]
    struct Model {
        packets: BTreeMap<(u64, u32), Packet>,
        highest: Option<(u64, Span)>,
        packet_threshold: u64,
        eighths: u64,
        reo_wnd_round_end: u64,
        loss_episode_end: u64,
        reo_wnd_persist: u32,
    }

    impl Model {
        fn deliver(&mut self, now: Time, next_seq: u64, id: u64, i: u32) -> Delivery {
            let Some(packet) = self.packets.get_mut(&(id, i)) else { return Delivery::Unknown };
            let before = core::mem::replace(&mut packet.state, State::Delivered);
            let (seq, sent_at, old) = (packet.seq, packet.sent_at, self.highest);
            if before != State::Delivered && old.is_none_or(|(highest, _)| seq > highest) {
                self.highest = Some((seq, now.since(sent_at)));
            }
            match before {
                State::Outstanding => Delivery::Acked { sent_at, seq },
                State::Lost => {
                    let distance = old.map_or(0, |(highest, _)| highest.saturating_sub(seq));
                    if distance > 0 {
                        self.reo_wnd_persist = 16;
                        self.packet_threshold = self.packet_threshold.max(distance + 1).min(256);
                        if seq >= self.reo_wnd_round_end {
                            self.eighths = (self.eighths + 1).min(16);
                            self.reo_wnd_round_end = next_seq;
                        }
                    }
                    Delivery::SpuriousLoss { sent_at, seq, distance }
                }
                State::Delivered | State::Cancelled => Delivery::Duplicate,
            }
        }

        fn loss_delay(&self, rtt: &RttEstimator) -> Span {
            let took = self.highest.map_or(Span::ZERO, |(_, took)| took);
            if !rtt.has_sample() {
                return rtt.rto();
            }
            rtt.srtt().max(rtt.latest()).max(took).over(8).times(self.eighths).max(Span::from_millis(1))
        }

        fn detect(&mut self, now: Time, next_seq: u64, rtt: &RttEstimator) -> Vec<(u64, u32, u64)> {
            let Some((highest, _)) = self.highest else { return Vec::new() };
            let (loss_delay, threshold) = (self.loss_delay(rtt), self.packet_threshold);
            let lost = self.take(|packet| {
                let overdue = packet.sent_at + loss_delay <= now;
                packet.seq < highest && (packet.seq + threshold <= highest || overdue)
            });
            if let Some(&(_, _, seq)) = lost.first()
                && seq >= self.loss_episode_end
            {
                self.loss_episode_end = next_seq;
                self.reo_wnd_persist = self.reo_wnd_persist.saturating_sub(1);
                if self.reo_wnd_persist == 0 {
                    (self.packet_threshold, self.eighths) = (3, 9);
                }
            }
            lost
        }

        fn take(&mut self, mut lost: impl FnMut(&Packet) -> bool) -> Vec<(u64, u32, u64)> {
            let mut gone = Vec::new();
            for (&(id, i), packet) in &mut self.packets {
                if packet.state == State::Outstanding && lost(packet) {
                    packet.state = State::Lost;
                    gone.push((id, i, packet.seq));
                }
            }
            gone
        }

        fn outstanding(&self) -> impl Iterator<Item = &Packet> {
            self.packets.values().filter(|packet| packet.state == State::Outstanding)
        }

        fn forget(&mut self, before: Time) -> Vec<u64> {
            let mut dropped = Vec::new();
            while let Some((&(id, _), first)) = self.packets.first_key_value() {
                let old = first.sent_at < before;
                let keep = self.packets.range((id, 0)..=(id, 64)).any(|(_, packet)| match packet.state {
                    State::Outstanding => true,
                    State::Delivered => false,
                    State::Lost | State::Cancelled => !old,
                });
                if keep {
                    break;
                }
                self.packets.retain(|&(other, _), _| other != id);
                dropped.push(id);
            }
            dropped
        }
    }

    #[derive(Clone, Debug)]
    enum Op {
        Send(u32),
        /// The batches to go back from the newest, the position of the packet, and whether to detect then.
        Deliver(u64, u32, bool),
        Cancel(u64, u32),
        Detect,
        Deadline,
        Expire,
        Forget(u64),
        Sample(u64),
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            6 => prop_oneof![1..4u32, 1..65u32, Just(64u32)].prop_map(Op::Send),
            20 => (0..12u64, 0..66u32, any::<bool>()).prop_map(|(back, i, then)| Op::Deliver(back, i, then)),
            20 => (0..3u64, 0..4u32, any::<bool>()).prop_map(|(back, i, then)| Op::Deliver(back, i, then)),
            4 => (0..12u64, 0..66u32).prop_map(|(back, i)| Op::Cancel(back, i)),
            4 => Just(Op::Detect),
            4 => Just(Op::Deadline),
            1 => Just(Op::Expire),
            3 => (0..400u64).prop_map(Op::Forget),
            3 => (0..200u64).prop_map(Op::Sample),
        ]
    }

    proptest! {
        #[test]
        fn agrees_with_a_naive_model(ops in prop::collection::vec((op(), 0..40u64), 1..200)) {
            let mut sent = SentPackets::new();
            let mut model = Model { packet_threshold: 3, eighths: 9, ..Model::default() };
            let mut rtt = RttEstimator::new();
            let (mut now, mut next_id, mut next_seq) = (at(0), 0u64, 0u64);
            for (op, step) in ops {
                now += Span::from_millis(step);
                match op {
                    Op::Send(count) => {
                        prop_assert_eq!(sent.send(now, count, next_id), next_id);
                        for i in 0..count {
                            let packet = Packet { seq: next_seq, sent_at: now, state: State::Outstanding };
                            model.packets.insert((next_id, i), packet);
                            next_seq += 1;
                        }
                        next_id += 1;
                    }
                    Op::Deliver(back, i, detect) => {
                        let id = next_id.wrapping_sub(back);
                        prop_assert_eq!(sent.deliver(now, id, i), model.deliver(now, next_seq, id, i));
                        if detect {
                            let mut lost = Vec::new();
                            sent.detect(now, &rtt, |&id, i, seq| lost.push((id, i, seq)));
                            prop_assert_eq!(lost, model.detect(now, next_seq, &rtt));
                        }
                    }
                    Op::Cancel(back, i) => {
                        let id = next_id.wrapping_sub(back);
                        let want = match model.packets.get_mut(&(id, i)) {
                            Some(packet) if packet.state == State::Outstanding => {
                                packet.state = State::Cancelled;
                                true
                            }
                            _ => false,
                        };
                        prop_assert_eq!(sent.cancel(id, i), want);
                    }
                    Op::Detect => {
                        let mut lost = Vec::new();
                        let n = sent.detect(now, &rtt, |&id, i, seq| lost.push((id, i, seq)));
                        prop_assert_eq!(n as usize, lost.len());
                        prop_assert_eq!(lost, model.detect(now, next_seq, &rtt));
                    }
                    Op::Deadline => {
                        // Waiting until the deadline, and no less, makes a loss, besides those that are found
                        // at once.
                        sent.detect(now, &rtt, |_, _, _| ());
                        model.detect(now, next_seq, &rtt);
                        let loss_delay = model.loss_delay(&rtt);
                        let highest = model.highest.map_or(0, |(highest, _)| highest);
                        let overtaken = model.outstanding().filter(|packet| packet.seq < highest);
                        let want = overtaken.map(|packet| packet.sent_at + loss_delay).min();
                        prop_assert_eq!(sent.next_deadline(&rtt), want);
                        if let Some(deadline) = want {
                            prop_assert!(deadline > now);
                            now = deadline;
                            let n = sent.detect(now, &rtt, |_, _, _| ());
                            prop_assert!(n > 0);
                            prop_assert_eq!(n as usize, model.detect(now, next_seq, &rtt).len());
                        }
                    }
                    Op::Expire => {
                        let mut lost = Vec::new();
                        let n = sent.expire(|&id, i, seq| lost.push((id, i, seq)));
                        prop_assert_eq!(n as usize, lost.len());
                        prop_assert_eq!(lost, model.take(|_| true));
                    }
                    Op::Forget(ms) => {
                        let before = Time::from_nanos(now.as_nanos().saturating_sub(ms * 1_000_000));
                        let mut dropped = Vec::new();
                        sent.forget(before, |id| dropped.push(id));
                        prop_assert_eq!(dropped, model.forget(before));
                    }
                    Op::Sample(ms) => rtt.sample(now, Span::from_millis(ms)),
                }
                prop_assert_eq!(sent.in_flight() as usize, model.outstanding().count());
                prop_assert_eq!(sent.oldest_outstanding(), model.outstanding().next().map(|p| p.sent_at));
                prop_assert_eq!(sent.highest_delivered(), model.highest.map(|(highest, _)| highest));
                prop_assert_eq!(sent.next_seq(), next_seq);
                prop_assert_eq!(sent.packet_threshold(), model.packet_threshold);
                prop_assert_eq!(8 + sent.reo_wnd_mult, model.eighths);
                for id in 0..next_id {
                    prop_assert_eq!(sent.get(id).is_some(), model.packets.contains_key(&(id, 0)));
                }
            }
        }
    }
}
