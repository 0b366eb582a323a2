//! What a flow does.

use algo::Time;
use algo::control::{Algorithm, CongestionCause, Group};
use algo::sent_packets::Delivery;
use algo::shared_bottleneck::Detector;
use algo::subflow::{Subflow, Timer};
use sim::RouteId;

use super::{Crowd, Due, Flow, FlowNo, Kind, Load, Segment, Stock, Sub, SubNo};

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
        self.flows.push(Flow {
            first,
            subs: config.paths.len() as u32,
            bytes: config.packet_bytes,
            stock: Stock::new(config.packets),
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
        self.members[sub.at as usize] = sub.subflow.stats();
    }

    /// Calls `f` with a path and its group, then publishes what the path has become.
    fn coupled(&mut self, sub: usize, f: impl FnOnce(&mut Subflow<Load, u8>, &Group<'_>)) {
        let sub = &mut self.subs[sub];
        let members = &self.members[sub.group.0 as usize..sub.group.1 as usize];
        f(&mut sub.subflow, &Group { members, me: (sub.at - sub.group.0) as usize });
        self.members[sub.at as usize] = sub.subflow.stats();
    }

    pub(super) fn start(&mut self, now: Time, flow: FlowNo, send: &mut impl FnMut(RouteId, Segment)) {
        self.flows[flow].started = Some(now);
        for sub in self.subs_of(flow) {
            self.fill(now, sub, send);
        }
    }

    /// From now on a flow sends nothing more; what is under way is forgotten.
    pub fn stop(&mut self, flow: FlowNo) {
        self.flows[flow].stopped = true;
    }

    /// Sends what the window allows and the stock has.
    fn fill(&mut self, now: Time, s: usize, send: &mut impl FnMut(RouteId, Segment)) {
        let sub = &mut self.subs[s];
        let flow = &mut self.flows[sub.flow as usize];
        if sub.subflow.sent_packets().is_full() {
            sub.subflow.forget(now);
        }
        if sub.silent && flow.subs > 1 {
            // The others have its work; a packet that carries nothing finds out when it is back.
            if sub.subflow.sent_packets().in_flight() == 0 && !flow.stopped && !flow.stock.is_done() {
                let id = sub.subflow.sent(now, 1, Load::Nothing);
                send(sub.down, data(s, id, flow.bytes));
            }
        } else if !flow.stopped {
            for _ in 0..u64::from(sub.subflow.room()).min(flow.stock.left()) {
                let id = sub.subflow.sent(now, 1, flow.stock.take());
                send(sub.down, data(s, id, flow.bytes));
            }
        }
        self.arm(s);
    }

    /// Sees to it that the path's timer comes no later than it should.
    fn arm(&mut self, s: usize) {
        let sub = &mut self.subs[s];
        if let Some(at) = sub.subflow.deadline_before(sub.timer) {
            sub.timer = at;
            self.timers.push(at, Due::Sub(s as u32));
        }
    }

    /// An acknowledgement has come back.
    pub(super) fn acked(&mut self, now: Time, segment: Segment, send: &mut impl FnMut(RouteId, Segment)) {
        let s = segment.sub() as usize;
        let sub = &mut self.subs[s];
        let flow = &mut self.flows[sub.flow as usize];
        if flow.stopped {
            return;
        }
        let load = sub.subflow.sent_packets().get(segment.id).copied().unwrap_or(Load::Nothing);
        let delivery = sub.subflow.delivered(now, segment.id, 0);
        sub.silent = false;
        let counts = match delivery {
            Delivery::Acked { .. } => flow.stock.came(load),
            Delivery::SpuriousLoss { .. } => flow.stock.came_late(load),
            Delivery::Duplicate | Delivery::Unknown => false,
        };
        if counts {
            sub.delivered += 1;
            if flow.stock.is_done() {
                flow.done = Some(now);
            }
        }
        if let Delivery::Acked { sent_at, seq } = delivery {
            let members = &self.members[sub.group.0 as usize..sub.group.1 as usize];
            let group = Group { members, me: (sub.at - sub.group.0) as usize };
            let told = sub.subflow.acked(now, 1, seq, Some(sent_at), 1, &group);
            if segment.is_marked() {
                sub.subflow.congestion(now, CongestionCause::EcnCe, seq, &group);
            }
            let member = &mut self.members[sub.at as usize];
            if told || segment.is_marked() {
                *member = sub.subflow.stats();
            } else {
                member.srtt = sub.subflow.rtt().srtt();
            }
        }
        self.detect(now, s, send);
        self.fill(now, s, send);
    }

    /// Declares lost what others have overtaken.
    fn detect(&mut self, now: Time, s: usize, send: &mut impl FnMut(RouteId, Segment)) {
        let Sub { subflow, flow, .. } = &mut self.subs[s];
        let stock = &mut self.flows[*flow as usize].stock;
        let (idle, mut lost) = (stock.left() == 0, 0);
        let newest = subflow.detect(now, |load, _| {
            stock.lost(*load);
            lost += 1;
        });
        subflow.forget(now);
        if let Some(seq) = newest {
            self.lost(s, lost);
            self.coupled(s, |subflow, group| subflow.congestion(now, CongestionCause::Loss, seq, group));
            self.restocked(now, s, idle, send);
        }
    }

    /// Something went back into the stock. If that was empty, paths had nothing to do: the one that has
    /// waited longest is first, for with any fixed order two bad paths could hand the last packet to each
    /// other for ever.
    fn restocked(&mut self, now: Time, s: usize, idle: bool, send: &mut impl FnMut(RouteId, Segment)) {
        let no = self.subs[s].flow as FlowNo;
        if idle && self.flows[no].stock.left() > 0 {
            let mut order: Vec<usize> = self.subs_of(no).filter(|other| *other != s).collect();
            order.sort_by_key(|other| self.subs[*other].subflow.sent_packets().newest_sent());
            for other in order {
                self.fill(now, other, send);
            }
        }
        self.fill(now, s, send);
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
            Timer::Probe if self.subs[s].subflow.sent_packets().is_full() => {}
            Timer::Probe => {
                let sub = &mut self.subs[s];
                let flow = &mut self.flows[sub.flow as usize];
                let bare = sub.silent && flow.subs > 1;
                let load = if bare { Load::Nothing } else { flow.stock.take() };
                let id = sub.subflow.sent(now, 1, load);
                send(sub.down, data(s, id, flow.bytes));
            }
            Timer::Timeout => {
                let Sub { flow, timeouts, silent, .. } = &mut self.subs[s];
                (*timeouts, *silent) = (*timeouts + 1, true);
                let no = *flow as FlowNo;
                let (mut stock, mut lost) = (self.flows[no].stock, 0);
                let idle = stock.left() == 0;
                self.coupled(s, |subflow, group| {
                    subflow.expire(now, group, |load, _| {
                        stock.lost(*load);
                        lost += 1;
                    });
                });
                self.flows[no].stock = stock;
                self.lost(s, lost);
                self.restocked(now, s, idle, send);
            }
        }
        self.fill(now, s, send);
    }

    /// A data packet has arrived: shared-bottleneck detection looks at its delay.
    pub(super) fn observe(&mut self, now: Time, segment: Segment) {
        let sub = &self.subs[segment.sub() as usize];
        let no = sub.flow as FlowNo;
        let flow = &mut self.flows[no];
        let path = (segment.sub() - flow.first) as usize;
        let Some(watch) = &mut flow.watch else { return };
        let Some(sent_at) = sub.subflow.sent_packets().sent_at(segment.id) else { return };
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

fn data(sub: usize, id: u64, bytes: u16) -> Segment {
    Segment::new(id, sub as SubNo, bytes, Kind::Data)
}
