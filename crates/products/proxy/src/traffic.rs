//! Counts the bytes of each link and measures its state: once a second, the kernel is asked about every
//! trunk.
//!
//! At the client a link is an interface, at the server an address of a client. Only these counts are shown to
//! users. They remain when the trunk that moved the bytes has ended.

mod tally;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anabranch_algo::Time;
use anabranch_net::mptcp_socket::SubflowInfo;
use anabranch_net::netlink::TcpState;
use anabranch_net::{Clock, interfaces};
use tokio::time::sleep;

use crate::trunk::Transport;
use crate::trunk_socket::{Meter, TrunkSocket};
use crate::trunk_task::TrunkHandle;
pub(crate) use tally::{DATAGRAMS, Key, Reading, Row, Tally};

/// The time between two requests to the kernel.
const STEP: Duration = Duration::from_secs(1);
/// The most addresses whose interface is remembered.
const PLACES_MAX: usize = 1_024;

/// How links are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Naming {
    /// By the interface of this end's address, at the client.
    Interface,
    /// By the client and its address, at the server.
    Client,
}

impl Naming {
    /// Returns the interface of each address of this host, if links are named by interface.
    fn places(self) -> BTreeMap<IpAddr, String> {
        let all = match self {
            Self::Interface => interfaces().unwrap_or_default(),
            Self::Client => Vec::new(),
        };
        let up = all.iter().filter(|interface| interface.up);
        up.flat_map(|interface| interface.addresses.iter().map(|ip| (*ip, interface.name.clone()))).collect()
    }
}

/// The traffic of a role's trunks. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Traffic {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    naming: Naming,
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    trunks: BTreeMap<u64, Carrier>,
    next: u64,
    tally: Tally,
    /// The interface of each known address.
    places: BTreeMap<IpAddr, String>,
}

/// The connection of a trunk.
#[derive(Debug)]
struct Carrier {
    meter: Meter,
    peer: SocketAddr,
    client: Option<String>,
    transport: Transport,
    begun: Time,
    /// The trunk; `None` until the other end has been authenticated.
    trunk: Option<TrunkHandle>,
    /// The subflows at the last measurement.
    subflows: Vec<SubflowInfo>,
}

/// A trunk as the status shows it.
#[derive(Debug)]
pub(crate) struct TrunkRow {
    pub(crate) peer: SocketAddr,
    pub(crate) client: Option<String>,
    pub(crate) transport: Transport,
    pub(crate) age_s: f64,
    pub(crate) trunk: TrunkHandle,
    pub(crate) subflows: Vec<(Key, SubflowInfo)>,
}

/// A trunk that is measured until this is dropped.
#[derive(Debug)]
pub(crate) struct Counted {
    traffic: Traffic,
    number: u64,
}

impl Counted {
    /// Starts counting once the other end has been authenticated. `trunk` runs on the connection and belongs
    /// to `client`.
    pub(crate) fn carries(&self, trunk: &TrunkHandle, client: Option<&str>) {
        let places = self.traffic.shared.naming.places();
        let mut state = self.traffic.lock();
        state.places.extend(places);
        if let Some(carrier) = state.trunks.get_mut(&self.number) {
            (carrier.trunk, carrier.client) = (Some(trunk.clone()), client.map(str::to_owned));
        }
        state.look_at(self.number, self.traffic.shared.naming);
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut state = self.traffic.lock();
        state.look_at(self.number, self.traffic.shared.naming);
        state.trunks.remove(&self.number);
        state.tally.retain(self.number, |_| false);
    }
}

