//! Compares two captures of the same transfers, one at each end: one-way delays, and losses between the
//! captures.
//!
//! **Matching.** A flow is the same in both captures if its addresses and ports are: there must be no
//! translation of addresses between them. Bytes are matched by their TCP sequence numbers. Packets are not
//! matched, because network cards cut and join them. SYN and FIN count as bytes. Acknowledgements without
//! data are matched by their number, if they are the first with it.
//!
//! **Clocks.** No two clocks agree. For a flow, `a` is the least time from the client's capture to the
//! server's, and `b` the least time back, both with the clocks' difference in them. If both ways take the
//! same time when they are empty, the server's clock is ahead by (a - b) / 2 (RFC 5905 section 8). However
//! the round trip is divided between the ways, this is wrong by at most (a + b) / 2. The flow with the least
//! round trip decides. Clocks that drift apart during the capture are not noticed.
//!
//! **Losses.** What passed the sender's capture and not the receiver's, counting each copy of a byte. What is
//! lost in a queue in front of the sender's capture is in neither. What passed before the other capture began
//! does not count, nor what was sent after it ended; what was on its way at that moment seems lost or too
//! much. What arrives after the sender's capture has ended counts, and can hide losses.
//!
//! **Places.** The client is the host at the client's capture, whether it opens a flow or not: the handshakes
//! tell (see the module `clocks`). Without one the host that asks is taken for it, and the text warns where
//! more arrived than was sent.
//!
//! Bytes that were sent twice give no delay (Karn). Memory is bounded: an unmatched range is forgotten after
//! `WAITING_MAX` later ones of its flow, and flows beyond `FLOWS_MAX` are only counted.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::io::Read;
use std::net::SocketAddr;

use anabranch_mptcp_wire::expand;
use serde::Serialize;

use crate::capture::{Capture, CaptureError, Frame};
use crate::clocks::Clocks;
use crate::distribution::Quantiles;
use crate::report::Directions;
use crate::segment::{Flags, Segment, segment};
use crate::subflow::Side;
use crate::words;

/// The most ranges of a flow that wait for the other capture.
const WAITING_MAX: usize = 8192;
/// The most flows.
const FLOWS_MAX: usize = 1 << 14;
/// Steps in which delays are counted at first, ns, and how many different ones there may be.
const STEP_NS: i64 = 20_000;
const STEPS_MAX: usize = 4096;
/// The offset of all sequence numbers, so that none is below zero.
const EPOCH: u64 = 1 << 32;

/// Counts of time differences, which may be negative. They are exact to a step.
#[derive(Debug)]
struct Differences {
    steps: BTreeMap<i64, u64>,
    step_ns: i64,
    least_ns: i64,
    samples: u64,
    sum_ns: i128,
}

impl Default for Differences {
    fn default() -> Self {
        Self { steps: BTreeMap::new(), step_ns: STEP_NS, least_ns: i64::MAX, samples: 0, sum_ns: 0 }
    }
}

impl Differences {
    fn add(&mut self, ns: i64) {
        self.least_ns = self.least_ns.min(ns);
        self.samples += 1;
        self.sum_ns += i128::from(ns);
        *self.steps.entry(ns.div_euclid(self.step_ns)).or_default() += 1;
        while self.steps.len() > STEPS_MAX {
            self.step_ns *= 2;
            let mut wider = BTreeMap::new();
            for (step, count) in std::mem::take(&mut self.steps) {
                *wider.entry(step.div_euclid(2)).or_default() += count;
            }
            self.steps = wider;
        }
    }

    /// Returns the delays, if the receiver's clock is `ahead_ns` ahead of the sender's.
    fn report(&self, ahead_ns: i64) -> Option<Quantiles> {
        let micros = |ns: i64| (ns.saturating_sub(ahead_ns).max(0) / 1000) as u64;
        let quantile = |percent: u64| {
            let mut below = 0;
            let at = self.steps.iter().find(|(_, count)| {
                below += **count;
                below * 100 >= self.samples * percent
            });
            at.map_or(0, |(step, _)| {
                micros(step.saturating_mul(self.step_ns).saturating_add(self.step_ns / 2).max(self.least_ns))
            })
        };
        (self.samples > 0).then(|| Quantiles {
            samples: self.samples,
            min: micros(self.least_ns),
            mean: ((self.sum_ns / i128::from(self.samples)) as i64).saturating_sub(ahead_ns).max(0) as f64
                / 1e3,
            p50: quantile(50),
            p90: quantile(90),
            p99: quantile(99),
            max: self
                .steps
                .keys()
                .next_back()
                .map_or(0, |step| micros(step.saturating_add(1).saturating_mul(self.step_ns))),
        })
    }
}

