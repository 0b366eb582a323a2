//! Tests with two ends of a leg over simulated links, in virtual time.

use anabranch_algo::{Machine as _, Output, Rate};
use anabranch_sim::{LinkChange, LinkConfig, LinkId, Net, RouteId, net};
use proptest::prelude::*;

use super::packet::{ACK_RANGES_MAX, Ack, Datagram, Frame, Frames};
use super::path::UNPROVEN_FACTOR;
use super::*;

const SECRET: [u8; SECRET_BYTES] = [7; SECRET_BYTES];
const OVERHEAD: usize = 28;
const PAYLOAD: usize = 1_400;

/// A packet in the network.
#[derive(Clone, Debug)]
struct Wire {
    bytes: Vec<u8>,
    path: u8,
    to_server: bool,
}

impl anabranch_sim::Packet for Wire {
    fn bytes(&self) -> u32 {
        (self.bytes.len() + OVERHEAD) as u32
    }
    fn mark(&mut self) {}
}

/// A link: its rate in Mbit/s and its round trip in ms.
type Shape = (u64, u64);

struct World {
    now: Time,
    net: Net<Wire>,
    /// The routes up and down of each path.
    routes: Vec<(RouteId, RouteId)>,
    links: Vec<(LinkId, LinkId)>,
    client: Leg,
    server: Leg,
    /// The datagrams that arrived at each end: time, flow and number.
    at_server: Vec<(Time, u32, u64)>,
    at_client: Vec<(Time, u32, u64)>,
    /// The hash of all datagrams that were delivered.
    digest: u64,
}

fn address(path: u8) -> SocketAddr {
    SocketAddr::new([192, 0, 2, path].into(), 1_000)
}

fn server_address() -> SocketAddr {
    "198.51.100.1:26228".parse().unwrap()
}

fn peer() -> Destination {
    "203.0.113.1:443".parse().unwrap()
}

fn payload(number: u64, len: usize) -> Bytes {
    let mut bytes = vec![0; len];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    bytes.into()
}

fn pair(is_sealed: bool, settings: &Settings) -> (Leg, Leg) {
    let protection = |side| match is_sealed {
        true => Protection::sealed(&SECRET, 9, side),
        false => Protection::plain(),
    };
    let client = Leg::client(9, protection(Side::Client), settings.clone());
    (client, Leg::server(9, protection(Side::Server), settings.clone(), [3; SECRET_BYTES]))
}

impl World {
    fn new(seed: u64, shapes: &[Shape], loss: f64) -> Self {
        let (mut client, server) = pair(true, &Settings::default());
        let mut net = Net::new(seed);
        let (mut routes, mut links) = (Vec::new(), Vec::new());
        for (i, (mbit, rtt)) in shapes.iter().enumerate() {
            let rate = Rate::from_bits(mbit * 1_000_000);
            let config = LinkConfig {
                // The queue holds as much as the path itself.
                queue_bytes: rate.bytes_in(Span::from_millis(*rtt)).max(30_000),
                loss,
                ..LinkConfig::new(rate, Span::from_micros(rtt * 500))
            };
            let up = net.link(&format!("up{i}"), config.clone());
            let down = net.link(&format!("down{i}"), config);
            routes.push((net.route(&[up]), net.route(&[down])));
            links.push((up, down));
            client.add_path(Time::ZERO, server_address());
        }
        let (at_server, at_client) = (Vec::new(), Vec::new());
        Self { now: Time::ZERO, net, routes, links, client, server, at_server, at_client, digest: 0 }
    }

