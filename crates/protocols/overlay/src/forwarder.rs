//! A forwarder: sends frames on by the links in their forwarding identifiers, and keeps nothing of any flow.
//! Beside that it says hello to its neighbours, and tells the topology manager who answers.

mod counters;
mod line;
mod neighbour;
mod policer;
mod rule;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;

use anabranch_algo::{Machine, Output, Span, Time};
use anabranch_topology::fid::{HOPS_SPARE, Header};
use anabranch_topology::graph::{LinkId, NodeId};
use anabranch_topology::keyed::NodeSecret;

use anabranch_mmtp::peer::WayBack;

use crate::cache::{Answer, PacketCache};
use crate::call::{Call, Reach, draw};
use crate::domain::Domain;
use crate::frame::{self, Frame, HEADER_BYTES, Routed};
use crate::message::{self, Body, LinkReport, LinkState, Message};
use line::{Line, Train, police};
use neighbour::Neighbour;
use policer::Policer;
use rule::Rule;

pub use counters::{Counters, DropReason};
pub use line::{HOST_PORT_MIN, Hop};

/// Links are reported so often even if nothing has changed: a topology manager that was started anew learns
/// of them, and delays change.
const REPORT_EVERY: Span = Span::from_secs(5);

/// How a line does, to show.
#[derive(Clone, Debug, PartialEq)]
pub struct LineStatus {
    /// The node at the other end.
    pub there: NodeId,
    /// Whether that is a forwarder that answers hellos; hosts are not asked.
    pub up: Option<bool>,
    /// The measured delay in one direction.
    pub delay: Option<Span>,
    /// Frames and bytes sent over it.
    pub sent: (u64, u64),
}

/// Where a train goes on to.
#[derive(Clone, Copy)]
struct Onward {
    hop: Hop,
    hop_limit: u8,
    /// So much of it: the rest is above a rate limit.
    bytes: usize,
}

/// What is left of a request for the source.
enum Asked {
    /// There is no cache, or it has nothing of it: the frame goes on as it is.
    Nothing,
    /// This frame goes on instead.
    Rest(Vec<u8>),
    /// All was answered.
    All,
}

/// How many bytes of these frames have the header of the first of them, so that all go the same way, whatever
/// they carry.
fn train_bytes(frames: &[u8], stride: usize) -> usize {
    match frames.first_chunk::<HEADER_BYTES>() {
        Some(header) if frame::is_carried_only(header) => {
            let same = frames.chunks(stride).take_while(|frame| frame.first_chunk() == Some(header));
            same.map(<[u8]>::len).sum()
        }
        // Those with a way back are not looked at together.
        _ => stride.min(frames.len()),
    }
}

fn with_hop_limit(mut frame: Vec<u8>, hop_limit: u8) -> Vec<u8> {
    frame::set_hop_limit(&mut frame, hop_limit);
    frame
}

/// The machine of a forwarder.
#[derive(Debug)]
pub struct Forwarder {
    node: NodeId,
    domain: Arc<Domain>,
    rule: Rule,
    /// More links than that no way has.
    hops_max: u8,
    lines: Vec<Line>,
    counters: Counters,
    matching: Vec<LinkId>,
    reports: Reports,
    cache: Option<PacketCache>,
    out: VecDeque<Step>,
    /// When hellos and reports are looked at next.
    due: Time,
}

/// What the topology manager is told of the lines.
#[derive(Debug)]
struct Reports {
    reach: Reach,
    /// When the forwarder was started, in milliseconds since 1970.
    started_ms: u64,
    secret: [u8; 32],
    sequence: u64,
    /// The report that is not acknowledged yet.
    call: Option<Call>,
    /// When the next one is made.
    due: Time,
}

/// Frames that came one after the other, as the system hands them over.
#[derive(Debug, PartialEq, Eq)]
pub struct Frames<'a> {
    /// The end that sent them.
    pub from: SocketAddr,
    /// All of them. What is to be sent on is changed here.
    pub bytes: &'a mut [u8],
    /// Bytes of each, of which only the last may have fewer.
    pub stride: usize,
}

/// What a forwarder wants sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// These bytes of the [`Frames`] that came last, one frame after the other: each has its new hop limit.
    Forward(Hop, Range<usize>),
    /// One of the forwarder's own.
    Send(Hop, Vec<u8>),
}