/// Bytes that passed the sender's capture and wait for the receiver's.
#[derive(Clone, Copy, Debug)]
struct Sent {
    start: u64,
    time_ns: i64,
    is_again: bool,
}

/// One direction of a flow.
#[derive(Debug, Default)]
struct Way {
    /// The ranges that wait, by the number behind their last byte.
    sent: BTreeMap<u64, Sent>,
    /// Acknowledgements without data, by what they acknowledge.
    acks: BTreeMap<u64, i64>,
    /// What arrived before it was sent, as far as the clocks tell: data by its end, acknowledgements.
    early: [BTreeMap<u64, i64>; 2],
    /// The highest number at both captures, and the highest acknowledgement.
    high: [u64; 2],
    ack: [u64; 2],
    /// The segments at the sender's and at the receiver's capture, and their bytes of payload.
    packets: [u64; 2],
    bytes: [u64; 2],
    differences: Differences,
}

impl Way {
    /// A segment that passes the sender's capture (0) or the receiver's (1). Its bytes count if the other
    /// capture was made at that time. The clocks are wrong by `error_ns` at most.
    fn segment(&mut self, at: usize, time_ns: i64, segment: &Segment<'_>, counts: bool, error_ns: i64) {
        let near = if self.high[at] == 0 { EPOCH + u64::from(segment.seq) } else { self.high[at] };
        let start = expand(segment.seq, near);
        let numbered = u64::from(segment.has(Flags::SYN)) + u64::from(segment.has(Flags::FIN));
        let end = start + u64::from(segment.payload_bytes) + numbered;
        self.high[at] = self.high[at].max(end);
        self.packets[at] += 1;
        self.bytes[at] += if counts { u64::from(segment.payload_bytes) } else { 0 };
        match (start < end, at) {
            (true, 0) => self.sent(time_ns, start, end, error_ns),
            (true, _) => self.arrived(time_ns, end),
            (false, _) if segment.has(Flags::ACK) && !segment.has(Flags::RST) => {
                self.acked(at, time_ns, segment.ack, error_ns);
            }
            _ => {}
        }
    }

    fn sent(&mut self, time_ns: i64, start: u64, end: u64, error_ns: i64) {
        let mut is_again = false;
        for (_, old) in self.sent.range_mut(start + 1..).take_while(|(_, old)| old.start < end) {
            old.is_again = true;
            is_again = true;
        }
        let mut has_arrived = false;
        while let Some((&early_end, &early)) = self.early[0].range(start + 1..=end).next() {
            self.early[0].remove(&early_end);
            if !is_again && time_ns.saturating_sub(early) <= error_ns {
                self.differences.add(early.saturating_sub(time_ns));
                has_arrived |= early_end == end;
            }
        }
        if has_arrived {
            return;
        }
        self.sent.entry(end).or_insert(Sent { start, time_ns, is_again });
        if self.sent.len() > WAITING_MAX {
            self.sent.pop_first();
        }
    }

    fn arrived(&mut self, time_ns: i64, end: u64) {
        if end > self.high[0] {
            wait(&mut self.early[0], end, time_ns);
            return;
        }
        let Some((&sent_end, sent)) = self.sent.range(end..).next() else { return };
        if sent.start < end && !sent.is_again {
            self.differences.add(time_ns.saturating_sub(sent.time_ns));
            if sent_end == end {
                self.sent.remove(&end);
            }
        }
    }