    /// Sends all packets that are due, and takes the events.
    fn pump(&mut self) {
        let mut out = Vec::new();
        while let Some(sent) = self.client.poll_transmit(self.now, &mut out) {
            let packet = Wire { bytes: std::mem::take(&mut out), path: sent.path, to_server: true };
            assert_eq!(packet.bytes.len(), sent.bytes);
            self.net
                .handle(self.now, net::Input::Send { route: self.routes[usize::from(sent.path)].0, packet });
        }
        while let Some(sent) = self.server.poll_transmit(self.now, &mut out) {
            let packet = Wire { bytes: std::mem::take(&mut out), path: sent.path, to_server: false };
            assert_eq!(sent.to, address(sent.path));
            self.net
                .handle(self.now, net::Input::Send { route: self.routes[usize::from(sent.path)].1, packet });
        }
        let now = self.now;
        let mut take = |leg: &mut Leg, to: &mut Vec<(Time, u32, u64)>| {
            while let Some(event) = leg.poll_event() {
                if let Event::Datagram { flow, bytes, .. } = event {
                    let number = u64::from_be_bytes(bytes[..8].try_into().unwrap());
                    self.digest =
                        (self.digest.rotate_left(5) ^ number ^ now.as_nanos()).wrapping_mul(0x9e37_79b9);
                    to.push((now, flow, number));
                }
            }
        };
        take(&mut self.server, &mut self.at_server);
        take(&mut self.client, &mut self.at_client);
    }

    /// Runs until `until`. Calls `work` before each step; it returns the latest time of its next call.
    fn run(&mut self, until: Time, mut work: impl FnMut(&mut Self) -> Time) {
        let mut steps = 0_u64;
        loop {
            let wanted = work(self);
            self.pump();
            let mut limit = self.client.deadline(self.now).min(self.server.deadline(self.now)).min(wanted);
            limit = limit.min(until).max(self.now);
            match self.net.poll(limit) {
                Output::Send(mut delivery) => {
                    self.now = self.now.max(delivery.at);
                    let Wire { bytes, path, to_server } = &mut delivery.packet;
                    let done = match to_server {
                        true => self.server.receive(self.now, address(*path), bytes),
                        false => self.client.receive(self.now, server_address(), bytes),
                    };
                    assert_eq!(done, Ok(()));
                }
                Output::Event(_) => {}
                Output::Wait(_) if limit >= until => break self.now = until,
                Output::Wait(_) => self.now = limit,
            }
            steps += 1;
            assert!(steps < 50_000_000, "something runs in circles at {:?}", self.now);
        }
    }

    /// Keeps the client's queue full. Returns the bytes of payload that arrived in the last `seconds`, and
    /// the bytes that the links carried in that time.
    fn fill(&mut self, mode: Mode, seconds: u64, warm: u64) -> (u64, u64) {
        assert!(self.client.open(1, mode));
        let mut number = 0;
        let mut saturate = |world: &mut Self| {
            while world.client.queue.bytes() < 200_000 {
                world.client.send(world.now, 1, &peer(), payload(number, PAYLOAD));
                number += 1;
            }
            Time::NEVER
        };
        let start = self.now + Span::from_secs(warm);
        self.run(start, &mut saturate);
        let carried = |world: &Self| -> u64 {
            world.links.iter().map(|(up, _)| world.net.stats(*up).delivered_bytes).sum()
        };
        let before = carried(self);
        self.run(start + Span::from_secs(seconds), &mut saturate);
        let came = self.at_server.iter().filter(|(at, ..)| *at >= start).count();
        (came as u64 * PAYLOAD as u64, carried(self) - before)
    }
}

fn ms(millis: u64) -> Time {
    Time::ZERO + Span::from_millis(millis)
}

/// Makes a world and runs it until all paths answer.
fn warmed(seed: u64, shapes: &[Shape], loss: f64) -> World {
    let mut world = World::new(seed, shapes, loss);
    world.run(ms(500), |_| Time::NEVER);
    assert!(world.client.health().iter().all(|path| path.is_alive), "{:?}", world.client.health());
    world
}

