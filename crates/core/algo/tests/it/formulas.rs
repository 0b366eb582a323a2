//! Compares every rule with its formula in floating point: windows of 1 to 10⁶ packets, round trips of 10 µs
//! to 10 s, up to the most members that a group may have.

use anabranch_algo::control::{
    Ack, Balia, CongestionCause, CongestionEvent, Coupled, Cubic, Ewtcp, Group, Ledbat, Lia, MEMBERS_MAX,
    WindowDelta,
};
use anabranch_algo::control::{CongestionAvoidance, CubicCoupled, Nmcc, Olia, Reno, SubflowStats, Window};
use anabranch_algo::softfloat::Real;
use anabranch_algo::{Span, Time};
use proptest::prelude::*;

/// A subflow: its window w in packets, its round trip r in nanoseconds, its loss interval l in packets.
#[derive(Clone, Copy, Debug)]
struct Flow {
    w: f64,
    r: f64,
    l: u64,
}

fn float(x: Real) -> f64 {
    // Take the most binary places that fit.
    let places = [63, 53, 43, 33, 23].into_iter().find(|&places| x.to_fixed(places) < u64::MAX).unwrap_or(0);
    x.to_fixed(places) as f64 / 2f64.powi(places as i32)
}

fn packets(window: Window) -> f64 {
    window.units() as f64 / Window::ONE as f64
}

fn increase(name: &str, flows: &[Flow], me: usize) -> f64 {
    let n = flows.len() as f64;
    let sum = |f: &dyn Fn(&Flow) -> f64| flows.iter().map(f).sum::<f64>();
    let max = |f: &dyn Fn(&Flow) -> f64| flows.iter().map(f).fold(0.0, f64::max);
    let (x, x2) = (|f: &Flow| f.w / f.r, |f: &Flow| f.w / f.r / f.r);
    let mine = &flows[me];
    let rates = sum(&x).powi(2);
    match name {
        "reno" => 1.0 / mine.w,
        "nmcc" => {
            let omega = |f: &Flow| 1.0 / f.r.powi(2);
            max(&omega) / (sum(&omega) * mine.w)
        }
        "lia" => (max(&x2) / rates).min(1.0 / mine.w),
        "balia" => {
            let a = max(&x) / x(mine);
            x2(mine) / rates * (1.0 + a) / 2.0 * (4.0 + a) / 5.0
        }
        "ewtcp" => 1.0 / (n * n * mine.w),
        "coupled" => 1.0 / sum(&|f| f.w),
        "olia" => {
            let quality = |f: &Flow| f.l as f64 / f.r.powi(2);
            let (w, q) = (max(&|f| f.w), max(&quality));
            let (in_m, in_b) = (|f: &Flow| f.w == w, |f: &Flow| quality(f) == q);
            let collected = flows.iter().filter(|f| in_b(f) && !in_m(f)).count() as f64;
            let largest = flows.iter().filter(|f| in_m(f)).count() as f64;
            let alpha = match (collected > 0.0, in_m(mine), in_b(mine)) {
                (true, true, _) => -1.0 / (n * largest),
                (true, false, true) => 1.0 / (n * collected),
                _ => 0.0,
            };
            x2(mine) / rates + alpha / mine.w
        }
        other => panic!("{other}"),
    }
}

/// Returns 1/p as NMCC counts it: the number that it keeps saturates.
fn interval(flow: &Flow) -> u64 {
    flow.l.clamp(1, u64::from(u32::MAX >> 3))
}

/// Returns m_t of NMCC in congestion avoidance.
fn threshold_factor(flows: &[Flow]) -> f64 {
    let sum = |f: &dyn Fn(&Flow) -> f64| flows.iter().map(f).sum::<f64>();
    let nearest = flows.iter().map(|f| f.r).fold(f64::MAX, f64::min);
    let longest = flows.iter().filter(|f| f.r == nearest).map(interval).max().expect("it is one of them");
    let weighted = sum(&|f| (f.w / f.r).powi(2) / interval(f) as f64);
    (sum(&|f| f.w / f.r).powi(2) / longest as f64 / weighted).clamp(1.0, flows.len() as f64)
}

fn reduced(name: &str, flows: &[Flow], me: usize) -> f64 {
    let mine = &flows[me];
    let best = flows.iter().map(|f| f.w / f.r).fold(0.0, f64::max);
    let total: f64 = flows.iter().map(|f| f.w).sum();
    match name {
        "nmcc" => (mine.w - mine.w / 2.0 * threshold_factor(flows)).max(1.0),
        "balia" => mine.w - mine.w / 2.0 * (best / (mine.w / mine.r)).min(1.5),
        "coupled" => (mine.w - total / 2.0).max(1.0),
        _ => mine.w / 2.0,
    }
    .max(if name == "balia" { 1.0 } else { 0.0 })
}

