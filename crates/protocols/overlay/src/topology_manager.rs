//! The topology manager knows the state of the domain's links, and tells receivers their paths: when they
//! ask, and again when a link changes that matters to them.
//!
//! Finding paths takes milliseconds in a large domain. So questions wait, those of each host in a queue of
//! its own, and the hosts have [turns](anabranch_algo::fair_share): a host that asks without end delays the
//! others by one question.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use anabranch_algo::fair_share::Turns;
use anabranch_algo::{Machine, Output, Span, Time};
use anabranch_mmtp::peer::Peer;
use anabranch_topology::graph::{LinkId, NodeId};
use anabranch_topology::keyed::DomainKey;
use anabranch_topology::plan::Policy;

use crate::domain::{Domain, PATHS_MAX, PlannedWay};
use crate::frame;
use crate::message::{
    Body, DOWN_MAX, Down, LinkReport, LinkState, Message, PathsRequest, Route, Routes, refusal,
};
use crate::seal::Sealer;

/// The most receivers that learn of changes.
const WATCHERS_MAX: usize = 100_000;
/// The most of them at one host.
const WATCHERS_OF_A_HOST_MAX: usize = 64;
/// The most questions of one host that wait. Further ones are dropped: a host without an answer asks again.
const QUESTIONS_OF_A_HOST_MAX: usize = 8;
/// The questions that are answered in one turn; then the world looks for what has arrived.
const QUESTIONS_A_TURN: usize = 2;
/// How often changed paths are sent if they are not acknowledged, and the time between two attempts.
const PUSHES_MAX: u32 = 8;
const PUSH_WAIT: Span = Span::from_millis(200);
/// The longest time for which a receiver can ask for changes.
const LEASE_MAX: Span = Span::from_secs(60);
/// The receivers whose paths are found or sent in one turn, because a line has changed or they did not
/// acknowledge. The others follow in later turns, after messages that arrive in between.
const WATCHERS_A_TURN: usize = 8;
/// The time from one turn to the next, if there is more work.
const TURN_PAUSE: Span = Span::from_micros(50);

/// A message and its destination.
#[derive(Clone, Debug, PartialEq)]
pub enum Outgoing {
    /// An answer, without [`Peer::prefix`].
    Answer {
        /// The member that asked.
        to: Peer,
        /// The message.
        message: Vec<u8>,
    },
    /// A complete frame that was not asked for; its first link gives the line by which it leaves.
    Push {
        /// The first link of the way.
        first: LinkId,
        /// The frame.
        frame: Vec<u8>,
    },
}

/// A change of the domain's lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A line is down in both directions, or is up again.
    Line {
        /// One of the two links of the line.
        link: LinkId,
        /// Whether the line is up.
        up: bool,
    },
}

/// Counts the work of a topology manager.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Answered requests: for paths, or for the lines that are down.
    pub requests: u64,
    /// Link states accepted.
    pub link_states: u64,
    /// How often paths were sent because a link changed.
    pub pushes: u64,
    /// Messages refused or dropped.
    pub dropped: u64,
}

/// The last report about a link, by the node where it begins. The link counts as up until a report says
/// otherwise.
#[derive(Clone, Copy, Debug)]
struct LinkInfo {
    up: bool,
    delay: Option<Span>,
}

/// The host that asked, and the number of its call.
type WatcherKey = (NodeId, u64);

/// A receiver that learns of changes.
#[derive(Debug)]
struct Watcher {
    request: PathsRequest,
    until: Time,
    routes: Routes,
    /// The links of the receiver's paths.
    links: BTreeSet<LinkId>,
    /// How often the present routes were pushed, and when they are pushed again.
    push: Option<(u32, Time)>,
    /// Whether the receiver waits for its paths to be found again.
    is_stale: bool,
}

impl Watcher {
    /// Returns when the receiver needs attention.
    fn due(&self) -> Time {
        self.push.map_or(self.until, |(_, at)| at.min(self.until))
    }
}

/// A question for paths that waits for its turn.
#[derive(Debug)]
struct Question {
    from: Peer,
    call: u64,
    request: PathsRequest,
}

