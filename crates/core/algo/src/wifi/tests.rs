use super::*;
use crate::{Rate, Span, Time};
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

/// The relative error allowed: of 2⁻²⁰ ns in a packet time, and of 2⁻⁶² in a probability, all these tests are
/// far from it.
const ERROR: f64 = 1e-9;

fn float(p: Probability) -> f64 {
    p.units() as f64 / 2f64.powi(62)
}

fn seconds(time: PacketTime) -> f64 {
    time.units() as f64 / 2f64.powi(20) / 1e9
}

fn close(got: f64, want: f64) {
    assert!((got - want).abs() <= want.abs() * ERROR, "{got} is not {want}");
}

fn ms(ms: u64) -> Time {
    Time::ZERO + Span::from_millis(ms)
}

fn airtime(rate_mbit: u64, retries: u32) -> Airtime {
    Airtime {
        packet_bytes: 1_500,
        rate: Rate::from_bits(rate_mbit * 1_000_000),
        overhead: Span::from_micros(120),
        contention: Span::from_nanos(67_500),
        retries,
    }
}

/// Computed by the definitions in 64-bit floating point, for packets of 12,000 bits, K = 120 µs, C = 67.5 µs:
/// bit rate, loss in tenths, R, T as printed, T divided by the probability of delivery.
const PACKET_TIMES: [(u64, u64, u32, f64, f64); 8] = [
    (54, 0, 7, 0.000_409_722_222_222_222_24, 0.000_409_722_222_222_222_24),
    (54, 1, 7, 0.000_464_621_494_275_000_1, 0.000_464_621_498_921_215_1),
    (54, 3, 7, 0.000_653_463_523_163_889, 0.000_653_506_399_718_774_6),
    (54, 5, 7, 0.001_143_840_060_763_888_8, 0.001_148_325_708_061_002_1),
    (6, 0, 7, 0.002_187_499_999_999_999_8, 0.002_187_499_999_999_999_8),
    (6, 3, 7, 0.003_192_046_314_274_999_7, 0.003_192_255_758_175_293_6),
    (54, 3, 0, 0.000_286_805_555_555_555_55, 0.000_409_722_222_222_222_24),
    (54, 8, 7, 0.002_796_271_316_622_222_3, 0.003_359_982_906_390_421),
];

#[test]
fn packet_times_are_those_of_equation_2_1() {
    for (rate, tenths, retries, printed, delivered) in PACKET_TIMES {
        let loss = Probability::of(tenths, 10);
        close(seconds(airtime(rate, retries).printed_time(loss)), printed);
        close(seconds(airtime(rate, retries).packet_time(loss)), delivered);
    }
    let dead = airtime(54, 7);
    assert_eq!(dead.printed_time(Probability::ONE), PacketTime::default(), "the flaw of the printed form");
    assert_eq!(dead.packet_time(Probability::ONE), PacketTime::MAX);
}

/// Computed by the derivation of `marking.rs` in 64-bit floating point: packet time, RTT₀ and RTT in µs, δ.
const MARKS: [(u64, u64, u64, f64); 7] = [
    (1_000, 10_000, 110_000, 0.019_834_710_743_801_675),
    (1_000, 100_000, 200_000, 0.000_149_999_999_999_999_96),
    (3_000, 25_000, 325_000, 0.028_629_585_798_816_52),
    (3_000, 100_000, 400_000, 0.001_687_499_999_999_998_7),
    (6_000, 10_000, 610_000, 0.719_806_503_628_055_8),
    (6_000, 100_000, 700_000, 0.007_053_061_224_489_8),
    (2_000, 50_000, 250_000, 0.003_072_000_000_000_002),
];

#[test]
fn marks_are_those_of_the_right_form_of_equation_2_5() {
    let rule = MarkingRule::default();
    for (time, idle, rtt, delta) in MARKS {
        let time = PacketTime::from_span(Span::from_micros(time));
        let (idle, rtt) = (Span::from_micros(idle), Span::from_micros(rtt));
        close(float(rule.rate(time, idle)), delta);
        close(float(rule.rate_of_unmarked_rtt(time, rtt, Span::ZERO)), delta);
        // With these marks TCP's estimate is the rate of the AP: √(2/(p + δ))/RTT₀ = 1/T.
        let (t, r) = (seconds(time), rtt.as_nanos() as f64 / 1e9);
        let p = 2.0 * t * t / (r * r);
        close((2.0 / (p + delta)).sqrt() / (idle.as_nanos() as f64 / 1e9), 1.0 / t);
        // The other AP of the channel is the best, so the marks are capped; it gets none.
        let ap = |packet_time, channel| ApState { packet_time, rtt_min: idle, channel };
        let best = Some(PacketTime::from_span(Span::from_micros(500)));
        let rates = rule.rates(&[ap(Some(time), 1), ap(best, 1), ap(Some(time), 6), ap(None, 1)]);
        assert_eq!(float(rates[0]), float(rule.rate(time, idle)).min(float(rule.cap)));
        assert_eq!(rates[1..], [Probability::ZERO; 3], "best of its channel, or unknown");
    }
}