fn arrived(now: Time, acked: u32, srtt: Span) -> Ack {
    Ack { now, acked, round: 0, srtt, rtt: srtt, min_rtt: srtt, cwnd_limited: true, recovering: false }
}

fn step<R: CongestionAvoidance>(
    mut rule: R,
    mine: &SubflowStats,
    ack: &Ack,
    loss: &CongestionEvent,
    group: &Group<'_>,
) -> (WindowDelta, Window) {
    (rule.window_delta(mine, ack, group), rule.reduced_window(mine, loss, group))
}

/// Generates subflows with windows of every magnitude, some of them alike; likewise round trips and
/// intervals.
fn flows() -> impl Strategy<Value = Vec<Flow>> {
    let log = |low: f64, high: f64| (low.ln()..high.ln()).prop_map(f64::exp);
    let w = prop_oneof![3 => log(1.0, 1e6), 1 => prop::sample::select(vec![1.0, 2.0, 10.0, 1e4, 1e6])];
    let r = prop_oneof![3 => log(1e4, 1e10), 1 => prop::sample::select(vec![1e4, 5e7, 1e10])];
    let l = prop_oneof![3 => log(1.0, 1e9), 1 => prop::sample::select(vec![0.0, 100.0, 1e6])];
    let flow = (w, r, l).prop_map(|(w, r, l)| {
        let w = packets(Window::from_units((w * Window::ONE as f64) as u64));
        Flow { w, r: r.floor(), l: l as u64 }
    });
    prop_oneof![
        prop::collection::vec(flow.clone(), 2..5),
        prop::collection::vec(flow.clone(), 2..=MEMBERS_MAX),
        (flow, 2..=MEMBERS_MAX).prop_map(|(flow, n)| vec![flow; n]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn as_the_formula_says(flows in flows(), me: prop::sample::Index, acked in 1..10_000u32) {
        let me = me.index(flows.len());
        let member = |f: &Flow| SubflowStats {
            cwnd: Window::from_units((f.w * Window::ONE as f64) as u64),
            srtt: Span::from_nanos(f.r as u64),
            packets_between_losses: f.l,
            loss_interval: interval(f),
            ..SubflowStats::default()
        };
        let members: Vec<_> = flows.iter().map(member).collect();
        let (mine, group) = (members[me], Group { members: &members, me });
        let srtt = mine.srtt;
        let loss = CongestionEvent { now: Time::ZERO, cause: CongestionCause::Loss, srtt };
        let ack = arrived(Time::ZERO, acked, srtt);
        let args = (&mine, &ack, &loss, &group);
        // This acknowledgement makes the loss end an interval of that length.
        let mut nmcc = Nmcc::new();
        nmcc.on_ack(&Ack { acked: interval(&flows[me]) as u32, ..ack });
        for (name, (change, after)) in [
            ("reno", step(Reno, args.0, args.1, args.2, args.3)),
            ("nmcc", step(nmcc, args.0, args.1, args.2, args.3)),
            ("lia", step(Lia, args.0, args.1, args.2, args.3)),
            ("olia", step(Olia::new(), args.0, args.1, args.2, args.3)),
            ("balia", step(Balia, args.0, args.1, args.2, args.3)),
            ("ewtcp", step(Ewtcp, args.0, args.1, args.2, args.3)),
            ("coupled", step(Coupled, args.0, args.1, args.2, args.3)),
        ] {
            let want = f64::from(acked) * increase(name, &flows, me);
            let got = float(change.increase) - float(change.decrease);
            // Where two terms nearly cancel, the tolerance depends on their size. Errors below 10⁻¹⁸ packets
            // do not count.
            let size = want.abs().max(1e-3 * float(change.decrease));
            prop_assert!((got - want).abs() <= 1e-6 * size + 1e-18, "{}: {} is not {}", name, got, want);
            let moved = packets(mine.cwnd.adjusted_by(change).saturating_sub(mine.cwnd))
                - packets(mine.cwnd.saturating_sub(mine.cwnd.adjusted_by(change)));
            let low = mine.cwnd.saturating_sub(Window::packets(1));
            let high = Window::MAX.saturating_sub(mine.cwnd);
            let bounded = want.clamp(-packets(low), packets(high));
            // The window's last place is 2⁻⁴⁰ packets, and increases and decreases are both rounded.
            let close = (moved - bounded).abs() <= 1e-3 * size + 2e-12;
            prop_assert!(close, "{}: {} is not {}", name, moved, want);
            let want = reduced(name, &flows, me);
            let got = packets(after);
            prop_assert!((got - want).abs() <= 1e-6 * mine.cwnd.real().to_fixed(20) as f64 / 2f64.powi(20),
                "{}: {} is not {}", name, got, want);
        }
    }

    #[test]
    fn those_without_a_round_trip_do_not_count(flows in flows(), silent in 1..8usize) {
        let member = |f: &Flow| SubflowStats {
            cwnd: Window::from_units((f.w * Window::ONE as f64) as u64),
            srtt: Span::from_nanos(f.r as u64),
            packets_between_losses: f.l,
            loss_interval: interval(f),
            ..SubflowStats::default()
        };
        let members: Vec<_> = flows.iter().take(MEMBERS_MAX - 8).map(member).collect();
        let mut more = members.clone();
        more.extend((0..silent).map(|_| SubflowStats { srtt: Span::ZERO, ..members[0] }));
        let srtt = members[0].srtt;
        let loss = CongestionEvent { now: Time::ZERO, cause: CongestionCause::Loss, srtt };
        let ack = arrived(Time::ZERO, 1, srtt);
        let (few, many) = (Group { members: &members, me: 0 }, Group { members: &more, me: 0 });
        let mine = &members[0];
        prop_assert_eq!(step(Lia, mine, &ack, &loss, &few), step(Lia, mine, &ack, &loss, &many));
        let olia = Olia::new();
        prop_assert_eq!(step(olia, mine, &ack, &loss, &few), step(olia, mine, &ack, &loss, &many));
        prop_assert_eq!(step(Balia, mine, &ack, &loss, &few), step(Balia, mine, &ack, &loss, &many));
        prop_assert_eq!(step(Ewtcp, mine, &ack, &loss, &few), step(Ewtcp, mine, &ack, &loss, &many));
        prop_assert_eq!(step(Coupled, mine, &ack, &loss, &few), step(Coupled, mine, &ack, &loss, &many));
    }

    /// Coupled CUBIC: n is the sum of the rates over the largest, C is divided by n⁴, α by n², and K is later
    /// by as much as that takes. With the window's own ŵ, n changes within epochs, too.
    #[test]
    fn cubic_coupled_epochs(
        flows in flows(),
        me: prop::sample::Index,
        steps in prop::collection::vec((any::<bool>(), 0..40u32, 0..2_000_000u64, 1..100u32), 1..60),
    ) {
        const C: f64 = 0.4;
        let me = me.index(flows.len());
        let member = |f: &Flow| SubflowStats {
            cwnd: Window::from_units((f.w * Window::ONE as f64) as u64),
            srtt: Span::from_nanos(f.r as u64),
            peak: Window::from_units((f.w * Window::ONE as f64) as u64),
            ..SubflowStats::default()
        };
        let mut members: Vec<_> = flows.iter().map(member).collect();
        members.push(SubflowStats { srtt: Span::ZERO, ..members[0] });
        let (srtt, mut cwnd) = (members[me].srtt, members[me].cwnd);
        let mut rule = CubicCoupled::new();
        let (mut w_max, mut peak) = (0.0f64, 0.0f64);
        let mut epoch = None::<(Time, f64, f64, f64)>;
        let mut now = Time::ZERO + Span::from_secs(1);
        for (timeout, loss, gap_us, acked) in steps {
            now += Span::from_micros(gap_us);
            let group = Group { members: &members, me };
            let mine = SubflowStats { cwnd, ..members[me] };
            let w = packets(cwnd);
            if loss == 0 {
                let cause = if timeout { CongestionCause::Timeout } else { CongestionCause::Loss };
                let event = CongestionEvent { now, cause, srtt };
                cwnd = rule.reduced_window(&mine, &event, &group).max(Window::packets(2));
                w_max = if timeout { 0.0 } else if w < w_max { w * 0.85 } else { w };
                peak = if peak == 0.0 { w } else { (15.0 * peak + w) / 16.0 };
                epoch = None;
                prop_assert!((packets(cwnd) - (0.7 * w).max(2.0)).abs() <= 1e-6 * w);
                continue;
            }
            // Here either value will do, by rounding.
            if peak > 0.0 && (w / peak - 1.6).abs() < 2e-2 {
                break;
            }
            let mut published = mine;
            rule.publish(&mut published);
            let (operating, expected) = (packets(published.peak), if w > 1.6 * peak { w } else { peak });
            let off = (operating - expected).abs();
            prop_assert!(off <= 1e-6 * expected + 0.02, "{} is not {}", operating, expected);
            let rate = |(i, f): (usize, &Flow)| if i == me { operating / f.r } else { f.w / f.r };
            let sum = |power| flows.iter().enumerate().map(|f| rate(f).powi(power)).sum::<f64>();
            let n = sum(1) * sum(4) / sum(5);
            // The rule keeps n to 2⁻¹⁶.
            if ((n * 65536.0).fract() - 0.5).abs() < 1e-2 {
                break;
            }
            let n = (n * 65536.0).round() / 65536.0;
            if let Some((.., of_epoch)) = epoch {
                let change = (n / of_epoch).max(of_epoch / n);
                if (change - 1.125).abs() < 1e-2 {
                    break;
                }
                if change > 1.125 {
                    epoch = None;
                }
            }
            let (began, k, w_est, n) = epoch.get_or_insert_with(|| {
                w_max = w_max.max(w);
                let hour = f64::from(u32::MAX) / 1e6;
                w_max = w_max.min(w + hour.powi(3) * C / n.powi(4));
                (now, ((w_max - w) * n.powi(4) / C).cbrt(), w, n)
            });
            let (c, alpha_share) = (C / n.powi(4), n.powi(2));
            let t = now.since(*began).as_nanos() as f64 / 1e9;
            let cubic = |t: f64| c * (t - *k).powi(3) + w_max;
            let each = f64::from(acked) / w;
            // Within rounding of the smoothed window either value will do.
            if (*w_est - peak).abs() <= 1e-6 * peak + 0.05 {
                break;
            }
            let alpha = if *w_est >= peak { 1.0 } else { 9.0 / 17.0 };
            *w_est = (*w_est + alpha * each / alpha_share).min(packets(Window::MAX));
            let rtt = srtt.as_micros() as f64 / 1e6;
            let target = cubic(t + rtt).clamp(w, 1.5 * w);
            let reno = (*w_est - w).max(0.0);
            let want = if cubic(t) < *w_est { reno } else { (target - w) * each };

            let ack = arrived(now, acked, srtt);
            rule.on_ack(&ack);
            let change = rule.window_delta(&mine, &ack, &group);
            let got = float(change.increase) - float(change.decrease);
            let slope = 3.0 * c * (t + rtt - *k).powi(2);
            let coarse = 1e-6 * (*k * slope).abs();
            let within = 1e-3 * want
                + (coarse + 2e-6 * slope + 1e-8 * w_max.max(w)) * each.max(1.0)
                + 1e-9 * *w_est;
            let border = (cubic(t) - *w_est).abs() <= coarse + 4e-6 * slope + 1e-7 * w_max + 1e-9 * *w_est;
            prop_assert!((got - want).abs() <= within || border, "{} is not {} ± {}", got, want, within);
            cwnd = cwnd.adjusted_by(change);
        }
    }

    /// LEDBAT++ after its start, before its first slowdown: it adapts once a round, by the smallest RTT of
    /// the round before.
    #[test]
    fn ledbat_rounds(
        flows in flows(),
        me: prop::sample::Index,
        base_us in 100..1_000_000u64,
        rounds in prop::collection::vec(prop::collection::vec(0..400_000u64, 1..5), 1..20),
    ) {
        const TARGET_US: f64 = 60_000.0;
        let me = me.index(flows.len());
        let member = |f: &Flow| SubflowStats {
            cwnd: Window::from_units((f.w * Window::ONE as f64) as u64),
            srtt: Span::from_nanos(f.r as u64),
            ..SubflowStats::default()
        };
        let members: Vec<_> = flows.iter().map(member).collect();
        let (mine, group) = (members[me], Group { members: &members, me });
        let now = Time::ZERO + Span::from_secs(1);
        let mut rule = Ledbat::new();
        // No sample has come, so this loss shows no queue.
        let loss = CongestionEvent { now, cause: CongestionCause::Loss, srtt: mine.srtt };
        rule.reduced_window(&mine, &loss, &group);
        let mut before = None::<u64>;
        for (round, queues) in rounds.into_iter().enumerate() {
            for (i, queue_us) in queues.iter().enumerate() {
                let rtt = Span::from_micros(base_us + queue_us);
                let min_rtt = Span::from_micros(base_us);
                let ack = Ack { round: round as u32 + 1, rtt, min_rtt, ..arrived(now, 1, mine.srtt) };
                rule.on_ack(&ack);
                let change = rule.window_delta(&mine, &ack, &group);
                let got = float(change.increase) - float(change.decrease);
                let rates = flows.iter().map(|f| f.w / f.r);
                let n = rates.clone().sum::<f64>() / rates.fold(0.0, f64::max);
                let gain = 1.0 / (2.0 * TARGET_US / base_us as f64).ceil().clamp(1.0, 16.0) / n;
                let w = packets(mine.cwnd);
                let low = (2.0 + 1.0 / 256.0 - w).min(0.0);
                let want = match before.take().filter(|_| i == 0) {
                    None => 0.0,
                    Some(q) if (q as f64) < TARGET_US => gain,
                    Some(q) => (gain - w * (q as f64 / TARGET_US - 1.0)).max(-w / 2.0).max(low),
                };
                prop_assert!((got - want).abs() <= 1e-6 * w + 1e-9, "{} is not {}", got, want);
            }
            before = queues.iter().min().copied();
        }
    }

    /// CUBIC's epochs: losses at random windows, then acknowledgements at random times. The model is told the
    /// window each time, so that errors do not add up unseen.
    #[test]
    fn cubic_epochs(
        w0 in (1f64.ln()..1e6f64.ln()).prop_map(f64::exp),
        rtt_us in 10..10_000_000u64,
        steps in prop::collection::vec((any::<bool>(), 0..40u32, 0..2_000_000u64, 1..100u32), 1..120),
    ) {
        const C: f64 = 0.4;
        let srtt = Span::from_micros(rtt_us);
        let none = Group { members: &[], me: 0 };
        let mut rule = Cubic::new();
        let mut cwnd = Window::from_units((w0 * Window::ONE as f64) as u64);
        let (mut w_max, mut prior, mut epoch) = (0.0f64, 0.0f64, None);
        let mut now = Time::ZERO + Span::from_secs(1);
        for (timeout, loss, gap_us, acked) in steps {
            now += Span::from_micros(gap_us);
            let mine = SubflowStats { cwnd, srtt, ..SubflowStats::default() };
            let w = packets(cwnd);
            if loss == 0 {
                let cause = if timeout { CongestionCause::Timeout } else { CongestionCause::Loss };
                let event = CongestionEvent { now, cause, srtt };
                cwnd = rule.reduced_window(&mine, &event, &none).max(Window::packets(2));
                w_max = if timeout { 0.0 } else if w < w_max { w * 0.85 } else { w };
                (prior, epoch) = (w, None);
                prop_assert!((packets(cwnd) - (0.7 * w).max(2.0)).abs() <= 1e-6 * w);
                continue;
            }
            let (began, k, w_est) = epoch.get_or_insert_with(|| {
                w_max = w_max.max(w);
                (now, ((w_max - w) / C).cbrt(), w)
            });
            let t = now.since(*began).as_nanos() as f64 / 1e9;
            let cubic = |t: f64| C * (t - *k).powi(3) + w_max;
            let each = f64::from(acked) / w;
            // Windows are compared in units of 2⁻⁸ packets. Within one unit, either α will do, and the model
            // cannot tell which was used while the window does not follow W_est.
            if (*w_est - prior).abs() <= 1.0 / 256.0 + 1e-6 * prior {
                break;
            }
            let alpha = if *w_est >= prior { 1.0 } else { 9.0 / 17.0 };
            *w_est = (*w_est + alpha * each).min(packets(Window::MAX));
            let target = cubic(t + rtt_us as f64 / 1e6).clamp(w, 1.5 * w);
            let reno = (*w_est - w).max(0.0);
            let want = if cubic(t) < *w_est { reno } else { (target - w) * each };

            let ack = arrived(now, acked, srtt);
            rule.on_ack(&ack);
            let change = rule.window_delta(&mine, &ack, &none);
            let got = float(change.increase) - float(change.decrease);
            // K and t are whole microseconds: W_cubic may differ by its movement in two of them, and by its
            // last places.
            let slope = 3.0 * C * (t + rtt_us as f64 / 1e6 - *k).powi(2);
            let within = 1e-3 * want + (2e-6 * slope + 1e-8 * w_max.max(w)) * each.max(1.0) + 1e-9;
            // At the border between the regions either value will do.
            let border = (cubic(t) - *w_est).abs() <= 4e-6 * slope + 1e-7 * w_max;
            prop_assert!((got - want).abs() <= within || border, "{} is not {} ± {}", got, want, within);
            cwnd = cwnd.adjusted_by(change);
        }
    }
}
