//! The client's leg: carries programs' datagrams over all links.
//!
//! One task owns the leg and its sockets, one socket for each link. Programs' tasks put datagrams into the
//! leg and wake that task; datagrams from the server wait for the programs in bounded channels. If the leg
//! does not answer while the server has a trunk, a new leg replaces it, and the flows continue there. A leg
//! without flows is given up after [`KEPT_UNUSED`], so that only the trunks' watch probes the links
//! ([`crate::links`]).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use anabranch_algo::{Span, Time};
use anabranch_mptcp_udp::AsyncUdp;
use anabranch_net::{Clock, Egress, RecvBuffers};
use bytes::Bytes;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{sleep, timeout};

use crate::client::servers::Servers;
use crate::client::trunks::LegSource;
use crate::event::{Event, Reports};
use crate::leg::packet::VERSION;
use crate::leg::{self, FLOW_MAX, Leg, Mode, PathHealth, Protection, Settings};
use crate::leg_socket::transmit_all;
use crate::links::Via;
use crate::links::watch::Links;
use crate::trunk::{Association, Destination, Reason, Side};
use crate::trunk_task::End;

/// The most datagrams that wait for one program; more are dropped.
const PROGRAM_QUEUE_MAX: usize = 1_024;
/// The longest time that a program waits for a leg that answers.
const PROGRAM_WAITS: Duration = Duration::from_secs(10);
/// The longest time that the server may take to answer. A server that does not know legs never answers.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The time after a refusal or a missing answer until the server is asked again, over another trunk.
const ASK_AGAIN: Duration = Duration::from_secs(30);
/// The time without an answer after which a leg is replaced, if the server has a trunk.
const REPLACE_AFTER: Span = Span::from_secs(3);
/// The time between two checks of the traffic on trunks and of the sockets that are missing.
const TICK: Duration = Duration::from_millis(500);
/// The time without a flow after which the leg is given up, so that nothing is probed without need.
const KEPT_UNUSED: Span = Span::from_secs(10);
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

struct Flow {
    mode: Mode,
    to_program: mpsc::Sender<(Destination, Bytes)>,
}

#[derive(Default)]
struct State {
    leg: Option<Leg>,
    flows: BTreeMap<u32, Flow>,
    last_flow: u32,
    /// Whether a program wants a leg.
    is_wanted: bool,
    /// The reason why there is no leg.
    failure: Option<String>,
}

struct Shared {
    state: Mutex<State>,
    clock: Clock,
    /// Wakes the task that owns the leg.
    work: Notify,
    /// Changes whenever programs that wait for a leg should look again.
    news: watch::Sender<u64>,
    mode: Mode,
    links: Vec<Via>,
    /// Tells which links must carry no more.
    watch: Links,
}

/// The client's leg, if there is one. Clones share it.
#[derive(Clone)]
pub(super) struct DatagramLeg {
    shared: Arc<Shared>,
}

/// A program's flow of datagrams. Dropping it ends the flow.
pub(super) struct ProgramFlow {
    shared: Arc<Shared>,
    number: u32,
    from_leg: mpsc::Receiver<(Destination, Bytes)>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self) {
        self.news.send_modify(|count| *count += 1);
    }
}

impl DatagramLeg {
    /// Creates the leg's state for these links. Without links, the kernel chooses the way.
    pub(super) fn new(links: Vec<Via>, watch: Links, mode: Mode) -> Self {
        let (state, work) = (Mutex::default(), Notify::new());
        let (news, clock) = (watch::Sender::new(0), Clock::start());
        Self { shared: Arc::new(Shared { state, clock, work, news, mode, links, watch }) }
    }

    /// Returns the health of each path; the path's number is the index of its link. Empty while there is no
    /// leg.
    pub(super) fn health(&self) -> Vec<PathHealth> {
        self.shared.lock().leg.as_ref().map(Leg::health).unwrap_or_default()
    }

    /// Returns the number of programs that send datagrams.
    pub(super) fn flows(&self) -> usize {
        self.shared.lock().flows.len()
    }

    /// Opens a flow for a program. Waits for a leg if there is none.
    pub(super) async fn open(&self) -> Result<ProgramFlow, (Reason, String)> {
        let mut news = self.shared.news.subscribe();
        let opening = async {
            loop {
                if let Some(flow) = self.open_now()? {
                    return Ok(flow);
                }
                // `changed` fails only if the sender is gone, and `self` holds the sender.
                let _ = news.changed().await;
            }
        };
        let late =
            || (Reason::TrunkGone, "no datagram reaches the server: its UDP port may be closed".into());
        timeout(PROGRAM_WAITS, opening).await.unwrap_or_else(|_| Err(late()))
    }

