//! States of groups, and the results of each rule for them: computed by an independent model in floating
//! point.

use anabranch_algo::control::{
    Ack, Balia, CongestionCause, CongestionEvent, Coupled, Ewtcp, Group, Lia, Olia, Reno, SubflowStats,
    WindowDelta,
};
use anabranch_algo::control::{CongestionAvoidance, Window, Wvegas};
use anabranch_algo::{Span, Time};

/// The state of a subflow: window, RTT and smallest RTT in ms, packets between losses.
type State = (f64, f64, f64, u64);

/// The results for each subflow: the packets that an arriving one adds, and with a second number the packets
/// that a loss takes (BALIA) or leaves (Coupled). For wVegas: the packets queued, the change after a round,
/// whether slow start ends, and the factor that drains the queue.
struct Vector {
    name: &'static str,
    states: &'static [State],
    reno: &'static [f64],
    lia: &'static [f64],
    olia: &'static [f64],
    balia: &'static [(f64, f64)],
    ewtcp: &'static [f64],
    coupled: &'static [(f64, f64)],
    wvegas: &'static [(f64, f64, bool, f64)],
}

const VECTORS: &[Vector] = &[
    Vector {
        name: "c1-equal",
        states: &[(10.0, 100.0, 90.0, 1000), (10.0, 100.0, 90.0, 1000)],
        reno: &[0.1, 0.1],
        lia: &[0.025, 0.025],
        olia: &[0.025, 0.025],
        balia: &[(0.025, 5.0), (0.025, 5.0)],
        ewtcp: &[0.025, 0.025],
        coupled: &[(0.05, 1.0), (0.05, 1.0)],
        wvegas: &[(1.0, 1.0, false, 0.45), (1.0, 1.0, false, 0.45)],
    },
    Vector {
        name: "c2-rtt10-100",
        states: &[(10.0, 10.0, 8.0, 50), (10.0, 100.0, 80.0, 900)],
        reno: &[0.1, 0.1],
        lia: &[0.0826446280991736, 0.0826446280991736],
        olia: &[0.0826446280991736, 0.0008264462809917],
        balia: &[(0.0826446280991736, 5.0), (0.0127272727272727, 7.5)],
        ewtcp: &[0.025, 0.025],
        coupled: &[(0.05, 1.0), (0.05, 1.0)],
        wvegas: &[(2.0, 1.0, true, 0.4), (2.0, 0.0, true, 0.4)],
    },
    Vector {
        name: "c3-small-fast",
        states: &[(4.0, 20.0, 15.0, 800), (40.0, 200.0, 150.0, 500)],
        reno: &[0.25, 0.025],
        lia: &[0.0625, 0.025],
        olia: &[0.1875, -0.00625],
        balia: &[(0.0625, 2.0), (0.00625, 20.0)],
        ewtcp: &[0.0625, 0.00625],
        coupled: &[(0.0227272727272727, 1.0), (0.0227272727272727, 18.0)],
        wvegas: &[(1.0, 1.0, false, 0.375), (10.0, -1.0, true, 0.375)],
    },
    Vector {
        name: "c4-three",
        states: &[(10.0, 50.0, 40.0, 600), (20.0, 100.0, 90.0, 2000), (30.0, 150.0, 120.0, 500)],
        reno: &[0.1, 0.05, 0.0333333333333333],
        lia: &[0.0111111111111111, 0.0111111111111111, 0.0111111111111111],
        olia: &[0.0444444444444444, 0.0055555555555556, -0.0074074074074074],
        balia: &[(0.0111111111111111, 5.0), (0.0055555555555556, 10.0), (0.0037037037037037, 15.0)],
        ewtcp: &[0.0111111111111111, 0.0055555555555556, 0.0037037037037037],
        coupled: &[(0.0166666666666667, 1.0), (0.0166666666666667, 1.0), (0.0166666666666667, 1.0)],
        wvegas: &[(2.0, 1.0, true, 0.4), (2.0, 1.0, true, 0.45), (6.0, -1.0, true, 0.4)],
    },
    Vector {
        name: "c5-10-250",
        states: &[(100.0, 10.0, 10.0, 4000), (2.0, 250.0, 240.0, 20)],
        reno: &[0.01, 0.5],
        lia: &[0.0099840191795405, 0.0099840191795405],
        olia: &[0.0099840191795405, 3.194886137e-07],
        balia: &[(0.0099840191795405, 50.0), (0.0501199040767386, 1.5)],
        ewtcp: &[0.0025, 0.125],
        coupled: &[(0.0098039215686275, 49.0), (0.0098039215686275, 1.0)],
        wvegas: &[(0.0, 1.0, false, 0.5), (0.08, 1.0, false, 0.48)],
    },
    Vector {
        name: "c6-single",
        states: &[(16.0, 80.0, 60.0, 100)],
        reno: &[0.0625],
        lia: &[0.0625],
        olia: &[0.0625],
        balia: &[(0.0625, 8.0)],
        ewtcp: &[0.0625],
        coupled: &[(0.0625, 8.0)],
        wvegas: &[(4.0, 1.0, true, 0.375)],
    },
    Vector {
        name: "c7-four-equal",
        states: &[
            (8.0, 50.0, 45.0, 100),
            (8.0, 50.0, 45.0, 100),
            (8.0, 50.0, 45.0, 100),
            (8.0, 50.0, 45.0, 100),
        ],
        reno: &[0.125, 0.125, 0.125, 0.125],
        lia: &[0.0078125, 0.0078125, 0.0078125, 0.0078125],
        olia: &[0.0078125, 0.0078125, 0.0078125, 0.0078125],
        balia: &[(0.0078125, 4.0), (0.0078125, 4.0), (0.0078125, 4.0), (0.0078125, 4.0)],
        ewtcp: &[0.0078125, 0.0078125, 0.0078125, 0.0078125],
        coupled: &[(0.03125, 1.0), (0.03125, 1.0), (0.03125, 1.0), (0.03125, 1.0)],
        wvegas: &[
            (0.8, 1.0, false, 0.45),
            (0.8, 1.0, false, 0.45),
            (0.8, 1.0, false, 0.45),
            (0.8, 1.0, false, 0.45),
        ],
    },
    Vector {
        name: "c8-three-skew",
        states: &[(30.0, 20.0, 16.0, 900), (10.0, 60.0, 50.0, 9000), (50.0, 10.0, 9.0, 200)],
        reno: &[0.0333333333333333, 0.1, 0.02],
        lia: &[0.01125, 0.01125, 0.01125],
        olia: &[0.0016875, 0.0333958333333333, 0.0045833333333333],
        balia: &[(0.0053625, 22.5), (0.0065875, 7.5), (0.01125, 25.0)],
        ewtcp: &[0.0037037037037037, 0.0111111111111111, 0.0022222222222222],
        coupled: &[(0.0111111111111111, 1.0), (0.0111111111111111, 1.0), (0.0111111111111111, 5.0)],
        wvegas: &[
            (6.0, -1.0, true, 0.4),
            (1.666666666666667, 1.0, true, 0.4166666666666667),
            (5.0, 1.0, true, 0.45),
        ],
    },
    Vector {
        name: "c9-cap-active",
        states: &[(1.0, 10.0, 10.0, 10), (100.0, 100.0, 70.0, 5000)],
        reno: &[1.0, 0.01],
        lia: &[0.0082644628099174, 0.0082644628099174],
        olia: &[0.0082644628099174, 0.0082644628099174],
        balia: &[(0.1272727272727273, 0.75), (0.0082644628099174, 50.0)],
        ewtcp: &[0.25, 0.0025],
        coupled: &[(0.0099009900990099, 1.0), (0.0099009900990099, 49.5)],
        wvegas: &[(0.0, 1.0, false, 0.5), (30.0, -1.0, true, 0.35)],
    },
    Vector {
        name: "c10-nsdi-fig4",
        states: &[(7.0710678118654755, 10.0, 10.0, 25), (14.142135623730951, 100.0, 100.0, 100)],
        reno: &[0.1414213562373095, 0.0707106781186548],
        lia: &[0.0982092751647983, 0.0707106781186548],
        olia: &[0.168919953283453, -0.0333911535560314],
        balia: &[(0.0982092751647983, 3.535533905932738), (0.0106066017177982, 10.60660171779821)],
        ewtcp: &[0.0353553390593274, 0.0176776695296637],
        coupled: &[(0.0471404520791032, 1.0), (0.0471404520791032, 3.535533905932738)],
        wvegas: &[(0.0, 1.0, false, 0.5), (0.0, 1.0, false, 0.5)],
    },
    Vector {
        name: "c12-rfc-vs-nsdi",
        states: &[(1.0, 1.0, 1.0, 10), (100.0, 100.0, 100.0, 100), (100.0, 100.0, 100.0, 100)],
        reno: &[1.0, 0.01, 0.01],
        lia: &[0.1111111111111111, 0.01, 0.01],
        olia: &[0.4444444444444444, -0.0005555555555556, -0.0005555555555556],
        balia: &[(0.1111111111111111, 0.5), (0.0011111111111111, 50.0), (0.0011111111111111, 50.0)],
        ewtcp: &[0.1111111111111111, 0.0011111111111111, 0.0011111111111111],
        coupled: &[(0.0049751243781095, 1.0), (0.0049751243781095, 1.0), (0.0049751243781095, 1.0)],
        wvegas: &[(0.0, 1.0, false, 0.5), (0.0, 1.0, false, 0.5), (0.0, 1.0, false, 0.5)],
    },
    Vector {
        name: "c11-balia-midalpha",
        states: &[(12.0, 100.0, 100.0, 100), (10.0, 100.0, 100.0, 80)],
        reno: &[0.0833333333333333, 0.1],
        lia: &[0.0247933884297521, 0.0247933884297521],
        olia: &[0.0247933884297521, 0.0206611570247934],
        balia: &[(0.0247933884297521, 6.0), (0.0236363636363636, 6.0)],
        ewtcp: &[0.0208333333333333, 0.025],
        coupled: &[(0.0454545454545454, 1.0), (0.0454545454545454, 1.0)],
        wvegas: &[(0.0, 1.0, false, 0.5), (0.0, 1.0, false, 0.5)],
    },
];

