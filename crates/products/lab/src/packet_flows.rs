//! Simulates flows of packets without content: the windows, estimators and loss detection of Anabranch
//! ([`anabranch_algo::subflow::Subflow`]) at full speed, for experiments about rates and not about bytes.
//!
//! A flow has one path or several; each packet gets an acknowledgement, or two packets share one
//! (`ack_delay`). A lost packet returns to the flow's common backlog and may leave again on any path, under
//! a new number: there is no reassembly to wait for, as with mmTP's chunks. A receiver may bound its paths'
//! windows, as it does for connections to mirrors.
//! This module does not model connections that must keep a byte stream in order (issue: MPTCP).
//!
//! All flows live in a few flat tables, and an idle path has at most one entry in the queue of timers.

mod ack_delay;
mod config;
mod flow;
mod mirrors;
mod segment;
mod send_backlog;
mod steering;

use std::collections::{BTreeMap, BTreeSet};

use anabranch_algo::control::SubflowStats;
use anabranch_algo::controller::Controller;
use anabranch_algo::shared_bottleneck::Detector;
use anabranch_algo::subflow::Subflow;
use anabranch_algo::{Span, Time};
use anabranch_sim::{CrossTraffic, CrossTrafficSource, EventQueue, Frame, LinkChange, LinkId, Net, RouteId};

use crate::digest::Digest;
use ack_delay::AckDelay;
pub use config::FlowConfig;
use mirrors::MirrorReceiver;
use segment::SegmentKind;
pub use segment::{ACK_BYTES, Segment, SubflowId};
use send_backlog::{PayloadKind, SendBacklog};
use steering::Heard;
pub use steering::{AccessPoint, SteeringConfig};

/// A packet flow, numbered in the order in which it was added.
pub type FlowId = usize;
/// Most timers of paths that may come due in one virtual millisecond, per path; more mean an endless loop.
/// Each packet that was overtaken has a deadline of its own, so a path may have about one timer a packet.
pub const STORM_MAX: u64 = 1_024;

/// The purpose of a timer.
#[derive(Clone, Copy, Debug)]
enum TimerKind {
    Start(u32),
    Stop(u32),
    Subflow(SubflowId),
    Ack(SubflowId),
    CrossTraffic(u32),
}

/// One path of a flow.
struct SubflowEntry {
    /// Loss detection and window; its batches are single packets.
    subflow: Subflow<PayloadKind, u8, Controller>,
    flow: u32,
    /// Index of the path's entry in [`PacketFlows::members`]; `group` is the range of its group there.
    at: u32,
    group: (u32, u32),
    down: RouteId,
    /// Route of acknowledgements; `None` if they return without delay.
    up: Option<RouteId>,
    /// State of delayed acknowledgements, if they are delayed.
    ack_delay: Option<Box<AckDelay>>,
    /// Packets delivered.
    delivered: u64,
    timeouts: u32,
    /// Congestion events found without a timeout.
    reductions: u32,
    /// Whether nothing has come back since the last timeout.
    unresponsive: bool,
    /// Time of the timer entry in the queue; a later deadline is noticed when the entry comes due.
    timer: Time,
}

/// A flow.
struct PacketFlow {
    first: SubflowId,
    subflows: u32,
    bytes: u16,
    backlog: SendBacklog,
    started: Option<Time>,
    done: Option<Time>,
    stopped: bool,
    /// Shared-bottleneck detection, if it is used.
    detector: Option<Box<Detector>>,
    /// State that bounds the windows of the paths, if they are connections to mirrors.
    mirrors: Option<Box<MirrorReceiver>>,
    /// State of a receiver that steers between WiFi access points.
    steering: Option<Box<steering::Receiver>>,
}

/// All packet flows and cross traffic; see the [module](self).
#[derive(Default)]
pub struct PacketFlows {
    subflows: Vec<SubflowEntry>,
    flows: Vec<PacketFlow>,
    /// Published statistics of every path; the paths of a group are adjacent.
    members: Vec<SubflowStats>,
    timers: EventQueue<TimerKind>,
    cross_traffic: Vec<CrossTrafficSource>,
    digest: Digest,
    /// The current millisecond; `timers_fired` counts the timers of paths in it.
    millisecond: u64,
    timers_fired: u64,
    storm: bool,
    /// Time at which receivers that steer look at their access points next; `None` if none steers.
    sense_due: Option<Time>,
}

