//! Packets that a cache on the path answers arrive aside: sooner than packets of the far end, so they say
//! nothing about those that the far end still has to answer. A packet that arrived aside is never the highest
//! that arrived. While such packets have overtaken outstanding ones, the packet threshold rests, because it
//! would count their sequence numbers, too. An outstanding packet that they alone have overtaken is lost when
//! it was asked for longer ago than the retransmission timeout: their arrivals put off the timeout of the
//! subflow.

use super::batch::{Arrival, PacketBitmap};
use super::{Delivery, SentPackets};

impl<T, M: PacketBitmap> SentPackets<T, M> {
    /// Records that packet `i` of batch `id` has arrived from a cache, somewhere before the far end of the
    /// path. A packet that had been declared lost has a distance of zero.
    pub fn deliver_aside(&mut self, id: u64, i: u32) -> Delivery {
        let next_seq = self.next_seq;
        let Some(batch) = self.batch_mut(id).filter(|batch| i < u32::from(batch.count)) else {
            return Delivery::Unknown;
        };
        let Some(Arrival { seq, sent_at, outstanding, lost }) = batch.arrive(i, next_seq) else {
            return Delivery::Duplicate;
        };
        self.highest_aside = self.highest_aside.max(Some(seq));
        if outstanding {
            self.in_flight -= 1;
            self.advance();
            Delivery::Acked { sent_at, seq }
        } else if lost {
            Delivery::SpuriousLoss { sent_at, seq, distance: 0 }
        } else {
            Delivery::Duplicate
        }
    }
}
