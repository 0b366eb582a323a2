//! The client: carries programs' connections over trunks to the server.
//!
//! ```no_run
//! use anabranch_proxy::Door;
//! use anabranch_proxy::client::{Options, start};
//!
//! # fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let pairing = std::fs::read_to_string("laptop.pair")?.parse()?;
//! let options = Options {
//!     doors: vec![(Door::Programs, "127.0.0.1:1080".parse()?)],
//!     ..Options::new("proxy.example:26228".parse()?, Some(pairing))
//! };
//! let mut client = start(options)?;
//! while let Some(event) = client.wait_event() {
//!     println!("{event:?}");
//! }
//! # Ok(())
//! # }
//! ```

mod associate;
mod carriers;
mod datagrams;
mod keyring;
mod program;
mod servers;
mod service_records;
mod trunks;

use std::any::Any;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anabranch_algo::Span;
use anabranch_net::Resolver;
use anabranch_net::capabilities::{self, CAP_NET_ADMIN};
use tokio::net::TcpListener;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::sleep;

use crate::control::ControlError;
use crate::descriptors::{Descriptors, Shortage};
use crate::error::Error;
use crate::event::{Door, Event, Reports, Stop};
use crate::flows::{Flows, Timeouts};
use crate::ingress::{Handshake, Users};
use crate::keys::Pairing;
use crate::leg::{Mode, PathHealth};
use crate::links::watch::Links;
use crate::links::{self, Via};
use crate::pool::Limits;
use crate::quota::{Quotas, UserLimits};
use crate::redirect;
use crate::relay::TcpLeg;
use crate::role::{Live, Running, runtime};
use crate::socket::{ACCEPT_PAUSE, SocketOptions, listen_tcp};
use crate::status::{NamedLink, Parts, Role};
use crate::traffic::{Key, Naming, Reading, Traffic};
use crate::transport::Choice;
use crate::trunk::Destination;
use carriers::Carriers;
use datagrams::DatagramLeg;
use keyring::Keyring;
use program::{Manners, Service};
pub use servers::{SERVERS_MAX, ServerName};
use servers::{Servers, WeakServers};
use trunks::Making;

/// The time for which the addresses of the server's name are used before the name is looked up again.
const SERVER_NAME_AGE: Span = Span::from_secs(60);
/// The time between two checks whether the rules of nftables still have the server's addresses.
const RULES_CHECK: Duration = Duration::from_secs(60);
/// The time that trunks have at the end of the client to send their last frames.
const CLOSING: Duration = Duration::from_millis(500);

/// The settings of a client.
#[derive(Clone, Debug)]
pub struct Options {
    /// The servers, at most [`SERVERS_MAX`]. With several, each connection goes to the one that
    /// [`ServerChoice`](crate::pool::servers::ServerChoice) chooses.
    pub servers: Vec<ServerName>,
    /// The keys. The first pairing is tried first with the first server, and so on; a server that shows the
    /// key of another pairing gets that one. Without any, the trunks are not encrypted and neither side
    /// proves a key.
    pub pairings: Vec<Pairing>,
    /// The addresses at which the client listens for programs, each with the kind of programs. [`redirect`]
    /// is about those of [`Door::Transparent`].
    pub doors: Vec<(Door, SocketAddr)>,
    /// Whether the client sets the rules that redirect connections, and removes them when it ends.
    pub installs_rules: bool,
    /// The users that may use the client.
    pub users: Users,
    /// Whether programs are told that they are connected only when the server has connected. That costs a
    /// round trip, and lets programs learn why a connection failed.
    pub is_strict: bool,
    /// The links to use. If there are none, the client uses the links that another program has given to the
    /// kernel's path manager.
    pub via: Vec<Via>,
    /// The directory for the byte counts of links with a cap. It is not used without such links.
    pub state_dir: Option<PathBuf>,
    /// How programs' datagrams are spread over the links.
    pub udp_mode: Mode,
    /// What carries trunks. Caps are kept by the kernel's MPTCP only.
    pub transport: Choice,
    /// How trunks' sockets are made. If `via` names links, the link of an attempt replaces the egress in
    /// this.
    pub socket: SocketOptions,
    /// The limits on the number of trunks.
    pub limits: Limits,
    /// Looks up the addresses of the server.
    pub resolver: Resolver,
    /// The time-outs of programs' connections.
    pub timeouts: Timeouts,
    /// The limits of each user. If programs need no name, the limits of all programs together.
    pub user_limits: UserLimits,
}