#[test]
fn a_smaller_buffer_than_assumed_is_guarded() {
    let (rule, time) = (MarkingRule::default(), PacketTime::from_span(Span::from_millis(3)));
    // Half a buffer takes 300 ms.
    let [rtt, shortest] = [200, 50].map(Span::from_millis);
    let guarded = rule.rate_of_unmarked_rtt(time, rtt, shortest);
    close(float(guarded), 2.0 * 0.003f64.powi(2) * (1.0 / 0.05f64.powi(2) - 1.0 / 0.2f64.powi(2)));
    assert_eq!(rule.rate_of_unmarked_rtt(time, rtt, Span::ZERO), Probability::ZERO, "RTT₀ is unknown");
    assert_eq!(rule.rate(time, Span::ZERO), Probability::ZERO);
}

#[test]
fn only_clearly_worse_aps_are_marked() {
    let rates = |micros: u64| {
        let ap = |us| ApState {
            packet_time: Some(PacketTime::from_span(Span::from_micros(us))),
            rtt_min: Span::from_millis(10),
            channel: 1,
        };
        MarkingRule::default().rates(&[ap(500), ap(micros)])
    };
    assert_eq!(rates(599), [Probability::ZERO; 2]);
    assert!(rates(600)[1] > Probability::ZERO);
}

/// A frame of AP 0 every millisecond, of the sequence numbers and retry bits given.
fn window(frames: &[(u16, bool)]) -> FrameWindow {
    let mut window = FrameWindow::new();
    assert_eq!(window.add(), Some(0));
    for (i, (sequence, retry)) in frames.iter().enumerate() {
        window.record(ms(i as u64), 0, *sequence, *retry);
    }
    window
}

#[test]
fn frames_are_counted() {
    let counts = |first, retried, lost| FrameCounts { first, retried, lost };
    let of = |frames: &[(u16, bool)]| window(frames).counts(0);
    assert_eq!(of(&[]), counts(0, 0, 0));
    assert_eq!(of(&[(4_095, false), (0, true), (1, false)]), counts(2, 1, 0), "numbers wrap around");
    assert_eq!(of(&[(7, false), (10, false)]), counts(2, 0, 2), "a gap of two packets");
    assert_eq!(of(&[(7, false), (10, false), (8, true)]), counts(2, 1, 1), "one of them comes late");
    assert_eq!(
        of(&[(7, false), (7, true), (8, false), (7, true)]),
        counts(2, 0, 0),
        "one packet counts once"
    );
    assert_eq!(of(&[(7, false), (7 + GAP_MAX + 1, false)]), counts(2, 0, 0), "the AP has been restarted");
    assert_eq!(of(&[(7, false), (7 + GAP_MAX, false)]), counts(2, 0, u32::from(GAP_MAX) - 1));
    close(float(counts(60, 30, 10).delivery().expect("there are frames")), 0.6);
    assert_eq!(counts(0, 0, 0).delivery(), None);
}

#[test]
fn frames_leave_after_half_a_second() {
    let mut window = window(&[(0, false), (2, true)]);
    window.expire(ms(500));
    assert_eq!(window.counts(0), FrameCounts { first: 1, retried: 1, lost: 1 });
    window.expire(ms(501));
    assert_eq!(window.counts(0), FrameCounts { first: 0, retried: 1, lost: 1 });
    window.record(ms(5_000_000), 0, 3, false);
    assert_eq!(window.counts(0), FrameCounts { first: 1, retried: 0, lost: 0 });
    window.record(ms(5_000_000), 9, 3, false);
    assert_eq!(window.counts(9), FrameCounts::default(), "an AP that was not added");
}

/// Counts what a receiver sees of `packets` packets whose attempts fail with probability 1/`one_in`, at most
/// `retries` retries each; returns the estimate of the loss.
fn estimated_loss(one_in: u64, retries: u32, packets: u32) -> f64 {
    let mut rng = crate::SplitMix64(one_in);
    let mut window = FrameWindow::new();
    window.add();
    for packet in 0..packets {
        if let Some(attempt) = (0..=retries).find(|_| rng.below(one_in) != 0) {
            window.record(Time::ZERO, 0, packet as u16 % 4_096, attempt > 0);
        }
    }
    1.0 - float(window.counts(0).delivery().expect("there are frames"))
}

