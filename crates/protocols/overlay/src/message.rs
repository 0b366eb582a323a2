//! Messages between members and services, as bytes. `docs/wire-overlay.md` has every field. All integers are
//! big-endian.

pub mod listing;
pub mod refusal;
mod size;

use std::num::NonZeroU8;

use anabranch_algo::Span;
use anabranch_mmtp::ContentId;
use anabranch_topology::fid::{HEADER_BYTES, Header};
use anabranch_topology::graph::{LinkId, NodeId};
use anabranch_topology::plan::Policy;

use crate::bytes::{FieldError, Reader};
use crate::domain::{ClassId, PATHS_MAX};
use crate::publication::{Name, SignedPublication, put_content, read_content};
use listing::{Page, PageRequest};
use size::{PREFIX, put_as_fit};

pub use size::MESSAGE_MAX;

/// The first byte of every message.
pub const MESSAGE: u8 = 0x82;
/// The bytes of LOOKUP, PATHS, LINES and LIST, which have zeros after their fields. With the headers of
/// frame, UDP and IP their answers are less than three times as long, so that a sender gains nothing by
/// asking under another's address (as RFC 9000 §8.1).
pub const QUESTION_BYTES: usize = 400;
/// The most targets of a request for paths.
pub const TARGETS_MAX: usize = 8;
/// The most links of a link state.
pub const LINKS_MAX: usize = 64;
/// The most lines of a [`Body::Down`].
pub const DOWN_MAX: usize = 250;

const PUBLISH: u8 = 1;
const PUBLISHED: u8 = 2;
const LOOKUP: u8 = 3;
const MATCH: u8 = 4;
const PATHS: u8 = 5;
const ROUTES: u8 = 6;
const ROUTES_ACK: u8 = 7;
const LINK_STATE: u8 = 8;
const LINK_STATE_ACK: u8 = 9;
const REFUSED: u8 = 10;
const LINES: u8 = 11;
const DOWN: u8 = 12;
const OUTDATED: u8 = 13;
const LIST: u8 = 14;
const LISTED: u8 = 15;

/// A message: a body, and the number of the call that it belongs to.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// The number of the call. The caller draws it; an answer has the number of its question.
    pub call: u64,
    /// The body.
    pub body: Body,
}

/// The body of a message.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// Publisher to rendezvous: keep this publication.
    Publish(SignedPublication),
    /// Rendezvous to publisher: the publication is kept until its lease ends.
    Published,
    /// Rendezvous to publisher: the publication is kept, but another host offers a newer content under that
    /// name, which receivers take.
    Outdated,
    /// Receiver to rendezvous: which hosts publish this?
    Lookup(Wanted),
    /// Rendezvous to receiver: these hosts do, as many as fit, the newest content first.
    Match {
        /// The number of all publications that are known.
        known: u16,
        /// The publications that fit.
        publications: Vec<SignedPublication>,
    },
    /// Receiver to topology manager: which paths lead to these hosts?
    Paths(PathsRequest),
    /// Topology manager to receiver: these paths do. Sent again when they change, until the request's lease
    /// ends.
    Routes(Routes),
    /// Receiver to topology manager: the routes of this revision have arrived.
    RoutesAck {
        /// The revision.
        revision: u32,
    },
    /// Forwarder to topology manager: the state of the sender's links.
    LinkState(LinkState),
    /// Topology manager to forwarder: the link state has arrived.
    LinkStateAck {
        /// The sequence number of the link state.
        sequence: u64,
    },
    /// Service to member: the message is refused.
    Refused {
        /// The reason: a [`refusal`] code.
        reason: u8,
    },
    /// Host to topology manager: which lines are down?
    Lines {
        /// The number of the first line that is asked for.
        from: u32,
    },
    /// Topology manager to host: these lines are down.
    Down(Down),
    /// Host to rendezvous: what is published?
    List(PageRequest),
    /// Rendezvous to host: this is a page of what is published.
    Listed(Page),
}

/// Lines that are down.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Down {
    /// The number of forwarders that have reported, without those that have died since. The state of other
    /// forwarders' lines is unknown.
    pub forwarders: u32,
    /// How many of the lines that were asked for are down.
    pub known: u32,
    /// The first of the lines that are down, at most [`DOWN_MAX`], by their numbers in the domain's file, in
    /// order.
    pub lines: Vec<u32>,
}

