//! The server: connects streams of clients to origins.
//!
//! ```no_run
//! use anabranch_proxy::keys::KeyPair;
//! use anabranch_proxy::server::{Admission, Options, start};
//!
//! # fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let (pair, _) = KeyPair::load_or_create("server.key".as_ref())?;
//! let options = Options::new(Admission::Keys { pair, clients: "clients.toml".into() });
//! let mut server = start(options)?;
//! while let Some(event) = server.wait_event() {
//!     println!("{event:?}");
//! }
//! # Ok(())
//! # }
//! ```

mod association;
mod draining;
mod flow;
mod gate;
mod legs;
mod origin;
mod refusals;
mod scale;
mod several;
mod udp_door;

use std::any::Any;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use anabranch_algo::Span;
use anabranch_algo::fair_share::Yields;
use anabranch_net::places::host_of;
use anabranch_net::{Clock, HeldPlace, Places, Resolver};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;
use tokio::time::{interval, sleep, timeout};

use crate::PORT;
use crate::descriptors::{Descriptors, Shortage};
use crate::egress::{self, Connector};
use crate::error::Error;
use crate::event::{Door, Event, Reports, Stop};
use crate::flows::{Flows, Timeouts, user};
use crate::keys::ClientsError;
use crate::leg::SECRET_BYTES;
use crate::memory;
use crate::policy::Policy;
use crate::quota::{Quotas, UserLimits};
use crate::role::{Live, Running, runtime};
use crate::socket::{ACCEPT_PAUSE, Connection, Listener, SocketOptions, why_single_path};
use crate::status::{Parts, Role};
use crate::tls::{HANDSHAKE_TIMEOUT, leg_secret};
use crate::traffic::{Counted, Naming, Traffic};
use crate::trunk::{Association, Destination, GoAwayReason, Settings, Side, Transport};
use crate::trunk_socket::TrunkSocket;
use crate::trunk_task::{TrunkHandle, start_in_share};
use draining::{Clients, send_away};
pub use gate::Admission;
use gate::{Gate, Pass};
use legs::Legs;
use origin::Origins;
use refusals::Refusals;
pub use scale::Scale;
use several::Several;
use udp_door::UdpDoor;

/// The time for which the addresses of a name are used, and the most names whose addresses are kept.
const NAME_AGE: Span = Span::from_secs(60);
const NAMES_MAX: usize = 10_000;
/// The most trunks of one client, which is enough for four of its processes.
const TRUNKS_OF_CLIENT_MAX: usize = 64;
/// The most connections over UDP that have not been authenticated yet. Each can make this process hold the
/// bytes of its receive window.
const UDP_HANDSHAKES_MAX: u64 = 64;
/// The time that a client with too many trunks has to end the newest one.
const LEAVING: Duration = Duration::from_secs(10);
/// The time between two checks whether the list of clients has changed.
const LIST_EVERY: Duration = Duration::from_secs(1);
/// The time between two checks whether the load has to be announced.
const ANNOUNCE_EVERY: Duration = Duration::from_secs(1);
/// The time that trunks have at the end of the server to send their last frames.
const CLOSING: Duration = Duration::from_millis(500);

/// The settings of a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// The address at which the server listens for clients; see [`Listener`].
    pub listen: SocketAddr,
    /// The clients that may use the server.
    pub admission: Admission,
    /// The destinations that are allowed.
    pub policy: Policy,
    /// How connections to origins are made.
    pub egress: egress::Options,
    /// How trunks' sockets are made.
    pub socket: SocketOptions,
    /// Looks up the addresses of origins.
    pub resolver: Resolver,
    /// The time-outs of clients' handshakes and of connections.
    pub timeouts: Timeouts,
    /// The limits of each client.
    pub client_limits: UserLimits,
    /// The number of descriptors that the server may use.
    pub descriptors: u64,
    /// The most bytes that may wait in all trunks together; see [`Options::new`].
    pub trunk_memory_bytes: u64,
    /// The number of connections that the server wants at most, which it announces. It refuses none because
    /// of it. With `None`, as many as it has descriptors for.
    pub capacity: Option<u32>,
    /// The other servers that are named to clients.
    pub others: Vec<Destination>,
    /// The program that is run when the load passes a threshold.
    pub scale: Option<Scale>,
}

