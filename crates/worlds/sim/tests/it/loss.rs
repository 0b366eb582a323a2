//! Tests which packets are lost, and that the counters report them.

use anabranch_algo::{Machine, Output, Rate, Span, Time};
use anabranch_sim::link::{Event, Input};
use anabranch_sim::{Discipline, DropReason, GilbertElliott, Link, LinkConfig, Packet, Stats, VictimPolicy};

#[derive(Clone, Debug)]
struct Probe {
    nth: u64,
    flow: Option<u32>,
}

impl Packet for Probe {
    fn bytes(&self) -> u32 {
        1_000
    }
    fn mark(&mut self) {}
    fn flow(&self) -> Option<u32> {
        self.flow
    }
}

/// Sends `count` packets, one each `gap`, over 1,000 packets/s; returns drops as (at in us, nth, reason).
fn run(
    config: LinkConfig,
    gap: Span,
    count: u64,
    flow: impl Fn(u64) -> Option<u32>,
) -> (Vec<(u64, u64, DropReason)>, Stats) {
    let mut link: Link<Probe> = Link::new(config, 5, "a");
    let mut drops = Vec::new();
    let mut poll = |link: &mut Link<Probe>, until: Time| loop {
        match link.poll(until) {
            Output::Event(Event::Dropped { at, reason, packet }) => {
                drops.push((at.as_nanos() / 1_000, packet.nth, reason));
            }
            Output::Wait(_) => break,
            _ => {}
        }
    };
    let mut now = Time::ZERO;
    for nth in 1..=count {
        poll(&mut link, now);
        link.handle(now, Input::Packet(Probe { nth, flow: flow(nth) }));
        now += gap;
    }
    poll(&mut link, now + Span::from_secs(100));
    (drops, link.stats())
}

fn config() -> LinkConfig {
    LinkConfig::new(Rate::from_bytes(1_000_000), Span::from_millis(1))
}

const MS: Span = Span::from_millis(1);

#[test]
fn the_nth_packet_of_a_flow() {
    // Flow 1 has the odd packets, flow 2 every fourth from 2 on; the others are acknowledgements.
    let flow = |nth: u64| match nth % 4 {
        1 | 3 => Some(1),
        2 => Some(2),
        _ => None,
    };
    let config = LinkConfig {
        scripted_flow_drops: vec![(2, 3), (1, 7), (2, 900), (8, 1)],
        scripted_drops: vec![40],
        ..config()
    };
    let (drops, stats) = run(config, MS, 100, flow);
    let nth: Vec<u64> =
        drops.iter().map(|(_, nth, reason)| (*nth, assert_eq!(*reason, DropReason::Scripted)).0).collect();
    assert_eq!(nth, [10, 13, 40]);
    assert_eq!((stats.dropped.scripted, stats.scripted_left, stats.delivered), (3, 2, 97));
}

#[test]
fn random_drops_in_the_last_places_only() {
    // The queue of 10 packets fills at 1/9 packet a ms, and is then refilled as often as it drains.
    let gap = Span::from_micros(900);
    let random = Discipline::Random { last_packets: 3, p: 0.1 };
    let (drops, stats) = run(config().queue_packets(10).discipline(random), gap, 100_000, |_| None);
    // There are 10,000 packets too many. From 7 packets on, a packet is refused with probability 0.1, at 10
    // always.
    assert_eq!(stats.dropped.total(), stats.dropped.congestion());
    assert!(stats.dropped.congestion().abs_diff(10_000) < 20, "{stats:?}");
    assert!(stats.dropped.early > 7_000 && stats.dropped.queue < 3_000, "{stats:?}");
    // No packet is dropped before the seventh waits, which takes 60 ms.
    assert!(drops[0].0 > 50_000, "{drops:?}");
    // If p is 1, the queue is just shorter.
    let random = Discipline::Random { last_packets: 3, p: 1.0 };
    let (_, stats) = run(config().queue_packets(10).discipline(random), gap, 1_000, |_| None);
    assert_eq!((stats.queue_max_packets, stats.dropped.queue), (7, 0));
    // A limit in bytes has this effect too.
    let (_, stats) = run(config().queue_bytes(10_999).discipline(random), gap, 1_000, |_| None);
    assert_eq!((stats.queue_max_packets, stats.dropped.queue), (7, 0));
}

#[test]
fn bursts_lose_their_share_and_use_the_link() {
    let bursts = Some(GilbertElliott::bursts(0.05, 4.0));
    let (drops, stats) = run(LinkConfig { bursts, ..config() }, MS, 100_000, |_| None);
    // The variance of a share in bursts is about p (1 - p) (2 b - 1).
    let sigma = (1e5f64 * 0.05 * 0.95 * 7.0).sqrt();
    assert!((stats.dropped.loss as f64 - 5_000.0).abs() < 4.0 * sigma, "{stats:?}");
    let starts = 1 + drops.windows(2).filter(|pair| pair[1].1 != pair[0].1 + 1).count();
    assert!((drops.len() as f64 / starts as f64 - 4.0).abs() < 0.4, "{} in {starts}", drops.len());
    assert_eq!(stats.busy, Span::from_secs(100));
}

#[test]
fn a_congestion_event_takes_one_packet_of_each_victim() {
    // Two flows alternate and send 10 % too much: an event follows, and no other before its time.
    let victims =
        |policy| Discipline::TargetedDrop { above_packets: 20, hold: Span::from_millis(50), policy };
    let flow = |nth| Some((nth % 2) as u32);
    let gap = Span::from_micros(900);
    for (policy, each) in [(VictimPolicy::All, 2), (VictimPolicy::Largest, 1)] {
        let (drops, stats) =
            run(config().queue_packets(1_000).discipline(victims(policy)), gap, 10_000, flow);
        assert!(stats.congestions > 100, "{stats:?}");
        assert_eq!(stats.dropped.early, each * stats.congestions);
        assert_eq!(stats.dropped.total(), stats.dropped.early);
        for event in drops.chunks(each as usize) {
            assert!(event.iter().all(|drop| drop.0 == event[0].0 && drop.2 == DropReason::Early));
        }
        let times: Vec<u64> = drops.chunks(each as usize).map(|event| event[0].0).collect();
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= 50_000), "{times:?}");
    }
    let (drops, stats) = run(config().discipline(victims(VictimPolicy::Share)), gap, 10_000, flow);
    // An event of two equal flows hits one and a third flows on average, if it hits any.
    let mean = stats.dropped.early as f64 / stats.congestions as f64;
    assert!((mean - 4.0 / 3.0).abs() < 0.15, "{mean}");
    let first = drops.iter().filter(|drop| drop.1 % 2 == 0).count() as f64 / drops.len() as f64;
    assert!((first - 0.5).abs() < 0.12, "{first}");
}
