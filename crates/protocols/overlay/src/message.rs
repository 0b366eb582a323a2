//! Messages of the slow path, as bytes. `docs/wire-overlay.md` has every field. All integers are big-endian.

pub mod refusal;

use std::num::NonZeroU8;

use anabranch_algo::Span;
use anabranch_mmtp::ContentId;
use anabranch_topology::fid::{HEADER_BYTES, Header};
use anabranch_topology::graph::{LinkId, NodeId};
use anabranch_topology::plan::Policy;

use crate::bytes::{FieldError, Reader};
use crate::domain::{ClassId, PATHS_MAX};
use crate::publication::{Name, SignedPublication, put_content, read_content};

/// The first byte of every message.
pub const MESSAGE: u8 = 0x82;
/// Bytes of a message at most: with two frame headers it fits where an mmTP request does.
pub const MESSAGE_MAX: usize = 1_150;
/// Bytes of LOOKUP, PATHS and LINES, with zeros behind their fields: with the headers of frame, UDP and IP
/// their answers are less than three times as long, so nobody gains by asking in somebody else's name (as
/// RFC 9000 §8.1).
pub const QUESTION_BYTES: usize = 400;
/// Targets of a request for paths at most.
pub const TARGETS_MAX: usize = 8;
/// Links of a link-state at most.
pub const LINKS_MAX: usize = 64;
/// Lines of a [`Body::Down`] at most.
pub const DOWN_MAX: usize = 250;
/// Bytes in front of the fields of a message.
const PREFIX: usize = 12;

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

/// What is said, with the number of the call that it belongs to.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// Drawn by the one who calls; an answer has that of its question.
    pub call: u64,
    /// What is said.
    pub body: Body,
}

/// What is said.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// Publisher to rendezvous: keep this.
    Publish(SignedPublication),
    /// Rendezvous to publisher: it is kept until its lease ends.
    Published,
    /// The same; but somebody offers a newer content of that name, and receivers take that.
    Outdated,
    /// Receiver to rendezvous: who publishes this?
    Lookup(Wanted),
    /// Rendezvous to receiver: these do, as many as fit, the newest content first.
    Match {
        /// How many are known in all.
        known: u16,
        /// Those that fit.
        publications: Vec<SignedPublication>,
    },
    /// Receiver to topology manager: how do I get to these hosts?
    Paths(PathsRequest),
    /// Topology manager to receiver: so; and again when that changes, until the request's lease ends.
    Routes(Routes),
    /// Receiver to topology manager: the routes of this revision have come.
    RoutesAck {
        /// Which.
        revision: u32,
    },
    /// Forwarder to topology manager: how my links do.
    LinkState(LinkState),
    /// Topology manager to forwarder: it is known.
    LinkStateAck {
        /// Which.
        sequence: u64,
    },
    /// No.
    Refused {
        /// Why: a [`refusal`] code.
        reason: u8,
    },
    /// Host to topology manager: which lines are down?
    Lines {
        /// Lines before this are not asked for.
        from: u32,
    },
    /// Topology manager to host: these are.
    Down(Down),
}

/// Lines that are down.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Down {
    /// Forwarders that have reported, without those that have died since: of the lines of others nothing is
    /// known.
    pub forwarders: u32,
    /// How many of the lines that were asked for are down.
    pub known: u32,
    /// The first of them, at most [`DOWN_MAX`], by their numbers in the domain's file, in order.
    pub lines: Vec<u32>,
}

/// What is looked up.
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
    /// Who asks; the answer goes back the way that the request came, changes go there by any way.
    pub from: NodeId,
    /// The UDP port that changes are sent to.
    pub port: u16,
    /// Whereto, at most [`TARGETS_MAX`].
    pub targets: Vec<NodeId>,
    /// How many to each, at most.
    pub k: u8,
    /// How they are chosen.
    pub policy: Policy,
    /// The class that they are for: its policy counts then.
    pub class: Option<ClassId>,
    /// For how long changes are of interest, seconds.
    pub lease_s: u16,
}

/// Paths to the targets of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Routes {
    /// Grows with each change.
    pub revision: u32,
    /// The paths, at most [`PATHS_MAX`], and as many of these as a message has room for.
    pub routes: Vec<Route>,
}

/// A path to one of the targets.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// Which.
    pub target: u8,
    /// Paths of the same number share a link, or are joined by paths that do.
    pub group: u32,
    /// Its links, each by its place among those of the node where it begins
    /// ([`Domain::links_at`](crate::domain::Domain::links_at)).
    pub places: Vec<u8>,
    /// The delay there as far as it is known.
    pub delay: Span,
    /// What packets there carry.
    pub there: Header,
    /// What packets back carry.
    pub back: Header,
}

/// How the links of a forwarder do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkState {
    /// The forwarder.
    pub node: NodeId,
    /// When it was started: milliseconds since 1970. Numbers of an earlier run count for nothing.
    pub started_ms: u64,
    /// Grows with each change.
    pub sequence: u64,
    /// Its links to other forwarders, at most [`LINKS_MAX`].
    pub links: Vec<LinkReport>,
}

/// How a link does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkReport {
    /// Which.
    pub link: LinkId,
    /// Whether the other end answers.
    pub up: bool,
    /// The measured delay in one direction; `None` if there is none yet.
    pub delay: Option<Span>,
}

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// They are too few.
    #[error("truncated")]
    Truncated,
    /// They are more than a message has.
    #[error("oversized")]
    Oversized,
    /// A question is not as long as its kind is to be.
    #[error("unpadded")]
    Unpadded,
    /// The first byte is another.
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
    /// The byte that says which message it is.
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
    /// As bytes.
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
    /// Why it is none.
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

/// How many follow, and as many of these as a message has room for.
fn put_as_fit<T>(out: &mut Vec<u8>, all: &[T], put: impl Fn(&mut Vec<u8>, &T)) {
    let count_at = out.len();
    out.push(0);
    for one in all {
        let before = out.len();
        put(out, one);
        if out.len() > MESSAGE_MAX {
            out.truncate(before);
            break;
        }
        out[count_at] += 1;
    }
}

/// Whether a message of this type is as long as the answer needs it to be.
const fn is_question(kind: u8) -> bool {
    matches!(kind, LOOKUP | PATHS | LINES)
}

/// Stands for a delay that is not known.
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
