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
    /// Adds a frame, with its new hop limit.
    pub(super) fn push(&mut self, hop: Hop, frame: &[u8], hop_limit: u8, out: &Outlets) {
        write_hop_limit(self.add(hop, frame, out), hop_limit);
    }

    /// Adds a frame that needs no other hop limit.
    pub(super) fn push_as_it_is(&mut self, hop: Hop, frame: &[u8], out: &Outlets) {
        self.add(hop, frame, out);
    }

    fn add(&mut self, hop: Hop, frame: &[u8], out: &Outlets) -> &mut [u8] {
        let fits = |batch: &Batch| {
            !batch.closed
                && frame.len() <= batch.segment
                && batch.bytes.len() + frame.len() <= BYTES_MAX
                && batch.bytes.len() / batch.segment.max(1) < out.max_segments(hop.from, batch.segment)
        };
        let place = match self.batches.iter().position(|batch| batch.hop == hop) {
            Some(place) if fits(&self.batches[place]) => place,
            found => {
                if let Some(place) = found {
                    self.send(place, out);
                } else if self.batches.len() >= HOPS_MAX {
                    self.send(0, out);
                }
                let bytes = self.spare.pop().unwrap_or_default();
                self.batches.push(Batch { hop, bytes, segment: frame.len(), closed: false });
                self.batches.len() - 1
            }
        };
        let batch = &mut self.batches[place];
        let start = batch.bytes.len();
        batch.bytes.extend_from_slice(frame);
        batch.closed = frame.len() < batch.segment;
        &mut batch.bytes[start..]
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