    fn acked(&mut self, at: usize, time_ns: i64, ack: u32, error_ns: i64) {
        let near = if self.ack[at] == 0 { EPOCH + u64::from(ack) } else { self.ack[at] };
        let ack = expand(ack, near);
        if ack <= self.ack[at] {
            return;
        }
        self.ack[at] = ack;
        if at == 1 && ack > self.ack[0] {
            wait(&mut self.early[1], ack, time_ns);
        } else if at == 1 {
            if let Some(sent) = self.acks.remove(&ack) {
                self.differences.add(time_ns.saturating_sub(sent));
            }
        } else if let Some(early) = self.early[1].remove(&ack) {
            if time_ns.saturating_sub(early) <= error_ns {
                self.differences.add(early.saturating_sub(time_ns));
            }
        } else {
            wait(&mut self.acks, ack, time_ns);
        }
    }
}

/// Keeps when something passed one capture until it passes the other; forgets the first of too many.
fn wait(waiting: &mut BTreeMap<u64, i64>, number: u64, time_ns: i64) {
    waiting.entry(number).or_insert(time_ns);
    if waiting.len() > WAITING_MAX {
        waiting.pop_first();
    }
}

/// Both directions of a flow, the client's first. The client is the end at the client's capture.
#[derive(Debug, Default)]
struct Flow {
    ways: [Way; 2],
}

/// Two captures while they are read.
#[derive(Debug, Default)]
pub struct BothEnds {
    flows: HashMap<[SocketAddr; 2], Flow>,
    /// What the handshakes told: all times are by the client's clock, as far as this tells it.
    clocks: Clocks,
    left_out: u64,
}

/// The comparison of two captures.
#[derive(Debug, Serialize)]
pub struct BothEndsReport {
    /// The time by which the server's clock is ahead of the client's, ms; `null` if no flow has delays in
    /// both directions.
    pub server_ahead_ms: Option<f64>,
    /// The largest error of `server_ahead_ms`, ms, if both clocks run at the same rate.
    pub error_max_ms: Option<f64>,
    /// The flows that are in both captures, in the order of their addresses.
    pub flows: Vec<FlowReport>,
    /// The number of flows that are in one capture only.
    pub flows_of_one: u64,
    /// The number of segments of flows beyond the limit, which were ignored.
    pub left_out: u64,
}

/// A flow in both captures.
#[derive(Debug, Serialize)]
pub struct FlowReport {
    /// The end at the client's capture.
    pub client: SocketAddr,
    /// The end at the server's capture.
    pub server: SocketAddr,
    /// The data that the client and the server sent.
    pub ways: Directions<WayReport>,
}

/// One direction of a flow between two captures.
#[derive(Debug, Serialize)]
pub struct WayReport {
    /// The segments at the sender's capture and at the receiver's; network cards cut and join them.
    pub packets: (u64, u64),
    /// The payload that passed the sender's capture, bytes, each copy counted.
    pub sent_bytes: u64,
    /// The payload that passed the receiver's capture, bytes.
    pub arrived_bytes: u64,
    /// The payload that was lost between the captures, bytes: `sent_bytes` minus `arrived_bytes`.
    pub lost_bytes: u64,
    /// The delay from one capture to the other, µs.
    pub delay_us: Option<Quantiles>,
}

impl BothEnds {
    /// Reads two captures in the order of time, until `is_stopped`. Each capture is given twice, because the
    /// clocks must be compared first. Returns how reading each capture ended.
    pub fn read<C: Read, S: Read>(
        &mut self,
        [client_syns, client]: [Capture<C>; 2],
        [server_syns, server]: [Capture<S>; 2],
        is_stopped: impl Fn() -> bool,
    ) -> [Result<(), CaptureError>; 2] {
        self.clocks = Clocks::compare(client_syns, server_syns, &is_stopped);
        let ahead_ns = self.clocks.ahead_ns;
        let (mut client, mut server) = (Next::read(client), Next::read(server));
        let begins = [client.time_ns(0), server.time_ns(ahead_ns)];
        while !is_stopped() {
            let times = [client.time_ns(0), server.time_ns(ahead_ns)];
            let tap = match times {
                [None, None] => break,
                [Some(there), Some(here)] if there > here => Side::Server,
                [Some(_), _] => Side::Client,
                [None, Some(_)] => Side::Server,
            };
            let other = tap.peer().index();
            let Some(now) = times[tap.index()] else { break };
            let has_begun = begins[other].is_some_and(|begin| begin <= now);
            let is_seen = [has_begun && times[other].is_some(), has_begun];
            match tap {
                Side::Client => client.give(|frame| self.frame(tap, now, frame, is_seen)),
                Side::Server => server.give(|frame| self.frame(tap, now, frame, is_seen)),
            }
        }
        [client.end, server.end]
    }

