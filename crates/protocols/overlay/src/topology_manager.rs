//! The topology manager: keeps how the links of the domain do, and tells receivers their paths: when they
//! ask, and again when a link changed that matters to them.
//!
//! To look for paths takes milliseconds in a large domain. So questions wait, those of each host in a queue
//! of its own, and the hosts have [turns](anabranch_algo::fair_share): one that asks without end delays the
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

/// Receivers that are told of changes at most.
const WATCHERS_MAX: usize = 100_000;
/// Of one host at most.
const WATCHERS_OF_A_HOST_MAX: usize = 64;
/// Questions of one host that wait, at most. More are dropped: who gets no answer asks again.
const QUESTIONS_OF_A_HOST_MAX: usize = 8;
/// Questions that are answered in one turn; then it is looked what has arrived.
const QUESTIONS_A_TURN: usize = 2;
/// How often changed paths are sent until they are acknowledged, and after how long again.
const PUSHES_MAX: u32 = 8;
const PUSH_WAIT: Span = Span::from_millis(200);
/// The longest time for which changes can be asked for.
const LEASE_MAX: Span = Span::from_secs(60);
/// Receivers for which paths are looked for in one turn, because a line has changed or they did not
/// acknowledge; the others have theirs in the turns that follow, with what arrives in between.
const WATCHERS_A_TURN: usize = 8;
/// From one turn with work to the next, if there is more.
const TURN_PAUSE: Span = Span::from_micros(50);

/// A message and where it goes.
#[derive(Clone, Debug, PartialEq)]
pub enum Outgoing {
    /// An answer; without [`Peer::prefix`].
    Answer {
        /// Who asked.
        to: Peer,
        /// The message.
        message: Vec<u8>,
    },
    /// A complete frame, unasked; its first link says over which line it leaves.
    Push {
        /// That link.
        first: LinkId,
        /// The frame.
        frame: Vec<u8>,
    },
}

/// What has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A line is down for both directions, or up again.
    Line {
        /// One of its links.
        link: LinkId,
        /// Whether it is up.
        up: bool,
    },
}

/// What went through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests for paths, or for the lines that are down, answered.
    pub requests: u64,
    /// Link states taken.
    pub link_states: u64,
    /// Paths sent again because a link changed.
    pub pushes: u64,
    /// Messages refused or dropped.
    pub dropped: u64,
}

/// What the end where a link begins says of it; up as long as nobody says anything.
#[derive(Clone, Copy, Debug)]
struct LinkInfo {
    up: bool,
    delay: Option<Span>,
}

/// Who asked, and the number of the call.
type WatcherKey = (NodeId, u64);

/// A receiver that is told of changes.
#[derive(Debug)]
struct Watcher {
    request: PathsRequest,
    until: Time,
    routes: Routes,
    /// Links of its paths.
    links: BTreeSet<LinkId>,
    /// How often the present routes were pushed, and when they will be again.
    push: Option<(u32, Time)>,
    /// It is among those whose paths are to be looked for again.
    is_stale: bool,
}

impl Watcher {
    /// When it is to be looked at.
    fn due(&self) -> Time {
        self.push.map_or(self.until, |(_, at)| at.min(self.until))
    }
}

/// A question for paths that waits.
#[derive(Debug)]
struct Question {
    from: Peer,
    call: u64,
    request: PathsRequest,
}

/// The machine; see the [module](self).
#[derive(Debug)]
pub struct TopologyManager {
    domain: Arc<Domain>,
    links: Vec<LinkInfo>,
    /// Forwarders that have died, as their neighbours say: nobody else tells of their lines to hosts.
    dead: BTreeSet<NodeId>,
    /// The last link state of each forwarder: the run, and the number in it.
    heard: BTreeMap<NodeId, (u64, u64)>,
    questions: Turns<NodeId, Question>,
    watchers: BTreeMap<WatcherKey, Watcher>,
    /// When each of them is to be looked at.
    timers: BTreeSet<(Time, WatcherKey)>,
    /// Those whose paths are to be looked for again, in turn: first those that have lost one.
    lost: VecDeque<WatcherKey>,
    stale: VecDeque<WatcherKey>,
    out: VecDeque<Outgoing>,
    changes: VecDeque<Change>,
    counters: Counters,
    /// When watchers are to be looked at.
    due: Time,
    /// Of a domain with keyed identifiers.
    sealer: Option<Sealer>,
    zero_since_1970: Span,
}

