//! Coupling inside the running kernel: two subflows of one MPTCP connection grow as their controller says,
//! two connections as two. Real MPTCP sockets over emulated links; every controller, all at once.
//!
//! Each connection has a host of its own that sends, with one or two devices; one host receives from all. The
//! links lose one early packet of each subflow, and none after, so that all are in congestion avoidance with
//! small windows, and what they grow by in a round trip shows the rule. wVegas goes by the round-trip time:
//! its links take longer from the moment that it begins to send, which it takes for a queue, and it shows by
//! the windows at which it stops growing.
#![cfg(feature = "ebpf")]

#[path = "common/loaded.rs"]
mod loaded;

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use anabranch_algo::control::{SubflowStats, Window};
use anabranch_algo::{Span, Time};
use anabranch_emulator::{Emulator, EmulatorHandle, IpPacket};
use anabranch_kernel::controllers::{CONTROLLERS, Controller};
use anabranch_kernel::groups::{Group, Selector, clear, set};
use anabranch_kernel::subflow_state::{self, PublishedSubflow};
use anabranch_net::netlink::{Endpoint, Limits, Netlink, PathManager, Route, SockDiag, TcpState};
use anabranch_net::{Clock, Namespace, Tun, testing};
use anabranch_sim::{LinkChange, LinkConfig, LinkId};
use loaded::Loaded;
use socket2::{Domain, Protocol, Type};

const MPTCP: i32 = 262;
const PORT: u16 = 5_001;
const PACKET_BYTES: u32 = 1_500;
/// Each way.
const DELAY: Span = Span::from_millis(30);
/// The data packet of each subflow that is lost.
const LOST: u64 = 25;
/// Each way, on wVegas's links when it sends: a third of the round trip seems to be a queue, and so a third
/// of the window, of which it wants ten packets.
const VEGAS_DELAY: Span = Span::from_millis(45);
const VEGAS_WINDOW: f64 = 3.0 * 10.0;
/// When windows are compared, ms: from and to after all have begun to send, and after the groups have
/// changed; and how often they are looked at.
const PHASES_MS: [(u64, u64); 2] = [(1_500, 4_500), (500, 2_500)];
const LOOK_MS: u64 = 100;
/// Growth may be more than it should by so much of it, and by so many packets a round trip: windows are seen
/// as whole packets.
const MORE: f64 = 0.1;
const OFF_PACKETS: f64 = 0.04;
/// And less by so much: of a subflow with siblings, which is paced, a busy machine may not send a whole
/// window in time, and then it does not grow for a moment. The median of the controllers may be less by
/// `LESS_MEDIAN` alone, so that what is slow everywhere fails: at a load of ten on two cores it is 0.89 to
/// 0.97.
const LESS: f64 = 0.1;
const LESS_PACED: f64 = 0.35;
const LESS_MEDIAN: f64 = 0.2;
/// α of CUBIC below the window before the last event (RFC 9438 section 4.3), where two coupled subflows stay
/// for most of the first phase.
const CUBIC_ALPHA: f64 = 9.0 / 17.0;
/// Less than that may be a machine that is busier still, and is measured again, so often in all. More than it
/// should be is nobody's fault but the controller's.
const ATTEMPTS: usize = 3;

/// What is in the way of this test, if anything.
fn obstacle() -> Option<String> {
    if !nix::unistd::geteuid().is_root() {
        return Some("not root".into());
    }
    for (path, what) in [
        ("/sys/kernel/btf/vmlinux", "the kernel has no BTF"),
        ("/dev/net/tun", "no /dev/net/tun"),
        ("/proc/sys/net/mptcp/enabled", "the kernel has no MPTCP"),
    ] {
        if !std::path::Path::new(path).exists() {
            return Some(what.into());
        }
    }
    None
}

fn pause(ms: u64) {
    thread::sleep(Duration::from_millis(ms));
}

fn ip(flow: u8, host: u8) -> IpAddr {
    Ipv4Addr::new(10, flow, host, 1).into()
}

/// Two devices, the link from one to the other, and whether it is to become slower.
type Pair = (Tun, Tun, LinkConfig, bool);

