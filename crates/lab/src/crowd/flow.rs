//! What a flow does.

use algo::Time;
use algo::control::{Algorithm, Cause, Group};
use algo::flight::Delivery;
use algo::groups::Detector;
use algo::subflow::Timer;
use sim::RouteId;

use super::{Crowd, Due, Flow, FlowNo, Kind, Segment};

/// What a flow is made of.
#[derive(Clone, Debug)]
pub struct FlowConfig {
    /// Its paths: controller, route of data, route of acknowledgements (none: they are back at once), group.
    pub paths: Vec<(Algorithm, RouteId, Option<RouteId>, u32)>,
    /// Size of its packets on the wire, bytes.
    pub packet_bytes: u16,
    /// How many packets it transfers; none: without end.
    pub packets: Option<u64>,
    /// When it starts.
    pub start: Time,
    /// When it stops, if it does.
    pub stop: Option<Time>,
    /// Whether its groups follow shared-bottleneck detection.
    pub detect: bool,
}

impl Crowd {
    /// Adds a flow.
    ///
    /// # Panics
    /// If it has no path.
    pub fn flow(&mut self, config: &FlowConfig) -> FlowNo {
        assert!(!config.paths.is_empty(), "a flow has at least one path");
        let no = self.flows.len();
        let first = self.subs.len() as u32;
        for (control, down, up, _) in &config.paths {
            self.push_sub(no as u32, *control, *down, *up);
        }
        let packets = config.packets.unwrap_or(u64::MAX);
        self.flows.push(Flow {
            first,
            subs: config.paths.len() as u32,
            bytes: config.packet_bytes,
            left: packets,
            open: packets,
            owed: 0,
            started: None,
            done: None,
            stopped: false,
            watch: config.detect.then(|| watch(config.paths.len())),
        });
        let groups: Vec<u32> = config.paths.iter().map(|path| path.3).collect();
        self.regroup(no, &groups);
        self.timers.push(config.start, Due::Start(no as u32));
        if let Some(stop) = config.stop {
            self.timers.push(stop, Due::Stop(no as u32));
        }
        no
    }

