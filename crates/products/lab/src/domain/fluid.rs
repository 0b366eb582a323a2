//! Computes the steady state of a network of flows, without packets: each link has a loss probability, and
//! each window follows from the loss probabilities of its path. Both change until every link that loses
//! packets is as full as its flows can keep it.
//!
//! Source of the method: S. H. Low, "A duality model of TCP and queue management algorithms", IEEE/ACM ToN
//! 11(4), 2003 (loss probabilities as prices of links). A subflow has the mean window w in packets, the
//! round-trip time T, the rate x = w/T, and the fraction p of packets that begin a congestion event:
//!
//! * **Balance.** Losses take from a window in one round trip as much as it gains: p w · c w = g, with g the
//!   growth a round trip and c the fraction of the window that one event takes.
//!   * Reno: g = 1, c = 1/2.
//!   * NMCC (dissertation, (4.5), (4.7), (4.17)): g = 1/m², m² = Σ T⁻² / max T⁻²; c = m_t/2, at most the
//!     whole window; m_t = p_best (Σ x)² / Σ p x², within 1 and the number of subflows. The best path is the
//!     one with the shortest T when the event comes; at that time the queue of the path that loses is full.
//!     Queues fluctuate, so each path may be the best: m_t is the mean over them, weighed by T⁻¹⁶.
//!   * LIA (RFC 6356): g = w · min(max(w/T²) / (Σ w/T)², 1/w), c = 1/2.
//! * **Loss events.** When a queue overflows, all flows grow for another round trip, so about G = Σ g packets
//!   are dropped, at least one. A subflow with the share s of the link's rate loses at least one of them with
//!   probability H = 1 − (1 − s)^G; several losses at once are one event. The subflow therefore feels the
//!   part H/(G s) of the link's loss probability: a large subflow loses several packets in one event.
//! * **Sawtooth.** An event takes the fraction δ = Σ s c H from the sum of the windows. In bandwidth-delay
//!   products of the link the sum goes from (1 + b)(1 − δ) to 1 + b, with b the queue's limit. If it begins
//!   below 1, the link idles: the mean of that sawtooth is the rate that flows can use. The mean queue, which
//!   is part of T, follows likewise.
//!
//! These rates are not those of max-min fairness ([`anabranch_topology::max_min`]), which knows neither
//! round-trip times nor losses: they are near them only where flows of one TCP each have about equal
//! round-trip times and one bottleneck.
//!
//! The model leaves out slow start, the time until the state is reached, timeouts, windows as whole packets,
//! correlation between the links of a path, and phase effects of drop-tail queues.

use super::network::{Network, Rule};

/// Most rounds.
const ROUNDS_MAX: usize = 3_000;
/// Relative distance of a link's load from the usable load at which the link has converged.
const TOLERANCE: f64 = 2e-3;
/// Least loss probability of a link: practically no loss.
const PRICE_MIN: f64 = 1e-11;
/// Weight of the new value in a round, for all values that follow from the rates.
const DAMPING: f64 = 0.15;
/// Half of the power of 1/T that stands for how often a subflow is the best of its group.
const BEST_POWER: i32 = 8;
/// A link counts as a bottleneck, and has a queue, in proportion to its part of its flows' losses, up to
/// this part.
const BOTTLENECK_PART: f64 = 0.05;

/// The steady state of a network.
#[derive(Clone, Debug, PartialEq)]
pub struct Steady {
    /// Rate of each path of each flow, packets a second.
    pub rates: Vec<Vec<f64>>,
    /// Greatest relative excess of a link's load over its usable capacity, or shortfall where the link still
    /// loses packets.
    pub residual: f64,
    /// Number of rounds computed.
    pub rounds: usize,
}

impl Steady {
    /// Rate of each flow, packets a second.
    #[must_use]
    pub fn flow_rates(&self) -> Vec<f64> {
        self.rates.iter().map(|paths| paths.iter().sum()).collect()
    }
}

