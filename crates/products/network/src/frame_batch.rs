//! Joins outgoing frames: those for one next hop, of one size and one mark, are sent in one call. Frames that
//! arrived together in one buffer are sent from there; single ones are copied, and wait for more.

use anabranch_overlay::dscp::Dscp;
use anabranch_overlay::forwarder::Hop;
use anabranch_overlay::frame;

use anabranch::network::line_sockets::Outlets;

/// The most next hops for which frames wait at a time.
const HOPS_MAX: usize = 16;
/// The number of bytes from which frames are sent from the buffer in which they arrived: copying them would
/// cost more than the calls that joining saves.
const TRAIN_BYTES_MIN: usize = 4 << 10;

struct Batch {
    hop: Hop,
    mark: Dscp,
    bytes: Vec<u8>,
    segment: usize,
    /// Whether the last frame was shorter, so that none can follow it.
    closed: bool,
}

/// The frames that wait; see the [module](self).
#[derive(Default)]
pub(super) struct FrameBatches {
    batches: Vec<Batch>,
    spare: Vec<Vec<u8>>,
    /// The number of frames that the system did not take.
    pub(super) lost: u64,
}

impl FrameBatches {
    /// Sends frames of one mark, or adds them to those that wait for the same hop. Each has `stride` bytes,
    /// but the last may have fewer.
    pub(super) fn push(&mut self, hop: Hop, frames: &[u8], stride: usize, out: &Outlets) {
        let mark = frame::mark(frames);
        if frames.len() >= TRAIN_BYTES_MIN {
            // Frames that wait for this hop are sent first, to keep the order.
            if let Some(place) = self.place(hop, mark) {
                self.send(place, out);
            }
            let most = out.max_segments(hop.from, stride);
            frames.chunks(most * stride.max(1)).for_each(|some| self.transmit(hop, some, stride, out));
            return;
        }
        let mut rest = frames;
        while !rest.is_empty() {
            let frame = stride.clamp(1, rest.len());
            let (batch, room) = self.batch(hop, mark, frame, out);
            let (some, others) = rest.split_at((room * frame).min(rest.len()));
            rest = others;
            let start = batch.bytes.len();
            batch.bytes.extend_from_slice(some);
            batch.closed = (batch.bytes.len() - start) % batch.segment != 0;
        }
    }

    /// Returns the batch for the next frame of this size, and for how many frames it has room.
    fn batch(&mut self, hop: Hop, mark: Dscp, frame: usize, out: &Outlets) -> (&mut Batch, usize) {
        let room = |batch: &Batch| {
            let used = batch.bytes.len() / batch.segment.max(1);
            let most = out.max_segments(hop.from, batch.segment);
            match frame.cmp(&batch.segment) {
                _ if batch.closed => 0,
                std::cmp::Ordering::Greater => 0,
                std::cmp::Ordering::Equal => most.saturating_sub(used),
                // A shorter frame is the last one of its batch.
                std::cmp::Ordering::Less => usize::from(most > used),
            }
        };
        if let Some(place) = self.place(hop, mark) {
            let room = room(&self.batches[place]);
            if room > 0 {
                return (&mut self.batches[place], room);
            }
            self.send(place, out);
        } else if self.batches.len() >= HOPS_MAX {
            self.send(0, out);
        }
        let bytes = self.spare.pop().unwrap_or_default();
        let batch = Batch { hop, mark, bytes, segment: frame, closed: false };
        let room = room(&batch);
        self.batches.push(batch);
        (self.batches.last_mut().expect("just added"), room)
    }

    fn place(&self, hop: Hop, mark: Dscp) -> Option<usize> {
        self.batches.iter().position(|batch| (batch.hop, batch.mark) == (hop, mark))
    }

    fn transmit(&mut self, hop: Hop, frames: &[u8], segment: usize, out: &Outlets) {
        let several = (frames.len() > segment).then_some(segment);
        if !out.send(hop.from, hop.to, frames, several) {
            self.lost += frames.len().div_ceil(segment.max(1)) as u64;
        }
    }

    fn send(&mut self, place: usize, out: &Outlets) {
        let Batch { hop, mut bytes, segment, .. } = self.batches.remove(place);
        self.transmit(hop, &bytes, segment, out);
        bytes.clear();
        self.spare.push(bytes);
    }

    /// Sends all frames that wait.
    pub(super) fn flush(&mut self, out: &Outlets) {
        while !self.batches.is_empty() {
            self.send(0, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::os::fd::AsFd as _;

    use anabranch_algo::Span;
    use anabranch_net::{Clock, Interest, Poller, RecvBuffers, Udp};

    use super::*;
    use anabranch::network::line_sockets::LineSockets;

    #[test]
    fn frames_keep_their_order_whether_they_wait_or_not() {
        let here = IpAddr::from([127, 0, 0, 1]);
        let sockets = LineSockets::bind(&[here], 0).expect("a socket");
        let sink = Udp::listen((here, 0).into()).expect("a socket");
        let hop = Hop { from: here, to: sink.local_addr() };
        let frames = |numbers: std::ops::Range<u8>| -> Vec<u8> {
            numbers.flat_map(|number| [number; 1_400]).collect()
        };
        let mut batches = FrameBatches::default();
        batches.push(hop, &frames(0..1), 1_400, &sockets.out);
        batches.push(hop, &frames(1..5), 1_400, &sockets.out);
        batches.push(hop, &frames(5..6), 1_400, &sockets.out);
        // A shorter frame is the last one of its call.
        batches.push(hop, &frames(6..7)[..700], 700, &sockets.out);
        // These are more frames than fit into one call, and the last one is shorter.
        let many = frames(7..107);
        batches.push(hop, &many[..many.len() - 1], 1_400, &sockets.out);
        batches.push(hop, &frames(107..108), 1_400, &sockets.out);
        batches.flush(&sockets.out);
        assert_eq!(batches.lost, 0);

        let (clock, mut buffers, mut came) = (Clock::start(), RecvBuffers::new(), Vec::new());
        let mut poller = Poller::new(clock);
        let end = clock.now() + Span::from_secs(2);
        while came.len() < 108 && clock.now() < end {
            poller.wait([(sink.as_fd(), Interest::Read)], end).expect("it waits");
            let each = |received: anabranch_net::Received<'_>| {
                came.extend(received.datagrams().map(|datagram| (datagram[0], datagram.len())));
            };
            sink.recv(&mut buffers, each).expect("it receives");
        }
        let length = |number| if number == 6 { 700 } else { 1_400 - usize::from(number == 106) };
        assert_eq!(came, (0..108).map(|number| (number, length(number))).collect::<Vec<_>>());
    }
}
