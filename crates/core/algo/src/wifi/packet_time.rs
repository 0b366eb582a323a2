//! The time that an AP needs to deliver a packet: equation (2.1) of the source.

use super::Probability;
use crate::{Rate, Span};

/// The number of bits of a [`PacketTime`] after the binary point of a nanosecond.
const BITS: u32 = 20;
/// The most retries of a packet that are computed. 802.11's own limits are 4 and 7.
pub const RETRIES_MAX: u32 = 31;

/// The mean time for the delivery of a packet, in units of 2⁻²⁰ ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PacketTime(u64);

impl PacketTime {
    /// Longer than every other: the AP delivers nothing.
    pub const MAX: Self = Self(u64::MAX);

    /// Returns the packet time `span`; [`PacketTime::MAX`] if it does not fit (from 4.8 hours).
    #[must_use]
    pub const fn from_span(span: Span) -> Self {
        Self::saturating((span.as_nanos() as u128) << BITS)
    }

    const fn saturating(units: u128) -> Self {
        if units > u64::MAX as u128 { Self::MAX } else { Self(units as u64) }
    }

    /// Returns the time in units of 2⁻²⁰ ns.
    #[must_use]
    pub const fn units(self) -> u64 {
        self.0
    }

    /// Returns `self / span` in units of 2⁻⁶², at most one; one if the span is zero.
    pub(super) const fn per(self, span: Span) -> Probability {
        if span.as_nanos() == 0 {
            return Probability::ONE;
        }
        Probability::saturating(((self.0 as u128) << (62 - BITS)) / span.as_nanos() as u128)
    }

    /// Returns whether the time is at least `percent` percent of `other`.
    #[must_use]
    pub const fn is_at_least(self, percent: u32, other: Self) -> bool {
        self.0 as u128 * 100 >= other.0 as u128 * percent as u128
    }
}

/// How an AP sends: the parameters of equation (2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Airtime {
    /// The bytes of a packet (MSS).
    pub packet_bytes: u32,
    /// The bit rate of a frame (MCS).
    pub rate: Rate,
    /// The time of an attempt beside the packet itself (K): gaps between frames, and the acknowledgement.
    pub overhead: Span,
    /// The mean contention interval of a first attempt (C). It doubles with each retry.
    pub contention: Span,
    /// The most retries of a packet (R), at most [`RETRIES_MAX`]. After them the packet is lost.
    pub retries: u32,
}

impl Airtime {
    /// Returns the mean time of a delivered packet if each attempt fails with probability `loss` and the AP
    /// has the medium for itself. It is [`PacketTime::MAX`] if nothing is ever delivered.
    ///
    /// The source does not divide by the probability of delivery, so that its T falls to zero as losses
    /// become certain; this does. T itself is [`Airtime::printed_time`].
    #[must_use]
    pub fn packet_time(&self, loss: Probability) -> PacketTime {
        let delivered =
            self.deliveries(loss).fold(Probability::ZERO, |sum, (_, delivery)| sum.plus(delivery));
        let delivered = delivered.units();
        let time = u128::from(self.printed_time(loss).0) * u128::from(Probability::ONE.units());
        time.checked_div(u128::from(delivered)).map_or(PacketTime::MAX, PacketTime::saturating)
    }

    /// Returns the T of equation (2.1): the sum over the attempts i of
    /// `[(MSS/MCS + K)(i + 1) + C (2^(i+1) − 1)] pⁱ (1 − p)`.
    #[must_use]
    pub fn printed_time(&self, loss: Probability) -> PacketTime {
        let attempt = self.attempt().0;
        let contention = PacketTime::from_span(self.contention).0;
        let sum = self.deliveries(loss).fold(0_u128, |sum, (i, delivery)| {
            let attempts = u128::from(attempt) * u128::from(i + 1);
            let waits = u128::from(contention) * ((1 << (i + 1)) - 1);
            let time = u64::try_from(attempts + waits).unwrap_or(u64::MAX);
            sum + u128::from(delivery.scale(time))
        });
        PacketTime::saturating(sum)
    }

    /// Returns the time of one attempt without contention: MSS/MCS + K.
    fn attempt(&self) -> PacketTime {
        let bytes_per_s = u128::from(self.rate.as_bytes());
        let units = (u128::from(self.packet_bytes) * 1_000_000_000) << BITS;
        let Some(payload) = (units + bytes_per_s / 2).checked_div(bytes_per_s) else {
            return PacketTime::MAX;
        };
        PacketTime::saturating(payload.saturating_add(u128::from(PacketTime::from_span(self.overhead).0)))
    }

    /// Returns the number of each attempt, from 0, and the probability that it is the one that delivers.
    fn deliveries(&self, loss: Probability) -> impl Iterator<Item = (u32, Probability)> {
        let attempts = 0..=self.retries.min(RETRIES_MAX);
        attempts.scan(Probability::ONE, move |failed, i| {
            let all_failed = *failed;
            *failed = failed.and(loss);
            Some((i, all_failed.and(loss.complement())))
        })
    }
}