/// A subflow.
struct Sub {
    links: std::ops::Range<usize>,
    base_rtt: f64,
    rtt: f64,
    /// Fraction of its packets that begin a congestion event.
    p: f64,
    window: f64,
    rate: f64,
    /// Growth in a round trip, packets.
    growth: f64,
    /// Fraction of its window that an event takes.
    cut: f64,
    /// Round-trip time when an event comes: the queue that overflows is then full.
    rtt_at_loss: f64,
    m_t: f64,
}

/// Subflows that are coupled.
struct Coupled {
    rule: Rule,
    subs: std::ops::Range<usize>,
}

/// State of a link.
struct LinkState {
    capacity: f64,
    queue_max: f64,
    price: f64,
    /// Mean queue, seconds.
    wait: f64,
    /// Fraction of the capacity that flows can use.
    usable: f64,
    load: f64,
}

struct Solver {
    links: Vec<LinkState>,
    /// Links of all subflows, one after the other, each with the part of its price that the subflow feels.
    on: Vec<(usize, f64)>,
    subs: Vec<Sub>,
    groups: Vec<Coupled>,
    /// For each link: the indices of its entries in `on`, with their subflows.
    users: Vec<Vec<(usize, usize)>>,
}

/// Computes the rates at which the flows of a network settle. The result is deterministic.
///
/// # Panics
/// If a path has no link, or one that the network does not have.
#[must_use]
pub fn solve(network: &Network) -> Steady {
    let (mut solver, places) = Solver::new(network);
    let (mut residual, mut rounds) = (f64::INFINITY, 0);
    while rounds < ROUNDS_MAX && residual > TOLERANCE {
        residual = solver.round();
        rounds += 1;
    }
    let rate = |place: &usize| solver.subs[*place].rate;
    Steady { rates: places.iter().map(|paths| paths.iter().map(rate).collect()).collect(), residual, rounds }
}

impl Solver {
    /// Creates the solver; returns it with the subflow of each path of each flow.
    fn new(network: &Network) -> (Self, Vec<Vec<usize>>) {
        let state = |link: &super::network::Link| LinkState {
            capacity: link.packets_per_second(),
            queue_max: f64::from(link.queue_packets),
            price: 1e-4,
            wait: 0.0,
            usable: 1.0,
            load: 0.0,
        };
        let links: Vec<LinkState> = network.links.iter().map(state).collect();
        let mut users = vec![Vec::new(); links.len()];
        let (mut on, mut subs, mut groups) = (Vec::new(), Vec::new(), Vec::new());
        let mut places = Vec::new();
        for flow in &network.flows {
            let mut order: Vec<usize> = (0..flow.paths.len()).collect();
            order.sort_by_key(|path| flow.paths[*path].group);
            let mut place = vec![0; flow.paths.len()];
            for row in order.chunk_by(|a, b| flow.paths[*a].group == flow.paths[*b].group) {
                let first = subs.len();
                for path in row {
                    place[*path] = subs.len();
                    let path = &flow.paths[*path];
                    assert!(!path.links.is_empty(), "a path has a link");
                    let start = on.len();
                    for link in &path.links {
                        users[*link].push((on.len(), subs.len()));
                        on.push((*link, 1.0));
                    }
                    let base_rtt = network.base_rtt_s(path);
                    subs.push(Sub {
                        links: start..on.len(),
                        base_rtt,
                        rtt: base_rtt,
                        p: 0.0,
                        window: 10.0,
                        rate: 10.0 / base_rtt,
                        growth: 1.0,
                        cut: 0.5,
                        rtt_at_loss: base_rtt,
                        m_t: 1.0,
                    });
                }
                let rule = if row.len() == 1 { Rule::Reno } else { flow.rule };
                groups.push(Coupled { rule, subs: first..subs.len() });
            }
            places.push(place);
        }
        (Self { links, on, subs, groups, users }, places)
    }

