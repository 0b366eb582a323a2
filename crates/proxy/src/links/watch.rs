//! The links in the world: the kernel is told of them, each is watched, a dead one is taken away and put
//! back.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use algo::Time;
use kernel::uplinks::Session;
use net::mptcp_socket::mptcp_socket_info;
use net::netlink::{Netlink, PathManager};
use net::{Clock, Egress, NetworkMonitor, interfaces};
use socket2::SockRef;
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{sleep, timeout};

use crate::event::{Event, Reports};
use crate::links::liveness::{Action, Liveness, Sample};
use crate::links::meter::Meter;
use crate::links::{Via, kernel_paths};

/// How often each link is looked at.
const STEP: Duration = Duration::from_millis(50);
/// A probe has failed after so long, or four round trips.
const PROBE_TIMEOUT: Duration = Duration::from_millis(300);
const PROBE_RTTS: u32 = 4;
/// The second SYN of a probe leaves so long after the first: one packet may be lost.
const PROBE_AGAIN: Duration = Duration::from_millis(100);

/// What is known of the links. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Links {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    via: Vec<Via>,
    clock: Clock,
    state: Mutex<State>,
    /// Apart, since it is held while the kernel works.
    session: Mutex<Option<Session>>,
}

#[derive(Debug, Default)]
struct State {
    /// The sockets of trunks.
    trunks: BTreeMap<u64, OwnedFd>,
    next: u64,
    dead: Vec<bool>,
    /// Those that have lost a link for good.
    lame: BTreeSet<u64>,
}

/// A trunk that is watched, until this is dropped.
#[derive(Debug)]
pub(crate) struct Watched {
    links: Links,
    number: u64,
}

impl Watched {
    /// Whether the trunk has lost a link that works: a new one would use it.
    pub(crate) fn is_lame(&self) -> bool {
        self.links.lock().lame.contains(&self.number)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let mut state = self.links.lock();
        state.trunks.remove(&self.number);
        state.lame.remove(&self.number);
    }
}

