//! Implements the real world: a clock, a poller, an HTTP client, UDP sockets, and the system's names and
//! links.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd as _;
use std::task::{Context, Poll};

use anabranch_algo::{Span, Time};
use anabranch_http::client::{Client, Event, FetchId, FetchRequest, Options, RouteId};
use anabranch_net::{
    Clock, Datagrams, Egress, Interest, Interface, NetworkMonitor, Poller, RecvBuffers, RecvOutcome,
    SendOutcome, Udp, WakeReceiver, Waker,
};
use anabranch_overlay::frame;

use super::world::{Arrival, Held, Hold, OpenSocket, SocketId, World, hold_of};
use crate::event::Observer;
use crate::secret::secret;
use crate::{Error, Result, Stop};

/// The number of buffer sets that are read from one socket in one turn, so that it does not starve the
/// others.
const READS_A_TURN: usize = 4;
/// The time between two looks at the links, if the system does not report changes.
const RELOOK_EVERY: Span = Span::from_secs(1);

/// Implements [`World`] by real sockets and the system's clock.
pub(super) struct Sockets {
    clock: Clock,
    poller: Poller,
    stop: Stop,
    wake: WakeReceiver,
    /// Wakes the loop when a name has been looked up.
    resolved: std::task::Waker,
    /// The options with which the HTTP client is made.
    options: Options,
    /// The HTTP client; `None` until the first fetch.
    client: Option<Client>,
    /// The fetches that have not ended, by the client's numbers.
    fetches: BTreeSet<FetchId>,
    /// The difference between the client's number of a fetch and the fetch's own number. It rises with each
    /// stage, so that late events of one stage do not count for the next.
    first_fetch: FetchId,
    /// A number larger than the number of any fetch so far.
    next_fetch: FetchId,
    /// The routes whose receive window is bounded.
    windows: BTreeSet<RouteId>,
    /// The UDP sockets by their numbers; `None` is a free number.
    udp: Vec<Option<Udp>>,
    /// The sockets that the last wait found readable.
    readable: Vec<SocketId>,
    buffers: Option<RecvBuffers>,
    links: LinkWatch,
}

/// What is known of the host's links.
struct LinkWatch {
    monitor: Option<NetworkMonitor>,
    /// Whether a wait found that the monitor has changes to report.
    has_news: bool,
    /// The time of the next look at the links, if there is no monitor.
    relook_at: Time,
    held: Held,
}

impl Sockets {
    /// Opens the world, with no client and no sockets yet.
    ///
    /// # Errors
    /// [`ErrorKind::System`](crate::ErrorKind::System) if the system has no descriptors left.
    pub(super) fn new(options: &Options, observer: &mut Observer<'_>) -> Result<Self> {
        let wake = WakeReceiver::new()
            .map_err(|e| Error::system(format!("no descriptors are left: {e}")).because(e))?;
        let clock = Clock::start();
        let monitor = NetworkMonitor::new()
            .map_err(|e| observer.notice(&format!("cannot watch the interfaces: {e}")))
            .ok();
        Ok(Self {
            clock,
            poller: Poller::new(clock),
            stop: observer.stop().clone(),
            resolved: wake.waker().task_waker(),
            wake,
            options: Options { clock, limits: options.limits.clone().on(clock), ..options.clone() },
            client: None,
            fetches: BTreeSet::new(),
            first_fetch: 0,
            next_fetch: 0,
            windows: BTreeSet::new(),
            udp: Vec::new(),
            readable: Vec::new(),
            buffers: None,
            links: LinkWatch { monitor, has_news: false, relook_at: Time::ZERO, held: Held::new() },
        })
    }

    /// Reads one socket and hands each arrival to `each`.
    fn read(udp: &Udp, buffers: &mut RecvBuffers, mut each: impl FnMut(Arrival<'_>)) {
        for _ in 0..READS_A_TURN {
            let outcome = udp.recv(buffers, |received| {
                let marked = received.ecn == Some(anabranch_net::Ecn::Ce);
                each(Arrival::Datagrams { bytes: received.bytes, stride: received.stride, marked });
            });
            match outcome {
                Ok(RecvOutcome::Received { more: true }) => {}
                Ok(RecvOutcome::IcmpError(_)) => each(Arrival::Unreachable),
                Ok(RecvOutcome::Received { .. } | RecvOutcome::WouldBlock | RecvOutcome::TooBig { .. }) => {
                    return;
                }
                Err(e) => return each(Arrival::Failed(e)),
            }
        }
    }
}

impl World for Sockets {
    fn now(&self) -> Time {
        self.clock.now()
    }