/// Two links are filled together and order is restored. Each case has the links and the least part of their
/// rate.
#[test]
fn aggregate_fills_two_links_and_keeps_the_order() {
    for (shapes, least) in [([(100, 25), (100, 25)], 0.97), ([(300, 10), (80, 30)], 0.95)] {
        let mut world = warmed(1, &shapes, 0.0);
        let (payload, carried) = world.fill(Mode::Aggregate, 8, 2);
        let all = shapes.iter().map(|(mbit, _)| mbit * 1_000_000 / 8).sum::<u64>() as f64 * 8.0;
        let (part, goodput) = (carried as f64 / all, payload as f64 / all);
        // Without a leg, these datagrams would have 28 bytes of headers each.
        let direct = goodput * (PAYLOAD + OVERHEAD) as f64 / PAYLOAD as f64;
        let late = world.server.counters().late;
        println!(
            "{shapes:?}: {part:.4} of the links, payload {goodput:.4}, beside direct {direct:.4}, {late} late"
        );
        assert!(part >= least, "{shapes:?}: {part}");
        assert!(goodput >= 0.93, "{shapes:?}: {goodput}");
        let numbers: Vec<u64> = world.at_server.iter().map(|(.., number)| *number).collect();
        let backwards = numbers.windows(2).filter(|two| two[1] < two[0]).count();
        assert!(backwards as u64 <= late && late * 1_000 < numbers.len() as u64, "{backwards} of {late}");
    }
}

#[test]
fn best_takes_one_path_while_that_has_room() {
    let mut world = warmed(2, &[(50, 10), (50, 80)], 0.0);
    assert!(world.client.open(1, Mode::Best));
    let (mut next, mut number, mut at_first) = (ms(500), 0, None);
    // At 10 Mbit/s, the first link has room.
    world.run(ms(3_500), |world| {
        // The window of the first link has to grow before.
        if world.now >= ms(1_500) && at_first.is_none() {
            at_first = Some((world.client.health(), world.at_server.len()));
        }
        while world.now >= next {
            world.client.send(world.now, 1, &peer(), payload(number, 1_250));
            number += 1;
            next += Span::from_millis(1);
        }
        next
    });
    assert!(world.at_server.len() as u64 >= number - 20);
    let sent = world.client.health();
    let (before, came) = at_first.expect("it ran");
    let more = |i: usize| sent[i].sent_bytes - before[i].sent_bytes;
    assert!(more(1) * 50 < more(0), "{before:?} {sent:?}");
    assert!(world.at_server[came + 100..].windows(2).all(|two| two[0].2 < two[1].2));
}

#[test]
fn duplicates_are_dropped_and_survive_loss() {
    let mut world = warmed(3, &[(50, 10), (50, 20)], 0.05);
    assert!(world.client.open(1, Mode::Duplicate));
    let (mut next, mut number) = (world.now, 0);
    world.run(ms(10_000), |world| {
        while world.now >= next && number < 2_000 {
            world.client.send(world.now, 1, &peer(), payload(number, 200));
            number += 1;
            next += Span::from_millis(4);
        }
        if number < 2_000 { next } else { Time::NEVER }
    });
    let mut came: Vec<u64> = world.at_server.iter().map(|(.., number)| *number).collect();
    let all = came.len();
    came.sort_unstable();
    came.dedup();
    assert_eq!(came.len(), all, "none comes twice");
    println!("{all} of 2000 with 5 % loss on both, {} copies dropped", world.server.counters().copies);
    // Both links lose the same datagram one time in 400.
    assert!(all >= 1_980, "{all}");
    assert!(world.server.counters().copies > 1_700);
}

#[test]
fn a_path_that_dies_costs_little_and_is_used_again() {
    let mut world = warmed(4, &[(50, 20), (50, 30)], 0.0);
    assert!(world.client.open(1, Mode::Best));
    let (mut next, mut number, mut step) = (world.now, 0, 0);
    world.run(ms(8_000), |world| {
        let (up, down) = world.links[0];
        let changes = [(ms(2_000), false), (ms(5_000), true)];
        if let Some((at, is_up)) = changes.get(step)
            && world.now >= *at
        {
            step += 1;
            for link in [up, down] {
                world.net.handle(world.now, net::Input::Change { link, change: LinkChange::Up(*is_up) });
            }
        }
        while world.now >= next {
            world.client.send(world.now, 1, &peer(), payload(number, 500));
            number += 1;
            next += Span::from_millis(5);
        }
        next.min(changes.get(step).map_or(Time::NEVER, |(at, _)| *at))
    });
    let gaps = world.at_server.windows(2).map(|two| two[1].0.since(two[0].0));
    let gap = gaps.max().unwrap();
    println!("the longest gap: {gap}");
    assert!(gap <= Span::from_millis(500), "{gap}");
    assert!(world.client.health()[0].is_alive);
    let late = world.at_server.iter().filter(|(at, ..)| *at > ms(7_000)).count();
    assert!(late > 150);
}