impl PacketFlows {
    /// Adds cross traffic.
    pub fn cross_traffic(&mut self, config: CrossTraffic) {
        self.timers.push(config.start, TimerKind::CrossTraffic(self.cross_traffic.len() as u32));
        self.cross_traffic.push(CrossTrafficSource::new(config));
    }

    /// Returns the time of the next event that is not a packet's arrival.
    #[must_use]
    pub fn next_timer(&self) -> Time {
        self.timers.next_at()
    }

    /// Handles the timers that are due at `now`, unless the flows [storm](Self::storms); passes each packet
    /// to `send`.
    pub fn timers(&mut self, now: Time, send: &mut impl FnMut(RouteId, Segment)) {
        while !self.storm
            && let Some((_, timer)) = self.timers.pop_due(now)
        {
            match timer {
                TimerKind::Start(flow) => self.start(now, flow as FlowId, send),
                TimerKind::Stop(flow) => self.stop(flow as FlowId),
                TimerKind::Subflow(sub) => {
                    self.count_timer(now);
                    self.subflow_timer(now, sub, send);
                }
                TimerKind::Ack(sub) => self.ack_timer(now, sub, send),
                TimerKind::CrossTraffic(no) => self.cross_traffic_timer(now, no, send),
            }
        }
    }

    #[inline(never)]
    fn cross_traffic_timer(&mut self, now: Time, no: u32, send: &mut impl FnMut(RouteId, Segment)) {
        let Some((packet, next)) = self.cross_traffic[no as usize].timer(now) else { return };
        if let Some((route, bytes)) = packet {
            send(route, Segment::new(0, no, bytes as u16, SegmentKind::Cross));
        }
        self.timers.push(next, TimerKind::CrossTraffic(no));
    }

    /// Counts a timer of a path.
    fn count_timer(&mut self, now: Time) {
        let millisecond = now.as_nanos() / 1_000_000;
        if millisecond != self.millisecond {
            (self.millisecond, self.timers_fired) = (millisecond, 0);
        }
        self.timers_fired += 1;
        self.storm |= self.timers_fired > STORM_MAX * self.subflows.len() as u64;
    }

    /// Whether timers came due so often that there must be an endless loop.
    #[must_use]
    pub const fn storms(&self) -> bool {
        self.storm
    }

    /// Returns the number of entries in the queue of timers.
    #[must_use]
    pub const fn timers_len(&self) -> usize {
        self.timers.len()
    }

    /// Handles a segment that has reached the end of its route.
    pub fn arrived(&mut self, now: Time, mut segment: Segment, send: &mut impl FnMut(RouteId, Segment)) {
        let kind = segment.kind();
        self.mix(now.as_nanos() ^ segment.id << 20 ^ u64::from(segment.subflow()) << 44 ^ kind as u64);
        match kind {
            SegmentKind::Data => {
                if self.sense_due.is_some() {
                    self.steer(&mut segment);
                }
                self.observe(now, segment);
                self.acknowledge(now, segment, send);
            }
            SegmentKind::Ack => self.acked(now, segment, send),
            SegmentKind::Cross => {}
        }
    }

    /// Returns the time at which receivers that steer look at their access points next; `None` if none
    /// steers.
    #[must_use]
    pub const fn sense_due(&self) -> Option<Time> {
        self.sense_due
    }

    /// Lets the receivers that steer look at their access points, which are links of `net`.
    pub fn sense<P: anabranch_sim::Packet>(&mut self, now: Time, net: &mut Net<P>) {
        let links = self.flows.iter().filter_map(|flow| Some((flow.steering.as_ref()?, flow.subflows)));
        let links = links.flat_map(|(receiver, n)| (0..n as usize).filter_map(|path| receiver.link(path)));
        let links: BTreeSet<LinkId> = links.collect();
        let frames: BTreeMap<LinkId, Vec<Frame>> =
            links.into_iter().map(|link| (link, net.take_frames(link).collect())).collect();
        let mut due = Time::NEVER;
        for no in 0..self.flows.len() {
            let subflows = self.subflows_of(no);
            let Some(receiver) = &mut self.flows[no].steering else { continue };
            let heard = |s: usize| {
                let link = receiver.link(s - subflows.start);
                Heard {
                    rate: link.and_then(|link| net.rate(link).filter(|_| net.is_up(link))),
                    frames: link.and_then(|link| frames.get(&link)).map_or(&[], Vec::as_slice),
                    subflow: s as u32,
                    rtt_min: self.subflows[s].subflow.rtt().min(),
                }
            };
            let heard: Vec<Heard<'_>> = subflows.clone().map(heard).collect();
            let sensed = receiver.sense(now, &heard);
            due = due.min(sensed.next);
            for (link, on) in sensed.switched {
                net.change(now, link, LinkChange::Held(!on));
            }
            if sensed.woken {
                for s in subflows {
                    self.subflows[s].timer = now;
                    self.timers.push(now, TimerKind::Subflow(s as SubflowId));
                }
            }
        }
        self.sense_due = Some(due);
    }

