//! Tests two toy senders behind one bottleneck, which must share it as textbooks say without any special
//! rule.

use anabranch_algo::{Machine, Output, Rate, Span, Time};
use anabranch_sim::{LinkConfig, Net, Packet, RouteId, net};

const RATE: Rate = Rate::from_bits(20_000_000);
const BYTES: u32 = 1_500;

#[derive(Clone, Debug)]
enum Segment {
    Data,
    Ack,
}

impl Packet for Segment {
    fn bytes(&self) -> u32 {
        if matches!(self, Self::Data) { BYTES } else { 40 }
    }
    fn mark(&mut self) {}
}

/// Sends with additive increase and multiplicative decrease, at most one decrease a round trip. The network
/// reports drops to it.
struct Aimd {
    forward: RouteId,
    back: RouteId,
    rtt: Span,
    cwnd: f64,
    flight: f64,
    deaf_until: Time,
    acked: u64,
}

impl Aimd {
    fn fill(&mut self, net: &mut Net<Segment>, now: Time) {
        while self.flight + 1.0 <= self.cwnd {
            self.flight += 1.0;
            net.send(now, self.forward, Segment::Data);
        }
    }
}

/// Returns the flows' shares in the second half of `seconds`, and the bottleneck's utilisation.
fn share(rtt_ms: [u64; 2], seconds: u64) -> ([f64; 2], f64) {
    let mut net = Net::new(7);
    let bottleneck = net.link("bottleneck", LinkConfig::new(RATE, Span::from_millis(5)).queue_packets(50));
    let mut flows = [0, 1].map(|i| {
        let jitter = Span::from_millis(1);
        let rtt = Span::from_millis(rtt_ms[i]);
        // Add a little jitter at the access, or phase effects of a drop-tail queue would decide the shares.
        let access = LinkConfig { delay: rtt - Span::from_millis(5), jitter, ..LinkConfig::default() };
        let access = net.link(&format!("access {i}"), access);
        let back = net.link(&format!("back {i}"), LinkConfig::default());
        let (forward, back) = (net.route(&[access, bottleneck]), net.route(&[back]));
        Aimd { forward, back, rtt, cwnd: 2.0, flight: 0.0, deaf_until: Time::ZERO, acked: 0 }
    });
    let (mut now, end) = (Time::ZERO, Time::ZERO + Span::from_secs(seconds));
    let half = Time::ZERO + Span::from_secs(seconds / 2);
    flows.iter_mut().for_each(|flow| flow.fill(&mut net, now));
    while now < end {
        match net.poll(now) {
            Output::Wait(next) => now = next,
            Output::Send(delivery) => match delivery.packet {
                Segment::Data => {
                    let flow = flows.iter().find(|flow| flow.forward == delivery.route).expect("a flow");
                    net.send(delivery.at, flow.back, Segment::Ack);
                }
                Segment::Ack => {
                    let flow = flows.iter_mut().find(|flow| flow.back == delivery.route).expect("a flow");
                    flow.acked += u64::from(delivery.at >= half);
                    flow.flight -= 1.0;
                    flow.cwnd += 1.0 / flow.cwnd;
                    flow.fill(&mut net, delivery.at);
                }
            },
            Output::Event(net::Event::Dropped { at, route, .. }) => {
                let flow = flows.iter_mut().find(|flow| flow.forward == route).expect("a flow");
                flow.flight -= 1.0;
                if at >= flow.deaf_until {
                    flow.cwnd = (flow.cwnd / 2.0).max(1.0);
                    flow.deaf_until = at + flow.rtt + Span::from_millis(30);
                }
                flow.fill(&mut net, now);
            }
            Output::Event(net::Event::State { .. }) => unreachable!("no link is told to go down"),
        }
    }
    let total: u64 = flows.iter().map(|flow| flow.acked).sum();
    let stats = net.stats(bottleneck);
    assert!(stats.dropped.queue > 0, "the queue was never full: nothing was shared");
    (flows.map(|flow| flow.acked as f64 / total as f64), stats.utilisation())
}

#[test]
fn equal_round_trips_share_equally() {
    let (shares, utilisation) = share([40, 40], 200);
    assert!((shares[0] - 0.5).abs() < 0.05, "{shares:?}");
    assert!(utilisation > 0.95, "{utilisation}");
}

#[test]
fn the_shorter_round_trip_gets_more() {
    let (shares, utilisation) = share([20, 100], 200);
    assert!(shares[0] > 0.6, "{shares:?}");
    assert!(utilisation > 0.95, "{utilisation}");
}
