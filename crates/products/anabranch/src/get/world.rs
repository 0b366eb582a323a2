//! What a transfer needs of the world: the time, a wait, HTTP, UDP, names, and the host's links.
//!
//! [`Sockets`](super::sockets::Sockets) is the real one. All that happens inside a transfer is decided by
//! [stages](super::event_loop::Stage), which see the world through this trait alone: so they run in virtual
//! time as well.

use std::io;
use std::net::{IpAddr, SocketAddr};

use anabranch_algo::Time;
use anabranch_http::client::{Event, FetchId, FetchRequest, RouteId};
use anabranch_net::{Egress, Waker};

use crate::Result;

/// Names a UDP socket of a [`World`]; free for another when it is closed.
pub(super) type SocketId = usize;

/// A UDP socket that has just been opened.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenSocket {
    pub(super) id: SocketId,
    /// The UDP port that it has here.
    pub(super) port: u16,
    /// The largest payload that its interface takes, bytes.
    pub(super) payload_max: usize,
    /// What its receive buffer holds, bytes.
    pub(super) receive_buffer: usize,
}

/// What came over a UDP socket.
pub(super) enum Arrival<'a> {
    /// Datagrams one after the other, `stride` bytes each, of which only the last may have fewer.
    Datagrams { bytes: &'a [u8], stride: usize, marked: bool },
    /// The other end seems out of reach.
    Unreachable,
    /// The socket cannot be read.
    Failed(io::Error),
}

/// See the [module](self).
pub(super) trait World {
    /// The time, of one clock for the whole run.
    fn now(&self) -> Time;

    /// Waits until something came, the caller stops, a link changed, a [waker](Self::waker) was used, or it
    /// is `until`. `http`: whether what HTTP servers send ends it too.
    fn wait(&mut self, until: Time, http: bool) -> io::Result<()>;

    /// Bits that nobody can guess.
    ///
    /// # Errors
    /// [`ErrorKind::System`](crate::ErrorKind::System) if the system has none.
    fn secret(&mut self) -> Result<[u8; 32]>;

    /// Ends a wait from another thread.
    fn waker(&self) -> Waker;

    /// Makes HTTP possible; what is possible already stays as it is.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) if an option cannot be followed.
    fn open_http(&mut self) -> Result<()>;

    /// Whether `url` is asked for through a proxy.
    fn is_proxied(&self, url: &str) -> bool;

    /// Asks; the answer comes as events of `id`, which no other fetch under way has.
    fn fetch(&mut self, id: FetchId, request: FetchRequest);

    /// Forgets a fetch: no event of it comes any more.
    fn cancel(&mut self, id: FetchId);

    /// Bounds what servers may have in flight towards a route; `u64::MAX` ends the bound.
    fn window(&mut self, route: RouteId, bytes: u64);

    /// Takes all HTTP events that wait.
    fn take_http(&mut self, into: &mut Vec<Event>);

    /// Forgets every fetch and lifts every bound; connections stay open for whoever asks next.
    fn reset_http(&mut self);

    /// Opens a UDP socket.
    fn open_udp(&mut self, via: &Egress, peer: SocketAddr) -> io::Result<OpenSocket>;

    /// Closes a UDP socket.
    fn close_udp(&mut self, socket: SocketId);

    /// Sends one datagram; `false` if the other end seems out of reach. One that finds no room is lost like
    /// any other.
    fn send(&mut self, socket: SocketId, bytes: &[u8]) -> bool;

    /// Hands over what came: over the sockets that the last wait found readable, or over `all`.
    fn receive(&mut self, all: bool, each: &mut dyn FnMut(SocketId, Arrival<'_>));

    /// Whether the local address of a UDP socket still exists, on an interface that is up.
    fn is_bound(&self, socket: SocketId, via: &Egress) -> bool;

    /// The addresses of a name: `None` until they are known, which ends a [wait](Self::wait). Each name is
    /// asked for once; one that could not be looked up, again after
    /// [`forget_failures`](Self::forget_failures).
    fn resolve(&mut self, host: &str) -> Option<io::Result<Vec<SocketAddr>>>;

    /// Lets names that could not be looked up be asked for again.
    fn forget_failures(&mut self);

    /// The local ends to use towards `peer`: those that were `named`, else all that lead there.
    fn local_ends(&self, named: &[Egress], peer: IpAddr) -> io::Result<Vec<Egress>>;

    /// The local ends that lead to `peer`, but for the one by which the kernel sends by itself.
    fn other_ends(&self, peer: IpAddr) -> Vec<Egress>;

    /// The uplink of a local end: two of the same number leave this host by one line. `None` where that is
    /// not known.
    fn uplink(&self, via: &Egress) -> Option<u32>;

    /// Whether a local end exists, on an interface that is up.
    fn is_up(&self, via: &Egress) -> bool;

    /// Whether interfaces, addresses or routes may have changed since the last call.
    fn links_changed(&mut self) -> bool;
}