impl TopologyManager {
    /// Of a domain; it takes all links to be up.
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

    /// The same, of a domain with keyed identifiers, which has this key. It has to be told
    /// [the time](Self::set_zero_since_1970).
    #[must_use]
    pub fn with_key(mut self, key: DomainKey) -> Self {
        self.sealer = Some(Sealer::new(Arc::clone(&self.domain), key));
        self
    }

    /// Tells it how long after 1970 its time was zero.
    pub const fn set_zero_since_1970(&mut self, zero_since_1970: Span) {
        self.zero_since_1970 = zero_since_1970;
    }

    /// What has gone through so far.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Receivers that are told of changes now.
    #[must_use]
    pub fn watchers(&self) -> usize {
        self.watchers.len()
    }

    /// Forwarders that have reported, but for those that have died since.
    #[must_use]
    pub fn reporters(&self) -> usize {
        self.heard.keys().filter(|node| !self.dead.contains(node)).count()
    }

    /// Whether a line carries packets as far as its ends say, and their neighbours.
    #[must_use]
    pub fn is_up(&self, link: LinkId) -> bool {
        let ends = self.domain.graph.link(link);
        let is_dead = |node| !self.dead.is_empty() && self.dead.contains(&node);
        let says_up = |link: LinkId| self.links[link.index()].up;
        says_up(link) && says_up(self.domain.reverse(link)) && !is_dead(ends.from) && !is_dead(ends.to)
    }

    /// Whether all forwarders beside a forwarder have lost it. One that has lost all of them itself, and
    /// could say so, is alive.
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

    /// Takes what is said of a link, and tells whose lines that changes.
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

    /// The lines that are down: of each the link that begins at the node which the domain's file names first.
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

    /// The delay of a link: as measured, or as the domain's file says.
    #[must_use]
    pub fn delay(&self, link: LinkId) -> Span {
        let known = Span::from_nanos(self.domain.graph.link(link).delay_ns);
        self.links[link.index()].delay.unwrap_or(known)
    }

    /// Ways from a node on the lines that are up.
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

    /// Who sent a message.
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

    /// Has a question wait for its turn.
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
            // It was asked again, maybe by another way.
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
            // It stays so for the changes that are told later.
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
        // Of one run the later one counts. Another run is another clock, which may be behind that of the
        // last.
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

    /// A line went down or came up: those to whom it matters get new paths.
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

    /// Answers some questions, and does what is due for some receivers; returns when the next is.
    fn work(&mut self, now: Time) -> Time {
        for _ in 0..QUESTIONS_A_TURN {
            let Some((_, question)) = self.questions.next(|_| true) else { break };
            let body = self.paths(now, question.call, question.request);
            self.answer(now, question.from, question.call, body);
        }
        for number in 0..WATCHERS_A_TURN {
            let due = self.timers.first().filter(|(due, _)| *due <= now).copied();
            // By turns: those that do not acknowledge do not keep the others from new paths.
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

    /// Looks for the paths of a receiver again, and has them sent if they are others.
    fn plan_again(&mut self, now: Time, key: WatcherKey) {
        // It may have asked anew meanwhile, or not want to be told any more.
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

    /// Sends a receiver its paths, or forgets it, as is due.
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
    /// The payload of a frame, and who sent it.
    type Input<'a> = (Peer, &'a [u8]);
    type Transmit = Outgoing;
    type Event = Change;

    fn handle(&mut self, now: Time, (from, bytes): Self::Input<'_>) {
        match Message::parse(bytes) {
            // Who gives no way back cannot be answered.
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
            Ok(Message { call, body: Body::Publish(_) | Body::Lookup(_) }) => {
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
