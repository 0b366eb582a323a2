//! Finds the connection and the subflow to which a segment belongs.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

use anabranch_mptcp_wire::Key;

use crate::capture::Frame;
use crate::connection::options::join_token;
use crate::connection::{Connection, Wanted};
use crate::plot::Plots;
use crate::report::ConnectionReport;
use crate::segment::{Flags, Segment, Skip, segment};
use crate::subflow::Side;

/// A closed connection is kept for this long, for segments that come late, ns of the capture's time.
const LINGER_NS: u64 = 10_000_000_000;
/// The most connections at one time. Beyond it the half that was idle the longest is reported and forgotten.
const CONNECTIONS_MAX: usize = 1 << 16;

/// The most ranges of missing bytes that a plot shows.
const GAPS_MAX: usize = 64;

/// Both ends of a flow, the lesser first.
type Pair = (SocketAddr, SocketAddr);

/// The connection and the subflow of a flow.
#[derive(Clone, Copy, Debug)]
struct Place {
    connection: u64,
    subflow: u16,
    /// The side of the lesser end of the pair.
    lesser: Side,
}

/// The frames and segments that were read, and those without a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Totals {
    /// The frames in the capture.
    pub frames: u64,
    /// The TCP segments.
    pub segments: u64,
    /// The frames that are not TCP over IP.
    pub not_tcp: u64,
    /// The fragments of IP packets.
    pub fragments: u64,
    /// The frames whose headers were not captured whole.
    pub cut_off: u64,
    /// The frames with headers that contradict themselves.
    pub malformed: u64,
    /// The frames of unknown link types.
    pub unknown_link: u64,
    /// The first link type that is not known.
    pub unknown_link_type: Option<i32>,
    /// The segments of connections that began before the capture and carried no data, or came after the end.
    pub strays: u64,
    /// The joins of connections that are not in the capture; each is shown as a connection of its own.
    pub orphans: u64,
    /// The connections that were reported early because there were too many.
    pub evicted: u64,
    /// The number of connections.
    pub connections: u64,
    /// When the capture begins, nanoseconds since 1970.
    pub first_ns: u64,
    /// When the capture ends, nanoseconds since 1970.
    pub last_ns: u64,
}

/// The analysis of a capture. It takes frames and gives one report for each connection.
#[derive(Debug)]
pub struct Analysis<S> {
    flows: HashMap<Pair, Place>,
    tokens: HashMap<u32, (u64, Side)>,
    connections: HashMap<u64, Box<Connection>>,
    closed: VecDeque<(u64, u64)>,
    last: Option<(Pair, Place)>,
    plots: Option<Plots>,
    is_studied: bool,
    totals: Totals,
    sink: S,
}

impl<S: FnMut(ConnectionReport)> Analysis<S> {
    /// Creates an analysis that hands each report to `sink` when its connection has ended.
    pub fn new(sink: S) -> Self {
        Self {
            flows: HashMap::new(),
            tokens: HashMap::new(),
            connections: HashMap::new(),
            closed: VecDeque::new(),
            last: None,
            plots: None,
            is_studied: false,
            totals: Totals::default(),
            sink,
        }
    }

    /// Adds plots to the reports: [`StreamReport::plot`](crate::report::StreamReport::plot).
    #[must_use]
    pub fn with_plots(mut self) -> Self {
        self.plots = Some(Plots::default());
        self
    }

    /// Adds the counts of [`Study`](crate::study::Study) to the reports.
    #[must_use]
    pub const fn with_study(mut self) -> Self {
        self.is_studied = true;
        self
    }

