//! The emulator between network namespaces, with the kernel's own stack on both sides. Needs root and
//! /dev/net/tun, and iproute2 for addresses; says so and passes without them. Nothing outside the namespaces
//! that the tests make is touched.
#![cfg(target_os = "linux")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anabranch_algo::{Rate, Span, Time};
use anabranch_emulator::{Driver, Emulator, EmulatorHandle, IpPacket, Snapshot};
use anabranch_net::{Clock, Datagrams, Ecn, Namespace, RecvBuffers, Tun, Udp, testing};
use anabranch_sim::{CrossTraffic, LinkChange, LinkConfig, LinkId, Rng};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Two hosts and a link in each direction between them.
struct Pair {
    left: Namespace,
    right: Namespace,
    running: EmulatorHandle,
    down: LinkId,
}

const LEFT: &str = "10.9.0.1";
const RIGHT: &str = "10.9.0.2";
const LEFT6: &str = "fd09::1";
const RIGHT6: &str = "fd09::2";
const PORT: u16 = 5_000;
const PACKET_BYTES: u64 = 1_500;
/// TCP payload of such a packet.
const PAYLOAD_BYTES: u64 = 1_448;
/// Bytes of the headers of a datagram.
const UDP_BYTES: usize = 28;

fn tool(space: &Namespace, line: &str) -> String {
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().unwrap());
    command.args(words);
    let done = space.run(|| command.output()).unwrap().expect("iproute2 is installed");
    assert!(done.status.success(), "{line}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).into_owned()
}

/// What can't be tested here is said in one line.
fn able<T>(made: std::io::Result<T>) -> Option<T> {
    match made {
        Ok(made) => Some(made),
        Err(e) => {
            testing::refused_device(e);
            None
        }
    }
}

/// A namespace of our own, and the tool that gives its devices addresses.
fn space() -> Option<Namespace> {
    if let Err(e) = Command::new("ip").arg("-V").output() {
        testing::skip(format!("no `ip` of iproute2 ({e})"));
        return None;
    }
    able(Namespace::new())
}

impl Pair {
    /// From left to right and back. `None`, with a line that says why, where it can't be.
    fn new(down: LinkConfig, up: LinkConfig) -> Option<Self> {
        Self::with(&able(Driver::new())?, down, up, false, None)
    }

    fn with(
        driver: &Driver,
        down: LinkConfig,
        up: LinkConfig,
        offload: bool,
        cross: Option<CrossTraffic>,
    ) -> Option<Self> {
        testing::side_by_side();
        let (left, right) = (space()?, space()?);
        let near = able(Tun::new(&left, "link", PACKET_BYTES as u32, offload))?;
        let far = able(Tun::new(&right, "link", PACKET_BYTES as u32, offload))?;
        let mut net = anabranch_sim::Net::<IpPacket>::new(7);
        let (down, up) = (net.link("down", down), net.link("up", up));
        let (there, back) = (net.route(&[down]), net.route(&[up]));
        let mut emulator = Emulator::new(net);
        let (near, far) = (emulator.add_port(near), emulator.add_port(far));
        emulator.connect(near, far, there, Some(0));
        emulator.connect(far, near, back, None);
        if let Some(cross) = cross {
            emulator.add_cross_traffic(cross);
        }
        for (space, own, other) in [(&left, LEFT, RIGHT), (&right, RIGHT, LEFT)] {
            tool(space, &format!("ip addr add {own} peer {other} dev link"));
            space.sysctl("net.ipv4.tcp_congestion_control", "reno").unwrap();
        }
        Some(Self { left, right, running: driver.start(emulator).unwrap(), down })
    }

    fn tcp(&self) -> (TcpStream, TcpStream) {
        let listener = self.right.run(|| TcpListener::bind((RIGHT, PORT))).unwrap().unwrap();
        let sender = self.left.run(|| TcpStream::connect((RIGHT, PORT))).unwrap().unwrap();
        (sender, listener.accept().unwrap().0)
    }

    /// Two connected sockets, left and right.
    fn udp(&self) -> (UdpSocket, UdpSocket) {
        let left = self.left.run(|| UdpSocket::bind((LEFT, PORT))).unwrap().unwrap();
        let right = self.right.run(|| UdpSocket::bind((RIGHT, PORT))).unwrap().unwrap();
        left.connect((RIGHT, PORT)).unwrap();
        right.connect((LEFT, PORT)).unwrap();
        for socket in [&left, &right] {
            socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        }
        (left, right)
    }
}