    /// Puts the paths of a flow into groups: one number for each, 0 for those without one.
    pub(super) fn regroup(&mut self, flow: FlowNo, groups: &[u32]) {
        let range = self.subs_of(flow);
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
                self.subs[*sub].at = at as u32;
                self.subs[*sub].group = (row.start as u32, row.end as u32);
            }
        }
        for sub in range {
            self.publish(sub);
        }
    }

    fn publish(&mut self, sub: usize) {
        let sub = &self.subs[sub];
        self.members[sub.at as usize] = sub.subflow.member();
    }

    /// Calls `f` with a path and its group, then publishes what the path has become.
    fn coupled(&mut self, sub: usize, f: impl FnOnce(&mut algo::subflow::Subflow<bool>, &Group<'_>)) {
        let sub = &mut self.subs[sub];
        let members = &self.members[sub.group.0 as usize..sub.group.1 as usize];
        f(&mut sub.subflow, &Group { members, me: (sub.at - sub.group.0) as usize });
        self.members[sub.at as usize] = sub.subflow.member();
    }

    pub(super) fn start(&mut self, now: Time, flow: FlowNo, send: &mut impl FnMut(RouteId, Segment)) {
        self.flows[flow].started = Some(now);
        for sub in self.subs_of(flow) {
            self.fill(now, sub, send);
        }
    }

    /// Sends nothing more; what is under way is forgotten.
    pub(super) fn stop(&mut self, flow: FlowNo) {
        self.flows[flow].stopped = true;
    }

    /// Sends what the window allows and the stock has.
    fn fill(&mut self, now: Time, s: usize, send: &mut impl FnMut(RouteId, Segment)) {
        let sub = &mut self.subs[s];
        let flow = &mut self.flows[sub.flow as usize];
        if sub.silent && flow.subs > 1 {
            // The others have its work; a packet that carries nothing finds out when it is back.
            if sub.subflow.flight().in_flight() == 0 && !flow.stopped && flow.open > 0 {
                let id = sub.subflow.sent(now, 1, false);
                send(sub.down, data(s, id, flow.bytes));
            }
        } else if !flow.stopped {
            let room = u64::from(sub.subflow.room()).min(flow.left);
            flow.left = if flow.left == u64::MAX { u64::MAX } else { flow.left - room };
            for _ in 0..room {
                let id = sub.subflow.sent(now, 1, true);
                send(sub.down, data(s, id, flow.bytes));
            }
        }
        self.arm(s);
    }

    /// Sees to it that the path's timer comes no later than it should.
    fn arm(&mut self, s: usize) {
        let sub = &mut self.subs[s];
        let at = sub.subflow.deadline();
        if at < sub.timer {
            sub.timer = at;
            self.timers.push(at, Due::Sub(s as u32));
        }
    }

    /// An acknowledgement has come back.
    pub(super) fn acked(&mut self, now: Time, segment: Segment, send: &mut impl FnMut(RouteId, Segment)) {
        let s = segment.sub as usize;
        let sub = &mut self.subs[s];
        let flow = &mut self.flows[sub.flow as usize];
        if flow.stopped {
            return;
        }
        let carried = sub.subflow.flight().get(segment.id).copied() == Some(true);
        let delivery = sub.subflow.delivered(now, segment.id, 0);
        sub.silent = false;
        match delivery {
            Delivery::Fresh { .. } | Delivery::Late { .. } if carried => {
                if matches!(delivery, Delivery::Late { .. }) {
                    // It went back to the stock for nothing.
                    match flow.left {
                        0 => flow.owed += 1,
                        u64::MAX => {}
                        _ => flow.left -= 1,
                    }
                }
                if flow.owed > 0 && matches!(delivery, Delivery::Fresh { .. }) {
                    flow.owed -= 1;
                } else {
                    sub.delivered += 1;
                    if flow.open != u64::MAX {
                        flow.open -= 1;
                        if flow.open == 0 {
                            flow.done = Some(now);
                        }
                    }
                }
            }
            _ => {}
        }
        if let Delivery::Fresh { sent_at, seq } = delivery {
            self.coupled(s, |subflow, group| {
                subflow.acked(now, 1, seq, Some(sent_at), 1, group);
                if segment.marked {
                    subflow.congestion(now, Cause::Mark, seq, group);
                }
            });
        }
        self.detect(now, s, send);
        self.fill(now, s, send);
    }

    /// Declares lost what others have overtaken.
    fn detect(&mut self, now: Time, s: usize, send: &mut impl FnMut(RouteId, Segment)) {
        let sub = &mut self.subs[s];
        let (mut back, mut lost) = (0, 0);
        let newest = sub.subflow.detect(now, |carried, _| {
            back += u64::from(*carried);
            lost += 1;
        });
        sub.subflow.forget(now);
        if let Some(seq) = newest {
            self.lost(s, lost);
            self.coupled(s, |subflow, group| subflow.congestion(now, Cause::Loss, seq, group));
            self.restock(now, s, back, send);
        }
    }

    /// What was lost goes back into the stock. This path tries first, then those that had nothing to do.
    fn restock(&mut self, now: Time, s: usize, back: u64, send: &mut impl FnMut(RouteId, Segment)) {
        let no = self.subs[s].flow as usize;
        let flow = &mut self.flows[no];
        let idle = flow.left == 0;
        flow.left = flow.left.saturating_add(back);
        self.fill(now, s, send);
        if idle && self.flows[no].left > 0 {
            for other in self.subs_of(no).filter(|other| *other != s) {
                self.fill(now, other, send);
            }
        }
    }

    pub(super) fn sub_timer(&mut self, now: Time, s: u32, send: &mut impl FnMut(RouteId, Segment)) {
        let s = s as usize;
        if self.subs[s].timer > now {
            // Superseded by an earlier one, which has been served.
            return;
        }
        self.subs[s].timer = Time::NEVER;
        if self.flows[self.subs[s].flow as usize].stopped {
            return;
        }
        self.detect(now, s, send);
        match self.subs[s].subflow.timer(now) {
            Timer::None => {}
            Timer::Probe if self.subs[s].subflow.flight().is_full() => {}
            Timer::Probe => {
                let sub = &mut self.subs[s];
                let flow = &mut self.flows[sub.flow as usize];
                let carries = flow.left > 0;
                flow.left -= u64::from(carries && flow.left != u64::MAX);
                let id = sub.subflow.sent(now, 1, carries);
                send(sub.down, data(s, id, flow.bytes));
            }
            Timer::Timeout => {
                let (mut back, mut lost) = (0, 0);
                self.subs[s].timeouts += 1;
                self.subs[s].silent = true;
                self.coupled(s, |subflow, group| {
                    subflow.expire(now, group, |carried, _| {
                        back += u64::from(*carried);
                        lost += 1;
                    });
                });
                self.lost(s, lost);
                self.restock(now, s, back, send);
            }
        }
        self.fill(now, s, send);
    }

    /// A data packet has arrived: shared-bottleneck detection looks at its delay.
    pub(super) fn observe(&mut self, now: Time, segment: &Segment) {
        let sub = &self.subs[segment.sub as usize];
        let no = sub.flow as FlowNo;
        let flow = &mut self.flows[no];
        let path = (segment.sub - flow.first) as usize;
        let (Some(watch), Some(sent_at)) = (&mut flow.watch, sub.subflow.flight().sent_at(segment.id)) else {
            return;
        };
        watch.sample(path, now, now.since(sent_at));
        watch.delivered(path, 1);
        if let Some(groups) = watch.tick(now) {
            let groups = groups.to_vec();
            self.regroup(no, &groups);
        }
    }

    /// Packets of a path were lost.
    fn lost(&mut self, s: usize, packets: u32) {
        let flow = &mut self.flows[self.subs[s].flow as usize];
        if let Some(watch) = &mut flow.watch {
            watch.lost(s - flow.first as usize, packets);
        }
    }
}

/// A detector of so many paths.
fn watch(paths: usize) -> Box<Detector> {
    let mut watch = Detector::new();
    for _ in 0..paths {
        // Beyond its limit paths stay with all others.
        watch.add();
    }
    Box::new(watch)
}

const fn data(sub: usize, id: u64, bytes: u16) -> Segment {
    Segment { id, sub: sub as u32, bytes, kind: Kind::Data, marked: false }
}
