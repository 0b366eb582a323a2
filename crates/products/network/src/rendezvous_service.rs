//! Runs a rendezvous. Its state is in memory and perhaps in a file, or in a server that several rendezvous
//! share.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;

use anabranch_algo::{Machine, Output, Span, Time};
use anabranch_overlay::rendezvous::shared::{Input, SharedRendezvous};
use anabranch_overlay::rendezvous::{Counters, Rendezvous};
use serde::Serialize;

use super::event::ServiceEvent;
use super::keys::services_key;
use super::service_loop::{Service, answer, messages, run};
use super::state::{State, StateStats};
use super::state_server::{Link, SharedStateStats, StateAt};
use anabranch::network::line_sockets::{Arrived, Outlets};
use anabranch::network::{Place, since_1970};
use anabranch::text::seconds;
use anabranch::{Control, Result, Stop};

/// The statistics of a rendezvous.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct RendezvousStats {
    /// The time since the start, in seconds.
    pub elapsed_s: f64,
    /// The number of publications that are kept now. `None` with a shared server, which does not report how
    /// many are valid.
    pub kept: Option<usize>,
    /// The number of accepted publications, including renewals of leases.
    pub published: u64,
    /// The number of refused publications, by reason.
    pub refused: BTreeMap<&'static str, u64>,
    /// The number of answered lookups.
    pub lookups: u64,
    /// How many of `lookups` found no publication.
    pub unknown: u64,
    /// The number of pages of the list of publications that were sent.
    pub pages: u64,
    /// The number of malformed messages.
    pub dropped: u64,
    /// The statistics of the state, if it is a file.
    pub state: Option<StateStats>,
    /// The statistics of the state, if it is a server.
    pub shared_state: Option<SharedStateStats>,
}

/// Runs a rendezvous at the domain's node for it, until `stop` is stopped or `listener` answers
/// [`Control::Stop`]. It keeps publications, answers lookups and lists what is
/// published.
///
/// If `state` is a file, each publication is in the file before it is confirmed, and the next start reads it.
/// If `state` is a server, the publications are only there, and other rendezvous of the same domain may share
/// it.
///
/// # Errors
/// [`ErrorKind::Usage`](anabranch::ErrorKind::Usage) if the domain has another node for the rendezvous, if
/// the key is missing or wrong, or if the state is of another kind;
/// [`ErrorKind::Target`](anabranch::ErrorKind::Target) if a file cannot be used or written;
/// [`ErrorKind::Unreachable`](anabranch::ErrorKind::Unreachable) if a server does not answer at the start;
/// [`ErrorKind::System`](anabranch::ErrorKind::System) if it cannot listen.
pub fn rendezvous(
    place: &Place,
    state: Option<&StateAt>,
    stop: &Stop,
    listener: &mut dyn FnMut(ServiceEvent<RendezvousStats>) -> Control,
) -> Result<RendezvousStats> {
    let service = place.domain().rendezvous;
    place.must_be_at("rendezvous", service)?;
    let domain = place.domain();
    let key = services_key(place)?;
    if let Some(StateAt::Server(server)) = state {
        let start = |clock: anabranch_net::Clock| {
            let (link, told) = Link::open(server, &domain.name)?;
            let mut machine = SharedRendezvous::new(domain.clone());
            if let Some(key) = key {
                machine = machine.with_key(key);
            }
            Ok(SharedService { machine, clock, link, told: Some(told) })
        };
        return run(place, service.port, start, stop, listener);
    }
    let start = |clock: anabranch_net::Clock| {
        let mut machine = Rendezvous::new(domain.clone());
        if let Some(key) = key {
            machine = machine.with_key(key);
        }
        let now = clock.now() + since_1970(clock);
        let state = match state {
            Some(StateAt::File(path)) => Some(State::open(path, domain, now, &mut machine)?),
            _ => None,
        };
        let (state, told) = state.unzip();
        Ok(FileService { machine, clock, state, told })
    };
    run(place, service.port, start, stop, listener)
}