#[test]
fn dead_paths_are_said_in_time() {
    let mut world = warmed(5, &[(50, 20), (50, 30)], 0.0);
    let mut dead_at = None;
    let (up, _) = world.links[1];
    world.net.handle(world.now, net::Input::Change { link: up, change: LinkChange::Up(false) });
    let start = world.now;
    world.run(ms(3_000), |world| {
        // A trunk moves bytes while the leg has none.
        world.client.note_traffic(world.now);
        if dead_at.is_none() && !world.client.health()[1].is_alive {
            dead_at = Some(world.now);
        }
        world.now + Span::from_millis(50)
    });
    let took = dead_at.expect("it is dead").since(start);
    assert!(took <= Span::from_millis(800), "{took}");
    assert!(world.client.health()[0].is_alive && !world.client.health()[1].is_alive);
}

#[test]
fn an_idle_leg_is_quiet() {
    let mut world = warmed(6, &[(50, 20)], 0.0);
    let before = world.client.health()[0].sent_bytes;
    world.run(ms(100_500), |_| Time::NEVER);
    let sent = world.client.health()[0].sent_bytes - before;
    assert!((60..400).contains(&sent), "{sent} bytes in 100 s");
    assert!(world.client.health()[0].is_alive);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let digests = [(1, 0.01), (1, 0.01), (2, 0.01)].map(|(seed, loss)| {
        let mut world = World::new(seed, &[(20, 25), (10, 60)], loss);
        world.run(ms(500), |_| Time::NEVER);
        world.fill(Mode::Aggregate, 2, 0);
        world.digest
    });
    assert_eq!(digests[0], digests[1]);
    assert_ne!(digests[0], digests[2]);
}

/// Returns one packet of the client's end that asks for an answer.
fn probe(client: &mut Leg, now: Time) -> Vec<u8> {
    let mut out = Vec::new();
    client.note_traffic(now);
    client.poll_transmit(now, &mut out).expect("a probe");
    out
}

#[test]
fn wrong_keys_replays_and_damage_are_refused() {
    let (mut client, mut server) = pair(true, &Settings::default());
    client.add_path(Time::ZERO, server_address());
    let packet = probe(&mut client, Time::ZERO);
    let other = Protection::sealed(&[8; SECRET_BYTES], 9, Side::Server);
    let mut stranger = Leg::server(9, other, Settings::default(), [3; SECRET_BYTES]);
    assert_eq!(stranger.receive(Time::ZERO, address(0), &mut packet.clone()), Err(Refused::Forged));
    for i in 0..packet.len() {
        let mut damaged = packet.clone();
        damaged[i] ^= 0x01;
        assert!(server.receive(Time::ZERO, address(0), &mut damaged).is_err(), "byte {i}");
    }
    assert!(server.health().is_empty(), "nothing was learned");
    assert_eq!(server.receive(Time::ZERO, address(0), &mut packet.clone()), Ok(()));
    assert_eq!(server.receive(Time::ZERO, address(0), &mut packet.clone()), Err(Refused::Replayed));
    // A leg does not accept its own packets.
    let mut out = Vec::new();
    server.poll_transmit(Time::ZERO, &mut out).expect("an answer");
    assert!(server.receive(Time::ZERO, address(0), &mut out).is_err());
    assert_eq!(server.counters().replayed, 2);
}