impl Forwarder {
    /// At a node; `started_ms`: now, in milliseconds since 1970, so that it is told from an earlier run;
    /// `secret`: so that nobody else can say that its reports have come.
    #[must_use]
    pub fn new(domain: &Arc<Domain>, node: NodeId, started_ms: u64, secret: [u8; 32], now: Time) -> Self {
        let line = |link: &LinkId| {
            let (ip_there, port) = domain.address_there(*link);
            Line {
                link: *link,
                ingress: domain.reverse(*link),
                hop_ip: (domain.address_here(*link), ip_there),
                port,
                there: domain.graph.link(*link).to,
                neighbour: port
                    .map(|_| Neighbour::new(now, Span::from_nanos(domain.graph.link(*link).delay_ns))),
                sent: (0, 0),
                out: domain.limit(*link).map(Policer::new),
                into: domain.limit(*link).filter(|_| port.is_none()).map(Policer::new),
            }
        };
        Self {
            node,
            rule: Rule::new(domain, node),
            hops_max: u8::try_from(domain.forwarders().count() + 1)
                .unwrap_or(u8::MAX)
                .saturating_add(HOPS_SPARE),
            lines: domain.graph.outgoing(node).iter().map(line).collect(),
            counters: Counters::default(),
            matching: Vec::new(),
            reports: Reports {
                reach: Reach::new(domain, node, domain.topology),
                started_ms,
                secret,
                sequence: 0,
                call: None,
                // By then it is known which neighbours answer.
                due: now + neighbour::HELLO_EVERY,
            },
            domain: Arc::clone(domain),
            cache: None,
            out: VecDeque::new(),
            due: now,
        }
    }

    /// The same with a packet cache, which answers what it can.
    #[must_use]
    pub fn with_cache(mut self, cache: PacketCache) -> Self {
        self.cache = Some(cache);
        self
    }

    /// The same with the node's secret, in a domain with keyed identifiers. It has to be told
    /// [the time](Self::set_zero_since_1970).
    #[must_use]
    pub fn with_secret(mut self, secret: NodeSecret, since_1970: Time) -> Self {
        self.rule.set_secret(secret, since_1970);
        self
    }

    /// Tells it how long after 1970 its time was zero: the epoch of keyed identifiers follows from that.
    pub fn set_zero_since_1970(&mut self, now: Time, zero_since_1970: Span) {
        self.rule.set_time(now + zero_since_1970);
    }

    /// Its packet cache.
    #[must_use]
    pub const fn cache(&self) -> Option<&PacketCache> {
        self.cache.as_ref()
    }

