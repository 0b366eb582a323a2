//! Tests links that share a medium: the anomaly of 802.11, weights, and random draws that are independent per
//! link.

use anabranch_algo::{Machine, Output, Rate, Span, Time};
use anabranch_sim::{Discipline, LinkChange, LinkConfig, LinkId, Net, Packet, RouteId};

#[derive(Clone, Debug, PartialEq)]
struct Probe;

impl Packet for Probe {
    fn bytes(&self) -> u32 {
        1_500
    }
    fn mark(&mut self) {}
}

const END: Time = Time::from_nanos(60_000_000_000);

struct Station {
    mbit: u64,
    weight: u32,
    busy: bool,
}

const fn station(mbit: u64, weight: u32) -> Station {
    Station { mbit, weight, busy: true }
}

/// Returns the packets that each station sent in a minute; a busy station always has three packets to send.
fn share(stations: &[Station], change: Option<(LinkId, LinkChange)>) -> Vec<u64> {
    let mut net = Net::new(5);
    let air = net.medium("air");
    let links: Vec<_> = stations
        .iter()
        .enumerate()
        .map(|(i, station)| {
            let config = LinkConfig::new(Rate::from_bits(station.mbit * 1_000_000), Span::from_micros(300));
            net.link(&format!("station {i}"), config.medium(air, station.weight))
        })
        .collect();
    for (station, link) in stations.iter().zip(&links) {
        let route = net.route(&[*link]);
        (0..if station.busy { 3 } else { 0 }).for_each(|_| net.send(Time::ZERO, route, Probe));
    }
    let mut change = change;
    let mut limit = Time::ZERO;
    loop {
        match net.poll(limit) {
            Output::Send(delivery) => net.send(delivery.at, delivery.route, delivery.packet),
            Output::Wait(next) if next > END => break,
            Output::Wait(next) => limit = next,
            Output::Event(_) => {}
        }
        if limit > Time::from_nanos(30_000_000_000)
            && let Some((link, change)) = change.take()
        {
            net.change(limit, link, change);
        }
    }
    links.iter().map(|link| net.stats(*link).delivered).collect()
}

#[test]
fn alone_it_is_a_link() {
    // A packet takes 0.5 ms.
    assert!(share(&[station(24, 1)], None)[0].abs_diff(120_000) <= 3);
    assert!(
        share(&[station(24, 7), Station { busy: false, ..station(1, 1) }], None)[0].abs_diff(120_000) <= 3
    );
}

#[test]
fn a_slow_station_slows_all_down() {
    // Packets take 0.5 ms and 6 ms, so one packet of each takes 6.5 ms; the stations do not get half of the
    // time each.
    let packets = share(&[station(24, 1), station(2, 1)], None);
    let expected = 60_000.0 / 6.5;
    for packets in &packets {
        // A fair draw of 18,462 packets has a sigma of 68.
        assert!((*packets as f64 - expected).abs() < 4.0 * 68.0, "{packets}");
    }
    // The medium carries one packet at a time, so the sending times add up to the minute.
    let air_ms = packets[0] as f64 * 0.5 + packets[1] as f64 * 6.0;
    assert!((air_ms - 60_000.0).abs() < 10.0, "{air_ms}");
}

#[test]
fn weights_are_ratios_of_packets() {
    let packets = share(&[station(24, 1), station(24, 2), station(24, 1)], None);
    let all: u64 = packets.iter().sum();
    assert!(all.abs_diff(120_000) <= 5);
    for (packets, p) in packets.iter().zip([0.25f64, 0.5, 0.25]) {
        let sigma = (all as f64 * p * (1.0 - p)).sqrt();
        assert!((*packets as f64 - all as f64 * p).abs() < 4.0 * sigma, "{packets} at {p}");
    }
}

