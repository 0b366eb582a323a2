//! Models the rates of connections to mirrors: each path is a TCP connection of its own, whose receiver
//! bounds its window ([`anabranch_mirror::receive_windows`]) by the numbers that the receiver's kernel would
//! count.
//!
//! The receiver's round-trip time is the sender's newest one, smoothed over eight samples as in Linux
//! (`tcp_rcv_rtt_update`), in whole milliseconds. All packets count as bytes in order: there is no stream
//! that a loss would delay.

use anabranch_algo::control::{ALGORITHMS, Algorithm};
use anabranch_algo::controller::ControllerKind;
use anabranch_algo::{Span, TcpSample, Time};
use anabranch_mirror::receive_windows::{ReceiveWindows, Sharing};

/// Time between two samples of a connection by the receiver.
const SAMPLE_EVERY: Span = Span::from_millis(10);
/// Divisor of the weight of a new round-trip time: 1/8.
const SMOOTHING: u64 = 8;

/// The receiver's state of one path.
#[derive(Clone, Copy, Debug, Default)]
struct ReceivedPath {
    sample: TcpSample,
    /// Time of the last sample.
    sampled: Time,
    /// Most packets in flight; `None` if the receiver sets no limit.
    window: Option<u32>,
}

/// The receiver of a flow.
#[derive(Debug)]
pub(super) struct MirrorReceiver {
    windows: ReceiveWindows,
    paths: Vec<ReceivedPath>,
    packet_bytes: u16,
}

impl MirrorReceiver {
    /// Creates a receiver with one path for each of `sharing`. Receive windows treat a controller of the
    /// program as one that does not yield.
    pub(super) fn new(sharing: &[Sharing], control: &ControllerKind, packet_bytes: u16) -> Self {
        let mut windows = ReceiveWindows::new();
        let default = || Algorithm::by_name(ALGORITHMS[0].name).expect("in the table");
        let control = control.algorithm().unwrap_or_else(default);
        sharing.iter().for_each(|sharing| windows.add(*sharing, control));
        let sample = TcpSample { mss: packet_bytes.into(), ..TcpSample::default() };
        let path = ReceivedPath { sample, ..ReceivedPath::default() };
        Self { windows, paths: vec![path; sharing.len()], packet_bytes }
    }

    /// Handles a packet on a path with the current round-trip time `rtt`; zero if it is unknown.
    pub(super) fn arrived(&mut self, now: Time, path: usize, rtt: Span) {
        let Some(received) = self.paths.get_mut(path) else { return };
        let sample = &mut received.sample;
        sample.received_bytes += u64::from(self.packet_bytes);
        sample.segments = sample.segments.wrapping_add(1);
        if rtt == Span::ZERO {
            return;
        }
        let rtt = Span::from_millis(rtt.as_millis().max(1));
        let smoothed = sample.rtt - sample.rtt.over(SMOOTHING) + rtt.over(SMOOTHING);
        sample.rtt = if sample.rtt == Span::ZERO { rtt } else { smoothed };
        if now.since(received.sampled) < SAMPLE_EVERY {
            return;
        }
        received.sampled = now;
        self.windows.sample(now, path, &received.sample);
        while let Some((path, bytes)) = self.windows.next_window() {
            let packets = bytes / u64::from(self.packet_bytes);
            self.paths[path].window = Some(u32::try_from(packets).unwrap_or(u32::MAX));
        }
    }

    /// Returns the most packets that may be in flight on a path.
    pub(super) fn window(&self, path: usize) -> u32 {
        self.paths.get(path).and_then(|received| received.window).unwrap_or(u32::MAX)
    }

    /// Returns each path's group of paths that may share a bottleneck.
    pub(super) fn groups(&self) -> Vec<u32> {
        (0..self.paths.len()).map(|path| self.windows.group(path)).collect()
    }
}