    /// The addresses that it is to listen at.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.lines.iter().map(|line| SocketAddr::new(line.hop_ip.0, self.domain.forwarder_port))
    }

    /// What went through so far.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// How its lines do.
    pub fn status(&self) -> impl Iterator<Item = LineStatus> + '_ {
        self.lines.iter().map(|line| LineStatus {
            there: line.there,
            up: line.neighbour.map(|neighbour| neighbour.is_up()),
            delay: line.neighbour.and_then(|neighbour| neighbour.delay()),
            sent: line.sent,
        })
    }

    /// Where a train goes on to, if it does.
    fn try_handle(
        &mut self,
        now: Time,
        from: SocketAddr,
        mut train: Train<'_>,
    ) -> Result<Option<Onward>, DropReason> {
        let from_ip = from.ip().to_canonical();
        let is_it =
            |line: &Line| line.hop_ip.1 == from_ip && line.port.is_none_or(|port| port == from.port());
        let place = self.lines.iter().position(is_it).ok_or(DropReason::Stranger)?;
        let passed = police(&mut self.lines[place].into, now, train, &mut self.counters);
        train.bytes = &train.bytes[..passed];
        let Some(first) = train.frames().next() else { return Ok(None) };
        match frame::parse(first).map_err(|_| DropReason::Malformed)? {
            Frame::Routed(routed) => self.route(now, place, &routed, train),
            Frame::Hello { stamp } => {
                let hop = Hop { from: self.lines[place].hop_ip.0, to: from };
                self.out.push_back(Step::Send(hop, frame::hello_reply(stamp).to_vec()));
                Ok(None)
            }
            Frame::HelloReply { stamp } => {
                if let Some(neighbour) = &mut self.lines[place].neighbour
                    && neighbour.answered(now, stamp)
                {
                    self.reports.due = now;
                }
                self.due = now;
                Ok(None)
            }
        }
    }

    /// Where a train goes on to that came over the line of `place`; its first frame is `routed`.
    fn route(
        &mut self,
        now: Time,
        place: usize,
        routed: &Routed<'_>,
        train: Train<'_>,
    ) -> Result<Option<Onward>, DropReason> {
        let ingress = self.lines[place].ingress;
        let next = self.rule.forward(routed, ingress, &mut self.matching)?;
        let egress = match self.matching[..] {
            [] => None,
            [egress] if routed.header.hop_limit <= self.hops_max => Some(egress),
            // A way has no branches and no more links than there are: nobody has made such a frame to get
            // somewhere.
            _ => return Err(DropReason::Forged),
        };
        let egress = self.lines.iter().position(|line| Some(line.link) == egress);
        if let Some((back, _)) = routed.way_back.as_ref().and_then(frame::fields) {
            self.check_way_back(routed, &back, place, egress)?;
        }
        let Some(egress) = egress else { return self.for_me(now, routed.payload) };
        let asked = self.ask_cache(now, place, routed, train)?;
        let line = &mut self.lines[egress];
        match asked {
            Asked::All => Ok(None),
            Asked::Nothing => {
                let hop = line.hop(routed.port).ok_or(DropReason::Port)?;
                let bytes = line.send(now, train, &mut self.counters);
                Ok((bytes > 0).then_some(Onward { hop, hop_limit: next.hop_limit, bytes }))
            }
            Asked::Rest(rest) => {
                let hop = line.hop(routed.port).ok_or(DropReason::Port)?;
                if line.send(now, Train::one(&rest), &mut self.counters) > 0 {
                    self.out.push_back(Step::Send(hop, with_hop_limit(rest, next.hop_limit)));
                }
                Ok(None)
            }
        }
    }

    /// Shows a train to the cache, if there is one. What that answers goes back over the line of `place`.
    fn ask_cache(
        &mut self,
        now: Time,
        place: usize,
        routed: &Routed<'_>,
        train: Train<'_>,
    ) -> Result<Asked, DropReason> {
        let Some(cache) = &mut self.cache.as_mut().filter(|_| self.rule.is_usual(&routed.header)) else {
            return Ok(Asked::Nothing);
        };
        let Some(way_back) = &routed.way_back else {
            for (header, payload) in train.frames().filter_map(<[u8]>::split_first_chunk) {
                cache.reply(now, &WayBack(*header), payload);
            }
            return Ok(Asked::Nothing);
        };
        let Answer::Hit { replies, rest, .. } = cache.request(now, way_back, routed.payload) else {
            return Ok(Asked::Nothing);
        };
        let Some((back, port)) = frame::fields(way_back) else { return Err(DropReason::WayBack) };
        let line = &mut self.lines[place];
        let hop = line.hop(port).ok_or(DropReason::Port)?;
        for reply in replies {
            if line.send(now, Train::one(&reply), &mut self.counters) > 0 {
                // One hop less than what comes from farther away has at this node: that does not matter.
                self.out.push_back(Step::Send(hop, with_hop_limit(reply, back.hop_limit.saturating_sub(1))));
            }
        }
        Ok(rest.map_or(Asked::All, |rest| {
            let header = train.bytes.get(..2 * HEADER_BYTES).unwrap_or_default();
            Asked::Rest([header, &rest].concat())
        }))
    }

    /// A reply has to leave by the line over which its request came, and by no other: so it goes to whoever
    /// asked, whatever that one made up. It comes over the line by which the request leaves, if it does.
    fn check_way_back(
        &mut self,
        routed: &Routed<'_>,
        back: &Header,
        place: usize,
        egress: Option<usize>,
    ) -> Result<(), DropReason> {
        let ingress = egress.map(|egress| self.lines[egress].ingress);
        self.rule.forward_back(&routed.header, back, ingress, &mut self.matching)?;
        if self.matching == [self.lines[place].link] { Ok(()) } else { Err(DropReason::WayBack) }
    }

    /// What is for the forwarder itself: the topology manager's answers.
    fn for_me(&mut self, now: Time, payload: &[u8]) -> Result<Option<Onward>, DropReason> {
        let message = Message::parse(payload).map_err(|_| DropReason::NoLink)?;
        if self.reports.call.as_ref().is_some_and(|report| report.id == message.call) {
            self.reports.call = None;
            self.due = now;
        }
        Ok(None)
    }

    /// Says hello to neighbours and reports how the lines do, where it is time. Returns when it is next.
    fn hello_and_report(&mut self, now: Time) -> Time {
        let mut due = Time::NEVER;
        for line in &mut self.lines {
            let hop = line.hop(0);
            let (Some(neighbour), Some(hop)) = (&mut line.neighbour, hop) else { continue };
            if let Some(stamp) = neighbour.hello(now) {
                self.out.push_back(Step::Send(hop, frame::hello(stamp).to_vec()));
            }
            if neighbour.has_gone(now) {
                self.reports.due = now;
            }
            due = due.min(neighbour.due());
        }
        if now >= self.reports.due {
            self.reports.due = now + REPORT_EVERY;
            self.reports.sequence += 1;
            let body = Body::LinkState(self.link_state());
            let message = Message { call: draw(&self.reports.secret, self.reports.sequence), body };
            self.reports.call = Some(Call::new(&message, self.domain.forwarder_port, now));
        }
        let Reports { call, reach, .. } = &mut self.reports;
        if let Some(report) = call {
            if let Some(sent) = report.poll(now, reach)
                && let Some(line) = self.lines.iter().find(|line| sent.way.links.first() == Some(&line.link))
                && let Some(hop) = line.hop(self.domain.topology.port)
            {
                self.out.push_back(Step::Send(hop, sent.frame));
            }
            due = due.min(report.due());
        }
        due.min(self.reports.due)
    }

    fn link_state(&self) -> LinkState {
        let report = |line: &Line| {
            let neighbour = line.neighbour?;
            Some(LinkReport { link: line.link, up: neighbour.is_up(), delay: neighbour.delay() })
        };
        LinkState {
            node: self.node,
            started_ms: self.reports.started_ms,
            sequence: self.reports.sequence,
            links: self.lines.iter().filter_map(report).take(message::LINKS_MAX).collect(),
        }
    }
}