impl Traffic {
    pub(crate) fn new(naming: Naming) -> Self {
        Self { shared: Arc::new(Shared { naming, clock: Clock::start(), state: Mutex::default() }) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Measures a trunk's connection. Returns `None` if no descriptors are left.
    pub(crate) fn watch(&self, socket: &TrunkSocket, transport: Transport) -> Option<Counted> {
        let (meter, peer) = (socket.meter()?, socket.peer()?);
        let (peer, begun) = (SocketAddr::new(peer.ip().to_canonical(), peer.port()), self.shared.clock.now());
        let (client, trunk, subflows) = (None, None, Vec::new());
        let mut state = self.lock();
        state.next += 1;
        let number = state.next;
        let carrier = Carrier { meter, peer, client, transport, begun, trunk, subflows };
        state.trunks.insert(number, carrier);
        Some(Counted { traffic: self.clone(), number })
    }

    /// Asks the kernel once a second. `paths` returns the readings of the datagrams' paths, by number. Never
    /// returns.
    pub(crate) async fn keep(&self, paths: impl Fn() -> Vec<(u8, Key, Reading)>) {
        loop {
            self.look(paths());
            sleep(STEP).await;
        }
    }

    fn look(&self, paths: Vec<(u8, Key, Reading)>) {
        let now = self.shared.clock.now();
        let places = self.shared.naming.places();
        let mut guard = self.lock();
        let state = &mut *guard;
        if state.places.len() > PLACES_MAX {
            state.places.clear();
        }
        // The addresses of an interface that is down are still remembered.
        state.places.extend(places);
        let id = |path: u8| {
            let end = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), path.into());
            (DATAGRAMS, end, end)
        };
        state.tally.retain(DATAGRAMS, |known| paths.iter().any(|(path, ..)| id(*path) == *known));
        for (path, key, reading) in paths {
            state.tally.read(id(path), key, reading);
        }
        let numbers: Vec<u64> = state.trunks.keys().copied().collect();
        for number in numbers {
            state.look_at(number, self.shared.naming);
        }
        state.tally.step(now);
    }

    /// Returns the links that have carried bytes or are about to.
    pub(crate) fn links(&self) -> Vec<Row> {
        self.lock().tally.rows()
    }

    /// Returns the present trunks.
    pub(crate) fn trunks(&self) -> Vec<TrunkRow> {
        let (now, naming) = (self.shared.clock.now(), self.shared.naming);
        let state = self.lock();
        let row = |carrier: &Carrier| {
            let named = |subflow: &SubflowInfo| (state.key(carrier, subflow, naming), *subflow);
            Some(TrunkRow {
                peer: carrier.peer,
                client: carrier.client.clone(),
                transport: carrier.transport,
                age_s: now.since(carrier.begun).as_nanos() as f64 / 1e9,
                trunk: carrier.trunk.clone()?,
                subflows: carrier.subflows.iter().map(named).collect(),
            })
        };
        state.trunks.values().filter_map(row).collect()
    }
}

impl State {
    /// Asks the kernel for the state of a trunk's subflows.
    fn look_at(&mut self, number: u64, naming: Naming) {
        let Some(carrier) = self.trunks.get_mut(&number) else { return };
        // The first subflow stays in the list when it is closed, and then has no address.
        let is_there =
            |one: &SubflowInfo| one.tcp.state != Some(TcpState::Closed) && !one.local.ip().is_unspecified();
        carrier.subflows = carrier.meter.subflows().into_iter().filter(is_there).collect();
        let Some(carrier) = self.trunks.get(&number).filter(|carrier| carrier.trunk.is_some()) else {
            return;
        };
        let ends = |subflow: &SubflowInfo| (number, subflow.local, subflow.remote);
        let those = carrier.subflows.iter();
        let readings: Vec<_> = those
            .map(|subflow| (ends(subflow), self.key(carrier, subflow, naming), Reading::of(&subflow.tcp)))
            .collect();
        let is_there = |subflow: &tally::Subflow| readings.iter().any(|(known, ..)| known == subflow);
        self.tally.retain(number, is_there);
        for (subflow, key, reading) in readings {
            self.tally.read(subflow, key, reading);
        }
    }

    fn key(&self, carrier: &Carrier, subflow: &SubflowInfo, naming: Naming) -> Key {
        match naming {
            Naming::Interface => {
                let name = self.places.get(&subflow.local.ip()).cloned();
                Key { client: None, link: name.unwrap_or_else(|| subflow.local.ip().to_string()) }
            }
            Naming::Client => {
                let client = carrier.client.clone();
                let client = client.unwrap_or_else(|| carrier.peer.ip().to_string());
                Key { client: Some(client), link: subflow.remote.ip().to_string() }
            }
        }
    }
}