/// The object of a lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// A name.
    Name(Name),
    /// A content, whatever its name.
    Content(ContentId),
}

/// A request for paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathsRequest {
    /// The host that asks. The answer takes the way back of the request; changes take any way to the host.
    pub from: NodeId,
    /// The UDP port that changes are sent to.
    pub port: u16,
    /// The hosts to reach, at most [`TARGETS_MAX`].
    pub targets: Vec<NodeId>,
    /// The most paths to each host.
    pub k: u8,
    /// How the paths are chosen.
    pub policy: Policy,
    /// The class of the transfer, whose policy then counts.
    pub class: Option<ClassId>,
    /// How long changes are reported, in seconds.
    pub lease_s: u16,
}

/// Paths to the targets of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Routes {
    /// The revision, which grows with each change.
    pub revision: u32,
    /// The paths: at most [`PATHS_MAX`], and as many as a message has room for.
    pub routes: Vec<Route>,
}

/// A path to one of the targets.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// The position of the target in the request.
    pub target: u8,
    /// The group: paths of the same group share a link, or are joined by paths that do.
    pub group: u32,
    /// The links of the path, each by its position among those of the node where it begins
    /// ([`Domain::links_at`](crate::domain::Domain::links_at)).
    pub places: Vec<u8>,
    /// The delay of the way there, as far as it is known.
    pub delay: Span,
    /// The header of packets to the target.
    pub there: Header,
    /// The header of packets back.
    pub back: Header,
}

/// The state of a forwarder's links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkState {
    /// The forwarder.
    pub node: NodeId,
    /// When the forwarder was started, in milliseconds since 1970. Sequence numbers of an earlier run do not
    /// count.
    pub started_ms: u64,
    /// The sequence number, which grows with each change.
    pub sequence: u64,
    /// The forwarder's links to other forwarders, at most [`LINKS_MAX`].
    pub links: Vec<LinkReport>,
}

/// The state of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkReport {
    /// The link.
    pub link: LinkId,
    /// Whether the other end answers.
    pub up: bool,
    /// The measured delay in one direction; `None` if there is no measurement yet.
    pub delay: Option<Span>,
}

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// The bytes are too few.
    #[error("truncated")]
    Truncated,
    /// The bytes are more than a message has.
    #[error("oversized")]
    Oversized,
    /// A question does not have the length of its kind.
    #[error("unpadded")]
    Unpadded,
    /// The first byte is not that of a message.
    #[error("no message")]
    NoMessage,
    /// There is no such type of message.
    #[error("unknown type")]
    Type,
    /// A field has a value that makes no sense.
    #[error("bad field")]
    Field,
}

impl From<FieldError> for MessageError {
    fn from(error: FieldError) -> Self {
        match error {
            FieldError::Truncated => Self::Truncated,
            FieldError::Value => Self::Field,
        }
    }
}

impl Body {
    /// Returns the byte that is the type of the message.
    const fn kind(&self) -> u8 {
        match self {
            Self::Publish(_) => PUBLISH,
            Self::Published => PUBLISHED,
            Self::Outdated => OUTDATED,
            Self::Lookup(_) => LOOKUP,
            Self::Match { .. } => MATCH,
            Self::Paths(_) => PATHS,
            Self::Routes(_) => ROUTES,
            Self::RoutesAck { .. } => ROUTES_ACK,
            Self::LinkState(_) => LINK_STATE,
            Self::LinkStateAck { .. } => LINK_STATE_ACK,
            Self::Refused { .. } => REFUSED,
            Self::Lines { .. } => LINES,
            Self::Down(_) => DOWN,
            Self::List(_) => LIST,
            Self::Listed(_) => LISTED,
        }
    }

    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Publish(signed) => signed.put(out),
            Self::Published | Self::Outdated => {}
            Self::Lookup(Wanted::Name(name)) => {
                out.push(0);
                name.put(out);
            }
            Self::Lookup(Wanted::Content(content)) => {
                out.push(1);
                put_content(out, content);
            }
            Self::Match { known, publications } => {
                out.extend_from_slice(&known.to_be_bytes());
                put_as_fit(out, publications, |out, signed| signed.put(out));
            }
            Self::Paths(request) => request.put(out),
            Self::Routes(Routes { revision, routes }) => {
                out.extend_from_slice(&revision.to_be_bytes());
                put_as_fit(out, routes, |out, route| {
                    out.push(route.target);
                    out.extend_from_slice(&route.group.to_be_bytes());
                    out.extend_from_slice(&micros(route.delay).to_be_bytes());
                    out.extend_from_slice(&route.there.to_bytes());
                    out.extend_from_slice(&route.back.to_bytes());
                    out.push(route.places.len() as u8);
                    out.extend_from_slice(&route.places);
                });
            }
            Self::RoutesAck { revision } => out.extend_from_slice(&revision.to_be_bytes()),
            Self::LinkState(state) => state.put(out),
            Self::LinkStateAck { sequence } => out.extend_from_slice(&sequence.to_be_bytes()),
            Self::Refused { reason } => out.push(*reason),
            Self::Lines { from } => out.extend_from_slice(&from.to_be_bytes()),
            Self::Down(down) => {
                out.extend_from_slice(&down.forwarders.to_be_bytes());
                out.extend_from_slice(&down.known.to_be_bytes());
                out.push(down.lines.len() as u8);
                down.lines.iter().for_each(|line| out.extend_from_slice(&line.to_be_bytes()));
            }
            Self::List(request) => request.put(out),
            Self::Listed(page) => page.put(out),
        }
    }
}

