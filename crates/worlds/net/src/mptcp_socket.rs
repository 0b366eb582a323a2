//! Reads the measurements of an MPTCP connection of this process, subflow by subflow (`MPTCP_FULL_INFO` of
//! `linux/mptcp.h`, Linux 6.5). Unlike [`SockDiag`](crate::netlink::SockDiag), this needs no privilege to
//! show which subflows belong together.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::BorrowedFd;

use nix::errno::Errno;
use nix::libc;

use crate::netlink::{MptcpInfo, TcpInfo};
use crate::syscalls::{mptcp_full_info, tcp_info};

/// The size of `struct mptcp_subflow_info`, in bytes: a number, and two `struct __kernel_sockaddr_storage`.
const SUBFLOW_BYTES: usize = 264;
const LOCAL_AT: usize = 8;
const REMOTE_AT: usize = 136;
/// The number of bytes reserved for `struct tcp_info`, which is more than [`TcpInfo`] reads.
const TCP_BYTES: usize = 256;
/// The largest number of subflows that are read. The kernel has at most eight besides the first.
const SUBFLOWS_MAX: u32 = 16;

/// Describes a subflow of an MPTCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubflowInfo {
    /// The local address and port.
    pub local: SocketAddr,
    /// The remote address and port.
    pub remote: SocketAddr,
    /// The measurements of the subflow.
    pub tcp: TcpInfo,
}

/// Returns the measurements of an MPTCP socket: those of the connection, and those of its subflows. Returns
/// `None` if it is no MPTCP socket, or continues as plain TCP because the other end or the path refused
/// MPTCP.
///
/// # Errors
/// If `fd` is no socket.
pub fn mptcp_socket_info(fd: BorrowedFd<'_>) -> io::Result<Option<(MptcpInfo, Vec<SubflowInfo>)>> {
    let full = match mptcp_full_info::<SUBFLOW_BYTES, TCP_BYTES>(fd, SUBFLOWS_MAX) {
        Ok(full) => full,
        Err(Errno::EOPNOTSUPP | Errno::ENOPROTOOPT) => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    let connection: Vec<u8> = full.connection.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let info = MptcpInfo::parse(&connection);
    let subflow = |(ends, tcp): &([u8; SUBFLOW_BYTES], [u8; TCP_BYTES])| {
        let (local, remote) = (address(&ends[LOCAL_AT..])?, address(&ends[REMOTE_AT..])?);
        Some(SubflowInfo { local, remote, tcp: TcpInfo::parse(tcp) })
    };
    Ok((!info.fallback).then(|| (info, full.subflows.iter().filter_map(subflow).collect())))
}

/// Returns the measurements of a TCP connection; for an MPTCP socket, those of its first subflow
/// (`TCP_INFO`).
///
/// # Errors
/// If `fd` is no TCP socket.
pub fn tcp_socket_info(fd: BorrowedFd<'_>) -> io::Result<TcpInfo> {
    Ok(TcpInfo::parse(&tcp_info::<TCP_BYTES>(fd)?))
}

/// Reads a `struct sockaddr_in` or `sockaddr_in6`.
fn address(bytes: &[u8]) -> Option<SocketAddr> {
    let family = libc::c_int::from(u16::from_ne_bytes(*bytes.first_chunk()?));
    let port = u16::from_be_bytes([*bytes.get(2)?, *bytes.get(3)?]);
    let ip: IpAddr = match family {
        libc::AF_INET => Ipv4Addr::from(*bytes.get(4..)?.first_chunk::<4>()?).into(),
        libc::AF_INET6 => Ipv6Addr::from(*bytes.get(8..)?.first_chunk::<16>()?).into(),
        _ => return None,
    };
    Some(SocketAddr::new(ip.to_canonical(), port))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn a_plain_connection_is_none() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert_eq!(mptcp_socket_info(stream.as_fd()).unwrap(), None);
        assert!(tcp_socket_info(stream.as_fd()).unwrap().snd_mss > 0);
        assert!(tcp_socket_info(std::net::UdpSocket::bind("127.0.0.1:0").unwrap().as_fd()).is_err());
    }

    #[test]
    fn addresses_are_read_and_what_is_cut_is_none() {
        let mut v6 = vec![0; 28];
        v6[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
        v6[2..4].copy_from_slice(&443_u16.to_be_bytes());
        v6[23] = 1;
        assert_eq!(address(&v6), Some("[::1]:443".parse().unwrap()));
        assert!((0..24).all(|len| address(&v6[..len]).is_none()));
        v6[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
        v6[4..8].copy_from_slice(&[192, 0, 2, 1]);
        assert_eq!(address(&v6), Some("192.0.2.1:443".parse().unwrap()));
        v6[0] = 99;
        assert_eq!(address(&v6), None);
    }
}
