//! The state of a host: its stack, the ends of its connections, and the tasks that wait for them.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use anabranch_algo::{Machine as _, Output, Span, Time};
use anabranch_mptcp::{ConnectionEvent, ConnectionId, Stack, SubflowError};
use anabranch_net::Clock;
use tokio::sync::Notify;

use crate::batch::Batch;
use crate::wire::Wire;

/// The bytes that a program may write ahead of what was sent. More urgent bytes cannot overtake them.
const NOT_SENT_MAX: u64 = 64 * 1024;
/// The most connections that wait to be accepted; further ones are reset.
const ACCEPTED_MAX: usize = 1_024;
/// The time that a connection without a program has to deliver its last bytes.
const LINGER: Span = Span::from_secs(10);
/// The most connections without a program; the one that has the least time left is reset for another one.
const LINGERING_MAX: usize = 256;
/// The time between two looks for sockets without a subflow and for connections that linger.
const SWEEP_EVERY: Span = Span::from_secs(1);

/// The parts that all connections of a host share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) wire: Arc<dyn Wire>,
    pub(crate) clock: Clock,
    state: Mutex<State>,
    /// Wakes the timer, because something is due earlier than it waits for.
    pub(crate) timer: Notify,
}

/// The program's end of a connection.
#[derive(Debug, Default)]
pub(crate) struct End {
    pub(crate) reader: Option<Waker>,
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
    /// The programs that wait until they may write.
    pub(crate) writers: BTreeMap<ConnectionId, Waker>,
    /// Connections whose program has gone, each with the time at which it is reset.
    lingering: BTreeMap<ConnectionId, Time>,
    pub(crate) accepted: VecDeque<(ConnectionId, SocketAddr)>,
    pub(crate) acceptor: Option<Waker>,
    /// When the stack next has something to do, and the time until which the timer sleeps.
    pub(crate) wake_at: Time,
    pub(crate) timer_at: Time,
    pub(crate) sweep_at: Time,
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
                self.wakers.extend(self.writers.remove(&id));
            }
            ConnectionEvent::Readable => {}
            _ => return,
        }
        self.wakers.extend(end.reader.take());
    }

    /// Takes a connection that the peer has begun.
    fn accept(&mut self, now: Time, id: ConnectionId) {
        let peer = self.stack.subflows(id).next().map(|subflow| subflow.remote);
        let Some(peer) = peer.filter(|_| self.accepted.len() < ACCEPTED_MAX) else {
            self.keep_for(now, id);
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
        self.writers.remove(&id);
        if end.is_some_and(|end| end.closed.is_none()) {
            self.stack.finish(id);
            self.keep_for(now + LINGER, id);
        }
        self.discard(id);
    }

    /// Keeps a connection without a program until a time. If there are too many, resets the one that has the
    /// least time left.
    fn keep_for(&mut self, until: Time, id: ConnectionId) {
        self.lingering.insert(id, until);
        if self.lingering.len() > LINGERING_MAX
            && let Some((next, _)) = self.lingering.iter().min_by_key(|(_, until)| **until)
        {
            let next = *next;
            self.lingering.remove(&next);
            self.stack.abort(next);
        }
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
        for (id, waker) in std::mem::take(&mut self.writers) {
            if self.writable(id) >= NOT_SENT_MAX / 2 {
                self.wakers.push(waker);
            } else {
                self.writers.insert(id, waker);
            }
        }
    }

    /// Resets connections that have lingered, and closes sockets without a subflow, once a second.
    pub(crate) fn sweep(&mut self, now: Time, wire: &dyn Wire) {
        if now < self.sweep_at {
            return;
        }
        self.sweep_at = now + SWEEP_EVERY;
        let late: Vec<ConnectionId> =
            self.lingering.iter().filter(|(_, until)| **until <= now).map(|(id, _)| *id).collect();
        self.lingering.retain(|_, until| *until > now);
        late.into_iter().for_each(|id| self.stack.abort(id));
        wire.retain(&|local| self.stack.has_subflow_at(local));
    }
}

impl Shared {
    /// Creates the parts of a host without connections.
    pub(crate) fn new(stack: Stack, wire: Arc<dyn Wire>) -> Self {
        let state = State {
            stack,
            batch: Batch::default(),
            ends: BTreeMap::new(),
            writers: BTreeMap::new(),
            lingering: BTreeMap::new(),
            accepted: VecDeque::new(),
            acceptor: None,
            wake_at: Time::NEVER,
            timer_at: Time::NEVER,
            sweep_at: Time::ZERO,
            wakers: Vec::new(),
        };
        Self { wire, clock: Clock::start(), state: Mutex::new(state), timer: Notify::new() }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, then sends everything that is due and wakes the tasks that wait for it.
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