#[test]
fn the_estimate_is_within_five_percent() {
    for (one_in, retries) in [(2, 7), (2, 2), (3, 7), (3, 0), (10, 7)] {
        let (got, want) = (estimated_loss(one_in, retries, 20_000), 1.0 / one_in as f64);
        assert!((got - want).abs() < 0.05 * want, "{got} is not {want}");
    }
}

#[test]
fn the_best_three_are_used_and_kept() {
    let time = |us| Some(PacketTime::from_span(Span::from_micros(us)));
    let times = [time(600), None, time(500), time(900), time(700)];
    assert_eq!(choose_aps(&times, &[], APS_USED_MAX), [0, 2, 4]);
    assert_eq!(choose_aps(&times, &[false, true, true, true, false], APS_USED_MAX), [0, 2, 4]);
    // The newcomer is not better by a fifth.
    let times = [time(600), time(500), time(700), time(690)];
    assert_eq!(choose_aps(&times, &[true, true, true], APS_USED_MAX), [0, 1, 2]);
    let times = [time(600), time(500), time(700), time(580)];
    assert_eq!(choose_aps(&times, &[true, true, true], APS_USED_MAX), [0, 1, 3]);
    assert_eq!(choose_aps(&times, &[], 0), Vec::<usize>::new());
}

#[test]
fn handover_needs_ten_more_beacons_in_two_seconds() {
    let mut handover = BeaconHandover::new();
    assert_eq!(handover.current(), None);
    assert_eq!(handover.beacon(ms(0), 3), Some(3), "the first one that is heard");
    // Twenty-one beacons fit the window; AP 3 is heard no more from 1 s on, AP 5 from then on.
    let mut moved = None;
    for i in 0..60 {
        let at = ms(i * 100);
        let ap = if i < 10 { 3 } else { 5 };
        if let Some(to) = handover.beacon(at, ap) {
            assert!(moved.is_none(), "once");
            moved = Some((i, to));
            assert_eq!((handover.beacons(5), handover.beacons(3)), (16, 5));
        }
    }
    assert_eq!(moved, Some((25, 5)));
    // Two APs that are heard alike do not take turns.
    let mut handover = BeaconHandover::new();
    let moves = (0..400).filter_map(|i| handover.beacon(ms(i * 50), (i % 2) as usize)).count();
    assert_eq!(moves, 1);
    assert_eq!(handover.beacon(ms(21_000), 4_000), None, "no such AP");
    // Silence is no reason to move: there is nowhere to go.
    assert_eq!(handover.expire(ms(90_000)), None);
    assert_eq!(handover.current(), Some(0));
}

#[test]
fn slots_are_fixed_and_end_early() {
    let mut slots = ChannelSlots::new(ms(0), 3, 0, SlotRule::Fixed(SLOT), Some(IDLE_MAX));
    assert_eq!((slots.channel(), slots.due()), (0, ms(10)), "nothing has come yet");
    (1..=12).for_each(|i| slots.arrived(ms(i * 9), 1_500));
    assert_eq!(slots.due(), ms(100), "packets come all the time");
    assert_eq!(slots.switch(ms(99), Span::ZERO), None);
    assert_eq!(slots.switch(ms(100), Span::from_millis(5)), Some(1));
    slots.arrived(ms(101), 1_500);
    assert_eq!(slots.due(), ms(111));
    assert_eq!(slots.switch(ms(111), Span::ZERO), Some(2));
    let mut slots = ChannelSlots::new(ms(0), 1, 7, SlotRule::Fixed(SLOT), None);
    assert_eq!((slots.channel(), slots.due()), (0, ms(100)));
    assert_eq!(slots.switch(ms(100), Span::from_millis(5)), Some(0));
    assert_eq!(slots.due(), ms(205));
}

#[test]
fn slots_follow_the_square_of_the_throughput() {
    let rule =
        SlotRule::Proportional { cycle: Span::from_millis(300), least: Span::from_millis(10), exponent: 2 };
    let mut slots = ChannelSlots::new(ms(0), 3, 0, rule, None);
    assert_eq!(slots.due(), ms(100), "all are alike at first");
    // 4 MB/s on channel 0, 2 MB/s on the two others: 4 : 1 : 1.
    let mut now = ms(0);
    let mut lengths = vec![];
    for visit in 0..6 {
        let length = slots.due().since(now);
        lengths.push((length.as_micros() + 500) / 1_000);
        let rate = if visit % 3 == 0 { 4_000_000 } else { 2_000_000 };
        slots.arrived(now, Rate::from_bytes(rate).bytes_in(length));
        now = slots.due();
        slots.switch(now, Span::ZERO);
    }
    assert_eq!(lengths[..1], [100]);
    assert_eq!(lengths[3..], [200, 50, 50], "as last time");
}