    fn wait(&mut self, until: Time, http: bool) -> io::Result<()> {
        self.readable.clear();
        let fixed = [self.stop.wake().as_fd(), self.wake.as_fd()];
        let monitor = self.links.monitor.as_ref();
        let until = until.min(monitor.map_or(Time::NEVER, NetworkMonitor::deadline));
        let links = monitor.and_then(NetworkMonitor::fd);
        let client = self.client.as_ref().filter(|_| http).map(Client::fd);
        let first = fixed.len() + usize::from(links.is_some()) + usize::from(client.is_some());
        let udp = self.udp.iter().flatten().map(|udp| udp.as_fd());
        let (wakes, is_told) = (fixed.len() - 1, links.is_some());
        let set = fixed.into_iter().chain(links).chain(client).chain(udp);
        self.poller.wait(set.map(|fd| (fd, Interest::Read)), until)?;
        let open = self.udp.iter().enumerate().filter(|(_, udp)| udp.is_some());
        let ready = open.zip(first..).filter(|(_, index)| self.poller.ready(*index).read);
        self.readable.extend(ready.map(|((id, _), _)| id));
        if self.poller.ready(wakes).read {
            self.wake.drain();
        }
        self.links.has_news |= !is_told || self.poller.ready(wakes + 1).read;
        Ok(())
    }

    fn secret(&mut self) -> Result<[u8; 32]> {
        secret()
    }

    fn waker(&self) -> Waker {
        self.wake.waker()
    }

    fn open_http(&mut self) -> Result<()> {
        if self.client.is_none() {
            let client =
                Client::start(self.options.clone()).map_err(|e| Error::usage(e.to_string()).because(e))?;
            self.client = Some(client);
        }
        Ok(())
    }

    fn is_proxied(&self, url: &str) -> bool {
        self.client.as_ref().is_some_and(|client| client.is_proxied(url))
    }

    fn fetch(&mut self, id: FetchId, request: FetchRequest) {
        if let Some(client) = &self.client {
            let id = self.first_fetch + id;
            self.next_fetch = self.next_fetch.max(id + 1);
            self.fetches.insert(id);
            client.fetch(id, request);
        }
    }

    fn cancel(&mut self, id: FetchId) {
        if let Some(client) = &self.client {
            let id = self.first_fetch + id;
            self.fetches.remove(&id);
            client.cancel(id);
        }
    }

    fn window(&mut self, route: RouteId, bytes: u64) {
        if let Some(client) = &self.client {
            self.windows.insert(route);
            client.window(route, bytes);
        }
    }

    fn take_http(&mut self, into: &mut Vec<Event>) {
        let Self { client, fetches, first_fetch, .. } = self;
        let Some(client) = client else { return };
        client.events(|mut event| {
            if let Event::Done { id } | Event::Failed { id, .. } = &event {
                fetches.remove(id);
            }
            if let Some(id) = event.fetch_mut() {
                *id -= *first_fetch;
            }
            into.push(event);
        });
    }

    fn reset_http(&mut self) {
        let Some(client) = &mut self.client else { return };
        std::mem::take(&mut self.fetches).into_iter().for_each(|id| client.cancel(id));
        std::mem::take(&mut self.windows).into_iter().for_each(|route| client.window(route, u64::MAX));
        // The remaining events are of no current fetch.
        client.events(drop);
        self.first_fetch = self.next_fetch;
    }

    fn open_udp(&mut self, via: &Egress, peer: SocketAddr) -> io::Result<OpenSocket> {
        let udp = Udp::connect(via, peer)?;
        let (payload_max, receive_buffer) = (payload_max(&udp), udp.receive_buffer());
        let port = udp.local_addr().port();
        let id = self.udp.iter().position(Option::is_none).unwrap_or(self.udp.len());
        if id == self.udp.len() {
            self.udp.push(None);
        }
        self.udp[id] = Some(udp);
        Ok(OpenSocket { id, port, payload_max, receive_buffer })
    }

    fn close_udp(&mut self, socket: SocketId) {
        if let Some(udp) = self.udp.get_mut(socket) {
            *udp = None;
        }
    }

    fn send(&mut self, socket: SocketId, bytes: &[u8]) -> bool {
        let Some(Some(udp)) = self.udp.get(socket) else { return true };
        // Only datagrams that go through a publish/subscribe network have a mark.
        let dscp = frame::mark(bytes).number();
        match udp.send(&Datagrams { to: None, from_ip: None, bytes, segment: None, ecn: false, dscp }) {
            // A request that does not fit the socket's buffer is lost like any other packet.
            SendOutcome::Sent | SendOutcome::WouldBlock | SendOutcome::TooBig => true,
            SendOutcome::IcmpError(_) | SendOutcome::Other(_) => false,
        }
    }

