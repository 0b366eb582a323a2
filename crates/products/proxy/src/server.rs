//! The server: streams of clients to origins.
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
mod flow;
mod gate;
mod legs;
mod origin;

use std::any::Any;
use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use anabranch_algo::Span;
use anabranch_net::Resolver;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{interval, sleep, timeout};

use crate::PORT;
use crate::descriptors::Shortage;
use crate::egress::{self, Connector};
use crate::error::Error;
use crate::event::{Door, Event, Reports, Stop};
use crate::flows::{Flows, Timeouts};
use crate::keys::ClientsError;
use crate::policy::Policy;
use crate::quota::{Quotas, UserLimits};
use crate::role::{Live, Running, runtime};
use crate::socket::{ACCEPT_PAUSE, Connection, Listener, SocketOptions, why_single_path};
use crate::status::{Parts, Role};
use crate::tls::{HANDSHAKE_TIMEOUT, leg_secret};
use crate::traffic::{Naming, Traffic};
use crate::trunk::{Association, GoAwayReason, Settings, Side, Transport};
use crate::trunk_task::{TrunkHandle, start as start_trunk};
pub use gate::Admission;
use gate::{Gate, Pass};
use legs::Legs;
use origin::Origins;

/// How long the addresses of a name are believed, and of how many names.
const NAME_AGE: Span = Span::from_secs(60);
const NAMES_MAX: usize = 10_000;
/// Connections that have not shown yet whose they are.
const HANDSHAKES_MAX: usize = 1_024;
/// Trunks of one client: four of its processes.
const TRUNKS_OF_CLIENT_MAX: usize = 64;
/// One that has too many trunks may take so long to go.
const LEAVING: Duration = Duration::from_secs(10);
/// How often the list of clients is looked at.
const LIST_EVERY: Duration = Duration::from_secs(1);
/// What trunks have to say last may take so long.
const CLOSING: Duration = Duration::from_millis(500);

/// What a server is to do.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where it listens for clients; see [`Listener`].
    pub listen: SocketAddr,
    /// Who may use it.
    pub admission: Admission,
    /// Which destinations are allowed.
    pub policy: Policy,
    /// How connections to origins are made.
    pub egress: egress::Options,
    /// How trunks' sockets are made.
    pub socket: SocketOptions,
    /// What finds the addresses of origins.
    pub resolver: Resolver,
    /// How long clients may take to say who they are, and connections.
    pub timeouts: Timeouts,
    /// What each of the clients may have.
    pub client_limits: UserLimits,
}

impl Options {
    /// A server for these clients at all addresses of the host, which connects to public addresses.
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
        }
    }
}

/// Begins a server.
///
/// # Errors
/// It cannot listen, or the list of clients cannot be read.
pub fn start(options: Options) -> Result<Running, Error> {
    let runtime = runtime()?;
    let failed = |e| Error::Listen(options.listen, e);
    let networks = match &options.admission {
        Admission::Networks(networks) => Some(networks.clone()),
        Admission::Keys { .. } => None,
    };
    let gate = Gate::new(options.admission)?;
    let entered = runtime.enter();
    let listener = Listener::bind(options.listen, &options.socket).map_err(failed)?;
    drop(entered);
    let address = listener.local_addr().map_err(failed)?;
    let addresses = vec![(Door::Trunks, address)];
    let connector = Live::new(Connector::new(options.resolver, options.policy, options.egress));
    let (flows, quotas) = (Flows::new(options.timeouts), Quotas::new(options.client_limits));
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
    let parts = {
        let bound = Arc::clone(&bound);
        Parts {
            role: Role::Server,
            server: None,
            flows: flows.clone(),
            traffic: traffic.clone(),
            links: Box::new(Vec::new),
            datagram_flows: Box::new(move || {
                bound.get().and_then(Weak::upgrade).map_or(0, |legs| legs.flows())
            }),
        }
    };
    Ok(Running::begin(runtime, addresses, reload, parts, |reports, stop| async move {
        let legs = Legs::bind(address, networks, connector.clone(), reports.clone(), quotas.clone());
        let legs = legs.map(Arc::new).inspect_err(|e| {
            reports.put(Event::Notice(format!("no UDP for clients: {e}")));
        });
        let origins =
            Origins { connector, reports: reports.clone(), flows, quotas, shortage: Shortage::default() };
        let handshakes = Semaphore::new(HANDSHAKES_MAX);
        let legs = legs.ok();
        // It is set once. Whoever looks does not keep them, for the role has ended when they have.
        legs.iter().for_each(|legs| drop(bound.set(Arc::downgrade(legs))));
        let server = Server { gate, origins, legs, traffic, reports, handshakes, clients: Mutex::default() };
        Arc::new(server).run(listener, stop).await;
    }))
}