/// A connection, and the host that sends on it.
struct Connection {
    flow: u8,
    controller: &'static Controller,
    paths: u8,
    space: Namespace,
    sockets: SockDiag,
    /// What was seen of its subflows, and at the end of each phase of what they have published.
    samples: [Vec<Vec<Sample>>; 2],
    published: Vec<Vec<PublishedSubflow>>,
}

/// A subflow at a time.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    at_s: f64,
    cwnd: f64,
    srtt_s: f64,
    retransmitted: u32,
    cookie: u64,
    token: u32,
}

/// What happened to a connection between two times.
#[derive(Debug)]
struct Growth {
    /// Round trips.
    rounds: f64,
    /// Windows at first and at last, of each subflow.
    first: Vec<f64>,
    last: Vec<f64>,
}

impl Growth {
    /// Packets per round trip, of each subflow.
    fn rates(&self) -> Vec<f64> {
        self.first.iter().zip(&self.last).map(|(first, last)| (last - first) / self.rounds).collect()
    }

    fn rate(&self) -> f64 {
        self.rates().iter().sum()
    }

    /// What it would have been by a rule: packets a round trip that a subflow grows by, of it and another.
    fn by(&self, rule: impl Fn(f64, f64) -> f64) -> f64 {
        let mut w = self.first.clone();
        let steps = (self.rounds * 10.0) as usize;
        for _ in 0..steps {
            let other = |i: usize| w.get(1 - i).copied().unwrap_or(0.0);
            let more: Vec<f64> = (0..w.len()).map(|i| rule(w[i], other(i)) / 10.0).collect();
            w.iter_mut().zip(more).for_each(|(w, more)| *w += more);
        }
        (w.iter().sum::<f64>() - self.first.iter().sum::<f64>()) / self.rounds
    }
}

/// Packets a round trip that a subflow grows by if there is one sibling, by window; over equal round trips.
/// `None` if it does not go by windows.
fn rule(name: &str) -> Option<fn(f64, f64) -> f64> {
    Some(match name {
        // 1/(w m²) a packet: m² = Σ(1/r²) / max(1/r²).
        // α/(w n²) a packet in the Reno-friendly region; α = 1 from the window before the last event on.
        "cubic-coupled" => |w, other| (w.max(other) / (w + other)).powi(2),
        "nmcc" => |_, _| 0.5,
        // (max w/r²)/(Σ w/r)² a packet.
        "lia" => |w, other| (w * w.max(other) / (w + other).powi(2)).min(1.0),
        // (w/r²)/(Σ w/r)² a packet; what α adds to one it takes from the other.
        "olia" => |w, other| (w / (w + other)).powi(2),
        // (x + max x)(4x + max x)/(10 w (Σx)²) a packet.
        "balia" => |w, other| {
            let max = w.max(other);
            (w + max) * (4.0 * w + max) / (10.0 * (w + other).powi(2))
        },
        // 1/(w n²) a packet.
        "ewtcp" => |_, _| 0.25,
        // 1/Σw a packet.
        "coupled" => |w, other| w / (w + other),
        "reno" => |_, _| 1.0,
        _ => return None,
    })
}

impl Connection {
    /// The host, its devices and their links. They are added to the emulator, and to the host that receives.
    fn new(
        flow: u8,
        controller: &'static Controller,
        paths: u8,
        receiver: &Namespace,
        links: &mut Vec<Pair>,
    ) -> Self {
        let space = Namespace::new().unwrap();
        for path in 0..paths {
            let near = Tun::new(&space, &format!("p{path}"), PACKET_BYTES, false).unwrap();
            let far = Tun::new(receiver, &format!("f{flow}p{path}"), PACKET_BYTES, false).unwrap();
            let scripted_flow_drops = if controller.name == "wvegas" { Vec::new() } else { vec![(0, LOST)] };
            let link = LinkConfig { delay: DELAY, scripted_flow_drops, ..LinkConfig::default() };
            links.push((near, far, link, controller.name == "wvegas"));
        }
        space.run(|| Self::sender(flow, paths)).unwrap();
        space.sysctl("net.ipv4.tcp_congestion_control", controller.linux).unwrap();
        space.sysctl("net.ipv4.tcp_wmem", "4096 2000000 4000000").unwrap();
        receiver.run(|| Self::receiver(flow, paths)).unwrap();
        let sockets = space.run(SockDiag::open).unwrap().unwrap();
        Self { flow, controller, paths, space, sockets, samples: Default::default(), published: Vec::new() }
    }

