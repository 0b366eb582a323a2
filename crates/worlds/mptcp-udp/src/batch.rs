//! Gathers segments of equal size for one subflow, which leave in one system call.

use std::net::SocketAddr;

use anabranch_mptcp::{Segment, datagram};
use anabranch_net::udp::{SEGMENTS_MAX, SEND_BYTES_MAX};

use crate::wire::Wire;

/// Datagrams that wait to be sent together.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    /// The two ends of the waiting datagrams, and the bytes of each but the last.
    run: Option<(SocketAddr, SocketAddr, usize)>,
}

impl Batch {
    /// Adds a segment. Sends what waits first if the segment does not fit to it.
    pub(crate) fn push(&mut self, segment: &Segment, wire: &dyn Wire) {
        let before = self.bytes.len();
        datagram::emit(segment, &mut self.bytes);
        let (ends, len) = ((segment.source, segment.target), self.bytes.len() - before);
        let joins = self.run.is_some_and(|(from, to, size)| {
            let has_room = self.bytes.len() <= SEND_BYTES_MAX && before / size < SEGMENTS_MAX;
            (from, to) == ends && len <= size && before.is_multiple_of(size) && has_room
        });
        if !joins {
            if let Some((from, to, size)) = self.run {
                wire.send(from, to, &self.bytes[..before], size);
            }
            self.bytes.drain(..before);
            self.run = Some((ends.0, ends.1, len));
        }
    }

    /// Sends all that waits.
    pub(crate) fn flush(&mut self, wire: &dyn Wire) {
        if let Some((from, to, size)) = self.run.take() {
            wire.send(from, to, &self.bytes, size);
        }
        self.bytes.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use anabranch_mptcp::Payload;
    use anabranch_mptcp::segment::{EcnField, Flags};

    use super::*;

    #[derive(Debug, Default)]
    struct Log(Mutex<Vec<(u16, usize, usize)>>);

    impl Wire for Log {
        fn send(&self, from: SocketAddr, _: SocketAddr, bytes: &[u8], segment: usize) {
            self.0.lock().unwrap().push((from.port(), bytes.len(), segment));
        }
    }

    #[test]
    fn segments_of_one_size_and_subflow_leave_together() {
        let (mut batch, log) = (Batch::default(), Log::default());
        let mut push = |port: u16, len: usize| {
            let segment = Segment {
                source: SocketAddr::new([0, 0, 0, 1].into(), port),
                target: "192.0.2.1:1".parse().unwrap(),
                seq: 0,
                ack: 0,
                flags: Flags::ACK,
                window: 0,
                ecn: EcnField::NotEct,
                options: Default::default(),
                payload: Payload::from(vec![0; len]),
            };
            batch.push(&segment, &log);
        };
        for (port, len) in [(1, 980), (1, 980), (1, 80), (1, 80), (2, 980), (2, 1_180)] {
            push(port, len);
        }
        for _ in 0..SEGMENTS_MAX {
            push(3, 80);
        }
        batch.flush(&log);
        let sent = log.0.into_inner().unwrap();
        let most = SEGMENTS_MAX * 100;
        assert_eq!(
            sent,
            [(1, 2_100, 1_000), (1, 100, 100), (2, 1_000, 1_000), (2, 1_200, 1_200), (3, most, 100)]
        );
    }
}
