//! The agent of another host, as a source sees it.

use std::fs::File;
use std::io::{self, Read as _};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs as _};
use std::path::Path as FilePath;
use std::time::Duration;

use anabranch_algo::{Rate, Span};
use anabranch_house::keys::Pairing;
use anabranch_house::tls::{ClientStream, ClientTls};
use anabranch_net::{Clock, Egress};
use ring::digest::{Context, SHA256};
use socket2::{Domain, Protocol, Socket, Type};

use crate::error::{Error, Result, lost};
use crate::qmp::Version;
use crate::store::Host;
use crate::wire::{ALPN, Ask, BLOCK, Lines, PORT, Told, rate_of};

/// The longest time until a connection is made.
const CONNECT: Duration = Duration::from_secs(5);
/// The longest time until a further connection is made, to one of several addresses.
const RECONNECT: Duration = Duration::from_secs(2);
/// The longest time until an agent says hello.
const HELLO: Duration = Duration::from_secs(10);
/// The longest time until an answer comes.
const ANSWER: Duration = Duration::from_secs(60);

/// What an agent says of its host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The version of its QEMU.
    pub qemu: Version,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// The memory that a machine can have there, bytes.
    pub memory_bytes: u64,
}

/// How a connection leaves this host.
#[derive(Clone, Debug)]
pub enum Way {
    /// Over all paths that the kernel's Multipath TCP has.
    All,
    /// Over this device alone.
    Device(String),
}

/// A connection to an agent.
#[derive(Debug)]
pub struct Remote {
    lines: Lines<ClientStream>,
    peer: SocketAddr,
}

/// Returns the address and port of a host, of a text in which the port may be missing: it is `port` then.
///
/// # Errors
/// `Unreachable` if the name has no address.
pub fn resolve(address: &str, port: u16) -> Result<SocketAddr> {
    let unknown = |e: &io::Error| Error::Unreachable(format!("{address}: {e}"));
    if let Ok(ip) = address.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, port));
    }
    let is_port = |(_, port): (&str, &str)| port.parse::<u16>().is_ok();
    let with_port = if address.rsplit_once(':').is_some_and(is_port) {
        address.to_owned()
    } else {
        format!("{address}:{port}")
    };
    let found = with_port.to_socket_addrs().map_err(|e| unknown(&e))?.next();
    found.ok_or_else(|| unknown(&io::Error::other("it has no address")))
}

impl Remote {
    /// Connects to an agent at an address.
    ///
    /// # Errors
    /// `Unreachable` if no address answers; `Refused` if it has another key, or does not know ours.
    pub fn connect(peer: SocketAddr, pairing: &Pairing, way: &Way) -> Result<Self> {
        Self::connect_within(CONNECT, peer, pairing, way)
    }

    fn connect_within(within: Duration, peer: SocketAddr, pairing: &Pairing, way: &Way) -> Result<Self> {
        let failed = |e: io::Error| {
            let by = if let Way::Device(device) = way { format!(" over {device}") } else { String::new() };
            Error::Unreachable(format!("no agent is reached at {peer}{by}: {e}"))
        };
        let socket = match way {
            Way::All => multipath(peer).map_err(failed)?,
            Way::Device(device) => Egress::of_device(device.as_str()).tcp_socket(peer).map_err(failed)?.0,
        };
        socket.set_nonblocking(false).map_err(failed)?;
        socket.connect_timeout(&peer.into(), within).map_err(failed)?;
        let stream = TcpStream::from(socket);
        stream.set_nodelay(true).map_err(failed)?;
        stream.set_read_timeout(Some(HELLO)).map_err(failed)?;
        stream.set_write_timeout(Some(ANSWER)).map_err(failed)?;
        let stream = ClientTls::new(pairing, ALPN).connect_blocking(stream)?;
        let mut remote = Self { lines: Lines::new(stream), peer };
        remote.set_patience(ANSWER);
        Ok(remote)
    }