    fn sender(flow: u8, paths: u8) {
        let netlink = Netlink::open().unwrap();
        let pm = PathManager::open().unwrap();
        pm.set_limits(Limits { subflows: u32::from(paths) - 1, add_addr_accepted: 0 }).unwrap();
        for path in 0..paths {
            let device = netlink.index(&format!("p{path}")).unwrap();
            netlink.add_address(device, ip(flow, path), 32).unwrap();
            let metric = u32::from(path) + 1;
            let route = Route { device: Some(device), metric, ..Route::to(ip(flow, 255), 32) };
            netlink.add_route(&route).unwrap();
            if path > 0 {
                pm.add_endpoint(&Endpoint::subflow(ip(flow, path), Some(device))).unwrap();
            }
        }
    }

    fn receiver(flow: u8, paths: u8) {
        let netlink = Netlink::open().unwrap();
        netlink.add_address(netlink.index("lo").unwrap(), ip(flow, 255), 32).unwrap();
        for path in 0..paths {
            let device = Some(netlink.index(&format!("f{flow}p{path}")).unwrap());
            netlink.add_route(&Route { device, ..Route::to(ip(flow, path), 32) }).unwrap();
        }
    }

    /// A connection with all its subflows.
    fn connect(&self) -> TcpStream {
        let new = || socket2::Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::from(MPTCP))).unwrap();
        let socket = self.space.run(new).unwrap();
        socket.connect(&SocketAddr::new(ip(self.flow, 255), PORT).into()).unwrap();
        let mut stream = TcpStream::from(socket);
        // Further subflows come when data has been acknowledged.
        stream.write_all(&[1]).unwrap();
        for _ in 0..400 {
            if self.subflows().len() == usize::from(self.paths) {
                return stream;
            }
            pause(5);
        }
        panic!("{}: no {} subflows: {:?}", self.controller.name, self.paths, self.subflows());
    }

    /// Its subflows, by path.
    fn subflows(&self) -> Vec<Sample> {
        let mut all = self.sockets.tcp(&[TcpState::Established]).unwrap();
        all.retain(|socket| socket.subflow.is_some());
        all.sort_by_key(|socket| socket.local.ip());
        let sample = |socket: anabranch_net::netlink::TcpSocket| {
            assert_eq!(socket.congestion.as_deref(), Some(self.controller.linux));
            let info = socket.info.unwrap();
            Sample {
                at_s: 0.0,
                cwnd: f64::from(info.cwnd),
                srtt_s: f64::from(info.rtt_us) / 1e6,
                retransmitted: info.total_retrans,
                cookie: socket.cookie,
                token: socket.subflow.unwrap().token,
            }
        };
        all.into_iter().map(sample).collect()
    }

    fn sample(&mut self, phase: usize, at: Span) {
        let at_s = at.as_nanos() as f64 / 1e9;
        let now = self.subflows().into_iter().map(|sample| Sample { at_s, ..sample });
        self.samples[phase].push(now.collect());
    }

    /// Keeps what its subflows have published.
    fn find(&mut self, published: &[PublishedSubflow]) {
        let now = self.subflows();
        let mine = published.iter().filter(|one| now.iter().any(|sample| sample.cookie == one.cookie));
        self.published.push(mine.copied().collect());
    }

    /// The most that it had in the first phase, packets: what wVegas takes for a queue it drains now and
    /// then.
    fn most(&self) -> f64 {
        let all = self.samples[0].iter().map(|sample| sample.iter().map(|one| one.cwnd).sum());
        all.fold(0.0, f64::max)
    }

    /// In a phase.
    fn growth(&self, phase: usize) -> Growth {
        let samples = &self.samples[phase];
        let (first, last) = (&samples[0], &samples[samples.len() - 1]);
        let rtts: Vec<f64> = samples.iter().flat_map(|sample| sample.iter().map(|one| one.srtt_s)).collect();
        let rtt_s = rtts.iter().sum::<f64>() / rtts.len() as f64;
        for (first, last) in first.iter().zip(last) {
            assert_eq!(first.retransmitted, last.retransmitted, "{}: lost more", self.controller.name);
        }
        Growth {
            rounds: (last[0].at_s - first[0].at_s) / rtt_s,
            first: first.iter().map(|sample| sample.cwnd).collect(),
            last: last.iter().map(|sample| sample.cwnd).collect(),
        }
    }
}

