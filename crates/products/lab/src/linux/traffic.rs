//! Runs all flows of a run on one thread, which starts, feeds and drains them and records them at the times
//! that the measures need.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use anabranch_algo::{Span, Time};
use anabranch_kernel::groups::{self, Group, Selector};
use anabranch_net::{Clock, Poller};
use anabranch_sim::{LinkChange, LinkId, Stats};

use super::BUILT_IN;
use super::flow::{Chunk, Role, SocketFlow};
use super::snapshot::KernelSnapshot;
use super::testbed::{self, HostPair, Testbed};
use crate::observations::{FlowEnd, Recorder};
use crate::outcome::{Lateness, Outcome};
use crate::run::flow_instances::{FlowInstance, flow_instances};
use crate::run::groups::TopologyGroups;
use crate::run::outcome;
use crate::scenario::{Groups, Scenario};

/// Number of times that sockets are served in the shortest round-trip time. The thread then wakes for many
/// packets at once, and buffers neither run dry nor fill up.
const SERVED_PER_RTT: u64 = 20;
/// Least and greatest time between two services of the sockets.
const PAUSE_MIN: Span = Span::from_micros(500);
const PAUSE_MAX: Span = Span::from_millis(5);
/// The nice value of the thread that feeds the flows.
const NICE: i32 = -19;
/// Time between two checks of the stop flag.
const STOP_EVERY: Span = Span::from_millis(100);

/// A run in progress.
struct Traffic {
    testbed: Testbed,
    flows: Vec<SocketFlow>,
    /// Changes of links; the next one is last.
    changes: Vec<(Time, LinkId, LinkChange)>,
    /// Time zero of the run on the emulator's clock.
    zero: Time,
    latest: KernelSnapshot,
    /// Time of the snapshot before, and the links' counters then.
    before: (Time, Vec<Stats>),
}

/// Runs `scenario` once in real time; see [`super::run`].
pub(super) fn run(
    scenario: &Scenario,
    controller: &str,
    seed: u64,
    stop: &AtomicBool,
) -> Result<Outcome, String> {
    let said = |e: io::Error| format!("since it cannot be set up: {e}");
    let testbed = Testbed::new(scenario, seed).map_err(said)?;
    let instances: Vec<FlowInstance<'_>> = flow_instances(scenario, controller, seed).collect();
    let rules: Vec<_> = instances
        .iter()
        .zip(&testbed.pairs)
        .map(|(instance, pair)| apart(scenario, instance, pair))
        .collect();
    each_rule(&rules, &testbed.pairs, groups::set)?;
    let flow = |(instance, pair): (&FlowInstance<'_>, &HostPair)| {
        SocketFlow::new(instance, pair, instance.payload_bytes(testbed.links.packet_bytes))
    };
    let flows =
        instances.iter().zip(&testbed.pairs).map(flow).collect::<io::Result<Vec<_>>>().map_err(said)?;
    let packet_bytes = testbed.links.packet_bytes;
    let observed = instances.iter().map(|instance| instance.observed(packet_bytes)).collect();
    let mut recorder = Recorder::new(scenario, packet_bytes, observed);
    let mut changes: Vec<_> = scenario.fault.iter().flat_map(|fault| testbed.links.changes(fault)).collect();
    // Changes at equal times must stay in their order.
    changes.reverse();
    changes.sort_by_key(|(at, ..)| std::cmp::Reverse(*at));
    let zero = testbed.running.now();
    let mut traffic = Traffic {
        testbed,
        flows,
        changes,
        zero,
        latest: KernelSnapshot::default(),
        before: (Time::ZERO, Vec::new()),
    };
    let carried = traffic.carry(&mut recorder, stop).map_err(|e| format!("since {e}"));
    // Rules refer to namespaces only by number, and would stay behind.
    each_rule(&rules, &traffic.testbed.pairs, |subject, _| groups::clear(subject))?;
    carried?;
    Ok(traffic.finish(scenario, controller, recorder))
}

/// Returns the group of each path of a flow with a selector by local address; empty if all paths are
/// coupled.
fn apart(scenario: &Scenario, instance: &FlowInstance<'_>, pair: &HostPair) -> Vec<(Selector, Group)> {
    let all = instance.flow.groups == Groups::All || BUILT_IN.contains(&instance.controller);
    if all || instance.flow.paths.len() == 1 {
        return Vec::new();
    }
    let groups = TopologyGroups::initial(scenario, instance.flow).into_iter().enumerate();
    groups.map(|(p, group)| (Selector::Address(pair.sender(p)), Group::Shared(group))).collect()
}

/// Applies `work` to each rule of each flow, in the namespace of its sender, where the rules apply.
fn each_rule(
    rules: &[Vec<(Selector, Group)>],
    pairs: &[HostPair],
    work: impl Fn(Selector, Group) -> anabranch_kernel::Result<()> + Sync,
) -> Result<(), String> {
    let said = |e: &dyn std::fmt::Display| format!("since groups cannot be set: {e}");
    for (rules, pair) in rules.iter().zip(pairs).filter(|(rules, _)| !rules.is_empty()) {
        let all = || rules.iter().try_for_each(|(subject, group)| work(*subject, *group));
        pair.tx.run(all).map_err(|e| said(&e))?.map_err(|e| said(&e))?;
    }
    Ok(())
}

impl Traffic {
    fn now(&self) -> Time {
        Time::ZERO + self.testbed.running.now().since(self.zero)
    }