/// The trunks of each client, by its name and a number.
type Clients = BTreeMap<(String, u64), TrunkHandle>;

struct Server {
    gate: Gate,
    origins: Origins,
    /// `None`: its UDP port is somebody else's.
    legs: Option<Arc<Legs>>,
    traffic: Traffic,
    reports: Reports,
    handshakes: Semaphore,
    clients: Mutex<Clients>,
}

impl Server {
    fn clients(&self) -> MutexGuard<'_, Clients> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
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
        let receiving = self.legs.clone().map(|legs| tokio::spawn(async move { legs.receive().await }));
        loop {
            let accepted = tokio::select! {
                () = stop.stopped() => break,
                _ = looks.tick() => {
                    self.end_removed(self.gate.refresh());
                    continue;
                }
                Some(_) = trunks.join_next() => continue,
                () = &mut sweep => continue,
                () = &mut counting => continue,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((connection, peer)) => {
                    is_short = false;
                    number += 1;
                    // A client that was paired just now is known.
                    self.end_removed(self.gate.refresh_if_changed());
                    trunks.spawn(Arc::clone(&self).serve(connection, peer, number));
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
        receiving.iter().for_each(JoinHandle::abort);
        self.legs.iter().for_each(|legs| legs.end());
        // Origins are reset.
        trunks.shutdown().await;
        sleep(CLOSING).await;
    }

    /// Ends the trunks of clients that are not in the list any more, or reports why the list cannot be used.
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

    /// Serves a client's connection, to the end.
    async fn serve(self: Arc<Self>, connection: Connection, peer: SocketAddr, number: u64) {
        let refuse = |client: Option<String>, why: String| {
            self.reports.put(Event::TrunkDown { peer: Some(peer), client, why, lost_streams: 0 });
        };
        let Ok(permit) = self.handshakes.try_acquire() else {
            return refuse(None, "too many connections do not say whose they are".to_owned());
        };
        let Connection { stream, transport } = connection;
        let within = self.origins.flows.timeouts().handshake;
        // A client asks so whether a link is alive: it leaves without a word.
        if !matches!(timeout(within, stream.peek(&mut [0])).await, Ok(Ok(1..)) | Err(_)) {
            return;
        }
        let counted = self.traffic.watch(&stream, transport);
        let (trunk, secret, client) = match self.gate.pass(peer.ip()) {
            Pass::Tls(tls) => match tls.accept_within(within, stream).await {
                Ok((stream, name)) => {
                    let secret = leg_secret(stream.get_ref().1);
                    (begin(stream, transport), secret, Some(name))
                }
                Err(e) => return refuse(None, e.to_string()),
            },
            Pass::Plain => (begin(stream, transport), None, None),
            Pass::None => return refuse(None, "it is in no network whose clients are believed".to_owned()),
        };
        let key = (client.clone().unwrap_or_else(|| peer.ip().to_canonical().to_string()), number);
        let is_too_many = {
            let mut clients = self.clients();
            let has = clients.range((key.0.clone(), 0)..=(key.0.clone(), u64::MAX)).count();
            let is_too_many = has >= TRUNKS_OF_CLIENT_MAX;
            if !is_too_many {
                clients.insert(key.clone(), trunk.clone());
            }
            is_too_many
        };
        if is_too_many {
            // It leaves together with HELLO: what the client opened after that alone would be reset.
            trunk.go_away(GoAwayReason::TooManyTrunks);
            drop(permit);
            let _ = timeout(LEAVING, trunk.ended()).await;
            trunk.close();
            return refuse(client, GoAwayReason::TooManyTrunks.to_string());
        }
        let theirs = match timeout(within, trunk.hello()).await {
            Ok(Ok(theirs)) => theirs,
            silent => {
                self.clients().remove(&key);
                let why = match silent {
                    Ok(Err(end)) => end.to_string(),
                    _ => "it does not say HELLO".to_owned(),
                };
                return refuse(client, why);
            }
        };
        drop(permit);
        if !self.gate.knows(client.as_deref()) {
            // It was taken off the list meanwhile.
            trunk.close();
        }
        counted.iter().for_each(|counted| counted.carries(&trunk, client.as_deref()));
        let note = why_single_path(transport, theirs);
        self.reports.put(Event::TrunkUp { peer, client: client.clone(), transport, note });
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
        self.clients().remove(&key);
        drop(counted);
        let (why, lost_streams) = (trunk.ended().await.to_string(), trunk.lost_streams());
        self.reports.put(Event::TrunkDown { peer: Some(peer), client, why, lost_streams });
        // What was sent to its end still goes to origins.
        while streams.join_next().await.is_some() {}
    }
}

fn begin<S>(connection: S, transport: Transport) -> TrunkHandle
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (trunk, task) = start_trunk(connection, Side::Server, Settings { transport, ..Settings::default() });
    tokio::spawn(task);
    trunk
}
