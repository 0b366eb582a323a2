//! One transfer with the kernel at the other end, in either role.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::thread;

use anabranch_algo::{Span, Time};
use anabranch_mptcp::{Config, ConnectionEvent, ConnectionId};
use anabranch_mptcp_tun::TunHost;
use socket2::Socket;

use crate::bed::{Bed, PORT, kernel_address, own_address};

const PATIENCE: Span = Span::from_secs(20);

pub(crate) fn pattern(len: usize, seed: u64) -> Vec<u8> {
    (0..len as u64).map(|at| (at.wrapping_mul(0x9e37_79b9).wrapping_add(seed) >> 8) as u8).collect()
}

/// The events and data that our end saw.
pub(crate) struct Seen {
    pub(crate) events: Vec<ConnectionEvent>,
    pub(crate) read: Vec<u8>,
}

impl Seen {
    pub(crate) fn ups(&self) -> usize {
        self.events.iter().filter(|event| matches!(event, ConnectionEvent::SubflowUp { .. })).count()
    }
    pub(crate) fn downs(&self) -> usize {
        self.events.iter().filter(|event| matches!(event, ConnectionEvent::SubflowDown { .. })).count()
    }
    pub(crate) fn is_multipath(&self) -> bool {
        self.events.contains(&ConnectionEvent::Established { multipath: true })
            && !self.events.contains(&ConnectionEvent::FellBack)
    }
}

/// Runs our end until the connection is closed: writes `bytes` and reads everything. `each` is called from
/// time to time and returns whether this end may finish. If it `holds`, it reads nothing before that.
pub(crate) fn run(
    host: &mut TunHost,
    mut id: Option<ConnectionId>,
    bytes: &[u8],
    holds: bool,
    mut each: impl FnMut(&mut TunHost, ConnectionId, &Seen) -> bool,
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
            let may_finish = each(host, id, &seen);
            loop {
                let room = if may_finish || !holds { &mut buffer[..] } else { &mut [] };
                match host.stack().read(id, room) {
                    0 => break,
                    count => seen.read.extend_from_slice(&buffer[..count]),
                }
            }
            if may_finish && written == bytes.len() {
                host.stack().finish(id);
            }
        }
        if closed {
            host.turn(None, Time::ZERO, |_| {}).unwrap();
            return seen;
        }
    }
}

/// Runs the kernel's program, which writes and reads at once until both directions have ended. Returns the
/// data that it read.
pub(crate) fn program(socket: &Socket, bytes: Vec<u8>) -> Vec<u8> {
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

/// The plan of a transfer.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) multipath: bool,
    pub(crate) v6: bool,
    pub(crate) links: u8,
    pub(crate) bytes: usize,
    pub(crate) holds: bool,
}

/// Runs a transfer in which the kernel accepts and our host connects.
pub(crate) fn with_kernel_server(
    bed: &Bed,
    config: Config,
    plan: Plan,
    each: impl FnMut(&mut TunHost, ConnectionId, &Seen) -> bool,
) -> Seen {
    let Some(mut host) = bed.host(config, plan.links, plan.v6, false) else { return skipped() };
    let listener = bed.listener(plan.multipath, plan.v6);
    let (up, down) = (pattern(plan.bytes, 1), pattern(plan.bytes, 2));
    let sent = down.clone();
    let server = thread::spawn(move || program(&listener.accept().unwrap().0, sent));
    let id = host.connect(None, SocketAddr::new(kernel_address(1, plan.v6), PORT));
    let seen = run(&mut host, id, &up, plan.holds, each);
    assert!(server.join().unwrap() == up, "what the kernel read");
    assert!(seen.read == down, "what we read: {} of {}", seen.read.len(), down.len());
    seen
}

/// Runs a transfer in which our host accepts and the kernel connects.
pub(crate) fn with_kernel_client(
    bed: &Bed,
    config: Config,
    plan: Plan,
    announce: bool,
    each: impl FnMut(&mut TunHost, ConnectionId, &Seen) -> bool,
) -> Seen {
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
    let seen = run(&mut host, None, &up, plan.holds, each);
    assert!(client.join().unwrap() == up, "what the kernel read");
    assert!(seen.read == down, "what we read: {} of {}", seen.read.len(), down.len());
    seen
}

/// Returns the result of a transfer that was skipped. Tests must not check it.
pub(crate) fn skipped() -> Seen {
    Seen { events: vec![ConnectionEvent::Established { multipath: true }], read: Vec::new() }
}

pub(crate) const ONE: Plan = Plan { multipath: true, v6: false, links: 1, bytes: 3_000_000, holds: false };
