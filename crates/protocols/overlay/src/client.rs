//! The machines of members that use the network. A [`Subscription`] finds the hosts that publish a name and
//! the paths to them, and learns of changes. A [`Registration`] publishes, and publishes again before the
//! lease ends.
//!
//! The input of both is the payload of each frame that arrives at their port.

use std::collections::VecDeque;
use std::sync::Arc;

use anabranch_algo::{Machine, Output, Span, Time};
use anabranch_mmtp::ContentId;
use anabranch_topology::graph::NodeId;

use crate::call::{Call, Reach, Sent, draw};
use crate::domain::{Domain, PathChoice};
use crate::message::{Body, Message, PathsRequest, Route, Routes, TARGETS_MAX, Wanted};
use crate::publication::{Publication, ScopeKey, SignedPublication};
use crate::rendezvous::rules::check_place;

/// How long a receiver asks for changes of its paths, in seconds, and when it asks again at the latest.
const WATCH_LEASE_S: u16 = 30;
const WATCH_AGAIN: Span = Span::from_secs(10);
/// How often a receiver asks for paths in an epoch of keyed identifiers. The identifiers of an epoch are
/// valid for one more.
const WATCHES_AN_EPOCH: u64 = 4;
/// How long publications are valid, in seconds, and when they are published again.
const LEASE_S: u32 = 60;
const PUBLISH_AGAIN: Span = Span::from_secs(20);
/// A service is silent when it has left this many messages without an answer.
const SILENT_AFTER: u32 = 6;
/// How often a withdrawal is sent.
const WITHDRAWALS_MAX: u32 = 4;

/// A service of a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceKind {
    /// The rendezvous, which looks names up.
    Rendezvous,
    /// The topology manager, which knows the paths.
    Topology,
}

/// A member: a node of a domain, and the data that its calls need.
#[derive(Clone, Debug)]
pub struct Member {
    /// The domain.
    pub domain: Arc<Domain>,
    /// The member's node.
    pub node: NodeId,
    /// The UDP port at which the member receives answers.
    pub port: u16,
    /// The secret from which the numbers of its calls are drawn.
    pub secret: [u8; 32],
    /// The time since 1970 at which the member's time was zero.
    pub zero_since_1970: Span,
}

impl Member {
    fn since_1970(&self, now: Time) -> Time {
        now + self.zero_since_1970
    }

    fn since_1970_ms(&self, now: Time) -> u64 {
        self.since_1970(now).as_nanos() / 1_000_000
    }

    /// Whether a publication that a rendezvous has told is valid at `now`: a host of the domain has it, and
    /// the owner of its scope has signed it.
    #[must_use]
    pub fn believes(&self, now: Time, signed: &SignedPublication) -> bool {
        let key = check_place(&self.domain, &signed.publication);
        key.is_ok_and(|key| signed.check(&self.domain.name, key, self.since_1970(now)).is_ok())
    }
}

/// The result of a lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The newest content.
    pub content: ContentId,
    /// Whether the content is the manifest of a directory.
    pub collection: bool,
    /// The last part of the name, which is the name of a file with the content.
    pub file_name: String,
    /// The hosts that have the content, with their UDP ports, at most [`TARGETS_MAX`].
    pub hosts: Vec<(NodeId, u16)>,
    /// How many hosts offer an older content under the name.
    pub outdated: usize,
}

/// An event of a subscription.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Hosts publish the content.
    Found(Found),
    /// No host publishes the content.
    Unknown,
    /// A service refuses, with this [`refusal`](crate::message::refusal) code.
    Refused(u8),
    /// The paths to the hosts that were found, reported at first and whenever they change.
    Routes(Routes),
    /// A service does not answer; it is asked again.
    Silent(ServiceKind),
    /// The service that was silent answers again.
    Answers(ServiceKind),
}

#[derive(Debug)]
enum Stage {
    LookingUp(Call),
    /// Paths are asked for, or are known and will be asked for again.
    Watching {
        call: Call,
        asked: bool,
    },
    Ended,
}

