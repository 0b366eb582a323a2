//! Transfers with the kernel at the other end, in both roles.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::thread;

use anabranch_algo::{Span, Time};
use anabranch_mptcp::{Config, ConnectionEvent, ConnectionId, PathManager};
use anabranch_mptcp_tun::TunHost;
use socket2::Socket;

use crate::bed::{Bed, PORT, kernel_address, own_address};

const PATIENCE: Span = Span::from_secs(20);

fn pattern(len: usize, seed: u64) -> Vec<u8> {
    (0..len as u64).map(|at| (at.wrapping_mul(0x9e37_79b9).wrapping_add(seed) >> 8) as u8).collect()
}

/// What our end saw.
struct Seen {
    events: Vec<ConnectionEvent>,
    read: Vec<u8>,
}

impl Seen {
    fn ups(&self) -> usize {
        self.events.iter().filter(|event| matches!(event, ConnectionEvent::SubflowUp { .. })).count()
    }
    fn is_multipath(&self) -> bool {
        self.events.contains(&ConnectionEvent::Established { multipath: true })
            && !self.events.contains(&ConnectionEvent::FellBack)
    }
}

/// Runs our end until the connection is closed: writes `bytes`, reads all. `each` sees the host now and then.
fn run(
    host: &mut TunHost,
    mut id: Option<ConnectionId>,
    bytes: &[u8],
    mut each: impl FnMut(&mut TunHost, &Seen),
) -> Seen {
    let (mut seen, mut written) = (Seen { events: Vec::new(), read: Vec::new() }, 0);
    let end = host.now() + PATIENCE;
    let mut buffer = vec![0; 65_536];
    loop {
        assert!(host.now() < end, "stuck: {:?}, {} read, {written} written", seen.events, seen.read.len());
        let mut closed = false;
        let until = host.now() + Span::from_millis(20);
        host.turn(None, until.min(end), |(of, event)| {
            if matches!(event, ConnectionEvent::Established { .. }) {
                id.get_or_insert(of);
            }
            if id == Some(of) {
                closed |= matches!(event, ConnectionEvent::Closed { .. });
                if event != ConnectionEvent::Readable {
                    seen.events.push(event);
                }
            }
        })
        .unwrap();
        if let Some(id) = id {
            written += host.stack().write(id, &bytes[written..]);
            if written == bytes.len() {
                host.stack().finish(id);
            }
            loop {
                match host.stack().read(id, &mut buffer) {
                    0 => break,
                    count => seen.read.extend_from_slice(&buffer[..count]),
                }
            }
        }
        each(host, &seen);
        if closed {
            host.turn(None, Time::ZERO, |_| {}).unwrap();
            return seen;
        }
    }
}

/// The kernel's program: writes and reads at once, until both directions have ended.
fn program(socket: &Socket, bytes: Vec<u8>) -> Vec<u8> {
    let writer = socket.try_clone().unwrap();
    let writing = thread::spawn(move || {
        (&writer).write_all(&bytes).unwrap();
        writer.shutdown(std::net::Shutdown::Write).unwrap();
    });
    let mut read = Vec::new();
    { socket }.read_to_end(&mut read).unwrap();
    writing.join().unwrap();
    read
}

/// How a transfer is to go.
#[derive(Clone, Copy)]
struct Plan {
    multipath: bool,
    v6: bool,
    links: u8,
    bytes: usize,
}

/// The kernel accepts, our host connects.
fn with_kernel_server(bed: &Bed, config: Config, plan: Plan, each: impl FnMut(&mut TunHost, &Seen)) -> Seen {
    let Some(mut host) = bed.host(config, plan.links, plan.v6, false) else { return skipped() };
    let listener = bed.listener(plan.multipath, plan.v6);
    let (up, down) = (pattern(plan.bytes, 1), pattern(plan.bytes, 2));
    let sent = down.clone();
    let server = thread::spawn(move || program(&listener.accept().unwrap().0, sent));
    let id = host.connect(None, SocketAddr::new(kernel_address(1, plan.v6), PORT));
    let seen = run(&mut host, id, &up, each);
    assert!(server.join().unwrap() == up, "what the kernel read");
    assert!(seen.read == down, "what we read: {} of {}", seen.read.len(), down.len());
    seen
}

/// Our host accepts, the kernel connects.
fn with_kernel_client(bed: &Bed, config: Config, plan: Plan, announce: bool) -> Seen {
    let Some(mut host) = bed.host(config, plan.links, plan.v6, announce) else { return skipped() };
    host.listen(PORT);
    let (up, down) = (pattern(plan.bytes, 1), pattern(plan.bytes, 2));
    let sent = down.clone();
    let socket = bed.socket(plan.multipath, plan.v6);
    let remote = SocketAddr::new(own_address(1, plan.v6), PORT);
    let client = thread::spawn(move || {
        socket.connect(&remote.into()).unwrap();
        program(&socket, sent)
    });
    let seen = run(&mut host, None, &up, |_, _| {});
    assert!(client.join().unwrap() == up, "what the kernel read");
    assert!(seen.read == down, "what we read: {} of {}", seen.read.len(), down.len());
    seen
}

