//! A stack in the runtime: its clock, its timer and the connections of programs.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Debug;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use anabranch_algo::{Machine as _, Output, Span, Time};
use anabranch_mptcp::datagram::UDP_HEADER_BYTES;
use anabranch_mptcp::{
    Config, ConnectionEvent, ConnectionId, Input, Seed, Segment, Stack, SubflowError, TcpConfig,
};
use anabranch_net::Clock;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::batch::Batch;
use crate::connection::Connection;

/// The largest IP packet, bytes. Tunnels and mobile networks carry it.
const PACKET_BYTES: u16 = 1_400;
/// The silence after which an idle subflow is probed, so that NATs do not forget it (RFC 4787, REQ-5: two
/// minutes at least; many take 30 s).
const KEEPALIVE: Span = Span::from_secs(20);
/// A subflow's addresses are used once, so old segments meet no new subflow.
const TIME_WAIT: Span = Span::from_secs(10);
/// The retransmissions without an answer after which a subflow is given up, which take 73 s.
/// [`datagram`](anabranch_mptcp::datagram) says why it must not be more.
const RETRIES_MAX: u32 = 12;
/// How long after its end a subflow is made again.
const REJOIN_AFTER: Span = Span::from_secs(1);
/// The bytes that a program may write ahead of what was sent. More urgent bytes cannot overtake them.
const NOT_SENT_MAX: u64 = 64 * 1024;
/// The most connections that wait to be accepted; further ones are reset.
const ACCEPTED_MAX: usize = 1_024;
/// The time that a connection without a program has to deliver its last bytes.
const LINGER: Span = Span::from_secs(10);
/// The time between two looks for sockets without a subflow and for connections that linger.
const SWEEP_EVERY: Span = Span::from_secs(1);

/// Returns the settings of a stack in UDP. The client adds its addresses.
#[must_use]
pub fn config() -> Config {
    let tcp = TcpConfig {
        mtu_bytes: PACKET_BYTES - UDP_HEADER_BYTES,
        keepalive: Some(KEEPALIVE),
        time_wait: TIME_WAIT,
        retries_max: RETRIES_MAX,
        ..TcpConfig::default()
    };
    Config { tcp, rejoin_after: Some(REJOIN_AFTER), ..Config::default() }
}

/// Sends datagrams for a host.
pub trait Wire: Debug + Send + Sync {
    /// Sends datagrams of `segment` bytes each, of which the last may be shorter, between these ends of a
    /// subflow. Never blocks; what cannot be sent is lost.
    fn send(&self, from: SocketAddr, to: SocketAddr, bytes: &[u8], segment: usize);

    /// Returns the address that packets have whose subflow has this local end.
    fn address_of(&self, local: SocketAddr) -> SocketAddr {
        local
    }

    /// Closes the sockets of local ends that no subflow uses.
    fn retain(&self, _is_used: &dyn Fn(SocketAddr) -> bool) {}
}

/// A host: a stack with its timer. Clones are the same host. A task must [run](Host::run) it.
#[derive(Clone, Debug)]
pub struct Host {
    pub(crate) shared: Arc<Shared>,
}

/// The parts that all connections of a host share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) wire: Arc<dyn Wire>,
    clock: Clock,
    state: Mutex<State>,
    /// Wakes the timer, because something is due earlier than it waits for.
    timer: Notify,
}

/// The program's end of a connection.
#[derive(Debug, Default)]
pub(crate) struct End {
    pub(crate) reader: Option<Waker>,
    pub(crate) writer: Option<Waker>,
    pub(crate) is_established: bool,
    pub(crate) is_peer_finished: bool,
    /// How the connection has ended.
    pub(crate) closed: Option<Option<SubflowError>>,
}

/// The stack and the ends of its connections.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) stack: Stack,
    batch: Batch,
    pub(crate) ends: BTreeMap<ConnectionId, End>,
    /// Connections whose program has gone, each with the time at which it is reset.
    lingering: BTreeMap<ConnectionId, Time>,
    accepted: VecDeque<(ConnectionId, SocketAddr)>,
    acceptor: Option<Waker>,
    /// When the stack next has something to do, and the time until which the timer sleeps.
    wake_at: Time,
    timer_at: Time,
    sweep_at: Time,
    wakers: Vec<Waker>,
}

impl State {
    fn note(&mut self, now: Time, id: ConnectionId, event: ConnectionEvent) {
        if let ConnectionEvent::Established { .. } = event
            && !self.ends.contains_key(&id)
            && !self.lingering.contains_key(&id)
        {
            return self.accept(now, id);
        }
        let Some(end) = self.ends.get_mut(&id) else {
            if let ConnectionEvent::Closed { .. } = event {
                self.lingering.remove(&id);
            }
            return self.discard(id);
        };
        match event {
            ConnectionEvent::Established { .. } => end.is_established = true,
            ConnectionEvent::PeerFinished => end.is_peer_finished = true,
            ConnectionEvent::Closed { error } => {
                end.closed = Some(error);
                self.wakers.extend(end.writer.take());
            }
            ConnectionEvent::Readable => {}
            _ => return,
        }
        self.wakers.extend(end.reader.take());
    }

    /// Takes a connection that the peer has begun.
    fn accept(&mut self, now: Time, id: ConnectionId) {
        let peer = self.stack.subflows(id).first().map(|subflow| subflow.remote);
        let Some(peer) = peer.filter(|_| self.accepted.len() < ACCEPTED_MAX) else {
            self.lingering.insert(id, now);
            return;
        };
        self.ends.insert(id, End { is_established: true, ..End::default() });
        self.accepted.push_back((id, peer));
        self.wakers.extend(self.acceptor.take());
    }