    /// Computes one round; returns the residual before it.
    fn round(&mut self) -> f64 {
        let Self { links, on, subs, groups, .. } = self;
        for sub in &mut *subs {
            let on = &on[sub.links.clone()];
            sub.p = on.iter().map(|(link, felt)| links[*link].price * felt).sum();
            sub.rtt = sub.base_rtt + on.iter().map(|(link, _)| links[*link].wait).sum::<f64>();
            let fills = |(link, felt): &(usize, f64)| {
                let link = &links[*link];
                (link.queue_max / link.capacity - link.wait) * link.price * felt / sub.p
            };
            sub.rtt_at_loss = sub.rtt + on.iter().map(fills).sum::<f64>();
        }
        for group in groups {
            group.windows(&mut subs[group.subs.clone()]);
        }
        for link in &mut *links {
            link.load = 0.0;
        }
        for sub in &mut *subs {
            sub.rate = sub.window / sub.rtt;
            for (link, _) in &on[sub.links.clone()] {
                links[*link].load += sub.rate;
            }
        }
        let mut residual = 0f64;
        for link in 0..self.links.len() {
            if !self.users[link].is_empty() {
                residual = residual.max(self.update(link));
            }
        }
        residual
    }

    /// Changes a link's price and the values that follow from the rates over it; returns how far its load is
    /// off.
    fn update(&mut self, id: usize) -> f64 {
        let Self { links, on, subs, users, .. } = self;
        let link = &mut links[id];
        let over = link.load / (link.capacity * link.usable);
        // Sum the subflows' state without this link, and the part of their losses that this link causes.
        let (mut rtt, mut growth, mut here) = (0.0, 0.0, 0.0);
        for (entry, sub) in &users[id] {
            let sub = &subs[*sub];
            let share = sub.rate / link.load;
            rtt += share * (sub.rtt - link.wait);
            growth += sub.growth;
            here += share * (link.price * on[*entry].1 / sub.p);
        }
        let dropped = growth.max(1.0);
        let mut taken = 0.0;
        for (entry, sub) in &users[id] {
            let sub = &subs[*sub];
            let share = sub.rate / link.load;
            let hit = 1.0 - (1.0 - share).max(0.0).powf(dropped);
            taken += share * sub.cut * hit;
            let felt = hit / (dropped * share);
            on[*entry].1 += DAMPING * (felt.min(1.0) - on[*entry].1);
        }
        let product = link.capacity * rtt;
        let sawtooth = Sawtooth::new(link.queue_max / product, taken);
        let part = (here / BOTTLENECK_PART).min(1.0);
        link.usable += DAMPING * (sawtooth.usable - link.usable);
        link.wait += DAMPING * (part * sawtooth.queue * rtt - link.wait);
        // Loads go with the root of prices, or faster: take half of the step that is right for one link
        // alone.
        link.price = (link.price * over.clamp(0.25, 4.0).sqrt()).max(PRICE_MIN);
        if over > 1.0 { over - 1.0 } else { (1.0 - over) * part }
    }
}

/// The cycle of the sum of the windows on one link, in bandwidth-delay products of the link.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sawtooth {
    /// Mean rate, as a fraction of the capacity.
    usable: f64,
    /// Mean queue.
    queue: f64,
}

impl Sawtooth {
    /// Computes the cycle for a queue limit `limit` and overflows that take the fraction `taken` of the
    /// windows. The sum grows by a constant in each round trip, and the queue lengthens a round trip.
    fn new(limit: f64, taken: f64) -> Self {
        let (top, low) = (1.0 + limit, (1.0 + limit) * (1.0 - taken.min(1.0)));
        // First the time below 1, where the rate is the sum of the windows; then above, where it is the
        // capacity.
        let (idle, sent) = if low < 1.0 { (1.0 - low, (1.0 - low * low) / 2.0) } else { (0.0, 0.0) };
        let full_from = low.max(1.0);
        let full = (top * top - full_from * full_from) / 2.0;
        if idle + full <= 0.0 {
            return Self { usable: 1.0, queue: limit };
        }
        let cubic = |w: f64| w * w * w / 3.0 - w * w / 2.0;
        let queued = cubic(top) - cubic(full_from);
        Self { usable: (sent + full) / (idle + full), queue: queued / (idle + full) }
    }
}

impl Coupled {
    /// Computes the windows that balance growth and losses.
    fn windows(&self, subs: &mut [Sub]) {
        match self.rule {
            Rule::Reno => {
                for sub in subs {
                    (sub.growth, sub.cut) = (1.0, 0.5);
                    sub.balance();
                }
            }
            Rule::Nmcc => nmcc(subs),
            Rule::Lia => lia(subs),
        }
    }
}

