//! Records a run, simulated or in the kernel: every number that measures and conditions read.

use anabranch_algo::{Span, Time};
use anabranch_sim::{Histogram, Stats};

use crate::outcome::{Line, SeriesKind};
use crate::packet_layout::PacketLayout;
use crate::scenario::{MeasureKind, Scenario, TraceFile};

/// Number of steps in which a run is recorded, unless the shortest or the longest step limits it.
pub const STEPS: u64 = 1_000;
/// The shortest step.
pub const STEP_MIN: Span = Span::from_millis(50);
/// The longest step: the papers average over seconds.
pub(crate) const STEP_MAX: Span = Span::from_secs(1);
/// Most lines of one run that are kept for the report.
pub const LINES_MAX: usize = 96;

/// A flow of a run. Each copy of a flow with a `count` is a flow here.
pub(crate) struct ObservedFlow {
    /// Name of this copy.
    pub(crate) name: String,
    /// Name of the flow in the scenario.
    pub(crate) base: String,
    pub(crate) paths: usize,
    /// Sizes of packet and payload.
    pub(crate) layout: PacketLayout,
    /// State of the flow at the end of the run.
    pub(crate) end: FlowEnd,
}

/// State of a flow at the end of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct FlowEnd {
    /// Transfers in the order in which they began; a flow with `arrivals` has more than one.
    pub(crate) transfers: Vec<Transfer>,
    /// Smoothed RTT of each path.
    pub(crate) srtts: Vec<Span>,
    /// Timeouts of all paths.
    pub(crate) timeouts: u64,
    /// Congestion events found without a timeout; `None` if this world does not count them.
    pub(crate) reductions: Option<u64>,
}

/// A transfer that has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transfer {
    pub(crate) began: Time,
    /// Time at which the last byte had arrived; `None` if the transfer did not end.
    pub(crate) ended: Option<Time>,
}

/// Counters of all flows and links at one time.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    /// Time for which the snapshot was requested.
    at: Time,
    /// Time at which the snapshot was taken: a world in real time may be late.
    taken_at: Time,
    /// Payload bytes delivered, by flow.
    totals: Vec<u64>,
    /// Payload bytes delivered, by flow and path.
    bytes: Vec<Vec<u64>>,
    /// Counters of each link, in the order of the links' names.
    pub(crate) links: Vec<Stats>,
    /// Times that packets stayed at each link; `None` for a link without a trace.
    sojourns: Vec<Option<Histogram>>,
}

/// A world that a recorder can read. `flow` and `link` are indices.
pub(crate) trait Observe {
    /// Returns the payload bytes of a flow that were delivered so far.
    fn total(&self, flow: usize) -> u64;
    /// Returns the payload bytes delivered so far on each path of a flow. They add up to the total if no
    /// data waits for data on another path.
    fn bytes(&self, flow: usize) -> Vec<u64>;
    /// Returns the congestion window of each path, packets.
    fn cwnds(&self, flow: usize) -> Vec<f32>;
    /// Returns the counters of each of the scenario's links, in the order of their names.
    fn links(&self) -> Vec<Stats>;
    /// Returns the times that packets stayed at each link until now; `None` for a link without a trace.
    fn sojourns(&self) -> Vec<Option<Histogram>>;
    /// Returns the bytes queued at a link.
    fn queued_bytes(&self, link: usize) -> f64;
    /// Whether paths are wrongly apart, and wrongly together; `None` if this world cannot tell.
    fn misgrouped(&self, flow: usize) -> Option<(bool, bool)>;
    /// Returns NMCC's factor m: zero without coupled paths, `None` if this world cannot tell.
    fn factor(&self, flow: usize) -> Option<f32>;
}

/// All records of a run.
pub(crate) struct Observations {
    pub(crate) packet_bytes: u64,
    pub(crate) flows: Vec<ObservedFlow>,
    /// Snapshots at the times that measures need, in order.
    snapshots: Vec<Snapshot>,
    pub(crate) step: Span,
    /// Payload bytes delivered by the end of each step, by flow.
    pub(crate) totals: Vec<Vec<u64>>,
    /// Whether paths were wrongly apart and wrongly together at the end of each step, by flow.
    pub(crate) groups: Vec<Vec<(bool, bool)>>,
    /// NMCC's factor m at the end of each step, by flow; zero without coupled paths.
    pub(crate) factors: Vec<Vec<f32>>,
    /// Window of each path at the end of each step, by flow; empty if no measure needs windows.
    pub(crate) windows: Vec<Vec<Vec<f32>>>,
    pub(crate) lines: Vec<Line>,
    /// Invariants that were violated.
    pub(crate) violations: Vec<String>,
}