impl Options {
    /// Creates the options of a client of this server. It listens at no address yet, and serves every
    /// program.
    #[must_use]
    pub fn new(server: Destination, pairing: Option<Pairing>) -> Self {
        let pairings = pairing.into_iter().collect();
        Self { servers: vec![server.into()], pairings, ..Self::default() }
    }
}

impl Default for Options {
    /// Returns the options of a client without a server.
    fn default() -> Self {
        Self {
            servers: Vec::new(),
            pairings: Vec::new(),
            doors: Vec::new(),
            installs_rules: false,
            users: Users::default(),
            is_strict: false,
            via: Vec::new(),
            state_dir: None,
            udp_mode: Mode::default(),
            transport: Choice::default(),
            socket: SocketOptions::default(),
            limits: Limits::default(),
            resolver: Resolver::default().bounded(SERVER_NAME_AGE, SERVERS_MAX),
            timeouts: Timeouts::default(),
            user_limits: UserLimits::default(),
        }
    }
}

/// Starts a client.
///
/// # Errors
/// If `options` name no address to listen at, if listening fails, if the links contradict each other, or if a
/// cap cannot be counted. An unreachable server is no error but an event.
pub fn start(options: Options) -> Result<Running, Error> {
    if options.doors.is_empty() {
        return Err(Error::Usage("there is no address to listen at for programs".to_owned()));
    }
    match options.servers.len() {
        0 => return Err(Error::Usage("there is no server".to_owned())),
        _ if options.pairings.is_empty()
            && options.servers.iter().any(|server| matches!(server, ServerName::Records(_))) =>
        {
            return Err(Error::Usage("without keys, DNS must not name servers: anyone could".to_owned()));
        }
        1..=SERVERS_MAX => {}
        _ => return Err(Error::Usage(format!("there are more than {SERVERS_MAX} servers"))),
    }
    links::check(&options.via).map_err(|e| Error::Usage(e.to_string()))?;
    let runtime = runtime()?;
    let entered = runtime.enter();
    let (mut listeners, mut addresses) = (Vec::new(), Vec::new());
    for (door, address) in options.doors.iter().copied() {
        let listener = listen_tcp(address).map_err(|e| Error::Listen(address, e))?;
        addresses.push((door, listener.local_addr().map_err(|e| Error::Listen(address, e))?));
        listeners.push((door, listener));
    }
    drop(entered);
    if options.via.iter().any(|link| link.cap.is_some()) && !capabilities::has(&[CAP_NET_ADMIN]) {
        return Err(Error::CapNotAllowed);
    }
    let links = Links::new(options.via.clone(), options.state_dir.as_deref())?;
    let carriers = Carriers::new(options.transport, &options.via, &options.socket);
    let carriers = carriers.map_err(|e| Error::Usage(e.to_string()))?;
    if options.installs_rules {
        redirect::check(&redirected(&addresses)).map_err(Error::Redirect)?;
    }
    let shared = Shared::new(&options, links, carriers);
    let reload = {
        let shared = shared.clone();
        Arc::new(move |options: &dyn Any| options.downcast_ref().map(|new| shared.take_over(new)).is_some())
    };
    let bound = Arc::new(OnceLock::new());
    let parts = shared.parts(&options.servers, Arc::clone(&bound));
    Ok(Running::begin(runtime, addresses, reload, parts, |reports, stop| {
        run(options, shared, listeners, reports, (bound, stop))
    }))
}

/// The state that all connections of programs share.
#[derive(Clone)]
struct Shared {
    flows: Flows,
    quotas: Quotas,
    manners: Live<Manners>,
    links: Links,
    datagrams: DatagramLeg,
    traffic: Traffic,
    carriers: Carriers,
}

impl Shared {
    fn new(options: &Options, links: Links, carriers: Carriers) -> Self {
        Self {
            flows: Flows::new(options.timeouts),
            // Nothing limits the connections of the client together: programs wait before they are accepted.
            quotas: Quotas::new(options.user_limits, u64::MAX),
            manners: Live::new(manners(options)),
            datagrams: DatagramLeg::new(options.via.clone(), links.clone(), options.udp_mode),
            links,
            traffic: Traffic::new(Naming::Interface),
            carriers,
        }
    }

