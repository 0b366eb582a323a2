//! The state that the task of a trunk and its handles share.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use anabranch_algo::Time;
use anabranch_net::Clock;

use crate::trunk::{Association, Destination, Event, GoAwayReason, Trunk};
use crate::trunk_task::end::End;
use crate::trunk_task::several::Several;

#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    clock: Clock,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) trunk: Trunk,
    /// The tasks that wait for bytes, for room and for the server's connection, by the number of the stream.
    pub(super) readers: BTreeMap<u32, Waker>,
    pub(super) writers: BTreeMap<u32, Waker>,
    pub(super) connectors: BTreeMap<u32, Waker>,
    /// The origins' addresses that the server reported, until they are taken.
    pub(super) connected: BTreeMap<u32, SocketAddr>,
    /// The client's streams that were not accepted yet, at most as many as the allowed streams.
    pub(super) accepts: VecDeque<(u32, Destination, bool)>,
    pub(super) acceptor: Option<Waker>,
    /// The tasks that wait for HELLO, for the end or for a leg.
    pub(super) waiting: Vec<Waker>,
    /// The trunk's task, while it waits.
    pub(super) task: Option<Waker>,
    /// Whether the connection takes no bytes now. Waking the task to send more is then useless.
    pub(super) is_blocked: bool,
    /// Whether no handle is left, and whether the trunk is to end at once.
    pub(super) is_dropped: bool,
    pub(super) is_closed: bool,
    /// The reason of the other side's GOAWAY.
    pub(super) peer_goes: Option<GoAwayReason>,
    /// The version in the client's request for a leg, and the server's answer.
    pub(super) leg_asked: Option<u16>,
    pub(super) leg: Option<Association>,
    pub(super) end: Option<End>,
    /// What the server has said for the choice among servers.
    pub(super) several: Several,
    /// The number of streams that were open at the end.
    pub(super) lost_streams: u32,
}

impl Shared {
    pub(super) fn new(trunk: Trunk, clock: Clock) -> Self {
        let state = State {
            trunk,
            readers: BTreeMap::new(),
            writers: BTreeMap::new(),
            connectors: BTreeMap::new(),
            connected: BTreeMap::new(),
            accepts: VecDeque::new(),
            acceptor: None,
            waiting: Vec::new(),
            task: None,
            is_blocked: false,
            is_dropped: false,
            is_closed: false,
            peer_goes: None,
            leg_asked: None,
            leg: None,
            end: None,
            several: Several::default(),
            lost_streams: 0,
        };
        Self { state: Mutex::new(state), clock }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // After a panic elsewhere, the machine is still in the state between two of its steps.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn now(&self) -> Time {
        self.clock.now()
    }

    /// Waits until `met` returns a value, or until the trunk has ended.
    pub(super) async fn wait<T>(&self, met: impl Fn(&State) -> Option<T>) -> Result<T, End> {
        std::future::poll_fn(|cx| {
            let mut state = self.lock();
            if let Some(value) = met(&state) {
                return Poll::Ready(Ok(value));
            }
            if let Some(end) = &state.end {
                return Poll::Ready(Err(end.clone()));
            }
            // A future that is polled again is listed only once.
            state.waiting.retain(|waker| !waker.will_wake(cx.waker()));
            state.waiting.push(cx.waker().clone());
            Poll::Pending
        })
        .await
    }
}

impl State {
    /// Wakes the task if the machine has something that can be sent.
    pub(super) fn wake_task(&mut self, now: Time) {
        if !self.is_blocked && self.trunk.has_to_send(now) {
            self.wake_task_always();
        }
    }

    pub(super) fn wake_task_always(&mut self) {
        if let Some(task) = self.task.take() {
            task.wake();
        }
    }

    /// Handles the machine's events, and adds the wakers of the affected tasks to `wakers`.
    pub(super) fn take_events(&mut self, wakers: &mut Vec<Waker>) {
        while let Some(event) = self.trunk.poll_event() {
            match event {
                Event::Hello(_) => wakers.append(&mut self.waiting),
                Event::Opened { stream, destination, wants_reply } => {
                    self.accepts.push_back((stream, destination, wants_reply));
                    wakers.extend(self.acceptor.take());
                }
                Event::Connected { stream, address } => {
                    self.connected.insert(stream, address);
                    wakers.extend(self.connectors.remove(&stream));
                }
                Event::Readable(stream) => wakers.extend(self.readers.remove(&stream)),
                Event::Writable(stream) => wakers.extend(self.writers.remove(&stream)),
                Event::Reset { stream, .. } => {
                    let lists = [&mut self.readers, &mut self.writers, &mut self.connectors];
                    wakers.extend(lists.into_iter().filter_map(|list| list.remove(&stream)));
                }
                Event::GoAway(reason) => {
                    self.peer_goes = Some(reason);
                    self.several.wake();
                }
                Event::Load(load) => self.several.note_load(load),
                Event::Distance { stream, rtt } => self.several.note_distance(stream, rtt),
                Event::Server { server, is_wanted } => self.several.note_server(server, is_wanted),
                Event::LegAsked(version) => {
                    self.leg_asked = Some(version);
                    wakers.append(&mut self.waiting);
                }
                Event::Leg(association) => {
                    self.leg = Some(association);
                    wakers.append(&mut self.waiting);
                }
            }
        }
    }

    /// Ends the trunk, and adds all wakers to `wakers`.
    pub(super) fn end(&mut self, end: End, wakers: &mut Vec<Waker>) {
        self.lost_streams = self.trunk.open_streams();
        self.trunk.close();
        self.take_events(wakers);
        for list in [&mut self.readers, &mut self.writers, &mut self.connectors] {
            wakers.extend(std::mem::take(list).into_values());
        }
        wakers.append(&mut self.waiting);
        wakers.extend(self.acceptor.take());
        // These streams have no handles yet.
        for (stream, ..) in std::mem::take(&mut self.accepts) {
            self.trunk.release(stream);
        }
        self.end = Some(end);
    }
}
