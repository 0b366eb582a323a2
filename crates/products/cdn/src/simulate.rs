//! Runs the streams of one seed under one policy, in steps of fluid time.
//!
//! In each step the rates of all streams follow from max-min fairness ([`MaxMin`]). Streams of one origin,
//! one access network and one limit are one class. The limit is the viewer's line while the buffer has room,
//! and the rate of the quality once it is full. Requests come at their exact time: until the next step a new
//! stream takes what the last shares leave it, the least level on its path.
//!
//! **Caches.** A cache fetches each channel in each quality once, from the origin (caches do not ask each
//! other, 000 §3.4.1.1), as long as somebody watches it: such a *fill* is one more stream of its class. It
//! keeps the last seconds of it, as many as a player buffers. A viewer who comes begins there, and gets what
//! the cache has at the rate of the own line; after that, what the fill brings.

use anabranch_sim::Rng;
use anabranch_topology::max_min::{Class, MaxMin};

use crate::as_graph::{AsGraph, Role};
use crate::plan::{Plan, Player, QUALITIES_MBITS};
use crate::playback::{Experience, Playback};
use crate::policy::{Fleet, Policy};
use crate::requests::{self, Request};
use crate::routes::{Routes, capacities};

/// Step while viewers come at the first rate, and for a while after it, seconds.
const FIRST_STEP_S: f64 = 0.25;
const FIRST_S: f64 = 15.0;
/// Step later, seconds.
const STEP_S: f64 = 3.0;
/// A stream that is still watched at the end counts if it came at least so long before, seconds.
const COUNTS_S: f64 = 60.0;
/// Limits of streams: the viewer's line, then the rate of each quality.
const LIMITS: usize = 1 + QUALITIES_MBITS.len();
const GREEDY: usize = 0;

/// What all runs of one seed share: the network, the paths and the requests.
#[derive(Clone, Debug)]
pub struct World {
    plan: Plan,
    seed: u64,
    access: usize,
    /// Origin of each channel, by its place among the sources of `routes`.
    origin_of: Vec<usize>,
    routes: Routes,
    capacities: Vec<f64>,
    requests: Vec<Request>,
}

/// The most pairs of a channel and an access network; a run takes some 200 bytes for each.
const PAIRS_MAX: usize = 2_000_000;

/// The reason why there is no world.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorldError {
    /// The graph has no place of this role.
    #[error("the network has no {0}; say what its places are with a file of roles")]
    Without(&'static str),
    /// A run would take too much memory.
    #[error(
        "{channels} channels for {access} access networks are too many: their product may be {PAIRS_MAX}; \
         take fewer channels, or a part of the network"
    )]
    TooLarge {
        /// The channels of the plan.
        channels: usize,
        /// The access networks of the graph.
        access: usize,
    },
}

impl World {
    /// Makes the world of a seed: origins are drawn among the content providers, one for each channel.
    ///
    /// # Errors
    /// If the graph has no content provider or no access network, or is too large for the plan.
    pub fn new(plan: &Plan, graph: &AsGraph, seed: u64) -> Result<Self, WorldError> {
        let access: Vec<u32> = graph.with_role(Role::Access).collect();
        let mut content: Vec<u32> = graph.with_role(Role::Content).collect();
        for (list, what) in [(&access, "access networks"), (&content, "content providers")] {
            if list.is_empty() {
                return Err(WorldError::Without(what));
            }
        }
        if plan.demand.channels.saturating_mul(access.len()) > PAIRS_MAX {
            return Err(WorldError::TooLarge { channels: plan.demand.channels, access: access.len() });
        }
        let mut rng = Rng::stream(seed, "origins");
        for place in (1..content.len()).rev() {
            content.swap(place, rng.below(place as u64 + 1) as usize);
        }
        content.truncate(plan.demand.channels);
        let Plan { capacities: mbits, demand, .. } = plan;
        Ok(Self {
            seed,
            access: access.len(),
            origin_of: (0..demand.channels).map(|channel| channel % content.len()).collect(),
            routes: Routes::new(graph, &content, &access),
            capacities: capacities(graph, mbits.core_mbits, mbits.leaf_mbits),
            requests: requests::draw(demand, access.len(), seed),
            plan: plan.clone(),
        })
    }

