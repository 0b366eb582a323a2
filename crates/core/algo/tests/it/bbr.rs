//! Tests BBR over one link in virtual time: the rate it reaches, the queue it leaves, how it follows changes
//! of the link, and how the paths of a group probe.

use std::collections::VecDeque;

use anabranch_algo::control::{
    Ack, Algorithm, CongestionCause, CongestionEvent, Control, Flight, Group, SubflowStats, Window,
};
use anabranch_algo::sent_packets::Delivery;
use anabranch_algo::subflow::{AckRule, Subflow, Timer};
use anabranch_algo::{Span, Time};
use proptest::prelude::*;

const ALONE: Group<'static> = Group { members: &[], me: 0 };
const RTT: Span = Span::from_millis(50);

/// Simulates a link that takes `service` for a packet and has room for `room` packets. Acknowledgements come
/// back after [`RTT`]. The link loses each packet whose number is a multiple of `loses`.
struct Link {
    service: Span,
    room: u64,
    loses: u64,
    free_at: Time,
    sent: u64,
    dropped: u64,
    acks: VecDeque<(Time, u64)>,
}

impl Link {
    /// Makes a link of 50 Mbit/s with packets of 1,500 bytes and a queue of one bandwidth-delay product.
    fn new(loses: u64) -> Self {
        let (free_at, acks) = (Time::ZERO, VecDeque::new());
        Self { service: Span::from_micros(240), room: 208, loses, free_at, sent: 0, dropped: 0, acks }
    }

    fn send(&mut self, now: Time, batch: u64) {
        self.sent += 1;
        let queued = self.free_at.since(now).as_nanos() / self.service.as_nanos();
        if queued >= self.room || self.sent.is_multiple_of(self.loses) {
            self.dropped += 1;
            return;
        }
        self.free_at = self.free_at.max(now) + self.service;
        self.acks.push_back((self.free_at + RTT, batch));
    }
}

/// Runs a flow over a link.
struct Flow {
    link: Link,
    subflow: Subflow<(), u8>,
    now: Time,
    arrived: u64,
    /// The smallest and the largest round-trip time since the last call of `run`.
    rtts: (Span, Span),
}

impl Flow {
    fn new(name: &str, loses: u64) -> Self {
        let subflow = Subflow::new(Algorithm::by_name(name).expect("it is in the table"));
        let rtts = (Span::MAX, Span::ZERO);
        Self { link: Link::new(loses), subflow, now: Time::ZERO, arrived: 0, rtts }
    }

    /// Runs the flow for `span`; returns the number of packets that arrived.
    fn run(&mut self, span: Span) -> u64 {
        let (end, before) = (self.now + span, self.arrived);
        self.rtts = (Span::MAX, Span::ZERO);
        while self.now < end {
            for _ in 0..self.subflow.paced_room(self.now) {
                let batch = self.subflow.sent(self.now, 1, ());
                self.link.send(self.now, batch);
            }
            let mut due = self.subflow.deadline().min(end);
            if self.subflow.room() > 0 {
                due = due.min(self.subflow.paced_until());
            }
            let due = due.max(self.now);
            if let Some((at, batch)) = self.link.acks.front().copied().filter(|(at, _)| *at <= due) {
                self.link.acks.pop_front();
                self.now = at;
                self.acked(batch);
            } else {
                self.now = due;
            }
            self.detect();
        }
        self.arrived - before
    }

    fn acked(&mut self, batch: u64) {
        if let Delivery::Acked { sent_at, seq } = self.subflow.delivered(self.now, batch, 0) {
            self.subflow.acked(self.now, 1, seq, Some(sent_at), AckRule::ONE_BY_ONE, &ALONE);
            self.arrived += 1;
            let rtt = self.now.since(sent_at);
            self.rtts = (self.rtts.0.min(rtt), self.rtts.1.max(rtt));
        }
    }

    fn detect(&mut self) {
        if let Some(seq) = self.subflow.detect(self.now, |(), _| ()) {
            self.subflow.congestion(self.now, CongestionCause::Loss, seq, &ALONE);
        }
        self.subflow.forget(self.now);
        match self.subflow.timer(self.now) {
            Timer::None => {}
            Timer::Probe => {
                let batch = self.subflow.sent(self.now, 1, ());
                self.link.send(self.now, batch);
            }
            Timer::Timeout => self.subflow.expire(self.now, &ALONE, |(), _| ()),
        }
    }
}

/// Returns the number of packets that the link carries in `span`.
const fn capacity(span: Span) -> u64 {
    span.as_micros() / 240
}

#[test]
fn it_fills_a_link_that_loses_by_chance_where_cubic_does_not() {
    let span = Span::from_secs(15);
    for (loses, at_least) in [(u64::MAX, 93), (1_000, 91), (333, 88), (100, 80)] {
        let bbr = Flow::new("bbr", loses).run(span);
        assert!(bbr * 100 >= capacity(span) * at_least, "one in {loses}: {bbr}");
    }
    let cubic = Flow::new("cubic", 333).run(span);
    assert!(cubic * 100 <= capacity(span) * 40, "the losses are worth something: {cubic}");
}

#[test]
fn its_queue_is_short_and_it_sees_the_round_trip_without_one() {
    let mut flow = Flow::new("bbr", u64::MAX);
    flow.run(Span::from_secs(5));
    let lost = flow.link.dropped;
    for _ in 0..3 {
        flow.run(Span::from_secs(10));
        let (least, most) = flow.rtts;
        assert!(least <= RTT + Span::from_micros(500), "{least}");
        assert!(most <= RTT.times(2) + Span::from_millis(10), "{most}");
    }
    assert!(flow.link.dropped - lost <= flow.link.sent / 200, "{}", flow.link.dropped - lost);
}

