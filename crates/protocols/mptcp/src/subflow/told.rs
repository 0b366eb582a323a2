//! Decides which transmissions an acknowledgement is for, and gathers what it tells `algo`.

use anabranch_algo::sent_packets::Delivery;
use anabranch_algo::subflow::Subflow;
use anabranch_algo::{Span, Time};

use super::sent::{Sent, Transmission};
use super::undo::{Evidence, Undo};

/// The facts that one acknowledgement tells `algo`.
pub(super) struct Told<'a> {
    pub(super) count: u32,
    /// The highest packet number that arrived.
    pub(super) newest: Option<u64>,
    /// When the newest packet with a certain round trip was sent.
    pub(super) sample: Option<Time>,
    /// The timeout that this acknowledgement may show to be right or wrong.
    pub(super) undo: Option<&'a mut Undo>,
}

impl Told<'_> {
    /// Records that a segment has arrived, and decides which of its transmissions it was.
    pub(super) fn arrived(
        &mut self,
        flow: &mut Subflow<Transmission, u8>,
        now: Time,
        sent: &Sent,
        echo: Option<u32>,
    ) {
        let is_earlier = match (sent.earlier, echo) {
            (None, _) => false,
            // The echo is older than the last transmission, so an earlier one caused it.
            (Some(_), Some(echo)) if echo != sent.timestamp => (echo.wrapping_sub(sent.timestamp) as i32) < 0,
            (Some(_), _) => now.since(sent.sent_at) < flow.rtt().min(),
        };
        if let Some(echo) = echo.filter(|_| is_earlier) {
            // The echo is the time at which the transmission was sent that arrived (RFC 7323
            // section 4.1).
            let before = Span::from_millis(u64::from(sent.timestamp.wrapping_sub(echo)));
            let began = Time::ZERO + (sent.sent_at.since(Time::ZERO) - before);
            self.sample = self.sample.max(Some(began));
        }
        let packet = sent.earlier.filter(|_| is_earlier).unwrap_or(sent.packet);
        let is_certain = sent.earlier.is_none() || echo.is_some_and(|echo| echo != sent.timestamp);
        match flow.delivered(now, packet, 0) {
            Delivery::Acked { sent_at, seq } => {
                self.newest = self.newest.max(Some(seq));
                if is_certain && !is_earlier {
                    self.sample = self.sample.max(Some(sent_at));
                }
                self.count += 1;
                self.tell(sent, sent_at, echo);
            }
            Delivery::SpuriousLoss { seq, sent_at, .. } => {
                self.newest = self.newest.max(Some(seq));
                self.count += 1;
                self.tell(sent, sent_at, echo);
            }
            Delivery::Duplicate | Delivery::Unknown => {}
        }
        match sent.earlier {
            // The later transmission is on its way for nothing.
            Some(_) if is_earlier => drop(flow.cancel(sent.packet, 0)),
            // Nothing shows that the earlier transmission is lost.
            Some(earlier) if !is_certain => drop(flow.cancel(earlier, 0)),
            _ => {}
        }
    }

    /// Tells the open timeout that a transmission sent at `sent_at` has arrived.
    fn tell(&mut self, sent: &Sent, sent_at: Time, echo: Option<u32>) {
        if let Some(undo) = &mut self.undo {
            let is_certain = sent.earlier.is_none() || echo.is_some();
            undo.arrived(&Evidence { sent_at, last_sent_at: sent.sent_at, seq: sent.seq, is_certain });
        }
    }
}