fn ms(ms: f64) -> Span {
    Span::from_nanos((ms * 1e6) as u64)
}

fn window(packets: f64) -> Window {
    Window::from_units((packets * Window::ONE as f64) as u64)
}

fn packets(window: Window) -> f64 {
    window.units() as f64 / Window::ONE as f64
}

fn float(change: WindowDelta) -> f64 {
    (change.increase.to_fixed(50) as f64 - change.decrease.to_fixed(50) as f64) / (1u64 << 50) as f64
}

#[track_caller]
fn close(what: &str, got: f64, want: f64) {
    assert!((got - want).abs() <= 1e-7 * want.abs(), "{what}: {got} is not {want}");
}

fn ack(acked: u32, round: u32, rtt: Span, min_rtt: Span) -> Ack {
    Ack { now: Time::ZERO, acked, round, srtt: rtt, rtt, min_rtt, cwnd_limited: true, recovering: false }
}

#[test]
fn increases_and_decreases() {
    for v in VECTORS {
        let members: Vec<_> = (v.states.iter())
            .map(|&(w, rtt, _, packets_between_losses)| SubflowStats {
                cwnd: window(w),
                srtt: ms(rtt),
                packets_between_losses,
                ..SubflowStats::default()
            })
            .collect();
        for (me, (mine, &(w, rtt, base, _))) in members.iter().zip(v.states).enumerate() {
            let group = Group { members: &members, me };
            let loss = CongestionEvent { now: Time::ZERO, cause: CongestionCause::Loss, srtt: ms(rtt) };
            let one = ack(1, 0, ms(rtt), ms(base));
            let what = |rule: &str| format!("{}, subflow {me}, {rule}", v.name);

            close(&what("Reno"), float(Reno.window_delta(mine, &one, &group)), v.reno[me]);
            close(&what("LIA"), float(Lia.window_delta(mine, &one, &group)), v.lia[me]);
            close(&what("OLIA"), float(Olia::new().window_delta(mine, &one, &group)), v.olia[me]);
            close(&what("BALIA"), float(Balia.window_delta(mine, &one, &group)), v.balia[me].0);
            close(&what("EWTCP"), float(Ewtcp.window_delta(mine, &one, &group)), v.ewtcp[me]);
            close(&what("Coupled"), float(Coupled.window_delta(mine, &one, &group)), v.coupled[me].0);
            // A batch counts as its packets.
            let seven = Ack { acked: 7, ..one };
            close(&what("LIA of 7"), float(Lia.window_delta(mine, &seven, &group)), 7.0 * v.lia[me]);
            close(
                &what("OLIA of 7"),
                float(Olia::new().window_delta(mine, &seven, &group)),
                7.0 * v.olia[me],
            );

            close(&what("Reno's loss"), packets(Reno.reduced_window(mine, &loss, &group)), w / 2.0);
            close(&what("LIA's loss"), packets(Lia.reduced_window(mine, &loss, &group)), w / 2.0);
            close(&what("OLIA's loss"), packets(Olia::new().reduced_window(mine, &loss, &group)), w / 2.0);
            close(&what("EWTCP's loss"), packets(Ewtcp.reduced_window(mine, &loss, &group)), w / 2.0);
            close(&what("wVegas' loss"), packets(Wvegas::new().reduced_window(mine, &loss, &group)), w / 2.0);
            let floor = |w: f64| w.max(1.0);
            close(
                &what("BALIA's loss"),
                packets(Balia.reduced_window(mine, &loss, &group)),
                floor(w - v.balia[me].1),
            );
            close(
                &what("Coupled's loss"),
                packets(Coupled.reduced_window(mine, &loss, &group)),
                v.coupled[me].1,
            );
        }
    }
}

