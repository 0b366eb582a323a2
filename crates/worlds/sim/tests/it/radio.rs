//! Tests stations whose attempts fail: what a retry costs, and what the frames tell of it.

use anabranch_algo::wifi::FrameWindow;
use anabranch_algo::{Machine, Output, Rate, Span, Time};
use anabranch_sim::net::Event;
use anabranch_sim::{LinkConfig, LinkId, Net, Packet, Receiver, Station};

/// A packet of a flow.
#[derive(Clone, Debug, PartialEq)]
struct Probe(u32);

impl Packet for Probe {
    fn bytes(&self) -> u32 {
        1_500
    }
    fn mark(&mut self) {}
    fn flow(&self) -> Option<u32> {
        Some(self.0)
    }
}

const SECONDS: u64 = 60;

/// Runs two stations of 24 Mbit/s for a minute: the attempts of the first one fail with probability `loss`,
/// and are repeated `retries` times. Both are always busy. Calls `seen` every half second.
fn run(loss: f64, retries: u32, seen: &mut impl FnMut(&mut Net<Probe>, LinkId)) -> [u64; 2] {
    let mut net = Net::new(7);
    let air = net.medium("air");
    let clean = Station::new(air, 1);
    let links = [Station { loss, retries, ..clean.clone() }, clean].map(|station| {
        let name = format!("{}", station.loss);
        let config = LinkConfig::new(Rate::from_bits(24_000_000), Span::ZERO);
        net.link(&name, LinkConfig { station: Some(station), ..config })
    });
    for link in links {
        let route = net.route(&[link]);
        (0..3).for_each(|_| net.send(Time::ZERO, route, Probe(link.0)));
    }
    for half_second in 1..=2 * SECONDS {
        let limit = Time::from_nanos(half_second * 500_000_000);
        loop {
            match net.poll(limit) {
                Output::Send(sent) => net.send(sent.at, sent.route, sent.packet),
                Output::Event(Event::Dropped { at, route, packet, .. }) => net.send(at, route, packet),
                Output::Event(_) => {}
                Output::Wait(_) => break,
            }
        }
        seen(&mut net, links[0]);
    }
    links.map(|link| net.stats(link).delivered)
}

#[test]
fn retries_contend_with_half_the_weight() {
    for loss in [0.0, 0.1, 0.3] {
        let [lossy, clean] = run(loss, 7, &mut |_, _| {});
        // The other station has one turn for the first attempt, two for the first retry, four for the next.
        let turns: f64 = (0..=6).map(|i| (2.0 * loss).powi(i)).sum::<f64>() + 64.0 * loss.powi(7);
        let ratio = clean as f64 / lossy as f64;
        assert!((ratio - turns).abs() < 0.05 * turns, "{ratio} is not {turns} at {loss}");
        // Every attempt takes half a millisecond, and the medium is never idle.
        let attempts = (1.0 - loss.powi(8)) / (1.0 - loss);
        let busy = lossy as f64 * attempts + clean as f64;
        let all = SECONDS as f64 * 2_000.0;
        assert!((busy - all).abs() < 0.01 * all, "{busy} of {all} at {loss}");
    }
}

#[test]
fn the_receivers_estimate_is_within_five_points() {
    for (loss, retries) in [(0.1, 7), (0.3, 7), (0.5, 7), (0.3, 1)] {
        let (mut window, mut errors) = (FrameWindow::new(), Vec::new());
        window.add();
        run(loss, retries, &mut |net, link| {
            let frames: Vec<_> = net.take_frames(link).collect();
            for frame in frames {
                window.record(frame.at, 0, frame.sequence, frame.retry);
            }
            let delivery = window.counts(0).delivery().expect("frames come").parts_per_billion();
            errors.push(delivery as f64 / 1e9 - (1.0 - loss));
        });
        let mean = errors.iter().map(|error| error.abs()).sum::<f64>() / errors.len() as f64;
        assert!(mean < 0.05, "a mean error of {mean} at {loss}");
        let bias = errors.iter().sum::<f64>() / errors.len() as f64;
        assert!(bias.abs() < 0.02, "a bias of {bias} at {loss}");
    }
}

#[test]
fn receivers_of_a_station_have_their_own_rate_and_loss() {
    let mut net = Net::new(7);
    let air = net.medium("air");
    let far = Receiver { flow: 2, loss: 0.0, rate: Some(Rate::from_bits(4_000_000)) };
    let deaf = Receiver { flow: 3, loss: 1.0, rate: None };
    let station = Station { receivers: vec![far, deaf], ..Station::new(air, 1) };
    let config = LinkConfig::new(Rate::from_bits(24_000_000), Span::ZERO);
    let link = net.link("station", LinkConfig { station: Some(station), ..config });
    let route = net.route(&[link]);
    for flow in [1, 2, 3, 1] {
        net.send(Time::ZERO, route, Probe(flow));
    }
    let mut arrived = Vec::new();
    while let Output::Send(_) | Output::Event(_) = {
        let output = net.poll(Time::from_nanos(1_000_000_000));
        if let Output::Send(delivery) = &output {
            arrived.push((delivery.packet.0, delivery.at.since(Time::ZERO).as_micros()));
        }
        output
    } {}
    // 0.5 ms, 3 ms, eight attempts of 0.5 ms for nothing, 0.5 ms.
    assert_eq!(arrived, [(1, 500), (2, 3_500), (1, 8_000)]);
    assert_eq!(net.stats(link).dropped.loss, 1);
    let frames: Vec<_> =
        net.take_frames(link).map(|frame| (frame.flow, frame.sequence, frame.retry)).collect();
    assert_eq!(frames, [(Some(1), 0, false), (Some(2), 0, false), (Some(1), 1, false)]);
    assert_eq!(net.take_frames(link).count(), 0);
}