/// The machine of a topology manager; see the [module](self).
#[derive(Debug)]
pub struct TopologyManager {
    domain: Arc<Domain>,
    links: Vec<LinkInfo>,
    /// Forwarders that have died, as their neighbours report: no other node reports their lines to hosts.
    dead: BTreeSet<NodeId>,
    /// The last link state of each forwarder: the start of the run, and the sequence number in it.
    heard: BTreeMap<NodeId, (u64, u64)>,
    questions: Turns<NodeId, Question>,
    watchers: BTreeMap<WatcherKey, Watcher>,
    /// When each watcher needs attention.
    timers: BTreeSet<(Time, WatcherKey)>,
    /// The watchers whose paths are to be found again, in order: those that have lost a path come first.
    lost: VecDeque<WatcherKey>,
    stale: VecDeque<WatcherKey>,
    out: VecDeque<Outgoing>,
    changes: VecDeque<Change>,
    counters: Counters,
    /// When there is work to do.
    due: Time,
    /// Makes identifiers, in a domain with keyed identifiers.
    sealer: Option<Sealer>,
    zero_since_1970: Span,
}

impl TopologyManager {
    /// Creates a topology manager of a domain, which assumes that all links are up.
    #[must_use]
    pub fn new(domain: Arc<Domain>) -> Self {
        let links = vec![LinkInfo { up: true, delay: None }; domain.graph.links().len()];
        Self {
            domain,
            links,
            dead: BTreeSet::new(),
            heard: BTreeMap::new(),
            questions: Turns::new(QUESTIONS_OF_A_HOST_MAX),
            watchers: BTreeMap::new(),
            timers: BTreeSet::new(),
            lost: VecDeque::new(),
            stale: VecDeque::new(),
            out: VecDeque::new(),
            changes: VecDeque::new(),
            counters: Counters { requests: 0, link_states: 0, pushes: 0, dropped: 0 },
            due: Time::NEVER,
            sealer: None,
            zero_since_1970: Span::ZERO,
        }
    }

    /// Sets the domain's key, for a domain with keyed identifiers. The manager then needs [the
    /// time](Self::set_zero_since_1970).
    #[must_use]
    pub fn with_key(mut self, key: DomainKey) -> Self {
        self.sealer = Some(Sealer::new(Arc::clone(&self.domain), key));
        self
    }

    /// Sets the time since 1970 at which the manager's time was zero.
    pub const fn set_zero_since_1970(&mut self, zero_since_1970: Span) {
        self.zero_since_1970 = zero_since_1970;
    }

    /// Returns the counters.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns how many receivers learn of changes now.
    #[must_use]
    pub fn watchers(&self) -> usize {
        self.watchers.len()
    }

    /// Returns how many forwarders have reported, without those that have died since.
    #[must_use]
    pub fn reporters(&self) -> usize {
        self.heard.keys().filter(|node| !self.dead.contains(node)).count()
    }

    /// Whether a line carries packets, as far as its ends and their neighbours report.
    #[must_use]
    pub fn is_up(&self, link: LinkId) -> bool {
        let ends = self.domain.graph.link(link);
        let is_dead = |node| !self.dead.is_empty() && self.dead.contains(&node);
        let says_up = |link: LinkId| self.links[link.index()].up;
        says_up(link) && says_up(self.domain.reverse(link)) && !is_dead(ends.from) && !is_dead(ends.to)
    }

    /// Whether all neighbours of a forwarder have lost it. A forwarder that reports that it has lost all of
    /// them itself is alive.
    fn has_died(&self, node: NodeId) -> bool {
        let is_between = |link: &LinkId| self.domain.is_forwarder(self.domain.graph.link(*link).to);
        let mut lines = self.domain.graph.outgoing(node).iter().copied().filter(is_between).peekable();
        let says_up = |link: LinkId| self.links[link.index()].up;
        let is_alone = lines.peek().is_none();
        let (mut is_lost, mut has_lost) = (true, true);
        for link in lines {
            is_lost &= !says_up(self.domain.reverse(link));
            has_lost &= !says_up(link);
        }
        self.domain.is_forwarder(node) && !is_alone && is_lost && !has_lost
    }