    /// Returns the requests.
    #[must_use]
    pub fn requests(&self) -> &[Request] {
        &self.requests
    }

    /// Runs all streams under a policy.
    #[must_use]
    pub fn run(&self, policy: &Policy) -> Outcome {
        let mut run = Run::new(self, policy);
        let demand = &self.plan.demand;
        let end_s = 60.0 * demand.minutes;
        let first_s = FIRST_S + demand.streams_least as f64 / demand.first_per_s;
        let mut now_s = 0.0;
        while now_s < end_s {
            let step_s: f64 = if now_s < first_s { FIRST_STEP_S } else { STEP_S };
            let until_s = end_s.min(now_s + step_s);
            run.step(now_s, until_s);
            now_s = until_s;
        }
        run.end()
    }
}

/// What came of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// What each viewer felt who left in time, or came at least a minute before the end.
    pub felt: Vec<Experience>,
    /// How often a cache was started.
    pub boots: u32,
    /// Video that crossed the first link of its origin, TB.
    pub origin_terabytes: f64,
}

/// A stream that is watched.
#[derive(Clone, Copy, Debug)]
struct Stream {
    request: u32,
    playback: Playback,
    /// Of a stream from a cache: the video that the cache has and the player has not, seconds.
    behind_s: f64,
    cached: bool,
}

/// A channel in a quality that a cache fetches.
#[derive(Clone, Copy, Debug, Default)]
struct Fill {
    viewers: u32,
    /// Video that the cache keeps, seconds.
    kept_s: f64,
    /// Seconds of video that come each second.
    speed: f64,
    /// Whether a viewer could use more.
    is_hungry: bool,
    /// Whether it is in the list of those that a cache fetches.
    is_active: bool,
}

struct Run<'a> {
    world: &'a World,
    fleet: Fleet,
    shares: MaxMin,
    streams: Vec<Stream>,
    /// By access network, channel and quality.
    fills: Vec<Fill>,
    active_fills: Vec<u32>,
    /// By origin, access network and limit: the number of streams, and their rate, Mbit/s.
    counts: Vec<u32>,
    rates: Vec<f64>,
    used: Vec<u32>,
    classes: Vec<Class>,
    next_request: usize,
    felt: Vec<Experience>,
    origin_mbit: f64,
}

impl<'a> Run<'a> {
    fn new(world: &'a World, policy: &Policy) -> Self {
        let origins = world.origin_of.iter().max().map_or(0, |last| last + 1);
        let keys = origins * world.access * LIMITS;
        Self {
            world,
            fleet: Fleet::new(policy, world.access, world.seed),
            shares: MaxMin::new(),
            streams: Vec::new(),
            fills: vec![Fill::default(); world.access * world.origin_of.len() * QUALITIES_MBITS.len()],
            active_fills: Vec::new(),
            counts: vec![0; keys],
            rates: vec![0.0; keys],
            used: Vec::new(),
            classes: Vec::new(),
            next_request: 0,
            felt: Vec::with_capacity(world.requests.len()),
            origin_mbit: 0.0,
        }
    }

    fn key(&self, request: &Request, limit: usize) -> usize {
        let origin = self.world.origin_of[usize::from(request.channel)];
        (origin * self.world.access + request.access as usize) * LIMITS + limit
    }

    fn fill_of(&self, request: &Request) -> usize {
        let channels = self.world.origin_of.len();
        let channel = request.access as usize * channels + usize::from(request.channel);
        channel * QUALITIES_MBITS.len() + usize::from(request.quality)
    }

    fn step(&mut self, now_s: f64, until_s: f64) {
        self.count();
        self.share(until_s - now_s);
        self.pass(now_s, until_s);
        self.admit(until_s);
    }

    fn add(&mut self, key: usize) {
        if self.counts[key] == 0 {
            self.used.push(key as u32);
        }
        self.counts[key] += 1;
    }

