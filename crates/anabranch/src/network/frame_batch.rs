//! Frames that wait to be sent: those for one next hop and of one size go in one call.

use overlay::forwarder::{Hop, write_hop_limit};

use super::line_sockets::Outlets;

/// Bytes that one call carries.
const BYTES_MAX: usize = net::udp::SEND_BYTES_MAX;
/// Next hops for which frames wait at a time.
const HOPS_MAX: usize = 16;

struct Batch {
    hop: Hop,
    bytes: Vec<u8>,
    segment: usize,
    /// The last frame was shorter: nothing can follow it.
    closed: bool,
}

/// See the [module](self).
#[derive(Default)]
pub(super) struct FrameBatches {
    batches: Vec<Batch>,
    spare: Vec<Vec<u8>>,
    /// Frames that the system did not take.
    pub(super) lost: u64,
}

impl FrameBatches {
    /// Adds frames of `stride` bytes each, of which only the last may have fewer; with a new hop limit in
    /// each, if there is one.
    pub(super) fn push(
        &mut self,
        hop: Hop,
        frames: &[u8],
        stride: usize,
        hop_limit: Option<u8>,
        out: &Outlets,
    ) {
        let mut rest = frames;
        while !rest.is_empty() {
            let frame = stride.clamp(1, rest.len());
            let (batch, room) = self.batch(hop, frame, out);
            let (some, others) = rest.split_at((room * frame).min(rest.len()));
            rest = others;
            let start = batch.bytes.len();
            batch.bytes.extend_from_slice(some);
            if let Some(hop_limit) = hop_limit {
                batch.bytes[start..].chunks_mut(frame).for_each(|frame| write_hop_limit(frame, hop_limit));
            }
            batch.closed = (batch.bytes.len() - start) % batch.segment != 0;
        }
    }

    /// The batch that takes a frame of this size next, and for how many it has room.
    fn batch(&mut self, hop: Hop, frame: usize, out: &Outlets) -> (&mut Batch, usize) {
        let room = |batch: &Batch| {
            let used = batch.bytes.len() / batch.segment.max(1);
            let most = out.max_segments(hop.from, batch.segment).min(BYTES_MAX / batch.segment.max(1)).max(1);
            match frame.cmp(&batch.segment) {
                _ if batch.closed => 0,
                std::cmp::Ordering::Greater => 0,
                std::cmp::Ordering::Equal => most.saturating_sub(used),
                // One that is shorter is the last.
                std::cmp::Ordering::Less => usize::from(most > used),
            }
        };
        let found = self.batches.iter().position(|batch| batch.hop == hop);
        if let Some(place) = found {
            let room = room(&self.batches[place]);
            if room > 0 {
                return (&mut self.batches[place], room);
            }
            self.send(place, out);
        } else if self.batches.len() >= HOPS_MAX {
            self.send(0, out);
        }
        let bytes = self.spare.pop().unwrap_or_default();
        let batch = Batch { hop, bytes, segment: frame, closed: false };
        let room = room(&batch);
        self.batches.push(batch);
        (self.batches.last_mut().expect("just added"), room)
    }

    fn send(&mut self, place: usize, out: &Outlets) {
        let Batch { hop, mut bytes, segment, .. } = self.batches.remove(place);
        let several = (bytes.len() > segment).then_some(segment);
        if !out.send(hop.from, hop.to, &bytes, several) {
            self.lost += bytes.len().div_ceil(segment.max(1)) as u64;
        }
        bytes.clear();
        self.spare.push(bytes);
    }

    /// Sends all that waits.
    pub(super) fn flush(&mut self, out: &Outlets) {
        while !self.batches.is_empty() {
            self.send(0, out);
        }
    }
}