/// The machine of a receiver; see the [module](self).
#[derive(Debug)]
pub struct Subscription {
    member: Member,
    wanted: Wanted,
    paths: PathChoice,
    rendezvous: Reach,
    topology: Reach,
    stage: Stage,
    routes: Option<Routes>,
    silent: Option<ServiceKind>,
    /// The number of acknowledgements sent.
    acks: usize,
    out: VecDeque<Sent>,
    events: VecDeque<Event>,
}

impl Subscription {
    /// Sets the time since 1970 anew: the member's clock may have stood still, or the system's may have been
    /// set.
    pub const fn set_zero_since_1970(&mut self, zero_since_1970: Span) {
        self.member.zero_since_1970 = zero_since_1970;
    }

    /// Creates a subscription to a name or a content, with paths to each host as `paths` says.
    #[must_use]
    pub fn new(member: Member, wanted: Wanted, paths: PathChoice, now: Time) -> Self {
        let reach = |service| Reach::new(&member.domain, member.node, service);
        let message = Message { call: draw(&member.secret, 0), body: Body::Lookup(wanted.clone()) };
        Self {
            rendezvous: reach(member.domain.rendezvous),
            topology: reach(member.domain.topology),
            stage: Stage::LookingUp(Call::new(&message, member.port, now)),
            member,
            wanted,
            paths,
            routes: None,
            silent: None,
            acks: 0,
            out: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Whether the domain's file has a way to both services.
    #[must_use]
    pub fn can_reach_services(&self) -> bool {
        !self.rendezvous.is_empty() && !self.topology.is_empty()
    }

    fn matched(&mut self, now: Time, publications: Vec<SignedPublication>) {
        let member = &self.member;
        let is_good = |signed: &SignedPublication| {
            let publication = &signed.publication;
            let asked = match &self.wanted {
                Wanted::Name(name) => publication.name == *name,
                Wanted::Content(content) => publication.content == *content,
            };
            asked && publication.node != member.node && member.believes(now, signed)
        };
        let good: Vec<Publication> =
            publications.into_iter().filter(is_good).map(|signed| signed.publication).collect();
        let newest = good.iter().max_by_key(|publication| publication.version_ms);
        let Some(newest) = newest.cloned() else {
            self.stage = Stage::Ended;
            return self.events.push_back(Event::Unknown);
        };
        let (same, others): (Vec<_>, Vec<_>) =
            good.into_iter().partition(|publication| publication.content == newest.content);
        let mut hosts: Vec<(NodeId, u16)> =
            same.iter().map(|publication| (publication.node, publication.port)).collect();
        hosts.truncate(TARGETS_MAX);
        let request = PathsRequest {
            from: member.node,
            port: member.port,
            targets: hosts.iter().map(|(node, _)| *node).collect(),
            k: self.paths.per_host,
            policy: self.paths.policy,
            class: self.paths.class,
            lease_s: WATCH_LEASE_S,
        };
        let message = Message { call: draw(&member.secret, 1), body: Body::Paths(request) };
        self.stage = Stage::Watching { call: Call::new(&message, member.port, now), asked: true };
        let label = newest.name.label();
        self.events.push_back(Event::Found(Found {
            content: newest.content,
            collection: newest.collection,
            file_name: label.rsplit('/').next().unwrap_or(label).to_owned(),
            hosts,
            outdated: others.len(),
        }));
    }

    fn routed(&mut self, now: Time, call: u64, routes: Routes) {
        let Stage::Watching { call: paths, asked } = &mut self.stage else { return };
        let is_answer = std::mem::take(asked);
        // Routes that a slow way brings late are older than the known ones.
        if !is_answer && self.routes.as_ref().is_some_and(|known| known.revision > routes.revision) {
            return;
        }
        let epoch =
            self.member.domain.epoch.map(|epoch| Span::from_nanos(epoch.as_nanos() / WATCHES_AN_EPOCH));
        paths.restart(now + epoch.map_or(WATCH_AGAIN, |epoch| epoch.min(WATCH_AGAIN)));
        if !is_answer {
            // The way that was the best may have just broken.
            let ack = Message { call, body: Body::RoutesAck { revision: routes.revision } };
            self.out.extend(self.topology.send(self.acks, &ack.to_bytes(), self.member.port));
            self.acks += 1;
        }
        // Delays change all the time, so they do not count.
        let ways = |routes: &Routes| -> Vec<Route> {
            routes.routes.iter().map(|route| Route { delay: Span::ZERO, ..route.clone() }).collect()
        };
        let is_new = self.routes.as_ref().is_none_or(|known| ways(known) != ways(&routes));
        self.routes = Some(routes.clone());
        if is_new {
            self.events.push_back(Event::Routes(routes));
        }
    }
}

impl Machine for Subscription {
    /// The payload of a frame.
    type Input<'a> = &'a [u8];
    type Transmit = Sent;
    type Event = Event;

    fn handle(&mut self, now: Time, bytes: &[u8]) {
        let Ok(Message { call, body }) = Message::parse(bytes) else { return };
        let (id, service) = match &self.stage {
            Stage::LookingUp(call) => (call.id, ServiceKind::Rendezvous),
            Stage::Watching { call, .. } => (call.id, ServiceKind::Topology),
            Stage::Ended => return,
        };
        if call != id {
            return;
        }
        if self.silent.take_if(|silent| *silent == service).is_some() {
            self.events.push_back(Event::Answers(service));
        }
        match body {
            Body::Match { publications, .. } if service == ServiceKind::Rendezvous => {
                self.matched(now, publications);
            }
            Body::Routes(routes) if service == ServiceKind::Topology => self.routed(now, call, routes),
            Body::Refused { reason } => {
                self.stage = Stage::Ended;
                self.events.push_back(Event::Refused(reason));
            }
            _ => {}
        }
    }

    fn poll(&mut self, now: Time) -> Output<Sent, Event> {
        if let Some(event) = self.events.pop_front() {
            return Output::Event(event);
        }
        if let Some(sent) = self.out.pop_front() {
            return Output::Send(sent);
        }
        let (call, reach, service) = match &mut self.stage {
            Stage::LookingUp(call) => (call, &self.rendezvous, ServiceKind::Rendezvous),
            Stage::Watching { call, asked } => {
                *asked |= now >= call.due();
                (call, &self.topology, ServiceKind::Topology)
            }
            Stage::Ended => return Output::Wait(Time::NEVER),
        };
        if call.tries() >= SILENT_AFTER && self.silent.is_none() {
            self.silent = Some(service);
            return Output::Event(Event::Silent(service));
        }
        match call.poll(now, reach) {
            Some(sent) => Output::Send(sent),
            None => Output::Wait(call.due()),
        }
    }
}

/// An event of a registration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Registered {
    /// The rendezvous keeps the publication: for the first time, after it was silent, or because the
    /// publication has become the newest again.
    Published(String),
    /// The rendezvous keeps the publication, but another host offers a newer content under the name, which
    /// receivers take.
    Outdated(String),
    /// The rendezvous refuses the publication, with this [`refusal`](crate::message::refusal) code.
    Refused(String, u8),
    /// The rendezvous does not answer; it is asked again.
    Silent,
}

#[derive(Debug)]
struct Entry {
    publication: Publication,
    call: Call,
    /// Whether the entry waits for an answer.
    asked: bool,
    published: bool,
    outdated: bool,
    refused: Option<u8>,
}

impl Entry {
    fn new(publication: Publication, call: Call) -> Self {
        let (asked, published, outdated, refused) = (true, false, false, None);
        Self { publication, call, asked, published, outdated, refused }
    }
}

/// The machine of a publisher; see the [module](self).
#[derive(Debug)]
pub struct Registration {
    member: Member,
    key: Arc<ScopeKey>,
    rendezvous: Reach,
    entries: Vec<Entry>,
    calls: u64,
    silent: bool,
    withdrawn: bool,
    events: VecDeque<Registered>,
}

impl Registration {
    /// Sets the time since 1970 anew, as [`Subscription::set_zero_since_1970`] does.
    pub const fn set_zero_since_1970(&mut self, zero_since_1970: Span) {
        self.member.zero_since_1970 = zero_since_1970;
    }

