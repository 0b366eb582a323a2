//! The door of an agent: it listens for the agents of other hosts, and lets in those that are paired with
//! this one. Each crate whose things move between hosts has such a door, with a protocol of its own.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anabranch_algo::Span;
use anabranch_algo::fair_share::host_of;
use anabranch_house::tls::{HANDSHAKE_TIMEOUT, ServerStream, ServerTls};
use anabranch_net::{Clock, netlink};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::{Domain, Protocol, Socket, Type};

use crate::connections::{Connections, Held};
use crate::error::{Error, Result};
use crate::paths::{Announced, own_addresses};
use crate::store::Store;
use crate::wire::Lines;

/// The most connections at once that have not shown whose they are, and the most of clients.
const CONNECTIONS_MAX: u64 = 64;

/// What differs between the doors of agents.
#[derive(Debug)]
pub struct Rules {
    /// The name of the protocol in TLS (RFC 7301).
    pub alpn: &'static [u8],
    /// How long a connection may be silent.
    pub silence: Duration,
    /// The addresses by which other hosts can reach this one; if empty, all that it has.
    pub addresses: Vec<IpAddr>,
    /// Announces addresses to Multipath TCP, if it can.
    pub announced: Option<Announced>,
}

/// The door of an agent.
#[derive(Debug)]
pub struct Door {
    store: Store,
    alpn: &'static [u8],
    silence: Duration,
    addresses: Vec<IpAddr>,
    announced: Mutex<Option<Announced>>,
    strangers: Connections<IpAddr>,
    clients: Connections<String>,
    clock: Clock,
    is_over: Arc<AtomicBool>,
}

/// A client that was let in.
#[derive(Debug)]
pub struct Guest {
    /// Its name in the list of clients.
    pub client: String,
    /// What it says.
    pub lines: Lines<ServerStream>,
    /// The place of its connection.
    pub held: Held<String>,
}

impl Door {
    /// Makes a door for the clients of a store. It is closed when `is_over` is set.
    #[must_use]
    pub fn new(store: Store, rules: Rules, is_over: Arc<AtomicBool>, clock: Clock) -> Self {
        let Rules { alpn, silence, addresses, announced } = rules;
        let announced = Mutex::new(announced);
        let strangers = Connections::new(CONNECTIONS_MAX, clock);
        let clients = Connections::new(CONNECTIONS_MAX, clock);
        Self { store, alpn, silence, addresses, announced, strangers, clients, clock, is_over }
    }

    /// Whether the door is closed.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// Closes the door.
    pub fn close(&self) {
        self.is_over.store(true, Ordering::SeqCst);
    }

    /// Returns the addresses of this host, and has Multipath TCP announce those that are new, because links
    /// may come up after the agent. Also returns whether they were announced: without that, clients come over
    /// one path.
    pub fn own_addresses(&self) -> (Vec<IpAddr>, netlink::Result<()>) {
        let addresses = if self.addresses.is_empty() { own_addresses() } else { self.addresses.clone() };
        let mut announced = self.announced.lock().unwrap_or_else(PoisonError::into_inner);
        let done = announced.as_mut().map_or(Ok(()), |announced| announced.add(&addresses));
        (addresses, done)
    }

    /// Ends connections that take too long to show whose they are. Call it several times a second.
    pub fn end_late(&self) {
        self.strangers.end_late();
    }

    /// Accepts connections until the door is closed. `serve` is called for each on a thread of its own, with
    /// the peer's address and the connection's place among strangers.
    pub fn accept(
        &self,
        listener: &TcpListener,
        serve: impl Fn(TcpStream, SocketAddr, Held<IpAddr>) + Clone + Send + 'static,
    ) {
        while !self.is_over() {
            let mut polled = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
            let _ = poll(&mut polled, PollTimeout::from(100_u8));
            let (stream, peer) = match listener.accept() {
                Ok(accepted) => accepted,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => continue,
                Err(_) => {
                    // There are no descriptors left, for instance, and the connection is still there.
                    thread::sleep(Duration::from_millis(100));
                    continue;
                }
            };
            let until = self.clock.now() + Span::from_millis(HANDSHAKE_TIMEOUT.as_millis() as u64);
            let Some(held) = self.strangers.take(host_of(peer.ip()), &stream, Some(until)) else { continue };
            let serve = serve.clone();
            let serve = move || serve(stream, peer, held);
            let _ = thread::Builder::new().name("client".to_owned()).spawn(serve);
        }
    }

    /// Lets a stranger in who shows a key of the list. The list is read for each connection, so a client that
    /// was removed is not let in any more.
    ///
    /// # Errors
    /// `Refused` for another key, or if the client has all connections that it may have; `Unreachable` if the
    /// connection ends.
    pub fn let_in(&self, stream: TcpStream, stranger: Held<IpAddr>) -> Result<Guest> {
        let failed = |e: io::Error| Error::Failed(e.to_string());
        stream.set_nonblocking(false).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        stream.set_read_timeout(Some(HANDSHAKE_TIMEOUT)).map_err(failed)?;
        stream.set_write_timeout(Some(HANDSHAKE_TIMEOUT)).map_err(failed)?;
        let tls = ServerTls::new(&self.store.key()?, self.store.clients()?, self.alpn);
        let (stream, client) = tls.accept_blocking(stream)?;
        let full = || Error::Refused(format!("{client} has all connections that a client may have"));
        let held = self.clients.take(client.clone(), &stream.sock, None).ok_or_else(full)?;
        drop(stranger);
        stream.sock.set_read_timeout(Some(self.silence)).map_err(failed)?;
        Ok(Guest { client, lines: Lines::new(stream), held })
    }
}

/// Listens for connections of Multipath TCP, or of TCP where the kernel has none. Accepting never waits.
///
/// # Errors
/// `Failed` if the address is taken or is none of this host.
pub fn listen(at: SocketAddr) -> Result<TcpListener> {
    let failed = |e: io::Error| Error::Failed(format!("cannot listen at {at}: {e}"));
    let domain = Domain::for_address(at);
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::MPTCP))
        .or_else(|_| Socket::new(domain, Type::STREAM, Some(Protocol::TCP)))
        .map_err(failed)?;
    socket.set_reuse_address(true).map_err(failed)?;
    socket.bind(&at.into()).and_then(|()| socket.listen(64)).map_err(failed)?;
    socket.set_nonblocking(true).map_err(failed)?;
    Ok(socket.into())
}