    /// Takes the next frame.
    pub fn frame(&mut self, frame: &Frame<'_>) {
        self.totals.frames += 1;
        if frame.time_ns > 0 {
            let totals = &mut self.totals;
            totals.first_ns =
                if totals.first_ns == 0 { frame.time_ns } else { totals.first_ns.min(frame.time_ns) };
            totals.last_ns = totals.last_ns.max(frame.time_ns);
        }
        match segment(frame) {
            Ok(segment) => {
                self.totals.segments += 1;
                self.segment(frame.time_ns, &segment);
            }
            Err(Skip::NotTcp) => self.totals.not_tcp += 1,
            Err(Skip::Fragment) => self.totals.fragments += 1,
            Err(Skip::CutOff) => self.totals.cut_off += 1,
            Err(Skip::Malformed) => self.totals.malformed += 1,
            Err(Skip::LinkType(kind)) => {
                self.totals.unknown_link += 1;
                self.totals.unknown_link_type.get_or_insert(kind);
            }
        }
    }

    /// Returns the keys of the ends of a flow, the sender's first, if the handshake of its connection was
    /// seen.
    #[must_use]
    pub fn keys(&self, sender: SocketAddr, receiver: SocketAddr) -> Option<(Key, Key)> {
        let pair = if sender <= receiver { (sender, receiver) } else { (receiver, sender) };
        let place = self.flows.get(&pair)?;
        let side = if sender == pair.0 { place.lesser } else { place.lesser.peer() };
        let keys = self.connections.get(&place.connection)?.agreement.keys;
        keys[side.index()].zip(keys[side.peer().index()])
    }

    /// Ends the capture: reports all connections that are left, and returns the totals.
    pub fn finish(mut self) -> Totals {
        let mut left: Vec<u64> = self.connections.keys().copied().collect();
        left.sort_unstable();
        for id in left {
            self.end(id);
        }
        self.totals
    }

    fn segment(&mut self, now: u64, segment: &Segment<'_>) {
        while let Some(&(deadline, id)) = self.closed.front()
            && deadline <= now
        {
            self.closed.pop_front();
            self.end(id);
        }
        let is_forward = segment.from <= segment.to;
        let pair = if is_forward { (segment.from, segment.to) } else { (segment.to, segment.from) };
        let Some(place) = self.place(now, pair, segment) else {
            self.totals.strays += 1;
            return;
        };
        let Some(connection) = self.connections.get_mut(&place.connection) else { return };
        let sender = if is_forward { place.lesser } else { place.lesser.peer() };
        let was_closed = connection.is_closed();
        connection.segment(now, place.subflow, sender, segment);
        for token in std::mem::take(&mut connection.agreement.new_tokens) {
            let owns = |side: &Side| {
                let key = connection.agreement.keys[side.index()];
                key.zip(connection.agreement.hash()).is_some_and(|(key, version)| key.token(version) == token)
            };
            let side = Side::BOTH.into_iter().find(owns).unwrap_or(Side::Server);
            self.tokens.insert(token, (place.connection, side));
        }
        if let Some(plots) = &mut self.plots {
            plots.add(place.connection, connection.marks.take());
        }
        if !was_closed && connection.is_closed() {
            self.closed.push_back((now.saturating_add(LINGER_NS), place.connection));
        }
    }

    fn place(&mut self, now: u64, pair: Pair, segment: &Segment<'_>) -> Option<Place> {
        let is_syn = segment.has(Flags::SYN) && !segment.has(Flags::ACK);
        if !is_syn
            && let Some((last, place)) = self.last
            && last == pair
        {
            return Some(place);
        }
        let known = self.flows.get(&pair).copied();
        let place = match known {
            Some(place) if !is_syn || self.is_same(place, pair, segment) => place,
            _ => self.open(now, pair, segment, is_syn)?,
        };
        self.last = Some((pair, place));
        Some(place)
    }

    /// Returns whether a SYN belongs to the open flow that its ports had before: it repeats the flow's SYN,
    /// or that SYN was not captured.
    fn is_same(&self, place: Place, pair: Pair, segment: &Segment<'_>) -> bool {
        let sender = if segment.from == pair.0 { place.lesser } else { place.lesser.peer() };
        let connection = self.connections.get(&place.connection);
        let subflow = connection.and_then(|connection| connection.subflows.get(usize::from(place.subflow)));
        subflow.is_some_and(|subflow| {
            let isn = subflow.halves[sender.index()].isn;
            !subflow.is_closed() && isn.is_none_or(|isn| isn as u32 == segment.seq)
        })
    }