    /// Takes a frame of the capture at `tap`; whether it counts if it was sent there, and if it arrived.
    fn frame(&mut self, tap: Side, now: i64, frame: &Frame<'_>, is_seen: [bool; 2]) {
        let Ok(segment) = segment(frame) else { return };
        let forward = [segment.from, segment.to];
        let backward = [segment.to, segment.from];
        let (ends, sender) = match (self.flows.contains_key(&forward), self.flows.contains_key(&backward)) {
            (true, _) => (forward, Side::Client),
            (_, true) => (backward, Side::Server),
            _ => match self.clocks.place(segment.from, segment.to).unwrap_or_else(|| asking(&segment)) {
                Side::Client => (forward, Side::Client),
                Side::Server => (backward, Side::Server),
            },
        };
        if self.flows.len() == FLOWS_MAX && !self.flows.contains_key(&ends) {
            self.left_out += 1;
            return;
        }
        let way = &mut self.flows.entry(ends).or_default().ways[sender.index()];
        let at = usize::from(tap != sender);
        way.segment(at, now, &segment, is_seen[at], self.clocks.error_ns);
    }

    /// Returns the comparison.
    #[must_use]
    pub fn report(&self) -> BothEndsReport {
        let is_in_both = |flow: &Flow| flow.ways.iter().any(|way| way.packets.iter().all(|count| *count > 0));
        let least = |way: &Way| (way.differences.samples > 0).then_some(way.differences.least_ns);
        let trips =
            self.flows.values().filter_map(|flow| Some((least(&flow.ways[0])?, least(&flow.ways[1])?)));
        let trips = trips.filter(|(there, back)| there.saturating_add(*back) >= 0);
        let best = trips.min_by_key(|(there, back)| there.saturating_add(*back));
        let ahead_ns = best.map_or(0, |(there, back)| there / 2 - back / 2);
        let mut ends: Vec<_> = self.flows.iter().filter(|(_, flow)| is_in_both(flow)).collect();
        ends.sort_by_key(|(ends, _)| **ends);
        let flows = ends.into_iter().map(|(ends, flow)| FlowReport {
            client: ends[0],
            server: ends[1],
            ways: Directions::of(|side| {
                let way = &flow.ways[side.index()];
                let ahead_ns = if side == Side::Client { ahead_ns } else { -ahead_ns };
                WayReport {
                    packets: way.packets.into(),
                    sent_bytes: way.bytes[0],
                    arrived_bytes: way.bytes[1],
                    lost_bytes: way.bytes[0].saturating_sub(way.bytes[1]),
                    delay_us: way.differences.report(ahead_ns).filter(|_| best.is_some()),
                }
            }),
        });
        let flows: Vec<_> = flows.collect();
        BothEndsReport {
            server_ahead_ms: best.map(|_| self.clocks.ahead_ns.saturating_add(ahead_ns) as f64 / 1e6),
            error_max_ms: best.map(|(there, back)| there.saturating_add(back).max(0) as f64 / 2e6),
            flows_of_one: (self.flows.len() - flows.len()) as u64,
            flows,
            left_out: self.left_out,
        }
    }
}

/// Who sends a segment, by its SYN: the host that is asked is the server. Without a SYN it is the lower port.
const fn asking(segment: &Segment<'_>) -> Side {
    let asks = match (segment.has(Flags::SYN), segment.has(Flags::ACK)) {
        (true, is_answer) => !is_answer,
        (false, _) => segment.from.port() >= segment.to.port(),
    };
    if asks { Side::Client } else { Side::Server }
}

/// Flows that the text shows, those with the most data.
const SHOWN_MAX: usize = 20;
/// The columns of a flow's table.
const COLUMNS: [&str; 8] = ["", "sent", "arrived", "lost", "share", "least ms", "median ms", "99 % ms"];