/// The numbers in all datagrams with payload that come until none does for half a second.
fn numbers(socket: &UdpSocket) -> Vec<u64> {
    let mut buffer = [0; 2_000];
    let mut seen = Vec::new();
    while let Ok(len) = socket.recv(&mut buffer) {
        if len > 0 {
            seen.push(u64::from_be_bytes(buffer[..8].try_into().unwrap()));
        }
    }
    seen
}

fn link(mbit: u64, delay_ms: u64) -> LinkConfig {
    LinkConfig::new(Rate::from_bits(mbit * 1_000_000), Span::from_millis(delay_ms))
}

/// Sends `bytes` from one end and takes them at the other, where they must be the same.
fn transfer(sender: TcpStream, receiver: TcpStream, bytes: usize) -> Span {
    let clock = Clock::start();
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut sender = sender;
            let pattern: Vec<u8> = (0..bytes).map(|i| (i / 251) as u8).collect();
            sender.write_all(&pattern).unwrap();
        });
        let (mut receiver, mut all) = (receiver, Vec::new());
        receiver.read_to_end(&mut all).unwrap();
        assert_eq!(all.len(), bytes);
        assert!(all.iter().enumerate().all(|(i, byte)| *byte == (i / 251) as u8));
    });
    clock.now().since(Time::ZERO)
}

/// Nothing was lost but what the links lost.
fn clean(snapshot: &Snapshot) {
    assert!(
        matches!(snapshot.violations().as_deref(), None | Some("not real-time")),
        "{:?}",
        snapshot.violations()
    );
}

#[test]
fn rate_and_round_trip_are_those_of_the_link() {
    let _alone = testing::alone();
    let Some(pair) = Pair::new(link(20, 20), link(20, 20)) else { return };
    let (near, far) = pair.udp();
    let clock = Clock::start();
    let mut least = Span::MAX;
    for _ in 0..20 {
        let start = clock.now();
        near.send(&[0; 8]).unwrap();
        far.recv(&mut [0; 8]).unwrap();
        far.send(&[0; 8]).unwrap();
        near.recv(&mut [0; 8]).unwrap();
        let took = clock.now().since(start);
        assert!(took >= Span::from_millis(40), "{took:?}");
        least = least.min(took);
    }
    assert!(least < Span::from_millis(43), "{least:?}");

    let (sender, receiver) = pair.tcp();
    let bytes = 5_000_000;
    let took = transfer(sender, receiver, bytes);
    let ideal = Rate::from_bits(20_000_000).time_for(bytes as u64 * PACKET_BYTES / PAYLOAD_BYTES);
    assert!(took > ideal, "{took:?} {ideal:?}");
    // Slow start and losses at its end take their time.
    assert!(took < ideal + ideal, "{took:?} {ideal:?}");

    let snapshot = pair.running.stop();
    clean(&snapshot);
    let lateness = snapshot.lateness();
    assert_eq!(lateness.count(), snapshot.connections.iter().map(|c| c.packets).sum::<u64>());
    assert!(lateness.quantile(0.5) < Span::from_millis(5), "{:?}", lateness.quantile(0.5));
    assert_eq!(snapshot.connections[0].packets, snapshot.links[0].delivered);
    assert_eq!(snapshot.connections[0].bytes, snapshot.links[0].delivered_bytes);
    assert_eq!(snapshot.links.len(), 2);
}

#[test]
fn both_directions_carry_at_once() {
    let Some(pair) = Pair::new(link(40, 2), link(40, 2)) else { return };
    let (one, other) = pair.tcp();
    let (back, forth) = (other.try_clone().unwrap(), one.try_clone().unwrap());
    let receive = |mut from: TcpStream| {
        let mut all = Vec::new();
        from.read_to_end(&mut all).unwrap();
        all
    };
    let send = |mut to: TcpStream, byte: u8| {
        to.write_all(&vec![byte; 2_000_000]).unwrap();
        to.shutdown(std::net::Shutdown::Write).unwrap();
    };
    thread::scope(|scope| {
        scope.spawn(|| send(one, 1));
        scope.spawn(|| send(other, 2));
        let received = [scope.spawn(|| receive(back)), scope.spawn(|| receive(forth))];
        for (received, byte) in received.into_iter().zip([1, 2]) {
            assert_eq!(received.join().unwrap(), vec![byte; 2_000_000]);
        }
    });
    let snapshot = pair.running.snapshot();
    assert!(snapshot.links.iter().all(|link| link.delivered_bytes > 2_000_000));
}

