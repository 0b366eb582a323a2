//! Chooses the path of a datagram.

use anabranch_algo::{Span, Time};

use super::path::Path;
use super::{Leg, Mode};

/// The smallest window, in packets, for duplicated datagrams. They are used on lossy paths, where windows
/// shrink. It is the initial window of a connection (RFC 6928).
const DUPLICATE_WINDOW: u32 = anabranch_algo::control::INITIAL_WINDOW.floor();
/// The present path is kept unless another one's delay is lower by this and an eighth.
const HYSTERESIS: Span = Span::from_millis(1);

/// Estimates when a datagram that leaves now would arrive: after half of the shortest round trip, plus the
/// time for the packets that queue beyond what the path holds without a queue.
fn arrival(path: &Path) -> Span {
    let (rtt, window) = (path.subflow.rtt(), u64::from(path.subflow.cwnd()));
    let in_flight = u64::from(path.subflow.sent_packets().in_flight());
    let pipe = rtt.min().times(window).over(rtt.srtt().as_nanos().max(1)).as_nanos();
    let queued = in_flight.saturating_sub(pipe);
    rtt.min().over(2) + rtt.srtt().times(queued).over(window.max(1))
}

/// Returns the cost of a path. The path with the lowest cost is the best.
fn cost(path: &Path, now: Time, mode: Mode, last: Option<u8>) -> (bool, u8, Span) {
    let delay = match mode {
        Mode::Aggregate => arrival(path),
        Mode::Best | Mode::Duplicate => path.subflow.rtt().srtt().over(2),
    };
    let is_kept = mode == Mode::Best && last == Some(path.number);
    let delay = if is_kept { delay - delay.over(8) - HYSTERESIS } else { delay };
    (path.is_suspect(now), path.rank, delay)
}

impl Leg {
    /// Returns the indices of the best and the second best path for a packet of this many bytes, among those
    /// that answer and have room. A path of rank `u8::MAX` is used only if no other answers.
    pub(super) fn choose(&self, now: Time, mode: Mode, bytes: usize) -> (Option<usize>, Option<usize>) {
        let is_better = |path: &&Path| path.is_alive && path.rank < u8::MAX && !path.is_suspect(now);
        let has_better = self.paths.iter().any(|path| is_better(&path));
        let fits = |path: &Path| {
            let is_wanted = path.rank < u8::MAX || !has_better;
            let in_flight = path.subflow.sent_packets().in_flight();
            let has_room = path.subflow.room() > 0 || mode == Mode::Duplicate && in_flight < DUPLICATE_WINDOW;
            path.is_alive && is_wanted && has_room && path.allowance() >= bytes
        };
        let mut places: Vec<usize> = (0..self.paths.len()).filter(|i| fits(&self.paths[*i])).collect();
        places.sort_by_key(|i| cost(&self.paths[*i], now, mode, self.last_path));
        (places.first().copied(), places.get(1).copied())
    }
}
