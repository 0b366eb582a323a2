//! Tests that hold for every controller of the table, with every slow start. A new controller is covered by
//! being in the table.

use anabranch_algo::control::{
    ALGORITHMS, Ack, Algorithm, AlgorithmInfo, CongestionCause, CongestionEvent, Control, Group,
    INITIAL_WINDOW, SLOW_STARTS, SubflowStats, Window,
};
use anabranch_algo::{Span, Time};
use proptest::prelude::*;

fn ack(acked: u32, round: u32, srtt: Span) -> Ack {
    let now = Time::ZERO + srtt.times(u64::from(round));
    Ack { now, acked, round, srtt, rtt: srtt, min_rtt: srtt, cwnd_limited: true, recovering: false }
}

fn publish(flows: &[Algorithm], rtts: &[Span]) -> Vec<SubflowStats> {
    flows.iter().zip(rtts).map(|(flow, &srtt)| flow.stats(srtt)).collect()
}

/// Iterates over the rules of the table that go with any slow start.
fn rules() -> impl Iterator<Item = &'static AlgorithmInfo> {
    ALGORITHMS.iter().filter(|entry| entry.slow_start.is_some())
}

/// Generates names of the table, each with a slow start.
fn names(keep: fn(&AlgorithmInfo) -> bool) -> impl Strategy<Value = (&'static AlgorithmInfo, &'static str)> {
    let kept = rules().filter(move |entry| keep(entry));
    let all = kept.flat_map(|entry| SLOW_STARTS.iter().map(move |start| (entry, start.name)));
    prop::sample::select(all.collect::<Vec<_>>())
}

fn make(entry: &AlgorithmInfo, start: &str) -> Algorithm {
    Algorithm::by_name(&format!("{}+{start}", entry.name)).expect("names of the tables")
}

#[derive(Clone, Debug)]
enum Step {
    Ack { acked: u32, rounds: u32, cwnd_limited: bool, recovering: bool, rtt: u64 },
    Congestion(CongestionCause),
}

