//! How a program of the phone reaches the server: by TCP, by Multipath TCP, or through a SOCKS5 proxy (RFC
//! 1928).

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

/// A connection must be there, and answers must come, within this time.
const PATIENCE: Duration = Duration::from_secs(30);
/// The bytes before a datagram in SOCKS5: reserved, fragment, type of address, IPv4 address, port.
pub const UDP_HEADER_BYTES: usize = 10;

/// A way to the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dial {
    /// Whether sockets are of Multipath TCP.
    pub mptcp: bool,
    /// The SOCKS5 proxy.
    pub socks: Option<SocketAddr>,
}

impl Dial {
    /// Opens a connection.
    ///
    /// # Errors
    /// If there is none within half a minute, or if the proxy refuses.
    pub fn connect(&self, to: SocketAddr) -> io::Result<TcpStream> {
        let first = self.socks.unwrap_or(to);
        let protocol = if self.mptcp { Protocol::MPTCP } else { Protocol::TCP };
        let socket = Socket::new(Domain::for_address(first), Type::STREAM, Some(protocol))?;
        socket.connect_timeout(&first.into(), PATIENCE)?;
        let mut stream = TcpStream::from(socket);
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        if self.socks.is_some() {
            request(&mut stream, 1, to)?;
        }
        Ok(stream)
    }

    /// Opens a socket for datagrams to the server, connected to it or to the proxy's relay. Returns it with
    /// the header that goes before each datagram, and with the connection that keeps the relay.
    ///
    /// # Errors
    /// If the proxy refuses, or no socket can be made.
    pub fn datagrams(&self, to: SocketAddr) -> io::Result<(UdpSocket, Vec<u8>, Option<TcpStream>)> {
        let socket = UdpSocket::bind((std::net::Ipv4Addr::UNSPECIFIED, 0))?;
        let Some(proxy) = self.socks else {
            socket.connect(to)?;
            return Ok((socket, Vec::new(), None));
        };
        let mut stream = TcpStream::connect_timeout(&proxy, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut relay = request(&mut stream, 3, SocketAddr::from(([0, 0, 0, 0], 0)))?;
        if relay.ip().is_unspecified() {
            relay.set_ip(proxy.ip());
        }
        socket.connect(relay)?;
        let mut header = vec![0, 0, 0];
        header.extend(address(to)?);
        Ok((socket, header, Some(stream)))
    }
}

/// Writes an IPv4 address as SOCKS5 has it.
fn address(at: SocketAddr) -> io::Result<Vec<u8>> {
    let IpAddr::V4(ip) = at.ip() else { return Err(io::Error::other("the hosts of a test have IPv4")) };
    Ok([&[1][..], &ip.octets(), &at.port().to_be_bytes()].concat())
}

/// Asks a SOCKS5 proxy. Returns the address in its answer.
fn request(stream: &mut TcpStream, command: u8, to: SocketAddr) -> io::Result<SocketAddr> {
    stream.write_all(&[&[5, 1, 0, 5, command, 0][..], &address(to)?].concat())?;
    let mut answer = [0; 2 + UDP_HEADER_BYTES];
    stream.read_exact(&mut answer)?;
    let [_, method, _, reply, _, kind, a, b, c, d, high, low] = answer;
    if (method, reply, kind) != (0, 0, 1) {
        return Err(io::Error::other(format!("the proxy refuses: method {method}, reply {reply}")));
    }
    Ok(SocketAddr::from(([a, b, c, d], u16::from_be_bytes([high, low]))))
}