#[test]
fn who_goes_down_leaves_the_medium_to_the_others() {
    let packets = share(&[station(24, 1), station(24, 1)], Some((LinkId(0), LinkChange::Up(false))));
    assert!(packets[0].abs_diff(30_000) < 4 * 130, "{packets:?}");
    assert!((packets[0] + packets[1]).abs_diff(120_000) <= 5, "{packets:?}");
    let stalled = Some((LinkId(0), LinkChange::Rate(Some(Rate::from_bytes(0)))));
    let packets = share(&[station(24, 1), station(24, 1)], stalled);
    assert!(packets[0].abs_diff(30_000) < 4 * 130, "{packets:?}");
}

/// Returns the deliveries of the links "a" and "b" of a network that has `more` busy links beside them.
fn deliveries(more: usize) -> Vec<(Time, RouteId)> {
    let mut net = Net::new(11);
    let (air, other) = (net.medium("air"), net.medium("other"));
    let faults =
        LinkConfig { loss: 0.1, jitter: Span::from_micros(500), duplicate: 0.05, ..LinkConfig::default() };
    let wifi = LinkConfig { rate: Some(Rate::from_bits(10_000_000)), ..faults.clone() };
    let mut routes = Vec::new();
    for name in ["a", "b"] {
        let last = net.link(&format!("{name} wire"), faults.clone());
        let first = net.link(name, wifi.clone().medium(air, 1));
        routes.push(net.route(&[first, last]));
    }
    for i in 0..more {
        let link = net.link(&format!("more {i}"), wifi.clone().medium(other, 1));
        routes.push(net.route(&[link]));
    }
    let mut seen = Vec::new();
    for step in 0..2_000u64 {
        let now = Time::from_nanos(step * 2_000_000);
        loop {
            match net.poll(now) {
                Output::Send(delivery) if delivery.route.0 < 2 => seen.push((delivery.at, delivery.route)),
                Output::Wait(_) => break,
                _ => {}
            }
        }
        routes.iter().for_each(|route| net.send(now, *route, Probe));
    }
    seen
}

#[test]
fn more_links_do_not_shift_the_draws_of_others() {
    let alone = deliveries(0);
    assert!(alone.len() > 2_500);
    assert_eq!(alone, deliveries(1));
    assert_eq!(alone, deliveries(7));
}

/// Three stations want a quarter more than their share. Each has a third of the medium's rate, so its delay
/// is three times its queue over its rate, and that is what PIE has to keep at 15 ms.
#[test]
fn pie_keeps_its_delay_where_the_medium_is_shared() {
    let mut net = Net::new(5);
    let air = net.medium("air");
    let links: Vec<LinkId> = (0..3)
        .map(|station| {
            let config = LinkConfig::new(Rate::from_bits(24_000_000), Span::ZERO).medium(air, 1);
            net.link(&format!("station {station}"), config.discipline(Discipline::PIE))
        })
        .collect();
    let routes: Vec<RouteId> = links.iter().map(|link| net.route(&[*link])).collect();
    // A packet takes 0.5 ms, so a station sends one in 1.5 ms on average.
    let (gap, mut next, mut half) = (Span::from_micros(1_200), Time::ZERO, None);
    while next < END {
        while !matches!(net.poll(next), Output::Wait(_)) {}
        routes.iter().for_each(|route| net.send(next, *route, Probe));
        next += gap;
        if next > Time::from_nanos(30_000_000_000) && half.is_none() {
            half = Some(links.iter().map(|link| net.stats(*link)).collect::<Vec<_>>());
        }
    }
    for (before, link) in half.expect("half of the time").iter().zip(&links) {
        let after = net.stats(*link);
        let queue_byte_ns = (after.queue_byte_ns - before.queue_byte_ns) as f64;
        let delivered_bytes = (after.delivered_bytes - before.delivered_bytes) as f64;
        // Little's law: the mean delay is the mean queue over the mean rate.
        let delay_ms = queue_byte_ns / delivered_bytes / 1e6;
        assert!((delay_ms / 15.0 - 1.0).abs() < 0.2, "{delay_ms} ms");
    }
}