    /// Counts the streams of each class.
    fn count(&mut self) {
        for key in self.used.drain(..) {
            self.counts[key as usize] = 0;
        }
        for place in 0..self.streams.len() {
            let stream = self.streams[place];
            if !stream.cached {
                let request = self.world.requests[stream.request as usize];
                let limit = limit(stream.playback.is_hungry(&self.world.plan.player), request.quality);
                let key = self.key(&request, limit);
                self.add(key);
            }
        }
        let (qualities, channels) = (QUALITIES_MBITS.len(), self.world.origin_of.len());
        for place in 0..self.active_fills.len() {
            let index = self.active_fills[place] as usize;
            let quality = (index % qualities) as u8;
            let (access, channel) = (index / qualities / channels, index / qualities % channels);
            let limit = limit(self.fills[index].is_hungry, quality);
            let key = (self.world.origin_of[channel] * self.world.access + access) * LIMITS + limit;
            self.add(key);
        }
    }

    /// Shares the links among the classes, for `span_s` seconds.
    fn share(&mut self, span_s: f64) {
        let Self { world, classes, used, counts, rates, .. } = self;
        let user_mbits = world.plan.capacities.user_mbits;
        let path = |key: u32| {
            let pair = key as usize / LIMITS;
            world.routes.path(pair / world.access, pair % world.access)
        };
        classes.clear();
        for key in used.iter() {
            let limit = match *key as usize % LIMITS {
                GREEDY => user_mbits,
                quality => QUALITIES_MBITS[quality - 1].min(user_mbits),
            };
            let weight = f64::from(counts[*key as usize]);
            // Without a path nothing comes.
            let (path, limit) = path(*key).map_or((0..0, 0.0), |path| (path, limit));
            classes.push(Class { path, weight, limit });
        }
        self.shares.share(&world.capacities, world.routes.links(), classes);
        for ((key, class), rate) in used.iter().zip(classes.iter()).zip(self.shares.rates()) {
            rates[*key as usize] = *rate;
            self.origin_mbit += class.weight * rate * span_s;
        }
        let (qualities, channels) = (QUALITIES_MBITS.len(), world.origin_of.len());
        for index in &self.active_fills {
            let index = *index as usize;
            let (access, channel) = (index / qualities / channels, index / qualities % channels);
            let fill = &mut self.fills[index];
            let limit = limit(fill.is_hungry, (index % qualities) as u8);
            let key = (world.origin_of[channel] * world.access + access) * LIMITS + limit;
            fill.speed = rates[key] / QUALITIES_MBITS[index % qualities];
            fill.is_hungry = false;
        }
    }

    /// Lets the time of a step pass for all streams, and ends those whose viewers leave.
    fn pass(&mut self, now_s: f64, until_s: f64) {
        let player = self.world.plan.player;
        let mut place = 0;
        while place < self.streams.len() {
            let mut stream = self.streams[place];
            let request = self.world.requests[stream.request as usize];
            let span_s = (request.until_s.min(until_s) - now_s).max(0.0);
            if stream.cached {
                self.pass_cached(&mut stream, &request, span_s);
            } else {
                let limit = limit(stream.playback.is_hungry(&player), request.quality);
                let mbits = self.rates[self.key(&request, limit)];
                stream.playback.pass(&player, span_s, mbits / QUALITIES_MBITS[usize::from(request.quality)]);
            }
            self.streams[place] = stream;
            if request.until_s <= until_s {
                self.leave(&stream);
                self.streams.swap_remove(place);
            } else {
                place += 1;
            }
        }
        let fills = &mut self.fills;
        self.active_fills.retain(|index| {
            let fill = &mut fills[*index as usize];
            fill.kept_s = player.buffer_s.min(fill.kept_s + fill.speed * (until_s - now_s));
            if fill.viewers == 0 {
                *fill = Fill::default();
            }
            fill.viewers > 0
        });
    }

