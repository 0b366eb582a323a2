//! Tests code points of differentiated services beside the marks of ECN, as another socket receives them.
#![cfg(target_os = "linux")]

use std::io::IoSliceMut;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::time::Duration;

use anabranch_algo::Span;
use anabranch_net::*;
use nix::sys::socket::sockopt::{IpRecvTos, Ipv4Tos, Ipv6RecvTClass, Ipv6TClass};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt};

const ECT_0: u8 = 0b10;
const CE: u8 = 0b11;

/// Reads the whole field of the IP header with a separate socket.
struct Seer(UdpSocket);

impl Seer {
    fn new(ip: IpAddr) -> Self {
        let socket = UdpSocket::bind((ip, 0)).expect("a socket");
        socket.set_read_timeout(Some(Duration::from_secs(2))).expect("a timeout");
        match ip.is_ipv4() {
            true => setsockopt(&socket, IpRecvTos, &true),
            false => setsockopt(&socket, Ipv6RecvTClass, &true),
        }
        .expect("it is told");
        Self(socket)
    }

    fn address(&self) -> SocketAddr {
        self.0.local_addr().expect("an address")
    }

    /// Receives a datagram. Returns its length and the field.
    fn see(&self) -> (usize, u8) {
        let (mut bytes, mut space) = ([0; 2_000], nix::cmsg_space!(i32));
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let fd = self.0.as_raw_fd();
        let got = recvmsg::<SockaddrStorage>(fd, &mut parts, Some(&mut space), MsgFlags::empty());
        let got = got.expect("a datagram");
        let field = got.cmsgs().expect("all of it").find_map(|message| match message {
            ControlMessageOwned::Ipv4Tos(field) => Some(field),
            ControlMessageOwned::Ipv6TClass(field) => u8::try_from(field).ok(),
            _ => None,
        });
        (got.bytes, field.expect("the field"))
    }
}

#[test]
fn a_code_point_goes_beside_the_mark_of_ecn() {
    for host in ["127.0.0.1", "::1"] {
        let ip: IpAddr = host.parse().expect("an address");
        let (seer, any) = (Seer::new(ip), SocketAddr::new(ip, 0));
        let connected = Udp::connect(&Egress::any(), seer.address()).expect("a socket");
        let open = Udp::listen(any).expect("a socket");
        let bytes = [7; 10 * 1_000];
        let send = |udp: &Udp, dscp, ecn, segment: Option<usize>, from_ip| {
            let to = udp.peer_addr().is_none().then(|| seer.address());
            let bytes = &bytes[..segment.map_or(100, |_| bytes.len())];
            let outcome = udp.send(&Datagrams { to, from_ip, bytes, segment, ecn, dscp });
            assert!(matches!(outcome, SendOutcome::Sent), "{host}: {outcome:?}");
        };
        for udp in [&connected, &open] {
            for dscp in [46, 1, 63, 0] {
                send(udp, dscp, false, None, None);
                assert_eq!(seer.see(), (100, dscp << 2), "{host}");
                send(udp, dscp, true, None, Some(ip));
                assert_eq!(seer.see(), (100, dscp << 2 | ECT_0), "{host}");
            }
        }
        // Each packet that the kernel cuts has the code point.
        send(&open, 34, true, Some(1_000), Some(ip));
        assert!((0..10).all(|_| seer.see() == (1_000, 34 << 2 | ECT_0)), "{host}");
        assert!(open.max_segments(1_000) > 1, "segmentation offload is still there");
    }
}

#[test]
fn marks_of_ecn_are_read_whatever_the_code_point_is() {
    for host in ["127.0.0.1", "::1"] {
        let ip: IpAddr = host.parse().expect("an address");
        let sender = UdpSocket::bind((ip, 0)).expect("a socket");
        let udp = Udp::listen(SocketAddr::new(ip, 0)).expect("a socket");
        let (mut buffers, clock) = (RecvBuffers::new(), Clock::start());
        let mut poller = Poller::new(clock);
        for (bits, ecn) in [(0, None), (ECT_0, Some(Ecn::Ect0)), (CE, Some(Ecn::Ce))] {
            let field = i32::from(46 << 2 | bits);
            match ip.is_ipv4() {
                true => setsockopt(&sender, Ipv4Tos, &field),
                false => setsockopt(&sender, Ipv6TClass, &field),
            }
            .expect("it is set");
            sender.send_to(b"x", udp.local_addr()).expect("sent");
            poller.wait([(udp.as_fd(), Interest::Read)], clock.now() + Span::from_secs(2)).expect("it waits");
            let mut seen = Vec::new();
            udp.recv(&mut buffers, |received| seen.push(received.ecn)).expect("it receives");
            assert_eq!(seen, [ecn], "{host}");
        }
    }
}
