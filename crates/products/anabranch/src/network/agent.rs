//! The threads of a receiver or a publisher, beside its transfer, that talk with the services of a network.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use anabranch_algo::{Machine, Output, Span, Time};
use anabranch_net::Waker;
use anabranch_overlay::call::Sent;
use anabranch_overlay::client::{Event, Registered, Registration, Subscription};
use anabranch_overlay::domain::PathChoice;
use anabranch_overlay::message::Wanted;
use anabranch_overlay::publication::{Publication, ScopeKey};

use super::line_sockets::LineSockets;
use super::place::{Place, since_1970};
use crate::monitor::lock;
use crate::{Error, Result, Stop};

/// How often a publisher checks whether it still serves.
const LOOK_EVERY: Span = Span::from_millis(250);
/// How long a publisher that ends waits for its withdrawal to be acknowledged.
const WITHDRAW_WITHIN: Span = Span::from_millis(800);

/// A thread that is stopped when this is dropped.
struct Agent {
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl Agent {
    fn start(name: &str, stop: Stop, work: impl FnOnce(Stop) + Send + 'static) -> Result<Self> {
        let its = stop.clone();
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || work(its));
        let thread = thread.map_err(|e| Error::system(format!("cannot start a thread: {e}")).because(e))?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Polls a machine until it waits. Sends its frames, hands its events to `tell`, and returns until when it
/// waits.
pub(super) fn drain<M: Machine<Transmit = Sent>>(
    machine: &mut M,
    now: Time,
    place: &Place,
    sockets: &LineSockets,
    mut tell: impl FnMut(M::Event),
) -> Time {
    loop {
        match machine.poll(now) {
            Output::Send(sent) => {
                // The frame leaves by the line of the first link of its way.
                let hop = sent.way.links.first().and_then(|link| place.hop(*link));
                if let Some((from, forwarder)) = hop {
                    sockets.out.send(from, forwarder, &sent.frame, None);
                }
            }
            Output::Event(event) => tell(event),
            Output::Wait(until) => return until,
        }
    }
}

/// Waits for frames from forwarders, and hands them to the machine.
pub(super) fn listen<M: for<'a> Machine<Input<'a> = &'a [u8]>>(
    machine: &mut M,
    place: &Place,
    sockets: &mut LineSockets,
    until: Time,
    stop: &Stop,
) -> Result<()> {
    sockets.wait(until, stop, None)?;
    let now = sockets.clock.now();
    sockets.receive(|_, arrived| {
        place.routed(&arrived).for_each(|routed| machine.handle(now, routed.payload));
    })
}

/// A subscription on a thread of its own, whose events can be taken.
pub(crate) struct Watch {
    events: Arc<Mutex<VecDeque<Event>>>,
    _agent: Agent,
}

impl Watch {
    /// Begins to look for `wanted`, and for paths to it as `paths` says. `waker` is used when there is an
    /// event to take.
    ///
    /// # Errors
    /// - [`ErrorKind::System`](crate::ErrorKind::System) if the sockets cannot be opened.
    /// - [`ErrorKind::Unreachable`](crate::ErrorKind::Unreachable) if no line leads to the services.
    pub(crate) fn start(place: &Place, wanted: Wanted, paths: PathChoice, waker: Waker) -> Result<Self> {
        let mut sockets = LineSockets::bind(&place.addresses(), 0)?;
        let member = place.member(sockets.port(), sockets.clock)?;
        let now = sockets.clock.now();
        let mut subscription = Subscription::new(member, wanted, paths, now);
        if !subscription.can_reach_services() {
            return Err(Error::unreachable(format!(
                "in the domain {} no line leads from {} to rendezvous and topology manager",
                place.domain().name,
                place.node_name()
            )));
        }
        let events: Arc<Mutex<VecDeque<Event>>> = Arc::default();
        let (place, told) = (place.clone(), Arc::clone(&events));
        let agent = Agent::start("subscription", Stop::new()?, move |stop| {
            while !stop.is_stopped() {
                let now = sockets.clock.now();
                subscription.set_zero_since_1970(since_1970(sockets.clock));
                let until = drain(&mut subscription, now, &place, &sockets, |event| {
                    lock(&told).push_back(event);
                    waker.wake();
                });
                if listen(&mut subscription, &place, &mut sockets, until, &stop).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { events, _agent: agent })
    }

    /// Takes the events since the last call.
    pub(crate) fn take(&self) -> VecDeque<Event> {
        std::mem::take(&mut *lock(&self.events))
    }
}

/// Publications that are kept up until this is dropped, and are then withdrawn.
pub(crate) struct Publishing {
    events: Arc<Mutex<VecDeque<Registered>>>,
    _agent: Agent,
}

impl std::fmt::Debug for Publishing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Publishing(..)")
    }
}

impl Publishing {
    /// Begins to publish, until `outer` is stopped.
    ///
    /// # Errors
    /// [`ErrorKind::System`](crate::ErrorKind::System) if the sockets cannot be opened.
    pub(crate) fn start(
        place: &Place,
        key: Arc<ScopeKey>,
        publications: Vec<Publication>,
        outer: &Stop,
    ) -> Result<Self> {
        let mut sockets = LineSockets::bind(&place.addresses(), 0)?;
        let member = place.member(sockets.port(), sockets.clock)?;
        let mut registration = Registration::new(member, key, publications, sockets.clock.now());
        let events: Arc<Mutex<VecDeque<Registered>>> = Arc::default();
        let (place, told) = (place.clone(), Arc::clone(&events));
        let never = Stop::new()?;
        let agent = Agent::start("publications", Stop::below(outer)?, move |stop| {
            let mut end = Time::NEVER;
            loop {
                let now = sockets.clock.now();
                registration.set_zero_since_1970(since_1970(sockets.clock));
                if stop.is_stopped() && end == Time::NEVER {
                    registration.withdraw(now);
                    end = now + WITHDRAW_WITHIN;
                }
                let tell = |event| lock(&told).push_back(event);
                let until = drain(&mut registration, now, &place, &sockets, tell);
                if now >= end || registration.is_over() {
                    return;
                }
                // A stop that has been used stays readable, so it must not end the waits any more.
                let wakes = if end == Time::NEVER { &stop } else { &never };
                let until = until.min(end).min(now + LOOK_EVERY);
                if listen(&mut registration, &place, &mut sockets, until, wakes).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { events, _agent: agent })
    }

    /// Takes the events since the last call.
    pub(crate) fn take(&self) -> VecDeque<Registered> {
        std::mem::take(&mut *lock(&self.events))
    }
}