    /// Records a report about a link, and handles the lines that change by it.
    fn take(&mut self, now: Time, report: &LinkReport) {
        let ends = self.domain.graph.link(report.link);
        let ends = [ends.from, ends.to];
        let mut lines: Vec<LinkId> =
            ends.iter().flat_map(|node| self.domain.graph.outgoing(*node)).copied().collect();
        lines.sort_by_key(|link| self.domain.line(*link));
        lines.dedup_by_key(|link| self.domain.line(*link));
        let before: Vec<bool> = lines.iter().map(|link| self.is_up(*link)).collect();
        self.links[report.link.index()] = LinkInfo { up: report.up, delay: report.delay };
        for node in ends {
            if self.has_died(node) {
                self.dead.insert(node)
            } else {
                self.dead.remove(&node)
            };
        }
        for (link, was_up) in lines.into_iter().zip(before) {
            let is_up = self.is_up(link);
            if is_up != was_up {
                self.changed(now, link, is_up);
            }
        }
    }

    /// Returns the lines that are down. Each is given by its link that begins at the node which the domain's
    /// file names first.
    pub fn down(&self) -> impl Iterator<Item = LinkId> + '_ {
        let lines = self.domain.graph.link_ids().filter(|link| self.domain.is_first_of_line(*link));
        lines.filter(|link| !self.is_up(*link))
    }

    fn tell_down(&mut self, from: u32) -> Body {
        let lines = self.down().map(|link| self.domain.line(link));
        let mut lines: Vec<u32> = lines.filter(|line| *line >= from).collect();
        let known = u32::try_from(lines.len()).unwrap_or(u32::MAX);
        lines.truncate(DOWN_MAX);
        self.counters.requests += 1;
        let forwarders = u32::try_from(self.reporters()).unwrap_or(u32::MAX);
        Body::Down(Down { forwarders, known, lines })
    }

    /// Returns the delay of a link: as measured, or else as the domain's file says.
    #[must_use]
    pub fn delay(&self, link: LinkId) -> Span {
        let known = Span::from_nanos(self.domain.graph.link(link).delay_ns);
        self.links[link.index()].delay.unwrap_or(known)
    }

    /// Returns ways from a node over lines that are up.
    fn plan(&self, now: Time, from: NodeId, targets: &[NodeId], k: usize, policy: Policy) -> Vec<PlannedWay> {
        let mut planned = self.domain.plan(from, targets, k, policy, |link| self.is_up(link));
        if let Some(sealer) = &self.sealer {
            planned.retain_mut(|planned| {
                let sealed = sealer.way(&planned.way.links, now + self.zero_since_1970);
                sealed.map(|way| planned.way = way).is_some()
            });
        }
        planned
    }

    fn routes(&self, now: Time, request: &PathsRequest) -> (Vec<Route>, BTreeSet<LinkId>) {
        let k = usize::from(request.k).min(PATHS_MAX);
        let planned = self.plan(now, request.from, &request.targets, k, request.policy);
        let links = planned.iter().flat_map(|planned| planned.way.links.iter().copied()).collect();
        let route = |planned: PlannedWay| {
            let delay = planned.way.links.iter().map(|link| self.delay(*link).as_nanos()).sum();
            Some(Route {
                target: u8::try_from(planned.target).ok()?,
                group: planned.group,
                places: self.domain.places_of(&planned.way.links)?,
                delay: Span::from_nanos(delay),
                there: planned.way.there,
                back: planned.way.back,
            })
        };
        (planned.into_iter().filter_map(route).collect(), links)
    }

    /// Returns the node that sent a message.
    fn origin(&self, from: &Peer) -> Option<NodeId> {
        let (back, _) = frame::fields(from.way_back.as_ref()?)?;
        self.domain.origin(self.domain.topology.node, &back)
    }

    fn answer(&mut self, now: Time, to: Peer, call: u64, body: Body) {
        let since_1970 = now + self.zero_since_1970;
        let to = Sealer::answers(self.sealer.as_ref(), self.domain.topology.node, to, since_1970);
        let Some(to) = to else { return };
        self.out.push_back(Outgoing::Answer { to, message: Message { call, body }.to_bytes() });
    }

    /// Puts a question into the queue of its host.
    fn ask(&mut self, now: Time, from: Peer, call: u64, request: PathsRequest) {
        let nodes = self.domain.graph.nodes().len();
        let are_hosts =
            request.targets.iter().all(|node| node.index() < nodes && !self.domain.is_forwarder(*node));
        if !are_hosts || self.origin(&from) != Some(request.from) {
            self.counters.dropped += 1;
            return self.answer(now, from, call, Body::Refused { reason: refusal::OTHER_NODE });
        }
        let (host, question) = (request.from, Question { from, call, request });
        if let Some(known) = self.questions.of(&host).find(|known| known.call == call) {
            // The host has asked again, perhaps by another way.
            *known = question;
        } else if self.questions.push(host, question).is_err() {
            self.counters.dropped += 1;
        }
        self.due = now;
    }

    fn paths(&mut self, now: Time, call: u64, request: PathsRequest) -> Body {
        let mut request = request;
        if let Some(class) = request.class {
            let Some(class) = self.domain.classes.get(class) else {
                self.counters.dropped += 1;
                return Body::Refused { reason: refusal::UNKNOWN_CLASS };
            };
            // The choice also holds for the changes that are reported later.
            (request.policy, request.k) = (class.paths.policy, request.k.min(class.paths.per_host));
        }
        self.counters.requests += 1;
        let (routes, links) = self.routes(now, &request);
        let key = (request.from, call);
        let known = self.unwatch(key);
        let revision =
            known.map_or(0, |known| known.routes.revision + u32::from(known.routes.routes != routes));
        let routes = Routes { revision, routes };
        let lease = Span::from_secs(u64::from(request.lease_s)).min(LEASE_MAX);
        let its = self.watchers.range((request.from, 0)..=(request.from, u64::MAX)).count();
        if lease > Span::ZERO && self.watchers.len() < WATCHERS_MAX && its < WATCHERS_OF_A_HOST_MAX {
            let until = now + lease;
            let (push, is_stale) = (None, false);
            self.watch(key, Watcher { request, until, routes: routes.clone(), links, push, is_stale });
        }
        Body::Routes(routes)
    }

    fn link_state(&mut self, now: Time, from: &Peer, state: &LinkState) -> Body {
        let is_its = |report: &LinkReport| {
            self.domain.graph.links().get(report.link.index()).is_some_and(|link| link.from == state.node)
        };
        if self.origin(from) != Some(state.node) || !state.links.iter().all(is_its) {
            self.counters.dropped += 1;
            return Body::Refused { reason: refusal::OTHER_NODE };
        }
        // Of one run, the later link state counts. Another run may have another clock, which may be behind.
        let is_news = |(started_ms, sequence): &(u64, u64)| {
            *started_ms != state.started_ms || *sequence < state.sequence
        };
        if self.heard.get(&state.node).is_none_or(is_news) {
            self.heard.insert(state.node, (state.started_ms, state.sequence));
            self.counters.link_states += 1;
            state.links.iter().for_each(|report| self.take(now, report));
        }
        Body::LinkStateAck { sequence: state.sequence }
    }

    fn watch(&mut self, key: WatcherKey, watcher: Watcher) {
        self.timers.insert((watcher.due(), key));
        self.due = self.due.min(watcher.due());
        self.watchers.insert(key, watcher);
    }

    fn unwatch(&mut self, key: WatcherKey) -> Option<Watcher> {
        let watcher = self.watchers.remove(&key)?;
        self.timers.remove(&(watcher.due(), key));
        Some(watcher)
    }

    /// Handles a line that went down or came up: the receivers that it matters to get new paths.
    fn changed(&mut self, now: Time, link: LinkId, up: bool) {
        self.changes.push_back(Change::Line { link, up });
        self.due = now;
        let reverse = self.domain.reverse(link);
        for (key, watcher) in &mut self.watchers {
            let has_lost = !up && (watcher.links.contains(&link) || watcher.links.contains(&reverse));
            if watcher.is_stale || !(up || has_lost) {
                continue;
            }
            watcher.is_stale = true;
            if has_lost { self.lost.push_back(*key) } else { self.stale.push_back(*key) }
        }
    }

    /// Answers some questions, and does the work that is due for some receivers. Returns when there is work
    /// again.
    fn work(&mut self, now: Time) -> Time {
        for _ in 0..QUESTIONS_A_TURN {
            let Some((_, question)) = self.questions.next(|_| true) else { break };
            let body = self.paths(now, question.call, question.request);
            self.answer(now, question.from, question.call, body);
        }
        for number in 0..WATCHERS_A_TURN {
            let due = self.timers.first().filter(|(due, _)| *due <= now).copied();
            // Both kinds alternate, so that receivers that do not acknowledge do not keep others from new
            // paths.
            let stale = if number % 2 == 0 && due.is_some() {
                None
            } else {
                self.lost.pop_front().or_else(|| self.stale.pop_front())
            };
            match (stale, due) {
                (Some(key), _) => self.plan_again(now, key),
                (None, Some((_, key))) => self.push(now, key),
                (None, None) => break,
            }
        }
        let next = self.timers.first().map_or(Time::NEVER, |(due, _)| *due);
        let has_more = !self.lost.is_empty() || !self.stale.is_empty() || !self.questions.is_empty();
        if next <= now || has_more { now + TURN_PAUSE } else { next }
    }

    /// Finds the paths of a receiver again, and has them sent if they have changed.
    fn plan_again(&mut self, now: Time, key: WatcherKey) {
        // Meanwhile the receiver may have asked anew, or its interest may have ended.
        let Some(mut watcher) = self.unwatch(key) else { return };
        if std::mem::take(&mut watcher.is_stale) {
            let (routes, links) = self.routes(now, &watcher.request);
            if routes != watcher.routes.routes {
                watcher.routes = Routes { revision: watcher.routes.revision + 1, routes };
                watcher.links = links;
                watcher.push = Some((0, now));
            }
        }
        self.watch(key, watcher);
    }

    /// Sends a receiver its paths if that is due, or forgets the receiver if its lease has ended.
    fn push(&mut self, now: Time, (node, call): WatcherKey) {
        let Some(mut watcher) = self.unwatch((node, call)).filter(|watcher| watcher.until > now) else {
            return;
        };
        if let Some((tries, _)) = watcher.push {
            watcher.push = (tries + 1 < PUSHES_MAX).then_some((tries + 1, now + PUSH_WAIT));
            let ways = self.plan(now, self.domain.topology.node, &[node], 3, Policy::Shortest);
            let way = ways.get(tries as usize % ways.len().max(1)).map(|found| &found.way);
            if let Some((way, first)) = way.and_then(|way| Some((way, *way.links.first()?))) {
                let message = Message { call, body: Body::Routes(watcher.routes.clone()) }.to_bytes();
                let header = frame::header(&way.there, watcher.request.port);
                self.out.push_back(Outgoing::Push { first, frame: [&header.0[..], &message].concat() });
                self.counters.pushes += 1;
            }
        }
        self.watch((node, call), watcher);
    }
}

