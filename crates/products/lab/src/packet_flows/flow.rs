//! Runs packet flows: sends, handles acknowledgements, losses and timers.

use anabranch_algo::Time;
use anabranch_algo::control::{CongestionCause, Group};
use anabranch_algo::controller::Controller;
use anabranch_algo::sent_packets::Delivery;
use anabranch_algo::shared_bottleneck::Detector;
use anabranch_algo::subflow::{AckRule, Subflow, Timer};
use anabranch_sim::RouteId;

use super::config::FlowConfig;
use super::mirrors::MirrorReceiver;
use super::segment::{Segment, SegmentKind, SubflowId};
use super::send_backlog::{PayloadKind, SendBacklog};
use super::steering::Receiver;
use super::{FlowId, PacketFlow, PacketFlows, SubflowEntry, TimerKind};

impl PacketFlows {
    /// Adds a flow.
    ///
    /// # Panics
    /// If it has no path.
    pub fn flow(&mut self, config: &FlowConfig) -> FlowId {
        assert!(!config.paths.is_empty(), "a flow has at least one path");
        let no = self.flows.len();
        let first = self.subflows.len() as u32;
        for (control, down, up, _) in &config.paths {
            self.push_subflow(no as u32, control.fresh(), *down, *up, config.ack_delay);
        }
        self.flows.push(PacketFlow {
            first,
            subflows: config.paths.len() as u32,
            bytes: config.packet_bytes,
            backlog: SendBacklog::new(config.packets),
            started: None,
            done: None,
            stopped: false,
            detector: config.detect.as_deref().map(detector),
            mirrors: config.mirrors.as_deref().map(|sharing| {
                Box::new(MirrorReceiver::new(sharing, &config.paths[0].0, config.packet_bytes))
            }),
            steering: config.steering.as_ref().map(|steering| {
                self.sense_due = Some(Time::ZERO);
                Box::new(Receiver::new(steering, config.packet_bytes))
            }),
        });
        let detector = self.flows[no].detector.as_ref();
        let groups = detector.map_or_else(
            || config.paths.iter().map(|path| path.3).collect(),
            |detector| detector.groups().to_vec(),
        );
        self.regroup(no, &groups);
        self.timers.push(config.start, TimerKind::Start(no as u32));
        if let Some(stop) = config.stop {
            self.timers.push(stop, TimerKind::Stop(no as u32));
        }
        no
    }

    /// Puts the paths of a flow into groups: one group number for each path, 0 for paths beyond the list.
    pub(super) fn regroup(&mut self, flow: FlowId, groups: &[u32]) {
        let range = self.subflows_of(flow);
        let first = range.start;
        let group = |sub: &usize| groups.get(sub - first).copied().unwrap_or(0);
        let mut order: Vec<usize> = range.clone().collect();
        order.sort_by_key(group);
        for (row, sub) in order.chunk_by(|a, b| group(a) == group(b)).scan(first, |at, row| {
            let from = *at;
            *at += row.len();
            Some((from..*at, row))
        }) {
            for (at, sub) in row.clone().zip(sub) {
                self.subflows[*sub].at = at as u32;
                self.subflows[*sub].group = (row.start as u32, row.end as u32);
            }
        }
        for sub in range {
            self.publish(sub);
        }
    }

    fn publish(&mut self, sub: usize) {
        let sub = &self.subflows[sub];
        self.members[sub.at as usize] = sub.subflow.stats();
    }