    /// Reads what has come for a program that has gone.
    fn discard(&mut self, id: ConnectionId) {
        let mut nothing = [0; 4_096];
        while self.stack.read(id, &mut nothing) > 0 {}
    }

    /// Returns the bytes that the program may write now.
    pub(crate) fn writable(&self, id: ConnectionId) -> u64 {
        NOT_SENT_MAX.saturating_sub(self.stack.unsent(id)).min(self.stack.writable(id))
    }

    /// Lets a connection end without its program.
    pub(crate) fn linger(&mut self, now: Time, id: ConnectionId) {
        let end = self.ends.remove(&id);
        if end.is_some_and(|end| end.closed.is_none()) {
            self.stack.finish(id);
            self.lingering.insert(id, now + LINGER);
        }
        self.discard(id);
    }

    /// Sends everything that is due, and takes the stack's events.
    fn drain(&mut self, now: Time, wire: &dyn Wire) {
        loop {
            match self.stack.poll(now) {
                Output::Send(segment) => self.batch.push(&segment, wire),
                Output::Event((id, event)) => self.note(now, id, event),
                Output::Wait(at) => {
                    self.wake_at = at;
                    break;
                }
            }
        }
        self.batch.flush(wire);
        for (id, end) in &mut self.ends {
            let writable = NOT_SENT_MAX.saturating_sub(self.stack.unsent(*id)).min(self.stack.writable(*id));
            if end.writer.is_some() && writable >= NOT_SENT_MAX / 2 {
                self.wakers.extend(end.writer.take());
            }
        }
    }

    fn sweep(&mut self, now: Time, wire: &dyn Wire) {
        if now < self.sweep_at {
            return;
        }
        self.sweep_at = now + SWEEP_EVERY;
        let late: Vec<_> =
            self.lingering.extract_if(.., |_, until| *until <= now).map(|(id, _)| id).collect();
        late.into_iter().for_each(|id| self.stack.abort(id));
        wire.retain(&|local| self.stack.has_subflow_at(local));
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, then sends everything that is due and wakes those who wait for it.
    pub(crate) fn with<R>(&self, change: impl FnOnce(&mut State, Time) -> R) -> R {
        let mut state = self.lock();
        let now = self.clock.now();
        let result = change(&mut state, now);
        state.drain(now, &*self.wire);
        let wakers = std::mem::take(&mut state.wakers);
        let is_sooner = state.wake_at < state.timer_at;
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        if is_sooner {
            self.timer.notify_one();
        }
        result
    }
}

impl Host {
    /// Creates a host whose datagrams `wire` sends. `seed` must be random and secret.
    #[must_use]
    pub fn new(config: Config, seed: Seed, wire: Arc<dyn Wire>) -> Self {
        let state = State {
            stack: Stack::new(config, seed),
            batch: Batch::default(),
            ends: BTreeMap::new(),
            lingering: BTreeMap::new(),
            accepted: VecDeque::new(),
            acceptor: None,
            wake_at: Time::NEVER,
            timer_at: Time::NEVER,
            sweep_at: Time::ZERO,
            wakers: Vec::new(),
        };
        let (clock, state, timer) = (Clock::start(), Mutex::new(state), Notify::new());
        Self { shared: Arc::new(Shared { wire, clock, state, timer }) }
    }

    /// Accepts connections at `port` from now on.
    pub fn listen(&self, port: u16) {
        self.shared.with(|state, _| state.stack.listen(port));
    }

    /// Handles segments that have arrived.
    pub fn handle(&self, segments: &[Segment]) {
        if segments.is_empty() {
            return;
        }
        self.shared.with(|state, now| {
            segments.iter().for_each(|segment| state.stack.handle(now, Input::Segment(segment)));
        });
    }

    /// Sends what is due by time. Never returns; dropping the future stops the host.
    pub async fn run(&self) {
        loop {
            let wait = {
                let mut state = self.shared.lock();
                state.timer_at = state.wake_at.min(state.sweep_at);
                state.timer_at.since(self.shared.clock.now())
            };
            let _ = timeout(Duration::from_nanos(wait.as_nanos()), self.shared.timer.notified()).await;
            self.shared.with(|state, now| state.sweep(now, &*self.shared.wire));
        }
    }

    /// Begins a connection, first from `local` and then, if that is not answered, from the other addresses.
    ///
    /// # Errors
    /// If the peer refuses the connection or does not answer.
    pub async fn connect(&self, local: IpAddr, remote: SocketAddr) -> io::Result<Connection> {
        let id = self.shared.with(|state, now| {
            let id = state.stack.connect(now, local, remote)?;
            state.ends.insert(id, End::default());
            Some(id)
        });
        let none = || io::Error::new(io::ErrorKind::AddrNotAvailable, "all ports are in use");
        // Dropping the connection ends the attempt.
        let connection = Connection::new(Arc::clone(&self.shared), id.ok_or_else(none)?, remote);
        poll_fn(|cx| connection.poll_established(cx)).await?;
        Ok(connection)
    }

    /// Waits for the next connection that a peer begins.
    pub async fn accept(&self) -> Connection {
        poll_fn(|cx| self.poll_accept(cx)).await
    }

    fn poll_accept(&self, cx: &Context<'_>) -> Poll<Connection> {
        let mut state = self.shared.lock();
        match state.accepted.pop_front() {
            Some((id, peer)) => Poll::Ready(Connection::new(Arc::clone(&self.shared), id, peer)),
            None => {
                state.acceptor = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Returns how many half-open connections of `port` gave way to others.
    #[must_use]
    pub fn displaced(&self, port: u16) -> u64 {
        self.shared.lock().stack.displaced(port)
    }
}
