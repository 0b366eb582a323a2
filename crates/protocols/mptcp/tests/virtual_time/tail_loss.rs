//! Bursts whose tail is lost, by policy: how long until the last byte can be read.

use anabranch_algo::Span;
use anabranch_mptcp::{Config, TailLoss};

use crate::network::{Faults, Network, client_address};

/// Bytes of data in a full segment.
const SEGMENT: usize = 1_420;

/// A burst of segments on a path with a one-way delay of `near` ms, beside a path with `far` ms.
#[derive(Clone, Copy, Debug)]
struct Burst {
    near: u64,
    far: u64,
    segments: usize,
    /// The last `lost` segments are lost, and the first `lost_again` retransmissions on the same path.
    lost: usize,
    lost_again: usize,
}

/// Returns how long the burst takes, and how many segments were sent for it.
fn complete(tail_loss: TailLoss, burst: Burst) -> (Span, usize) {
    let links = [Faults::none(burst.near), Faults::none(burst.far)];
    let mut config = Config::default();
    config.tcp.tail_loss = tail_loss;
    let mut network = Network::new(config.clone(), config, &links, 1);
    network.hosts[0].finishes = false;
    // This is enough data to have the paths measured.
    network.connect(20 * SEGMENT, 0);
    network.run(Span::from_secs(3));
    assert_eq!(network.hosts[1].read.len(), 20 * SEGMENT);
    let (mut highest, mut number, mut again) = (None, 0, burst.lost_again);
    network.filter = Some(Box::new(move |from, segment| {
        let is_there = from == 0 && segment.source.ip() == client_address(0);
        if !is_there || segment.payload.is_empty() {
            return true;
        }
        if highest.is_some_and(|highest: u32| segment.seq.wrapping_sub(highest) as i32 <= 0) {
            let is_lost = again > 0;
            again = again.saturating_sub(1);
            return !is_lost;
        }
        highest = Some(segment.seq);
        number += 1;
        number + burst.lost <= burst.segments
    }));
    network.keeps_log = true;
    network.log.clear();
    network.hosts[0].to_write = (20 + burst.segments) * SEGMENT;
    let (begun, end) = (network.now, network.now + Span::from_secs(30));
    while network.hosts[1].read.len() < network.hosts[0].to_write {
        assert!(network.step(end), "{tail_loss:?} {burst:?}");
    }
    let with_data = |entry: &&(_, usize, anabranch_mptcp::Segment)| !entry.2.payload.is_empty();
    (network.now.since(begun), network.log.iter().filter(with_data).count())
}

/// Returns bursts that vary by paths, segments, lost tail, and whether the first retransmission is lost, too.
/// The burst's path is never the longer one, because minRTT would send nothing there.
fn bursts() -> impl Iterator<Item = Burst> {
    [(25, 25), (25, 65), (10, 100)].into_iter().flat_map(|(near, far)| {
        [5, 10].into_iter().flat_map(move |segments| {
            [1, 2, 3, segments].into_iter().flat_map(move |lost| {
                [0, 1].map(|lost_again| Burst { near, far, segments, lost, lost_again })
            })
        })
    })
}

#[test]
fn probing_on_the_other_path_is_never_slower_and_helps_where_the_probe_is_lost() {
    for burst in bursts() {
        let (off, _) = complete(TailLoss::Off, burst);
        let (same, same_sent) = complete(TailLoss::SamePath, burst);
        let (other, other_sent) = complete(TailLoss::AlternatePath, burst);
        let (overtake, overtake_sent) = complete(TailLoss::Overtake, burst);
        let said = format!(
            "{burst:?}: off {off}, same {same}, other {other}, overtake {overtake}; \
             {same_sent}, {other_sent}, {overtake_sent} sent"
        );
        assert!(same <= off && other <= same && overtake <= other, "{said}");
        // Overtaking does not wait for a probe timeout: half of the time, and 30 ms.
        if burst.lost_again > 0 && burst.near == burst.far {
            assert!(overtake <= same.over(2) + Span::from_millis(30), "{said}");
            assert!(other + Span::from_millis(40) <= same, "{said}");
        }
        if burst.lost == 1 {
            // If the acknowledgement of the segment before the lost one is delayed, that is overdue, too.
            assert!(other_sent <= same_sent + 1 && overtake_sent <= same_sent + 2, "{said}");
        }
    }
}

/// Linux waits 200 ms longer before it probes for a single segment, and otherwise probes as `SamePath` does.
#[test]
fn linux_waits_longer_for_a_single_segment() {
    let burst = |segments| Burst { near: 25, far: 25, segments, lost: 1, lost_again: 0 };
    let times = |segments| {
        [TailLoss::SamePath, TailLoss::Linux, TailLoss::Off].map(|policy| complete(policy, burst(segments)).0)
    };
    let [same, linux, off] = times(1);
    assert!(same + Span::from_millis(50) <= linux && linux <= off, "same {same}, linux {linux}, off {off}");
}
