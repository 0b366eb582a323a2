//! Runs a congestion controller of your own in the simulator:
//! `cargo run --release -p anabranch-sim --example own_controller`.
//!
//! [`FewQueued`] keeps between two and four packets waiting at the bottleneck, where TCP fills the queue
//! until it drops packets. Each controller runs alone over an equal link. [`anabranch_algo::subflow`]
//! measures round-trip times, detects losses and keeps timers; a controller only decides how large the window
//! is.

use anabranch_algo::control::{
    Ack, Algorithm, CongestionCause, CongestionEvent, Control, Group, INITIAL_WINDOW, SubflowStats, Window,
};
use anabranch_algo::sent_packets::Delivery;
use anabranch_algo::subflow::{AckRule, Subflow, Timer};
use anabranch_algo::{Machine, Output, Rate, Span, Time};
use anabranch_sim::{LinkConfig, Net, Packet};

/// Controls the window by delay, in the manner of Vegas (Brakmo and Peterson, 1995).
struct FewQueued {
    cwnd: Window,
    slow_start: bool,
}

impl Control for FewQueued {
    fn on_ack(&mut self, ack: &Ack, _group: &Group<'_>) -> u32 {
        let cwnd = u64::from(self.cwnd.floor().max(1));
        let waiting = ack.srtt.as_nanos().saturating_sub(ack.min_rtt.as_nanos());
        let queued = cwnd * waiting / ack.srtt.as_nanos().max(1);
        self.slow_start &= queued < 2;
        // Slow start adds one packet for each packet, and later phases add one packet a round trip.
        let step = u64::from(ack.acked) * Window::ONE / if self.slow_start { 1 } else { cwnd };
        if ack.cwnd_limited && !ack.recovering && queued < 2 {
            self.cwnd = Window::from_units(self.cwnd.units() + step).min(Window::MAX);
        } else if queued > 4 {
            self.cwnd = self.cwnd.saturating_sub(Window::from_units(step)).max(Window::packets(2));
        }
        self.cwnd.floor()
    }

    fn on_congestion(&mut self, _event: &CongestionEvent, _group: &Group<'_>) -> u32 {
        self.slow_start = false;
        self.cwnd = self.cwnd.half().max(Window::packets(2));
        self.cwnd.floor()
    }

    fn stats(&self, srtt: Span) -> SubflowStats {
        SubflowStats { cwnd: self.cwnd, srtt, slow_start: self.slow_start, ..SubflowStats::default() }
    }
}

/// Carries a batch of one packet, or its acknowledgement.
#[derive(Clone, Debug)]
struct Segment {
    batch: u64,
    is_ack: bool,
}

impl Packet for Segment {
    fn bytes(&self) -> u32 {
        if self.is_ack { 40 } else { 1_500 }
    }
    fn mark(&mut self) {}
}

/// Returns the rate of one flow in 30 seconds, its mean round-trip time in milliseconds, and its lost
/// packets.
fn run<C: Control>(control: C) -> (Rate, f64, u64) {
    let mut net = Net::new(1);
    let delay = Span::from_millis(20);
    let there = net.link("there", LinkConfig::new(Rate::from_bits(20_000_000), delay).queue_packets(100));
    let back = net.link("back", LinkConfig { delay, queue_packets: u32::MAX, ..LinkConfig::default() });
    let (there, back) = (net.route(&[there]), net.route(&[back]));
    let mut flow: Subflow<(), u64, C> = Subflow::new(control);
    let (mut now, end) = (Time::ZERO, Time::ZERO + Span::from_secs(30));
    let (mut arrived, mut lost, mut rtt_sum_ms) = (0, 0, 0.0);
    while now < end {
        for _ in 0..flow.room() {
            net.send(now, there, Segment { batch: flow.sent(now, 1, ()), is_ack: false });
        }
        // This flow's connection has no other flow at the bottleneck.
        let members = [flow.stats()];
        let alone = Group { members: &members, me: 0 };
        let due = flow.deadline().clamp(now, end);
        match net.poll(due) {
            Output::Send(delivery) if delivery.packet.is_ack => {
                now = delivery.at;
                let known = flow.delivered(now, delivery.packet.batch, 0);
                if let Delivery::Acked { sent_at, seq } = known {
                    flow.acked(now, 1, seq, Some(sent_at), AckRule::ONE_BY_ONE, &alone);
                    arrived += 1;
                    rtt_sum_ms += now.since(sent_at).as_nanos() as f64 / 1e6;
                }
            }
            Output::Send(delivery) => {
                now = delivery.at;
                net.send(now, back, Segment { is_ack: true, ..delivery.packet });
                continue;
            }
            Output::Wait(_) => now = due,
            Output::Event(_dropped) => continue,
        }
        if let Some(seq) = flow.detect(now, |(), _| lost += 1) {
            flow.congestion(now, CongestionCause::Loss, seq, &alone);
        }
        flow.forget(now);
        match flow.timer(now) {
            Timer::None => {}
            Timer::Probe => net.send(now, there, Segment { batch: flow.sent(now, 1, ()), is_ack: false }),
            Timer::Timeout => flow.expire(now, &alone, |(), _| lost += 1),
        }
    }
    (Rate::of(arrived * 1_500, end.since(Time::ZERO)), rtt_sum_ms / arrived as f64, lost)
}

fn main() {
    println!("{:<12} {:>14} {:>10} {:>6}", "controller", "rate", "mean RTT", "lost");
    let row = |name: &str, (rate, rtt_ms, lost): (Rate, f64, u64)| {
        println!("{name:<12} {:>14} {rtt_ms:>7.1} ms {lost:>6}", rate.to_string());
    };
    row("few-queued", run(FewQueued { cwnd: INITIAL_WINDOW, slow_start: true }));
    for name in ["reno", "cubic"] {
        row(name, run(Algorithm::by_name(name).expect("the table has it")));
    }
}