impl Observations {
    /// Returns the snapshot at `at`, which must be a time that a measure needs.
    pub(crate) fn snapshot(&self, at: Time) -> &Snapshot {
        self.snapshots
            .iter()
            .find(|snapshot| snapshot.at == at)
            .expect("every time that a measure asks for is noted")
    }

    /// Returns the snapshot at the end of the run.
    pub(crate) fn last(&self) -> &Snapshot {
        self.snapshots.last().expect("the end is noted")
    }

    /// Returns the window between two times that measures need.
    pub(crate) fn window<'a>(
        &'a self,
        scenario: &'a Scenario,
        from: Time,
        until: Time,
    ) -> MeasurementWindow<'a> {
        MeasurementWindow {
            scenario,
            observations: self,
            before: self.snapshot(from),
            after: self.snapshot(until),
        }
    }
}

/// Records a world at the times that its measures need, and at the end of every step.
pub(crate) struct Recorder {
    observations: Observations,
    /// Times at which measures begin or end and that are still to come; the next one is last.
    times: Vec<Time>,
    /// End of the current step; `None` when the run is over.
    step: Option<Time>,
    end: Time,
    /// Links whose queues are drawn over time.
    queues: Vec<usize>,
    /// Whether a measure needs windows.
    windows: bool,
}

impl Recorder {
    /// Creates a recorder for a world with these flows.
    pub(crate) fn new(scenario: &Scenario, packet_bytes: u64, flows: Vec<ObservedFlow>) -> Self {
        let measures = scenario.measure.iter().flat_map(|measure| [measure.from, measure.until]).flatten();
        let mut times: Vec<Time> = measures
            .chain([scenario.count_from, scenario.duration])
            .map(|duration| duration.time())
            .collect();
        times.sort_unstable_by(|a, b| b.cmp(a));
        times.dedup();
        let (end, step) =
            (scenario.duration.time(), scenario.duration.0.over(STEPS).clamp(STEP_MIN, STEP_MAX));
        let limited = |(i, link): (usize, &crate::scenario::Link)| link.is_limited().then_some(i);
        let queues: Vec<usize> = scenario.link.values().enumerate().filter_map(limited).collect();
        let count = flows.len();
        let lines = lines(scenario, &flows);
        let observations = Observations {
            packet_bytes,
            flows,
            snapshots: Vec::new(),
            step,
            totals: vec![Vec::new(); count],
            groups: vec![Vec::new(); count],
            factors: vec![Vec::new(); count],
            windows: vec![Vec::new(); count],
            lines,
            violations: Vec::new(),
        };
        let windows = scenario.measure.iter().any(|measure| measure.kind == MeasureKind::Window);
        Self { observations, times, step: Some((Time::ZERO + step).min(end)), end, queues, windows }
    }

    /// Returns the time of the next record; `None` when the run is over.
    pub(crate) fn next(&self) -> Option<Time> {
        let step = self.step?;
        Some(self.times.last().map_or(step, |time| step.min(*time)))
    }

    /// Records the world for the [next](Self::next) time, which is `now` or a little before.
    pub(crate) fn record(&mut self, now: Time, world: &impl Observe) {
        let Some(at) = self.next() else { return };
        let flows = self.observations.flows.len();
        if self.times.pop_if(|time| *time <= at).is_some() {
            let totals = (0..flows).map(|f| world.total(f)).collect();
            let bytes = (0..flows).map(|f| world.bytes(f)).collect();
            self.observations.snapshots.push(Snapshot {
                at,
                taken_at: now,
                totals,
                bytes,
                links: world.links(),
                sojourns: world.sojourns(),
            });
        }
        if self.step != Some(at) {
            return;
        }
        self.step = (at < self.end).then(|| (at + self.observations.step).min(self.end));
        let step_s = self.observations.step.as_nanos() as f64 / 1e9;
        let packet = self.observations.packet_bytes as f64;
        let (mut goodputs, mut cwnds) = (Vec::new(), Vec::new());
        for f in 0..flows {
            let total = world.total(f);
            let before = self.observations.totals[f].last().copied().unwrap_or(0);
            self.observations.totals[f].push(total);
            goodputs.push((total.saturating_sub(before) as f64 * 8.0 / 1e6 / step_s) as f32);
            self.observations.groups[f].extend(world.misgrouped(f));
            self.observations.factors[f].extend(world.factor(f));
            if !self.observations.lines.is_empty() {
                cwnds.extend(world.cwnds(f));
            }
            if self.windows {
                self.observations.windows[f].push(world.cwnds(f));
            }
        }
        if self.observations.lines.is_empty() {
            return;
        }
        let queues = self.queues.iter().map(|link| (world.queued_bytes(*link) / packet) as f32);
        let values = goodputs.into_iter().chain(cwnds).chain(queues);
        for (line, value) in self.observations.lines.iter_mut().zip(values) {
            line.values.push(value);
        }
    }