impl Options {
    /// Creates the options of a server for these clients. It listens at all addresses of the host and
    /// connects to public addresses. It may use all descriptors of its process, and an eighth of the host's
    /// memory, but at least 64 MiB, for bytes that wait in trunks. Its clients share both.
    #[must_use]
    pub fn new(admission: Admission) -> Self {
        Self {
            listen: SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), PORT),
            admission,
            policy: Policy::default(),
            egress: egress::Options::default(),
            socket: SocketOptions::default(),
            resolver: Resolver::default().bounded(NAME_AGE, NAMES_MAX),
            timeouts: Timeouts { handshake: HANDSHAKE_TIMEOUT, ..Timeouts::default() },
            client_limits: UserLimits::default(),
            descriptors: Descriptors::of_process().all(),
            trunk_memory_bytes: memory::shared_bytes(),
            capacity: None,
            others: Vec::new(),
            scale: None,
        }
    }
}

/// Starts a server.
///
/// # Errors
/// If the server cannot listen at its address, or if the list of clients cannot be read.
pub fn start(options: Options) -> Result<Running, Error> {
    let runtime = runtime()?;
    let failed = |e| Error::Listen(options.listen, e);
    let networks = match &options.admission {
        Admission::Networks(networks) => Some(networks.clone()),
        Admission::Keys { .. } => None,
    };
    let gate = Gate::new(options.admission)?;
    let entered = runtime.enter();
    let (listener, udp) = bind(options.listen, &options.socket).map_err(failed)?;
    drop(entered);
    let address = listener.local_addr().map_err(failed)?;
    let addresses = vec![(Door::Trunks, address)];
    let connector = Live::new(Connector::new(options.resolver, options.policy, options.egress));
    let descriptors = Descriptors::of(options.descriptors);
    let (flows, quotas) = (
        Flows::new(options.timeouts),
        Quotas::new(options.client_limits, descriptors.shared()).with_kept(descriptors.kept_for_trunks()),
    );
    let memory = Places::new(options.trunk_memory_bytes);
    let reload = {
        let (connector, flows, quotas) = (connector.clone(), flows.clone(), quotas.clone());
        Arc::new(move |new: &dyn Any| {
            let Some(new) = new.downcast_ref::<Options>() else { return false };
            connector.set(connector.get().with(new.policy.clone(), new.egress.clone()));
            flows.set(new.timeouts);
            quotas.set(new.client_limits);
            true
        })
    };
    let (traffic, bound) = (Traffic::new(Naming::Client), Arc::new(OnceLock::<Weak<Legs>>::new()));
    let clients = Arc::new(Mutex::default());
    let capacity = u32::try_from(descriptors.shared()).unwrap_or(u32::MAX);
    let capacity = options.capacity.unwrap_or(capacity).max(1);
    let of = (Arc::clone(&clients), flows.clone());
    let several = Several::new(capacity, options.others, options.scale, of);
    let parts = parts(&several, &flows, &traffic, Arc::clone(&bound));
    Ok(Running::begin(runtime, addresses, reload, parts, |reports, stop| async move {
        let (own, to, quotas_of) = (connector.clone(), reports.clone(), quotas.clone());
        let udp = udp.and_then(|door| {
            let legs = Legs::new(Arc::clone(door.port()), networks, own, to, quotas_of)?;
            Ok((Arc::new(legs), door))
        });
        let udp = udp.inspect_err(|e| reports.put(Event::Notice(format!("no UDP for clients: {e}"))));
        let (legs, udp) = udp.ok().unzip();
        let origins =
            Origins { connector, reports: reports.clone(), flows, quotas, shortage: Shortage::default() };
        let handshakes = Places::new(descriptors.handshakes());
        let udp_handshakes = Places::new(descriptors.handshakes().min(UDP_HANDSHAKES_MAX));
        // The value is set once. A weak reference is enough: the status does not keep the legs once the role
        // has ended.
        legs.iter().for_each(|legs| drop(bound.set(Arc::downgrade(legs))));
        let (refusals, clock) = (Mutex::default(), Clock::start());
        let handshakes = (handshakes, udp_handshakes);
        let server = Server {
            gate,
            origins,
            legs,
            udp,
            traffic,
            reports,
            handshakes,
            refusals,
            memory,
            clients,
            several,
            clock,
        };
        Arc::new(server).run(listener, stop).await;
    }))
}