fn skipped() -> Seen {
    Seen { events: vec![ConnectionEvent::Established { multipath: true }], read: Vec::new() }
}

const ONE: Plan = Plan { multipath: true, v6: false, links: 1, bytes: 3_000_000 };

#[test]
fn plain_tcp_with_the_kernel_as_server() {
    for v6 in [false, true] {
        let Some(bed) = Bed::new() else { return };
        let config = Config { mptcp: false, ..Config::default() };
        with_kernel_server(&bed, config, Plan { multipath: false, v6, ..ONE }, |_, _| {});
    }
}

#[test]
fn plain_tcp_with_the_kernel_as_client() {
    for v6 in [false, true] {
        let Some(bed) = Bed::new() else { return };
        let config = Config { mptcp: false, ..Config::default() };
        with_kernel_client(&bed, config, Plan { multipath: false, v6, ..ONE }, false);
    }
}

#[test]
fn multipath_with_the_kernel_as_server() {
    for (v6, checksums) in [(false, false), (true, true)] {
        let Some(bed) = Bed::new() else { return };
        if checksums {
            bed.checksums();
        }
        let seen = with_kernel_server(&bed, Config::default(), Plan { v6, ..ONE }, |_, _| {});
        assert!(seen.is_multipath(), "{:?}", seen.events);
        bed.assert_clean();
    }
}

#[test]
fn multipath_with_the_kernel_as_client() {
    for (v6, checksums) in [(false, true), (true, false)] {
        let Some(bed) = Bed::new() else { return };
        let config = Config { checksums, ..Config::default() };
        let seen = with_kernel_client(&bed, config, Plan { v6, ..ONE }, false);
        assert!(seen.is_multipath(), "{:?}", seen.events);
        bed.assert_clean();
    }
}

#[test]
fn our_client_joins_over_a_second_path() {
    let Some(bed) = Bed::new() else { return };
    let plan = Plan { links: 2, bytes: 8_000_000, ..ONE };
    let seen = with_kernel_server(&bed, Config::default(), plan, |_, _| {});
    assert!(seen.is_multipath() && seen.ups() == 2, "{:?}", seen.events);
    assert_eq!(bed.counters().get("MPJoinAckRx"), Some(&1), "{:?}", bed.counters());
    bed.assert_clean();
}

#[test]
fn our_client_follows_an_announced_address() {
    let Some(bed) = Bed::new() else { return };
    let config = Config { path_manager: PathManager::Fullmesh, ..Config::default() };
    let plan = Plan { links: 2, bytes: 8_000_000, ..ONE };
    let Some(mut host) = bed.host(config, plan.links, false, false) else { return };
    bed.announce(2);
    let listener = bed.listener(true, false);
    let (up, down) = (pattern(plan.bytes, 1), pattern(plan.bytes, 2));
    let sent = down.clone();
    let server = thread::spawn(move || program(&listener.accept().unwrap().0, sent));
    let id = host.connect(None, SocketAddr::new(kernel_address(1, false), PORT));
    let seen = run(&mut host, id, &up, |_, _| {});
    assert!(server.join().unwrap() == up && seen.read == down);
    // Both of our addresses to both of the kernel's.
    assert!(seen.is_multipath() && seen.ups() >= 3, "{:?}", seen.events);
    assert_eq!(bed.counters().get("EchoAdd"), Some(&1), "{:?}", bed.counters());
    bed.assert_clean();
}

#[test]
fn the_kernel_joins_the_address_that_we_announce() {
    let Some(bed) = Bed::new() else { return };
    let plan = Plan { links: 2, bytes: 8_000_000, ..ONE };
    let seen = with_kernel_client(&bed, Config::default(), plan, true);
    assert!(seen.is_multipath() && seen.ups() == 2, "{:?} {:?}", seen.events, bed.counters());
    bed.assert_clean();
}

#[test]
fn a_link_that_dies_stalls_nothing() {
    let Some(bed) = Bed::new() else { return };
    let plan = Plan { links: 2, bytes: 20_000_000, ..ONE };
    let mut is_cut = false;
    let seen = with_kernel_server(&bed, Config::default(), plan, |host, seen| {
        if !is_cut && seen.ups() == 2 && seen.read.len() > 4_000_000 {
            host.set_silent(own_address(1, false), true);
            is_cut = true;
        }
    });
    assert!(seen.is_multipath() && seen.ups() == 2, "{:?}", seen.events);
    bed.assert_clean();
}
