//! A forwarder that records and clears the field of the IP header with the code point and the mark of ECN.

use std::io::IoSliceMut;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use anabranch::network::Place;
use anabranch_algo::{Machine as _, Output, Time};
use anabranch_net::Clock;
use anabranch_overlay::forwarder::{Forwarder, Frames, Hop, Step};
use anabranch_overlay::frame::{self, Frame};
use nix::sys::socket::sockopt::IpRecvTos;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt};

/// A packet that has arrived.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// The name of the neighbour that sent it.
    pub(super) from: String,
    /// The field: six bits of the code point, and two of ECN.
    pub(super) field: u8,
    /// Whether it is a packet of mmTP, and no hello or message.
    pub(super) is_mmtp: bool,
}

/// A running tap; see the [module](self).
pub(super) struct Tap {
    seen: Arc<Mutex<Vec<Seen>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Tap {
    /// Starts a tap in the place of a forwarder. Its neighbours see no difference.
    pub(super) fn start(place: &Place) -> Self {
        let domain = place.domain().clone();
        let mut forwarder = Forwarder::new(&domain, place.node(), 1, [5; 32], Clock::start().now());
        let socket = |address: SocketAddr| {
            let socket = seeing(address);
            socket.set_nonblocking(true).expect("set");
            socket
        };
        let sockets: Vec<UdpSocket> = forwarder.addresses().map(socket).collect();
        let links = domain.graph.outgoing(place.node()).to_vec();
        let (seen, stop) = (Arc::<Mutex<Vec<Seen>>>::default(), Arc::<AtomicBool>::default());
        let (its, stopped) = (Arc::clone(&seen), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            let clock = Clock::start();
            let send = |hop: Hop, bytes: &[u8]| {
                let is_it = |socket: &&UdpSocket| socket.local_addr().is_ok_and(|at| at.ip() == hop.from);
                let _ = sockets.iter().find(is_it).expect("its own").send_to(bytes, hop.to);
            };
            while !stopped.load(Ordering::Relaxed) {
                drain(&mut forwarder, clock.now(), &[], send);
                let mut is_idle = true;
                for (socket, link) in sockets.iter().zip(&links) {
                    let Some((mut bytes, from, field)) = receive(socket) else { continue };
                    is_idle = false;
                    let routed = match frame::parse(&bytes) {
                        Ok(Frame::Routed(routed)) => routed.payload.first() == Some(&1),
                        _ => false,
                    };
                    let there = domain.graph.link(*link).to;
                    let from_node = domain.graph.node(there).name.clone();
                    its.lock().expect("no panic").push(Seen { from: from_node, field, is_mmtp: routed });
                    let stride = bytes.len();
                    let now = clock.now();
                    forwarder.handle(now, Frames { from, bytes: &mut bytes, stride });
                    drain(&mut forwarder, now, &bytes, send);
                }
                if is_idle {
                    std::thread::sleep(Duration::from_micros(200));
                }
            }
        });
        Self { seen, stop, thread: Some(thread) }
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().expect("no panic").clone()
    }

    /// Clears the records until no packet of mmTP has come for half a second: the last answers of a finished
    /// transfer may still arrive with its marks.
    pub(super) fn settle(taps: &[Self]) {
        let is_quiet = |tap: &Self| !tap.seen().iter().any(|seen| seen.is_mmtp);
        for _ in 0..40 {
            taps.iter().for_each(|tap| tap.seen.lock().expect("no panic").clear());
            std::thread::sleep(Duration::from_millis(500));
            if taps.iter().all(is_quiet) {
                return;
            }
        }
        panic!("20 s after the transfer there are packets of it");
    }
}

/// Sends all packets that a forwarder wants to send. `bytes` are the last ones that arrived.
fn drain(forwarder: &mut Forwarder, now: Time, bytes: &[u8], send: impl Fn(Hop, &[u8])) {
    loop {
        match forwarder.poll(now) {
            Output::Send(Step::Forward(hop, train)) => send(hop, &bytes[train]),
            Output::Send(Step::Send(hop, frame)) => send(hop, &frame),
            Output::Event(never) => match never {},
            Output::Wait(_) => return,
        }
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Opens a socket that reports the field.
pub(super) fn seeing(address: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind(address).expect("a socket");
    setsockopt(&socket, IpRecvTos, &true).expect("it is told");
    socket
}

/// Receives one datagram. Returns it with its sender and the field.
pub(super) fn receive(socket: &UdpSocket) -> Option<(Vec<u8>, SocketAddr, u8)> {
    let (mut bytes, mut space) = (vec![0; 2_000], nix::cmsg_space!(u8));
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let fd = socket.as_raw_fd();
    let got = recvmsg::<SockaddrStorage>(fd, &mut parts, Some(&mut space), MsgFlags::empty()).ok()?;
    let from = *got.address?.as_sockaddr_in()?;
    let field = got.cmsgs().ok()?.find_map(|message| match message {
        ControlMessageOwned::Ipv4Tos(field) => Some(field),
        _ => None,
    });
    let (len, field) = (got.bytes, field?);
    bytes.truncate(len);
    Some((bytes, SocketAddr::new(from.ip().into(), from.port()), field))
}