/// Returns the parts from which the server's status is made.
fn parts(several: &Several, flows: &Flows, traffic: &Traffic, bound: Arc<OnceLock<Weak<Legs>>>) -> Parts {
    let (draining, control) = (several.draining.clone(), several.draining.clone());
    Parts {
        role: Role::Server,
        server: None,
        servers: Box::new(Vec::new),
        load: Box::new(several.loads()),
        drain: Box::new(move || draining.status()),
        control: Box::new(move |command| control.command(command)),
        transport: Box::new(|| None),
        flows: flows.clone(),
        traffic: traffic.clone(),
        links: Box::new(Vec::new),
        datagram_flows: Box::new(move || bound.get().and_then(Weak::upgrade).map_or(0, |legs| legs.flows())),
    }
}

/// The ports that are tried where any will do.
const PORTS_TRIED: usize = 8;

/// Binds the TCP port, and the UDP port with the same number. If the system chooses the number (port 0),
/// numbers whose UDP port another program has are passed over. A server without the UDP port serves trunks
/// alone.
fn bind(listen: SocketAddr, options: &SocketOptions) -> io::Result<(Listener, io::Result<UdpDoor>)> {
    let mut tried = 1;
    loop {
        let listener = Listener::bind(listen, options)?;
        let udp = UdpDoor::bind(listener.local_addr()?, options.congestion.as_deref());
        if udp.is_ok() || listen.port() != 0 || tried == PORTS_TRIED {
            return Ok((listener, udp));
        }
        tried += 1;
    }
}

struct Server {
    gate: Gate,
    origins: Origins,
    /// The legs; `None` if the UDP port could not be bound.
    legs: Option<Arc<Legs>>,
    /// The UDP port, if it could be bound.
    udp: Option<UdpDoor>,
    traffic: Traffic,
    reports: Reports,
    /// The connections that have not been authenticated yet, of the kernel and over UDP.
    handshakes: (Places<IpAddr>, Places<IpAddr>),
    refusals: Mutex<Refusals>,
    /// The bytes that wait in trunks.
    memory: Places<String>,
    clients: Arc<Mutex<Clients>>,
    several: Several,
    clock: Clock,
}