    fn receive(&mut self, all: bool, each: &mut dyn FnMut(SocketId, Arrival<'_>)) {
        let Self { udp, readable, buffers, .. } = self;
        for (id, udp) in udp.iter().enumerate() {
            let Some(udp) = udp.as_ref().filter(|_| all || readable.contains(&id)) else { continue };
            Self::read(udp, buffers.get_or_insert_default(), |arrival| each(id, arrival));
        }
        readable.clear();
    }

    fn is_bound(&self, socket: SocketId, via: &Egress) -> bool {
        let interfaces = anabranch_net::interfaces().unwrap_or_default();
        let local = self.udp.get(socket).and_then(Option::as_ref).map(|udp| udp.local_addr().ip());
        local.is_some_and(|ip| is_there(&interfaces, Some(ip), via))
    }

    fn resolve(&mut self, host: &str) -> Option<io::Result<Vec<SocketAddr>>> {
        match self.options.resolver.poll(host, &mut Context::from_waker(&self.resolved)) {
            Poll::Ready(found) => Some(found),
            Poll::Pending => None,
        }
    }

    fn forget_failures(&mut self) {
        self.options.resolver.forget_failures();
    }

    fn local_ends(&self, named: &[Egress], peer: IpAddr) -> io::Result<Vec<Egress>> {
        if named.is_empty() {
            return anabranch_net::usable_egresses(peer);
        }
        let is_same = |ip: IpAddr| ip.is_ipv4() == peer.to_canonical().is_ipv4();
        Ok(named.iter().filter(|via| via.address().is_none_or(is_same)).cloned().collect())
    }

    fn other_ends(&self, peer: IpAddr) -> Vec<Egress> {
        anabranch_net::other_egresses(peer).unwrap_or_default()
    }

    fn uplink(&self, via: &Egress) -> Option<u32> {
        anabranch_net::uplink_of(via)
    }

    fn exists(&self, via: &Egress) -> bool {
        *via == Egress::any()
            || anabranch_net::interfaces()
                .map_or(true, |interfaces| is_there(&interfaces, via.address(), via))
    }

    fn hold(&mut self, held: Held) {
        self.links.held = held;
    }

    fn held(&self, via: &Egress) -> Option<Hold> {
        hold_of(&self.links.held, via)
    }

    fn links_changed(&mut self) -> bool {
        self.links.have_changed(self.clock.now())
    }
}

impl LinkWatch {
    /// Returns whether interfaces, addresses or routes may have changed since the last call.
    fn have_changed(&mut self, now: Time) -> bool {
        match &mut self.monitor {
            Some(monitor) => std::mem::take(&mut self.has_news) && monitor.changed(now),
            None if now < self.relook_at => false,
            None => {
                self.relook_at = now + RELOOK_EVERY;
                true
            }
        }
    }
}

/// Returns whether the local end `via` still exists. If an address was named, an interface that is up has
/// `ip`; it is the named interface if one was named too. If only an interface was named, that one is up, and
/// any interface that is up may have `ip` (see [`anabranch_net::usable_egresses`]).
fn is_there(interfaces: &[Interface], ip: Option<IpAddr>, via: &Egress) -> bool {
    let is_named = |i: &&Interface| via.device().is_none_or(|name| name == i.name);
    // All of 127/8 is local without being listed.
    let has =
        |i: &Interface| ip.is_none_or(|ip| i.addresses.contains(&ip) || (i.loopback && ip.is_loopback()));
    let mut up = interfaces.iter().filter(|i| i.up);
    match via.address() {
        Some(_) => up.filter(is_named).any(has),
        None => up.clone().any(|i| is_named(&i)) && up.any(has),
    }
}

/// Returns the largest UDP payload that the socket's interface takes.
fn payload_max(udp: &Udp) -> usize {
    let ip = udp.local_addr().ip();
    let interfaces = anabranch_net::interfaces().unwrap_or_default();
    let here = interfaces.iter().find(|i| i.addresses.contains(&ip) || (i.loopback && ip.is_loopback()));
    let mtu = here.and_then(|i| i.mtu).map_or(1_500, |mtu| mtu as usize);
    // The IP header and the UDP header are subtracted.
    mtu.saturating_sub(if ip.is_ipv4() { 28 } else { 48 })
}