#[test]
fn rounds_of_wvegas() {
    for v in VECTORS {
        let members: Vec<_> = (v.states.iter())
            .map(|&(w, rtt, ..)| SubflowStats { cwnd: window(w), srtt: ms(rtt), ..SubflowStats::default() })
            .collect();
        for (me, (mine, &(w, rtt, base, _))) in members.iter().zip(v.states).enumerate() {
            let what = format!("{}, subflow {me}", v.name);
            let group = Group { members: &members, me };
            let (_, delta, leaves, drain) = v.wvegas[me];
            let (rtt, base) = (ms(rtt), ms(base));
            // Takes a round of samples, and returns the first packet of the next.
            let round = |rule: &mut Wvegas, n: u32, rtt: Span| {
                rule.on_ack(&ack(10, n, rtt, base));
                ack(0, n + 1, rtt, base)
            };
            let mut rule = Wvegas::new();
            let next = round(&mut rule, 0, rtt);
            let left = rule.exit_slow_start(mine, &next);
            assert_eq!(left.is_some(), leaves, "{what}: end of slow start");
            if let Some(left) = left {
                close(&what, packets(left), w * (base.as_nanos() as f64 / rtt.as_nanos() as f64) + 1.0);
            }
            let mut rule = Wvegas::new();
            let next = round(&mut rule, 0, rtt);
            let adjusted = (w + delta).max(2.0);
            close(&what, w + float(rule.window_delta(mine, &next, &group)), adjusted);
            // The queue is twice the smallest queue there was: it is drained.
            let mut rule = Wvegas::new();
            let queue = rtt - base;
            let next = round(&mut rule, 0, base + queue.over(2));
            rule.window_delta(mine, &next, &group);
            let next = round(&mut rule, 1, rtt);
            let got = w + float(rule.window_delta(mine, &next, &group));
            let want = if queue > Span::ZERO { ((w + delta) * drain).max(2.0) } else { adjusted };
            close(&what, got, want);
        }
    }
}