impl PathsRequest {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.from.0.to_be_bytes());
        out.extend_from_slice(&self.port.to_be_bytes());
        out.extend_from_slice(&self.lease_s.to_be_bytes());
        let policy = match self.policy {
            Policy::Shortest => 0,
            Policy::LinkDisjoint => 1,
            Policy::NodeDisjoint => 2,
        };
        out.extend_from_slice(&[self.k, policy, self.targets.len() as u8]);
        self.targets.iter().for_each(|node| out.extend_from_slice(&node.0.to_be_bytes()));
        out.push(self.class.map_or(0, |class| class.0.get()));
    }
}

impl LinkState {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.node.0.to_be_bytes());
        out.extend_from_slice(&self.started_ms.to_be_bytes());
        out.extend_from_slice(&self.sequence.to_be_bytes());
        out.push(self.links.len() as u8);
        for link in &self.links {
            out.extend_from_slice(&link.link.0.to_be_bytes());
            out.push(u8::from(link.up));
            out.extend_from_slice(&link.delay.map_or(UNKNOWN_US, micros).to_be_bytes());
        }
    }
}

impl Message {
    /// Returns the message as bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let kind = self.body.kind();
        let mut out = vec![MESSAGE, kind, 0, 0];
        out.extend_from_slice(&self.call.to_be_bytes());
        self.body.put(&mut out);
        if is_question(kind) {
            out.resize(QUESTION_BYTES, 0);
        }
        debug_assert!(out.len() <= MESSAGE_MAX);
        out
    }

    /// Reads a message.
    ///
    /// # Errors
    /// If `bytes` is no message; the error says why.
    pub fn parse(bytes: &[u8]) -> Result<Self, MessageError> {
        let (prefix, body) = bytes.split_first_chunk::<PREFIX>().ok_or(MessageError::Truncated)?;
        let [first, kind, _, _, call @ ..] = *prefix;
        if first != MESSAGE {
            return Err(MessageError::NoMessage);
        }
        if bytes.len() > MESSAGE_MAX {
            return Err(MessageError::Oversized);
        }
        let is_question = is_question(kind);
        if is_question && bytes.len() != QUESTION_BYTES {
            return Err(MessageError::Unpadded);
        }
        let mut reader = Reader(body);
        let body = read_body(kind, &mut reader)?;
        if reader.0.iter().any(|byte| !is_question || *byte != 0) {
            return Err(MessageError::Oversized);
        }
        Ok(Self { call: u64::from_be_bytes(call), body })
    }
}

/// Whether a message of this type is padded to the length that its answer requires.
const fn is_question(kind: u8) -> bool {
    matches!(kind, LOOKUP | PATHS | LINES | LIST)
}

/// The value that stands for an unknown delay.
const UNKNOWN_US: u32 = u32::MAX;

fn micros(span: Span) -> u32 {
    u32::try_from(span.as_nanos() / 1_000).unwrap_or(UNKNOWN_US - 1).min(UNKNOWN_US - 1)
}