#[test]
fn an_address_that_is_not_proven_gets_three_times_what_it_sent() {
    let (mut client, mut server) = pair(true, &Settings::default());
    client.add_path(Time::ZERO, server_address());
    assert!(server.open(1, Mode::Best));
    for n in 0..100 {
        server.send(Time::ZERO, 1, &peer(), payload(n, 1_000));
    }
    let (mut got, mut out, mut now) = (0, Vec::new(), Time::ZERO);
    let mut sent = 0;
    for step in 0..40 {
        if step % 10 == 0 {
            let mut packet = probe(&mut client, now);
            sent += packet.len();
            // Another host repeats the packet from its address before the client's own packet arrives.
            server.receive(now, address(200), &mut packet).unwrap();
        }
        while let Some(transmit) = server.poll_transmit(now, &mut out) {
            assert_eq!(transmit.to, address(200));
            got += transmit.bytes;
        }
        assert!(got <= UNPROVEN_FACTOR * sent, "{got} for {sent}");
        now += Span::from_millis(60);
    }
    assert!(got > 0);
}

#[test]
fn a_client_whose_address_changes_is_followed_once_it_is_proven() {
    let (mut client, mut server) = pair(true, &Settings::default());
    client.add_path(Time::ZERO, server_address());
    let mut now = Time::ZERO;
    let mut exchange = |client: &mut Leg, server: &mut Leg, from: u8, rounds: usize| {
        let mut last = None;
        for _ in 0..rounds {
            let mut out = Vec::new();
            client.note_traffic(now);
            while client.poll_transmit(now, &mut out).is_some() {
                server.receive(now, address(from), &mut std::mem::take(&mut out)).unwrap();
            }
            while let Some(transmit) = server.poll_transmit(now, &mut out) {
                last = Some(transmit.to);
                client.receive(now, server_address(), &mut std::mem::take(&mut out)).unwrap();
            }
            now += Span::from_millis(50);
        }
        last
    };
    assert_eq!(exchange(&mut client, &mut server, 1, 20), Some(address(1)));
    assert!(server.paths[0].allowance() > 1_000_000);
    assert_eq!(exchange(&mut client, &mut server, 2, 20), Some(address(2)));
    assert!(server.paths[0].allowance() > 1_000_000);
}

#[test]
fn a_flow_that_was_forgotten_goes_on() {
    let mut world = warmed(7, &[(50, 20)], 0.0);
    assert!(world.client.open(1, Mode::Aggregate));
    let mut number = 0;
    for round in 1..4 {
        for _ in 0..3_000 {
            world.client.send(world.now, 1, &peer(), payload(number, 100));
            number += 1;
            let soon = world.now + Span::from_micros(200);
            world.run(soon, |_| Time::NEVER);
        }
        let soon = world.now + Span::from_millis(200);
        world.run(soon, |_| Time::NEVER);
        assert_eq!(world.at_server.len(), 3_000 * round);
        // The server has forgotten the flow, or the client has started it anew.
        world.server.forget(1);
        if round == 2 {
            world.client.forget(1);
            assert!(world.client.open(1, Mode::Aggregate));
        }
    }
}

#[test]
fn what_no_packet_holds_and_what_nobody_asked_for_is_counted() {
    let (mut client, _) = pair(false, &Settings::default());
    client.send(Time::ZERO, 5, &peer(), payload(0, 100));
    assert!(client.open(5, Mode::Best));
    client.send(Time::ZERO, 5, &peer(), payload(0, 1_500));
    let counters = client.counters();
    assert_eq!((counters.strays, counters.too_long), (1, 1));
    // An acknowledgement of a packet that was never sent is counted.
    client.add_path(Time::ZERO, server_address());
    let mut packet = Vec::new();
    packet::Header { path: 0, association: 9, number: 0 }.encode(&mut packet);
    Frame::Ack(Ack { next: u32::MAX, delay: Span::ZERO, ranges: vec![(0, 1)] }).encode(&mut packet);
    client.receive(Time::ZERO, server_address(), &mut packet).unwrap();
    assert_eq!(client.counters().strays, 2);
    for flow in 0..FLOWS_MAX as u32 {
        client.open(10 + flow, Mode::Best);
    }
    assert!(!client.open(9_999_999, Mode::Best));
}