proptest! {
    #[test]
    fn packet_time_grows_with_loss_and_has_no_panic(
        bytes in any::<u32>(), rate in any::<u64>(), k in any::<u64>(), c in any::<u64>(),
        retries in any::<u32>(), part in 0..=1_000_u64,
    ) {
        let airtime = Airtime {
            packet_bytes: bytes,
            rate: Rate::from_bytes(rate),
            overhead: Span::from_nanos(k),
            contention: Span::from_nanos(c),
            retries,
        };
        let time = |part| airtime.packet_time(Probability::of(part, 1_000));
        // Rounding may take a unit of each of the terms away.
        let (less, more) = (time(part.saturating_sub(1)), time(part));
        prop_assert!(less.units() <= more.units().saturating_add(64), "{:?} {:?}", less, more);
    }

    #[test]
    fn a_packet_time_agrees_with_floats(
        rate in 1..1_000_u64, k in 0..1_000_u64, c in 0..1_000_u64, retries in 0..10_u32, part in 0..900_u64,
    ) {
        let airtime = Airtime {
            packet_bytes: 1_500,
            rate: Rate::from_bits(rate * 1_000_000),
            overhead: Span::from_micros(k),
            contention: Span::from_micros(c),
            retries,
        };
        let p = part as f64 / 1_000.0;
        let attempt = 12_000.0 / (rate as f64 * 1e6) + k as f64 / 1e6;
        let want: f64 = (0..=retries as i32)
            .map(|i| {
                let waits = c as f64 / 1e6 * (2f64.powi(i + 1) - 1.0);
                (attempt * f64::from(i + 1) + waits) * p.powi(i) * (1.0 - p)
            })
            .sum();
        let loss = Probability::of(part, 1_000);
        close(seconds(airtime.printed_time(loss)), want);
        close(seconds(airtime.packet_time(loss)), want / (1.0 - p.powi(retries as i32 + 1)));
    }

    #[test]
    fn marks_fall_with_the_round_trip_and_are_probabilities(
        time in any::<u64>(), rtt in any::<u64>(), more in any::<u64>(), buffer in any::<u32>(),
    ) {
        let rule = MarkingRule { buffer_packets: buffer, ..MarkingRule::default() };
        let time = PacketTime::from_span(Span::from_nanos(time));
        let rate = |rtt| rule.rate(time, Span::from_nanos(rtt));
        prop_assert!(rate(rtt) <= Probability::ONE);
        let unmarked = rule.rate_of_unmarked_rtt(time, Span::from_nanos(rtt), Span::from_nanos(more));
        prop_assert!(unmarked <= Probability::ONE);
        // For round trips as they occur, up to the rounding of a few units.
        let (short, long) = (1_000 + rtt % 1_000_000_000, more % 1_000_000_000);
        let rule = MarkingRule::default();
        let rate = |rtt: u64| rule.rate(time, Span::from_nanos(rtt)).units();
        prop_assert!(rate(short + long) <= rate(short) + 16);
    }

    #[test]
    fn counts_are_those_of_the_frames_in_the_window(
        frames in prop::collection::vec((0..20_000_u64, 0..3_usize, any::<u16>(), any::<bool>()), 0..400),
    ) {
        let mut window = FrameWindow::new();
        (0..3).for_each(|_| { window.add(); });
        let mut now = 0;
        for (pause_us, ap, sequence, retry) in frames {
            now += pause_us;
            // Sequence numbers that are near each other, and now and then others.
            let sequence = if sequence % 16 == 0 { sequence } else { sequence % 128 };
            window.record(Time::from_nanos(now * 1_000), ap, sequence, retry);
            for ap in 0..3 {
                let FrameCounts { first, retried, lost } = window.counts(ap);
                prop_assert!(first + retried <= 400);
                prop_assert!(lost <= (first + retried) * u32::from(GAP_MAX));
            }
        }
        window.expire(Time::from_nanos(now * 1_000 + 500_001_000));
        for ap in 0..3 {
            prop_assert_eq!(window.counts(ap), FrameCounts::default());
        }
    }

    #[test]
    fn a_slot_ends_and_channels_are_visited_in_turn(
        arrivals in prop::collection::vec((0..30_000_000_u64, any::<u64>()), 1..200), channels in 1..5_usize,
        exponent in any::<u32>(),
    ) {
        let rule = SlotRule::Proportional {
            cycle: Span::from_millis(300), least: Span::from_millis(1), exponent,
        };
        let mut slots = ChannelSlots::new(Time::ZERO, channels, 0, rule, Some(IDLE_MAX));
        let mut now = Time::ZERO;
        for (pause, bytes) in arrivals {
            now += Span::from_nanos(pause);
            let before = slots.channel();
            if let Some(next) = slots.switch(now, Span::ZERO) {
                prop_assert_eq!(next, (before + 1) % channels);
                prop_assert!(slots.due() > now);
            }
            slots.arrived(now, bytes);
            prop_assert!(slots.due() <= now + Span::from_millis(300));
        }
    }

    #[test]
    fn handover_follows_any_beacons(
        beacons in prop::collection::vec((0..500_u64, 0..400_usize), 0..300),
    ) {
        let (mut handover, mut now) = (BeaconHandover::new(), 0);
        for (pause, ap) in beacons {
            now += pause;
            if let Some(to) = handover.beacon(ms(now), ap) {
                prop_assert_eq!(handover.current(), Some(to));
            }
            if let Some(current) = handover.current() {
                let most = (0..256).map(|ap| handover.beacons(ap)).max().unwrap_or(0);
                prop_assert!(most < handover.beacons(current) + LEAD_BEACONS);
            }
        }
    }
}