fn step() -> impl Strategy<Value = Step> {
    let flag = |p| prop::bool::weighted(p);
    let cause = prop_oneof![
        4 => Just(CongestionCause::Loss),
        1 => Just(CongestionCause::Timeout),
        1 => Just(CongestionCause::EcnCe),
    ];
    // Now and then more than a window is acknowledged, and the sample is arbitrary.
    let acked = prop_oneof![8 => 0..65u32, 1 => any::<u32>()];
    let rtt = prop_oneof![1 => Just(0), 8 => 10_000..200_000_000u64, 1 => any::<u64>()];
    prop_oneof![
        8 => (acked, 0..2u32, flag(0.9), flag(0.1), rtt).prop_map(
            |(acked, rounds, cwnd_limited, recovering, rtt)| {
                Step::Ack { acked, rounds, cwnd_limited, recovering, rtt }
            }
        ),
        1 => cause.prop_map(Step::Congestion),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn windows_stay_in_bounds(
        (entry, start) in names(|_| true),
        steps in prop::collection::vec((0..6usize, step(), 0..100u64), 1..300),
        rtts in prop::collection::vec(prop_oneof![1 => Just(0u64), 9 => 10_000..10_000_000_000u64], 1..6),
        beside in prop::bool::weighted(0.1),
    ) {
        let rtts: Vec<_> = rtts.into_iter().map(Span::from_nanos).collect();
        let n = rtts.len();
        let mut flows = vec![make(entry, start); n];
        let mut round = vec![0; n];
        let mut now = Time::ZERO;
        for (me, step, ms) in steps {
            let me = me % n;
            now += Span::from_millis(ms);
            let members = publish(&flows, &rtts);
            // A group that makes no sense does no harm either.
            let group = Group { members: &members, me: if beside { me + n } else { me } };
            let (srtt, before) = (rtts[me], members[me].cwnd);
            let decided = match step {
                Step::Ack { acked, rounds, cwnd_limited, recovering, rtt } => {
                    round[me] += rounds;
                    let rtt = Span::from_nanos(rtt);
                    let min_rtt = rtt.min(Span::from_millis(10));
                    let ack =
                        Ack { now, acked, round: round[me], srtt, rtt, min_rtt, cwnd_limited, recovering };
                    let decided = flows[me].on_ack(&ack, &group);
                    let after = flows[me].stats(srtt).cwnd;
                    prop_assert!(cwnd_limited && !recovering || after == before, "it must not move");
                    decided
                }
                Step::Congestion(cause) => {
                    let decided = flows[me].on_congestion(&CongestionEvent { now, cause, srtt }, &group);
                    let after = flows[me].stats(srtt);
                    prop_assert!(after.cwnd <= before, "a loss never grows a window");
                    if cause == CongestionCause::Timeout {
                        prop_assert!(after.cwnd == Window::packets(1) && after.slow_start);
                    }
                    decided
                }
            };
            let after = flows[me].stats(srtt);
            prop_assert!(after.cwnd >= Window::packets(1) && after.cwnd <= Window::MAX);
            prop_assert_eq!(decided, after.cwnd.floor());
            prop_assert_eq!(after.srtt, srtt);
        }
    }

    #[test]
    fn alone_it_is_reno_or_cubic(
        (entry, start) in names(|entry| entry.reno_alone || entry.name == "cubic-coupled"),
        steps in prop::collection::vec(step(), 1..200),
        listed: bool,
    ) {
        let srtt = Span::from_millis(30);
        // For a single flow, friendly slow start is the standard one.
        let plain = if start == "friendly" { "standard" } else { start };
        let single = if entry.reno_alone { "reno" } else { "cubic" };
        let single = Algorithm::by_name(&format!("{single}+{plain}")).expect("names of the tables");
        let mut flows = [make(entry, start), single];
        let mut round = 0;
        for (i, step) in steps.into_iter().enumerate() {
            let now = Time::ZERO + srtt.times(i as u64);
            rounds_of(&step, &mut round);
            let after = flows.each_mut().map(|flow| {
                let member = [flow.stats(srtt)];
                let group = Group { members: if listed { &member } else { &[] }, me: 0 };
                let decided = match step {
                    Step::Ack { acked, cwnd_limited, recovering, rtt, .. } => {
                        let rtt = Span::from_nanos(rtt);
                        let ack =
                            Ack { now, acked, round, srtt, rtt, min_rtt: rtt, cwnd_limited, recovering };
                        flow.on_ack(&ack, &group)
                    }
                    Step::Congestion(cause) => {
                        flow.on_congestion(&CongestionEvent { now, cause, srtt }, &group)
                    }
                };
                let SubflowStats { cwnd, slow_start, .. } = flow.stats(srtt);
                (decided, cwnd, slow_start)
            });
            prop_assert_eq!(after[0], after[1]);
        }
    }
}

fn rounds_of(step: &Step, round: &mut u32) {
    if let Step::Ack { rounds, .. } = step {
        *round += rounds;
    }
}

/// Two equal subflows in friendly slow start together grow as one TCP, whatever comes after.
#[test]
fn friendly_slow_start_goes_with_every_rule() {
    let rtts = [Span::from_millis(50); 2];
    for entry in rules() {
        let mut flows = [make(entry, "friendly"); 2];
        for (round, want) in (1..).zip([15, 25, 45, 85, 165, 325]) {
            let members = publish(&flows, &rtts);
            for (me, flow) in flows.iter_mut().enumerate() {
                let window = members[me].cwnd.floor();
                let decided = flow.on_ack(&ack(window, round, rtts[me]), &Group { members: &members, me });
                assert!(decided.abs_diff(want) <= 1, "{}: {} is not {want}", entry.name, decided);
            }
        }
    }
}

/// Standard slow start doubles, and a loss ends it, with every rule and in a group.
#[test]
fn standard_slow_start_goes_with_every_rule() {
    let rtts = [Span::from_millis(50); 2];
    for entry in rules() {
        let mut flows = [make(entry, "standard"); 2];
        for (round, want) in (1..).zip([20, 40, 80]) {
            let members = publish(&flows, &rtts);
            for (me, flow) in flows.iter_mut().enumerate() {
                let window = members[me].cwnd.floor();
                let decided = flow.on_ack(&ack(window, round, rtts[me]), &Group { members: &members, me });
                assert_eq!(decided, want, "{}", entry.name);
            }
        }
        let members = publish(&flows, &rtts);
        let loss = CongestionEvent { now: Time::ZERO, cause: CongestionCause::Loss, srtt: rtts[0] };
        flows[0].on_congestion(&loss, &Group { members: &members, me: 0 });
        let after = flows[0].stats(rtts[0]);
        assert!(!after.slow_start && after.cwnd < Window::packets(80), "{}", entry.name);
        // After a timeout the window comes back up to where the loss left it, or below.
        let members = publish(&flows, &rtts);
        let timeout = CongestionEvent { cause: CongestionCause::Timeout, ..loss };
        flows[0].on_congestion(&timeout, &Group { members: &members, me: 0 });
        let ceiling = after.cwnd.max(Window::packets(2));
        for round in 10..20 {
            let members = publish(&flows, &rtts);
            if !members[0].slow_start {
                break;
            }
            let group = Group { members: &members, me: 0 };
            flows[0].on_ack(&ack(members[0].cwnd.floor(), round, rtts[0]), &group);
        }
        let back = flows[0].stats(rtts[0]);
        assert!(!back.slow_start && back.cwnd <= ceiling, "{}: {back:?}", entry.name);
    }
}

/// HyStart++ leaves slow start without a loss when the round trip grows, whatever comes after.
#[test]
fn hystart_goes_with_every_rule() {
    for entry in rules() {
        let mut flow = make(entry, "hystart");
        let mut rounds = 0;
        while flow.stats(Span::ZERO).slow_start && rounds < 30 {
            rounds += 1;
            // There is a queue from the fourth round on.
            let rtt = Span::from_millis(if rounds < 4 { 40 } else { 40 + 10 * u64::from(rounds) });
            let window = flow.stats(rtt).cwnd.floor();
            for _ in 0..window {
                let one = Ack { min_rtt: Span::from_millis(40), ..ack(1, rounds, rtt) };
                flow.on_ack(&one, &Group { members: &[], me: 0 });
            }
        }
        let w = flow.stats(Span::ZERO).cwnd;
        // 10·2³ = 80; 8 samples into the fourth round CSS begins, 80 + 8 + 72/4 = 106; four more: 106·1.25⁴ =
        // 259.
        assert!(rounds < 12 && w > INITIAL_WINDOW && w < Window::packets(260), "{}: {w:?}", entry.name);
    }
}
