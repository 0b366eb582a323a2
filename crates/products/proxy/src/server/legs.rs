//! The server's legs: a machine and a task for each association. All clients send to one UDP port.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anabranch_algo::{Span, Time};
use anabranch_mptcp_udp::Port;
use anabranch_net::{Clock, Received};
use tokio::sync::{Notify, mpsc};
use tokio::time::sleep;

use crate::descriptors::Shortage;
use crate::egress::Connector;
use crate::event::Reports;
use crate::flows::user;
use crate::leg::packet::{Header, VERSION};
use crate::leg::{self, Leg, Protection, SECRET_BYTES, Settings};
use crate::leg_socket::transmit_all;
use crate::policy::Scope;
use crate::quota::{Pace, Quotas};
use crate::random::random;
use crate::role::Live;
use crate::server::association::{Association, Flows, State};
use crate::server::flow::serve_flow;
use crate::trunk::{Association as Answer, Side};

/// The most associations of one client. Beyond these, the one that was silent the longest ends.
const ASSOCIATIONS_OF_CLIENT_MAX: usize = 8;
/// The time without a packet after which an association ends. Clients send a packet every 25 s.
const SILENCE_MAX: Span = Span::from_secs(300);
/// The most datagrams that wait for one flow's socket; more are dropped.
const FLOW_QUEUE_MAX: usize = 1_024;
/// The most addresses of a client for which the server's own address is kept.
const LOCALS_MAX: usize = 64;

/// The legs of a server.
pub(super) struct Legs {
    /// The UDP port, which encapsulated trunks use, too.
    port: Arc<Port>,
    /// The networks whose clients are believed, if the server has no keys.
    networks: Option<Vec<Scope>>,
    associations: Mutex<BTreeMap<u32, Arc<Association>>>,
    connector: Live<Connector>,
    reports: Reports,
    shortage: Shortage,
    quotas: Quotas,
    clock: Clock,
    secret: [u8; SECRET_BYTES],
}

impl Legs {
    /// Creates the legs of a server with this UDP port.
    pub(super) fn new(
        port: Arc<Port>,
        networks: Option<Vec<Scope>>,
        connector: Live<Connector>,
        reports: Reports,
        quotas: Quotas,
    ) -> io::Result<Self> {
        let secret = random().ok_or_else(|| io::Error::other("the system has no random numbers"))?;
        let (associations, clock) = (Mutex::default(), Clock::start());
        let shortage = Shortage::default();
        Ok(Self { port, networks, associations, connector, reports, shortage, quotas, clock, secret })
    }

    fn associations(&self) -> MutexGuard<'_, BTreeMap<u32, Arc<Association>>> {
        self.associations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a leg for a client that asked for it over a trunk with this secret, or refuses it.
    pub(super) fn begin(
        self: &Arc<Self>,
        version: u16,
        client: Option<String>,
        from: SocketAddr,
        secret: Option<[u8; SECRET_BYTES]>,
    ) -> Answer {
        let refused = Answer { version: VERSION, port: 0, number: 0 };
        let Some(number) = random().map(u32::from_be_bytes).filter(|_| version == VERSION) else {
            return refused;
        };
        let protection = match secret {
            Some(secret) => Protection::sealed(&secret, number, Side::Server),
            None if self.networks.is_some() => Protection::plain(),
            None => return refused,
        };
        let owner = user(client.as_deref(), from);
        let state = State {
            leg: Leg::server(number, protection, Settings::default(), self.secret),
            flows: Flows::new(),
            locals: BTreeMap::new(),
            heard_at: self.clock.now(),
            is_ended: false,
        };
        let (state, work, clock) = (Mutex::new(state), Notify::new(), self.clock);
        let association = Arc::new(Association { owner: owner.clone(), client, from, state, work, clock });
        let mut associations = self.associations();
        if associations.contains_key(&number) {
            return refused;
        }
        let theirs: Vec<_> = associations.values().filter(|other| other.owner == owner).collect();
        if theirs.len() >= ASSOCIATIONS_OF_CLIENT_MAX
            && let Some(oldest) = theirs.iter().min_by_key(|other| other.lock().heard_at)
        {
            oldest.end();
        }
        associations.insert(number, Arc::clone(&association));
        drop(associations);
        tokio::spawn(Arc::clone(self).serve(number, association));
        Answer { version: VERSION, port: self.port.local_addr().port(), number }
    }