impl Server {
    fn clients(&self) -> MutexGuard<'_, Clients> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refusals(&self) -> MutexGuard<'_, Refusals> {
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn run(self: Arc<Self>, listener: Listener, stop: Stop) {
        let mut trunks = JoinSet::new();
        let mut looks = interval(LIST_EVERY);
        let flows = self.origins.flows.clone();
        let mut sweep = pin!(flows.sweep());
        let traffic = self.traffic.clone();
        let mut counting = pin!(traffic.keep(Vec::new));
        let mut number = 0;
        let mut is_short = false;
        let mut announces = interval(ANNOUNCE_EVERY);
        let mut udp = JoinSet::new();
        let draining = self.several.draining.clone();
        udp.spawn(async move { draining.keep().await });
        if let Some(door) = self.udp.clone() {
            let (host, legs) = (door.clone(), self.legs.clone());
            udp.spawn(async move { host.run().await });
            udp.spawn(async move { door.receive(legs).await });
        }
        loop {
            let accepted = tokio::select! {
                () = stop.stopped() => break,
                _ = looks.tick() => {
                    self.end_removed(self.gate.refresh());
                    let told = self.refusals().told(self.clock.now());
                    told.into_iter().for_each(|told| self.reports.put(told));
                    continue;
                }
                _ = announces.tick() => {
                    self.several.announce(self.clock.now(), &self.clients(), &self.reports);
                    continue;
                }
                Some(_) = trunks.join_next() => continue,
                () = &mut sweep => continue,
                () = &mut counting => continue,
                accepted = listener.accept() => accepted.map(|(Connection { stream, transport }, peer)| {
                    (TrunkSocket::Kernel(stream), transport, peer)
                }),
                connection = UdpDoor::accept(self.udp.as_ref()) => {
                    let peer = connection.peer_addr();
                    Ok((TrunkSocket::Udp(connection), Transport::Udp, peer))
                }
            };
            match accepted {
                Ok((socket, transport, peer)) => {
                    is_short = false;
                    number += 1;
                    // The list is checked first, so that a client that was paired just now is known.
                    self.end_removed(self.gate.refresh_if_changed());
                    trunks.spawn(Arc::clone(&self).serve(socket, transport, peer, number));
                }
                Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(e) => {
                    if !std::mem::replace(&mut is_short, true) {
                        self.reports.put(Event::Notice(format!("clients have to wait: {e}")));
                    }
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        self.clients().values().for_each(TrunkHandle::close);
        self.legs.iter().for_each(|legs| legs.end());
        // Ending the tasks resets the connections to origins.
        trunks.shutdown().await;
        sleep(CLOSING).await;
        // The UDP port is free when the role has ended.
        udp.shutdown().await;
    }

    /// Ends the trunks of clients that were removed from the list, or reports why the list cannot be used.
    fn end_removed(&self, gone: Result<Vec<String>, ClientsError>) {
        match gone {
            Ok(gone) => {
                let clients = self.clients();
                let theirs = clients.iter().filter(|((name, _), _)| gone.contains(name));
                theirs.for_each(|(_, trunk)| trunk.close());
                self.legs.iter().for_each(|legs| legs.end_clients(&gone));
            }
            Err(e) => self.reports.put(Event::Notice(format!("{e}; the clients are those of before"))),
        }
    }

    /// Serves a client's connection until it ends.
    async fn serve(
        self: Arc<Self>,
        socket: TrunkSocket,
        transport: Transport,
        peer: SocketAddr,
        number: u64,
    ) {
        let handshakes = if transport == Transport::Udp { &self.handshakes.1 } else { &self.handshakes.0 };
        let Ok(place) = handshakes.take(host_of(peer.ip()), Yields::First) else {
            return self.refuse(peer, "too many connections do not say whose they are");
        };
        // One time-out holds for all steps together.
        let within = self.origins.flows.timeouts().handshake;
        let admitting = self.admit(socket, transport, (peer, number), &place);
        let admitted = tokio::select! {
            admitted = timeout(within, admitting) => match admitted {
                Ok(admitted) => admitted,
                Err(_) => Err(Refused::Anyone("it does not say in time whose it is".to_owned())),
            },
            () = place.given_up() => {
                Err(Refused::Anyone("too many connections do not say whose they are".to_owned()))
            }
        };
        drop(place);
        match admitted {
            Ok(admitted) => self.serve_trunk(admitted, peer).await,
            Err(Refused::Silent) => {}
            Err(Refused::Anyone(why)) => self.refuse(peer, &why),
            Err(Refused::TooMany(trunk, client)) => {
                // The frame is sent together with HELLO: if it came later, streams that the client opened
                // before it would be reset.
                trunk.go_away(GoAwayReason::TooManyTrunks);
                let _ = timeout(LEAVING, trunk.ended()).await;
                trunk.close();
                self.refuse_client(peer, client, GoAwayReason::TooManyTrunks.to_string());
            }
            Err(Refused::Drains(trunk, client)) => {
                let _ = timeout(LEAVING, trunk.ended()).await;
                trunk.close();
                self.refuse_client(peer, client, "the server drains".to_owned());
            }
            Err(Refused::Client(client, why)) => self.refuse_client(peer, client, why),
        }
    }

    /// Counts and reports a refused connection that was not authenticated.
    fn refuse(&self, peer: SocketAddr, why: &str) {
        self.reports.count_refused();
        self.refusals().note(self.clock.now(), peer, why).into_iter().for_each(|told| self.reports.put(told));
    }

    fn refuse_client(&self, peer: SocketAddr, client: Option<String>, why: String) {
        self.reports.put(Event::TrunkDown { peer: Some(peer), client, why, lost_streams: 0 });
    }

    /// Authenticates a connection, and makes a trunk of it.
    async fn admit(
        self: &Arc<Self>,
        socket: TrunkSocket,
        transport: Transport,
        (peer, number): (SocketAddr, u64),
        place: &HeldPlace<IpAddr>,
    ) -> Result<Admitted, Refused> {
        // A client that probes a link closes the connection without sending a byte.
        if let TrunkSocket::Kernel(stream) = &socket
            && !matches!(stream.peek(&mut [0]).await, Ok(1..))
        {
            return Err(Refused::Silent);
        }
        place.heard();
        let counted = self.traffic.watch(&socket, transport);
        let within = self.origins.flows.timeouts().handshake;
        let (trunk, secret, client) = match self.gate.pass(peer.ip()) {
            Pass::Tls(tls) => {
                let accepted = tls.accept_within(within, socket).await;
                let (stream, name) = accepted.map_err(|e| Refused::Anyone(e.to_string()))?;
                let secret = leg_secret(stream.get_ref().1);
                (self.begin(stream, transport, name.clone()), secret, Some(name))
            }
            Pass::Plain => (self.begin(socket, transport, user(None, peer)), None, None),
            Pass::None => {
                let why = "it is in no network whose clients are believed";
                return Err(Refused::Anyone(why.to_owned()));
            }
        };
        place.heard();
        if let Some(to) = self.several.draining.turns_away(&user(client.as_deref(), peer)) {
            // The frame is sent together with HELLO, so that the client opens no stream.
            send_away(&trunk, to.as_ref());
            return Err(Refused::Drains(trunk, client));
        }
        let Some(listed) = self.list(user(client.as_deref(), peer), number, &trunk) else {
            return Err(Refused::TooMany(trunk, client));
        };
        match trunk.hello().await {
            Ok(theirs) => {
                let note = why_single_path(transport, theirs);
                Ok(Admitted { trunk, secret, client, counted, listed, note, transport })
            }
            Err(end) => Err(Refused::Client(client, end.to_string())),
        }
    }

    /// Starts a trunk on a connection. Its memory belongs to its client's share.
    fn begin<S>(&self, connection: S, transport: Transport, owner: String) -> TrunkHandle
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let settings = Settings { transport, ..Settings::default() };
        // Without a place, the trunk holds no memory. A place is refused only if no other client holds bytes.
        let memory = self.memory.take(owner, Yields::Next).ok();
        let (trunk, task) = start_in_share(connection, Side::Server, settings, memory);
        tokio::spawn(task);
        trunk
    }

    /// Adds a trunk to the list of its client. Returns `None` if the client has too many trunks, or if no
    /// descriptor is left for it.
    fn list(self: &Arc<Self>, owner: String, number: u64, trunk: &TrunkHandle) -> Option<Listed> {
        let key = (owner, number);
        let mut clients = self.clients();
        let has = clients.range((key.0.clone(), 0)..=(key.0.clone(), u64::MAX)).count();
        // This is checked first, so that a refused trunk takes no place from others.
        if has >= TRUNKS_OF_CLIENT_MAX {
            return None;
        }
        let descriptor = self.origins.quotas.trunk(&key.0).ok()?;
        clients.insert(key.clone(), trunk.clone());
        drop(clients);
        Some(Listed { server: Arc::clone(self), key, _descriptor: descriptor })
    }

    /// Serves a client's trunk until it ends.
    async fn serve_trunk(&self, admitted: Admitted, peer: SocketAddr) {
        let Admitted { trunk, secret, client, counted, listed, note, transport } = admitted;
        if !self.gate.knows(client.as_deref()) {
            // The client was removed from the list in the meantime.
            trunk.close();
        }
        counted.iter().for_each(|counted| counted.carries(&trunk, client.as_deref()));
        self.reports.put(Event::TrunkUp { peer, client: client.clone(), transport, note });
        self.several.greet(&trunk);
        let mut streams = JoinSet::new();
        loop {
            tokio::select! {
                accepted = trunk.accept() => match accepted {
                    Some(accepted) => {
                        let (origins, client) = (self.origins.clone(), client.clone());
                        streams.spawn(async move { origins.serve(accepted, peer, client).await });
                    }
                    None => break,
                },
                Some(_) = streams.join_next() => {}
                Ok(version) = trunk.leg_asked() => {
                    let begun = |legs: &Arc<Legs>| legs.begin(version, client.clone(), peer, secret);
                    let refused = Association { version, port: 0, number: 0 };
                    trunk.answer_leg(self.legs.as_ref().map_or(refused, begun));
                }
            }
        }
        drop((listed, counted));
        let (why, lost_streams) = (trunk.ended().await.to_string(), trunk.lost_streams());
        self.reports.put(Event::TrunkDown { peer: Some(peer), client, why, lost_streams });
        // Streams that were written to their end still deliver their bytes to origins.
        while streams.join_next().await.is_some() {}
    }
}

/// A client that was admitted, and its trunk.
struct Admitted {
    trunk: TrunkHandle,
    secret: Option<[u8; SECRET_BYTES]>,
    client: Option<String>,
    counted: Option<Counted>,
    listed: Listed,
    /// Why the trunk has only one path, if it has.
    note: Option<String>,
    transport: Transport,
}

/// The reason why a connection is not admitted.
enum Refused {
    /// The client closed the connection without sending a byte.
    Silent,
    /// The connection was not authenticated, for this reason.
    Anyone(String),
    /// This client has too many trunks.
    TooMany(TrunkHandle, Option<String>),
    /// The server drains.
    Drains(TrunkHandle, Option<String>),
    /// The connection of this client cannot become a trunk, for this reason.
    Client(Option<String>, String),
}

/// Keeps a trunk in the list of its client until this is dropped.
struct Listed {
    server: Arc<Server>,
    key: (String, u64),
    _descriptor: HeldPlace<String>,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.server.clients().remove(&self.key);
    }
}
