//! The interface of a transfer to the world: the time, a wait, HTTP, UDP, names, and the host's links.
//!
//! [`Sockets`](super::sockets::Sockets) is the real world. [Stages](super::event_loop::Stage) decide
//! everything inside a transfer, and they see the world only through this trait. So they run in virtual time
//! as well.

use std::io;
use std::net::{IpAddr, SocketAddr};

use anabranch_algo::Time;
use anabranch_http::client::{Event, FetchId, FetchRequest, RouteId};
use anabranch_net::{Egress, Waker};

use crate::Result;

/// The number of a UDP socket of a [`World`]. When the socket is closed, another may get the number.
pub(super) type SocketId = usize;

/// A UDP socket that has just been opened.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenSocket {
    pub(super) id: SocketId,
    /// The local UDP port of the socket.
    pub(super) port: u16,
    /// The largest payload that its interface takes, bytes.
    pub(super) payload_max: usize,
    /// The size of the receive buffer, bytes.
    pub(super) receive_buffer: usize,
}

/// An arrival over a UDP socket.
pub(super) enum Arrival<'a> {
    /// Datagrams one after the other, `stride` bytes each; only the last may be shorter. They are `marked` if
    /// the network reported congestion (ECN).
    Datagrams { bytes: &'a [u8], stride: usize, marked: bool },
    /// The peer seems to be out of reach.
    Unreachable,
    /// The socket cannot be read.
    Failed(io::Error),
}

/// Says why a local end carries nothing, although it exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    /// Better ones carry the data.
    Waits,
    /// It may carry no more in this period.
    Spent,
}

/// The local ends that are held back.
pub(super) type Held = Vec<(Egress, Hold)>;

/// Returns why a local end is held back; `None` if it is not.
pub(super) fn hold_of(held: &Held, via: &Egress) -> Option<Hold> {
    held.iter().find(|(end, _)| end == via).map(|(_, hold)| *hold)
}

/// The world of a transfer; see the [module](self).
pub(super) trait World {
    /// Returns the time, of one clock for the whole run.
    fn now(&self) -> Time;

    /// Waits until something arrives, the caller stops, a link changes, a [waker](Self::waker) is used, or
    /// the time `until` is reached. `http` says whether events of HTTP end the wait too.
    fn wait(&mut self, until: Time, http: bool) -> io::Result<()>;

    /// Returns unpredictable random bytes.
    ///
    /// # Errors
    /// [`ErrorKind::System`](crate::ErrorKind::System) if the system has none.
    fn secret(&mut self) -> Result<[u8; 32]>;

    /// Returns a waker, by which another thread ends a wait.
    fn waker(&self) -> Waker;

    /// Starts the HTTP client, unless it runs already.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`](crate::ErrorKind::Usage) if an option cannot be followed.
    fn open_http(&mut self) -> Result<()>;

    /// Returns whether `url` is requested through a proxy.
    fn is_proxied(&self, url: &str) -> bool;

    /// Sends an HTTP request. The answer arrives as events of `id`, which no other fetch under way may have.
    fn fetch(&mut self, id: FetchId, request: FetchRequest);

    /// Cancels a fetch: no further event of it arrives.
    fn cancel(&mut self, id: FetchId);

    /// Bounds the bytes that servers may have in flight towards a route; `u64::MAX` ends the bound.
    fn window(&mut self, route: RouteId, bytes: u64);

    /// Takes all HTTP events that wait.
    fn take_http(&mut self, into: &mut Vec<Event>);

    /// Cancels every fetch and lifts every bound. Connections stay open for later requests.
    fn reset_http(&mut self);

    /// Opens a UDP socket from the local end `via` to `peer`.
    fn open_udp(&mut self, via: &Egress, peer: SocketAddr) -> io::Result<OpenSocket>;

    /// Closes a UDP socket.
    fn close_udp(&mut self, socket: SocketId);

    /// Sends one datagram. Returns `false` if the peer seems to be out of reach. A datagram that does not fit
    /// the socket's buffer is lost like any other, and `true` is returned.
    fn send(&mut self, socket: SocketId, bytes: &[u8]) -> bool;

    /// Hands over the arrivals of the sockets that the last wait found readable, or of `all` sockets.
    fn receive(&mut self, all: bool, each: &mut dyn FnMut(SocketId, Arrival<'_>));

    /// Returns whether the local address of a UDP socket still exists, on an interface that is up.
    fn is_bound(&self, socket: SocketId, via: &Egress) -> bool;

    /// Returns the addresses of a name, or `None` until they are known, which ends a [wait](Self::wait). Each
    /// name is looked up once; after [`forget_failures`](Self::forget_failures), a name whose look-up failed
    /// is looked up again.
    fn resolve(&mut self, host: &str) -> Option<io::Result<Vec<SocketAddr>>>;

    /// Lets names whose look-up failed be looked up again.
    fn forget_failures(&mut self);

    /// Returns the local ends to use towards `peer`: those in `named`, or all that lead there if it is empty.
    fn local_ends(&self, named: &[Egress], peer: IpAddr) -> io::Result<Vec<Egress>>;

    /// Returns the local ends that lead to `peer`, except the one that the kernel chooses by itself.
    fn other_ends(&self, peer: IpAddr) -> Vec<Egress>;

    /// Returns the uplink of a local end, or `None` if it is not known. Local ends with the same number leave
    /// this host by one line.
    fn uplink(&self, via: &Egress) -> Option<u32>;

    /// Returns whether a local end exists, on an interface that is up.
    fn exists(&self, via: &Egress) -> bool;

    /// Returns whether a local end exists, on an interface that is up, and is not held back.
    fn is_up(&self, via: &Egress) -> bool {
        self.held(via).is_none() && self.exists(via)
    }

    /// Holds these local ends back, and no others.
    fn hold(&mut self, held: Held);

    /// Returns why a local end is held back; `None` if it is not.
    fn held(&self, via: &Egress) -> Option<Hold>;

    /// Returns whether interfaces, addresses or routes may have changed since the last call.
    fn links_changed(&mut self) -> bool;
}