#[test]
fn drops_exactly_what_the_scripts_say() {
    let down = LinkConfig {
        // The 10th, 20th, ... packet; the 15th and the 25th that are data.
        scripted_drops: (1..=10).map(|n| n * 10).collect(),
        scripted_flow_drops: vec![(0, 15), (0, 25)],
        delay: Span::from_millis(1),
        ..LinkConfig::default()
    };
    let Some(pair) = Pair::new(down, LinkConfig::default()) else { return };
    let (near, far) = pair.udp();
    for n in 1..=120u64 {
        if n == 5 {
            // A packet without payload: it counts as a packet and not as data.
            near.send(&[]).unwrap();
            continue;
        }
        near.send(&n.to_be_bytes()).unwrap();
    }
    let expected: Vec<u64> =
        (1..=120).filter(|n| !(*n == 5 || *n <= 100 && n % 10 == 0 || *n == 16 || *n == 26)).collect();
    assert_eq!(numbers(&far), expected);
    let snapshot = pair.running.stop();
    clean(&snapshot);
    let link = snapshot.links[0];
    assert_eq!((link.offered, link.dropped.scripted, link.scripted_left), (120, 12, 0));
}

#[test]
fn marks_what_can_carry_a_mark() {
    let down = LinkConfig { mark_above_bytes: Some(0), ..link(1, 0) };
    let Some(pair) = Pair::new(down, LinkConfig::default()) else { return };
    let near = pair
        .left
        .run(|| Udp::connect(&anabranch_net::Egress::any(), format!("{RIGHT}:{PORT}").parse().unwrap()));
    let far = pair.right.run(|| Udp::listen(format!("{RIGHT}:{PORT}").parse().unwrap())).unwrap().unwrap();
    let near = near.unwrap().unwrap();
    for n in 0..6u8 {
        let bytes = [n; 400];
        near.send(&Datagrams {
            to: None,
            from_ip: None,
            bytes: &bytes,
            segment: None,
            ecn: n % 2 == 0,
            dscp: 0,
        });
    }
    let clock = Clock::start();
    let (mut buffers, mut seen) = (RecvBuffers::new(), Vec::new());
    while seen.len() < 6 && clock.now() < Time::ZERO + Span::from_secs(5) {
        let _ = far.recv(&mut buffers, |received| seen.push((received.bytes[0], received.ecn))).unwrap();
        thread::sleep(Duration::from_millis(1));
    }
    // The first found an empty queue. What is not ECN-capable is never marked.
    let ect = Some(Ecn::Ect0);
    let expected = [(0, ect), (1, None), (2, Some(Ecn::Ce)), (3, None), (4, Some(Ecn::Ce)), (5, None)];
    assert_eq!(seen, expected);
    // Counted is what was marked, not what would have been.
    assert_eq!(pair.running.snapshot().links[0].marked, 2);
}

#[test]
fn a_flipped_bit_is_found_by_the_receiver() {
    let Some(pair) = Pair::new(LinkConfig { corrupt: 1.0, ..LinkConfig::default() }, LinkConfig::default())
    else {
        return;
    };
    let (near, far) = pair.udp();
    for n in 1..=50u64 {
        near.send(&n.to_be_bytes()).unwrap();
    }
    assert_eq!(numbers(&far), []);
    let snapshot = pair.running.stop();
    clean(&snapshot);
    assert_eq!((snapshot.links[0].corrupted, snapshot.connections[0].packets), (50, 50));
}

#[test]
fn goes_down_and_up_and_changes_by_command() {
    let Some(pair) = Pair::new(LinkConfig::default(), LinkConfig::default()) else { return };
    let (near, far) = pair.udp();
    let settle = || thread::sleep(Duration::from_millis(50));
    near.send(&1u64.to_be_bytes()).unwrap();
    settle();
    pair.running.command(pair.down, LinkChange::Up(false));
    settle();
    near.send(&2u64.to_be_bytes()).unwrap();
    settle();
    pair.running.command(pair.down, LinkChange::Up(true));
    settle();
    near.send(&3u64.to_be_bytes()).unwrap();
    assert_eq!(numbers(&far), [1, 3]);

    let clock = Clock::start();
    pair.running.command(pair.down, LinkChange::Delay(Span::from_millis(80)));
    settle();
    let sent = clock.now();
    near.send(&4u64.to_be_bytes()).unwrap();
    far.recv(&mut [0; 8]).unwrap();
    assert!(clock.now().since(sent) >= Span::from_millis(80));
    let snapshot = pair.running.stop();
    assert_eq!((snapshot.links[0].offered, snapshot.links[0].dropped.down), (4, 1));
}