/// The receiving host, and where it listens, which must stay: further subflows come to it.
fn receiver() -> (Namespace, socket2::Socket) {
    let space = Namespace::new().unwrap();
    space.sysctl("net.ipv4.tcp_rmem", "4096 4000000 8000000").unwrap();
    let new = || socket2::Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::from(MPTCP)));
    let listener = space.run(new).unwrap().unwrap();
    listener.bind(&SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), PORT).into()).unwrap();
    listener.listen(64).unwrap();
    (space, listener)
}

/// The links at work, and which are to become slower.
fn emulate(links: Vec<Pair>) -> (EmulatorHandle, Vec<LinkId>) {
    let mut net = anabranch_sim::Net::<IpPacket>::new(1);
    let (mut ends, mut slower) = (Vec::new(), Vec::new());
    for (near, far, link, slow) in links {
        let there = net.link("there", link);
        let back = net.link("back", LinkConfig { delay: DELAY, ..LinkConfig::default() });
        slower.extend([there, back].into_iter().filter(|_| slow));
        ends.push((near, far, net.route(&[there]), net.route(&[back])));
    }
    let mut emulator = Emulator::new(net);
    for (near, far, there, back) in ends {
        let (near, far) = (emulator.add_port(near), emulator.add_port(far));
        emulator.connect(near, far, there, Some(0));
        emulator.connect(far, near, back, None);
    }
    (emulator.start().unwrap(), slower)
}

/// Sends on all; takes samples; then only the last few go on, with their groups cleared.
fn measure(
    streams: &[TcpStream],
    listener: &socket2::Socket,
    connections: &mut [Connection],
    selectors: &[Selector],
) {
    let last = connections.len() - selectors.len();
    thread::scope(|scope| {
        for _ in streams {
            let (taken, _) = listener.accept().unwrap();
            scope.spawn(move || {
                let mut stream = TcpStream::from(taken);
                let mut buffer = vec![0; 1 << 18];
                while stream.read(&mut buffer).is_ok_and(|bytes| bytes > 0) {}
            });
        }
        for mut stream in streams {
            scope.spawn(move || while stream.write_all(&[7; 1 << 16]).is_ok() {});
        }
        let clock = Clock::start();
        for (phase, (first_ms, last_ms)) in PHASES_MS.into_iter().enumerate() {
            let start = clock.now();
            let connections = &mut connections[if phase == 0 { 0 } else { last }..];
            for at_ms in (first_ms..=last_ms).step_by(LOOK_MS as usize) {
                clock.sleep_until(start + Span::from_millis(at_ms));
                connections.iter_mut().for_each(|one| one.sample(phase, clock.now().since(Time::ZERO)));
            }
            let published = subflow_state::all().unwrap();
            connections.iter_mut().for_each(|one| one.find(&published));
            let done = if phase == 0 { &streams[..last] } else { &streams[last..] };
            done.iter().for_each(|stream| stream.shutdown(Shutdown::Both).unwrap());
            if phase == 0 {
                for (selector, connection) in selectors.iter().zip(&connections[last..]) {
                    connection.space.run(|| clear(*selector)).unwrap().unwrap();
                }
            }
        }
    });
}