    /// Calls `f` with a path and its group, then publishes the path's new statistics.
    fn coupled<R>(
        &mut self,
        sub: usize,
        f: impl FnOnce(&mut Subflow<PayloadKind, u8, Controller>, &Group<'_>) -> R,
    ) -> R {
        let sub = &mut self.subflows[sub];
        let members = &self.members[sub.group.0 as usize..sub.group.1 as usize];
        let result = f(&mut sub.subflow, &Group { members, me: (sub.at - sub.group.0) as usize });
        self.members[sub.at as usize] = sub.subflow.stats();
        result
    }

    pub(super) fn start(&mut self, now: Time, flow: FlowId, send: &mut impl FnMut(RouteId, Segment)) {
        self.flows[flow].started = Some(now);
        for sub in self.subflows_of(flow) {
            self.fill(now, sub, send);
        }
    }

    /// Stops a flow: it sends nothing more, and its packets in flight are forgotten.
    pub fn stop(&mut self, flow: FlowId) {
        self.flows[flow].stopped = true;
    }

    /// Sends packets from the backlog as far as the window allows.
    fn fill(&mut self, now: Time, s: usize, send: &mut impl FnMut(RouteId, Segment)) {
        if self.sense_due.is_some() && self.is_held_back(s) {
            return self.arm(s);
        }
        let sub = &mut self.subflows[s];
        let flow = &mut self.flows[sub.flow as usize];
        if sub.subflow.sent_packets().is_full() {
            sub.subflow.forget(now);
        }
        if sub.unresponsive && flow.subflows > 1 {
            // The other paths have the work of this path. Send an empty packet to find out when this path is
            // back.
            if sub.subflow.sent_packets().in_flight() == 0 && !flow.stopped && !flow.backlog.is_done() {
                let id = sub.subflow.sent(now, 1, PayloadKind::Nothing);
                send(sub.down, data(s, id, flow.bytes));
            }
        } else if !flow.stopped {
            let mirrors = flow.mirrors.as_deref();
            let bound = mirrors.map_or(u32::MAX, |mirrors| mirrors.window(s - flow.first as usize));
            let room =
                sub.subflow.paced_room(now).min(bound.saturating_sub(sub.subflow.sent_packets().in_flight()));
            for _ in 0..u64::from(room).min(flow.backlog.sendable()) {
                let id = sub.subflow.sent(now, 1, flow.backlog.take());
                send(sub.down, data(s, id, flow.bytes));
            }
            let at = sub.subflow.paced_until();
            if at > now && at < sub.timer && flow.backlog.sendable() > 0 && sub.subflow.room() > 0 {
                sub.timer = at;
                self.timers.push(at, TimerKind::Subflow(s as u32));
            }
        }
        self.arm(s);
    }

    /// Makes sure that the path has a timer no later than its deadline.
    fn arm(&mut self, s: usize) {
        let sub = &mut self.subflows[s];
        if let Some(at) = sub.subflow.deadline_before(sub.timer) {
            sub.timer = at;
            self.timers.push(at, TimerKind::Subflow(s as u32));
        }
    }

    /// Handles an acknowledgement that has come back.
    pub(super) fn acked(&mut self, now: Time, segment: Segment, send: &mut impl FnMut(RouteId, Segment)) {
        let s = segment.subflow() as usize;
        let sub = &mut self.subflows[s];
        let flow = &mut self.flows[sub.flow as usize];
        if flow.stopped {
            return;
        }
        sub.unresponsive = false;
        // Of two packets, the earlier one is the RTT sample (RFC 7323 section 4.3).
        let (mut acked, mut sample, mut newest) = (0, None, 0);
        for id in segment.earlier().into_iter().chain([segment.id]) {
            let kind = sub.subflow.sent_packets().get(id).copied().unwrap_or(PayloadKind::Nothing);
            let delivery = sub.subflow.delivered(now, id, 0);
            let counts = match delivery {
                Delivery::Acked { .. } => flow.backlog.delivered(kind),
                Delivery::SpuriousLoss { .. } => flow.backlog.delivered_late(kind),
                Delivery::Duplicate | Delivery::Unknown => false,
            };
            if counts {
                sub.delivered += 1;
                if flow.backlog.is_done() {
                    flow.done = Some(now);
                }
            }
            if let Delivery::Acked { sent_at, seq } = delivery {
                (acked, sample, newest) = (acked + 1, sample.or(Some(sent_at)), seq);
            }
        }
        if acked > 0 {
            let members = &self.members[sub.group.0 as usize..sub.group.1 as usize];
            let group = Group { members, me: (sub.at - sub.group.0) as usize };
            let window_changed = sub.subflow.acked(now, acked, newest, sample, AckRule::ONE_BY_ONE, &group);
            if segment.is_marked() {
                let counts = sub.subflow.congestion(now, CongestionCause::EcnCe, newest, &group);
                sub.reductions += u32::from(counts);
            }
            let member = &mut self.members[sub.at as usize];
            if window_changed || segment.is_marked() {
                *member = sub.subflow.stats();
            } else {
                member.srtt = sub.subflow.rtt().srtt();
            }
        }
        self.detect(now, s, send);
        self.fill(now, s, send);
    }

    /// Declares packets lost that later packets have overtaken.
    fn detect(&mut self, now: Time, s: usize, send: &mut impl FnMut(RouteId, Segment)) {
        let SubflowEntry { subflow, flow, .. } = &mut self.subflows[s];
        let backlog = &mut self.flows[*flow as usize].backlog;
        let (idle, mut lost) = (backlog.sendable() == 0, 0);
        let newest = subflow.detect(now, |kind, _| {
            backlog.lost(*kind);
            lost += 1;
        });
        subflow.forget(now);
        if let Some(seq) = newest {
            self.lost(s, lost);
            let cause = CongestionCause::Loss;
            let counts = self.coupled(s, |subflow, group| subflow.congestion(now, cause, seq, group));
            self.subflows[s].reductions += u32::from(counts);
            self.backlog_refilled(now, s, idle, send);
        }
    }

    /// Fills the windows of the other paths when packets have returned to a backlog that was empty. The path
    /// that has waited longest is first: with a fixed order, two bad paths could pass the last packet to
    /// each other for ever.
    fn backlog_refilled(&mut self, now: Time, s: usize, idle: bool, send: &mut impl FnMut(RouteId, Segment)) {
        let no = self.subflows[s].flow as FlowId;
        if idle && self.flows[no].backlog.sendable() > 0 {
            let mut order: Vec<usize> = self.subflows_of(no).filter(|other| *other != s).collect();
            order.sort_by_key(|other| self.subflows[*other].subflow.sent_packets().newest_sent());
            for other in order {
                self.fill(now, other, send);
            }
        }
        self.fill(now, s, send);
    }

    pub(super) fn subflow_timer(&mut self, now: Time, s: u32, send: &mut impl FnMut(RouteId, Segment)) {
        let s = s as usize;
        if self.subflows[s].timer > now {
            // An earlier timer, which has been handled, replaced this one.
            return;
        }
        self.subflows[s].timer = Time::NEVER;
        if self.flows[self.subflows[s].flow as usize].stopped {
            return;
        }
        self.detect(now, s, send);
        match self.subflows[s].subflow.timer(now) {
            Timer::None => {}
            Timer::Probe if self.subflows[s].subflow.sent_packets().is_full() => {}
            Timer::Probe => {
                let sub = &mut self.subflows[s];
                let flow = &mut self.flows[sub.flow as usize];
                let bare = sub.unresponsive && flow.subflows > 1;
                let kind = if bare { PayloadKind::Nothing } else { flow.backlog.take() };
                let id = sub.subflow.sent(now, 1, kind);
                send(sub.down, data(s, id, flow.bytes));
            }
            Timer::Timeout => {
                let SubflowEntry { flow, timeouts, unresponsive, .. } = &mut self.subflows[s];
                (*timeouts, *unresponsive) = (*timeouts + 1, true);
                let no = *flow as FlowId;
                let (mut backlog, mut lost) = (self.flows[no].backlog, 0);
                let idle = backlog.sendable() == 0;
                self.coupled(s, |subflow, group| {
                    subflow.expire(now, group, |kind, _| {
                        backlog.lost(*kind);
                        lost += 1;
                    });
                });
                self.flows[no].backlog = backlog;
                self.lost(s, lost);
                self.backlog_refilled(now, s, idle, send);
            }
        }
        self.fill(now, s, send);
    }

    /// Observes a data packet that has arrived: the receiver of mirrors counts it, and shared-bottleneck
    /// detection records its delay.
    pub(super) fn observe(&mut self, now: Time, segment: Segment) {
        let sub = &self.subflows[segment.subflow() as usize];
        let no = sub.flow as FlowId;
        let flow = &mut self.flows[no];
        let path = (segment.subflow() - flow.first) as usize;
        if let Some(mirrors) = &mut flow.mirrors {
            mirrors.arrived(now, path, sub.subflow.rtt().latest());
        }
        let Some(detector) = &mut flow.detector else { return };
        let Some(sent_at) = sub.subflow.sent_packets().sent_at(segment.id) else { return };
        detector.rtt_min(path, sub.subflow.rtt().min());
        detector.sample(path, now, now.since(sent_at));
        detector.delivered(path, 1);
        if let Some(groups) = detector.tick(now) {
            let groups = groups.to_vec();
            self.regroup(no, &groups);
        }
    }

    /// Reports lost packets of a path to shared-bottleneck detection.
    fn lost(&mut self, s: usize, packets: u32) {
        let flow = &mut self.flows[self.subflows[s].flow as usize];
        if let Some(detector) = &mut flow.detector {
            detector.lost(s - flow.first as usize, packets);
        }
    }
}

/// Creates a detector of paths with these uplinks.
fn detector(uplinks: &[Option<u32>]) -> Box<Detector> {
    let mut detector = Detector::new();
    for uplink in uplinks {
        // Paths beyond the detector's limit stay in one group with all others.
        detector.add(*uplink);
    }
    Box::new(detector)
}

fn data(sub: usize, id: u64, bytes: u16) -> Segment {
    Segment::new(id, sub as SubflowId, bytes, SegmentKind::Data)
}