/// An unproven address has used up its allowance, and the server does not busy-loop over it.
#[test]
fn what_may_not_be_sent_is_not_tried_without_end() {
    let (_, mut server) = pair(false, &Settings::default());
    let mut packet = Vec::new();
    packet::Header { path: 0, association: 9, number: 0 }.encode(&mut packet);
    let datagram = Datagram { mode: Mode::Best, flow: 1, number: 0, peer: peer(), bytes: b"" };
    Frame::Datagram(datagram).encode(&mut packet);
    server.receive(Time::ZERO, address(0), &mut packet).unwrap();
    let mut now = Time::ZERO;
    for _ in 0..200 {
        now += Span::from_millis(10);
        server.send(now, 1, &peer(), payload(0, 900));
        let mut out = Vec::new();
        while server.poll_transmit(now, &mut out).is_some() {}
        assert!(server.deadline(now) > now, "{now:?}: {server:?}");
    }
}

const PEERS: [&str; 3] = ["192.0.2.1:1", "[2001:db8::1]:2", "a.example:3"];

/// The parts of a frame: kind, number, bytes and ranges.
type Part = (u8, u32, Vec<u8>, Vec<(u16, u16)>);

fn parts() -> impl Strategy<Value = Vec<Part>> {
    let ranges = proptest::collection::vec((any::<u16>(), any::<u16>()), 0..ACK_RANGES_MAX);
    let bytes = proptest::collection::vec(any::<u8>(), 8..40);
    proptest::collection::vec((0u8..5, any::<u32>(), bytes, ranges), 0..6)
}

proptest! {
    #[test]
    fn frames_are_read_as_they_were_written(parts in parts()) {
        let eight = |bytes: &[u8]| -> [u8; 8] { bytes[..8].try_into().unwrap() };
        let written: Vec<Frame<'_>> = parts
            .iter()
            .map(|(kind, n, bytes, ranges)| match kind {
                0 => Frame::Probe(bytes[0]),
                1 => {
                    let delay = Span::from_micros(8 * u64::from(*n as u16));
                    Frame::Ack(Ack { next: *n, delay, ranges: ranges.clone() })
                }
                2 => Frame::Challenge(eight(bytes)),
                3 => Frame::Response(eight(bytes)),
                _ => Frame::Datagram(Datagram {
                    mode: Mode::NAMES[bytes[0] as usize % 3].0,
                    flow: n & FLOW_MAX,
                    number: n >> 8,
                    peer: PEERS[bytes[1] as usize % 3].parse().unwrap(),
                    bytes,
                }),
            })
            .collect();
        let mut out = Vec::new();
        written.iter().for_each(|frame| frame.encode(&mut out));
        let read: Result<Vec<_>, _> = Frames::new(&out).collect();
        prop_assert_eq!(read, Ok(written));
        // A truncated packet is malformed or ends between two frames.
        for len in 0..out.len() {
            let _ = Frames::new(&out[..len]).collect::<Result<Vec<_>, _>>();
        }
    }

    /// For any packets at any time, no more is sent than allowed and no timer busy-loops.
    #[test]
    fn any_packets_at_any_time(
        packets in proptest::collection::vec(
            (0u8..3, 0u64..900, proptest::collection::vec(any::<u8>(), 0..60)), 1..60),
    ) {
        let (mut client, mut server) = pair(false, &Settings::default());
        client.add_path(Time::ZERO, server_address());
        client.add_path(Time::ZERO, server_address());
        client.open(1, Mode::Aggregate);
        let mut now = Time::ZERO;
        for (number, (what, wait, bytes)) in packets.into_iter().enumerate() {
            now += Span::from_millis(wait);
            let mut packet = Vec::new();
            packet::Header { path: what, association: 9, number: number as u32 }.encode(&mut packet);
            packet.extend_from_slice(&bytes);
            let _ = server.receive(now, address(what), &mut packet.clone());
            let _ = client.receive(now, server_address(), &mut packet);
            client.send(now, 1, &peer(), payload(0, 100));
            for leg in [&mut client, &mut server] {
                let mut out = Vec::new();
                let mut sent = 0;
                while leg.poll_transmit(now, &mut out).is_some() {
                    sent += 1;
                    prop_assert!(sent < 300);
                }
                while leg.poll_event().is_some() {}
                prop_assert!(leg.deadline(now) > now, "{leg:?}");
            }
        }
    }
}