    fn open(&mut self, now: u64, pair: Pair, segment: &Segment<'_>, is_syn: bool) -> Option<Place> {
        if !is_syn && segment.payload_bytes == 0 && !segment.has(Flags::SYN) {
            return None;
        }
        let sender_is_lesser = segment.from == pair.0;
        let lesser = |sender: Side| if sender_is_lesser { sender } else { sender.peer() };
        if let Some(token) = join_token(segment) {
            let joined = self.tokens.get(&token).copied();
            let connection = joined.and_then(|(id, _)| Some((id, self.connections.get_mut(&id)?)));
            if let (Some((_, owner)), Some((id, connection))) = (joined, connection) {
                // The SYN names the token of the end to which it goes.
                let opener = owner.peer();
                let ends = match opener {
                    Side::Client => [segment.from, segment.to],
                    Side::Server => [segment.to, segment.from],
                };
                if let Some(subflow) = connection.join(now, ends, opener) {
                    let place = Place { connection: id, subflow, lesser: lesser(opener) };
                    self.flows.insert(pair, place);
                    return Some(place);
                }
            }
            self.totals.orphans += 1;
        }
        if self.connections.len() >= CONNECTIONS_MAX {
            self.evict();
        }
        let id = self.totals.connections;
        self.totals.connections += 1;
        // Without a SYN, the lower port is taken for the server's.
        let is_answer = segment.has(Flags::SYN) && segment.has(Flags::ACK);
        let from_client = is_syn || !is_answer && segment.from.port() >= segment.to.port();
        let (ends, sender) = if from_client {
            ([segment.from, segment.to], Side::Client)
        } else {
            ([segment.to, segment.from], Side::Server)
        };
        let wanted = Wanted { plots: self.plots.is_some(), study: self.is_studied };
        self.connections.insert(id, Box::new(Connection::new(id, now, ends, wanted)));
        let place = Place { connection: id, subflow: 0, lesser: lesser(sender) };
        self.flows.insert(pair, place);
        Some(place)
    }

    /// Reports a connection and forgets it.
    fn end(&mut self, id: u64) {
        let Some(mut connection) = self.connections.remove(&id) else { return };
        for subflow in &connection.subflows {
            let [a, b] = subflow.ends;
            let pair = if a <= b { (a, b) } else { (b, a) };
            // The ports may belong to a new connection by now.
            if self.flows.get(&pair).is_some_and(|place| place.connection == id) {
                self.flows.remove(&pair);
            }
        }
        if let Some(version) = connection.agreement.hash() {
            for key in connection.agreement.keys.into_iter().flatten() {
                let token = key.token(version);
                if self.tokens.get(&token).is_some_and(|(owner, _)| *owner == id) {
                    self.tokens.remove(&token);
                }
            }
        }
        self.last = None;
        connection.finish();
        let mut report = ConnectionReport::of(&connection);
        if let Some(mut plots) = self.plots.as_mut().and_then(|plots| plots.take(id)) {
            for (plot, stream) in plots.iter_mut().zip(&connection.streams) {
                for gap in stream.gaps(GAPS_MAX) {
                    plot.missing(gap);
                }
            }
            let [up, down] = plots;
            (report.streams.up.plot, report.streams.down.plot) = (Some(up), Some(down));
        }
        (self.sink)(report);
    }

    fn evict(&mut self) {
        let mut idle: Vec<(u64, u64)> = self.connections.iter().map(|(id, c)| (c.end_ns, *id)).collect();
        idle.sort_unstable();
        for (_, id) in idle.into_iter().take(CONNECTIONS_MAX / 2) {
            self.totals.evicted += 1;
            self.end(id);
        }
    }
}