fn read_body(kind: u8, reader: &mut Reader<'_>) -> Result<Body, MessageError> {
    Ok(match kind {
        PUBLISH => Body::Publish(SignedPublication::read(reader)?),
        PUBLISHED => Body::Published,
        OUTDATED => Body::Outdated,
        LOOKUP => match reader.byte()? {
            0 => Body::Lookup(Wanted::Name(Name::read(reader)?)),
            1 => Body::Lookup(Wanted::Content(read_content(reader)?)),
            _ => return Err(MessageError::Field),
        },
        MATCH => {
            let (known, count) = (reader.u16()?, reader.byte()?);
            let publications =
                (0..count).map(|_| SignedPublication::read(reader)).collect::<Result<_, _>>()?;
            Body::Match { known, publications }
        }
        PATHS => {
            let (from, port, lease_s) = (NodeId(reader.u32()?), reader.u16()?, reader.u16()?);
            let [k, policy, count] = reader.take()?;
            let policy = match policy {
                0 => Policy::Shortest,
                1 => Policy::LinkDisjoint,
                2 => Policy::NodeDisjoint,
                _ => return Err(MessageError::Field),
            };
            if k == 0 || !(1..=TARGETS_MAX).contains(&usize::from(count)) {
                return Err(MessageError::Field);
            }
            let targets = (0..count).map(|_| reader.u32().map(NodeId)).collect::<Result<_, _>>()?;
            let class = NonZeroU8::new(reader.byte()?).map(ClassId);
            Body::Paths(PathsRequest { from, port, targets, k, policy, class, lease_s })
        }
        ROUTES => {
            let (revision, count) = (reader.u32()?, reader.byte()?);
            if usize::from(count) > PATHS_MAX {
                return Err(MessageError::Field);
            }
            let routes = (0..count).map(|_| read_route(reader)).collect::<Result<_, _>>()?;
            Body::Routes(Routes { revision, routes })
        }
        ROUTES_ACK => Body::RoutesAck { revision: reader.u32()? },
        LINK_STATE => {
            let (node, started_ms, sequence) = (NodeId(reader.u32()?), reader.u64()?, reader.u64()?);
            let count = reader.byte()?;
            if usize::from(count) > LINKS_MAX {
                return Err(MessageError::Field);
            }
            let links = (0..count).map(|_| read_link(reader)).collect::<Result<_, _>>()?;
            Body::LinkState(LinkState { node, started_ms, sequence, links })
        }
        LINK_STATE_ACK => Body::LinkStateAck { sequence: reader.u64()? },
        REFUSED => Body::Refused { reason: reader.byte()? },
        LINES => Body::Lines { from: reader.u32()? },
        DOWN => {
            let (forwarders, known, count) = (reader.u32()?, reader.u32()?, reader.byte()?);
            if usize::from(count) > DOWN_MAX {
                return Err(MessageError::Field);
            }
            let lines = (0..count).map(|_| reader.u32()).collect::<Result<_, _>>()?;
            Body::Down(Down { forwarders, known, lines })
        }
        LIST => Body::List(PageRequest::read(reader)?),
        LISTED => Body::Listed(Page::read(reader)?),
        _ => return Err(MessageError::Type),
    })
}

fn read_route(reader: &mut Reader<'_>) -> Result<Route, FieldError> {
    let (target, group, delay_us) = (reader.byte()?, reader.u32()?, reader.u32()?);
    if delay_us == UNKNOWN_US {
        return Err(FieldError::Value);
    }
    let delay = Span::from_micros(u64::from(delay_us));
    let (there, back) = (read_header(reader)?, read_header(reader)?);
    let places = reader.byte()?;
    let places = (0..places).map(|_| reader.byte()).collect::<Result<_, _>>()?;
    Ok(Route { target, group, places, delay, there, back })
}

fn read_header(reader: &mut Reader<'_>) -> Result<Header, FieldError> {
    let bytes = reader.take::<HEADER_BYTES>()?;
    Header::parse(&bytes).map(|(header, _)| header).map_err(|_| FieldError::Value)
}

fn read_link(reader: &mut Reader<'_>) -> Result<LinkReport, FieldError> {
    let (link, up, delay_us) = (LinkId(reader.u32()?), reader.flag()?, reader.u32()?);
    let delay = (delay_us != UNKNOWN_US).then(|| Span::from_micros(u64::from(delay_us)));
    Ok(LinkReport { link, up, delay })
}

#[cfg(test)]
#[path = "message/tests.rs"]
mod tests;