    /// Returns all records, with the end of each flow and the violations added.
    pub(crate) fn finish(
        mut self,
        ends: impl IntoIterator<Item = FlowEnd>,
        violations: Vec<String>,
    ) -> Observations {
        for (flow, end) in self.observations.flows.iter_mut().zip(ends) {
            flow.end = end;
        }
        self.observations.violations = violations;
        self.observations
    }
}

/// Returns an empty line for each quantity that is shown over time.
fn lines(scenario: &Scenario, flows: &[ObservedFlow]) -> Vec<Line> {
    let line = |kind, name: &str| Line { kind, name: name.into(), values: Vec::new() };
    let goodputs = flows.iter().map(|flow| line(SeriesKind::Goodput, &flow.name));
    let cwnds = flows
        .iter()
        .flat_map(|flow| (0..flow.paths).map(move |p| line(SeriesKind::Cwnd, &format!("{}/{p}", flow.name))));
    let links = scenario.link.iter().filter(|(_, link)| link.is_limited());
    let queues = links.map(|(name, _)| line(SeriesKind::Queue, name));
    let lines: Vec<Line> = goodputs.chain(cwnds).chain(queues).take(LINES_MAX + 1).collect();
    if lines.len() > LINES_MAX { Vec::new() } else { lines }
}

/// The time between two snapshots.
pub(crate) struct MeasurementWindow<'a> {
    scenario: &'a Scenario,
    observations: &'a Observations,
    before: &'a Snapshot,
    after: &'a Snapshot,
}

impl<'a> MeasurementWindow<'a> {
    /// Returns the length of the window, s.
    pub(crate) fn secs(&self) -> f64 {
        self.after.taken_at.since(self.before.taken_at).as_nanos() as f64 / 1e9
    }

    /// Whether `at` lies in the window.
    pub(crate) fn has(&self, at: Time) -> bool {
        self.before.at <= at && at < self.after.at
    }

    /// Returns the range of recorded steps that lie in the window.
    pub(crate) fn steps(&self) -> std::ops::Range<usize> {
        let step = |at: Time| (at.as_nanos() / self.observations.step.as_nanos()) as usize;
        step(self.before.at)..step(self.after.at).min(self.observations.totals.first().map_or(0, Vec::len))
    }