/// What a [`Step::Forward`] names are bytes of the frames that came last: the machine is drained before the
/// next ones are handed in.
impl Machine for Forwarder {
    type Input<'a> = Frames<'a>;
    type Transmit = Step;
    type Event = Infallible;

    /// Frames of one path mostly come in trains: those with the same header are looked at once, and go on
    /// from where they are.
    fn handle(&mut self, now: Time, frames: Frames<'_>) {
        let (all, stride) = (frames.bytes, frames.stride.max(1));
        let mut at = 0;
        while at < all.len() {
            let rest = &mut all[at..];
            let length = train_bytes(rest, stride);
            let bytes = &mut rest[..length];
            let marks = self.domain.classes.marks();
            // All of a train have one header.
            if frame::clear_marks(bytes, marks) {
                bytes.chunks_mut(stride).for_each(|frame| _ = frame::clear_marks(frame, marks));
            }
            match self.try_handle(now, frames.from, Train { bytes, stride }) {
                Ok(None) => {}
                Ok(Some(onward)) => {
                    let bytes = &mut bytes[..onward.bytes];
                    bytes.chunks_mut(stride).for_each(|frame| frame::set_hop_limit(frame, onward.hop_limit));
                    self.out.push_back(Step::Forward(onward.hop, at..at + onward.bytes));
                }
                Err(why) => {
                    *self.counters.dropped.entry(why).or_default() += bytes.len().div_ceil(stride) as u64;
                }
            }
            at += length;
        }
    }

    fn poll(&mut self, now: Time) -> Output<Step, Infallible> {
        if self.out.is_empty() && now >= self.due {
            self.due = self.hello_and_report(now);
        }
        self.out.pop_front().map_or(Output::Wait(self.due), Output::Send)
    }
}