/// Windows at which integers of other implementations give up: there LIA is uncoupled, and OLIA stops
/// growing.
#[test]
fn large_windows_stay_coupled() {
    let rtt = Span::from_millis(50);
    for w in [1, 255, 256, 1_000, 10_000, 100_000, 1_000_000] {
        let members = [SubflowStats { cwnd: Window::packets(w), srtt: rtt, ..SubflowStats::default() }; 2];
        let group = Group { members: &members, me: 0 };
        let one = ack(1, 0, rtt, rtt);
        let want = 0.25 / f64::from(w);
        for change in [
            Lia.window_delta(&members[0], &one, &group),
            Olia::new().window_delta(&members[0], &one, &group),
            Balia.window_delta(&members[0], &one, &group),
            Ewtcp.window_delta(&members[0], &one, &group),
        ] {
            close("a quarter of Reno's", float(change), want);
            let moved = packets(members[0].cwnd.adjusted_by(change)) - f64::from(w);
            assert!((moved / want - 1.0).abs() < 1e-3, "{w}: {moved} is not {want}");
        }
    }
    // The best path with the smaller window gains, the largest window gives way.
    let members = [
        SubflowStats {
            cwnd: Window::packets(10_000),
            srtt: rtt,
            packets_between_losses: 1_000_000,
            ..SubflowStats::default()
        },
        SubflowStats {
            cwnd: Window::packets(20_000),
            srtt: rtt,
            packets_between_losses: 10_000,
            ..SubflowStats::default()
        },
    ];
    let change = |me: usize| {
        Olia::new().window_delta(&members[me], &ack(1, 0, rtt, rtt), &Group { members: &members, me })
    };
    let square = 30_000f64.powi(2);
    close("collected", float(change(0)), 10_000.0 / square + 0.5 / 10_000.0);
    close("largest", float(change(1)), 20_000.0 / square - 0.5 / 20_000.0);
    assert!(float(change(1)) < 0.0);
}