impl BothEndsReport {
    /// Returns the report as text.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = match (self.server_ahead_ms, self.error_max_ms) {
            (Some(ahead), Some(error)) => format!(
                "both captures: the server's clock is {:.3} ms {}, if ways are alike \
                 (wrong by {error:.3} ms at most)\n",
                ahead.abs(),
                if ahead < 0.0 { "behind" } else { "ahead" }
            ),
            _ if self.flows.is_empty() => "both captures: no flow is in both\n".to_owned(),
            _ => "both captures: nothing passed both ways, so the clocks cannot be compared\n".to_owned(),
        };
        let sent = |flow: &FlowReport| flow.ways.up.sent_bytes + flow.ways.down.sent_bytes;
        let mut shown: Vec<_> = self.flows.iter().collect();
        shown.sort_by_key(|flow| std::cmp::Reverse(sent(flow)));
        for flow in shown.iter().take(SHOWN_MAX) {
            let _ = writeln!(text, "\n  client {} to server {}", flow.client, flow.server);
            let mut rows = vec![COLUMNS.map(str::to_owned)];
            rows.extend(Side::BOTH.map(|side| flow.ways.from(side).row(side)));
            words::table(&mut text, &rows);
        }
        let has_more = |way: &WayReport| way.arrived_bytes > way.sent_bytes;
        let odd = self.flows.iter().filter(|flow| has_more(&flow.ways.up) || has_more(&flow.ways.down));
        let odd = odd.count() as u64;
        if odd > 0 {
            let _ = writeln!(
                text,
                "\n  more arrived than was sent in {}: a capture missed frames, or is not the end's it is \
                 said to be",
                words::plural(odd, "flow")
            );
        }
        let more = self.flows.len().saturating_sub(SHOWN_MAX) as u64;
        for (count, what) in
            [(more, "more in both, which --json has"), (self.flows_of_one, "in one capture only")]
        {
            if count > 0 {
                let _ = writeln!(text, "\n  {} {what}", words::plural(count, "flow"));
            }
        }
        text
    }
}

impl WayReport {
    fn row(&self, side: Side) -> [String; COLUMNS.len()] {
        let share = 100.0 * self.lost_bytes as f64 / self.sent_bytes.max(1) as f64;
        let delay = |of: fn(Quantiles) -> u64| {
            self.delay_us.map_or_else(|| "-".into(), |delay| format!("{:.1}", of(delay) as f64 / 1e3))
        };
        [
            words::towards(side).into(),
            words::bytes(self.sent_bytes),
            words::bytes(self.arrived_bytes),
            words::bytes(self.lost_bytes),
            format!("{share:.2} %"),
            delay(|delay| delay.min),
            delay(|delay| delay.p50),
            delay(|delay| delay.p99),
        ]
    }
}

/// A capture and its next frame, which is kept so that its time can be compared.
struct Next<R> {
    capture: Capture<R>,
    /// The next frame without its bytes, if there is one; the field `bytes` has them.
    frame: Option<Frame<'static>>,
    bytes: Vec<u8>,
    end: Result<(), CaptureError>,
}

impl<R: Read> Next<R> {
    fn read(capture: Capture<R>) -> Self {
        let mut next = Self { capture, frame: None, bytes: Vec::new(), end: Ok(()) };
        next.advance();
        next
    }

    fn advance(&mut self) {
        self.bytes.clear();
        self.frame = None;
        match self.capture.next_frame() {
            Ok(Some(frame)) => {
                self.bytes.extend(frame.bytes);
                self.frame = Some(Frame { bytes: &[], ..frame });
            }
            Ok(None) => {}
            Err(error) => self.end = Err(error),
        }
    }

    /// Returns when the next frame passed, corrected by `ahead_ns`, by which this capture's clock is ahead.
    fn time_ns(&self, ahead_ns: i64) -> Option<i64> {
        self.frame.map(|frame| (frame.time_ns as i64).saturating_sub(ahead_ns))
    }

    fn give(&mut self, to: impl FnOnce(&Frame<'_>)) {
        if let Some(frame) = self.frame {
            to(&Frame { bytes: &self.bytes, ..frame });
        }
        self.advance();
    }
}