    /// Publishes these publications, signed with the key of their scope. Their times, lease and node are set
    /// here.
    #[must_use]
    pub fn new(member: Member, key: Arc<ScopeKey>, publications: Vec<Publication>, now: Time) -> Self {
        let rendezvous = Reach::new(&member.domain, member.node, member.domain.rendezvous);
        let mut new = Self {
            member,
            key,
            rendezvous,
            entries: Vec::new(),
            calls: 0,
            silent: false,
            withdrawn: false,
            events: VecDeque::new(),
        };
        for publication in publications {
            let (publication, call) = new.sign(publication, LEASE_S, now);
            new.entries.push(Entry::new(publication, call));
        }
        new
    }

    fn sign(&mut self, publication: Publication, lease_s: u32, now: Time) -> (Publication, Call) {
        let (node, issued_ms) = (self.member.node, self.member.since_1970_ms(now));
        let publication = Publication { node, issued_ms, lease_s, ..publication };
        let signed = self.key.sign(&self.member.domain.name, publication.clone());
        self.calls += 1;
        let message = Message { call: draw(&self.member.secret, self.calls), body: Body::Publish(signed) };
        (publication, Call::new(&message, self.member.port, now))
    }

    /// Withdraws all publications; [`is_over`](Self::is_over) says when that is done.
    pub fn withdraw(&mut self, now: Time) {
        self.withdrawn = true;
        // Publications without an answer are withdrawn, too: the rendezvous may have accepted them.
        let publications: Vec<Publication> = self.entries.drain(..).map(|entry| entry.publication).collect();
        for publication in publications {
            let (publication, call) = self.sign(publication, 0, now);
            self.entries.push(Entry { published: true, ..Entry::new(publication, call) });
        }
    }