    /// Ends the legs of these clients.
    pub(super) fn end_clients(&self, names: &[String]) {
        let is_gone = |client: &Option<String>| client.as_ref().is_some_and(|name| names.contains(name));
        self.associations().values().filter(|other| is_gone(&other.client)).for_each(|other| other.end());
    }

    /// Returns the number of flows, so of programs that send datagrams.
    pub(super) fn flows(&self) -> usize {
        let associations: Vec<_> = self.associations().values().cloned().collect();
        associations.iter().map(|association| association.lock().flows.len()).sum()
    }

    /// Ends all legs.
    pub(super) fn end(&self) {
        self.associations().values().for_each(|association| association.end());
    }

    /// Takes the datagrams of a client.
    pub(super) fn take(&self, received: &Received<'_>) {
        let host = received.from.ip().to_canonical();
        if self.networks.as_ref().is_some_and(|known| !known.iter().any(|net| net.has_host(host))) {
            return;
        }
        let now = self.clock.now();
        for datagram in received.datagrams() {
            let Some(header) = Header::decode(datagram) else { continue };
            let association = self.associations().get(&header.association).cloned();
            let Some(association) = association else { continue };
            let mut state = association.lock();
            if state.leg.receive(now, received.from, &mut datagram.to_vec()).is_ok() {
                state.heard_at = now;
                if let Some(ip) = received.to_ip
                    && (state.locals.len() < LOCALS_MAX || state.locals.contains_key(&received.from))
                {
                    state.locals.insert(received.from, ip);
                }
                drop(state);
                association.work.notify_one();
            }
        }
    }

    /// Runs an association until it ends.
    async fn serve(self: Arc<Self>, number: u32, association: Arc<Association>) {
        loop {
            let now = self.clock.now();
            let Some(deadline) = self.step(now, &association) else { break };
            let pause = Duration::from_nanos(deadline.since(now).as_nanos());
            tokio::select! {
                () = association.work.notified() => {}
                () = sleep(pause) => {}
            }
        }
        association.lock().flows.clear();
        self.associations().remove(&number);
    }

    /// Sends all packets that are due and hands datagrams to the flows. Returns the time of the leg's next
    /// deadline, or `None` if the association has ended.
    fn step(&self, now: Time, association: &Arc<Association>) -> Option<Time> {
        let mut guard = association.lock();
        let state = &mut *guard;
        let ends_at = state.heard_at + SILENCE_MAX;
        if state.is_ended || now >= ends_at || state.leg.is_worn_out() {
            return None;
        }
        if state.locals.len() >= LOCALS_MAX {
            // Addresses that are still in use are added again.
            state.locals.clear();
        }
        let (mut buffer, locals) = (Vec::new(), &state.locals);
        transmit_all(&mut state.leg, now, &mut buffer, |_, to, bytes, size| {
            if let Some(socket) = self.port.socket_for(to) {
                socket.send(Some(to), locals.get(&to).copied(), bytes, size);
            }
        });
        while let Some(event) = state.leg.poll_event() {
            let leg::Event::Datagram { flow, peer, bytes } = event else { continue };
            if let Some(to_flow) = state.flows.heard(now, flow) {
                // If the origin's network is slower than the leg, datagrams are dropped here.
                let _ = to_flow.try_send((peer, bytes));
                continue;
            }
            // Flows do not count as connections, because they outlast their program, whose end the server is
            // not told.
            let admitted = match self.quotas.join(&association.owner) {
                Ok(admitted) => admitted,
                Err(e) => {
                    self.shortage.tell(&self.reports, "datagrams are dropped", &e);
                    state.leg.forget(flow);
                    continue;
                }
            };
            let (to_flow, from_leg) = mpsc::channel(FLOW_QUEUE_MAX);
            let _ = to_flow.try_send((peer, bytes));
            let (id, gone) = state.flows.insert(now, flow, to_flow);
            gone.into_iter().for_each(|gone| state.leg.forget(gone));
            let (connector, reports) = (self.connector.clone(), self.reports.clone());
            let pace = Pace::new(admitted);
            tokio::spawn(serve_flow(connector, reports, Arc::clone(association), id, from_leg, pace));
        }
        Some(state.leg.deadline(now).min(ends_at))
    }
}
