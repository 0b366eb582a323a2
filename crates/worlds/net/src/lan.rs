//! Datagrams to all hosts of a LAN, by IPv4 multicast, and from each of them.
//!
//! No packet leaves the LAN: all have a time to live of one hop, and only those from private addresses (RFC
//! 1918) and link-local ones (RFC 3927) are received. Only interfaces with such an address are used: a
//! mobile link with a public address, and one that leads to a single peer, have no neighbours.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::{Mutex, PoisonError};

use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};

use crate::interface::interfaces;

/// A pair of sockets: one hears what is sent to a group, the other sends, and hears what is sent to itself.
#[derive(Debug)]
pub struct LanSocket {
    group: SocketAddrV4,
    heard: UdpSocket,
    own: UdpSocket,
    /// The addresses of the interfaces in use.
    joined: Mutex<Vec<Ipv4Addr>>,
}

/// Returns whether an address is one of a LAN: private or link-local.
#[must_use]
pub const fn is_local(ip: Ipv4Addr) -> bool {
    ip.is_private() || ip.is_link_local()
}

impl LanSocket {
    /// Opens the sockets. Others of this host may use the same group. `port` is where this one is written
    /// to; the system chooses if it is 0. No interface is used yet.
    ///
    /// # Errors
    /// If a socket cannot be opened or bound.
    pub fn open(group: SocketAddrV4, port: u16) -> io::Result<Self> {
        let open = |address: SocketAddrV4, shared| {
            let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
            socket.set_reuse_address(shared)?;
            socket.set_nonblocking(true)?;
            let bound = socket.bind(&SockAddr::from(address));
            bound.map_err(|e| io::Error::new(e.kind(), format!("listening on {address}: {e}")))?;
            Ok::<_, io::Error>(UdpSocket::from(socket))
        };
        let heard = open(group, true)?;
        let own = open(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port), false)?;
        own.set_multicast_ttl_v4(1)?;
        own.set_ttl(1)?;
        Ok(Self { group, heard, own, joined: Mutex::default() })
    }

    /// Uses the interfaces of a LAN that are there now: those with these names, or all if there are none.
    /// Returns their number.
    ///
    /// # Errors
    /// If the interfaces cannot be listed.
    pub fn join(&self, names: &[String]) -> io::Result<usize> {
        let mut addresses = Vec::new();
        for interface in interfaces()?.into_iter().filter(|interface| interface.up && !interface.loopback) {
            let local = interface.addresses.iter().find_map(|ip| match ip {
                IpAddr::V4(ip) if is_local(*ip) => Some(*ip),
                _ => None,
            });
            addresses.extend(local.filter(|_| names.is_empty() || names.contains(&interface.name)));
        }
        let mut joined = self.joined.lock().unwrap_or_else(PoisonError::into_inner);
        for gone in joined.iter().filter(|old| !addresses.contains(old)) {
            let _ = self.heard.leave_multicast_v4(self.group.ip(), gone);
        }
        // One that refuses, such as a tunnel without multicast, is left out.
        addresses
            .retain(|new| joined.contains(new) || self.heard.join_multicast_v4(self.group.ip(), new).is_ok());
        *joined = addresses;
        Ok(joined.len())
    }

    /// Sends a datagram to the group, over each interface in use. What cannot be sent is lost, as packets
    /// are.
    pub fn send_to_all(&self, bytes: &[u8]) {
        // The lock also keeps another call from choosing another interface meanwhile.
        let joined = self.joined.lock().unwrap_or_else(PoisonError::into_inner);
        for interface in joined.iter() {
            if SockRef::from(&self.own).set_multicast_if_v4(interface).is_ok() {
                let _ = self.own.send_to(bytes, self.group);
            }
        }
    }

    /// Sends a datagram to one host.
    pub fn send(&self, to: SocketAddr, bytes: &[u8]) {
        let _ = self.own.send_to(bytes, to);
    }

    /// Receives a datagram from a host of a LAN, if one waits. Returns its length and its sender.
    pub fn receive(&self, buffer: &mut [u8]) -> Option<(usize, SocketAddr)> {
        [&self.heard, &self.own].into_iter().find_map(|socket| receive(socket, buffer))
    }

    /// Returns the descriptors that are readable when a datagram waits.
    #[must_use]
    pub fn fds(&self) -> [BorrowedFd<'_>; 2] {
        [self.heard.as_fd(), self.own.as_fd()]
    }
}

fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> Option<(usize, SocketAddr)> {
    loop {
        match socket.recv_from(buffer) {
            Ok((length, SocketAddr::V4(from))) if is_local(*from.ip()) => return Some((length, from.into())),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_private_addresses_are_those_of_a_lan() {
        for (ip, is) in [
            ([10, 1, 2, 3], true),
            ([192, 168, 1, 1], true),
            ([172, 31, 0, 1], true),
            ([169, 254, 3, 4], true),
            ([172, 32, 0, 1], false),
            ([100, 64, 0, 1], false),
            ([127, 0, 0, 1], false),
            ([192, 0, 2, 1], false),
        ] {
            assert_eq!(is_local(ip.into()), is, "{ip:?}");
        }
    }
}