    /// Marks a packet that has arrived, if the receiver's steering says so.
    fn steer(&mut self, segment: &mut Segment) {
        let flow = &mut self.flows[self.subflows[segment.subflow() as usize].flow as usize];
        let path = (segment.subflow() - flow.first) as usize;
        if flow.steering.as_mut().is_some_and(|receiver| receiver.marks(path)) {
            anabranch_sim::Packet::mark(segment);
        }
    }

    /// Whether the receiver's steering leaves a path without data: it is off, or it is a backup path and
    /// another path works that is none.
    fn is_held_back(&self, s: usize) -> bool {
        let flow = &self.flows[self.subflows[s].flow as usize];
        let Some(receiver) = &flow.steering else { return false };
        let first = flow.first as usize;
        let works = |path: usize| !receiver.is_backup(path) && !self.subflows[first + path].unresponsive;
        let path = s - first;
        receiver.is_off(path) || receiver.is_backup(path) && (0..flow.subflows as usize).any(works)
    }

    /// Acknowledges a packet at the receiver of its path, at once or later.
    fn acknowledge(&mut self, now: Time, segment: Segment, send: &mut impl FnMut(RouteId, Segment)) {
        let sub = &mut self.subflows[segment.subflow() as usize];
        let Some(delay) = &mut sub.ack_delay else {
            return self.send_ack(now, segment.ack(), send);
        };
        let acks = delay.arrival(now, segment, sub.subflow.rtt().srtt());
        if let Some(at) = delay.arm() {
            self.timers.push(at, TimerKind::Ack(segment.subflow()));
        }
        acks.into_iter().flatten().for_each(|ack| self.send_ack(now, ack, send));
    }

    #[inline(never)]
    fn ack_timer(&mut self, now: Time, sub: SubflowId, send: &mut impl FnMut(RouteId, Segment)) {
        let Some(delay) = &mut self.subflows[sub as usize].ack_delay else { return };
        let ack = delay.timer(now);
        if let Some(at) = delay.arm() {
            self.timers.push(at, TimerKind::Ack(sub));
        }
        if let Some(ack) = ack {
            self.send_ack(now, ack, send);
        }
    }

    #[inline]
    fn send_ack(&mut self, now: Time, ack: Segment, send: &mut impl FnMut(RouteId, Segment)) {
        match self.subflows[ack.subflow() as usize].up {
            Some(up) => send(up, ack),
            None => self.acked(now, ack, send),
        }
    }

    /// Returns a digest of all arrivals and their times.
    #[must_use]
    pub const fn digest(&self) -> u64 {
        self.digest.0
    }

    fn mix(&mut self, what: u64) {
        self.digest.0 = (self.digest.0.rotate_left(5) ^ what).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    /// Returns the range of a flow's paths among all paths.
    fn subflows_of(&self, flow: FlowId) -> std::ops::Range<usize> {
        let flow = &self.flows[flow];
        flow.first as usize..(flow.first + flow.subflows) as usize
    }

    // Readers.

    /// Returns the number of flows.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.flows.len()
    }

    /// Returns the packets delivered so far on each path of a flow.
    pub fn delivered_packets(&self, flow: FlowId) -> impl Iterator<Item = u64> {
        self.subflows[self.subflows_of(flow)].iter().map(|sub| sub.delivered)
    }

    /// Returns the bytes delivered so far on each path of a flow: whole packets, headers included.
    pub fn delivered_bytes(&self, flow: FlowId) -> impl Iterator<Item = u64> {
        let bytes = u64::from(self.flows[flow].bytes);
        self.delivered_packets(flow).map(move |packets| packets * bytes)
    }

