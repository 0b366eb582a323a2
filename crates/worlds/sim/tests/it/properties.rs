//! Tests properties of any network: no packet is lost uncounted, none overtakes unless a fault asks for it,
//! and equal seeds give equal runs.

use anabranch_algo::{Machine, Output, Rate, Span, Time};
use anabranch_sim::{
    Delivery, Discipline, GilbertElliott, LinkChange, LinkConfig, LinkId, MediumId, Net, Packet, RouteId,
    Station, Stats, Trace, VictimPolicy, net,
};
use proptest::prelude::*;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Probe {
    id: u32,
    bytes: u32,
}

impl Packet for Probe {
    fn bytes(&self) -> u32 {
        self.bytes
    }
    fn mark(&mut self) {}
    fn flow(&self) -> Option<u32> {
        Some(self.id % 4).filter(|flow| *flow < 3)
    }
}

fn discipline() -> impl Strategy<Value = Discipline> {
    let policy = prop_oneof![Just(VictimPolicy::All), Just(VictimPolicy::Share), Just(VictimPolicy::Largest)];
    let span = |most: u64| (0..most).prop_map(Span::from_micros);
    prop_oneof![
        2 => Just(Discipline::DropTail),
        1 => (1u32..6, 0.0..1.0).prop_map(|(last_packets, p)| Discipline::Random { last_packets, p }),
        1 => (span(2_000), span(10_000), any::<bool>())
            .prop_map(|(target, interval, ecn)| Discipline::CoDel { target, interval, ecn }),
        1 => (span(2_000), span(10_000), any::<bool>(), 1u32..5, 1u32..3_000)
            .prop_map(|(target, interval, ecn, flows, quantum_bytes)| {
                Discipline::FqCodel { target, interval, ecn, flows, quantum_bytes }
            }),
        1 => (span(20_000), span(100_000), any::<bool>())
            .prop_map(|(target, burst, ecn)| Discipline::Pie { target, burst, ecn }),
        1 => (0u64..20_000, 1u64..20_000, 0.0..1.0, 0.0..1.0, any::<bool>()).prop_map(
            |(min_bytes, more, drop, weight, ecn)| {
                Discipline::Red { min_bytes, max_bytes: min_bytes + more, drop, weight, ecn }
            }
        ),
        1 => (0u32..20, span(20_000), policy)
            .prop_map(|(above_packets, hold, policy)| {
                Discipline::TargetedDrop { above_packets, hold, policy }
            }),
    ]
}

/// Returns a strategy for traces; half of the time there is none.
fn trace() -> impl Strategy<Value = Option<Trace>> {
    let text = |gaps: Vec<u32>| {
        let mut ms = 0;
        let lines = gaps.iter().map(|gap| {
            ms += gap;
            format!("{ms}\n")
        });
        Trace::parse(&lines.collect::<String>()).ok()
    };
    prop_oneof![3 => Just(None), 1 => prop::collection::vec(0u32..9, 1..40).prop_map(text)]
}

type Stream = Vec<Output<Delivery<Probe>, net::Event<Probe>>>;

/// Polls until the network has nothing left to do before `end`.
fn drain(net: &mut Net<Probe>, mut now: Time, end: Time, stream: &mut Stream) {
    loop {
        match net.poll(now) {
            Output::Wait(next) if next >= end => return,
            Output::Wait(next) => {
                assert!(next > now, "a network that wants to be polled now has not been drained");
                now = next;
            }
            output => stream.push(output),
        }
    }
}

fn link_config() -> impl Strategy<Value = LinkConfig> {
    let rate = prop_oneof![Just(None), (10_000u64..100_000_000).prop_map(|r| Some(Rate::from_bytes(r)))];
    let fault = || prop_oneof![2 => Just(0.0), 1 => 0.0..0.3];
    let micros = |most: u64| (0..most).prop_map(Span::from_micros);
    let change = prop_oneof![
        any::<bool>().prop_map(LinkChange::Up),
        (0u64..10_000_000).prop_map(|r| LinkChange::Rate(Some(Rate::from_bytes(r)))),
        Just(LinkChange::Rate(None)),
        (0u64..20_000).prop_map(|us| LinkChange::Delay(Span::from_micros(us))),
        (0.0..0.5).prop_map(LinkChange::Loss),
    ];
    let at = (0u64..200_000_000).prop_map(Time::from_nanos);
    (
        (rate, micros(20_000), micros(3_000), 1u32..50, 1_500u64..100_000, 500u32..2_000),
        (fault(), fault(), fault(), fault(), micros(5_000)),
        prop::collection::vec(0u64..100, 0..5),
        prop::collection::vec((at, change), 0..6),
        (
            discipline(),
            trace(),
            prop::option::of((0.0..0.1, 1.0..5.0)),
            prop::collection::vec((0u32..3, 1u64..30), 0..4),
            prop::option::weighted(0.3, 0u32..5),
        ),
    )
        .prop_map(
            |(
                (rate, delay, jitter, queue_packets, queue_bytes, mtu_bytes),
                faults,
                scripted_drops,
                schedule,
                more,
            )| {
                let (loss, corrupt, duplicate, reorder, reorder_by) = faults;
                let (discipline, trace, bursts, scripted_flow_drops, weight) = more;
                LinkConfig {
                    rate,
                    delay,
                    jitter,
                    queue_packets,
                    queue_bytes,
                    mark_above_bytes: Some(queue_bytes / 2),
                    mtu_bytes,
                    loss,
                    corrupt,
                    duplicate,
                    reorder,
                    reorder_by,
                    scripted_drops,
                    schedule,
                    discipline,
                    bursts: bursts.map(|(loss, packets)| GilbertElliott::bursts(loss, packets)),
                    scripted_flow_drops,
                    station: weight
                        .filter(|_| trace.is_none())
                        .map(|weight| Station::new(MediumId(0), weight)),
                    trace,
                }
            },
        )
}