#[test]
fn it_follows_a_rate_that_falls_and_rises() {
    let mut flow = Flow::new("bbr", u64::MAX);
    flow.run(Span::from_secs(10));
    flow.link.service = Span::from_micros(960);
    flow.run(Span::from_secs(10));
    let quarter = flow.run(Span::from_secs(10));
    assert!(quarter * 100 >= capacity(Span::from_secs(10)) / 4 * 90, "{quarter}");
    assert!(flow.rtts.1 <= Span::from_millis(50 + 208), "{}", flow.rtts.1);
    flow.link.service = Span::from_micros(240);
    flow.run(Span::from_secs(20));
    let whole = flow.run(Span::from_secs(10));
    assert!(whole * 100 >= capacity(Span::from_secs(10)) * 90, "{whole}");
}

#[test]
fn the_same_link_is_the_same_run() {
    let run = || {
        let mut flow = Flow::new("bbr", 250);
        (flow.run(Span::from_secs(20)), flow.link.dropped, flow.rtts)
    };
    assert_eq!(run(), run());
}

#[test]
fn a_slow_start_is_not_to_be_had() {
    assert_eq!(Algorithm::by_name("bbr+hystart"), None);
    assert_ne!(Algorithm::by_name("bbr"), Algorithm::by_name("bbr-coupled"));
}

/// Runs one round trip of 100 packets of a path that has its link for itself; returns its time.
fn round_trip(control: &mut Algorithm, number: u32, group: &Group<'_>) -> Time {
    let (now, next) = (Time::ZERO + RTT.times(u64::from(number)), u64::from(number) * 100);
    control.on_flight(&Flight { highest: next.saturating_sub(1), next_seq: next, in_flight: 0, lost: 0 });
    let ack = Ack {
        now,
        acked: 100,
        round: number,
        srtt: RTT,
        rtt: RTT,
        min_rtt: RTT,
        cwnd_limited: false,
        recovering: false,
    };
    control.on_ack(&ack, group);
    now
}

#[test]
fn a_path_follows_the_probe_of_its_sibling() {
    for (name, follows) in [("bbr-coupled", true), ("bbr", false)] {
        let mut control = Algorithm::by_name(name).expect("it is in the table");
        let mut sibling = SubflowStats { srtt: RTT, cwnd: Window::packets(200), ..SubflowStats::default() };
        let mut number = 0;
        let mut step = |sibling: SubflowStats| {
            number += 1;
            let members = [control.stats(RTT), sibling];
            (
                round_trip(&mut control, number, &Group { members: &members, me: 0 }),
                control.stats(RTT).phase_at,
            )
        };
        let first = loop {
            let (now, probe_at) = step(sibling);
            assert!(now < Time::ZERO + Span::from_secs(10), "{name} never probes");
            if probe_at > Time::ZERO {
                break probe_at;
            }
        };
        // The sibling probes a second later, well before the path's own next probe.
        let now = (0..20).fold(first, |_, _| step(sibling).0);
        sibling.phase_at = now;
        assert_eq!(step(sibling).1, if follows { now } else { first }, "{name}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn windows_stay_in_bounds_whatever_comes(
        coupled: bool,
        steps in prop::collection::vec(
            (
                (0..3_u8, 0..50_000_000_u64, any::<u64>()),
                (any::<u32>(), any::<u64>(), any::<u32>(), any::<u32>()),
            ),
            1..300,
        ),
    ) {
        let mut control = Algorithm::by_name(if coupled { "bbr-coupled" } else { "bbr" }).expect("a name");
        let (mut now, mut next) = (Time::ZERO, 0_u64);
        for ((kind, nanos, odd), (acked, rtt, in_flight, lost)) in steps {
            now += Span::from_nanos(nanos);
            next = next.wrapping_add(odd % 200);
            let rtt = Span::from_nanos(if odd % 3 == 0 { rtt } else { rtt % 200_000_000 });
            let members = [control.stats(rtt), SubflowStats { srtt: rtt, ..control.stats(rtt) }];
            let group = Group { members: &members, me: (odd % 3) as usize };
            let highest = if odd % 7 == 0 { odd } else { next.saturating_sub(odd % 400) };
            control.on_flight(&Flight { highest, next_seq: next, in_flight, lost });
            let cause = match odd % 3 {
                0 => CongestionCause::Loss,
                1 => CongestionCause::Timeout,
                _ => CongestionCause::EcnCe,
            };
            let decided = if kind == 0 {
                control.on_congestion(&CongestionEvent { now, cause, srtt: rtt }, &group)
            } else {
                let acked = if kind == 1 { acked } else { acked % 100 };
                let (cwnd_limited, recovering) = (odd % 2 == 0, odd % 5 == 0);
                let (srtt, min_rtt) = (rtt, rtt);
                let ack = Ack { now, acked, round: 0, srtt, rtt, min_rtt, cwnd_limited, recovering };
                control.on_ack(&ack, &group)
            };
            prop_assert_eq!(Window::packets(decided), control.stats(rtt).cwnd);
            prop_assert!(decided >= 1 && decided <= Window::MAX.floor());
            prop_assert!(control.pace().is_none_or(|pace| pace > Span::ZERO && pace <= Span::from_secs(1)));
        }
    }
}
