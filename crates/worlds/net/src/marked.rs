//! Sends datagrams with a code point of differentiated services (DSCP). quinn-udp writes only the two bits of
//! ECN into that field of the IP header, and zeros beside them, regardless of the socket's options.

use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::os::fd::AsRawFd as _;

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrStorage, sendmsg};
use quinn_udp::Transmit;
use socket2::Socket;

/// Sends as [`UdpSocketState::try_send`](quinn_udp::UdpSocketState::try_send) does, with the code point
/// `dscp` beside the bits of ECN.
pub(crate) fn send(socket: &Socket, transmit: &Transmit<'_>, dscp: u8) -> io::Result<()> {
    let field = dscp << 2 | transmit.ecn.map_or(0, |ecn| ecn as u8);
    let wide = i32::from(field);
    let segment = transmit.segment_size.map(|size| u16::try_from(size).unwrap_or(u16::MAX));
    let (v4, v6);
    let mut messages = Vec::with_capacity(3);
    messages.push(match transmit.destination.is_ipv4() {
        true => ControlMessage::Ipv4Tos(&field),
        false => ControlMessage::Ipv6TClass(&wide),
    });
    messages.extend(segment.as_ref().map(ControlMessage::UdpGsoSegments));
    match transmit.src_ip {
        Some(IpAddr::V4(ip)) => {
            let address = |address: u32| libc::in_addr { s_addr: address };
            let from = address(u32::from_ne_bytes(ip.octets()));
            v4 = libc::in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: from, ipi_addr: address(0) };
            messages.push(ControlMessage::Ipv4PacketInfo(&v4));
        }
        Some(IpAddr::V6(ip)) => {
            let address = libc::in6_addr { s6_addr: ip.octets() };
            v6 = libc::in6_pktinfo { ipi6_addr: address, ipi6_ifindex: 0 };
            messages.push(ControlMessage::Ipv6PacketInfo(&v6));
        }
        None => {}
    }
    let to = SockaddrStorage::from(transmit.destination);
    let bytes = [IoSlice::new(transmit.contents)];
    loop {
        match sendmsg(socket.as_raw_fd(), &bytes, &messages, MsgFlags::empty(), Some(&to)) {
            Ok(_) => return Ok(()),
            Err(Errno::EINTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}