/// Compares a growth with what it should be.
///
/// # Errors
/// If it is less.
fn grown(what: &str, growth: &Growth, rate: f64, less: f64) -> Result<(), String> {
    println!("{what}: {:.2} packets a round trip, should be {rate:.2}: {growth:.1?}", growth.rate());
    assert!(growth.rate() < (1.0 + MORE) * rate + OFF_PACKETS, "{what}: more than {rate}: {growth:?}");
    let enough = growth.rate() >= (1.0 - less) * rate - OFF_PACKETS;
    enough.then_some(()).ok_or_else(|| format!("{what}: not {rate}: {growth:?}"))
}

/// Compares m and m_t with what two paths have: m² = Σ(1/r²) / max(1/r²), 2 if their round trips are equal.
fn factors(connection: &Connection, phase: usize, coupled: bool) {
    let published = &connection.published[phase];
    let what = format!("{}: {published:?}", connection.controller.name);
    assert_eq!(published.len(), usize::from(connection.paths), "{what}");
    if !coupled {
        return assert!(published.iter().all(|subflow| subflow.m.is_none()), "{what}");
    }
    let srtt = |i: usize| published[i].member.srtt.as_nanos() as f64;
    let ratio = srtt(0).min(srtt(1)) / srtt(0).max(srtt(1));
    let right = (1.0 + ratio * ratio).sqrt();
    assert!((1.3..1.415).contains(&right), "{what}");
    assert!(published.iter().all(|subflow| subflow.m.is_some_and(|m| (m - right).abs() < 0.001)), "{what}");
    let right = threshold_factor(published);
    let is_right = |m_t: f64| (m_t - right).abs() < 0.001;
    assert!(published.iter().all(|subflow| subflow.m_t.is_some_and(is_right)), "{right}, {what}");
}

/// NMCC's m_t by its formula, in floating point, over what two subflows have published: p_best (Σ w/r)² /
/// Σ p (w/r)², within 1 and 2. p is one over the packets between losses; best is who grows fastest.
fn threshold_factor(published: &[PublishedSubflow]) -> f64 {
    let members = || published.iter().map(|subflow| subflow.member);
    let known = members().map(|one| one.loss_interval).max().unwrap_or(0).max(1);
    let interval = |one: &SubflowStats| {
        let packets = if one.loss_interval == 0 { known } else { one.loss_interval };
        packets as f64
    };
    let rtt = |one: &SubflowStats| one.srtt.as_nanos() as f64;
    let growth = |one: &SubflowStats| {
        let packets = if one.slow_start { one.cwnd.units() } else { Window::ONE };
        packets as f64 / rtt(one).powi(2)
    };
    let best = members().map(|one| growth(&one)).fold(0.0, f64::max);
    let of_best = members().filter(|one| growth(one) == best).map(|one| interval(&one));
    let longest = of_best.fold(1.0, f64::max);
    let rate = |one: &SubflowStats| one.cwnd.units() as f64 / rtt(one);
    let rates: f64 = members().map(|one| rate(&one)).sum();
    let weighted: f64 = members().map(|one| rate(&one).powi(2) / interval(&one)).sum();
    (rates * rates / (weighted * longest)).clamp(1.0, 2.0)
}

#[test]
fn subflows_are_coupled_and_connections_are_not() {
    if let Some(why) = obstacle() {
        testing::skip(format!("coupling in the kernel ({why})"));
        return;
    }
    if let Err(e) = Namespace::new() {
        testing::refused(format!("coupling in the kernel ({e})"));
        return;
    }
    let _loaded = Loaded::new(CONTROLLERS);
    let mut short = Ok(());
    for _ in 0..ATTEMPTS {
        short = attempt();
        if short.is_ok() {
            return;
        }
        println!("a window did not grow as it should, perhaps for want of time: {short:?}");
    }
    short.unwrap();
}

