//! HTTP in a simulated world: scripted mirrors, whose answers are read by the client's own code.

use std::collections::{BTreeMap, VecDeque};

use anabranch_algo::{Span, Time};
use anabranch_http::client::testing::{Answer, Connection, Patience, Reply, Request, Then};
use anabranch_http::client::{Event, FetchError, FetchId, FetchRequest, RouteId};

use super::mirror::Servers;

/// All mirrors, and the fetches under way from them.
pub(super) struct Mirrors {
    /// The mirrors by their hosts.
    servers: Servers,
    patience: Patience,
    routes: BTreeMap<RouteId, Route>,
}

/// The fetches over one route, which are answered one after the other.
#[derive(Default)]
struct Route {
    waiting: VecDeque<Waiting>,
    now: Option<Running>,
    connection: Connection,
}

/// A fetch whose turn has not come.
struct Waiting {
    id: FetchId,
    request: FetchRequest,
    /// The link of the fetch; `None` if there is none.
    link: Option<usize>,
    asked_at: Time,
}

/// A fetch that is being answered.
struct Running {
    id: FetchId,
    /// The link of the answer; `None` if the answer depends on no link.
    link: Option<usize>,
    /// The time at which its turn began.
    began_at: Time,
    next: Option<(Span, Event)>,
    answer: Option<Answer>,
}

impl Running {
    /// Returns the time of its next event.
    fn at(&self) -> Time {
        self.next.as_ref().map_or(self.began_at, |(after, _)| self.began_at + *after)
    }
}

impl Route {
    /// Begins the next fetch in the queue.
    fn begin(&mut self, now: Time, patience: Patience, servers: &Servers) {
        let Some(Waiting { id, request, link, asked_at }) = self.waiting.pop_front() else { return };
        if link.is_none() {
            let error = FetchError::Unreachable("no link".to_owned());
            let next = Some((Span::from_millis(1), Event::Failed { id, error }));
            self.now = Some(Running { id, link, began_at: now, next, answer: None });
            return;
        }
        let connection = std::mem::take(&mut self.connection);
        let mut server = |asked: &Request, after: Span| match servers.get(&asked.host) {
            Some(mirror) => mirror.answer(asked, (now + after).since(Time::ZERO)),
            None => Reply::nothing(Then::Refuse),
        };
        // The request was sent right behind the one before, if the connection stayed open.
        let mut answer = Answer::new(id, &request, connection, patience, now.since(asked_at), &mut server);
        let next = answer.next_event();
        self.now = Some(Running { id, link, began_at: now, next, answer: Some(answer) });
    }

    /// Takes the next event of the fetch that is being answered.
    fn take(&mut self) -> Option<(Option<usize>, Event)> {
        let running = self.now.as_mut()?;
        let (link, taken) = (running.link, running.next.take());
        running.next = running.answer.as_mut().and_then(Answer::next_event);
        if running.next.is_none() {
            let ended = self.now.take();
            self.connection =
                ended.and_then(|ended| ended.answer).map(Answer::into_connection).unwrap_or_default();
        }
        taken.map(|(_, event)| (link, event))
    }
}

impl Mirrors {
    pub(super) fn new(servers: Servers, idle: Span) -> Self {
        let patience = Patience { connect: Span::from_secs(10), idle };
        Self { servers, patience, routes: BTreeMap::new() }
    }

    pub(super) fn fetch(&mut self, now: Time, id: FetchId, request: FetchRequest, link: Option<usize>) {
        let route = self.routes.entry(request.route).or_default();
        route.waiting.push_back(Waiting { id, request, link, asked_at: now });
        if route.now.is_none() {
            route.begin(now, self.patience, &self.servers);
        }
    }

    pub(super) fn cancel(&mut self, now: Time, id: FetchId) {
        for route in self.routes.values_mut() {
            route.waiting.retain(|waiting| waiting.id != id);
            if route.now.take_if(|running| running.id == id).is_some() {
                // The connection of a canceled fetch is closed.
                route.begin(now, self.patience, &self.servers);
            }
        }
    }

    /// Returns the time of the next event.
    pub(super) fn next(&self) -> Time {
        let running = self.routes.values().filter_map(|route| route.now.as_ref());
        running.map(Running::at).fold(Time::NEVER, Time::min)
    }

    /// Ends all answers over a link that is gone. The client notices after its patience.
    pub(super) fn lose(&mut self, now: Time, link: usize) {
        for route in self.routes.values_mut() {
            if let Some(running) = route.now.as_mut().filter(|running| running.link == Some(link)) {
                let error = FetchError::Broken("nothing comes".to_owned());
                running.next = Some((self.patience.idle, Event::Failed { id: running.id, error }));
                (running.began_at, running.answer, running.link) = (now, None, None);
            }
        }
    }

    /// Hands over all events up to `now` in the order of their times, and counts bytes of bodies by link.
    pub(super) fn take(&mut self, now: Time, came: &mut [u64], into: &mut Vec<Event>) {
        loop {
            let due = self.routes.values_mut().filter(|route| route.now.is_some());
            let at = |route: &Route| route.now.as_ref().map_or(Time::NEVER, Running::at);
            let Some(route) = due.min_by_key(|route| at(route)).filter(|route| at(route) <= now) else {
                return;
            };
            let began_at = at(route);
            if let Some((link, event)) = route.take() {
                if let (Some(link), Event::Body { bytes, .. }) = (link, &event) {
                    came[link] += bytes.len() as u64;
                }
                into.push(event);
            }
            if route.now.is_none() {
                route.begin(began_at, self.patience, &self.servers);
            }
        }
    }

    pub(super) fn reset(&mut self) {
        for route in self.routes.values_mut() {
            route.waiting.clear();
            if route.now.take().is_some() {
                route.connection = Connection::default();
            }
        }
    }
}