    /// Lets time pass for a stream from a cache: what the cache has comes as fast as the line is, and then
    /// what the fill brings.
    fn pass_cached(&mut self, stream: &mut Stream, request: &Request, span_s: f64) {
        let player = &self.world.plan.player;
        let line = self.world.plan.capacities.user_mbits / QUALITIES_MBITS[usize::from(request.quality)];
        let index = self.fill_of(request);
        let fill = &mut self.fills[index];
        let catching_up_s = match line - fill.speed {
            faster if faster > 0.0 => span_s.min(stream.behind_s / faster),
            _ => span_s,
        };
        let mut fetched = stream.playback.pass(player, catching_up_s, line);
        fetched += stream.playback.pass(player, span_s - catching_up_s, line.min(fill.speed));
        let behind_s = stream.behind_s + fill.speed * span_s - fetched;
        stream.behind_s = behind_s.clamp(0.0, player.buffer_s);
        fill.is_hungry |= stream.playback.is_hungry(player) && stream.behind_s < player.start_s;
    }

    fn leave(&mut self, stream: &Stream) {
        let request = self.world.requests[stream.request as usize];
        if stream.cached {
            self.fleet.leave(request.access, request.until_s);
            let fill = self.fill_of(&request);
            self.fills[fill].viewers -= 1;
        }
        self.felt.push(stream.playback.experience(stream.cached));
    }

    /// Begins the streams that are asked for before `until_s`.
    fn admit(&mut self, until_s: f64) {
        while let Some(request) = self.world.requests.get(self.next_request).copied() {
            if request.at_s >= until_s {
                break;
            }
            let cached = self.fleet.ask(request.access, request.at_s);
            let number = self.next_request as u32;
            self.next_request += 1;
            let mut stream = Stream { request: number, playback: Playback::default(), behind_s: 0.0, cached };
            let span_s = request.until_s.min(until_s) - request.at_s;
            let player: &Player = &self.world.plan.player;
            let mbits = self.left_for(&request);
            let speed = mbits / QUALITIES_MBITS[usize::from(request.quality)];
            if cached {
                let index = self.fill_of(&request);
                let fill = &mut self.fills[index];
                if !fill.is_active {
                    *fill = Fill { kept_s: speed * span_s, speed, is_active: true, ..Fill::default() };
                    self.active_fills.push(index as u32);
                }
                fill.viewers += 1;
                // What the cache keeps is that of the end of the step.
                stream.behind_s = (fill.kept_s - fill.speed * span_s).max(0.0);
                self.pass_cached(&mut stream, &request, span_s);
            } else {
                stream.playback.pass(player, span_s, speed);
            }
            if request.until_s <= until_s {
                self.leave(&stream);
            } else {
                self.streams.push(stream);
            }
        }
    }

    /// Returns what the last shares leave one more stream, Mbit/s.
    fn left_for(&self, request: &Request) -> f64 {
        let world = self.world;
        let origin = world.origin_of[usize::from(request.channel)];
        let Some(path) = world.routes.path(origin, request.access as usize) else { return 0.0 };
        let links = &world.routes.links()[path.start as usize..path.end as usize];
        let level = |link: &u32| self.shares.levels().get(*link as usize).copied().unwrap_or(f64::INFINITY);
        links.iter().map(level).fold(world.plan.capacities.user_mbits, f64::min)
    }

    fn end(mut self) -> Outcome {
        let end_s = 60.0 * self.world.plan.demand.minutes;
        for place in 0..self.streams.len() {
            let stream = self.streams[place];
            if end_s - self.world.requests[stream.request as usize].at_s >= COUNTS_S {
                self.felt.push(stream.playback.experience(stream.cached));
            }
        }
        Outcome { felt: self.felt, boots: self.fleet.boots(), origin_terabytes: self.origin_mbit / 8e6 }
    }
}