    fn open_now(&self) -> Result<Option<ProgramFlow>, (Reason, String)> {
        let shared = &self.shared;
        let mut guard = shared.lock();
        let state = &mut *guard;
        if !std::mem::replace(&mut state.is_wanted, true) {
            shared.work.notify_one();
        }
        let Some(leg) = state.leg.as_mut().filter(|leg| leg.is_alive()) else {
            return state.failure.clone().map_or(Ok(None), |why| Err((Reason::TrunkGone, why)));
        };
        let next = |flow: u32| if flow >= FLOW_MAX { 1 } else { flow + 1 };
        let mut number = next(state.last_flow);
        while state.flows.contains_key(&number) {
            number = next(number);
        }
        if !leg.open(number, shared.mode) {
            return Err((Reason::Busy, "too many programs send datagrams".into()));
        }
        state.last_flow = number;
        let (to_program, from_leg) = mpsc::channel(PROGRAM_QUEUE_MAX);
        state.flows.insert(number, Flow { mode: shared.mode, to_program });
        Ok(Some(ProgramFlow { shared: Arc::clone(shared), number, from_leg }))
    }

    /// Asks the server for a leg and serves it whenever a program wants one. Never returns.
    pub(super) async fn keep(&self, trunks: &Servers, reports: &Reports) {
        loop {
            while !self.shared.lock().is_wanted {
                self.shared.work.notified().await;
            }
            let source = trunks.leg_source().await;
            match timeout(ANSWER_TIMEOUT, source.trunk.ask_leg(VERSION)).await {
                Ok(Ok(association)) if association.port != 0 && association.version == VERSION => {
                    self.serve(trunks, &source, association).await;
                    continue;
                }
                // Another trunk may succeed.
                Ok(Err(End::Closed | End::Connection(_) | End::Dead | End::Ended | End::GoAway(_))) => {
                    sleep(TICK).await;
                    continue;
                }
                Ok(_) => self.fail("the server takes no datagrams", reports),
                Err(_) => self.fail("the server does not know of datagrams, or does not answer", reports),
            }
            sleep(ASK_AGAIN).await;
            // After the pause, the server is asked again only if flows exist or a program wants one.
            let mut state = self.shared.lock();
            (state.failure, state.is_wanted) = (None, !state.flows.is_empty());
        }
    }

    fn fail(&self, why: &str, reports: &Reports) {
        let is_new = self.shared.lock().failure.replace(why.to_owned()).as_deref() != Some(why);
        if is_new {
            reports.put(Event::Notice(format!("no UDP for programs: {why}")));
        }
        self.shared.tell();
    }

    /// Runs a leg until it is to be replaced or no program uses it.
    async fn serve(&self, trunks: &Servers, source: &LegSource, association: Association) {
        let now = self.shared.clock.now();
        let protection = match &source.secret {
            Some(secret) => Protection::sealed(secret, association.number, Side::Client),
            None => Protection::plain(),
        };
        let mut leg = Leg::client(association.number, protection, Settings::default());
        let server = SocketAddr::new(source.server.ip(), association.port);
        let links = &self.shared.links;
        for i in 0..links.len().max(1) {
            if let Some(path) = leg.add_path(now, server) {
                leg.set_rank(path, links.get(i).map_or(0, |via| rank(via, links)));
            }
        }
        let mut sockets: Vec<Option<AsyncUdp>> = (0..links.len().max(1)).map(|_| None).collect();
        {
            let mut state = self.shared.lock();
            // The flows of the leg before continue on this leg.
            for (number, flow) in &state.flows {
                leg.open(*number, flow.mode);
            }
            (state.leg, state.failure) = (Some(leg), None);
        }
        let mut buffers = RecvBuffers::new();
        let (mut silent_since, mut used_at, mut looked_at) = (now, now, Time::ZERO);
        loop {
            let now = self.shared.clock.now();
            if now.since(looked_at) >= Span::from_millis(TICK.as_millis() as u64) || looked_at == Time::ZERO {
                looked_at = now;
                self.tend_sockets(&mut sockets, server);
                let is_moving = trunks.is_moving();
                let mut guard = self.shared.lock();
                let state = &mut *guard;
                if !state.flows.is_empty() {
                    used_at = now;
                } else if now.since(used_at) > KEPT_UNUSED {
                    (state.leg, state.is_wanted) = (None, false);
                    drop(guard);
                    // Programs that wait for a leg then ask for another one.
                    self.shared.tell();
                    return;
                }
                if let Some(leg) = state.leg.as_mut() {
                    if is_moving {
                        leg.note_traffic(now);
                    }
                    if leg.is_alive() {
                        silent_since = now;
                    }
                }
                drop(guard);
                if now.since(silent_since) > REPLACE_AFTER && trunks.answers() {
                    return;
                }
            }
            let deadline = self.step(&sockets);
            let received = std::future::poll_fn(|cx| {
                let mut has_come = false;
                for slot in &mut sockets {
                    let Some(socket) = slot else { continue };
                    let shared = &self.shared;
                    let done = socket.poll_receive(cx, &mut buffers, |received| {
                        has_come = true;
                        let now = shared.clock.now();
                        if let Some(leg) = shared.lock().leg.as_mut() {
                            for datagram in received.datagrams() {
                                // The leg counts invalid packets itself.
                                let _ = leg.receive(now, received.from, &mut datagram.to_vec());
                            }
                        }
                    });
                    match done {
                        Poll::Ready(Ok(())) => has_come = true,
                        // A socket that failed is closed; a new one replaces it later.
                        Poll::Ready(Err(_)) => *slot = None,
                        Poll::Pending => {}
                    }
                }
                if has_come { Poll::Ready(()) } else { Poll::Pending }
            });
            let pause = Duration::from_nanos(deadline.since(now).as_nanos()).min(LONGEST);
            tokio::select! {
                () = received => {}
                () = self.shared.work.notified() => {}
                () = sleep(pause.min(TICK)) => {}
            }
        }
    }

