//! The client's leg: programs' datagrams, over all links.
//!
//! One task has the machine and its sockets, one for each link. Programs' tasks put datagrams into the
//! machine and wake it; what comes waits for them in channels that are bounded. A leg that does not answer
//! any more while the server has a trunk is replaced by a new one; flows go on there. One that no program
//! uses is given up, so that a link is probed by trunks' watch alone ([`crate::links`]).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use anabranch_algo::{Span, Time};
use anabranch_net::{Clock, Egress, RecvBuffers};
use bytes::Bytes;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{sleep, timeout};

use crate::client::trunks::{LegSource, Trunks};
use crate::event::{Event, Reports};
use crate::leg::packet::VERSION;
use crate::leg::{self, FLOW_MAX, Leg, Mode, PathHealth, Protection, Settings};
use crate::leg_socket::{LegSocket, transmit_all};
use crate::links::Via;
use crate::links::watch::Links;
use crate::trunk::{Association, Destination, Reason, Side};
use crate::trunk_task::End;

/// Datagrams that wait for one program; more are dropped.
const PROGRAM_QUEUE_MAX: usize = 1_024;
/// A program waits so long for a leg that answers.
const PROGRAM_WAITS: Duration = Duration::from_secs(10);
/// The server may take so long to answer: one that knows of no legs never does.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// After that, or a refusal, it is asked again, over another trunk.
const ASK_AGAIN: Duration = Duration::from_secs(30);
/// A leg without an answer for so long is replaced, if the server has a trunk.
const REPLACE_AFTER: Span = Span::from_secs(3);
/// Between two looks at what moves on trunks, and at links that were not there.
const TICK: Duration = Duration::from_millis(500);
/// Without a flow for so long there is no leg any more: nothing is probed for nobody.
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
    /// Whether somebody wants a leg.
    is_wanted: bool,
    /// Why there is none.
    failure: Option<String>,
}

struct Shared {
    state: Mutex<State>,
    clock: Clock,
    /// Wakes the task.
    work: Notify,
    /// Counts what those who wait for a leg are to know.
    news: watch::Sender<u64>,
    mode: Mode,
    links: Vec<Via>,
    /// Knows which of them must carry no more.
    watch: Links,
}

/// The client's leg, if there is one. Clones are the same.
#[derive(Clone)]
pub(super) struct DatagramLeg {
    shared: Arc<Shared>,
}

/// A program's datagrams; the flow ends when this is dropped.
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
    /// One over these links; without any, over what the kernel picks.
    pub(super) fn new(links: Vec<Via>, watch: Links, mode: Mode) -> Self {
        let (state, work) = (Mutex::default(), Notify::new());
        let (news, clock) = (watch::Sender::new(0), Clock::start());
        Self { shared: Arc::new(Shared { state, clock, work, news, mode, links, watch }) }
    }

    /// How each path fares; its number is the place of its link. Empty while there is no leg.
    pub(super) fn health(&self) -> Vec<PathHealth> {
        self.shared.lock().leg.as_ref().map(Leg::health).unwrap_or_default()
    }

    /// Programs that send datagrams.
    pub(super) fn flows(&self) -> usize {
        self.shared.lock().flows.len()
    }

    /// A flow of a program; waits for a leg if there is none.
    pub(super) async fn open(&self) -> Result<ProgramFlow, (Reason, String)> {
        let mut news = self.shared.news.subscribe();
        let opening = async {
            loop {
                if let Some(flow) = self.open_now()? {
                    return Ok(flow);
                }
                // It fails only if the sender is gone, which this holds.
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

    /// Keeps a leg once one is wanted; never ends.
    pub(super) async fn keep(&self, trunks: &Trunks, reports: &Reports) {
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
                // Another trunk may do.
                Ok(Err(End::Closed | End::Connection(_) | End::Dead | End::Ended | End::GoAway(_))) => {
                    sleep(TICK).await;
                    continue;
                }
                Ok(_) => self.fail("the server takes no datagrams", reports),
                Err(_) => self.fail("the server does not know of datagrams, or does not answer", reports),
            }
            sleep(ASK_AGAIN).await;
            // The next program that wants one is why it is asked again.
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

    /// A leg, until it is to be replaced.
    async fn serve(&self, trunks: &Trunks, source: &LegSource, association: Association) {
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
        let mut sockets: Vec<Option<LegSocket>> = (0..links.len().max(1)).map(|_| None).collect();
        {
            let mut state = self.shared.lock();
            // Programs that sent datagrams over the leg before go on.
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
                    // Whoever waits for it wants another.
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
                                // What is wrong with it is counted there.
                                let _ = leg.receive(now, received.from, &mut datagram.to_vec());
                            }
                        }
                    });
                    match done {
                        Poll::Ready(Ok(())) => has_come = true,
                        // It is of no further use.
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

    /// Makes the sockets that are missing, and anew those of paths that do not answer: their link may have
    /// another address now.
    fn tend_sockets(&self, sockets: &mut [Option<LegSocket>], server: SocketAddr) {
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
            match egress.and_then(|egress| LegSocket::connect(&egress, server)) {
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

    /// Sends what is to be sent, hands out what has come; until when that is all.
    fn step(&self, sockets: &[Option<LegSocket>]) -> Time {
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
                        // A program that does not read loses its own.
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

/// The rank of a link: cheaper ones first, backups last.
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
    /// Sends a datagram, if it can be sent.
    pub(super) fn send(&self, to: &Destination, bytes: Bytes) {
        let mut state = self.shared.lock();
        if let Some(leg) = state.leg.as_mut() {
            leg.send(self.shared.clock.now(), self.number, to, bytes);
        }
        drop(state);
        self.shared.work.notify_one();
    }

    /// The next datagram that has come, and where from.
    pub(super) async fn receive(&mut self) -> Option<(Destination, Bytes)> {
        self.from_leg.recv().await
    }

    /// The same if there is one.
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