fn nmcc(subs: &mut [Sub]) {
    let omega = |rtt: f64| 1.0 / (rtt * rtt);
    let (mut sum, mut most, mut rates, mut squares) = (0.0, 0f64, 0.0, 0.0);
    for sub in &*subs {
        (sum, most) = (sum + omega(sub.rtt), most.max(omega(sub.rtt)));
        (rates, squares) = (rates + sub.rate, squares + sub.p * sub.rate * sub.rate);
    }
    for hit in 0..subs.len() {
        let (mut weights, mut m_t) = (0.0, 0.0);
        for (place, sub) in subs.iter().enumerate() {
            let rtt = if place == hit { sub.rtt_at_loss } else { sub.rtt };
            let weight = (omega(rtt) / most).powi(BEST_POWER);
            let if_best = (sub.p * rates * rates / squares).clamp(1.0, subs.len() as f64);
            (weights, m_t) = (weights + weight, m_t + weight * if_best);
        }
        let m_t = m_t / weights;
        subs[hit].m_t += DAMPING * (m_t - subs[hit].m_t);
    }
    for sub in subs {
        // One packet stays.
        let all = (1.0 - 1.0 / sub.window).max(0.25);
        (sub.growth, sub.cut) = (most / sum, (sub.m_t / 2.0).min(all));
        sub.balance();
    }
}

/// Computes LIA's windows: w = κ/p for all subflows, with κ² = 2 max(1/(p T²)) / (Σ 1/(p T))² from the
/// balance; no window exceeds that of a TCP on its path.
fn lia(subs: &mut [Sub]) {
    let (mut best, mut sum) = (0f64, 0.0);
    for sub in &*subs {
        best = best.max(1.0 / (sub.p * sub.rtt * sub.rtt));
        sum += 1.0 / (sub.p * sub.rtt);
    }
    let kappa = (2.0 * best).sqrt() / sum;
    for sub in subs {
        sub.cut = 0.5;
        sub.growth = (kappa * kappa / (2.0 * sub.p)).min(1.0);
        sub.balance();
    }
}

impl Sub {
    /// Computes the window from p w · c w = g. A window is at least one packet.
    fn balance(&mut self) {
        self.window = (self.growth / (self.p * self.cut)).sqrt().max(1.0);
    }
}

#[cfg(test)]
mod tests {
    use super::super::network::{Flow, Link, Path};
    use super::*;

    /// Returns links of 10 Mbit/s and 25 ms, with a queue of about half a bandwidth-delay product.
    fn links(count: usize) -> Vec<Link> {
        vec![Link { rate_bits: 10_000_000, delay_ns: 25_000_000, queue_packets: 20 }; count]
    }

    /// Returns a flow over single links, all of them in one group.
    fn flow(rule: Rule, over: &[usize]) -> Flow {
        let path = |link: &usize| Path { links: vec![*link], group: 0 };
        Flow { rule, paths: over.iter().map(path).collect() }
    }

    fn shares(links: Vec<Link>, flows: Vec<Flow>) -> Vec<f64> {
        let steady = solve(&Network { links, flows });
        assert!(steady.residual <= TOLERANCE, "{steady:?}");
        let rates = steady.flow_rates();
        let all: f64 = rates.iter().sum();
        rates.iter().map(|rate| 100.0 * rate / all).collect()
    }

    /// Beside one TCP, two subflows get (dissertation, Fig. 4.14 a): a half with LIA and NMCC, two thirds
    /// uncoupled.
    #[test]
    fn a_shared_bottleneck() {
        for (rule, expected) in [(Rule::Nmcc, 50.0), (Rule::Lia, 50.0), (Rule::Reno, 66.7)] {
            let share = shares(links(1), vec![flow(rule, &[0, 0]), flow(Rule::Reno, &[0])])[0];
            assert!((share - expected).abs() < 3.0, "{rule:?}: {share}");
        }
        let equal = shares(links(1), vec![flow(Rule::Reno, &[0]); 5]);
        assert!(equal.iter().all(|share| (share - 20.0).abs() < 0.1), "{equal:?}");
    }