impl Links {
    pub(crate) fn new(via: Vec<Via>) -> Self {
        let state = State { dead: vec![false; via.len()], ..State::default() };
        let (state, session) = (Mutex::new(state), Mutex::default());
        Self { shared: Arc::new(Shared { via, clock: Clock::start(), state, session }) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches a trunk. `None` if there are no links, or no descriptors left.
    pub(crate) fn watch(&self, stream: &TcpStream) -> Option<Watched> {
        if self.shared.via.is_empty() {
            return None;
        }
        let fd = stream.as_fd().try_clone_to_owned().ok()?;
        let mut state = self.lock();
        state.next += 1;
        let number = state.next;
        state.trunks.insert(number, fd);
        Some(Watched { links: self.clone(), number })
    }

    /// Over what a trunk is to begin: those that live first, then backups last, then what costs more.
    pub(crate) fn order(&self) -> Vec<Option<String>> {
        let dead = self.lock().dead.clone();
        let mut sorted: Vec<_> = self.shared.via.iter().zip(dead).collect();
        sorted.sort_by_key(|(link, is_dead)| (*is_dead, link.is_backup, link.cost));
        match sorted.is_empty() {
            true => vec![None],
            false => sorted.into_iter().map(|(link, _)| Some(link.name.clone())).collect(),
        }
    }

    /// Tells the kernel, and watches from then on; never ends.
    pub(crate) async fn manage(&self, servers: Vec<SocketAddr>, reports: Reports) {
        let ips: Vec<IpAddr> = servers.iter().map(SocketAddr::ip).collect();
        let (links, said, to) = (self.clone(), reports.clone(), ips.clone());
        let begin = spawn_blocking(move || {
            let begun = kernel_paths::begin(&links.shared.via, &to, &said);
            let is_there = begun.is_some();
            *links.session() = begun;
            is_there
        });
        if begin.await.unwrap_or(false) && self.shared.via.len() > 1 {
            self.tend(&servers, &ips, &reports).await;
        }
        std::future::pending::<()>().await;
    }

    /// Puts back what the kernel was told; that takes milliseconds.
    pub(crate) async fn end(&self) {
        let links = self.clone();
        let _ = spawn_blocking(move || drop(links.session().take())).await;
    }

    fn session(&self) -> MutexGuard<'_, Option<Session>> {
        self.shared.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn tend(&self, servers: &[SocketAddr], ips: &[IpAddr], reports: &Reports) {
        let clock = self.shared.clock;
        let mut liveness = Liveness::new(&self.unknown_to_the_kernel());
        let mut monitor = NetworkMonitor::new().ok();
        let mut places = self.places();
        let mut probes = JoinSet::new();
        let (mut meter, mut is_told) = (Meter::new(places.len()), false);
        loop {
            if monitor.as_mut().is_some_and(|monitor| monitor.changed(clock.now())) {
                places = self.places();
            }
            let samples = self.samples(&mut meter, clock.now(), &places);
            self.note_lame(&meter.lame(clock.now()), &mut is_told, reports);
            let mut actions = Vec::new();
            while let Some(Ok((link, is_answered))) = probes.try_join_next() {
                actions.extend(liveness.on_probe(clock.now(), link, is_answered));
            }
            actions.extend(liveness.step(clock.now(), &samples));
            for action in actions {
                match action {
                    Action::Probe(link) => {
                        let (name, servers) = (self.shared.via[link].name.clone(), servers.to_vec());
                        let rtt = Duration::from_nanos(samples[link].rtt.as_nanos());
                        let limit = PROBE_TIMEOUT.max(rtt * PROBE_RTTS);
                        probes.spawn(async move { (link, probe(&name, &servers, limit).await) });
                    }
                    Action::Close(link) => self.close(link, reports).await,
                    Action::Open(link) => {
                        self.open(link, ips, &liveness, reports).await;
                        places = self.places();
                    }
                }
            }
            sleep(STEP).await;
        }
    }

    /// Whether the kernel has no endpoint for a link, since it could not be used.
    fn unknown_to_the_kernel(&self) -> Vec<bool> {
        let endpoints = PathManager::open().and_then(|manager| manager.endpoints()).unwrap_or_default();
        let netlink = Netlink::open();
        let is_known = |link: &Via| {
            let index = netlink.as_ref().ok().and_then(|netlink| netlink.index(&link.name).ok());
            index.is_some() && endpoints.iter().any(|endpoint| endpoint.device == index)
        };
        self.shared.via.iter().map(|link| !is_known(link)).collect()
    }

    /// The addresses of each link; none if it is down.
    fn places(&self) -> Vec<Vec<IpAddr>> {
        let all = interfaces().unwrap_or_default();
        let of = |link: &Via| {
            let found = all.iter().find(|interface| interface.name == link.name && interface.up);
            found.map(|interface| interface.addresses.clone()).unwrap_or_default()
        };
        self.shared.via.iter().map(of).collect()
    }

    fn samples(&self, meter: &mut Meter, now: Time, places: &[Vec<IpAddr>]) -> Vec<Sample> {
        let state = self.lock();
        let says = |(number, fd): (&u64, &OwnedFd)| {
            let (_, subflows) = mptcp_socket_info(fd.as_fd()).ok()??;
            Some((*number, subflows))
        };
        let trunks: Vec<_> = state.trunks.iter().filter_map(says).collect();
        let dead = state.dead.clone();
        drop(state);
        meter.measure(now, places, &dead, &trunks)
    }

    /// Trunks that have lost a link are to be replaced.
    fn note_lame(&self, lame: &[(u64, usize)], is_told: &mut bool, reports: &Reports) {
        let mut state = self.lock();
        for (trunk, link) in lame {
            if state.trunks.contains_key(trunk)
                && state.lame.insert(*trunk)
                && !std::mem::replace(is_told, true)
            {
                let name = &self.shared.via[*link].name;
                reports.put(Event::Notice(format!(
                    "connections to the server do not take {name} up again: new ones replace them. The limit \
                     at the server may be too low: ip mptcp limits set subflows 8"
                )));
            }
        }
    }

    /// Takes a link away: the kernel closes its subflows, tells the server, and both send what was under way
    /// over the others.
    async fn close(&self, link: usize, reports: &Reports) {
        let name = self.shared.via[link].name.clone();
        self.lock().dead[link] = true;
        let of = name.clone();
        let closing = move || {
            let index = Netlink::open().and_then(|netlink| netlink.index(&of)).ok();
            let Ok(manager) = PathManager::open() else { return };
            let all = manager.endpoints().unwrap_or_default();
            for endpoint in all.iter().filter(|endpoint| index.is_some() && endpoint.device == index) {
                // Gone already: good.
                let _ = manager.del_endpoint(endpoint);
            }
        };
        let _ = spawn_blocking(closing).await;
        reports.put(Event::Notice(format!("the link {name} is dead: the others carry on")));
    }

    /// Puts a link back: the kernel opens subflows over it, also of trunks that are there.
    async fn open(&self, link: usize, ips: &[IpAddr], liveness: &Liveness, reports: &Reports) {
        let name = &self.shared.via[link].name;
        self.lock().dead[link] = false;
        let (links, ips) = (self.clone(), ips.to_vec());
        let opened = spawn_blocking(move || {
            let mut session = links.session();
            session.as_mut().map_or(Ok(()), |session| session.update(ips).map(drop))
        });
        match opened.await {
            Ok(Ok(())) => reports.put(Event::Notice(format!("the link {name} works again"))),
            Ok(Err(e)) => reports.put(Event::Notice(format!("the link {name} works again, but: {e}"))),
            Err(_) => {}
        }
        // It put the other ones back too.
        for n in (0..self.shared.via.len()).filter(|n| liveness.is_dead(*n)) {
            self.close(n, reports).await;
        }
    }
}

/// Whether the server takes a connection over this link, which is reset at once. The server knows that one
/// without a byte is a probe.
async fn probe(name: &str, servers: &[SocketAddr], limit: Duration) -> bool {
    let mut attempts = JoinSet::new();
    for (n, server) in servers.iter().cycle().take(2.max(servers.len())).enumerate() {
        let (egress, server) = (Egress::of_device(name), *server);
        attempts.spawn(async move {
            sleep(PROBE_AGAIN * u32::try_from(n).unwrap_or(0)).await;
            let Ok((socket, peer)) = egress.tcp_socket(server) else { return false };
            let connected = TcpSocket::from_std_stream(socket.into()).connect(peer).await;
            connected.is_ok_and(|stream| SockRef::from(&stream).set_linger(Some(Duration::ZERO)).is_ok())
        });
    }
    let any = async {
        while let Some(ended) = attempts.join_next().await {
            if ended.unwrap_or(false) {
                return true;
            }
        }
        // No route, say: whoever asks again at once finds the same.
        false
    };
    timeout(limit, any).await.unwrap_or(false)
}