#[test]
fn super_packets_pass_whole() {
    let Some(driver) = able(Driver::new()) else { return };
    let none = LinkConfig::default;
    let Some(pair) = Pair::with(&driver, none(), none(), true, None) else { return };
    let (sender, receiver) = pair.tcp();
    transfer(sender, receiver, 20_000_000);
    let snapshot = pair.running.stop();
    clean(&snapshot);
    let carried = &snapshot.connections[0];
    assert!(carried.bytes > 20_000_000, "{}", carried.bytes);
    assert!(carried.bytes / carried.packets > 3 * PACKET_BYTES, "{} packets", carried.packets);
}

#[test]
fn every_fault_at_once_leaves_tcp_its_bytes() {
    let bad = LinkConfig {
        jitter: Span::from_millis(3),
        loss: 0.005,
        bursts: Some(anabranch_sim::GilbertElliott {
            to_bad: 0.001,
            to_good: 0.3,
            loss_good: 0.0,
            loss_bad: 0.5,
        }),
        corrupt: 0.01,
        duplicate: 0.02,
        reorder: 0.02,
        reorder_by: Span::from_millis(4),
        discipline: anabranch_sim::Discipline::CODEL,
        ..link(40, 3)
    };
    let Some(pair) = Pair::new(bad.clone(), bad) else { return };
    let (sender, receiver) = pair.tcp();
    transfer(sender, receiver, 3_000_000);
    let snapshot = pair.running.stop();
    clean(&snapshot);
    let link = snapshot.links[0];
    let seen = [link.dropped.loss, link.corrupted, link.duplicated, link.reordered];
    assert!(seen.iter().all(|count| *count > 0), "{seen:?}");
}

#[test]
fn links_that_share_a_medium_share_its_time() {
    let _alone = testing::alone();
    let make = || {
        let (left, right) = (space()?, space()?);
        let mut net = anabranch_sim::Net::<IpPacket>::new(3);
        let air = net.medium("air");
        let [there, back] = ["there", "back"].map(|name| {
            let link = net.link(name, link(30, 1).medium(air, 1).queue_packets(50));
            net.route(&[link])
        });
        let mut emulator = Emulator::new(net);
        let near = emulator.add_port(able(Tun::new(&left, "link", PACKET_BYTES as u32, false))?);
        let far = emulator.add_port(able(Tun::new(&right, "link", PACKET_BYTES as u32, false))?);
        emulator.connect(near, far, there, None);
        emulator.connect(far, near, back, None);
        for (space, own, other) in [(&left, LEFT, RIGHT), (&right, RIGHT, LEFT)] {
            tool(space, &format!("ip addr add {own} peer {other} dev link"));
        }
        Some(Pair { left, right, running: emulator.start().unwrap(), down: LinkId(0) })
    };
    let Some(pair) = make() else { return };
    let (near, far) = pair.udp();
    let clock = Clock::start();
    // Twice what the medium carries in each direction, for a second.
    for n in 1..=500u64 {
        clock.sleep_until(Time::ZERO + Span::from_millis(2 * n));
        for socket in [&near, &far] {
            for _ in 0..10 {
                let _ = socket.send(&[0; 1_472]);
            }
        }
    }
    let snapshot = pair.running.stop();
    let delivered = snapshot.links.iter().map(|link| link.delivered_bytes).collect::<Vec<_>>();
    let seconds = snapshot.at.as_nanos() as f64 / 1e9;
    let ideal = 30e6 / 8.0 * seconds;
    let all = delivered.iter().sum::<u64>() as f64;
    assert!((0.8..1.02).contains(&(all / ideal)), "{delivered:?} of {ideal}");
    assert!((0.8..1.25).contains(&(delivered[0] as f64 / delivered[1] as f64)), "{delivered:?}");
}