    /// Connects to a host that was paired, over all paths, and says hello.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn greet(host: &Host, pairing: &Pairing) -> Result<(Self, Hello)> {
        let mut remote = Self::connect(resolve(&host.address, PORT)?, pairing, &Way::All)?;
        remote.set_patience(HELLO);
        let told = remote.ask(&Ask::Hello)?;
        remote.set_patience(ANSWER);
        match told {
            Told::Hello { qemu, mut addresses, memory_bytes } => {
                // The address that the user knows comes first.
                addresses.retain(|ip| *ip != remote.peer.ip());
                addresses.insert(0, remote.peer.ip());
                Ok((remote, Hello { qemu, addresses, memory_bytes }))
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Connects as [`greet`](Self::greet) does, by the first of these addresses that works: some may be
    /// behind a link that is lost.
    ///
    /// # Errors
    /// As [`connect`](Self::connect), for the address that the user knows.
    pub fn greet_any(host: &Host, pairing: &Pairing, addresses: &[IpAddr]) -> Result<Self> {
        let known = resolve(&host.address, PORT)?;
        let connect =
            |ip| Self::connect_within(RECONNECT, SocketAddr::new(ip, known.port()), pairing, &Way::All);
        if let Some(remote) = addresses.iter().find_map(|ip| connect(*ip).ok()) {
            return Ok(remote);
        }
        connect(known.ip())
    }

    /// Sets how long answers may take from now on.
    pub fn set_patience(&mut self, patience: Duration) {
        let _ = self.lines.stream().sock.set_read_timeout(Some(patience));
    }

    /// Returns the address of the agent.
    #[must_use]
    pub const fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// `Refused` with the agent's words; `Unreachable` if the connection has ended.
    pub fn ask(&mut self, ask: &Ask) -> Result<Told> {
        self.lines.send(ask).map_err(|e| lost(&e))?;
        self.answer()
    }

    fn answer(&mut self) -> Result<Told> {
        let ended = || lost(&io::ErrorKind::UnexpectedEof.into());
        match self.lines.receive().map_err(|e| lost(&e))?.ok_or_else(ended)? {
            Told::Refused { text } => Err(Error::Refused(text)),
            told => Ok(told),
        }
    }

    /// Sends for `time`, and returns the rate at which it came. Bytes that wait unsent are few, so that the
    /// measurement ends when it should.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub fn measure(&mut self, clock: Clock, time: Span) -> Result<Rate> {
        let socket = socket2::SockRef::from(&self.lines.stream().sock);
        let _ = socket.set_tcp_notsent_lowat(2 * BLOCK as u32);
        self.lines.send(&Ask::Measure).map_err(|e| lost(&e))?;
        let mut block = vec![0_u8; 4 + BLOCK];
        block[..4].copy_from_slice(&(BLOCK as u32).to_be_bytes());
        let deadline = clock.now() + time;
        while clock.now() < deadline {
            self.lines.send_bytes(&block).map_err(|e| lost(&e))?;
        }
        self.lines.send_bytes(&[0; 4]).map_err(|e| lost(&e))?;
        match self.answer()? {
            Told::Measured { ticks } => Ok(Rate::from_bytes(rate_of(&ticks))),
            other => Err(unexpected(&other)),
        }
    }

    /// Sends a file unless it is there, and returns its hash.
    ///
    /// # Errors
    /// `Failed` if the file cannot be read; otherwise as [`ask`](Self::ask).
    pub fn put(&mut self, path: &FilePath) -> Result<String> {
        let failed = |e: io::Error| Error::of_path(path, &e);
        let (sha256, bytes) = hash(path).map_err(failed)?;
        if let Told::Have { is_there: true } = self.ask(&Ask::Have { sha256: sha256.clone() })? {
            return Ok(sha256);
        }
        self.lines.send(&Ask::Put { sha256: sha256.clone(), bytes }).map_err(|e| lost(&e))?;
        let mut file = File::open(path).map_err(failed)?.take(bytes);
        let mut block = vec![0; BLOCK];
        loop {
            match file.read(&mut block).map_err(failed)? {
                0 => break,
                count => self.lines.send_bytes(&block[..count]).map_err(|e| lost(&e))?,
            }
        }
        match self.answer()? {
            Told::Stored => Ok(sha256),
            other => Err(unexpected(&other)),
        }
    }
}

/// Returns the hash and the length of a file.
fn hash(path: &FilePath) -> io::Result<(String, u64)> {
    let (mut file, mut context, mut bytes) = (File::open(path)?, Context::new(&SHA256), 0);
    let mut block = vec![0; BLOCK];
    loop {
        match file.read(&mut block)? {
            0 => return Ok((data_encoding::HEXLOWER.encode(context.finish().as_ref()), bytes)),
            count => {
                context.update(&block[..count]);
                bytes += count as u64;
            }
        }
    }
}

/// Makes a socket of Multipath TCP, or of TCP where the kernel has none.
fn multipath(peer: SocketAddr) -> io::Result<Socket> {
    let domain = Domain::for_address(peer);
    Socket::new(domain, Type::STREAM, Some(Protocol::MPTCP))
        .or_else(|_| Socket::new(domain, Type::STREAM, Some(Protocol::TCP)))
}

/// Returns the error of an answer to another question.
pub(crate) fn unexpected(told: &Told) -> Error {
    Error::Failed(format!("the agent answers another question: {told:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_found_with_and_without_a_port() {
        let text = |address: &str| resolve(address, PORT).map(|a| a.to_string());
        assert_eq!(text("192.0.2.1"), Ok("192.0.2.1:26230".into()));
        assert_eq!(text("192.0.2.1:7"), Ok("192.0.2.1:7".into()));
        assert_eq!(text("[2001:db8::1]:7"), Ok("[2001:db8::1]:7".into()));
        assert_eq!(text("2001:db8::1"), Ok("[2001:db8::1]:26230".into()));
        assert!(matches!(resolve("no such host", PORT), Err(Error::Unreachable(_))));
    }
}
