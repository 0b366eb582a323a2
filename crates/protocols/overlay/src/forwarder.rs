//! A forwarder sends frames on by the links in their forwarding identifiers, and has no state of any flow.
//! Besides, it sends hellos to its neighbours, and tells the topology manager which of them answer.

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

/// How often links are reported even if nothing has changed: a topology manager that was started anew learns
/// of them, and delays change.
const REPORT_EVERY: Span = Span::from_secs(5);

/// The state of a line, for display.
#[derive(Clone, Debug, PartialEq)]
pub struct LineStatus {
    /// The node at the other end.
    pub there: NodeId,
    /// Whether the other end, a forwarder, answers hellos; `None` for a host, which gets no hellos.
    pub up: Option<bool>,
    /// The measured delay in one direction.
    pub delay: Option<Span>,
    /// Frames and bytes sent over the line.
    pub sent: (u64, u64),
}

/// The next hop of a train, and how much of the train goes there.
#[derive(Clone, Copy)]
struct Onward {
    hop: Hop,
    hop_limit: u8,
    /// The bytes that go on; the rest of the train exceeds a rate limit.
    bytes: usize,
}

/// The part of a request that is left for the source.
enum Asked {
    /// There is no cache, or it has none of the packets: the frame goes on as it is.
    Nothing,
    /// This frame goes on instead.
    Rest(Vec<u8>),
    /// The cache has answered everything.
    All,
}

/// Returns the bytes of the frames, from the first on, that have the header of the first one. All these take
/// the same way, whatever they carry.
fn train_bytes(frames: &[u8], stride: usize) -> usize {
    match frames.first_chunk::<HEADER_BYTES>() {
        Some(header) if frame::is_carried_only(header) => {
            let same = frames.chunks(stride).take_while(|frame| frame.first_chunk() == Some(header));
            same.map(<[u8]>::len).sum()
        }
        // Frames with a way back are handled one by one.
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
    /// The highest hop limit that a frame may have: the links of the longest way, and some to spare.
    hops_max: u8,
    lines: Vec<Line>,
    counters: Counters,
    matching: Vec<LinkId>,
    reports: Reports,
    cache: Option<PacketCache>,
    out: VecDeque<Step>,
    /// When hellos and reports are due next.
    due: Time,
}

/// The reports to the topology manager about the lines.
#[derive(Debug)]
struct Reports {
    reach: Reach,
    /// When the forwarder was started, in milliseconds since 1970.
    started_ms: u64,
    secret: [u8; 32],
    sequence: u64,
    /// The report that is not acknowledged yet.
    call: Option<Call>,
    /// When the next report is made.
    due: Time,
}

/// Frames that came one after the other, as the system hands them over.
#[derive(Debug, PartialEq, Eq)]
pub struct Frames<'a> {
    /// The end that sent them.
    pub from: SocketAddr,
    /// All frames, one after the other. The machine changes the frames to be sent on in place.
    pub bytes: &'a mut [u8],
    /// The bytes of a frame; only the last frame may have fewer.
    pub stride: usize,
}

/// A frame or frames that a forwarder wants to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send these bytes of the [`Frames`] that came last, one frame after the other: each has its new hop
    /// limit.
    Forward(Hop, Range<usize>),
    /// Send a frame of the forwarder itself.
    Send(Hop, Vec<u8>),
}

impl Forwarder {
    /// Creates a forwarder at a node. `started_ms` is the present time, in milliseconds since 1970, which
    /// distinguishes this run from earlier ones. `secret` ensures that only the topology manager can confirm
    /// the reports.
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

    /// Gives the forwarder a packet cache, which answers the requests that it can.
    #[must_use]
    pub fn with_cache(mut self, cache: PacketCache) -> Self {
        self.cache = Some(cache);
        self
    }

    /// Gives the forwarder its node's secret, for a domain with keyed identifiers. It then needs [the
    /// time](Self::set_zero_since_1970).
    #[must_use]
    pub fn with_secret(mut self, secret: NodeSecret, since_1970: Time) -> Self {
        self.rule.set_secret(secret, since_1970);
        self
    }

    /// Sets the time since 1970 at which the forwarder's time was zero. The epoch of keyed identifiers
    /// follows from it.
    pub fn set_zero_since_1970(&mut self, now: Time, zero_since_1970: Span) {
        self.rule.set_time(now + zero_since_1970);
    }

    /// Returns the packet cache, if there is one.
    #[must_use]
    pub const fn cache(&self) -> Option<&PacketCache> {
        self.cache.as_ref()
    }

    /// Returns the addresses at which the forwarder has to listen.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.lines.iter().map(|line| SocketAddr::new(line.hop_ip.0, self.domain.forwarder_port))
    }

    /// Returns the counters.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns the state of each line.
    pub fn status(&self) -> impl Iterator<Item = LineStatus> + '_ {
        self.lines.iter().map(|line| LineStatus {
            there: line.there,
            up: line.neighbour.map(|neighbour| neighbour.is_up()),
            delay: line.neighbour.and_then(|neighbour| neighbour.delay()),
            sent: line.sent,
        })
    }

    /// Returns where a train goes on to, if it does.
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

    /// Returns where a train goes on to that came over the line at position `place`; its first frame is
    /// `routed`.
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
            // A way has no branches and no more links than the domain allows, so this frame was made to do
            // harm.
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

    /// Shows a train to the cache, if there is one. The cache's answers go back over the line at position
    /// `place`.
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
                // The reply leaves with at least as many hops as a reply of the source does, which does not
                // matter.
                self.out.push_back(Step::Send(hop, with_hop_limit(reply, back.hop_limit.saturating_sub(1))));
            }
        }
        Ok(rest.map_or(Asked::All, |rest| {
            let header = train.bytes.get(..2 * HEADER_BYTES).unwrap_or_default();
            Asked::Rest([header, &rest].concat())
        }))
    }

    /// Checks that a reply would leave by the line over which its request came, and by no other: so it goes
    /// to the sender of the request, whatever way back that sender made up. The reply arrives over the line
    /// by which the request leaves, if the request does leave.
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

    /// Handles a message to the forwarder itself: an answer of the topology manager.
    fn for_me(&mut self, now: Time, payload: &[u8]) -> Result<Option<Onward>, DropReason> {
        let message = Message::parse(payload).map_err(|_| DropReason::NoLink)?;
        if self.reports.call.as_ref().is_some_and(|report| report.id == message.call) {
            self.reports.call = None;
            self.due = now;
        }
        Ok(None)
    }

    /// Sends hellos to neighbours and reports the lines, as far as that is due. Returns when it is due again.
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

/// The bytes of a [`Step::Forward`] are in the frames that came last: drain the machine before handing in the
/// next frames.
impl Machine for Forwarder {
    type Input<'a> = Frames<'a>;
    type Transmit = Step;
    type Event = Infallible;

    /// Handles frames in trains: frames of one path mostly come one after the other, so those with the same
    /// header are examined once and are sent on from where they are.
    fn handle(&mut self, now: Time, frames: Frames<'_>) {
        let (all, stride) = (frames.bytes, frames.stride.max(1));
        let mut at = 0;
        while at < all.len() {
            let rest = &mut all[at..];
            let length = train_bytes(rest, stride);
            let bytes = &mut rest[..length];
            let marks = self.domain.classes.marks();
            // All frames of a train have one header.
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