    /// Keeps the flows busy until the end of the recording.
    fn carry(&mut self, recorder: &mut Recorder, stop: &AtomicBool) -> io::Result<()> {
        // Run before less urgent processes. Where this is not allowed, links are less busy, which the
        // results show.
        let _ = anabranch_net::set_nice(NICE);
        let clock = Clock::start();
        let (mut poller, mut chunk, mut roles) = (Poller::new(clock), Chunk::new(), Vec::new());
        let shortest = self.testbed.pairs.iter().flat_map(|pair| &pair.rtts).min().copied();
        let pause = shortest.unwrap_or(Span::ZERO).over(SERVED_PER_RTT).clamp(PAUSE_MIN, PAUSE_MAX);
        loop {
            let now = self.now();
            while let Some((_, link, change)) = self.changes.pop_if(|(at, ..)| *at <= now) {
                self.testbed.running.command(link, change);
            }
            if recorder.next().is_some_and(|at| at <= now) {
                self.observe();
                let now = self.now();
                while recorder.next().is_some_and(|at| at <= now) {
                    recorder.record(now, &self.latest);
                }
            }
            // Record first: a flow that stops now is recorded once more.
            self.flows.iter_mut().for_each(|flow| flow.tick(now));
            let Some(next) = recorder.next() else { return Ok(()) };
            if stop.load(Ordering::Relaxed) {
                return Err(io::Error::new(io::ErrorKind::Interrupted, "it was stopped"));
            }
            let flows = self.flows.iter().map(SocketFlow::next).min().unwrap_or(Time::NEVER);
            let changes = self.changes.last().map_or(Time::NEVER, |(at, ..)| *at);
            let until = next.min(flows).min(changes).min(now + STOP_EVERY);
            roles.clear();
            let wants = self.flows.iter().enumerate().flat_map(|(f, flow)| flow.wants().map(move |w| (f, w)));
            let set = wants.map(|(f, (role, fd, interest))| {
                roles.push((f, role));
                (fd, interest)
            });
            let left = until.since(self.now());
            if poller.wait(set, clock.now() + left)? > 0 {
                let now = self.now();
                for (place, (f, role)) in roles.iter().enumerate() {
                    let ready = poller.ready(place);
                    if if *role == Role::Send { ready.write } else { ready.read } {
                        self.flows[*f].serve(now, *role, &mut chunk);
                    }
                }
                let left = until.since(self.now()).min(pause);
                clock.sleep_until(clock.now() + left);
            }
        }
    }

    /// Takes a snapshot of all flows and links.
    fn observe(&mut self) {
        let snapshot = self.testbed.running.snapshot();
        let now = self.now();
        let links: Vec<Stats> =
            self.testbed.links.ids.values().map(|id| snapshot.links[id.0 as usize]).collect();
        let since = snapshot.at.since(self.before.0).as_nanos().max(1) as f64;
        let old = |i: usize| self.before.1.get(i).map_or(0, |stats| stats.queue_byte_ns);
        let queue = |(i, stats): (usize, &Stats)| stats.queue_byte_ns.saturating_sub(old(i)) as f64 / since;
        self.latest.queued_bytes = links.iter().enumerate().map(queue).collect();
        for (flow, pair) in self.flows.iter_mut().zip(&self.testbed.pairs) {
            flow.poll_subflows(now, pair);
        }
        self.latest.totals = self.flows.iter().map(SocketFlow::total).collect();
        self.latest.bytes = self.flows.iter().map(SocketFlow::bytes).collect();
        self.latest.cwnds = self.flows.iter().map(SocketFlow::cwnds).collect();
        let ids = self.testbed.links.ids.values();
        self.latest.sojourns = ids.map(|id| snapshot.sojourns[id.0 as usize].clone()).collect();
        self.latest.links.clone_from(&links);
        self.before = (snapshot.at, links);
    }

    /// Computes the outcome of the run.
    fn finish(self, scenario: &Scenario, controller: &str, recorder: Recorder) -> Outcome {
        let now = self.now();
        let pairs = &self.testbed.pairs;
        let ends: Vec<FlowEnd> = self.flows.iter().zip(pairs).map(|(flow, pair)| flow.end(pair)).collect();
        let counted = scenario.count_from.time();
        let mut violations: Vec<String> =
            self.flows.iter().flat_map(|flow| flow.violations(now, counted)).collect();
        drop(self.flows);
        let Testbed { pairs, running, links } = self.testbed;
        let snapshot = running.stop();
        let (of_testbed, too_late) = testbed::violations(&pairs, &snapshot);
        let too_late = too_late && violations.is_empty();
        violations.extend(of_testbed);
        let late = snapshot.lateness();
        let micros = |span: Span| span.as_nanos() as f64 / 1e3;
        let lateness = Lateness {
            packets: late.count(),
            p50_us: micros(late.quantile(0.5)),
            p99_us: micros(snapshot.late_p99()),
            max_us: micros(late.max()),
            too_late,
        };
        let rated = scenario.link.iter().filter(|(_, link)| link.is_limited());
        let packets = rated.map(|(name, _)| snapshot.links[links.ids[name].0 as usize].delivered).sum();
        let outcome = outcome(scenario, controller, recorder.finish(ends, violations));
        Outcome { link_packets: packets, lateness: Some(lateness), ..outcome }
    }
}
