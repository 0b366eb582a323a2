//! Connections to mirrors, as far as their rates go: each path is a TCP of its own, whose receiver bounds its
//! window ([`anabranch_mirror::receive_windows`]) by what the receiver's kernel would count.
//!
//! The round trip that the receiver sees is the newest that the sender has, smoothed over eight samples as
//! Linux does it (`tcp_rcv_rtt_update`), and counted in whole milliseconds. All packets count as bytes in
//! order: there is no stream that a loss would hold up.

use anabranch_algo::control::{ALGORITHMS, Algorithm};
use anabranch_algo::controller::ControllerKind;
use anabranch_algo::{Span, TcpSample, Time};
use anabranch_mirror::receive_windows::{ReceiveWindows, Sharing};

/// How often a receiver looks at a connection.
const SAMPLE_EVERY: Span = Span::from_millis(10);
/// The weight of a new round trip: 1 in 8.
const SMOOTHING: u64 = 8;

/// What the receiver knows of one path.
#[derive(Clone, Copy, Debug, Default)]
struct ReceivedPath {
    sample: TcpSample,
    /// When it was last looked at.
    sampled: Time,
    /// Packets that may be on their way; none: as many as the sender likes.
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
    /// One with a path for each of `sharing`. A controller that the program brings is none that yields, as
    /// far as receive windows go.
    pub(super) fn new(sharing: &[Sharing], control: &ControllerKind, packet_bytes: u16) -> Self {
        let mut windows = ReceiveWindows::new();
        let default = || Algorithm::by_name(ALGORITHMS[0].name).expect("in the table");
        let control = control.algorithm().unwrap_or_else(default);
        sharing.iter().for_each(|sharing| windows.add(*sharing, control));
        let sample = TcpSample { mss: packet_bytes.into(), ..TcpSample::default() };
        let path = ReceivedPath { sample, ..ReceivedPath::default() };
        Self { windows, paths: vec![path; sharing.len()], packet_bytes }
    }

    /// A packet has come over a path, whose round trip takes so long now; zero if that is not known.
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

    /// Packets that may be on their way over a path.
    pub(super) fn window(&self, path: usize) -> u32 {
        self.paths.get(path).and_then(|received| received.window).unwrap_or(u32::MAX)
    }

    /// Which paths may share a bottleneck.
    pub(super) fn groups(&self) -> Vec<u32> {
        (0..self.paths.len()).map(|path| self.windows.group(path)).collect()
    }
}