/// Everything but what is loaded.
///
/// # Errors
/// If some window has grown less than it should.
fn attempt() -> Result<(), String> {
    let (receiver, listener) = receiver();
    let (mut links, mut connections) = (Vec::new(), Vec::new());
    let mut add = |controller, paths| {
        let flow = connections.len() as u8 + 1;
        connections.push(Connection::new(flow, controller, paths, &receiver, &mut links));
    };
    for controller in CONTROLLERS {
        [2, 1, 1].into_iter().for_each(|paths| add(controller, paths));
    }
    // These are to be told that their paths share nothing.
    let nmcc = Controller::by_name("nmcc").unwrap();
    (0..3).for_each(|_| add(nmcc, 2));
    let last = connections.len() - 3;
    let (running, slower) = emulate(links);
    let streams: Vec<TcpStream> = thread::scope(|scope| {
        let connect = |connection: &mut Connection| connection.connect();
        let all: Vec<_> = connections.iter_mut().map(|one| scope.spawn(move || connect(one))).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    slower.into_iter().for_each(|link| running.command(link, LinkChange::Delay(VEGAS_DELAY)));

    let [address, interface, connection] = [0, 1, 2].map(|i| &connections[last + i]);
    let p1 = interface.space.run(|| Netlink::open().unwrap().index("p1").unwrap()).unwrap();
    let selectors = [
        Selector::Address(ip(address.flow, 1)),
        Selector::Interface(p1),
        Selector::Connection(connection.subflows()[0].token),
    ];
    for (connection, selector) in connections[last..].iter().zip(selectors) {
        let group = if matches!(selector, Selector::Connection(_)) { Group::Apart } else { Group::Shared(1) };
        connection.space.run(|| set(selector, group)).unwrap().unwrap();
    }
    measure(&streams, &listener, &mut connections, &selectors);
    drop(streams);
    let snapshot = running.stop();
    assert!(
        matches!(snapshot.violations().as_deref(), None | Some("not real-time")),
        "{:?}",
        snapshot.violations()
    );

    let mut of_pairs = Vec::new();
    for (controller, three) in CONTROLLERS.iter().zip(connections.chunks(3)) {
        let name = controller.name;
        factors(&three[0], 0, true);
        three[1..].iter().for_each(|single| factors(single, 0, false));
        let growth: Vec<Growth> = three.iter().map(|connection| connection.growth(0)).collect();
        let Some(rule) = rule(name) else {
            let windows: Vec<f64> = three.iter().map(Connection::most).collect();
            println!(
                "{name}: {windows:?} packets of two subflows, two connections; should be {VEGAS_WINDOW}"
            );
            let right = 0.8 * VEGAS_WINDOW..1.2 * VEGAS_WINDOW;
            assert!(windows.iter().all(|window| right.contains(window)), "{name}: {growth:?}");
            continue;
        };
        let alpha = if name == "cubic-coupled" { CUBIC_ALPHA } else { 1.0 };
        let less = 1.0 - (1.0 - LESS_PACED) * alpha;
        grown(&format!("{name}, two subflows"), &growth[0], growth[0].by(rule), less)?;
        of_pairs.push(growth[0].rate() / (alpha * growth[0].by(rule)));
        for growth in &growth[1..] {
            grown(&format!("{name}, one of two connections"), growth, 1.0, LESS)?;
        }
        let ratio = growth[0].rate() / (growth[1].rate() + growth[2].rate());
        assert!(if name == "reno" { ratio > 0.65 } else { ratio < 0.6 }, "{name}: {ratio}");
    }
    // One pair or another may not have been sent for in time; half of them were.
    of_pairs.sort_unstable_by(f64::total_cmp);
    let median = of_pairs[of_pairs.len() / 2];
    println!("two subflows, median: {median:.2} of what they should grow by");
    if median < 1.0 - LESS_MEDIAN {
        return Err(format!("two subflows grow by {median:.2} of what they should, in the median"));
    }
    for (connection, selector) in connections[last..].iter().zip(selectors) {
        factors(connection, 0, false);
        grown(&format!("nmcc, {selector:?} apart"), &connection.growth(0), 2.0, LESS)?;
        factors(connection, 1, true);
        grown(&format!("nmcc, {selector:?} together again"), &connection.growth(1), 1.0, LESS_PACED)?;
    }
    Ok(())
}