impl Machine for TopologyManager {
    /// The payload of a frame, and its sender.
    type Input<'a> = (Peer, &'a [u8]);
    type Transmit = Outgoing;
    type Event = Change;

    fn handle(&mut self, now: Time, (from, bytes): Self::Input<'_>) {
        match Message::parse(bytes) {
            // A sender that gives no way back cannot be answered.
            Ok(_) if from.way_back.is_none() => self.counters.dropped += 1,
            Ok(Message { call, body: Body::Paths(request) }) => {
                self.ask(now, from, call, request);
            }
            Ok(Message { call, body: Body::Lines { from: first } }) => {
                let body = self.tell_down(first);
                self.answer(now, from, call, body);
            }
            Ok(Message { call, body: Body::LinkState(state) }) => {
                let body = self.link_state(now, &from, &state);
                self.answer(now, from, call, body);
            }
            Ok(Message { call, body: Body::RoutesAck { revision } }) => {
                let key = self.origin(&from).map(|node| (node, call));
                if let Some(key) = key
                    && self.watchers.get(&key).is_some_and(|known| known.routes.revision == revision)
                    && let Some(mut watcher) = self.unwatch(key)
                {
                    watcher.push = None;
                    self.watch(key, watcher);
                }
            }
            Ok(Message { call, body: Body::Publish(_) | Body::Lookup(_) | Body::List(_) }) => {
                self.counters.dropped += 1;
                self.answer(now, from, call, Body::Refused { reason: refusal::NOT_HERE });
            }
            Ok(_) | Err(_) => self.counters.dropped += 1,
        }
    }

    fn poll(&mut self, now: Time) -> Output<Outgoing, Change> {
        if now >= self.due {
            self.due = self.work(now);
        }
        if let Some(change) = self.changes.pop_front() {
            return Output::Event(change);
        }
        self.out.pop_front().map_or(Output::Wait(self.due), Output::Send)
    }
}