/// Lets `users` users switch among three channels of 22 Mbit/s for a minute. They begin together on the first
/// one, or `apart`: at any time of the first 300 ms on any channel. The users of a channel share it equally.
/// Returns the bytes that all users get from the fifth second on, in percent of the most possible.
fn switching(users: usize, rule: SlotRule, seed: u64, apart: bool) -> f64 {
    const CHANNEL: f64 = 22_000_000.0 / 8.0;
    let mut rng = crate::SplitMix64(seed);
    let mut user = || {
        let (at, first) = if apart { (rng.below(300), rng.index(3)) } else { (0, 0) };
        ChannelSlots::new(ms(at), 3, first, rule, None)
    };
    let mut slots: Vec<_> = (0..users).map(|_| user()).collect();
    let (mut now, mut busy, from, end) = (Time::ZERO, 0.0, ms(5_000), ms(60_000));
    while now < end {
        let next = slots.iter().map(ChannelSlots::due).min().expect("there are users").min(end);
        let on = [0, 1, 2].map(|channel| slots.iter().filter(|slots| slots.channel() == channel).count());
        let counted = next.since(now.max(from)).as_nanos() as f64 / 1e9;
        busy += on.iter().filter(|users| **users > 0).count() as f64 * counted;
        for slots in &mut slots {
            let share = CHANNEL * next.since(now).as_nanos() as f64 / 1e9 / on[slots.channel()] as f64;
            slots.arrived(next, share as u64);
            slots.switch(next, Span::from_millis(1 + rng.below(10)));
        }
        now = next;
    }
    100.0 * busy / (55.0 * users.min(3) as f64)
}

#[test]
fn uncoordinated_users_lose_a_third_of_three_channels() {
    const USERS: [usize; 7] = [1, 2, 3, 4, 5, 7, 10];
    const PAPER: [f64; 7] = [100.0, 80.0, 64.0, 70.0, 76.0, 81.0, 87.0];
    let square =
        SlotRule::Proportional { cycle: Span::from_millis(300), least: Span::from_millis(10), exponent: 2 };
    let table = |rule, apart| {
        let mean = |users| (1..=10).map(|seed| switching(users, rule, seed, apart)).sum::<f64>() / 10.0;
        USERS.map(mean)
    };
    // Without coordination users begin at different times.
    let apart = table(square, true);
    for (i, (ours, paper)) in apart.iter().zip(PAPER).enumerate() {
        assert!((ours - paper).abs() <= 7.0, "{ours} is not {paper} with {} users", USERS[i]);
    }
    for ours in [apart, table(square, false)] {
        assert!((0..USERS.len()).all(|i| i == 2 || ours[i] > ours[2]), "three users fare worst: {ours:?}");
    }
    // With slots of equal length the table does not come out.
    let fixed = table(SlotRule::Fixed(SLOT), true);
    assert!(fixed.iter().zip(PAPER).any(|(fixed, paper)| (fixed - paper).abs() > 7.0), "{fixed:?}");
}