#[test]
fn carries_ipv6() {
    let Some(pair) = Pair::new(LinkConfig::default(), LinkConfig::default()) else { return };
    if !Path::new("/proc/sys/net/ipv6").exists() {
        return testing::skip("this kernel has no IPv6");
    }
    for (space, own, other) in [(&pair.left, LEFT6, RIGHT6), (&pair.right, RIGHT6, LEFT6)] {
        tool(space, &format!("ip addr add {own} peer {other} dev link nodad"));
    }
    let listener = pair.right.run(|| TcpListener::bind((RIGHT6, PORT))).unwrap().unwrap();
    let sender = pair.left.run(|| TcpStream::connect((RIGHT6, PORT))).unwrap().unwrap();
    transfer(sender, listener.accept().unwrap().0, 1_000_000);
    clean(&pair.running.stop());
}

#[test]
fn a_device_sends_nothing_by_itself() {
    let Some(pair) = Pair::new(LinkConfig::default(), LinkConfig::default()) else { return };
    thread::sleep(Duration::from_millis(1_500));
    let snapshot = pair.running.stop();
    assert!(snapshot.links.iter().all(|link| link.offered == 0), "{:?}", snapshot.links);
}

#[test]
fn cross_traffic_takes_its_share_of_the_link_and_reaches_nobody() {
    let _alone = testing::alone();
    let cross = CrossTraffic {
        route: anabranch_sim::RouteId(0),
        rate: Rate::from_bytes(1_000_000),
        packet_bytes: 1_000,
        burst: None,
        start: Time::ZERO + Span::from_millis(100),
        stop: Time::ZERO + Span::from_millis(600),
        rng: Rng::stream(1, "cross"),
    };
    let Some(driver) = able(Driver::new()) else { return };
    let Some(pair) = Pair::with(&driver, link(9, 1), LinkConfig::default(), false, Some(cross)) else {
        return;
    };
    thread::sleep(Duration::from_millis(800));
    let snapshot = pair.running.stop();
    clean(&snapshot);
    let link = snapshot.links[0];
    // One each millisecond, the first at once; each takes 8/9 of it.
    assert_eq!((link.offered, link.offered_bytes, link.delivered), (500, 500_000, 500));
    assert_eq!(snapshot.connections[0].packets, 0);
    assert!((0.8..0.95).contains(&link.utilisation()), "{}", link.utilisation());
}

#[test]
fn many_share_a_driver_and_come_and_go() {
    let Some(driver) = able(Driver::new()) else { return };
    let make = || Pair::with(&driver, link(50, 1), link(50, 1), false, None);
    let Some(first) = make() else { return };
    let rest: Vec<Pair> = (0..3).map(|_| make().unwrap()).collect();
    let (sender, receiver) = first.tcp();
    thread::scope(|scope| {
        scope.spawn(|| transfer(sender, receiver, 2_000_000));
        for pair in rest {
            let (sender, receiver) = pair.tcp();
            transfer(sender, receiver, 500_000);
            clean(&pair.running.stop());
        }
    });
    assert!(first.running.now() > Time::ZERO);
    clean(&first.running.stop());
}

#[test]
fn what_the_kernel_refuses_is_counted() {
    let Some(pair) = Pair::new(LinkConfig::default(), LinkConfig::default()) else { return };
    let (near, far) = pair.udp();
    // Larger than the device was made for: what is cut off is no packet.
    tool(&pair.left, "ip link set dev link mtu 4000");
    near.send(&[0; 3_000]).unwrap();
    near.send(&7u64.to_be_bytes()).unwrap();
    assert_eq!(numbers(&far), [7]);
    tool(&pair.right, "ip link set dev link down");
    near.send(&8u64.to_be_bytes()).unwrap();
    thread::sleep(Duration::from_millis(50));
    let snapshot = pair.running.stop();
    assert_eq!((snapshot.ports[0].malformed, snapshot.connections[0].unwritten), (1, 1));
    let violations = snapshot.violations().unwrap();
    assert!(
        violations.starts_with("1 packets refused by the kernel, 1 packets that were not whole"),
        "{violations}"
    );
    assert_eq!(snapshot.ports[0].bytes, (2_048 + 2 * (8 + UDP_BYTES)) as u64);
}