/// Runs three links, four routes over them, and packets given as (gap in ns, route, bytes).
fn run(
    configs: &[LinkConfig; 3],
    traffic: &[(u64, u32, u32)],
    seed: u64,
) -> (Net<Probe>, Vec<LinkId>, Stream) {
    let mut net = Net::new(seed);
    net.medium("air");
    let links: Vec<_> = ["a", "b", "c"].iter().zip(configs).map(|(n, c)| net.link(n, c.clone())).collect();
    for route in [&[0, 1, 2][..], &[2, 1], &[1], &[0, 0]] {
        net.route(&route.iter().map(|&i| links[i]).collect::<Vec<_>>());
    }
    let (mut stream, mut now) = (Stream::new(), Time::ZERO);
    for (id, &(gap, route, bytes)) in traffic.iter().enumerate() {
        let next = now + Span::from_nanos(gap);
        drain(&mut net, now, next, &mut stream);
        now = next;
        drain(&mut net, now, now + Span::from_nanos(1), &mut stream);
        net.send(now, RouteId(route), Probe { id: id as u32, bytes });
    }
    drain(&mut net, now, Time::NEVER, &mut stream);
    (net, links, stream)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn conserved_ordered_and_repeatable(
        configs in [link_config(), link_config(), link_config()],
        traffic in prop::collection::vec((0u64..3_000_000, 0u32..4, 1u32..1_600), 1..150),
        seed: u64,
    ) {
        let (net, links, stream) = run(&configs, &traffic, seed);

        // Check conservation for each link.
        for &link in &links {
            let stats = net.stats(link);
            let out = stats.delivered + stats.dropped.total() + net.occupancy(link) as u64;
            prop_assert_eq!(stats.offered + stats.duplicated, out);
            prop_assert!(stats.queue_max_packets <= 50 && stats.queue_max_bytes <= 100_000);
        }
        let occupancy: u64 = links.iter().map(|&link| net.occupancy(link) as u64).sum();
        // Check conservation for the whole network: sent + duplicated = delivered + dropped + occupancy.
        let sum = |of: fn(&Stats) -> u64| links.iter().map(|&link| of(&net.stats(link))).sum::<u64>();
        let deliveries = stream.iter().filter(|output| matches!(output, Output::Send(_))).count() as u64;
        let dropped = |output: &&_| matches!(output, Output::Event(net::Event::Dropped { .. }));
        let drops = stream.iter().filter(dropped).count() as u64;
        prop_assert_eq!(drops, sum(|stats| stats.dropped.total()));
        prop_assert_eq!(traffic.len() as u64 + sum(|s| s.duplicated), deliveries + drops + occupancy);

        // Deliveries come in the order of time.
        let arrived: Vec<_> = stream
            .iter()
            .filter_map(|output| if let Output::Send(delivery) = output { Some(delivery) } else { None })
            .collect();
        prop_assert!(arrived.is_sorted_by_key(|delivery| delivery.at));

        // An equal seed gives an equal run, byte for byte.
        let (_, _, again) = run(&configs, &traffic, seed);
        prop_assert_eq!(format!("{stream:?}"), format!("{again:?}"));
    }

    #[test]
    fn in_order_unless_asked_otherwise(
        configs in [link_config(), link_config(), link_config()],
        traffic in prop::collection::vec((0u64..3_000_000, 0u32..4, 1u32..1_600), 1..150),
        seed: u64,
    ) {
        let configs = configs.map(|config| LinkConfig { reorder: 0.0, ..config });
        let (_, _, stream) = run(&configs, &traffic, seed);
        for route in (0..4).map(RouteId) {
            // Fair queueing lets a flow overtake another.
            for flow in [None, Some(0), Some(1), Some(2)] {
                let ids = stream.iter().filter_map(|output| match output {
                    Output::Send(delivery) if delivery.route == route && delivery.packet.flow() == flow => {
                        Some(delivery.packet.id)
                    }
                    _ => None,
                });
                prop_assert!(ids.is_sorted(), "{:?}", route);
            }
        }
    }
}