    /// On private links, a loss of NMCC idles the link, unless the subflows are in different groups.
    #[test]
    fn private_links() {
        let mut apart = flow(Rule::Nmcc, &[0, 1]);
        apart.paths[1].group = 1;
        let rate = |flow: Flow| {
            let steady = solve(&Network { links: links(2), flows: vec![flow] });
            steady.flow_rates()[0] * 12_000.0 / 1e6
        };
        let (coupled, apart, lia) =
            (rate(flow(Rule::Nmcc, &[0, 1])), rate(apart), rate(flow(Rule::Lia, &[0, 1])));
        assert!(coupled < 0.85 * apart && apart > 18.0 && apart <= 20.0, "{coupled} {apart}");
        assert!(lia > 0.95 * apart, "{lia}");
    }

    #[test]
    fn a_long_way_takes_less() {
        let mut links = links(2);
        links.push(Link { rate_bits: 100_000_000, delay_ns: 100_000_000, queue_packets: 1_000 });
        let far = Flow { rule: Rule::Reno, paths: vec![Path { links: vec![0, 2], group: 0 }] };
        let share = shares(links, vec![far, flow(Rule::Reno, &[0])])[0];
        assert!((5.0..35.0).contains(&share), "{share}");
    }

    /// Where flows have one TCP each, equal round-trip times and one bottleneck, the model's rates are those
    /// of max-min fairness, but for the capacity that the sawtooth leaves idle: what a flow cannot use
    /// because of a narrow link goes to its neighbours.
    #[test]
    fn near_max_min_fairness_where_that_applies() {
        use anabranch_topology::max_min::{Class, MaxMin};
        let link = |mbits: u64| Link {
            rate_bits: mbits * 1_000_000,
            delay_ns: 12_500_000,
            // A bandwidth-delay product of 50 ms.
            queue_packets: (mbits * 50 / 12) as u32,
        };
        let over = |links: [usize; 2]| Flow {
            rule: Rule::Reno,
            paths: vec![Path { links: links.to_vec(), group: 0 }],
        };
        // Three flows share 30 Mbit/s, two others 40; a wide link carries all.
        let links = vec![link(30), link(40), link(1_000)];
        let flows = vec![over([2, 0]), over([2, 0]), over([2, 0]), over([2, 1]), over([2, 1])];
        let paths: Vec<u32> =
            flows.iter().flat_map(|flow| &flow.paths[0].links).map(|link| *link as u32).collect();
        let class = |flow: u32| Class { path: 2 * flow..2 * flow + 2, weight: 1.0, limit: f64::INFINITY };
        let classes: Vec<Class> = (0..5).map(class).collect();
        let mut fair = MaxMin::new();
        fair.share(&links.iter().map(Link::packets_per_second).collect::<Vec<_>>(), &paths, &classes);
        let steady = solve(&Network { links, flows });
        for (rate, fair) in steady.flow_rates().iter().zip(fair.rates()) {
            assert!((0.9..1.05).contains(&(rate / fair)), "{rate} {fair}");
        }
    }

    #[test]
    fn sawtooth() {
        // A queue of a bandwidth-delay product keeps the link full through half a cut.
        assert_eq!(Sawtooth::new(1.0, 0.5).usable, 1.0);
        // Without a queue the rate is three quarters (the mean of 1/2 to 1), and half if an event takes
        // everything.
        assert!((Sawtooth::new(0.0, 0.5).usable - 0.75).abs() < 1e-12);
        assert!((Sawtooth::new(0.0, 1.0).usable - 0.5).abs() < 1e-12);
        let nothing = Sawtooth::new(0.3, 0.0);
        assert_eq!((nothing.usable, nothing.queue), (1.0, 0.3));
        let queue = Sawtooth::new(2.0, 0.1).queue;
        assert!((1.7..2.0).contains(&queue), "{queue}");
    }

    #[test]
    fn nothing_to_do() {
        assert_eq!(solve(&Network::default()).rates, Vec::<Vec<f64>>::new());
        let idle = Network { links: links(3), flows: vec![flow(Rule::Lia, &[1])] };
        assert!((solve(&idle).flow_rates()[0] * 12_000.0 / 1e6 - 9.7).abs() < 0.5);
    }
}