#[test]
fn what_nobody_reads_in_time_is_counted() {
    let Some(space) = space() else { return };
    let Some(tun) = able(Tun::new(&space, "link", 1_500, false)) else { return };
    tool(&space, &format!("ip addr add {LEFT} peer {RIGHT} dev link"));
    let socket = space.run(|| UdpSocket::bind((LEFT, PORT))).unwrap().unwrap();
    let many = u64::from(anabranch_net::tun::QUEUE_PACKETS) + 100;
    for n in 0..many {
        socket.send_to(&n.to_be_bytes(), (RIGHT, PORT)).unwrap();
    }
    assert_eq!(tun.overflowed().unwrap(), 100);
    assert_eq!(tun.read(&mut [0; 2_000]).unwrap(), 8 + UDP_BYTES);
}

#[test]
fn says_what_is_wrong_with_a_device() {
    let Some(space) = space() else { return };
    let Some(_tun) = able(Tun::new(&space, "link", 1_500, false)) else { return };
    let said = |name: &str, mtu| Tun::new(&space, name, mtu, false).unwrap_err().to_string();
    assert!(said("link", 1_500).contains("link: there is such a device already"), "{}", said("link", 1_500));
    for name in ["", "a/b", "sixteen-letters-", "..", "a b", "p%d"] {
        assert!(said(name, 1_500).contains("can't name a device"), "{name}");
    }
    assert!(said("other", 10).contains("no MTU of 10 bytes"), "{}", said("other", 10));
}

/// Names of the devices of a namespace but the loopback device.
fn devices(space: &Namespace) -> Vec<String> {
    let lines = tool(space, "ip -o link show");
    let name = |line: &str| Some(line.split(": ").nth(1)?.split('@').next()?.to_owned());
    lines.lines().filter_map(name).filter(|name| name != "lo").collect()
}

#[test]
fn dropping_everything_leaves_nothing() {
    let Some(pair) = Pair::new(link(10, 1), link(10, 1)) else { return };
    let Pair { left, right, running, .. } = pair;
    assert_eq!((devices(&left), devices(&right)), (vec!["link".to_owned()], vec!["link".to_owned()]));
    drop(running);
    // A child that another test has just forked holds the devices open until it executes its program.
    let clock = Clock::start();
    let is_left = || !(devices(&left).is_empty() && devices(&right).is_empty());
    while is_left() && clock.now() < Time::ZERO + Span::from_secs(2) {}
    assert_eq!((devices(&left), devices(&right)), (vec![], vec![]));
}

/// Where the child that is to be killed makes its device.
const SPACE: &str = "ANABRANCH_TEST_NAMESPACE";

#[test]
fn a_killed_process_leaves_nothing() {
    let Some(space) = space() else { return };
    let path = format!("/proc/{}/fd/{}", std::process::id(), space.as_fd().as_raw_fd());
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_that_is_killed", "--ignored", "--nocapture"])
        .env(SPACE, path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let said = lines.find(|line| line.contains("running") && !line.contains("1 test"));
    if said.is_none() {
        let _ = child.wait();
        able::<()>(Err(std::io::Error::other("no TUN devices here")));
        return;
    }
    // The end of a cable whose other end is in a namespace of the child.
    assert_eq!(devices(&space), ["link", "cable"]);
    kill(Pid::from_raw(child.id() as i32), Signal::SIGKILL).unwrap();
    child.wait().unwrap();
    let clock = Clock::start();
    while !devices(&space).is_empty() {
        assert!(clock.now() < Time::ZERO + Span::from_secs(10), "{:?}", devices(&space));
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
#[ignore = "the other half of a_killed_process_leaves_nothing"]
fn child_that_is_killed() {
    let Some(path) = std::env::var_os(SPACE) else { return };
    let space = Namespace::open(Path::new(&path)).unwrap();
    let own = Namespace::new().unwrap();
    let Some(near) = able(Tun::new(&space, "link", 1_500, false)) else { return };
    let far = Tun::new(&own, "link", 1_500, false).unwrap();
    let there = format!("/proc/{}/fd/{}", std::process::id(), own.as_fd().as_raw_fd());
    tool(&space, &format!("ip link add cable type veth peer name cable netns {there}"));
    let mut net = anabranch_sim::Net::<IpPacket>::new(1);
    let link = net.link("link", LinkConfig::default());
    let route = net.route(&[link]);
    let mut emulator = Emulator::new(net);
    let (near, far) = (emulator.add_port(near), emulator.add_port(far));
    emulator.connect(near, far, route, None);
    emulator.connect(far, near, route, None);
    let _running = emulator.start().unwrap();
    println!("running now");
    thread::sleep(Duration::from_secs(60));
}