impl RendezvousStats {
    fn new(now: Time, counters: &Counters) -> Self {
        Self {
            elapsed_s: seconds(now.since(Time::ZERO)),
            published: counters.published,
            refused: counters.refused.clone(),
            lookups: counters.lookups,
            unknown: counters.unknown,
            pages: counters.pages,
            dropped: counters.dropped,
            ..Self::default()
        }
    }
}

/// Converts a time since 1970 to the loop's own clock.
fn by_own_clock(until: Time, zero_since_1970: Span) -> Time {
    match until {
        Time::NEVER => until,
        _ => Time::ZERO + until.since(Time::ZERO + zero_since_1970),
    }
}

/// A rendezvous that keeps its state itself.
struct FileService {
    machine: Rendezvous,
    clock: anabranch_net::Clock,
    state: Option<State>,
    /// A message for people about the start.
    told: Option<String>,
}

impl FileService {
    fn write(&mut self) -> Result<()> {
        self.state.as_mut().map_or(Ok(()), State::write)
    }
}

impl Service for FileService {
    type Stats = RendezvousStats;

    fn receive(&mut self, now: Time, place: &Place, _: &Outlets, arrived: Arrived<'_>) {
        let now = now + since_1970(self.clock);
        // Messages wait in the machine until it is polled; the packets of one turn limit them.
        messages(place, &arrived).for_each(|message| self.machine.handle(now, message));
    }

    fn poll(&mut self, now: Time, place: &Place, out: &Outlets, notices: &mut Vec<String>) -> Result<Time> {
        notices.extend(self.told.take());
        // The date is read each time, because the system's clock may be set, and the loop's clock may stop
        // while the machine sleeps.
        let zero_since_1970 = since_1970(self.clock);
        loop {
            match self.machine.poll(now + zero_since_1970) {
                Output::Event(change) => {
                    if let Some(state) = &mut self.state {
                        state.push(change);
                    }
                }
                // All changes come before the first answer, so one commit covers all messages that have
                // arrived.
                Output::Send(sent) => {
                    self.write()?;
                    answer(place, out, &sent.to, &sent.message);
                }
                Output::Wait(until) => {
                    self.write()?;
                    return Ok(by_own_clock(until, zero_since_1970));
                }
            }
        }
    }

    fn stats(&self, now: Time, _: &Place) -> RendezvousStats {
        RendezvousStats {
            kept: Some(self.machine.len()),
            state: self.state.as_ref().map(|state| state.stats().clone()),
            ..RendezvousStats::new(now, self.machine.counters())
        }
    }
}

/// A rendezvous that shares its state with others.
struct SharedService {
    machine: SharedRendezvous,
    clock: anabranch_net::Clock,
    link: Link,
    /// A message for people about the start.
    told: Option<String>,
}

impl Service for SharedService {
    type Stats = RendezvousStats;

    fn receive(&mut self, now: Time, place: &Place, _: &Outlets, arrived: Arrived<'_>) {
        let now = now + since_1970(self.clock);
        messages(place, &arrived).for_each(|(from, bytes)| {
            self.machine.handle(now, Input::Message(from, bytes));
        });
    }

    fn wake(&self) -> Option<BorrowedFd<'_>> {
        Some(self.link.wake())
    }

    fn poll(&mut self, now: Time, place: &Place, out: &Outlets, notices: &mut Vec<String>) -> Result<Time> {
        notices.extend(self.told.take());
        let zero_since_1970 = since_1970(self.clock);
        let now = now + zero_since_1970;
        for (id, told) in self.link.told(notices) {
            self.machine.handle(now, Input::Told(id, told));
        }
        loop {
            match self.machine.poll(now) {
                Output::Event(query) => self.link.ask(query),
                Output::Send(sent) => answer(place, out, &sent.to, &sent.message),
                Output::Wait(until) => return Ok(by_own_clock(until, zero_since_1970)),
            }
        }
    }

    fn stats(&self, now: Time, _: &Place) -> RendezvousStats {
        let counted = self.machine.shared_counters();
        let shared_state = SharedStateStats {
            unanswered: counted.unanswered,
            unbelieved: counted.unbelieved,
            conflicts: counted.conflicts,
            ..self.link.stats().clone()
        };
        RendezvousStats {
            shared_state: Some(shared_state),
            ..RendezvousStats::new(now, self.machine.counters())
        }
    }
}