    /// Returns the parts from which the client's status is made.
    fn parts(&self, servers: &[ServerName], bound: Arc<OnceLock<WeakServers>>) -> Parts {
        let (links, datagrams) = (self.links.clone(), self.datagrams.clone());
        let carriers = self.carriers.clone();
        Parts {
            role: Role::Client,
            server: Some(servers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
            servers: Box::new(move || bound.get().map(WeakServers::status).unwrap_or_default()),
            drain: Box::new(|| None),
            load: Box::new(|| None),
            control: Box::new(|_| Err(ControlError::NotServer)),
            transport: Box::new(move || carriers.says()),
            flows: self.flows.clone(),
            traffic: self.traffic.clone(),
            links: Box::new(move || named(&links)),
            datagram_flows: Box::new(move || datagrams.flows()),
        }
    }

    fn take_over(&self, options: &Options) {
        self.flows.set(options.timeouts);
        self.quotas.set(options.user_limits);
        self.manners.set(manners(options));
    }
}

/// Returns the addresses of the listeners to which connections are redirected.
fn redirected(listeners: &[(Door, SocketAddr)]) -> Vec<SocketAddr> {
    let wanted = listeners.iter().filter(|(door, _)| *door == Door::Transparent);
    wanted.map(|(_, address)| *address).collect()
}

fn manners(options: &Options) -> Manners {
    Manners { users: options.users.clone(), is_strict: options.is_strict }
}

async fn run(
    options: Options,
    shared: Shared,
    listeners: Vec<(Door, TcpListener)>,
    reports: Reports,
    (bound, stop): (Arc<OnceLock<WeakServers>>, Stop),
) {
    let Shared { links, datagrams, traffic, carriers, .. } = shared.clone();
    let making = Making {
        keys: Keyring::new(&options.pairings),
        socket: options.socket,
        limits: options.limits,
        resolver: options.resolver,
        links: links.clone(),
        traffic: traffic.clone(),
        carriers: carriers.clone(),
    };
    let is_kernels = begin_udp(&carriers, &reports);
    let trunks = Servers::new(making, options.servers, reports.clone());
    // The value is set once.
    let _ = bound.set(trunks.weak());
    let mut tasks = JoinSet::new();
    let addresses =
        listeners.iter().filter_map(|(door, listener)| Some((*door, listener.local_addr().ok()?)));
    let to_redirect = options.installs_rules.then(|| redirected(&addresses.collect::<Vec<_>>()));
    for (door, listener) in listeners {
        let address = listener.local_addr().ok();
        let is_open = options.users.is_open() || door == Door::Transparent;
        if is_open && !address.is_some_and(|address| address.ip().is_loopback()) {
            let place = address.map_or_else(String::new, |address| format!(" at {address}"));
            reports
                .put(Event::Notice(format!("whoever reaches this proxy{place} can use it: it has no users")));
        }
        let Shared { flows, quotas, manners, .. } = shared.clone();
        let service = Service {
            trunks: trunks.clone(),
            datagrams: datagrams.clone(),
            reports: reports.clone(),
            flows,
            quotas,
            manners,
        };
        tasks.spawn(accept(door, listener, service));
    }
    if !options.installs_rules {
        look_for_rules(reports.clone());
    }
    let manage = async {
        if !is_kernels {
            return std::future::pending().await;
        }
        let servers = trunks.server_addresses().await;
        links.manage(servers, reports.clone()).await;
    };
    let redirecting = async {
        match to_redirect {
            Some(listeners) => keep_rules(&trunks, listeners, &reports).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = stop.stopped() => {}
        () = redirecting => {}
        () = trunks.keep() => {}
        () = datagrams.keep(&trunks, &reports) => {}
        () = manage => {}
        () = carriers.follow(&links) => {}
        () = shared.flows.sweep() => {}
        () = traffic.keep(|| paths_of_datagrams(&datagrams, &options.via)) => {}
    }
    // Ending the tasks resets the programs' connections.
    tasks.shutdown().await;
    trunks.close();
    sleep(CLOSING).await;
    // The kernel is told to forget the links; that takes milliseconds.
    links.end(&reports).await;
}

/// Removes the rules that an earlier client has left, and reports that.
fn look_for_rules(reports: Reports) {
    spawn_blocking(move || {
        redirect::left_behind().into_iter().for_each(|text| reports.put(Event::Notice(text)));
    });
}

/// Starts the task of trunks over UDP and reports whether trunks go over UDP. Returns whether the kernel has
/// a part in them; else it is told of no links.
fn begin_udp(carriers: &Carriers, reports: &Reports) -> bool {
    let running = carriers.clone();
    // The runtime ends this task, after the last frames have been sent.
    tokio::spawn(async move { running.run().await });
    if let Some(says) = carriers.says() {
        reports.put(Event::Notice(format!("trunks: {says}")));
    }
    !carriers.is_udp()
}

/// Returns the links that the user named, in their present state.
fn named(links: &Links) -> Vec<NamedLink> {
    let interfaces = anabranch_net::interfaces().unwrap_or_default();
    let is_here = |name: &str| {
        interfaces
            .iter()
            .any(|interface| interface.name == name && interface.up && !interface.addresses.is_empty())
    };
    let usage = links.usage();
    let link = |(via, is_dead): (Via, bool)| NamedLink {
        is_absent: !is_here(&via.name),
        usage: usage.iter().find(|usage| usage.link == via.name).cloned(),
        cost: via.cost,
        is_backup: via.is_backup,
        is_dead,
        name: via.name,
    };
    links.named().into_iter().map(link).collect()
}

/// Returns a reading of the datagrams' traffic for each path of the leg: the path's number, its link and its
/// counts.
fn paths_of_datagrams(datagrams: &DatagramLeg, via: &[Via]) -> Vec<(u8, Key, Reading)> {
    let reading = |health: PathHealth| {
        // A path that never answered is left out: something on the way may block its datagrams.
        let rtt = health.srtt?;
        let link = via.get(usize::from(health.path))?.name.clone();
        let reading = Reading {
            sent_bytes: health.sent_bytes,
            received_bytes: health.received_bytes,
            rtt_us: Some(rtt.as_nanos() / 1_000),
            loss: Some(health.loss),
            is_silent: !health.is_alive,
            ..Reading::default()
        };
        Some((health.path, Key { client: None, link }, reading))
    };
    datagrams.health().into_iter().filter_map(reading).collect()
}

/// Keeps the kernel's rules that redirect programs' connections. The rules name the server's addresses, so
/// they are renewed when these change. Never returns; dropping the future removes the rules.
async fn keep_rules(trunks: &Servers, listeners: Vec<SocketAddr>, reports: &Reports) {
    let rules = redirect::Installed::default();
    let mut known = Vec::new();
    loop {
        let mut servers = trunks.server_addresses().await;
        servers.sort();
        if servers != known {
            known.clone_from(&servers);
            let (listeners, set) = (listeners.clone(), rules.setter());
            let set = spawn_blocking(move || set(&listeners, &servers)).await;
            if let Ok(Err(e)) = set {
                reports.put(Event::Notice(format!("programs' connections are not redirected: {e}")));
            }
        }
        sleep(RULES_CHECK).await;
    }
}

/// Accepts programs' connections. Never returns.
async fn accept(door: Door, listener: TcpListener, service: Service) {
    let mut programs = JoinSet::new();
    let mut is_short = false;
    let (descriptors, shortage) = (Descriptors::of_process(), Shortage::default());
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = programs.join_next() => continue,
        };
        match accepted {
            Ok((tcp, from)) => {
                is_short = false;
                // This connection and those after it wait: the last descriptors are for trunks.
                let mut newest = descriptors.check(&tcp);
                while let Err(scarce) = newest {
                    shortage.tell(&service.reports, "programs have to wait", &scarce);
                    sleep(ACCEPT_PAUSE).await;
                    newest = descriptors.check_free(&tcp);
                }
                let (service, users) = (service.clone(), service.manners.get().users.clone());
                programs.spawn(async move {
                    let leg = TcpLeg::new(tcp);
                    match door {
                        Door::Programs => service.serve(leg, from, Handshake::any(users)).await,
                        Door::Http => service.serve(leg, from, Handshake::http(users)).await,
                        Door::Transparent => service.serve_redirected(leg, from).await,
                        Door::Socks | Door::Trunks => {
                            service.serve(leg, from, Handshake::socks(users)).await;
                        }
                    }
                });
            }
            // The program closed the connection before it was accepted.
            Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(e) => {
                if !std::mem::replace(&mut is_short, true) {
                    service.reports.put(Event::Notice(format!("programs have to wait: {e}")));
                }
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}