/// Returns the limit of a stream.
fn limit(is_hungry: bool, quality: u8) -> usize {
    if is_hungry { GREEDY } else { 1 + usize::from(quality) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::Size;
    use crate::plan::{Capacities, Demand};

    /// A small network: some hundred viewers, and origins whose lines have `leaf_mbits`.
    fn plan(leaf_mbits: f64) -> Plan {
        Plan {
            network: Size { content: 6, access: 12, transit: 4, lines: 42 },
            capacities: Capacities { leaf_mbits, ..Capacities::default() },
            demand: Demand {
                channels: 6,
                streams_least: 400,
                streams_most: 600,
                first_per_s: 40.0,
                minutes: 4.0,
                watch_minutes: (0.5, 1.0, 3.0),
                ..Demand::default()
            },
            ..Plan::default()
        }
    }

    fn run(plan: &Plan, seed: u64, policy: Policy) -> Outcome {
        let graph = plan.network.graph(seed).expect("a graph");
        World::new(plan, &graph, seed).expect("a world").run(&policy)
    }

    fn waits(outcome: &Outcome) -> f64 {
        outcome.felt.iter().map(|felt| f64::from(felt.buffering)).sum::<f64>() / outcome.felt.len() as f64
    }

    const EPHEMERAL: Policy = Policy::Ephemeral { boot_s: 0.1, idle_s: 60.0 };

    #[test]
    fn equal_seeds_are_equal_runs() {
        let plan = plan(100.0);
        for policy in [Policy::Origin, Policy::Traditional { deployed_percent: 50 }, EPHEMERAL] {
            assert_eq!(run(&plan, 3, policy), run(&plan, 3, policy));
        }
        assert_ne!(run(&plan, 3, EPHEMERAL), run(&plan, 4, EPHEMERAL));
    }

    /// With room for all, a stream starts as soon as its line has brought the first seconds, from anywhere.
    #[test]
    fn with_room_for_all_only_the_own_line_counts() {
        let plan = plan(1e6);
        for policy in [Policy::Origin, Policy::Traditional { deployed_percent: 100 }, EPHEMERAL] {
            let outcome = run(&plan, 1, policy);
            assert!(outcome.felt.len() > 800);
            for felt in &outcome.felt {
                let starts = QUALITIES_MBITS.map(|mbits| plan.player.start_s * mbits / 25.0);
                let is_one = starts.iter().any(|start| (f64::from(felt.start_s) - start).abs() < 1e-3);
                assert!(is_one && felt.stalls_per_minute == 0.0 && felt.playback == 1.0, "{felt:?}");
            }
        }
    }

    #[test]
    fn caches_help_where_origins_are_narrow() {
        let plan = plan(150.0);
        let of = |policy| run(&plan, 2, policy);
        let part = |deployed_percent| of(Policy::Traditional { deployed_percent });
        let (none, half, all) = (of(Policy::Origin), part(50), part(100));
        let [quick, slow] = [0.1, 8.0].map(|boot_s| of(Policy::Ephemeral { boot_s, idle_s: 60.0 }));
        let order = [&none, &half, &quick, &all].map(waits);
        assert!(order.windows(2).all(|two| two[0] > two[1]), "{order:?}");
        assert!(waits(&slow) > waits(&quick), "{} {}", waits(&slow), waits(&quick));
        assert_eq!(quick.boots, 12);
        let cached = |outcome: &Outcome| outcome.felt.iter().filter(|felt| felt.cached).count();
        assert_eq!((cached(&none), cached(&all)), (0, all.felt.len()));
        assert!(cached(&slow) < cached(&quick));
    }

    #[test]
    fn a_cache_without_viewers_is_shut_down() {
        let mut plan = plan(1e6);
        plan.demand =
            Demand { streams_least: 1, streams_most: 2, watch_minutes: (0.1, 0.1, 0.1), ..plan.demand };
        let outcome = run(&plan, 1, Policy::Ephemeral { boot_s: 0.1, idle_s: 5.0 });
        assert!(outcome.boots > 12, "{}", outcome.boots);
    }

    #[test]
    fn a_network_without_origins_is_refused() {
        let mut graph = plan(1.0).network.graph(1).expect("a graph");
        (0..graph.ases().len() as u32).for_each(|index| graph.set_role(index, Role::Access));
        let error = World::new(&plan(1.0), &graph, 1).expect_err("no origins");
        assert!(error.to_string().contains("no content providers"));
    }
}