    /// Whether each withdrawal was answered, or was sent often enough.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let is_over = |entry: &Entry| !entry.asked || entry.call.tries() >= WITHDRAWALS_MAX;
        self.withdrawn && self.entries.iter().all(is_over)
    }
}

impl Machine for Registration {
    /// The payload of a frame.
    type Input<'a> = &'a [u8];
    type Transmit = Sent;
    type Event = Registered;

    fn handle(&mut self, now: Time, bytes: &[u8]) {
        let Ok(Message { call, body }) = Message::parse(bytes) else { return };
        let Some(entry) = self.entries.iter_mut().find(|entry| entry.asked && entry.call.id == call) else {
            return;
        };
        let name = entry.publication.name.to_string();
        let was_silent = self.silent;
        match body {
            Body::Published | Body::Outdated => {
                let outdated = body == Body::Outdated;
                let is_new = !entry.published || was_silent || entry.outdated != outdated;
                if is_new && !self.withdrawn {
                    let event = if outdated { Registered::Outdated } else { Registered::Published };
                    self.events.push_back(event(name));
                }
                (entry.published, entry.outdated, entry.refused) = (true, outdated, None);
            }
            Body::Refused { reason } => {
                if entry.refused.replace(reason) != Some(reason) {
                    self.events.push_back(Registered::Refused(name, reason));
                }
                entry.published = false;
            }
            _ => return,
        }
        self.silent = false;
        entry.asked = false;
        entry.call.restart(now + PUBLISH_AGAIN);
    }

    fn poll(&mut self, now: Time) -> Output<Sent, Registered> {
        if let Some(event) = self.events.pop_front() {
            return Output::Event(event);
        }
        let mut due = Time::NEVER;
        for number in 0..self.entries.len() {
            let entry = &self.entries[number];
            if self.withdrawn && !entry.asked {
                continue;
            }
            if !entry.asked && now >= entry.call.due() {
                let (publication, call) = self.sign(entry.publication.clone(), LEASE_S, now);
                let entry = &mut self.entries[number];
                (entry.publication, entry.call, entry.asked) = (publication, call, true);
            }
            let entry = &mut self.entries[number];
            if entry.asked && entry.call.tries() >= SILENT_AFTER && !self.silent && !self.withdrawn {
                self.silent = true;
                return Output::Event(Registered::Silent);
            }
            if let Some(sent) = entry.call.poll(now, &self.rendezvous) {
                return Output::Send(sent);
            }
            due = due.min(entry.call.due());
        }
        Output::Wait(due)
    }
}