    /// Returns the index and the record of each flow with one of these names; of all flows if `names` is
    /// empty.
    pub(crate) fn flows(
        &self,
        names: &'a [String],
    ) -> impl Iterator<Item = (usize, &'a ObservedFlow)> + use<'a> {
        let named = move |(_, flow): &(usize, &ObservedFlow)| names.is_empty() || names.contains(&flow.base);
        self.observations.flows.iter().enumerate().filter(named)
    }

    /// Returns the payload bytes delivered on these paths of a flow; on all paths if `paths` is empty.
    fn delivered(&self, flow: usize, paths: &[usize]) -> u64 {
        if paths.is_empty() {
            return self.after.totals[flow] - self.before.totals[flow];
        }
        let pairs = self.before.bytes[flow].iter().zip(&self.after.bytes[flow]).enumerate();
        pairs.filter(|(p, _)| paths.contains(p)).map(|(_, (a, b))| b - a).sum()
    }

    /// Returns the goodput of a flow on these paths, bytes a second; on all paths if `paths` is empty.
    pub(crate) fn goodput_of(&self, flow: usize, paths: &[usize]) -> f64 {
        self.delivered(flow, paths) as f64 / self.secs()
    }

    /// Returns the sum of the goodput of several flows, bytes a second.
    pub(crate) fn goodput(&self, names: &'a [String], paths: &[usize]) -> f64 {
        self.flows(names).map(|(f, _)| self.goodput_of(f, paths)).sum()
    }

    /// Returns the rate of a flow in whole packets, headers included, bytes a second.
    pub(crate) fn throughput_of(&self, flow: usize, paths: &[usize]) -> f64 {
        let layout = self.observations.flows[flow].layout;
        layout.on_wire(self.delivered(flow, paths)) as f64 / self.secs()
    }

    /// Returns the sum of the rates of several flows in whole packets, headers included, bytes a second.
    pub(crate) fn throughput(&self, names: &'a [String], paths: &[usize]) -> f64 {
        self.flows(names).map(|(f, _)| self.throughput_of(f, paths)).sum()
    }

    /// Returns the counters of the links of these names at the start and at the end of the window.
    pub(crate) fn stats(&self, names: &'a [String]) -> impl Iterator<Item = (&'a Stats, &'a Stats)> {
        let (before, after) = (self.before, self.after);
        let place = |name: &String| self.scenario.link.keys().position(|key| key == name);
        names.iter().filter_map(place).map(|i| (&before.links[i], &after.links[i]))
    }

    /// Returns the sum of the rates of these links, bytes a second. A link with a trace counts with the mean
    /// rate that the trace offered in the window.
    pub(crate) fn rate_bytes(&self, names: &[String]) -> f64 {
        let rate = |name: &String| {
            let link = &self.scenario.link[name];
            if let Some(Ok((trace, _))) = link.trace.as_ref().map(TraceFile::read) {
                let offered = trace.offered_bytes(self.before.taken_at, self.after.taken_at);
                return offered as f64 / self.secs();
            }
            link.rate.map_or(0.0, |rate| rate.rate(self.observations.packet_bytes).as_bytes() as f64)
        };
        names.iter().map(rate).sum()
    }

    /// Returns the traffic that these links carried, in percent of their rate.
    pub(crate) fn utilisation(&self, names: &'a [String]) -> f64 {
        let carried: u64 = self.stats(names).map(|(a, b)| b.delivered_bytes - a.delivered_bytes).sum();
        100.0 * carried as f64 / self.secs() / self.rate_bytes(names)
    }

    /// Returns the utilisation of the link that carried the least, in percent.
    pub(crate) fn least_used(&self, names: &'a [String]) -> f64 {
        names.iter().map(|name| self.utilisation(std::slice::from_ref(name))).fold(f64::INFINITY, f64::min)
    }

    /// Returns the packets lost at these links (queue, chance or script), as a fraction of the packets
    /// offered.
    pub(crate) fn loss(&self, names: &'a [String]) -> f64 {
        let lost = |stats: &Stats| stats.dropped.congestion() + stats.dropped.loss + stats.dropped.scripted;
        let (dropped, offered) = self
            .stats(names)
            .fold((0, 0), |(d, o), (a, b)| (d + lost(b) - lost(a), o + b.offered - a.offered));
        dropped as f64 / offered as f64
    }

    /// Returns the times that packets stayed at these links in the window; `None` unless all of them play
    /// traces.
    fn sojourns(&self, names: &[String]) -> Option<Histogram> {
        let mut all = Histogram::new();
        for name in names {
            let place = self.scenario.link.keys().position(|key| key == name)?;
            let before = self.before.sojourns[place].as_ref()?;
            all.add(&self.after.sojourns[place].as_ref()?.since(before));
        }
        Some(all)
    }

    /// Returns the 99th percentile of the queue on the link where it is largest, ms. A link with a trace
    /// counts the time that packets stayed; any other link counts the queue at the end of each step, in time
    /// at its rate.
    ///
    /// # Errors
    /// If a link has no such percentile; the error says why.
    pub(crate) fn queue_p99_ms(&self, names: &'a [String]) -> Result<f64, String> {
        let noted = |name: &String| {
            if let Some(sojourns) = self.sojourns(std::slice::from_ref(name)) {
                return match sojourns.count() {
                    0 => Err(format!("no packet left link {name}")),
                    _ => Ok(sojourns.quantile(0.99).as_nanos() as f64 / 1e6),
                };
            }
            let is_it = |line: &&Line| line.kind == SeriesKind::Queue && line.name == *name;
            let line = self.observations.lines.iter().find(is_it);
            let queues = line.and_then(|line| line.values.get(self.steps()));
            let mut queues =
                queues.filter(|queues| !queues.is_empty()).map(<[f32]>::to_vec).ok_or_else(|| {
                    format!("queues are not noted over time: more than {LINES_MAX} flows, paths and links")
                })?;
            queues.sort_unstable_by(f32::total_cmp);
            let packets = queues[(queues.len() * 99).div_ceil(100) - 1];
            let bytes = f64::from(packets) * self.observations.packet_bytes as f64;
            Ok(bytes / self.rate_bytes(std::slice::from_ref(name)) * 1e3)
        };
        let each: Vec<f64> = names.iter().map(noted).collect::<Result<_, _>>()?;
        Ok(each.into_iter().fold(0.0, f64::max))
    }

    /// Returns the mean queue of these links, ms: the mean time that packets stayed if the links play
    /// traces, else the time that the queue takes at the links' rate.
    pub(crate) fn queue_ms(&self, names: &'a [String]) -> f64 {
        if let Some(sojourns) = self.sojourns(names) {
            return if sojourns.count() == 0 { f64::NAN } else { sojourns.mean().as_nanos() as f64 / 1e6 };
        }
        let bytes: f64 = self
            .stats(names)
            .map(|(a, b)| (b.queue_byte_ns - a.queue_byte_ns) as f64 / 1e9 / self.secs())
            .sum();
        bytes / self.rate_bytes(names) * 1e3
    }
}