    /// Returns the window of each path of a flow, packets.
    pub fn cwnd(&self, flow: FlowId) -> impl Iterator<Item = u32> {
        self.subflows[self.subflows_of(flow)].iter().map(|sub| sub.subflow.cwnd())
    }

    /// Returns the smoothed RTT of each path of a flow; zero before the first sample.
    pub fn srtt(&self, flow: FlowId) -> impl Iterator<Item = Span> {
        self.subflows[self.subflows_of(flow)].iter().map(|sub| sub.subflow.rtt().srtt())
    }

    /// Returns the number of timeouts of all paths of a flow.
    #[must_use]
    pub fn timeouts(&self, flow: FlowId) -> u64 {
        self.subflows[self.subflows_of(flow)].iter().map(|sub| u64::from(sub.timeouts)).sum()
    }

    /// Returns the number of congestion events of all paths of a flow that were found without a timeout: at
    /// most one a window.
    #[must_use]
    pub fn reductions(&self, flow: FlowId) -> u64 {
        self.subflows[self.subflows_of(flow)].iter().map(|sub| u64::from(sub.reductions)).sum()
    }

    /// Returns the number of each path's group in a flow, from 0.
    #[must_use]
    pub fn groups(&self, flow: FlowId) -> Vec<u32> {
        if let Some(mirrors) = &self.flows[flow].mirrors {
            return mirrors.groups();
        }
        let subflows = &self.subflows[self.subflows_of(flow)];
        let mut starts: Vec<u32> = subflows.iter().map(|sub| sub.group.0).collect();
        starts.sort_unstable();
        starts.dedup();
        subflows.iter().map(|sub| starts.partition_point(|start| *start < sub.group.0) as u32).collect()
    }

    /// Returns the groups of a flow, each as the statistics that its members publish.
    pub fn published(&self, flow: FlowId) -> impl Iterator<Item = &[SubflowStats]> {
        let subflows = &self.subflows[self.subflows_of(flow)];
        subflows
            .iter()
            .filter(|sub| sub.at == sub.group.0)
            .map(|sub| &self.members[sub.group.0 as usize..sub.group.1 as usize])
    }

    /// Returns the time at which a flow started and the time at which its last packet was acknowledged;
    /// `None` before that.
    #[must_use]
    pub fn times(&self, flow: FlowId) -> (Option<Time>, Option<Time>) {
        (self.flows[flow].started, self.flows[flow].done)
    }

    /// Returns the invariants that are violated.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        if self.storm {
            wrong.push(format!("a storm of timers in millisecond {}", self.millisecond));
        }
        for (i, sub) in self.subflows.iter().enumerate() {
            let (cwnd, in_flight) = (sub.subflow.cwnd(), sub.subflow.sent_packets().in_flight());
            if !(1..=1 << 23).contains(&cwnd) {
                wrong.push(format!("path {i} has a window of {cwnd}"));
            }
            // A window may have been cut below the packets in flight, but never by more than its former
            // size, and a probe may be out.
            if in_flight > 1 << 24 {
                wrong.push(format!("path {i} has {in_flight} packets in flight"));
            }
        }
        for (i, flow) in self.flows.iter().enumerate() {
            if flow.done.is_some() != flow.backlog.is_done() {
                wrong.push(format!(
                    "flow {i}: done at {:?}, {} to go",
                    flow.done,
                    flow.backlog.undelivered()
                ));
            }
        }
        wrong
    }

    /// Adds a new path, alone in its group.
    fn push_subflow(
        &mut self,
        flow: u32,
        control: Controller,
        down: RouteId,
        up: Option<RouteId>,
        ack_delay: Option<Span>,
    ) -> SubflowId {
        let no = self.subflows.len() as SubflowId;
        let subflow = Subflow::new(control);
        self.members.push(subflow.stats());
        self.subflows.push(SubflowEntry {
            subflow,
            flow,
            at: no,
            group: (no, no + 1),
            down,
            up,
            ack_delay: ack_delay.map(|longest| Box::new(AckDelay::new(longest))),
            delivered: 0,
            timeouts: 0,
            reductions: 0,
            unresponsive: false,
            timer: Time::NEVER,
        });
        no
    }
}