    /// Opens the missing sockets, and reopens those of paths that do not answer, because the address of their
    /// link may have changed.
    fn tend_sockets(&self, sockets: &mut [Option<AsyncUdp>], server: SocketAddr) {
        let alive: Vec<bool> =
            self.shared.lock().leg.iter().flat_map(Leg::health).map(|path| path.is_alive).collect();
        for (i, slot) in sockets.iter_mut().enumerate() {
            let is_alive = alive.get(i).copied().unwrap_or(false);
            if self.shared.watch.is_spent(i) {
                *slot = None;
                continue;
            }
            if slot.is_some() && is_alive {
                continue;
            }
            let egress = match self.shared.links.get(i) {
                Some(via) => Egress::parse(&via.name),
                None => Ok(Egress::any()),
            };
            match egress.and_then(|egress| AsyncUdp::connect(&egress, server)) {
                Ok(socket) => {
                    let is_same =
                        slot.as_ref().is_some_and(|old| old.local_addr().ip() == socket.local_addr().ip());
                    if !is_same {
                        *slot = Some(socket);
                    }
                }
                Err(_) => *slot = None,
            }
        }
    }

    /// Sends all packets that are due and hands datagrams to the programs. Returns the time of the leg's next
    /// deadline.
    fn step(&self, sockets: &[Option<AsyncUdp>]) -> Time {
        let now = self.shared.clock.now();
        let mut guard = self.shared.lock();
        let state = &mut *guard;
        let Some(leg) = state.leg.as_mut() else { return Time::NEVER };
        let mut buffer = Vec::new();
        transmit_all(leg, now, &mut buffer, |path, _, bytes, size| {
            if let Some(Some(socket)) = sockets.get(usize::from(path)) {
                socket.send(None, None, bytes, size);
            }
        });
        let mut has_changed = false;
        while let Some(event) = leg.poll_event() {
            match event {
                leg::Event::Datagram { flow, peer, bytes } => {
                    if let Some(flow) = state.flows.get(&flow) {
                        // If the program does not read, its datagrams are dropped.
                        let _ = flow.to_program.try_send((peer, bytes));
                    }
                }
                leg::Event::Path { .. } => has_changed = true,
            }
        }
        let deadline = leg.deadline(now);
        if has_changed {
            drop(guard);
            self.shared.tell();
        }
        deadline
    }
}

/// Returns the rank of a link: links with a lower cost have a lower rank, and backups have the highest.
fn rank(via: &Via, links: &[Via]) -> u8 {
    if via.is_backup {
        return u8::MAX;
    }
    let mut costs: Vec<u32> = links.iter().map(|link| link.cost).collect();
    costs.sort_unstable();
    costs.dedup();
    let place = costs.iter().position(|cost| *cost == via.cost).unwrap_or(0);
    u8::try_from(place).unwrap_or(u8::MAX - 1).min(u8::MAX - 1)
}

impl ProgramFlow {
    /// Sends a datagram if there is a leg; otherwise it is dropped.
    pub(super) fn send(&self, to: &Destination, bytes: Bytes) {
        let mut state = self.shared.lock();
        if let Some(leg) = state.leg.as_mut() {
            leg.send(self.shared.clock.now(), self.number, to, bytes);
        }
        drop(state);
        self.shared.work.notify_one();
    }

    /// Waits for the next datagram, and returns it with its sender.
    pub(super) async fn receive(&mut self) -> Option<(Destination, Bytes)> {
        self.from_leg.recv().await
    }

    /// Returns the next datagram with its sender, if one has already come.
    pub(super) fn receive_now(&mut self) -> Option<(Destination, Bytes)> {
        self.from_leg.try_recv().ok()
    }
}

impl Drop for ProgramFlow {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.flows.remove(&self.number);
        if let Some(leg) = state.leg.as_mut() {
            leg.forget(self.number);
        }
    }
}
